"""Tensors of one attention computation in the axes that readers know."""

from __future__ import annotations

from torch import Tensor

from headscope.model.tap.sites import Site


def unfold(tensor: Tensor, n_heads: int) -> Tensor:
    """`batch·head … …` as `batch head … …`; four axes stay as they are."""
    return tensor if tensor.ndim != 3 else tensor.reshape(-1, n_heads, *tensor.shape[1:])


def unfold_any(tensor: Tensor | None, n_heads: int) -> Tensor | None:
    """Likewise, where there is a tensor."""
    return None if tensor is None else unfold(tensor, n_heads)


def columns(site: Site, scores: Tensor | None, start: int, stop: int) -> Tensor | None:
    """Some columns of the scores; None where they are not what the softmax is proved to be of."""
    return scores[..., start:stop] if scores is not None and site.has_scores else None


def sinks(site: Site, scores: Tensor | None, n_keys: int) -> Tensor | None:
    """The scores of the sink: one column more than there are keys."""
    column = columns(site, scores, n_keys, n_keys + 1)
    return column[..., 0] if column is not None and column.shape[-1] else None
