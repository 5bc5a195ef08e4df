"""Files that appear whole and stay whole: atomic writes, seals, and the cache folder.

A seal is the last 80 bytes of a file: a mark, the SHA-256 of everything before it, and a signature
of that hash with a secret key of this user. The hash is compared before the content is parsed. The
signature tells files that this user's headscope wrote from all others, which `results.files` parses
in a process of their own. HDF5 and netCDF libraries ignore what follows the end of their content.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

from headscope.errors import FileFormatError, HeadscopeError, InputError, WriteError


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces it if the block succeeds."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file to write.")
    with _named(target):
        descriptor, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part"
        )
        os.close(descriptor)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            _sync(temporary)
            temporary.replace(target)
            _sync(target.parent)
        finally:
            with contextlib.suppress(OSError):  # the next run removes what is left
                temporary.unlink(missing_ok=True)


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Turn failures to write next to `target` into errors that name it."""
    try:
        yield
    except HeadscopeError:
        raise
    except OSError as error:
        if not target.parent.is_dir():
            missing = FileNotFoundError(errno.ENOENT, f"there is no folder {str(target.parent)!r}")
            raise WriteError.of(target, missing) from error
        named = None if error.filename is None else Path(os.fsdecode(error.filename))
        own = named in (None, target, target.parent) or named.name.startswith(f".{target.name}.")
        if own:
            raise WriteError.of(target, error) from error
        raise


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, which replaces it if the block succeeds.

    Leftovers of killed processes are removed first: hold a lock on `path`.
    """
    target = Path(path)
    with _named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(f".{target.name}.????????.part"):
            shutil.rmtree(leftover, ignore_errors=True)
        made = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        temporary = Path(made)
        temporary.chmod(0o777 & ~_umask())
        try:
            yield temporary
            for written in temporary.rglob("*"):
                _sync(written)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Delete incomplete files of killed processes in a folder: hold a lock on it."""
    for leftover in folder.glob(".*.part"):
        leftover.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Write a file's content, or a folder's names, to disk now: a power failure may lose them."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        if path.is_file():
            raise
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cache_folder() -> Path:
    """Return the folder of what can be made again: `HEADSCOPE_CACHE`, or the system's cache."""
    if chosen := os.environ.get("HEADSCOPE_CACHE"):
        return Path(chosen)
    return user_cache_path("headscope", appauthor=False)


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
    _check_hash(path, hashlib.sha256(content).digest(), whole[len(content) :])
    return content


def check_seal(path: Path) -> bool:
    """Compare a file with its seal; return whether this user's headscope wrote it. Raises
    UnsealedFile without a seal, DamagedFile if the content changed after it was sealed.
    """
    content = hashlib.sha256()
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - SEAL_SIZE
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            content.update(part)
            left -= len(part)
        digest, found = content.digest(), file.read() if left == 0 else b""
    _check_hash(path, digest, found)
    return hmac.compare_digest(found[-len(digest) :], _signature(digest))


def _check_hash(path: Path, digest: bytes, found: bytes) -> None:
    if len(found) != SEAL_SIZE or not found.startswith(MARK):
        raise UnsealedFile(f"{str(path)!r} does not end with headscope's seal.")
    expected = found[len(MARK) : len(MARK) + len(digest)]
    if digest != expected:
        raise DamagedFile(
            f"{str(path)!r} was damaged after it was written: the SHA-256 of its content is "
            f"{digest.hex()[:16]}…, its seal says {expected.hex()[:16]}…."
        )


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
