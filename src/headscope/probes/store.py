"""Attention between words on disk, so that the model runs over a treebank only once.

There is one memory-mapped file of float16 per model and treebank, which the next kind of probe
reads again. A store appears under its name only when it is complete. In the user's cache, the
stores used longest ago are removed when a new one needs room; in another folder, all are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from filelock import FileLock

from headscope.atomic import atomic_folder
from headscope.errors import InputError
from headscope.model.fingerprint import describe_model
from headscope.model.packaged.weights import cache_folder
from headscope.probes.features import AttentionReader, Surveyed
from headscope.probes.treebank import Treebank

FORMAT = 1
MOST_BYTES = 8 << 30
"""Of all stores in the user's cache together."""
PREFIX = "attention-"
ABOUT, VALUES = "about.json", "attention.npy"
DTYPE = np.dtype(np.float16)
SENTENCES_AT_ONCE = 512


class Source(Protocol):
    """Where the attention of a treebank's sentences comes from."""

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """`word column head` of each of these sentences."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Streamed:
    """Runs the model each time it is asked: nothing is kept."""

    reader: AttentionReader
    treebank: Treebank

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """`word column head` of each of these sentences, float32."""
        documents = [(number, self.treebank.documents[number]) for number in numbers]
        tables = dict(self.reader.read(documents))
        return [tables[number] for number in numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A treebank's attention in a file, of which only the sentences asked for are read."""

    values: np.ndarray
    """All sentences one after the other."""
    shapes: tuple[tuple[int, int, int], ...]
    starts: np.ndarray

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """`word column head` of each of these sentences, as stored."""
        return [
            self.values[self.starts[n] : self.starts[n + 1]].reshape(self.shapes[n])
            for n in numbers
        ]


def store_size(reader: AttentionReader, treebank: Treebank) -> int:
    """Bytes a store will have, known before the model runs."""
    return int(_starts(_shapes(reader, treebank))[-1]) * DTYPE.itemsize


def open_store(
    reader: AttentionReader,
    treebank: Treebank,
    surveyed: Surveyed,
    folder: Path | None,
    *,
    say: Callable[[str], None] = lambda line: None,
    advance: Callable[[int], None] = lambda sentences: None,
) -> Store:
    """The store of a model and treebank, made if it is not there.

    Args:
        reader: reads the model.
        treebank: its sentences.
        surveyed: what the reader found of them.
        folder: where stores are; None for the user's cache, where old ones are removed.
        say: told the size before the model runs.
        advance: told how many sentences are done.

    Raises:
        InputError: the disk has not enough room.
    """
    base = cache_folder() / "probes" if folder is None else folder
    base.mkdir(parents=True, exist_ok=True)
    target = base / f"{PREFIX}{_key(reader, surveyed)}"
    with FileLock(f"{target}.lock"):
        if not _is_complete(target):
            size = store_size(reader, treebank)
            if folder is None:
                _make_room(base, size)
            free = shutil.disk_usage(base).free
            if size > free:
                raise InputError(
                    f"The attention of {len(treebank)} sentences takes {size / 1e9:.1f} GB and "
                    f"{str(base)!r} has {free / 1e9:.1f} GB free. Name another folder (cache=…), "
                    "draw fewer sentences, or pass cache=False to run the model in every epoch."
                )
            say(f"Storing attention: {size / 1e6:,.0f} MB in {target}")
            _write(reader, treebank, target, advance)
        else:
            say(f"Attention is stored: {target}")
            advance(len(treebank))
        os.utime(target)
        shapes = _shapes(reader, treebank)
        values = np.load(target / VALUES, mmap_mode="r", allow_pickle=False)
    return Store(values, shapes, _starts(shapes))


def _shapes(reader: AttentionReader, treebank: Treebank) -> tuple[tuple[int, int, int], ...]:
    n_heads = len(reader.heads)
    return tuple((int(n), reader.columns(int(n)), n_heads) for n in treebank.lengths)


def _starts(shapes: Sequence[tuple[int, int, int]]) -> np.ndarray:
    sizes = [words * columns * heads for words, columns, heads in shapes]
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _key(reader: AttentionReader, surveyed: Surveyed) -> str:
    """A hash of everything that the stored attention depends on."""
    model = describe_model(reader.model)
    about = {
        "format": FORMAT,
        "dtype": str(DTYPE),
        "model": {
            name: model[name] for name in ("architecture", "dtype", "weights_sha256", "edits")
        },
        "inputs": surveyed.hash,
    }
    if reader.settings.over != "attention":
        about["over"] = reader.settings.over
    content = json.dumps(about, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:20]


def _write(
    reader: AttentionReader, treebank: Treebank, target: Path, advance: Callable[[int], None]
) -> None:
    shapes = _shapes(reader, treebank)
    starts = _starts(shapes)
    with atomic_folder(target) as work:
        values = np.lib.format.open_memmap(
            work / VALUES, mode="w+", dtype=DTYPE, shape=(int(starts[-1]),)
        )
        numbered = list(enumerate(treebank.documents))
        for start in range(0, len(numbered), SENTENCES_AT_ONCE):
            for number, array in reader.read(numbered[start : start + SENTENCES_AT_ONCE]):
                values[starts[number] : starts[number + 1]] = array.reshape(-1)
                advance(1)
        values.flush()
        del values
        sizes = {VALUES: (work / VALUES).stat().st_size}
        about = {"model": reader.model.name, "treebank": treebank.describe(), "files": sizes}
        (work / ABOUT).write_text(json.dumps(about, indent=1))


def _is_complete(target: Path) -> bool:
    try:
        sizes = json.loads((target / ABOUT).read_text())["files"]
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _make_room(base: Path, size: int) -> None:
    """Remove the stores used longest ago until a new one fits."""
    stores = sorted(base.glob(f"{PREFIX}*/{VALUES}"), key=lambda file: file.parent.stat().st_mtime)
    held = sum(file.stat().st_size for file in stores)
    for file in stores:
        if held + size <= MOST_BYTES:
            break
        held -= file.stat().st_size
        shutil.rmtree(file.parent, ignore_errors=True)
