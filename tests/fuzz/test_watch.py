"""The watch reports exceptions, crashes and silence, and goes on with the next case."""

from __future__ import annotations

import os
import time

import pytest

from tests.fuzz.watch import Failure, Watch


def behave(how: str) -> str:
    if how == "raise":
        raise KeyError(how)
    if how == "crash":
        os.abort()
    if how == "loop":
        time.sleep(60)
    return how


def test_failures_are_named() -> None:
    watch = Watch(longest=1)
    expected = {"raise": "KeyError", "crash": "crashed", "loop": "silent for 1 seconds"}
    for how, message in expected.items():
        with pytest.raises(Failure, match=message):
            watch("kind", behave, how)
        assert watch("kind", behave, "well") == "well"
    assert watch.outcomes["kind"] == {"FAILED": 3, "well": 3}
    seeds = watch.seeds("stores")
    watch("kind", behave, "raise", case=f"seed {next(seeds)}")
    with pytest.raises(Failure, match="kind, seed"):
        list(seeds)
    watch.stop()
