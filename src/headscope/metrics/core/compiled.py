"""Loops over attention weights, compiled by numba; the only module that imports numba.

`sweep` takes all shared reductions of a block of rows in one pass, with one row in the nearest
cache. It starts from weights, or from scores, which it turns into weights. Rows are copied to
memory whose length is a multiple of 16, so that loops vectorize without a remainder. The logarithm
is the exponent plus a polynomial in the mantissa. Weights are not negative, so their bits compare
as they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numba
import numpy as np

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


def js_sums_compiled(rows: np.ndarray, *, is_causal: bool, first: int = 0) -> np.ndarray:
    """Compute `headscope.metrics.divergence.js_sums`."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    sums = np.zeros((rows.shape[0], rows.shape[0]))
    _js(rows, is_causal, first, sums)
    return np.asarray(sums + sums.T)


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


# exp(x) = 2^n · exp(r), with n = x / ln 2, rounded by adding a large number. ln 2 is split in two.
LOG2_E, ROUND = np.float32(1.4426950408889634), np.float32(12582912.0)
ROUND_BITS = np.int32(0x4B400000)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
E0, E1, E2 = map(np.float32, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3))
E3, E4, E5 = map(np.float32, (4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1))
LOWEST = np.float32(-87.0)
"""Lowest argument of exp whose result is a normal number."""
HIDDEN = np.float32(-3e38)
"""Score of a key that does not take part."""
FLUSH = 64
"""Rows after which sums of columns in float32 are added to those in float64."""


@numba.njit(fastmath={"contract"}, inline="always")
def _exp(x: np.float32) -> np.float32:
    # Only for loops without reordered sums, which would optimize ROUND away.
    t = x * LOG2_E + ROUND
    n = np.float32(t).view(np.int32) - ROUND_BITS
    z = t - ROUND
    x = x - z * LN2_HIGH
    x = x - z * LN2_LOW
    y = E0
    y = y * x + E1
    y = y * x + E2
    y = y * x + E3
    y = y * x + E4
    y = y * x + E5
    y = y * (x * x) + x + ONE
    return y * np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)


@numba.njit(fastmath={"contract"})
def _exp_of(x: np.float32) -> np.float32:
    return _exp(x)


@numba.njit(fastmath={"contract"})
def _exponentials(row: np.ndarray, logs: np.ndarray, scale: np.float32, top: np.float32) -> None:
    """Replace scores by exp(score · scale − top), and keep the exponents in `logs`."""
    for k in range(row.size):
        x = row[k] * scale - top
        x = LOWEST if x < LOWEST else x  # NaN stays NaN
        logs[k] = x
        row[k] = _exp(x)


@numba.njit(fastmath={"reassoc", "contract", "nsz", "nnan"})
def _highest(row: np.ndarray) -> np.float32:
    most = HIDDEN
    for k in range(row.size):
        most = max(most, row[k])
    return most


@numba.njit(fastmath=ANY_ORDER)
def _sums(row: np.ndarray, logs: np.ndarray) -> tuple[np.float32, np.float32]:
    """Return Σ p and Σ p · log."""
    total, products = np.float32(0), np.float32(0)
    for k in range(row.size):
        total += row[k]
        products += row[k] * logs[k]
    return total, products


@numba.njit(fastmath=ANY_ORDER)
def _log_products(row: np.ndarray) -> np.float32:
    products = np.float32(0)
    for k in range(row.size):
        products += _product(row[k])
    return products


@numba.njit(fastmath=ANY_ORDER)
def _scaled(row: np.ndarray, column: np.ndarray, by: np.float32) -> None:
    for k in range(row.size):
        row[k] *= by
        column[k] += row[k]


@numba.njit(fastmath=ANY_ORDER)
def _far(row: np.ndarray, positions: np.ndarray, position: np.float32) -> np.float32:
    """Return Σ p · |i − k|, without the cancellation of i · Σ p − Σ p · k."""
    total = np.float32(0)
    for k in range(row.size):
        total += row[k] * abs(position - positions[k])
    return total


@numba.njit(fastmath=ANY_ORDER)
def _added(column: np.ndarray, row: np.ndarray) -> np.float32:
    """Add a row to the sums of columns; return its sum."""
    total = np.float32(0)
    for k in range(row.size):
        total += row[k]
        column[k] += row[k]
    return total


@numba.njit
def _top_bits(bits: np.ndarray) -> np.int32:
    most = np.int32(0)
    for k in range(bits.size):
        most = max(most, bits[k])
    return most


@_kept
def sweep(
    block: np.ndarray,
    start: int,
    scale: np.float32,
    kinds: np.ndarray,
    n_visible: np.ndarray,
    out_starts: np.ndarray,
    out_keys: np.ndarray,
    out_counts: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    related_starts: np.ndarray,
    related_keys: np.ndarray,
    previous: np.ndarray,
    is_word: np.ndarray,
    is_token: np.ndarray,
    separator_starts: np.ndarray,
    separators: np.ndarray,
    first: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    peaks: np.ndarray,
    sums: np.ndarray,
    is_causal: bool,
    are_scores: bool,
    with_logs: bool,
    with_peaks: bool,
    with_pairs: bool,
) -> None:
    """Take the reductions of the rows from `start` on, and add them to the outputs.

    `block` is `document head row key`, float32. With `are_scores`, it holds q·k, and is replaced by
    softmax(scale · q·k) over the visible keys. Tables and outputs are described in
    `headscope.metrics.core.regions`. `with_pairs` is for attention within one stack.
    """
    n_documents, n_heads, n_rows, n_keys = block.shape
    zero = np.float32(0)
    here = np.zeros(_whole(n_keys), dtype=np.float32)
    bits = here.view(np.int32)
    logs = np.zeros_like(here)
    inside, outside, unread = np.zeros_like(here), np.zeros_like(here), np.zeros_like(here)
    for document in range(n_documents):
        visible = min(n_visible[document], n_keys)
        out_from, out_to = out_starts[document], out_starts[document + 1]
        positions = key_positions[document]
        for head in range(n_heads):
            highest = peaks[document, head, 0]
            for r in range(n_rows):
                i = start + r
                row = block[document, head, r]
                seen = min(i + 1, visible) if is_causal else visible
                kind = kinds[document, i]
                column = inside if kind == 3 else outside if kind == 2 else unread
                # Keys out of the region: their share of the sum, and of Σ a ln a.
                out_mass, out_products = zero, zero
                if are_scores:
                    scores = row[:seen]
                    top = zero
                    for o in range(out_from, out_to):
                        k = out_keys[o]
                        if k < seen:
                            here[k] = row[k] * scale
                            row[k] = HIDDEN
                    most = _highest(scores) * scale
                    top = most
                    for o in range(out_from, out_to):
                        k = out_keys[o]
                        if k < seen:
                            top = max(top, here[k])
                    _exponentials(scores, logs[:seen], scale, top)
                    normalizer = zero
                    for o in range(out_from, out_to):
                        k = out_keys[o]
                        if k < seen:
                            row[k] = zero
                            x = here[k] - top
                            logs[k] = LOWEST if x < LOWEST else x
                            here[k] = _exp_of(logs[k])
                            normalizer += here[k]
                    mass, products = _sums(scores, logs[:seen])
                    normalizer += mass
                    inverse = ONE / normalizer
                    _scaled(scores, column[:seen], inverse)
                    for k in range(seen, n_keys):
                        row[k] = zero
                    log_normalizer = np.float32(np.log(normalizer))
                    mass *= inverse
                    products = products * inverse - log_normalizer * mass
                    far = zero
                    if with_pairs and kind == 3:
                        far = _far(scores, positions[:seen], query_positions[document, i])
                    if with_peaks and kind == 3 and not mass <= zero:
                        nearly = _exp_of(max(most - top, LOWEST)) * inverse
                        # NaN, once found, stays the highest.
                        if highest == highest and not nearly * np.float32(1.000001) <= highest:
                            k = 0
                            for other in range(1, seen):
                                if scores[other] > scores[k]:
                                    k = other
                            if not scores[k] <= highest:
                                highest = scores[k]
                                peaks[document, head, 1], peaks[document, head, 2] = i, k
                    for o in range(out_from, out_to):
                        k = out_keys[o]
                        if k < seen:
                            a = here[k] * inverse
                            row[k] = a
                            if out_counts[o]:
                                out_mass += a
                                out_products += a * (logs[k] - log_normalizer)
                                column[k] += a
                            here[k] = zero
                    if kind == 0:
                        continue
                else:
                    if kind == 0:
                        continue
                    for k in range(seen):
                        here[k] = row[k]
                    n = _whole(seen)
                    for k in range(seen, n):
                        here[k] = zero
                    for o in range(out_from, out_to):
                        k = out_keys[o]
                        if k < seen:
                            here[k] = zero
                            if out_counts[o]:
                                out_mass += row[k]
                                column[k] += row[k]
                                if with_logs:
                                    out_products += _product(row[k])
                    mass = _added(column[:n], here[:n])
                    products, far = zero, zero
                    if with_logs:
                        products = _log_products(here[:n])
                    if with_pairs and kind == 3:
                        far = _far(here[:seen], positions[:seen], query_positions[document, i])
                    if with_peaks and kind == 3:
                        most_bits = _top_bits(bits[:n])
                        if most_bits > np.float32(highest).view(np.int32):
                            k = 0
                            while bits[k] != most_bits:
                                k += 1
                            highest = here[k]
                            peaks[document, head, 1], peaks[document, head, 2] = i, k
                        if mass != mass:  # a NaN may have a sign
                            highest = np.int32(NAN_BITS).view(np.float32)
                rows[1, document, head, i] = mass + out_mass
                rows[3, document, head, i] = products + out_products
                if kind == 3:
                    rows[0, document, head, i] = mass
                    rows[2, document, head, i] = products
                if with_pairs:
                    total = sums[document, head]
                    total[0] += far
                    for direction in range(2):
                        found = 0.0
                        for at in range(
                            related_starts[direction, document, i],
                            related_starts[direction, document, i + 1],
                        ):
                            found += row[related_keys[at]]
                        total[1 + direction] += found
                    for offset in range(3):
                        k = i + offset - 1
                        if 0 <= k < seen and is_token[document, k]:
                            total[3 + offset] += row[k]
                    if first[document] < seen:
                        total[6] += row[first[document]]
                    same, after = 0.0, 0.0
                    k = previous[document, i]
                    while k >= 0:
                        same += row[k]
                        if k + 1 < i - 1 and is_word[document, k + 1]:
                            after += row[k + 1]
                        k = previous[document, k]
                    total[7] += same
                    total[8] += after
                found = 0.0
                for at in range(separator_starts[document], separator_starts[document + 1]):
                    if separators[at] < seen:
                        found += row[separators[at]]
                rows[4, document, head, i] = found
                if i % FLUSH == FLUSH - 1:
                    _flush(columns, document, head, inside, outside, n_keys)
            _flush(columns, document, head, inside, outside, n_keys)
            peaks[document, head, 0] = highest
            for o in range(out_from, out_to):
                if out_keys[o] < n_keys:
                    columns[0, document, head, out_keys[o]] = 0.0


@numba.njit(fastmath=ANY_ORDER)
def _flush(
    columns: np.ndarray,
    document: int,
    head: int,
    inside: np.ndarray,
    outside: np.ndarray,
    n_keys: int,
) -> None:
    for k in range(n_keys):
        columns[0, document, head, k] += inside[k]
        columns[1, document, head, k] += inside[k] + outside[k]
    inside[:] = 0
    outside[:] = 0


@_kept
def _js(rows: np.ndarray, is_causal: bool, first: int, sums: np.ndarray) -> None:
    """Compare each head with four others at a time, which the processor does in parallel."""
    n_heads, n_queries, n_keys = rows.shape
    here = np.zeros((n_heads + 3, _whole(n_keys)), dtype=np.float32)
    self_products = np.zeros(n_heads + 3, dtype=np.float32)
    zero, half, quarter = np.float32(0), np.float32(0.5), np.float32(0.25)
    for query in range(n_queries):
        n = min(first + query + 1, n_keys) if is_causal else n_keys
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
