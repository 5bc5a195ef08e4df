"""The lab behind real sockets: many readers at once, and one who leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headscope.app.lab import server as lab_server
from headscope.app.lab.jobs import Cancelled, DeadlineExceeded, JobQueue
from headscope.app.lab.requests import Limits
from headscope.app.lab.server import bind, make_server
from headscope.app.lab.service import LabService, TraceExpired, TraceStore
from headscope.model.model import Model
from headscope.results.trace import Trace


@dataclass(frozen=True)
class Served:
    """A lab that runs in a thread."""

    port: int
    service: LabService

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        connection = self.connect()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data


@pytest.fixture
def served(tiny_llama: Model) -> Iterator[Served]:
    service = LabService({"llama": tiny_llama}, "", Limits(waiting=20))
    server = make_server(service, "127.0.0.1")
    with bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield Served(listening.getsockname()[1], service)
        server.should_exit = True
        thread.join()


def test_a_hundred_at_once_are_answered_or_told_to_wait(served: Served) -> None:
    request = {"model": "llama", "inputs": [{"text": "the cat sat"}]}
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: served.post("/trace", request), range(100)))
    counts = Counter(status for status, _ in answers)
    assert set(counts) == {200, 503}
    assert counts[200] >= 20
    for status, data in answers:
        said = json.loads(data)
        assert status == 200 or said["wait"] >= 1


def test_a_reader_who_leaves_stops_the_model(served: Served, tiny_llama: Model) -> None:
    began, layers = threading.Event(), Counter[str]()

    def slow(_: Any) -> None:
        layers["seen"] += 1
        began.set()
        time.sleep(0.2)

    request = {"model": "llama", "inputs": [{"text": "the cat sat", "generate": 40}]}
    original = LabService.trace

    def trace(service: LabService, reader: str, request: Any) -> Any:
        with tiny_llama.tapped(slow):
            return original(service, reader, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabService, "trace", trace)
        connection = served.connect()
        connection.request(
            "POST", "/trace", json.dumps(request), {"Content-Type": "application/json"}
        )
        has_begun = began.wait(30)
        connection.close()
        assert has_begun
        time.sleep(0.8)
        seen = layers["seen"]
    assert served.post("/trace", {**request, "inputs": [{"text": "the cat"}]})[0] == 200
    assert seen <= 10  # of 80


def test_a_run_that_takes_too_long_is_stopped(tiny_llama: Model) -> None:
    def endless() -> None:
        while True:
            tiny_llama.trace("the cat sat", vectors=False)

    async def ask(seconds: float, is_gone: bool) -> None:
        queue = JobQueue([tiny_llama], 4)

        async def gone() -> bool:
            return is_gone and queue._turn.locked() and bool(queue._stops)

        try:
            await queue.run(endless, gone, seconds)
        finally:
            queue.close()

    with pytest.raises(DeadlineExceeded, match=r"did not finish within 0\.3 seconds"):
        asyncio.run(ask(0.3, is_gone=False))
    with pytest.raises(Cancelled):
        asyncio.run(ask(30.0, is_gone=True))


def test_slow_requests_and_idle_connections_are_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_server, "IDLE_SECONDS", 0.3)
    half_headers = b"POST /trace HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: app"
    whole_headers = half_headers + b"lication/json\r\nContent-Length: 100\r\n\r\n"
    for sent, answer in ((b"", b""), (half_headers, b""), (whole_headers, b"was not complete")):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
            connection.sendall(sent)
            received = b""
            while part := connection.recv(4096):
                received += part
            assert answer in received
    assert served.post("/trace", {"model": "llama", "inputs": [{"text": "the cat"}]})[0] == 200


def test_connections_beyond_the_most_are_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_server, "MAX_CONNECTIONS", 5)
    address = ("127.0.0.1", served.port)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection(address))
        time.sleep(0.2)
        with socket.create_connection(address, timeout=20) as sixth, contextlib.suppress(OSError):
            assert sixth.recv(10) == b""
    assert served.post("/trace", {"model": "llama", "inputs": [{"text": "the cat"}]})[0] == 200


def test_a_reader_who_leaves_the_effects_leaves_no_message(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio reports "Future exception was never retrieved" when the future is collected."""
    began = threading.Event()

    def endless(self: LabService, reader: str, kind: str, request: Any, advance: Any) -> Any:
        advance(1, 2)
        began.set()
        while True:
            self.models["llama"].trace("the cat sat", vectors=False)

    monkeypatch.setattr(LabService, "measure", endless)
    monkeypatch.setattr(TraceStore, "find", lambda self, reader, name: None)
    connection = served.connect()
    connection.request("POST", "/effects", "{}", {"Content-Type": "application/json"})
    has_begun = began.wait(30)
    connection.close()
    assert has_begun
    deadline = time.monotonic() + 20
    request = {"model": "llama", "inputs": [{"text": "the cat"}]}
    while served.post("/trace", request)[0] != 200:
        assert time.monotonic() < deadline
    gc.collect()
    time.sleep(0.1)
    assert "never retrieved" not in caplog.text


def test_two_labs_on_one_machine(tiny_llama: Model) -> None:
    """Browsers send cookies to every port of a host: each lab has names of its own."""
    cookies: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        ports = []
        for token in ("first", "second"):
            service = LabService({"llama": tiny_llama})
            server = make_server(service, "127.0.0.1", token=token)
            listening = stack.enter_context(bind("127.0.0.1", 0))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            stack.callback(thread.join)
            stack.callback(setattr, server, "should_exit", True)
            ports.append(listening.getsockname()[1])
        for port, token in zip(ports, ("first", "second"), strict=True):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", f"/?token={token}")
            answer = connection.getresponse()
            assert answer.status == 303
            for header in answer.headers.get_all("set-cookie") or ():
                name, _, value = header.split(";")[0].partition("=")
                cookies[name] = value
            connection.close()
        assert len(cookies) == 4
        sent = "; ".join(f"{name}={value}" for name, value in cookies.items())
        for port in ports:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/", headers={"Cookie": sent})
            assert connection.getresponse().status == 200
            connection.close()


def test_threads_share_the_store() -> None:
    store = TraceStore(Limits(kept=2))
    trace = Trace.from_arrays(np.ones((1, 1, 1, 1)), ["a"])

    def use(number: int) -> None:
        for _ in range(100):
            reader = f"reader {number % 4}"
            name = store.add(reader, [trace])
            with contextlib.suppress(TraceExpired):
                store.find(reader, name)
            assert store.size >= 0

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert len(store) == 8
