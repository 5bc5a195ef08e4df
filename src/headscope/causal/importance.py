"""`headscope.importance`: what attention matters to a model's own objective."""

from __future__ import annotations

from typing import Unpack

from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.options import RunOptions, with_defaults
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable


def importance(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> Result:
    """How much a model's loss depends on each class of keys it attends to, head by head.

    One forward and one backward pass per document, with the parameters frozen; a layer's
    gradients are reduced as soon as they are known. Plan, shards, workers and resume are
    those of `headscope.analyze`, and results merge likewise.

    Args:
        model: a language model, or what `headscope.load` takes.
        corpus: the documents, or what `headscope.read` takes (files by sentence).
        seed: decides which tokens an encoder has to guess.
        options: see `RunOptions`. A document has at most 128 tokens by default, a batch 512:
            logits take most of the memory, this many times the vocabulary, three times over.

    Returns:
        `importance` and `removal_estimate` over layer, head and class of keys, and `loss`.

    Raises:
        MissingObjective: the weights have no language-model head, so there is no loss.
    """
    model = as_model(model)
    model.need_objective("Gradient importance")
    metrics = [Importance(seed=seed), RemovalEstimate(), Loss()]
    return analyze(
        model, corpus, metrics, **with_defaults(options, max_tokens=128, batch_tokens=512)
    )
