"""Why a head looked where it did: one attention score as a sum over earlier parts."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from headscope.errors import UnknownName

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Side = Literal["key", "query"]
SIDES: tuple[Side, ...] = ("key", "query")
SHOWN = 8
LEAST = 0.005
"""What is smaller would be printed as 0.00."""


@dataclass(frozen=True, eq=False)
class ExplainedScore:
    """A score above the mean of the other keys' scores, taken apart twice.

    It says what the score is made of, not what would happen without a part: that is
    `headscope.effects` and `model.edit`.

    Attributes:
        data: `key_side` and `query_side` over `part`: what each earlier part contributes through
            the key it looked at, and through the query that looked. Either sums to the contrast,
            the score minus the mean over the other keys.
    """

    data: xr.Dataset

    @property
    def contrast(self) -> float:
        """The score minus the mean score of the other keys, which is what the softmax sees."""
        return float(self.data.attrs["contrast"])

    @property
    def weight(self) -> float:
        """The attention paid."""
        return float(self.data.attrs["weight"])

    def top(self, n: int = SHOWN, side: Side = "key") -> list[tuple[str, float]]:
        """The largest contributions of a side, by size."""
        if side not in SIDES:
            raise UnknownName.of("side", side, SIDES)
        values = self.data[f"{side}_side"]
        order = np.argsort(-np.abs(values.values), kind="stable")[:n]
        return [(str(values["part"].values[i]), float(values.values[i])) for i in order]

    def to_dataframe(self) -> pd.DataFrame:
        """A row for every part."""
        return self.data.to_dataframe().reset_index()

    def figure(self, n: int = SHOWN) -> Figure:
        """The largest contributions of both sides as bars."""
        from headscope.figures.score_parts import draw_score_parts

        return draw_score_parts(self, n)

    @property
    def title(self) -> str:
        """Who looked at what, and how much."""
        about = self.data.attrs
        return (
            f"L{about['layer']} H{about['head']}: {about['query_token']!r} ({about['query']}) → "
            f"{about['key_token']!r} ({about['key']}), weight {self.weight:.2f}, score "
            f"{about['score']:.2f}, {abs(self.contrast):.2f} "
            f"{'above' if self.contrast >= 0 else 'below'} the mean of the other keys"
        )

    def __repr__(self) -> str:
        lines = [self.title]
        for side in SIDES:
            top = self.top(side=side)
            rows = [*top, ("all others", self.contrast - sum(value for _, value in top))]
            lines.append(f"  by the {side}'s parts")
            lines += [f"    {name:<16} {v:+.2f}" for name, v in rows if abs(v) >= LEAST]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
