"""What callers pass in, checked where it comes in, with errors that say what was expected."""

from __future__ import annotations

from numbers import Integral
from types import UnionType

from headscope.errors import InputError

MOST_SHOWN = 60


def as_integer(value: object) -> int | None:
    """An int, also of NumPy's; None for anything else, True and False among it."""
    return None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def whole_number(name: str, value: object, least: int = 1) -> int:
    """The value of an argument that counts something."""
    number = as_integer(value)
    if number is None or number < least:
        raise _wrong(name, value, f"a whole number from {least} on")
    return number


def expect(name: str, value: object, kinds: type | UnionType, what: str) -> None:
    """Refuse an argument that is not of these types; `what` says it in words."""
    if not isinstance(value, kinds):
        raise _wrong(name, value, what)


def _wrong(name: str, value: object, what: str) -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= MOST_SHOWN else shown[: MOST_SHOWN - 1] + "…"
    return InputError(f"{name} should be {what}, not {shown}.")
