"""A transformers model whose attention can be read and changed: where it happens is found on first
use, once for each kind of input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from headscope.attention import Attention, LayerReader
from headscope.errors import InputError, TapUnsupported
from headscope.model.edits import Edit
from headscope.model.identity import has_own_code
from headscope.model.private_api import SUPPORTS_SDPA
from headscope.model.tap.check import Check, wire
from headscope.model.tap.check_cache import check_key, environment, load_check, store_check
from headscope.model.tap.dispatch import AllRead, Attachment, attached_to
from headscope.model.tap.example import media_of
from headscope.model.tap.interface import locked_modules, modules_of
from headscope.model.tap.reference import uncached
from headscope.model.tap.sites import Wiring
from headscope.model.tap.tap import Tap

Checks = tuple[str, frozenset[str] | None, list[tuple[Wiring, Check]]]
"""Where self-checks were made, the media of the model's own one, and all of them."""
OUT_OF_TABLE = "index out of range in self"
"""What torch says of a row that a table of embeddings does not have."""


class Wired(NamedTuple):
    """Where attention happens for one kind of input, how that was checked, and the tap for it."""

    wiring: Wiring
    check: Check
    tap: Tap


class TappedModule:
    """A module and the taps on it: what `Model` is, apart from texts.

    Attributes:
        module: the transformers model, as it was loaded.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        example: Mapping[str, object] | None,
        *,
        is_from_files: bool = False,
    ) -> None:
        self.module = module
        self._example = example
        self._is_from_files = is_from_files
        self._wired: dict[frozenset[str], Wired] = {}
        """By the media that the forward pass is given: images change where attention happens."""
        self._own_media: frozenset[str] | None = None

    @property
    def wiring(self) -> Wiring:
        """Where the model's attention happens, given what the self-check made up itself."""
        return self._attach().wiring

    def wiring_for(self, inputs: Mapping[str, object]) -> Wiring:
        """Where attention happens when the model is given these inputs. An image or a sound
        that the self-check has not seen yet is checked first, with these very inputs.
        """
        return self._attach(inputs).wiring

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits in effect for this thread, outermost first. Edits act on the module, so
        those made through another `Model` over the same module are among them.
        """
        if not self._wired and not attached_to(modules_of(self.module)):
            return ()
        return self._attach().tap.edits()

    def _attach(self, inputs: Mapping[str, object] | None = None) -> Wired:
        """The wiring, its check and the tap for a forward pass with the media of `inputs`;
        without, for what the self-check makes up or was given as `example`.
        """
        media = self._own_media if inputs is None else media_of(inputs)
        if media in self._wired and not self._wired[media].tap.is_current():
            self._forget()
            media = None if inputs is None else media
        if media is None or media not in self._wired:
            with locked_modules(modules_of(self.module)):  # one thread checks, others wait for it
                media = self._own_media if inputs is None else media
                if media is None or media not in self._wired:
                    media = self._wire(inputs)
        return self._wired[media]

    def _forget(self) -> None:
        """Forget every self-check: layers were replaced, moved or taken away since."""
        self._wired.clear()
        self._own_media = None

    def _wire(self, inputs: Mapping[str, object] | None) -> frozenset[str]:
        """Run the self-check; returns the media it was run with."""
        example = self._example
        if inputs is not None and media_of(inputs) != media_of(example or {}):
            example = self.to_device(inputs) if media_of(inputs) else None
        wiring, check = self._checked(example)
        self._wired[wiring.media] = Wired(wiring, check, Tap(self.module, wiring))
        if inputs is None or example is self._example:
            self._own_media = wiring.media
        return wiring.media

    def _checked(self, example: Mapping[str, object] | None) -> tuple[Wiring, Check]:
        """The self-check, or the one that is remembered of the same files."""
        key = check_key(self.module) if self._is_from_files and example is None else None
        known = None if key is None else load_check(key)
        if known is not None:
            return known
        wiring, check = wire(self.module, example)
        if key is not None:
            store_check(key, wiring, check)
        return wiring, check

    def _checks(self) -> Checks:
        """The self-checks made so far, for a copy of the module in another process."""
        wired = [(wiring, check) for wiring, check, _ in self._wired.values()]
        return environment(), self._own_media, wired

    def _trust(self, checks: Checks) -> None:
        """Take over checks of the same module by another process, if that ran on this machine with
        these libraries; else the module is checked anew.
        """
        where, own_media, wired = checks
        if where == environment():
            self._own_media = own_media
            self._wired = {w.media: Wired(w, check, Tap(self.module, w)) for w, check in wired}

    @contextmanager
    def tapped(
        self,
        reader: LayerReader | None = None,
        *,
        scores: bool = False,
        returns_weights: bool = True,
        inputs: Mapping[str, object] | None = None,
    ) -> Iterator[None]:
        """Within the block, `reader` is called with every layer's `Attention` of any forward
        pass of `model.module`, whoever runs it (`generate` too).

        Args:
            reader: what to call; it should reduce, and not keep, what it is given.
            scores: also hand over the scores, which the softmax was taken of.
            returns_weights: let the model return its attention if asked to. Off, each
                layer's attention is freed before the next is computed.
            inputs: what the model will be given, where that holds an image or a sound.
        """
        attachment = Attachment(reader=reader, wants_scores=scores, returns_weights=returns_weights)
        with self.attached(attachment, inputs):
            yield

    @contextmanager
    def attached(
        self, attachment: Attachment, inputs: Mapping[str, object] | None = None
    ) -> Iterator[None]:
        """Like `tapped`, with everything the tap can do."""
        if attachment.returns_weights or not getattr(self.module, SUPPORTS_SDPA, False):
            # Fused attention returns None in place of weights. Classes that do not support
            # it were never written for that.
            attachment = replace(attachment, returns_weights=True)
        with self._attach(inputs).tap.attached(attachment):
            try:
                yield
            except IndexError as error:
                if str(error) != OUT_OF_TABLE:
                    raise
                raise InputError(
                    "A token's number is beyond the model's table of embeddings: the tokenizer "
                    "and the weights are not of one model. Load the tokenizer that was saved with "
                    "the model."
                ) from error

    def run(
        self,
        inputs: Mapping[str, object],
        reader: LayerReader,
        *,
        scores: bool = False,
        **options: object,
    ) -> ModelOutput:
        """One forward pass, its attention handed to `reader` layer by layer, without
        gradients; at most one layer's attention is held. Returns the model's output.
        """
        to_device = self.to_device(inputs)
        if not self.wiring_for(inputs).may_cache:
            to_device = uncached(self.module) | to_device
        with (
            torch.inference_mode(),
            self.tapped(reader, scores=scores, returns_weights=False, inputs=to_device),
        ):
            outputs: ModelOutput = self.module(**to_device | options)
            return outputs

    def read(self, inputs: Mapping[str, object], reader: LayerReader) -> None:
        """One forward pass for its attention alone, which is handed to `reader` layer by layer.

        It ends after the last layer's attention, where the self-check proved that this changes
        nothing; what the model computes later, a NaN among it, is then never seen. It runs to its
        end where anything else is attached: edits, hooks, modules that are moved between devices.
        """
        modules = modules_of(self.module)
        stops = self.wiring_for(inputs).stops
        if stops is None or attached_to(modules) or has_own_code(modules):
            self.run(inputs, reader)
            return
        attachment = Attachment(reader=reader, returns_weights=False, stops=True)
        to_device = self.to_device(inputs)
        with (
            contextlib.suppress(AllRead),
            torch.inference_mode(),
            self.attached(attachment, to_device),
        ):
            self.module(**(uncached(self.module) if stops == "uncached" else {}) | to_device)

    def to_device(self, inputs: Mapping[str, object]) -> dict[str, object]:
        """Inputs on the model's device."""
        device = self.module.device
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in inputs.items()}

    def _wired_for(self, edits: Sequence[Edit]) -> Wired:
        """The model's own wiring; or, where edits name a block that only an image or a sound
        brings, the wiring that one traced before was read by.
        """
        of_text = self._attach()
        named = {edit.block for edit in edits if isinstance(edit, Edit)} - {None}
        known = [of_text, *self._wired.values()]
        return next((wired for wired in known if named <= set(wired.wiring.blocks)), of_text)


def once(reader: LayerReader) -> LayerReader:
    """A reader of one forward pass, which a second pass inside it would mislead: it refuses to read
    a layer twice.
    """
    seen: set[tuple[str, int]] = set()

    def read(attention: Attention) -> None:
        place = attention.block, attention.layer
        if place in seen:
            raise TapUnsupported(
                f"Layer {attention.layer} ({attention.block}) was read twice: the model ran again "
                "inside its own forward pass. If a hook of yours runs it, remove the hook while "
                "headscope reads, or let it run a copy of the model."
            )
        seen.add(place)
        reader(attention)

    return read
