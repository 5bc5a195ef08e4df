"""`headscope.importance`: how much a model's own loss depends on its attention.

A check of gradient importance: remove the attention, and measure the loss again.

Clark et al. take a small gradient to mean that attention there does not matter. Here an edit
takes away the attention of one head to one class of keys, and the loss is measured again on the
same documents: after removing a small part, where a correct gradient must be right, and after
removing all of it, where it may be wrong.

How well gradients predict what removal does: correlations over heads, with intervals.

Pure statistics on arrays, document by document. Intervals leave out one whole text at a time
(the delete-one jackknife), because pieces of one text are not independent draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Batch
from headscope.causal.batched_forward import layer_modules, recorded, replayed
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.metrics.surface import ClassShare
from headscope.model.edits import ScaleKeys
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.objective import (
    Scalar,
    Target,
    check_loss_target,
    measure_losses,
    name_scalar,
    with_loss,
)
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.batches import Encoder, key_classes_of, token_limit
from headscope.run.options import RunOptions, Settings, with_defaults
from headscope.run.plan import axes_for, survey
from headscope.run.progress import Meter
from headscope.run.shard import can_ask, question
from headscope.statistics.correlation import correlation, ranks
from headscope.statistics.intervals import BOUNDS, interval
from headscope.statistics.jackknife import jackknife_from_values
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus


def importance(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    target: Target | None = None,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> Result:
    """How much a model's loss depends on attention to each class of keys, head by head.

    Each document takes one forward and one backward pass, with the parameters frozen; a layer's
    gradients are summed as soon as they are known. The run is planned, sharded, resumed and
    merged as `headscope.analyze` does it.

    Args:
        model: a language model or classifier, or what `headscope.load` takes.
        corpus: the documents, or what `headscope.read` takes (files by sentence).
        target: what the loss is about instead of the model's own objective: a label of a
            classifier (the one it finds likeliest by default), the token after each text (or at
            its masks), or a function of the model's output, at the top of a module, which
            returns one number for each row.
        seed: decides which tokens an encoder has to guess.
        options: see `RunOptions`. By default a document has at most 128 tokens and a
            batch 512: logits take most of the memory, three arrays of tokens × vocabulary.

    Returns:
        `importance` and `removal_estimate` over layer, head and class of keys, and `loss`.

    Raises:
        MissingObjective: the model predicts nothing, so it has no loss.
    """
    model = as_model(model)
    scalar = name_scalar(target) if callable(target) else None
    answer = None if callable(target) else target
    check_loss_target(model, answer, scalar)
    metrics = [Importance(seed=seed, target=answer, scalar=scalar), RemovalEstimate(), Loss()]
    return analyze(
        model, corpus, metrics, **with_defaults(options, max_tokens=128, batch_tokens=512)
    )


CORRELATIONS = ("r", "rho", "r_importance", "rho_importance")
LIMIT = 1 - 1e-15
"""The largest r that has a z."""


@dataclass(frozen=True, eq=False)
class RemovalComparison:
    """What gradients predict and what removal does, for the same documents and heads.

    Attributes:
        estimates: `document head class`, −Σ a·∂L/∂a.
        gradients: `document head class`, sums of |∂L/∂a|.
        pairs: `document head class`, how many pairs of query and key those sums are over.
        rises: `document head class level`, by how much the loss rises.
        levels: `level`, the share of the attention that was removed.
        sources: `document`, equal for pieces of the same text.
    """

    estimates: np.ndarray
    gradients: np.ndarray
    pairs: np.ndarray
    rises: np.ndarray
    levels: np.ndarray
    sources: np.ndarray


def correlate_with_removal(paired: RemovalComparison) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each name, its values and their interval (`bound …`).

    For each head and class: `rise` (at each level), `removal_estimate` and `importance`. For each
    class and level, over heads: `r` and `rho` (Pearson and Spearman of the signed estimate and the
    signed rise), `r_importance` and `rho_importance` (of mean |∂L/∂a| and |rise|), and `error`,
    Σ |rise − level·estimate| / Σ |rise|.
    """
    values = _numbers(paired, np.ones((1, len(paired.estimates))))
    texts, text_of = np.unique(paired.sources, return_inverse=True)
    if len(texts) < 2:
        return {name: (v[0], np.full((2, *v.shape[1:]), np.nan)) for name, v in values.items()}
    # One text at a time: the ranks of all at once would take gigabytes.
    rests = [
        _numbers(paired, (text_of != text).astype(np.float64)[None]) for text in range(len(texts))
    ]
    sizes = np.bincount(text_of)
    intervals = {}
    for name, value in values.items():
        without = np.concatenate([rest[name] for rest in rests])
        intervals[name] = (value[0], _bounds(value[0], without, sizes, is_r=name in CORRELATIONS))
    return intervals


def _bounds(value: np.ndarray, without: np.ndarray, sizes: np.ndarray, *, is_r: bool) -> np.ndarray:
    """`bound …`; correlations on Fisher's z, where they are about normal."""
    if not is_r:
        return interval(jackknife_from_values(value, without, sizes)).bounds
    of_z, without_z = (np.arctanh(np.clip(x, -LIMIT, LIMIT)) for x in (value, without))
    bounds: np.ndarray = np.tanh(interval(jackknife_from_values(of_z, without_z, sizes)).bounds)
    return bounds


def _numbers(paired: RemovalComparison, weights: np.ndarray) -> dict[str, np.ndarray]:
    """`row …`: in each row, `weights` (`row document`) say how much each document counts."""
    share = weights / weights.sum(1, keepdims=True)
    rises = np.tensordot(share, paired.rises, 1)
    estimates = np.tensordot(share, paired.estimates, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gradients = np.tensordot(share, paired.gradients, 1) / np.tensordot(share, paired.pairs, 1)
        foretold = estimates[..., None] * paired.levels
        error = np.abs(rises - foretold).sum(1) / np.abs(rises).sum(1)
    steep = np.broadcast_to(gradients[..., None], rises.shape)
    return {
        "rise": rises,
        "removal_estimate": estimates,
        "importance": gradients,
        "r": correlation(foretold, rises, axis=1),
        "rho": correlation(ranks(foretold, axis=1), ranks(rises, axis=1), axis=1),
        "r_importance": correlation(steep, np.abs(rises), axis=1),
        "rho_importance": correlation(ranks(steep, axis=1), ranks(np.abs(rises), axis=1), axis=1),
        "error": error,
    }


LEVELS = (0.05, 0.5, 1.0)
NAMES = {
    "rise": ("rise of a document's loss", "nats"),
    "removal_estimate": ("its rise if all is removed, to first order", "nats"),
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
    target: Target | None = None,
    levels: Sequence[float] = LEVELS,
    renormalized: bool = False,
    seed: int = 0,
    max_tokens: int = 64,
    batch_tokens: int = 1024,
    progress: bool | None = None,
) -> xr.Dataset:
    """What gradients predict about attention, beside what happens when it is removed.

    For every head, class of keys and level, the attention to the class is scaled by
    1 − level and the loss measured again; differences are taken document by document. A
    gradient describes small changes: if it is right, then at a level near 0 the rise of the
    loss, divided by the level, equals the estimate. Whether full removal (level 1) follows the
    estimate is a question about the model.

    Every head, class and level costs one pass through the head's layer and those after it: give
    a few dozen documents, and a sample of heads.

    Args:
        model: a language model or classifier, or what `headscope.load` takes.
        corpus: documents; `corpus.sample(32)` of a large one.
        classes: classes of keys; by default all but "punctuation" and "rest".
        heads: pairs of layer and head, or how many heads to draw from each layer; all by default.
        target: what the loss is about, as in `headscope.importance`; any function will do here.
        levels: shares of the attention to remove, above 0, at most 1.
        renormalized: scale up the rest of each row so that the row keeps its sum, as if the class
            had been masked before the softmax. By default nothing else changes.
        seed: decides which tokens an encoder has to guess, and which heads are drawn.
        max_tokens: longer documents are cut.
        batch_tokens: tokens of a batch.
        progress: show progress; by default on a terminal.

    Returns:
        For each `layer`, `head` and `key_class`, NaN for heads not asked for: `rise` (the mean
        rise of a document's loss, at each `level`), `removal_estimate` (−Σ a·∂L/∂a: the rise if
        all is removed, to first order), `importance` (mean |∂L/∂a|) and `class_share`.
        For each `key_class` and `level`, over heads: `r` and `rho`, Pearson and Spearman of the
        estimate and the rise, both signed; `r_importance` and `rho_importance`, the same of mean
        |∂L/∂a| and |rise|; `error`, Σ |rise − level·estimate| / Σ |rise|: 0 if the estimate
        is right, 1 if it is no better than always saying 0. All but `class_share` have an
        `_interval`: 95 %, a jackknife over texts. And the `loss`.
    """
    model = as_model(model)
    scalar = target if callable(target) else None
    answer = None if callable(target) else target
    check_loss_target(model, answer, None if scalar is None else "given")
    corpus = as_corpus(corpus)
    if not levels or not all(0 < level <= 1 for level in levels):
        raise InputError(f"levels={levels!r}; expected shares above 0 and at most 1.")
    settings = Settings(max_tokens=token_limit(model, max_tokens), batch_tokens=batch_tokens)
    known = key_classes_of(model)
    axes = axes_for(survey(corpus, settings), settings, known)
    chosen = [n for n in known if n not in ("punctuation", "rest")] if classes is None else classes
    for name in chosen:
        if name not in known:
            raise UnknownName.of("class of keys", name, known)
    study = _RemovalRun(
        model,
        Encoder(model, axes, settings),
        tuple(chosen),
        tuple(known.index(name) for name in chosen),
        _wanted(model, heads, seed),
        tuple(levels),
        renormalized,
        seed,
        answer,
        scalar,
    )
    return study.run(corpus, progress)


def _wanted(
    model: Model, heads: Sequence[tuple[int, int]] | int | None, seed: int
) -> tuple[tuple[int, int], ...]:
    """The heads to check, layer by layer."""
    if heads is None or isinstance(heads, int):
        if heads is not None and heads < 1:
            raise InputError(f"heads={heads}; expected at least 1 head of each layer.")
        generator = np.random.default_rng(seed)
        return tuple(
            (site.layer, int(head))
            for site in model.wiring.of_block(model.wiring.main_block())
            for head in sorted(generator.permutation(site.n_heads)[:heads])
        )
    for layer, head in heads:
        model.wiring.find(None, layer, head)
    if not heads:
        raise InputError("heads=[] asks for no head. Leave `heads` out to check all of them.")
    return tuple(sorted({(int(layer), int(head)) for layer, head in heads}))


@dataclass(frozen=True, eq=False)
class _RemovalRun:
    """One call of `check_importance`."""

    model: Model
    encoder: Encoder
    classes: tuple[str, ...]
    columns: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]
    levels: tuple[float, ...]
    renormalized: bool
    seed: int
    target: str | int | None
    scalar: Scalar | None

    def run(self, corpus: Corpus, progress: bool | None) -> xr.Dataset:
        """Run every batch: once for its gradients, then once for each removal."""
        numbered = list(enumerate(corpus))
        documents = [d for d in self.encoder.encode(numbered) if can_ask(self.model, d)]
        if not documents:
            raise InputError("There is nothing to predict in these documents: give longer ones.")
        meter = Meter(len(documents) * len(self.heads), shown=progress)
        parts: dict[str, list[np.ndarray]] = {}
        try:
            for members in self.encoder.batches(documents):
                inputs, batch = self.encoder.batch(members)
                posed, labels = question(self.model, inputs, batch, self.seed, self.target)
                arrays = self._gradients(posed, labels, batch)
                arrays["rises"] = self._rises(posed, labels, batch, meter)
                arrays["sources"] = np.array([d.part_of or d.id for d in batch.documents])
                for name, array in arrays.items():
                    parts.setdefault(name, []).append(array)
        finally:
            meter.close()
        return self._dataset(
            corpus.name, {name: np.concatenate(arrays) for name, arrays in parts.items()}
        )

    def _gradients(
        self, posed: dict[str, Tensor], labels: Tensor, batch: Batch
    ) -> dict[str, np.ndarray]:
        """`document head class`: sums over gradients and over attention; and the losses."""
        metrics = (
            (RemovalEstimate(renormalized=self.renormalized), "estimates", "documents"),
            (Importance(seed=self.seed), "gradients", "pairs"),
            (ClassShare(), "attention", "queries"),
        )
        shape = (len(batch), len(self.heads), len(self.columns))
        sums = {name: np.zeros(shape) for _, *names in metrics for name in names}

        def read_layer(attention: Attention) -> None:
            if attention.block != self.model.info.blocks[0]:
                return
            reading = LayerData(attention, known)
            rows = [row for row, (layer, _) in enumerate(self.heads) if layer == attention.layer]
            heads = [self.heads[row][1] for row in rows]
            for metric, *names in metrics:
                for name, part in zip(names, metric.rows(reading)[:2], strict=True):
                    by_class = part[..., None].expand(-1, -1, 1) if part.ndim == 2 else part
                    columns = self.columns if part.ndim == 3 else [0]
                    sums[name][:, rows] = by_class[:, heads][..., columns].cpu().numpy()

        with with_loss(self.model, posed, labels, self.scalar) as (losses, backward):
            known = replace(batch, losses=losses)
            backward(read_layer)
        return {**sums, "losses": losses}

    def _rises(
        self, posed: dict[str, Tensor], labels: Tensor, batch: Batch, meter: Meter
    ) -> np.ndarray:
        """`document head class level`: by how much each document's loss rises."""
        classes = batch.key_sequences(self.model.info.blocks[0]).classes
        assert classes is not None
        layers = layer_modules(self.model)
        with recorded(layers) as kept:
            before = self._losses(posed, labels)
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
                    after = self._losses(posed, labels)
                rises[:, row].reshape(len(batch), -1)[:, at] = after - before
            meter.advance(len(batch))
        return rises

    def _losses(self, inputs: dict[str, Tensor], labels: Tensor) -> np.ndarray:
        """`document`: the mean loss over its predicted tokens."""
        with torch.inference_mode(), self.model.tapped(returns_weights=False):
            outputs = self.model.module(**self.model.to_device(inputs))
            losses = measure_losses(outputs, labels, self.scalar).double().cpu().numpy()
        return np.asarray(losses[:, 0] / losses[:, 1])

    def _dataset(self, corpus: str, sums: dict[str, np.ndarray]) -> xr.Dataset:
        """The dataset of all heads of the model; NaN for heads not asked for."""
        by_head = ("at", "key_class", "level")
        over_heads = by_head[1:]
        paired = RemovalComparison(
            sums["estimates"],
            sums["gradients"],
            sums["pairs"],
            sums["rises"],
            np.array(self.levels),
            sums["sources"],
        )
        variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}
        for name, (value, bounds) in correlate_with_removal(paired).items():
            dims = {"rise": by_head, "removal_estimate": by_head[:2], "importance": by_head[:2]}
            axes = dims.get(name, over_heads)
            attrs = {"long_name": NAMES[name][0], "units": NAMES[name][1]}
            variables[name] = (axes, value, attrs)
            variables[f"{name}_interval"] = (("bound", *axes), bounds, attrs)
        share = sums["attention"].sum(0) / sums["queries"].sum(0)
        variables["class_share"] = (by_head[:2], share, {"units": "share of attention"})
        losses = sums["losses"].sum(0)
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
                "documents": len(sums["losses"]),
                "texts": len(np.unique(sums["sources"])),
                "tokens": int(losses[1]),
                "heads": len(self.heads),
                "seed": self.seed,
                "renormalized": int(self.renormalized),
                "max_tokens": self.encoder.settings.max_tokens,
            },
        )
        return data.set_index(at=["layer", "head"]).unstack("at").transpose("layer", "head", ...)
