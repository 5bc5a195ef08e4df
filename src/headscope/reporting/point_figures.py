"""Heads as points: variables against one another, and the map of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headscope.heads.head_map import HeadMap
from headscope.reporting.figure import Figure, axis_of, figure_of
from headscope.reporting.subjects import Subject, measured_elsewhere
from headscope.reporting.variables import describe, numbers
from headscope.reporting.wording import with_interval


def correlations(subjects: Sequence[Subject]) -> list[Figure]:
    """Heads as points: distance against alignment and entropy, with Pearson's r."""
    figures = []
    for other, labels, title in (
        ("dep_alignment", {"parent": "either"}, "Distance and alignment"),
        ("entropy", {}, "Distance and entropy"),
    ):
        panels = []
        for number, subject in enumerate(subjects):
            result = subject.result("distance")
            if result is None or other not in result:
                continue
            x = result["distance"].transpose("layer", "head")
            y = result[other].sel(labels).transpose("layer", "head")
            r = subject.measured("correlation", correlated=f"distance-{other}")
            panels.append(
                {
                    "subject": number,
                    "x": numbers(x),
                    "y": numbers(y),
                    "note": f"r = {with_interval(r)}" if r.is_known else "",
                }
            )
        if panels:
            figures.append(
                figure_of(
                    f"correlation-{other}",
                    "points",
                    title,
                    "Each point is a head; later layers have a stronger shade. r is Pearson's, "
                    "over heads; its interval is over documents.",
                    equation="correlation",
                    paper="Vig & Belinkov 2019, section 5.3.3",
                    axes=[axis_of(describe(subjects, name)) for name in ("distance", other)],
                    panels=panels,
                )
            )
    return figures


def map_figure(subjects: Sequence[Subject], maps: Mapping[int, HeadMap]) -> Figure | None:
    """Heads in the plane: those that attend alike are near (Clark et al.'s Figure 6)."""
    panels = []
    for number, heads in maps.items():
        data = heads.data
        same, different = heads.layer_spread()
        panels.append(
            {
                "subject": number,
                "layer": [int(n) for n in data["layer"].values],
                "head": [int(n) for n in data["head"].values],
                "x": numbers(data["x"]),
                "y": numbers(data["y"]),
                "behavior": [str(name) for name in data["behavior"].values],
                "cluster": [int(n) for n in data["cluster"].values],
                "note": (
                    f"stress {heads.stress:.2f}; mean JS {same:.3f} in a layer, "
                    f"{different:.3f} between layers"
                ),
            }
        )
    if not panels:
        return None
    return figure_of(
        "map",
        "map",
        "The map of heads",
        "Heads that attend alike lie near one another: metric multidimensional scaling of their "
        "Jensen-Shannon divergence, averaged over tokens. Stress says how much the plane distorts "
        "the divergence: 0 is not at all, above 0.2 is much." + measured_elsewhere(subjects, "js"),
        equation="js",
        paper="Clark et al. 2019, section 6, Figure 6",
        panels=panels,
    )
