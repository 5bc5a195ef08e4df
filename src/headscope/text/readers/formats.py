"""Which readers there are, and which of them reads a file.

Readers of one's own come before headscope's. A corpus keeps the readers that were known when
it was made, so that a worker process that never heard of them reads the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.text.readers.conll2012 import Conll2012Reader
from headscope.text.readers.conllu import ConlluReader
from headscope.text.readers.jsonl import JsonLinesReader
from headscope.text.readers.lines import read_lines
from headscope.text.readers.ontogum import OntoGumReader
from headscope.text.readers.plain import PlainReader
from headscope.text.readers.reader import Reader

# In this order they are asked whether a file is theirs.
BUILT_IN: tuple[type[Reader], ...] = (
    OntoGumReader,
    Conll2012Reader,
    ConlluReader,
    JsonLinesReader,
    PlainReader,
)
FALLBACK: type[Reader] = PlainReader
"""Reads what no suffix and no reader claims."""

REGISTERED: dict[str, type[Reader]] = {}
"""Readers that are not headscope's, by name."""

_LOOKED_AT = 100

R = TypeVar("R", bound=type[Reader])


def register_reader(reader: R) -> R:
    """Make a reader of one's own known to `headscope.read`: by the suffix of a file, in
    folders, by the file's first lines, and by `format="name"`.

    Usable as a decorator of the class. Registering a class again, as when the cell of a
    notebook is run twice, replaces it.

    Raises:
        InputError: It is no reader, lacks something, or its name or suffix is taken.
    """
    if not (isinstance(reader, type) and issubclass(reader, Reader)):
        raise InputError(f"A reader is a class derived from headscope.Reader, not {reader!r}.")
    missing = [] if isinstance(getattr(reader, "name", None), str) else ["name"]
    missing += sorted(reader.__abstractmethods__)
    if missing:
        raise InputError(f"{reader.__name__} lacks {', '.join(missing)}: see headscope.Reader.")
    if not reader.name:
        raise InputError(f"{reader.__name__} has an empty name. Name the format it reads.")
    _check_suffixes(reader)
    others = [other for other in known_readers() if not _is_again(reader, other)]
    for other in others:
        if other.name == reader.name:
            raise InputError(
                f"{reader.__name__} is named {reader.name!r}, and so is {other.__name__} of "
                f"{other.__module__}. Choose another name."
            )
        for suffix in sorted(set(reader.suffixes) & set(other.suffixes)):
            if not (_detects(reader) and _detects(other)):
                blind = other if _detects(reader) else reader
                raise InputError(
                    f"{reader.__name__} reads files ending in {suffix!r}, and so does "
                    f"{other.__name__} ({other.name!r}); {blind.__name__} does not tell its own "
                    "files by their content (detect). Choose another suffix, or none: "
                    f"format={reader.name!r} always works."
                )
    REGISTERED[reader.name] = reader
    return reader


def known_readers() -> tuple[type[Reader], ...]:
    """All readers, in the order in which they are asked: the latest registered first."""
    return (*reversed(REGISTERED.values()), *BUILT_IN)


def known_suffixes(readers: Sequence[type[Reader]]) -> tuple[str, ...]:
    """The suffixes of files that the readers claim."""
    return tuple(sorted({suffix for reader in readers for suffix in reader.suffixes}))


def reader_named(name: str) -> type[Reader]:
    """The reader of a format.

    Raises:
        UnknownName: There is none of this name.
    """
    by_name = {reader.name: reader for reader in known_readers()}
    if not isinstance(name, str) or name not in by_name:
        raise UnknownName.of("format", name, tuple(by_name))
    return by_name[name]


def reader_for(path: Path, readers: Sequence[type[Reader]]) -> type[Reader]:
    """The reader of a file: by its suffix, else by its first lines.

    The longest suffix that matches decides. Where no reader claims the suffix, or several do,
    they are asked in order; a file that nobody claims is plain text.

    Raises:
        FileFormatError: Readers claim the suffix, but not the content.
    """
    file_name = path.name.lower().removesuffix(".gz")
    suffixes = [suffix for suffix in known_suffixes(readers) if file_name.endswith(suffix)]
    suffix = max(suffixes, key=len, default="")
    claiming = [reader for reader in readers if suffix and suffix in reader.suffixes]
    if len(claiming) == 1:
        return claiming[0]
    texts = (text for _, text in islice(read_lines(path), _LOOKED_AT))
    start = [text for text in texts if isinstance(text, str) and text.strip()]
    for reader in (*claiming, *(other for other in readers if other not in claiming)):
        if reader().detect(start):
            return reader
    if not claiming:
        return FALLBACK
    rows = [text for text in start if not text.startswith("#")]
    begins = repr(rows[0][:60]) if rows else "nothing"
    expected = "; ".join(f"{reader.name}: {reader.expects}" for reader in readers if reader.expects)
    raise FileFormatError(
        f"{path} ends in {suffix!r}, but is in no known format: it begins with {begins}. Expected "
        f"one of these ({expected}). If it is one of them, name it with format=…."
    )


def _check_suffixes(reader: type[Reader]) -> None:
    suffixes: object = reader.suffixes
    if not isinstance(suffixes, tuple):
        raise InputError(
            f"{reader.__name__}.suffixes is {suffixes!r}: expected a tuple of strings, such as "
            "('.tsv',)."
        )
    for suffix in suffixes:
        if not isinstance(suffix, str) or not suffix or suffix != suffix.lower():
            raise InputError(
                f"{reader.__name__} has the suffix {suffix!r}: expected the end of a file's name "
                "in lower case, such as '.tsv'."
            )
        if suffix.endswith(".gz"):
            raise InputError(
                f"{reader.__name__} has the suffix {suffix!r}: leave '.gz' out: compressed files "
                "are read as if they were not."
            )


def _detects(reader: type[Reader]) -> bool:
    return reader.detect is not Reader.detect


def _is_again(reader: type[Reader], other: type[Reader]) -> bool:
    """Is it the same class, or the same class defined anew?"""
    is_own = REGISTERED.get(reader.name) is other
    names = [(one.__module__, one.__qualname__) for one in (reader, other)]
    return reader is other or (is_own and names[0] == names[1])
