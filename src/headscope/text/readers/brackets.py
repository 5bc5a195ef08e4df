"""Mentions written as brackets beside the words they open and close at.

One notation, three dialects: CorefUD's `Entity=(e1-person-1-new(e2)` with attributes and
numbered parts (`e1[1/2]`), CoNLL-2012's `(1|(2)` and OntoGUM's `(1(2)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headscope.text.mention import Mention

ENTITY_FIELDS = ("eid", "etype", "head", "other")
"""The fields of CorefUD's `Entity=` where the file does not declare its own."""

_PIECE = re.compile(
    r"\((?P<open>[^()\[\]|-]+)(?P<part>\[\d+/\d+\])?(?P<fields>-[^()]*)?(?P<single>\))?"
    r"|(?P<close>[^()\[\]|-]+)(?P<closed>\[\d+/\d+\])?\)"
    r"|\|"
)


class Bracket(NamedTuple):
    """What stands beside one word."""

    word: int
    """The word, or the one before which an empty node stands."""
    value: str
    line: int
    fields: Sequence[str] = ENTITY_FIELDS
    """What the parts of an opening bracket mean; the first is the cluster."""
    is_empty: bool = False
    """Beside an empty node, which is no word of the text."""


@dataclass(slots=True)
class Opened:
    """A mention, or a part of one, that has been opened."""

    cluster: str
    start: int
    part: int
    parts: int
    line: int
    kind: str | None = None
    head_word: int | None = None
    """The number of the head word among the mention's words, from 0."""
    done: tuple[tuple[int, int], ...] = ()


class BadBracket(NamedTuple):
    """A bracket that cannot be read: why, and in which line."""

    reason: str
    line: int


def mentions_from_brackets(
    brackets: Iterable[Bracket], *, empty_nodes: Sequence[int] = (), is_whole: bool = True
) -> tuple[list[Mention], list[BadBracket]]:
    """The mentions that the brackets of a document make, and what was wrong with others.

    Mentions may nest and cross; of two open mentions of one cluster the inner one is closed
    first. A mention of empty nodes only has no words and is left out.

    Args:
        brackets: In order of the text.
        empty_nodes: For each empty node the word it stands before. CorefUD counts a mention's
            head word with them, so it is not taken over for mentions around them.
        is_whole: They are all brackets of the document. Otherwise a bracket without its
            partner belongs to a mention that reaches beyond, which is left out quietly.
    """
    mentions: list[Mention] = []
    bad: list[BadBracket] = []
    opened: dict[tuple[str, str], list[Opened]] = {}
    waiting: dict[tuple[str, int], list[Opened]] = {}

    def close(mention: Opened, stop: int) -> None:
        mention.done += ((mention.start, stop),) if mention.start < stop else ()
        if mention.part < mention.parts:
            waiting.setdefault((mention.cluster, mention.parts), []).append(mention)
        elif mention.done:
            mentions.append(_mention(mention, empty_nodes))

    for bracket in brackets:
        stop = bracket.word if bracket.is_empty else bracket.word + 1
        at = 0
        for piece in _PIECE.finditer(bracket.value):
            if piece.start() != at:
                break
            at = piece.end()
            if piece["open"]:
                mention = _open(bracket, piece)
                if mention.part > 1:
                    before = waiting.get((mention.cluster, mention.parts), [])
                    before = [m for m in before if m.part == mention.part - 1]
                    if not before:
                        if is_whole:
                            bad.append(_unpaired(bracket, piece.group(), "part before it"))
                        mention.parts = 0
                    else:
                        waiting[(mention.cluster, mention.parts)].remove(before[-1])
                        mention.done, mention.head_word = before[-1].done, before[-1].head_word
                        mention.kind = before[-1].kind
                if piece["single"]:
                    if mention.parts:
                        close(mention, stop)
                else:
                    opened.setdefault((mention.cluster, piece["part"] or ""), []).append(mention)
            elif piece["close"]:
                stack = opened.get((piece["close"], piece["closed"] or ""))
                if stack:
                    mention = stack.pop()
                    if mention.parts:
                        close(mention, stop)
                elif is_whole:
                    bad.append(_unpaired(bracket, piece.group(), "opening bracket before it"))
        if at != len(bracket.value):
            bad.append(
                BadBracket(
                    f"cannot read {bracket.value[at:]!r} in the brackets {bracket.value!r}; "
                    "expected '(id', '(id)' or 'id)'",
                    bracket.line,
                )
            )
    if is_whole:
        left = [m for stack in opened.values() for m in stack if m.parts]
        left += [m for stack in waiting.values() for m in stack]
        bad += [
            BadBracket(f"the mention '({mention.cluster}' is never closed", mention.line)
            for mention in sorted(left, key=lambda m: m.line)
        ]
    mentions.sort(key=lambda m: (m.start, -m.stop))
    return mentions, bad


def _open(bracket: Bracket, piece: re.Match[str]) -> Opened:
    part, parts = 1, 1
    if piece["part"]:
        part, parts = map(int, piece["part"][1:-1].split("/"))
    values = (piece["fields"] or "").split("-")
    # The last field takes what is left: links carry hyphens.
    named = dict(zip(bracket.fields[1:], values[1:], strict=False))
    head = named.get("head", "")
    return Opened(
        cluster=piece["open"],
        start=bracket.word,
        part=part,
        parts=max(part, parts),
        line=bracket.line,
        kind=named.get("etype") or None,
        head_word=int(head) - 1 if head.isdigit() and int(head) else None,
    )


def _mention(opened: Opened, empty_nodes: Sequence[int]) -> Mention:
    words = [word for start, stop in opened.done for word in range(start, stop)]
    head_word = None
    if opened.head_word is not None and opened.head_word < len(words):
        head_word = words[opened.head_word]
        if any(words[0] <= node <= words[-1] + 1 for node in empty_nodes):
            head_word = None
    return Mention(opened.cluster, opened.done, opened.kind, head_word)


def _unpaired(bracket: Bracket, piece: str, what: str) -> BadBracket:
    return BadBracket(f"{piece!r} in the brackets {bracket.value!r} has no {what}", bracket.line)
