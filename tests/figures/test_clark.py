"""Clark et al.'s figures are drawn, hold the right numbers, and the page is safe."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import headscope as hs
from headscope.causal.importance import check_importance, importance
from headscope.errors import InputError, UnknownName
from headscope.figures.table_charts import removal_figure
from headscope.heads.head_map import map_heads
from headscope.reporting.report import build_map_report
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.run.analyze import analyze
from headscope.run.measure import measure
from headscope.text.readers.read import read
from tests.run.corpora import make_corpus, make_documents

if TYPE_CHECKING:
    from headscope.model.model import Model

pytest.importorskip("sklearn", reason="scikit-learn is not installed (headscope[heads])")

METRICS = ["js", "offset_share", "class_share", "sep_from_sep", "sep_from_other"]
METRICS += ["row_entropy", "first_entropy", "uniform_entropy"]


@pytest.fixture(scope="module")
def encoder(tiny_bert: Model) -> Result:
    return analyze(tiny_bert, make_corpus(6), METRICS)


@pytest.fixture(scope="module")
def causal(tiny_llama: Model) -> Result:
    return analyze(tiny_llama, make_corpus(6), METRICS)


def test_previous_is_left_and_next_is_right(encoder: Result) -> None:
    panels = encoder.figure("clark-1").axes
    assert [axes.get_title() for axes in panels] == [
        "Previous token",
        "Current token",
        "Next token",
    ]
    for axes, offset in zip(panels, (-1, 0, 1), strict=True):
        line = axes.lines[0].get_ydata()
        means = encoder["offset_share"].sel(offset=offset).mean("head")
        np.testing.assert_allclose(line, means, rtol=1e-5)


def test_figures_of_both_kinds_of_models(encoder: Result, causal: Result, tmp_path: Path) -> None:
    assert len(causal.figure("clark-1").axes) == 2  # no next token
    assert len(encoder.figure("clark-2").axes) == 2
    assert len(causal.figure("clark-2").axes) == 1  # no separators, no second panel
    labels = [text.get_text() for text in encoder.figure("clark-2").axes[0].get_legend().texts]
    assert labels == ["[CLS]", "[SEP]", ". or ,"]
    labels = [text.get_text() for text in causal.figure("clark-2").axes[0].get_legend().texts]
    assert labels == ["the first token", ". or ,"]
    for number, result in enumerate((encoder, causal)):
        figure = result.figure("clark-4")
        level = float(result["uniform_entropy"])
        assert any(np.allclose(line.get_ydata(), level) for line in figure.axes[0].lines[1:])
        figure.savefig(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 5000


def test_importance_and_its_check(tiny_llama: Model) -> None:
    corpus = read([document for document in make_documents(6) if len(document) > 2])
    figure = importance(tiny_llama, corpus).figure("clark-3")
    labels = [text.get_text() for text in figure.axes[0].get_legend().texts]
    assert labels == ["the first token", "all"]  # no period, no comma
    checked = check_importance(tiny_llama, corpus, classes=["first"], levels=[0.5, 1.0])
    figure = removal_figure(checked)
    half, whole, _ = figure.axes
    assert half.get_title() == "the first token: 50% removed"
    assert whole.get_title() == "the first token: 100% removed"
    points = np.asarray(whole.collections[0].get_offsets())
    at = checked.sel(key_class="first", level=1.0)
    np.testing.assert_allclose(points[:, 0], at["removal_estimate"].values.ravel(), rtol=1e-5)
    np.testing.assert_allclose(points[:, 1], at["rise"].values.ravel(), rtol=1e-5)
    assert whole.texts[0].get_text().startswith(f"r = {float(at['r']):.2f}")


def test_maps(encoder: Result) -> None:
    heads = map_heads(encoder, starts=2)
    figure = heads.figure()
    drawn = sum(len(c.get_offsets()) for c in figure.axes[0].collections)
    assert drawn == heads.data.sizes["at"]
    assert heads.figure("clusters").axes[0].get_ylabel() == "Silhouette"


def test_effects_make_points_larger(causal: Result, encoder: Result, tiny_llama: Model) -> None:
    effects = hs.effects(tiny_llama, make_corpus(6), heads=[(0, 1), (1, 2), (1, 3)])
    heads = map_heads(causal, effects=effects, starts=1)
    data = heads.data
    values = {(0, 1): 0.0, (1, 2): 0.0, (1, 3): 0.0}
    for at in values:
        values[at] = abs(float(effects.sel(layer=at[0], head=at[1])))
    largest = max(values.values())
    assert heads.largest_effect == pytest.approx(largest)
    places = list(zip(data["layer"].values.tolist(), data["head"].values.tolist(), strict=True))
    expected = np.array([8 + 88 * values.get(at, 0.0) / largest for at in places])
    figure = causal.figure("clark-6", effects=effects, starts=1)
    by_behavior, by_layer = figure.axes[:2]
    drawn = {
        tuple(place): area
        for points in by_behavior.collections
        for place, area in zip(points.get_offsets(), points.get_sizes(), strict=False)  # type: ignore[attr-defined]
    }
    (panel,) = build_map_report(heads, ())["sections"][0]["figures"][0]["panels"]
    at = [tuple(place) for place in zip(panel["x"], panel["y"], strict=True)]
    np.testing.assert_allclose([drawn[place] for place in at], expected, rtol=1e-5)
    assert sorted(by_layer.collections[0].get_sizes()) == pytest.approx(sorted(expected), rel=1e-5)  # type: ignore[attr-defined]
    said = [text.get_text() for text in figure.legends[0].texts]
    assert said[-2:] == ["effect 0", f"effect {largest:.2g}"]
    meaning = f"changes without the head, up to {largest:.2g} nats per token"
    assert meaning in figure.get_supxlabel()
    values = [math.nan if value is None else value for value in panel["effect"]]
    assert values == pytest.approx(data["effect"].values.tolist(), abs=1e-4, nan_ok=True)
    plain = map_heads(causal, starts=1)
    assert plain.effect_sizes() is None
    assert "effect" not in build_map_report(plain, ())["sections"][0]["figures"][0]["panels"][0]
    with pytest.raises(InputError, match=r"The effects are of .*, the map is of"):
        map_heads(encoder, effects=effects)
    with pytest.raises(InputError, match="this result has no effects"):
        map_heads(causal, effects=causal)
    with pytest.raises(InputError, match="about that text"):
        map_heads(causal, effects=hs.effects(tiny_llama, "the cat sat on the mat"))


def test_maps_over_norms_say_so(tiny_llama: Model, causal: Result) -> None:
    normed = analyze(tiny_llama, make_corpus(6), METRICS, over="norm")
    heads, plain = (map_heads(result, starts=1) for result in (normed, causal))
    for over, one in (("norm", heads), ("attention", plain)):
        chosen = map_heads([causal, normed], over=over, starts=1)  # type: ignore[arg-type]
        assert chosen.title == one.title
        assert chosen.data.equals(one.data)
    with pytest.raises(InputError, match=r"over attention\. Measure it over norm: .*over='norm'"):
        map_heads(causal, over="norm")
    with pytest.raises(InputError, match=r"2 of these results .*Choose with over='attention'"):
        map_heads([causal, normed])
    with pytest.raises(UnknownName, match="Unknown over 'norms'"):
        map_heads(causal, over="norms")  # type: ignore[arg-type]
    assert heads.title == f"{plain.title} · weighted by norms"
    assert not np.allclose(heads.data["distance"], plain.data["distance"])
    np.testing.assert_allclose(
        heads.data["distance"].values, normed["js"].values.reshape(8, 8), atol=1e-12
    )
    assert "weighted by norms" in normed.figure("clark-1").get_supxlabel()
    assert normed.figure("row_entropy").axes[0].get_title().endswith(", by norm")


def test_figures_say_what_they_lack() -> None:
    trace = Trace.from_arrays(np.full((1, 1, 2, 2), 0.5), ["a", "b"], is_causal=False)
    result = measure(trace, "distance")
    with pytest.raises(InputError, match="Figure clark-1 shows offset_share"):
        result.figure("clark-1")
    with pytest.raises(InputError, match=r"headscope\.importance"):
        result.figure("clark-3")


def test_the_page_of_a_map_is_a_report_with_one_figure(encoder: Result, tmp_path: Path) -> None:
    heads = map_heads(encoder, starts=1)
    heads.save_page(tmp_path / "map.html", explorer="trace.html")
    page = (tmp_path / "map.html").read_text()
    assert "http" not in re.sub(
        r"http-equiv|https?://www.w3.org/[\w/]+", "", page.split("<script")[0]
    )
    content = build_map_report(heads, (), explorer="trace.html")
    assert [shown["id"] for shown in content["sections"]] == ["map-section"]
    assert content["findings"] == []
    assert content["subjects"][0]["page"] == "trace.html"
    assert len(content["cards"][0]) == heads.data.sizes["at"]
