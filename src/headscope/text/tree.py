"""What makes the parents of a sentence a tree."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.errors import InputError

ROOT = -1
"""Parent of the word that has none because it is the root."""
NO_PARENT = -2
"""Parent of a word whose parent is unknown, or was cut off."""


def check_tree(parents: Sequence[int], start: int, stop: int, name: str) -> None:
    """Refuses parents that are no tree.

    Every parent lies in the sentence, exactly one word is the root (at most one where some
    parents are unknown), and whoever follows parents from any word arrives there.

    Args:
        parents: The parent of each word, counted like the words themselves.
        start: First word of the sentence.
        stop: The word after its last.
        name: What to call the sentence in the message.

    Raises:
        InputError: They are no tree, with the name and the offending words.
    """
    within = parents[start:stop]
    for word, parent in enumerate(within, start):
        if parent == word or not (start <= parent < stop or parent in (ROOT, NO_PARENT)):
            raise InputError(
                f"{name}: the parent of word {word - start + 1} is word {parent - start + 1}, "
                + ("the word itself." if parent == word else f"but there are {stop - start} words.")
            )
    roots = [word - start + 1 for word, parent in enumerate(within, start) if parent == ROOT]
    if len(roots) > 1:
        raise InputError(f"{name} has {len(roots)} roots (words {_some(roots)}), expected one.")
    if not roots and NO_PARENT not in within:
        raise InputError(f"{name} has no root, expected exactly one word without a parent.")
    # Who comes to where an earlier walk has been arrives as that one did; who meets itself, never.
    walks: list[int | None] = [None] * (stop - start)
    for word in range(start, stop):
        at = word
        while at >= 0 and walks[at - start] is None:
            walks[at - start] = word
            at = parents[at]
        if at >= 0 and walks[at - start] == word:
            ring = {at}
            while (at := parents[at]) not in ring:
                ring.add(at)
            raise InputError(
                f"{name} has a cycle: following the parents from word {word - start + 1} "
                f"never reaches the root (words {_some(sorted(w - start + 1 for w in ring))})."
            )


def _some(words: list[int]) -> str:
    more = f" and {len(words) - 10} more" if len(words) > 10 else ""
    return f"{words[:10]}{more}"
