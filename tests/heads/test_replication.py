"""Findings carried over to another corpus, to other choices, and planned claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.heads.replication import (
    HOLDS,
    NOT_SHOWN,
    UNTESTED,
    Estimate,
    Measured,
    TestedFindings,
    planned_findings,
)
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.statistics.differences import p_above_both
from headscope.statistics.jackknife import ratio_jackknife
from tests.run.corpora import make_corpus

METRICS = ["null_share", "distance", "entropy", "offset_share", "dep_alignment", "dep_baseline"]

ENTROPY = "Entropy without null attention"


@pytest.fixture(scope="module")
def first(tiny_bert: Model) -> Result:
    return hs.analyze(tiny_bert, make_corpus(60), METRICS)


@pytest.fixture(scope="module")
def second(tiny_bert: Model) -> Result:
    return hs.analyze(tiny_bert, make_corpus(60, seed=1, first=100), METRICS)


def slow_holm(p: list[float]) -> list[float]:
    """Step down through the sorted values."""
    corrected, worst = [float("nan")] * len(p), 0.0
    tested = sorted((value, n) for n, value in enumerate(p) if not np.isnan(value))
    for rank, (value, n) in enumerate(tested):
        worst = max(worst, min(1.0, value * (len(tested) - rank)))
        corrected[n] = worst
    return corrected


def mirrored(result: Result) -> Result:
    """The same numbers, as if measured elsewhere, with the heads of each layer in reverse."""
    turn = {"head": slice(None, None, -1)}
    data = {
        name: block.isel(turn).assign_coords(head=block["head"])
        for name, block in result.blocks.items()
    }
    states = {
        block: {name: s.isel(turn, missing_dims="ignore") for name, s in measured.items()}
        for block, measured in result.states.items()
    }
    corpus = {**result.provenance["corpus"], "hash": "another", "name": "mirror"}
    return replace(
        result, blocks=data, states=states, provenance={**result.provenance, "corpus": corpus}
    )


def test_p_values_are_those_of_the_second_corpus_alone(first: Result, second: Result) -> None:
    """Each head by hand: its ratio minus the mean of all, in the second corpus."""
    table = first.replicates(second, ["entropy"], n=None)
    heads = first.significant("entropy")
    state = second.states["self"]["entropy"]
    a, b = (
        state[of].transpose("bucket", "layer", "head").values for of in ("numerator", "denominator")
    )
    jackknife = ratio_jackknife(a, b, "positive")
    p = p_above_both(jackknife, jackknife.mean((0, 1)).at(None, None))
    by_text = {claim.text: estimate for claim, (estimate,) in table.rows}
    found = {
        f"{ENTROPY}: L{row.layer} H{row.head} is above its mean over heads": row for row in heads
    }
    assert found
    assert {text for text in by_text if "layer" not in text} == set(found)
    for text, row in found.items():
        assert by_text[text].p == pytest.approx(p[row.layer, row.head])
        assert by_text[text].value == pytest.approx(float(second["entropy"][row.layer, row.head]))
    estimates = [estimate for _, (estimate,) in table.rows]
    expected = slow_holm([estimate.p for estimate in estimates])
    np.testing.assert_allclose([e.p_adjusted for e in estimates], expected)


def test_at_most_n_heads_of_each_list(first: Result, second: Result) -> None:
    table = first.replicates(second, ["entropy"], n=1)
    heads = [claim.text for claim, _ in table.rows if " H" in claim.text]
    best = max(first.significant("entropy"), key=lambda row: row.value)
    assert heads == [
        f"Entropy without null attention: L{best.layer} H{best.head} is above its mean over heads"
    ]


def test_findings_of_other_heads_do_not_hold(first: Result) -> None:
    """Another run with equal numbers bears all findings out; with heads reversed, not those of
    heads, but those of layers."""
    corpus = {**first.provenance["corpus"], "hash": "another"}
    again = replace(first, provenance={**first.provenance, "corpus": corpus})
    same, turned = first.replicates(again), first.replicates(mirrored(first))
    assert len(same) == len(turned) > 5
    for (claim, (estimate,)), (_, (other,)) in zip(same.rows, turned.rows, strict=True):
        assert estimate.value == pytest.approx(claim.found.value)
        if "layer" in claim.text:
            assert other.p == pytest.approx(estimate.p)
        elif "mean over heads" in claim.text and other.verdict == HOLDS:
            # The head at the mirrored place is above the mean, too.
            assert other.value != pytest.approx(estimate.value)
    verdicts = [row[0].verdict for _, row in turned.rows]
    assert NOT_SHOWN in verdicts


def test_layers_are_tested_in_the_direction_of_the_first(first: Result) -> None:
    reverse = {"layer": slice(None, None, -1)}
    blocks = {n: b.isel(reverse).assign_coords(layer=b["layer"]) for n, b in first.blocks.items()}
    states = {
        block: {name: s.isel(reverse, missing_dims="ignore") for name, s in measured.items()}
        for block, measured in first.states.items()
    }
    corpus = {**first.provenance["corpus"], "hash": "another"}
    provenance = {**first.provenance, "corpus": corpus}
    upside_down = replace(first, blocks=blocks, states=states, provenance=provenance)
    layers = [
        (claim.found, estimate)
        for claim, (estimate,) in first.replicates(upside_down).rows
        if " is above layer " in claim.text
    ]
    assert layers
    for found, there in layers:
        assert there.value == pytest.approx(-found.value)
        assert there.p == pytest.approx(1 - found.p)
        assert there.verdict == NOT_SHOWN


def test_missing_variables_cannot_be_tested(first: Result, tiny_bert: Model) -> None:
    other = hs.analyze(tiny_bert, make_corpus(60, seed=1, first=100), ["null_share"])
    verdicts = {claim.text[:8]: row[0].verdict for claim, row in first.replicates(other).rows}
    assert verdicts["Mean dis"] == UNTESTED
    assert UNTESTED not in (v for text, v in verdicts.items() if text == "Null att")


def test_other_models_and_the_same_documents_are_refused(first: Result, tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="not of the same model"):
        first.replicates(hs.analyze(tiny_llama, make_corpus(9), ["null_share"]))
    with pytest.raises(InputError, match="same documents"):
        first.replicates(first)
    with pytest.raises(UnknownName):
        first.replicates(mirrored(first), ["nothing"])


def test_the_best_head_of_a_relation_is_tested_as_chosen(tiny_bert: Model) -> None:
    """A head planted in the first corpus: right in all cases there, in half of them elsewhere."""
    probes = [
        hs.probe_dependencies(tiny_bert, make_corpus(80, seed=s, first=100 * s), min_cases=5)
        for s in (0, 1)
    ]
    for probe, share in zip(probes, (1.0, 0.9), strict=True):
        state = probe.states["self"]["dep_accuracy"]
        at = {"layer": 1, "head": 1, "direction": 0}
        state["right"][at] = share * state["cases"].isel(layer=1)
        values = probe.dataset["accuracy"]
        values.loc[{"layer": 1, "head": 1, "direction": "dependent", "relation": "obj"}] = share
    table = probes[0].replicates(probes[1])
    rows = {claim.text: (claim, row[0]) for claim, row in table.rows}
    claim, there = rows["obj: L1 H1 (dependent → parent) is better than every fixed offset"]
    assert claim.found.value == pytest.approx(1.0)
    assert there.value == pytest.approx(0.9)
    assert there.verdict == HOLDS
    with pytest.raises(InputError, match="takes 'relation' alone, not 'head', 'layer'"):
        planned_findings(probes, [("accuracy", {"relation": "obj", "layer": 0, "head": 0})])


def test_tables_print_and_export(first: Result, second: Result, tmp_path: Path) -> None:
    table = first.replicates(second)
    assert isinstance(table, TestedFindings)
    assert f"of {len(table)} findings hold" in str(table).splitlines()[0]
    assert set(table.to_dataframe()["second_verdict"]) <= {HOLDS, NOT_SHOWN, UNTESTED}
    assert "toprule" in table.to_latex()
    table.to_csv(tmp_path / "table.csv")
    assert len((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()) == 1 + len(table)


def test_verdicts() -> None:
    assert [Estimate(p_adjusted=p).verdict for p in (0.049, 0.05, np.nan)] == [
        HOLDS,
        NOT_SHOWN,
        UNTESTED,
    ]


def test_planned_claims_are_corrected_among_themselves(first: Result) -> None:
    one = planned_findings([first], [("null_share", {"layer": 0, "head": 1})])
    assert [claim.text for claim, _ in one] == [
        "Null attention: L0 H1 is above its mean over heads"
    ]
    assert one[0][1].p_adjusted == pytest.approx(one[0][0].found.p)  # a family of one
    both = planned_findings([first], ["null_share", ("offset_share", {"offset": -1, "layer": 0})])
    sizes = first["null_share"].sizes
    assert len(both) == sizes["layer"] * sizes["head"] + sizes["head"]
    expected = slow_holm([claim.found.p for claim, _ in both])
    np.testing.assert_allclose([e.p_adjusted for _, e in both], expected)
    with pytest.raises(UnknownName):
        planned_findings([first], ["nothing"])
    with pytest.raises(InputError, match=r"99.*no head is there"):
        planned_findings([first], ["null_share", ("null_share", {"layer": 99})])


def test_equal_weights_are_the_mean_of_the_ratios_of_buckets(first: Result) -> None:
    state = first.states["self"]["distance"]
    a, b = (
        state[of].transpose("bucket", "layer", "head").values for of in ("numerator", "denominator")
    )
    expected = [[a[g] / b[g]] for g in range(len(a)) if b[g].min() > 0]
    got = Measured(first, is_equal=True).known["distance"]
    np.testing.assert_allclose(got.jackknife.value, np.mean(expected, axis=(0, 1)))
    np.testing.assert_allclose(got.array.values, got.jackknife.value)


def test_sensitivity_names_the_choices(tiny_bert: Model, tmp_path: Path) -> None:
    corpus = make_corpus(40)
    table = hs.sensitivity(tiny_bert, corpus, ["null_share"], out=tmp_path, workers=1)
    assert table.columns[:2] == ("base", "equal weights")
    assert {"sentence", "128 tokens", "other null keys", "half 0", "half 1"} <= {*table.columns}
    base = hs.analyze(tiny_bert, corpus)
    other = hs.analyze(tiny_bert, corpus, null_keys="first")
    for claim, estimates in table.rows:
        if " H" not in claim.text:
            continue
        layer, head = (int(x[1:]) for x in claim.text.split(": ")[1].split(" ")[:2])
        at = dict(zip(table.columns, estimates, strict=True))
        assert at["base"].value == pytest.approx(float(base["null_share"][layer, head]))
        assert at["other null keys"].value == pytest.approx(float(other["null_share"][layer, head]))
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "128-tokens"
    assert "under every choice" in table.summary
