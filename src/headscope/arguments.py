"""What callers pass in, checked where it comes in, with errors that say what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from types import UnionType

from headscope.errors import InputError

MAX_SHOWN = 60


def as_integer(value: object) -> int | None:
    """An int, also of NumPy's; None for anything else, True and False among it."""
    return None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def whole_number(name: str, value: object, least: int = 1) -> int:
    """The value of an argument that counts something."""
    number = as_integer(value)
    if number is None or number < least:
        raise _wrong(name, value, f"a whole number from {least} on")
    return number


def finite_number(name: str, value: object) -> float:
    """The value of an argument that is any number but NaN and infinity."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
        raise _wrong(name, value, "a finite number")
    return float(value)  # type: ignore[arg-type]


def whole_numbers(name: str, values: object) -> tuple[int, ...]:
    """The value of an argument that is one number from 0 on, or several."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    return tuple(whole_number(name, value, 0) for value in several)


def place_of(what: str, value: object, known: Sequence[int]) -> int:
    """Where a layer or head stands among those of a result, by its number."""
    number = as_integer(value)
    if number is None or number not in known:
        expected = f"{min(known)} to {max(known)}" if known else "none"
        raise InputError(f"There is no {what} {value!r} in this result: expected {expected}.")
    return known.index(number)


def expect(name: str, value: object, kinds: type | UnionType, what: str) -> None:
    """Refuse an argument that is not of these types; `what` says it in words."""
    if not isinstance(value, kinds):
        raise _wrong(name, value, what)


def _wrong(name: str, value: object, what: str) -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 1] + "…"
    return InputError(f"{name} should be {what}, not {shown}.")
