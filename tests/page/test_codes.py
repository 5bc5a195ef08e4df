"""Numbers as bytes: how far off they may be, and what they must hit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headscope.page.codec import LAST_CODE, MISSING_CODE, MISSING_VALUE, encode, scale
from tests.page.decoding import decode

WEIGHTS = arrays(np.float32, st.integers(1, 40), elements=st.floats(0, 1, width=32))


@given(WEIGHTS)
def test_fine_weights_are_right_to_a_thousandth(weights: np.ndarray) -> None:
    coarse, fine = encode(weights, fine=True)
    assert np.abs(decode(coarse, fine) - weights).max() <= 0.0005


@given(WEIGHTS)
def test_coarse_weights_are_right_to_four_thousandths(weights: np.ndarray) -> None:
    coarse, fine = encode(weights, fine=False)
    assert fine is None
    assert np.abs(decode(coarse, None) - weights).max() <= 0.004


def test_nothing_and_everything_are_exact() -> None:
    coarse, fine = encode(np.array([0.0, 1.0, np.nan, 1.0000001]), fine=True)
    assert coarse.tolist() == [0, LAST_CODE, MISSING_CODE, LAST_CODE]
    np.testing.assert_array_equal(decode(coarse, fine), np.float32([0, 1, np.nan, 1]))


def test_two_fine_levels_share_a_byte() -> None:
    _, fine = encode(np.full((3, 3), 0.25), fine=True)
    assert fine is not None
    assert fine.shape == (5,)


@given(arrays(np.float32, (2, 3, 5), elements=st.floats(-1e4, 1e4, width=32)))
def test_scaled_numbers_are_within_half_a_step(numbers: np.ndarray) -> None:
    codes, steps = scale(numbers, 2)
    back = codes.reshape(6, 5) * steps[:, None]
    error = np.abs(back - numbers.reshape(6, 5))
    assert np.all(error <= steps[:, None] * 0.502)


def test_missing_numbers_have_a_code() -> None:
    codes, steps = scale(np.array([[1.0, -np.inf, np.nan, -2.0], [0, 0, 0, 0]]), 1)
    assert codes[0].tolist() == [16384, MISSING_VALUE, MISSING_VALUE, -32767]
    assert codes[1].tolist() == [0, 0, 0, 0]
    assert steps.tolist() == [np.float32(2 / 32767), 1.0]
