"""Packaged models: pinned third-party distributions with real weights, for offline machines.

The version is pinned, and the SHA-256 of every file is checked before use. No code of the
distribution is imported and no pickle is read. Other formats are converted once into a
transformers folder, safe against kills and races.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from headscope.atomic import atomic_folder
from headscope.errors import HeadscopeError, IntegrityError, ModelNotFound


@dataclass(frozen=True, slots=True)
class Pinned(ABC):
    """A pinned Python distribution."""

    alias: str
    distribution: str
    version: str

    @property
    def command(self) -> str:
        """Command that installs the distribution."""
        return f"pip install --no-deps {self.distribution}=={self.version}"

    def installed_version(self) -> str | None:
        """Return the installed version of the distribution, or None."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def is_installed(self) -> bool:
        """True if the pinned version of the distribution is installed."""
        return self.installed_version() == self.version

    def verified(self, name: str, expected: str) -> Path:
        """Return a file of the distribution after checking its SHA-256."""
        try:
            distribution = importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            raise self.missing() from None
        if distribution.version != self.version:
            raise IntegrityError(
                f"{self.distribution} {distribution.version} is installed, but {self.alias!r} is "
                f"pinned to {self.version}. Run: {self.command}"
            )
        path = Path(str(distribution.locate_file(name)))
        actual = sha256(path) if path.is_file() else "missing"
        if actual != expected:
            raise IntegrityError(
                f"{path.name} of {self.distribution} {self.version} is not the file that was "
                f"pinned (SHA-256 {expected[:16]}…, found {actual[:16]}…). "
                f"Run: {self.command} --force-reinstall"
            )
        return path

    @abstractmethod
    def missing(self) -> HeadscopeError:
        """Return the error for a distribution that is not installed."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Form = Literal["transformers", "gguf", "ctranslate2"]
"""File format of a packaged model."""


@dataclass(frozen=True, slots=True)
class PackagedModel(Pinned):
    """A model inside a Python distribution."""

    title: str
    notes: str
    hub_id: str
    """Id of the same model on the hub, as its authors published it."""
    folder: str
    """Folder of the files within the distribution."""
    files: Mapping[str, str] = field(repr=False)
    """File name → SHA-256."""
    form: Form = "transformers"
    """Format of the files; other formats than transformers' are converted on first use."""

    def verified_files(self) -> dict[str, Path]:
        """Return the model's files after checking their SHA-256."""
        return {
            name: self.verified(f"{self.folder}/{name}", expected)
            for name, expected in self.files.items()
        }

    def missing(self) -> ModelNotFound:
        """Return the error for a model that is not installed."""
        return ModelNotFound(
            f"The packaged model {self.alias!r} is not installed. Run: {self.command}"
        )


_FILE = resources.files("headscope.model.packaged") / "models.toml"
PACKAGED = {
    alias: PackagedModel(alias=alias, **entries)
    for alias, entries in tomllib.loads(_FILE.read_text("utf-8")).items()
}
"""Packaged models by name, with the SHA-256 of their files in `models.toml`."""


ConfigJson = dict[str, Any]
"""Content of a JSON settings file."""
MANIFEST = "converted.json"
"""File with the SHA-256 of each converted file."""


def converted(
    find: Callable[[], Path],
    target: Path,
    convert: Callable[[Path, Path], None],
    report: Callable[[str], None],
) -> Path:
    """Return the transformers folder `target`, converting the file that `find` returns into it.

    The folder gets its name once complete, and one process converts while the others wait. The
    files of an existing folder are compared with their SHA-256; a damaged folder is converted
    again. `report` gets a message before the conversion.
    """
    if is_intact(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if is_intact(target):
            return target
        source = find()
        report(f"Converting {source.name} into {target} (once, a few seconds) …")
        with atomic_folder(target) as work:
            convert(source, work)
            hashes = {file.name: sha256(file) for file in sorted(work.iterdir())}
            (work / MANIFEST).write_text(json.dumps(hashes, indent=1))
    return target


def is_intact(folder: Path) -> bool:
    """True if the folder has exactly the files that were written; others might be read too."""
    try:
        hashes: dict[str, str] = json.loads((folder / MANIFEST).read_text())
        if {file.name for file in folder.iterdir()} - {MANIFEST} != set(hashes):
            return False
        return all(sha256(folder / name) == expected for name, expected in hashes.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False
