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

from torch import nn

from headscope.model.edits import Edit
from headscope.model.tap.dispatch import Attached, Attachment, attached_to, connected
from headscope.model.tap.forward_pass import BoundSites
from headscope.model.tap.interface import eager_attention, locked_modules, modules_of
from headscope.model.tap.sites import Wiring
from headscope.model.tap.watch import ending_watches


class Tap:
    """Attachment point of one model."""

    def __init__(self, root: nn.Module, wiring: Wiring) -> None:
        self._bound_sites = BoundSites(root, wiring)

    def is_current(self) -> bool:
        """Does the model still have the modules that were checked?"""
        return self._bound_sites.is_current()

    @contextmanager
    def attached(self, attachment: Attachment) -> Iterator[None]:
        """Attach to calls of this thread; wait while another thread holds any of the modules."""
        with (
            locked_modules(modules_of(self._bound_sites.root)),
            self._connected(attachment, threading.current_thread()),
        ):
            yield

    @contextmanager
    def attached_for_all(self, attachment: Attachment) -> Iterator[None]:
        """Attach to calls of all threads. Modules are not locked: other threads may attach."""
        with self._connected(attachment, None):
            yield

    @contextmanager
    def _connected(self, attachment: Attachment, thread: threading.Thread | None) -> Iterator[None]:
        bound_sites = self._bound_sites
        with ExitStack() as stack:
            stack.enter_context(eager_attention(bound_sites.root))
            stack.enter_context(bound_sites.followed())
            stack.enter_context(ending_watches())
            attached = Attached(bound_sites, attachment, thread)
            stack.enter_context(connected(bound_sites.modules.values(), attached))
            yield

    def edits(self) -> tuple[Edit, ...]:
        """Return the edits in effect for this thread, outermost first.

        Edits made through another model over these modules are included, renamed to the layers
        and blocks of this model.
        """
        return tuple(
            named
            for attached in attached_to(self._bound_sites.modules.values())
            for edit in attached.attachment.edits
            if (named := self._as_named_here(edit, attached.bound_sites)) is not None
        )

    def _as_named_here(self, edit: Edit, bound_sites: BoundSites) -> Edit | None:
        """Translate an edit of another model to this one; None if it touches no shared site."""
        if bound_sites.root is self._bound_sites.root:
            return edit
        theirs = bound_sites.wiring.find(edit.block, edit.layer, edit.head)
        ours = self._bound_sites.site_like(theirs, bound_sites)
        if ours is None:
            return None
        if ours.layer == edit.layer and edit.touches(ours, self._bound_sites.wiring.main_block()):
            return edit
        return replace(edit, layer=ours.layer, block=ours.block)
