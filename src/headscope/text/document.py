"""Document: a frozen text with its words and annotations.

Missing annotations are None or empty, never guessed. Files are read in `headscope.text.readers`,
tokens are in `headscope.text.tokens`.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import Any, Literal

from headscope.arguments import expect
from headscope.errors import InputError
from headscope.text.splitting import split_sentences, split_words

ROOT = -1
"""Parent of the root of a sentence."""
NO_PARENT = -2
"""Parent of a word whose parent is unknown, or was cut off."""
MAX_ID_LENGTH = 4096
"""Maximum characters of a document's id."""


def check_tree(parents: Sequence[int], start: int, stop: int, name: str) -> None:
    """Check that the parents of a sentence form a tree.

    Every parent lies in the sentence, exactly one word is the root (at most one if some parents are
    unknown), and every word reaches the root. Otherwise, InputError names the offending words.
    """
    within = parents[start:stop]
    for word, parent in enumerate(within, start):
        if parent == word or not (start <= parent < stop or parent in (ROOT, NO_PARENT)):
            raise InputError(
                f"{name}: the parent of word {word - start + 1} is word {parent - start + 1}, "
                + ("the word itself." if parent == word else f"but there are {stop - start} words.")
            )
    roots = [word - start + 1 for word, parent in enumerate(within, start) if parent == ROOT]
    if len(roots) > 1:
        raise InputError(f"{name} has {len(roots)} roots (words {_some_of(roots)}), expected one.")
    if not roots and NO_PARENT not in within:
        raise InputError(f"{name} has no root, expected exactly one word without a parent.")
    # A node from an earlier walk reaches the root. A node seen twice in one walk is on a cycle.
    walks: list[int | None] = [None] * (stop - start)
    for word in range(start, stop):
        node = word
        while node >= 0 and walks[node - start] is None:
            walks[node - start] = word
            node = parents[node]
        if node >= 0 and walks[node - start] == word:
            ring = {node}
            while (node := parents[node]) not in ring:
                ring.add(node)
            raise InputError(
                f"{name} has a cycle: following the parents from word {word - start + 1} "
                f"never reaches the root (words {_some_of(sorted(w - start + 1 for w in ring))})."
            )


def _clipped(ranges: tuple[Span, ...], start: int, stop: int) -> tuple[Span, ...]:
    """Return the parts of ranges between two words, counted from the first of them."""
    # Ranges are in order, so the overlapping ones are consecutive.
    first, after = bisect_right(ranges, start, key=_end), bisect_left(ranges, stop, key=_start)
    clipped = ((max(a, start) - start, min(b, stop) - start) for a, b in ranges[first:after])
    return tuple((a, b) for a, b in clipped if a < b)


def _some_of(words: list[int]) -> str:
    return f"{words[:10]}" + (f" and {len(words) - 10} more" if len(words) > 10 else "")


@dataclass(frozen=True, slots=True)
class Mention:
    """Words that name an entity. Mentions of one cluster name the same entity."""

    cluster: str
    """Name of the entity within its document."""
    spans: tuple[tuple[int, int], ...]
    """Ranges of words, ends excluded; several for a discontinuous mention."""
    kind: str | None = None
    """Type of the entity in the source: `person`, `GPE`."""
    head_word: int | None = None
    """Number of the head word, if the source has it (CorefUD's `head`)."""

    def __post_init__(self) -> None:
        is_ordered = all(start < stop for start, stop in self.spans) and all(
            stop <= start for (_, stop), (start, _) in pairwise(self.spans)
        )
        head = self.head_word
        has_head = head is None or any(start <= head < stop for start, stop in self.spans)
        if not (self.spans and is_ordered and has_head):
            raise InputError(
                f"A mention of cluster {self.cluster!r} has the word ranges {self.spans} and the "
                f"head word {self.head_word}. Ranges must be in order and not empty, and the head "
                "word within them."
            )

    @property
    def start(self) -> int:
        """First word."""
        return self.spans[0][0]

    @property
    def stop(self) -> int:
        """Word after the last one."""
        return self.spans[-1][1]

    def words(self) -> tuple[int, ...]:
        """Return the numbers of all words."""
        return tuple(word for start, stop in self.spans for word in range(start, stop))

    def shift(self, by: int) -> Mention:
        """Return the same mention in a document that starts elsewhere."""
        spans = tuple((start + by, stop + by) for start, stop in self.spans)
        head_word = None if self.head_word is None else self.head_word + by
        return replace(self, spans=spans, head_word=head_word) if by else self

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-serializable dict; the head word is called `head` there."""
        values = {"cluster": self.cluster, "spans": self.spans}
        optional = {"kind": self.kind, "head": self.head_word}
        return values | {name: value for name, value in optional.items() if value is not None}


def mention_head(document: Document, mention: Mention) -> int:
    """Return the head word of a mention.

    1. The head word of the source.
    2. With a tree: the word whose parent lies outside the mention. Of several (the tree
       disagrees with the mention, or was cut), one that is not punctuation, the highest
       in the tree, then the first.
    3. Without a tree: the last word before the first comma, preposition or relative
       pronoun after the first word; in `the designer of the bridge`, `designer`. A
       possessive `'s` at the end is skipped.
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

        def rank(word: int) -> tuple[bool, int, int]:
            relations, node, depth = document.relations, word, 0
            while (node := parents[node]) >= 0:
                depth += 1
            return relations is not None and relations[word] == "punct", depth, word

        return min(tops or words, key=rank)
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


Span = tuple[int, int]
Unit = Literal["document", "paragraph", "sentence"]

_start, _end = itemgetter(0), itemgetter(1)
_PER_WORD = ("spans", "upos", "xpos", "lemmas", "features", "parents", "relations")
LABELS = ("upos", "xpos", "lemmas", "features", "relations")
"""Annotations with one string per word."""


@dataclass(frozen=True, slots=True)
class Document:
    """Text with its words and annotations. Spans and ranges exclude their end."""

    id: str
    text: str
    words: tuple[str, ...]
    """Words as written. In a contraction whose parts are not spelled out (French `du` as `de` +
    `le`) the words differ from the text and share its characters."""
    spans: tuple[Span, ...]
    """Characters of each word in `text`, in order."""
    sentences: tuple[Span, ...] = ()
    """Word range of each sentence; together they cover all words. Empty if unknown."""
    paragraphs: tuple[Span, ...] = ()
    """Word range of each paragraph; together they cover all words. Empty if unknown."""
    upos: tuple[str, ...] | None = None
    """Universal tag of each word, `_` if missing."""
    xpos: tuple[str, ...] | None = None
    """Language-specific tag of each word."""
    lemmas: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    """Morphological features of each word as in CoNLL-U: `Number=Sing|Person=3`."""
    parents: tuple[int, ...] | None = None
    """Index of each word's parent in the document; `ROOT` (-1) for the root of a sentence,
    `NO_PARENT` (-2) if unknown or cut off."""
    relations: tuple[str, ...] | None = None
    """Relation of each word to its parent, as labeled in the data."""
    mentions: tuple[Mention, ...] = ()
    """Mentions of entities, in order of their first word."""
    part_of: str | None = None
    """Id of the document that contains this sentence or paragraph."""
    meta: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Further facts from the source, such as `genre`."""

    def __post_init__(self) -> None:
        expect("id", self.id, str, "a text")
        expect("text", self.text, str, "a text")
        self._check_spans()
        self._check_names()
        self._check_ranges("sentence", self.sentences)
        self._check_ranges("paragraph", self.paragraphs)
        if self.parents:
            if not self.sentences:
                raise InputError(
                    f"Document {self.id!r} has parents but no sentences. Pass "
                    f"sentences=[(0, {len(self.words)})], or the word range of each sentence."
                )
            for number, (start, stop) in enumerate(self.sentences):
                check_tree(self.parents, start, stop, f"Sentence {number} of document {self.id!r}")
        for mention in self.mentions:
            if mention.start < 0 or mention.stop > len(self.words):
                raise InputError(
                    f"Document {self.id!r} has {len(self.words)} words, but a mention of cluster "
                    f"{mention.cluster!r} at {mention.spans}."
                )

    def __len__(self) -> int:
        return len(self.words)

    def clusters(self) -> dict[str, tuple[Mention, ...]]:
        """Return the mentions of each entity, in order of the text."""
        by_cluster: dict[str, list[Mention]] = {}
        for mention in self.mentions:
            by_cluster.setdefault(mention.cluster, []).append(mention)
        return {cluster: tuple(mentions) for cluster, mentions in by_cluster.items()}

    def cut(
        self,
        start: int,
        stop: int,
        name: str | None = None,
        *,
        mentions: Sequence[Mention] | None = None,
    ) -> Document:
        """Return the words `start` … `stop - 1` as a document, by default with the same id.

        Parents outside become `NO_PARENT`; of `mentions` (by default all), those are kept whose
        words all are.
        """
        if not 0 <= start <= stop <= len(self.words):
            raise InputError(
                f"Cannot cut words {start}–{stop} from document {self.id!r}, "
                f"which has {len(self.words)}."
            )
        candidates = self.mentions if mentions is None else mentions
        kept = [m for m in candidates if start <= m.start and m.stop <= stop]
        piece = self._piece(start, stop, self.id if name is None else name, self.part_of, kept)
        if name is not None:
            expect("id", name, str, "a text")
            piece._check_names()
        return piece

    def _piece(
        self, start: int, stop: int, name: str, part_of: str | None, mentions: Sequence[Mention]
    ) -> Document:
        """Return some of the words, without checks: parts of a valid document are valid."""
        first, last = (self.spans[start][0], self.spans[stop - 1][1]) if start < stop else (0, 0)
        kept = tuple([m.shift(-start) for m in mentions]) if mentions else ()
        if (start, stop, first, last) == (0, len(self.words), 0, len(self.text)):
            return _unchecked(type(self), (name, *_CONTENT(self), kept, part_of, self.meta))
        parents = self.parents
        if parents is not None:
            parents = tuple(
                p - start if start <= p < stop else ROOT if p == ROOT else NO_PARENT
                for p in parents[start:stop]
            )
        return _unchecked(
            type(self),
            (
                name,
                self.text[first:last],
                self.words[start:stop],
                tuple([(a - first, b - first) for a, b in self.spans[start:stop]]),
                _clipped(self.sentences, start, stop) if self.sentences else (),
                _clipped(self.paragraphs, start, stop) if self.paragraphs else (),
                *(x and x[start:stop] for x in (self.upos, self.xpos, self.lemmas, self.features)),
                parents,
                self.relations and self.relations[start:stop],
                kept,
                part_of,
                self.meta,
            ),
        )

    def split(self, unit: Unit) -> Iterator[Document]:
        """Yield the document's sentences or paragraphs as documents.

        Unknown sentences are guessed by `headscope.text.splitting`; unknown paragraphs are one. A
        sentence of another document is not cut again.
        """
        is_sentence = self.part_of is not None and len(self.sentences) == 1
        if unit == "document" or is_sentence or (unit == "paragraph" and not self.paragraphs):
            yield self
            return
        ranges = self.paragraphs if unit == "paragraph" else self.sentences
        if not ranges:
            ends = [end for _, end in split_sentences(self.text)]
            edges: list[int] = []
            if len(ends) > 1:
                sentence = [bisect_right(ends, start) for start, _ in self.spans]
                edges = [i for i, (a, b) in enumerate(pairwise(sentence), 1) if a != b]
            ranges = tuple(pairwise([0, *edges, len(self.words)])) if self.words else ()
        mentions: dict[int, list[Mention]] = {}
        if self.mentions:
            starts = [start for start, _ in ranges]
            for mention in self.mentions:
                number = bisect_right(starts, mention.start)
                if mention.stop <= ranges[number - 1][1]:
                    mentions.setdefault(number, []).append(mention)
        part_of, mark = self.part_of or self.id, "-p" if unit == "paragraph" else "-"
        for number, (start, stop) in enumerate(ranges, 1):
            name = f"{self.id}{mark}{number}"
            yield self._piece(start, stop, name, part_of, mentions.get(number, ()))

    def within(self, part_of: str | None) -> Document:
        """Return the same text as part of another document, or of none."""
        content = (self.id, *_CONTENT(self), self.mentions, part_of, self.meta)
        return _unchecked(type(self), content)

    @classmethod
    def from_text(cls, text: str, id: str) -> Document:  # noqa: A002, as the field is called
        """Return a document of raw text: words are found, sentences are unknown."""
        expect("id", id, str, "a text")
        expect("text", text, str, "a text")
        spans = tuple(split_words(text))
        words = tuple([text[start:end] for start, end in spans])
        raw = _unchecked(cls, (id, text, words, spans, (), (), *[None] * 6, (), None, {}))
        if not (id.isascii() and text.isascii() and len(id) <= MAX_ID_LENGTH):
            raw._check_unicode(text, "its text")
            raw._check_names()
        return raw

    @classmethod
    def from_words(
        cls,
        words: Sequence[str],
        id: str = "document",  # noqa: A002, as the field is called
        *,
        sentences: Sequence[Span] | None = None,
        paragraphs: Sequence[Span] = (),
        upos: Sequence[str] | None = None,
        xpos: Sequence[str] | None = None,
        lemmas: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        parents: Sequence[int] | None = None,
        relations: Sequence[str] | None = None,
        mentions: Sequence[Mention] = (),
        meta: Mapping[str, str] | None = None,
    ) -> Document:
        """Make a document from words: the text has one space between two words.

        Args:
            words: The words, without spaces around them.
            id: Name of the document in results.
            sentences: Word ranges of the sentences, ends excluded. By default all words are one
                sentence if `parents` are passed, else sentences are unknown.
            paragraphs: Word ranges of the paragraphs.
            upos: Universal tag of each word.
            xpos: Language-specific tag of each word.
            lemmas: Lemma of each word.
            features: Features of each word, as in CoNLL-U.
            parents: Index of each word's parent, from 0 within the document; -1 for the root.
            relations: Relation of each word to its parent.
            mentions: Mentions of entities.
            meta: Further facts, such as `{"genre": "news"}`.

        >>> document = Document.from_words(["Dogs", "bark", "."], parents=[1, -1, 1])
        >>> document.text, document.spans
        ('Dogs bark .', ((0, 4), (5, 9), (10, 11)))
        """
        expect("words", words, list | tuple, 'a list of words, such as ["Dogs", "bark"]')
        for number, word in enumerate(words):
            if not isinstance(word, str) or not word or word != word.strip():
                raise InputError(
                    f"Word {number} of document {id!r} is {word!r}. Expected a text that is not "
                    "empty, without spaces around it."
                )
        ends = list(accumulate(len(word) + 1 for word in words))
        if sentences is None:
            sentences = [(0, len(words))] if parents and words else []
        labels = {"upos": upos, "xpos": xpos, "lemmas": lemmas, "features": features}
        sequences = {**labels, "parents": parents, "relations": relations}
        optional: dict[str, Any] = {k: tuple(v) for k, v in sequences.items() if v is not None}
        return cls(
            id,
            " ".join(words),
            tuple(words),
            tuple((end - len(word) - 1, end - 1) for word, end in zip(words, ends, strict=True)),
            sentences=tuple(sentences),
            paragraphs=tuple(paragraphs),
            mentions=tuple(mentions),
            meta=dict(meta or {}),
            **optional,
        )

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:59] + "…"
        return f"<Document {self.id!r}: {len(self.words)} words, {text!r}>"

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-serializable dict without unknown annotations."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["meta"] = dict(self.meta)
        values["mentions"] = [mention.to_dict() for mention in self.mentions]
        return {name: value for name, value in values.items() if value not in (None, (), [], {})}

    def digest(self) -> str:
        """Return the SHA-256 of the whole document."""
        values = self.to_dict()
        if "parents" in values:  # under its first name, so that hashes stay what they were
            values["heads"] = values.pop("parents")
        content = json.dumps(values, ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def _check_names(self) -> None:
        if len(self.id) > MAX_ID_LENGTH:
            raise InputError(
                f"The id of a document has {len(self.id):,} characters: {self.id[:40]!r}…. At most "
                f"{MAX_ID_LENGTH:,} are allowed, since each of its sentences repeats it."
            )
        labels = [values for label in LABELS if (values := getattr(self, label))]
        names = (self.id, self.part_of or "", *self.meta, *self.meta.values())
        for strings in (names, self.words, *labels):
            self._check_unicode("".join(strings), "an id, word or label")

    def _check_unicode(self, text: str, what: str) -> None:
        """Raise InputError for half of a surrogate pair: files and tokenizers cannot hold it."""
        try:
            if not text.isascii():
                text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"Document {self.id!r} has half a surrogate pair in {what}, at character "
                f"{error.start}: {text[max(0, error.start - 20) : error.start + 1]!r}. Decode it "
                "again, or remove it."
            ) from None

    def _check_spans(self) -> None:
        n = len(self.words)
        for name in _PER_WORD:
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise InputError(f"Document {self.id!r} has {n} words, but {len(values)} {name}.")
        self._check_unicode(self.text, "its text")
        last_start = last_end = 0
        length = len(self.text)
        for number, (start, end) in enumerate(self.spans):
            if not (last_start <= start <= end <= length and last_end <= end):
                raise InputError(
                    f"Word {number} of document {self.id!r}, {self.words[number]!r}, is at "
                    f"{(start, end)}: expected characters of the text (length {len(self.text)}), "
                    f"not before the previous word at {(last_start, last_end)}."
                )
            last_start, last_end = start, end

    def _check_ranges(self, what: str, ranges: tuple[Span, ...]) -> None:
        n, shown = len(self.words), f"{ranges[:8]}{' …' if len(ranges) > 8 else ''}"
        for (_, stop), (start, _) in pairwise([(0, 0), *ranges, (n, n)] if ranges else []):
            if start != stop:
                raise InputError(
                    f"The {what}s of document {self.id!r} leave a gap or overlap at word "
                    f"{min(start, stop)}: {shown}. Together they must be its {n} words, in order."
                )
        if any(start >= stop for start, stop in ranges):
            raise InputError(f"Document {self.id!r} has an empty {what}: {shown}.")


_FIELDS = tuple(Document.__dataclass_fields__)
_CONTENT = attrgetter(*_FIELDS[1:-3])
_SETTERS = tuple([getattr(Document, name).__set__ for name in _FIELDS])


def _unchecked(kind: type[Document], values: Iterable[object]) -> Document:
    """Return a document of values that are known to be valid; checks cost most of the time."""
    document = object.__new__(kind)
    for set_value, value in zip(_SETTERS, values, strict=True):
        set_value(document, value)
    return document
