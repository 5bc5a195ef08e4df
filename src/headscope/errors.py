"""Exceptions and warnings of headscope.

    HeadscopeError
    ├── InputError (ValueError)         an argument cannot be used
    │   ├── UnknownName                 a name is unknown
    │   ├── FileFormatError             a file has the wrong format
    │   ├── MetricError                 a user's metric breaks its contract
    │   └── RunMismatch                 a folder holds another run
    ├── WriteError (OSError)            a file or folder cannot be written
    ├── ModelError (RuntimeError)       a model cannot be loaded or read
    │   ├── ModelNotFound               no such packaged model, folder or hub id
    │   │   └── HubUnreachable          the hub does not answer
    │   ├── IntegrityError              a packaged file has another hash
    │   ├── TapUnsupported              the tap cannot read the model's attention
    │   └── MissingObjective            the model predicts nothing, so it has no loss
    └── MissingExtra (ImportError)      an optional library is not installed

    HeadscopeWarning (UserWarning)      the result is valid, but less than requested
    └── TruncationWarning               a text was cut to the model's length

A message says what happened (with values), what was expected and what to do. All errors pickle, so
that workers can report them.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Collection, Iterable

__all__ = [
    "FileFormatError",
    "HeadscopeError",
    "HeadscopeWarning",
    "HubUnreachable",
    "InputError",
    "IntegrityError",
    "MetricError",
    "MissingExtra",
    "MissingObjective",
    "ModelError",
    "ModelNotFound",
    "RunMismatch",
    "TapUnsupported",
    "TruncationWarning",
    "UnknownName",
    "WriteError",
]


MAX_NAME_SHOWN = 200
"""Longest name in a message, in characters; longer ones are cut."""


class HeadscopeError(Exception):
    """Base of every error that headscope raises on purpose."""


class InputError(HeadscopeError, ValueError):
    """Argument that cannot be used."""


class UnknownName(InputError):
    """Name that is not among the known ones."""

    @classmethod
    def of(cls, what: str, name: object, known: Iterable[str]) -> UnknownName:
        """Return the error for `name`, with the known names and the nearest one."""
        known = sorted(known)
        by_lower = {candidate.lower(): candidate for candidate in known}
        shown = repr(name) if len(str(name)) <= MAX_NAME_SHOWN else f"{str(name)[:80]!r}…"
        nearest = difflib.get_close_matches(str(name).lower()[:MAX_NAME_SHOWN], by_lower, n=1)
        hint = f" Did you mean {by_lower[nearest[0]]!r}?" if nearest else ""
        return cls(f"Unknown {what} {shown}.{hint} Known: {', '.join(known) or '(none)'}.")

    @classmethod
    def check(cls, what: str, name: object, known: Collection[str]) -> None:
        """Raise the error of `of` unless the name is known."""
        if name not in known:
            raise cls.of(what, name, known)


class FileFormatError(InputError):
    """File with the wrong format."""


class MetricError(InputError):
    """User's metric that breaks its contract."""


class RunMismatch(InputError):
    """Folder with the run of another model, corpus, plan or version."""


class WriteError(HeadscopeError, OSError):
    """File or folder that cannot be written."""

    @classmethod
    def of(cls, path: object, error: OSError) -> WriteError:
        """Return the error for the user's path, with the system's reason."""
        reason = error.strerror or str(error) or type(error).__name__
        made = cls(f"Cannot write {str(path)!r}: {reason}.")
        made.errno = error.errno
        return made


class ModelError(HeadscopeError, RuntimeError):
    """Model that cannot be loaded or read."""


class ModelNotFound(ModelError):
    """Name without a packaged model, folder or hub id."""


class HubUnreachable(ModelNotFound):
    """Model hub that does not answer, with a local cache that lacks the model."""


class IntegrityError(ModelError):
    """Packaged file with another SHA-256 than the pinned one."""


class TapUnsupported(ModelError):
    """Model whose attention the tap cannot read and verify."""


class MissingObjective(ModelError):
    """Model that predicts no token, and therefore has no loss."""


class MissingExtra(HeadscopeError, ImportError):
    """Optional library that is not installed."""

    @classmethod
    def of(cls, library: str, extra: str, purpose: str) -> MissingExtra:
        """Return the error for `library`, with the command that installs it."""
        return cls(
            f"{purpose} needs {library}, which is not installed. "
            f'Run: pip install "headscope[{extra}]" (in a clone: pip install -e ".[{extra}]")'
        )


class HeadscopeWarning(UserWarning):
    """Valid result that is less than requested."""


class TruncationWarning(HeadscopeWarning):
    """Text that was cut to the model's length."""


def warn(message: str, category: type[HeadscopeWarning] = HeadscopeWarning) -> None:
    """Warn at the line of the user's code that called headscope."""
    level, outermost, is_inside = 1, 1, True
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") is not None:
        package = str(frame.f_globals["__name__"]).partition(".")[0]
        # `with model.edit(…)` passes through contextlib before it reaches headscope.
        is_inside = package == "headscope" or (is_inside and package == "contextlib")
        outermost = level if is_inside else outermost
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=outermost + 1)
