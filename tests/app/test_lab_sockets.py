"""The lab behind real sockets: many readers at once, and one who leaves."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from headscope.app.lab.jobs import Cancelled, DeadlineExceeded, JobQueue
from headscope.app.lab.requests import Limits
from headscope.app.lab.server import bind, make_server
from headscope.app.lab.service import LabService
from headscope.model.model import Model


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
