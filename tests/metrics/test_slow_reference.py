"""Every metric against loops written from the formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from headscope.metrics import METRICS
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.finalize import finalize_all
from tests.metrics.slow import Case, slow_metrics
from tests.metrics.worlds import attentions, make_batch, make_cases


def measured(cases: list[Case], batches: int = 3, *, is_compiled: bool = False) -> xr.Dataset:
    metrics = [make() for make in METRICS.values()]
    accumulator = Accumulator(metrics)
    per = math.ceil(len(cases) / batches)
    for start in range(0, len(cases), per):
        some = cases[start : start + per]
        batch = replace(make_batch(some, first_number=start), is_compiled=is_compiled)
        with accumulator.batch(batch) as read:
            for attention in attentions(some, batch):
                read(attention)
    return finalize_all(accumulator.states(), metrics, batch.axes, accumulator.layers())["self"]


def compare(data: xr.Dataset, expected: dict[str, Any], tolerance: float) -> None:
    def close(found: float, wanted: float, what: object) -> None:
        assert found == pytest.approx(wanted, abs=tolerance, rel=tolerance, nan_ok=True), what

    for name in ("dep_baseline", "dep_span"):
        close(float(data[name]), expected[name], name)
    for parent, value in expected["dep_baseline_by_parent"].items():
        close(float(data["dep_baseline_by_parent"].sel(parent=parent)), value, parent)
    for distance, value in expected["dep_by_distance"].items():
        if distance <= 64:
            found = data["dep_by_distance"].sel(distance_between=distance)
            close(float(found), value, distance)
    for name in ("null_share", "distance", "entropy", "entropy_count", "variability"):
        for (layer, head), value in expected[name].items():
            close(float(data[name].sel(layer=layer, head=head)), value, (name, layer, head))
    for name, dim in (
        ("pos_to", "tag"),
        ("pos_from", "tag"),
        ("dep_type_to", "relation"),
        ("dep_alignment", "parent"),
    ):
        for (layer, head), values in expected[name].items():
            at = data[name].sel(layer=layer, head=head)
            for label in at[dim].values:
                if label == "all":  # an entry of probes' relations alone
                    continue
                close(float(at.sel({dim: label})), values.get(str(label), 0.0), (name, label))
    for (layer, head), best in expected["exemplars"].items():
        at = data.sel(layer=layer, head=head)
        found = [
            tuple(float(at[f"exemplar_{x}"][rank]) for x in ("weight", "document", "query", "key"))
            for rank in range(len(best))
        ]
        for ours, theirs in zip(found, best, strict=True):
            close(ours[0], theirs[0], "exemplar")
            # Weights that differ by less than rounding may change places, also with one that
            # comes just after the last.
            equal = [other[1:] for other in best if abs(other[0] - ours[0]) <= tolerance]
            assert ours[1:] in equal or abs(best[-1][0] - ours[0]) <= tolerance


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "encoder"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equals_the_slow_reference(is_causal: bool, dtype: type) -> None:
    cases = make_cases(0, 25, is_causal=is_causal, dtype=dtype)
    wide = [
        Case(
            c.attention.astype(np.float64),
            c.special,
            c.is_causal,
            c.words,
            c.tags,
            c.parents,
            c.relations,
        )
        for c in cases
    ]
    tolerance = 1e-9 if dtype == np.float64 else 1e-5
    compare(measured(cases), slow_metrics(wide), tolerance)


def test_by_layer_sums_over_heads_first() -> None:
    cases = make_cases(3, 10, is_causal=True)
    data = measured(cases)
    numerator = denominator = 0.0
    for case in cases:
        for i, j in case.pairs():
            weights = case.attention[1, :, i, j].sum()
            numerator += weights * abs(i - j)
            denominator += weights
    assert float(data["distance_by_layer"].sel(layer=1)) == pytest.approx(
        numerator / denominator, rel=1e-12
    )


def test_correlations_are_pearsons() -> None:
    data = measured(make_cases(4, 20, is_causal=False, layers=3, heads=4))
    expected = np.corrcoef(data["distance"].values.ravel(), data["entropy"].values.ravel())[0, 1]
    found = data["correlation"].sel(correlated="distance-entropy")
    assert float(found) == pytest.approx(expected, rel=1e-12)
    assert 0 <= float(data["correlation_p"].sel(correlated="distance-entropy")) <= 1
