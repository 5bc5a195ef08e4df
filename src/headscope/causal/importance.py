"""`headscope.importance` and `headscope.check_importance`: gradients of the loss by attention.

Clark et al. read a small gradient as attention that does not matter. The check removes the
attention of one head to one class of keys and measures the loss again: after a small part, where
a correct gradient must be right, and after all of it, where it may be wrong. Intervals delete
one whole text at a time, because segments of one text are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
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
from headscope.model import objective
from headscope.model.edits import ScaleKeys
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.batches import EncodedDocument, Encoder, key_classes_of
from headscope.run.options import RunOptions, with_defaults
from headscope.run.progress import Meter
from headscope.run.shard import encode_predictable, question
from headscope.statistics.correlation import correlation, ranks
from headscope.statistics.intervals import BOUNDS, interval
from headscope.statistics.jackknife import jackknife_from_values
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus


def importance(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    target: objective.Target | None = None,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> Result:
    """Measure the gradient of the loss for attention to each class of keys, by head.

    Each document takes one forward and one backward pass, with frozen parameters. The run is
    planned, sharded, resumed and merged as in `headscope.analyze`.

    Args:
        model: language model or classifier, or an argument of `headscope.load`.
        corpus: documents, or an argument of `headscope.read` (files by sentence).
        target: target of the loss instead of the model's objective: a classifier's label (by
            default its top prediction), the token after each text (or at its masks), or a
            function at the top of a module that returns one number for each row of the output.
        seed: seed of the tokens that an encoder has to predict.
        options: see `RunOptions`. By default a document has at most 128 tokens and a
            batch 512: logits take most of the memory, three arrays of tokens × vocabulary.

    Returns:
        `importance` and `removal_estimate` over layer, head and class of keys, and `loss`.

    Raises:
        MissingObjective: the model lacks a prediction head, and so a loss.
    """
    model = as_model(model)
    scalar = objective.name_scalar(target) if callable(target) else None
    answer = None if callable(target) else target
    objective.check_loss_target(model, answer, scalar)
    metrics = [Importance(seed=seed, target=answer, scalar=scalar), RemovalEstimate(), Loss()]
    return analyze(
        model, corpus, metrics, **with_defaults(options, max_tokens=128, batch_tokens=512)
    )


CORRELATIONS = ("r", "rho", "r_importance", "rho_importance")
MAX_R = 1 - 1e-15
"""Largest r with a finite z."""


@dataclass(frozen=True, eq=False)
class RemovalComparison:
    """Gradient estimates and removal effects for the same documents and heads.

    Attributes:
        estimates: `document head class`, −Σ a·∂L/∂a, times the document's tokens.
        gradients: `document head class`, sums of |∂L/∂a|.
        pairs: `document head class`, numbers of query-key pairs in those sums.
        rises: `document head class level`, rises of the summed loss.
        tokens: `document`, numbers of predicted tokens.
        levels: `level`, removed shares of the attention.
        sources: `document`, equal for segments of one text.
    """

    estimates: np.ndarray
    gradients: np.ndarray
    pairs: np.ndarray
    rises: np.ndarray
    tokens: np.ndarray
    levels: np.ndarray
    sources: np.ndarray


def correlate_with_removal(
    comparison: RemovalComparison,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the values and interval (`bound …`) of each statistic.

    For each head and class: `rise` (at each level), `removal_estimate` and `importance`. For each
    class and level, over heads: `r` and `rho` (Pearson and Spearman of the signed estimate and the
    signed rise), `r_importance` and `rho_importance` (of mean |∂L/∂a| and |rise|), and `error`,
    Σ |rise − level·estimate| / Σ |rise|.
    """
    values = _statistics(comparison, np.ones((1, len(comparison.estimates))))
    texts, text_of = np.unique(comparison.sources, return_inverse=True)
    if len(texts) < 2:
        return {name: (v[0], np.full((2, *v.shape[1:]), np.nan)) for name, v in values.items()}
    # One text at a time: the ranks of all at once would take gigabytes.
    rests = [
        _statistics(comparison, (text_of != text).astype(np.float64)[None])
        for text in range(len(texts))
    ]
    sizes = np.bincount(text_of, comparison.tokens)
    intervals = {}
    for name, value in values.items():
        without = np.concatenate([rest[name] for rest in rests])
        if name in CORRELATIONS:  # on Fisher's z, where correlations are about normal
            z, without_z = (np.arctanh(np.clip(x, -MAX_R, MAX_R)) for x in (value[0], without))
            bounds = np.tanh(interval(jackknife_from_values(z, without_z, sizes)).bounds)
        else:
            bounds = interval(jackknife_from_values(value[0], without, sizes)).bounds
        intervals[name] = (value[0], bounds)
    return intervals


def _statistics(comparison: RemovalComparison, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return `row …` with the documents weighted by `weights` (`row document`)."""
    share = weights / (weights @ comparison.tokens)[:, None]
    rises = np.tensordot(share, comparison.rises, 1)
    estimates = np.tensordot(share, comparison.estimates, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sums, pairs = (np.tensordot(share, x, 1) for x in (comparison.gradients, comparison.pairs))
        gradients = sums / pairs
        predicted = estimates[..., None] * comparison.levels
        error = np.abs(rises - predicted).sum(1) / np.abs(rises).sum(1)
    steep = np.broadcast_to(gradients[..., None], rises.shape)
    return {
        "rise": rises,
        "removal_estimate": estimates,
        "importance": gradients,
        "r": correlation(predicted, rises, axis=1),
        "rho": correlation(ranks(predicted, axis=1), ranks(rises, axis=1), axis=1),
        "r_importance": correlation(steep, np.abs(rises), axis=1),
        "rho_importance": correlation(ranks(steep, axis=1), ranks(np.abs(rises), axis=1), axis=1),
        "error": error,
    }


LEVELS = (0.05, 0.5, 1.0)
STATISTICS = {
    "rise": ("rise of the loss", "nats per token"),
    "removal_estimate": ("first-order rise if all is removed", "nats per token"),
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
    target: objective.Target | None = None,
    levels: Sequence[float] = LEVELS,
    renormalized: bool = False,
    seed: int = 0,
    max_tokens: int = 64,
    batch_tokens: int = 1024,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compare gradient estimates with the rise of the loss after removing attention.

    For every head, class of keys and level, the attention to the class is scaled by 1 − level and
    the loss is measured again, document by document. A correct gradient equals the rise divided
    by the level, for a level near 0. At level 1 the comparison tests linearity of the model.

    Every head, class and level costs one pass through the head's layer and those after it: give
    a few dozen documents, and a sample of heads.

    Args:
        model: language model or classifier, or an argument of `headscope.load`.
        corpus: documents; `corpus.sample(32)` of a large one.
        classes: classes of keys; by default all but "punctuation" and "rest".
        heads: pairs of layer and head, or a number of random heads per layer; all by default.
        target: target of the loss, as in `headscope.importance`; here any function.
        levels: shares of the attention to remove, above 0, at most 1.
        renormalized: rescale the remaining weights so that each row keeps its sum, as if the
            class had been masked before the softmax.
        seed: seed of the tokens that an encoder has to predict, and of the drawn heads.
        max_tokens: longer documents are cut.
        batch_tokens: tokens of a batch.
        progress: show progress; by default on a terminal.

    Returns:
        For each `layer`, `head` and `key_class`, NaN for heads not requested: `rise` (of the
        loss per predicted token, at each `level`), `removal_estimate` (−Σ a·∂L/∂a: the
        first-order rise if all is removed), `importance` (mean |∂L/∂a|) and `class_share`.
        For each `key_class` and `level`, over heads: `r` and `rho`, Pearson and Spearman of the
        estimate and the rise, both signed; `r_importance` and `rho_importance`, the same of mean
        |∂L/∂a| and |rise|; `error`, Σ |rise − level·estimate| / Σ |rise|: 0 for a perfect
        estimate, 1 for an estimate of 0. All but `class_share` have an `_interval`: 95 %, a
        jackknife over texts. And the `loss`.
    """
    model = as_model(model)
    scalar = target if callable(target) else None
    answer = None if callable(target) else target
    objective.check_loss_target(model, answer, None if scalar is None else "given")
    corpus = as_corpus(corpus)
    if not levels or not all(0 < level <= 1 for level in levels):
        raise InputError(f"levels={levels!r}; expected shares above 0 and at most 1.")
    names = key_classes_of(model)
    chosen = [n for n in names if n not in ("punctuation", "rest")] if classes is None else classes
    for name in chosen:
        UnknownName.check("class of keys", name, names)
    chosen_heads = _choose_heads(model, heads, seed)
    encoder, documents, independence = encode_predictable(model, corpus, max_tokens, batch_tokens)
    run = _RemovalRun(
        model,
        encoder,
        tuple(chosen),
        tuple(names.index(name) for name in chosen),
        chosen_heads,
        tuple(levels),
        renormalized,
        seed,
        answer,
        scalar,
    )
    checked = run.run(corpus.name, documents, progress)
    return checked.assign_attrs({"independence": independence} if independence else {})


def _choose_heads(
    model: Model, heads: Sequence[tuple[int, int]] | int | None, seed: int
) -> tuple[tuple[int, int], ...]:
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
    model: Model
    encoder: Encoder
    classes: tuple[str, ...]
    columns: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]
    levels: tuple[float, ...]
    renormalized: bool
    seed: int
    target: str | int | None
    scalar: objective.Scalar | None

    def run(
        self, corpus: str, documents: list[EncodedDocument], progress: bool | None
    ) -> xr.Dataset:
        """Run every batch: once for its gradients, then once for each removal."""
        arrays_by_name: dict[str, list[np.ndarray]] = {}
        with closing(Meter(len(documents) * len(self.heads), shown=progress)) as meter:
            for members in self.encoder.batches(documents):
                inputs, batch = self.encoder.batch(members)
                questions, labels = question(self.model, inputs, batch, self.seed, self.target)
                arrays = self._gradients(questions, labels, batch)
                arrays["rises"] = self._rises(questions, labels, batch, meter)
                arrays["sources"] = np.array([d.part_of or d.id for d in batch.documents])
                for name, array in arrays.items():
                    arrays_by_name.setdefault(name, []).append(array)
        sums = {name: np.concatenate(arrays) for name, arrays in arrays_by_name.items()}
        return self._dataset(corpus, sums)

    def _gradients(
        self, questions: dict[str, Tensor], labels: Tensor, batch: Batch
    ) -> dict[str, np.ndarray]:
        """Return sums of gradients and attention (`document head class`), and the losses."""
        metrics = (
            (RemovalEstimate(renormalized=self.renormalized), "estimates", "predicted"),
            (Importance(seed=self.seed), "gradients", "pairs"),
            (ClassShare(), "attention", "queries"),
        )
        shape = (len(batch), len(self.heads), len(self.columns))
        sums = {name: np.zeros(shape) for _, *names in metrics for name in names}

        def read_layer(attention: Attention) -> None:
            if attention.block != self.model.info.blocks[0]:
                return
            layer_data = LayerData(attention, with_losses)
            rows = [row for row, (layer, _) in enumerate(self.heads) if layer == attention.layer]
            heads = [self.heads[row][1] for row in rows]
            for metric, *names in metrics:
                for name, part in zip(names, metric.rows(layer_data)[:2], strict=True):
                    by_class = part[..., None].expand(-1, -1, 1) if part.ndim == 2 else part
                    columns = self.columns if part.ndim == 3 else [0]
                    sums[name][:, rows] = by_class[:, heads][..., columns].cpu().numpy()

        with objective.with_loss(self.model, questions, labels, self.scalar) as (losses, backward):
            with_losses = replace(batch, losses=losses)
            backward(read_layer)
        return {**sums, "losses": losses}

    def _rises(
        self, questions: dict[str, Tensor], labels: Tensor, batch: Batch, meter: Meter
    ) -> np.ndarray:
        """Return `document head class level`: the rise of each document's summed loss."""
        classes = batch.key_sequences(self.model.info.blocks[0]).classes
        assert classes is not None
        layers = layer_modules(self.model)
        with recorded(layers) as kept:
            before = self._losses(questions, labels)
        rises = np.zeros((len(batch), len(self.heads), len(self.columns), len(self.levels)))
        for row, (layer, head) in enumerate(self.heads):
            for cell, (column, level) in enumerate(product(self.columns, self.levels)):
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
                    after = self._losses(questions, labels)
                rises[:, row].reshape(len(batch), -1)[:, cell] = after - before
            meter.advance(len(batch))
        return rises

    def _losses(self, inputs: dict[str, Tensor], labels: Tensor) -> np.ndarray:
        """Return `document`: the sum of the loss over its predicted tokens."""
        with torch.inference_mode(), self.model.tapped(returns_weights=False):
            outputs = self.model.module(**self.model.to_device(inputs))
            losses = objective.measure_losses(outputs, labels, self.scalar).double().cpu().numpy()
        return np.asarray(losses[:, 0])

    def _dataset(self, corpus: str, sums: dict[str, np.ndarray]) -> xr.Dataset:
        by_head = ("place", "key_class", "level")
        over_heads = by_head[1:]
        names = ("estimates", "gradients", "pairs", "rises", "sources")
        comparison = RemovalComparison(
            tokens=sums["losses"][:, 1],
            levels=np.array(self.levels),
            **{name: sums[name] for name in names},
        )
        variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}
        for name, (value, bounds) in correlate_with_removal(comparison).items():
            dims = {"rise": by_head, "removal_estimate": by_head[:2], "importance": by_head[:2]}
            axes = dims.get(name, over_heads)
            attrs = {"long_name": STATISTICS[name][0], "units": STATISTICS[name][1]}
            variables[name] = (axes, value, attrs)
            variables[f"{name}_interval"] = (("bound", *axes), bounds, attrs)
        share = sums["attention"].sum(0) / sums["queries"].sum(0)
        variables["class_share"] = (by_head[:2], share, {"units": "share of attention"})
        losses = sums["losses"].sum(0)
        variables["loss"] = ((), losses[0] / losses[1], {"units": "nats per token"})
        data = xr.Dataset(
            variables,
            coords={
                "layer": ("place", [layer for layer, _ in self.heads]),
                "head": ("place", [head for _, head in self.heads]),
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
        indexed = data.set_index(place=["layer", "head"])
        return indexed.unstack("place").transpose("layer", "head", ...)
