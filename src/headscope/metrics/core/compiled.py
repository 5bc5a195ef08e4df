"""Loops over attention weights, compiled by numba; the only module that imports numba.

Each loop passes over the weights once, with one row in the nearest cache. Rows are copied to memory
whose length is a multiple of 16, so that loops vectorize without a remainder. The logarithm is the
exponent plus a polynomial in the mantissa. Weights are not negative, so their bits compare as they
do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numba
import numpy as np

from headscope.metrics.core.word_attention import NOT_A_NUMBER
from headscope.text.tokens import NO_WORD

# ln(1 + x) ≈ x·(c0 + c1·x + …) on [0, 1), minimax fit, error below 2.2e-7.
C0, C1, C2, C3 = map(np.float32, (0.9999811369, -0.4994717589, 0.3282420371, -0.2258975155))
C4, C5, C6 = map(np.float32, (0.1346737814, -0.05514463868, 0.01076435081))
ONE = np.float32(1)
# A float32 is sign, exponent (8 bits, 127 more than it is) and mantissa (23 bits).
BITS_OF_ONE = np.int32(127 << 23)
NAN_BITS = np.int32((255 << 23) + (1 << 22))
EXPONENT, MANTISSA = np.int32(-1 << 23), np.int32((1 << 23) - 1)
LOG_2 = np.float32(math.log(2) / (1 << 23))
"""ln 2 for an exponent that has not been shifted down by the 23 bits of the mantissa."""

ANY_ORDER = {"reassoc", "contract", "nsz"}
"""Compiler flags that allow reordered sums; NaN stays NaN."""


def js_sums_compiled(rows: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """Compute `headscope.metrics.divergence.js_sums`."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    sums = np.zeros((rows.shape[0], rows.shape[0]))
    _js(rows, is_causal, sums)
    return np.asarray(sums + sums.T)


def region_sums(
    weights: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    *,
    is_causal: bool,
    with_logs: bool,
    with_peaks: bool,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Compute `masses`, `log_sums` and `peaks` of `headscope.metrics.core.regions`.

    `weights` are `document head query key`. In `queries` and `keys` (`document token`), 1 is a
    token that counts. All are float32. If attention is causal, keys after the query are skipped.
    Without logs or peaks, these are 0.
    """
    n_documents, n_heads, n_queries, n_keys = weights.shape
    rows = np.zeros((3, n_documents, n_heads, n_queries))
    columns = np.zeros((n_documents, n_heads, n_keys))
    peak = np.zeros((n_documents, n_heads), dtype=np.float32)
    positions = np.zeros((2, n_documents, n_heads), dtype=np.int64)
    _region(
        weights, queries, keys, is_causal, with_logs, with_peaks, rows, columns, peak, positions
    )
    return (rows[0], rows[1], columns), (rows[2],), (peak, positions[0], positions[1])


def best_words(
    weights: np.ndarray, tokens: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`document head word`, twice: return the other word that each word attends to most, and the
    word that attends to it most.

    Ties go to the first. -1 without attention, -2 in heads with NaN. `tokens` (`document token`)
    are sorted by word; `starts` (`document word+1`) has the index of each word's first token there.
    """
    shape = (*weights.shape[:2], starts.shape[1] - 1)
    to, from_ = np.full(shape, NO_WORD, np.int32), np.full(shape, NO_WORD, np.int32)
    _words(weights, tokens, starts, to, from_)
    return to, from_


def _kept(function: Callable[..., None]) -> Callable[..., None]:
    """Compile the function, and cache it on disk if the disk is writable."""
    try:
        return numba.njit(fastmath=ANY_ORDER, nogil=True, cache=True)(function)
    except RuntimeError:
        return numba.njit(fastmath=ANY_ORDER, nogil=True)(function)


@numba.njit(fastmath=ANY_ORDER, inline="always")
def _product(s: np.float32) -> np.float32:
    """Return s · ln s, 0 at 0."""
    bits = np.float32(s).view(np.int32)
    exponent = np.float32(np.int32((bits - BITS_OF_ONE) & EXPONENT))
    x = np.int32((bits & MANTISSA) | BITS_OF_ONE).view(np.float32) - ONE
    log = C6
    log = log * x + C5
    log = log * x + C4
    log = log * x + C3
    log = log * x + C2
    log = log * x + C1
    log = log * x + C0
    return s * (exponent * LOG_2 + log * x)


@numba.njit(inline="always")
def _whole(n: int) -> int:
    """Return the next multiple of 16, the length of a vector."""
    return (n + 15) // 16 * 16


@_kept
def _region(
    weights: np.ndarray,
    queries: np.ndarray,
    keys: np.ndarray,
    is_causal: bool,
    with_logs: bool,
    with_peaks: bool,
    rows: np.ndarray,
    columns: np.ndarray,
    peak: np.ndarray,
    positions: np.ndarray,
) -> None:
    n_documents, n_heads, n_queries, n_keys = weights.shape
    here = np.zeros(_whole(n_keys), dtype=np.float32)
    counts = np.zeros_like(here)
    column = np.zeros_like(here)
    bits = here.view(np.int32)
    zero = np.float32(0)
    for document in range(n_documents):
        counts[:n_keys] = keys[document]
        for head in range(n_heads):
            highest = np.int32(0)
            for query in range(n_queries):
                if query % 64 == 63:  # sums of float32 should stay short
                    columns[document, head] += column[:n_keys]
                    column[:] = zero
                if queries[document, query] == zero:
                    continue
                seen = min(query + 1, n_keys) if is_causal else n_keys
                for k in range(seen):
                    here[k] = weights[document, head, query, k]
                n = _whole(seen)
                for k in range(seen, n):
                    here[k] = zero
                total, mass = zero, zero
                for k in range(n):
                    a = here[k]
                    counted = a * counts[k]
                    total += a
                    mass += counted
                    column[k] += counted
                    here[k] = counted
                rows[0, document, head, query] = mass
                rows[1, document, head, query] = total
                if with_logs:
                    products = zero
                    for k in range(n):
                        products += _product(here[k])
                    rows[2, document, head, query] = products
                if with_peaks:
                    most = np.int32(0)
                    for k in range(n):
                        most = max(most, bits[k])
                    if most > highest:
                        highest = most
                        k = 0
                        while bits[k] != most:
                            k += 1
                        positions[0, document, head], positions[1, document, head] = query, k
                    if mass != mass:  # a NaN may have a sign
                        highest = NAN_BITS
            columns[document, head] += column[:n_keys]
            column[:] = zero
            peak[document, head] = np.int32(highest).view(np.float32)


@_kept
def _words(
    weights: np.ndarray, tokens: np.ndarray, starts: np.ndarray, to: np.ndarray, from_: np.ndarray
) -> None:
    n_documents, n_heads, _, n_tokens = weights.shape
    n_words = starts.shape[1] - 1
    row = np.zeros(_whole(n_words), dtype=np.float32)
    bits = row.view(np.int32)
    highest, best = np.zeros_like(bits), np.zeros_like(bits)
    here = np.zeros(n_tokens + 1, dtype=np.float32)  # the last stays 0
    first = np.zeros(n_words, dtype=np.int32)
    more = np.zeros((n_tokens, 2), dtype=np.int32)
    for document in range(n_documents):
        start, token = starts[document], tokens[document]
        # The first token of each word, and the others of split words.
        n_more = 0
        for word in range(n_words):
            first[word] = token[start[word]] if start[word] < start[word + 1] else n_tokens
            for i in range(start[word] + 1, start[word + 1]):
                more[n_more, 0], more[n_more, 1] = token[i], word
                n_more += 1
        for head in range(n_heads):
            is_number = True
            highest[:] = 0
            best[:] = NO_WORD
            for word in range(n_words):
                n = start[word + 1] - start[word]
                if n == 0:
                    continue
                row[:] = 0
                for i in range(start[word], start[word + 1]):
                    here[:n_tokens] = weights[document, head, token[i]]
                    for other in range(n_words):
                        row[other] += here[first[other]]
                    for j in range(n_more):
                        row[more[j, 1]] += here[more[j, 0]]
                row[word] = 0
                if n > 1:
                    share = ONE / np.float32(n)
                    for other in range(row.size):
                        row[other] *= share
                most, total = np.int32(0), np.float32(0)
                for other in range(row.size):
                    most = max(most, bits[other])
                    total += row[other]
                is_number = is_number and total == total
                if most > 0:
                    other = 0
                    while bits[other] != most:
                        other += 1
                    to[document, head, word] = other
                for other in range(row.size):
                    is_higher = bits[other] > highest[other]
                    highest[other] = bits[other] if is_higher else highest[other]
                    best[other] = np.int32(word) if is_higher else best[other]
            from_[document, head] = best[:n_words]
            if not is_number:
                to[document, head] = from_[document, head] = NOT_A_NUMBER


@_kept
def _js(rows: np.ndarray, is_causal: bool, sums: np.ndarray) -> None:
    """Compare each head with four others at a time, which the processor does in parallel."""
    n_heads, n_queries, n_keys = rows.shape
    here = np.zeros((n_heads + 3, _whole(n_keys)), dtype=np.float32)
    self_products = np.zeros(n_heads + 3, dtype=np.float32)
    zero, half, quarter = np.float32(0), np.float32(0.5), np.float32(0.25)
    for query in range(n_queries):
        n = min(query + 1, n_keys) if is_causal else n_keys
        for head in range(n_heads):
            total = zero
            for k in range(n):
                p = rows[head, query, k]
                here[head, k] = p
                # Of p + p: two heads with the same row then differ by rounding alone.
                total += _product(p + p)
            self_products[head] = total * quarter
        n = _whole(n)  # a key of weight 0 adds 0
        for head in range(n_heads):
            for other in range(head + 1, n_heads, 4):
                a, b, c, d = zero, zero, zero, zero
                for k in range(n):
                    p = here[head, k]
                    a += _product(p + here[other, k])
                    b += _product(p + here[other + 1, k])
                    c += _product(p + here[other + 2, k])
                    d += _product(p + here[other + 3, k])
                mixed = (a, b, c, d)
                for j in range(min(4, n_heads - other)):
                    divergence = self_products[head] + self_products[other + j] - half * mixed[j]
                    if divergence > 0:
                        sums[head, other + j] += divergence
