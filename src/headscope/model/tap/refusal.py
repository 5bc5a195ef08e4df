"""Why a model's attention cannot be read, said with what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from transformers import PreTrainedModel

from headscope.errors import TapUnsupported
from headscope.model.tap.official import Maps
from headscope.model.tap.record import Recording


def reason_of(maps: Maps, again: Maps, recordings: Sequence[Recording], n_rows: int) -> str:
    """Why a model's attention could not be wired.

    Args:
        maps: the official ones.
        again: those of the same inputs, asked for once more.
        recordings: the attention that was seen.
        n_rows: how many rows the inputs are.
    """
    complete = [one for one in recordings if one.is_complete]
    own = [m for block, some in maps.items() if block != "cross" for m in some]
    if _differ(maps, again):
        return (
            "its attention is another one each time it runs on the same input: it draws lots, so "
            "nothing can be compared"
        )
    official = [m for m in own if m.ndim == 4]
    is_short = any(m.shape[-1] < m.shape[-2] for m in official)  # of the keys, only those nearby
    is_even = len({m.shape[-2] for m in maps.get("encoder", own)}) == 1  # nothing is pooled
    if not complete and official:
        named = ", ".join(dict.fromkeys(str(tuple(m.shape)) for m in official))
        how = (
            "in windows, so a head has no single matrix to read"
            if is_short
            else "where the tap sees no softmax (in a fused function of torch, or in another way)"
        )
        return f"its attention (official shapes {named} for {n_rows} rows) is computed {how}"
    if not complete:
        return (
            "it has no softmax attention (state-space, Fourier and convolutional models have none)"
        )
    seen = ", ".join(dict.fromkeys(str(tuple(one.weights.shape)) for one in complete))
    shapes = ", ".join(dict.fromkeys(str(tuple(m.shape)) for m in own)) or seen
    if own and all(m.ndim == 4 and len(m) < n_rows and n_rows % len(m) == 0 for m in own):
        return (
            "several rows of its input make one sequence, as codebooks and packed pictures do "
            f"({n_rows} rows, attention of shapes {shapes}), so a trace could not say which row a "
            "token is of"
        )
    if (is_short and is_even) or any(m.ndim != 4 or len(m) != n_rows for m in own):
        return (
            f"its attention is laid out in windows or blocks (shapes {shapes} for {n_rows} rows), "
            "not as queries by keys, so a head has no single matrix to read"
        )
    if len({m.shape[-2:] for m in own}) > 1 or any(m.shape[-1] != m.shape[-2] for m in own):
        return (
            "its layers attend over pooled sequences, not over one sequence of tokens (shapes "
            f"{shapes})"
        )
    if not own:
        return (
            "it returns no attention to compare with, and what it computes is not queries by keys "
            f"of one sequence (softmaxes of shapes {seen}, for {n_rows} rows)"
        )
    return (
        f"its {len(own)} official attention maps are not what it multiplies its values with "
        f"(official shapes {shapes}; softmaxes of shapes {seen})"
    )


def _differ(maps: Maps, again: Maps) -> bool:
    """Are two answers to the same question different?"""
    pairs = [
        pair for block in maps for pair in zip(maps[block], again.get(block, ()), strict=False)
    ]
    return any(
        a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs
    )


def refuse(root: PreTrainedModel, reason: str) -> NoReturn:
    """Refuse a model, with the reason."""
    raise TapUnsupported(f"The tap cannot read {root.config.model_type!r}: {reason}.")
