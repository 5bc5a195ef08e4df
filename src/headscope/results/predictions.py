"""Top predictions of a model at each position, as plain data."""

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
"""Kind of prediction: next token, masked token, label of the text or of each token."""
WHOLE_TEXT = -1
"""Position of a label of the whole text."""
PREDICTION_TITLES: dict[Predicted, str] = {
    "next": "next token",
    "mask": "masked token",
    "label": "label of the text",
    "token_label": "label of each token",
}
MAX_PRINTED = 5


@dataclass(frozen=True, eq=False)
class Predictions:
    """Top predictions of a model by position.

    Attributes:
        kind: `next` (language models: the token after a position), `mask` (masked models: the
            token at a mask), `label` (classifiers of texts) or `token_label`.
        data: `token`, `id`, `logit` and `probability` over `position` and `rank`; `at` is the
            token at the position. The position of a label of the whole text is −1.
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
        """Return predictions from arrays over `position rank`."""
        axes = ("position", "rank")
        texts = np.empty(ids.shape, dtype=object)
        for row, candidates in enumerate(tokens):
            texts[row, :] = list(candidates)
        data = xr.Dataset(
            {
                "token": (axes, texts),
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
        return int(self.data.sizes["position"])

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions with a prediction; −1 is the whole text."""
        return tuple(int(p) for p in self.data["position"].values)

    def top(self, position: int | None = None) -> list[tuple[str, float]]:
        """Return the top predictions and their probabilities, highest first.

        Args:
            position: position of a token; by default the last with a prediction.
        """
        if not len(self):
            raise InputError("Nothing is predicted here: the text has no mask token.")
        chosen = self.positions[-1] if position is None else position
        if chosen not in self.positions:
            positions = ", ".join(map(str, self.positions))
            raise InputError(
                f"Nothing is predicted at position {position!r}; positions: {positions}."
            )
        row = self.data.sel(position=chosen)
        pairs = zip(row["token"].values, row["probability"].values, strict=True)
        return [(str(token), float(share)) for token, share in pairs]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for every position and rank."""
        return self.data.to_dataframe().reset_index()

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for position, token in zip(self.positions, self.data["at"].values, strict=True):
            place = "text" if position == WHOLE_TEXT else f"{position} {token!s}"
            top = self.top(position)[:MAX_PRINTED]
            shares = (f"{text!r} {'' if np.isnan(p) else f'{p:.3f}'}" for text, p in top)
            rows.append((place, "  ".join(shares)))
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        width = max((len(place) for place, _ in rows), default=0)
        lines = [f"<Predictions: {PREDICTION_TITLES[self.kind]}, {len(self)} positions>"]
        return "\n".join(lines + [f"  {place:{width}}  {shares}" for place, shares in rows])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{escape(place)}</td><td>{escape(shares)}</td></tr>"
            for place, shares in self._rows()
        )
        return f"<table><caption>{PREDICTION_TITLES[self.kind]}</caption>{cells}</table>"
