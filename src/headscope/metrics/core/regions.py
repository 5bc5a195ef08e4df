"""Region of attention that counts, and sums over it that metrics share.

Vig & Belinkov leave out null attention (first token in causal models, else special tokens) and
special queries. The region is computed once per batch, the sums in one pass over the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, cast

import numpy as np

from headscope.attention import Attention
from headscope.batch import Axes, Batch, Sequences
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import SELF_BLOCKS
from headscope.metrics.core.layer_data import (
    BlockReader,
    Join,
    LayerData,
    Reduction,
    Small,
    can_compile,
    join_by,
    per_batch,
    per_layer,
    per_rows,
    read_reductions,
)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Queries and keys that count, as 0 and 1 in the type of the weights."""

    queries: Tensor
    """`document query`: tokens that are not special."""
    keys: Tensor
    """`document key`: tokens that are not null."""
    is_causal: bool
    """True if keys after the query do not count."""

    def pairs(self, rows: slice, n_keys: int) -> Tensor:
        """`document row key`: return 1 for pairs that count, of these queries and first keys."""
        pairs = self.queries[:, rows, None] * self.keys[:, None, :n_keys]
        return pairs.tril(rows.start) if self.is_causal else pairs


@per_batch
def region_of(layer_data: LayerData) -> Region:
    """Return the region of an attention, equal for all layers of a block."""
    queries, keys, batch = layer_data.queries, layer_data.keys, layer_data.batch
    if batch.null_keys == "first" or (batch.null_keys == "auto" and layer_data.is_causal):
        null = np.zeros_like(keys.mask)
        null[np.arange(len(null)), keys.mask.argmax(axis=1)] = True
    else:
        null = keys.special
    masks = queries.asking & ~queries.special, keys.mask & ~null
    return Region(*_as_numbers(layer_data, *masks), layer_data.is_causal)


@per_batch
def everything(layer_data: LayerData) -> Region:
    """Return the region of all tokens, special ones included."""
    masks = layer_data.queries.asking, layer_data.keys.mask
    return Region(*_as_numbers(layer_data, *masks), False)


def _as_numbers(
    layer_data: LayerData, queries: np.ndarray, keys: np.ndarray
) -> tuple[Tensor, Tensor]:
    kind = layer_data.device, layer_data.dtype
    return torch.from_numpy(queries).to(*kind), torch.from_numpy(keys).to(*kind)


@per_rows
def region_pairs(layer_data: LayerData) -> Tensor:
    """`document row key`: return 1 for pairs that count, 0 for others."""
    return region_of(layer_data).pairs(layer_data.rows, layer_data.n_keys)


@per_rows
def real_pairs(layer_data: LayerData) -> Tensor:
    """`document row key`: return 1 for pairs of tokens, 0 for padding."""
    return everything(layer_data).pairs(layer_data.rows, layer_data.n_keys)


def query_counts(layer_data: LayerData, labels: str | None = None, side: str = "query") -> Tensor:
    """`document head`, float64: return the number of queries that count.

    Documents without the given `labels` (`tags`, `parents`, `relations`) on that side have 0.
    """
    queries = region_of(layer_data).queries.double().sum(-1, keepdim=True)
    counts = queries.expand(-1, layer_data.n_heads)
    return counts if labels is None else counts * has_labels(layer_data, labels, side)


@per_batch
def has_labels(layer_data: LayerData, labels: str, side: str = "query") -> Tensor:
    """`document 1`, float64: return 1 for documents with `tags`, `parents` or `relations`."""
    tokens = _sequences(layer_data, side)
    has = tokens.is_tagged if labels == "tags" else tokens.is_parsed
    if labels == "relations":
        has = has & (tokens.relations >= 0).any(1)
    return torch.from_numpy(has).double()[:, None].to(layer_data.device)


def _sequences(layer_data: LayerData, side: str) -> Sequences:
    return layer_data.queries if side == "query" else layer_data.keys


@per_batch
def positions(layer_data: LayerData) -> tuple[np.ndarray, np.ndarray]:
    """`1 token`, or by document, float32: return positions, without words that are left out."""
    sides = []
    for tokens in (layer_data.queries, layer_data.keys):
        is_kept = np.ones((1, tokens.mask.shape[1]), bool)
        is_kept = is_kept if tokens.left_out is None else tokens.left_out < 0
        sides.append(is_kept.cumsum(-1).astype(np.float32))
    return sides[0], sides[1]


@per_rows
def distances(layer_data: LayerData) -> Tensor:
    """`1 row key`, or by document: return distances in positions. Left-out words are skipped."""
    queries, keys = map(torch.from_numpy, positions(layer_data))
    rows, n_keys = layer_data.rows, layer_data.n_keys
    distance = (queries[:, rows, None] - keys[:, None, :n_keys]).abs()
    return distance.to(layer_data.device, layer_data.dtype)


class TokenPairs(NamedTuple):
    """TokenPairs of tokens of a batch, one entry each, sorted by document and query."""

    document: np.ndarray
    query: np.ndarray
    key: np.ndarray


@per_batch
def related_pairs(layer_data: LayerData) -> tuple[TokenPairs, TokenPairs]:
    """Return pairs of the region whose parent is the query, and those whose parent is the key."""
    tokens, region = layer_data.queries, region_of(layer_data)
    is_query, is_key = region.queries.cpu().numpy() > 0, region.keys.cpu().numpy() > 0
    documents, members = np.nonzero(tokens.words >= 0)
    n_words = int(tokens.words.max(initial=-1)) + 1
    owners = documents * n_words + tokens.words[documents, members]
    order = np.argsort(owners, kind="stable")
    ordered = owners[order]
    parents = tokens.parents[documents, members]
    has = (parents >= 0) & (parents < n_words)
    dependents = np.flatnonzero(has)
    wanted = documents[dependents] * n_words + parents[dependents]
    first, last = (np.searchsorted(ordered, wanted, side) for side in ("left", "right"))
    times = last - first
    child = np.repeat(dependents, times)
    place = np.arange(times.sum()) - np.repeat(times.cumsum() - times, times)
    parent = order[np.repeat(first, times) + place]
    document, low, high = documents[child], members[child], members[parent]
    both = []
    for query, key in ((high, low), (low, high)):
        counts = is_query[document, query] & is_key[document, key]
        if layer_data.is_causal:
            counts &= key <= query
        picked = np.flatnonzero(counts)
        picked = picked[np.lexsort((query[picked], document[picked]))]
        both.append(TokenPairs(document[picked], query[picked], key[picked]))
    return both[0], both[1]


def _dense(layer_data: LayerData, pairs: TokenPairs) -> Tensor:
    """`document row key`: return 1 for the pairs of these rows."""
    rows = layer_data.rows
    table = torch.zeros((len(layer_data.batch), rows.stop - rows.start, layer_data.n_keys))
    is_here = (pairs.query >= rows.start) & (pairs.query < rows.stop)
    document, query, key = (torch.from_numpy(array[is_here]) for array in pairs)
    table[document, query - rows.start, key] = 1
    return table.to(layer_data.device, layer_data.dtype)


@per_batch
def one_hot(layer_data: LayerData, side: str, labels: str) -> Tensor:
    """`document token label`, float64: return one-hot `tags` or `relations`; without a label, 0."""
    numbers = torch.from_numpy(getattr(_sequences(layer_data, side), labels))
    size = len(getattr(layer_data.batch.axes, labels))
    encoded = torch.nn.functional.one_hot(numbers + 1, size + 1)[..., 1:].double()
    return encoded.to(layer_data.device)


class Swept(Reduction):
    """Reduction that the compiled sweep takes together with all others of this kind. `parts` picks
    its tensors among the outputs of the sweep.
    """

    comes_first = True
    parts: tuple[Callable[[Outputs], Tensor], ...]

    @classmethod
    def start(cls, first: LayerData, reductions: Sequence[Reduction]) -> BlockReader:
        """Return the compiled sweep, if the run uses it."""
        if can_compile(first):
            return Sweep(first, cast("Sequence[Swept]", reductions))
        return super().start(first, reductions)


def swept(
    join: Join, *parts: Callable[[Outputs], Tensor]
) -> Callable[[Callable[[LayerData], Small]], Swept]:
    """Decorate a function of a block of rows that the compiled sweep can replace."""

    def decorate(function: Callable[[LayerData], Small]) -> Swept:
        reduction = Swept(function, join)
        reduction.parts = parts
        return reduction

    return decorate


@per_layer
def region_weights(layer_data: LayerData) -> Tensor:
    """`document head row key`: return the weights, 0 outside the region.

    As large as the weights: prefer a reduction.
    """
    return layer_data.weights * region_pairs(layer_data)[:, None]


@per_layer
def _real_weights(layer_data: LayerData) -> Tensor:
    """`document head row key`: return the weights between tokens, 0 in padding."""
    return layer_data.weights * real_pairs(layer_data)[:, None]


def _row_sums(weights: Tensor) -> Tensor:
    """`document head query`: sum rows by a product, which is faster than `sum` for short rows."""
    n_keys = weights.shape[-1]
    ones = weights.new_ones(n_keys)
    return torch.mv(weights.reshape(-1, n_keys), ones).view(weights.shape[:-1]).double()


MAX_SUMMED = 4096
"""Weights that are summed in float32. More are summed in float64: over 240,000, float32 is off by
5e-5."""


def weighted_sums(layer_data: LayerData, forms: Tensor) -> Tensor:
    """`document head form`, float64: return Σ a·form. Forms are `document form row key`."""
    n_rows = max(1, MAX_SUMMED // layer_data.n_keys)
    parts = zip(forms.split(n_rows, 2), layer_data.weights.split(n_rows, 2), strict=True)
    sums = [torch.bmm(f.flatten(2), w.flatten(2).transpose(1, 2)).double() for f, w in parts]
    return torch.stack(sums).sum(0).transpose(1, 2)


def _log_sums_of(weights: Tensor) -> Small:
    logs = weights.clamp_min(torch.finfo(weights.dtype).tiny).log_()
    return (_row_sums(logs.mul_(weights)),)


@swept(
    join_by("rows", "rows", "sum"),
    *(lambda o: o.rows[0], lambda o: o.rows[1], lambda o: o.columns[0]),
)
def masses(layer_data: LayerData) -> Small:
    """Return float64 sums: of rows over keys that count, and over all keys (`document head query`);
    of columns over queries that count (`document head key`).
    """
    inside = region_weights(layer_data)
    return _row_sums(inside), _row_sums(layer_data.weights), inside.sum(-2).double()


@swept(
    join_by("rows", "rows", "sum"),
    *(lambda o: o.rows[1], lambda o: o.rows[1], lambda o: o.columns[1]),
)
def whole_masses(layer_data: LayerData) -> Small:
    """Return `masses` over all tokens."""
    real = _real_weights(layer_data)
    return _row_sums(real), _row_sums(layer_data.weights), real.sum(-2).double()


@swept(join_by("rows"), lambda o: o.rows[2])
def log_sums(layer_data: LayerData) -> Small:
    """`document head query`, float64: return Σ a ln a over the keys that count."""
    return _log_sums_of(region_weights(layer_data))


@swept(join_by("rows"), lambda o: o.rows[3])
def whole_log_sums(layer_data: LayerData) -> Small:
    """`document head query`, float64: return Σ a ln a over all tokens."""
    return _log_sums_of(_real_weights(layer_data))


def _join_peaks(parts: Sequence[Small], starts: Sequence[int]) -> Small:
    """Return the highest of several blocks; ties go to the first, NaN before all."""
    highest = torch.stack([part[0] for part in parts])
    queries = torch.stack([part[1] + start for part, start in zip(parts, starts, strict=True)])
    best = highest.nan_to_num(torch.inf).argmax(0)[None]
    keys = torch.stack([part[2] for part in parts])
    return tuple(array.gather(0, best)[0] for array in (highest, queries, keys))


@swept(
    _join_peaks,
    lambda o: o.peaks[..., 0].float(),
    lambda o: o.peaks[..., 1].long(),
    lambda o: o.peaks[..., 2].long(),
)
def peaks(layer_data: LayerData) -> Small:
    """`document head`: return the highest weight, its query and its key; ties go to the first."""
    highest, index = region_weights(layer_data).flatten(2).max(-1)
    return highest, index // layer_data.n_keys, index % layer_data.n_keys


@swept(join_by("sum"), lambda o: o.sums[..., :3])
def pair_sums(layer_data: LayerData) -> Small:
    """`document head 3`, float64: attention times distance, from parents, and to parents."""
    return (weighted_sums(layer_data, _pair_forms(layer_data)),)


@per_rows
def _pair_forms(layer_data: LayerData) -> Tensor:
    related = [_dense(layer_data, pairs) for pairs in related_pairs(layer_data)]
    return torch.stack([distances(layer_data) * region_pairs(layer_data), *related], 1)


OFFSETS = (-1, 0, 1)


@swept(join_by("sum"), lambda o: o.sums[..., 3:6])
def diagonal_sums(layer_data: LayerData) -> Small:
    """`document head offset`, float64: attention to the tokens at each of OFFSETS."""
    rows, weights = layer_data.rows, layer_data.weights
    region = everything(layer_data)
    sums = []
    for offset in OFFSETS:
        diagonal = weights.diagonal(rows.start + offset, dim1=2, dim2=3)
        start = rows.start + max(0, -(rows.start + offset))
        span = slice(start, start + diagonal.shape[-1])
        keys = region.keys[:, span.start + offset : span.stop + offset]
        both = region.queries[:, span] * keys
        sums.append((diagonal.double() * both[:, None]).sum(-1))
    return (torch.stack(sums, -1),)


@swept(join_by("rows"), lambda o: o.rows[4])
def to_separators(layer_data: LayerData) -> Small:
    """`document head query`, float64: attention of each query to separators."""
    keys = separators(layer_data, "key")[:, : layer_data.n_keys]
    keys = keys.to(layer_data.device, layer_data.dtype)
    return ((layer_data.weights @ keys[:, None, :, None]).squeeze(-1).double(),)


@swept(join_by("sum"), lambda o: o.sums[..., 6])
def to_first(layer_data: LayerData) -> Small:
    """`document head`, float64: attention of all queries to the first token."""
    first = torch.from_numpy(layer_data.queries.mask.argmax(axis=1)).to(layer_data.device)
    index = first[:, None, None, None].expand(-1, *layer_data.weights.shape[1:3], 1)
    queries = everything(layer_data).queries[:, None, layer_data.rows]
    paid = layer_data.weights.gather(3, index).squeeze(3) * queries
    return (paid.double().sum(-1),)


@swept(join_by("sum"), lambda o: o.sums[..., 7:9])
def repeat_sums(layer_data: LayerData) -> Small:
    """`document head 2`, float64: attention to earlier occurrences, and to the tokens after."""
    return (weighted_sums(layer_data, _repeat_forms(layer_data)),)


@per_batch
def separators(layer_data: LayerData, side: str) -> Tensor:
    """`document token`: return a mask of separators among queries or keys."""
    tokens = _sequences(layer_data, side)
    is_separator = tokens.special & tokens.mask
    is_separator[np.arange(len(is_separator)), tokens.mask.argmax(axis=1)] = False
    return torch.from_numpy(is_separator).to(layer_data.device)


@per_batch
def _repeatable(layer_data: LayerData) -> tuple[np.ndarray, np.ndarray]:
    """`document token`: return ids, and a mask of tokens that may repeat."""
    tokens = layer_data.queries
    has_ids = tokens.ids is not None
    ids = tokens.ids if tokens.ids is not None else np.zeros(tokens.mask.shape, np.int64)
    return ids, tokens.mask & ~tokens.special & has_ids


@per_batch
def earlier_occurrences(layer_data: LayerData) -> np.ndarray:
    """`document token`, int32: return the position of the token's last occurrence before, or -1."""
    ids, real = _repeatable(layer_data)
    previous = np.full(ids.shape, -1, dtype=np.int32)
    for row in range(len(ids)):
        places = np.flatnonzero(real[row])
        places = places[np.argsort(ids[row, places], kind="stable")]
        is_same = ids[row, places[1:]] == ids[row, places[:-1]]
        previous[row, places[1:][is_same]] = places[:-1][is_same]
    return previous


@per_batch
def are_repeated(layer_data: LayerData) -> Tensor:
    """`document query 2`, float64: return 1 for tokens that occurred before, and for those with a
    key after an earlier occurrence that `repeat_sums` counts.
    """
    ids, real = _repeatable(layer_data)
    n = ids.shape[1]
    is_followed = real & np.pad(real, ((0, 0), (0, 1)))[:, 1:]
    firsts = []
    for members in (real, is_followed):
        first = np.full(ids.shape, n, dtype=np.int64)
        for row in range(len(ids)):
            places = np.flatnonzero(members[row])
            known, start = np.unique(ids[row, places], return_index=True)
            at = np.minimum(np.searchsorted(known, ids[row]), max(len(known) - 1, 0))
            if len(known):
                first[row] = np.where(known[at] == ids[row], places[start[at]], n)
        firsts.append(first)
    index = np.arange(n)
    asking = real & layer_data.queries.asking
    either = np.stack((firsts[0] < index, firsts[1] + 1 < index - 1), -1) & asking[..., None]
    return torch.from_numpy(either).double().to(layer_data.device)


@per_rows
def _repeat_forms(layer_data: LayerData) -> Tensor:
    """`document 2 row key`: masks of earlier occurrences, and of the keys after them."""
    ids, real = map(torch.from_numpy, _repeatable(layer_data))
    rows, n_keys = layer_data.rows, layer_data.n_keys
    same = ids[:, rows, None] == ids[:, None, :n_keys]
    asking = real & torch.from_numpy(layer_data.queries.asking)
    same &= asking[:, rows, None] & real[:, None, :n_keys]
    after = torch.nn.functional.pad(same, (1, 0))[..., :-1] & real[:, None, :n_keys]
    pairs = torch.stack((same.tril(rows.start - 1), after.tril(rows.start - 2)), dim=1)
    return pairs.to(layer_data.device, layer_data.dtype)


class Outputs(NamedTuple):
    """Reductions of one layer, as the compiled sweep adds them up, float64."""

    rows: Tensor
    """`5 document head query`: mass of the region, of all keys; Σ a ln a of both; separators."""
    columns: Tensor
    """`2 document head key`: attention of queries of the region, and of all queries."""
    peaks: Tensor
    """`document head 3`: highest weight of the region, its query, its key."""
    sums: Tensor
    """`document head 9`: distance, from and to parents, three offsets, first token, duplicates,
    induction."""


class Sweep(BlockReader):
    """Compiled sweep over the blocks of one layer."""

    def __init__(self, first: LayerData, reductions: Sequence[Swept]) -> None:
        self._swept = reductions
        lead = len(first.batch), first.n_heads
        n_queries, n_keys = first.n_queries, first.keys.mask.shape[1]
        shapes = (5, *lead, n_queries), (2, *lead, n_keys), (*lead, 3), (*lead, 9)
        self._outputs = Outputs(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))
        names = {each.name for each in reductions}
        has_pairs = first.block in SELF_BLOCKS
        self._options = "log_sums" in names, "peaks" in names, has_pairs

    def add(self, block: LayerData) -> None:
        """Read one more block; scores become weights."""
        from headscope.metrics.core.compiled import sweep

        attention, tables = block.attention, _tables(block)
        weights = attention.weights
        if attention.are_scores:
            assert weights.is_contiguous()  # weights are written here
            every = torch.full((len(weights),), block.keys.mask.shape[1])
            visible = every if attention.n_visible is None else attention.n_visible
            tables = tables[0], visible.numpy(), *tables[2:]
        scale = np.float32(attention.scale)
        outputs = (tensor.numpy() for tensor in self._outputs)
        options = block.is_causal, attention.are_scores, *self._options
        array = weights.contiguous().numpy()
        sweep(array, block.rows.start, scale, *tables, *outputs, *options)

    def results(self) -> dict[Reduction, Small]:
        """Return the reductions of the layer."""
        return {each: tuple(p(self._outputs) for p in each.parts) for each in self._swept}


@per_batch
def _tables(layer_data: LayerData) -> tuple[np.ndarray, ...]:
    """Return the tables of the compiled sweep, none of which grows with pairs of tokens.

    Kind of each query (3 in the region, 2 other token, 0 not read); number of keys; keys out of the
    region, and whether they count among all; positions; related keys by query, twice; the last
    equal token; words; tokens; separators; the first token.
    """
    queries, keys, region = layer_data.queries, layer_data.keys, region_of(layer_data)
    n, n_keys = keys.mask.shape
    kinds = (2 * queries.asking + (region.queries.numpy() > 0)).astype(np.uint8)
    is_left_out = np.zeros(keys.mask.shape, bool) if keys.left_out is None else keys.left_out >= 0
    is_there = keys.mask | is_left_out
    n_visible = np.where(is_there.any(1), n_keys - is_there[:, ::-1].argmax(1), 0)
    is_out = (region.keys.numpy() == 0) & (np.arange(n_keys) < n_visible[:, None])
    query_positions, key_positions = (
        np.ascontiguousarray(np.broadcast_to(p, (n, p.shape[1]))) for p in positions(layer_data)
    )
    starts = np.zeros((2, n, queries.mask.shape[1] + 1), dtype=np.int64)
    previous = np.full(queries.mask.shape, -1, dtype=np.int32)
    is_word = np.zeros(queries.mask.shape, dtype=bool)
    related: list[np.ndarray] = []
    if layer_data.block in SELF_BLOCKS:
        for direction, pairs in enumerate(related_pairs(layer_data)):
            flat = pairs.document * starts.shape[2] + pairs.query
            edges = np.arange(n)[:, None] * starts.shape[2] + np.arange(starts.shape[2])
            starts[direction] = np.searchsorted(flat, edges) + sum(map(len, related))
            related.append(pairs.key)
        previous, is_word = earlier_occurrences(layer_data), _repeatable(layer_data)[1]
    return (
        kinds,
        n_visible,
        *_lists(is_out),
        keys.mask[is_out],
        query_positions,
        key_positions,
        starts,
        np.concatenate((*related, np.zeros(1, np.int64))),
        previous,
        is_word,
        np.ascontiguousarray(queries.mask),
        *_lists(separators(layer_data, "key").numpy()),
        queries.mask.argmax(axis=1),
    )


def _lists(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the list of each document starts, and its positions, one after another."""
    return np.concatenate(([0], mask.sum(1).cumsum())), np.nonzero(mask)[1]


def warm_up() -> None:
    """Load or compile the loops, on one token."""
    one = np.ones((1, 1), dtype=bool)
    sequences = Sequences.plain(one)
    zero = np.zeros(1)
    batch = Batch(Axes(), {"self": sequences}, zero, zero, zero, is_compiled=True)
    weights = torch.ones((1, 1, 1, 1))
    read_reductions(LayerData(Attention(weights, "self", 0, is_causal=True), batch), [masses])


@cache
def squares(first: int) -> Reduction:
    """`document head query key`: region weights among the first tokens that are not special."""
    return Reduction(lambda layer_data: (square(layer_data, first),), join_by("sum"))


def square(layer_data: LayerData, first: int, *, special: bool = False) -> Tensor:
    """`document head query key`: return the weights among the first tokens, 0 in other rows. With
    `special`, all tokens and keys count; otherwise the region.
    """
    weights, rows = layer_data.weights, layer_data.rows
    positions, counts, span = _square(layer_data, first, special=special)
    if span is not None and rows.start <= span.start and span.stop <= rows.stop:
        start, stop = span.start - rows.start, span.stop - rows.start
        return weights[:, :, start:stop, span] * counts[:, None]
    is_here = (positions >= rows.start) & (positions < rows.stop)
    if not is_here.any():
        return weights.new_zeros((*weights.shape[:2], first, first))
    queries = torch.where(is_here, positions - rows.start, 0)
    keys = positions.clamp_max(layer_data.n_keys - 1)
    documents = torch.arange(len(positions), device=positions.device)[:, None, None]
    # Indexing moves heads to the last axis.
    picked = weights.permute(0, 2, 3, 1)[documents, queries[:, :, None], keys[:, None]]
    return picked.permute(0, 3, 1, 2) * (counts * is_here[:, :, None])[:, None]


@per_batch
def first_tokens(
    layer_data: LayerData, first: int, *, special: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of the first tokens, `document token`, and their number. Unless `special`,
    special tokens and those of other windows are left out.
    """
    tokens = layer_data.queries
    counts = tokens.mask if special else tokens.asking & ~tokens.special
    order = np.argsort(~counts, axis=1, kind="stable")[:, :first]
    positions = np.pad(order, ((0, 0), (0, first - order.shape[1])))
    return positions, np.minimum(counts.sum(1), first)


@per_batch
def _square(
    layer_data: LayerData, first: int, *, special: bool
) -> tuple[Tensor, Tensor, slice | None]:
    """Return positions of the first tokens, `document token`, and a mask of their pairs. Positions
    are also a slice if equal in all documents, as nearly always.
    """
    positions, sizes = first_tokens(layer_data, first, special=special)
    index = torch.from_numpy(positions).to(layer_data.device)
    has_token = torch.from_numpy(np.arange(first) < sizes[:, None])
    queries = keys = has_token.to(layer_data.device, layer_data.dtype)
    if not special:
        region = region_of(layer_data)
        queries, keys = (x.gather(1, index) * queries for x in (region.queries, region.keys))
    counts = queries[:, :, None] * keys[:, None]
    if layer_data.is_causal:
        counts = counts * (index[:, :, None] >= index[:, None])
    start, stop = int(positions[0, 0]), int(positions[0, 0]) + first
    is_slice = stop <= layer_data.n_queries and (positions == np.arange(start, stop)).all()
    return index, counts, slice(start, stop) if is_slice else None


def row_mass(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return attention of each query to keys that count."""
    return masses(layer_data)[0]


def column_mass(layer_data: LayerData) -> Tensor:
    """`document head key`, float64: return attention of queries that count to each key."""
    return masses(layer_data)[2]


@per_layer
def null_mass(layer_data: LayerData) -> Tensor:
    """`document head query`, float64: return attention of each query to null keys."""
    row, all_of_it, _ = masses(layer_data)
    return (all_of_it * region_of(layer_data).queries[:, None, :] - row).clamp_min_(0.0)


@per_layer
def total_mass(layer_data: LayerData) -> Tensor:
    """`document head`, float64: return all attention that counts."""
    return row_mass(layer_data).sum(-1)


def distance_sum(layer_data: LayerData) -> Tensor:
    """`document head`, float64: return Σ a[i,j]·|i − j| over all attention that counts."""
    return pair_sums(layer_data)[0][..., 0]
