"""Measures one shard: every worker of every engine runs this and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from headscope.errors import MetricError, TapUnsupported
from headscope.measuring.fold import Fold, States
from headscope.measuring.kernels import load_loops
from headscope.model.model import Model
from headscope.model.norm_weights import NormWeights
from headscope.model.tapped import once
from headscope.run.backward import can_ask, measure_gradients
from headscope.run.batches import EncodedDocument, Encoder
from headscope.run.memory import FREED
from headscope.run.plan import Plan, Shard
from headscope.run.progress import Amount

Announce = Callable[[list[int], Amount], None]


@dataclass(slots=True)
class ShardReport:
    """What happened to a shard's documents."""

    documents: int = 0
    tokens: int = 0
    """As the model saw them, special tokens included."""
    truncated: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)
    """Id and reason of documents that could not be measured."""
    layers: dict[str, list[int]] = field(default_factory=dict)
    rows_without_length: int = 0
    """Rows of heads over norms whose values are all 0."""

    def to_dict(self) -> dict[str, object]:
        """As JSON can hold it."""
        return {name: getattr(self, name) for name in self.__slots__}

    def add(self, other: ShardReport) -> None:
        """Count another shard too."""
        self.documents += other.documents
        self.tokens += other.tokens
        self.truncated += other.truncated
        self.failed += other.failed
        self.layers = self.layers or other.layers
        self.rows_without_length += other.rows_without_length


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A shard's states and report."""

    states: States
    report: ShardReport


def prepare(plan: Plan) -> None:
    """What a process does before its first shard."""
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
) -> Measured:
    """The states of one shard: one forward pass per batch for all metrics.

    A batch that fails is tried again document by document; those that fail alone are
    reported and left out.

    Args:
        model: the model.
        plan: the plan.
        shard: its documents.
        announce: told the numbers of the documents of each batch before it runs, and what was done
            before.
        alone: numbers of documents to run one at a time.
        excluded: numbers of documents not to run: they killed a worker.
    """
    encoder = Encoder.of(model, plan)
    report = ShardReport()
    fold = Fold(plan.metrics, model.info.n_layers)
    encoded = []
    for document in _encoded(encoder, plan, shard, report):
        if document.numbered[0] in excluded:
            _fail(report, document, "worker processes died measuring it alone")
        else:
            encoded.append(document)
    together = [d for d in encoded if d.numbered[0] not in alone]
    batches = [*encoder.batches(together), *([d] for d in encoded if d.numbered[0] in alone)]
    done = Amount()
    for batch in batches:
        FREED.check()
        announce([document.numbered[0] for document in batch], done)
        done += amount_of(batch)
        try:
            _run(encoder, plan, fold, batch, report)
        except (TapUnsupported, MetricError):
            raise  # the model or a metric is at fault, not the documents
        except Exception as error:
            if len(batch) == 1:
                _fail(report, batch[0], f"{type(error).__name__}: {error}")
                continue
            for document in batch:
                try:
                    _run(encoder, plan, fold, [document], report)
                except Exception as error_alone:
                    _fail(report, document, f"{type(error_alone).__name__}: {error_alone}")
    report.layers = fold.layers()
    return Measured(fold.states(), report)


def amount_of(documents: Sequence[EncodedDocument]) -> Amount:
    """How much work these documents are."""
    return Amount(
        len(documents),
        sum(document.length for document in documents),
        sum(len(document.numbered[1].text) for document in documents),
    )


def _encoded(
    encoder: Encoder, plan: Plan, shard: Shard, report: ShardReport
) -> Iterator[EncodedDocument]:
    """The shard's documents tokenized; those without a token of their own fail."""
    for document in encoder.encode(shard.documents):
        if all(all(tokens.special) for tokens in document.stacks.values()):
            _fail(report, document, "it has no token of its own")
        elif plan.reads_gradients and not can_ask(encoder.model, document):
            _fail(report, document, "one token has no next token to predict")
        else:
            yield document


def _run(
    encoder: Encoder,
    plan: Plan,
    fold: Fold,
    documents: Sequence[EncodedDocument],
    report: ShardReport,
) -> None:
    inputs, batch = encoder.batch(documents)
    if plan.reads_gradients:
        measure_gradients(encoder.model, plan, inputs, batch, fold)
    elif plan.settings.over == "norm":
        with fold.batch(batch) as read:
            weighted = NormWeights(encoder.model, once(read))
            encoder.model.read(inputs, weighted)
        report.rows_without_length += weighted.n_empty
    else:
        with fold.batch(batch) as read:
            encoder.model.read(inputs, once(read))
    report.documents += len(documents)
    report.tokens += sum(len(next(iter(d.stacks.values()))) for d in documents)
    report.truncated += sum(d.n_cut > 0 for d in documents)


def _fail(report: ShardReport, document: EncodedDocument, reason: str) -> None:
    report.failed.append({"id": document.numbered[1].id, "reason": reason[:300]})


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Run with this number of threads, which is part of the plan."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
