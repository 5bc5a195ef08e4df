"""Findings: what numbers bear out is said, in numbers; what they do not is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from headscope.figures.chart_data import ModelResults, ValueText
from headscope.reporting import findings
from headscope.reporting.comparisons import (
    about_changes,
    about_differences,
    about_groups,
    change_table,
    changes_of,
)
from headscope.reporting.findings import about_model, notable_heads
from headscope.reporting.hypothesis_tests import heads_beyond, settled
from headscope.reporting.wording import aside, figure, listed, plain, with_interval
from headscope.results.result import Result
from headscope.run.compare import SAME, compare
from headscope.run.merge import group_result
from headscope.statistics.differences import paired
from headscope.statistics.intervals import p_above
from tests.reporting.made_up import HEADS, LAYERS, MadeUp, by_layer, grouped, result, subject

TESTED = "in total and in most documents, after correction over 24 heads"


def said(of: ModelResults, topic: str) -> str:
    """One paragraph as text."""
    found = dict(about_model(of, 0))
    return " ".join(plain(text) for text in found.get(topic, []))


def test_numbers_in_words() -> None:
    assert plain([with_interval(ValueText(0.431, 0.42, 0.4444), "share of attention")]) == (
        "43.1 % [42.0–44.4]"
    )
    assert plain([with_interval(ValueText(5.444, 5.1, 5.8), "tokens")]) == "5.44 tokens [5.10–5.80]"
    assert with_interval(ValueText(-0.6, -0.7, -0.5)) == "−0.60 [−0.70 to −0.50]"
    assert plain([with_interval(ValueText(0.2), "accuracy")]) == "20.0 %"
    assert with_interval(ValueText(-0.0001, -0.0002, 0.0)) == "0.000 [0.000–0.000]"
    assert plain(listed(["a", "b", "c"])) == "a, b and c"


def test_without_an_interval_nothing_is_above_anything() -> None:
    bare = ValueText(5.0)
    assert not bare.is_above(0)
    assert not bare.is_below(9)
    assert not ValueText(1.0, 0.5, 1.5).is_above(math.nan)


def test_the_opening_says_what_was_read() -> None:
    read = "toy (6 layers of 4 heads, bidirectional) read 12 documents, 345 tokens of toy.conllu."
    assert said(subject({"distance": 1.0}), "") == read
    assert said(subject({"distance": 1.0}, spread=math.nan), "") == (
        f"{read} There are too few documents for intervals and tests: values stand alone."
    )


def test_null_attention_by_layer_only_where_layers_differ() -> None:
    differ = subject({"null_share": by_layer(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)})
    assert said(differ, "Sinks") == (
        "On average over heads, 35.0 % [34.0–36.0] of the attention is null attention, paid to "
        "special tokens; by layer it runs from 10.0 % [9.0–11.0] in layer 0 to 60.0 % [59.0–61.0] "
        "in layer 5; lowest and highest differ after correction over all pairs of layers."
    )
    alike = subject({"null_share": by_layer(*[0.5] * 5, 0.51)}, is_causal=True)
    assert said(alike, "Sinks").endswith("is null attention, paid to the first token.")
    by_rule = subject({"null_share": 0.5}, is_causal=True, settings={"null_keys": "special"})
    assert said(by_rule, "Sinks").endswith("paid to special tokens.")


def test_the_decoder_of_an_encoder_decoder_is_causal() -> None:
    of = result({"null_share": 0.5, "distance": 1.0})
    decoder = ModelResults("toy", (Result({"decoder": of.dataset}, {}, of.provenance, {}, {}),))
    assert "4 heads, causal)" in said(decoder, "")
    assert said(decoder, "Sinks").endswith("paid to the first token.")


BASELINE = {"dep_baseline": ((), 0.1)}


def alignment(either: np.ndarray) -> dict[str, Any]:
    """Alignment whose form `either` is given."""
    return {"dep_alignment": np.stack([either / 2, either / 2, either], -1)}


def test_alignment_names_its_peak_and_how_far_it_is_above_the_baseline() -> None:
    of = subject(alignment(by_layer(0.05, 0.3, 0.2, 0.12, 0.1, 0.05)), extra=BASELINE)
    text = said(of, "Syntax")
    assert (
        "most in layer 1: 30.0 % [29.0–31.0] of it, 3.0 times the 10.0 % that evenly spread "
        "attention would give; 3 of 6 layers are above that baseline (after correction over 6 "
        "layers)." in text
    )
    assert f"12 of 24 heads are above the baseline ({TESTED})." in text


def test_no_alignment_is_claimed_within_the_interval() -> None:
    of = subject(alignment(by_layer(*[0.105] * LAYERS)), extra=BASELINE)
    assert said(of, "Syntax") == (
        "In no layer does clearly more of the attention follow dependencies than the 10.0 % that "
        "evenly spread attention would give (after correction over 6 layers)."
    )


def test_nothing_is_said_of_alignment_without_an_interval() -> None:
    of = subject(alignment(by_layer(*[0.2] * LAYERS)), extra=BASELINE, spread=math.nan)
    assert said(of, "Syntax") == ""


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((1, 2, 3, 4, 5, 6), "Mean distance grows by 1.00 tokens [1.00–1.00] a layer on average"),
        ((6, 5, 4, 3, 2, 1), "Mean distance falls by 1.00 tokens [1.00–1.00] a layer on average"),
        ((1, 3, 2, 4, 6, 5), "Mean distance grows by 0.89 tokens"),
        ((3, 1, 5, 5, 1, 3), "Mean distance runs from 1.00 tokens [0.99–1.01] in layer"),
        ((3, 3, 3, 3, 3, 3), ""),
    ],
)
def test_distance_has_a_trend_only_where_it_is_significant(
    layers: tuple[float, ...], expected: str
) -> None:
    text = said(subject({"distance": by_layer(*layers)}), "Reach")
    assert text.startswith(expected)
    assert bool(text) == bool(expected)


def correlation(r: float, low: float, high: float, within: float) -> dict[str, Any]:
    """What a result has of correlations."""
    return {
        "correlation": ("correlated", [r]),
        "correlation_interval": (("bound", "correlated"), [[low], [high]]),
        "correlation_within": ("correlated", [within]),
        "correlation_within_p": ("correlated", [0.0005]),
        "correlated": ("correlated", ["distance-dep_alignment"]),
    }


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            (-0.7, -0.75, -0.6, -0.5),
            "In this model, heads that look farther align less with syntax: r = −0.70 [−0.75 to "
            "−0.60] over its heads, a description rather than a test; within layers r = −0.50.",
        ),
        (
            (0.4, 0.2, 0.6, math.nan),
            "In this model, heads that look farther align more with syntax: r = 0.40 [0.20–0.60] "
            "over its heads, a description rather than a test.",
        ),
        ((-0.2, -0.4, 0.1, 0.04), ""),  # the interval holds 0
        ((0.1, 0.05, 0.15, 0.04), ""),  # or comes near it
        ((math.nan, math.nan, math.nan, math.nan), ""),
    ],
)
def test_correlations_describe(found: tuple[float, ...], expected: str) -> None:
    of = subject({"null_share": 0.5}, extra=correlation(*found))
    assert said(of, "Reach") == expected


def test_heads_pass_a_threshold_after_correction() -> None:
    shares = np.zeros((LAYERS, HEADS, 3))
    # Alone, 0.5098 would pass: its one-sided p is below 0.03. Among 24 heads it does not.
    shares[2, 1, 0], shares[3, 0, 0], shares[4, 3, 0] = 0.9, 0.52, 0.5098
    of = subject({"offset_share": shares})
    found = heads_beyond(of, "offset_share", 0.5, offset=-1)
    assert [(layer, head) for layer, head, _ in found.passed] == [(2, 1), (3, 0)]
    assert said(of, "Position") == (
        "2 heads pay more than half of their attention to the previous token "
        f"(L2 H1 90.0 % [89.0–91.0] and L3 H0 52.0 % [51.0–53.0]; {TESTED})."
    )
    assert notable_heads(of) == {(2, 1): "mostly to the previous token"}


def test_a_head_that_few_documents_decide_is_in_no_list() -> None:
    """In total it is clearly above 1, but only in 8 of 20 documents."""
    before = grouped({"a": 3.0}, parts=20)
    state = before.states["self"]["distance"]
    state["numerator"][1, :, 2] = 0.9 * state["denominator"][1, :, 2]
    state["numerator"][1, :8, 2] *= 3
    of = ModelResults("toy", (group_result(before, "a"),))
    found = heads_beyond(of, "distance", 1.0)
    jackknife = of.jackknife("distance")
    assert jackknife is not None
    assert p_above(jackknife, 1.0)[1, 2] < 0.01
    assert (1, 2) not in {(layer, head) for layer, head, _ in found.passed}
    assert len(found.passed) == 7
    assert found.correction == "in total and in most documents, after correction over 8 heads"


def test_the_first_of_a_list_is_not_the_best_if_a_higher_head_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In total L1 H2 is far above all others, but only because of 8 of 20 documents."""
    before = grouped({"a": 3.0}, parts=20)
    plain_list = heads_beyond(ModelResults("toy", (group_result(before, "a"),)), "distance", 1.0)
    assert plain_list.n_best >= 1
    state = before.states["self"]["distance"]
    state["numerator"][1, :, 2] = 0.9 * state["denominator"][1, :, 2]
    state["numerator"][1, :8, 2] *= 20
    of = ModelResults("toy", (group_result(before, "a"),))
    found = heads_beyond(of, "distance", 1.0)
    assert found.passed[0][2].value < float(of.results[0]["distance"].max())
    assert found.n_best == 0
    for beyond, start in (
        (plain_list, "The head that does so most is L"),
        (found, "Of heads that"),
    ):
        monkeypatch.setattr(findings, "heads_beyond", lambda *_, beyond=beyond, **__: beyond)
        assert plain(findings._aligned_head(of, 0) or []).startswith(start)


def test_many_heads_are_counted_not_listed() -> None:
    shares = np.zeros((LAYERS, HEADS, 3))
    shares[0, :, 2] = shares[1, 0, 2] = 0.8
    text = said(subject({"offset_share": shares}), "Position")
    assert text.startswith("5 heads pay more than half of their attention to the next token (")
    assert text.endswith(
        "and 2 more; in total and in most documents, after correction over 24 heads)."
    )


def test_the_most_positional_head() -> None:
    values = np.full((LAYERS, HEADS), 0.4)
    values[5, 2] = 0.05
    assert "least on the text is L5 H2: 5.0 % [4.0–6.0]" in said(
        subject({"variability": values}), "Position"
    )
    assert said(subject({"variability": 0.4}), "Position") == ""


def test_tags_sinks_and_breadth() -> None:
    tags = np.full((LAYERS, HEADS, 2), 0.2)
    tags[0, 0, 1] = 0.6
    of = subject(
        {"pos_to": tags, "sink_rate": by_layer(1, 1, 0.5, 0.5, 0.5, 0.5), "row_entropy": 2.0},
        extra={"uniform_entropy": ((), 2.2)},
    )
    assert said(of, "Parts of speech").startswith(
        "For 1 of 2 tags there is a head that pays the tag"
    )
    rest = said(of, "Sinks")
    assert "In 8 of 24 heads the first token is an attention sink" in rest
    assert "24 heads have more than 80 % of the entropy" in rest


def test_induction_is_a_matter_of_causal_models() -> None:
    values = np.zeros((LAYERS, HEADS))
    values[3, 3] = 0.7
    assert said(subject({"induction": values}), "Position") == ""
    assert said(subject({"induction": values}, is_causal=True), "Position") == (
        "One head pays more than half of the attention of repeated tokens to what followed them "
        f"before, as induction heads do (L3 H3 70.0 % [69.0–71.0]; {TESTED})."
    )


def gradients(all_keys: float, first: float, spread: float) -> Result:
    """A result of `importance`."""
    means = np.array([first, all_keys])
    values = np.broadcast_to(means, (LAYERS, HEADS, 2))
    extra: dict[str, Any] = {"gradient_class": ("gradient_class", ["first", "all"])}
    for name, array, dims in (
        ("importance", values, ("layer", "head", "gradient_class")),
        ("importance_mean", means, ("gradient_class",)),
    ):
        extra[name] = (dims, array)
        extra[f"{name}_interval"] = (("bound", *dims), np.stack((array - spread, array + spread)))
    return result({}, corpus="segments", extra=extra)


def test_gradients_are_compared_with_all_keys() -> None:
    of = MadeUp("toy", (result({"distance": 1.0}), gradients(0.002, 0.001, 0.0001)))
    assert said(of, "Does it matter") == (
        "The loss on segments does not depend on attention to all keys alike: in percent of its "
        "mean over all keys, the gradient |∂L/∂a| is 50 % at the first token (after correction "
        "over classes of keys)."
    )
    vague = MadeUp("toy", (result({"distance": 1.0}), gradients(0.002, 0.001, 0.02)))
    assert said(vague, "Gradients") == ""


def test_differences_are_said_after_correction_over_measures() -> None:
    subjects = [subject({"null_share": 0.4}, model="a"), subject({"null_share": 0.5}, model="b")]
    differences = xr.Dataset(
        {
            "null_share_mean": ((), -0.1),
            "null_share_mean_interval": ("bound", [-0.12, -0.08]),
            "null_share_mean_p": ((), 0.001),
            "distance_mean": ((), 0.5),
            "distance_mean_interval": ("bound", [0.01, 1.0]),
            "distance_mean_p": ((), 0.046),
            "entropy_mean": ((), 0.5),
            "entropy_mean_interval": ("bound", [0.01, 1.0]),
            "entropy_mean_p": ((), 0.046),
        },
        attrs={"comparison": SAME},
    )
    (text,) = about_differences(subjects, [(0, 1, differences)])
    assert plain(text) == (
        "Compared with b, a has null attention lower by 10.0 points [8.0–12.0] (means over heads, "
        "paired, after correction over 3 measures)."
    )
    nothing = differences.drop_vars("null_share_mean_p")
    assert about_differences(subjects, [(0, 1, nothing)]) == []


def test_groups_are_told_apart_by_shuffling_documents() -> None:
    of = grouped({"news": 4.0, "fiction": 2.0, "talk": 3.0})
    (text,) = about_groups([ModelResults("toy", (of,))])
    assert plain(text).startswith("In toy, kinds of text differ in mean distance (such as ")
    assert "in fiction and" in plain(text)
    assert plain(text).endswith(
        "in news) (documents shuffled between kinds, after correction over one measure)."
    )
    alike = grouped({"news": 3.0, "fiction": 3.0, "talk": 3.0})
    (text,) = about_groups([ModelResults("toy", (alike,))])
    assert plain(text).startswith("In toy, kinds of text do not clearly differ (")


def test_what_changed_names_heads_measures_and_how_much() -> None:
    before, after = (grouped({"a": 3.0}, parts=20) for _ in range(2))
    state = after.states["self"]["distance"]
    state["numerator"][1, :, 2] += 0.5 * state["denominator"][1, :, 2]
    after = group_result(after, "a")
    subjects = [ModelResults(title, (of,)) for title, of in (("old", before), ("new", after))]
    differences = [(0, 1, compare(before, after))]
    (text,) = about_changes(subjects, differences)
    value = float(before["distance"].sel(layer=1, head=2))
    assert plain(text) == (
        f"From old to new, mean distance changed in one head of 8, such as L1 H2: from {value:.2f} "
        f"tokens to {value + 0.5:.2f} tokens, by 0.50 tokens [0.50–0.50] (the same documents, "
        "paired, in total and in most documents; after correction over 8 heads for each measure)."
    )
    (same,) = about_changes(subjects, [(0, 1, compare(before, before))])
    assert "no head clearly changed in any measure" in plain(same)


def test_a_change_that_few_documents_decide_is_not_said() -> None:
    """One head changed in all documents, another by more in 8 of 20 alone."""
    before, after = (grouped({"a": 3.0}, parts=20) for _ in range(2))
    state = after.states["self"]["distance"]
    changes = np.zeros((20, 2))
    changes[:, 1] = np.random.default_rng(0).normal(0.25, 0.02, 20)
    changes[:8, 0] = 1.0
    for at, change in zip((2, 3), changes.T, strict=True):
        state["numerator"][1, :, at] += change * state["denominator"][1, :, at]
    after = group_result(after, "a")
    subjects = [ModelResults(title, (of,)) for title, of in (("old", before), ("new", after))]
    differences = [(0, 1, compare(before, after))]
    sides = [of.jackknife("distance") for of in subjects]
    assert sides[0] is not None
    assert sides[1] is not None
    assert paired(sides[0], sides[1]).p[1, 2] < 0.01
    (changed,) = changes_of(subjects, *differences[0])
    assert [(change.layer, change.head) for change in changed.heads] == [(1, 3)]
    (text,) = about_changes(subjects, differences)
    assert "mean distance changed in one head of 8, such as L1 H3" in plain(text)
    table = change_table(subjects, differences)
    assert table is not None
    assert len(table["rows"]) == 1


def test_claims_are_corrected_over_the_whole_report() -> None:
    sentences = [
        ["Sure", aside(" (tested)", 0.001), figure("a"), "."],
        [
            "Not so sure",
            aside(" (tested)", 0.02),
            " and more",
            aside(" (too)", 0.03),
            figure("b"),
            ".",
        ],
        ["Heads are listed."],
    ]
    *written, (_, title, [(_, [last])]) = settled([(0, "toy", [("Sinks", sentences)])])
    assert [plain(text) for text in written[0][2][0][1]] == [
        "Sure (tested).",
        "Not so sure (tested) and more (too).",
        "Heads are listed.",
    ]
    assert title == "How sure"
    assert plain(last).startswith("2 of 2 claims of this report hold")
    sentences.insert(0, ["Weak", aside(" (tested)", 0.04), "."])  # 0.03 × 2 and 0.04 are too much
    *written, (_, _, [(_, [last])]) = settled([(0, "toy", [("Sinks", sentences)])])
    weak, sure, other, _ = (plain(text) for text in written[0][2][0][1])
    assert plain(last).startswith("1 of 3 claims of this report hold")
    assert sure == "Sure (tested)."
    for text in (weak, other):
        assert text.endswith("does not hold after correction over all claims of this report.")
    assert sentences[2][-2] == {"figure": "b"}
    assert settled([(0, "toy", [("Sinks", [["Nothing is claimed."]])])])[-1][1] == "toy"


def test_what_could_not_be_tested_is_not_called_unchanged() -> None:
    before, after = (grouped({"a": of}, parts=3) for of in (3.0, 9.0))
    subjects = [ModelResults(title, (of,)) for title, of in (("old", before), ("new", after))]
    assert about_changes(subjects, [(0, 1, compare(before, after))]) == []
    assert about_groups([ModelResults("toy", (grouped({"a": 1.0, "b": 9.0}, parts=1),))]) == []


def test_changes_are_corrected_over_the_heads_that_are_counted() -> None:
    """Not over the other forms of alignment too: 16 clear differences would lend to 8 others."""
    p = np.full((2, 4, 3), 1e-6)
    p[..., 2] = 0.03 + 0.1 * np.arange(8).reshape(2, 4)
    names = ["query", "key", "either"]
    coords = {"layer": [0, 1], "head": range(4), "parent": names}
    dims = ("layer", "head", "parent")
    data = xr.Dataset(
        {
            "dep_alignment": (dims, np.full(p.shape, 0.1)),
            "dep_alignment_interval": (("bound", *dims), np.full((2, *p.shape), 0.1)),
            "dep_alignment_p": (dims, p),
        },
        coords,
        {"comparison": SAME},
    )
    subjects = [subject({"dep_alignment": 0.4}, model=name) for name in "ab"]
    (changed,) = changes_of(subjects, 0, 1, data)
    assert changed.n_tested == 8
    assert changed.heads == ()


def test_nothing_measured_is_nothing_said() -> None:
    values = {"null_share": np.nan, "distance": np.nan, "offset_share": np.nan, "pos_to": np.nan}
    paragraphs = about_model(subject(values, spread=math.nan), 0)
    assert [topic for topic, _ in paragraphs] == [""]
