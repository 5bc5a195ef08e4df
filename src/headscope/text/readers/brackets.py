"""Mentions in bracket notation, next to the words where they open and close.

Three dialects: CorefUD's `Entity=(e1-person-1-new(e2)` with attributes and numbered parts
(`e1[1/2]`), CoNLL-2012's `(1|(2)` and OntoGUM's `(1(2)`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headscope.text.document import Mention
from headscope.text.readers.reader import whole_number

ENTITY_FIELDS = ("eid", "etype", "head", "other")
"""Default fields of CorefUD's `Entity=`."""

# Without going back ("++"), so that reading takes as long as the brackets are.
_PIECE = re.compile(
    r"\((?P<open>[^()\[\]|-]++)(?P<part>\[\d{1,9}/\d{1,9}\])?(?P<fields>-[^()]*+)?(?P<single>\))?"
    r"|(?P<close>[^()\[\]|-]++)(?P<closed>\[\d{1,9}/\d{1,9}\])?\)"
    r"|\|"
)
MAX_QUOTED = 60
"""Maximum characters of a value in a message."""


class Bracket(NamedTuple):
    """Brackets of one word."""

    word: int
    """Index of the word, or of the word after an empty node."""
    value: str
    line: int
    fields: Sequence[str] = ENTITY_FIELDS
    """Names of the fields of an opening bracket; the first is the cluster."""
    is_empty: bool = False
    """True at an empty node, which is not a word of the text."""


@dataclass(slots=True)
class Opened:
    """Mention, or part of one, that is open."""

    cluster: str
    start: int
    part: int
    parts: int
    line: int
    kind: str | None = None
    head_word: int | None = None
    """Index of the head word among the mention's words."""
    done: list[tuple[int, int]] = field(default_factory=list)
    """Words of earlier parts. The next part reuses the list: copies would take quadratic time."""


class BadBracket(NamedTuple):
    """Unreadable bracket: problem and line."""

    reason: str
    line: int


def mentions_from_brackets(
    brackets: Iterable[Bracket], *, empty_nodes: Sequence[int] = (), is_whole: bool = True
) -> tuple[list[Mention], list[BadBracket]]:
    """Return the mentions of a document's brackets, and the unreadable brackets.

    Mentions may nest and cross; of two open mentions of one cluster the inner one closes first. A
    mention of empty nodes only is left out. Head words of mentions around `empty_nodes` are
    dropped, because CorefUD counts these. Unless the brackets are of the whole document
    (`is_whole`), unpaired ones are left out without an error.
    """
    mentions: list[Mention] = []
    bad: list[BadBracket] = []
    opened: dict[tuple[str, str], list[Opened]] = {}
    waiting: dict[tuple[str, int, int], list[Opened]] = {}
    """Mentions that wait for their next part, by cluster, number of parts, and part."""
    nodes = sorted(empty_nodes)

    def close(mention: Opened, stop: int) -> None:
        if not mention.parts:  # its first part is missing
            return
        if mention.start < stop:
            mention.done.append((mention.start, stop))
        if mention.part < mention.parts:
            after = (mention.cluster, mention.parts, mention.part + 1)
            waiting.setdefault(after, []).append(mention)
        elif mention.done:
            mentions.append(_mention(mention, nodes))

    for bracket in brackets:
        stop = bracket.word if bracket.is_empty else bracket.word + 1
        position = 0
        while piece := _PIECE.match(bracket.value, position):
            position = piece.end()
            lacking = ""
            if piece["open"]:
                mention = _open(bracket, piece)
                if mention.part > 1:
                    before = waiting.get((mention.cluster, mention.parts, mention.part))
                    if before:
                        other = before.pop()
                        mention.done, mention.head_word = other.done, other.head_word
                        mention.kind = other.kind
                    else:
                        lacking, mention.parts = "part before it", 0
                if piece["single"]:
                    close(mention, stop)
                else:
                    opened.setdefault((mention.cluster, piece["part"] or ""), []).append(mention)
            elif piece["close"]:
                if stack := opened.get((piece["close"], piece["closed"] or "")):
                    close(stack.pop(), stop)
                else:
                    lacking = "opening bracket before it"
            if lacking and is_whole:
                inside = f"{_quoted(piece.group())} in the brackets {_quoted(bracket.value)}"
                bad.append(BadBracket(f"{inside} has no {lacking}", bracket.line))
        if position != len(bracket.value):
            problem = (
                f"cannot read {_quoted(bracket.value[position:])} in the brackets "
                f"{_quoted(bracket.value)}; expected '(id', '(id)' or 'id)'"
            )
            bad.append(BadBracket(problem, bracket.line))
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
    part, parts = map(int, (piece["part"] or "[1/1]")[1:-1].split("/"))
    values = (piece["fields"] or "").split("-")
    # The last field takes what is left: links carry hyphens.
    attributes = dict(zip(bracket.fields[1:], values[1:], strict=False))
    head = whole_number(attributes.get("head", ""))
    return Opened(
        cluster=piece["open"],
        start=bracket.word,
        part=part,
        parts=max(part, parts),
        line=bracket.line,
        kind=attributes.get("etype") or None,
        head_word=head - 1 if head else None,
    )


def _mention(opened: Opened, empty_nodes: Sequence[int]) -> Mention:
    first, after = opened.done[0][0], opened.done[-1][1]
    node = bisect_left(empty_nodes, first)
    has_empty_nodes = node < len(empty_nodes) and empty_nodes[node] <= after
    head_word, ahead = None, opened.head_word
    if ahead is not None and not has_empty_nodes:
        for start, stop in opened.done:
            if ahead < stop - start:
                head_word = start + ahead
                break
            ahead -= stop - start
    return Mention(opened.cluster, tuple(opened.done), opened.kind, head_word)


def _quoted(value: str) -> str:
    return repr(value if len(value) <= MAX_QUOTED else value[:MAX_QUOTED] + "…")
