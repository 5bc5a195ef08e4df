"""Live pages in Chromium: the model runs in the page, from disk and from a static server."""

from __future__ import annotations

import csv
import functools
import gzip
import http.server
import io
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.live.__main__ import effects
from transformers import ViTConfig, ViTForImageClassification

import headscope as hs
from headscope.causal.trace_effects import with_effects
from headscope.model.model import Model
from headscope.results.trace import Trace
from tests.conftest import word_piece_tokenizer
from tests.families.shrink import seeded
from tests.families.zoo import ENCODER_DECODERS, build
from tests.model import media_zoo

TEXT = "the cat sat on the mat"
TYPED = "The dog, the cat and the 東京 🙂!"
READY = 60_000


@pytest.fixture(scope="module")
def folder(tiny_llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model as a folder."""
    path = tmp_path_factory.mktemp("live") / "site"
    hs.save_live(tiny_llama, path, examples=[TEXT], storage="float32", effects=True)
    return path


@pytest.fixture(scope="module")
def file(tiny_bert: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder as one file."""
    path = tmp_path_factory.mktemp("live") / "page.html"
    hs.save_live(tiny_bert, path, examples=["the cat sat on the [MASK]"], storage="float32")
    return path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object, **__: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a folder as any static host does, and returns its address."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(path: Path) -> str:
        handler = functools.partial(Quiet, directory=str(path))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/index.html"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address; afterwards no other host was asked, and nothing was complained of."""
    opened: list[tuple[Any, str, list[str], list[str]]] = []

    def open_one(url: str, *, script: str = "", wait: str = "ready", **options: Any) -> Any:
        viewport = options.pop("viewport", {"width": 1440, "height": 900})
        context = chromium.new_context(viewport=viewport, **options)
        page = context.new_page()
        requests: list[str] = []
        messages: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        if script:
            context.add_init_script(script)
        page.goto(url)
        page.locator("html[data-ready=true]").wait_for(timeout=READY)
        if wait:
            page.locator(f".live-badge.{wait}").wait_for(timeout=READY)
        opened.append((context, url.split("#")[0].rsplit("/", 1)[0], requests, messages))
        return page

    yield open_one
    for context, own, requests, messages in opened:
        assert [url for url in requests if not url.startswith((own, "blob:", "data:"))] == []
        # Chromium itself reports a missing file.
        assert [text for text in messages if "Failed to load resource" not in text] == []
        context.close()


def badge(page: Any) -> str:
    return str(page.locator(".live-badge").inner_text())


def type_in(page: Any, text: str) -> None:
    """Type a text where the sentence stands, and wait for its trace."""
    page.get_by_role("button", name="Type in the sentence").click()
    page.locator(".typed input").fill(text)
    page.keyboard.press("Enter")


def typed(page: Any, text: str) -> None:
    type_in(page, text)
    page.wait_for_function(
        "(text) => new URLSearchParams(location.hash.slice(1)).get('text') === text", arg=text
    )
    page.locator(".live-badge.ready").first.wait_for()


def table(page: Any, choice: str) -> list[dict[str, str]]:
    """Rows of a file that the export menu saves."""
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("menuitem", name=choice).click()
    return list(csv.DictReader(io.StringIO(waiting.value.path().read_text("utf-8-sig"))))


def weights(page: Any, n: int) -> np.ndarray:
    rows = table(page, "Weights of this head")
    return np.array([float(row["weight"]) for row in rows]).reshape(-1, n, n)


def agree(page: Any, trace: Trace, head: tuple[int, int]) -> None:
    """Compare what the page shows of a trace with what the tap reads."""
    n = len(trace.tokens)
    expected = trace.main.attention.sel(layer=head[0], head=head[1]).values
    np.testing.assert_allclose(weights(page, n)[0], expected, atol=1e-4)


def test_a_page_from_disk_types_and_ablates(
    visit: Callable[..., Any], file: Path, tiny_bert: Model
) -> None:
    page = visit(file.as_uri())
    assert re.fullmatch(r"runs in this page · checked \de−\d", badge(page).split("\n")[0])
    text = "the dog sat on the [MASK] , the cat !"
    typed(page, text)
    trace = tiny_bert.trace(text, effects=True)
    layer, head = (int(part) for part in re.findall(r"\d+", page.url.split("head=")[1])[:2])
    agree(page, trace, (layer, head))
    page.get_by_role("button", name="Measure all heads").click()
    page.locator(".ranking").first.wait_for()
    page.locator(".progress").wait_for(state="detached")
    rows = table(page, "All heads")
    roles = trace.roles()
    assert trace.effects is not None
    before = float(np.exp(trace.effects.data["before"][0]))
    for row in rows:
        place = {"layer": int(row["layer"]), "head": int(row["head"])}
        assert row["role"] == str(roles["role"].sel(place).item())
        after = float(np.exp(trace.effects.data["after"].sel(place)[0]))
        assert float(row["effect"]) == pytest.approx(after - before, abs=1e-4)
    page.keyboard.press("o")
    page.locator(".chip").first.wait_for()
    page.locator(".live-badge.ready").first.wait_for()


def answers(page: Any) -> dict[str, float]:
    """Predicted words and their probabilities, as the page lists them."""
    page.locator(".ghost").click()
    rows = page.locator(".answers .t").count()
    texts = [page.locator(".answers .t").nth(i).inner_text() for i in range(rows)]
    shown = [page.locator(".answers .v").nth(i).inner_text() for i in range(rows)]
    page.keyboard.press("Escape")
    return {
        text: float(re.findall(r"[\d.]+", value.split("→")[-1])[0]) / 100
        for text, value in zip(texts, shown, strict=True)
    }


def test_a_folder_over_http_agrees_with_the_tap(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, tiny_llama: Model
) -> None:
    page = visit(serve(folder))
    typed(page, TYPED)
    trace = tiny_llama.trace(TYPED)
    layer, head = (int(part) for part in re.findall(r"\d+", page.url.split("head=")[1])[:2])
    agree(page, trace, (layer, head))
    assert trace.predictions is not None
    for (_, expected), shown in zip(trace.predictions.top(), answers(page).values(), strict=False):
        assert shown == pytest.approx(expected, abs=1e-3)
    # Two heads off together, then one weight set: the model runs each time.
    off = [hs.ablate(0, 1), hs.ablate(1, 2)]
    page.evaluate(
        "location.hash = location.hash.replace(/head=.*/, "
        "'head=L1H0&word=5&off=L0H1,L1H2&cell=L1H0.5.2.0.75')"
    )
    page.locator(".chip").nth(2).wait_for()
    page.locator(".live-badge.ready").first.wait_for()
    page.locator(".status").wait_for(state="hidden")
    with tiny_llama.edit(*off, hs.set_attention(1, 0, query=5, key=2, weight=0.75)) as edited:
        agree(page, edited.trace(TYPED), (1, 0))


def test_state_is_in_the_address(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path
) -> None:
    address = serve(folder)
    page = visit(f"{address}#text=the%20cat%20sat&head=L1H1&off=L0H0")
    page.wait_for_function("() => location.hash.startsWith('#model=')")
    page.locator(".chip").first.wait_for()
    assert page.locator(".title").inner_text().count("L1 H1")
    assert "".join(page.locator(".stage .tok").all_inner_texts()).replace("␣", "") == "thecatsat"
    page.go_back()
    page.goto(f"{address}#example=0")
    page.wait_for_function("() => !location.hash.includes('text=')")


def test_two_texts_are_compared(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, tiny_llama: Model
) -> None:
    page = visit(serve(folder))
    texts = ["the cat sat", "the sat cat"]
    page.get_by_role("button", name="Compare two …").click()
    assert page.locator("textarea").count() == 2
    examples = page.locator(".dialog .examples")
    frame = page.locator(".dialog").bounding_box()
    assert examples.bounding_box()["width"] > 0.9 * frame["width"]
    for index, text in enumerate(texts):
        page.locator("textarea").nth(index).fill(text)
    page.get_by_role("button", name="Read it").click()
    page.wait_for_function("() => location.hash.includes('text2=')")
    page.locator(".live-badge.ready").first.wait_for()
    layer, head = (int(part) for part in re.findall(r"\d+", page.url.split("head=")[1])[:2])
    rows = table(page, "Weights of this head")
    for letter, text in zip("AB", texts, strict=True):
        own = [float(row["weight"]) for row in rows if row["input"] == letter]
        expected = tiny_llama.trace(text).main.attention.sel(layer=layer, head=head).values
        np.testing.assert_allclose(own, expected.ravel(), atol=1e-4)
    # The page opens on the head whose rows of the pinned word, the last one, differ most.
    a, b = (tiny_llama.trace(text).main.attention.values[:, :, -1] for text in texts)
    differences = abs(a - b).sum(-1)
    assert differences[layer, head] == pytest.approx(differences.max(), abs=1e-4)
    assert re.search(r"A: .+ → .+, B: .+ → ", page.locator(".title h2").inner_text())
    page.get_by_role("button", name="Back to one text").click()
    page.wait_for_function("() => !location.hash.includes('text2=')")
    assert page.url.count("text=the%20cat%20sat&") == 1


def test_a_link_names_the_head_of_a_comparison(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path
) -> None:
    for head in ("L0H0", "L0H1", "L1H0", "L1H1"):
        page = visit(f"{serve(folder)}#text=the%20cat&text2=the%20dog&head={head}")
        page.locator(".stage.two").wait_for()
        page.locator(".live-badge.ready").first.wait_for()
        assert f"head={head}" in page.url


def test_a_measurement_is_stopped_and_keeps_what_it_has(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path
) -> None:
    page = visit(serve(folder))
    typed(page, "the " * 40 + "cat")
    page.get_by_role("button", name="Measure all heads").click()
    page.locator(".ranking, .progress").first.wait_for()
    # In one step: a tiny model may be done at any time, and the button gone.
    page.evaluate("document.querySelectorAll('.progress button').forEach((b) => b.click())")
    page.locator(".progress").wait_for(state="detached")
    assert page.locator(".status.problem").is_hidden()
    typed(page, "the dog")


def test_the_benchmark_counts_heads_whether_all_are_done_or_not(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, tiny_llama: Model
) -> None:
    page = visit(serve(folder))
    typed(page, "the " * 40 + "cat")
    sizes = tiny_llama.trace(TEXT).main.attention.sizes
    n_heads = sizes["layer"] * sizes["head"]
    done, seconds = effects(page, 0)
    assert 0 < done <= n_heads
    assert seconds > 0
    # Faster than it is watched: its progress is gone before the end.
    typed(page, "the " * 30 + "cat")
    assert effects(page, 60)[0] == n_heads
    assert page.locator(".progress").count() == 0


def test_what_cannot_be_read_is_refused(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path
) -> None:
    page = visit(serve(folder))
    type_in(page, "the cat " * 60)
    alert = page.locator("[role=alert]")
    assert "tokens; the model in this page reads 64. Shorten it." in alert.inner_text()
    page.locator("textarea").fill("the cat")
    page.get_by_role("button", name="Read it").click()
    page.wait_for_function("() => location.hash.includes('text=the%20cat&')")


def test_a_model_is_downloaded_once(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(folder, copy)
    page = visit(serve(copy))
    for part in copy.glob("*.gz"):
        part.unlink()
    (copy / "live.js").unlink()
    page.reload()
    page.locator(".live-badge.ready").wait_for(timeout=READY)
    typed(page, "the cat")


@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_a_damaged_model_is_refused(
    visit: Callable[..., Any],
    serve: Callable[[Path], str],
    folder: Path,
    tmp_path: Path,
    damage: str,
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(folder, copy)
    part = copy / "model-0.bin.gz"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        part.unlink()
    else:
        part.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    page = visit(serve(copy), wait="refused")
    reason = "404" if damage == "missing" else "model-0.bin.gz is damaged"
    assert reason in badge(page)
    assert page.get_by_role("button", name="Type in the sentence").count() == 0
    assert page.locator(".stage .tok").count() == 14  # stored results stay


def change_proof(page: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header of a saved page."""
    html = page.read_text("utf-8")
    found = re.search(r'id="headscope-header">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    header = json.loads(found[1])
    change(header["live"])
    text = json.dumps(header).replace("<", "\\u003c")
    page.write_text(html.replace(found[1], text), "utf-8")


def test_a_model_that_differs_is_refused(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "site"
    shutil.copytree(folder, copy)

    def swap(live: dict[str, Any]) -> None:
        plain, without = (case["outputs"] for case in live["proof"]["cases"])
        plain["output"], without["output"] = without["output"], plain["output"]

    change_proof(copy / "index.html", swap)
    page = visit(serve(copy), wait="refused")
    assert re.search(r"not live: output differs by \de-\d", badge(page))


def test_a_tokenizer_that_differs_reads_no_typed_text(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, tmp_path: Path
) -> None:
    import hashlib

    copy = tmp_path / "site"
    shutil.copytree(folder, copy)
    packed = copy / "tokenizer.json.gz"
    tokenizer = json.loads(gzip.decompress(packed.read_bytes()))
    tokenizer["vectors"][3][1] = [0]
    content = gzip.compress(json.dumps(tokenizer).encode())
    packed.write_bytes(content)

    def change(live: dict[str, Any]) -> None:
        live["tokenizer"] |= {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }

    change_proof(copy / "index.html", change)
    page = visit(serve(copy))
    assert page.get_by_role("button", name="Type in the sentence").count() == 0
    title = page.locator(".live-badge").get_attribute("title")
    assert "the tokenizer differs on 1 of its test texts" in title
    page.keyboard.press("o")  # heads of stored texts can be switched off
    page.locator(".chip").first.wait_for()


def test_a_browser_without_simd_is_told(visit: Callable[..., Any], file: Path) -> None:
    page = visit(file.as_uri(), script="WebAssembly.validate = () => false", wait="refused")
    assert badge(page).startswith("not live: this browser lacks WebAssembly SIMD")
    assert page.locator(".stage .tok").count() > 0


def test_a_folder_on_disk_says_what_it_needs(visit: Callable[..., Any], folder: Path) -> None:
    page = visit((folder / "index.html").as_uri(), wait="refused")
    assert "open it over http" in badge(page)


def test_a_small_device_is_asked_first(visit: Callable[..., Any], file: Path) -> None:
    script = "Object.defineProperty(navigator, 'connection', { value: { saveData: true } })"
    page = visit(file.as_uri(), script=script, wait="waiting")
    assert "GB of memory" in badge(page)
    page.locator(".live-badge").get_by_role("button", name="load").click()
    page.locator(".live-badge.ready").wait_for(timeout=READY)


def test_a_phone_has_short_words(visit: Callable[..., Any], file: Path) -> None:
    page = visit(file.as_uri(), viewport={"width": 390, "height": 844})
    assert badge(page).strip() == "live"
    page.locator(".live-badge button").click()
    proof = page.get_by_role("dialog", name="The model in this page").inner_text()
    assert re.match(r"Checked \de−\d: attention and output", proof)
    page.keyboard.press("Escape")
    box = page.locator(".live-badge").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_tour_is_free_while_the_model_loads(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path
) -> None:
    script = "window.Worker = class { postMessage() {} terminate() {} }"  # never answers
    page = visit(f"{serve(folder)}#text=the%20cat", script=script, wait="loading")
    status = page.locator(".status")
    assert status.inner_text() == "The model is reading …"
    page.get_by_role("button", name="▸ Tour").click()
    status.wait_for(state="hidden")
    card = page.locator(".story.card")
    assert "The model is reading …" in card.inner_text()
    page.wait_for_timeout(800)  # the card is placed anew as panes are measured
    ring, beside = page.locator(".ring").bounding_box(), card.bounding_box()
    is_beside = (
        beside["x"] >= ring["x"] + ring["width"] or beside["x"] + beside["width"] <= ring["x"]
    )
    is_under = (
        beside["y"] >= ring["y"] + ring["height"] or beside["y"] + beside["height"] <= ring["y"]
    )
    assert is_beside or is_under
    card.get_by_role("button", name="Leave").click()
    assert status.is_visible()


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.long)])
def test_memory_does_not_grow_with_texts(
    visit: Callable[..., Any], serve: Callable[[Path], str], folder: Path, count: int
) -> None:
    page = visit(serve(folder))
    session = page.context.new_cdp_session(page)

    def used() -> int:
        session.send("HeapProfiler.collectGarbage")
        session.send("HeapProfiler.collectGarbage")
        return int(session.send("Runtime.getHeapUsage")["usedSize"])

    sizes = []
    for index in range(count):
        typed(page, f"the cat {index} and the dog sat on the mat , {index}")
        if index % 10 == 9:
            sizes.append(used())
    assert sizes[-1] < 1.1 * sizes[0] + 1_000_000, sizes


def edited(page: Any, model: Model, trace: Trace, fragment: str, *off: Any) -> Trace:
    """Switch heads off in the page; return the trace that the model gives without them."""
    page.evaluate("(fragment) => { location.hash = fragment }", fragment)
    page.locator(".chip").nth(len(off) - 1).wait_for()
    page.locator(".live-badge.ready").first.wait_for()
    page.locator(".status").wait_for(state="hidden")
    origin = trace.origin
    assert origin is not None
    return origin.again(trace, off)


def agree_everywhere(page: Any, trace: Trace, block: str, head: tuple[int, int]) -> None:
    """Compare a map of any block, and the answers, with those of the tap."""
    shown = [float(row["weight"]) for row in table(page, "Weights of this head")]
    expected = trace.blocks[block].attention.sel(layer=head[0], head=head[1]).values
    np.testing.assert_allclose(shown, expected.ravel(), atol=1e-4)
    if block == "encoder":  # answers stand beside the decoder's tokens
        return
    assert trace.predictions is not None
    last = trace.predictions.positions[-1]
    known, found = dict(trace.predictions.top(last)), answers(page)
    common = found.keys() & known.keys()
    assert len(common) > 1
    for text in common:
        assert found[text] == pytest.approx(known[text], abs=6e-3)  # the page shows two digits


def measured(page: Any, trace: Trace, block: Any) -> None:
    """Measure all heads of the block on screen, and compare with Python."""
    page.get_by_role("button", name="Measure all heads").click()
    page.locator(".ranking").first.wait_for()
    page.locator(".progress").wait_for(state="detached")
    effects = with_effects(trace, block=block).effects
    assert effects is not None
    before = float(np.exp(effects.data["before"][0]))
    rows = table(page, "All heads")
    assert len(rows) == effects.data.sizes["layer"] * effects.data.sizes["head"]
    for row in rows:
        place = {"layer": int(row["layer"]), "head": int(row["head"])}
        after = float(np.exp(effects.data["after"].sel(place)[0]))
        assert float(row["effect"]) == pytest.approx(after - before, abs=1e-4)
    assert max(abs(float(row["effect"])) for row in rows) > 1e-4


def test_every_block_of_an_encoder_decoder_runs(
    visit: Callable[..., Any], serve: Callable[[Path], str], tmp_path: Path
) -> None:
    bart = next(member for member in ENCODER_DECODERS if member.name == "bart")
    model = hs.load(build(bart), word_piece_tokenizer())
    trace = model.trace(TEXT, target="the dog sat")
    hs.save_live(model, tmp_path / "site", examples=[trace], storage="float32")
    page = visit(serve(tmp_path / "site"))
    assert page.get_by_role("button", name="Type in the sentence").count() == 0
    assert "several blocks (encoder, decoder, cross)" in page.locator(".live-badge").get_attribute(
        "title"
    )
    for block, head in (("encoder", (1, 0)), ("decoder", (0, 2)), ("cross", (1, 3))):
        fragment = f"block={block}&head=L{head[0]}H{head[1]}&off=L0H1,cross:L1H2"
        off = [hs.ablate(0, 1, block="encoder"), hs.ablate(1, 2, block="cross")]
        agree_everywhere(page, edited(page, model, trace, fragment, *off), block, head)
        page.evaluate("location.hash = location.hash.replace(/&off=[^&]*/, '&off=')")
        page.locator(".chip").first.wait_for(state="detached")
        measured(page, trace, block)
    page.keyboard.press("o")
    page.get_by_text("cross L1 H3 off").first.wait_for()


def test_an_image_is_read_again_without_heads(
    visit: Callable[..., Any], serve: Callable[[Path], str], tmp_path: Path
) -> None:
    config = ViTConfig(**media_zoo.VISION | {"num_labels": 3})
    module = seeded(ViTForImageClassification(config))
    model = hs.load(module, processor=media_zoo.vit_processor())
    trace = model.trace(image=media_zoo.picture())
    hs.save_live(model, tmp_path / "page.html", examples=[trace], storage="float32")
    page = visit((tmp_path / "page.html").as_uri())
    assert "reads images" in page.locator(".live-badge").get_attribute("title")
    off = [hs.ablate(0, 1), hs.ablate(1, 0)]
    without = edited(page, model, trace, "head=L1H1&off=L0H1,L1H0", *off)
    agree_everywhere(page, without, "self", (1, 1))
    assert page.locator(".media canvas, .media img").count() > 0
    page.evaluate("location.hash = 'head=L1H1&off='")
    page.locator(".chip").first.wait_for(state="detached")
    measured(page, trace, "self")
