"""Seals: a hash at the end of a file, compared before the content is parsed.

The last 80 bytes of a sealed file are a mark, the SHA-256 of everything before it, and a signature
of that hash with a secret key of this user. The hash finds damage. The signature tells files that
this user's headscope wrote from all others, which `results.files` parses in a process of their own.
HDF5 and netCDF libraries ignore what follows the end of their content.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import tempfile
from functools import cache
from pathlib import Path

from headscope.atomic import cache_folder
from headscope.errors import FileFormatError

MARK = b"headscope seal 1"
SEAL_SIZE = len(MARK) + 2 * hashlib.sha256().digest_size
KEY_SIZE = 32


class UnsealedFile(FileFormatError):
    """A file without a seal: cut off, changed by another program, or never sealed."""


class DamagedFile(FileFormatError):
    """A file whose content differs from its seal."""


def sealed(content: bytes) -> bytes:
    """Return the content followed by its seal."""
    return content + _seal(hashlib.sha256(content).digest())


def seal(path: Path) -> None:
    """Append the seal of a file's content to the file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    with path.open("ab") as file:
        file.write(_seal(digest))


def read_sealed(path: Path) -> bytes:
    """Return the content of a file after comparing it with its seal."""
    whole = path.read_bytes()
    content = whole[:-SEAL_SIZE]
    _is_own(path, hashlib.sha256(content).digest(), whole[len(content) :])
    return content


def check_seal(path: Path) -> bool:
    """Compare a file with its seal; return whether this user's headscope wrote it.

    Raises:
        UnsealedFile: the file has no seal.
        DamagedFile: its content changed after it was sealed.
    """
    content = hashlib.sha256()
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - SEAL_SIZE
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            content.update(part)
            left -= len(part)
        return _is_own(path, content.digest(), file.read() if left == 0 else b"")


def _is_own(path: Path, digest: bytes, found: bytes) -> bool:
    if len(found) != SEAL_SIZE or not found.startswith(MARK):
        raise UnsealedFile(f"{str(path)!r} does not end with headscope's seal.")
    expected, signature = found[len(MARK) : len(MARK) + len(digest)], found[-len(digest) :]
    if digest != expected:
        raise DamagedFile(
            f"{str(path)!r} was damaged after it was written: the SHA-256 of its content is "
            f"{digest.hex()[:16]}…, its seal says {expected.hex()[:16]}…."
        )
    return hmac.compare_digest(signature, _signature(digest))


def _seal(digest: bytes) -> bytes:
    return MARK + digest + _signature(digest)


def _signature(digest: bytes) -> bytes:
    return hmac.digest(_key(cache_folder() / "key"), digest, "sha256")


@cache
def _key(file: Path) -> bytes:
    """Return this user's secret key, made on first use; of this process alone if unwritable."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".part") as temporary:
                temporary.write(os.urandom(KEY_SIZE))
                temporary.flush()
                os.link(temporary.name, file)  # fails if another process was faster
    with contextlib.suppress(OSError):
        key = file.read_bytes()
        if len(key) == KEY_SIZE:
            return key
    return os.urandom(KEY_SIZE)
