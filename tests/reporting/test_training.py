"""Reports and figures of a training: every number is one of its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.heads.detect import detect_heads
from headscope.model.load import randomized
from headscope.model.model import Model
from headscope.reporting.report import build_report
from headscope.results.result import Result
from headscope.results.steps import stack_steps
from tests.run.corpora import make_corpus


@pytest.fixture(scope="module")
def tracks(tiny_llama: Model) -> list[Result]:
    """Three "steps": two random models and the tiny one, all under its name."""
    models = [randomized(tiny_llama, 1), randomized(tiny_llama, 2), tiny_llama]
    for model in models:
        model.name = tiny_llama.name
    corpus = make_corpus(30)
    analyzed = {10 * n: hs.analyze(model, corpus) for n, model in enumerate(models)}
    detected = {10 * n: detect_heads(model, length=20) for n, model in enumerate(models)}
    return [stack_steps(analyzed), stack_steps(detected)]


def test_the_figure_shows_each_step(tracks: list[Result]) -> None:
    for track in tracks:
        figure = track.figure("through-training", names=["induction"], n=2)
        (axes,) = figure.axes
        best = track["induction"].max("step").stack(at=("layer", "head"))
        first = best["at"].values[int(np.argmax(best.values))]
        expected = track["induction"].sel(layer=first[0], head=first[1]).values
        np.testing.assert_allclose(axes.lines[0].get_ydata(), expected, rtol=1e-5)
        assert list(axes.lines[0].get_xdata()) == [0, 10, 20]
        assert axes.get_xlabel() == "Step"
    with pytest.raises(UnknownName, match="inducton"):
        tracks[0].figure("through-training", names=["inducton"])
    with pytest.raises(InputError, match="of one model"):
        tracks[0].at_step(0).figure("through-training")


def test_the_report_has_a_section(
    tracks: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.heads.significant.find_onsets.__defaults__", (0.05,))
    report = build_report(tracks)
    section = next(s for s in report["sections"] if s["id"] == "training-section")
    kinds = [(figure["kind"], figure["id"]) for figure in section["figures"]]
    assert kinds == [
        ("lines", "through-training"),
        ("lines", "through-training-2"),
        ("table", "onsets"),
    ]
    rows = section["figures"][2]["rows"]  # type: ignore[typeddict-item]
    expected = [
        (name, row.layer, row.head, row.step, row.low, row.high, row.value)
        for track in tracks
        for name in ("previous_token", "induction", "duplicate_token")
        for row in track.onsets(name, 0.05).rows
    ]
    assert [(r[0], *r[2]["head"][1:], *r[3:6], r[8]) for r in rows] == expected
    assert len(expected) > 3
    said = next(f for f in report["findings"] if f["title"] == "Through training")
    assert "from step" in str(said["paragraphs"])
    # The rest of the report is that of the last step.
    assert len(report["subjects"]) == 1
    alone = build_report([track.at_step(20) for track in tracks])
    assert report["cards"] == alone["cards"]
    path = hs.report(tracks, tmp_path / "report.html")
    assert path.stat().st_size > 10_000


def test_a_saved_track_is_the_same(tracks: list[Result], tmp_path: Path) -> None:
    for track in tracks:
        track.save(tmp_path / "track.nc")
        opened = hs.open(tmp_path / "track.nc")
        assert isinstance(opened, Result)
        assert opened.steps == [0, 10, 20]
        part, expected = opened.at_step(10), track.at_step(10)
        for name, values in expected.dataset.items():
            np.testing.assert_array_equal(part[str(name)].values, values.values)
        assert part.provenance["model"] == expected.provenance["model"]
        merged = part.compare(opened.at_step(0))
        assert merged.attrs["comparison"].startswith("paired")


def test_steps_that_differ_are_refused(tracks: list[Result]) -> None:
    first, second = tracks[0].at_step(0), tracks[0].at_step(10)
    other = {**second.provenance, "corpus": {**second.provenance["corpus"], "hash": "other"}}
    with pytest.raises(InputError, match="Steps 0 and 1 cannot be joined: corpus hash is"):
        stack_steps({0: first, 1: replace(second, provenance=other)})
    with pytest.raises(InputError, match="There is no step to join"):
        stack_steps({})
