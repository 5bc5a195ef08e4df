"""`headscope.explain_score`: why a head looked where it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import xarray as xr
from torch import Tensor, nn

from headscope.attention import Attention
from headscope.causal.batched_forward import map_tensors, repeat_rows
from headscope.causal.effects import read_text
from headscope.causal.readout import place_of
from headscope.causal.residual_stream import (
    Norm,
    Stream,
    StreamTerm,
    find_norm,
    read_stream,
    refusal,
    refuse_half_precision,
)
from headscope.errors import InputError
from headscope.model.edits import group_of
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.tap.projection import Call
from headscope.model.tap.sites import Site
from headscope.results.effect_data import ExplainedScore
from headscope.text.tokens import Tokens

TOLERANCE = 1e-4
MASKED = -1e30
"""Scores of keys that a query may not see are below this."""


def explain_score(
    model: Model | str, text: str, layer: int, head: int, query: int, key: int
) -> ExplainedScore:
    """Why did it look there: one attention score as a sum over earlier parts.

    The score s(q, k) = scale · q·k, and q and k are affine in what enters the layer once its norm
    is held fixed: so s is a sum over the embedding, heads and MLPs below, once through the key's
    side and once through the query's. The softmax ignores what all keys share, so each part is
    shown as its contribution to this key minus the mean over the other keys that the query can
    see. It says what the score is made of, not what would happen without a part.

    Elhage et al. 2021 (composition of heads), for norms held fixed.

    Args:
        model: the model, or what `headscope.load` takes.
        text: the text.
        layer: 0-based, as printed.
        head: 0-based.
        query: position of the token that looks; counts from 0, or from the end with −1.
        key: position of the token that is looked at, likewise.

    Returns:
        The parts of both sides, with a table (`print`) and a figure. That they sum to the score
        is proved.

    Raises:
        TapUnsupported: the architecture does not allow it (norms on queries and keys, scores
            that are more than q·k, layers that do not add up), with the reason.
    """
    model = as_model(model)
    place = ScorePosition(layer, head, query, key)
    _site(model, place)
    main = model.wiring.main_block()
    stacks, inputs = read_text(model, text, None, None if main == "self" else text)
    return explain_place(model, stacks, inputs, place)


class ScorePosition(NamedTuple):
    """A score: of which head, from which token to which."""

    layer: int
    head: int
    query: int
    key: int


def explain_place(
    model: Model, stacks: Mapping[str, Tokens], inputs: Mapping[str, object], place: ScorePosition
) -> ExplainedScore:
    """`explain_score` of prepared inputs and their tokens."""
    layer, head, query, key = place
    site = _site(model, place)
    scale = site.scale
    assert scale is not None
    tokens = next(iter(stacks.values()))
    at_query, at_key = (place_of(n, p, len(tokens)) for p, n in ((query, "query"), (key, "key")))
    stream = read_stream(model, cast("Mapping[str, Tensor]", inputs))
    attention = stream.attentions[layer]
    assert attention.scores is not None
    row = attention.scores[0, head, at_query].double().cpu()
    if model.wiring.main_block() in model.wiring.causal_blocks:
        row[at_query + 1 :] = -torch.inf
    visible = [j for j, score in enumerate(row.tolist()) if score > MASKED and j != at_key]
    if row[at_key] <= MASKED:
        where = "it comes later" if at_key > at_query else "it is out of the layer's window"
        raise InputError(f"Query {at_query} cannot attend to key {at_key}: {where}.")
    if not visible:
        raise InputError(f"Query {at_query} sees key {at_key} alone: there is nothing to explain.")
    read = _read_sides(model, stream, site)
    group = group_of(head, site)
    queries, keys = read.queries[:, head, at_query], read.keys[:, group]
    contrast = keys[:, at_key] - keys[:, visible].mean(1)
    key_side = scale * contrast @ queries.sum(0)
    query_side = scale * queries @ contrast.sum(0)
    total = float(row[at_key] - row[visible].mean())
    off = max(abs(float(side.sum()) - total) for side in (key_side, query_side))
    if off > TOLERANCE * max(1.0, abs(total), float(row[[at_key, *visible]].abs().max())):
        raise refusal(model, f"the parts of the score miss it by {off:.2g}")
    data = xr.Dataset(
        {"key_side": ("part", key_side.numpy()), "query_side": ("part", query_side.numpy())},
        coords={
            "part": [part.name for part in read.parts],
            "kind": ("part", [part.kind for part in read.parts]),
            "layer_of_part": ("part", [part.layer for part in read.parts]),
        },
        attrs={
            "model": model.name,
            "text": " ".join(tokens.texts),
            "layer": layer,
            "head": head,
            "query": at_query,
            "key": at_key,
            "query_token": tokens.tokens[at_query],
            "key_token": tokens.tokens[at_key],
            "score": float(row[at_key]),
            "weight": float(attention.weights[0, head, at_query, at_key]),
            "contrast": total,
            "difference": off,
        },
    )
    return ExplainedScore(data)


def _site(model: Model, place: ScorePosition) -> Site:
    site = model.wiring.find(None, place.layer, place.head)
    refuse_half_precision(model)
    if not site.is_dot_product or site.scale is None:
        raise refusal(model, f"the scores of layer {place.layer} are not plain scale · q·k")
    return site


@dataclass(frozen=True, eq=False)
class _Sides:
    """Queries and keys of a layer, part by part."""

    parts: tuple[StreamTerm, ...]
    queries: Tensor
    """`part head position neuron`."""
    keys: Tensor
    """`part group position neuron`."""


def _read_sides(model: Model, stream: Stream, site: Site) -> _Sides:
    """Feed the attention module each part as a row, and read its queries and keys."""
    module = model.module.get_submodule(site.module)
    call = next((c for c in stream.calls if c.name == site.module), None)
    if call is None:
        raise refusal(model, f"{site.module} takes no tensor of hidden states")
    entering = stream.before[site.layer]
    norm, _ = find_norm(
        model, stream, entering, call.given, f"between the stream and layer {site.layer}"
    )
    parts, values = stream.below(site.layer)
    rows, bias = _normed(norm, values, entering)
    nothing = torch.zeros_like(rows[:1])
    fed = torch.cat((nothing, nothing + bias, rows))
    queries, keys = _run_rows(model, module, site, fed.to(call.given.dtype), call)
    captured = stream.attentions[site.layer]
    named = (
        StreamTerm("bias of q and k", "bias", -1),
        StreamTerm("bias of the norm", "bias", -1),
        *parts,
    )
    sides = []
    for read, real, what in ((queries, captured.queries, "queries"), (keys, captured.keys, "keys")):
        assert real is not None
        by_part = torch.cat((read[:1], read[1:] - read[:1]))
        expected = real[0].double().cpu()
        off = float((by_part.sum(0) - expected).abs().max())
        if off > TOLERANCE * max(1.0, float(expected.abs().max())):
            raise refusal(
                model,
                f"the {what} of layer {site.layer} are not affine in its input (a norm on them?): "
                f"the parts miss them by {off:.2g}",
            )
        sides.append(by_part)
    return _Sides(named, *sides)


def _normed(norm: Norm | None, values: Tensor, entering: Tensor) -> tuple[Tensor, Tensor]:
    """`part position unit` behind the frozen norm, and the norm's bias."""
    if norm is None:
        return values, torch.zeros(values.shape[-1], dtype=values.dtype)
    return norm.frozen(values, entering), norm.bias


def _run_rows(
    model: Model, module: nn.Module, site: Site, rows: Tensor, call: Call
) -> tuple[Tensor, Tensor]:
    """`row head position neuron` and `row group position neuron`: queries and keys of rows."""
    kept: list[Attention] = []

    def keep(attention: Attention) -> None:
        if attention.layer == site.layer and attention.block == site.block:
            kept.append(attention)

    args, kwargs = map_tensors((call.args, dict(call.kwargs)), lambda x: repeat_rows(x, len(rows)))
    given = rows.to(model.module.device)
    if not args:
        kwargs[_hidden_name(kwargs)] = given
    else:
        args = (given, *args[1:])
    try:
        with torch.inference_mode(), model.tapped(keep):
            module(*args, **kwargs)
    except (RuntimeError, ValueError) as error:
        raise refusal(model, f"{site.module} could not be run by itself ({error})") from error
    if len(kept) != 1 or kept[0].queries is None or kept[0].keys is None:
        raise refusal(model, f"{site.module} could not be run by itself")
    return kept[0].queries.double().cpu(), kept[0].keys.double().cpu()


def _hidden_name(kwargs: Mapping[str, object]) -> str:
    """The first tensor among named arguments is what the module attends over."""
    return next(name for name, value in kwargs.items() if isinstance(value, Tensor))
