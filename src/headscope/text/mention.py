"""A mention of an entity: which words, and which cluster they belong to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.errors import InputError
from headscope.text.tree import NO_PARENT

if TYPE_CHECKING:
    from headscope.text.document import Document


@dataclass(frozen=True, slots=True)
class Mention:
    """Words that name an entity. Mentions of one cluster name the same one."""

    cluster: str
    """Names the entity within its document."""
    spans: tuple[tuple[int, int], ...]
    """Ranges of words, ends excluded; more than one where the mention is discontinuous."""
    kind: str | None = None
    """Type of the entity as the source calls it: `person`, `GPE`."""
    head_word: int | None = None
    """The number of its head word, where the source names it (CorefUD's `head`)."""

    def __post_init__(self) -> None:
        last = None
        for start, stop in self.spans:
            if start >= stop or (last is not None and start < last):
                break
            last = stop
        else:
            head = self.head_word
            if self.spans and (head is None or any(a <= head < b for a, b in self.spans)):
                return
        raise InputError(
            f"A mention of cluster {self.cluster!r} has the word ranges {self.spans} and the head "
            f"word {self.head_word}. Ranges must be in order and not empty, and the head word "
            "within them."
        )

    @property
    def start(self) -> int:
        """The first word."""
        return self.spans[0][0]

    @property
    def stop(self) -> int:
        """The word after the last one."""
        return self.spans[-1][1]

    def words(self) -> tuple[int, ...]:
        """The numbers of all its words."""
        return tuple(word for start, stop in self.spans for word in range(start, stop))

    def shift(self, by: int) -> Mention:
        """The same mention in a document that starts elsewhere."""
        if not by:
            return self
        return Mention(
            self.cluster,
            tuple((start + by, stop + by) for start, stop in self.spans),
            self.kind,
            None if self.head_word is None else self.head_word + by,
        )

    def to_dict(self) -> dict[str, object]:
        """The mention as JSON can hold it; its head word is called `head` there."""
        values: dict[str, object] = {"cluster": self.cluster, "spans": self.spans}
        if self.kind is not None:
            values["kind"] = self.kind
        if self.head_word is not None:
            values["head"] = self.head_word
        return values


def mention_head(document: Document, mention: Mention) -> int:
    """The head word of a mention.

    1. The word the source names.
    2. Where there is a tree: the word whose parent lies outside the mention. Of several (the
       tree disagrees with the mention, or was cut), one that is not punctuation, the highest
       in the tree, then the first.
    3. Without a tree: the last word before the first comma, preposition or relative
       pronoun after the first word; in `the designer of the bridge`, `designer`. A
       possessive `'s` at the end is passed over.
    """
    if mention.head_word is not None:
        return mention.head_word
    words = mention.words()
    parents = document.parents
    if parents is not None and any(parents[word] > NO_PARENT for word in words):
        inside = set(words)
        tops = [word for word in words if parents[word] not in inside]
        if len(tops) == 1:
            return tops[0]
        relations = document.relations
        return min(
            tops or words,
            key=lambda word: (
                relations is not None and relations[word] == "punct",
                _depth(parents, word),
                word,
            ),
        )
    last = words[0]
    for word in words[1:]:
        form = document.words[word].lower()
        if _AFTER_HEAD.fullmatch(form):
            break
        if form not in _POSSESSIVE:
            last = word
    return last


_POSSESSIVE = frozenset({"'s", "’s", "'", "’"})
_AFTER_HEAD = re.compile(
    r"[,(:–—-]|who|whom|whose|which|that|where|when|of|in|on|at|by|for|with|from|to|about|against"
    r"|between|into|through|during|before|after|above|below|under|over|near|and|or"
)


def _depth(parents: tuple[int, ...], word: int) -> int:
    depth = 0
    while parents[word] >= 0:
        word = parents[word]
        depth += 1
    return depth
