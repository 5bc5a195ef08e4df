"""Checks of arguments, with errors that name the expected value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from types import UnionType

from headscope.errors import InputError

MAX_SHOWN = 60


def as_integer(value: object) -> int | None:
    """Return an int, also from NumPy's; None for anything else, including True and False."""
    return None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return an argument that is a whole number of at least `least`."""
    number = as_integer(value)
    if number is None or number < least:
        raise _wrong(name, value, f"a whole number from {least} on")
    return number


def finite_number(name: str, value: object) -> float:
    """Return an argument that is a finite number."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
        raise _wrong(name, value, "a finite number")
    return float(value)  # type: ignore[arg-type]


def whole_numbers(name: str, values: object) -> tuple[int, ...]:
    """Return an argument that is one whole number from 0 on, or several."""
    items = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    return tuple(whole_number(name, value, 0) for value in items)


def place_of(what: str, value: object, known: Sequence[int]) -> int:
    """Return the index of a layer or head in a result, from its number."""
    number = as_integer(value)
    if number is None or number not in known:
        expected = f"{min(known)} to {max(known)}" if known else "none"
        raise InputError(f"There is no {what} {value!r} in this result: expected {expected}.")
    return known.index(number)


def expect(name: str, value: object, kinds: type | UnionType, what: str) -> None:
    """Raise InputError if an argument has another type; `what` describes the expected value."""
    if not isinstance(value, kinds):
        raise _wrong(name, value, what)


def _wrong(name: str, value: object, what: str) -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 1] + "…"
    return InputError(f"{name} should be {what}, not {shown}.")
