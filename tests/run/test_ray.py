"""The Ray engine: the same bits, also when an actor is killed."""

from __future__ import annotations

import os
import threading
import time
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
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
]


def test_a_killed_actor_is_replaced_and_changes_nothing(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    psutil = pytest.importorskip("psutil", reason="psutil finds the actors")
    small_shards(monkeypatch)
    corpus = make_corpus(200)
    alone = analyze(tiny_bert, corpus)
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
    result = analyze(tiny_bert, corpus, engine="ray", workers=2, out=tmp_path)
    killer.join(1)
    assert killed, "no actor was found to kill"
    assert_same_bits(alone, result)
