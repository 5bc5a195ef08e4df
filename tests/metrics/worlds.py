"""Random documents of `headscope.testing`, with the methods of the slow reference."""

from __future__ import annotations

from typing import Any

from headscope.testing import KEY_CLASSES, make_batch, random_documents
from headscope.testing import make_attention as attentions
from tests.metrics.slow import Case

__all__ = ["KEY_CLASSES", "attentions", "make_batch", "make_cases"]


def make_cases(seed: int, n: int, **options: Any) -> list[Case]:
    return [Case(**vars(document)) for document in random_documents(seed, n, **options)]
