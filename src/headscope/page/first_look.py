"""Where a page opens when nobody says: on the head that shows most, at its most telling word."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headscope.heads.roles import CONTENT, RoleShares, known_weights, role_places, role_shares
from headscope.results.trace import Block

POSITIONS = ("previous", "next")
PREFERENCE = (CONTENT, POSITIONS, ("same",))
"""A head that reads by content before one that reads by position, and both before one that stays
where it is. Heads that rest, or read everything, are no place to begin."""


class Look(NamedTuple):
    """A head, and the query to pin; None for none."""

    layer: int
    head: int
    query: int | None


def first_look(block: Block, layer: int | None = None, head: int | None = None) -> Look:
    """The head with the strongest role that is no resting place, and the query that shows it most.

    Args:
        block: of a trace.
        layer: only heads of this layer.
        head: only heads of this number.
    """
    shares_of_roles = role_shares(block)
    allowed = _allowed(block, layer, head)
    if not allowed.any():  # every one of them is switched off
        return Look(_layer(block, 0) if layer is None else layer, head or 0, None)
    for names in PREFERENCE:
        shares = np.stack(
            [np.where(shares_of_roles.has(n) & allowed, shares_of_roles.share(n), 0) for n in names]
        )
        if shares.max() > 0:
            role, row, number = np.unravel_index(shares.argmax(), shares.shape)
            return _look(block, int(row), int(number), names[role])
    return _strongest(block, shares_of_roles, allowed)


def widest_difference(one: Block, other: Block) -> Look | None:
    """The head whose rows differ most between two traces, and the query that does.

    Heads that were switched off in one of the two are left out: that they differ is no news.
    Special tokens are considered only where no other token differs. None where the two traces
    have different shapes, or do not differ.
    """
    first, second = known_weights(one), known_weights(other)
    if first.shape != second.shape:
        return None
    apart = np.abs(first - second).sum(-1)
    of_words = np.where(np.asarray(one.query_tokens.special, dtype=bool), 0.0, apart)
    apart = of_words if of_words.max(initial=0.0) > 0 else apart
    is_on = (first.sum((2, 3)) > 0) & (second.sum((2, 3)) > 0)
    means = np.where(is_on, apart.mean(-1), 0.0)
    if not means.max(initial=0.0) > 0:
        return None
    row, head = np.unravel_index(means.argmax(), means.shape)
    return Look(_layer(one, int(row)), int(head), int(apart[row, head].argmax()))


def _allowed(block: Block, layer: int | None, head: int | None) -> np.ndarray:
    allowed: np.ndarray = known_weights(block).sum((2, 3)) > 0
    if layer is not None:
        allowed &= (block.attention["layer"].values == layer)[:, None]
    if head is not None:
        allowed &= (np.arange(allowed.shape[1]) == head)[None]
    return allowed


def _strongest(block: Block, shares_of_roles: RoleShares, allowed: np.ndarray) -> Look:
    """The head that comes nearest to a role, where none has one."""
    names = [name for names in PREFERENCE for name in names]
    shares = np.stack(
        [np.where(allowed, np.nan_to_num(shares_of_roles.share(n)), -1.0) for n in names]
    )
    role, row, head = np.unravel_index(shares.argmax(), shares.shape)
    return _look(block, int(row), int(head), names[role])


def _look(block: Block, row: int, head: int, role: str) -> Look:
    place = role_places(block).get(role)
    query = None
    if place is not None and place.any():
        paid = (known_weights(block)[row, head] * place).sum(-1)
        query = int(paid.argmax())
    return Look(_layer(block, row), head, query)


def _layer(block: Block, row: int) -> int:
    return int(block.attention["layer"].values[row])
