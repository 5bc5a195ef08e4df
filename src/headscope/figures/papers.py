"""Figures by their number in the papers, and all of them into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.figure import Figure

from headscope.errors import InputError, UnknownName
from headscope.figures.by_layer import alignment_by_layer, distance_figure, types_by_layer
from headscope.figures.exemplar_table import exemplar_table
from headscope.figures.genres import genre_figure
from headscope.figures.heatmaps import MAIN_TAGS, heat_map, tag_maps
from headscope.figures.style import save_figure
from headscope.results.result import Result

__all__ = ["FIGURES", "draw", "save_figures"]

FORMATS = ("svg", "pdf", "png")


def _variable_map(name: str, title: str, label: str) -> Callable[[Result], Figure]:
    return lambda result: heat_map(result[name], title=title, label=label)


FIGURES: dict[str, tuple[tuple[str, ...], Callable[[Result], Figure]]] = {
    "5": (
        ("null_share",),
        _variable_map("null_share", "Null attention", "share of attention"),
    ),
    "6": (
        ("pos_to",),
        lambda result: tag_maps(
            result["pos_to"], labels=_main(result), title="Share of attention to each tag"
        ),
    ),
    "7": (
        ("pos_from",),
        lambda result: tag_maps(
            result["pos_from"], labels=_main(result), title="Share of attention from each tag"
        ),
    ),
    "8": (("dep_alignment", "dep_baseline_by_parent"), lambda r: alignment_by_layer(r.dataset)),
    "9": (("dep_type_to",), lambda result: types_by_layer(result.dataset)),
    "10": (
        ("variability",),
        _variable_map("variability", "Variability", "share of attention"),
    ),
    "11": (("distance",), lambda result: distance_figure(result.dataset)),
    "12": (("entropy",), _variable_map("entropy", "Entropy", "nats")),
    "A.1": (
        ("pos_to",),
        lambda r: tag_maps(r["pos_to"], title="Share of attention to each tag"),
    ),
    "A.2": (
        ("pos_from",),
        lambda r: tag_maps(r["pos_from"], title="Share of attention from each tag"),
    ),
    "genres": ((), genre_figure),
}
"""Vig & Belinkov's figures by number: the variables each needs, and who draws it."""


def draw(result: Result, figure: str) -> Figure:
    """One figure of Vig & Belinkov (2019) by its number: "5" … "12", "A.1", "A.2"; or
    "genres". A matplotlib figure: save it with `figure.savefig(path)`.

    Raises:
        UnknownName: there is no such figure.
        InputError: the result lacks what it shows.
    """
    if figure not in FIGURES:
        raise UnknownName.of("figure", figure, FIGURES)
    needed, make = FIGURES[figure]
    missing = [name for name in needed if name not in result]
    if missing:
        raise InputError(
            f"Figure {figure} shows {' and '.join(missing)}, which this result does not have. "
            "Run analyze with it (tags and dependencies need an annotated corpus)."
        )
    return make(result)


def save_figures(
    result: Result,
    folder: str | Path,
    *,
    figures: Iterable[str] | None = None,
    formats: Iterable[str] = FORMATS,
    exemplars: Iterable[tuple[int, int]] = (),
) -> list[Path]:
    """Write figures to files: all that the result allows, in SVG, PDF and PNG.

    Args:
        result: what to draw.
        folder: where to; made if need be.
        figures: which, by number.
        formats: file formats that matplotlib knows.
        exemplars: also a table for each of these heads (layer, head).
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made: dict[str, Figure] = {}
    for name in FIGURES if figures is None else figures:
        is_possible = all(v in result for v in FIGURES.get(name, ((),))[0])
        if figures is not None or (is_possible and (name != "genres" or result.groups)):
            made[f"figure-{name.replace('.', '')}" if name != "genres" else name] = draw(
                result, name
            )
    for layer, head in exemplars:
        made[f"exemplars-L{layer}-H{head}"] = exemplar_table(result, layer, head)
    return [
        save_figure(figure, target / f"{name}.{suffix}")
        for name, figure in made.items()
        for suffix in formats
    ]


def _main(result: Result) -> list[str]:
    """The tags shown first; where none of them occurs, the most frequent."""
    known = [str(tag) for tag in result["pos_to"]["tag"].values]
    shown = [tag for tag in MAIN_TAGS if tag in known]
    if shown:
        return shown
    mean = result["pos_to"].mean(("layer", "head"))
    return [str(tag) for tag in mean.sortby(-mean)["tag"].values[:4]]
