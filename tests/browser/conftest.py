"""The real bundle in Chromium, with the network blocked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from headscope.page.save_page import save_page
from headscope.results.trace import Block, Trace
from headscope.text.tokens import Tokens

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser, or a skip that says why there is none."""
    executable = os.environ.get("HEADSCOPE_CHROMIUM") or shutil.which("chromium")
    required = os.environ.get("HEADSCOPE_REQUIRE_BROWSER") == "1"
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        if required:
            raise
        pytest.skip("playwright is not installed")
    if executable is None:
        if required:
            pytest.fail("HEADSCOPE_REQUIRE_BROWSER=1, but there is no chromium")
        pytest.skip("no chromium on the path (set HEADSCOPE_CHROMIUM)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and what it asked of the network or said on the console."""

    page: Any
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def fragment(self) -> dict[str, str]:
        text = self.page.evaluate("location.hash.slice(1)")
        return dict(part.split("=", 1) for part in text.split("&") if part)

    def token(self, side: str, position: int) -> Any:
        return self.page.locator(f".words.{side} [data-position='{position}']").first

    @property
    def title(self) -> str:
        """What the page says of the chosen head."""
        return str(self.page.locator(".title").inner_text())

    @property
    def caption(self) -> str:
        """What the page says of the word that is looked at."""
        return str(self.page.locator(".cap .say").inner_text())

    @property
    def tooltip(self) -> str:
        return str(self.page.locator(".tip, .tooltip").inner_text())

    def download(self, choice: str) -> bytes:
        """The file that a choice of the export menu saves."""
        self.page.get_by_role("button", name="Export").click()
        with self.page.expect_download() as waiting:
            self.page.get_by_role("menuitem", name=choice).click()
        return bytes(waiting.value.path().read_bytes())


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens traces (or a file) from `file://`; afterwards nothing was asked or complained of."""
    opened: list[Opened] = []
    contexts = []

    def open_one(
        *traces: Trace, fragment: str = "", file: Path | None = None, **options: Any
    ) -> Opened:
        size = options.pop("size", (1440, 900))
        scheme = options.pop("scheme", "light")
        if file is None:
            file = tmp_path / f"page{len(opened)}.html"
            html = options.pop("html", None)
            if html is None:
                save_page(list(traces), file, **options)
            else:
                file.write_text(html, "utf-8")
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        one = Opened(context.new_page())
        own = file.as_uri()
        one.page.on(
            "request",
            lambda request: (
                request.url.split("#")[0] == own
                or request.url.startswith(("data:", "blob:"))
                or one.requests.append(request.url)
            ),
        )
        one.page.on("console", lambda message: one.messages.append(message.text))
        one.page.on("pageerror", lambda error: one.messages.append(str(error)))
        one.page.goto(f"{own}#{fragment}" if fragment else own)
        one.page.wait_for_selector("html[data-ready]", timeout=30_000)
        opened.append(one)
        return one

    yield open_one
    for one in opened:
        assert one.requests == []
        assert one.messages == []
    for context in contexts:
        context.close()


def collect_garbage(page: Any) -> None:
    """Free what nothing in the page holds any more; a `WeakRef` to it is then empty."""
    page.wait_for_timeout(50)
    session = page.context.new_cdp_session(page)
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    session.detach()


WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "and",
    "then",
    "it",
    "sleeps",
]


def synthetic(
    n: int = 12,
    *,
    layers: int = 4,
    heads: int = 4,
    groups: int | None = None,
    neurons: int = 8,
    causal: bool = False,
    pair: bool = True,
    seed: int = 0,
    generated: int = 0,
) -> Trace:
    """A trace whose attention really is the softmax of its queries and keys."""
    rng = np.random.default_rng(seed)
    groups = groups or heads
    half = n // 2
    texts = [WORDS[i % len(WORDS)] for i in range(n)]
    special = [False] * n
    if not causal:
        texts[0], texts[half - 1], texts[-1] = "[CLS]", "[SEP]", "[SEP]"
        special[0] = special[half - 1] = special[-1] = True
    segments = [int(pair and not causal and i >= half) for i in range(n)]
    words = [-1 if flag else i // 2 for i, flag in enumerate(special)]
    order = {word: k for k, word in enumerate(sorted({w for w in words if w >= 0}))}
    made = Tokens.of(
        texts, special=special, segments=segments, words=[order.get(w, -1) for w in words]
    )
    fields = {name: getattr(made, name) for name in Tokens.__dataclass_fields__}
    fields["generated"] = tuple(i >= n - generated for i in range(n))
    tokens = Tokens(**fields)
    queries = rng.normal(size=(layers, heads, n, neurons)).astype(np.float32) * 2
    keys = rng.normal(size=(layers, groups, n, neurons)).astype(np.float32)
    values = rng.normal(size=(layers, groups, n, neurons)).astype(np.float32)
    group_of_head = np.arange(heads) * groups // heads
    scale = 1 / np.sqrt(neurons)
    scores = np.einsum("lhqd,lhkd->lhqk", queries, keys[:, group_of_head]) * scale
    if causal:
        scores = np.where(np.tril(np.ones((n, n), dtype=bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
    outputs = np.einsum("lhqk,lhkd->lhqd", weights, values[:, group_of_head])
    data = xr.Dataset(
        {
            "attention": (("layer", "head", "query", "key"), weights),
            "queries": (("layer", "head", "query", "neuron"), queries),
            "keys": (("layer", "group", "key", "neuron"), keys),
            "values": (("layer", "group", "key", "value_neuron"), values),
            "outputs": (("layer", "head", "query", "value_neuron"), outputs),
            "scale": (("layer",), np.full(layers, scale)),
        },
        coords={
            "layer": np.arange(layers),
            "head": np.arange(heads),
            "group_of_head": ("head", group_of_head),
        },
    )
    hidden = rng.normal(size=(layers + 1, n, 24)).astype(np.float32)
    return Trace(
        {"self": Block("self", data, tokens, tokens, causal)},
        {"self": tokens},
        {"self": xr.DataArray(hidden, dims=("state", "query", "unit"))},
        {"model": "synthetic"},
    )


@pytest.fixture(scope="session")
def trace() -> Trace:
    return synthetic()


@pytest.fixture(scope="session")
def make_trace() -> Callable[..., Trace]:
    return synthetic
