"""What each head does to one prediction, stored beside a trace as plain data.

Effects of heads over a corpus, as a result that cards, maps and reports read.

Gradients of a model's loss with respect to its attention, for one input.

Why a head looked where it did: one attention score as a sum over earlier parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.results.result import Result
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COSINE_DISTANCE: Final = "cosine distance"
EffectKind = Literal["prediction", "cosine distance"]
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
        return cls(COSINE_DISTANCE, data)

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

    def cosine_similarity(self, other: HeadEffects) -> tuple[float, xr.DataArray] | None:
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
    """What `headscope.effects(model, corpus)` measured, as a result with the variable `effect`.

    Args:
        effects: over layer and head, of a corpus: it knows its model and its documents.

    Raises:
        InputError: effects on one prediction, or of sets of heads: they say nothing of a corpus.
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
    """∂L/∂a for every layer and head: how much the loss would change with each weight.

    Attributes:
        loss: mean cross-entropy, in nats, of the predicted tokens.
        blocks: `layer head query key` for each block, in the shape of the attention.
        stack_tokens: the token sequence of each stack, as the model saw it (masked).
        predicted: positions whose token the loss is about, in the predicting stack.
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
        """The main token sequence, as the model saw it."""
        return next(iter(self.stack_tokens.values())).tokens


Side = Literal["key", "query"]
SIDES: tuple[Side, ...] = ("key", "query")
SHOWN = 8
MIN = 0.005
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
        from headscope.figures.bars import draw_score_parts

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
            lines += [f"    {name:<16} {v:+.2f}" for name, v in rows if abs(v) >= MIN]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
