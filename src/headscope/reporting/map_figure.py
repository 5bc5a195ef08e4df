"""The map of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headscope.heads.head_map import HeadMap
from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.subjects import Subject, measured_elsewhere
from headscope.reporting.variables import numbers


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
                **({"effect": numbers(data["effect"])} if "effect" in data else {}),
                "note": (
                    f"stress {heads.stress:.2f}; mean JS {same:.3f} in a layer, "
                    f"{different:.3f} between layers"
                ),
            }
        )
    if not panels:
        return None
    if any("effect" in panel for panel in panels):
        sizes = (
            " The larger a point, the more the loss per predicted token changes without the head "
            "(rises or falls)." + measured_elsewhere(subjects, "effect")
        )
    else:
        sizes = ""
    return figure_of(
        "map",
        "map",
        "The map of heads",
        "Heads that attend alike lie near one another: metric multidimensional scaling of their "
        "Jensen-Shannon divergence, averaged over tokens. Stress says how much the plane distorts "
        "the divergence: 0 is not at all, above 0.2 is much."
        + measured_elsewhere(subjects, "js")
        + sizes,
        equation="js",
        paper="Clark et al. 2019, section 6, Figure 6",
        panels=panels,
    )
