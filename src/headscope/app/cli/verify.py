"""`headscope verify`: compare saved files with their hashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import headscope as hs
from headscope.app.cli.command import CommandResult, argument, settings
from headscope.errors import HeadscopeError, InputError
from headscope.run.progress import phase

MEASURED_AGAIN = "The next run into this folder measures it again."


def verify(
    path: Annotated[Path, argument("A saved file, a run folder, or a cache folder.")],
) -> CommandResult:
    """Read saved files whole and verify every hash: results, traces, probes, checkpoints, caches.

    The exit code is 1 if a file is damaged.
    """
    rows = []
    for file in _files(path):
        with phase(f"reading {file}", settings.progress):
            damage = _damage(file)
        rows.append({"path": str(file), "sound": not damage, "damage": damage})
    if not rows:
        raise InputError(f"{str(path)!r} has no file that headscope wrote.")
    n_damaged = sum(not row["sound"] for row in rows)
    lines = [
        f"sound    {row['path']}" if row["sound"] else f"DAMAGED  {row['path']}: {row['damage']}"
        for row in rows
    ]
    lines.append(f"{len(rows) - n_damaged} sound, {n_damaged} damaged")
    return CommandResult(rows, "\n".join(lines), exit_code=int(n_damaged > 0))


def _files(path: Path) -> Iterator[Path]:
    """Yield the files that headscope wrote, in or below a folder."""
    if not path.exists():
        raise InputError(f"There is no file or folder {str(path)!r}.")
    if path.is_file():
        if not _kind(path):
            raise InputError(f"{str(path)!r} is not a kind of file that headscope verifies.")
        yield path
    for file in sorted(path.rglob("*")) if path.is_dir() else ():
        if file.is_file() and _kind(file):
            yield file


def _damage(file: Path) -> str:
    """Return what is wrong with a file and what follows; empty if it is sound."""
    kind = _kind(file)
    try:
        _check(kind, file)
    except Exception as error:  # zip, JSON and NumPy raise many kinds of errors
        if not isinstance(error, HeadscopeError) and kind not in ("checkpoint", "plan"):
            return f"{type(error).__name__}: {error}"
        is_run = kind == "checkpoint" or (file.parent / "plan.json").is_file()
        follows = {
            "netcdf": f" {MEASURED_AGAIN if is_run else 'Make it again.'}",
            "checkpoint": f" {MEASURED_AGAIN}",
            "self-check": " The model is checked again.",
            "plan": " (a run into this folder is refused; resume=False, --no-resume, replaces it)",
            "converted": ": it is converted again",
            "store": ": the next probe stores it again",
        }
        return f"{error}{follows[kind]}".replace(f"{str(file)!r} ", "")
    return ""


def _kind(file: Path) -> str:
    """Return the kind of a file by its name and place; empty for files of others."""
    if file.name.startswith("."):
        return ""
    if file.suffix == ".nc":
        return "netcdf"
    if file.suffix == ".npz" and file.parent.name == "shards":
        return "checkpoint"
    if file.parent.name == "checks" and file.suffix == ".json":
        return "self-check"
    if file.name == "about.json" and file.parent.name.startswith("attention-"):
        return "store"
    return {"plan.json": "plan", "converted.json": "converted"}.get(file.name, "")


def _check(kind: str, file: Path) -> None:
    match kind:
        case "netcdf":
            hs.open(file)
        case "self-check":
            from headscope.atomic import read_sealed

            read_sealed(file)
        case "plan" | "checkpoint":
            from headscope.run import checkpoint

            if kind == "plan":
                checkpoint.read_plan(file)
                return
            plan = checkpoint.read_keyed(file)[0].plan[:12]
            if not file.name.endswith(f"-{plan}.npz"):
                raise InputError(f"it is a checkpoint of plan {plan}.")
        case "converted":
            from headscope.model.packaged.pinned import is_intact

            if not is_intact(file.parent):
                raise InputError("a file of the folder is missing, added or damaged")
        case "store":
            from headscope.probes.features import is_intact_store

            if not is_intact_store(file.parent):
                raise InputError("the stored attention is damaged")
