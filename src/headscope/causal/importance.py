"""`headscope.importance`: what attention matters to a model's own objective."""

from __future__ import annotations

from pathlib import Path

from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import Engine, analyze
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable

__all__ = ["importance"]


def importance(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    engine: Engine = "local",
    workers: int = 1,
    resume: bool = True,
    by: str | None = None,
    max_tokens: int = 128,
    batch_tokens: int = 512,
    threads: int = 1,
    address: str | None = None,
    progress: bool | None = None,
) -> Result:
    """How much a model's loss depends on each class of keys it attends to, head by head.

    One forward and one backward pass per document, with the parameters frozen; a layer's
    gradients are reduced as soon as they are known. Plan, shards, workers and resume are
    those of `headscope.analyze`, and results merge likewise.

    Args:
        model: a language model, or what `headscope.load` takes.
        corpus: the documents, or what `headscope.read` takes (files by sentence).
        seed: decides which tokens an encoder has to guess.
        out: a folder for checkpoints and the result.
        engine: `local` or `ray`.
        workers: worker processes.
        resume: go on with what is in `out`.
        by: also the values of each group of documents.
        max_tokens: longer documents are cut.
        batch_tokens: tokens of a batch. Logits take most of the memory: this many times the
            vocabulary, three times over.
        threads: of each worker.
        address: of a Ray cluster.
        progress: show progress; by default on a terminal.

    Returns:
        `importance` and `removal_estimate` over layer, head and class of keys, and `loss`.

    Raises:
        MissingHead: the weights have no language-model head, so there is no loss.
    """
    model = as_model(model)
    model.need_head("Gradient importance")
    return analyze(
        model,
        corpus,
        [Importance(seed=seed), RemovalEstimate(), Loss()],
        out=out,
        engine=engine,
        workers=workers,
        resume=resume,
        by=by,
        max_tokens=max_tokens,
        batch_tokens=batch_tokens,
        threads=threads,
        address=address,
        progress=progress,
    )
