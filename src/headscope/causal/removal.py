"""The check that makes gradient importance worth believing: remove the attention, and look.

Clark et al. take a small gradient to mean that attention there does not matter. Here the
attention of one head to one class of keys is really taken away, by an edit, and the loss
measured again on the same documents: in part, where the gradient has to be right, and
wholly, where it may not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Batch
from headscope.causal.foretold import Paired, agreement
from headscope.causal.replay import layer_modules, recorded, replayed
from headscope.errors import InputError, UnknownName
from headscope.measuring.reading import Reading
from headscope.metrics.gradients import Importance, RemovalEstimate
from headscope.metrics.surface import ClassShare
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.objective import asked, losses_of
from headscope.model.scale_keys import ScaleKeys
from headscope.run.backward import can_ask, question
from headscope.run.batches import Encoder, key_classes_of, token_limit
from headscope.run.options import Settings
from headscope.run.plan import axes_for, survey
from headscope.run.progress import Meter
from headscope.statistics.bootstrap import BOUNDS
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus

LEVELS = (0.05, 0.5, 1.0)
NAMES = {
    "rise": ("rise of a document's loss", "nats"),
    "removal_estimate": ("its rise by a whole removal, to first order", "nats"),
    "importance": ("mean |∂L/∂a|", "nats per unit of attention"),
    "r": ("Pearson's r over heads of estimate and rise", ""),
    "rho": ("Spearman's ρ over heads of estimate and rise", ""),
    "r_importance": ("Pearson's r over heads of mean |∂L/∂a| and |rise|", ""),
    "rho_importance": ("Spearman's ρ over heads of mean |∂L/∂a| and |rise|", ""),
    "error": ("Σ |rise − level·estimate| / Σ |rise|", ""),
}


def check_importance(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    classes: Sequence[str] | None = None,
    heads: Sequence[tuple[int, int]] | int | None = None,
    levels: Sequence[float] = LEVELS,
    renormalized: bool = False,
    seed: int = 0,
    max_tokens: int = 64,
    batch_tokens: int = 1024,
    progress: bool | None = None,
) -> xr.Dataset:
    """What gradients say about attention, beside what happens when it is removed.

    For every head, class of keys and level, the attention to the class is scaled by
    1 − level and the loss measured again; differences are taken document by document. A
    gradient is a statement about small changes: at a level near 0 the rise of the loss,
    divided by the level, is the estimate, if the gradients are right. Whether removal
    (level 1) follows the estimate is a question about the model.

    Costs one pass from the head's layer on for every head, class and level: give a few dozen
    documents, and a sample of heads.

    Args:
        model: a language model, or what `headscope.load` takes.
        corpus: documents; `corpus.draw(32)` of a large one.
        classes: of keys; by default the first token, special tokens and ". or ,".
        heads: pairs of layer and head; or how many to draw of each layer; all by default.
        levels: shares of the attention to remove, above 0, at most 1.
        renormalized: let the rest of each row grow to its old sum, as it would if the class
            had been masked before the softmax. By default nothing else changes.
        seed: decides which tokens an encoder has to guess, the draws of heads and bootstrap.
        max_tokens: longer documents are cut.
        batch_tokens: tokens of a batch.
        progress: show progress; by default on a terminal.

    Returns:
        By `layer`, `head` and `key_class`, NaN for heads not asked for: `rise` (over `level`
        too: mean rise of a document's loss), `removal_estimate` (−Σ a·∂L/∂a: the rise of a
        whole removal to first order), `importance` (mean |∂L/∂a|), `class_share`.
        By `key_class` and `level`, over heads: `r` and `rho`, Pearson and Spearman of the
        estimate and the rise, both signed; `r_importance` and `rho_importance`, of mean
        |∂L/∂a| and |rise|; `error`, Σ |rise − level·estimate| / Σ |rise|: 0 if the estimate
        is right, 1 if 0 would do as well. All with `_interval`: the middle 95 % of a
        bootstrap over documents (whole ones, where they are pieces). And the `loss`.
    """
    model = as_model(model)
    model.need_objective("Gradient importance")
    corpus = as_corpus(corpus)
    if not levels or not all(0 < level <= 1 for level in levels):
        raise InputError(f"levels={levels!r} should be shares above 0 and at most 1.")
    settings = Settings(max_tokens=token_limit(model, max_tokens), batch_tokens=batch_tokens)
    known = key_classes_of(model)
    axes = axes_for(survey(corpus, settings), settings, known)
    chosen = [n for n in known if n not in ("punctuation", "rest")] if classes is None else classes
    for name in chosen:
        if name not in known:
            raise UnknownName.of("class of keys", name, known)
    study = _Study(
        model,
        Encoder(model, axes, settings),
        tuple(chosen),
        tuple(known.index(name) for name in chosen),
        _wanted(model, heads, seed),
        tuple(levels),
        renormalized,
        seed,
    )
    return study.run(corpus, progress)


def _wanted(
    model: Model, heads: Sequence[tuple[int, int]] | int | None, seed: int
) -> tuple[tuple[int, int], ...]:
    """The heads to look at, layer by layer."""
    if heads is None or isinstance(heads, int):
        if heads is not None and heads < 1:
            raise InputError(f"heads={heads} of each layer; expected at least 1.")
        generator = np.random.default_rng(seed)
        return tuple(
            (site.layer, int(head))
            for site in model.wiring.of_block(model.wiring.main_block())
            for head in sorted(generator.permutation(site.n_heads)[:heads])
        )
    for layer, head in heads:
        model.wiring.find(None, layer, head)
    if not heads:
        raise InputError("heads=[] asks for no head. Leave it out for all of them.")
    return tuple(sorted({(int(layer), int(head)) for layer, head in heads}))


@dataclass(frozen=True, eq=False)
class _Study:
    """One call of `check_importance`."""

    model: Model
    encoder: Encoder
    classes: tuple[str, ...]
    columns: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]
    levels: tuple[float, ...]
    renormalized: bool
    seed: int

    def run(self, corpus: Corpus, progress: bool | None) -> xr.Dataset:
        """Every batch twice: once for its gradients, once for each removal."""
        numbered = list(enumerate(corpus))
        documents = [d for d in self.encoder.encode(numbered) if can_ask(self.model, d)]
        if not documents:
            raise InputError("There is nothing to predict in these documents.")
        meter = Meter(len(documents) * len(self.heads), shown=progress)
        found: dict[str, list[np.ndarray]] = {}
        try:
            for some in self.encoder.batches(documents):
                inputs, batch = self.encoder.batch(some)
                posed, labels = question(self.model, inputs, batch, self.seed)
                arrays = self._gradients(posed, labels, batch)
                arrays["rises"] = self._rises(posed, labels, batch, meter)
                arrays["sources"] = np.array([d.part_of or d.id for d in batch.documents])
                for name, array in arrays.items():
                    found.setdefault(name, []).append(array)
        finally:
            meter.close()
        arrays = {name: np.concatenate(parts) for name, parts in found.items()}
        return self._dataset(corpus.name, arrays)

    def _gradients(
        self, posed: dict[str, Tensor], labels: Tensor, batch: Batch
    ) -> dict[str, np.ndarray]:
        """`document head class`: what the gradients and the attention are; and the losses."""
        metrics = (
            (RemovalEstimate(renormalized=self.renormalized), "estimates", "documents"),
            (Importance(seed=self.seed), "gradients", "pairs"),
            (ClassShare(), "attention", "queries"),
        )
        shape = (len(batch), len(self.heads), len(self.columns))
        found = {name: np.zeros(shape) for _, *names in metrics for name in names}

        def read_layer(attention: Attention) -> None:
            if attention.block != self.model.info.blocks[0]:
                return
            reading = Reading(attention, known)
            rows = [row for row, (layer, _) in enumerate(self.heads) if layer == attention.layer]
            heads = [self.heads[row][1] for row in rows]
            for metric, *names in metrics:
                for name, sums in zip(names, metric.rows(reading)[:2], strict=True):
                    by_class = sums[..., None].expand(-1, -1, 1) if sums.ndim == 2 else sums
                    columns = self.columns if sums.ndim == 3 else [0]
                    found[name][:, rows] = by_class[:, heads][..., columns].cpu().numpy()

        with asked(self.model, posed, labels) as (losses, backward):
            known = replace(batch, losses=losses)
            backward(read_layer)
        return {**found, "losses": losses}

    def _rises(
        self, posed: dict[str, Tensor], labels: Tensor, batch: Batch, meter: Meter
    ) -> np.ndarray:
        """`document head class level`: by how much each document's loss rises."""
        classes = batch.key_sequences(self.model.info.blocks[0]).classes
        assert classes is not None
        layers = layer_modules(self.model)
        with recorded(layers) as kept:
            before = _losses(self.model, posed, labels)
        rises = np.zeros((len(batch), len(self.heads), len(self.columns), len(self.levels)))
        for row, (layer, head) in enumerate(self.heads):
            for at, (column, level) in enumerate(product(self.columns, self.levels)):
                members = classes[..., column]
                if not members.any():
                    continue
                edit = ScaleKeys(
                    layer=layer,
                    head=head,
                    members=torch.from_numpy(members),
                    factor=1 - level,
                    renormalized=self.renormalized,
                )
                with self.model.edit(edit), replayed(layers, kept, layer):
                    after = _losses(self.model, posed, labels)
                rises[:, row].reshape(len(batch), -1)[:, at] = after - before
            meter.advance(len(batch))
        return rises

    def _dataset(self, corpus: str, found: dict[str, np.ndarray]) -> xr.Dataset:
        """The heads asked for, in their places among all."""
        by_head = ("at", "key_class", "level")
        over_heads = by_head[1:]
        paired = Paired(
            found["estimates"],
            found["gradients"],
            found["pairs"],
            found["rises"],
            np.array(self.levels),
            found["sources"],
        )
        variables: dict[str, Any] = {}
        for name, (value, bounds) in agreement(paired, self.seed).items():
            dims = {"rise": by_head, "removal_estimate": by_head[:2], "importance": by_head[:2]}
            own = dims.get(name, over_heads)
            attrs = {"long_name": NAMES[name][0], "units": NAMES[name][1]}
            variables[name] = (own, value, attrs)
            variables[f"{name}_interval"] = (("bound", *own), bounds, attrs)
        share = found["attention"].sum(0) / found["queries"].sum(0)
        variables["class_share"] = (by_head[:2], share, {"units": "share of attention"})
        losses = found["losses"].sum(0)
        variables["loss"] = ((), losses[0] / losses[1], {"units": "nats per token"})
        data = xr.Dataset(
            variables,
            coords={
                "layer": ("at", [layer for layer, _ in self.heads]),
                "head": ("at", [head for _, head in self.heads]),
                "key_class": list(self.classes),
                "level": list(self.levels),
                "bound": list(BOUNDS),
            },
            attrs={
                "model": self.model.name,
                "corpus": corpus,
                "documents": len(found["losses"]),
                "texts": len(np.unique(found["sources"])),
                "tokens": int(losses[1]),
                "heads": len(self.heads),
                "seed": self.seed,
                "renormalized": int(self.renormalized),
                "max_tokens": self.encoder.settings.max_tokens,
            },
        )
        return data.set_index(at=["layer", "head"]).unstack("at").transpose("layer", "head", ...)


def _losses(model: Model, inputs: dict[str, Tensor], labels: Tensor) -> np.ndarray:
    """`document`: mean loss of each one's predicted tokens."""
    with torch.inference_mode(), model.tapped(returns_weights=False):
        outputs = model.module(**model.placed(inputs))
        losses = losses_of(outputs.logits, labels).double().cpu().numpy()
    return np.asarray(losses[:, 0] / losses[:, 1])
