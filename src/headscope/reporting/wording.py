"""Numbers in words: values with their intervals, names of heads, lists in a sentence.

A phrase is a list of parts: text, heads, figures and asides. `plain` gives the text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headscope.figures.chart_data import ValueText
from headscope.figures.chart_types import AsidePart, FigurePart, HeadPart, Phrase, SentencePart

SPACE = "\u00a0"


def with_interval(value: ValueText, units: str = "") -> str:
    """`43.1 % [42.0–44.2]` for shares, `5.44 tokens [5.10–5.80]` for others."""
    is_share = is_share_of(units)
    digits = 1 if is_share else _digits(value.value)
    factor = 100 if is_share else 1
    unit = "%" if is_share else units
    shown = _signed(value.value * factor, digits) + (f"{SPACE}{unit}" if unit else "")
    if not value.has_interval:
        return shown
    low, high = (_signed(x * factor, digits) for x in (value.low, value.high))
    dash = " to " if "−" in low + high else "–"
    return f"{shown} [{low}{dash}{high}]"


def points(value: ValueText, units: str = "share") -> str:
    """A difference: of shares in points, which are not percent of anything."""
    shown = with_interval(value, units)
    return shown.replace(f"{SPACE}%", f"{SPACE}points") if is_share_of(units) else shown


def is_share_of(units: str) -> bool:
    """Is a number with these units a share, to be printed in percent?"""
    return units.startswith("share") or units in ("accuracy", "UAS")


def head(subject: int, layer: int, number: int) -> HeadPart:
    """A head as a part of a sentence or a cell of a table."""
    return {"head": (subject, int(layer), int(number))}


def figure(name: str) -> FigurePart:
    """A reference to a figure as a part of a sentence."""
    return {"figure": name}


def cited(name: str) -> Phrase:
    """Return the end of a sentence with a reference to a figure."""
    return [figure(name), "."]


def aside(text: str, p: float | None = None) -> AsidePart:
    """Return a test or a correction as a part of a sentence, which reads well without it. `p` makes
    the sentence a claim: the p value after all corrections within the sentence.
    """
    return {"aside": text} if p is None else {"aside": text, "p": float(p)}


def sentence(*parts: SentencePart | Sequence[SentencePart]) -> Phrase:
    """One sentence of parts and lists of parts, in their order."""
    flat: Phrase = []
    for part in parts:
        if isinstance(part, str | dict):
            flat.append(part)
        else:
            flat.extend(part)
    return flat


def listed(items: Sequence[SentencePart | Sequence[SentencePart]]) -> Phrase:
    """`a, b and c`."""
    joined: Phrase = []
    for number, entry in enumerate(items):
        if number:
            joined.append(" and " if number == len(items) - 1 else ", ")
        joined.extend(sentence(entry))
    return joined


def count_of(n: int, noun: str) -> str:
    """`one head`, `3 heads`."""
    return f"one {noun}" if n == 1 else f"{n:,} {noun}s"


def tied_heads(n: int) -> str:
    """`, from which 3 other heads cannot be told`."""
    return f", from which {count_of(n, 'other head')} cannot be told" if n > 0 else ""


def plain(parts: Iterable[SentencePart]) -> str:
    """A sentence as text: heads by name, without references to figures."""
    shown = []
    for part in parts:
        if isinstance(part, str):
            shown.append(part)
        elif "head" in part:
            _, layer, number = part["head"]
            shown.append(f"L{layer} H{number}")
        elif "aside" in part:
            shown.append(part["aside"])
    return "".join(shown).replace(SPACE, " ")


def _digits(value: float) -> int:
    size = abs(value)
    if size >= 100:
        return 0
    if size >= 10:
        return 1
    return 2 if size >= 0.1 or size == 0 else 3


def _signed(value: float, digits: int) -> str:
    shown = f"{value:.{digits}f}"
    return shown.lstrip("-") if float(shown) == 0 else shown.replace("-", "−")
