"""Normalize attention computed elsewhere for `Trace.from_arrays`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from headscope.attention import BLOCKS, key_stack, query_stack
from headscope.errors import InputError, UnknownName, warn
from headscope.text.tokens import Tokens

MAX_ROW_SUM = 1.01
"""Maximum row sum without a warning; rounding in half precision stays below."""


def named_blocks(
    attention: object, tokens: Mapping[str, Sequence[str] | Tokens] | Sequence[str] | Tokens
) -> tuple[dict[str, np.ndarray], dict[str, Sequence[str] | Tokens]]:
    """Return blocks (`layer head query key`) and tokens by name; a lone block is `self`."""
    attention = _cached_patterns(attention)
    if not isinstance(attention, Mapping):
        if isinstance(tokens, Mapping):
            raise InputError(
                f"tokens names the stacks {', '.join(map(str, tokens))}, so attention should name "
                'its blocks too: {"encoder": …, "decoder": …, "cross": …}.'
            )
        attention, tokens = {"self": attention}, {"self": tokens}
    if not isinstance(tokens, Mapping):
        raise InputError(
            "attention names blocks, so tokens should name the stacks they are over: "
            '{"encoder": […], "decoder": […]}.'
        )
    for name in [*attention, *tokens]:
        UnknownName.check("block", name, BLOCKS)
    if not attention:
        raise InputError("There is no attention: no block is named.")
    stacks = dict(tokens)
    arrays: dict[str, np.ndarray] = {}
    for name in BLOCKS:
        if name not in attention:
            continue
        sides = query_stack(name, stacks), key_stack(name, stacks)
        missing = [side for side in sides if side not in stacks]
        if missing:
            raise InputError(f"Block {name!r} needs tokens[{missing[0]!r}], which is missing.")
        n_queries, n_keys = (len(stacks[side]) for side in sides)
        array = attention[name]
        weights = (
            joined_steps(array, is_cross=sides[0] != sides[1])
            if is_stepwise(array)
            else stacked_attention(array)
        )
        if weights.shape[2:] != (n_queries, n_keys):
            raise InputError(
                f"Attention{'' if name == 'self' else f' of block {name!r}'} is "
                f"{weights.shape[2]} queries × {weights.shape[3]} keys, but there are "
                + (
                    f"{n_queries} tokens. All three must agree."
                    if sides[0] == sides[1]
                    else f"{n_queries} tokens of {sides[0]!r} and {n_keys} of {sides[1]!r}."
                )
                + (
                    " generate() returns no row for the last token it wrote: leave that one out."
                    if is_stepwise(array) and weights.shape[2] == n_queries - 1
                    else ""
                )
            )
        check_rows(weights)
        arrays[name] = weights
    unused = [
        stack
        for stack in stacks
        if not any(stack in (query_stack(b, stacks), key_stack(b, stacks)) for b in arrays)
    ]
    if unused:
        raise InputError(f"tokens has {unused[0]!r}, which no block of the attention is over.")
    return arrays, stacks


def _cached_patterns(attention: object) -> object:
    """Return the layers of an activation cache of TransformerLens; anything else unchanged."""
    cache = getattr(attention, "cache_dict", attention)
    if not isinstance(cache, Mapping):
        return attention
    places = ((_PATTERN.fullmatch(str(name)), array) for name, array in cache.items())
    layers = {int(place[1]): array for place, array in places if place is not None}
    if not layers and any("hook_" in str(name) for name in cache):
        raise InputError(
            "The cache has no blocks.0.attn.hook_pattern, the attention after the softmax. Keep "
            "it: names_filter=lambda name: name.endswith('hook_pattern')."
        )
    if layers and sorted(layers) != list(range(len(layers))):
        raise InputError(f"The cache has the layers {sorted(layers)}; expected all from 0 on.")
    return [layers[n] for n in sorted(layers)] if layers else attention


_PATTERN = re.compile(r"blocks\.(\d+)\.attn\.hook_pattern")


def is_stepwise(attention: object) -> TypeGuard[Sequence[Sequence[object]]]:
    """Return True for the value of `generate(output_attentions=True)`: layers for each step."""
    if not isinstance(attention, Sequence) or not attention:
        return False
    step = attention[0]
    return isinstance(step, Sequence) and bool(step) and getattr(step[0], "ndim", 0) in (3, 4)


def joined_steps(steps: Sequence[Sequence[object]], *, is_cross: bool) -> np.ndarray:
    """Return `layer head query key` from the steps of a generation, each a sequence of layers.

    The first step holds the rows of the prompt, every later one the row of the last token. Keys
    after a row are 0 in it. A cache of a fixed length has columns for missing keys, which must be
    0 and are cut off. A cache of a sliding window holds the last keys only, in its layers. In
    cross-attention the keys do not grow.
    """
    layers = [[stacked_attention([layer]) for layer in step] for step in steps]
    shapes = {(len(step), layer.shape[1]) for step in layers for layer in step}
    if len(shapes) > 1:
        raise InputError(f"Steps differ in their layers and heads: {sorted(shapes)}.")
    starts, n_queries = [], 0
    for number, step in enumerate(layers):
        rows = step[0].shape[2]
        if any(layer.shape[2] != rows for layer in step):
            raise InputError(f"The layers of step {number} differ in their queries.")
        is_repeated = number > 0 and not is_cross and rows == step[0].shape[3] == n_queries + 1
        starts.append(0 if is_repeated else n_queries)  # without a cache, all rows are repeated
        n_queries = starts[-1] + rows
    n_keys = layers[0][0].shape[3] if is_cross else n_queries
    ((n_layers, n_heads),) = shapes
    joined = np.zeros((n_layers, n_heads, n_queries, n_keys), dtype=layers[0][0].dtype)
    for number, (start, step) in enumerate(zip(starts, layers, strict=True)):
        for index, (array,) in enumerate(step):
            stop = start + array.shape[1]
            total = n_keys if is_cross else stop
            columns = array.shape[2]
            is_window = number > 0 and not is_cross and columns < total
            if (columns < total and not is_window) or array[..., total:].any():
                raise InputError(
                    f"Step {number} has {columns} keys (with attention beyond the first "
                    f"{total}: {bool(array[..., total:].any())}), where {total} tokens are known. "
                    "Expected every step of one generation, from the first on, without beams."
                )
            first = total - min(columns, total)
            joined[index, :, start:stop, first:total] = array[..., :total]
    return joined


def looks_causal(weights: np.ndarray) -> bool:
    """Return True if attention (`layer head query key`) to later tokens is 0 everywhere."""
    return weights.shape[-1] > 1 and not np.triu(np.nan_to_num(weights), 1).any()


NO_WEIGHTS = (
    "the model runs on SDPA or flash attention, which returns no weights. Call "
    'model.set_attn_implementation("eager") and pass output_attentions=True, or let headscope run '
    "the model: hs.load(model, tokenizer).trace(text)."
)


def stacked_attention(attention: object) -> np.ndarray:
    """Return `layer head query key`; raise InputError for other axes."""
    if attention is None:
        raise InputError(f"The attention is None: {NO_WEIGHTS}")
    if isinstance(attention, Sequence):
        layers = []
        for index, given in enumerate(attention):
            if given is None:
                raise InputError(f"Layer {index} of the attention is None: {NO_WEIGHTS}")
            layer = _numpy(given)
            layer = layer[0] if layer.ndim == 4 and layer.shape[0] == 1 else layer
            if layer.ndim != 3:
                raise InputError(
                    f"Layer {index} of the attention has shape {layer.shape}; expected (head, "
                    "query, key), or a batch of one: (1, head, query, key)."
                )
            layers.append(layer)
        if not layers:
            raise InputError(
                "There is no attention: the sequence of layers is empty. Instead of outputs[-1], "
                f"say outputs.attentions. If they are empty too, {NO_WEIGHTS}"
            )
        shapes = {layer.shape for layer in layers}
        if len(shapes) > 1:
            raise InputError(f"Layers differ in shape (head, query, key): {sorted(shapes)}.")
        weights = np.stack(layers)
    else:
        weights = _numpy(attention)
        if weights.ndim == 5 and weights.shape[1] == 1:  # layer, a batch of one, head, query, key
            weights = weights[:, 0]
    if weights.ndim != 4:
        raise InputError(
            f"Attention has {weights.ndim} axes {weights.shape}; expected four: "
            "layer, head, query, key"
            + ("; of a batch, choose one text: array[:, 0]." if weights.ndim == 5 else ".")
        )
    if 0 in weights.shape:
        raise InputError(f"Attention (layer, head, query, key) is empty: {weights.shape}.")
    return weights


def _numpy(array: Any) -> np.ndarray:
    array = getattr(array, "value", array)  # a value that nnsight saved
    for name in ("detach", "cpu"):  # a torch tensor, without importing torch
        array = getattr(array, name, lambda array=array: array)()
    if "bfloat16" in str(getattr(array, "dtype", "")):  # which NumPy does not know
        array = array.float() if hasattr(array, "float") else array.astype("float32")
    try:
        weights = np.asarray(array)
    except ValueError as error:  # rows of different length
        raise InputError(f"Attention should be one array of numbers: {error}") from error
    if not np.issubdtype(weights.dtype, np.number) or np.iscomplexobj(weights):
        raise InputError(f"Attention should be numbers, not {weights.dtype}.")
    return weights if weights.dtype == np.float64 else weights.astype(np.float32)


def check_rows(weights: np.ndarray) -> None:
    """Raise InputError for weights below 0; warn of row sums above 1. NaN is a missing weight."""
    lowest = np.nanmin(weights, initial=0)
    if lowest < 0:
        raise InputError(
            f"Attention has weights down to {lowest:.4g}; expected 0 to 1, after the softmax. "
            "Take the softmax over the keys first."
        )
    highest = np.nansum(weights, axis=-1, dtype=np.float64).max()
    if highest > MAX_ROW_SUM:
        warn(
            f"Attention has rows that sum to {highest:.4g}; expected 1, after the softmax. They "
            "are taken as they are."
        )
