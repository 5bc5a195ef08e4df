"""A worker process: measures the shards it is sent, until there are no more.

Answers through a pipe: `("at", numbers)` before each batch, `("done", documents)` when a
shard is on disk, `("error", exception)` when something is wrong with more than a document.
A worker whose parent is gone ends at its next answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from headscope.model.model import Model
from headscope.run.checkpoint import write_measured
from headscope.run.plan import Plan, Shard
from headscope.run.shard import measure_shard

__all__ = ["Task", "packed_model", "portable", "serve", "unpacked_model"]

INSTALLED = "_output_capturing_hooks_installed"


@dataclass(frozen=True, slots=True)
class Task:
    """A shard to measure, and what earlier deaths taught about its documents."""

    shard: Shard
    path: Path
    alone: frozenset[int] = frozenset()
    excluded: frozenset[int] = frozenset()


def packed_model(model: Model) -> dict[str, Any]:
    """What a process needs to have the same model. Weights travel in shared memory."""
    return {
        "module": model.module,
        "tokenizer": model.tokenizer,
        "name": model.name,
        "source": model._source,
        "has_lm_head": model._has_lm_head,
        "notes": model._notes,
        "example": model._example,
        "edits": model.edits,
    }


@contextmanager
def portable(module: torch.nn.Module) -> Iterator[None]:
    """Within the block the module pickles: without the hooks by which transformers collects
    its outputs, which are local functions. A copy installs them anew.
    """
    hooks: list[tuple[Any, int, Any]] = []
    installed = []
    for part in module.modules():
        for number, hook in list(part._forward_hooks.items()):
            if "output_capturing_hook" in getattr(hook, "__qualname__", ""):
                hooks.append((part._forward_hooks, number, hook))
                del part._forward_hooks[number]
        if part.__dict__.pop(INSTALLED, False):
            installed.append(part)
    try:
        yield
    finally:
        for where, number, hook in hooks:
            where[number] = hook
        for part in installed:
            setattr(part, INSTALLED, True)


def unpacked_model(packed: Mapping[str, Any], stack: ExitStack) -> Model:
    """The model again, with its edits in effect until the stack is left."""
    options = dict(packed)
    edits = options.pop("edits")
    model = Model(options.pop("module"), options.pop("tokenizer"), **options)
    if edits:
        stack.enter_context(model.edit(*edits))
    return model


def serve(pipe: Connection, packed: Mapping[str, Any], plan: Plan) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(plan.settings.threads)
    with ExitStack() as stack, contextlib.suppress(EOFError, BrokenPipeError, ConnectionError):
        try:
            model = unpacked_model(packed, stack)
            pipe.send(("ready", None))
            while (task := pipe.recv()) is not None:
                measured = measure_shard(
                    model,
                    plan,
                    task.shard,
                    announce=lambda numbers: pipe.send(("at", numbers)),
                    alone=task.alone,
                    excluded=task.excluded,
                )
                write_measured(task.path, measured)
                pipe.send(("done", len(task.shard.documents)))
        except (EOFError, BrokenPipeError, ConnectionError):
            raise
        except BaseException as error:
            pipe.send(("error", _sendable(error)))


def _sendable(error: BaseException) -> BaseException:
    """The error itself where it pickles, else what it says."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
