"""Whatever is sent to the lab, it is answered or refused; it never fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headscope.app.lab.requests import Limits
from headscope.app.lab.server import make_lab
from headscope.app.lab.service import LabService
from headscope.model.model import Model
from tests.fuzz.hostile import fuzz, texts

NUMBERS = st.one_of(
    st.integers(-2, 6), st.floats(), st.sampled_from((1e308, -1, 2**70, True, None, "3", [0]))
)
VALUES = st.recursive(
    st.one_of(NUMBERS, texts(8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(texts(4), inner, max_size=3)
    ),
    max_leaves=6,
)
INPUTS = st.fixed_dictionaries(
    {"text": st.one_of(texts(12), VALUES)},
    optional={"pair": st.one_of(texts(8), VALUES), "generate": NUMBERS, "target": VALUES},
)
EDITS = st.fixed_dictionaries(
    {"kind": st.sampled_from(("off", "cell", "neuron", "x", 1))},
    optional=dict.fromkeys(
        ("layer", "head", "query", "key", "weight", "neuron", "factor", "block"), NUMBERS
    ),
)
PLACES = dict.fromkeys(("trace", "layer", "head", "query", "key", "position", "block"), NUMBERS)
REQUESTS = st.one_of(
    st.tuples(
        st.just("trace"),
        st.fixed_dictionaries(
            {
                "model": st.one_of(st.sampled_from(("llama", "bert")), VALUES),
                "inputs": st.one_of(st.lists(st.one_of(INPUTS, VALUES), max_size=3), VALUES),
            }
        ),
    ),
    st.tuples(
        st.just("edit"),
        st.fixed_dictionaries(
            {"edits": st.one_of(st.lists(st.one_of(EDITS, VALUES), max_size=3), VALUES)}
        ),
    ),
    st.tuples(
        st.sampled_from(("row", "neurons", "score", "effects")),
        st.fixed_dictionaries({}, optional=PLACES),
    ),
    st.tuples(st.sampled_from(("trace", "row", "edit")), VALUES),
)


@pytest.fixture(scope="module")
def lab(tiny_llama: Model, tiny_bert: Model) -> Iterator[TestClient]:
    desk = LabService({"llama": tiny_llama, "bert": tiny_bert}, limits=Limits(tokens=24))
    with TestClient(make_lab(desk), "http://127.0.0.1") as client:
        yield client


@fuzz("requests to the lab")
@given(REQUESTS)
def test_no_request_fails(lab: TestClient, asked: tuple[str, Any]) -> None:
    kind, body = asked
    if isinstance(body, dict) and kind != "trace":
        wish = {"model": "llama", "inputs": [{"text": "the cat"}]}
        body = {"id": lab.post("/trace", json=wish).json()["id"], **body}
    content = json.dumps(body).encode("utf-8", "surrogatepass")
    answer = lab.post(f"/{kind}", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 400, 410), (kind, body, answer.text)
    if kind != "row" or answer.status_code != 200:
        assert "Unexpected" not in answer.text, (kind, body, answer.text)
