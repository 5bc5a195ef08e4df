"""The server: what it answers, what it refuses, and that it outlives bad requests."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headscope.app.lab.server import KEPT, Desk, make_server
from headscope.errors import InputError
from headscope.model.model import Model


@pytest.fixture
def server(tiny_bert: Model, tiny_llama: Model) -> Iterator[Any]:
    desk = Desk({"bert": tiny_bert, "llama": tiny_llama}, "the cat <b>")
    server = make_server(desk, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server: Any, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    headers = {"Content-Type": "application/json", **headers}
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    connection.request(method, path, content, {k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(data) if is_json else data


def test_the_page_knows_the_models(server: Any) -> None:
    status, page = ask(server, "/")
    assert status == 200
    text = page.decode()
    assert "connect-src 'self'" in text
    assert "the cat \\u003cb>" in text
    assert '"name": "llama", "title": ' in text


def test_a_trace_and_its_exact_rows(server: Any, tiny_bert: Model) -> None:
    status, answer = ask(server, "/trace", {"model": "bert", "text": "the cat", "pair": "the dog"})
    assert status == 200
    part = answer["header"]["traces"][0]
    assert part["title"] == "the cat ⏐ the dog"
    assert all(base64.b64decode(buffer) for buffer in answer["buffers"])
    trace = tiny_bert.trace("the cat", "the dog")
    place = {"trace": 0, "block": "self", "layer": 1, "head": 2, "query": 3}
    status, row = ask(server, "/row", {"id": answer["id"], **place})
    assert status == 200
    expected = trace.attention.values[1, 2, 3]
    assert np.array_equal(np.frombuffer(row, "<f4"), expected)
    for wrong in ({**place, "head": 99}, {**place, "query": -1}, {**place, "layer": "x"}):
        status, said = ask(server, "/row", {"id": answer["id"], **wrong})
        assert (status, said["error"]) == (
            400,
            "There is no such row of attention in the trace.",
        )


def test_heads_are_switched_off_beside_the_model_as_it_is(server: Any) -> None:
    wish = {"model": "llama", "text": "the cat sat", "generate": 2, "ablate": [[0, 1], [1, 0]]}
    status, answer = ask(server, "/trace", wish)
    assert status == 200
    titles = [part["title"] for part in answer["header"]["traces"]]
    assert titles == ["the model as it is", "without L0 H1, L1 H0"]
    place = {"id": answer["id"], "block": "self", "layer": 0, "head": 1, "query": 1}
    assert np.frombuffer(ask(server, "/row", {**place, "trace": 0})[1], "<f4").sum() > 0.9
    assert np.frombuffer(ask(server, "/row", {**place, "trace": 1})[1], "<f4").sum() == 0


def test_old_traces_are_forgotten(server: Any) -> None:
    first = ask(server, "/trace", {"model": "bert", "text": "the cat"})[1]["id"]
    for _ in range(KEPT):
        ask(server, "/trace", {"model": "bert", "text": "the dog"})
    status, said = ask(server, "/row", {"id": first})
    assert (status, said["error"]) == (
        400,
        "The server no longer keeps this trace; show the text again.",
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": "gpt", "text": "a"}, "gpt"),
        ({"model": "bert", "text": " "}, "text is empty"),
        ({"model": "bert", "text": 7}, "text should be a text, not 7."),
        (
            {"model": "bert", "text": "a", "generate": -1},
            "generate should be a whole number from 0 to 200, not -1.",
        ),
        ({"model": "bert", "text": "a", "ablate": [3]}, "ablate should be pairs of layer and head"),
        ({"model": "bert", "text": "a", "ablate": [[99, 0]]}, "99"),
        (b"{", "The request is not JSON."),
        (b"[" * 100_000, "The request is not JSON."),
        (b"[]", "The request is not a JSON object."),
    ],
)
def test_what_cannot_be_done_is_said(server: Any, body: Any, message: str) -> None:
    status, said = ask(server, "/trace", body)
    assert status == 400
    assert message in said["error"]
    assert ask(server, "/")[0] == 200


def test_strangers_are_turned_away(server: Any) -> None:
    """Another page may reach this machine by a name of its own, or post a plain form."""
    assert ask(server, "/", Host="evil.example:80")[0] == 403
    wish = {"model": "bert", "text": "a"}
    status, said = ask(server, "/trace", wish, Content_Type="text/plain")
    assert (status, said["error"][:21]) == (400, "Requests must be JSON")
    assert ask(server, "/nowhere")[0] == 404
    assert ask(server, "/nowhere", {})[0] == 404
    status, said = ask(server, "/trace", b" ", Content_Length=str(1 << 21))
    assert (status, said["error"]) == (400, "A request has 1 to 1,048,576 bytes, not 2,097,152.")


def test_a_port_in_use_is_said(server: Any, tiny_bert: Model) -> None:
    with pytest.raises(InputError, match=r"Cannot listen on 127\.0\.0\.1:\d+: .* --port\."):
        make_server(Desk({"bert": tiny_bert}), port=server.server_port)
