"""Lists of heads after correction, sums that one document dominates, honest scores of bias."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.heads.significant import SignificantHead, SignificantHeads
from headscope.model.model import Model
from headscope.probes.tables import crossfit_scores
from headscope.results.result import Result
from headscope.run.compare import caution, driven_by_one
from headscope.statistics.differences import p_above_both
from headscope.statistics.intervals import benjamini_hochberg, interval
from headscope.statistics.jackknife import Jackknife, Scale, ratio_jackknife
from tests.run.corpora import make_corpus


@pytest.fixture(scope="module")
def result(tiny_bert: Model) -> Result:
    return hs.analyze(
        tiny_bert,
        make_corpus(40),
        ["null_share", "distance", "offset_share", "dep_alignment", "dep_baseline"],
    )


def pulls_of(result: Result, name: str, scale: Scale) -> Jackknife:
    state = result.states["self"][name]
    a, b = (state[of].transpose("bucket", "layer", "head") for of in ("numerator", "denominator"))
    return ratio_jackknife(a.values, b.values, scale)


def test_the_list_is_benjamini_hochberg_over_all_heads(result: Result) -> None:
    of = pulls_of(result, "null_share", "logit")
    threshold = float(0.98 * of.value.min())
    adjusted = benjamini_hochberg(p_above_both(of, threshold))
    expected = {(i, j) for i, j in np.argwhere(adjusted < 0.05).tolist()}
    heads = result.significant("null_share", against=threshold)
    assert {(row.layer, row.head) for row in heads} == expected
    assert heads.n_tested == of.value.size
    assert heads.correction == f"Benjamini–Hochberg over {of.value.size} heads, level 0.05"
    for row in heads:
        assert row.value > threshold
        assert row.p_adjusted == pytest.approx(adjusted[row.layer, row.head])
    assert str(heads).splitlines()[0].startswith("Null attention above")
    assert len(heads.to_dataframe()) == len(heads) > 0


def test_against_the_mean_errors_may_be_skewed(result: Result) -> None:
    of = pulls_of(result, "distance", "positive")
    difference = of - of.mean((0, 1)).at(None, None)
    assert difference.scale == "skewed"
    adjusted = benjamini_hochberg(p_above_both(of, of.mean((0, 1)).at(None, None)))
    heads = result.significant("distance", level=0.9)
    expected = {(i, j) for i, j in np.argwhere(adjusted < 0.9).tolist()}
    assert {(row.layer, row.head) for row in heads} == expected
    assert len(heads) > 0
    for row in heads:
        assert row.p_adjusted == pytest.approx(adjusted[row.layer, row.head])


def test_against_the_mean_a_variable_and_another_result(result: Result) -> None:
    above = result.significant("null_share")
    mean = float(result["null_share"].mean())
    assert all(row.value > mean for row in above)
    assert above.title == "Null attention above its mean over heads"
    aligned = result.significant("dep_alignment", against="dep_baseline", parent="either")
    assert aligned.title.startswith("Attention along dependencies (either is the parent) above ")
    baseline = float(result["dep_baseline"])
    assert all(row.value > baseline for row in aligned)
    assert len(result.significant("null_share", against=result)) == 0  # nothing differs from itself


def test_against_its_own_baseline(result: Result, tiny_bert: Model) -> None:
    own = result.significant("dep_alignment", against="baseline", parent="either", level=0.5)
    named = result.significant("dep_alignment", against="dep_baseline", parent="either", level=0.5)
    assert own.rows == named.rows
    assert own.title.endswith("above uniform attention")
    with pytest.raises(InputError, match="null_share has no baseline of its own"):
        result.significant("null_share", against="baseline")


def test_accuracy_is_tested_against_every_offset(tiny_bert: Model) -> None:
    probe = hs.probe_dependencies(tiny_bert, make_corpus(60), min_cases=20)
    heads = probe.significant(
        "accuracy", against="baseline", relation="det", direction="dependent", level=0.999
    )
    assert heads.title.endswith("above every fixed offset")
    states = probe.states["self"]
    number = probe["relation"].values.tolist().index("det")
    cases = states["dep_accuracy"]["cases"].values[0, :, number]
    for row in heads:
        right = states["dep_accuracy"]["right"].values[row.layer, :, number, row.head, 0]
        of = ratio_jackknife(right, cases, "logit")
        rivals = states["dep_offset"]["right"].values[:, :, number]
        p = [p_above_both(of, ratio_jackknife(rivals[:, k], cases, "logit")) for k in range(6)]
        assert row.p == pytest.approx(float(max(p)))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "nothing"}, UnknownName),
        ({"name": "null_share", "level": 0}, InputError),
        ({"name": "dep_alignment"}, InputError),
        ({"name": "dep_alignment", "parent": "mother"}, UnknownName),
        ({"name": "null_share", "against": "nothing"}, UnknownName),
        ({"name": "null_share", "level": "0.05"}, InputError),
    ],
)
def test_wrong_questions(result: Result, options: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        result.significant(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("against", "said"),
    [
        (1.5, "null_share is a share: expected a number from 0 to 1"),
        (-0.2, "expected a number from 0 to 1"),
        (float("nan"), "against=nan; expected a number, the name of a variable"),
        (None, "against=None; expected a number"),
        (True, "against=True; expected a number"),
        ([0.3], "expected a number"),
        ("distance", "distance is in tokens, and what it is compared with in share of attention"),
    ],
)
def test_what_no_share_can_be_compared_with(result: Result, against: float, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        result.significant("null_share", against=against)


def test_a_document_that_dominates_a_sum_is_named(tiny_bert: Model) -> None:
    short = [f"the cat sat {n}" for n in range(9)]
    long = " ".join(["the dog lay on the mat and the cat ran"] * 6)
    even = hs.analyze(tiny_bert, hs.read(short), ["distance"])
    assert "one document holds" not in even.summary
    uneven = hs.analyze(tiny_bert, hs.read([*short, long]), ["distance"])
    assert "one document holds" in uneven.summary
    assert "max_tokens" in uneven.summary
    heads = [of.significant("distance", level=0.999) for of in (even, uneven)]
    assert "One document holds" not in str(heads[0])
    assert "One document holds" in str(heads[1]).splitlines()[-1]
    assert heads[1].caution in heads[1]._repr_html_()
    assert "caution" not in even.compare(even).attrs
    for found in (uneven.compare(uneven), uneven.compare(even)):
        assert "One document holds" in found.attrs["caution"]
        assert "max_tokens" in found.attrs["caution"]


def _numbers(odd: float) -> tuple[xr.DataArray, Jackknife]:
    """Two heads over forty documents of one length; in the first, one document is odd."""
    right = np.tile([[40.0, 60.0], [60.0, 40.0]], (20, 1))
    right[7, 0] = odd
    jackknife = ratio_jackknife(right.reshape(40, 1, 2), np.full((40, 1, 2), 1000.0), "logit")
    array = xr.DataArray(jackknife.value, {"layer": [3], "head": [4, 5]}, ("layer", "head"))
    return array, jackknife


def test_a_short_document_that_decides_a_number_is_named() -> None:
    array, even = _numbers(odd=50.0)
    _, odd = _numbers(odd=900.0)
    assert driven_by_one("null_share", array, [even]) == []
    (said,) = driven_by_one("null_share", array, [odd])
    assert said.startswith("In 1 of 2 numbers, one document is more than half of what null_share")
    assert "at layer 3, head 4" in said
    assert caution("null_share", array, odd, even, is_paired=True)
    assert caution("null_share", array, odd, odd, is_paired=True) == []  # it cancels
    assert len(caution("null_share", array, odd, odd, is_paired=False)) == 1
    alone = odd.mean((0, 1))
    (said,) = driven_by_one("null_share_mean", array.mean(), [alone])
    assert "In 1 of 1 numbers" in said


def test_comparisons_and_lists_name_a_document_that_decides(tiny_bert: Model) -> None:
    """One text is of another kind than all others, and no longer."""
    alike = [f"the cat sat on the mat {n}" for n in range(30)]
    odd = hs.analyze(tiny_bert, hs.read([*alike, "un ! ? ! ? ! ? !"]), ["null_share", "distance"])
    even = hs.analyze(tiny_bert, hs.read(alike), ["null_share", "distance"])
    assert "one document is more than half" in odd.significant("distance").caution
    assert "one document is more than half" in odd.compare(even).attrs["caution"]


def test_heads_that_cannot_be_tested_are_counted(tiny_bert: Model) -> None:
    result = hs.analyze(tiny_bert, make_corpus(3), ["null_share"])
    few, n = result.significant("null_share"), result["null_share"].size
    assert (len(few), few.n_tested) == (0, 0)
    assert str(few).splitlines()[-1] == f"Not tested, for too few documents: {n} heads."


def test_the_honest_score_of_bias_has_an_interval() -> None:
    generator = np.random.default_rng(0)
    cases = np.full((12, 2), 4.0)
    right = np.stack([np.full((12, 2), 3.0), generator.integers(0, 3, (12, 2))], 1)[:, None]
    state = xr.Dataset(
        {
            "right": (("bucket", "layer", "head", "condition"), right.astype(float)),
            "cases": (("bucket", "layer", "condition"), cases[:, None]),
            # Not counted by occupation: intervals are over pairs.
            "occupation_right": (
                ("half", "occupation", "layer", "head", "condition"),
                np.zeros((2, 3, 1, 2, 2)),
            ),
            "occupation_cases": (
                ("half", "occupation", "layer", "condition"),
                np.zeros((2, 3, 1, 2)),
            ),
        }
    )
    right[6:, 0, 0, 1] = 1.0  # where the pronoun does not fit, the best head is worse
    state["right"].values[:] = right
    (pro, anti), (of_pro, of_anti) = crossfit_scores(state, np.arange(12))
    assert pro == 0.75  # both halves choose the first head
    assert anti == pytest.approx(right[:, 0, 0, 1].sum() / cases[:, 1].sum())
    expected = interval(ratio_jackknife(right[:, 0, 0, 1], cases[:, 1], "logit"))
    assert of_anti == pytest.approx((float(expected.low), float(expected.high)))
    assert of_pro[0] <= pro <= of_pro[1]


def test_a_list_is_a_table_for_papers() -> None:
    rows = (SignificantHead(3, 4, 0.5, (0.4, 0.6), 0.45, 0.001, 0.01),)
    heads = SignificantHeads("distance above the mean", "Holm over 2 heads", 2, rows)
    columns = ["layer", "head", "value", "low", "high", "typical", "p", "p_adjusted"]
    row = dict(zip(columns, (3, 4, 0.5, 0.4, 0.6, 0.45, 0.001, 0.01), strict=True))
    assert heads.to_dataframe().iloc[0].to_dict() == row
    latex = heads.to_latex()
    assert r"\caption{distance above the mean: 1 of 2 heads (Holm over 2 heads)" in latex
    assert r"L3 H4 & 0.500 & [0.400, 0.600] & 0.450 & 0.01 \\" in latex
    empty = SignificantHeads("t", "none", 2, ())
    assert str(empty) == "t: 0 of 2 heads (none)"
    assert list(empty.to_dataframe().columns)[:2] == ["layer", "head"]
