"""Digests: the same numbers layer by layer or all at once, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import headscope as hs
from headscope.attention import Attention
from headscope.batch import Axes, Batch, Sequences
from headscope.errors import MetricError, MissingExtra, ModelError, RunMismatch
from headscope.metrics import METRICS
from headscope.metrics.core import layer_data as kernels
from headscope.metrics.core import registry
from headscope.metrics.core.accumulator import Accumulator, measure_layer
from headscope.metrics.core.contract import Metric, RatioMetric
from headscope.metrics.core.layer_data import LayerData, read_reductions
from headscope.metrics.core.regions import (
    everything,
    log_sums,
    masses,
    peaks,
    region_of,
    squares,
    whole_log_sums,
    whole_masses,
)
from headscope.metrics.core.word_attention import best_words
from headscope.metrics.dependencies import DepAccuracy
from headscope.metrics.exemplars import Exemplars
from headscope.model.model import Model
from headscope.run import analyze as analyze_module
from tests.metrics.slow import slow_metrics
from tests.metrics.test_slow_reference import compare, measured
from tests.metrics.worlds import attentions, make_batch, make_cases
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits

needs_numba = pytest.mark.skipif(not kernels.has_numba(), reason="numba is not installed")
WITH_REDUCTIONS = sorted(name for name, metric in METRICS.items() if metric().reductions)


@dataclass
class Drawn:
    """Two documents under random attention, the second one padded."""

    attention: Attention
    batch: Batch

    @property
    def reading(self) -> LayerData:
        return LayerData(self.attention, self.batch)

    def compiled(self) -> LayerData:
        return LayerData(self.attention, replace(self.batch, is_compiled=True, derived={}))


def draw(n: int, *, is_causal: bool, heads: int = 3, seed: int = 0) -> Drawn:
    generator = np.random.default_rng(seed)
    lengths = (n, max(1, n - 3))
    scores = generator.normal(0, 3, (2, heads, n, n)).astype(np.float32)
    if is_causal:
        scores[:, :, ~np.tril(np.ones((n, n), dtype=bool))] = -np.inf
    mask = np.arange(n) < np.array(lengths)[:, None]
    scores[~np.broadcast_to(mask[:, None, None], scores.shape)] = -np.inf
    weights = torch.softmax(torch.from_numpy(scores), -1)
    words = np.where(mask, np.sort(generator.integers(0, n, (2, n)), axis=1), -1)
    words[generator.random((2, n)) < 0.1] = -1
    special = np.zeros((2, n), dtype=bool)
    special[:, 0] = not is_causal
    plain = Sequences.plain(mask, special & mask)
    batch = Batch(
        Axes(buckets_per_group=2),
        {"self": replace(plain, words=words)},
        np.arange(2.0),
        np.array([0.25, 0.75]),
        np.arange(2),
    )
    return Drawn(Attention(weights, "self", 0, is_causal), batch)


@needs_numba
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 130])
def test_compiled_loops_give_what_torch_gives(n: int, is_causal: bool) -> None:
    drawn = draw(n, is_causal=is_causal)
    wanted = [masses, log_sums, whole_masses, whole_log_sums, peaks, best_words]
    plain = read_reductions(drawn.reading, wanted)
    found = read_reductions(drawn.compiled(), wanted)
    for of_rows, of_logs, region in (
        (masses, log_sums, region_of(drawn.reading)),
        (whole_masses, whole_log_sums, everything(drawn.reading)),
    ):
        queries = region.queries[:, None]  # other rows are not looked at
        for ours, theirs, counts in zip(
            (*found[of_rows], *found[of_logs]),
            (*plain[of_rows], *plain[of_logs]),
            (queries, queries, torch.ones(()), queries),
            strict=True,
        ):
            assert ours.dtype == torch.float64
            torch.testing.assert_close(ours * counts, theirs * counts, rtol=2e-6, atol=2e-6)
    for digest in (peaks, best_words):
        for ours, theirs in zip(found[digest], plain[digest], strict=True):
            assert torch.equal(ours, theirs.to(ours.dtype)), digest


@needs_numba
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
def test_compiled_metrics_equal_the_slow_reference(is_causal: bool) -> None:
    cases = make_cases(0, 25, is_causal=is_causal, dtype=np.float32)
    wide = [replace(case, attention=case.attention.astype(np.float64)) for case in cases]
    compare(measured(cases, is_compiled=True), slow_metrics(wide), 1e-5)


@pytest.mark.parametrize("name", WITH_REDUCTIONS)
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
def test_all_layers_at_once_are_each_layer_by_itself(name: str, is_causal: bool) -> None:
    cases = make_cases(3, 9, is_causal=is_causal, heads=3)
    batch = make_batch(cases)
    layers = attentions(cases, batch)
    metric = METRICS[name]()
    accumulator = Accumulator([metric])
    with accumulator.batch(batch) as read:
        for layer in layers:
            read(layer)
    together = accumulator.states()["self"][name]
    batch.derived.clear()
    for number, layer in enumerate(layers):
        alone = measure_layer(metric, LayerData(layer, batch))
        for array, values in alone.items():
            np.testing.assert_allclose(together[array][number], values, rtol=1e-12, atol=1e-13)


def test_layers_may_differ_in_heads() -> None:
    cases = make_cases(5, 4, is_causal=False, heads=3)
    batch = make_batch(cases)
    wide, narrow = attentions(cases, batch)
    narrow = replace(narrow, weights=narrow.weights[:, :2])
    accumulator = Accumulator([METRICS["distance"](), Exemplars()])
    with accumulator.batch(batch) as read:
        read(wide)
        read(narrow)
    states = accumulator.states()["self"]
    assert states["distance"]["numerator"].shape[2] == 3
    assert (states["distance"]["numerator"][1, :, 2] == 0).all()
    assert (states["distance"]["numerator"][1, :, :2].sum(0) > 0).all()
    assert (states["exemplars"]["document"][1, 2] == -1).all()


@dataclass(frozen=True)
class _Peeks(RatioMetric):
    """Says it is made of digests, and reads the weights."""

    name = "peeks"
    paper = "none"
    units = "none"
    reductions = (masses,)

    reads: str = "weights"

    def rows(self, reading: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        whole = log_sums(reading)[0] if self.reads == "log_sums" else reading.weights
        total = whole.sum((-2, -1)).double()
        return total, torch.ones_like(total), torch.ones_like(total)


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ("weights", r"receives these .* \(masses\), without weights"),
        ("log_sums", r"reads the reduction 'log_sums' .* not in `reductions` \(masses\)"),
    ],
)
def test_a_metric_of_reductions_reads_only_those(reads: str, message: str) -> None:
    """The error is about the metric, not about the model or a document."""
    cases = make_cases(5, 4, is_causal=False)
    batch = make_batch(cases)
    layer = attentions(cases, batch)[0]
    accumulator = Accumulator([_Peeks(reads)])
    with pytest.raises(MetricError, match=message), accumulator.batch(batch) as read:
        read(layer)


def test_a_run_stops_where_a_metric_breaks_its_contract(tiny_bert: Model) -> None:
    with pytest.raises(MetricError, match="without weights"):
        hs.analyze(tiny_bert, make_corpus(4), _Peeks())
    registry._theirs.pop("peeks")


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=needs_numba)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("make", [DepAccuracy, Exemplars, METRICS["entropy"]])
def test_what_is_not_a_number_is_not_counted(
    make: Callable[[], Metric], sign: int, is_compiled: bool
) -> None:
    drawn = draw(12, is_causal=False)
    attention = drawn.attention
    batch = drawn.compiled().batch if is_compiled else drawn.batch
    broken = attention.weights.clone()
    broken[1, 2] = sign * torch.nan
    metric = make()
    accumulator = Accumulator([metric])
    with accumulator.batch(batch) as read:
        read(attention)
    before = accumulator.states()["self"][metric.name]
    with pytest.raises(ModelError, match="not a number"), accumulator.batch(batch) as read:
        read(replace(attention, weights=broken))
    after = accumulator.states()["self"][metric.name]
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_short_documents_have_squares_too() -> None:
    drawn = draw(4, is_causal=True)
    (found,) = squares(10)(drawn.reading)
    assert found.shape == (2, 3, 10, 10)
    weights = drawn.attention.weights
    torch.testing.assert_close(found[0, :, :4, 1:4], weights[0, :, :, 1:4])  # the first is null
    assert float(found[:, :, 4:].abs().sum() + found[:, :, :, 0].abs().sum()) == 0


@needs_numba
def test_long_runs_are_compiled_and_differ_in_their_last_bits_alone(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus(40)
    plain = hs.analyze(tiny_bert, corpus, progress=False)
    monkeypatch.setattr(analyze_module, "COMPILED_FROM", 1)
    found = hs.analyze(tiny_bert, corpus, progress=False, out=tmp_path / "run")
    data, other = found.dataset, plain.dataset
    for name in ("null_share", "pos_to", "dep_alignment", "distance", "entropy", "variability"):
        np.testing.assert_allclose(data[name], other[name], rtol=1e-5, atol=1e-6)
    assert not np.array_equal(data["entropy"], other["entropy"])
    monkeypatch.undo()
    with pytest.raises(RunMismatch, match="compiled"):
        hs.analyze(tiny_bert, corpus, progress=False, out=tmp_path / "run")


@needs_numba
def test_compiled_runs_are_the_same_for_any_number_of_workers(
    tiny_bert: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyze_module, "COMPILED_FROM", 1)
    one, two = (
        hs.analyze(tiny_bert, make_corpus(40), ["entropy", "dep_accuracy"], workers=n)
        for n in (1, 2)
    )
    assert one.provenance["compiled"]
    assert_same_bits(one, two)


def test_a_run_planned_with_numba_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "has_numba", lambda: False)
    with pytest.raises(MissingExtra, match=r"headscope\[heads\]"):
        masses(draw(5, is_causal=False).compiled())
