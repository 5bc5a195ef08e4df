"""What the explorer is given is what was measured, and text in it is only ever text."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headscope.errors import HeadscopeError
from headscope.page.payload import Contents, make_payload
from headscope.page.save_page import make_page, save_page
from headscope.results.trace import Block, Trace, attention_dataset
from headscope.text.tokens import Tokens
from tests.fuzz.hostile import fuzz, texts
from tests.fuzz.watch import watch
from tests.page.decoding import decode

WEIGHTS = st.one_of(
    st.floats(0, 1, width=32),
    st.sampled_from((0.0, 1.0, 1e-30, 0.5, float("nan"))),
)
ANYTHING = st.one_of(WEIGHTS, st.floats(width=32))
HEADER = re.compile(
    r'<script type="application/json" id="headscope-header">(.*?)</script>', re.DOTALL
)


@st.composite
def traces(draw: st.DrawFn, elements: st.SearchStrategy[float]) -> Trace:
    n = draw(st.integers(1, 5))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), n, n)
    attention = draw(hnp.arrays(np.float32, shape, elements=elements))
    tokens = draw(st.lists(texts(12), min_size=n, max_size=n))
    special = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    name = draw(texts(12))
    stack = Tokens.of(tokens, special=special)
    data = attention_dataset(attention, range(shape[0]))
    # Not by way of Trace.from_arrays, which takes only what a softmax gives.
    block = Block("self", data, stack, stack, is_causal=False)
    return Trace({"self": block}, {"self": stack}, {}, {"model": name})


def payloads_round_trip(trace: Trace, title: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        payload = make_payload([trace], Contents(titles=[title]))
    header = json.loads(json.dumps(payload.header))
    part = header["traces"][0]
    assert part["stacks"]["self"]["tokens"] == list(trace.tokens)
    assert part["title"] == title
    block = part["blocks"][0]

    def unpack(number: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress(payload.buffers[number]), np.uint8)

    for layer, expected in enumerate(trace.attention.values):
        fine = unpack(block["fine"][layer])
        coarse = unpack(block["coarse"][layer])
        found = decode(coarse.reshape(block["shape"][1:]), fine)
        np.testing.assert_allclose(found, expected, atol=1e-3)
    return "same"


@fuzz("payloads")
@given(traces(WEIGHTS), texts(12))
def test_payloads_round_trip(trace: Trace, title: str) -> None:
    watch("payloads", payloads_round_trip, trace, title)


def pages_hold_text_only(trace: Trace, title: str) -> str:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "page.html"
        try:
            page = make_page(make_payload([trace], Contents(titles=[title])), title=title)
            save_page(trace, path)
        except HeadscopeError:
            assert list(Path(folder).iterdir()) == []
            return "refused"
        assert [file.name for file in Path(folder).iterdir()] == ["page.html"]
        saved = path.read_text(encoding="utf-8")
    # No file of text holds half a surrogate pair: it is shown as a question mark.
    whole = [token.encode("utf-8", "replace").decode() for token in trace.tokens]
    for text, expected in ((page, list(trace.tokens)), (saved, whole)):
        found = HEADER.search(text)
        assert found is not None
        assert json.loads(found[1])["traces"][0]["stacks"]["self"]["tokens"] == expected
        assert "<" not in found[1]
    return "same"


@fuzz("pages")
@given(traces(ANYTHING), texts(12))
def test_pages_hold_text_only(trace: Trace, title: str) -> None:
    watch("pages", pages_hold_text_only, trace, title)


def saved_traces_come_back(trace: Trace) -> str:
    import headscope as hs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.nc"
        trace.save(path)
        again: Any = hs.open(path)
    assert again.tokens == trace.tokens
    np.testing.assert_array_equal(again.attention.values, trace.attention.values)
    return "same"


@fuzz("saved traces")
@given(traces(ANYTHING))
def test_saved_traces_come_back(trace: Trace) -> None:
    watch("saved traces", saved_traces_come_back, trace)
