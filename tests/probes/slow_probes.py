"""The probes once more, slowly: loops written from the text of METHODS section 4.

Nothing of headscope's metrics is used; only documents, and the head word of a mention.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from headscope.text.antecedents import Headed, agree, mention_kind, traits_of
from headscope.text.document import mention_head
from tests.probes.worlds import World

PARTICLES = {"'s", "s'", "’s", "s’", "'", "’"}


def between_words(world: World, layer: int, head: int) -> dict[tuple[int, int], float]:
    """To a split word the sum over its tokens, from it the mean."""
    weights = world.attention[layer, head]
    tokens = defaultdict(list)
    for token, word in enumerate(world.words):
        if word >= 0:
            tokens[word].append(token)
    return {
        (query, key): sum(sum(float(weights[i, j]) for j in tokens[key]) for i in tokens[query])
        / len(tokens[query])
        for query in tokens
        for key in tokens
    }


def most_attended(
    between: dict[tuple[int, int], float], query: int, allowed: list[int], *, transposed: bool
) -> int | None:
    best, highest = None, 0.0
    for word in sorted(allowed):
        pair = (word, query) if transposed else (query, word)
        if word != query and between.get(pair, 0.0) > highest:
            best, highest = word, between[pair]
    return best


def slow_dependencies(
    worlds: list[World], *, punctuation: bool, possessive: bool
) -> dict[str, Any]:
    """Right cases by (direction, relation, layer, head), of offsets by (offset, relation)."""
    right: dict[Any, int] = defaultdict(int)
    cases: dict[str, int] = defaultdict(int)
    visible: dict[Any, int] = defaultdict(int)
    by_offset: dict[Any, int] = defaultdict(int)
    for world in worlds:
        document, covered = world.document, world.covered
        n_layers, n_heads = world.attention.shape[:2]
        tables = {
            (layer, head): between_words(world, layer, head)
            for layer in range(n_layers)
            for head in range(n_heads)
        }
        for word, parent in enumerate(document.parents):
            name = document.relations[word]
            if not covered[word] or parent == -2 or (name == "punct" and not punctuation):
                continue
            query = word
            if (
                possessive
                and name in ("poss", "nmod:poss")
                and word + 1 < len(document)
                and covered[word + 1]
                and document.words[word + 1].lower() in PARTICLES
            ):
                query = word + 1
            for label in (name, "all"):
                cases[label] += 1
                for direction, transposed in (("dependent", False), ("head", True)):
                    sees = parent >= 0 and covered[parent]
                    if world.is_causal:
                        sees = sees and (parent > query if transposed else parent < query)
                    visible[direction, label] += sees
                    for (layer, head), between in tables.items():
                        best = most_attended(
                            between, query, range(len(document)), transposed=transposed
                        )
                        right[direction, label, layer, head] += best is not None and best == parent
                for offset in (-3, -2, -1, 1, 2, 3):
                    hit = parent >= 0 and query + offset == parent and covered[parent]
                    by_offset[offset, label] += hit
    return {"right": right, "cases": cases, "visible": visible, "by_offset": by_offset}


def slow_coreference(worlds: list[World], *, words: bool = False) -> dict[str, Any]:
    right: dict[Any, int] = defaultdict(int)
    by_rule: dict[Any, int] = defaultdict(int)
    cases: dict[str, int] = defaultdict(int)
    for world in worlds:
        document, covered = world.document, world.covered
        mentions = []
        seen = set()
        for mention in document.mentions:
            head = mention_head(document, mention)
            if covered[head] and (mention.cluster, mention.spans) not in seen:
                seen.add((mention.cluster, mention.spans))
                mentions.append((head, mention))
        tables = {
            (layer, number): between_words(world, layer, number)
            for layer in range(world.attention.shape[0])
            for number in range(world.attention.shape[1])
        }
        for head, mention in mentions:
            before = [(h, m) for h, m in mentions if h < head]
            antecedents = {h for h, m in before if m.cluster == mention.cluster}
            if not antecedents:
                continue
            kinds = ("all", mention_kind(document, head))
            for kind in kinds:
                cases[kind] += 1
            allowed = range(len(document)) if words else [h for h, _ in before]
            for (layer, number), between in tables.items():
                best = most_attended(between, head, allowed, transposed=False)
                for kind in kinds:
                    right[kind, layer, number] += best in antecedents
            for rule, guess in _rules(document, head, mention, before).items():
                for kind in kinds:
                    by_rule[kind, rule] += guess in antecedents
    return {"right": right, "cases": cases, "by_rule": by_rule}


def _rules(document: Any, head: int, mention: Any, before: list[Any]) -> dict[str, int | None]:
    def text(m: Any) -> list[str]:
        return [document.words[word].lower() for word in m.words()]

    def nearest(some: list[int]) -> int | None:
        return max(some) if some else None

    def traits(h: int, m: Any) -> Any:
        form = document.words[h].lower()
        return traits_of(document, Headed(m, h, mention_kind(document, h), form, ""))

    every = [h for h, _ in before]
    same_text = [h for h, m in before if text(m) == text(mention)]
    same_head = [h for h in every if document.words[h].lower() == document.words[head].lower()]
    agreeing = [h for h, m in before if agree(traits(h, m), traits(head, mention))]
    sieves = next(sieve for sieve in (same_text, same_head, agreeing, every) if sieve)
    return {
        "nearest": nearest(every),
        "head_match": nearest(same_head),
        "sieves": nearest(sieves),
    }


def divide(a: float, b: float) -> float:
    return a / b if b else math.nan


def crossfit_accuracy(
    right_by_part: dict[int, np.ndarray], cases_by_part: dict[int, float]
) -> float:
    """Chosen on even parts and scored on odd ones, and the other way round."""
    total = 0.0
    for chosen, scored in ((0, 1), (1, 0)):
        sums = sum(right for part, right in right_by_part.items() if part % 2 == chosen)
        best = int(np.argmax(sums))
        total += sum(r[best] for part, r in right_by_part.items() if part % 2 == scored)
    return divide(total, sum(cases_by_part.values()))
