"""Figures as plain data: what figures of all kinds have, and the figure of all heads.

A figure has an id, a kind (which the page knows how to draw), a title, a caption, the name of
an equation, a paper, and the numbers of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from headscope.heads.roles import corpus_roles
from headscope.reporting.subjects import Subject
from headscope.reporting.variables import HeadValues, Variable, describe, head_variables, values_of
from headscope.reporting.wording import Sentence
from headscope.results.described import Described


class Axis(TypedDict):
    """What an axis or a column of small panels shows."""

    title: str
    units: str
    share: bool


class VariableEntry(TypedDict):
    """A variable of `heads_figure`."""

    id: str
    name: str
    group: str
    label: str
    units: str
    share: bool
    paper: str
    meaning: str
    values: list[HeadValues | None]


class Content(TypedDict, total=False):
    """What figures of some kinds have; `web/src/report/data.ts` says which."""

    variables: Sequence[VariableEntry]
    roles: Sequence[Sequence[Sequence[str]] | None]
    columns: Sequence[Mapping[str, object]]
    rows: Sequence[object]
    panels: Sequence[Mapping[str, object]]
    presets: Sequence[Mapping[str, object]]
    axis: str
    labels: Sequence[str]
    units: str
    share: bool
    groups: Sequence[str]
    subjects: Sequence[int]


class Figure(Content):
    """What figures of all kinds have."""

    id: str
    kind: str
    title: str
    caption: Sentence
    equation: str | None
    paper: str


class Section(TypedDict):
    """A section of the report, with its figures."""

    id: str
    title: str
    text: list[Sentence]
    figures: list[Figure]


def figure_of(
    key: str,
    kind: str,
    title: str,
    caption: Sentence | str,
    *,
    equation: str | None = None,
    paper: str = "",
    **content: Unpack[Content],
) -> Figure:
    """A figure: what all figures have, then the content of its kind."""
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


def section(key: str, title: str, figures: Sequence[Figure | None]) -> Section | None:
    """A section of the figures that are not None; None if all are."""
    shown = [figure for figure in figures if figure is not None]
    return {"id": key, "title": title, "text": [], "figures": shown} if shown else None


def axis_of(known: Described) -> Axis:
    """The axis of a variable."""
    return {"title": known.title, "units": known.units, "share": known.is_share}


def heads_figure(subjects: Sequence[Subject]) -> Figure | None:
    """All variables over layer and head, one shown at a time."""
    variables = [
        _entry(describe(subjects, variable.name), variable, subjects)
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
        roles=[_roles(subject) for subject in subjects],
    )


def _roles(subject: Subject) -> list[list[str]] | None:
    """`layer head`: what each head does over the corpus, empty without a name; None where that was
    not measured.
    """
    data = subject.data("class_share")
    roles = None if data is None else corpus_roles(data)
    return None if roles is None else [[str(role) for role in row] for row in roles["role"].values]


def _entry(known: Described, variable: Variable, subjects: Sequence[Subject]) -> VariableEntry:
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
