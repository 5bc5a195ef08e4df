"""Where the words of a sentence stand in its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from headscope.text.readers.lines import broken

_CLOSING = re.compile(r"[.,;:!?)\]}%…”’]|''|['’](?:s|m|d|re|ve|ll)|n['’]t", re.IGNORECASE)
_SPACES = re.compile(r"\s*")
_OPENING = re.compile(r"[(\[{“‘$£€#]|``")


class Surface(NamedTuple):
    """What is written between two spaces or other tokens: one word, or several in one."""

    form: str
    words: tuple[str, ...]
    space_after: bool


def locate(
    surfaces: Sequence[Surface], text: str | None, name: str, line: int
) -> tuple[str, list[tuple[int, int]]]:
    """The sentence's text, and the characters of each word in it.

    The words of a contraction get their own characters where they spell it out (`don't` as
    `do` + `n't`), otherwise all of it (`du` as `de` + `le`).

    Args:
        surfaces: In order.
        text: What the file says the text is; None to make it from the surfaces.
        name: The file, for the message.
        line: Where the sentence starts.

    Raises:
        FileFormatError: The text is not made of the surfaces and spaces.
    """
    pieces: list[str] = []
    starts: list[int] = []
    at = 0
    for form, _, space_after in surfaces:
        starts.append(at)
        pieces.append(form + " " if space_after else form)
        at += len(pieces[-1])
    made = "".join(pieces).rstrip()
    if text is None or text == made:
        text = made
    else:
        starts = _search(surfaces, text, name, line)
    spans: list[tuple[int, int]] = []
    for start, (form, words, _) in zip(starts, surfaces, strict=True):
        if len(words) == 1:
            spans.append((start, start + len(form)))
        elif "".join(words).lower() == form.lower() and sum(map(len, words)) == len(form):
            for word in words:
                spans.append((start, start + len(word)))
                start += len(word)
        else:
            spans += [(start, start + len(form))] * len(words)
    return text, spans


def _next_letter(text: str, at: int) -> int:
    """Where the spaces end that begin here."""
    spaces = _SPACES.match(text, at)
    assert spaces is not None
    return spaces.end()


def _search(surfaces: Sequence[Surface], text: str, name: str, line: int) -> list[int]:
    starts = []
    at = 0
    for form, *_ in surfaces:
        n_leading = len(form) - len(form.lstrip())
        if n_leading < len(form):  # its first letter is the next one of the text
            at = max(at, _next_letter(text, at) - n_leading)
        if not text.startswith(form, at):
            raise broken(
                name,
                line,
                f"the text continues with {text[at : at + 30]!r}, the words with {form!r}",
                "the text to be made of the words and spaces",
            )
        starts.append(at)
        at += len(form)
    if text[at:].strip():
        raise broken(name, line, f"the text goes on after the last word with {text[at:][:30]!r}")
    return starts


def spaced(words: Sequence[str]) -> list[Surface]:
    """Words of a format that does not tell where the spaces are, spaced as English is.

    No space before closing punctuation and the clitics `'s`, `n't`, `'ll` …, none after
    opening punctuation; straight quotes open and close in turn.
    """
    surfaces: list[Surface] = []
    is_open = False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        space = not (_CLOSING.fullmatch(following) or _OPENING.fullmatch(word))
        if word == '"':
            is_open = not is_open
            space = space and not is_open
        if following == '"' and is_open:
            space = False
        surfaces.append(Surface(word, (word,), space))
    return surfaces
