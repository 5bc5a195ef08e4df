"""Worker processes: the same bits, and what happens when they die."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headscope.errors import HeadscopeError, InputError
from headscope.run import checkpoint
from headscope.run.analyze import analyze
from headscope.run.checkpoint import ShardKey
from headscope.run.engines import local
from headscope.run.engines.local import DEATHS_BEFORE_BLAME, Task, _Pool
from headscope.run.plan import Shard
from headscope.run.shard import measure_shard
from tests.run.corpora import make_corpus, make_documents
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model


def test_a_killed_worker_is_replaced_and_changes_nothing(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    corpus = make_corpus(300)
    alone = analyze(tiny_bert, corpus)
    killed, before = [], multiprocessing.active_children()  # other tests have theirs

    def kill_one() -> None:
        shards = tmp_path / "shards"
        while not (shards.is_dir() and list(shards.glob("*.npz"))):
            time.sleep(0.005)
        victim = next(x for x in multiprocessing.active_children() if x not in before)
        os.kill(victim.pid, signal.SIGKILL)
        killed.append(victim.pid)

    killer = threading.Thread(target=kill_one)
    killer.start()
    result = analyze(tiny_bert, corpus, workers=2, out=tmp_path)
    killer.join()
    assert killed
    assert set(multiprocessing.active_children()) <= set(before)
    assert_same_bits(alone, result)


@pytest.mark.long
def test_a_worker_that_is_stopped_is_reported(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    monkeypatch.setattr(local, "SILENCE", 0.5)
    corpus = make_corpus(300)
    stopped: list[int] = []
    reported = threading.Event()
    shards = tmp_path / "shards"

    def stop_one() -> None:
        while not (shards.is_dir() and list(shards.glob("*.npz"))):
            time.sleep(0.005)
        pid = multiprocessing.active_children()[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)
        reported.wait(30)
        os.kill(pid, signal.SIGCONT)

    def hear(message: Warning | str, *args: Any, **options: Any) -> None:
        if "It is stopped" in str(message):
            messages.append(str(message))
            reported.set()

    messages: list[str] = []
    monkeypatch.setattr(local, "warn", hear)
    stopper = threading.Thread(target=stop_one)
    stopper.start()
    result = analyze(tiny_bert, corpus, workers=2, out=tmp_path)
    stopper.join()
    monkeypatch.undo()
    small_shards(monkeypatch)
    assert f"Worker {stopped[0]} has not answered" in messages[0]
    assert f"`kill -CONT {stopped[0]}`" in messages[0]
    assert_same_bits(analyze(tiny_bert, corpus), result)


def lessons(pool: Any, task: Task, at: list[int], deaths: int) -> Task:
    for _ in range(deaths):
        task = pool._next_attempt(task, at)
    return task


def test_blame_narrows_down_to_a_document() -> None:
    pool = _Pool.__new__(_Pool)
    pool._deaths, pool._excluded = Counter(), 0
    task = Task(Shard(4, ()), Path("x"), ShardKey("plan", 4))
    assert lessons(pool, task, [1, 2], DEATHS_BEFORE_BLAME - 1) == task
    task = lessons(pool, task, [1, 2], 1)
    assert task.alone == {1, 2}
    assert not task.excluded
    task = lessons(pool, task, [2], 2)
    assert task.excluded == {2}


def test_excluded_documents_are_reported(tiny_bert: Model) -> None:
    from headscope.run.analyze import make_plan
    from headscope.run.options import Settings
    from headscope.run.plan import survey
    from headscope.text.readers.read import read

    documents = make_documents(6)
    settings = Settings()
    plan = make_plan(tiny_bert, survey(read(documents), settings), "all", settings)
    shard = Shard(0, tuple(enumerate(documents)))
    announced: list[list[int]] = []
    measured = measure_shard(
        tiny_bert,
        plan,
        shard,
        announce=lambda numbers, done: announced.append(numbers),
        alone=[1, 2],
        excluded=[4],
    )
    assert measured.report.documents == 5
    assert [f["id"] for f in measured.report.failed] == ["d4"]
    assert [1] in announced
    assert [2] in announced


def test_a_full_disk_stops_with_a_way_on(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.errors import HeadscopeError

    small_shards(monkeypatch)
    original, calls = checkpoint.write_sums, []

    def full(*args: Any, **options: Any) -> None:
        calls.append(1)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        original(*args, **options)

    corpus = make_corpus(30)
    monkeypatch.setattr(checkpoint, "write_sums", full)
    monkeypatch.setattr(local.time, "sleep", lambda seconds: None)  # type: ignore[attr-defined]
    with pytest.raises(HeadscopeError, match="make room and run the same again"):
        analyze(tiny_bert, corpus, out=tmp_path)
    assert len(calls) == 2 + local.WRITE_ATTEMPTS
    monkeypatch.undo()
    small_shards(monkeypatch)
    assert_same_bits(analyze(tiny_bert, corpus, out=tmp_path), analyze(tiny_bert, corpus))


def test_a_model_travels_with_its_edits_and_leaves_the_original_alone(tiny_bert: Model) -> None:
    import pickle

    import headscope as hs
    from headscope.model.identity import structure_of

    text = "the cat sat on the mat"
    tiny_bert.trace(text)
    before = [len(part._forward_hooks) for part in tiny_bert.module.modules()]
    with tiny_bert.edit(hs.ablate(1, 2)):
        copy: Model = pickle.loads(pickle.dumps(tiny_bert))
        edited = tiny_bert.trace(text).attention
    assert [len(part._forward_hooks) for part in tiny_bert.module.modules()] == before
    assert copy.edits == (hs.ablate(1, 2),)
    assert copy.trace(text).attention.equals(edited)
    assert not tiny_bert.edits
    own = structure_of(tiny_bert.module)
    for name, weights in own.named_parameters():
        assert weights is tiny_bert.module.get_parameter(name)


def test_a_ray_cluster_that_does_not_answer_is_one_error(tiny_bert: Model, tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:  # importing it takes seconds
        pytest.skip("the extra ray is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = time.monotonic()
    for given in (address, f"ray://{address}"):
        with pytest.raises(HeadscopeError, match=f"No Ray cluster answers at {given}") as caught:
            analyze(
                tiny_bert, make_corpus(3), ["distance"], engine="ray", address=given, out=tmp_path
            )
        assert "run the same again to go on, on Ray or with engine='local'" in str(caught.value)
    assert time.monotonic() - start < 60  # Ray alone tries for minutes
    with pytest.raises(InputError, match="use it with engine='ray'"):
        analyze(tiny_bert, make_corpus(3), ["distance"], address=address)
    assert analyze(tiny_bert, make_corpus(3), ["distance"], out=tmp_path).n_documents == 3
