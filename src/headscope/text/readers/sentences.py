"""Annotated sentences of column formats, and the documents that they form.

Readers yield `Sentence`s one by one; `assemble` joins them by the requested unit, with one unit at
a time in memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from headscope.errors import InputError
from headscope.text.document import LABELS, NO_PARENT, Document, Span, Unit
from headscope.text.readers.brackets import Bracket, mentions_from_brackets
from headscope.text.readers.reader import NO_MARKS, ReadLog, broken, stem_of


@dataclass(slots=True)
class Sentence:
    """One sentence of a file. Words, parents and brackets count from 0 within it. Columns that its
    format lacks are empty. Without `spans`, words are spaced as in English.
    """

    line: int
    """Line of its start."""
    id: str = ""
    text: str = ""
    words: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    upos: list[str] = field(default_factory=list)
    xpos: list[str] = field(default_factory=list)
    lemmas: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    brackets: list[Bracket] = field(default_factory=list)
    empty_nodes: list[int] = field(default_factory=list)
    glue: str = " "
    """Text between it and the next sentence of the paragraph."""
    opens_document: bool = False
    document: str = ""
    """Id of the document that it opens, if any."""
    opens_paragraph: bool = False
    paragraph: str = ""
    meta: dict[str, str] = field(default_factory=dict)
    """Facts about the document that it opens."""
    comments: dict[str, str] = field(default_factory=dict)
    """Comments that have no meaning here."""


def assemble(
    sentences: Iterable[Sentence], name: str, unit: Unit, report: ReadLog
) -> Iterator[Document]:
    """Yield the documents that the sentences of one file form; without an id, named after the file.
    Before the first document, each paragraph is one, or each sentence without paragraphs.
    """
    parent, parents, paragraphs, within = "", 0, 0, 0
    meta: dict[str, str] = {}
    stem = stem_of(name)
    loose_paragraphs = False
    batch: list[Sentence] = []
    batch_id = ""

    def finish() -> Iterator[Document]:
        if batch:
            part_of = parent if parent and unit != "document" else None
            if unit == "document" and not parent:
                report.independence[NO_MARKS] = None
            yield _join(batch, batch_id, part_of, meta, name, report)
            batch.clear()

    for sentence in sentences:
        if sentence.opens_document:
            yield from finish()
            parents += 1
            parent = sentence.document or f"{stem}-{parents}"
            paragraphs = within = 0
            meta = sentence.meta
        elif sentence.opens_paragraph and not parent:
            loose_paragraphs = True
        within += 1
        starts_paragraph = sentence.opens_paragraph or not paragraphs
        paragraphs += starts_paragraph
        root = parent or stem
        if unit == "sentence" or (not parent and not loose_paragraphs):
            yield from finish()
            batch_id = sentence.id or f"{root}-{within}"
        elif (unit == "paragraph" or not parent) and starts_paragraph:
            yield from finish()
            batch_id = sentence.paragraph or f"{root}-p{paragraphs}"
        elif unit == "document" and not batch:
            batch_id = root
        batch.append(sentence)
    yield from finish()


def _join(
    batch: list[Sentence],
    batch_id: str,
    part_of: str | None,
    meta: dict[str, str],
    name: str,
    report: ReadLog,
) -> Document:
    """Return one document from the sentences of a batch; `part_of` is None for a whole document."""
    texts: list[str] = []
    words: list[str] = []
    spans: list[Span] = []
    parents: list[int] = []
    columns: dict[str, list[str]] = {column: [] for column in LABELS}
    ranges: list[Span] = []
    paragraph_starts: list[int] = []
    brackets: list[Bracket] = []
    empty_nodes: list[int] = []
    offset = 0
    for number, sentence in enumerate(batch):
        first, n = len(words), len(sentence.words)
        if not sentence.spans:
            surfaces = spaced(sentence.words)
            sentence.text, sentence.spans = locate(surfaces, None, name, sentence.line)
        if number:
            gap = "\n\n" if sentence.opens_paragraph else batch[number - 1].glue
            texts.append(gap)
            offset += len(gap)
        if sentence.opens_paragraph or not number:
            paragraph_starts.append(first)
        words += map(sys.intern, sentence.words)
        spans += [(start + offset, end + offset) for start, end in sentence.spans]
        parents += [p + first if p >= 0 else p for p in sentence.parents or [NO_PARENT] * n]
        for column in LABELS:
            columns[column] += map(sys.intern, getattr(sentence, column) or ["_"] * n)
        brackets += [Bracket(b.word + first, *b[1:]) for b in sentence.brackets]
        empty_nodes += [node + first for node in sentence.empty_nodes]
        ranges.append((first, len(words)))
        texts.append(sentence.text)
        offset += len(sentence.text)
    mentions, problems = mentions_from_brackets(
        brackets, empty_nodes=empty_nodes, is_whole=part_of is None
    )
    for reason, line in problems:
        report.leave_out("mentions", broken(name, line, f"{reason} (document {batch_id!r})"))
    stops = [*paragraph_starts[1:], len(words)]
    try:
        return Document(
            id=batch_id,
            text="".join(texts),
            words=tuple(words),
            spans=tuple(spans),
            sentences=tuple(ranges),
            paragraphs=tuple(zip(paragraph_starts, stops, strict=True)),
            parents=tuple(parents) if any(parent != NO_PARENT for parent in parents) else None,
            mentions=tuple(mentions),
            part_of=part_of,
            meta=meta,
            **{c: tuple(v) if any(x != "_" for x in v) else None for c, v in columns.items()},
        )
    except InputError as error:
        raise broken(name, batch[0].line, str(error).rstrip(".")) from error


_CLOSING = re.compile(r"[.,;:!?)\]}%…”’]|''|['’](?:s|m|d|re|ve|ll)|n['’]t", re.IGNORECASE)
_LETTER = re.compile(r"\S")
_OPENING = re.compile(r"[(\[{“‘$£€#]|``")


class Surface(NamedTuple):
    """Text between two spaces or other tokens: one word, or a contraction of several."""

    form: str
    words: tuple[str, ...]
    space_after: bool


def locate(
    surfaces: Sequence[Surface], text: str | None, name: str, line: int
) -> tuple[str, list[tuple[int, int]]]:
    """Return the sentence's text, and the characters of each word in it.

    Words of a contraction get their own characters if they spell it out (`don't` as `do` + `n't`),
    otherwise all of it (`du` as `de` + `le`). Without a text, it is made from the surfaces.
    """
    pieces = [form + " " if space_after else form for form, _, space_after in surfaces]
    joined = "".join(pieces).rstrip()
    if text is None or text == joined:
        text = joined
        starts = [0, *accumulate(map(len, pieces))][:-1]
    else:
        starts = _search(surfaces, text, name, line)
    spans: list[tuple[int, int]] = []
    for start, (form, words, _) in zip(starts, surfaces, strict=True):
        ends = list(accumulate(map(len, words), initial=start))
        if "".join(words).lower() == form.lower() and ends[-1] == start + len(form):
            spans += pairwise(ends)
        else:
            spans += [(start, start + len(form))] * len(words)
    return text, spans


def _search(surfaces: Sequence[Surface], text: str, name: str, line: int) -> list[int]:
    starts = []
    position = 0
    for form, *_ in surfaces:
        n_leading = len(form) - len(form.lstrip())
        if n_leading < len(form):  # its first letter is the next one of the text
            letter = _LETTER.search(text, position)
            position = max(position, (letter.start() if letter else len(text)) - n_leading)
        if not text.startswith(form, position):
            shown = text[position:][:30]
            problem = f"the text continues with {shown!r}, the words with {form!r}"
            raise broken(name, line, problem, "the text to be made of the words and spaces")
        starts.append(position)
        position += len(form)
    if text[position:].strip():
        shown = text[position:][:30]
        raise broken(name, line, f"the text goes on after the last word with {shown!r}")
    return starts


def spaced(words: Sequence[str]) -> list[Surface]:
    """Space the words of a format without spaces as in English: not before closing punctuation and
    clitics (`'s`, `n't`), nor after opening punctuation; straight quotes open and close in turn.
    """
    surfaces: list[Surface] = []
    is_open = False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        is_open ^= word == '"'
        is_quote = is_open and '"' in (word, following)
        space = not (is_quote or _CLOSING.fullmatch(following) or _OPENING.fullmatch(word))
        surfaces.append(Surface(word, (word,), space))
    return surfaces
