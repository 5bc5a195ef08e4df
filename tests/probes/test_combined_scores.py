"""Scores of the three probes against loops over the formulas of Clark et al. 2019, section 5."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headscope.errors import UnknownName
from headscope.probes.train_probe import _Reliance, contributions
from headscope.probes.training import (
    NEAR,
    AttentionScorer,
    DistanceScorer,
    ProbeBatch,
    Scorer,
    make_scorer,
)

N_HEADS, N_EDGES, N_DIMENSIONS = 5, 2, 3
LENGTHS = (4, 1, 6)


def random_batch() -> ProbeBatch:
    """Three sentences padded to six words; word 2 of the first has no tokens."""
    generator = torch.Generator().manual_seed(3)
    n = max(LENGTHS)
    attention = torch.rand(3, n, n + 2 * N_EDGES, N_HEADS, generator=generator)
    vectors = torch.randn(3, n, N_DIMENSIONS, generator=generator)
    candidates = torch.zeros(3, n, dtype=torch.bool)
    targets = torch.full((3, n), -1)
    for row, length in enumerate(LENGTHS):
        candidates[row, :length] = True
        attention[row, length:] = attention[row, :, length:n] = 0
        targets[row, :length] = n
    candidates[0, 2] = False
    return ProbeBatch(candidates, targets, attention, vectors)


def with_random_weights(scorer: Scorer) -> Scorer:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return scorer


def slow_attention(p: dict[str, np.ndarray], batch: ProbeBatch, row: int, n: int) -> np.ndarray:
    """score(i, j) = Σ_k (W_k · [v_i; v_j; 1]) a_k[i, j] + (U_k · [v_i; v_j; 1]) a_k[j, i]"""
    assert batch.attention is not None
    assert batch.vectors is not None
    padded = batch.attention.shape[1]
    a, v = batch.attention[row].numpy(), batch.vectors[row].numpy()
    scores = np.full((n, n + 1), -np.inf)
    for j in range(n):
        for i in range(n):
            if i == j or not batch.candidates[row, i]:
                continue
            total = 0.0
            for k in range(N_HEADS):
                w, u = float(p["weights"][0, k]), float(p["weights"][1, k])
                if "word_weights" in p:
                    for d in range(N_DIMENSIONS):
                        w += p["word_weights"][0, 0, d, k] * v[i, d]
                        w += p["word_weights"][0, 1, d, k] * v[j, d]
                        u += p["word_weights"][1, 0, d, k] * v[i, d]
                        u += p["word_weights"][1, 1, d, k] * v[j, d]
                total += w * a[i, j, k] + u * a[j, i, k]
            scores[j, i] = total
        total = float(p["root_bias"])
        for edge in range(2 * N_EDGES):
            for k in range(N_HEADS):
                weight = float(p["root_weights"][edge, k])
                if "root_word_weights" in p:
                    weight += float(p["root_word_weights"][edge, :, k] @ v[j])
                total += weight * a[j, padded + edge, k]
        scores[j, n] = total
    return scores


def slow_distance(p: dict[str, np.ndarray], batch: ProbeBatch, row: int, n: int) -> np.ndarray:
    assert batch.vectors is not None
    v = batch.vectors[row].numpy()
    scores = np.full((n, n + 1), -np.inf)
    for j in range(n):
        for i in [*range(n), n]:
            if i == j or (i < n and not batch.candidates[row, i]):
                continue
            total = 0.0
            for unit in range(len(p["bias"])):
                x = p["bias"][unit] + p["word_weights"][1, :, unit] @ v[j]
                if i == n:
                    x += p["root_vector"][unit]
                else:
                    x += p["word_weights"][0, :, unit] @ v[i]
                    features = [math.log(1 + max(i - j, 0)), math.log(1 + max(j - i, 0))]
                    features += [float(i - j == near) for near in NEAR]
                    x += p["distance_weights"][:, unit] @ np.array(features)
                total += p["out_weights"][unit] * math.tanh(x)
            scores[j, i] = total
    return scores


@pytest.mark.parametrize(
    ("scorer", "slow"),
    [
        (AttentionScorer(N_HEADS, N_EDGES), slow_attention),
        (AttentionScorer(N_HEADS, N_EDGES, N_DIMENSIONS), slow_attention),
        (DistanceScorer(N_DIMENSIONS, n_hidden=7), slow_distance),
    ],
    ids=["attention", "attention+words", "distance+words"],
)
def test_scores_are_the_formula(scorer: Scorer, slow: object) -> None:
    batch = random_batch()
    with_random_weights(scorer)
    parameters = scorer.arrays()
    found = scorer(batch).detach().numpy()
    for row, n in enumerate(LENGTHS):
        expected = slow(parameters, batch, row, n)  # type: ignore[operator]
        own = found[row, :n][:, [*range(n), found.shape[2] - 1]]
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)
        assert np.isneginf(found[row, :n, n : max(LENGTHS)]).all()  # padding is no candidate


def test_attention_is_attention_and_words_without_words() -> None:
    batch = random_batch()
    plain = with_random_weights(AttentionScorer(N_HEADS, N_EDGES))
    worded = AttentionScorer(N_HEADS, N_EDGES, N_DIMENSIONS)
    worded.load(plain.arrays())
    torch.testing.assert_close(plain(batch), worded(batch))


def test_parts_of_heads_add_up_to_the_score() -> None:
    batch = random_batch()
    scorer = with_random_weights(AttentionScorer(N_HEADS, N_EDGES, N_DIMENSIONS))
    assert isinstance(scorer, AttentionScorer)
    n = max(LENGTHS)
    parts = contributions(scorer, batch, 2).sum((0, 3))
    torch.testing.assert_close(parts, scorer.raw(batch)[2, :, :n])


def test_reliance_is_the_spread_over_candidates() -> None:
    batch = random_batch()
    batch.targets[2, 4] = -1  # not counted, yet a candidate
    scorer = with_random_weights(AttentionScorer(N_HEADS, N_EDGES, N_DIMENSIONS))
    assert isinstance(scorer, AttentionScorer)
    found = _Reliance()
    with torch.no_grad():
        found.add(scorer, batch)
        parts = [contributions(scorer, batch, row).numpy() for row in range(3)]
    spreads = []
    for row, n in ((0, 4), (2, 6)):  # one word has no other to choose
        for j in range(n):
            if batch.targets[row, j] >= 0:
                others = [i for i in range(n) if i != j and batch.candidates[row, i]]
                spreads.append(parts[row][:, j, others].std(axis=1))
    assert found.n == len(spreads) == 9
    reliance = found.values()["reliance"][1]
    np.testing.assert_allclose(reliance, np.mean(spreads, axis=0), rtol=1e-4)


def test_rescaled_weights_score_the_inputs_as_they_are() -> None:
    batch = random_batch()
    assert batch.attention is not None
    assert batch.vectors is not None
    n = max(LENGTHS)
    scales = {
        "between": torch.rand(N_HEADS) + 0.5,
        "edges": torch.rand(2 * N_EDGES, N_HEADS) + 0.5,
        "vectors": torch.tensor(3.0),
    }
    divided = batch.attention.clone()
    divided[:, :, :n] /= scales["between"]
    divided[:, :, n:] /= scales["edges"]
    smaller = ProbeBatch(batch.candidates, batch.targets, divided, batch.vectors / 3.0)
    for scorer in (
        AttentionScorer(N_HEADS, N_EDGES),
        AttentionScorer(N_HEADS, N_EDGES, N_DIMENSIONS),
        DistanceScorer(N_DIMENSIONS, n_hidden=7),
    ):
        with_random_weights(scorer)
        before = scorer(smaller).detach()
        scorer.rescale(scales)
        torch.testing.assert_close(scorer(batch).detach(), before, rtol=1e-4, atol=1e-4)


def test_unknown_kind() -> None:
    with pytest.raises(UnknownName, match=r"Unknown kind of probe 'atention'. Did you mean"):
        make_scorer("atention", n_heads=1, n_edges=1, n_dimensions=1)
