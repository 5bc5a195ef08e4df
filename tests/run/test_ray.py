"""The Ray engine: the same bits here and on a cluster, also when an actor is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.test_analyze import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
    pytest.mark.xdist_group("ray"),
]
METRICS = ["null_share", "dep_alignment", "variability", "exemplars"]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer to start Ray than Ray allows it."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")


def test_a_killed_actor_is_replaced_and_changes_nothing(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    psutil = pytest.importorskip("psutil", reason="psutil finds the actors")
    small_shards(monkeypatch)
    corpus = make_corpus(200)
    alone = analyze(tiny_bert, corpus, METRICS)
    killed: list[int] = []

    def kill_one() -> None:
        shards = tmp_path / "shards"
        while not (shards.is_dir() and list(shards.glob("*.npz"))):
            time.sleep(0.01)
        for process in psutil.Process(os.getpid()).children(recursive=True):
            try:
                title = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if title.startswith("ray::") and "_Actor" in title:
                process.kill()
                killed.append(process.pid)
                return

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    result = analyze(tiny_bert, corpus, METRICS, engine="ray", workers=2, out=tmp_path)
    killer.join(1)
    assert killed, "no actor was found to kill"
    assert_same_bits(alone, result)


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray asks for a token of the home folder; two clusters that start at once make two."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ray cluster that is not ours: one node in processes of its own."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    psutil = pytest.importorskip("psutil", reason="psutil finds Ray's processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    command += ["--node-ip-address=127.0.0.1", "--object-store-memory=200000000"]
    command += ["--disable-usage-stats"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert node.stdout is not None
        said = ""
        for line in node.stdout:
            said += line
            if "Ray runtime started" in line:
                break
        else:
            pytest.fail(f"Ray did not start: {said}")
        yield f"127.0.0.1:{port}"
    finally:
        # Asked politely, Ray takes half a minute; nothing here is worth the wait.
        for process in [*psutil.Process(node.pid).children(recursive=True), node]:
            process.kill()
        node.wait(30)
        node.stdout.close()


def test_a_cluster_by_its_address_gives_the_same_bits(
    cluster: str, tiny_bert: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    small_shards(monkeypatch)
    corpus = make_corpus(60)
    alone = analyze(tiny_bert, corpus, METRICS)
    result = analyze(tiny_bert, corpus, METRICS, engine="ray", workers=2, address=cluster)
    assert_same_bits(alone, result)
    assert not ray.is_initialized()
