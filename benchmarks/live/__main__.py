"""Live pages in Chromium: size, opening, answers to typed texts, effects, memory of the tab.

    python -m benchmarks.live [--models minilm smollm2] [--texts 200]

MiniLM is one file opened from disk, SmolLM2 a folder over http. Times are seconds on the wall, as
readers wait; memory is that of the largest process of the browser that draws a page.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import headscope as hs
from benchmarks.rows import record

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
TEXT = "When Mary and John went to the store, John gave a drink to"
WORDS = "the cat sat on a mat while she said that the old car ran under trees".split()  # noqa: SIM905
LIMITS = {
    "minilm": {"page": 62.0, "opening": 6.0, "answer": 0.2, "effects": 4.0},
    "smollm2": {"page": 98.0, "opening": 15.0, "answer": 1.5, "effects": 4.0},
}
"""Megabytes of the page; seconds until it is checked, of an answer to 15 tokens, of the effects of
all heads (SmolLM2: of a layer)."""
READY = 120_000
WATCHED = 30.0
"""Seconds for which effects of SmolLM2's 270 heads are counted; a fast machine needs less."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A static server that logs nothing."""

    def log_message(self, *_: object, **__: object) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder on a static server."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    server.server_close()


def memory() -> float:
    """Megabytes of the largest renderer among the processes that this one started."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        try:
            number = int(folder.name)
            stat = (folder / "stat").read_text()
            parents[number] = int(stat.rpartition(")")[2].split()[1])
            names[number] = (folder / "cmdline").read_text()
        except (ValueError, OSError):
            continue
    own = {os.getpid()}
    while more := {p for p, parent in parents.items() if parent in own} - own:
        own |= more
    sizes = [0.0]
    for number in own:
        if "type=renderer" in names.get(number, ""):
            lines = Path(f"/proc/{number}/status").read_text().splitlines()
            sizes += [int(li.split()[1]) / 1024 for li in lines if li.startswith("VmRSS")]
    return max(sizes)


def answer(page: Page, text: str) -> float:
    """Type a text; return the seconds until the page shows its trace."""
    page.get_by_role("button", name="Type in the sentence").click()
    page.locator(".typed input").fill(text)
    started = time.perf_counter()
    page.keyboard.press("Enter")
    page.wait_for_function(
        "(text) => new URLSearchParams(location.hash.slice(1)).get('text') === text", arg=text
    )
    page.locator(".live-badge.ready").first.wait_for()
    return time.perf_counter() - started


def effects(page: Page, watched: float) -> tuple[int, float]:
    """Measure heads until all are done, or for `watched` seconds; return their number, seconds."""
    n_heads = int(page.locator(".effect .note").inner_text().split("each of its ")[1].split()[0])
    progress = page.locator(".progress .num")
    page.get_by_role("button", name="Measure all heads").click()
    started = time.perf_counter()
    page.locator(".ranking, .progress").first.wait_for(timeout=READY)
    while shown := progress.all_inner_texts():
        seconds = time.perf_counter() - started
        done = int(shown[0].split("/")[0])
        if seconds >= watched and done > 0:
            # In one step: the last head may be done at any time, and the button gone.
            page.evaluate("document.querySelectorAll('.progress button').forEach((b) => b.click())")
            return done, seconds
        page.wait_for_timeout(50)
    return n_heads, time.perf_counter() - started


def measure(name: str, address: str, size: float, n_texts: int) -> None:
    """Open a page and use it; add its rows."""
    from playwright.sync_api import sync_playwright

    limits = LIMITS[name]

    def add(what: str, value: float, limit: float, unit: str) -> None:
        shown = f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}"
        print(f"{name}: {what}: {shown} (at most {limit:g} {unit})", flush=True)
        beside = f"the limit, {limit:g} {unit}"
        record("live", f"{what}, {name}", shown, beside, value / limit, is_cost=True, bound=1.0)

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        started = time.perf_counter()
        page.goto(address)
        page.locator(".live-badge.ready").first.wait_for(timeout=READY)
        add("a live page", size, limits["page"], "MB")
        add("opening it, until checked", time.perf_counter() - started, limits["opening"], "s")
        times = [answer(page, f"{TEXT.replace('Mary', w)}") for w in ("Anna", "Susan", "Emma")]
        add("the answer to a typed text", statistics.median(times), limits["answer"], "s")
        done, seconds = effects(page, READY / 1000 if name == "minilm" else WATCHED)
        if name == "minilm":
            add(f"effects of all {done} heads", seconds, limits["effects"], "s")
        else:
            add("effects of a layer's nine heads", seconds * 9 / done, limits["effects"], "s")
        if n_texts:
            before = memory()
            for i in range(n_texts):
                answer(
                    page, " ".join(WORDS[(i * 7 + j * 5) % len(WORDS)] for j in range(12)) + f" {i}"
                )
            what = f"memory of the tab after {n_texts} texts"
            after = memory()
            print(f"{name}: {what}: {after:.0f} MB, before {before:.0f} MB", flush=True)
            record(
                "live", f"{what}, {name}", f"{after:.0f} MB", f"before, {before:.0f} MB",
                after / before, is_cost=True, bound=1.25,
            )  # fmt: skip
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(LIMITS), default=list(LIMITS))
    parser.add_argument("--texts", type=int, default=200, help="typed into MiniLM's page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            target = Path(folder) / ("live.html" if name == "minilm" else name)
            live = hs.save_live(hs.load(name), target, examples=[TEXT])
            if target.is_file():
                measure(name, target.as_uri(), live.bytes / 1e6, options.texts)
            else:
                with served(target) as address:
                    measure(name, address, live.bytes / 1e6, 0)


if __name__ == "__main__":
    main()
