"""A table of what changed: heads of two models that read the same documents."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.findings_between import Differences, changes_of
from headscope.reporting.subjects import Subject
from headscope.reporting.table_figures import Cell, cell, p_shown
from headscope.reporting.variables import describe
from headscope.reporting.wording import SPACE, Measured, head

MOST = 5
"""So many heads of each measure."""


def change_table(subjects: Sequence[Subject], differences: Differences) -> Figure | None:
    """For each measure, the heads that changed most, of those that changed."""
    rows: list[list[Cell]] = []
    for left, right, data in differences:
        for changed in changes_of(subjects, left, right, data):
            known = describe(subjects, changed.name)
            share = known.is_share
            rows.extend(
                [
                    f"{subjects[left].title} → {subjects[right].title}",
                    known.title + ("" if share else f" ({known.units})"),
                    f"{len(changed.heads)} of {changed.n_tested}",
                    head(right, change.layer, change.head),
                    cell(Measured(change.before), share=share),
                    cell(Measured(change.after), share=share),
                    cell(change.by, share=share),
                    p_shown(change.p_adjusted),
                    f"{change.decided:.0%}".replace("%", f"{SPACE}%") if change.decided else "",
                ]
                for change in changed.heads[:MOST]
            )
    if not rows:
        return None
    return figure_of(
        "changes",
        "table",
        "Heads that changed",
        "The second model minus the first, head by head, over the same documents: paired t tests "
        "with jackknife standard errors, p values corrected for all heads of a measure (Benjamini "
        f"& Hochberg). Of each measure, at most {MOST} heads. Where one document is more than half "
        "of what a change varies by, its share is given: other documents may say otherwise.",
        paper="Benjamini & Hochberg 1995",
        columns=[
            {"label": "Models", "kind": "text"},
            {"label": "Measure", "kind": "text"},
            {"label": "Heads changed", "kind": "text"},
            {"label": "Head", "kind": "head"},
            {"label": "Before", "kind": "number"},
            {"label": "After", "kind": "number"},
            {"label": "Change", "kind": "difference"},
            {"label": "p, corrected", "kind": "text"},
            {"label": "One document", "kind": "text"},
        ],
        rows=rows,
    )
