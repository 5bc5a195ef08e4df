"""What intervals and tests cost: 40 variables over 270 heads, 64 parts.

python -m benchmarks.intervals
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.rows import record
from headscope.statistics.differences import paired, permutation_test
from headscope.statistics.intervals import benjamini_hochberg, interval, p_above
from headscope.statistics.jackknife import Jackknife, ratio_jackknife

PARTS, LAYERS, HEADS, VARIABLES = 64, 30, 9, 40
GROUPED = 4
"""So many variables are tested between groups."""
BOUND = 1.0
"""Seconds."""


def measure() -> dict[str, float]:
    """CPU seconds of each step."""
    generator = np.random.default_rng(0)
    shape = (PARTS, LAYERS, HEADS)
    sums = [(generator.random(shape), 1 + generator.random(shape)) for _ in range(VARIABLES)]
    seconds: dict[str, float] = {}
    jackknife: list[Jackknife] = []

    def timed(name: str, start: float) -> None:
        seconds[name] = time.process_time() - start

    start = time.process_time()
    jackknife += [ratio_jackknife(a, b, "logit") for a, b in sums]
    for of in jackknife:
        interval(of)
        interval(of.mean((0, 1)))
    timed("intervals", start)
    start = time.process_time()
    for of in jackknife:
        benjamini_hochberg(p_above(of, 0.3))
        benjamini_hochberg(paired(of, jackknife[0]).p)
    timed("tests of heads", start)
    start = time.process_time()
    for of in jackknife[:GROUPED]:
        permutation_test(of, np.arange(PARTS) % 8)
    timed("tests of groups", start)
    return seconds


def main() -> None:
    """Print the seconds; the bound is on their sum."""
    measure()  # loads SciPy
    seconds = measure()
    total = sum(seconds.values())
    for name, value in {**seconds, "all": total}.items():
        print(f"{name:16} {value:.3f} s")
    what = f"intervals and tests, {LAYERS * HEADS} heads × {VARIABLES} variables"
    record("intervals", what, f"{total:.2f} s", "1 s", total, is_cost=True, bound=BOUND)


if __name__ == "__main__":
    main()
