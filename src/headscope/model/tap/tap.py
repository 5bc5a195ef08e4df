"""Read and edit every attention weight of a model while it runs.

While attached, the family's own eager attention runs, with its masks, biases, caps and sinks.
`check.wire` finds and proves the route for each model once (see `sites.Route`). Attachments
nest, also across models that share modules. One thread at a time holds the modules, and the
last attachment to end restores them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from headscope.model.edits import Edit
from headscope.model.tap.dispatch import Attached, Attachment, attached_to, connected
from headscope.model.tap.forward_pass import BoundSites
from headscope.model.tap.interface import eager_attention, locked_modules, modules_of
from headscope.model.tap.interrupts import held, interrupts_held
from headscope.model.tap.rows import mask_recipes
from headscope.model.tap.watch import ending_watches


class Tap(BoundSites):
    """Attachment point of one model."""

    @contextmanager
    @held
    def attached(self, attachment: Attachment, *, all_threads: bool = False) -> Iterator[None]:
        """Attach to calls of this thread; wait while another thread holds any of the modules. With
        `all_threads`, attach to calls of all threads, without locks.
        """
        thread = None if all_threads else threading.current_thread()
        with interrupts_held(), ExitStack() as stack:
            if thread is not None:
                stack.enter_context(locked_modules(modules_of(self.root)))
            stack.enter_context(eager_attention(self.root))
            stack.enter_context(self.followed())
            stack.enter_context(ending_watches())
            if attachment.rows is not None or attachment.layers is not None:
                stack.enter_context(mask_recipes())
            attached = Attached(self, attachment, thread)
            stack.enter_context(connected(self.modules.values(), attached))
            yield

    def edits(self) -> tuple[Edit, ...]:
        """Return the edits in effect for this thread, outermost first. Edits made through another
        model over these modules are renamed to this model's layers and blocks.
        """
        edits: list[Edit] = []
        for attached in attached_to(self.modules.values()):
            other = attached.bound_sites
            for edit in attached.attachment.edits:
                if other.root is not self.root:
                    theirs = other.wiring.find(edit.block, edit.layer, edit.head)
                    ours = self.site_like(theirs, other)
                    if ours is None:
                        continue
                    is_same = edit.touches(ours, self.wiring.main_block())
                    if not is_same:
                        edit = replace(edit, layer=ours.layer, block=ours.block)
                edits.append(edit)
        return tuple(edits)
