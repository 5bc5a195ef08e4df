"""The check that makes gradient importance worth believing: remove the attention, and look.

Clark et al. take a small gradient to mean that attention there does not matter. Here the
attention of one head to one class of keys is really set to 0, by an edit, and the loss
measured again: once for every head and class, so on few documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from torch import Tensor

from headscope.batch import Batch
from headscope.errors import InputError, UnknownName
from headscope.metrics.importance import Importance, Loss, RemovalEstimate
from headscope.model.edit import Edit, Positions
from headscope.model.gradients import losses_of
from headscope.model.model import Model
from headscope.run.analyze import analyze, make_plan
from headscope.run.encode import Encoder
from headscope.run.gradients import can_ask, question
from headscope.run.plan import Settings, survey
from headscope.text.corpus import Corpus
from headscope.text.read import read

__all__ = ["ScaleKeys", "check_importance"]

Asked = tuple[dict[str, Tensor], Tensor, Batch, np.ndarray]
"""Inputs, labels, batch and each document's loss without edits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleKeys(Edit):
    """Scale a head's attention to some keys of each document; nothing is renormalized."""

    members: Tensor = field(repr=False)
    """`document key`: 1 for the keys that are meant."""
    factor: float = 0.0

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        """The weights with those columns scaled."""
        weights = weights.clone()
        kept = 1 - (1 - self.factor) * self.members.to(weights)
        weights[:, self.head] *= kept[:, None, : weights.shape[-1]]
        return weights


def check_importance(
    model: Model,
    corpus: Corpus | str | Path | Iterable[Any],
    *,
    classes: Sequence[str] | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
    seed: int = 0,
    max_tokens: int = 64,
    batch_tokens: int = 1024,
) -> xr.Dataset:
    """Gradient importance beside what happens when the attention is removed.

    Costs one forward pass of the corpus for every head and class: give a few documents.

    Args:
        model: a language model.
        corpus: documents; `corpus.draw(8)` of a large one.
        classes: of keys; by default the first token, special tokens and ". or ,".
        heads: pairs of layer and head; all of the main attention by default.
        seed: decides which tokens an encoder has to guess.
        max_tokens: longer documents are cut.
        batch_tokens: tokens of a batch.

    Returns:
        Over `layer`, `head` and `key_class`: `removal` (mean rise of a document's loss),
        `removal_estimate` (to first order) and `importance` (mean |∂L/∂a|), NaN for heads
        not asked for. Over `key_class`: `r_estimate`, Pearson's r over heads of estimate and
        removal, and `rho_importance`, Spearman's ρ of importance and |removal|.
    """
    model.need_head("Gradient importance")
    corpus = corpus if isinstance(corpus, Corpus) else read(corpus, unit="sentence")
    metrics = [Importance(seed=seed), RemovalEstimate(), Loss()]
    options: dict[str, Any] = {"max_tokens": max_tokens, "batch_tokens": batch_tokens}
    result = analyze(model, corpus, metrics, **options)
    settings = Settings(**options)
    plan = make_plan(model, survey(corpus, settings), metrics, settings)
    known = plan.axes.key_classes
    chosen = [n for n in known if n not in ("punctuation", "rest")] if classes is None else classes
    for name in chosen:
        if name not in known:
            raise UnknownName.of("class of keys", name, known)
    block = model.info.blocks[0]
    everything = [
        (site.layer, head) for site in model.wiring.of_block(block) for head in range(site.n_heads)
    ]
    wanted = everything if heads is None else list(heads)
    for at in wanted:
        if tuple(at) not in everything:
            raise InputError(f"There is no L{at[0]} H{at[1]} in {model.name}.")
    asked = _ask(model, Encoder(model, plan), corpus, seed)
    shape = result["importance"].shape[:2]
    removal = np.full((*shape, len(chosen)), np.nan)
    rows = {int(layer): row for row, layer in enumerate(result["importance"]["layer"].values)}
    for layer, head in wanted:
        for column, name in enumerate(chosen):
            number = known.index(name)
            rises = [_rises(model, one, layer, head, number) for one in asked]
            removal[rows[layer], head, column] = float(np.concatenate(rises).mean())
    return _compared(result.dataset, removal, list(chosen))


def _ask(model: Model, encoder: Encoder, corpus: Corpus, seed: int) -> list[Asked]:
    documents = [d for d in encoder.encode(list(enumerate(corpus))) if can_ask(model, d)]
    found: list[Asked] = []
    for some in encoder.batches(documents):
        inputs, batch = encoder.batch(some)
        posed, labels = question(model, inputs, batch, seed)
        found.append((posed, labels, batch, _losses(model, posed, labels)))
    return found


def _losses(model: Model, inputs: dict[str, Tensor], labels: Tensor) -> np.ndarray:
    device = model.module.device
    with torch.inference_mode(), model.tapped():
        outputs = model.module(**{name: tensor.to(device) for name, tensor in inputs.items()})
        losses = losses_of(outputs.logits, labels).double().cpu().numpy()
    return np.asarray(losses[:, 0] / losses[:, 1])


def _rises(model: Model, asked: Asked, layer: int, head: int, number: int) -> np.ndarray:
    """By how much each document's loss rises without a head's attention to a class."""
    inputs, labels, batch, before = asked
    found = batch.key_sequences(model.info.blocks[0])
    assert found.classes is not None
    members = found.classes[..., number]
    if not members.any():
        return np.zeros(len(batch))
    edit = ScaleKeys(layer=layer, head=head, members=torch.from_numpy(members))
    with model.edit(edit):
        return _losses(model, inputs, labels) - before


def _compared(data: xr.Dataset, removal: np.ndarray, classes: list[str]) -> xr.Dataset:
    dims = ("layer", "head", "key_class")
    by_class = {"gradient_class": classes}
    found = {
        name: (dims, data[name].sel(by_class).values, data[name].attrs)
        for name in ("importance", "removal_estimate")
    }
    attrs = {"units": "nats", "long_name": "rise of the loss when the attention is removed"}
    r, rho = [], []
    for column in range(len(classes)):
        real = removal[..., column].ravel()
        at = np.isfinite(real)
        estimate = found["removal_estimate"][1][..., column].ravel()
        gradient = found["importance"][1][..., column].ravel()
        enough = at.sum() > 2 and np.ptp(real[at]) > 0
        r.append(stats.pearsonr(estimate[at], real[at]).statistic if enough else np.nan)
        rho.append(stats.spearmanr(gradient[at], np.abs(real[at])).statistic if enough else np.nan)
    return xr.Dataset(
        {
            "removal": (dims, removal, attrs),
            **found,
            "r_estimate": ("key_class", np.array(r)),
            "rho_importance": ("key_class", np.array(rho)),
            "loss": ((), float(data["loss"])),
        },
        coords={"layer": data["layer"].values, "head": data["head"].values, "key_class": classes},
    )
