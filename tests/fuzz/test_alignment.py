"""Tokens find their words whatever the spans are, or the spans are refused."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.text.tokens import align_tokens
from tests.fuzz.hostile import fuzz

SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8)


def slow(offsets: list[tuple[int, int]], spans: list[tuple[int, int]]) -> list[int]:
    """The word that shares most characters, the first of equals, or none."""
    found = []
    for start, end in offsets:
        shared = [min(end, b) - max(start, a) for a, b in spans]
        best = max(shared, default=0)
        found.append(shared.index(best) if best > 0 else -1)
    return found


def is_usable(offsets: list[tuple[int, int]], spans: list[tuple[int, int]]) -> bool:
    in_order = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(spans))
    return in_order and all(a <= b for a, b in [*offsets, *spans])


@fuzz("alignment")
@given(SPANS, SPANS, st.booleans())
def test_any_spans(
    offsets: list[tuple[int, int]], spans: list[tuple[int, int]], repaired: bool
) -> None:
    if repaired:
        offsets = [(min(span), max(span)) for span in offsets]
        starts, ends = (sorted(side) for side in ([min(s) for s in spans], [max(s) for s in spans]))
        spans = list(zip(starts, ends, strict=True))
    try:
        found = align_tokens(offsets, spans)
    except InputError:
        assert not is_usable(offsets, spans)
    else:
        assert found == slow(offsets, spans)
