"""Documents from Python objects: strings, dicts, the lines of a JSON file.

A Hugging Face dataset is an iterable of dicts, hence read here as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from headscope.errors import FileFormatError, InputError
from headscope.text.document import Document
from headscope.text.mention import Mention
from headscope.text.readers.lines import Lines, Report, broken
from headscope.text.readers.plain import plain_document
from headscope.text.readers.surface_forms import Surface, locate
from headscope.text.tree import NO_PARENT

__all__ = ["document_from_dict", "item_documents", "json_documents"]

_TAGS = ("upos", "xpos", "lemmas", "features", "relations")
_KNOWN = {"id", "text", "words", "spans", "sentences", "paragraphs", "parents", "mentions"} | {
    *_TAGS,
    "heads",
    "part_of",
    "meta",
}


def json_documents(lines: Lines, name: str, report: Report, text_key: str) -> Iterator[Document]:
    """The documents of a file with one JSON object (or string) per line."""
    stem = name.replace("\\", "/").rsplit("/", 1)[-1].split(".")[0]
    for number, text in lines:
        try:
            if isinstance(text, FileFormatError):
                raise text
            if not text or text.isspace():
                continue
            try:
                item = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise broken(
                    name, number, f"not JSON ({error}): {text[:60]!r}", "one JSON object per line"
                ) from None
            try:
                document = _document(item, f"{stem}-{number}", text_key)
            except InputError as error:
                raise broken(name, number, str(error).rstrip(".")) from None
        except FileFormatError as error:
            report.leave_out("documents", error)
            continue
        yield document


def item_documents(
    items: Iterable[Any], name: str, report: Report, text_key: str
) -> Iterator[Document]:
    """The documents that strings, dicts or documents are."""
    for number, item in enumerate(items):
        try:
            document = _document(item, f"{name}-{number}", text_key)
        except InputError as error:
            report.leave_out("documents", FileFormatError(f"{name}, item {number}: {error}"))
            continue
        yield document


def _document(item: Any, name: str, text_key: str) -> Document:
    if isinstance(item, Document):
        return item
    if isinstance(item, str):
        return plain_document(item, name)
    if isinstance(item, Mapping):
        return document_from_dict(item, name=name, text_key=text_key)
    raise InputError(
        f"found {type(item).__name__} {str(item)[:60]!r}. Expected a string, a dict with "
        f"{text_key!r} or 'words', or a Document."
    )


def document_from_dict(
    item: Mapping[str, Any], *, name: str = "document", text_key: str = "text"
) -> Document:
    """The document that a dict describes; undoes `Document.to_dict`.

    `text` or `words` is needed, everything else optional. Without `spans` the words are
    looked up in the text; without a text they are joined by spaces. `parents` are numbers of
    words from 0, -1 for the root, null where unknown. Other entries that are strings or
    numbers become `meta`.

    Args:
        item: The dict.
        name: The document's id where the dict has none.
        text_key: The name of its text.
    """
    text = item.get(text_key)
    words = item.get("words")
    if text is None and words is None:
        raise InputError(
            f"neither {text_key!r} nor 'words' among {sorted(map(str, item))[:12]}. Give one of "
            "them, or name the text's key with text_key=…."
        )
    if text is not None and not isinstance(text, str):
        raise InputError(f"{text_key!r} is {type(text).__name__} {str(text)[:40]!r}, not a string.")
    values: dict[str, Any] = {}
    if words is None:
        raw = plain_document(text or "", name)
        text, words, spans = raw.text, raw.words, raw.spans
    else:
        words = _strings(words, "words")
        if item.get("spans") is None:
            surfaces = [Surface(word, (word,), True) for word in words]
            try:
                text, found = locate(surfaces, text, f"document {name!r}", 1)
            except FileFormatError:
                raise InputError(
                    f"the words {list(words[:8])} … are not those of the text {text[:60]!r}."
                    if text is not None
                    else "the words cannot be joined."
                ) from None
            spans = tuple(found)
        elif text is None:
            raise InputError("'spans' without a text to be spans of.")
        else:
            spans = _ranges(item["spans"], "spans")
    for key in _TAGS:
        if item.get(key) is not None:
            values[key] = _strings(item[key], key)
    for key in ("sentences", "paragraphs"):
        if item.get(key) is not None:
            values[key] = _ranges(item[key], key)
    parents = item.get("parents", item.get("heads"))  # "heads" in files of the first edition
    if parents is not None:
        values["parents"] = _convert(parents, "parents", _parent)
        values.setdefault("sentences", ((0, len(words)),) if words else ())
    if item.get("mentions") is not None:
        values["mentions"] = _convert(item["mentions"], "mentions", _mention)
    meta = {
        str(key): str(value)
        for key, value in item.items()
        if key not in _KNOWN and key != text_key and isinstance(value, str | int | float)
    }
    given = item.get("meta") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"'meta' is {str(given)[:60]!r}, not a dict.")
    meta |= {str(key): str(value) for key, value in given.items()}
    part_of = item.get("part_of")
    return Document(
        id=str(item["id"]) if item.get("id") is not None else name,
        text=text or "",
        words=words,
        spans=spans,
        part_of=None if part_of is None else str(part_of),
        meta=meta,
        **values,
    )


def _convert(value: Any, name: str, one: Callable[[Any], Any]) -> tuple[Any, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        try:
            return tuple(one(part) for part in value)
        except InputError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError):
            pass
    raise InputError(f"{name!r} is {str(value)[:60]!r}, which cannot be read as {name}.")


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _parent(value: Any) -> int:
    return NO_PARENT if value is None else _number(value)


def _range(value: Any) -> tuple[int, int]:
    start, stop = value
    return _number(start), _number(stop)


def _mention(value: Any) -> Mention:
    head = value.get("head")
    return Mention(
        cluster=str(value["cluster"]),
        spans=_ranges(value["spans"], "spans"),
        kind=value.get("kind"),
        head=None if head is None else _number(head),
    )


def _strings(value: Any, name: str) -> tuple[str, ...]:
    return _convert(value, name, _string)


def _ranges(value: Any, name: str) -> tuple[tuple[int, int], ...]:
    return _convert(value, name, _range)
