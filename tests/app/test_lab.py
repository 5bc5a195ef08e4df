"""The lab: what it answers, what it refuses before it runs, and that readers stay apart."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from headscope.app.lab.requests import Limits
from headscope.app.lab.server import bind, make_lab
from headscope.app.lab.service import LabService
from headscope.errors import InputError
from headscope.model.model import Model

TOKEN = "a-token-for-tests"
Lab = TestClient
EMPTY: dict[str, Any] = {}


@pytest.fixture
def service(tiny_bert: Model, tiny_llama: Model) -> LabService:
    return LabService({"bert": tiny_bert, "llama": tiny_llama}, "the cat <b>", Limits(tokens=40))


@pytest.fixture
def lab(service: LabService) -> Iterator[Lab]:
    with TestClient(make_lab(service, token=TOKEN), "http://127.0.0.1") as client:
        client.get("/", params={"token": TOKEN})
        yield client


def traced(lab: Lab, *inputs: dict[str, Any], model: str = "llama") -> dict[str, Any]:
    answer = lab.post("/trace", json={"model": model, "inputs": list(inputs)})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def refused(lab: Lab, path: str, body: Any) -> str:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = lab.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    return str(answer.json()["error"])


def test_the_token_is_exchanged_for_a_cookie(service: LabService) -> None:
    with TestClient(make_lab(service, token=TOKEN), "http://127.0.0.1") as stranger:
        assert stranger.get("/").status_code == 403
        assert stranger.post("/trace", json=EMPTY).json()["error"].startswith("This lab requires")
        assert stranger.get("/", params={"token": "another"}).status_code == 403
        first = stranger.get("/", params={"token": TOKEN}, follow_redirects=False)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        assert "HttpOnly" in first.headers["set-cookie"]
        assert TOKEN not in str(stranger.get("/").url)
        assert stranger.get("/").status_code == 200


def test_the_page_knows_the_models(lab: Lab) -> None:
    page = lab.get("/")
    assert "connect-src 'self'" in page.text
    assert "the cat \\u003cb>" in page.text
    assert page.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    found = page.text.split('id="headscope-start">')[1].split("</script>")[0]
    start = json.loads(found)
    assert [model["name"] for model in start["models"]] == ["bert", "llama"]
    assert [model["pairs"] for model in start["models"]] == [True, False]
    assert start["limits"] == {"tokens": 40, "seconds": 60.0}
    assert {example["model"] for example in start["examples"]} == {"bert", "llama"}


def test_a_trace_its_rows_and_its_neurons(lab: Lab, tiny_bert: Model) -> None:
    answer = traced(lab, {"text": "the cat", "pair": "the dog"}, model="bert")
    header = answer["header"]
    assert header["place"] == "lab"
    assert header["traces"][0]["title"] == "the cat ⏐ the dog"
    assert header["traces"][0]["blocks"][0]["vectors"] == []
    trace = tiny_bert.trace("the cat", "the dog")
    place = {"id": answer["id"], "trace": 0, "block": "self", "layer": 1}
    row = lab.post("/row", json={**place, "head": 2, "query": 3})
    assert np.array_equal(np.frombuffer(row.content, "<f4"), trace.attention.values[1, 2, 3])
    found = lab.post("/neurons", json=place).json()
    part = found["part"]["queries"]
    steps, codes = (
        np.frombuffer(gzip.decompress(base64.b64decode(found["buffers"][part[name]])), kind)
        for name, kind in (("steps", "<f4"), ("data", "<i2"))
    )
    queries = codes.reshape(part["shape"]) * steps[:, None, None]
    np.testing.assert_allclose(queries, trace.queries.values[1], atol=1e-3)
    for wrong in ({"head": 99}, {"query": -1}, {"layer": "x"}, {"trace": 3}, {"block": "cross"}):
        assert refused(lab, "/row", {**place, "head": 0, "query": 0, **wrong})


def test_edits_and_their_effect_on_predictions(lab: Lab, tiny_llama: Model) -> None:
    import headscope as hs

    answer = traced(lab, {"text": "the cat sat", "generate": 2})
    edits = [
        {"kind": "off", "layer": 0, "head": 1},
        {"kind": "cell", "block": "self", "layer": 1, "head": 0, "query": 2, "key": 1,
         "weight": 0.75},
        {"kind": "neuron", "layer": 1, "head": 2, "neuron": 3, "factor": 0},
    ]  # fmt: skip
    edited = lab.post("/edit", json={"id": answer["id"], "edits": edits}).json()
    (part,) = edited["traces"]
    assert part["changed"].startswith("without L0 H1; L1 H0 2 → 1 set to 0.75; ")
    n = len(answer["header"]["traces"][0]["stacks"]["self"]["tokens"])
    assert len(part["stacks"]["self"]["tokens"]) == n
    written = tiny_llama.trace("the cat sat", generate=2)
    ids = {"input_ids": torch.tensor([written.text.ids])}
    with tiny_llama.edit(
        hs.ablate(0, 1),
        hs.set_attention(1, 0, query=2, key=1, weight=0.75),
        hs.scale_neurons(1, 2, 3, 0.0),
    ):
        expected = tiny_llama.trace(ids)
    assert expected.predictions is not None
    top = part["predictions"]["positions"][-1]["top"][0]
    assert top["probability"] == pytest.approx(expected.predictions.top()[0][1], rel=1e-3)


def test_wires_of_two_texts_come_with_progress(lab: Lab) -> None:
    inputs = [{"text": "a bat sat"}, {"text": "a rat sat"}]
    both = traced(lab, *inputs)
    said = lab.post("/wires", json={"id": both["id"]})
    events = [json.loads(line[5:]) for line in said.text.split("\n\n") if line]
    assert [event["done"] for event in events[:-1]] == [1, 2]
    part = events[-1]["wires"]
    assert part["pairs"] == [["a bat sat", "a rat sat"]]
    assert "one pair of one template" in part["holds"]
    assert len(part["wires"]) == 20
    assert all(len(wire["values"]) == 1 for wire in part["wires"])
    one = traced(lab, inputs[0])
    assert "Wires need a contrast" in lab.post("/wires", json={"id": one["id"]}).text


def test_effects_come_with_progress(lab: Lab, tiny_llama: Model, tiny_bert: Model) -> None:
    answer = traced(lab, {"text": "the cat sat"})
    asked = {"id": answer["id"], "trace": 0, "position": None}
    said = lab.post("/effects", json=asked)
    assert said.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[5:]) for line in said.text.split("\n\n") if line]
    assert events[0]["done"] == 0
    assert events[-2]["done"] == events[-2]["total"] == tiny_llama.info.n_layers * 4
    part = events[-1]["effects"]
    expected = tiny_llama.trace("the cat sat", effects=True).effects
    assert expected is not None
    assert part["candidates"] == expected.data["candidate"].values.tolist()
    np.testing.assert_allclose(part["before"], expected.data["before"].values, atol=1e-4)
    # A masked model without a mask predicts nothing: said in the stream, which has begun.
    other = traced(lab, {"text": "the cat"}, model="bert")
    said = lab.post("/effects", json={"id": other["id"], "trace": 0})
    assert "no mask token" in json.loads(said.text.removeprefix("data: "))["error"]


def test_why_it_looked_there(lab: Lab, tiny_llama: Model) -> None:
    import headscope as hs

    answer = traced(lab, {"text": "the cat sat"})
    place = {"layer": 1, "head": 2, "query": 3, "key": 1}
    found = lab.post("/score", json={"id": answer["id"], "trace": 0, **place}).json()
    expected = hs.explain_score(tiny_llama, "the cat sat", **place)
    assert found["total"] == pytest.approx(expected.contrast, abs=1e-4)
    assert "other visible keys" in found["against"]
    assert refused(lab, "/score", {"id": answer["id"], "trace": 0, **place, "key": 6})


def test_the_first_text_may_be_a_pair(tiny_bert: Model) -> None:
    page = LabService({"bert": tiny_bert}, "the cat", pair="the dog").page()
    assert '"first": [{"text": "the cat", "pair": "the dog"}]' in page
    page = LabService({"bert": tiny_bert}, "the cat", other="the dog").page()
    assert '"first": [{"text": "the cat"}, {"text": "the dog"}]' in page


def test_two_texts_are_compared(lab: Lab) -> None:
    header = traced(lab, {"text": "the cat sat"}, {"text": "the mat sat"})["header"]
    assert header["examples"] == [{"title": "the cat sat", "traces": [0, 1]}]


def test_readers_stay_apart(service: LabService) -> None:
    app = make_lab(service, token=TOKEN)
    with TestClient(app, "http://127.0.0.1") as one, TestClient(app, "http://127.0.0.1") as other:
        for client in (one, other):
            client.get("/", params={"token": TOKEN})
        place = {"id": traced(one, {"text": "the cat"})["id"], "trace": 0, "layer": 0}
        assert one.post("/neurons", json=place).status_code == 200
        said = other.post("/neurons", json=place)
        assert said.status_code == 410
        assert "does not keep this text" in said.json()["error"]


def test_readers_stay_apart_without_a_token(service: LabService) -> None:
    app = make_lab(service)
    with TestClient(app, "http://127.0.0.1") as one, TestClient(app, "http://127.0.0.1") as other:
        for client in (one, other):
            assert "HttpOnly" in client.get("/").headers["set-cookie"]
            assert "set-cookie" not in client.get("/").headers
        place = {"id": traced(one, {"text": "the cat"})["id"], "trace": 0, "layer": 0}
        assert one.post("/neurons", json=place).status_code == 200
        assert other.post("/neurons", json=place).status_code == 410


def test_old_traces_are_forgotten(lab: Lab, service: LabService) -> None:
    first = traced(lab, {"text": "the cat"})["id"]
    for _ in range(service.limits.kept):
        traced(lab, {"text": "the dog"})
    assert lab.post("/neurons", json={"id": first, "trace": 0, "layer": 0}).status_code == 410
    assert len(service.store) == service.limits.kept


def test_the_shelf_holds_no_more_than_it_may(tiny_llama: Model) -> None:
    from headscope.app.lab.service import TraceStore

    trace = tiny_llama.trace("the cat sat")
    store = TraceStore(Limits(bytes_kept=3 * trace.main.data.nbytes, kept=100))
    for number in range(9):
        store.add(f"reader {number}", [trace])
    assert store.size <= 3 * trace.main.data.nbytes


ONE = {"text": "the cat"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "gpt", "inputs": [ONE]}, "gpt"),
        ({"model": ["llama"], "inputs": [ONE]}, "Unknown model"),
        ({"model": "bert", "inputs": [{"text": " "}]}, "text is empty"),
        ({"model": "bert", "inputs": [{"text": 7}]}, "text should be a text, not 7."),
        ({"model": "bert", "inputs": [{"text": "a\ud800"}]}, "text holds half of a character"),
        ({"model": "bert", "inputs": []}, "list of 1 to 2"),
        ({"model": "bert", "inputs": [ONE] * 3}, "list of 1 to 2"),
        ({"model": "llama", "inputs": [{**ONE, "generate": -1}]}, "from 0 to 200, not -1"),
        ({"model": "llama", "inputs": [{**ONE, "generate": True}]}, "whole number, not True"),
        ({"model": "llama", "inputs": [{**ONE, "target": "x"}]}, "no decoder side"),
        ({"model": "bert", "inputs": [{"text": "cat " * 1400}]}, "tokens; this lab shows up to 40"),
        (b"{", "The request is not JSON."),
        (b'{"model": NaN}', "The request is not JSON."),
        (b"[" * 100_000, "The request is not JSON."),
        (b"[]", "The request is not a JSON object."),
        (b" " * (1 << 19), "at most 262,144 bytes"),
    ],
)
def test_what_cannot_be_done_is_said(lab: Lab, body: Any, message: str) -> None:
    assert message in refused(lab, "/trace", body)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (b'{"kind": "off", "layer": 1e400, "head": 0}', "layer should be a whole number"),
        (b'{"kind": "off", "layer": 99, "head": 0}', "layer should be a whole number"),
        (b'{"kind": "off", "layer": 0, "head": -1}', "head should be a whole number"),
        (b'{"kind": "on", "layer": 0, "head": 0}', "Unknown kind of edit 'on'"),
        (b'{"kind": "cell", "layer": 0, "head": 0, "query": 1, "key": 0, "weight": 1e400}',
         "weight should be a number from 0 to 1, not inf"),
        (b'{"kind": "cell", "layer": 0, "head": 0, "query": 0, "key": 1, "weight": 0.5}', "causal"),
        (b'{"kind": "neuron", "layer": 0, "head": 0, "neuron": 1, "factor": "2"}', "factor should"),
        (b"7", "An edit should be an object"),
    ],
)  # fmt: skip
def test_edits_that_are_none(lab: Lab, edit: bytes, message: str) -> None:
    name = traced(lab, {"text": "the cat sat"})["id"]
    body = b'{"id": "%s", "edits": [%s]}' % (name.encode(), edit)
    assert message in refused(lab, "/edit", body)


def test_long_requests_are_refused_before_they_cost_time(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a " * 100_000
    began = time.process_time()
    for field in ("text", "pair", "target"):
        item = {"text": "cat", field: text}
        monkeypatch.setattr("headscope.app.lab.requests.MIN_CHARACTERS", 10)
        said = refused(lab, "/trace", {"model": "bert", "inputs": [item]})
        assert "The text has 200,000 characters; this lab shows up to 1,280" in said
    said = refused(lab, "/trace", {"model": "x" * 250_000, "inputs": [item]})
    assert len(said) < 300
    assert time.process_time() - began < 2


def test_a_long_text_is_refused_before_it_is_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LabService, "trace", lambda *_: pytest.fail("the model was run"))
    began = time.monotonic()
    text = "the cat sat on the mat . " * 200
    request = {"model": "bert", "inputs": [{"text": text}]}
    assert "tokens; this lab" in refused(lab, "/trace", request)
    assert time.monotonic() - began < 2


def test_strangers_are_turned_away(lab: Lab) -> None:
    """Another page may reach this machine by a name of its own, or post in the reader's name."""
    request = {"model": "bert", "inputs": [ONE]}
    for headers in (
        {"Host": "evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert lab.post("/trace", json=request, headers=headers).status_code == 403
    assert (
        lab.post("/trace", json=request, headers={"Origin": "http://127.0.0.1"}).status_code == 200
    )
    said = lab.post("/trace", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (said.status_code, said.json()["error"][:21]) == (400, "Requests must be JSON")
    assert lab.get("/nowhere").status_code == 404
    assert lab.get("/trace").status_code == 405


def test_a_port_in_use_is_said() -> None:
    with bind("127.0.0.1", 0) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(InputError, match=r"Cannot listen on 127\.0\.0\.1:\d+: .* --port\."):
            bind("127.0.0.1", number)


def test_a_corpus_run_names_the_heads(tiny_bert: Model, encoder_results: list[Any]) -> None:
    analysis = next(result for result in encoder_results if "offset_share" in result)
    service = LabService({"bert": tiny_bert}, results={"bert": [analysis]})
    with TestClient(make_lab(service), "http://127.0.0.1") as lab:
        header = traced(lab, {"text": "the cat sat"}, model="bert")["header"]
    assert len(header["traces"][0]["blocks"][0]["roles"]) == len(tiny_bert.trace("cat").layers)
    card = header["evidence"]["cards"]["L0H0"]
    assert card["sentences"]
    assert card["numbers"][0]["value"] is not None
