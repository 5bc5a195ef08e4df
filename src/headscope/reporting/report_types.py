"""Types of a report around its charts (`chart_types`): findings, cards, provenance."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

from headscope.figures.chart_types import Arc, Figure, MaybeNumber, Phrase, SubjectEntry

Tree: TypeAlias = "list[str | Tree]"
"""MathML: a tag, then children; leaves are text."""


class ReportCard(TypedDict):
    """A `HeadCard`: rows of name, value and rank by topic; nearest heads; arcs."""

    layer: int
    head: int
    summary: str
    evidence: list[tuple[str, list[list[str]]]]
    nearest: list[tuple[int, int, MaybeNumber]]
    exemplars: list[Arc]


class Section(TypedDict):
    """Figures on one topic."""

    id: str
    title: str
    text: list[Phrase]
    figures: list[Figure]


class Paragraph(TypedDict):
    """Sentences on one topic."""

    topic: str
    sentences: list[Phrase]


class Finding(TypedDict):
    """Sentences about one subject; `subject` is null for sentences between subjects."""

    subject: int | None
    title: str
    paragraphs: list[Paragraph]


class Rows(TypedDict):
    """Names and texts under a title."""

    title: str
    rows: list[tuple[str, str]]


class Provenance(Rows):
    """A model, and its runs."""

    runs: list[Rows]


class Report(TypedDict):
    """The whole report."""

    format: str
    version: int
    title: str
    subjects: list[SubjectEntry]
    findings: list[Finding]
    sections: list[Section]
    equations: dict[str, Tree]
    cards: list[list[ReportCard]]
    documents: list[list[str]]
    provenance: list[Provenance]
