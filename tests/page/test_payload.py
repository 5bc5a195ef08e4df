"""The contract with the front end."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headscope.errors import HeadscopeWarning, InputError
from headscope.page.payload import Contents, make_payload
from headscope.results.trace import Block, Trace
from tests.page.golden_payload import GOLDEN, WIRES, golden_payload, golden_trace


def test_golden_payload() -> None:
    written = json.loads(GOLDEN.read_text())
    made = golden_payload()
    assert made["header"] == written["header"]
    for one, other in zip(made["buffers"], written["buffers"], strict=True):
        unpacked = [gzip.decompress(base64.b64decode(text)) for text in (one, other)]
        assert unpacked[0] == unpacked[1]


def test_the_same_trace_gives_the_same_bytes() -> None:
    assert make_payload([golden_trace()]) == make_payload([golden_trace()])


def test_neurons_can_be_left_out_or_limited() -> None:
    trace = golden_trace()

    def stored(**options: Any) -> list[int]:
        contents = Contents(selection="head=L1H0", **options)
        part = make_payload([trace], contents).header["traces"][0]
        return [layer["layer"] for layer in part["blocks"][0]["vectors"]]

    assert stored(neurons=False) == []
    assert stored() == [1]
    assert stored(neurons=[0]) == [0, 1]
    assert stored(neurons=True) == [0, 1]
    assert stored(story=[("", {"layer": 0, "head": 1})]) == [0, 1]
    with pytest.raises(InputError, match=r"names layers that the trace does not have: \[7\]"):
        stored(neurons=[7])


def test_long_inputs_have_one_plane() -> None:
    for n, has_fine in ((128, True), (129, False)):
        trace = Trace.from_arrays(np.full((1, 1, n, n), 1 / n), ["t"] * n)
        block = make_payload([trace]).header["traces"][0]["blocks"][0]
        assert (block["fine"] is not None) == has_fine


def test_outputs_that_are_weighted_values_are_not_sent() -> None:
    trace = golden_trace()
    block = trace.main
    values = np.random.default_rng(0).normal(size=(2, 1, 3, 4))
    weighted = np.nan_to_num(block.attention.values) @ values[:, [0, 0]]
    axes = (("layer", "group", "key", "value_neuron"), ("layer", "head", "query", "value_neuron"))
    for outputs, sent in ((weighted, False), (weighted * 2, True)):
        data = block.data.assign(values=(axes[0], values), outputs=(axes[1], outputs))
        changed = type(block)("self", data, block.query_tokens, block.key_tokens, True)
        part = make_payload([Trace({"self": changed}, trace.stack_tokens)]).header["traces"][0]
        assert ("outputs" in part["blocks"][0]["vectors"][0]) == sent


def test_scores_are_not_attention() -> None:
    with pytest.warns(HeadscopeWarning, match="rows that sum to 6"):
        trace = Trace.from_arrays(np.full((1, 1, 2, 2), 3.0), ["a", "b"])
    with pytest.raises(InputError, match="runs from 0 to 3; weights after the softmax lie between"):
        make_payload([trace])


def test_missing_weights_warn_and_missing_heads_do_not(recwarn: pytest.WarningsRecorder) -> None:
    make_payload([golden_trace()])
    assert len(recwarn) == 0
    weights = np.full((1, 1, 2, 2), 0.5)
    weights[0, 0, 1, 0] = np.nan
    with pytest.warns(HeadscopeWarning, match="the first at layer 0, head 0, query 1, key 0"):
        make_payload([Trace.from_arrays(weights, ["a", "b"])])


def test_one_or_two_traces() -> None:
    with pytest.raises(InputError, match="one trace or compares two; 3 given"):
        make_payload([golden_trace()] * 3)
    with pytest.raises(InputError, match="1 titles for 2 traces"):
        make_payload([golden_trace()] * 2, Contents(titles=["one"]))


def test_wires_are_those_of_headscope() -> None:
    payload = make_payload([golden_trace()], Contents(wires=WIRES | {"more": 1}))
    assert payload.header["wires"] == WIRES
    with pytest.raises(InputError, match=r"what headscope\.wires returns"):
        make_payload([golden_trace()], Contents(wires={"wires": []}))


def test_inputs_are_untouched() -> None:
    trace = golden_trace()
    before = trace.main.data.copy(deep=True)
    make_payload([trace])
    assert trace.main.data.identical(before)


def test_a_comparison_says_what_was_changed() -> None:
    one = golden_trace()
    other = replace(one, provenance={"model": "golden"})
    for traces, titles in (([other, one], ["as it is", "without L1 H1"]), ([other], ["<s>unseen"])):
        header = make_payload(traces).header
        assert [part["title"] for part in header["traces"]] == titles


def test_sums_of_rows_and_masks_go_along_where_they_are_unusual() -> None:
    def stored(weights: np.ndarray, causal: bool, visible: np.ndarray | None = None) -> Any:
        trace = Trace.from_arrays(weights, ["a", "b"], is_causal=causal)
        if visible is not None:
            block = trace.main
            data = block.data.assign(visible=(("layer", "query", "key"), visible))
            text = block.query_tokens
            trace = Trace({"self": Block("self", data, text, text, causal)}, trace.stack_tokens)
        payload = make_payload([trace])
        part = payload.header["traces"][0]["blocks"][0]
        types = {"sums": np.dtype("<f4"), "visible": np.dtype(np.uint8)}
        return {
            name: np.frombuffer(gzip.decompress(payload.buffers[part[name]]), kind).tolist()
            for name, kind in types.items()
            if name in part
        }

    even, first = np.full((1, 1, 2, 2), 0.5), np.array([[[[1, 0], [1, 0]]]], dtype=float)
    assert stored(even, False) == {}
    assert stored(first, True, np.array([[[1, 0], [1, 1]]], dtype=bool)) == {}
    assert stored(first, True, np.array([[[1, 0], [1, 0]]], dtype=bool)) == {
        "visible": [1, 0, 1, 0]
    }
    assert stored(even * [[1], [0.5]], False) == {"sums": [1.0, 0.5]}
