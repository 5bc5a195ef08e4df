"""Are two results the same?"""

from __future__ import annotations

import numpy as np

from headscope.results.result import Result


def assert_same_bits(left: Result, right: Result) -> None:
    """Values, intervals and states, to the last bit."""
    assert left.blocks.keys() == right.blocks.keys()
    for block, data in left.blocks.items():
        assert set(data.variables) == set(right.blocks[block].variables)
        for name in data.variables:
            a, b = data[name].values, right.blocks[block][name].values
            assert a.shape == b.shape, name
            assert a.tobytes() == b.tobytes() or a.dtype == object, name
    for block, metrics in left.states.items():
        for metric, state in metrics.items():
            for name in state.variables:
                a, b = state[name].values, right.states[block][metric][name].values
                assert a.tobytes() == b.tobytes(), (metric, name)
    assert left.documents == right.documents


def assert_close(left: Result, right: Result, tolerance: float = 1e-9) -> None:
    """Values and intervals, up to rounding (which may change the order of exemplars)."""
    for block, data in left.blocks.items():
        other = right.blocks[block]
        for name, values in data.data_vars.items():
            is_place = str(name).startswith("exemplar_") and name != "exemplar_weight"
            if np.issubdtype(values.dtype, np.number) and not is_place:
                np.testing.assert_allclose(
                    values.values, other[name].values, rtol=tolerance, atol=tolerance, err_msg=name
                )
