"""Findings: what numbers bear out is said, in numbers; what they do not is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from headscope.reporting.findings import about_model, heads_beyond, notable_heads
from headscope.reporting.findings_more import about_differences, about_groups
from headscope.reporting.subjects import Subject
from headscope.reporting.wording import Measured, listed, plain, with_interval
from headscope.results.result import Result
from tests.report.made_up import HEADS, LAYERS, by_layer, result, subject


def said(of: Subject, topic: str) -> str:
    """One paragraph as text."""
    found = dict(about_model(of, 0))
    return " ".join(plain(text) for text in found.get(topic, []))


def test_numbers_in_words() -> None:
    assert plain([with_interval(Measured(0.431, 0.42, 0.4444), "share of attention")]) == (
        "43.1 % [42.0–44.4]"
    )
    assert plain([with_interval(Measured(5.444, 5.1, 5.8), "tokens")]) == "5.44 tokens [5.10–5.80]"
    assert with_interval(Measured(-0.6, -0.7, -0.5)) == "−0.60 [−0.70 to −0.50]"
    assert plain([with_interval(Measured(0.2), "accuracy")]) == "20.0 %"
    assert with_interval(Measured(-0.0001, -0.0002, 0.0)) == "0.000 [0.000–0.000]"
    assert plain(listed(["a", "b", "c"])) == "a, b and c"


def test_without_an_interval_nothing_is_above_anything() -> None:
    bare = Measured(5.0)
    assert not bare.is_above(0)
    assert not bare.is_below(9)
    assert not bare.is_apart(Measured(0.0, -1, 1))
    assert not Measured(1.0, 0.5, 1.5).is_above(math.nan)


def test_the_opening_says_what_was_read() -> None:
    assert said(subject({"distance": 1.0}), "") == (
        "toy (6 layers of 4 heads, bidirectional) read 12 documents, 345 tokens of toy.conllu. "
        "With so few documents, intervals are too narrow to rely on."
    )


def test_null_attention_by_layer_only_where_layers_differ() -> None:
    differ = subject({"null_share": by_layer(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)})
    assert said(differ, "Rest") == (
        "On average over heads, 35.0 % [34.0–36.0] of the attention is null attention, paid to "
        "special tokens; by layer it runs from 10.0 % [9.0–11.0] in layer 0 to 60.0 % [59.0–61.0] "
        "in layer 5."
    )
    alike = subject({"null_share": by_layer(*[0.5] * 5, 0.51)}, is_causal=True)
    assert said(alike, "Rest").endswith("is null attention, paid to the first token.")
    by_rule = subject({"null_share": 0.5}, is_causal=True, settings={"null_keys": "special"})
    assert said(by_rule, "Rest").endswith("paid to special tokens.")


def test_the_decoder_of_an_encoder_decoder_is_causal() -> None:
    of = result({"null_share": 0.5, "distance": 1.0})
    decoder = Subject("toy", (Result({"decoder": of.dataset}, {}, of.provenance, {}, {}),))
    assert "4 heads, causal)" in said(decoder, "")
    assert said(decoder, "Rest").endswith("paid to the first token.")


BASELINE = {"dep_baseline": ((), 0.1)}


def alignment(either: np.ndarray) -> dict[str, Any]:
    """Alignment whose form `either` is given."""
    return {"dep_alignment": np.stack([either / 2, either / 2, either], -1)}


def test_alignment_names_its_peak_and_how_far_it_is_above_the_baseline() -> None:
    of = subject(alignment(by_layer(0.05, 0.3, 0.2, 0.12, 0.1, 0.05)), extra=BASELINE)
    text = said(of, "Syntax")
    assert (
        "most in layer 1: 30.0 % [29.0–31.0] of it, 3.0 times the 10.0 % that evenly spread "
        "attention would give; 3 of 6 layers are above that baseline." in text
    )
    assert "12 of 24 heads are above the baseline" in text


def test_no_alignment_is_claimed_within_the_interval() -> None:
    of = subject(alignment(by_layer(*[0.105] * LAYERS)), extra=BASELINE)
    assert said(of, "Syntax") == (
        "In no layer does clearly more of the attention follow dependencies than the 10.0 % that "
        "evenly spread attention would give."
    )


def test_nothing_is_said_of_alignment_without_an_interval() -> None:
    of = subject(alignment(by_layer(*[0.2] * LAYERS)), extra=BASELINE, spread=math.nan)
    assert said(of, "Syntax") == ""


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((1, 2, 3, 4, 5, 6), "Mean distance grows with the layer (Spearman's ρ = 1.00 over 6"),
        ((6, 5, 4, 3, 2, 1), "Mean distance falls with the layer (Spearman's ρ = −1.00 over 6"),
        ((1, 3, 2, 4, 6, 5), "Mean distance grows"),
        # ρ = 0.829: the usual p is 0.042, the exact one 0.058.
        ((2, 1, 4, 3, 6, 5), "Mean distance runs from 1.00 tokens"),
        ((3, 1, 4, 2, 6, 3), "Mean distance runs from 1.00 tokens [0.99–1.01] in layer 1 to"),
        ((3, 3, 3, 3, 3, 3), ""),
    ],
)
def test_distance_has_a_trend_only_where_it_is_significant(
    layers: tuple[float, ...], expected: str
) -> None:
    text = said(subject({"distance": by_layer(*layers)}), "Reach")
    assert text.startswith(expected)
    assert bool(text) == bool(expected)


def correlation(r: float, low: float, high: float, p: float) -> dict[str, Any]:
    """What a result has of correlations."""
    return {
        "correlation": ("correlated", [r]),
        "correlation_p": ("correlated", [p]),
        "correlation_interval": (("bound", "correlated"), [[low], [high]]),
        "correlated": ("correlated", ["distance-dep_alignment"]),
    }


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            (-0.7, -0.75, -0.6, 0.0001),
            "Heads that look farther align less with syntax: r = −0.70 [−0.75 to −0.60], "
            "p < 0.001.",
        ),
        (
            (0.4, 0.2, 0.6, 0.031),
            "Heads that look farther align more with syntax: r = 0.40 [0.20–0.60], p = 0.031.",
        ),
        ((-0.2, -0.4, 0.1, 0.04), ""),  # the interval holds 0
        ((-0.2, -0.3, -0.1, 0.2), ""),  # the heads are too few
        ((math.nan, math.nan, math.nan, math.nan), ""),
    ],
)
def test_correlations_need_both_tests(found: tuple[float, ...], expected: str) -> None:
    of = subject({"null_share": 0.5}, extra=correlation(*found))
    assert said(of, "Reach") == expected


def test_heads_pass_a_threshold_with_their_whole_interval() -> None:
    shares = np.zeros((LAYERS, HEADS, 3))
    shares[2, 1, 0], shares[3, 0, 0], shares[4, 3, 0] = 0.9, 0.52, 0.505
    of = subject({"offset_share": shares})
    found = heads_beyond(of, "offset_share", 0.5, offset=-1)
    assert [(layer, head) for layer, head, _ in found] == [(2, 1), (3, 0)]
    assert said(of, "Position") == (
        "2 heads pay more than half of their attention to the previous token "
        "(L2 H1 90.0 % [89.0–91.0] and L3 H0 52.0 % [51.0–53.0])."
    )
    assert notable_heads(of) == {(2, 1): "most to the previous token"}


def test_many_heads_are_counted_not_listed() -> None:
    shares = np.zeros((LAYERS, HEADS, 3))
    shares[0, :, 2] = shares[1, 0, 2] = 0.8
    text = said(subject({"offset_share": shares}), "Position")
    assert text.startswith("5 heads pay more than half of their attention to the next token (")
    assert text.endswith("and 2 more).")


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
    assert said(of, "Parts of speech").startswith("For 1 of 2 tags there is a head that pays it")
    rest = said(of, "Rest")
    assert "In 8 of 24 heads the first token is an attention sink" in rest
    assert "24 heads attend broadly, with more than 80 % of the entropy" in rest


def test_induction_is_a_matter_of_causal_models() -> None:
    values = np.zeros((LAYERS, HEADS))
    values[3, 3] = 0.7
    assert said(subject({"induction": values}), "Position") == ""
    assert said(subject({"induction": values}, is_causal=True), "Position") == (
        "One head pays more than half of the attention of repeated tokens to what followed them "
        "before, as induction heads do (L3 H3 70.0 % [69.0–71.0])."
    )


def gradients(all_keys: float, first: float, spread: float) -> Result:
    """A result of `importance`, its means alone."""
    values = np.array([first, all_keys])
    return result(
        {},
        corpus="segments",
        extra={
            "importance_mean": ("gradient_class", values),
            "importance_mean_interval": (
                ("bound", "gradient_class"),
                np.stack((values - spread, values + spread)),
            ),
            "gradient_class": ("gradient_class", ["first", "all"]),
        },
    )


def test_gradients_are_compared_with_all_keys() -> None:
    of = Subject("toy", (result({"distance": 1.0}), gradients(0.002, 0.001, 0.0001)))
    assert said(of, "Gradients") == (
        "The loss on segments does not depend on attention to all keys alike: in percent of its "
        "mean over all keys, the gradient |∂L/∂a| is 50 % at the first token."
    )
    vague = Subject("toy", (result({"distance": 1.0}), gradients(0.002, 0.001, 0.001)))
    assert said(vague, "Gradients") == ""


def test_differences_are_said_where_their_interval_leaves_out_zero() -> None:
    subjects = [subject({"null_share": 0.4}, model="a"), subject({"null_share": 0.5}, model="b")]
    differences = xr.Dataset(
        {
            "null_share_mean": ((), -0.1),
            "null_share_mean_interval": ("bound", [-0.12, -0.08]),
            "distance_mean": ((), 0.5),
            "distance_mean_interval": ("bound", [-0.1, 1.1]),
        }
    )
    (text,) = about_differences(subjects, [(0, 1, differences)])
    assert plain(text) == (
        "Compared with b, a has null attention lower by 10.0 points [8.0–12.0] (means over heads)."
    )
    nothing = differences.drop_vars(["null_share_mean", "null_share_mean_interval"])
    assert about_differences(subjects, [(0, 1, nothing)]) == []


def test_groups_are_told_apart_by_their_extremes() -> None:
    of = result({"distance": 3.0})
    groups = {
        name: result({"distance": value}).blocks
        for name, value in (("news", 4.0), ("fiction", 2.0), ("talk", 3.0))
    }
    grouped = Subject("toy", (Result(of.blocks, {}, of.provenance, {}, groups),))
    (text,) = about_groups([grouped])
    assert plain(text) == (
        "In toy, kinds of text differ: mean distance from 2.00 tokens [1.99–2.01] in fiction to "
        "4.00 tokens [3.99–4.01] in news."
    )


def test_nothing_measured_is_nothing_said() -> None:
    values = {"null_share": np.nan, "distance": np.nan, "offset_share": np.nan, "pos_to": np.nan}
    paragraphs = about_model(subject(values, spread=math.nan), 0)
    assert [topic for topic, _ in paragraphs] == [""]
