"""Documents set aside in a temporary file: read again in a tenth of the time that parsing takes."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from headscope.text.document import Document

MOST_BYTES = 1 << 30
"""A larger file is not worth its place on the disk."""


class Spool:
    """The documents of an iterable, in its order, as often as they are asked for.

    The file belongs to this process: no other user can read or write it, and it is gone when this
    object is.

    Args:
        documents: read once.

    Raises:
        OSError: they do not fit on the disk, or into `MOST_BYTES`.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="headscope-")  # noqa: SIM115 - kept open
        self._n = 0
        for document in documents:
            pickle.dump(document, self._file, protocol=pickle.HIGHEST_PROTOCOL)
            self._n += 1
            if self._file.tell() > MOST_BYTES:
                raise OSError(f"more than {MOST_BYTES} bytes after {self._n} documents")
        self._file.flush()

    def __iter__(self) -> Iterator[Document]:
        with Path(self._file.name).open("rb") as file:
            for _ in range(self._n):
                yield pickle.load(file)
