"""Every write, fsync, rename and unlink of a run fails once, or is its last act.

The same call afterwards gives the same bits, and nothing under a final name is not whole.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headscope as hs
from headscope.app.cli import verify
from headscope.errors import HeadscopeError, WriteError
from headscope.results import files
from headscope.results.result import Result
from headscope.run import checkpoint
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model

METRICS = ["distance", "exemplars"]
N_DOCUMENTS = 24


class Operations:
    """Counts operations on files, and acts at one of them, and as often as asked from there."""

    def __init__(
        self, patch: pytest.MonkeyPatch, act: Callable[[], None], at: int, times: int = 1
    ) -> None:
        self.count, self._act, self._at, self._until = 0, act, at, at + times
        for owner, name in (
            (os, "fsync"),
            (os, "replace"),
            (os, "unlink"),
            (os, "rmdir"),
            (os, "mkdir"),
            (tempfile, "mkstemp"),
            (Path, "write_bytes"),
            (Path, "write_text"),
            (Path, "chmod"),
            (files, "save_groups"),
            (files, "seal"),
        ):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            number = self.count
            self.count += 1
            if self._at <= number < self._until:
                if real.__name__.startswith(("write", "save")):  # half of it is there
                    target = Path(args[0])
                    target.touch()
                    with target.open("ab") as file:
                        file.write(b"half")
                self._act()
            return real(*args, **options)

        return operation


def fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(model: Model, out: Path) -> Result:
    return analyze(model, make_corpus(N_DOCUMENTS), METRICS, out=out, progress=False, workers=1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_shards(monkeypatch)
    monkeypatch.setattr(checkpoint, "FOLD_EVERY", 2)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def n_operations(model: Model, out: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        operations = Operations(patch, fail, at=10**9)
        run(model, out)
    assert operations.count > 30
    return operations.count


def assert_whole(folder: Path) -> None:
    """Whatever has a final name is what was written."""
    for file in verify._files(folder):
        assert not verify._damage(file), file


@pytest.mark.parametrize("times", [1, 10**9], ids=["once", "from there on"])
def test_every_operation_fails(small: None, tiny_bert: Model, tmp_path: Path, times: int) -> None:
    expected = run(tiny_bert, tmp_path / "whole")
    failures: list[str] = []
    for number in range(n_operations(tiny_bert, tmp_path / "count")):
        out = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            Operations(patch, fail, at=number, times=times)
            try:
                assert_same_bits(run(tiny_bert, out), expected)
            except HeadscopeError as error:
                failures.append(str(error))
        if out.exists():
            assert_whole(out)
        assert_same_bits(run(tiny_bert, out), expected)
        assert sorted(path.name for path in out.iterdir()) in (
            [".lock", "plan.json", "result.nc"],
            ["plan.json", "result.nc"],
        )
    assert len(failures) >= (5 if times == 1 else 30)
    assert all(str(tmp_path) in message and ".part" not in message for message in failures)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_at_every_operation(small: None, tiny_bert: Model, tmp_path: Path) -> None:
    expected = run(tiny_bert, tmp_path / "whole")
    for number in range(n_operations(tiny_bert, tmp_path / "count")):
        out = tmp_path / str(number)
        process = multiprocessing.get_context("fork").Process(
            target=_killed, args=(tiny_bert, out, number)
        )
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        if out.exists():
            assert_whole(out)
        assert_same_bits(run(tiny_bert, out), expected)


def _killed(model: Model, out: Path, number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Operations(patch, kill, at=number)
        run(model, out)
    os._exit(0)


@pytest.mark.parametrize("change", ["removed", "renamed"])
def test_a_folder_that_goes_away(
    small: None, tiny_bert: Model, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, aside = tmp_path / "run", tmp_path / "aside"
    add, calls = checkpoint.ShardStore.add, 0

    def going(self: checkpoint.ShardStore, shard_id: int, measured: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            if change == "renamed":
                out.rename(aside)
            else:
                import shutil

                shutil.rmtree(out)
        add(self, shard_id, measured)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.ShardStore, "add", going)
        with pytest.raises(HeadscopeError, match="renamed or removed during the run: put it back"):
            run(tiny_bert, out)
    assert not out.exists()
    if change == "renamed":
        aside.rename(out)
    assert_same_bits(run(tiny_bert, out), analyze(tiny_bert, make_corpus(N_DOCUMENTS), METRICS))


def refusing(*args: object, **options: object) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_finished_run_opens_in_a_folder_that_cannot_be_written(
    small: None, tiny_bert: Model, tmp_path: Path
) -> None:
    expected = run(tiny_bert, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("filelock.FileLock.acquire", refusing)
        for name in ("unlink", "replace", "mkdir"):
            patch.setattr(os, name, refusing)
        patch.setattr(tempfile, "mkstemp", refusing)
        assert_same_bits(run(tiny_bert, tmp_path), expected)
        with pytest.raises(WriteError, match=r"Cannot write '.*': Read-only file system"):
            run(tiny_bert, tmp_path / "other")
        with pytest.raises(WriteError, match=r"Cannot write '.*a\.nc': Read-only file system"):
            expected.save(tmp_path / "a.nc")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    trace = hs.Trace.from_arrays([[[[1.0]]]], ["a"])
    with pytest.raises(WriteError, match=r"Cannot write '.*t\.nc': there is no folder '.*missing'"):
        trace.save(tmp_path / "missing" / "t.nc")
