"""The sentences a trained probe learns from: words, parents, and which of them count.

Plain NumPy, no attention and no model: `headscope.probes.features` tokenizes, and says which words
have tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headscope.errors import InputError
from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.token_classes import is_punctuation
from headscope.text.tree import NO_PARENT, ROOT

NOT_COUNTED = -1
"""Target of a word that is neither trained on nor scored."""


@dataclass(frozen=True, eq=False)
class Treebank:
    """Parsed sentences, each a document of its own."""

    name: str
    hash: str
    documents: tuple[Document, ...]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def lengths(self) -> np.ndarray:
        """`sentence`: how many words."""
        return np.array([len(document) for document in self.documents], dtype=np.int64)

    def describe(self) -> dict[str, str | int]:
        """For provenance."""
        return {
            "name": self.name,
            "hash": self.hash,
            "sentences": len(self),
            "words": int(self.lengths.sum()),
        }


def read_treebank(corpus: Corpus | Readable) -> Treebank:
    """The sentences of a corpus, which must be parsed. Documents are not cut.

    Raises:
        InputError: there are no sentences, a sentence has no parents, or a document has several
            sentences; the message names the document.
    """
    corpus = as_corpus(corpus)
    documents = tuple(document for document in corpus if len(document))
    for document in documents:
        if document.parents is None or set(document.parents) == {NO_PARENT}:
            raise InputError(
                f"Document {document.id!r} of {corpus.name} has no trees, and a probe learns from "
                "them. Give a treebank (CoNLL-U), or parse the corpus: headscope.annotate."
            )
        if len(document.sentences) > 1:
            raise InputError(
                f"Document {document.id!r} of {corpus.name} has {len(document.sentences)} "
                "sentences, and a probe learns from one at a time. Read it by sentence: "
                'corpus.by("sentence"), or headscope.read(…, unit="sentence").'
            )
    if not documents:
        raise InputError(f"{corpus.name} has no sentences: there is nothing to learn from.")
    return Treebank(corpus.name, corpus.hash, documents)


def targets(document: Document, has_tokens: np.ndarray) -> np.ndarray:
    """`word`: the number of its parent, `len(document)` for ROOT, or `NOT_COUNTED` where the
    parent is unknown or the word has no token.
    """
    parents = np.asarray(document.parents, dtype=np.int64)
    wanted = np.where(parents == ROOT, len(document), parents)
    return np.where((parents == NO_PARENT) | ~has_tokens, NOT_COUNTED, wanted)


def punctuation(document: Document) -> np.ndarray:
    """`word`: is it punctuation? By the universal tag, else the relation, else its characters."""
    if document.upos is not None and "_" not in document.upos:
        return np.array([tag == "PUNCT" for tag in document.upos])
    if document.relations is not None and "punct" in document.relations:
        return np.array([relation == "punct" for relation in document.relations])
    return np.array([is_punctuation(word) for word in document.words])


def right_branching(n_words: int) -> np.ndarray:
    """`word`: the next word; ROOT (`n_words`) for the last."""
    return np.arange(1, n_words + 1)
