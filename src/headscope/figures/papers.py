"""Figures of the papers and of headscope by name, and all of them as files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import xarray as xr
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from headscope.arguments import expect
from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.figures.bars import genre_figure
from headscope.figures.clark import (
    clark_figure_1,
    clark_figure_2,
    clark_figure_3,
    clark_figure_4,
    clark_figure_6,
)
from headscope.figures.example_sentences import exemplar_table
from headscope.figures.heat_maps import (
    MAIN_TAGS,
    alignment_by_layer,
    distance_figure,
    heat_map,
    tag_maps,
    types_by_layer,
)
from headscope.figures.style import save_figure, styled
from headscope.heads.head_map import map_heads
from headscope.heads.roles import ROLE_VARIABLES, Probes, RoleThresholds
from headscope.results.display import is_shown
from headscope.results.result import Result

FORMATS = ("svg", "pdf", "png")
EXEMPLARS = "vb-exemplars"
GENRES = "genres"
MAP = "clark-6"


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """Variables of a figure, and the function that draws it."""

    needs: tuple[str, ...]
    draw: Callable[..., Figure]
    """Function of the result; its keyword arguments are the figure's options."""
    remedy: str = "Run analyze with it (tags and dependencies need an annotated corpus)."
    """Remedy for a missing variable."""


def _variable_map(name: str) -> Callable[[Result], Figure]:
    return lambda result: heat_map(result[name])


def _tag_maps(name: str, *, all_tags: bool) -> Callable[[Result], Figure]:
    return lambda result: tag_maps(result[name], labels=None if all_tags else _main_tags(result))


def _head_map(
    result: Result,
    *,
    probes: Probes | None = None,
    effects: xr.DataArray | Result | None = None,
    thresholds: RoleThresholds | None = None,
    seed: int = 0,
    starts: int = 8,
) -> Figure:
    heads = map_heads(
        result, probes=probes, effects=effects, thresholds=thresholds, seed=seed, starts=starts
    )
    return clark_figure_6(heads)


FIGURES: dict[str, PaperFigure] = {
    "vb-5": PaperFigure(("null_share",), _variable_map("null_share")),
    "vb-6": PaperFigure(("pos_to",), _tag_maps("pos_to", all_tags=False)),
    "vb-7": PaperFigure(("pos_from",), _tag_maps("pos_from", all_tags=False)),
    "vb-8": PaperFigure(
        ("dep_alignment", "dep_baseline_by_parent"),
        lambda result: alignment_by_layer(result.dataset),
    ),
    "vb-9": PaperFigure(("dep_type_to",), lambda result: types_by_layer(result.dataset)),
    "vb-10": PaperFigure(("variability",), _variable_map("variability")),
    "vb-11": PaperFigure(("distance",), lambda result: distance_figure(result.dataset)),
    "vb-12": PaperFigure(("entropy",), _variable_map("entropy")),
    "vb-a1": PaperFigure(("pos_to",), _tag_maps("pos_to", all_tags=True)),
    "vb-a2": PaperFigure(("pos_from",), _tag_maps("pos_from", all_tags=True)),
    EXEMPLARS: PaperFigure(("exemplar_weight",), exemplar_table),
    "clark-1": PaperFigure(("offset_share",), clark_figure_1),
    "clark-2": PaperFigure(("class_share", "sep_from_sep", "sep_from_other"), clark_figure_2),
    "clark-3": PaperFigure(
        ("importance_by_layer",), clark_figure_3, "Make the result with headscope.importance."
    ),
    "clark-4": PaperFigure(("row_entropy", "first_entropy", "uniform_entropy"), clark_figure_4),
    MAP: PaperFigure(
        ("js", *ROLE_VARIABLES),
        _head_map,
        'Run analyze with it: analyze(model, corpus, ["all", "js"]).',
    ),
    GENRES: PaperFigure((), genre_figure),
}
"""By name: `vb` is Vig & Belinkov (2019), `clark` Clark et al. (2019); the rest is ours."""


def draw(result: Result, name: str, **options: object) -> Figure:
    """See `Result.figure`."""
    expect("name", name, str, "the name of a figure")
    if name not in FIGURES:
        return _draw_variable(result, name, options)
    figure = FIGURES[name]
    missing = [variable for variable in figure.needs if variable not in result]
    if missing:
        raise InputError(
            f"Figure {name} shows {' and '.join(missing)}, which this result does not have. "
            f"{figure.remedy}"
        )
    _check_options(name, figure, options)
    return figure.draw(result, **options)


def _draw_variable(result: Result, name: str, options: dict[str, object]) -> Figure:
    """Draw a heat map of a variable over heads, or one for each label of a third axis."""
    if name not in result or not {"layer", "head"} <= set(result[name].dims):
        raise _unknown(name, result)
    values = result[name]
    _check_options(name, PaperFigure((name,), heat_map), options)
    others = [str(dim) for dim in values.dims if dim not in ("layer", "head")]
    if not others:
        return heat_map(values)
    if len(others) > 1:
        raise InputError(
            f"{name} has the axes {' and '.join(others)} besides layer and head: select a label of "
            f"all but one, and draw result[{name!r}].sel(…) yourself."
        )
    return tag_maps(values, dim=others[0])


def _drawable(result: Result) -> list[str]:
    """Return the variables that `_draw_variable` draws."""
    return [
        str(name)
        for name, array in result.dataset.data_vars.items()
        if is_shown(array) and {"layer", "head"} <= set(array.dims) and array.ndim <= 3
    ]


def save_figures(
    result: Result,
    folder: str | os.PathLike[str],
    *,
    figures: Iterable[str] | None = None,
    formats: Iterable[str] = FORMATS,
    exemplars: Iterable[tuple[int, int]] = (),
) -> list[Path]:
    """See `Result.save_figures`."""
    expect("folder", folder, str | os.PathLike, "the name of a folder")
    figures = [figures] if isinstance(figures, str) else figures
    formats = [formats] if isinstance(formats, str) else list(formats)
    for suffix in formats:
        if suffix not in FigureCanvasBase.get_supported_filetypes():
            raise UnknownName.of("format", suffix, FigureCanvasBase.get_supported_filetypes())
    target = Path(folder)
    if target.is_file():
        raise InputError(f"{target} is a file; give the name of a folder to write to.")
    if figures is None:
        drawn = _all_possible(result)
    else:
        drawn = {name: draw(result, name) for name in figures}
    for layer, head in exemplars:
        figure = draw(result, EXEMPLARS, layer=layer, head=head)
        drawn[f"{EXEMPLARS}-L{layer}-H{head}"] = figure
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for name, figure in drawn.items():
        with styled():
            figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout is fixed: compute it once for all formats
        files += [save_figure(figure, target / f"{name}.{suffix}") for suffix in formats]
    return files


def _all_possible(result: Result) -> dict[str, Figure]:
    """Draw every figure that the result and the installed libraries allow, except exemplars."""
    drawn: dict[str, Figure] = {}
    for name, figure in FIGURES.items():
        is_possible = all(variable in result for variable in figure.needs)
        if name == EXEMPLARS or not is_possible or (name == GENRES and not result.groups):
            continue
        try:
            drawn[name] = figure.draw(result)
        except MissingExtra:  # the map of heads needs scikit-learn
            continue
    shown = {variable for figure in FIGURES.values() for variable in figure.needs}
    for name in _drawable(result):
        if name in _user_metrics(result) and name not in shown:
            drawn[name] = _draw_variable(result, name, {})
    return drawn


def _user_metrics(result: Result) -> set[str]:
    return {str(m["name"]) for m in result.provenance.get("metrics", ()) if "own_class" in m}


def _unknown(name: str, result: Result) -> UnknownName:
    if name == "clark-5":
        return UnknownName(
            "Clark et al.'s Figure 5 shows sentences, which a result does not hold: "
            "result.examples(model, corpus, relation).figure()."
        )
    number = str(name).lower().replace(".", "")
    similar = [figure for figure in FIGURES if figure.partition("-")[2] == number]
    if similar:
        return UnknownName(
            f"Unknown figure {name!r}. Figures are named after their paper: "
            f"{' or '.join(map(repr, similar))}."
        )
    return UnknownName.of("figure", name, [*FIGURES, *_drawable(result)])


def _check_options(name: str, figure: PaperFigure, options: dict[str, object]) -> None:
    parameters = list(inspect.signature(figure.draw).parameters.values())[1:]
    names = [parameter.name for parameter in parameters]
    for option in options:
        if option not in names:
            takes = f"it takes {', '.join(names)}" if names else "it takes none"
            raise InputError(f"Figure {name} has no option {option!r}; {takes}.")
    needed = [p.name for p in parameters if p.default is p.empty and p.name not in options]
    if needed:
        raise InputError(
            f"Figure {name} needs {' and '.join(needed)}: "
            f'result.figure("{name}", {", ".join(f"{option}=…" for option in needed)}).'
        )


def _main_tags(result: Result) -> list[str]:
    """Return `MAIN_TAGS` that occur, or else the most frequent tags."""
    tags = [str(tag) for tag in result["pos_to"]["tag"].values]
    shown = [tag for tag in MAIN_TAGS if tag in tags]
    if shown:
        return shown
    mean = result["pos_to"].mean(("layer", "head"))
    return [str(tag) for tag in mean.sortby(-mean)["tag"].values[:4]]
