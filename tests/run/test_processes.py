"""How many workers a run gets, and how they start."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from torch import nn

from headscope.run import analyze as runs
from headscope.run.engines import processes
from headscope.run.options import Settings
from headscope.run.plan import Survey, survey
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    starts: list[int] = []
    monkeypatch.setattr(processes, "_start_server", lambda: starts.append(1))
    monkeypatch.setattr(processes, "n_cores", lambda: 4)
    return starts


def test_a_server_is_started_for_what_may_be_worth_it(tmp_path: Path, started: list[int]) -> None:
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("A sentence.")
    large.write_text("A sentence. " * 10_000)
    for source in (small, "demo", ["a text"], None, tmp_path, "x" * 9999):
        processes.warm_up(source, None)
    processes.warm_up(large, 1)
    assert not started
    processes.warm_up(str(large), None)
    processes.warm_up(make_corpus(3), 2)
    assert len(started) == 2


def test_one_core_needs_no_server(started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "n_cores", lambda: 1)
    processes.warm_up("anything", 2)
    assert not started


def test_the_size_of_the_job_decides(tiny_bert: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "n_cores", lambda: 4)
    surveyed: Survey = survey(make_corpus(5), Settings())
    assert runs.worthwhile_workers(tiny_bert, surveyed) == 1
    tables = {id(m.weight) for m in tiny_bert.module.modules() if isinstance(m, nn.Embedding)}
    n = sum(p.numel() for p in tiny_bert.module.parameters() if id(p) not in tables)
    seconds = 2 * n * sum(surveyed.lengths) / 4 / runs.OPERATIONS_PER_SECOND
    for times, expected in ((0.9, 1), (2.2, 2), (3.1, 3), (100, 4)):
        monkeypatch.setattr(runs, "SECONDS_PER_WORKER", seconds / times)
        assert runs.worthwhile_workers(tiny_bert, surveyed) == expected


@pytest.mark.long
@pytest.mark.parametrize("has_server", [True, False])
def test_a_plain_script_may_use_workers(tmp_path: Path, has_server: bool) -> None:
    """Without `if __name__ == "__main__"` where workers are forked; nothing is left running."""
    script = tmp_path / "script.py"
    body = [
        "import headscope as hs",
        "from headscope.run.engines import processes",
        "hs.analyze('minilm', ['The cat sat on the mat.'] * 600, ['distance'], workers=2)",
        "assert processes._server is None",
        "print('done')",
    ]
    if not has_server:
        body.insert(2, "processes._start_server = lambda: None")
        body[3:] = [f"    {line}" for line in body[3:]]
        body.insert(3, "if __name__ == '__main__':")
    script.write_text("\n".join(body))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["done"], done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the server exists on Linux only")
def test_the_server_starts_with_ctrl_c_blocked() -> None:
    script = (
        "from headscope.run.engines import processes\n"
        "server = processes._start_server()\n"
        "print(open(f'/proc/{server._forkserver_pid}/status').read())\n"
        "processes.stop_server()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    (blocked,) = [line for line in done.stdout.splitlines() if line.startswith("SigBlk:")]
    assert int(blocked.split()[1], 16) & 1 << signal.SIGINT - 1
