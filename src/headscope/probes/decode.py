"""From the scores of candidates to parents: the best candidate of each word, or the best tree.

Scores are `word candidate`: candidates 0 … n-1 are the words, n is ROOT. What cannot be a
head (the word itself, a word without tokens) has a score of -inf.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Decoding = Literal["greedy", "tree"]
"""Every word's best candidate by itself, or the best of all trees with one root."""
DECODINGS: tuple[Decoding, ...] = ("greedy", "tree")


def decode(scores: np.ndarray, decoding: Decoding) -> np.ndarray:
    """`word`: the number of its head, n for ROOT."""
    return best_heads(scores) if decoding == "greedy" else best_tree(scores)


def best_heads(scores: np.ndarray) -> np.ndarray:
    """`word`: its best candidate, whatever the others have. What the paper scores."""
    return np.asarray(scores.argmax(1))


def best_tree(scores: np.ndarray) -> np.ndarray:
    """`word`: its head in the tree with the highest sum of scores and exactly one root word.

    Chu and Liu (1965), Edmonds (1967). Every tree has a root; a price on ROOT above what
    all other scores could make up for leaves it with one.

    Candidates are the same words for all, but for the word itself. So a word has none only
    where it is the single candidate (then it is the root) or where there is no candidate at
    all (then every word is).
    """
    n = len(scores)
    has_none = ~np.isfinite(scores[:, :n]).any(1)
    if has_none.any():
        return np.where(has_none, n, scores[:, :n].argmax(1))
    finite = scores[np.isfinite(scores)]
    price = 1 + n * (finite.max() - finite.min())
    priced = np.full((n + 1, n + 1), -np.inf)
    priced[:n, :n], priced[:n, n] = scores[:, :n], scores[:, n] - price
    return _arborescence(priced, n)[:n]


def _arborescence(scores: np.ndarray, root: int) -> np.ndarray:
    """`node`: its head in the best tree that hangs from `root` (whose own is meaningless).

    Args:
        scores: `node candidate`, square; -inf where there is no edge.
        root: the node that gets no head.
    """
    parents: np.ndarray = scores.argmax(1)
    parents[root] = root
    ring = _ring(parents, root)
    if ring is None:
        return parents
    inside = np.zeros(len(scores), dtype=bool)
    inside[ring] = True
    outer = np.flatnonzero(~inside)
    kept = scores[ring, parents[ring]]
    # The ring becomes one node: entering it at a word costs that word's edge in the ring.
    entering = scores[np.ix_(ring, outer)] - kept[:, None]
    leaving = scores[np.ix_(outer, ring)]
    entry, exit_ = entering.argmax(0), leaving.argmax(1)
    m = len(outer)
    smaller = np.full((m + 1, m + 1), -np.inf)
    smaller[:m, :m] = scores[np.ix_(outer, outer)]
    smaller[m, :m] = entering.max(0)
    smaller[:m, m] = leaving.max(1)
    smaller_parents = _arborescence(smaller, int(np.flatnonzero(outer == root)[0]))
    for place, node in enumerate(outer):
        if node != root:
            parent = smaller_parents[place]
            parents[node] = ring[exit_[place]] if parent == m else outer[parent]
    broken = ring[entry[smaller_parents[m]]]
    parents[broken] = outer[smaller_parents[m]]
    return parents


def _ring(parents: np.ndarray, root: int) -> np.ndarray | None:
    """The nodes of a cycle, if following parents does not always end at the root."""
    state = np.zeros(len(parents), dtype=np.int64)  # the walk in which a node was first met
    state[root] = -1
    for start in range(len(parents)):
        node = start
        while state[node] == 0:
            state[node] = start + 1
            node = int(parents[node])
        if state[node] == start + 1 and node != root:
            ring = [node]
            while parents[ring[-1]] != node:
                ring.append(int(parents[ring[-1]]))
            return np.array(ring)
    return None
