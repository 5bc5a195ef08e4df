"""CoNLL-U reader, with coreference in CorefUD's `Entity=`.

The library `conllu` (6.0) takes two spaces for a tab, strips lines, accepts missing columns, keeps
the last of repeated comments, has no line numbers, and takes three times as long on GUM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from headscope.errors import FileFormatError, InputError
from headscope.text.document import NO_PARENT, Document, check_tree
from headscope.text.readers.brackets import ENTITY_FIELDS, Bracket
from headscope.text.readers.reader import (
    Lines,
    Reader,
    ReadLog,
    ReadOptions,
    broken,
    column_counts,
    whole_number,
)
from headscope.text.readers.sentences import Sentence, Surface, assemble, locate

_TEN = "ten columns separated by tabs (ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC)"
COLUMNS = {"words": 1, "lemmas": 2, "upos": 3, "xpos": 4, "features": 5, "relations": 7}
"""Columns by the field of `Sentence` that keeps them as they are."""


class ConlluReader(Reader):
    """CoNLL-U."""

    name: ClassVar[str] = "conllu"
    suffixes: ClassVar[tuple[str, ...]] = (".conllu",)
    expects: ClassVar[str] = "ten columns"
    cuts: ClassVar[bool] = True

    def detect(self, start: Sequence[str]) -> bool:
        """Detect ten columns."""
        return column_counts(start) == {10}

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """Yield the file's documents, paragraphs or sentences."""
        sentences = conllu_sentences(lines, name, report)
        if options.document_key is not None:
            sentences = _named_by(sentences, options.document_key)
        return assemble(sentences, name, options.unit, report)


def _named_by(sentences: Iterator[Sentence], key: str) -> Iterator[Sentence]:
    """Open a document where the value of a comment changes, in place of `newdoc`."""
    last, meta = "", dict[str, str]()
    for sentence in sentences:
        meta = sentence.meta if sentence.opens_document else meta
        value = sentence.comments.get(key) or meta.get(key) or last
        sentence.opens_document, sentence.document = value != last, value
        sentence.meta, last = {**meta, **({key: value} if value else {})}, value
        yield sentence


def conllu_sentences(lines: Lines, name: str, report: ReadLog) -> Iterator[Sentence]:
    """Yield the sentences of a CoNLL-U file; those with a broken line or tree are left out as a
    whole.
    """
    fields: tuple[str, ...] = ENTITY_FIELDS
    carried: list[str] = []
    """Comments that open a document or a paragraph whose first sentence was left out."""
    carries_document = False
    for block, error in _blocks(lines):
        comments = [text for _, text in block if text.startswith("#")]
        rows = [(number, text) for number, text in block if not text.startswith("#")]
        bare = [comment[1:].lstrip() for comment in comments]
        opening = [f"#{text}" for text in bare if text.startswith(("newdoc", "newpar", "meta::"))]
        opens_document = any(text.startswith("newdoc") for text in bare)
        if carries_document and opens_document:
            carried.clear()  # of a document without a sentence
        sentence = None
        try:
            if error is not None:
                raise error
            for key, _, value in (text.partition("=") for text in bare):
                if key.strip() == "global.Entity":
                    fields = tuple(value.strip().split("-"))
                    if fields[0] not in ("eid", "GRP"):
                        problem = f"global.Entity begins with {fields[0]!r}"
                        expected = "the entity's id first ('eid', or 'GRP' in GUM)"
                        raise broken(name, block[0][0], problem, expected)
            if rows:
                sentence = _sentence(rows, carried + comments, fields, name)
        except FileFormatError as left_out:
            report.leave_out("sentences", left_out)
        if sentence is None:
            carried += opening
            carries_document |= opens_document
        else:
            carried.clear()
            carries_document = False
            yield sentence


def _blocks(lines: Lines) -> Iterator[tuple[list[tuple[int, str]], FileFormatError | None]]:
    """Yield the lines between blank lines with their numbers, and the first error among them."""
    block: list[tuple[int, str]] = []
    problem: FileFormatError | None = None
    for number, text in lines:
        if isinstance(text, FileFormatError):
            problem = problem or text
        elif text and not text.isspace():
            block.append((number, text))
        elif block or problem:
            yield block, problem
            block, problem = [], None
    if block or problem:
        yield block, problem


def _sentence(
    rows: list[tuple[int, str]], comments: list[str], fields: tuple[str, ...], name: str
) -> Sentence:
    sentence = Sentence(line=rows[0][0])
    text = _read_comments(sentence, comments)
    kept = [(getattr(sentence, name), column) for name, column in COLUMNS.items()]
    surfaces: list[Surface] = []
    inside_until = n_words = 0
    forms: dict[str, str] = {}  # read where a token has parts
    for number, row in rows:
        columns = row.split("\t")
        if len(columns) != 10:
            raise broken(name, number, f"{len(columns)} columns in {row[:60]!r}", _TEN)
        id_, form, head, misc = columns[0], columns[1], columns[6], columns[9]
        if id_ == str(n_words + 1):
            n_words += 1
            for values, column in kept:
                values.append(columns[column])
            parent = whole_number(head)
            if parent is None and head != "_":
                expected = "a word's number, 0 for the root, or _"
                raise broken(name, number, f"HEAD is {head[:60]!r}", expected)
            sentence.parents.append(NO_PARENT if parent is None else parent - 1)
            if n_words > inside_until:
                surfaces.append(Surface(form, (form,), "SpaceAfter=No" not in misc))
        elif "-" in id_:
            first, _, last = id_.partition("-")
            until = whole_number(last)
            if until is None or first != str(n_words + 1) or until <= n_words:
                raise _wrong_id(name, number, id_, n_words)
            if n_words < inside_until:
                raise broken(name, number, f"the token {id_} overlaps the one before it")
            if until > len(rows):
                raise broken(name, number, f"the token reaches to {until}, beyond the sentence")
            inside_until = until
            forms = forms or {id_: form for id_, form, *_ in (r.split("\t", 2) for _, r in rows)}
            ids = (str(word) for word in range(n_words + 1, until + 1))
            words = tuple(forms[id_] for id_ in ids if id_ in forms)
            surfaces.append(Surface(form, words, "SpaceAfter=No" not in misc))
        elif "." in id_ and id_.partition(".")[0] == str(n_words):
            sentence.empty_nodes.append(n_words)
        else:
            raise _wrong_id(name, number, id_, n_words)
        if "Entity=" in misc and "-" not in id_:
            is_empty = "." in id_
            word = n_words if is_empty else n_words - 1
            values = [item[7:] for item in misc.split("|") if item.startswith("Entity=")]
            sentence.brackets += [Bracket(word, v, number, fields, is_empty) for v in values]
    if inside_until > n_words:
        problem = f"ends at word {n_words}, inside a token that reaches to {inside_until}"
        raise broken(name, rows[-1][0], f"the sentence {problem}")
    if not n_words:
        raise broken(name, rows[0][0], "a sentence without words", _TEN)
    sentence.text, sentence.spans = locate(surfaces, text, name, rows[0][0])
    sentence.glue = " " if surfaces[-1].space_after else ""
    what = f"sentence {sentence.id!r}" if sentence.id else "the sentence"
    if any(h != NO_PARENT for h in sentence.parents):
        if NO_PARENT in sentence.parents:
            word = sentence.parents.index(NO_PARENT) + 1
            raise broken(name, rows[0][0], f"{what}: word {word} has no HEAD, others have one")
        try:
            check_tree(sentence.parents, 0, n_words, what)
        except InputError as error:
            raise broken(name, rows[0][0], str(error).rstrip(".")) from None
    return sentence


def _read_comments(sentence: Sentence, comments: list[str]) -> str | None:
    text = None
    for comment in comments:
        key, equals, value = comment[1:].partition("=")
        key, value = key.strip(), value.strip()
        if key == "sent_id":
            sentence.id = value
        elif key == "text" and equals:
            text = value
        elif key in ("newdoc", "newdoc id"):
            sentence.opens_document, sentence.document = True, value
        elif key in ("newpar", "newpar id"):
            sentence.opens_paragraph, sentence.paragraph = True, value
        elif key.startswith("meta::"):
            sentence.meta[key[6:]] = value
        elif equals:
            sentence.comments[key] = value
    return text


def _wrong_id(name: str, number: int, id_: str, n_words: int) -> FileFormatError:
    following = f"{n_words + 1}, a range from it ({n_words + 1}-{n_words + 2})"
    expected = f"{following} or an empty node ({n_words}.1)"
    return broken(name, number, f"ID is {id_[:60]!r}", expected)
