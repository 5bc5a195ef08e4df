"""Jensen-Shannon divergence of all pairs of heads, compiled and not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.heads.baseline import js_2019
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.metrics.divergence import JensenShannon, compiled, js_sums, js_sums_blocked
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits

if TYPE_CHECKING:
    from headscope.model.model import Model

Kernel = Callable[..., np.ndarray]


@pytest.fixture(params=["numba", "numpy"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    if request.param == "numpy":
        return js_sums_blocked
    found = compiled()
    if found is None:
        pytest.skip("numba is not installed")
    return found


def rows(heads: int, n: int, *, is_causal: bool, seed: int = 0, scale: float = 3) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(0, scale, (heads, n, n))
    if is_causal:
        scores[:, ~np.tril(np.ones((n, n), dtype=bool))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def slow(attention: np.ndarray) -> np.ndarray:
    """Loops over the definition: ½ KL(p‖m) + ½ KL(q‖m)."""
    n_heads, n, _ = attention.shape
    sums = np.zeros((n_heads, n_heads))
    for a in range(n_heads):
        for b in range(n_heads):
            for i in range(n):
                for p, q in zip(attention[a, i], attention[b, i], strict=True):
                    m = (p + q) / 2
                    sums[a, b] += p * math.log(p / m) / 2 if p > 0 else 0
                    sums[a, b] += q * math.log(q / m) / 2 if q > 0 else 0
    return sums


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33])
@pytest.mark.parametrize("heads", [1, 2, 5, 6])
def test_equals_the_definition(kernel: Kernel, heads: int, n: int, is_causal: bool) -> None:
    attention = rows(heads, n, is_causal=is_causal)
    found = kernel(attention.astype(np.float32), is_causal=is_causal)
    np.testing.assert_allclose(found / n, slow(attention) / n, atol=1e-6)


def test_by_hand(kernel: Kernel) -> None:
    # One query; both on one key, both on another, one even.
    attention = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]], [[1.0, 0.0]]])
    found = kernel(attention, is_causal=False)
    half = 0.5 * math.log(1 / 0.75) + 0.25 * math.log(0.5 / 0.75) + 0.25 * math.log(0.5 / 0.25)
    assert found[0, 1] == pytest.approx(math.log(2), abs=1e-6)  # nothing in common
    assert found[0, 2] == pytest.approx(half, abs=1e-6)
    assert found[0, 3] == pytest.approx(0, abs=1e-7)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(1, 20), st.floats(0.1, 30))
def test_is_symmetric_and_bounded(seed: int, heads: int, n: int, scale: float) -> None:
    attention = rows(heads, n, is_causal=False, seed=seed, scale=scale)
    attention[-1] = attention[0]
    found = js_sums(attention, is_causal=False) / n
    np.testing.assert_array_equal(found, found.T)
    assert (np.diag(found) == 0).all()
    assert found.min() >= 0
    assert found.max() <= math.log(2) + 1e-6
    assert found[0, -1] == pytest.approx(0, abs=1e-6)


def test_the_script_of_2019_agrees_but_for_its_smoothing() -> None:
    attention = rows(6, 24, is_causal=False).astype(np.float32)
    ours = js_sums(attention, is_causal=False) / 24
    theirs = js_2019(attention) / 24
    assert np.abs(ours - theirs).max() < 0.01
    smoothed = 0.001 / 24 + attention * 0.999
    np.testing.assert_allclose(js_sums(smoothed, is_causal=False) / 24, theirs, atol=1e-5)


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_llama"])
def test_over_a_corpus(name: str, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(name)
    corpus = make_corpus(9)
    result = analyze(model, corpus, ["js", "row_entropy"], batch_tokens=48)
    expected, tokens = 0.0, 0
    for document in corpus:
        attention = model.trace(document.text, vectors=False).attention.values
        layers, heads, n, _ = attention.shape
        expected = expected + slow(attention.reshape(layers * heads, n, n).astype(np.float64))
        tokens += n
    found = result["js"].values.reshape(layers * heads, layers * heads)
    np.testing.assert_allclose(found, expected / tokens, atol=1e-5)
    assert int(result["js_count"]) == tokens
    assert "js" not in analyze(model, make_corpus(2))  # costs more than a pass: by name only


def test_a_thousand_heads() -> None:
    import torch
    import transformers

    import headscope as hs
    from tests.conftest import word_piece_tokenizer

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=64,
        num_hidden_layers=32,
        num_attention_heads=32,
        intermediate_size=8,
        initializer_range=1.0,
    )
    model = hs.load(transformers.BertModel(config).eval(), word_piece_tokenizer())
    text = "the cat sat on the mat"
    found = analyze(model, [text], "js")["js"].values.reshape(1024, 1024)
    attention = model.trace(text, vectors=False).attention.values.reshape(1024, 8, 8)
    for pair in np.random.default_rng(0).integers(0, 1024, (60, 2)):
        expected = slow(attention[pair].astype(np.float64))[0, 1] / 8
        assert found[tuple(pair)] == pytest.approx(expected, abs=1e-5)
    assert found.max() > 0.1


def test_saved_merged_and_resumed(tiny_bert: Model, tmp_path: Path) -> None:
    from headscope.results.files import open as open_file
    from headscope.run.merge import merge

    left = analyze(tiny_bert, make_corpus(6), "js", out=tmp_path / "a")
    right = analyze(tiny_bert, make_corpus(5, seed=1, first=6), "js")
    assert_same_bits(open_file(tmp_path / "a" / "result.nc"), left)
    both = merge(left, right)
    counts = [int(r["js_count"]) for r in (left, right)]
    expected = (left["js"] * counts[0] + right["js"] * counts[1]) / sum(counts)
    np.testing.assert_allclose(both["js"], expected, atol=1e-12)


def test_layers_with_fewer_heads_are_filled_with_nan() -> None:
    import torch

    from headscope.attention import Attention
    from headscope.metrics.core.layer_data import LayerData
    from tests.metrics.worlds import make_batch, make_cases

    cases = make_cases(1, 3, is_causal=True)
    batch = make_batch(cases)
    n = batch.stacks["self"].mask.shape[1]
    layers = [
        LayerData(Attention(torch.full((3, heads, n, n), 1 / n), "self", layer, False), batch)
        for layer, heads in ((1, 3), (0, 2))
    ]
    metric = JensenShannon()
    found = metric.finalize(metric.measure(layers), batch.axes)["js"]
    assert found.shape == (2, 3, 2, 3)
    assert np.isnan(found[0, 2]).all()
    assert np.isfinite(found[1]).sum() == 3 * 5
