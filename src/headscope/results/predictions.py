"""What a model predicts at each position: its likeliest tokens or labels, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from headscope.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Predicted = Literal["next", "mask", "label", "token_label"]
"""What is predicted: the next token, the masked token, a label of the text or of each token."""
WHOLE_TEXT = -1
"""The position of a label that belongs to the whole text."""
TITLES: dict[Predicted, str] = {
    "next": "next token",
    "mask": "masked token",
    "label": "label of the text",
    "token_label": "label of each token",
}
MAX_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Predictions:
    """The likeliest answers of a model at every position it answers for.

    Attributes:
        kind: `next` (language models: the token after a position), `mask` (masked models: the
            token at a mask), `label` (classifiers of texts) or `token_label`.
        data: `token`, `id`, `logit` and `probability` over `position` and `rank`; `at` is the
            token that stands at the position. The position of a label of the whole text is −1.
    """

    kind: Predicted
    data: xr.Dataset

    @classmethod
    def of(
        cls,
        kind: Predicted,
        *,
        positions: Sequence[int],
        at: Sequence[str],
        tokens: Sequence[Sequence[str]],
        ids: np.ndarray,
        logits: np.ndarray,
        probabilities: np.ndarray,
    ) -> Predictions:
        """Predictions from arrays over `position rank`."""
        axes = ("position", "rank")
        named = np.empty(ids.shape, dtype=object)
        for row, some in enumerate(tokens):
            named[row, :] = list(some)
        data = xr.Dataset(
            {
                "token": (axes, named),
                "id": (axes, ids),
                "logit": (axes, logits),
                "probability": (axes, probabilities),
            },
            coords={
                "position": np.asarray(positions, dtype=np.int64),
                "rank": np.arange(ids.shape[1]),
                "at": ("position", np.array(at, dtype=object)),
            },
        )
        return cls(kind, data)

    def __len__(self) -> int:
        """At how many positions something is predicted."""
        return int(self.data.sizes["position"])

    @property
    def positions(self) -> tuple[int, ...]:
        """Where something is predicted; −1 is the whole text."""
        return tuple(int(p) for p in self.data["position"].values)

    def top(self, position: int | None = None) -> list[tuple[str, float]]:
        """The likeliest answers and their probabilities, highest first.

        Args:
            position: of a token; the last with a prediction by default.
        """
        if not len(self):
            raise InputError("Nothing is predicted here: the text has no mask token.")
        chosen = self.positions[-1] if position is None else position
        if chosen not in self.positions:
            known = ", ".join(map(str, self.positions))
            raise InputError(f"Nothing is predicted at position {position!r}; positions: {known}.")
        row = self.data.sel(position=chosen)
        pairs = zip(row["token"].values, row["probability"].values, strict=True)
        return [(str(token), float(share)) for token, share in pairs]

    def to_dataframe(self) -> pd.DataFrame:
        """A row for every position and rank."""
        return self.data.to_dataframe().reset_index()

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for position, at in zip(self.positions, self.data["at"].values, strict=True):
            where = "text" if position == WHOLE_TEXT else f"{position} {at!s}"
            shares = self.top(position)[:MAX_SHOWN]
            rows.append((where, "  ".join(f"{token!r} {_shown(p)}" for token, p in shares)))
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        width = max((len(where) for where, _ in rows), default=0)
        lines = [f"<Predictions: {TITLES[self.kind]}, {len(self)} positions>"]
        return "\n".join(lines + [f"  {where:{width}}  {shares}" for where, shares in rows])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{escape(where)}</td><td>{escape(shares)}</td></tr>"
            for where, shares in self._rows()
        )
        return f"<table><caption>{TITLES[self.kind]}</caption>{cells}</table>"


def _shown(probability: float) -> str:
    return "" if np.isnan(probability) else f"{probability:.3f}"
