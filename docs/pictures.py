"""Makes the pictures of README and docs from real pages: `python docs/pictures.py [NAME …]`.

Needs Chromium, the packaged models and, for the report, the folder of `make demo`. What stands
beside BertViz is made by hand: its page needs a network.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import io
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright

import headscope as hs
from headscope.app.lab.server import bind, make_server
from headscope.app.lab.service import LabService

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SIZE = (1440, 900)
MARY = "When Mary and John went to the store, John gave a drink to"
TYPED = "When Anna and Paul went to the park, Paul gave a ball to"
DOCTOR = "The doctor asked the nurse a question. {} said that it was urgent."
GIF = (1056, 660)


@contextmanager
def opened(browser: Browser, address: str, scheme: str = "light") -> Iterator[Page]:
    """A page that has painted."""
    size = {"width": SIZE[0], "height": SIZE[1]}
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(1500)
    yield page
    context.close()


def cat_page(folder: Path) -> str:
    """Two sentences in MiniLM, with effects."""
    model = hs.load("minilm")
    trace = model.trace("The cat sat on the mat.", "The cat lay on the rug.", effects=True)
    trace.save_page(folder / "cat.html")
    return (folder / "cat.html").as_uri()


def explorer_light(browser: Browser, folder: Path) -> None:
    """The page as it opens."""
    with opened(browser, cat_page(folder)) as page:
        page.screenshot(path=IMAGES / "explorer-light.png")


def explorer_dark(browser: Browser, folder: Path) -> None:
    """Its neurons."""
    with opened(browser, f"{cat_page(folder)}#tab=neurons", "dark") as page:
        page.screenshot(path=IMAGES / "explorer-dark.png")


def neurons(browser: Browser, folder: Path) -> None:
    """The neurons alone."""
    with opened(browser, f"{cat_page(folder)}#tab=neurons") as page:
        page.locator("section.head").screenshot(path=IMAGES / "neurons.png")


def compare(browser: Browser, folder: Path) -> None:
    """Vig's doctor and nurse."""
    model = hs.load("smollm2")
    she, he = (model.trace(DOCTOR.format(word)) for word in ("She", "He"))
    she.save_page(folder / "compare.html", he, layer=9, heads=3, queries=8)
    with opened(browser, (folder / "compare.html").as_uri()) as page:
        page.screenshot(path=IMAGES / "compare.png")


def exercise(browser: Browser, folder: Path) -> None:
    """A question of the page, before the first guess."""
    trace = hs.load("smollm2").trace(MARY, effects=True)
    asked = [("Which head decides for “Mary”?", {"word": 13, "against": "John"}, "effect")]
    trace.save_page(folder / "exercise.html", exercise=asked)
    with opened(browser, (folder / "exercise.html").as_uri() + "#ex=1") as page:
        page.screenshot(path=IMAGES / "exercise.png")


def report(browser: Browser, folder: Path) -> None:
    """The demo's report, and a card in it."""
    page_of_report = ROOT / "demo" / "report.html"
    if not page_of_report.is_file():
        raise SystemExit("demo/report.html is not there: run make demo first.")
    for name, fragment in (("report-light", ""), ("report-card", "#L2H9")):
        with opened(browser, page_of_report.as_uri() + fragment) as page:
            page.screenshot(path=IMAGES / f"{name}.png")


def lab(browser: Browser, folder: Path) -> None:
    """A word is pinned, all heads are ranked, one is switched off, the prediction changes."""
    desk = LabService({"smollm2": hs.load("smollm2")}, MARY)
    server, socket = make_server(desk, "127.0.0.1"), bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    frames: list[Image.Image] = []
    address = f"http://127.0.0.1:{socket.getsockname()[1]}/"
    with opened(browser, address) as page:
        page.wait_for_selector("html[data-ready=true]")

        def keep(fragment: str | None = None) -> None:
            if fragment is not None:
                page.evaluate("(hash) => { location.hash = hash; }", fragment)
            page.wait_for_timeout(1500)
            with Image.open(io.BytesIO(page.screenshot())) as image:
                frames.append(image.convert("RGB").resize(GIF, Image.Resampling.LANCZOS))

        base = page.evaluate("location.hash").lstrip("#")
        text = "&".join(p for p in base.split("&") if p.startswith(("text=", "model=")))
        keep(f"{text}&head=L24H4&word=13")
        page.get_by_role("button", name="Measure all heads").click()
        page.wait_for_selector(".rank", timeout=120_000)
        keep(f"{text}&head=L24H4&word=13&color=effect&against=John")
        keep(f"{text}&head=L23H3&word=13&color=effect&against=John")
        page.keyboard.press("o")
        page.locator(".ghost", has_text="→").wait_for(timeout=120_000)
        keep()
    server.should_exit = True
    thread.join()
    colors = [frame.quantize(128, dither=Image.Dither.NONE) for frame in frames]
    colors[0].save(
        IMAGES / "lab.gif", save_all=True, append_images=colors[1:], duration=2600, loop=0
    )


def live(browser: Browser, folder: Path) -> None:
    """The live page: a text is typed, a head is ablated, the prediction changes."""
    hs.save_live(hs.load("smollm2"), folder / "live", examples=[MARY])
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder / "live")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    frames: list[Image.Image] = []
    times: list[int] = []
    with opened(browser, f"http://127.0.0.1:{server.server_port}/index.html") as page:
        ready = page.locator(".live-badge.ready").first
        ready.wait_for(timeout=120_000)

        def keep(milliseconds: int) -> None:
            page.wait_for_timeout(400)
            with Image.open(io.BytesIO(page.screenshot())) as image:
                frames.append(image.convert("RGB").resize(GIF, Image.Resampling.LANCZOS))
            times.append(milliseconds)

        keep(2200)
        page.get_by_role("button", name="Type in the sentence").click()
        words = TYPED.split(" ")
        for n in range(4, len(words) + 1, 3):
            page.locator(".typed input").fill(" ".join(words[:n]))
            keep(350)
        page.locator(".typed input").fill(TYPED)
        page.keyboard.press("Enter")
        ready.wait_for(timeout=120_000)
        page.wait_for_timeout(2500)
        keep(2600)
        page.evaluate("location.hash = location.hash.replace(/head=[^&]*/, 'head=L23H3')")
        keep(2600)
        page.keyboard.press("o")
        page.locator(".ghost", has_text="→").wait_for(timeout=120_000)
        page.wait_for_timeout(1500)
        keep(3600)
    server.shutdown()
    colors = [frame.quantize(128, dither=Image.Dither.NONE) for frame in frames]
    colors[0].save(
        IMAGES / "live.gif", save_all=True, append_images=colors[1:], duration=times, loop=0
    )


PICTURES: dict[str, Callable[[Browser, Path], None]] = {
    "explorer-light": explorer_light,
    "explorer-dark": explorer_dark,
    "neurons": neurons,
    "compare": compare,
    "exercise": exercise,
    "report": report,
    "lab": lab,
    "live": live,
}


def main() -> None:
    """Make the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *PICTURES], help="by default all")
    chosen = parser.parse_args().name or list(PICTURES)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in chosen:
            print(name, flush=True)
            PICTURES[name](browser, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
