"""Effects and norms stand beside attention: in the report, in cards, in the finder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import InputError
from headscope.figures.chart_data import find_subjects
from headscope.heads.cards import make_card
from headscope.model.model import Model
from headscope.reporting.findings import effects, norms
from headscope.reporting.report import build_report
from headscope.reporting.report_tables import effects_of
from headscope.reporting.wording import plain
from headscope.results.effect_data import result_of_effects
from headscope.results.result import Result
from tests.reporting.made_up import HEADS, LAYERS, result

pytestmark = pytest.mark.xdist_group("report")
TEXTS = [f"the cat {verb} on the mat, and the cat {verb} again" for verb in
         ("sat", "slept", "ate", "ran", "lay", "hid", "sang", "fell")]  # fmt: skip


@pytest.fixture(scope="module")
def measured(tiny_llama: Model) -> tuple[Result, Result, xr.DataArray]:
    corpus = hs.read(TEXTS)
    names = ["null_share", "distance", "offset_share", "class_share", "row_entropy",
             "uniform_entropy"]  # fmt: skip
    plain_run = hs.analyze(tiny_llama, corpus, names)
    return (
        plain_run,
        hs.analyze(tiny_llama, corpus, names, over="norm"),
        hs.effects(tiny_llama, corpus),
    )


def figures(content: Any) -> dict[str, Any]:
    return {f["id"]: f for section in content["sections"] for f in section["figures"]}


def test_one_subject_has_attention_norm_and_effect(
    measured: tuple[Result, Result, xr.DataArray],
) -> None:
    run, normed, effect = measured
    for given in ([run, normed, effect], [effect, normed, run]):
        (subject,) = find_subjects(given)
        assert subject.normed is normed
        of_head = subject.measured("null_share_by_norm", layer=1, head=0)
        assert of_head.value == float(normed["null_share"].sel(layer=1, head=0))
        assert subject.measured("effect", layer=1, head=0).value == float(effect[1, 0])
    alone, _ = find_subjects([normed, run.group("x") if run.groups else _renamed(run)])
    assert alone.normed is None  # of another model: nothing to stand beside


def _renamed(of: Result) -> Result:
    from dataclasses import replace

    model = {**of.provenance["model"], "name": "another", "weights_sha256": "1" * 64}
    return replace(of, provenance={**of.provenance, "model": model})


def test_the_report_shows_them(measured: tuple[Result, Result, xr.DataArray]) -> None:
    run, normed, effect = measured
    content = build_report([run, normed, effect])
    shown = figures(content)
    finder = shown["finder"]
    pairs = {(p["x"], p["y"]) for p in finder["presets"]}
    assert {("null_share", "effect"), ("null_share", "null_share_by_norm")} <= pairs
    known = {variable["id"] for variable in shown["heads"]["variables"]}
    assert all(name in known for pair in pairs for name in pair)
    roles = finder["panels"][0]["roles"]
    assert np.shape(roles) == effect.shape
    rows = shown["effects"]["rows"]
    assert sum(row[2] for row in rows) == effect.size
    for row in rows:
        among = np.array(roles) == row[1]
        assert row[4]["value"] == pytest.approx(float(effect.values[among].mean()), rel=1e-5)


def test_the_map_of_the_report_has_effects(tiny_llama: Model) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (headscope[heads])")
    corpus = hs.read(TEXTS)
    names = ["js", "offset_share", "class_share", "row_entropy", "uniform_entropy"]
    run, effect = hs.analyze(tiny_llama, corpus, names), hs.effects(tiny_llama, corpus)
    shown = figures(build_report([run, effect]))["map"]
    (panel,) = shown["panels"]
    for layer, head, value in zip(panel["layer"], panel["head"], panel["effect"], strict=True):
        assert value == pytest.approx(float(effect.sel(layer=layer, head=head)), rel=1e-5)
    assert "The larger a point, the more the loss" in plain(shown["caption"])
    without = figures(build_report([run]))["map"]
    assert "effect" not in without["panels"][0]
    assert "The larger a point" not in plain(without["caption"])


def test_a_card_says_what_the_head_does_to_the_loss(
    measured: tuple[Result, Result, xr.DataArray],
) -> None:
    run, _, effect = measured
    card = make_card([run, effect], 1, 0)
    rows = {row.what: row.value for _, rows in card.evidence for row in rows}
    value = f"{float(effect.sel(layer=1, head=0)):+.4f}".replace("-", "−")
    assert rows["Effect on the loss"] == f"{value}\u00a0nats per token"
    assert str(run.card(1, 0, effect)) == str(card)


def test_effects_on_one_text_are_refused(tiny_llama: Model) -> None:
    one = hs.effects(tiny_llama, TEXTS[0])
    with pytest.raises(InputError, match="about that text"):
        build_report([one])
    sets = hs.effects(tiny_llama, hs.read(TEXTS[:3]), heads=[[(0, 0), (0, 1)]])
    with pytest.raises(InputError, match="single heads over a corpus"):
        result_of_effects(sets)


def test_they_are_saved_and_opened(
    measured: tuple[Result, Result, xr.DataArray], tmp_path: Any
) -> None:
    _, _, effect = measured
    result_of_effects(effect).save(tmp_path / "effects.nc")
    again = hs.open(tmp_path / "effects.nc")
    assert isinstance(again, Result)
    np.testing.assert_array_equal(again["effect"].values, effect.values)
    np.testing.assert_array_equal(again["effect_p"].values, effect["p"].values)
    assert again.n_documents == len(TEXTS)


def made_up(p: float) -> Result:
    values = np.full((LAYERS, HEADS), 0.001)
    values[2, 1], values[3, 3] = 0.25, -0.1
    of_heads = np.full((LAYERS, HEADS), 0.9)
    of_heads[2, 1] = of_heads[3, 3] = p
    extra = {"effect_p": (("layer", "head"), of_heads)}
    return result({"effect": values}, extra=extra)


def test_what_is_said_of_effects() -> None:
    (clear,) = find_subjects([made_up(1e-6)])
    assert plain(effects(clear, 0) or []) == (
        "Taken away alone, 2 of 24 heads change the loss (in total and in most documents, after "
        "correction over 24 heads); "
        "without one head of these it falls. Without L2 H1, for example, it rises by 0.25 nats per "
        "token [0.24–0.26]."
    )
    (unclear,) = find_subjects([made_up(0.01)])  # times 24 / 2: not after correction
    of = effects_of(unclear)
    assert of is not None
    assert not of.is_clear.any()
    said = plain(effects(unclear, 0) or [])
    assert said.startswith("Of 24 heads taken away alone, none changes the loss enough")


def test_what_is_said_of_norms(measured: tuple[Result, Result, xr.DataArray]) -> None:
    run, normed, _ = measured
    (subject,) = find_subjects([run, normed])
    said = plain(norms(subject, 0) or [])
    difference = run.compare(normed)["null_share_mean_interval"].values
    if difference[0] <= 0 <= difference[1]:
        assert not said
    else:
        way = "falls" if difference[0] > 0 else "rises"
        assert f"mean share of null attention {way} from" in said
