"""Gradients of the model's loss by class of key.

These metrics need a backward pass, which `headscope.importance` runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from headscope.errors import InputError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import RatioMetric
from headscope.metrics.core.layer_data import (
    LayerData,
    Reduction,
    Small,
    join_by,
    per_batch,
    per_layer,
    per_rows,
)
from headscope.metrics.core.regions import real_pairs
from headscope.metrics.surface import key_classes


@per_rows
def _pairs(layer_data: LayerData) -> Tensor:
    """`document row key`: return 1 for visible pairs."""
    pairs = real_pairs(layer_data)
    return pairs.tril(layer_data.rows.start) if layer_data.is_causal else pairs


def _gradient_sums(layer_data: LayerData) -> Small:
    """`document head key`, float64: Σ |∂L/∂a| over the queries that see the key."""
    gradients = _gradients(layer_data).abs() * _pairs(layer_data)[:, None]
    return (gradients.sum(2, dtype=torch.float64),)


def _product_sums(layer_data: LayerData) -> Small:
    """`document head key`, float64: Σ a·∂L/∂a over the queries that see the key."""
    return (_products(layer_data).sum(2),)


def _growth(layer_data: LayerData) -> Small:
    """`document head class`, float64: change if the rest of each row grows by the class's share."""
    weights = layer_data.weights.double() * _pairs(layer_data)[:, None]
    totals = weights.sum(-1, keepdim=True).clamp_min(1e-30)
    shares = weights @ _members(layer_data)[:, None, : layer_data.n_keys] / totals
    return ((shares * _products(layer_data).sum(-1, keepdim=True)).sum(2),)


@per_layer
def _products(layer_data: LayerData) -> Tensor:
    products = layer_data.weights.double() * _gradients(layer_data).double()
    return products * _pairs(layer_data)[:, None]


gradient_sums = Reduction(_gradient_sums, join_by("sum"))
product_sums = Reduction(_product_sums, join_by("sum"))
growth = Reduction(_growth, join_by("sum"))


@dataclass(frozen=True)
class Importance(RatioMetric):
    """Sensitivity of the model's loss to attention to each class of keys.

    Mean of |∂L/∂a[i,j]| over all pairs of a query i and a key j of the class that the model can
    attend to. L is the mean cross-entropy of a document's predicted tokens: next tokens in causal
    models; in encoders 15 % of the tokens, masked, drawn with `seed` and the document's content; in
    classifiers the label they find likeliest. `target` names another answer, `scalar` a function of
    the model's output (`module:function`). Small gradients at a class that gets much attention say
    that the attention there is a no-op.

    Clark et al. 2019, section 3.2 and Figure 3, who did not release this analysis. They show [SEP],
    ". or ," and all keys; by layer is the mean over the layer's heads.
    """

    name = "importance"
    title = "Gradient |∂L/∂a| by class of key"
    short_title = "Gradient"
    equation = (
        r"\frac{\sum_{i, j \in \text{class}} \left| \frac{\partial L}{\partial a_{ij}} "
        r"\right|}{\text{pairs}(j \in \text{class})}"
    )
    paper = "Clark et al. 2019, section 3.2, Figure 3"
    units = "nats per unit of attention"
    format = ".2e"
    order = 320
    needs = frozenset(("gradients",))
    is_default = False
    reductions = (gradient_sums,)
    dims = ("gradient_class",)
    denominator_dims = ("gradient_class",)

    seed: int = 0
    target: str | int | None = None
    scalar: str | None = None

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums of |∂L/∂a| by class, pairs, and queries."""
        members = _members(layer_data)
        numerator = gradient_sums(layer_data)[0] @ members
        pairs, queries = _counts(layer_data)
        denominator = (pairs[:, None, :] @ members).expand_as(numerator)
        return numerator, denominator, queries[:, None].expand(-1, layer_data.n_heads)


@dataclass(frozen=True)
class RemovalEstimate(RatioMetric):
    """First-order increase of the loss per token if a head's attention to a class is removed.

    −Σ a[i,j]·∂L/∂a[i,j] over keys j of the class, averaged over predicted tokens as the loss is: a
    document counts by the tokens that it predicts. With `renormalized`, the
    rest of each row grows by the removed share m[i], which adds Σ m[i]·a[i,k]·∂L/∂a[i,k] over all
    keys k. `headscope.check_importance` measures the exact change.

    The gradient of Clark et al. 2019, section 3.2, times the attention.
    """

    name = "removal_estimate"
    title = "Estimated rise of the loss if removed"
    short_title = "Estimated rise"
    equation = r"-\sum_{i, j \in \text{class}} a_{ij} \cdot \frac{\partial L}{\partial a_{ij}}"
    paper = "Clark et al. 2019, section 3.2 (beyond the paper)"
    units = "nats per token"
    format = ".2e"
    order = 330
    counts = "predicted tokens"
    needs = frozenset(("gradients",))
    is_default = False
    has_layer_ratio = False
    dims = ("gradient_class",)

    renormalized: bool = False

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Products of attention and gradient; with `renormalized`, also the rest of each row."""
        return (product_sums, growth) if self.renormalized else (product_sums,)

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums of −a·∂L/∂a by class, and predicted tokens twice."""
        numerator = -(product_sums(layer_data)[0] @ _members(layer_data))
        if self.renormalized:
            numerator = numerator + growth(layer_data)[0]
        tokens = _losses(layer_data)[:, 1].to(numerator)[:, None]
        counts = tokens.expand(numerator.shape[:2])
        return numerator * tokens[..., None], counts, counts


@dataclass(frozen=True)
class Loss(RatioMetric):
    """Loss of the model per predicted token, by its own objective.

    Mean cross-entropy over all predicted tokens of the corpus.

    Clark et al. 2019, section 3.2: the loss whose gradient is taken.
    """

    name = "loss"
    title = "Loss"
    equation = r"-\frac{1}{n} \sum_{t} \ln p(x_t)"
    paper = "Clark et al. 2019, section 3.2"
    units = "nats per token"
    order = 310
    counts = "predicted tokens"
    scope = "text"
    needs = frozenset(("loss",))
    is_default = False

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return cross-entropies, and predicted tokens twice."""
        sums, counts = _losses(layer_data).unbind(-1)
        return sums, counts, counts


def _losses(layer_data: LayerData) -> Tensor:
    """`document 2`, float64: return the sum of each document's losses, and its tokens."""
    losses = layer_data.batch.losses
    if losses is None:
        raise InputError("The loss is measured by headscope.importance, not by analyze.")
    return torch.from_numpy(losses).double()


def _gradients(layer_data: LayerData) -> Tensor:
    gradients = layer_data.gradients
    if gradients is None:
        raise InputError(
            "Gradients are measured by headscope.importance, which runs a backward pass; this "
            "is attention alone."
        )
    return gradients


@per_batch
def _counts(layer_data: LayerData) -> tuple[Tensor, Tensor]:
    """Return visible pairs of each key (`document key`), and queries that see any, float64."""
    queries, keys = (
        torch.from_numpy(t.mask).double() for t in (layer_data.queries, layer_data.keys)
    )
    if layer_data.is_causal:
        seen_by, sees = queries.flip(-1).cumsum(-1).flip(-1), keys.cumsum(-1)
    else:
        seen_by, sees = queries.sum(-1, keepdim=True), keys.sum(-1, keepdim=True)
    counts = keys * seen_by, (queries * (sees > 0)).sum(-1)
    return counts[0].to(layer_data.device), counts[1].to(layer_data.device)


def _members(layer_data: LayerData) -> Tensor:
    """`document key class`, float64: return memberships, with a last class of all keys."""
    mask = torch.from_numpy(layer_data.keys.mask)
    everything = mask.double().to(layer_data.device)[..., None]
    classes = key_classes(layer_data)
    return everything if classes is None else torch.cat((classes, everything), dim=-1)
