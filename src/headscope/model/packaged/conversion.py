"""Convert a packaged model into a transformers folder, once: safe against kills and races."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock

from headscope import __version__
from headscope.atomic import atomic_folder, atomic_path
from headscope.model.packaged.pins import sha256

Settings = dict[str, Any]
"""A JSON object: the content of a settings file."""
MANIFEST = "converted.json"
"""The SHA-256 of each file, as it was written."""
CHECKED = "checked.json"
"""The version of headscope that last compared the files with the manifest, and their sizes and
times when it did."""


def converted(
    source: Path,
    target: Path,
    convert: Callable[[Path, Path], None],
    say: Callable[[str], None],
) -> Path:
    """The folder `target` with the model in `source`, converting it if it is not there.

    The folder appears under its name only when it is complete, and one process converts
    while the others wait, so neither a kill nor a race leaves a broken cache. A folder that is
    there is compared with the hashes of what was written, once for each version of headscope and
    whenever a file was touched since.

    Args:
        source: the model's file, or the folder of its files.
        target: where the transformers folder is, or goes.
        convert: writes the files of a transformers folder, from the source into a folder.
        say: told before the long part starts.
    """
    if _is_complete(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if _is_complete(target):
            return target
        say(f"Converting {source.name} into {target} (once, a few seconds) …")
        with atomic_folder(target) as work:
            convert(source, work)
            hashes = {file.name: sha256(file) for file in sorted(work.iterdir())}
            (work / MANIFEST).write_text(json.dumps(hashes, indent=1))
            _mark_checked(work, hashes)
    return target


def _is_complete(folder: Path) -> bool:
    """Are the files those that were written, and no others? What lies beside them, transformers
    might read.
    """
    try:
        hashes: dict[str, str] = json.loads((folder / MANIFEST).read_text())
        if {file.name for file in folder.iterdir()} - {MANIFEST, CHECKED} != set(hashes):
            return False
        if _checked(folder) == _state(folder, hashes):
            return True
        if any(sha256(folder / name) != expected for name, expected in hashes.items()):
            return False
        _mark_checked(folder, hashes)
    except (OSError, ValueError, AttributeError):
        return False
    return True


def _state(folder: Path, names: Iterable[str]) -> dict[str, object]:
    """The version, and the sizes and times of the files: while these stay, so do the hashes."""
    about = {name: (folder / name).stat() for name in sorted(names)}
    files = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in about.items()}
    return {"headscope": __version__, "files": files}


def _checked(folder: Path) -> object:
    try:
        return json.loads((folder / CHECKED).read_text())
    except (OSError, ValueError):
        return None


def _mark_checked(folder: Path, names: Iterable[str]) -> None:
    with contextlib.suppress(OSError), atomic_path(folder / CHECKED) as temporary:
        temporary.write_text(json.dumps(_state(folder, names)))
