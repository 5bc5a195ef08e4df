"""Traces that keep the strongest keys of each row, held to whole traces of the same text."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.model import tracing
from headscope.model.model import Model
from headscope.page.codec import encode
from headscope.page.payload import make_payload
from headscope.page.replies import Replies
from headscope.results.trace import Block, Trace

TEXT = "the cat sat on the mat and the dog sat on the cat. the mat sat on"
TOP = 5


def assert_strongest(kept: Block, whole: Block, heads: range | list[int] | None = None) -> None:
    """Compare with a slow selection from the whole rows."""
    weights = whole.attention.values
    for row, head in np.ndindex(*weights.shape[:2]):
        dense = kept.head_weights(row, head)
        if heads is not None and head not in heads:
            assert np.isnan(dense).all()
            continue
        rest = kept.data["rest"].values[row, head]
        for query, weights_of_row in enumerate(weights[row, head]):
            strongest = sorted(weights_of_row.tolist(), reverse=True)
            found = sorted(dense[query].tolist(), reverse=True)
            np.testing.assert_allclose(found[:TOP], strongest[:TOP], atol=1e-6)
            assert not any(found[TOP:])
            assert rest[query] == pytest.approx(sum(strongest[TOP:]), abs=1e-5)
        is_kept = dense > 0
        np.testing.assert_allclose(dense[is_kept], weights[row, head][is_kept], atol=1e-6)


@pytest.mark.parametrize("rows", [7, 128])
@pytest.mark.parametrize("name", ["tiny_llama", "tiny_bert"])
def test_rows_keep_their_strongest_keys(
    name: str, rows: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Model = request.getfixturevalue(name)
    monkeypatch.setattr(tracing, "TOP_ROWS", rows)
    whole = model.trace(TEXT)
    kept = model.trace(TEXT, keep="top", top=TOP)
    assert model.wiring.has_rows
    assert_strongest(kept.main, whole.main)
    for vectors in ("queries", "keys", "values", "outputs"):
        np.testing.assert_allclose(
            getattr(kept, vectors).values, getattr(whole, vectors).values, atol=1e-5
        )
    assert kept.main.is_causal == whole.main.is_causal
    assert (kept.layers, kept.n_heads) == (whole.layers, whole.n_heads)


def test_blocks_of_an_encoder_decoder(tiny_t5: Model) -> None:
    whole = tiny_t5.trace(TEXT, target="the dog sat")
    kept = tiny_t5.trace(TEXT, target="the dog sat", keep="top", top=TOP)
    for name, block in whole.blocks.items():
        assert_strongest(kept.blocks[name], block)


def test_an_edited_model_and_chosen_heads(tiny_llama: Model) -> None:
    with tiny_llama.edit(hs.ablate(0, 1)):
        whole = tiny_llama.trace(TEXT)
        kept = tiny_llama.trace(TEXT, keep="top", top=TOP, heads=[0, 2], layers=[1])
    assert_strongest(kept.main, Block("self", whole.main.data.isel(layer=[1]), whole.text,
                                      whole.text, True), heads=[0, 2])  # fmt: skip


def test_fewer_keys_than_kept(tiny_llama: Model) -> None:
    whole, kept = (tiny_llama.trace("the cat sat", **o) for o in ({}, {"keep": "top"}))
    np.testing.assert_allclose(
        kept.main.head_weights(0, 0), whole.attention.values[0, 0], atol=1e-6
    )
    assert kept.top.sizes["rank"] == 32
    assert float(kept.top["rest"].max()) < 1e-6


def test_files_pages_and_rows(tiny_llama: Model, tmp_path: Path) -> None:
    trace = tiny_llama.trace(TEXT, keep="top", top=TOP)
    trace.save(tmp_path / "trace.nc")
    opened = hs.open(tmp_path / "trace.nc")
    assert isinstance(opened, Trace)
    for name in opened.top.data_vars:
        np.testing.assert_array_equal(opened.top[name], trace.top[name])
    payload = make_payload([opened])
    block = payload.header["traces"][0]["blocks"][0]
    top = block["top"]
    assert (top["count"], block["fine"]) == (TOP, None)

    def unpack(number: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress(payload.buffers[number]), np.uint8)

    n = opened.main.sizes["query"]
    low, high = unpack(top["steps"][1]).reshape(2, 4, n, TOP).astype(int)
    keys, codes = (low + 256 * high).cumsum(-1), unpack(block["coarse"][1]).reshape(4, n, TOP)
    found = np.zeros((4, n, n), dtype=np.uint8)
    head, query, rank = np.nonzero(codes)
    found[head, query, keys[head, query, rank]] = codes[head, query, rank]
    expected = encode(np.stack([opened.main.head_weights(1, h) for h in range(4)]), fine=False)[0]
    np.testing.assert_array_equal(found, expected)
    rest = encode(opened.top["rest"].values, fine=False)[0]
    assert unpack(top["rest"]).tobytes() == rest.tobytes()
    content, (row,) = Replies([opened]).row({"trace": 0, "layer": 1, "head": 2, "query": 9})
    assert content["found"]
    np.testing.assert_array_equal(np.frombuffer(row, "<f4"), opened.main.head_weights(1, 2)[9])
    trace.save_page(tmp_path / "page.html")


def test_predictions_of_a_long_text(tiny_llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LOGITS_KEPT", 8)
    whole, kept = (tiny_llama.trace(TEXT, **o) for o in ({}, {"keep": "top"}))
    assert kept.predictions is not None
    assert whole.predictions is not None
    n = len(whole.tokens)
    assert list(kept.predictions.positions) == list(range(n - 8, n))
    for position in (n - 8, n - 1):
        one, other = (t.predictions.top(position) for t in (kept, whole))
        assert [text for text, _ in one] == [text for text, _ in other]


def test_what_needs_whole_rows_says_so(tiny_llama: Model) -> None:
    trace = tiny_llama.trace(TEXT, keep="top", top=TOP)
    for call in (
        lambda: trace.attention,
        trace.roles,
        trace.by_word,
        lambda: trace.measure("entropy"),
    ):
        with pytest.raises(InputError, match=r"keeps the 5 strongest keys of each row"):
            call()
    with pytest.raises(InputError, match="keeps whole rows"):
        _ = tiny_llama.trace("the cat").top


def test_options_that_do_not_go_together(tiny_llama: Model) -> None:
    with pytest.raises(UnknownName, match="'tops'"):
        tiny_llama.trace(TEXT, keep="tops")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="top should be a whole number from 1 on, not 0"):
        tiny_llama.trace(TEXT, keep="top", top=0)
    with pytest.raises(InputError, match="keeps no scores and no norms"):
        tiny_llama.trace(TEXT, keep="top", norms=True)
    with pytest.raises(InputError, match="heads= needs keep='top'"):
        tiny_llama.trace(TEXT, heads=[0])
    with pytest.raises(InputError, match="heads go from 0 to 3"):
        tiny_llama.trace(TEXT, keep="top", heads=[9])
