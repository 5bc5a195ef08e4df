"""Edits of attention heads, applied inside the model's own attention.

An edit is a frozen description, made by `ablate`, `set_attention` or `scale_neurons` and passed
to `Model.edit`. Everything downstream of the head sees it. Several edits apply in order. Edits of
whole batches (`AblateRows`, `ReplaceRows`, `ScaleKeys`) serve causal measures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from headscope.arguments import finite_number, whole_number, whole_numbers
from headscope.attention import BlockName
from headscope.errors import InputError, warn
from headscope.model.tap.sites import Site, Wiring

VectorKind = Literal["query", "key", "value"]


class Positions(NamedTuple):
    """Positions of a call's first query and key in the sequence, which differ with a cache."""

    query_start: int
    key_start: int


class Vectors(NamedTuple):
    """Vectors of one layer: `batch head query neuron`, then `batch group key neuron`."""

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change to one head. `block` is None for the model's main block."""

    layer: int
    head: int
    block: BlockName | None = None
    acts_by_rows: ClassVar[bool] = False
    """True if blocks of query rows may be edited one by one, and outputs are left alone."""

    def touches(self, site: Site, main_block: BlockName) -> bool:
        """True if this edit applies at `site`."""
        return self.layer == site.layer and (self.block or main_block) == site.block

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Return the weights (`batch head query key`) to use instead."""
        return weights

    def on_vectors(self, vectors: Vectors, site: Site) -> Vectors:
        """Return the vectors to use instead."""
        return vectors

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """Return the head outputs (`batch head query neuron`) to use instead."""
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablate(Edit):
    """See `ablate`."""

    acts_by_rows: ClassVar[bool] = True

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Zero the head's rows."""
        weights = weights.clone()
        weights[:, self.head] = 0
        return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAttention(Edit):
    """See `set_attention`."""

    queries: tuple[int, ...] | None
    keys: tuple[int, ...]
    weight: float
    renormalize: bool

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Set the attention to the keys, in the selected rows of this call."""
        n_queries, n_keys = weights.shape[2:]
        rows = _local(self.queries, positions.query_start, n_queries)
        columns = _local(self.keys, positions.key_start, n_keys)
        if not rows or not columns:
            return weights
        weights = weights.clone()
        changed = weights[:, self.head][:, rows]  # a copy
        room = changed.sum(-1, keepdim=True) - self.weight * len(columns)
        changed[..., columns] = 0
        if self.renormalize:
            rest = changed.sum(-1, keepdim=True)
            changed = changed * (room / rest.clamp(min=1e-30)).clamp(min=0)
        changed[..., columns] = self.weight
        weights[:, self.head, rows] = changed
        return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleNeurons(Edit):
    """See `scale_neurons`."""

    neurons: tuple[int, ...]
    factor: float
    of: VectorKind
    acts_by_rows: ClassVar[bool] = True

    def on_vectors(self, vectors: Vectors, site: Site) -> Vectors:
        """Scale the neurons in the head's (or its group's) vectors."""
        tensor = getattr(vectors, self.of)
        if tensor is None:
            return vectors
        row = self.head if self.of == "query" else group_of(self.head, site)
        changed = tensor.clone()
        changed[:, row, :, list(self.neurons)] *= self.factor
        return vectors._replace(**{self.of: changed})


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOutput(Edit):
    """See `edit`."""

    function: Callable[[Tensor], Tensor]

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """Replace the head's output by the function's, after checking it."""
        given = outputs[:, self.head].clone()
        changed: object = self.function(given)
        problem = None
        if not isinstance(changed, Tensor):
            problem = f"{type(changed).__name__}; expected a torch tensor"
        elif changed.shape != given.shape:
            shapes = tuple(changed.shape), tuple(given.shape)
            problem = f"the shape {shapes[0]}; expected {shapes[1]} (`batch query neuron`)"
        elif not changed.isfinite().all():
            problem = "NaN or infinity; expected finite numbers"
        if problem or not isinstance(changed, Tensor):
            raise InputError(f"The edit of {_head_name(self)} returned {problem}.")
        outputs = outputs.clone()
        outputs[:, self.head] = changed.to(outputs)
        return outputs


def edit(
    function: Callable[[Tensor], Tensor], layer: int, head: int, *, block: BlockName | None = None
) -> Edit:
    """Edit a head's output by a function, such as `lambda z: 0.5 * z`.

    The function gets a copy of the output before the output projection, `batch query neuron`, and
    returns one of the same shape. While generating with a cache, a call has one query.
    """
    if not callable(function):
        raise InputError(f"function should be a function of a tensor, not {function!r:.60}.")
    return EditOutput(layer=layer, head=head, block=block, function=function)


def ablate(layer: int, head: int, *, block: BlockName | None = None) -> Edit:
    """Ablate a head: its attention, and so all it adds to the residual stream, is zero.

    Equal to zeroing the head's slice at the input of the output projection.
    """
    return Ablate(layer=layer, head=head, block=block)


def set_attention(
    layer: int,
    head: int,
    *,
    query: int | Sequence[int] | None = None,
    key: int | Sequence[int],
    weight: float,
    renormalize: bool = True,
    block: BlockName | None = None,
) -> Edit:
    """Set the attention that `query` pays to `key` (positions in the token axis).

    Args:
        layer: 0-based, as printed.
        head: 0-based.
        query: one position, several, or None for every query, which all have to see the key.
        key: one position or several; each gets `weight`.
        weight: the new attention, after the softmax.
        renormalize: scale the other keys of the row so that it keeps its sum.
        block: the block of an encoder-decoder; default: the encoder.

    While generating with a cache, positions still count from the start of the sequence.
    """
    # Negative positions would mean another token after every generated one.
    keys = whole_numbers("key", key)
    queries = None if query is None else whole_numbers("query", query)
    if not keys or queries == ():
        raise InputError("set_attention needs at least one key and one query position.")
    weight = finite_number("weight", weight)
    if renormalize and not 0 <= weight * len(keys) <= 1:
        raise InputError(
            f"weight={weight!r} on {len(keys)} key(s) leaves no row that sums to 1. "
            "Give a weight between 0 and 1 in total, or renormalize=False."
        )
    place: dict[str, Any] = {"layer": layer, "head": head, "block": block}
    return SetAttention(**place, queries=queries, keys=keys, weight=weight, renormalize=renormalize)


def scale_neurons(
    layer: int,
    head: int,
    neurons: int | Sequence[int],
    factor: float,
    of: VectorKind = "query",
    *,
    block: BlockName | None = None,
) -> Edit:
    """Multiply some neurons of a head's query, key or value vectors by `factor`.

    With grouped queries, several heads share keys and values; `Model.edit` warns if an edit
    affects more heads than the one named.
    """
    chosen = whole_numbers("neurons", neurons)
    if of not in ("query", "key", "value"):
        raise InputError(f"of={of!r} should be 'query', 'key' or 'value'.")
    if not chosen:
        raise InputError("scale_neurons needs at least one neuron.")
    factor = finite_number("factor", factor)
    return ScaleNeurons(layer=layer, head=head, block=block, neurons=chosen, factor=factor, of=of)


def describe_edits(edits: Sequence[Edit]) -> str | None:
    """Describe edits in a few words: "without L9 H3, L2 H1"; None for no edits."""
    ablated = [_head_name(edit) for edit in edits if isinstance(edit, Ablate)]
    words = [f"without {', '.join(ablated)}"] if ablated else []
    for edit in edits:
        if isinstance(edit, SetAttention):
            queries = "all" if edit.queries is None else ", ".join(map(str, edit.queries))
            keys = ", ".join(map(str, edit.keys))
            words.append(f"{_head_name(edit)} {queries} → {keys} set to {edit.weight:.2f}")
        elif isinstance(edit, ScaleNeurons):
            neurons = ", ".join(map(str, edit.neurons))
            words.append(f"{_head_name(edit)} {edit.of} neuron {neurons} × {edit.factor:g}")
        elif isinstance(edit, EditOutput):
            name = getattr(edit.function, "__name__", "a function")
            words.append(f"{_head_name(edit)} output by {name}")
        elif not isinstance(edit, Ablate):
            words.append(f"{_head_name(edit)} changed ({type(edit).__name__})")
    return "; ".join(words) or None


def _head_name(edit: Edit) -> str:
    block = "" if edit.block is None else f"{edit.block} "
    return f"{block}L{edit.layer} H{edit.head}"


def check_edit(edit: Edit, wiring: Wiring) -> None:
    """Raise InputError for an impossible edit; warn if it affects several heads."""
    if not isinstance(edit, Edit):
        raise InputError(
            f"{edit!r} is not an edit. Make one with ablate, set_attention, scale_neurons or edit."
        )
    site = wiring.find(edit.block, edit.layer, edit.head)
    for name in ("layer", "head"):  # True and 1.0 equal 1, and are found as such
        whole_number(name, getattr(edit, name), 0)
    if isinstance(edit, SetAttention) and site.block in wiring.causal_blocks:
        query, key = min(edit.queries or (0,)), max(edit.keys)
        if key > query and (edit.queries or edit.weight):
            raise InputError(
                f"Query {query} cannot attend to key {key}: this attention is causal, and the key "
                "comes later. Name the queries that see it (query=…)."
            )
    if not isinstance(edit, ScaleNeurons):
        return
    name = f"L{site.layer} H{edit.head}"
    size = site.value_size if edit.of == "value" else site.head_size
    if size is None or (edit.of != "value" and not site.can_edit_vectors):
        raise InputError(
            f"The {edit.of} vectors of {name} cannot be edited: this family builds its scores "
            "from several products, or in a way the tap does not see. Edit the attention "
            "(set_attention, ablate) instead."
        )
    wrong = [n for n in edit.neurons if not 0 <= n < size]
    if wrong:
        raise InputError(f"{name} has neurons 0 to {size - 1} ({edit.of}), not {wrong[0]}.")
    if edit.of != "query" and site.n_groups is not None and site.n_groups < site.n_heads:
        group = group_of(edit.head, site)
        heads = [h for h in range(site.n_heads) if group_of(h, site) == group]
        warn(
            f"Heads {', '.join(f'H{h}' for h in heads)} of layer {site.layer} share their "
            f"{edit.of}s (grouped queries), so this edit of H{edit.head} changes all of them."
        )


def group_of(head: int, site: Site) -> int:
    """Return the key/value group of a head."""
    return head if site.n_groups is None else head * site.n_groups // site.n_heads


def _local(positions: tuple[int, ...] | None, start: int, n: int) -> list[int]:
    """Return the indices of sequence positions within this call."""
    if positions is None:
        return list(range(n))
    return [p - start for p in positions if start <= p < start + n]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AblateRows(Edit):
    """Ablate head `heads[i]` in row `rows[i]` of the batch."""

    rows: Tensor = field(repr=False)
    heads: Tensor = field(repr=False)

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Zero the weights: the head output is then 0 in every family."""
        weights = weights.clone()
        weights[self.rows.to(weights.device), self.heads.to(weights.device)] = 0
        return weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplaceRows(Edit):
    """Replace the output of head `heads[i]` in row `rows[i]` of the batch by `values[i]`."""

    rows: Tensor = field(repr=False)
    heads: Tensor = field(repr=False)
    values: Tensor = field(repr=False)
    """`i query neuron`, or `i 1 neuron` for the same at every position."""
    keeps_first: bool = False
    """Keep the output at the first position."""

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """Replace the outputs of these rows."""
        outputs = outputs.clone()
        rows, heads = self.rows.to(outputs.device), self.heads.to(outputs.device)
        start = int(self.keeps_first)
        values = self.values.to(outputs).expand(-1, outputs.shape[2], -1)
        outputs[rows, heads, start:] = values[:, start:]
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WatchOutputs(Edit):
    """Pass a layer's head outputs, and later their gradient, to callbacks; change nothing."""

    on_value: Callable[[int, Tensor], None] = field(repr=False)
    on_gradient: Callable[[int, Tensor], None] | None = field(default=None, repr=False)

    def on_outputs(self, outputs: Tensor) -> Tensor:
        """Return the outputs, with a hook for the gradient."""
        self.on_value(self.layer, outputs.detach())
        if self.on_gradient is not None and torch.is_grad_enabled():
            if not outputs.requires_grad:  # the first layer, if parameters are frozen
                outputs = outputs.detach().requires_grad_()
            outputs.register_hook(partial(self.on_gradient, self.layer))
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleKeys(Edit):
    """Scale a head's attention to some keys of each document.

    With `renormalized`, every row keeps its sum: its other keys are scaled together. A row without
    other keys is not changed.
    """

    members: Tensor = field(repr=False)
    """`document key`: 1 for the keys to scale, 0 for the others."""
    factor: float = 0.0
    renormalized: bool = False

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """Scale the columns of these keys."""
        weights = weights.clone()
        before = weights[:, self.head]
        members = self.members.to(weights)[:, None, : weights.shape[-1]]
        after = before * (1 - (1 - self.factor) * members)
        if self.renormalized:
            left = after.sum(-1, keepdim=True)
            # After a softmax no weight is exactly 0: below 1e-6 a row counts as empty.
            is_some = left > 1e-6
            grown = after * before.sum(-1, keepdim=True) / torch.where(is_some, left, 1.0)
            after = torch.where(is_some, grown, before)
        weights[:, self.head] = after
        return weights
