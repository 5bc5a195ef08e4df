"""`trace.measure`: metrics of one input, equal to `analyze` of a corpus of one document."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from headscope.arguments import expect
from headscope.attention import Attention, BlockName
from headscope.batch import Axes, Batch, NullKeys
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
    """Measure the metrics of one input, as `analyze` for a corpus of one (`max_tokens=None`).

    Works for a trace of a model and for attention computed elsewhere (`Trace.from_arrays`). One
    document gives no intervals.

    Args:
        trace: the trace.
        metrics: "all" for those that the annotations allow, names, or metrics.
        document: the annotated document that was traced, for tags, trees and mentions. In an
            encoder-decoder both sides have its labels if both read its text.
        tagset: universal tags or the language's own.
        null_keys: keys of null attention.
        over: `attention`, or `norm` for attention weighted by the norm of the projected value; the
            trace needs `norms=True`.

    Raises:
        InputError: the trace is of another text than the document.
    """
    expect("trace", trace, Trace, "a trace of model.trace or Trace.from_arrays")
    expect("document", document, Document | None, "the document that was traced, or None")
    settings = Settings(tagset=tagset, null_keys=null_keys, over=over)
    if over == "norm" or is_weighed(trace):
        trace, settings = trace.norm_weighted(), replace(settings, over="norm")
    source = _plain_document(trace) if document is None else document
    metrics = list_metrics(metrics)
    surveyed = survey(as_corpus([source]), settings, facts_of(metrics))
    chosen = find_metrics(metrics, surveyed.available)
    text = trace.text
    special = [
        token for token, is_special in zip(text.tokens, text.special, strict=True) if is_special
    ]
    axes = replace(axes_for(surveyed, settings, class_names(special)), buckets_per_group=1)
    batch = _batch(trace, source, document is not None, axes, settings)
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


def _plain_document(trace: Trace) -> Document:
    text = " ".join(trace.text.texts)
    return Document(id=text[:60], text=text, words=(), spans=())


def _batch(
    trace: Trace, document: Document, is_annotated: bool, axes: Axes, settings: Settings
) -> Batch:
    stacks = {}
    for stack, tokens in trace.stack_tokens.items():
        is_main = tokens is trace.text
        stacks[stack] = [_of_document(tokens, document) if is_annotated and is_main else tokens]
    is_cut = [bool(trace.provenance.get("n_cut", 0))]
    batch = label_batch([(0, document)], stacks, axes, settings, is_cut=is_cut)
    labeled = {
        # Attention computed elsewhere has no ids: tokens with the same text are equal.
        stack: replace(sequences, ids=_ids(trace.stack_tokens[stack])[None])
        if sequences.ids is None
        else sequences
        for stack, sequences in batch.stacks.items()
    }
    return replace(batch, stacks=labeled)


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


def _ids(tokens: Tokens) -> np.ndarray:
    return np.unique(np.array(tokens.tokens, dtype=str), return_inverse=True)[1].astype(np.int64)


def _hash(trace: Trace) -> str:
    digest = hashlib.sha256()
    for block in trace.blocks.values():
        digest.update(np.ascontiguousarray(block.attention.values).tobytes())
    for tokens in trace.stack_tokens.values():
        digest.update("\0".join(tokens.tokens).encode("utf-8", errors="surrogatepass"))
    return digest.hexdigest()


def _provenance(
    trace: Trace, metrics: Iterable[Metric], axes: Axes, settings: Settings
) -> dict[str, object]:
    return {
        "model": {"name": str(trace.provenance.get("model", "?")), **trace.provenance},
        "corpus": {
            "name": "one trace",
            "unit": "document as given",
            "documents": 1,
            "hash": _hash(trace),
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
            "tagset": settings.tagset,
            "null_keys": settings.null_keys,
            "over": settings.over,
            "max_tokens": len(trace.text),
        },
        "versions": versions("headscope"),
    }
