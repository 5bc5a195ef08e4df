"""Effects of heads on the loss of a corpus, and pruning curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr

from headscope.arguments import whole_number
from headscope.causal.ablation import Replacement, head_sets, make_replacement, rank
from headscope.causal.batched_forward import BatchedAblation, ForwardPass, HeadSet
from headscope.causal.readout import LossSum
from headscope.errors import InputError
from headscope.model.identity import describe_model, versions
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.objective import NOTHING
from headscope.run.progress import Meter
from headscope.run.shard import encode_predictable, question
from headscope.statistics.differences import over_texts
from headscope.text.corpus import Corpus
from headscope.text.pairs import describe_templates, find_templates
from headscope.text.readers.read import Readable, as_corpus


class LossEffects(NamedTuple):
    """Rise of the loss per predicted token without each set of heads."""

    mean: np.ndarray
    intervals: np.ndarray
    """`3 set`: low, high, p."""
    attributes: dict[str, str | int | float]


def effects_on_loss(
    model: Model,
    corpus: Corpus,
    sets: Sequence[HeadSet],
    replacement: Replacement,
    *,
    max_tokens: int,
    seed: int,
    progress: bool | None,
) -> LossEffects:
    """Return the rise of the loss per token without each set, as a ratio of sums over the texts.
    Near-copies (`headscope.text.pairs`) are one cluster of the interval.
    """
    model.require_objective("An effect on the loss")
    encoder, documents, independence = encode_predictable(model, corpus, max_tokens)
    by_text: dict[str, np.ndarray] = {}  # sums of the loss, of predicted tokens, of each rise
    texts: dict[str, str] = {}
    with closing(Meter(len(documents) * len(sets), shown=progress)) as meter:
        for encoded in documents:
            inputs, labels = question(model, *encoder.batch([encoded]), seed)
            labels = torch.as_tensor(labels)
            ablation = BatchedAblation(ForwardPass(model, inputs, None), replacement.block)
            base = ablation.base(lambda *_, labels=labels: LossSum(labels))
            loss = float(base.value)
            rises = ablation.values(base, sets, replacement.edit, meter.advance) - loss
            document = encoded.numbered[1]
            name = document.part_of or document.id
            texts[name] = f"{texts.get(name, '')} {document.text}"
            sums = by_text.setdefault(name, np.zeros(2 + len(sets)))
            sums += [loss, int((labels != NOTHING).sum()), *rises]
    losses, tokens, rises = np.split(np.stack(list(by_text.values())), [1, 2], axis=1)
    templates = find_templates(list(texts.values()))
    mean = over_texts(rises, np.broadcast_to(tokens, rises.shape), templates)
    n_templates = int(templates.max()) + 1
    counts = {"documents": len(tokens), "tokens": int(tokens.sum()), "templates": n_templates}
    provenance = {
        "model": describe_model(model),
        "corpus": {"name": corpus.name},
        "counts": counts,
        "settings": {"max_tokens": max_tokens, "seed": seed},
        "versions": versions(),
    }
    attributes: dict[str, str | int | float] = {
        "model": model.name,
        "corpus": corpus.name,
        "block": replacement.block,
        "measure": "loss",
        "number": "loss per predicted token",
        "units": "nats per token",
        "with": float(losses.sum() / tokens.sum()),
        "texts": len(tokens),
        "tokens": counts["tokens"],
        "templates": n_templates,
        "provenance": json.dumps(provenance),
    }
    holds = [describe_templates(templates) if n_templates < len(tokens) else "", independence]
    if any(holds):
        attributes["holds"] = "; ".join(filter(None, holds))
    return LossEffects(mean.value, np.stack([mean.low, mean.high, mean.p]), attributes)


def prune_heads(
    model: Model | str,
    corpus: Corpus | Readable,
    order: xr.DataArray | Sequence[tuple[int, int]],
    *,
    steps: int = 10,
    ablation: str = "zero",
    reference: Corpus | Readable | None = None,
    max_tokens: int = 128,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measure the loss as heads are removed one after another: a pruning curve.

    Heads can replace one another, so effects of single heads do not add up. This function removes
    heads together. Michel et al. 2019, section 4; Voita et al. 2019.

    Args:
        model: model with a loss, or an argument of `headscope.load`.
        corpus: documents; use others than those that gave the order, to avoid selection bias.
        order: effects of heads, removed from the smallest absolute value on; or pairs of layer
            and head in the order of their removal.
        steps: number of measured points.
        ablation: `zero`, or `mean` over `reference`.
        reference: texts to take means over.
        max_tokens: longer documents are cut.
        seed: seed of the tokens that an encoder has to predict.
        progress: show progress; by default on a terminal.

    Returns:
        `loss` over `removed`, `rise` over the whole model with `rise_low` and `rise_high`, and
        the `head` removed last.
    """
    model = as_model(model)
    corpus = as_corpus(corpus)
    block = model.wiring.main_block()
    removed = _order(model, order)
    numbers = np.unique(np.linspace(0, len(removed), whole_number("steps", steps) + 1).round())
    counts = [int(n) for n in numbers if n > 0]
    sets = [tuple(sorted(removed[:n])) for n in counts]
    replacement = make_replacement(model, ablation, reference, block)
    measured = effects_on_loss(
        model, corpus, sets, replacement, max_tokens=max_tokens, seed=seed, progress=progress
    )
    whole = float(measured.attributes["with"])
    last = [f"L{layer} H{head}" for layer, head in (removed[n - 1] for n in counts)]
    rise = np.concatenate(([0.0], measured.mean))
    low, high = (np.concatenate(([0.0], bound)) for bound in measured.intervals[:2])
    return xr.Dataset(
        {
            "loss": ("removed", whole + rise, {"units": "nats per token"}),
            "rise": ("removed", rise, {"units": "nats per token"}),
            "rise_low": ("removed", low),
            "rise_high": ("removed", high),
        },
        coords={"removed": [0, *counts], "head": ("removed", ["", *last])},
        attrs={**measured.attributes, "ablation": ablation, "heads": len(removed)},
    )


def _order(model: Model, order: xr.DataArray | Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    if isinstance(order, xr.DataArray):
        if order.dims != ("layer", "head"):
            raise InputError(f"order has axes {order.dims}; expected effects over layer and head.")
        order = [(layer, head) for layer, head, _ in reversed(rank(order))]
    removed = list(order)
    sets = head_sets(model, removed, model.wiring.main_block())
    if len(sets) < len(removed) or any(len(heads) > 1 for heads in sets):
        raise InputError("order should name each head to remove once, in pairs of layer and head.")
    return [head for (head,) in sets]
