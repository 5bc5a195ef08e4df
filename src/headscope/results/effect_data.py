"""Effects of heads, gradients and explained scores, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.results.display import Table, Value, counted, latex_table
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


class EffectArray(xr.DataArray):  # type: ignore[no-untyped-call]
    """Effects or contributions with labels: an xarray array that prints as a table.

    `array.table()` has the same rows with corrected p values, and `array.to_latex()` writes them.
    """

    __slots__ = ()

    def table(self) -> EffectTable:
        """Return the rows, those with the largest absolute value first, with corrected p values."""
        from headscope.statistics.intervals import benjamini_hochberg

        columns = {
            str(name): xr.DataArray(array).broadcast_like(xr.DataArray(self)).values.ravel()
            for name, array in {**self.coords, self.name: self}.items()
        }
        has_p = "p" in columns
        if has_p and "p_adjusted" not in columns:
            columns["p_adjusted"] = benjamini_hochberg(columns["p"])
        values = columns[str(self.name)]
        order = np.argsort(-np.nan_to_num(np.abs(values), nan=-1.0), kind="stable")
        rows = [
            {name: _plain(column[i]) for name, column in columns.items()}
            for i in order
            if np.isfinite(values[i])
        ]
        about = self.attrs
        title = f"{about.get('model', '')}: {about.get('long_name', self.name)}"
        number, texts = about.get("number"), about.get("texts")
        details = [f"{number!s:.120} in {about['units']}" if number and "units" in about else ""]
        one = "" if "correction" in about else "one text"
        details += [f"n = {counted(int(texts), 'text')}" if texts else one]
        correction = about.get("correction", f"Benjamini–Hochberg over {len(rows)}")
        details += [f"95 % intervals; * p < 0.05, {correction}" * has_p]
        return EffectTable(title, "; ".join(filter(None, details)), tuple(rows), str(self.name))

    def to_latex(self, n: int | None = 20) -> str:
        """Return a LaTeX table (package booktabs) of the `n` largest; None for all."""
        table = self.table()
        return replace(table, rows=table.rows[:n]).to_latex()

    def __str__(self) -> str:
        return str(self.table()) if self.ndim and self.name in NAMES else repr(self)


NAMES = ("effect", "attribution")


def _plain(value: Any) -> Value:
    plain: Value = value.item() if hasattr(value, "item") else value
    return plain


@dataclass(frozen=True)
class EffectTable(Table):
    """Effects of heads, sets or components, the largest first; `print` it."""

    _max_printed = 12

    title: str
    details: str
    rows: tuple[dict[str, Value], ...]
    name: str

    @property
    def _caption(self) -> str:
        return f"{self.title}; {self.details}."

    @property
    def _note(self) -> str:
        return f"{self.details}."

    def records(self) -> list[dict[str, Value]]:
        """Return one row for each head, set or component."""
        return [dict(row) for row in self.rows]

    def _cells(self) -> list[list[str]]:
        known = ("layer", "head", "kind", "low", "high", "p", "p_adjusted", self.name)
        columns = self.rows[0] if self.rows else {}
        axes = " ".join(name for name in columns if name not in known)
        named = axes if axes and "head" not in columns else "head"
        cells = [["component" if self.name == "attribution" else named, self.name]]
        for row in self.rows:
            own = [str(value) for name, value in row.items() if name not in known]
            place = [f"L{row['layer']} H{row['head']}"] if {"layer", "head"} <= {*row} else []
            label = " ".join(own or place if "component" in row else place + own)
            text = f"{row[self.name]:+.3f}".replace("-", "−")
            low, p = row.get("low"), row.get("p_adjusted")
            if isinstance(low, float) and np.isfinite(low):
                text += f" [{low:+.3f}, {row['high']:+.3f}]".replace("-", "−")
            is_significant = isinstance(p, float) and p < 0.05
            cells.append([label, text + "*" * is_significant])
        return cells


class Comparison(xr.Dataset):  # type: ignore[no-untyped-call]
    """Differences of two results: an xarray dataset with tables for papers."""

    __slots__ = ()

    def table(self, name: str, **labels: str | int) -> EffectTable:
        """Return one difference (`null_share`, `accuracy_best`) with intervals and corrected p.

        `labels` select from its axes; the correction stays that of all its numbers.
        """
        known = [str(key) for key in self if f"{key}_p_adjusted" in self]
        UnknownName.check("difference", name, known)
        low, high = (self[f"{name}_interval"].sel(bound=b, drop=True) for b in ("low", "high"))
        p, adjusted = self[f"{name}_p"], self[f"{name}_p_adjusted"]
        about = {
            "model": f"{self.attrs['left']} minus {self.attrs['right']}",
            "long_name": str(self[name].attrs.get("title", name)),
            "correction": str(adjusted.attrs["long_name"]).removeprefix("the same, "),
        }
        array = xr.DataArray(self[name]).assign_coords(low=low, high=high, p=p, p_adjusted=adjusted)
        return EffectArray(array.sel(labels, drop=True).assign_attrs(about), name=name).table()

    def to_latex(self, name: str, n: int | None = 20, **labels: str | int) -> str:
        """Return a LaTeX table (package booktabs) of the `n` largest differences."""
        table = self.table(name, **labels)
        return replace(table, rows=table.rows[:n]).to_latex()


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
    """Convert `headscope.effects(model, corpus)` to a result with the variable `effect`."""
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
        UnknownName.check("side", side, SIDES)
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


@dataclass(frozen=True, eq=False)
class Lens:
    """Predictions of every layer's stream. Made by `headscope.lens`.

    Attributes:
        data: `token` and `probability` over `layer` (−1 is the input of the first layer) and
            `place`; `target_rank`, `target_probability` and `difference` over `layer`.
    """

    data: xr.Dataset

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each layer."""
        frame = self.data.drop_vars(["token", "probability"]).drop_dims("place").to_dataframe()
        frame.insert(0, "top", [" ".join(map(repr, row)) for row in self.data["token"].values])
        return frame

    def figure(self) -> Figure:
        """Draw the target's probability and the logit difference by layer."""
        from headscope.figures.table_charts import lens_figure

        return lens_figure(self)

    def to_page(self) -> dict[str, Any]:
        """Return plain data for a page: a row for each layer."""
        data = self.data
        rows = [
            {
                "layer": int(data["layer"].values[i]),
                "tokens": [str(token) for token in data["token"].values[i]],
                "probabilities": [float(p) for p in data["probability"].values[i]],
                **{
                    str(name): float(data[name].values[i])
                    for name in data.data_vars
                    if data[name].dims == ("layer",)
                },
            }
            for i in range(data.sizes["layer"])
        ]
        return {"text": data.attrs["text"], "number": data.attrs["number"], "rows": rows}

    def __repr__(self) -> str:
        attrs = self.data.attrs
        lines = [f"<Lens of {attrs['model']}: {attrs['number']}>"]
        for i, layer in enumerate(self.data["layer"].values.tolist()):
            token, p = (self.data[name].values[i, 0] for name in ("token", "probability"))
            rank = int(self.data["target_rank"].values[i])
            name = "input" if layer < 0 else f"L{layer}"
            lines.append(
                f"  {name:<6} {token!r:<14} {p:6.1%}   {attrs['target']!r} at rank {rank:,}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
