"""Effects in the report: on the map of heads, and in the section "Does it matter?"."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from tests.conftest import MAP_METRICS
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model
    from tests.browser.conftest import Opened

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture(scope="module")
def effect(tiny_llama: Model) -> xr.DataArray:
    return hs.effects(tiny_llama, make_corpus(12))


@pytest.fixture
def opened(
    open_page: Callable[..., Opened], effect: xr.DataArray, tiny_llama: Model, tmp_path: Path
) -> Opened:
    run = hs.analyze(tiny_llama, make_corpus(12), MAP_METRICS)
    return open_page(file=hs.report([run, effect], tmp_path / "report.html"))


def test_heads_that_matter_are_larger_on_the_map(opened: Opened, effect: xr.DataArray) -> None:
    figure = opened.page.locator("#figure-map")
    legend = figure.get_by_text("size: by how much the loss changes without the head, up to")
    assert legend.is_visible()
    sizes = effect.stack(at=("layer", "head")).to_series().abs()
    radii = {
        (layer, head): float(
            figure.locator(f"[data-head='0.{layer}.{head}']").get_attribute("r") or 0
        )
        for layer, head in sizes.index
    }
    drawn = [radii[at] for at in sizes.sort_values().index]
    assert drawn == sorted(drawn)
    assert drawn[-1] > 1.5 * drawn[0]
    layer, head = sizes.idxmax()
    figure.locator(f"[data-head='0.{layer}.{head}']").hover()
    assert f"L{layer} H{head}" in opened.tooltip
    assert "effect on the loss" in opened.tooltip
    value = float(effect.sel(layer=layer, head=head))
    assert f"{value:.2f} nats per token".replace("-", "−") in opened.tooltip


def test_effects_are_saved_with_the_map(opened: Opened, effect: xr.DataArray) -> None:
    with opened.page.expect_download() as waiting:
        opened.page.locator("#figure-map .downloads button", has_text="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text("utf-8"))))
    saved = [float(row["effect"]) for row in rows]
    known = [float(effect.sel(layer=int(r["layer"]), head=int(r["head"]))) for r in rows]
    assert len(rows) == effect.size
    np.testing.assert_allclose(saved, known, rtol=1e-5)


def test_the_section_on_what_matters(opened: Opened) -> None:
    section = opened.page.locator("#effects-section")
    assert section.locator("h2").inner_text() == "Does it matter?"
    assert section.locator("tbody tr").count() >= 1
    assert "decide" not in section.inner_text()
