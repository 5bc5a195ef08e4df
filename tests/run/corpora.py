"""Corpora for tests of runs: a few hundred short annotated documents."""

from __future__ import annotations

import numpy as np

from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.readers.read import read

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "under", "table", "red", "house", "tree"]
TAGS = ["DET", "NOUN", "VERB", "ADP", "ADJ"]
RELATIONS = ["det", "nsubj", "obj", "case"]


def make_documents(n: int, seed: int = 0, *, first: int = 0) -> list[Document]:
    """Documents of 1 to 12 words with random tags and trees; two genres."""
    generator = np.random.default_rng(seed)
    return [_document(generator, first + number) for number in range(n)]


def _document(generator: np.random.Generator, number: int) -> Document:
    size = int(generator.integers(1, 13))
    words = tuple(str(generator.choice(WORDS)) for _ in range(size))
    text, spans = "", []
    for word in words:
        text += " " * bool(text)
        spans.append((len(text), len(text) + len(word)))
        text += word
    parents = (-1, *(int(generator.integers(0, w)) for w in range(1, size)))
    return Document(
        id=f"d{number}",
        text=text,
        words=words,
        spans=tuple(spans),
        sentences=((0, size),),
        upos=tuple(str(generator.choice(TAGS)) for _ in words),
        parents=parents,
        relations=("root", *(str(generator.choice(RELATIONS)) for _ in words[1:])),
        meta={"genre": "news" if number % 2 else "fiction"},
    )


def make_corpus(n: int, seed: int = 0, *, first: int = 0) -> Corpus:
    return read(make_documents(n, seed, first=first))
