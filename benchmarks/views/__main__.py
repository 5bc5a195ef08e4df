"""headscope's explorer and BertViz 1.4.1 on the same attention, in the same Chromium.

    python -m benchmarks.views [--no-bertviz]

The same attention for both (12 × 12 heads, a softmax of noise and distance, seeded); both
pages are written and opened in the same headless Chromium without a GPU: size of the page,
CPU time of the main thread until the model view is complete (`Performance.getMetrics`,
thread ticks), and of a layer change and a hover in the head view. BertViz and its
libraries come from `.peers` (`make peers`); it asks a CDN for them, and gets these.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headscope as hs
from benchmarks.rows import record
from headscope.page.save_page import save_page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
N_MOVES = 20
LONG = {"hover": (1_000, 8.0), "scroll": (4_000, 1000 / 60)}
"""Tokens, and milliseconds of the main thread that a hover or a frame of scrolling may take."""
LIBRARIES = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}


def attention(n: int, layers: int = 12, heads: int = 12) -> np.ndarray:
    """`layer head query key`: a softmax of noise, distance and a first token that attracts."""
    rng = np.random.default_rng(0)
    positions = np.arange(n)
    weights = np.empty((layers, heads, n, n), dtype=np.float32)
    for layer in range(layers):
        for head in range(heads):
            offset = np.abs(positions[:, None] - positions + (-1, 0, 1, 3)[head % 4])
            scores = rng.normal(size=(n, n)) * 1.5 - offset * (0.5, 0.1, 0.02, 0.3)[layer % 4]
            scores[:, 0] += 3 * (head % 3)
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights[layer, head] = powers / powers.sum(axis=-1, keepdims=True)
    return weights


class Measured:
    """One page in a browser of its own."""

    def __init__(self, playwright: Any, peers: Path | None) -> None:
        executable = os.environ.get("HEADSCOPE_CHROMIUM") or shutil.which("chromium")
        self.browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        self.page = self.browser.new_page(viewport={"width": 1440, "height": 900})
        self.page.set_default_timeout(180_000)
        if peers is not None:
            self.page.route(re.compile("^https?://"), lambda route: self.serve(route, peers))
        self.session = self.page.context.new_cdp_session(self.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    @staticmethod
    def serve(route: Any, peers: Path) -> None:
        """A library from npm in place of the CDN's."""
        name = route.request.url.rsplit("/", 1)[-1]
        route.fulfill(path=str(peers / "node_modules" / LIBRARIES[name]))

    def cpu(self) -> float:
        """Seconds the main thread has worked since the page began."""
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return float({one["name"]: one["value"] for one in metrics}["TaskDuration"])

    def spent(self, action: Callable[[], object]) -> float:
        """CPU seconds of an action, until it is drawn."""
        before = self.cpu()
        action()
        self.page.evaluate(FRAME)
        return self.cpu() - before


def headscope_row(playwright: Any, folder: Path, weights: np.ndarray) -> dict[str, float]:
    n = weights.shape[-1]
    file = folder / f"headscope-{n}.html"
    started = time.perf_counter()
    save_page(hs.Trace.from_arrays(weights, [f"tok{i}" for i in range(n)]), file)
    row = {"write": time.perf_counter() - started, "size": file.stat().st_size / 1e6}
    one = Measured(playwright, None)
    page = one.page
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    page.evaluate(FRAME)
    row["open"] = one.cpu()
    page.keyboard.press("1")
    page.evaluate(FRAME)
    row["layer"] = one.spent(lambda: page.keyboard.press("ArrowDown"))
    box = page.locator(".words.query .word").nth(3).bounding_box()
    moves = [
        one.spent(lambda i=i: page.mouse.move(box["x"] + 5, box["y"] + 5 + box["height"] * i))
        for i in range(8)
    ]
    row["hover"] = float(np.median(moves))
    one.browser.close()
    return row


def measure_long(playwright: Any, folder: Path, n: int) -> dict[str, float]:
    """Main-thread seconds of a hover, and of a turn of the wheel, in the lines of a long text."""
    file = folder / f"long-{n}.html"
    save_page(hs.Trace.from_arrays(attention(n, 1, 2), [f"tok{i}" for i in range(n)]), file)
    one = Measured(playwright, None)
    page = one.page
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    page.get_by_role("tab", name="Lines").click()
    page.evaluate(FRAME)
    word = page.locator(".words.query .word").first  # of those that are drawn
    box, first = word.bounding_box(), word.inner_text()
    x, step = box["x"] + 5, box["height"]
    moves = range(N_MOVES)
    hovers = [one.spent(lambda i=i: page.mouse.move(x, 450 + step * i)) for i in moves]
    turns = [one.spent(lambda: page.mouse.wheel(0, 120)) for _ in moves]
    assert word.inner_text() != first, "the wheel did not scroll"
    one.browser.close()
    return {"hover": float(np.median(hovers)), "scroll": float(np.median(turns))}


def bertviz_row(
    playwright: Any, folder: Path, weights: np.ndarray, peers: Path, limit: float
) -> dict[str, float]:
    import torch

    bertviz = importlib.import_module("bertviz")
    n = weights.shape[-1]
    tensors = [torch.from_numpy(layer)[None] for layer in weights]
    tokens = [f"tok{i}" for i in range(n)]
    started = time.perf_counter()
    data = bertviz.model_view(tensors, tokens, html_action="return").data
    row = {"write": time.perf_counter() - started, "size": len(data.encode()) / 1e6}
    file = folder / f"bertviz-model-{n}.html"
    file.write_text(f"<html><body>{data}</body></html>", "utf-8")
    del data
    row["open"] = bertviz_open(playwright, file, peers, limit)
    file.unlink()
    data = bertviz.head_view(tensors, tokens, html_action="return").data
    file = folder / f"bertviz-head-{n}.html"
    file.write_text(f"<html><body>{data}</body></html>", "utf-8")
    del data
    row |= bertviz_head(playwright, file, peers)
    file.unlink()
    return row


def bertviz_open(playwright: Any, file: Path, peers: Path, limit: float) -> float:
    """CPU seconds until all 144 thumbnails are there; infinity past the limit."""
    one = Measured(playwright, peers)
    try:
        one.page.goto(file.as_uri(), wait_until="commit")
        one.page.wait_for_function(
            "document.querySelectorAll('g.attention').length >= 144 "
            "|| document.querySelectorAll('svg g').length >= 144",
            timeout=limit * 1000,
        )
        one.page.evaluate(FRAME)
        return one.cpu()
    except Exception as error:
        if "Timeout" not in type(error).__name__:
            raise
        return float("inf")
    finally:
        one.browser.close()


def bertviz_head(playwright: Any, file: Path, peers: Path) -> dict[str, float]:
    """CPU seconds of a layer change and of a hover in its head view."""
    one = Measured(playwright, peers)
    page = one.page
    page.goto(file.as_uri())
    page.wait_for_selector("svg line", state="attached")
    page.evaluate(FRAME)
    layer = one.spent(lambda: page.locator("select#layer").select_option("1"))
    box = page.locator("svg text").nth(3).bounding_box()
    moves = [
        one.spent(lambda i=i: page.mouse.move(box["x"] + 5, box["y"] + 8 + 15 * i))
        for i in range(4)
    ]
    one.browser.close()
    return {"layer": layer, "hover": float(np.median(moves))}


def shown(row: dict[str, float] | None, name: str) -> str:
    if row is None or name not in row:
        return "–"
    value = row[name]
    if value == float("inf"):
        return "over the limit"
    return (
        f"{value:.1f} MB" if name == "size" else f"{value:.3f} s" if value < 1 else f"{value:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--bertviz-tokens", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--no-bertviz", action="store_true")
    parser.add_argument("--limit", type=float, default=90, help="seconds to wait for BertViz")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    options = parser.parse_args()
    sys.path.append(str(options.peers))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        for name, (n, limit) in LONG.items():
            took = 1000 * measure_long(playwright, Path(folder), n)[name]
            what = f"{name} in the lines of one head, CPU, {n:,} tokens"
            print(f"{what}: {took:.1f} ms, at most {limit:.1f} ms", flush=True)
            shown_limit = f"the limit, {limit:.1f} ms"
            cost = took / limit
            record("views", what, f"{took:.1f} ms", shown_limit, cost, is_cost=True, bound=1.0)
        print("| tokens | what | headscope | BertViz 1.4.1 | ratio |\n|---|---|---|---|---|")
        for n in options.tokens:
            weights = attention(n, options.layers, options.heads)
            ours = headscope_row(playwright, Path(folder), weights)
            theirs = None
            if not options.no_bertviz and n in options.bertviz_tokens:
                theirs = bertviz_row(
                    playwright, Path(folder), weights, options.peers.resolve(), options.limit
                )
            for name, label in (
                ("size", "page"),
                ("write", "writing it"),
                ("open", "model view, CPU"),
                ("layer", "layer change, all heads, CPU"),
                ("hover", "hover, all heads, CPU"),
            ):
                ratio = "–"
                if theirs and np.isfinite(theirs.get(name, np.inf)):
                    ratio = f"{theirs[name] / ours[name]:.0f}×"
                print(f"| {n} | {label} | {shown(ours, name)} | {shown(theirs, name)} | {ratio} |")
                if theirs and name in theirs:
                    is_finite = bool(np.isfinite(theirs[name]))
                    record(
                        "views",
                        f"{label}, {n} tokens",
                        shown(ours, name),
                        f"BertViz 1.4.1: {shown(theirs, name)}",
                        theirs[name] / ours[name] if is_finite else None,
                    )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
