"""Clark et al.'s surface metrics and the detectors: by hand, and against slow loops."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import xarray as xr

from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.finalize import finalize_all
from headscope.metrics.entropy import FirstEntropy, RowEntropy, UniformEntropy
from headscope.metrics.induction import DuplicateToken, Induction
from headscope.metrics.surface import ClassShare, OffsetShare, SepFromOther, SepFromSep, SinkRate
from headscope.results.trace import Trace
from headscope.run.measure import measure
from headscope.text.tokens import class_members, class_names
from tests.metrics.slow import Case
from tests.metrics.slow_surface import slow_surface
from tests.metrics.worlds import KEY_CLASSES, attentions, make_batch, make_cases

WEIGHTED = (
    OffsetShare,
    ClassShare,
    SepFromSep,
    SepFromOther,
    RowEntropy,
    FirstEntropy,
    UniformEntropy,
)

# [CLS] a . a [SEP]
ROWS = np.array(
    [
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.5, 0.0, 0.0, 0.5, 0.0],
        [0.0, 0.9, 0.1, 0.0, 0.0],
        [0.1, 0.4, 0.3, 0.1, 0.1],
        [0.0, 0.0, 0.0, 0.1, 0.9],
    ]
)


def by_hand() -> xr.Dataset:
    trace = Trace.from_arrays(
        ROWS[None, None],
        ["[CLS]", "a", ".", "a", "[SEP]"],
        special=[True, False, False, False, True],
        is_causal=False,
    )
    return measure(trace).dataset.isel(layer=0, head=0)


def test_offsets_by_hand() -> None:
    found = by_hand()["offset_share"]
    # Offset is key minus query: row 2 gives 0.9 to the token before it.
    assert float(found.sel(offset=-1)) == pytest.approx((0.5 + 0.9 + 0.3 + 0.1) / 4)
    assert float(found.sel(offset=0)) == pytest.approx((0.2 + 0.0 + 0.1 + 0.1 + 0.9) / 5)
    assert float(found.sel(offset=1)) == pytest.approx((0.2 + 0.0 + 0.0 + 0.1) / 4)


def test_classes_by_hand() -> None:
    found = by_hand()["class_share"]
    first = (0.2 + 0.5 + 0.1) / 5
    assert float(found.sel(key_class="first")) == pytest.approx(first)
    assert float(found.sel(key_class="[CLS]")) == pytest.approx(first)
    assert float(found.sel(key_class="[SEP]")) == pytest.approx((0.2 + 0.1 + 0.9) / 5)
    assert float(found.sel(key_class=". or ,")) == pytest.approx((0.2 + 0.1 + 0.3) / 5)
    assert float(found.sel(key_class="punctuation")) == pytest.approx((0.2 + 0.1 + 0.3) / 5)
    rest = (0.4 + 0.5 + 0.9 + 0.5 + 0.1) / 5
    assert float(found.sel(key_class="rest")) == pytest.approx(rest)


def test_separators_by_hand() -> None:
    data = by_hand()
    assert float(data["sep_from_sep"]) == pytest.approx(0.9)
    assert float(data["sep_from_other"]) == pytest.approx((0.2 + 0.1) / 4)


def test_entropies_by_hand() -> None:
    data = by_hand()

    def entropy(*row: float) -> float:
        return -sum(x * log(x) for x in row)

    rows = [log(5), log(2), entropy(0.9, 0.1), entropy(0.1, 0.4, 0.3, 0.1, 0.1), entropy(0.1, 0.9)]
    assert float(data["row_entropy"]) == pytest.approx(sum(rows) / 5)
    assert float(data["first_entropy"]) == pytest.approx(log(5))
    assert float(data["uniform_entropy"]) == pytest.approx(log(5))


def test_repeats_by_hand() -> None:
    data = by_hand()
    # The second "a" (query 3) looks at the first with 0.4. What followed is the previous token.
    assert float(data["duplicate_token"]) == pytest.approx(0.4)
    assert np.isnan(float(data["induction"]))
    assert int(data["induction_count"]) == 0
    rows = np.eye(4)
    rows[3] = [0.4, 0.3, 0.2, 0.1]
    trace = Trace.from_arrays(rows[None, None], ["a", "b", "c", "a"])
    data = measure(trace, ["induction", "duplicate_token"]).dataset
    assert data["induction"].item() == pytest.approx(0.3)
    assert data["induction_count"].item() == 1


def test_sinks_by_hand() -> None:
    assert float(by_hand()["sink_rate"]) == 0.0  # (0.2 + 0.5 + 0.1) / 5 = 0.16
    rows = np.array([[1.0, 0.0], [0.2, 0.8]])  # mean 0.6
    trace = Trace.from_arrays(rows[None, None], ["a", "b"], is_causal=True)
    assert measure(trace, "sink_rate")["sink_rate"].item() == 1.0
    assert measure(trace, SinkRate(threshold=0.6))["sink_rate"].item() == 0.0


def test_causal_models_see_no_next_token_and_less_at_the_start() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])
    trace = Trace.from_arrays(rows[None, None], ["a", "b", "c"], is_causal=True)
    data = measure(trace).dataset.isel(layer=0, head=0)
    assert float(data["offset_share"].sel(offset=1)) == 0.0
    assert float(data["offset_share"].sel(offset=-1)) == pytest.approx(0.75)
    assert float(data["uniform_entropy"]) == pytest.approx((log(1) + log(2) + log(3)) / 3)
    assert float(data["first_entropy"]) == 0.0


def test_a_model_without_special_tokens_has_no_separators() -> None:
    rows = np.full((1, 1, 2, 2), 0.5)
    result = measure(Trace.from_arrays(rows, ["a", "b"], is_causal=False))
    assert result["class_share"]["key_class"].values.tolist() == [
        "first",
        ". or ,",
        "punctuation",
        "rest",
    ]
    assert np.isnan(result["sep_from_sep"]).all()
    assert (result["sep_from_sep_count"] == 0).all()
    assert np.isnan(result["sep_from_other"]).all()


def test_a_document_of_one_token() -> None:
    data = measure(Trace.from_arrays(np.ones((1, 1, 1, 1)), ["a"], is_causal=True)).dataset
    assert np.isnan(data["offset_share"].sel(offset=-1)).all()
    assert data["offset_share"].sel(offset=0).item() == 1.0
    assert data["row_entropy"].item() == 0.0
    assert np.isnan(data["sink_rate"]).all()
    assert np.isnan(data["induction"]).all()


def test_an_ablated_head_has_no_shares() -> None:
    trace = Trace.from_arrays(np.zeros((1, 1, 3, 3)), ["a", "b", "c"], is_causal=False)
    data = measure(trace, ["offset_share", "class_share", "row_entropy"]).dataset
    for name in ("offset_share", "class_share", "row_entropy"):
        assert np.isnan(data[name]).all()


@pytest.mark.parametrize("weighting", ["token", "document"])
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_the_slow_reference(is_causal: bool, dtype: type, weighting: str) -> None:
    cases = make_cases(5, 25, is_causal=is_causal, dtype=dtype)
    metrics = [make(weighting=weighting) for make in WEIGHTED]
    metrics += [make() for make in (DuplicateToken, Induction, SinkRate)]
    data = measured(cases, metrics)
    tolerance = 1e-9 if dtype == np.float64 else 1e-6
    expected = slow_surface(cases, KEY_CLASSES, weighting)
    by_token = slow_surface(cases, KEY_CLASSES)
    for (layer, head), values in expected.items():
        for key, value in values.items():
            name, label = key if isinstance(key, tuple) else (key, None)
            if name in ("duplicate_token", "induction"):
                value = by_token[layer, head][key]
            at = data[name]
            if "layer" in at.dims:
                at = at.sel(layer=layer, head=head)
            if label is not None:
                at = at.sel({at.dims[0]: label})
            assert float(at) == pytest.approx(value, abs=tolerance), key


def measured(cases: list[Case], metrics: list) -> xr.Dataset:
    accumulator = Accumulator(metrics)
    for start in range(0, len(cases), 9):
        some = cases[start : start + 9]
        batch = make_batch(some, first_number=start)
        with accumulator.batch(batch) as read:
            for attention in attentions(some, batch):
                read(attention)
    return finalize_all(accumulator.states(), metrics, batch.axes, accumulator.layers())["self"]


def test_punctuation_in_every_spelling() -> None:
    names = class_names(["<s>"])
    tokens = ["<s>", "Ġ,", "▁.", "##!", "…", "Ġcat", "'s", "<s>", "#"]
    special = np.array([True] + [False] * 8)
    found = class_members(tokens, special, names)
    columns = {name: found[:, k].tolist() for k, name in enumerate(names)}
    yes = [i for i, x in enumerate(columns["punctuation"]) if x]
    assert yes == [1, 2, 3, 4, 8]
    assert [i for i, x in enumerate(columns[". or ,"]) if x] == [1, 2]
    assert [i for i, x in enumerate(columns["<s>"]) if x] == [0]  # written in the text: no
    assert [i for i, x in enumerate(columns["rest"]) if x] == [5, 6, 7]
    assert [i for i, x in enumerate(columns["first"]) if x] == [0]
