"""`headscope.explain_score`: one attention score as a sum over earlier components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import xarray as xr
from torch import Tensor, nn

from headscope.attention import Attention
from headscope.causal.batched_forward import map_tensors, repeat_rows
from headscope.causal.effects import read_text
from headscope.causal.readout import place_of
from headscope.causal.residual_stream import (
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

SCORE_REL_TOL = 1e-4
MASKED_SCORE = -1e30
"""Upper bound of the scores of masked keys."""


def explain_score(
    model: Model | str, text: str, layer: int, head: int, query: int, key: int
) -> ExplainedScore:
    """Decompose one attention score into contributions of earlier components.

    The score s(q, k) = scale · q·k, and q and k are affine in the layer's input once the scale of
    its norm is frozen. So s is a sum over the embedding, heads and MLPs below, once through the
    key and once through the query. The softmax ignores what all keys share. Each contribution is
    therefore that to this key minus the mean over the other visible keys. The sum describes the
    score, not the effect of ablating a component.

    Elhage et al. 2021 (composition of heads), for frozen norms.

    Args:
        model: the model, or an argument of `headscope.load`.
        text: the text.
        layer: layer, from 0.
        head: head, from 0.
        query: position of the query token, from 0; −1 is the last.
        key: position of the key token, from 0; −1 is the last.

    Returns:
        Contributions through both sides, with a table (`print`) and a figure. Their sum is
        checked against the score.

    Raises:
        TapUnsupported: the architecture does not allow it (norms on queries and keys, scores
            that are more than q·k, layers that do not add up), with the reason.
    """
    model = as_model(model)
    _explainable_site(model, layer, head)
    main = model.wiring.main_block()
    stacks, inputs = read_text(model, text, None, None if main == "self" else text)
    return explain_position(model, stacks, inputs, layer, head, query, key)


def explain_position(
    model: Model,
    stacks: Mapping[str, Tokens],
    inputs: Mapping[str, object],
    layer: int,
    head: int,
    query: int,
    key: int,
) -> ExplainedScore:
    """Explain a score for prepared inputs and tokens. See `explain_score`."""
    site = _explainable_site(model, layer, head)
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
    visible = [j for j, score in enumerate(row.tolist()) if score > MASKED_SCORE and j != at_key]
    if row[at_key] <= MASKED_SCORE:
        reason = "it comes later" if at_key > at_query else "it is out of the layer's window"
        raise InputError(f"Query {at_query} cannot attend to key {at_key}: {reason}.")
    if not visible:
        raise InputError(f"Query {at_query} sees key {at_key} alone: there is nothing to explain.")
    parts, all_queries, all_keys = _read_sides(model, stream, site)
    queries, keys = all_queries[:, head, at_query], all_keys[:, group_of(head, site)]
    contrast = keys[:, at_key] - keys[:, visible].mean(1)
    key_side = scale * contrast @ queries.sum(0)
    query_side = scale * queries @ contrast.sum(0)
    total = float(row[at_key] - row[visible].mean())
    off = max(abs(float(side.sum()) - total) for side in (key_side, query_side))
    if off > SCORE_REL_TOL * max(1.0, abs(total), float(row[[at_key, *visible]].abs().max())):
        raise refusal(model, f"the parts of the score miss it by {off:.2g}")
    data = xr.Dataset(
        {"key_side": ("part", key_side.numpy()), "query_side": ("part", query_side.numpy())},
        coords={
            "part": [part.name for part in parts],
            "kind": ("part", [part.kind for part in parts]),
            "layer_of_part": ("part", [part.layer for part in parts]),
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


def _explainable_site(model: Model, layer: int, head: int) -> Site:
    site = model.wiring.find(None, layer, head)
    refuse_half_precision(model)
    if not site.is_dot_product or site.scale is None:
        raise refusal(model, f"the scores of layer {layer} are not plain scale · q·k")
    return site


def _read_sides(
    model: Model, stream: Stream, site: Site
) -> tuple[list[StreamTerm], Tensor, Tensor]:
    """Run the attention module with each part of the stream as a row; return the parts, their
    queries (`part head position neuron`) and keys (`part group position neuron`).
    """
    module = model.module.get_submodule(site.module)
    call = next((c for c in stream.calls if c.name == site.module), None)
    if call is None:
        raise refusal(model, f"{site.module} takes no tensor of hidden states")
    entering = stream.before[site.layer]
    place = f"between the stream and layer {site.layer}"
    norm = find_norm(model, stream, entering, call.given, place)
    below = [i for i, part in enumerate(stream.parts) if part.layer < site.layer]
    values = stream.values[below]
    bias = torch.zeros(values.shape[-1], dtype=values.dtype) if norm is None else norm.bias
    rows = values if norm is None else norm.frozen(values, entering)
    nothing = torch.zeros_like(rows[:1])
    fed = torch.cat((nothing, nothing + bias, rows))
    queries, keys, _ = run_attention(model, module, site, fed.to(call.given.dtype), call)
    captured = stream.attentions[site.layer]
    biases = [StreamTerm(f"bias of {name}", "bias", -1) for name in ("q and k", "the norm")]
    parts = [*biases, *(stream.parts[i] for i in below)]
    sides = []
    for read, real, name in ((queries, captured.queries, "queries"), (keys, captured.keys, "keys")):
        assert real is not None
        by_part = torch.cat((read[:1], read[1:] - read[:1]))
        expected = real[0].double().cpu()
        off = float((by_part.sum(0) - expected).abs().max())
        if off > SCORE_REL_TOL * max(1.0, float(expected.abs().max())):
            raise refusal(
                model,
                f"the {name} of layer {site.layer} are not affine in its input (a norm on them?): "
                f"the parts miss them by {off:.2g}",
            )
        sides.append(by_part)
    return parts, sides[0], sides[1]


def run_attention(
    model: Model, module: nn.Module, site: Site, rows: Tensor, call: Call
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries (`row head position neuron`), keys and values (`row group …`) of rows."""
    kept: list[Attention] = []

    def keep(attention: Attention) -> None:
        if attention.layer == site.layer and attention.block == site.block:
            kept.append(attention)

    args, kwargs = map_tensors((call.args, dict(call.kwargs)), lambda x: repeat_rows(x, len(rows)))
    hidden = rows.to(model.module.device)
    if not args:
        kwargs[next(n for n, value in kwargs.items() if isinstance(value, Tensor))] = hidden
    else:
        args = (hidden, *args[1:])
    try:
        with torch.inference_mode(), model.tapped(keep):
            module(*args, **kwargs)
    except (RuntimeError, ValueError) as error:
        raise refusal(model, f"{site.module} could not be run by itself ({error})") from error
    found = [(kept[0].queries, kept[0].keys, kept[0].values)] if len(kept) == 1 else []
    for queries, keys, values in found:
        if queries is not None and keys is not None and values is not None:
            return queries.double().cpu(), keys.double().cpu(), values.double().cpu()
    raise refusal(model, f"{site.module} could not be run by itself")
