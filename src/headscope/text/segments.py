"""Pieces of documents that fit a model: cut to a length, or paired as in BERT's training.

Lengths are in tokens of a tokenizer function that is passed in. Pieces are documents with all their
annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

import numpy as np

from headscope.errors import InputError
from headscope.text.document import LABELS, Document, Span
from headscope.text.tokens import align_array

Tokenize = Callable[[str], Sequence[Span]]
"""Function that returns character offsets of a text's tokens, without special tokens."""
SECOND = "second_span"
"""Key in `Document.meta`: character at which the second span of a segment starts."""
COUNTED = "counted_span"
"""Key in `Document.meta`: characters of a window whose tokens count as queries."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Two consecutive spans of one document: `[CLS] first [SEP] second [SEP]`."""

    id: str
    first: Document
    second: Document

    def joined(self) -> Document:
        """Return both spans as one document, with the start of the second in `meta` (`SECOND`)."""
        document = _joined([self.first, self.second], self.id, self.first.part_of or self.id)
        start = str(len(self.first.text) + 1)
        return replace(document, meta={**self.first.meta, SECOND: start})


def shorten(
    document: Document, tokenize: Tokenize, max_tokens: int = 128, *, special: int = 0
) -> Document:
    """Return the beginning of a document that fits into `max_tokens`, `special` tokens included."""
    n_tokens, offsets = _room(max_tokens, special), tokenize(document.text)
    if len(offsets) <= n_tokens:
        return document
    ends = np.cumsum(_tokens_per_word(offsets, document))
    return document.cut(0, int(np.searchsorted(ends, n_tokens, side="right")))


def segments(
    documents: Iterable[Document], tokenize: Tokenize, max_tokens: int = 128, *, special: int = 3
) -> Iterator[Segment]:
    """Yield segments in the form of BERT's pre-training (Clark et al. 2019, section 3).

    A segment takes whole sentences while they fit, split into two spans of about equal length. The
    next segment continues after it. A sentence that fills a segment alone is cut in two. A word
    that fills a segment alone is skipped. Consecutive paragraphs of one document are one text, as
    one document or several with the same `part_of`. Unknown sentences are split by
    `headscope.text.splitting`. A segment has `max_tokens`, of which `special` are special.
    """
    n_tokens = _room(max_tokens, special)
    if n_tokens < 2:
        raise InputError(f"max_tokens={max_tokens} leaves no room for two spans.")
    numbered = enumerate(documents)
    for _, group in groupby(numbered, lambda pair: pair[1].part_of or f"\0{pair[0]}"):
        pieces: list[tuple[Document, int]] = []
        filled = n_segments = 0
        for _, document in group:
            for piece, length in _pieces(document, tokenize, n_tokens):
                if filled + length > n_tokens:
                    n_segments += 1
                    yield from _segment(pieces, n_segments)
                    pieces, filled = [], 0
                pieces.append((piece, length))
                filled += length
        yield from _segment(pieces, n_segments + 1)


def windows(
    document: Document, tokenize: Tokenize, max_tokens: int, *, special: int = 0
) -> Iterator[Document]:
    """Yield overlapping windows of a document that does not fit, and others as they are. Windows
    start about half a window apart. Each word is counted in one: boundaries are in the middle of
    the overlap. The rest is context (`COUNTED`).
    """
    n_tokens = _room(max_tokens, special)
    ends = np.cumsum(_tokens_per_word(tokenize(document.text), document))
    if not len(ends) or ends[-1] <= n_tokens:
        yield document
        return
    spans: list[Span] = []
    start = 0
    while not spans or spans[-1][1] < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + n_tokens, side="right")))
        spans.append((start, stop))
        middle = int(np.searchsorted(ends, before + n_tokens // 2, side="right"))
        start = min(max(start + 1, middle), stop)
    edges = [0, *((a + b) // 2 for (a, _), (_, b) in zip(spans[1:], spans, strict=False))]
    for number, (start, stop) in enumerate(spans):
        piece = document.cut(start, stop, f"{document.id}-w{number + 1}")
        first = edges[number] - start
        last = (edges[number + 1] if number + 1 < len(spans) else stop) - start
        counted = f"{piece.spans[first][0]}:{piece.spans[last - 1][1]}"
        meta = {**document.meta, COUNTED: counted}
        yield replace(piece, part_of=document.part_of or document.id, meta=meta)


def _pieces(
    document: Document, tokenize: Tokenize, n_tokens: int
) -> Iterator[tuple[Document, int]]:
    """Yield the document's sentences with their lengths; long ones in several pieces."""
    for sentence in document.split("sentence"):
        counts = _tokens_per_word(tokenize(sentence.text), sentence)
        start = 0
        while start < len(counts):
            ends = np.cumsum(counts[start:])
            stop = start + max(1, int(np.searchsorted(ends, n_tokens, side="right")))
            if ends[stop - start - 1] <= n_tokens:  # else a single word too long for any segment
                yield sentence.cut(start, stop), int(ends[stop - start - 1])
            start = stop


def _segment(pieces: list[tuple[Document, int]], number: int) -> Iterator[Segment]:
    """Return the segment of these pieces, split where its halves are most equal."""
    if len(pieces) == 1:
        whole, _ = pieces[0]
        half = len(whole) // 2
        if not half:
            return
        left, right = [whole.cut(0, half)], [whole.cut(half, len(whole))]
    elif pieces:
        ends = np.cumsum([length for _, length in pieces])
        middle = 1 + int(np.argmin(np.abs(2 * ends[:-1] - ends[-1])))
        left, right = [p for p, _ in pieces[:middle]], [p for p, _ in pieces[middle:]]
    else:
        return
    origin = left[0].part_of or left[0].id
    name = f"{origin}-s{number}"
    yield Segment(name, _joined(left, f"{name}a", origin), _joined(right, f"{name}b", origin))


def _joined(pieces: list[Document], name: str, part_of: str) -> Document:
    if len(pieces) == 1:
        return replace(pieces[0], id=name, part_of=part_of)
    offset = words = 0
    spans: list[Span] = []
    ranges: list[Span] = []
    parents: list[int] = []
    mentions = []
    for piece in pieces:
        spans += [(a + offset, b + offset) for a, b in piece.spans]
        parents += [p + words if p >= 0 else p for p in piece.parents or ()]
        mentions += [mention.shift(words) for mention in piece.mentions]
        ranges += [(a + words, b + words) for a, b in piece.sentences]
        offset += len(piece.text) + 1
        words += len(piece)

    columns = {label: [getattr(piece, label) for piece in pieces] for label in LABELS}
    joined: dict[str, Any] = {
        k: None if None in v else tuple(chain(*v)) for k, v in columns.items()
    }
    return Document(
        id=name,
        text=" ".join(piece.text for piece in pieces),
        words=tuple(word for piece in pieces for word in piece.words),
        spans=tuple(spans),
        sentences=tuple(ranges),
        parents=tuple(parents) if len(parents) == words else None,
        mentions=tuple(mentions),
        part_of=part_of,
        meta=pieces[0].meta,
        **joined,
    )


def _tokens_per_word(offsets: Sequence[Span], document: Document) -> np.ndarray:
    """Return the number of tokens of each word; tokens outside words count for the word before."""
    if not len(document):
        return np.zeros(0, dtype=np.int64)
    words = np.maximum.accumulate(np.maximum(align_array(offsets, document.spans), 0))
    return np.bincount(words, minlength=len(document))


def _room(max_tokens: int, special: int) -> int:
    if max_tokens <= special:
        raise InputError(f"max_tokens={max_tokens} leaves no room beside {special} special tokens.")
    return max_tokens - special
