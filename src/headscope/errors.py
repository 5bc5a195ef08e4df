"""Every exception and warning headscope raises.

    HeadscopeError
    ├── InputError (ValueError)         what the caller passed in cannot be used
    │   ├── UnknownName                 a name that is not among the known ones
    │   ├── FileFormatError             a file that is not what it should be
    │   ├── MetricError                 a metric of the user's own breaks its contract
    │   └── RunMismatch                    a folder that holds another run
    ├── ModelError (RuntimeError)       a model cannot be loaded or read
    │   ├── ModelNotFound               no such packaged model, folder or hub id
    │   │   └── HubUnreachable          no way to the hub from here
    │   ├── IntegrityError              a packaged file is not the file we pinned
    │   ├── TapUnsupported              the model has no attention the tap can read
    │   └── MissingObjective            the model predicts nothing, so it has no loss
    └── MissingExtra (ImportError)      an optional library is not installed

    HeadscopeWarning (UserWarning)      the answer is valid, but less than was asked for
    └── TruncationWarning               a text was cut to the model's length

A message says what happened (with the values), what was expected and what to do.
All of them survive pickling, because a worker process must be able to report them.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

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
]


class HeadscopeError(Exception):
    """Base of every error headscope raises on purpose."""


class InputError(HeadscopeError, ValueError):
    """What the caller passed in cannot be used."""


class UnknownName(InputError):
    """A name that is not among the known ones."""

    @classmethod
    def of(cls, what: str, name: object, known: Iterable[str]) -> UnknownName:
        """The error for `name`, listing the known names and the nearest one."""
        known = sorted(known)
        by_lower = {each.lower(): each for each in known}
        nearest = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
        hint = f" Did you mean {by_lower[nearest[0]]!r}?" if nearest else ""
        return cls(f"Unknown {what} {name!r}.{hint} Known: {', '.join(known) or '(none)'}.")


class FileFormatError(InputError):
    """A file that is not what it should be."""


class MetricError(InputError):
    """A metric of the user's own does what its contract does not allow."""


class RunMismatch(InputError):
    """A folder holds the run of another model, corpus, plan or version."""


class ModelError(HeadscopeError, RuntimeError):
    """A model cannot be loaded or read."""


class ModelNotFound(ModelError):
    """No packaged model, folder or hub id of that name."""


class HubUnreachable(ModelNotFound):
    """The model hub does not answer, and its cache on this machine lacks the model."""


class IntegrityError(ModelError):
    """A packaged file is not the file whose SHA-256 we pinned."""


class TapUnsupported(ModelError):
    """The model has no attention that the tap can read and prove right."""


class MissingObjective(ModelError):
    """The model predicts no token, so there is no loss to ask for."""


class MissingExtra(HeadscopeError, ImportError):
    """An optional library is not installed."""

    @classmethod
    def of(cls, library: str, extra: str, purpose: str) -> MissingExtra:
        """The error for `library`, with the exact command that installs it."""
        return cls(
            f"{purpose} needs {library}, which is not installed. "
            f'Run: pip install "headscope[{extra}]" (in a clone: pip install -e ".[{extra}]")'
        )


class HeadscopeWarning(UserWarning):
    """The answer is valid, but less than was asked for."""


class TruncationWarning(HeadscopeWarning):
    """A text was cut to the model's length."""


def warn(message: str, category: type[HeadscopeWarning] = HeadscopeWarning) -> None:
    """Warn at the line that called headscope, however many of headscope's own lie between."""
    level, outermost, was_ours = 1, 1, True
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") is not None:
        room = str(frame.f_globals["__name__"]).partition(".")[0]
        # `with model.edit(…)` passes through contextlib before it reaches headscope.
        was_ours = room == "headscope" or (was_ours and room == "contextlib")
        outermost = level if was_ours else outermost
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=outermost + 1)
