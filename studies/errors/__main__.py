"""Error rates of headscope's statistics on real documents, as the table of docs/statistics.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from headscope.statistics.pulls import Scale
from studies.errors.lists import Rates, changed_heads, correlations, heads_above_the_mean
from studies.errors.populations import Population, read_populations
from studies.errors.rates import (
    coverage,
    discoveries,
    false_groups,
    false_relations,
    found_relations,
    pairing,
)

SIZES = (5, 8, 12, 20, 64, 200)
LISTED = (8, 20, 64, 200)
SCALES: dict[str, Scale] = {
    "null_share": "logit",
    "dep_alignment": "logit",
    "pos_to": "logit",
    "distance": "positive",
    "entropy": "positive",
}
CORRELATED = ("entropy", "dep_alignment")
GROUPED = ("null_share", "dep_alignment", "distance", "entropy")
KNOWN = ("obj", "det", "case")
HEADS = 16
"""So many heads of each variable, drawn once: the others are like them."""


def main() -> None:
    """Measure what is not there yet, simulate, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with gum/ and ud_ewt/")
    parser.add_argument("--out", type=Path, default=Path("studies/runs/errors"))
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=["minilm", "smollm2"])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    started = time.perf_counter()
    populations = read_populations(options.data, options.out, options.models)
    n = options.repetitions
    for table in options.tables:
        print("\n".join(TABLES[table](populations, n)))
    print(f"\n{n} samples each; {time.perf_counter() - started:.0f} s")


def _coverage_table(populations: dict[str, Population], repetitions: int) -> list[str]:
    lines = [
        "| population | variable | " + " | ".join(f"n = {n}" for n in SIZES) + " |",
        "|---|---|" + "---|" * len(SIZES),
    ]
    for name, population in populations.items():
        for variable in (*SCALES, *(f"accuracy, {relation}" for relation in KNOWN)):
            a, b, scale = _sums(population, variable)
            few = repetitions // 10
            cells = [
                coverage(a, b, scale, n, repetitions=repetitions, n_bootstraps=few, seed=n)
                for n in SIZES
            ]
            shown = [
                f"{c.bootstrap:.2f} → **{c.jackknife:.3f}** ({c.documents:.0f}; ×{c.width:.2f})"
                for c in cells
            ]
            lines.append(f"| {name} | {variable} | {' | '.join(shown)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _claims_table(populations: dict[str, Population], repetitions: int) -> list[str]:
    lines = ["", "| error rate | population | before | now |", "|---|---|---|---|"]

    def add(what: str, name: str, before: float | str, now: float) -> None:
        shown = before if isinstance(before, str) else f"{before:.3f}"
        lines.append(f"| {what} | {name} | {shown} | **{now:.3f}** |")
        print(lines[-1], file=sys.stderr, flush=True)

    for name, population in populations.items():
        sums = {variable: _sums(population, variable)[:2] for variable in GROUPED}
        for n_groups, n in ((5, 30), (8, 64)):
            now, before = false_groups(sums, n_groups, n, repetitions=repetitions)
            add(f"shuffled groups “differ”, {n_groups} groups of {n} documents", name, before, now)
        relations = population.relations
        enough = np.flatnonzero(relations.cases.sum(0) >= 100)
        cases = relations.cases[:, enough]
        best = relations.offsets[..., enough].sum(0).argmax(0)
        right = np.take_along_axis(relations.offsets[..., enough], best[None, None], 1)[:, 0]
        mean = right.sum(0) / cases.sum(0)
        accuracy = (right + 4 * mean) / (cases + 4)
        for n in (20, 64):
            any_claim, nominal, before = false_relations(
                accuracy, cases, 24, n, repetitions=repetitions
            )
            add(f"tied heads “beat” the offset, any relation, {n} documents", name, "", any_claim)
            add(f"the same, a single relation, {n} documents", name, before, nominal)
        for variable in ("null_share", "distance"):
            a, b, scale = _sums(population, variable, heads=None)
            for n in (12, 64):
                rate, power = discoveries(a, b, scale, n, repetitions=repetitions // 2)
                add(f"false discoveries over heads, {variable}, {n} documents", name, "", rate)
                add(f"(power at 10 % above, {variable}, {n} documents)", name, "", power)
        picked = [relations.names.index(relation) for relation in KNOWN]
        for n in (12, 20, 64):
            power = found_relations(
                relations.right[..., picked], relations.offsets[..., picked],
                relations.cases[..., picked], n, repetitions=max(repetitions // 5, 20),
            )  # fmt: skip
            for relation, share in zip(KNOWN, power, strict=True):
                add(f"(power: {relation} found, {n} documents)", name, "", float(share))
    for left, right in _pairs_of(populations):
        for variable in ("null_share", "distance"):
            sides = [_sums(populations[side], variable, heads=None)[:2] for side in (left, right)]
            covers, covers_before, wider = pairing(
                sides[0], sides[1], 20, repetitions=repetitions, scale=SCALES[variable]
            )
            what = f"coverage of a difference of models, {variable}, 20 documents"
            add(f"{what} (unpaired: {wider:.1f} × wider)", left, covers_before, covers)
    return lines


def _lists_table(populations: dict[str, Population], repetitions: int) -> list[str]:
    """Lists of heads and correlations over heads, by the number of documents."""
    lines = [
        "",
        "| rate | population | " + " | ".join(f"n = {n}" for n in LISTED) + " |",
        "|---|---|" + "---|" * len(LISTED),
    ]

    def add(what: str, name: str, rates: Sequence[Rates]) -> None:
        before = ["" if np.isnan(rate.before) else f"{rate.before:.3f} → " for rate in rates]
        cells = [f"{b}**{rate.now:.3f}**" for b, rate in zip(before, rates, strict=True)]
        lines.append(f"| {what} | {name} | {' | '.join(cells)} |")
        print(lines[-1], file=sys.stderr, flush=True)

    for name, population in populations.items():
        for variable in GROUPED:
            a, b, scale = _sums(population, variable, heads=None)
            found = [
                heads_above_the_mean((a, b), scale, n, repetitions=repetitions, seed=n)
                for n in LISTED
            ]
            add(f"any of heads that are alike “above the mean”, {variable}", name,
                [false for false, _ in found])  # fmt: skip
            alone = [
                discoveries(a, b, scale, n, repetitions=repetitions, null=1.0, seed=n)[0]
                for n in LISTED
            ]
            add(f"any head “above” its own true value, {variable}", name,
                [Rates(np.nan, rate) for rate in alone])  # fmt: skip
            add(f"(power: heads 20 % above the mean, {variable})", name,
                [power for _, power in found])  # fmt: skip
            add(f"any head “changed” between models that are alike, {variable}", name,
                [changed_heads((a, b), scale, n, repetitions=repetitions, seed=n) for n in LISTED],
                )  # fmt: skip
        for other in CORRELATED:
            sides = [_sums(population, variable, heads=None) for variable in ("distance", other)]
            add(f"coverage of r, distance and {other}", name,
                [correlations(sides[0], sides[1], n, repetitions=repetitions, seed=n)
                 for n in LISTED])  # fmt: skip
    return lines


def _pairs_of(populations: dict[str, Population]) -> list[tuple[str, str]]:
    """Populations of the same documents, read by two models."""
    names = list(populations)
    return [
        (a, b)
        for n, a in enumerate(names)
        for b in names[n + 1 :]
        if a.split(", ")[1] == b.split(", ")[1] and len(populations[a]) == len(populations[b])
    ]


def _sums(
    population: Population, variable: str, heads: int | None = HEADS
) -> tuple[np.ndarray, np.ndarray, Scale]:
    """`document head`: numerator, denominator, and the scale of the interval."""
    if variable.startswith("accuracy, "):
        relations = population.relations
        at = relations.names.index(variable.removeprefix("accuracy, "))
        best = relations.right[..., at].sum(0).argsort()[-(heads or 1) :]
        a = relations.right[..., at][:, best]
        return a, np.broadcast_to(relations.cases[:, at, None], a.shape), "logit"
    a, b = population.numerators[variable], population.denominators[variable]
    if heads is not None:
        chosen = np.random.default_rng(0).permutation(a.shape[1])[:heads]
        a, b = a[:, chosen], b[:, chosen]
    return a, b, SCALES[variable]


TABLES: dict[str, Callable[[dict[str, Population], int], list[str]]] = {
    "coverage": _coverage_table,
    "claims": _claims_table,
    "lists": _lists_table,
}


if __name__ == "__main__":
    main()
