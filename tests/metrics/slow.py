"""Every metric once more, slowly: loops written from the formulas of METHODS section 2.

Nothing of headscope's metrics is used. A document is a `Case`: attention of all layers and
heads as nested arrays, and per-token facts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from headscope.testing import RandomDocument


class Case(RandomDocument):
    def is_null(self, j: int) -> bool:
        return j == 0 if self.is_causal else self.special[j]

    def pairs(self):
        for i in range(self.n):
            if self.special[i]:
                continue
            for j in range(i + 1 if self.is_causal else self.n):
                if not self.is_null(j):
                    yield i, j

    def parent(self, i: int, j: int) -> str | None:
        """Who is the parent, of two tokens in a relation."""
        if self.words is None or self.parents is None:
            return None
        if self.words[i] < 0 or self.words[j] < 0:
            return None
        if self.parents[j] >= 0 and self.parents[j] == self.words[i]:
            return "query"
        if self.parents[i] >= 0 and self.parents[i] == self.words[j]:
            return "key"
        return None


def divide(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


def slow_metrics(cases: list[Case], first: int = 10, k: int = 10) -> dict[str, Any]:
    """Values by variable; over layer and head as nested dicts of (layer, head)."""
    n_layers, n_heads = cases[0].attention.shape[:2]
    found: dict[str, Any] = defaultdict(dict)
    pairs = related = span = 0.0
    by_distance: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    forms = {"query": 0.0, "key": 0.0}
    for case in cases:
        if case.parents is None:
            continue
        for i, j in case.pairs():
            parent = case.parent(i, j)
            pairs += 1
            by_distance[abs(i - j)][1] += 1
            if parent:
                related += 1
                forms[parent] += 1
                span += abs(i - j)
                by_distance[abs(i - j)][0] += 1
    found["dep_baseline"] = divide(related, pairs)
    found["dep_baseline_by_parent"] = {
        **{name: divide(n, pairs) for name, n in forms.items()},
        "either": divide(related, pairs),
    }
    found["dep_span"] = divide(span, related)
    found["dep_by_distance"] = {d: divide(*x) for d, x in by_distance.items() if d > 0}
    for layer in range(n_layers):
        for head in range(n_heads):
            at = layer, head
            for name, value in _one_head(cases, layer, head, first, k).items():
                found[name][at] = value
    return dict(found)


def _one_head(cases: list[Case], layer: int, head: int, first: int, k: int) -> dict[str, Any]:
    null = everything = total = tagged = parsed = far = 0.0
    to: dict[str, float] = defaultdict(float)
    frm: dict[str, float] = defaultdict(float)
    types: dict[str, float] = defaultdict(float)
    aligned = {"query": 0.0, "key": 0.0, "either": 0.0}
    entropies = []
    best = []
    for number, case in enumerate(cases):
        a = case.attention[layer, head]
        for i in range(case.n):
            if case.special[i]:
                continue
            for j in range(case.n):
                everything += a[i, j]
                null += a[i, j] if case.is_null(j) else 0.0
            keys = [j for j in range(case.n) if not case.is_null(j)]
            mass = math.fsum(a[i, j] for j in keys)
            whole = math.fsum(a[i, j] for j in range(case.n))
            if mass > 0 and whole - mass <= 0.9 * whole:
                p = [a[i, j] / mass for j in keys]
                entropies.append(-math.fsum(x * math.log(x) for x in p if x > 0))
        highest = (-math.inf, 0, 0)
        for i, j in case.pairs():
            w = float(a[i, j])
            total += w
            far += w * abs(i - j)
            if (w, -j, -i) > (highest[0], -highest[2], -highest[1]):
                highest = (w, i, j)
            if case.tags is not None:
                tagged += w
                if case.tags[j]:
                    to[case.tags[j]] += w
                if case.tags[i]:
                    frm[case.tags[i]] += w
            if case.parents is not None:
                parsed += w
                if case.relations is not None and case.relations[j]:
                    types[case.relations[j]] += w
                parent = case.parent(i, j)
                if parent:
                    aligned[parent] += w
                    aligned["either"] += w
        if highest[0] > 0:
            best.append((-highest[0], number, highest[1], highest[2]))
    return {
        "null_share": divide(null, everything),
        "distance": divide(far, total),
        "pos_to": {t: divide(x, tagged) for t, x in to.items()},
        "pos_from": {t: divide(x, tagged) for t, x in frm.items()},
        "dep_type_to": {t: divide(x, parsed) for t, x in types.items()},
        "dep_alignment": {t: divide(x, parsed) for t, x in aligned.items()},
        "entropy": divide(math.fsum(entropies), len(entropies)),
        "entropy_count": len(entropies),
        "variability": _variability(cases, layer, head, first),
        "exemplars": [(-w, n, i, j) for w, n, i, j in sorted(best)[:k]],
    }


def _variability(cases: list[Case], layer: int, head: int, first: int) -> float:
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for case in cases:
        a = case.attention[layer, head]
        positions = [i for i in range(case.n) if not case.special[i]][:first]
        for p, i in enumerate(positions):
            for q, j in enumerate(positions):
                if case.is_null(j) or (case.is_causal and j > i):
                    continue
                values[p, q].append(float(a[i, j]))
    deviations = total = 0.0
    for found in values.values():
        mean = math.fsum(found) / len(found)
        deviations += math.fsum(abs(x - mean) for x in found)
        total += math.fsum(found)
    return divide(deviations, 2 * total)
