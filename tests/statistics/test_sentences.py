"""Sentences about several runs, tested like numbers: fixed seeds, made-up documents."""

from __future__ import annotations

import numpy as np
from studies.errors.made_up import (
    N,
    antecedents_of,
    offsets,
    reaches,
    relations,
    runs,
    scores_of,
    shares,
)
from studies.errors.sentences import (
    alike_heads,
    antecedents,
    counted,
    planned,
    probed,
    replicated,
    tied_to_offsets,
    tied_to_rule,
    trained,
    weighted,
)

BOTH = {"null_share": shares(), "distance": reaches()}


def test_findings_that_are_not_there_rarely_hold_on_another_corpus() -> None:
    same = alike_heads(runs(BOTH), "most", 20)
    (false,) = counted(replicated(runs(BOTH), same, "x"), N, 20, 20).values()
    assert np.mean(false) <= 0.1  # of 20 samples
    (found,) = counted(replicated(runs(BOTH), runs(BOTH), "x"), N, 64, 5).values()
    assert np.mean(found) == 1.0


def test_planned_claims_that_are_false_rarely_hold() -> None:
    false = counted(planned(alike_heads(runs(BOTH), "most", 20), "x"), N, 20, 20)
    assert np.mean(false["x"]) <= 0.1
    assert np.mean(false["x, one"]) <= 0.1
    (found, one) = counted(planned(runs(BOTH), "x"), N, 64, 5).values()
    assert np.mean(found) == 1.0
    assert 0.1 < np.mean(one) < 0.9  # half of the heads are above the mean


def test_norms_that_change_nothing_rarely_lower_null_attention() -> None:
    plain = runs({"null_share": shares()})
    normed = runs({"null_share": shares(1, shift=-1.0)}, "norm")
    said = counted(weighted(plain, normed), N, 20, 20)
    assert np.mean(said["norms"]) <= 0.1
    assert np.mean(said["norms, coverage"]) >= 0.9


def test_relations_that_are_not_there_rarely_hold_on_another_corpus() -> None:
    of = runs(relations(np.random.default_rng(0)), relations=("obj",))
    (false,) = counted(replicated(of, tied_to_offsets(of), "x"), N, 20, 20).values()
    assert np.mean(false) <= 0.1
    (found,) = counted(replicated(of, of, "x"), N, 20, 5).values()
    assert np.mean(found) == 1.0


def test_heads_tied_with_a_rule_are_rarely_better() -> None:
    of = runs(antecedents_of(np.random.default_rng(0)))
    (false,) = counted(antecedents(tied_to_rule(of, 0), "nearest"), N, 20, 20).values()
    assert np.mean(false) <= 0.1
    (found,) = counted(antecedents(of, "nearest"), N, 20, 5).values()
    assert np.mean(found) == 1.0


def test_scores_of_trained_probes_hold() -> None:
    (holds,) = counted(probed(scores_of(np.random.default_rng(0))), N, 20, 200).values()
    assert 0.91 <= np.mean(holds) <= 0.985


def test_onsets_hold_and_the_first_head_has_its_set() -> None:
    said = counted(trained(runs({"offset_share": offsets()})), N, 20, 20)
    assert np.mean(said["onsets"]) >= 0.95
    assert np.mean(said["first"]) >= 0.95
    assert np.mean(said["first, before"]) < np.mean(said["first"])
