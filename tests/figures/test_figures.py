"""Figures: each can be drawn, shows what the result says, and leaves no trace behind."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pytest

from headscope.causal.importance import importance
from headscope.errors import InputError, UnknownName
from headscope.figures.papers import FIGURES
from headscope.results.result import Result
from headscope.results.steps import stack_steps
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model


@pytest.fixture(scope="module")
def result(tiny_bert: Model) -> Result:
    return analyze(tiny_bert, make_corpus(40), ["all", "js"], by="genre")


@pytest.fixture(scope="module")
def gradients(tiny_bert: Model) -> Result:
    return importance(tiny_bert, make_corpus(6))


OPTIONS = {"vb-exemplars": {"layer": 1, "head": 2}, "clark-6": {"starts": 1}}


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_each_figure_draws(name: str, result: Result, gradients: Result) -> None:
    before = dict(mpl.rcParams)
    shown = gradients if name == "clark-3" else result
    if name == "through-training":
        shown = stack_steps({0: replace(result, groups={}), 10: replace(result, groups={})})
    shown.figure(name, **OPTIONS.get(name, {})).canvas.draw()
    assert dict(mpl.rcParams) == before


def test_both_papers_are_in_the_table() -> None:
    vig = [*(f"vb-{number}" for number in range(5, 13)), "vb-a1", "vb-a2", "vb-exemplars"]
    clark = [f"clark-{number}" for number in (1, 2, 3, 4, 6)]
    assert list(FIGURES) == [*vig, *clark, "genres", "through-training"]


def test_heat_maps_show_the_values(result: Result) -> None:
    image = result.figure("vb-5").axes[0].images[0]
    np.testing.assert_allclose(image.get_array(), result["null_share"].values, rtol=1e-5)
    panels = result.figure("vb-a1").axes
    tags = list(result["pos_to"]["tag"].values)
    titles = [axes.get_title().partition(" ")[0] for axes in panels if axes.images]
    assert titles == tags
    for tag, axes in zip(tags, panels, strict=False):
        shown = np.asarray(axes.images[0].get_array())
        np.testing.assert_allclose(shown, result["pos_to"].sel(tag=tag).values, rtol=1e-5)


def test_bars_of_relations_are_as_high_as_their_shares(result: Result) -> None:
    values = result["dep_type_to_by_layer"]
    mean = values.mean("layer")
    most = str(mean["relation"].values[int(np.argmax(mean.values))])
    first = result.figure("vb-9").axes[0]
    assert first.get_title() == most
    heights = [bar.get_height() for bar in first.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights, values.sel(relation=most).values, rtol=1e-5)


def test_bars_show_layers_and_the_baseline(result: Result) -> None:
    panels = result.figure("vb-8").axes
    heights = [bar.get_height() for bar in panels[2].patches]  # type: ignore[attr-defined]
    expected = result["dep_alignment_by_layer"].sel(parent="either").values
    np.testing.assert_allclose(heights, expected, rtol=1e-5)
    line = panels[2].lines[-1].get_ydata()
    assert line[0] == pytest.approx(float(result["dep_baseline"]), rel=1e-5)
    assert panels[0].get_ylim()[1] >= max(heights)


def test_exemplars_mark_query_and_key(result: Result) -> None:
    exemplar = result.exemplars(1, 2)[0]
    figure = result.figure("vb-exemplars", layer=1, head=2, n=1)
    texts = {text.get_text(): text for text in figure.axes[0].texts}
    query = exemplar.query_tokens[exemplar.query].strip()
    assert texts[query].get_weight() == "bold"  # type: ignore[attr-defined]
    assert "L1 H2" in texts
    figure.canvas.draw()


def test_files_in_all_formats(result: Result, tmp_path: Path) -> None:
    written = result.save_figures(tmp_path, figures=["vb-8", "vb-a1"], exemplars=[(0, 1)])
    names = {path.name for path in written}
    assert {"vb-8.svg", "vb-8.pdf", "vb-a1.png", "vb-exemplars-L0-H1.svg"} <= names
    assert all(path.stat().st_size > 1000 for path in written)
    again = result.save_figures(tmp_path / "again", figures=["vb-8"], formats=["svg"])
    assert again[0].read_bytes() == (tmp_path / "vb-8.svg").read_bytes()


def test_all_that_a_result_allows(result: Result, tiny_bert: Model, tmp_path: Path) -> None:
    written = {path.stem for path in result.save_figures(tmp_path, formats=["svg"])}
    assert written == set(FIGURES) - {"vb-exemplars", "clark-3", "through-training"}
    plain = analyze(tiny_bert, ["The cat sat on the mat.", "A red house."], metrics="distance")
    assert [path.stem for path in plain.save_figures(tmp_path, formats=["svg"])] == ["vb-11"]


def test_what_a_result_lacks_is_said(tiny_bert: Model, result: Result) -> None:
    plain = analyze(tiny_bert, ["The cat sat on the mat.", "A red house."], metrics="distance")
    with pytest.raises(InputError, match="Figure vb-8 shows dep_alignment and dep_baseline"):
        plain.figure("vb-8")
    with pytest.raises(InputError, match=r"Make the result with headscope\.importance"):
        plain.figure("clark-3")
    with pytest.raises(InputError, match="no groups"):
        plain.figure("genres")
    with pytest.raises(InputError, match="Figure vb-exemplars shows exemplar_weight"):
        plain.figure("vb-exemplars", layer=0, head=0)
    with pytest.raises(InputError, match="There is no head 9"):
        result.figure("vb-exemplars", layer=0, head=9)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("8", "Unknown figure '8'. Figures are named after their paper: 'vb-8'."),
        ("A.1", "Unknown figure 'A.1'. Figures are named after their paper: 'vb-a1'."),
        ("6", "Unknown figure '6'. Figures are named after their paper: 'vb-6' or 'clark-6'."),
        ("genre", "Unknown figure 'genre'. Did you mean 'genres'? Known: "),
        ("clark-5", "result.examples(model, corpus, relation).figure()"),
    ],
)
def test_unknown_names_are_met_with_the_right_one(name: str, message: str, result: Result) -> None:
    with pytest.raises(UnknownName, match=re.escape(message)):
        result.figure(name)


def test_options_are_checked(result: Result) -> None:
    with pytest.raises(InputError, match="Figure vb-8 has no option 'layer'; it takes none"):
        result.figure("vb-8", layer=1)
    with pytest.raises(InputError, match=r"Figure vb-exemplars needs head: result\.figure"):
        result.figure("vb-exemplars", layer=1)
