"""`headscope.importance`: how much a model's own loss depends on its attention."""

from __future__ import annotations

from typing import Unpack

from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.model.aims import Target, check_aim, name_scalar
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
    check_aim(model, answer, scalar)
    metrics = [Importance(seed=seed, target=answer, scalar=scalar), RemovalEstimate(), Loss()]
    return analyze(
        model, corpus, metrics, **with_defaults(options, max_tokens=128, batch_tokens=512)
    )
