"""Decode scores into parents, and apply trained probes to new text.

Scores are `word candidate`: candidates 0 … n-1 are the words, n is ROOT. A candidate that cannot
be the parent (the word itself, a word without tokens) has a score of -inf.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from headscope.arguments import expect
from headscope.errors import InputError, UnknownName
from headscope.model.identity import weights_sha256
from headscope.model.load import as_model, randomized
from headscope.model.model import Model
from headscope.probes.features import AttentionReader
from headscope.probes.training import ProbeBatch, Scorer, make_scorer
from headscope.probes.word_vectors import WordVectors, load_vectors
from headscope.results.probe import Probe
from headscope.text.document import ROOT, Document
from headscope.text.readers.read import read

Decoding = Literal["greedy", "tree"]
"""`greedy`: each word's best candidate. `tree`: the best tree with one root."""
DECODINGS: tuple[Decoding, ...] = ("greedy", "tree")


def decode(scores: np.ndarray, decoding: Decoding) -> np.ndarray:
    """Return `word`: the number of its parent, n for ROOT. The paper evaluates `greedy`."""
    return np.asarray(scores.argmax(1)) if decoding == "greedy" else best_tree(scores)


def best_tree(scores: np.ndarray) -> np.ndarray:
    """Return `word`: its parent in the tree with the highest score and exactly one root word.

    Chu and Liu (1965), Edmonds (1967). Each word below ROOT costs a price that exceeds all other
    scores, so the best tree has only one.

    All words have the same candidates, except themselves. A word therefore has no candidate in
    two cases only: it is the single candidate of the others (then it is the root), or there are
    no candidates (then every word is a root).
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
    """Return `node`: its parent in the best tree below `root`, which has no entry. `scores` are
    `node candidate`; -inf without an edge.
    """
    parents: np.ndarray = scores.argmax(1)
    parents[root] = root
    cycle = _find_cycle(parents, root)
    if cycle is None:
        return parents
    inside = np.zeros(len(scores), dtype=bool)
    inside[cycle] = True
    outer = np.flatnonzero(~inside)
    kept = scores[cycle, parents[cycle]]
    # The cycle becomes one node: entering it at a word costs that word's edge in the cycle.
    entering = scores[np.ix_(cycle, outer)] - kept[:, None]
    leaving = scores[np.ix_(outer, cycle)]
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
            parents[node] = cycle[exit_[place]] if parent == m else outer[parent]
    broken = cycle[entry[smaller_parents[m]]]
    parents[broken] = outer[smaller_parents[m]]
    return parents


def _find_cycle(parents: np.ndarray, root: int) -> np.ndarray | None:
    state = np.zeros(len(parents), dtype=np.int64)  # number of the walk that reached a node first
    state[root] = -1
    for start in range(len(parents)):
        node = start
        while state[node] == 0:
            state[node] = start + 1
            node = int(parents[node])
        if state[node] == start + 1 and node != root:
            cycle = [node]
            while parents[cycle[-1]] != node:
                cycle.append(int(parents[cycle[-1]]))
            return np.array(cycle)
    return None


def predict(
    probe: Probe,
    document: Document | str,
    model: Model | str,
    *,
    decoding: Decoding = "greedy",
    vectors: WordVectors | None = None,
) -> tuple[int, ...]:
    """See `Probe.predict`."""
    expect("document", document, Document | str, "a document or a text")
    UnknownName.check("decoding", decoding, DECODINGS)
    if isinstance(document, str):
        document = next(iter(read([document])))
    scorer = scorer_of(probe)
    max_tokens = int(probe.provenance["options"]["max_tokens"])
    reader = AttentionReader(
        _checked_model(probe, as_model(model)),
        max_tokens=max_tokens,
        over=probe.provenance["options"].get("over", "attention"),
    )
    words = _checked_vectors(probe, vectors) if scorer.reads_words else None
    parents: list[int] = []
    for sentence in document.split("sentence"):
        start, n = len(parents), len(sentence)
        has_tokens = torch.from_numpy(reader.survey([sentence]).has_tokens[0])[None]
        attention = word_vectors = None
        if scorer.reads_attention:
            ((_, array),) = reader.read([(0, sentence)])
            attention = torch.from_numpy(array)[None]
        if words is not None:
            word_vectors = torch.from_numpy(words.of(sentence.words))[None]
        unknown = torch.full_like(has_tokens, -1, dtype=torch.int64)
        with torch.inference_mode():
            batch = ProbeBatch(has_tokens, unknown, attention, word_vectors)
            scores = scorer(batch)[0].double().numpy()
        parents += [
            ROOT if parent == n else start + int(parent) for parent in decode(scores, decoding)
        ]
    return tuple(parents)


def scorer_of(probe: Probe) -> Scorer:
    """Return a scorer with the probe's weights."""
    sizes = probe.parameters.sizes
    scorer = make_scorer(
        probe.kind,
        n_heads=sizes.get("input", 0),
        n_edges=sizes.get("edge", 0) // 2,
        n_dimensions=sizes.get("dimension", 0),
    )
    scorer.load({str(name): data.values for name, data in probe.parameters.data_vars.items()})
    return scorer.eval()


def _checked_model(probe: Probe, model: Model) -> Model:
    """Return the model of the training: this one, or its randomized control."""
    expected = probe.provenance["model"]["weights_sha256"]
    seed = probe.provenance["control_seed"]
    candidate = model if seed is None else randomized(model, int(seed))
    if weights_sha256(candidate.module) != expected:
        raise InputError(
            f"The probe was trained on {probe.provenance['model']['name']} with other weights "
            f"(SHA-256 {expected[:16]}…) than those of {model.name}."
        )
    return candidate


def _checked_vectors(probe: Probe, vectors: WordVectors | None) -> WordVectors:
    """Return the vectors of the training: these, or those loaded from their source."""
    trained = probe.provenance["vectors"]
    vectors = load_vectors(trained["source"]) if vectors is None else vectors
    if vectors.sha256 != trained["sha256"]:
        raise InputError(
            f"The probe was trained with {trained['name']} (SHA-256 {trained['sha256'][:16]}…), "
            f"not with {vectors.name} ({vectors.sha256[:16]}…)."
        )
    return vectors
