"""Labels of tokens: tags, parents and relations of their words, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from headscope.batch import Axes, Sequences
from headscope.text.document import NO_PARENT, Document
from headscope.text.segments import COUNTED
from headscope.text.tokens import Tokens, align_array, class_members, overlong

Tagset = Literal["universal", "specific"]
"""Set of tags: universal (`NOUN`), or specific to the language (`NNS`)."""

NO_TAG = "_"


def tags_of(document: Document, tagset: Tagset) -> tuple[str, ...] | None:
    """Return the document's tags in a tagset."""
    return document.upos if tagset == "universal" else document.xpos


class Labeler:
    """Conversion of tags and relations to numbers, and from words to tokens."""

    def __init__(self, axes: Axes, tagset: Tagset, max_word_tokens: int | None = None) -> None:
        self._max_word_tokens = max_word_tokens
        self._tagset = tagset
        self._classes = axes.key_classes
        self._tags = {tag: number for number, tag in enumerate(axes.tags)}
        self._relations = {name: number for number, name in enumerate(axes.relations)}

    def sequences(self, documents: Sequence[Document], sequences: Sequence[Tokens]) -> Sequences:
        """Return the labels of all tokens, padded at the right to the longest document.

        Tokens of another text than the document's (the target of a translation) or without offsets
        have no labels. Ids are left out if any of them is unknown. Tokens of words that are too
        long are left out of the mask (`overlong`), and their words have no dependents.
        """
        shape = len(documents), max((len(tokens) for tokens in sequences), default=0)
        mask, special = np.zeros((2, *shape), dtype=bool)
        numbers = {name: np.full(shape, -1, dtype=np.int64) for name in FIELDS}
        is_tagged, is_parsed = np.zeros((2, len(documents)), dtype=bool)
        ids = np.full(shape, -1, dtype=np.int64)
        classes = np.zeros((*shape, len(self._classes)), dtype=bool)
        left_out = np.full(shape, -1, dtype=np.int64)
        context = np.zeros(shape, dtype=bool)
        for row, (document, tokens) in enumerate(zip(documents, sequences, strict=True)):
            n = len(tokens)
            is_special = np.array(tokens.special, dtype=bool)
            mask[row, :n] = True
            special[row, :n] = is_special
            ids[row, :n] = tokens.ids
            classes[row, :n] = class_members(tokens.tokens, is_special, self._classes)
            if tokens.offsets is None or tokens.texts != (document.text,):
                continue
            if COUNTED in document.meta:
                start, stop = map(int, document.meta[COUNTED].split(":"))
                starts = np.array([a for a, _ in tokens.offsets])
                context[row, :n] = ~is_special & ((starts < start) | (starts >= stop))
            words = align_array(tokens.offsets, document.spans)
            words[is_special] = -1
            owners = overlong(document.text, tokens.offsets, self._max_word_tokens)
            left_out[row, :n] = np.where(is_special, -1, owners)
            is_left_out = left_out[row, :n] >= 0
            mask[row, :n] = ~is_left_out
            without_tokens = np.unique(words[is_left_out])
            words[np.isin(words, without_tokens)] = -1
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
                    labels = np.asarray(values, dtype=np.int64)[np.maximum(words, 0)]
                    numbers[name][row, :n] = np.where(words >= 0, labels, -1)
            parents = numbers["parents"][row]
            parents[(parents >= 0) & np.isin(parents, without_tokens)] = NO_PARENT
        return Sequences(
            mask=mask,
            special=special,
            is_tagged=is_tagged,
            is_parsed=is_parsed,
            ids=ids if (ids[mask] >= 0).all() else None,
            classes=classes,
            left_out=left_out if (left_out >= 0).any() else None,
            context=context if context.any() else None,
            **numbers,
        )


FIELDS = ("words", "parents", "tags", "relations")


def _numbers(labels: Sequence[str] | None, numbers: Mapping[str, int]) -> list[int] | None:
    return None if labels is None else [numbers.get(label, -1) for label in labels]
