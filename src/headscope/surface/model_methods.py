"""What a model does that needs rooms above it: the effects that a trace carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscope.results.trace import Trace


def with_effects(
    trace: Trace,
    position: int | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Trace:
    """The trace with the prediction without each head beside it; see `Model.trace`.

    Args:
        trace: one that knows its model.
        position: of the prediction; the last by default.
        advance: told how many heads are done, and of how many.
    """
    from headscope.causal.every_head import measure_every_head
    from headscope.surface.live_replies import origin_of

    origin = origin_of(trace, "effects=True")
    with origin.as_it_was():
        effects = measure_every_head(
            origin.model, origin.inputs, trace.stack_tokens, position, advance
        )
    return replace(trace, effects=effects)
