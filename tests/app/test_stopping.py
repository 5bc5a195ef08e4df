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


@pytest.mark.parametrize(
    ("number", "code", "workers"), [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1)]
)
def test_a_stopped_run_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals, code: int, workers: int
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(SENTENCES, encoding="utf-8")
    command = [sys.executable, "-m", "headscope", "analyze", str(corpus), "-o", "run"]
    process = subprocess.Popen(
        [*command, "--workers", str(workers), "--metrics", "distance", "--no-figures", "--quiet"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group
        # Shells start what runs in the background, such as these tests, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
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
