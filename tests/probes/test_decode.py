"""Trees against the best of all trees, tried one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from headscope.probes.predict import best_tree, decode


def is_tree(heads: tuple[int, ...]) -> bool:
    """One root, and following heads always ends there."""
    n = len(heads)
    if heads.count(n) != 1:
        return False
    for node in range(n):
        for _ in range(n):
            node = heads[node] if node < n else n
        if node != n:
            return False
    return True


def slow_best(scores: np.ndarray) -> tuple[tuple[int, ...], float]:
    n = len(scores)
    trees = [heads for heads in product(range(n + 1), repeat=n) if is_tree(heads)]
    sums = [sum(scores[word, head] for word, head in enumerate(heads)) for heads in trees]
    return trees[int(np.argmax(sums))], max(sums)


def random_scores(n: int, generator: np.random.Generator, root: float = 0.0) -> np.ndarray:
    scores = generator.normal(size=(n, n + 1))
    scores[:, n] += root
    scores[np.arange(n), np.arange(n)] = -np.inf
    return scores


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("root", [-3.0, 0.0, 3.0])
def test_the_best_of_all_trees(n: int, root: float) -> None:
    generator = np.random.default_rng(n)
    for _ in range(12):
        scores = random_scores(n, generator, root)
        expected, total = slow_best(scores)
        found = best_tree(scores)
        assert tuple(found) == expected
        assert scores[np.arange(n), found].sum() == pytest.approx(total)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_the_best_tree_where_some_words_cannot_be_heads(n: int) -> None:
    generator = np.random.default_rng(n)
    for _ in range(12):
        scores = random_scores(n, generator, 4.0)  # every word would like to be the root
        scores[:, generator.permutation(n)[: n - 2]] = -np.inf
        expected, total = slow_best(scores)
        assert np.isfinite(total)
        assert tuple(best_tree(scores)) == expected


def test_there_are_as_many_trees_as_there_should_be() -> None:
    # Cayley: n^(n-2) trees over n words, any of which can be the root
    for n in (1, 2, 3, 4):
        count = sum(is_tree(heads) for heads in product(range(n + 1), repeat=n))
        assert count == n ** (n - 1)


@pytest.mark.parametrize("n", [12, 40])
def test_large_sentences_give_trees(n: int) -> None:
    generator = np.random.default_rng(0)
    for _ in range(5):
        scores = random_scores(n, generator, 2.0)
        found = best_tree(scores)
        assert is_tree(tuple(int(head) for head in found))
        assert scores[np.arange(n), found].sum() <= scores.max(1).sum() + 1e-9


def test_what_is_a_tree_already_is_left_alone() -> None:
    scores = np.full((3, 4), -5.0)
    scores[[0, 1, 2], [1, 3, 1]] = 5.0
    scores[[0, 1, 2], [0, 1, 2]] = -np.inf
    assert decode(scores, "greedy").tolist() == best_tree(scores).tolist() == [1, 3, 1]


def test_a_cycle_is_broken_where_it_costs_least() -> None:
    # the two words choose one another; ROOT costs word 0 by 2 and word 1 by 1
    scores = np.array([[-np.inf, 4.0, 2.0], [4.0, -np.inf, 3.0]])
    assert decode(scores, "greedy").tolist() == [1, 0]
    assert decode(scores, "tree").tolist() == [1, 2]


def test_words_that_cannot_be_heads() -> None:
    none = -np.inf
    only_second = np.array([[none, 0.0, 9.0], [none, none, -9.0], [none, 0.0, 9.0]])
    only_second = np.insert(only_second, 2, none, axis=1)  # word 2 has no tokens either
    assert best_tree(only_second).tolist() == [1, 3, 1]
    assert best_tree(np.array([[none, 0.5]])).tolist() == [1]
    assert best_tree(np.full((2, 3), none)).tolist() == [2, 2]
