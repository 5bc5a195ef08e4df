"""Ctrl-C and SIGTERM: the exit code that shells expect, and one line that says how to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.long  # starting the command line and its workers takes a while

SENTENCES = "The cat sat on the mat.\n" * 2000
"""Too few characters for compiled loops, which take seconds to load."""


def start(folder: Path, workers: int, *options: str) -> subprocess.Popen[str]:
    """Start a run in the background, as a terminal would."""
    corpus = folder / "corpus.txt"
    corpus.write_text(SENTENCES, encoding="utf-8")
    command = [sys.executable, "-m", "headscope", "analyze", str(corpus), "-o", "run"]
    return subprocess.Popen(
        [*command, "--workers", str(workers), "--metrics", "distance", "--no-figures", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group
        # Shells start what runs in the background, such as these tests, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize(
    ("number", "code", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1)]
)
def test_a_stopped_run_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals, code: int, workers: int
) -> None:
    process = start(tmp_path, workers, "--quiet")
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("run/shards/*.npz")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no shard was written in two minutes"
        time.sleep(0.05)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("headscope: Stopped with ")
    assert "Run the same again to go on (out='run')." in line


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_pressed_twice(tmp_path: Path, pause: float) -> None:
    process = start(tmp_path, 2)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("run/shards/*.npz")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no shard was written in two minutes"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Run the same again to go on (out='run')." in err


def test_pressed_while_workers_start(tmp_path: Path) -> None:
    process = start(tmp_path, 2)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "shards").is_dir():  # made just before workers are started
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Run the same again to go on (out='run')." in err
