"""The head finder: any two measures against one another, a point per head, colored by role."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.errors import InputError
from headscope.heads.behavior import behaviors
from headscope.heads.probed import of_probes
from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject
from headscope.reporting.variables import head_variables
from headscope.reporting.wording import with_interval

PAIRS = (
    ("Distance and alignment", "distance", "dep_alignment:either"),
    ("Distance and entropy", "distance", "entropy"),
    ("Rest and effect", "null_share", "effect"),
    ("Rest, and what it fetches", "null_share", "null_share_by_norm"),
    ("Gradient and effect", "removal_estimate:all", "effect"),
)
"""What papers set against one another: a title and two variables."""


def finder_figure(subjects: Sequence[Subject]) -> Figure | None:
    """Heads as points, between any two of the variables that the figure of all heads shows."""
    known = [variable.id for variable in head_variables(subjects)]
    if len(known) < 2:
        return None
    pairs = [pair for pair in PAIRS if pair[1] in known and pair[2] in known]
    presets = [
        {"title": title, "x": x, "y": y, "notes": [_note(s, x, y) for s in subjects]}
        for title, x, y in pairs or [("", known[0], known[1])]
    ]
    return figure_of(
        "finder",
        "finder",
        "Find a head",
        "Each point is a head, colored by what it does. Choose any two measures; drag a rectangle "
        "to list the heads in it; click a point for its card. r is Pearson's, over heads; its "
        "interval is over documents.",
        equation="correlation",
        paper="Vig & Belinkov 2019, section 5.3.3",
        presets=presets,
        panels=[{"subject": n, "roles": roles_of(s)} for n, s in enumerate(subjects)],
    )


def _note(subject: Subject, x: str, y: str) -> str:
    r = subject.data("correlation")
    key = f"{x}-{y.split(':')[0]}"
    if r is None or key not in r["correlated"].values:
        return ""
    value = subject.measured("correlation", correlated=key)
    return f"r = {with_interval(value)}" if value.is_known else ""


def roles_of(subject: Subject) -> list[list[str]] | None:
    """`layer head`: what each head does; None where that was not measured."""
    result = subject.result("offset_share")
    if result is None:
        return None
    try:
        names = behaviors(result, probes=of_probes(subject.results))
    except InputError:  # some surface metric is missing
        return None
    return [[str(name) for name in row] for row in names.values]
