"""Surface metrics once more, slowly, from the formulas of Clark et al. and of the detectors."""

from __future__ import annotations

import math
from typing import Any

from tests.metrics.slow import Case, divide

PUNCTUATION = {".", ",", "!"}


def is_of(case: Case, j: int, name: str) -> bool:
    token = case.tokens[j]
    if name == "first":
        return j == 0
    if case.special[j]:
        return token == name
    return {
        ". or ,": token in {".", ","},
        "punctuation": token in PUNCTUATION,
        "rest": token not in PUNCTUATION,
    }.get(name, False)


def ratios(case: Case, layer: int, head: int, names: tuple[str, ...]) -> dict[Any, tuple]:
    """Numerator and denominator of one document by metric and label."""
    a = case.attention[layer, head]
    n = case.n
    found: dict[Any, list[float]] = {}

    def add(key: Any, x: float, y: float) -> None:
        at = found.setdefault(key, [0.0, 0.0])
        at[0] += x
        at[1] += y

    separators = [case.special[i] and i > 0 for i in range(n)]
    for i in range(n):
        mass = math.fsum(a[i])
        for offset in (-1, 0, 1):
            if 0 <= i + offset < n:
                add(("offset_share", offset), a[i, i + offset], mass)
        for name in names:
            add(
                ("class_share", name),
                math.fsum(a[i, j] for j in range(n) if is_of(case, j, name)),
                mass,
            )
        if any(separators):
            to = math.fsum(a[i, j] for j in range(n) if separators[j])
            add("sep_from_sep" if separators[i] else "sep_from_other", to, mass)
        entropy = -math.fsum(x / mass * math.log(x / mass) for x in a[i] if x > 0)
        add("row_entropy", entropy, 1)
        if i == 0:
            add("first_entropy", entropy, 1)
        add("uniform_entropy", math.log(i + 1 if case.is_causal else n), 1)
        if case.special[i]:
            continue
        before = [j for j in range(i) if not case.special[j] and case.tokens[j] == case.tokens[i]]
        after = [j + 1 for j in before if j + 1 < i - 1 and not case.special[j + 1]]
        if before:
            add("duplicate_token", math.fsum(a[i, j] for j in before), mass)
        if after:
            add("induction", math.fsum(a[i, j] for j in after), mass)
    if n > 1:
        add("sink_rate", float(math.fsum(a[:, 0]) / n > 0.3), 1)
    return {key: tuple(value) for key, value in found.items()}


def slow_surface(
    cases: list[Case], names: tuple[str, ...], weighting: str = "token"
) -> dict[tuple[int, int], dict[Any, float]]:
    """Values by layer and head, then by metric and label."""
    n_layers, n_heads = cases[0].attention.shape[:2]
    result = {}
    for layer in range(n_layers):
        for head in range(n_heads):
            sums: dict[Any, list[float]] = {}
            for case in cases:
                for key, (x, y) in ratios(case, layer, head, names).items():
                    at = sums.setdefault(key, [0.0, 0.0])
                    if weighting == "document":
                        x, y = (x / y, 1.0) if y > 0 else (0.0, 0.0)
                    at[0] += x
                    at[1] += y
            result[layer, head] = {key: divide(*value) for key, value in sums.items()}
    return result
