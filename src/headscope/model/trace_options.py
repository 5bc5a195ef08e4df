"""How an input is traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How an input is traced, and what the trace keeps; see `Model.trace`."""

    vectors: bool
    scores: bool | None
    layers: Sequence[int] | None
    norms: bool = False
    effects: bool = False
    generate: int = 0
    truncate: bool = True
