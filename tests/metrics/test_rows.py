"""Blocks of rows give what whole layers give: in torch, compiled, and from scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.attention import Attention
from headscope.errors import HeadscopeError
from headscope.metrics import METRICS
from headscope.metrics.core import layer_data as kernels
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.contract import reads_rows
from headscope.metrics.core.finalize import finalize_all
from headscope.metrics.core.layer_data import LayerData, Reduction, RowsReader
from headscope.metrics.core.regions import Swept
from tests.metrics.slow import Case, slow_metrics
from tests.metrics.test_slow_reference import compare
from tests.metrics.worlds import attentions, make_batch, make_cases

needs_numba = pytest.mark.skipif(not kernels.has_numba(), reason="numba is not installed")
BY_ROWS = [name for name, metric in METRICS.items() if reads_rows(metric())]
MEASURED = [name for name in BY_ROWS if not METRICS[name]().needs & {"gradients", "loss"}]
KINDS = [
    "torch",
    pytest.param("compiled", marks=needs_numba),
    pytest.param("fused", marks=needs_numba),
]


def blocks(attention: Attention, rows: int, *, are_scores: bool = False) -> Iterator[Attention]:
    """Cut a layer as the tap does: keys end with the block's last query in causal attention."""
    n = attention.weights.shape[2]

    def again(block: slice) -> torch.Tensor:
        part = attention.weights[:, :, block, : block.stop if attention.is_causal else n]
        return part.contiguous()

    for start in range(0, n, rows):
        stop = min(start + rows, n)
        part = again(slice(start, stop))
        if are_scores:
            lengths = (
                attention.weights.new_full((len(part),), n, dtype=torch.long)
                if attention.key_mask is None
                else attention.key_mask.sum(1)
            )
            # Any scores with this softmax: half of its logarithm, for a scale of 2.
            part = part.clamp_min(1e-30).log().sub_(1.5).mul_(0.5).contiguous()
            yield replace(
                attention,
                weights=part,
                rows=slice(start, stop),
                n_rows=n,
                are_scores=True,
                scale=2.0,
                n_visible=lengths,
                again=again,
            )
            continue
        yield replace(attention, weights=part, rows=slice(start, stop), n_rows=n, again=again)


def measured(cases: list[Case], rows: int | None, kind: str, metrics: list[str]):
    made = [METRICS[name]() for name in metrics]
    accumulator = Accumulator(made)
    for start in range(0, len(cases), 9):
        some = cases[start : start + 9]
        batch = replace(make_batch(some, first_number=start), is_compiled=kind != "torch")
        with accumulator.batch(batch) as read:
            for attention in attentions(some, batch):
                mask = torch.from_numpy(batch.stacks["self"].mask)
                attention = replace(attention, key_mask=mask)
                if rows is None:
                    read(attention)
                    continue
                for block in blocks(attention, rows, are_scores=kind == "fused"):
                    read(block)
    return finalize_all(accumulator.states(), made, batch.axes, accumulator.layers())["self"]


def test_every_metric_reads_rows() -> None:
    assert set(METRICS) == set(BY_ROWS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
@pytest.mark.parametrize("rows", [1, 7, 64, 128])
def test_rows_equal_the_slow_reference(rows: int, is_causal: bool, kind: str) -> None:
    n, longest = (25, 14) if rows < 64 else (4, rows + 40)
    cases = make_cases(0, n, is_causal=is_causal, dtype=np.float32, longest=longest)
    assert max(case.attention.shape[-1] for case in cases) > rows
    wide = [replace(case, attention=case.attention.astype(np.float64)) for case in cases]
    data = measured(cases, rows, kind, MEASURED)
    compare(data, slow_metrics(wide), 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
def test_rows_equal_whole_layers(is_causal: bool, kind: str) -> None:
    cases = make_cases(7, 20, is_causal=is_causal, dtype=np.float32, longest=150)
    whole = measured(cases, None, "torch", MEASURED)
    for rows in (1, 7, 64, 128):
        data = measured(cases, rows, kind, MEASURED)
        for name, values in whole.data_vars.items():
            if values.dtype.kind == "f" and not str(name).startswith("exemplar_"):
                np.testing.assert_allclose(
                    data[name].values, values.values, rtol=1e-4, atol=1e-5, err_msg=str(name)
                )
        np.testing.assert_allclose(data["exemplar_weight"], whole["exemplar_weight"], atol=1e-5)


@needs_numba
def test_block_size_does_not_change_the_sums() -> None:
    """Columns are rounded at the same rows, so sizes that 64 divides give the same bits."""
    cases = make_cases(8, 3, is_causal=True, dtype=np.float32, longest=300)
    default = [name for name in MEASURED if METRICS[name].is_default]
    small, large = (measured(cases, rows, "compiled", default) for rows in (64, 192))
    for name, values in small.data_vars.items():
        np.testing.assert_array_equal(values.values, large[name].values, err_msg=str(name))


@needs_numba
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
def test_the_sweep_turns_scores_into_the_softmax(is_causal: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    n, lengths = 70, torch.tensor([70, 41])
    scores = torch.randn((2, 3, n, n), generator=generator) * 20
    mask = torch.arange(n) < lengths[:, None]
    batch = make_batch(make_cases(0, 2, is_causal=is_causal))
    sequences = batch.stacks["self"]
    plain = type(sequences).plain(mask.numpy())
    batch = replace(batch, stacks={"self": plain}, is_compiled=True, documents=())
    expected = (scores * 0.7).masked_fill(~mask[:, None, None], -torch.inf)
    if is_causal:
        expected = expected.masked_fill(torch.ones((n, n), dtype=torch.bool).triu(1), -torch.inf)
    expected = torch.softmax(expected.double(), -1)
    options = {"n_rows": n, "are_scores": True, "scale": 0.7, "n_visible": lengths}
    reader = None
    for start in (0, 32, 64):
        rows = slice(start, min(start + 32, n))
        end = rows.stop if is_causal else n
        block = scores[:, :, rows, :end].clone(memory_format=torch.contiguous_format)
        attention = Attention(block, "self", 0, is_causal, rows=rows, **options)
        data = LayerData(attention, batch)
        swept = [r for r in METRICS["entropy"]().reductions if isinstance(r, Swept)]
        reader = reader or RowsReader(data, swept)
        reader.add(data)
        for document, length in enumerate(lengths.tolist()):
            real = slice(0, max(0, min(rows.stop, length) - rows.start))
            torch.testing.assert_close(
                block[document, :, real].double(),
                expected[document, :, rows, :end][:, real],
                rtol=1e-5,
                atol=1e-7,
            )


@needs_numba
def test_nan_scores_are_noticed() -> None:
    cases = make_cases(0, 2, is_causal=True, dtype=np.float32)
    batch = replace(make_batch(cases), is_compiled=True)
    (attention, _) = attentions(cases, batch)
    for metric in ("entropy", "exemplars"):
        accumulator = Accumulator([METRICS[metric]()])
        found = list(blocks(attention, 64, are_scores=True))
        found[0].weights[0, 0, 2, 1] = torch.nan
        with (
            pytest.raises(hs.errors.ModelError, match="not a number"),
            accumulator.batch(batch) as read,
        ):
            read(*found)


def test_a_reduction_of_whole_layers_is_named() -> None:
    @Reduction
    def own(layer_data: LayerData):
        return (layer_data.weights.sum((2, 3)),)

    assert own.join is None


class TestLongRange:
    def test_bands_are_counted_by_hand(self) -> None:
        trace = hs.Trace.from_arrays(
            np.array([[[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]]])[
                None
            ],
            tokens=["a", "b", "c", "d"],
        )
        share = trace.measure("distance_share")["distance_share"].sel(layer=0, head=0)
        # Without the first key: itself .5 + .5 + .4; one away .3 + .3; two away .2.
        total = 0.5 + 0.8 + 0.9
        assert float(share.sel(band="0")) == pytest.approx(1.4 / total)
        assert float(share.sel(band="1")) == pytest.approx(0.6 / total)
        assert float(share.sel(band="2-8")) == pytest.approx(0.2 / total)
        assert float(share.sel(band="513-")) == 0

    def test_bands_equal_loops(self) -> None:
        cases = make_cases(2, 6, is_causal=True, longest=100)
        data = measured(cases, None, "torch", ["distance_share"])
        sums, total = np.zeros(6), 0.0
        for case in cases:
            for i, j in case.pairs():
                far, weight = abs(i - j), case.attention[1, 0, i, j]
                band = sum(far >= edge for edge in (1, 2, 9, 65, 513))
                sums[band] += weight
                total += weight
        found = data["distance_share"].sel(layer=1, head=0).values
        np.testing.assert_allclose(found, sums / total, rtol=1e-6)

    def test_retrieval_of_a_planted_span(self, tiny_llama) -> None:
        text = "the key is seven . then came many other words and more of them . the key is"
        start = text.index("seven")
        document = {"text": text, "meta": {"span": f"{start}:{start + 5}"}}
        corpus = hs.read([document, {"text": "no span here at all"}])
        result = hs.analyze(tiny_llama, corpus, ["retrieval", "tokens_per_document"])
        trace = tiny_llama.trace(text)
        weights = trace.attention.values[:, :, -1]
        inside = [start <= a < start + 5 for a, _ in trace.text.offsets]
        expected = weights[:, :, inside].sum(-1) / weights[:, :, 1:].sum(-1)
        found = result["retrieval"].sel(target="span").values
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        assert (result["retrieval_count"].values == 1).all()
        random = result["retrieval"].sel(target="random").values
        assert ((random > 0) & (random < 1)).all()

    def test_a_wrong_span_is_refused(self, tiny_llama) -> None:
        corpus = hs.read([{"text": "one two three", "meta": {"span": "seven"}}])
        with pytest.raises(HeadscopeError, match="start:stop"):
            hs.analyze(tiny_llama, corpus, ["retrieval"])


def test_sums_of_long_texts_are_rounded_row_by_row() -> None:
    """One float32 sum over all pairs of a thousand tokens is wrong by 1e-5 of itself."""
    (case,) = make_cases(7, 1, is_causal=True, dtype=np.float32, longest=1000, annotated=False)
    assert case.n > 900
    names = ["distance", "distance_share", "induction", "duplicate_token"]
    data = measured([case], None, "torch", names)
    counted = case.attention.astype(np.float64)
    position, ids = np.arange(case.n), np.array(case.tokens)
    apart = position[:, None] - position
    same = (ids[:, None] == ids) & (apart > 0)
    for name, pairs in (
        ("duplicate_token", same),
        ("induction", np.roll(same, 1, 1) & (apart > 1)),
    ):
        pairs[:, 0] &= name == "duplicate_token"
        share = (counted * pairs).sum((-1, -2)) / pairs.any(1).sum()
        np.testing.assert_allclose(data[name], share, rtol=1e-6, err_msg=name)
    counted[..., 0] = 0
    total = counted.sum((-1, -2))
    mean = (counted * apart).sum((-1, -2)) / total
    np.testing.assert_allclose(data["distance"], mean, rtol=1e-6)
    far = (counted * ((apart > 64) & (apart <= 512))).sum((-1, -2)) / total
    np.testing.assert_allclose(data["distance_share"].sel(band="65-512"), far, rtol=1e-6)
