"""Does it matter: heads by role and by their effect on the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscope.reporting.evidence import LEVEL
from headscope.reporting.figure import Figure, figure_of
from headscope.reporting.finder import roles_of
from headscope.reporting.subjects import Subject, measured_elsewhere
from headscope.reporting.table_figures import Cell, cell
from headscope.reporting.wording import Measured, head
from headscope.statistics.corrections import benjamini_hochberg


@dataclass(frozen=True)
class Effects:
    """What the heads of one subject do to the loss, `layer head`."""

    values: np.ndarray
    is_clear: np.ndarray
    """Does the loss change without the head? Benjamini & Hochberg over all heads."""
    layers: list[int]

    @property
    def n_tested(self) -> int:
        """How many heads have an effect at all."""
        return int(np.isfinite(self.values).sum())

    def largest(self, among: np.ndarray) -> tuple[int, int] | None:
        """Row and head of the largest effect; None where no head is clear of zero."""
        sizes = np.where(among & self.is_clear, np.abs(self.values), -1.0)
        row, column = np.unravel_index(int(sizes.argmax()), sizes.shape)
        return (int(row), int(column)) if sizes[row, column] >= 0 else None


def effects_of(subject: Subject) -> Effects | None:
    """The effects of a subject's heads; None where they were not measured."""
    data = subject.data("effect")
    if data is None:
        return None
    with np.errstate(invalid="ignore"):
        is_clear = benjamini_hochberg(data["effect_p"].values) < LEVEL
    layers = [int(layer) for layer in data["layer"].values]
    return Effects(data["effect"].values, is_clear, layers)


def effect_table(subjects: Sequence[Subject]) -> Figure | None:
    """Roles by effect: how many heads of each role matter, and how much."""
    rows: list[list[Cell]] = []
    for number, subject in enumerate(subjects):
        effects, roles = effects_of(subject), roles_of(subject)
        if effects is None or roles is None:
            continue
        names = np.array(roles, dtype=object)
        of_role = {str(name): names == name for name in np.unique(names.astype(str))}
        order = sorted(of_role, key=lambda name: -float(_size(effects, of_role[name])))
        for name in order:
            among = of_role[name]
            largest = effects.largest(among)
            rows.append(
                [
                    subject.title,
                    name,
                    int(among.sum()),
                    f"{int((among & effects.is_clear).sum())} of {int(among.sum())}",
                    cell(Measured(float(np.nanmean(effects.values[among]))), share=False),
                    None
                    if largest is None
                    else head(number, effects.layers[largest[0]], largest[1]),
                    None if largest is None else float(effects.values[largest]),
                ]
            )
    if not rows:
        return None
    return figure_of(
        "effects",
        "table",
        "Roles and effects",
        "By how much the loss per predicted token rises without a head, the head's output set to "
        "zero, in nats. A head counts as having an effect where the rise differs from 0 after "
        "correction over all heads (Benjamini & Hochberg). Heads can stand in for one another: "
        "effects of single heads do not add up." + measured_elsewhere(subjects, "effect"),
        equation="effect",
        paper="Michel et al. 2019, section 3; Voita et al. 2019",
        columns=[
            {"label": "Model", "kind": "text"},
            {"label": "Role", "kind": "text"},
            {"label": "Heads", "kind": "count"},
            {"label": "With an effect", "kind": "text"},
            {"label": "Mean rise", "kind": "number"},
            {"label": "Largest", "kind": "head"},
            {"label": "Its rise", "kind": "number"},
        ],
        rows=rows,
    )


def _size(effects: Effects, among: np.ndarray) -> float:
    return float(np.nanmean(np.abs(effects.values[among])))
