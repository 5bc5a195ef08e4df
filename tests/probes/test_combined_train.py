"""Training where the answer is known, intervals and baselines counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import special, stats

from headscope.errors import HeadscopeWarning
from headscope.probes.train_probe import _warn_if_unfinished, attachment, evaluate
from headscope.probes.training import (
    AttentionScorer,
    DistanceScorer,
    Epoch,
    Scorer,
    TrainingOptions,
    TreebankExamples,
    epochs_for,
    fit,
    make_batch,
)

HEADS = 3


@dataclass
class Given:
    """A source of attention made up beforehand."""

    tables: list[np.ndarray]

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        return [self.tables[number] for number in numbers]


def random_tree(n: int, generator: np.random.Generator) -> np.ndarray:
    """Heads of n words; n is ROOT."""
    order = generator.permutation(n)
    heads = np.full(n, n)
    for place in range(1, n):
        heads[order[place]] = order[generator.integers(place)]
    return heads


def world(n_sentences: int, *, informed: bool, seed: int = 0) -> TreebankExamples:
    """Head 1 attends to the parent, the root word to the first edge; the others are noise."""
    generator = np.random.default_rng(seed)
    targets, tables = [], []
    for _ in range(n_sentences):
        n = int(generator.integers(1, 9))
        heads = random_tree(n, generator)
        table = generator.dirichlet(np.ones(n + 4), size=(n, HEADS)).transpose(0, 2, 1)
        if informed:
            table[:, :, 1] = 0
            table[np.arange(n), heads, 1] = 1  # column n is the first edge
        targets.append(heads)
        tables.append(table.astype(np.float32))
    lengths = np.array([len(t) for t in targets])
    candidates = [np.ones(n, dtype=bool) for n in lengths]
    return TreebankExamples(lengths, candidates, targets, None, None, Given(tables))


def uas(scorer: Scorer, examples: TreebankExamples) -> float:
    none = [np.zeros(n, dtype=bool) for n in examples.lengths]
    found = evaluate(scorer, examples, none, [str(i) for i in range(len(examples))])
    return float(found["uas"].sel(decoding="greedy", punctuation="with"))


OPTIONS = TrainingOptions(epochs=8, step=0.05, pairs=256)


def test_a_head_that_attends_to_the_parent_is_found() -> None:
    scorer = AttentionScorer(HEADS, 2)
    log = fit(scorer, world(150, informed=True), OPTIONS, seed=0)
    unseen = world(40, informed=True, seed=1)
    assert uas(scorer, unseen) == 1.0
    assert log[-1].loss < log[0].loss
    none = [np.zeros(n, dtype=bool) for n in unseen.lengths]
    reliance = evaluate(scorer, unseen, none, ["a"] * 40)["reliance"].values
    assert reliance[1, 1] == reliance.max()  # it is the dependent that attends
    assert reliance[:, [0, 2]].max() < 0.05 * reliance[1, 1]


def test_noise_teaches_nothing() -> None:
    scorer = AttentionScorer(HEADS, 2)
    fit(scorer, world(150, informed=False), OPTIONS, seed=0)
    assert uas(scorer, world(60, informed=False, seed=1)) < 0.45


def test_words_without_tokens_are_neither_heads_nor_counted() -> None:
    examples = world(30, informed=True)
    for number, n in enumerate(examples.lengths):
        if n > 2:
            examples.candidates[number][0] = False
            examples.targets[number][0] = -1
    scorer = AttentionScorer(HEADS, 2)
    fit(scorer, examples, OPTIONS, seed=0)
    batch = make_batch(examples, [int(examples.lengths.argmax())])
    scores = scorer(batch)
    assert torch.isneginf(scores[0, :, 0]).all()
    none = [np.zeros(n, dtype=bool) for n in examples.lengths]
    found = evaluate(scorer, examples, none, ["a"] * 30)
    assert int(found["words"].sel(punctuation="with")) == sum(
        int((t >= 0).sum()) for t in examples.targets
    )
    children_of_it = sum(int((t == 0).sum()) for t in examples.targets if len(t) > 2)
    # a head without tokens cannot be found: everything else is
    expected = 1 - children_of_it / int(found["words"].sel(punctuation="with"))
    assert children_of_it > 0
    assert uas(scorer, examples) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["attention", "distance"])
def test_the_same_seed_gives_the_same_bits(kind: str) -> None:
    def trained(seed: int) -> dict[str, np.ndarray]:
        torch.manual_seed(0)
        scorer = AttentionScorer(HEADS, 2) if kind == "attention" else DistanceScorer(2, 8)
        examples = world(40, informed=True)
        if kind == "distance":
            rows = [np.arange(n) for n in examples.lengths]
            vectors = torch.randn(9, 2)
            examples = TreebankExamples(
                examples.lengths, examples.candidates, examples.targets, rows, vectors, None
            )
        fit(scorer, examples, TrainingOptions(epochs=2, step=0.01, pairs=128), seed=seed)
        return scorer.arrays()

    first, again, other = trained(0), trained(0), trained(1)
    for name, array in first.items():
        assert array.tobytes() == again[name].tobytes()
    assert any((array != other[name]).any() for name, array in first.items())


def test_attachment_by_hand() -> None:
    # two texts; sentences of 4, 2 and 2 words, one of the first is punctuation
    right = np.array([[[3, 3], [2, 2]], [[0, 0], [2, 2]], [[1, 1], [0, 0]]])
    baseline = np.array([[1, 2], [0, 0], [1, 1]])
    counts = np.array([[3, 4], [2, 2], [2, 2]])
    found = attachment(right, baseline, counts, ["a", "a", "b"])
    by = {"decoding": "greedy"}
    assert float(found["uas"].sel(punctuation="without", **by)) == pytest.approx(4 / 7)
    assert float(found["uas"].sel(punctuation="with", **by)) == pytest.approx(4 / 8)
    assert float(found["uas"].sel(punctuation="with", decoding="tree")) == pytest.approx(4 / 8)
    assert found["right_branching"].values == pytest.approx([2 / 7, 3 / 8])
    assert np.isnan(found["uas_interval"].values).all()  # two texts say nothing of others
    assert found["text"].values.tolist() == [0, 0, 1]


def test_the_interval_of_uas_is_over_texts() -> None:
    generator = np.random.default_rng(0)
    counts = np.full((30, 2), 10)
    right = generator.integers(0, 11, (30, 2, 2))
    texts = [f"text {n % 10}" for n in range(30)]
    found = attachment(right, right[:, 0], counts, texts)
    by_text = [right[n::10, 0, 0].sum() / 30 for n in range(10)]
    # Equal texts: the jackknife's error is that of a mean, on the scale of log odds.
    p, error = np.mean(by_text), stats.sem(by_text)
    half = stats.t.ppf(0.975, 9) * error / (p * (1 - p))
    expected = special.expit(special.logit(p) + np.array([-half, half]))
    bounds = found["uas_interval"].sel(decoding="greedy", punctuation="without").values
    assert bounds == pytest.approx(expected)
    assert float(found["uas_n_eff"][0, 0]) == pytest.approx(10)


def test_small_treebanks_are_seen_more_often() -> None:
    assert [epochs_for(n) for n in (1, 400, 1000, 1770, 4000, 50_000)] == [40, 40, 20, 12, 5, 5]


def test_a_loss_that_still_falls_is_warned_of() -> None:
    falling = [Epoch(loss, 0.5, 1.0) for loss in (2.0, 1.5, 1.2)]
    with pytest.warns(HeadscopeWarning, match=r"in the last of 3 epochs its loss still fell by 20"):
        _warn_if_unfinished(falling)
    _warn_if_unfinished([Epoch(loss, 0.5, 1.0) for loss in (2.0, 1.5, 1.495)])
    _warn_if_unfinished(falling[:1])  # one epoch tells nothing
