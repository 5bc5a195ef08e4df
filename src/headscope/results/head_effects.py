"""What each head does to one prediction, stored beside a trace as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    import pandas as pd

EffectKind = Literal["prediction", "turn"]
HEADS = ("layer", "head")


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """The model's answer with each head switched off, one at a time, in one text.

    Attributes:
        kind: `prediction` (models that predict) or `turn` (plain encoders).
        data: of a prediction, `before` (`candidate`) and `after` (`layer head candidate`): the
            log-probabilities of the likeliest answers, as the model is and without each head.
            Of a plain encoder, `vector` (`unit`) and `without` (`layer head unit`): the vector of
            the text, as it is and without each head. Attributes say the block, the position,
            what stands for the head's output and how tokens are pooled.
    """

    kind: EffectKind
    data: xr.Dataset

    @classmethod
    def of_prediction(
        cls,
        candidates: Sequence[str],
        before: np.ndarray,
        after: np.ndarray,
        layers: Sequence[int],
        about: Mapping[str, str | int],
    ) -> HeadEffects:
        """Effects on the log-probabilities of some answers."""
        data = xr.Dataset(
            {"before": ("candidate", before), "after": ((*HEADS, "candidate"), after)},
            coords={
                "layer": list(layers),
                "head": np.arange(after.shape[1]),
                "candidate": np.array(candidates, dtype=object),
            },
            attrs=dict(about),
        )
        return cls("prediction", data)

    @classmethod
    def of_vector(
        cls,
        vector: np.ndarray,
        without: np.ndarray,
        layers: Sequence[int],
        about: Mapping[str, str | int],
    ) -> HeadEffects:
        """Effects on the vector of a text."""
        data = xr.Dataset(
            {"vector": ("unit", vector), "without": ((*HEADS, "unit"), without)},
            coords={"layer": list(layers), "head": np.arange(without.shape[1])},
            attrs=dict(about),
        )
        return cls("turn", data)

    @property
    def block(self) -> str:
        """The attention whose heads were switched off."""
        return str(self.data.attrs["block"])

    @property
    def position(self) -> int | None:
        """Where the prediction stands; None for the whole text."""
        position = self.data.attrs.get("position")
        return None if position is None else int(position)

    @property
    def values(self) -> xr.DataArray:
        """`layer head`: the change in log p of the likeliest answer, or 1 − cosine."""
        if self.kind == "prediction":
            change = self.data["after"].isel(candidate=0) - self.data["before"].isel(candidate=0)
            return change.drop_vars("candidate").rename("effect")
        vector, without = self.data["vector"], self.data["without"]
        turn: xr.DataArray = 1 - cosine(without, vector)
        return turn.rename("effect")

    def likeness(self, other: HeadEffects) -> tuple[float, xr.DataArray] | None:
        """The cosine of two texts' vectors, and `layer head`: the same without each head; None
        where there are no vectors of one size.
        """
        sizes = [one.data.sizes.get("unit") for one in (self, other)]
        if sizes[0] is None or sizes[0] != sizes[1]:
            return None
        before = float(cosine(self.data["vector"], other.data["vector"]))
        return before, cosine(self.data["without"], other.data["without"])

    def to_dataframe(self) -> pd.DataFrame:
        """A row for every head: its effect on the likeliest answer, or on the text's vector."""
        return self.values.to_dataframe().reset_index()


def cosine(one: xr.DataArray, other: xr.DataArray) -> xr.DataArray:
    """The cosine along `unit`."""
    lengths = xr.dot(one, one, dim="unit") * xr.dot(other, other, dim="unit")
    cosines: xr.DataArray = xr.dot(one, other, dim="unit") / np.sqrt(lengths)
    return cosines
