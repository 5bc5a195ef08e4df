"""Effects of heads, gradients and explained scores, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.results.display import latex_table
from headscope.results.result import HEADS, Result
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COSINE_DISTANCE: Final = "cosine distance"
EffectKind = Literal["prediction", "cosine distance"]


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """Output of the model with each head ablated alone, in one text.

    Attributes:
        kind: `prediction`, or `cosine distance` (plain encoders).
        data: for predictions, `before` (`candidate`) and `after` (`layer head candidate`): the
            log-probabilities of the top predictions with all heads and without each head. For
            plain encoders, `vector` (`unit`) and `without` (`layer head unit`): the vector of the
            text with all heads and without each head. Attributes are the block, the position,
            the ablation and the pooling of tokens.
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
        attributes: Mapping[str, str | int],
    ) -> HeadEffects:
        """Return effects on the log-probabilities of some answers."""
        data = xr.Dataset(
            {"before": ("candidate", before), "after": ((*HEADS, "candidate"), after)},
            coords={
                "layer": list(layers),
                "head": np.arange(after.shape[1]),
                "candidate": np.array(candidates, dtype=object),
            },
            attrs=dict(attributes),
        )
        return cls("prediction", data)

    @classmethod
    def of_vector(
        cls,
        vector: np.ndarray,
        without: np.ndarray,
        layers: Sequence[int],
        attributes: Mapping[str, str | int],
    ) -> HeadEffects:
        """Return effects on the vector of a text."""
        data = xr.Dataset(
            {"vector": ("unit", vector), "without": ((*HEADS, "unit"), without)},
            coords={"layer": list(layers), "head": np.arange(without.shape[1])},
            attrs=dict(attributes),
        )
        return cls(COSINE_DISTANCE, data)

    @property
    def block(self) -> str:
        """Attention block of the ablated heads."""
        return str(self.data.attrs["block"])

    @property
    def position(self) -> int | None:
        """Position of the prediction; None for the whole text."""
        position = self.data.attrs.get("position")
        return None if position is None else int(position)

    @property
    def values(self) -> xr.DataArray:
        """`layer head`: the change in log p of the top prediction, or 1 − cosine."""
        if self.kind == "prediction":
            change = self.data["after"].isel(candidate=0) - self.data["before"].isel(candidate=0)
            return change.drop_vars("candidate").rename("effect")
        vector, without = self.data["vector"], self.data["without"]
        distance: xr.DataArray = 1 - cosine(without, vector)
        return distance.rename("effect")

    def cosine_similarity(self, other: HeadEffects) -> tuple[float, xr.DataArray] | None:
        """Return the cosine of two texts' vectors, and `layer head`: the same without each head.

        Return None without vectors of one size.
        """
        size = self.data.sizes.get("unit")
        if size is None or size != other.data.sizes.get("unit"):
            return None
        before = float(cosine(self.data["vector"], other.data["vector"]))
        return before, cosine(self.data["without"], other.data["without"])

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for every head: its effect on the top prediction or the text's vector."""
        return self.values.to_dataframe().reset_index()


def cosine(left: xr.DataArray, right: xr.DataArray) -> xr.DataArray:
    """Return the cosine along `unit`."""
    lengths = xr.dot(left, left, dim="unit") * xr.dot(right, right, dim="unit")
    cosines: xr.DataArray = xr.dot(left, right, dim="unit") / np.sqrt(lengths)
    return cosines


DESCRIPTION = {
    "title": "Effect on the loss",
    "short_title": "Effect",
    "units": "nats per token",
    "format": "+.4f",
    "equation": r"L_{\setminus h} - L",
    "paper": "Michel et al. 2019, section 3; Voita et al. 2019",
    "long_name": "By how much the loss per predicted token rises without the head.",
    "order": 330,
}


def result_of_effects(effects: xr.DataArray) -> Result:
    """Convert `headscope.effects(model, corpus)` to a result with the variable `effect`.

    Raises:
        InputError: the effects are on one prediction, or of sets of heads.
    """
    if "provenance" not in effects.attrs or effects.dims != ("layer", "head"):
        raise InputError(
            "Only effects of single heads over a corpus stand in cards, maps and reports: what one "
            "text shows is about that text. Give headscope.effects(model, headscope.read(path))."
        )
    bounds = np.stack((effects["low"].values, effects["high"].values))
    plain = effects.drop_vars(["low", "high", "p"])
    data = xr.Dataset(
        {
            "effect": plain.assign_attrs(DESCRIPTION),
            "effect_interval": (("bound", "layer", "head"), bounds),
            "effect_p": (("layer", "head"), effects["p"].values),
            "tokens_per_document_count": ((), float(effects.attrs["texts"])),
        },
        coords={"bound": ["low", "high"]},
    )
    data["effect"].attrs.pop("provenance")
    return Result({str(effects.attrs["block"]): data}, {}, json.loads(effects.attrs["provenance"]))


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients ∂L/∂a of the loss for every attention weight of one input.

    Attributes:
        loss: mean cross-entropy, in nats, of the predicted tokens.
        blocks: `layer head query key` for each block, in the shape of the attention.
        stack_tokens: token sequence of each stack, with masks.
        predicted: positions of the predicted tokens, in the predicting stack.
        about: objective, seed and model.
    """

    loss: float
    blocks: Mapping[str, xr.DataArray]
    stack_tokens: Mapping[str, Tokens]
    predicted: tuple[int, ...]
    about: Mapping[str, Any]

    @property
    def attention(self) -> xr.DataArray:
        """`layer head query key`: ∂L/∂a of the main block."""
        return next(iter(self.blocks.values()))

    @property
    def tokens(self) -> tuple[str, ...]:
        """Main token sequence, with masks."""
        return next(iter(self.stack_tokens.values())).tokens


Side = Literal["key", "query"]
SIDES: tuple[Side, ...] = ("key", "query")
N_TOP = 8
MIN_PRINTED = 0.005
"""Smaller contributions would be printed as 0.00."""


@dataclass(frozen=True, eq=False)
class ExplainedScore:
    """Score of a key minus the mean over the other keys, as sums over earlier components.

    The sums describe the score. `headscope.effects` and `model.edit` measure the effect of
    removing a component.

    Attributes:
        data: `key_side` and `query_side` over `part`: contributions of each earlier component
            through the key and through the query. Each sums to the contrast, the score minus the
            mean over the other keys.
    """

    data: xr.Dataset

    @property
    def contrast(self) -> float:
        """Score minus the mean score of the other keys; the softmax depends only on it."""
        return float(self.data.attrs["contrast"])

    @property
    def weight(self) -> float:
        """Attention weight."""
        return float(self.data.attrs["weight"])

    def top(self, n: int = N_TOP, side: Side = "key") -> list[tuple[str, float]]:
        """Return the largest contributions of a side, by absolute value."""
        if side not in SIDES:
            raise UnknownName.of("side", side, SIDES)
        values = self.data[f"{side}_side"]
        order = np.argsort(-np.abs(values.values), kind="stable")[:n]
        return [(str(values["part"].values[i]), float(values.values[i])) for i in order]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for every component."""
        return self.data.to_dataframe().reset_index()

    def to_latex(self, n: int = N_TOP) -> str:
        """Return a LaTeX table (package booktabs) of the largest contributions of both sides."""
        names = dict.fromkeys(name for side in SIDES for name, _ in self.top(n, side))
        parts = self.data.sel(part=list(names))
        rows = [
            [name, *(f"{float(parts[f'{side}_side'].sel(part=name)):+.2f}" for side in SIDES)]
            for name in names
        ]
        caption = f"{self.title}. n = {self.data.sizes['part']} components, not corrected."
        return latex_table(["component", "key side", "query side"], rows, caption)

    def figure(self, n: int = N_TOP) -> Figure:
        """Draw the largest contributions of both sides, the largest on top."""
        from headscope.figures.table_charts import score_figure

        return score_figure(self, n)

    @property
    def title(self) -> str:
        """Head, query, key, weight and score."""
        attrs = self.data.attrs
        return (
            f"L{attrs['layer']} H{attrs['head']}: {attrs['query_token']!r} ({attrs['query']}) → "
            f"{attrs['key_token']!r} ({attrs['key']}), weight {self.weight:.2f}, score "
            f"{attrs['score']:.2f}, {abs(self.contrast):.2f} "
            f"{'above' if self.contrast >= 0 else 'below'} the mean of the other keys"
        )

    def __repr__(self) -> str:
        lines = [self.title]
        for side in SIDES:
            top = self.top(side=side)
            rows = [*top, ("all others", self.contrast - sum(value for _, value in top))]
            lines.append(f"  by the {side}'s parts")
            lines += [f"    {name:<16} {v:+.2f}" for name, v in rows if abs(v) >= MIN_PRINTED]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
