"""Gradients of the model's loss by class of key.

These metrics need a backward pass, which `headscope.importance` runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from headscope.errors import InputError
from headscope.lazy import Tensor, torch
from headscope.metrics.core.contract import RatioMetric
from headscope.metrics.core.layer_data import LayerData, per_batch
from headscope.metrics.surface import key_classes


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
    dims = ("gradient_class",)
    denominator_dims = ("gradient_class",)

    seed: int = 0
    target: str | int | None = None
    scalar: str | None = None

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums of |∂L/∂a| by class, pairs, and queries."""
        pairs, members = _pairs(layer_data), _members(layer_data)
        gradients = _gradients(layer_data).abs().double() * pairs[:, None]
        numerator = gradients.sum(2) @ members
        denominator = (pairs.sum(1)[:, None, :] @ members).expand_as(numerator)
        count = pairs.any(2).double().sum(-1, keepdim=True).expand(-1, layer_data.n_heads)
        return numerator, denominator, count


@dataclass(frozen=True)
class RemovalEstimate(RatioMetric):
    """First-order increase of the loss if a head's attention to a class is removed.

    Mean over documents of −Σ a[i,j]·∂L/∂a[i,j] over keys j of the class. With `renormalized`, the
    rest of each row grows by the removed share m[i], which adds Σ m[i]·a[i,k]·∂L/∂a[i,k] over all
    keys k. `headscope.check_importance` measures the exact change.

    The gradient of Clark et al. 2019, section 3.2, times the attention.
    """

    name = "removal_estimate"
    title = "Estimated rise of the loss if removed"
    short_title = "Estimated rise"
    equation = r"-\sum_{i, j \in \text{class}} a_{ij} \cdot \frac{\partial L}{\partial a_{ij}}"
    paper = "Clark et al. 2019, section 3.2 (beyond the paper)"
    units = "nats"
    format = ".2e"
    order = 330
    counts = "documents"
    needs = frozenset(("gradients",))
    is_default = False
    has_layer_ratio = False
    dims = ("gradient_class",)

    renormalized: bool = False

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return sums of −a·∂L/∂a by class, and documents twice."""
        pairs, members = _pairs(layer_data)[:, None], _members(layer_data)
        weights = layer_data.weights.double() * pairs
        products = weights * _gradients(layer_data).double()
        numerator = -(products.sum(2) @ members)
        if self.renormalized:
            totals = weights.sum(-1, keepdim=True).clamp_min(1e-30)
            shares = weights @ members[:, None] / totals
            numerator = numerator + (shares * products.sum(-1, keepdim=True)).sum(2)
        ones = numerator.new_ones(numerator.shape[:2])
        return numerator, ones, ones


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
        losses = layer_data.batch.losses
        if losses is None:
            raise InputError("The loss is measured by headscope.importance, not by analyze.")
        sums, counts = torch.from_numpy(losses).double().unbind(-1)
        return sums, counts, counts


def _gradients(layer_data: LayerData) -> Tensor:
    gradients = layer_data.gradients
    if gradients is None:
        raise InputError(
            "Gradients are measured by headscope.importance, which runs a backward pass; this "
            "is attention alone."
        )
    return gradients


@per_batch
def _pairs(layer_data: LayerData) -> Tensor:
    """`document query key`, float64: return 1 for visible pairs."""
    queries, keys = (torch.from_numpy(t.mask) for t in (layer_data.queries, layer_data.keys))
    pairs = (queries[:, :, None] & keys[:, None, :]).double()
    return (pairs.tril() if layer_data.is_causal else pairs).to(layer_data.device)


def _members(layer_data: LayerData) -> Tensor:
    """`document key class`, float64: return memberships, with a last class of all keys."""
    mask = torch.from_numpy(layer_data.keys.mask)
    everything = mask.double().to(layer_data.device)[..., None]
    classes = key_classes(layer_data)
    return everything if classes is None else torch.cat((classes, everything), dim=-1)
