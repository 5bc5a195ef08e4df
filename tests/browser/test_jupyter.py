"""The widget in JupyterLab: live, twice in one notebook, and after the kernel is gone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TOKEN = "headscope-test"
CODE = """
import numpy as np
from headscope.results.trace import Trace

rng = np.random.default_rng(0)
weights = rng.dirichlet(np.ones(6), size=(2, 3, 6)).astype("float32")
trace = Trace.from_arrays(weights, ["a", "b", "c", "d", "e", "f"])
explorer = trace.explore(layer=1, heads=0, height=520)
explorer
"""


def cell(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": f"cell-{abs(hash(source)) % 10**8}",
        "metadata": {},
        "outputs": [],
        "source": source.strip(),
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A JupyterLab server on this machine with one notebook."""
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    folder = tmp_path_factory.mktemp("lab")
    notebook = {
        "cells": [cell(CODE), cell("trace.explore(view='head', layer=0, heads=[2], height=400)")],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (folder / "explorer.ipynb").write_text(json.dumps(notebook))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    source = str(Path(__file__).parents[2] / "src")
    environment = {
        **os.environ,
        "PYTHONPATH": source,
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
        "IPYTHONDIR": str(folder / ".ipython"),
    }
    arguments = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *(f"--port={port}", "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={TOKEN}"),
        *(f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None"),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    server = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError):
                if server.poll() is not None:
                    pytest.fail("JupyterLab did not start")
                time.sleep(0.5)
        yield address, folder / "explorer.ipynb"
    finally:
        server.terminate()
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def test_lab(chromium: Any, lab: tuple[str, Path]) -> None:
    import playwright.sync_api as playwright

    address, notebook = lab
    page = chromium.new_page(viewport={"width": 1400, "height": 1300})
    link = f"{address}/lab/tree/explorer.ipynb?token={TOKEN}&reset"
    page.goto(link)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=60_000)
    explorers = page.locator(".page")
    for _ in range(8):  # Lab drops what is run before its kernel is connected
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Shift+Enter")
        page.keyboard.press("Shift+Enter")
        try:
            explorers.nth(1).wait_for(timeout=8_000)
            break
        except playwright.TimeoutError:
            continue
    assert explorers.count() == 2
    first, second = explorers.nth(0), explorers.nth(1)
    assert "L1 H0" in first.locator(".badge").inner_text()
    assert "L0 H2" in second.locator(".badge").inner_text()

    pinned = ".words.query .word[aria-selected=true]"
    before = second.locator(pinned).all_inner_texts()
    first.locator(".stage .tok").nth(2).click()
    assert first.locator(pinned).inner_text() == "c"
    assert second.locator(pinned).all_inner_texts() == before

    cells = page.locator(".jp-Notebook .jp-CodeCell").count()
    page.keyboard.press("c")  # Lab's own "c" would copy a cell
    assert first.get_by_label("Color heads by").input_value() == "effect"
    page.keyboard.press("d")
    page.keyboard.press("d")  # Lab's own would delete it
    assert page.locator(".jp-Notebook .jp-CodeCell").count() == cells

    first.get_by_role("tab", name="Lines").click()
    page.mouse.move(5, 5)
    first.locator(".words.query .word").nth(3).hover()
    page.wait_for_timeout(500)
    page.mouse.move(5, 5)
    first.locator(".words.query .word").nth(3).hover()
    tooltip = first.locator(".tip").inner_text()
    assert any(len(part.split(".")[-1]) == 4 for part in tooltip.split() if part[:2] == "0.")
    still = page.locator("div[class^=headscope-still]")
    assert still.count() == 2
    assert not still.first.is_visible()

    page.keyboard.press("Control+s")
    page.wait_for_timeout(1500)
    saved = json.loads(notebook.read_text())
    assert sum("headscope-still" in str(c["outputs"]) for c in saved["cells"]) == 2

    page.goto("about:blank")
    for session in json.loads(read(f"{address}/api/sessions?token={TOKEN}")):
        request = urllib.request.Request(
            f"{address}/api/sessions/{session['id']}?token={TOKEN}", method="DELETE"
        )
        urllib.request.urlopen(request, timeout=10).close()
    page.goto(link)
    page.wait_for_selector("div[class^=headscope-still] iframe", timeout=60_000)
    frame = page.frame_locator("div[class^=headscope-still] iframe").first
    assert "L1 H0" in frame.locator(".badge").inner_text(timeout=30_000)  # a working page
    frame.get_by_role("gridcell", name="L0 H1").click()
    assert "L0 H1" in frame.locator(".badge").inner_text()
    page.close()


def read(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return bytes(answer.read())
