"""`headscope verify`: compare saved files with their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from headscope.app.cli.command import CommandResult, argument, settings
from headscope.errors import HeadscopeError, InputError

MEASURED_AGAIN = "The next run into this folder measures it again."


def verify(
    path: Annotated[Path, argument("A saved file, a run folder, or a cache folder.")],
) -> CommandResult:
    """Read saved files whole and verify every hash: results, traces, probes, checkpoints, caches.

    The exit code is 1 if a file is damaged.
    """
    from headscope.run.progress import phase

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
        if _checker(path) is None:
            raise InputError(f"{str(path)!r} is not a kind of file that headscope verifies.")
        yield path
    for file in sorted(path.rglob("*")) if path.is_dir() else ():
        if file.is_file() and _checker(file) is not None:
            yield file


def _damage(file: Path) -> str:
    """Return what is wrong with a file and what follows; empty if it is sound."""
    check = _checker(file)
    assert check is not None
    try:
        check(file)
    except HeadscopeError as error:
        return str(error).replace(f"{str(file)!r} ", "")
    except Exception as error:  # zip, JSON and NumPy raise many kinds of errors
        return f"{type(error).__name__}: {error}"
    return ""


def _checker(file: Path) -> Callable[[Path], None] | None:
    """Return the check of a file by its name and place; None for files of others."""
    if file.name.startswith("."):
        return None
    if file.suffix == ".nc":
        return _check_netcdf
    if file.suffix == ".npz" and file.parent.name == "shards":
        return _check_checkpoint
    if file.parent.name == "checks" and file.suffix == ".json":
        return _check_self_check
    if file.name == "about.json" and file.parent.name.startswith("attention-"):
        return _check_store
    return {"plan.json": _check_plan, "converted.json": _check_converted}.get(file.name)


def _check_netcdf(file: Path) -> None:
    import headscope as hs

    try:
        hs.open(file)
    except HeadscopeError as error:
        is_run = (file.parent / "plan.json").is_file()
        raise InputError(f"{error} {MEASURED_AGAIN if is_run else 'Make it again.'}") from None


def _check_checkpoint(file: Path) -> None:
    from headscope.run.checkpoint import read_keyed

    try:
        key, _ = read_keyed(file)
    except Exception as error:
        raise InputError(f"{error} {MEASURED_AGAIN}") from None
    if not file.name.endswith(f"-{key.plan[:12]}.npz"):
        raise InputError(f"it is a checkpoint of plan {key.plan[:12]}. {MEASURED_AGAIN}")


def _check_plan(file: Path) -> None:
    from headscope.run.checkpoint import read_plan

    try:
        read_plan(file)
    except Exception as error:
        raise InputError(
            f"{error} (a run into this folder is refused; resume=False, --no-resume, replaces it)"
        ) from None


def _check_converted(file: Path) -> None:
    from headscope.model.packaged.pinned import is_intact

    if not is_intact(file.parent):
        raise InputError("a file of the folder is missing, added or damaged: it is converted again")


def _check_store(file: Path) -> None:
    from headscope.probes.features import is_intact_store

    if not is_intact_store(file.parent):
        raise InputError("the stored attention is damaged: the next probe stores it again")


def _check_self_check(file: Path) -> None:
    from headscope.atomic import read_sealed

    try:
        read_sealed(file)
    except HeadscopeError as error:
        raise InputError(f"{error} The model is checked again.") from None
