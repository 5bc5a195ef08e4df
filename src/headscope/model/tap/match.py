"""Find each official attention map among the recorded computations, by its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from headscope.attention import Block
from headscope.model.tap.record import Recording
from headscope.model.tap.watch import unfold_any

TOLERANCE = 1e-4
"""Largest difference at which a recording still counts as the official map. Exact
equality is expected and reported; the slack is for families that recompute in another
precision, or return their attention after a cast."""
Against = Literal["weights", "scores", "averages", "nothing"]


@dataclass(slots=True)
class Match:
    """An official map and the computation that made it."""

    block: Block
    recording: Recording
    difference: float
    against: Against
    copies: list[Recording] = field(default_factory=list)
    """Computations of the same module that made the very same map once more, for other
    values (the two halves of differential attention)."""


def match(
    official: Mapping[Block, Sequence[Tensor]], recordings: Sequence[Recording]
) -> tuple[list[Match], list[Recording]] | None:
    """For every official map the recording that is it, and the recordings left over; None
    where a map has no recording.
    """
    left = list(recordings)
    matches = []
    for block, maps in official.items():
        for target in maps:
            best = _nearest(target, left)
            if best is None:
                return None
            index, difference, against = best
            recording = left.pop(index)
            if recording.weights.shape != target.shape:
                recording = _reshaped(recording, target.shape)
            matches.append(Match(block, recording, difference, against))
    for one in matches:
        one.copies = [other for other in left if _is_copy(other, one.recording)]
        left = [other for other in left if other not in one.copies]
    return matches, left


def equals(weights: Tensor, target: Tensor) -> bool:
    """Are these the same map, bit for bit, whatever the layout of its heads?"""
    return (
        weights.numel() == target.numel()
        and weights.shape[-2:] == target.shape[-2:]
        and bool(torch.equal(weights.reshape(target.shape), target))
    )


def _is_copy(other: Recording, recording: Recording) -> bool:
    return other.module == recording.module and equals(other.weights, recording.weights)


def _nearest(target: Tensor, recordings: Sequence[Recording]) -> tuple[int, float, Against] | None:
    """Index, difference and form of the recording nearest to an official map."""
    best: tuple[int, float, Against] | None = None
    candidates: list[tuple[Against, Tensor]] = [("weights", target)]
    if not _sums_to_at_most_one(target):
        candidates.append(("scores", torch.softmax(target.float(), -1)))
    if target.ndim == 4 and torch.equal(target[:, 1:], target[:, :-1]):
        candidates.append(("averages", target))
    for against, expected in candidates:
        for index, recording in enumerate(recordings):
            weights = recording.weights
            if weights.numel() != target.numel() or weights.shape[-2:] != target.shape[-2:]:
                continue
            weights = weights.reshape(target.shape)
            if against == "averages":
                weights = weights.mean(1, keepdim=True)
            difference = float((weights - expected).abs().nan_to_num().max())
            if difference <= TOLERANCE and (best is None or difference < best[1]):
                best = (index, difference, against)
            if difference == 0:
                return best
    return best


def _sums_to_at_most_one(weights: Tensor) -> bool:
    return bool((weights >= 0).all()) and bool((weights.sum(-1) <= 1 + 1e-3).all())


def _reshaped(recording: Recording, shape: torch.Size) -> Recording:
    """A recording with `batch·head` on one axis, given the two axes of the official map."""
    n_heads = shape[1]
    return replace(
        recording,
        weights=recording.weights.reshape(shape),
        scores=unfold_any(recording.scores, n_heads),
        query=unfold_any(recording.query, n_heads),
        key=unfold_any(recording.key, n_heads),
        value=unfold_any(recording.value, n_heads),
        output=unfold_any(recording.output, n_heads),
    )
