"""Checks that plain data has the shape of a TypedDict: keys, types, literals, unions."""

from __future__ import annotations

import types
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict


def problems(value: object, kind: Any, where: str = "$") -> list[str]:
    """Return the places where a value, as JSON gives it back, is not of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is NotRequired:
        return problems(value, args[0], where)
    if is_typeddict(kind):
        return _of_dict(value, kind, where)
    if origin in (Union, types.UnionType):
        tried = [problems(value, option, where) for option in args]
        return min(tried, key=len)
    if origin is Literal:
        return [] if value in args else [f"{where}: {value!r} is not one of {args}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{where}: {value!r:.40} is not a list"]
        return [p for i, v in enumerate(value) for p in problems(v, args[0], f"{where}[{i}]")]
    if origin is tuple:
        if not isinstance(value, list) or len(value) != len(args):
            return [f"{where}: {value!r:.40} is not of length {len(args)}"]
        return [p for i, v in enumerate(value) for p in problems(v, args[i], f"{where}[{i}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{where}: {value!r:.40} is not an object"]
        return [p for k, v in value.items() for p in problems(v, args[1], f"{where}.{k}")]
    if kind is list:
        return [] if isinstance(value, list) else [f"{where}: {value!r:.40} is not a list"]
    accepted = {float: (int, float), int: int, str: str, bool: bool, type(None): type(None)}[kind]
    is_right = isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))
    return [] if is_right else [f"{where}: {value!r:.40} is not {kind}"]


def _of_dict(value: object, kind: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r:.40} is not an object"]
    # A tree of MathML refers to itself, which get_type_hints cannot follow.
    hints = get_type_hints(kind, localns={"Tree": list}, include_extras=True)
    required = [key for key, hint in hints.items() if get_origin(hint) is not NotRequired]
    missing = [key for key in required if key not in value]
    unknown = [key for key in value if key not in hints]
    found = [f"{where} lacks {key}" for key in missing]
    found += [f"{where} has {key}, which {kind.__name__} does not" for key in unknown]
    known = {key: inner for key, inner in value.items() if key in hints}
    return found + [p for k, v in known.items() for p in problems(v, hints[k], f"{where}.{k}")]
