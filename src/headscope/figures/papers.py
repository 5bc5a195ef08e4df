"""Figures of the papers and of headscope by name, and all of them as files.

A figure is built as a chart (`chart_types`), then drawn by `paint`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import xarray as xr
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from headscope.arguments import expect
from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.figures.chart_data import ModelResults, axis_of, describe, figure_of, rounded
from headscope.figures.chart_types import Chart, Level, Line, LinePanel, LinesFigure
from headscope.figures.head_charts import Documents, HeadVariable, variable_entry
from headscope.figures.layer_charts import (
    ALIGNMENT,
    MAX_LABELS,
    MAX_LINES,
    Column,
    by_layer,
    group_figure,
    head_points,
    importance_lines,
    layer_lines,
    lines_figure,
    top_labels,
    training_lines,
)
from headscope.figures.paint import paint
from headscope.figures.style import save_figure, styled
from headscope.figures.table_charts import map_chart
from headscope.heads.head_map import map_heads
from headscope.heads.roles import ROLE_VARIABLES, Probes, RoleThresholds
from headscope.results.display import counted, is_shown, label_of
from headscope.results.result import Result
from headscope.text.tokens import FIRST, PUNCTUATION, REST, is_repeated

FORMATS = ("svg", "pdf", "png")
EXEMPLARS = "vb-exemplars"
GENRES = "genres"
MAP = "clark-6"
TRAINING = "through-training"
MAIN_TAGS = ("NOUN", "PROPN", "PUNCT", "DET")
"""Tags that most papers show first; a figure has those that occur."""


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """Variables of a figure, and the function that builds its chart."""

    needs: tuple[str, ...]
    chart: Callable[..., Chart]
    """Function of the result; its keyword arguments are the figure's options."""
    remedy: str = "Run analyze with it (tags and dependencies need an annotated corpus)."
    """Remedy for a missing variable."""


def _subjects(result: Result) -> list[ModelResults]:
    return [ModelResults(result.title, (result,))]


def _caption(result: Result) -> str:
    is_counted = "tokens_per_document_count" in result
    return result.title + (f" · {counted(result.n_documents)}" if is_counted else "")


def heads_chart(result: Result, name: str, labels: Sequence[object] | None = None) -> Chart:
    """Build a heat map of a variable over heads, or one for each label of a third axis."""
    others = [str(dim) for dim in result[name].dims if dim not in ("layer", "head")]
    if len(others) > 1:
        raise InputError(
            f"{name} has the axes {' and '.join(others)} besides layer and head: select a label of "
            f"all but one, and draw result[{name!r}].sel(…) yourself."
        )
    shown = [HeadVariable(name, {})]
    if others:
        shown = [
            HeadVariable(name, {others[0]: label})
            for label in (labels or result[name][others[0]].values.tolist())
        ]
    subjects = _subjects(result)
    variables = [variable_entry(subjects, variable) for variable in shown]
    title = describe(subjects, name).title
    return figure_of(name, "heads", title, _caption(result), variables=variables, roles=[None])


def _variable(name: str) -> Callable[[Result], Chart]:
    return lambda result: heads_chart(result, name)


def _main_tags(name: str) -> Callable[[Result], Chart]:
    """Build the chart of `MAIN_TAGS` that occur, or else of the most frequent tags."""

    def chart(result: Result) -> Chart:
        tags = [tag for tag in MAIN_TAGS if tag in result[name]["tag"].values]
        if not tags:
            mean = result["pos_to" if "pos_to" in result else name].mean(("layer", "head"))
            tags = [str(tag) for tag in mean.sortby(-mean)["tag"].values[:4]]
        return heads_chart(result, name, tags)

    return chart


def _alignment(result: Result) -> Chart:
    """Build shares of attention along dependency arcs by layer, with the baseline (Figure 8)."""
    chart = layer_lines(
        _subjects(result), "alignment", ALIGNMENT, "", _caption(result), bars=True, shared=True
    )
    return _made(chart)


def _relations(result: Result) -> Chart:
    """Build the share of attention to each relation by layer, most frequent first (Figure 9)."""
    names = top_labels(_subjects(result), "dep_type_to", "relation")[:MAX_LABELS]
    columns = [Column("dep_type_to", name, {"relation": name}) for name in names]
    return _made(
        layer_lines(_subjects(result), "dep_type_to", columns, "", _caption(result), bars=True)
    )


def _made(chart: Chart | None) -> Chart:
    if chart is None:
        raise InputError("There is nothing to draw: the result has no values by layer.")
    return chart


def _distance(result: Result) -> Chart:
    """Build the mean distance by head and by layer (Figure 11)."""
    chart = heads_chart(result, "distance")
    assert chart["kind"] == "heads"
    chart["variables"][0]["layers"] = [by_layer(_subjects(result)[0], "distance", {})]
    return chart


def _exemplars(
    result: Result, layer: int, head: int, *, n: int = 6, block: str | None = None
) -> Chart:
    """Build documents with a head's highest weights, with an arrow from query to key."""
    documents = Documents()
    arcs = [documents.arc(exemplar) for exemplar in result.exemplars(layer, head, block)[:n]]
    if not arcs:
        raise InputError(f"L{layer} H{head} has no exemplars: no document gave it attention.")
    shown = {"layer": layer, "head": head, "why": _caption(result), "exemplars": arcs}
    panels = [{"subject": 0, "heads": [shown]}]
    return figure_of("exemplars", "exemplars", "", "", panels=panels, documents=documents.tokens)


def _points(
    result: Result, name: str, panels: Mapping[str, Sequence[Line]], level: Level | None = None
) -> LinesFigure:
    """Build panels by title, with a point for each head and the means of layers."""
    axis = axis_of(describe(_subjects(result), name))
    content: list[LinePanel] = [{"series": [*p], "baseline": level} for p in panels.values()]
    chart = lines_figure(
        _subjects(result),
        name,
        "",
        _caption(result),
        [content],
        columns=[{**axis, "title": title} for title in panels],
        shared=True,
    )
    return cast("LinesFigure", chart)


def _clark_1(result: Result) -> Chart:
    """Build attention to the previous, current and next token by head (section 3.1).

    Clark et al.'s Figure 1 shows four heads as examples. This is the plot of all heads from their
    notebook, with next and previous corrected. Causal attention has no panel for the next token.
    """
    shares = result["offset_share"]
    titles = {-1: "Previous token", 0: "Current token", 1: "Next token"}
    shown = {offset: shares.sel(offset=offset) for offset in titles}
    if not (shown[1] > 0).any():
        del shown[1]
    panels = {titles[offset]: [head_points(values)] for offset, values in shown.items()}
    chart = _points(result, "offset_share", panels, {"name": "", "value": 0.5})
    for panel, values in zip(chart["rows"][0]["panels"], shown.values(), strict=True):
        n = int((values > 0.5).sum())
        assert panel is not None
        panel["note"] = f"{n} head{'s' * (n != 1)} above 50 %"
    return chart


def _clark_2(result: Result) -> Chart:
    """Build attention to special tokens and punctuation, and to separators if any (section 3.2)."""
    shares = result["class_share"]
    panels: dict[str, Sequence[Line]] = {
        "Attention to …": [
            head_points(shares.sel(key_class=name), label_of("key_class", name))
            for name in shares["key_class"].values.tolist()
            if name not in _left_out(shares)
        ]
    }
    if np.isfinite(result["sep_from_sep"]).any():
        panels["Attention to separators from …"] = [
            head_points(result["sep_from_sep"], "separators"),
            head_points(result["sep_from_other"], "other tokens"),
        ]
    return _points(result, "class_share", panels)


def _left_out(values: xr.DataArray) -> list[str]:
    """Return the classes of keys not to draw; `first` if the first token is a special token."""
    return [REST, PUNCTUATION, *([FIRST] if is_repeated(values) else [])]


def _clark_3(result: Result) -> Chart:
    """Build mean |∂L/∂a| by layer, for each class of keys and for all keys (section 3.2)."""
    without = _left_out(result["importance_by_layer"])
    chart = importance_lines(_subjects(result), without)
    assert chart is not None
    assert chart["kind"] == "lines"
    chart["columns"][0] |= {
        "title": "Dependence of the loss on attention to …",
        "units": "Mean |∂L/∂a| (nats)",
        "log": True,
    }
    chart["caption"] = [f"{result.title} · loss {float(result['loss']):.2f} nats per token"]
    return chart


def _clark_4(result: Result) -> Chart:
    """Build the entropy of rows, of all tokens and, unless causal, the first (section 3.3)."""
    panels: dict[str, Sequence[Line]] = {"From all tokens": [head_points(result["row_entropy"])]}
    if (result["first_entropy"] > 0).any():
        panels["From the first token alone"] = [head_points(result["first_entropy"])]
    level = rounded(float(result["uniform_entropy"]))
    return _points(result, "row_entropy", panels, {"name": "uniform attention", "value": level})


def _map(
    result: Result,
    *,
    probes: Probes | None = None,
    effects: xr.DataArray | Result | None = None,
    thresholds: RoleThresholds | None = None,
    seed: int = 0,
    starts: int = 8,
) -> Chart:
    heads = map_heads(
        result, probes=probes, effects=effects, thresholds=thresholds, seed=seed, starts=starts
    )
    return map_chart(heads, MAP)


def _genres(result: Result) -> Chart:
    """Build the mean over heads of each metric for each group, with 95 % intervals."""
    chart = group_figure(_subjects(result))
    if chart is None:
        raise InputError('This result has no groups. Run analyze(…, by="genre").')
    chart["caption"] = [f"{_caption(result)} · orange: share of such pairs among all pairs"]
    return chart


def _training(result: Result, *, names: Sequence[str] = (), n: int = MAX_LINES) -> Chart:
    """Build scores by training step, of the heads that reach the highest."""
    if not result.steps:
        raise InputError("This result is of one model. Track a training with HeadTracker.")
    return _made(training_lines(result, names=names, n=n))


FIGURES: dict[str, PaperFigure] = {
    "vb-5": PaperFigure(("null_share",), _variable("null_share")),
    "vb-6": PaperFigure(("pos_to",), _main_tags("pos_to")),
    "vb-7": PaperFigure(("pos_from",), _main_tags("pos_from")),
    "vb-8": PaperFigure(("dep_alignment", "dep_baseline_by_parent"), _alignment),
    "vb-9": PaperFigure(("dep_type_to",), _relations),
    "vb-10": PaperFigure(("variability",), _variable("variability")),
    "vb-11": PaperFigure(("distance",), _distance),
    "vb-12": PaperFigure(("entropy",), _variable("entropy")),
    "vb-a1": PaperFigure(("pos_to",), _variable("pos_to")),
    "vb-a2": PaperFigure(("pos_from",), _variable("pos_from")),
    EXEMPLARS: PaperFigure(("exemplar_weight",), _exemplars),
    "clark-1": PaperFigure(("offset_share",), _clark_1),
    "clark-2": PaperFigure(("class_share", "sep_from_sep", "sep_from_other"), _clark_2),
    "clark-3": PaperFigure(
        ("importance_by_layer",), _clark_3, "Make the result with headscope.importance."
    ),
    "clark-4": PaperFigure(("row_entropy", "first_entropy", "uniform_entropy"), _clark_4),
    MAP: PaperFigure(
        ("js", *ROLE_VARIABLES), _map, 'Run analyze with it: analyze(model, corpus, ["all", "js"]).'
    ),
    GENRES: PaperFigure((), _genres),
    TRAINING: PaperFigure((), _training),
}
"""By name: `vb` is Vig & Belinkov (2019), `clark` Clark et al. (2019); the rest is ours."""


def draw(result: Result, name: str, **options: object) -> Figure:
    """See `Result.figure`."""
    expect("name", name, str, "the name of a figure")
    figure = FIGURES.get(name) or PaperFigure((name,), _variable(name))
    if name not in FIGURES and not (name in result and {"layer", "head"} <= {*result[name].dims}):
        raise _unknown(name, result)
    missing = [variable for variable in figure.needs if variable not in result]
    if missing:
        raise InputError(
            f"Figure {name} shows {' and '.join(missing)}, which this result does not have. "
            f"{figure.remedy}"
        )
    _check_options(name, figure, options)
    return paint(figure.chart(result, **options), [s.entry for s in _subjects(result)])


def _drawable(result: Result) -> list[str]:
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
        UnknownName.check("format", suffix, FigureCanvasBase.get_supported_filetypes())
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
    drawn: dict[str, Figure] = {}
    for name, figure in FIGURES.items():
        is_possible = all(variable in result for variable in figure.needs)
        if name == EXEMPLARS or not is_possible or (name == GENRES and not result.groups):
            continue
        if (name == TRAINING) != bool(result.steps):
            continue
        try:
            drawn[name] = draw(result, name)
        except MissingExtra:  # the map of heads needs scikit-learn
            continue
    shown = {variable for figure in FIGURES.values() for variable in figure.needs}
    metrics = result.provenance.get("metrics", ())
    of_users = {str(metric["name"]) for metric in metrics if "own_class" in metric}
    for name in _drawable(result):
        if name in of_users and name not in shown:
            drawn[name] = draw(result, name)
    return drawn


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
    parameters = list(inspect.signature(figure.chart).parameters.values())[1:]
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
