"""Random parsed documents with mentions, split into tokens, under random attention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headscope.attention import Attention
from headscope.batch import Axes, Batch
from headscope.metrics.core.labels import Labeler
from headscope.text.document import NO_PARENT, Document, Mention, Span
from headscope.text.tokens import Tokens

FORMS = ("he", "she", "they", "it", "Mary", "cat", "dogs", "'s", "boss", "Bob", "team", ",")
UPOS = ("PRON", "NOUN", "PROPN", "PUNCT")
RELATIONS = ("case", "nmod:poss", "obj", "poss", "punct", "root")


@dataclass
class World:
    """One document, its tokens, and the attention of all layers and heads."""

    document: Document
    words: list[int]
    """The word of each token, -1 for none."""
    attention: np.ndarray
    """`layer head query key`"""
    is_causal: bool
    tokens: Tokens

    @property
    def covered(self) -> list[bool]:
        return [word in self.words for word in range(len(self.document))]


def make_world(
    generator: np.random.Generator, number: int, *, is_causal: bool, layers: int, heads: int
) -> World:
    n = int(generator.integers(1, 15))
    forms = [str(form) for form in generator.choice(FORMS, n)]
    starts = np.cumsum([0, *(len(form) + 1 for form in forms)])
    spans = [
        (int(start), int(start) + len(form)) for start, form in zip(starts[:-1], forms, strict=True)
    ]
    document = Document(
        id=f"world {number}",
        text=" ".join(forms),
        words=tuple(forms),
        spans=tuple(spans),
        sentences=((0, n),),
        upos=tuple(str(tag) for tag in generator.choice(UPOS, n)),
        parents=_tree(generator, n),
        relations=tuple(str(name) for name in generator.choice(RELATIONS, n)),
        mentions=_mentions(generator, n),
        meta={"condition": str(generator.choice(["pro", "anti"]))},
    )
    offsets, words = [], []
    for word, (start, end) in enumerate(spans):
        if generator.random() < 0.1:
            continue  # a word that no token covers
        cuts = sorted({start, end, *(int(c) for c in generator.integers(start, end + 1, 1))})
        for a, b in itertools.pairwise(cuts):
            offsets.append((a, b))
            words.append(word)
    special = [False] * len(words)
    if not is_causal:
        offsets, words = [(0, 0), *offsets, (0, 0)], [-1, *words, -1]
        special = [True, *special, True]
    length = len(words)
    scores = generator.normal(0, 2, (layers, heads, length, length))
    if is_causal:
        scores[..., ~np.tril(np.ones((length, length), dtype=bool))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True)) if length else scores
    weights = weights / weights.sum(-1, keepdims=True)
    tokens = tokens_at(document, offsets, special)
    return World(document, words, weights, is_causal, tokens)


def tokens_at(
    document: Document, offsets: Sequence[Span], special: Sequence[bool] | None = None
) -> Tokens:
    """Tokens of a document that stand there in its text."""
    n = len(offsets)
    return Tokens(
        texts=(document.text,),
        tokens=tuple(document.text[start:end] for start, end in offsets),
        ids=(-1,) * n,
        special=(False,) * n if special is None else tuple(special),
        segments=(0,) * n,
        generated=(False,) * n,
        offsets=tuple(offsets),
    )


def make_worlds(
    seed: int, n: int, *, is_causal: bool, layers: int = 2, heads: int = 3
) -> list[World]:
    """Documents that have at least one token."""
    generator = np.random.default_rng(seed)
    made = (
        make_world(generator, number, is_causal=is_causal, layers=layers, heads=heads)
        for number in range(n)
    )
    return [world for world in made if world.words]


def _tree(generator: np.random.Generator, n: int) -> tuple[int, ...]:
    """A tree over n words; sometimes one head is unknown, as after a cut."""
    order = generator.permutation(n)
    heads = [-1] * n
    for place in range(1, n):
        heads[int(order[place])] = int(order[generator.integers(0, place)])
    if n > 3 and generator.random() < 0.3:
        heads[int(order[-1])] = NO_PARENT
    return tuple(heads)


def _mentions(generator: np.random.Generator, n: int) -> tuple[Mention, ...]:
    """Nested, crossing, doubled and discontinuous ones among them."""
    found = []
    for _ in range(int(generator.integers(0, n + 2))):
        start = int(generator.integers(0, n))
        stop = min(n, start + int(generator.integers(1, 4)))
        spans = [(start, stop)]
        if stop + 2 <= n and generator.random() < 0.1:
            spans.append((stop + 1, stop + 2))
        head = int(generator.integers(start, stop)) if generator.random() < 0.2 else None
        found.append(Mention(str(generator.integers(0, 4)), tuple(spans), None, head))
    return tuple(sorted(found, key=lambda mention: mention.spans))


def batch_of_worlds(
    worlds: list[World],
    *,
    first: int = 0,
    parts: int = 4,
    relations: tuple[str, ...] = RELATIONS,
) -> Batch:
    axes = Axes((), relations, buckets_per_group=parts)
    documents = [world.document for world in worlds]
    sequences = Labeler(axes, "universal").sequences(documents, [w.tokens for w in worlds])
    numbers = np.arange(first, first + len(worlds), dtype=np.float64)
    return Batch(
        axes,
        {"self": sequences},
        numbers,
        numbers / 1000,
        (numbers.astype(np.int64) * 7) % parts,
        documents=tuple(documents),
    )


def layers_of(worlds: list[World], batch: Batch) -> list[Attention]:
    """The layers of a batch; rows of padding hold garbage."""
    length = batch.stacks["self"].mask.shape[1]
    found = []
    for layer in range(worlds[0].attention.shape[0]):
        weights = np.zeros((len(worlds), worlds[0].attention.shape[1], length, length))
        for row, world in enumerate(worlds):
            n = len(world.words)
            weights[row, :, :n, :n] = world.attention[layer]
            weights[row, :, n:, :] = 0.25
        found.append(Attention(torch.from_numpy(weights), "self", layer, worlds[0].is_causal))
    return found
