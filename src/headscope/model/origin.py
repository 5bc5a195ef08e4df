"""What a trace was made by, kept beside it while the model is at hand: to run the same input once
more under edits, or with heads switched off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from headscope.model.edit import Edit
from headscope.model.trace_options import TraceOptions
from headscope.results.norm_weighted import is_weighed
from headscope.results.trace import Trace
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from headscope.model.model import Model


@final
@dataclass(frozen=True, eq=False)
class Origin:
    """The model, what its forward pass was given, and the edits it was made under."""

    model: Model
    inputs: Mapping[str, object]
    stacks: Mapping[str, Tokens]
    options: TraceOptions
    edits: tuple[Edit, ...]

    @contextmanager
    def as_it_was(self, edits: Sequence[Edit] = ()) -> Iterator[None]:
        """Within the block, the edits that the trace was made under are in effect, and these."""
        in_effect = self.model.edits
        wanted = [*(edit for edit in self.edits if edit not in in_effect), *edits]
        with self.model.edit(*wanted) if wanted else nullcontext():
            yield

    def again(self, like: Trace, edits: Sequence[Edit]) -> Trace:
        """The same input under these edits, besides those the trace was made under.

        Args:
            like: the trace, whose tokens and media the new one has.
            edits: what to change.
        """
        from headscope.model.tracing import run_trace

        n_cut = int(like.about.get("n_cut", 0))
        with self.as_it_was(edits):
            trace = run_trace(self.model, self.inputs, dict(self.stacks), self.options, n_cut=n_cut)
        trace = trace.with_tokens(like.stack_tokens, like.media)
        return trace.by_norm() if is_weighed(like) else trace
