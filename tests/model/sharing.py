"""What tests of several models over one module share."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.families.reference import padded_inputs
from tests.families.zoo import SUPPORTED, build

N_ROUNDS = 12
PATIENCE = 60.0
"""Seconds after which a thread counts as stuck."""


def family(name: str) -> PreTrainedModel:
    return build(next(member for member in SUPPORTED if member.name == name))


def state_of(module: nn.Module) -> dict[str, object]:
    """Everything that attaching changes for a while."""
    return {
        "implementation": module.config._attn_implementation,
        "training": [part.training for part in module.modules()],
        "hooks": [
            hook.__qualname__
            for part in module.modules()
            for hook in (*part._forward_pre_hooks.values(), *part._forward_hooks.values())
            if hook.__module__.startswith("headscope.")
        ],
        "trained": [parameter.requires_grad for parameter in module.parameters()],
    }


def inputs_of(module: PreTrainedModel) -> dict[str, Tensor]:
    return padded_inputs(module, left=False)


def in_threads(*jobs: Callable[[], None]) -> None:
    """Run the jobs side by side; what goes wrong in one is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def work(job: Callable[[], None]) -> None:
        try:
            start.wait(PATIENCE)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a thread waits for something that never comes"
    if errors:
        raise errors[0]


def is_silent(weights: Tensor, head: int) -> bool:
    return float(weights[:, head].abs().max()) == 0
