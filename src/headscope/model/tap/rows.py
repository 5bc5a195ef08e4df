"""Attention by blocks of query rows: memory that grows with the text, not with its square.

The family's own function runs on a few queries at a time, against the keys that they see. The mask
is kept as a recipe (the arguments of transformers' mask function) and made for each block. Where
the self-check proved that attention is softmax(scale · q·k) under the mask, q·k can be handed to
the reader instead, which computes the softmax and its sums in one pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from headscope.model.private_api import MASK_FUNCTIONS
from headscope.model.tap.interface import EagerFunction
from headscope.model.tap.interrupts import held
from headscope.model.tap.recording import REL_TOL, repeated
from headscope.model.tap.sites import Site

MIN_ROWS = 16
"""Rows of the last block; a shorter one joins the block before. Products with few rows are taken in
another order."""
PROOF_SCORE = 30.0
"""Highest score in the proof of a plain softmax: soft caps of 50 and more show."""


def blocks_of(n_queries: int, rows: int) -> list[slice]:
    """Return consecutive blocks of rows."""
    starts = [*range(0, n_queries, rows)]
    if len(starts) > 1 and n_queries - starts[-1] < min(MIN_ROWS, rows):
        starts.pop()
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], n_queries], strict=True)]


class PlainMask(NamedTuple):
    """Mask of a text: keys up to the query, or all of them, and padding at the right."""

    is_causal: bool
    n_keys: Tensor | None
    """`batch`: keys that are not padding; None for all."""


class MaskRecipe:
    """Mask that is made for some rows at a time. It is not a tensor: code that uses it as one
    fails, and the self-check then finds that the family cannot be read by rows.
    """

    def __init__(self, make: Callable[..., Tensor | None], arguments: dict[str, Any]) -> None:
        self._make, self._arguments = make, arguments
        self._last: tuple[tuple[int, int, int], Tensor | None] | None = None

    def rows(self, start: int, stop: int, n_keys: int) -> Tensor | None:
        """`batch 1 row key`: return the mask of some queries and of the first keys."""
        key = start, stop, n_keys
        if self._last is None or self._last[0] != key:
            offset = self._arguments.get("q_offset", 0) + start
            changed = {"q_offset": offset, "q_length": stop - start, "kv_length": n_keys}
            self._last = key, self._make(**self._arguments | changed)
        return self._last[1]

    def whole(self) -> Tensor | None:
        """Return the mask of all queries and keys."""
        return self.rows(0, self._arguments["q_length"], self._arguments["kv_length"])

    @cached_property
    def plain(self) -> PlainMask | None:
        """The mask in two numbers, if nothing else is hidden; None otherwise."""
        arguments = self._arguments
        kinds = {causal_mask_function: True, bidirectional_mask_function: False}
        is_causal = kinds.get(arguments.get("mask_function", causal_mask_function))
        is_square = arguments["q_length"] == arguments["kv_length"]
        if is_causal is None or (is_causal and not is_square):
            return None
        if (arguments.get("q_offset", 0), arguments.get("kv_offset", 0)) != (0, 0):
            return None
        padding = arguments.get("attention_mask")
        if padding is None or bool(padding.all()):
            return PlainMask(is_causal, None)
        n_keys = padding.bool().sum(-1)
        places = torch.arange(padding.shape[-1], device=padding.device)
        is_right = padding.ndim == 2 and torch.equal(padding.bool(), places < n_keys[:, None])
        return PlainMask(is_causal, n_keys) if is_right and bool((n_keys > 0).all()) else None


class _Recipes(threading.local):
    depth = 0


_recipes = _Recipes()
_lock = threading.Lock()
_n_blocks = 0
_original = MASK_FUNCTIONS["eager"]


def _make_mask(**arguments: Any) -> Tensor | MaskRecipe | None:
    """Replace transformers' function of eager masks: a recipe in threads that read by rows."""
    if not _recipes.depth:
        mask: Tensor | None = _original(**arguments)
        return mask
    recipe = MaskRecipe(_original, arguments)
    # Full attention without padding needs no mask, for any number of rows.
    return None if recipe.rows(0, 1, arguments["kv_length"]) is None else recipe


@contextmanager
@held
def mask_recipes() -> Iterator[None]:
    """Within the block, eager masks made in this thread are recipes."""
    global _n_blocks
    with _lock:
        _n_blocks += 1
        MASK_FUNCTIONS["eager"] = _make_mask
    _recipes.depth += 1
    try:
        yield
    finally:
        _recipes.depth -= 1
        with _lock:
            _n_blocks -= 1
            if not _n_blocks:
                MASK_FUNCTIONS["eager"] = _original


class EagerCall(NamedTuple):
    """One call of a family's attention function."""

    function: EagerFunction
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    args: tuple[object, ...]
    kwargs: dict[str, Any]

    @property
    def mask(self) -> object:
        """The mask: a tensor, a recipe or None."""
        return self.args[0] if self.args else self.kwargs.get("attention_mask")

    def with_mask(self) -> EagerCall:
        """Return the call with the mask of all queries and keys."""
        mask = self.mask
        return self._masked(mask.whole()) if isinstance(mask, MaskRecipe) else self

    def of_rows(self, rows: slice, n_keys: int) -> EagerCall:
        """Return the call for some queries and the first keys."""
        mask = self.mask
        if isinstance(mask, MaskRecipe):
            mask = mask.rows(rows.start, rows.stop, n_keys)
        elif isinstance(mask, Tensor):
            mask = mask[..., :n_keys] if mask.shape[-2] == 1 else mask[..., rows, :n_keys]
        call, shape = self._masked(mask), (self.query.shape[2], self.key.shape[2])
        for name in self.kwargs.keys() - {"attention_mask"}:  # position biases
            value = self.kwargs[name]
            if isinstance(value, Tensor) and value.ndim > 2 and value.shape[-2:] == shape:
                call.kwargs[name] = value[..., rows, :n_keys]
        keys, values = self.key[:, :, :n_keys], self.value[:, :, :n_keys]
        return call._replace(query=self.query[:, :, rows], key=keys, value=values)

    def _masked(self, mask: object) -> EagerCall:
        kwargs = dict(self.kwargs)
        if not self.args and "attention_mask" in kwargs:
            kwargs["attention_mask"] = mask
        return self._replace(args=(mask, *self.args[1:]) if self.args else (), kwargs=kwargs)

    def run(self) -> tuple[Tensor, Tensor | None]:
        """Call the function."""
        vectors = self.query, self.key, self.value
        return self.function(self.module, *vectors, *self.args, **self.kwargs)


ReadRows = Callable[[slice, Tensor, "EagerCall", Tensor | None], None]
"""Reader of one block: its rows, weights, call, and head outputs."""


def run_rows(call: EagerCall, rows: int, read: ReadRows, *, is_causal: bool) -> Tensor:
    """Run the family's function block by block; return `batch query head neuron`."""
    n_queries, n_keys = call.query.shape[2], call.key.shape[2]
    outputs = []
    for block in blocks_of(n_queries, rows):
        part = call.of_rows(block, block.stop if is_causal else n_keys)
        output, weights = part.run()
        assert weights is not None
        read(block, weights, part, output.transpose(1, 2))
        outputs.append(output)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)


def run_plain(call: EagerCall, rows: int, read: ReadRows, *, is_causal: bool) -> Tensor:
    """Compute q·k block by block, let `read` turn it into weights, and multiply by the values."""
    n_batch, n_heads, n_queries, _ = call.query.shape
    n_groups, n_keys, value_size = call.value.shape[1:]
    output = call.value.new_empty((n_batch, n_queries, n_heads, value_size))
    keys = call.key.transpose(2, 3)
    for block in blocks_of(n_queries, rows):
        end, n_rows = block.stop if is_causal else n_keys, block.stop - block.start
        # Heads of a group are neighbors: one product serves all of them, without copies of keys.
        queries = call.query[:, :, block].reshape(n_batch, n_groups, -1, call.query.shape[3])
        products = torch.matmul(queries, keys[..., :end])
        read(block, products.view(n_batch, n_heads, n_rows, end), call, None)
        heads = torch.matmul(products, call.value[:, :, :end])
        output[:, block] = heads.view(n_batch, n_heads, n_rows, value_size).transpose(1, 2)
    return output


def run_unread(call: EagerCall, site: Site, plain: PlainMask | None) -> tuple[Tensor, None]:
    """Run a layer that no reader wants, in torch's fused attention if that is proved equal."""
    if not site.is_plain or site.scale is None or plain is None:
        return call.with_mask().run()[0], None
    output = _fused(call.query, call.key, call.value, site.scale, plain)
    return output.transpose(1, 2), None


class GradientRows(torch.autograd.Function):
    """Plain attention whose backward pass computes weights again, block by block.

    ∂L/∂a of a block is dO·Vᵀ, with dO the gradient of the head outputs. Each block's weights and
    gradients go to `read`, and are then freed.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, plain: PlainMask,
        rows: int, read: Callable[[slice, Tensor, Tensor], None],
    ) -> Tensor:  # fmt: skip
        """Run torch's fused attention; return `batch head query neuron`."""
        ctx.save_for_backward(query, key, value)
        ctx.options = scale, plain, rows, read
        return _fused(query, key, value, scale, plain)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Read each block; return the gradients of queries, keys and values."""
        query, key, value = ctx.saved_tensors
        scale, plain, rows, read = ctx.options
        n_batch, n_heads, n_queries, _ = query.shape
        n_groups, n_keys = key.shape[1:3]
        to_query, to_key, to_value = (torch.zeros_like(x) for x in (query, key, value))
        for block in blocks_of(n_queries, rows):
            end = block.stop if plain.is_causal else n_keys
            # Heads of a group are rows of one product.
            queries, given = (
                x[:, :, block].reshape(n_batch, n_groups, -1, x.shape[3])
                for x in (query, outputs[0])
            )
            keys, values = key[:, :, :end], value[:, :, :end]
            products = queries @ keys.transpose(2, 3)
            shape = n_batch, n_heads, block.stop - block.start, end
            weights = products.view(shape)
            mask_and_softmax(weights, block, scale, plain)
            gradients = given @ values.transpose(2, 3)
            read(block, weights, gradients.view(shape))
            to_value[:, :, :end] += products.transpose(2, 3) @ given
            inner = (products * gradients).sum(-1, keepdim=True)
            to_scores = (gradients - inner) * products * scale
            to_query[:, :, block] = (to_scores @ keys).view(*shape[:3], -1)
            to_key[:, :, :end] += to_scores.transpose(2, 3) @ queries
        return to_query, to_key, to_value, None, None, None, None


def _fused(query: Tensor, key: Tensor, value: Tensor, scale: float, plain: PlainMask) -> Tensor:
    """Run torch's fused attention under a plain mask; return `batch head query neuron`."""
    mask = None
    # In causal attention only padding sees the padding at the right.
    if plain.n_keys is not None and not plain.is_causal:
        places = torch.arange(key.shape[2], device=key.device)
        mask = (places < plain.n_keys[:, None])[:, None, None]
    return functional.scaled_dot_product_attention(
        query, key, value, mask, scale=scale, is_causal=plain.is_causal,
        enable_gqa=key.shape[1] != query.shape[1],
    )  # fmt: skip


def mask_and_softmax(scores: Tensor, rows: slice, scale: float, plain: PlainMask) -> None:
    """Turn q·k of some rows into weights, in place."""
    places = torch.arange(scores.shape[-1], device=scores.device)
    if plain.is_causal:
        queries = torch.arange(rows.start, rows.stop, device=scores.device)
        scores.masked_fill_(places > queries[:, None], -torch.inf)
    if plain.n_keys is not None:
        scores.masked_fill_(places >= plain.n_keys[:, None, None, None], -torch.inf)
    torch.softmax(scores.mul_(scale), -1, out=scores)


def is_plain_softmax(call: EagerCall, site: Site) -> bool:
    """Prove that weights are softmax(scale · q·k + mask), also for scores as high as 30. Queries
    are multiplied, so that a soft cap, a sink or a bias shows.
    """
    mask = call.mask
    if not (site.is_dot_product and site.has_scores and site.value_size) or site.scale is None:
        return False
    if mask is not None and not isinstance(mask, Tensor):
        return False
    keys = repeated(call.key, site.n_heads).transpose(-1, -2)
    highest = float((call.query @ keys).abs().max()) * abs(site.scale)
    if not 0 < highest < torch.inf or call.query.dtype != torch.float32:
        return False
    louder = call._replace(query=call.query * (PROOF_SCORE / highest))
    scores = (louder.query @ keys) * site.scale
    expected = torch.softmax(scores if mask is None else scores + mask, -1)
    weights = louder.run()[1]
    if weights is None or weights.shape != expected.shape:
        return False
    return float((weights - expected).abs().max()) <= REL_TOL
