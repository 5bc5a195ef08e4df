"""Figures: each can be drawn, shows what the result says, and leaves no trace behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import pytest

from headscope.errors import InputError, UnknownName
from headscope.figures.exemplar_table import exemplar_table
from headscope.figures.papers import FIGURES, draw, save_figures
from headscope.results.result import Result
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model


@pytest.fixture(scope="module")
def result(tiny_bert: Model) -> Result:
    return analyze(tiny_bert, make_corpus(40), by="genre")


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_each_figure_draws(name: str, result: Result) -> None:
    before = dict(mpl.rcParams)
    draw(result, name).canvas.draw()
    assert dict(mpl.rcParams) == before


def test_heat_maps_show_the_values(result: Result) -> None:
    image = draw(result, "5").axes[0].images[0]
    np.testing.assert_array_equal(np.asarray(image.get_array()), result["null_share"].values)
    panels = [axes for axes in draw(result, "A.1").axes if axes.images]
    tags = list(result["pos_to"]["tag"].values)
    assert [axes.get_title() for axes in panels] == tags
    shown = np.asarray(panels[2].images[0].get_array())
    np.testing.assert_array_equal(shown, result["pos_to"].sel(tag=tags[2]).values)


def test_bars_show_layers_and_the_baseline(result: Result) -> None:
    panels = draw(result, "8").axes
    heights = [bar.get_height() for bar in panels[2].patches]
    expected = result["dep_alignment_by_layer"].sel(parent="either").values
    np.testing.assert_allclose(heights, expected)
    line = panels[2].lines[-1].get_ydata()
    assert line[0] == pytest.approx(float(result["dep_baseline"]))
    assert panels[0].get_ylim()[1] >= max(heights)


def test_exemplars_mark_query_and_key(result: Result) -> None:
    exemplar = result.exemplars(1, 2)[0]
    figure = exemplar_table(result, 1, 2, n=1)
    texts = {text.get_text(): text for text in figure.axes[0].texts}
    query = exemplar.query_tokens[exemplar.query].strip()
    assert texts[query].get_weight() == "bold"
    assert "L1 H2" in texts
    figure.canvas.draw()


def test_files_in_all_formats(result: Result, tmp_path: Path) -> None:
    written = save_figures(result, tmp_path, figures=["8", "A.1"], exemplars=[(0, 1)])
    names = {path.name for path in written}
    assert {"figure-8.svg", "figure-8.pdf", "figure-A1.png", "exemplars-L0-H1.svg"} <= names
    assert all(path.stat().st_size > 1000 for path in written)
    again = save_figures(result, tmp_path / "again", figures=["8"], formats=["svg"])
    assert again[0].read_bytes() == (tmp_path / "figure-8.svg").read_bytes()


def test_what_a_result_lacks_is_said(tiny_bert: Model, result: Result) -> None:
    plain = analyze(tiny_bert, ["The cat sat on the mat.", "A red house."], metrics="distance")
    with pytest.raises(InputError, match="Figure 8 shows dep_alignment and dep_baseline"):
        draw(plain, "8")
    with pytest.raises(InputError, match="no groups"):
        draw(plain, "genres")
    with pytest.raises(UnknownName, match="Unknown figure '13'"):
        draw(plain, "13")
    with pytest.raises(InputError, match="no exemplars"):
        exemplar_table(plain, 0, 0)
    with pytest.raises(InputError, match="There is no head 9"):
        exemplar_table(result, 0, 9)
