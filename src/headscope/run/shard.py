"""Measure one shard; every worker of every engine runs only this.

Also here: the forward and backward pass over a batch, and the return of freed memory.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention, LayerReader
from headscope.batch import Batch
from headscope.errors import InputError, MetricError, TapUnsupported
from headscope.metrics.core.accumulator import Accumulator, States
from headscope.metrics.core.layer_data import load_loops
from headscope.metrics.gradients import Importance
from headscope.model import objective as objectives
from headscope.model.model import Model
from headscope.model.tap.projection import NormWeights
from headscope.model.tapped import once
from headscope.run.batches import EncodedDocument, Encoder, key_classes_of, token_limit
from headscope.run.options import Settings
from headscope.run.plan import Plan, Shard, axes_for, survey
from headscope.run.progress import Amount
from headscope.text.corpus import Corpus


def can_ask(model: Model, document: EncodedDocument) -> bool:
    """Has the document anything to predict?"""
    objective = model.info.objective
    if objective is None:  # a user's scalar
        return True
    stack = {"causal": "self", "seq2seq": "decoder"}.get(objective)
    return stack is None or len(document.stacks[stack]) > 1


def measure_gradients(
    model: Model, plan: Plan, inputs: Mapping[str, Tensor], batch: Batch, accumulator: Accumulator
) -> None:
    """Run forward and backward; accumulate each layer's gradients, which are then freed."""
    importance = next((m for m in plan.metrics if isinstance(m, Importance)), Importance())
    loss_inputs, labels = question(model, inputs, batch, importance.seed, importance.target)
    scalar = None if importance.scalar is None else objectives.import_scalar(importance.scalar)
    run = objectives.with_loss(
        model, loss_inputs, labels, scalar, rows=plan.rows, layers=plan.layers
    )
    with run as (losses, backward), accumulator.batch(replace(batch, losses=losses)) as read:
        backward(read)


def question(
    model: Model,
    inputs: Mapping[str, Tensor],
    batch: Batch,
    seed: int,
    target: str | int | None = None,
) -> tuple[dict[str, Tensor], Tensor]:
    """Return inputs and labels of the model's own objective, or of a named answer. Masked tokens
    depend on the seed and the document's content, not on its batch or shard.
    """
    objective = model.info.objective
    if objective is None:  # a user's scalar needs no labels
        return dict(inputs), torch.zeros((len(batch), 0), dtype=torch.long)
    if objective in ("label", "token_label") or target is not None:
        main = next(iter(batch.stacks.values()))
        is_text = torch.from_numpy(main.mask & ~main.special)
        return dict(inputs), objectives.target_labels(model, inputs, is_text, target)
    if objective == "masked":
        text = batch.stacks["self"]
        chosen = [
            objectives.choose_masked(np.flatnonzero(row).tolist(), [seed, int(key * 2**53)])
            for row, key in zip(text.mask & ~text.special, batch.sample_hashes, strict=True)
        ]
        ids, labels = objectives.mask_tokens(model, inputs["input_ids"], chosen)
        return {**inputs, "input_ids": ids}, labels
    stack, name = {"causal": ("self", "input_ids"), "seq2seq": ("decoder", "decoder_input_ids")}[
        objective
    ]
    ids = inputs[name]
    mask = torch.from_numpy(batch.stacks[stack].mask)
    labels = torch.full_like(ids, objectives.NOTHING)
    labels[:, :-1] = torch.where(mask[:, 1:], ids[:, 1:], objectives.NOTHING)
    return dict(inputs), labels


MAX_KEPT = 192 << 20
"""Freed bytes that may stay allocated: allocating them again takes time."""


class FreedMemory:
    """Return of memory that glibc keeps after it is freed; nothing happens elsewhere. Batches of
    many shapes fragment the heap of a long run. A process has one, `FREED`.
    """

    def __init__(self) -> None:
        self._minimum = 0

    def give_back(self) -> None:
        """Return all freed memory to the system."""
        if sys.platform == "linux":
            getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)
        self._minimum = _resident()

    def check(self) -> None:
        """Return freed memory if there is much of it, or its size is unknown."""
        resident = _resident()
        if not resident or resident > self._minimum + MAX_KEPT:
            self.give_back()


FREED = FreedMemory()


def _resident() -> int:
    """Return the bytes of this process in memory; 0 if the system does not report them."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return pages * mmap.PAGESIZE


Announce = Callable[[list[int], Amount], None]
LONG = 1024
"""Tokens of a document from which progress is reported within it."""


@dataclass(slots=True)
class ShardReport:
    """Counts and failures of a shard's documents."""

    documents: int = 0
    tokens: int = 0
    """Tokens of the model's inputs, including special ones."""
    truncated: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)
    """Id and reason of documents that could not be measured."""
    layers: dict[str, list[int]] = field(default_factory=dict)
    rows_without_length: int = 0
    """Rows of heads over norms whose values are all 0."""
    long_words: int = 0
    """Words left out for too many tokens."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {name: getattr(self, name) for name in self.__slots__}

    def add(self, other: ShardReport) -> None:
        """Add the counts of another shard."""
        layers = self.layers or other.layers
        for name in {*self.__slots__} - {"layers"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.layers = layers


@dataclass(frozen=True, slots=True, eq=False)
class ShardSums:
    """A shard's states and report."""

    states: States
    report: ShardReport


def prepare(plan: Plan) -> None:
    """Prepare a process for its first shard."""
    FREED.give_back()
    if plan.is_compiled:
        load_loops()


def measure_shard(
    model: Model,
    plan: Plan,
    shard: Shard,
    *,
    announce: Announce = lambda numbers, done: None,
    alone: Collection[int] = (),
    excluded: Collection[int] = (),
) -> ShardSums:
    """Measure the states of one shard, with one forward pass per batch for all metrics.

    A batch that fails is run again document by document; documents that fail alone are reported
    and left out. `announce` is called before each batch with its document numbers and the work
    done so far. Documents in `alone` run one at a time; those in `excluded` killed a worker.
    """
    encoder = Encoder.of(model, plan)
    report = ShardReport()
    accumulator = Accumulator(plan.metrics)
    encoded = []
    for document in encoder.encode(shard.documents):
        if all(all(tokens.special) for tokens in document.stacks.values()):
            _fail(report, document, "it has no token of its own")
        elif plan.reads_gradients and not can_ask(model, document):
            _fail(report, document, "one token has no next token to predict")
        elif document.numbered[0] in excluded:
            _fail(report, document, "worker processes died measuring it alone")
        else:
            encoded.append(document)
    together = [d for d in encoded if d.numbered[0] not in alone]
    batches = [*encoder.batches(together), *([d] for d in encoded if d.numbered[0] in alone)]
    done = Amount()
    for batch in batches:
        FREED.check()
        numbers = [document.numbered[0] for document in batch]
        announce(numbers, done)
        amount, before = amount_of(batch), done
        done += amount

        def tick(share: float) -> None:
            announce(numbers, before + amount.part(share))  # noqa: B023

        try:
            _run(encoder, plan, accumulator, batch, report, tick)
        except (TapUnsupported, MetricError):
            raise  # the model or a metric is at fault, not the documents
        except Exception as error:
            if len(batch) == 1:
                _fail(report, batch[0], f"{type(error).__name__}: {error}")
                continue
            for document in batch:
                try:
                    _run(encoder, plan, accumulator, [document], report)
                except Exception as error_alone:
                    _fail(report, document, f"{type(error_alone).__name__}: {error_alone}")
    report.layers = accumulator.layers()
    return ShardSums(accumulator.states(), report)


def encode_predictable(
    model: Model, corpus: Corpus, max_tokens: int, batch_tokens: int = 1024
) -> tuple[Encoder, list[EncodedDocument], str]:
    """Encode the documents in which the model has something to predict. Also return in words what
    is taken as independent, "" for documents that the corpus marks.
    """
    settings = Settings(max_tokens=token_limit(model, max_tokens), batch_tokens=batch_tokens)
    surveyed = survey(corpus, settings)
    axes = axes_for(surveyed, settings, key_classes_of(model))
    encoder = Encoder(model, axes, settings)
    documents = [d for d in encoder.encode(list(enumerate(corpus))) if can_ask(model, d)]
    if not documents:
        raise InputError("There is nothing to predict in these documents: give longer ones.")
    return encoder, documents, surveyed.independence


def amount_of(documents: Sequence[EncodedDocument]) -> Amount:
    """Return the amount of work in these documents."""
    return Amount(
        len(documents),
        sum(document.length for document in documents),
        sum(len(document.numbered[1].text) for document in documents),
    )


def _run(
    encoder: Encoder,
    plan: Plan,
    accumulator: Accumulator,
    documents: Sequence[EncodedDocument],
    report: ShardReport,
    tick: Callable[[float], None] = lambda share: None,
) -> None:
    model, (inputs, batch) = encoder.model, encoder.batch(documents)
    if plan.reads_gradients:
        measure_gradients(model, plan, inputs, batch, accumulator)
    else:
        length = max(document.length for document in documents)
        rows = plan.rows if plan.is_fused or length > (plan.rows or length) else None
        with accumulator.batch(batch) as read:
            reader = once(read)
            if length > LONG:
                reader = _ticking(reader, len(plan.layers or ()) or model.info.n_layers, tick)
            if plan.settings.over == "norm":
                reader = weighted = NormWeights(model, reader)
            model.read(
                inputs, reader, rows=rows, computes_softmax=plan.is_fused, layers=plan.layers
            )
        if plan.settings.over == "norm":
            report.rows_without_length += weighted.n_empty
    report.documents += len(documents)
    report.tokens += sum(len(next(iter(d.stacks.values()))) for d in documents)
    report.truncated += sum(d.n_cut > 0 for d in documents)
    report.long_words += batch.n_left_out


def _ticking(reader: LayerReader, n_layers: int, tick: Callable[[float], None]) -> LayerReader:
    """Report the share of a long document that was read, at every block of rows."""
    n_read = 0

    def read(attention: Attention) -> None:
        nonlocal n_read
        reader(attention)
        rows = attention.rows
        part = 1.0 if rows is None else rows.stop / attention.n_rows
        tick(min(1.0, (n_read + part) / n_layers))
        n_read += attention.is_last

    return read


def _fail(report: ShardReport, document: EncodedDocument, reason: str) -> None:
    report.failed.append({"id": document.numbered[1].id, "reason": reason[:300]})
