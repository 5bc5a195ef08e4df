"""What the tokens of a document are labeled with: its words' tags, parents and relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from headscope.batch import Axes, NullKeys, Sequences
from headscope.errors import UnknownName
from headscope.text.align import align_array
from headscope.text.document import Document

__all__ = ["NO_TAG", "Labeler", "Tagset", "Tokenized", "check_rules", "tags_of"]

Tagset = Literal["universal", "specific"]
"""Universal tags (`NOUN`), or the language's own (`NNS`)."""

NO_TAG = "_"


@dataclass(frozen=True, slots=True, eq=False)
class Tokenized:
    """A document's tokens in one stack."""

    special: np.ndarray
    """`token`: added by the tokenizer."""
    offsets: np.ndarray | None
    """`token 2`: characters of the document; None where the tokenizer does not tell, or
    the tokens are of another text."""
    ids: np.ndarray | None = None
    """`token`: numbers that are equal where tokens are."""
    classes: np.ndarray | None = None
    """`token class`: is it of each of `Axes.key_classes`?"""

    def __len__(self) -> int:
        return len(self.special)


def check_rules(tagset: object, null_keys: object) -> None:
    """Refuse a tagset, or a rule for null keys, that does not exist."""
    for what, name, known in (
        ("tagset", tagset, get_args(Tagset)),
        ("null_keys", null_keys, get_args(NullKeys)),
    ):
        if name not in known:
            raise UnknownName.of(what, name, known)


def tags_of(document: Document, tagset: Tagset) -> tuple[str, ...] | None:
    """The document's tags in a tagset."""
    return document.upos if tagset == "universal" else document.xpos


class Labeler:
    """Numbers tags and relations as a run's axes do, and spreads them over tokens."""

    def __init__(self, axes: Axes, tagset: Tagset) -> None:
        self._tagset = tagset
        self._n_classes = len(axes.key_classes)
        self._tags = {tag: number for number, tag in enumerate(axes.tags)}
        self._relations = {name: number for number, name in enumerate(axes.relations)}

    def sequences(self, documents: Sequence[Document], tokenized: Sequence[Tokenized]) -> Sequences:
        """The labels of all tokens, padded at the right to the longest document."""
        shape = len(documents), max((len(tokens) for tokens in tokenized), default=0)
        mask, special = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        numbers = {name: np.full(shape, -1, dtype=np.int64) for name in FIELDS}
        is_tagged = np.zeros(len(documents), dtype=bool)
        is_parsed = np.zeros(len(documents), dtype=bool)
        ids = np.full(shape, -1, dtype=np.int64)
        classes = np.zeros((*shape, self._n_classes), dtype=bool)
        for row, (document, tokens) in enumerate(zip(documents, tokenized, strict=True)):
            n = len(tokens)
            mask[row, :n] = True
            special[row, :n] = tokens.special
            if tokens.ids is not None:
                ids[row, :n] = tokens.ids
            if tokens.classes is not None:
                classes[row, :n] = tokens.classes
            if tokens.offsets is None:
                continue
            words = align_array(tokens.offsets, document.spans)
            words[tokens.special] = -1
            numbers["words"][row, :n] = words
            tags = tags_of(document, self._tagset)
            is_tagged[row] = tags is not None
            is_parsed[row] = document.parents is not None
            for name, values in (
                ("tags", _numbers(tags, self._tags)),
                ("relations", _numbers(document.relations, self._relations)),
                ("parents", document.parents),
            ):
                if values is not None and len(values):
                    found = np.asarray(values, dtype=np.int64)[np.maximum(words, 0)]
                    numbers[name][row, :n] = np.where(words >= 0, found, -1)
        has_ids = all(tokens.ids is not None for tokens in tokenized)
        has_classes = all(tokens.classes is not None for tokens in tokenized)
        return Sequences(
            mask=mask,
            special=special,
            is_tagged=is_tagged,
            is_parsed=is_parsed,
            ids=ids if has_ids else None,
            classes=classes if has_classes else None,
            **numbers,
        )


FIELDS = ("words", "parents", "tags", "relations")


def _numbers(labels: Sequence[str] | None, known: Mapping[str, int]) -> list[int] | None:
    return None if labels is None else [known.get(label, -1) for label in labels]
