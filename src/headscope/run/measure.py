"""`trace.measure`: metrics of one input, equal to `analyze` of a corpus of one document."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from headscope.arguments import expect
from headscope.attention import Attention, BlockName
from headscope.batch import Axes, NullKeys
from headscope.errors import InputError
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.contract import Metric
from headscope.metrics.core.finalize import finalize_all, label_states
from headscope.metrics.core.labels import Tagset
from headscope.metrics.core.registry import facts_of, find_metrics, list_metrics, metric_to_dict
from headscope.model.identity import versions
from headscope.results.result import MeasuredDocument, Result
from headscope.results.trace import Trace, is_weighed
from headscope.run.batches import label_batch
from headscope.run.options import Over, Settings
from headscope.run.plan import axes_for, survey
from headscope.text.document import Document
from headscope.text.readers.read import as_corpus
from headscope.text.segments import SECOND
from headscope.text.tokens import Tokens, class_names


def measure(
    trace: Trace,
    metrics: str | Metric | Iterable[str | Metric] = "all",
    *,
    document: Document | None = None,
    tagset: Tagset = "universal",
    null_keys: NullKeys = "auto",
    over: Over = "attention",
) -> Result:
    """See `Trace.measure`. In an encoder-decoder, sides that read the document have its labels."""
    expect("trace", trace, Trace, "a trace of model.trace or Trace.from_arrays")
    expect("document", document, Document | None, "the document that was traced, or None")
    settings = Settings(tagset=tagset, null_keys=null_keys, over=over)
    if over == "norm" or is_weighed(trace):
        trace, settings = trace.norm_weighted(), replace(settings, over="norm")
    whole = " ".join(trace.text.texts)
    source = document or Document(id=whole[:60], text=whole, words=(), spans=())
    metrics = list_metrics(metrics)
    surveyed = survey(as_corpus([source]), settings, facts_of(metrics))
    chosen = find_metrics(metrics, surveyed.available)
    text = trace.text
    special = list(itertools.compress(text.tokens, text.special))
    axes = replace(axes_for(surveyed, settings, class_names(special)), buckets_per_group=1)
    stacks = {stack: [tokens] for stack, tokens in trace.stack_tokens.items()}
    for stack, (tokens,) in stacks.items():
        if document is not None and tokens is text:
            stacks[stack] = [_of_document(tokens, document)]
    is_cut = [bool(trace.provenance.get("n_cut", 0))]
    batch = label_batch([(0, source)], stacks, axes, settings, is_cut=is_cut)
    for stack, sequences in batch.stacks.items():
        if sequences.ids is None:
            # Attention computed elsewhere has no ids: tokens with the same text are equal.
            texts = np.array(trace.stack_tokens[stack].tokens, dtype=str)
            ids = np.unique(texts, return_inverse=True)[1].astype(np.int64)[None]
            labeled = {**batch.stacks, stack: replace(sequences, ids=ids)}
            batch = replace(batch, stacks=labeled)
    accumulator = Accumulator(chosen)
    with accumulator.batch(replace(batch, facts=surveyed.facts)) as read:
        for name, block in trace.blocks.items():
            layers = block.attention["layer"].values
            for layer, weights in zip(layers, block.attention.values, strict=True):
                weights = weights if weights.dtype == np.float64 else weights.astype(np.float32)
                tensor = torch.from_numpy(weights.copy())[None]
                read(Attention(tensor, cast("BlockName", name), int(layer), block.is_causal))
    states = accumulator.states()
    blocks = {name: states[name] for name in trace.blocks if name in states}
    shown = {stack: tokens.tokens for stack, tokens in trace.stack_tokens.items()}
    return Result(
        finalize_all(
            blocks, chosen, axes, accumulator.layers(), has_intervals=False, over=settings.over
        ),
        label_states(states, chosen),
        _provenance(trace, chosen, axes, settings),
        {0: MeasuredDocument(source.id, shown)},
    )


def _of_document(tokens: Tokens, document: Document) -> Tokens:
    """Return tokens with offsets in the document; raise InputError for another text."""
    second = document.meta.get(SECOND)
    if second is not None:  # a segment, traced as a pair
        start = int(second)
        if tokens.texts == (document.text[:start].rstrip(), document.text[start:]):
            return tokens.joined(document.text, start)
    if tokens.texts != (document.text,):
        raise InputError(
            f"The trace is not of document {document.id!r}: their texts differ. Trace "
            "document.text."
        )
    return tokens


def _provenance(
    trace: Trace, metrics: Iterable[Metric], axes: Axes, settings: Settings
) -> dict[str, object]:
    content = hashlib.sha256()
    for block in trace.blocks.values():
        content.update(np.ascontiguousarray(block.attention.values).tobytes())
    for tokens in trace.stack_tokens.values():
        content.update("\0".join(tokens.tokens).encode("utf-8", errors="surrogatepass"))
    return {
        "model": {"name": str(trace.provenance.get("model", "?")), **trace.provenance},
        "corpus": {
            "name": "one trace",
            "unit": "document as given",
            "documents": 1,
            "hash": content.hexdigest(),
        },
        "counts": {
            "documents": 1,
            "tokens": len(trace.text),
            "truncated": int(bool(trace.provenance.get("n_cut", 0))),
            "failed": 0,
        },
        "metrics": [metric_to_dict(metric) for metric in metrics],
        "axes": axes.to_dict(),
        "settings": {
            **{name: getattr(settings, name) for name in ("tagset", "null_keys", "over")},
            "max_tokens": len(trace.text),
        },
        "versions": versions("headscope"),
    }
