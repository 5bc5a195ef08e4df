"""Convert a packaged model into a transformers folder, once: safe against kills and races."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from headscope.atomic import atomic_folder

MANIFEST = "converted.json"


def converted(
    source: Path,
    target: Path,
    convert: Callable[[Path, Path], None],
    say: Callable[[str], None],
) -> Path:
    """The folder `target` with the model in `source`, converting it if it is not there.

    The folder appears under its name only when it is complete, and one process converts
    while the others wait, so neither a kill nor a race leaves a broken cache.

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
            sizes = {file.name: file.stat().st_size for file in sorted(work.iterdir())}
            (work / MANIFEST).write_text(json.dumps(sizes, indent=1))
    return target


def _is_complete(folder: Path) -> bool:
    """Is every file there with the size it was written with?"""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False
