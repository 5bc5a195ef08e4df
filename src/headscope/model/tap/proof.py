"""What can be said of an attention computation beyond its weights, proved on a recording."""

from __future__ import annotations

import torch
from torch import Tensor

from headscope.attention import Block
from headscope.model.tap.match import Match
from headscope.model.tap.record import Recording
from headscope.model.tap.sites import Site

CLOSE = 1e-3
"""Relative to the largest number compared: products are taken in another order here."""
ROUNDED = 2.0
"""Units in the last place of the model's own numbers, which half precision rounds more coarsely."""


def proved_site(match: Match, layer: int) -> Site:
    """The site of a match, with whatever its recording proves."""
    recording = match.recording
    n_heads = int(recording.weights.shape[1])
    query, key = _pair(recording, n_heads)
    value = _proved_value(recording, n_heads) if not match.copies else None
    fitted, is_all = _fit_scale(recording, query, key)
    scale = recording.scale if recording.scale is not None else fitted
    vectors = key if key is not None else value
    return Site(
        block=match.block,
        layer=layer,
        module=recording.module,
        occurrence=recording.occurrence,
        computation=recording.computation,
        n_heads=n_heads,
        n_groups=None if vectors is None else int(vectors.shape[1]),
        head_size=None if key is None else int(key.shape[-1]),
        value_size=None if value is None else int(value.shape[-1]),
        scale=scale if scale is None else float(scale),
        is_dot_product=scale is not None and is_all,
        can_edit_vectors=key is not None and recording.n_products == 1,
        has_scores=_softmax_is_weights(recording),
    )


def repeated(vectors: Tensor, n_heads: int) -> Tensor:
    """`batch head … …`: keys or values, each group's for every head that reads it."""
    return vectors.repeat_interleave(n_heads // vectors.shape[1], 1)


def is_causal(weights: Tensor) -> bool:
    """Does no query attend to a later key?"""
    n_queries, n_keys = weights.shape[-2:]
    return n_queries == n_keys and n_keys > 1 and not bool(weights.triu(1).any())


def _pair(recording: Recording, n_heads: int) -> tuple[Tensor | None, Tensor | None]:
    """Queries and keys, where they are laid out by head."""
    query, key = recording.query, recording.key
    if query is None or key is None or query.ndim != 4 or key.ndim != 4:
        return None, None
    fits = query.shape[1] == n_heads and n_heads % key.shape[1] == 0
    n_queries, n_keys = recording.weights.shape[-2:]
    fits = fits and query.shape[2] == n_queries and key.shape[2] == n_keys
    return (query, key) if fits else (None, None)


def _proved_value(recording: Recording, n_heads: int) -> Tensor | None:
    """The values, where the weights times them are what the head hands on."""
    value, output = recording.value, recording.output
    if value is None or value.ndim != 4 or n_heads % value.shape[1]:
        return None
    if output is None or output.ndim != 4 or recording.weights.shape[-1] != value.shape[2]:
        return None
    made = recording.weights.double() @ repeated(value, n_heads).double()
    if made.shape != output.shape:
        return None
    return value if _are_close(made, output) else None


def _softmax_is_weights(recording: Recording) -> bool:
    """Is the softmax of the scores, with the sink's where there is one, the attention?"""
    scores, weights = recording.scores, recording.weights
    if scores is None or scores.shape[:-1] != weights.shape[:-1]:
        return False
    n_sinks = scores.shape[-1] - weights.shape[-1]
    if n_sinks not in (0, 1):
        return False
    made = torch.softmax(scores.double(), -1)[..., : weights.shape[-1]]
    return _are_close(made, weights)


def _are_close(made: Tensor, expected: Tensor) -> bool:
    """Is what was made in double precision what the model has, to what its type holds?"""
    size = max(float(expected.abs().nan_to_num().max()), 1e-12)
    difference = (made - expected.double()).abs().nan_to_num().max()
    return float(difference) <= max(CLOSE, ROUNDED * torch.finfo(expected.dtype).eps) * size


def _fit_scale(
    recording: Recording, query: Tensor | None, key: Tensor | None
) -> tuple[float | None, bool]:
    """The factor on q·k in the scores, and whether there is nothing else in them.

    A position bias is the same in both rows of the example, so the difference of the rows
    is `scale` times the difference of their q·k; anything that does not fit that is not a
    plain factor. Of one row alone, a bias cannot be told from a factor that does not fit.
    """
    scores, weights = recording.scores, recording.weights
    if query is None or key is None or scores is None or scores.shape != weights.shape:
        return None, False
    dots = query.double() @ repeated(key, query.shape[1]).double().transpose(-1, -2)
    scores = scores.double()
    seen = (weights > 0).all(0)
    if len(scores) > 1:
        x, y = (dots[0] - dots[1])[seen], (scores[0] - scores[1])[seen]
    else:
        x, y = dots[0][seen], scores[0][seen]
    if x.square().sum() == 0:
        return None, False
    scale = float((x @ y) / (x @ x))
    size = float(y.abs().max())
    if float((y - scale * x).abs().max()) > CLOSE * size:
        return None, False
    rest = (scores - scale * dots)[:, seen]
    return scale, float(rest.abs().max()) <= CLOSE * max(size, 1e-12)


def is_tower(block: Block) -> bool:
    """Is the block a further tower, whose rows may be tiles rather than documents?"""
    return block in ("text", "vision", "audio")
