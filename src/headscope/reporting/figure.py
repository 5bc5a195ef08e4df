"""Figures as plain data: what every kind carries, and the one of all heads.

A figure has an id, a kind (which the page knows how to draw), a title, a caption, an
equation by name and a paper; its numbers follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headscope.reporting.subjects import Subject
from headscope.reporting.variables import Variable, describe, head_variables, values_of
from headscope.reporting.wording import Sentence
from headscope.results.described import Described

Figure = dict[str, Any]


def figure_of(
    key: str,
    kind: str,
    title: str,
    caption: Sentence | str,
    *,
    equation: str | None = None,
    paper: str = "",
    **content: Any,
) -> Figure:
    """A figure: what all have, then its own."""
    caption = [caption] if isinstance(caption, str) else caption
    return {
        "id": key,
        "kind": kind,
        "title": title,
        "caption": caption,
        "equation": equation,
        "paper": paper,
        **content,
    }


def section(
    key: str, title: str, text: Sequence[Sentence], figures: Sequence[Figure | None]
) -> Any:
    """A section with the figures that there are; None where there is none."""
    shown = [figure for figure in figures if figure is not None]
    return {"id": key, "title": title, "text": list(text), "figures": shown} if shown else None


def heads_figure(subjects: Sequence[Subject]) -> Figure | None:
    """All variables over layer and head, one shown at a time."""
    variables = [
        _variable(describe(subjects, variable.name), variable, subjects)
        for variable in head_variables(subjects)
    ]
    if not variables:
        return None
    return figure_of(
        "heads",
        "heads",
        "Every head, layer by layer",
        "Rows are layers, columns are heads; all models share one scale. Point at a cell for "
        "its value and 95 % interval; click it, or press Enter, for everything known about the "
        "head.",
        variables=variables,
    )


def _variable(known: Described, variable: Variable, subjects: Sequence[Subject]) -> dict[str, Any]:
    return {
        "id": variable.id,
        "name": variable.name,
        "group": known.title,
        "label": variable.label,
        "units": known.units,
        "share": known.is_share,
        "paper": known.paper,
        "meaning": known.meaning,
        "values": [values_of(subject, variable) for subject in subjects],
    }
