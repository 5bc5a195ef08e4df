"""Input of a metric: one layer of a batch, or reductions of several layers.

Weights are large and are freed after each layer. Most metrics need only small sums of them. Such a
*reduction* is taken once per layer for all metrics that name it. After the forward pass, each
metric receives its reductions of all layers at once, heads side by side.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, update_wrapper, wraps
from importlib.util import find_spec
from typing import Any, ClassVar, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, cast, final

from headscope.attention import Attention, BlockName
from headscope.batch import Batch, Sequences
from headscope.errors import MetricError, MissingExtra
from headscope.lazy import Tensor, torch

Small: TypeAlias = "tuple[Tensor, ...]"
"""Tensors with heads along their second axis: `document head …`."""
P = ParamSpec("P")
T = TypeVar("T")


LayerFunction: TypeAlias = "Callable[Concatenate[LayerData, P], T]"


@final
class LayerData:
    """One layer of a batch with its weights, or reductions of several layers without them.

    Long texts come in blocks of rows: `weights` are then those of the queries in `rows`, and in
    causal attention `n_keys` ends with the last of these queries.

    Attributes:
        batch: documents of the batch.
        block: attention block of the model.
        is_causal: queries see only earlier keys.
        n_heads: heads of the layer, or of all layers.
        n_queries: positions of queries, padding included.
        n_keys: positions of keys in the weights, padding included.
        rows: queries in the weights; all of them if the layer is whole.
        dtype: type of the weights.
        device: device of the weights.
    """

    def __init__(self, attention: Attention, batch: Batch) -> None:
        attention = _without_left_out(attention, batch)
        self.batch = batch
        self.block: BlockName = attention.block
        self.is_causal = attention.is_causal
        _, self.n_heads, n_rows, self.n_keys = attention.weights.shape
        self.rows = attention.rows or slice(0, n_rows)
        self.n_queries = n_rows if attention.rows is None else self.queries.mask.shape[1]
        self.dtype = attention.weights.dtype
        self.device = attention.weights.device
        self._attention: Attention | None = attention
        self._made: dict[Hashable, object] = {}
        self._copies: list[tuple[Tensor, Tensor]] | None = None

    @staticmethod
    def of_reductions(
        like: LayerData, n_heads: int, reductions: Mapping[Reduction, Small]
    ) -> LayerData:
        """Return the reductions of several layers of one shape, heads side by side, no weights."""
        layer_data = copy.copy(like)
        layer_data.n_heads = n_heads
        layer_data.rows, layer_data.n_keys = slice(0, like.n_queries), like.keys.mask.shape[1]
        layer_data._attention = None
        layer_data._made = dict(reductions.items())
        return layer_data

    @property
    def is_whole(self) -> bool:
        """True if the weights are of all queries."""
        return self.rows == slice(0, self.n_queries)

    @property
    def queries(self) -> Sequences:
        """Tokens that attend: masks of tokens and of special ones, words, tags, parents."""
        return self.batch.query_sequences(self.block)

    @property
    def keys(self) -> Sequences:
        """Tokens attended to."""
        return self.batch.key_sequences(self.block)

    @property
    def attention(self) -> Attention:
        """The layer itself: weights, vectors, gradients.

        Raises:
            MetricError: the metric names reductions, so it does not receive weights.
        """
        if self._attention is None:
            raise MetricError(
                "A metric with `reductions` receives these for all layers at once "
                f"({', '.join(sorted(self._names())) or 'none'}), without weights. Write what it "
                "needs as a reduction, or remove `reductions` to receive layer by layer."
            )
        return self._attention

    @property
    def layer(self) -> int:
        """Number of the layer; not available with reductions."""
        return self.attention.layer

    @property
    def weights(self) -> Tensor:
        """`document head query key`: read-only weights; not available with reductions."""
        return self.attention.weights

    @property
    def gradients(self) -> Tensor | None:
        """`document head query key`: ∂L/∂a; only in a run with a backward pass."""
        return self.attention.gradients

    def reduction(self, reduction: Reduction) -> Small:
        """Return a reduction, computed at its first use."""
        if self._attention is None and reduction not in self._made:
            raise MetricError(
                f"A metric reads the reduction {reduction.name!r} that is not in `reductions` "
                f"({', '.join(sorted(self._names())) or 'none'}). Add it there."
            )
        return self.once(reduction, lambda: read_reductions(self, [reduction])[reduction])

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed at the first use and shared by all metrics."""
        if name not in self._made:
            self._made[name] = self._copied(make())
        return cast("T", self._made[name])

    def of_batch(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed once for all layers of a block."""
        key = (name, self.block, self.dtype, self.device, self.n_queries)
        return self.batch.once(key, lambda: self._copied(make()))

    def of_rows(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make` for these rows, kept for other layers if they are whole.

        A table of pairs fits into memory for a block, not for all blocks of a long text.
        """
        return self.of_batch(name, make) if self.is_whole else self.once(name, make)

    @contextmanager
    def refuse_writes(self) -> Iterator[None]:
        """Raise MetricError if the block of code writes into tensors that metrics share.

        Compares copies, which doubles the memory of the layer.
        """
        self._copies = []
        if self._attention is not None:
            self._copied((self._attention.weights, self._attention.gradients))
        self._copied((*self._made.values(), *self.batch.derived.values()))
        for stack in {id(stack): stack for stack in (self.queries, self.keys)}.values():
            arrays = [getattr(stack, name) for name in stack.__slots__]
            writable = [a for a in arrays if a is not None and a.flags.writeable]
            self._copied(tuple(map(torch.from_numpy, writable)))
        try:
            yield
            if not all(
                torch.equal(tensor, copy) or torch.equal(tensor.nan_to_num(), copy.nan_to_num())
                for tensor, copy in self._copies
            ):
                raise MetricError(
                    "it writes into a tensor that all metrics share, such as `layer_data.weights`. "
                    "Their values would change. Write into a copy: `tensor.clone()`."
                )
        finally:
            self._copies = None

    def _copied(self, value: T) -> T:
        """Keep copies of the tensors in a value, if writes are to be noticed."""
        if self._copies is not None:
            for item in value if isinstance(value, tuple) else ():
                self._copied(item)
            if isinstance(value, torch.Tensor):
                self._copies.append((value, value.clone()))
        return value

    def forget(self) -> None:
        """Release everything computed from the layer."""
        self._made.clear()

    def _names(self) -> list[str]:
        return [made.name for made in self._made if isinstance(made, Reduction)]


def _without_left_out(attention: Attention, batch: Batch) -> Attention:
    """Return the attention with 0 in rows and columns of tokens that are left out."""
    if attention.are_scores or all(s.left_out is None for s in batch.stacks.values()):
        return attention
    sides = batch.query_sequences(attention.block), batch.key_sequences(attention.block)
    weights = attention.weights
    spans = attention.rows or slice(None), slice(0, weights.shape[-1])
    for side, span, axis in zip(sides, spans, (-1, -2), strict=True):
        if side.left_out is not None:
            is_kept = torch.from_numpy(side.left_out[:, span] < 0).to(weights.device)
            weights = weights * is_kept[:, None].unsqueeze(axis)
    return replace(attention, weights=weights)


def _shared(keep: Callable[[LayerData, Hashable, Callable[[], T]], T]) -> Any:
    """Return a decorator whose functions are computed once, and kept by `keep`."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def shared(layer_data: LayerData, /, *args: Any, **options: Any) -> T:
            name = function.__module__, function.__qualname__, args, *options.items()
            return keep(layer_data, name, lambda: function(layer_data, *args, **options))

        return shared

    return decorate


def per_batch(function: LayerFunction[P, T]) -> LayerFunction[P, T]:
    """Decorate a function of the batch alone: it is computed once for all layers of a block."""
    return _shared(LayerData.of_batch)(function)


def per_layer(function: LayerFunction[P, T]) -> LayerFunction[P, T]:
    """Decorate a function of a layer: it is computed once for all metrics."""
    return _shared(LayerData.once)(function)


def per_rows(function: LayerFunction[P, T]) -> LayerFunction[P, T]:
    """Decorate a function of the batch and of rows: whole layers share it."""
    return _shared(LayerData.of_rows)(function)


Join: TypeAlias = "Callable[[Sequence[Small], Sequence[int]], Small]"
"""Function of a reduction's results for consecutive blocks of rows, and of the first row of each:
returns the result for all rows."""


def join_by(*ways: Literal["rows", "sum"]) -> Join:
    """Return the join of tensors `document head query …` (`rows`), or of sums (`sum`)."""

    def join(parts: Sequence[Small], _starts: Sequence[int]) -> Small:
        columns = zip(ways, zip(*parts, strict=True), strict=True)
        return tuple(torch.cat(c, 2) if way == "rows" else _added(c) for way, c in columns)

    return join


def _added(tensors: Sequence[Tensor]) -> Tensor:
    """Add tensors; those of causal blocks have fewer keys, and are filled with 0."""
    total = tensors[-1].clone()
    for tensor in tensors[:-1]:
        total[..., : tensor.shape[-1]] += tensor
    return total


class Reduction:
    """Function of a layer with a small result, computed once. Use it as a decorator.

        @Reduction
        def to_first(layer_data: LayerData) -> Small: ...

    Call it with any LayerData to get the result. A reduction of whole layers limits the length of
    texts. One with a `join` is taken from blocks of rows (`layer_data.rows`):
    `Reduction(function, join_by("rows"))` for a result by query, `join_by("sum")` for sums over
    queries.
    """

    comes_first: ClassVar[bool] = False
    """True for a kind that may turn scores into weights, which others then read."""

    def __init__(self, function: Callable[[Any], Small], join: Join | None = None) -> None:
        self.function = function
        self.join = join
        self.name = function.__name__.strip("_")
        update_wrapper(self, function)

    def __call__(self, layer_data: LayerData) -> Small:
        """Return the result, computed at its first use."""
        return layer_data.reduction(self)

    @classmethod
    def read_all(
        cls, layer_data: LayerData, reductions: Sequence[Reduction]
    ) -> dict[Reduction, Small]:
        """Compute several reductions of this kind, which may share their work."""
        return {reduction: reduction.function(layer_data) for reduction in reductions}

    @classmethod
    def start(cls, first: LayerData, reductions: Sequence[Reduction]) -> BlockReader:
        """Return a reader of the blocks of one layer, which begins with `first`."""
        return BlockReader(cls, reductions)


MAX_PARTS = 16
"""Blocks whose results wait to be joined. Each may be as long as the text."""


class BlockReader:
    """Reductions of one kind of one layer, from consecutive blocks of its rows."""

    def __init__(self, kind: type[Reduction], reductions: Sequence[Reduction]) -> None:
        self._kind, self._reductions = kind, reductions
        self._parts: list[dict[Reduction, Small]] = []
        self._starts: list[int] = []

    def add(self, block: LayerData) -> None:
        """Read one more block."""
        self._parts.append(self.read_all(block))
        self._starts.append(block.rows.start)
        if len(self._parts) == MAX_PARTS:
            self._parts, self._starts = [self.results()], self._starts[:1]

    def read_all(self, block: LayerData) -> dict[Reduction, Small]:
        """Compute the reductions of one block."""
        return self._kind.read_all(block, self._reductions)

    def results(self) -> dict[Reduction, Small]:
        """Return the reductions of the layer."""
        if len(self._parts) == 1:
            return self._parts[0]
        joined: dict[Reduction, Small] = {}
        for reduction in self._reductions:
            assert reduction.join is not None
            joined[reduction] = reduction.join([p[reduction] for p in self._parts], self._starts)
        return joined


class RowsReader:
    """All reductions of one layer, from its blocks of rows or from the whole of it."""

    def __init__(self, first: LayerData, reductions: Collection[Reduction]) -> None:
        kinds = sorted({type(each): 0 for each in reductions}, key=lambda k: not k.comes_first)
        self._readers = [
            kind.start(first, [each for each in reductions if type(each) is kind]) for kind in kinds
        ]

    def add(self, block: LayerData) -> None:
        """Read one more block."""
        for reader in self._readers:
            reader.add(block)

    def results(self) -> dict[Reduction, Small]:
        """Return the reductions of the layer."""
        return {name: small for reader in self._readers for name, small in reader.results().items()}


def read_reductions(
    layer_data: LayerData, reductions: Collection[Reduction]
) -> dict[Reduction, Small]:
    """Compute several reductions of a layer."""
    reader = RowsReader(layer_data, reductions)
    reader.add(layer_data)
    return reader.results()


def join_layers(like: LayerData, by_layer: Mapping[int, Mapping[Reduction, Small]]) -> LayerData:
    """Return the reductions of layers of one shape, heads side by side as if of one layer."""
    layers = [*by_layer.values()]
    joined = {
        reduction: tuple(
            torch.cat(parts, 1) for parts in zip(*(x[reduction] for x in layers), strict=True)
        )
        for reduction in layers[0]
    }
    return LayerData.of_reductions(like, like.n_heads * len(layers), joined)


@cache
def has_numba() -> bool:
    """Return whether numba is installed, without importing it."""
    return find_spec("numba") is not None


def can_compile(layer_data: LayerData) -> bool:
    """Return whether the run uses compiled loops and they can read this layer's weights.
    Raises MissingExtra if the run was planned with numba, which is not installed here.
    """
    if not layer_data.batch.is_compiled:
        return False
    _require_numba()
    return layer_data.dtype == torch.float32 and layer_data.device.type == "cpu"


def load_loops() -> None:
    """Load the compiled loops, or compile them at the first use; raise MissingExtra without numba.
    Call this before the first batch: memory that numba allocates later fragments that of batches.
    """
    _require_numba()
    from headscope.metrics.core.regions import warm_up

    warm_up()


def _require_numba() -> None:
    if not has_numba():
        raise MissingExtra.of("numba", "heads", "This run, planned with compiled loops,")
