"""Atomic writes: files and folders appear complete or not at all. The cache folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from headscope.errors import HeadscopeError, InputError, WriteError


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces it if the block succeeds.

    Raises:
        InputError: `path` is a folder.
        WriteError: it cannot be written, or its folder does not exist.
    """
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
        for leftover in target.parent.glob(f".{target.name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
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
    """Write the content of a file, or the names in a folder, to disk now.

    Otherwise a power failure may leave a file name without content. Windows cannot sync folders.
    """
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
