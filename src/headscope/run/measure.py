"""`Trace.measure`: the metrics of one trace."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from headscope.arguments import expect
from headscope.attention import Attention
from headscope.attention import Block as BlockName
from headscope.batch import Axes, Batch, NullKeys, Sequences
from headscope.errors import InputError
from headscope.measuring.assemble import assemble, label_states
from headscope.measuring.contract import Metric
from headscope.measuring.fold import Fold
from headscope.measuring.key_classes import class_members, class_names
from headscope.measuring.labels import NO_TAG, Labeler, Tagset, Tokenized, check_rules, tags_of
from headscope.metrics.catalog import find_metrics, metric_to_dict
from headscope.results.result import MeasuredDocument, Result
from headscope.results.trace import Trace
from headscope.text.document import Document
from headscope.text.tokens import Tokens

__all__ = ["measure"]


def measure(
    trace: Trace,
    metrics: str | Metric | Iterable[str | Metric] = "all",
    *,
    document: Document | None = None,
    tagset: Tagset = "universal",
    null_keys: NullKeys = "auto",
) -> Result:
    """The metrics of one input: the same numbers as `analyze` gives for a corpus of one.

    Works for a trace of a model and for attention computed elsewhere (`Trace.from_arrays`).
    There are no intervals: one document cannot be drawn twice.

    Args:
        trace: what to measure.
        metrics: "all" for those that the annotations allow, names, or metrics.
        document: the annotated document that was traced, for tags and dependencies.
        tagset: universal tags or the language's own.
        null_keys: which keys are null attention.
    """
    expect("trace", trace, Trace, "a trace of model.trace or Trace.from_arrays")
    check_rules(tagset, null_keys)
    axes = replace(_axes(document, tagset), key_classes=_key_classes(trace))
    has = {
        "tags": bool(axes.tags),
        "parents": document is not None and document.parents is not None,
        "relations": bool(axes.relations),
        "mentions": document is not None and bool(document.mentions),
    }
    chosen = find_metrics(metrics, frozenset(name for name, is_there in has.items() if is_there))
    labeler = Labeler(axes, tagset)
    stacks = {
        stack: _sequences(tokens, document, labeler, axes, trace.text is tokens)
        for stack, tokens in trace.stack_tokens.items()
    }
    batch = Batch(axes, stacks, np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64), null_keys)
    fold = Fold(chosen)
    with fold.batch(batch) as read:
        for name, block in trace.blocks.items():
            layers = block.attention["layer"].values
            for layer, weights in zip(layers, block.attention.values, strict=True):
                weights = weights if weights.dtype == np.float64 else weights.astype(np.float32)
                read(
                    Attention(
                        torch.from_numpy(weights.copy())[None],
                        cast("BlockName", name),
                        int(layer),
                        block.is_causal,
                    )
                )
    states = fold.states()
    blocks = {name: states[name] for name in trace.blocks if name in states}
    shown = {stack: tokens.tokens for stack, tokens in trace.stack_tokens.items()}
    text = " ".join(trace.text.texts)
    return Result(
        assemble(blocks, chosen, axes, fold.layers(), n_draws=0),
        label_states(states, chosen),
        _provenance(trace, chosen, axes, tagset, null_keys),
        {0: MeasuredDocument(text[:60] if document is None else document.id, shown)},
    )


def _axes(document: Document | None, tagset: Tagset) -> Axes:
    if document is None:
        return Axes(parts_per_group=1)
    tags = set(tags_of(document, tagset) or ()) - {NO_TAG}
    relations = set(document.relations or ()) if document.parents is not None else set()
    relations -= {NO_TAG}
    return Axes(tuple(sorted(tags)), tuple(sorted(relations)), parts_per_group=1)


def _key_classes(trace: Trace) -> tuple[str, ...]:
    return class_names(
        token
        for tokens in trace.stack_tokens.values()
        for token, is_special in zip(tokens.tokens, tokens.special, strict=True)
        if is_special
    )


def _sequences(
    tokens: Tokens, document: Document | None, labeler: Labeler, axes: Axes, is_main: bool
) -> Sequences:
    special = np.array(tokens.special, dtype=bool)
    ids = np.unique(np.array(tokens.tokens, dtype=str), return_inverse=True)[1].astype(np.int64)
    classes = class_members(tokens.tokens, special, axes.key_classes)
    if document is None or not is_main:
        plain = Sequences.plain(np.ones((1, len(tokens)), dtype=bool), special[None])
        return replace(plain, ids=ids[None], classes=classes[None])
    if tokens.texts != (document.text,):
        raise InputError(
            f"The trace is not of document {document.id!r}: their texts differ. Trace "
            "document.text."
        )
    offsets = None if tokens.offsets is None else np.array(tokens.offsets).reshape(-1, 2)
    return labeler.sequences([document], [Tokenized(special, offsets, ids, classes)])


def _hash(trace: Trace) -> str:
    """Tells traces apart."""
    digest = hashlib.sha256()
    for block in trace.blocks.values():
        digest.update(np.ascontiguousarray(block.attention.values).tobytes())
    for tokens in trace.stack_tokens.values():
        digest.update("\0".join(tokens.tokens).encode("utf-8", errors="surrogatepass"))
    return digest.hexdigest()


def _provenance(
    trace: Trace, metrics: Iterable[Metric], axes: Axes, tagset: Tagset, null_keys: NullKeys
) -> dict[str, object]:
    return {
        "model": {"name": str(trace.about.get("model", "?")), **trace.about},
        "corpus": {"name": "one trace", "documents": 1, "hash": _hash(trace)},
        "metrics": [metric_to_dict(metric) for metric in metrics],
        "axes": axes.to_dict(),
        "settings": {"tagset": tagset, "null_keys": null_keys},
        "versions": {"headscope": importlib.metadata.version("headscope")},
    }
