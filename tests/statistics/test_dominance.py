"""Documents that dominate a sum, or decide a number."""

from __future__ import annotations

import numpy as np
import pytest
from headscope.statistics.jackknife import (
    is_dominated,
    is_driven_by_one,
    largest_influence,
    largest_share,
    ratio_jackknife,
)


def test_a_long_document_dominates() -> None:
    shares = ratio_jackknife(np.ones(20), np.array([9000.0, *[300.0] * 19]))
    assert largest_share(shares) == (pytest.approx(9000 / 14700), 0)
    assert is_dominated(shares)
    assert not is_dominated(ratio_jackknife(np.ones(20), np.full(20, 300.0)))


def test_a_document_decides_what_it_alone_pulls() -> None:
    of = ratio_jackknife(
        np.array([[9.0, 1], [0, 2], *[[0, 1], [0, 2]] * 9]), np.full((20, 2), 10.0)
    )
    jackknife = of.deltas[:, 0] ** 2
    np.testing.assert_allclose(largest_influence(of), [jackknife.max() / jackknife.sum(), 1 / 20])
    assert is_driven_by_one(of).tolist() == [True, False]
    few = ratio_jackknife(np.array([9.0, *[0.0] * 9]), np.full(10, 10.0))
    assert not is_driven_by_one(few)  # one of ten always has much
