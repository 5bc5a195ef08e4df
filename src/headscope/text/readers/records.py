"""Documents from strings, dicts (also of Hugging Face datasets) and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from headscope.errors import FileFormatError, InputError
from headscope.text.document import LABELS, NO_PARENT, Document, Mention, Span
from headscope.text.readers.reader import Lines, Reader, ReadLog, ReadOptions, broken, stem_of
from headscope.text.readers.sentences import Surface, locate

_KNOWN_KEYS = {*Document.__slots__, "heads"}

T = TypeVar("T")


def item_documents(
    items: Iterable[object], name: str, report: ReadLog, text_key: str
) -> Iterator[Document]:
    """Yield a document for each string, dict or document; other items are left out."""
    for number, item in enumerate(items):
        try:
            document = document_from_item(item, f"{name}-{number}", text_key)
        except InputError as error:
            report.leave_out("documents", FileFormatError(f"{name}, item {number}: {error}"))
            continue
        yield document


def document_from_item(item: object, name: str, text_key: str) -> Document:
    """Return the document of a string, a dict or a document; `name` is its id if it lacks one."""
    if isinstance(item, Document):
        return item
    if isinstance(item, str):
        return Document.from_text(item, name)
    if isinstance(item, Mapping):
        return document_from_dict(item, name=name, text_key=text_key)
    raise InputError(
        f"found {type(item).__name__} {str(item)[:60]!r}. Expected a string, a dict with "
        f"{text_key!r} or 'words', or a Document."
    )


def document_from_dict(
    item: Mapping[str, object], *, name: str = "document", text_key: str = "text"
) -> Document:
    """Return the document of a dict; inverts `Document.to_dict`.

    `text` (or `text_key`) or `words` is required. Without `spans` the words are found in the text;
    without a text they are joined by spaces. `parents` are indices of words from 0, -1 for the
    root, null if unknown. Other entries that are strings or numbers become `meta`.
    """
    text, words, spans = _text_and_words(item, name, text_key)
    readers = {
        **dict.fromkeys(LABELS, _string),
        "parents": lambda value: NO_PARENT if value is None else _number(value),
        **dict.fromkeys(("sentences", "paragraphs"), _range),
        "mentions": _mention,
    }
    given = {"parents": item.get("heads"), **item}  # "heads" in files of the first edition
    fields: dict[str, Any] = {
        key: _convert(given[key], key, convert_one)
        for key, convert_one in readers.items()
        if given.get(key) is not None
    }
    if "parents" in fields and "sentences" not in fields and words:
        fields["sentences"] = ((0, len(words)),)
    if item.get("part_of") is not None:
        fields["part_of"] = str(item["part_of"])
    document_id = str(item["id"]) if item.get("id") is not None else name
    return Document(document_id, text, words, spans, meta=_meta(item, text_key), **fields)


def _text_and_words(
    item: Mapping[str, object], name: str, text_key: str
) -> tuple[str, tuple[str, ...], tuple[Span, ...]]:
    text, value = item.get(text_key), item.get("words")
    if text is None and value is None:
        raise InputError(
            f"neither {text_key!r} nor 'words' among {sorted(map(str, item))[:12]}. Give one of "
            "them, or name the text's key with text_key=…."
        )
    if text is not None and not isinstance(text, str):
        raise InputError(f"{text_key!r} is {type(text).__name__} {str(text)[:40]!r}, not a string.")
    if value is None:
        raw = Document.from_text(text or "", name)
        return raw.text, raw.words, raw.spans
    words = _convert(value, "words", _string)
    if item.get("spans") is not None:
        if text is None:
            raise InputError("'spans' without a text to be spans of.")
        return text, words, _convert(item["spans"], "spans", _range)
    surfaces = [Surface(word, (word,), True) for word in words]
    try:
        located, spans = locate(surfaces, text, f"document {name!r}", 1)
    except FileFormatError:
        raise InputError(
            f"the words {list(words[:8])} … are not those of the text {text[:60]!r}."
            if text is not None
            else "the words cannot be joined."
        ) from None
    return located, words, tuple(spans)


def _meta(item: Mapping[str, object], text_key: str) -> dict[str, str]:
    meta = {
        str(key): str(value)
        for key, value in item.items()
        if key not in _KNOWN_KEYS and key != text_key and isinstance(value, str | int | float)
    }
    extra = item.get("meta") or {}
    if not isinstance(extra, Mapping):
        raise InputError(f"'meta' is {str(extra)[:60]!r}, not a dict.")
    return meta | {str(key): str(value) for key, value in extra.items()}


def _convert(value: object, name: str, convert_one: Callable[[object], T]) -> tuple[T, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        try:
            return tuple(convert_one(item) for item in value)
        except InputError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError):
            pass
    raise InputError(f"{name!r} is {str(value)[:60]!r}, which cannot be read as {name}.")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _range(value: object) -> Span:
    if not isinstance(value, Iterable):
        raise TypeError
    start, stop = value
    return _number(start), _number(stop)


def _mention(value: object) -> Mention:
    if not isinstance(value, Mapping):
        raise TypeError
    head_word = value.get("head")
    return Mention(
        cluster=str(value["cluster"]),
        spans=_convert(value["spans"], "spans", _range),
        kind=value.get("kind"),
        head_word=None if head_word is None else _number(head_word),
    )


class JsonLinesReader(Reader):
    """JSON lines, as `Corpus.save` writes them. The keys are in `document_from_dict`."""

    name: ClassVar[str] = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    expects: ClassVar[str] = "a JSON object in each line"

    def detect(self, start: Sequence[str]) -> bool:
        """Detect lines that all open an object."""
        rows = [text for text in start if not text.startswith("#")]
        return bool(rows) and all(row.lstrip().startswith("{") for row in rows[:20])

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        """Yield a document for each line; invalid lines are left out."""
        stem = stem_of(name)
        for number, text in lines:
            try:
                if isinstance(text, FileFormatError):
                    raise text
                if not text or text.isspace():
                    continue
                try:
                    item: object = json.loads(text)
                except (ValueError, RecursionError) as error:
                    problem = f"not JSON ({error}): {text[:60]!r}"
                    raise broken(name, number, problem, "one JSON object per line") from None
                try:
                    document = document_from_item(item, f"{stem}-{number}", options.text_key)
                except InputError as error:
                    raise broken(name, number, str(error).rstrip(".")) from None
            except FileFormatError as error:
                report.leave_out("documents", error)
                continue
            yield document
