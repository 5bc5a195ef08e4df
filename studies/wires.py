"""Wires of SmolLM2 on two tasks, and whether they replicate in other templates.

    python -m studies.wires ioi 64 100 -o FOLDER
    python -m studies.wires agreement 32 80 -o FOLDER

docs/effects.md has the numbers. A stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

import headscope as hs
from headscope.causal.wires import choose, clustered
from headscope.results.wires import Wires
from headscope.statistics.intervals import t_critical

N_SPLITS, N_RESAMPLES, N_TOP = 16, 60, 50


def replication(wires: Wires) -> dict[str, float]:
    """Split the templates into halves: does one half find what the other found?"""
    data = wires.data
    estimates = [data[name].values.astype(float) for name in ("integrated", "screen")]
    exists = data["exists"].values.astype(bool)
    numbers, gaps = data["pair_template"].values, data["gap"].values
    closed = -np.sign(gaps)[:, None] * data["exact"].values.T
    n = wires.n_templates
    draw = np.random.default_rng(0)
    halves = list(itertools.combinations(range(n), n // 2))
    counts: dict[str, list[float]] = {}

    def top(templates: list[int]) -> np.ndarray:
        integrated, screen = (values[templates].sum(0) for values in estimates)
        top = choose(integrated, screen, exists, N_TOP)
        return np.ravel_multi_index(tuple(top.T), exists.shape)

    def add(name: str, values: np.ndarray) -> None:
        counts.setdefault(name, []).extend(values.astype(float).tolist())

    for i in draw.permutation(len(halves))[:N_SPLITS]:
        half = list(halves[i])
        chosen = top(half)
        again = np.isin(chosen, top([t for t in range(n) if t not in half]))
        resampled = [top(draw.choice(half, len(half)).tolist()) for _ in range(N_RESAMPLES)]
        stability = np.mean([np.isin(chosen, other) for other in resampled], axis=0)
        add("top 50 shared by halves", again)
        add("replicates, stability >= .9", again[stability >= 0.9])
        add("replicates, stability < .9", again[stability < 0.9])
        own = np.isin(numbers, half)
        other = closed[~own].sum(0) / np.abs(gaps[~own]).sum()
        clusters = {"templates": np.unique(numbers[own], return_inverse=True)[1]}
        clusters["pairs"] = np.arange(own.sum())
        for name, units in clusters.items():
            share = clustered(closed[own], gaps[own], units)
            half_width = t_critical(float(units.max())) * np.sqrt(share.variance)
            largest = np.argsort(-np.abs(share.value))[:N_TOP]
            distance = np.abs(other - share.value)
            add(f"other half outside the interval over {name}", (distance > half_width)[largest])
            # The other half is as uncertain: the interval of the difference of two halves.
            wider = half_width * np.sqrt(2)
            add(f"difference of halves outside its interval, {name}", (distance > wider)[largest])
    return {name: float(np.mean(values)) for name, values in counts.items()}


def main() -> None:
    """Measure a task, print its table, its replication and its curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("pairs", type=int)
    parser.add_argument("exact", type=int)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    pairs = hs.pairs(options.task, options.pairs)
    wires = hs.wires("smollm2", pairs, exact=options.exact, folder=options.out)
    wires.save(options.out / "result.nc")
    print(wires)
    for name, value in replication(wires).items():
        print(f"{name:<50} {value:.3f}")
    curve = wires.curve()
    print(curve["faithfulness"].to_series(), curve.attrs)


if __name__ == "__main__":
    main()
