"""The tap: read, and change, every attention weight of a model while it runs.

While attached, the model's own eager attention runs, so that masks, biases, caps and
sinks are the family's own and nothing is computed twice. Two routes lead inside (see
`sites.Route`); which one fits a model, and that it is right, is found out once by
`check.wire`. Attachments nest, those of other models over the same modules included; the
modules are one thread's at a time; and the last to detach leaves them as they were.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from torch import nn

from headscope.model.edits import Edit
from headscope.model.tap.dispatch import Attached, Attachment, connected, uses_of
from headscope.model.tap.forward_pass import BoundSites
from headscope.model.tap.interface import eager_attention, locked_modules, modules_of
from headscope.model.tap.sites import Wiring
from headscope.model.tap.watch import ending_watches


class Tap:
    """The attachment point of one model."""

    def __init__(self, root: nn.Module, wiring: Wiring) -> None:
        self._circuit = BoundSites(root, wiring)

    def is_current(self) -> bool:
        """Does the model still hold the very modules that were checked?"""
        return self._circuit.is_current()

    @contextmanager
    def attached(self, attachment: Attachment) -> Iterator[None]:
        """Attach for the duration of the block, to what this thread runs.

        Waits while another thread is attached to any part of the model.
        """
        with (
            locked_modules(modules_of(self._circuit.root)),
            self._connected(attachment, threading.current_thread()),
        ):
            yield

    @contextmanager
    def attached_for_all(self, attachment: Attachment) -> Iterator[None]:
        """Attach to what any thread runs. The model is not claimed: other threads may attach."""
        with self._connected(attachment, None):
            yield

    @contextmanager
    def _connected(self, attachment: Attachment, thread: threading.Thread | None) -> Iterator[None]:
        circuit = self._circuit
        with ExitStack() as stack:
            stack.enter_context(eager_attention(circuit.root))
            stack.enter_context(circuit.followed())
            stack.enter_context(ending_watches())
            use = Attached(circuit, attachment, thread)
            stack.enter_context(connected(circuit.modules.values(), use))
            yield

    def edits(self) -> tuple[Edit, ...]:
        """The edits in effect for this thread, outermost first, also those made through another
        model over these modules. Their layers and blocks are those of this model.
        """
        return tuple(
            named
            for use in uses_of(self._circuit.modules.values())
            for edit in use.attachment.edits
            if (named := self._as_named_here(edit, use.circuit)) is not None
        )

    def _as_named_here(self, edit: Edit, circuit: BoundSites) -> Edit | None:
        """An edit made through another circuit; None where it touches nothing of this one."""
        if circuit.root is self._circuit.root:
            return edit
        theirs = circuit.wiring.find(edit.block, edit.layer, edit.head)
        ours = self._circuit.site_like(theirs, circuit)
        if ours is None:
            return None
        if ours.layer == edit.layer and edit.touches(ours, self._circuit.wiring.main_block()):
            return edit
        return replace(edit, layer=ours.layer, block=ours.block)
