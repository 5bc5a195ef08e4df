"""A transformers model whose attention can be read and edited.

The sites of attention are found on first use, once for each kind of input.
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
from headscope.model.tap.dispatch import AllRead, Attachment, Tap, attached_to
from headscope.model.tap.forward_pass import media_of, uncached
from headscope.model.tap.interface import locked_modules, modules_of
from headscope.model.tap.sites import Wiring

Checks = tuple[str, frozenset[str] | None, list[tuple[Wiring, Check]]]
"""Environment of the self-checks, media of the model's own check, and all checks."""
OUT_OF_TABLE = "index out of range in self"
"""torch's message for an id beyond the embedding table."""


class Wired(NamedTuple):
    """Wiring for one kind of input, its check, and its tap."""

    wiring: Wiring
    check: Check
    tap: Tap


class TappedModule:
    """A transformers model, `module`, and its taps: the base of `Model`, without texts."""

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
        """By the media among the inputs: images change the sites of attention."""
        self._own_media: frozenset[str] | None = None

    @property
    def wiring(self) -> Wiring:
        """Sites of attention for the self-check's own inputs."""
        return self._attach().wiring

    def wiring_for(self, inputs: Mapping[str, object]) -> Wiring:
        """Return the sites for these inputs. New kinds of media are checked with them first."""
        return self._attach(inputs).wiring

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Edits in effect for this thread, outermost first, also those of other `Model`s."""
        if not self._wired and not attached_to(modules_of(self.module)):
            return ()
        return self._attach().tap.edits()

    def _attach(self, inputs: Mapping[str, object] | None = None) -> Wired:
        """Return wiring, check and tap for the media of `inputs`, or for the self-check's own."""
        media = self._own_media if inputs is None else media_of(inputs)
        if media in self._wired and not self._wired[media].tap.is_current():
            self._wired.clear()  # layers were replaced, moved or removed
            self._own_media = None
            media = None if inputs is None else media
        if media is None or media not in self._wired:
            with locked_modules(modules_of(self.module)):  # one thread checks, others wait for it
                media = self._own_media if inputs is None else media
                if media is None or media not in self._wired:
                    media = self._wire(inputs)
        return self._wired[media]

    def _wire(self, inputs: Mapping[str, object] | None) -> frozenset[str]:
        """Run the self-check, or load the cached check of the same files."""
        example = self._example
        if inputs is not None and media_of(inputs) != media_of(example or {}):
            example = self.to_device(inputs) if media_of(inputs) else None
        key = check_key(self.module) if self._is_from_files and example is None else None
        checked = None if key is None else load_check(key)
        if checked is None:
            checked = wire(self.module, example)
            if key is not None:
                store_check(key, *checked)
        wiring, check = checked
        self._wired[wiring.media] = Wired(wiring, check, Tap(self.module, wiring))
        if inputs is None or example is self._example:
            self._own_media = wiring.media
        return wiring.media

    def _checks(self) -> Checks:
        """Return the self-checks so far, for a copy of the module in another process."""
        wired = [(wiring, check) for wiring, check, _ in self._wired.values()]
        return environment(), self._own_media, wired

    def _trust(self, checks: Checks) -> None:
        """Accept checks of another process, if it ran on this machine with these libraries."""
        origin, own_media, wired = checks
        if origin == environment():
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
        """Within the block, call `reader` with every layer's `Attention` of any forward pass of
        `model.module`, also within `generate`.

        Args:
            reader: the callback; it should reduce its input, not keep it.
            scores: also pass the scores before the softmax.
            returns_weights: let the model return its attention if requested. Otherwise each
                layer's attention is freed before the next is computed.
            inputs: the model's inputs, if they include an image or a recording.
        """
        attachment = Attachment(reader=reader, wants_scores=scores, returns_weights=returns_weights)
        with self.attached(attachment, inputs):
            yield

    @contextmanager
    def attached(
        self, attachment: Attachment, inputs: Mapping[str, object] | None = None
    ) -> Iterator[None]:
        """Attach to the model within the block, with all options of the tap."""
        wired = self._attach(inputs)
        is_proved = attachment.rows is not None and wired.wiring.has_rows
        if not is_proved and not getattr(self.module, SUPPORTS_SDPA, False):
            # Fused attention returns None instead of weights; classes without its support may fail.
            attachment = replace(attachment, returns_weights=True)
        with wired.tap.attached(attachment):
            try:
                yield
            except IndexError as error:
                if str(error) != OUT_OF_TABLE:
                    raise
                raise InputError(
                    "A token id or position is beyond the model's table of embeddings: the "
                    "tokenizer and the weights belong to different models, or the text is too "
                    "long. Load the tokenizer that was saved with the model, or shorten the text."
                ) from error

    def run(
        self,
        inputs: Mapping[str, object],
        reader: LayerReader | None = None,
        *,
        scores: bool = False,
        layers: frozenset[int] | None = None,
        rows: int | None = None,
        **options: object,
    ) -> ModelOutput:
        """Run one forward pass without gradients; `reader` gets each layer's attention in turn.

        `layers` are the only ones to read; others run in torch's fused attention. With `rows`,
        the reader gets blocks of that size.
        """
        moved = self.to_device(inputs)
        if not self.wiring_for(inputs).may_cache:
            moved = uncached(self.module) | moved
        attachment = Attachment(
            reader=reader, wants_scores=scores, returns_weights=False, layers=layers, rows=rows
        )
        with torch.inference_mode(), self.attached(attachment, moved):
            outputs: ModelOutput = self.module(**moved | options)
            return outputs

    def read(
        self,
        inputs: Mapping[str, object],
        reader: LayerReader,
        *,
        rows: int | None = None,
        computes_softmax: bool = False,
        layers: frozenset[int] | None = None,
    ) -> None:
        """Run one forward pass only for its attention, which `reader` gets layer by layer.

        With `rows`, the reader gets blocks of that size; with `computes_softmax`, it gets q·k
        and turns it into weights where that was proved. `layers` are the only ones to read.

        The pass ends after the last layer's attention if the self-check proved that the attention
        stays the same. Later values, including NaN, are then never computed. With other
        attachments, hooks or offloaded modules the pass runs to its end.
        """
        modules = modules_of(self.module)
        stops = self.wiring_for(inputs).stops
        if attached_to(modules) or has_own_code(modules):
            stops = None
        attachment = Attachment(reader, stops=stops is not None, rows=rows, layers=layers)
        attachment = replace(attachment, computes_softmax=computes_softmax, returns_weights=False)
        moved = self.to_device(inputs)
        if not self.wiring_for(inputs).may_cache:
            moved = uncached(self.module) | moved
        with contextlib.suppress(AllRead), torch.inference_mode(), self.attached(attachment, moved):
            self.module(**(uncached(self.module) if stops == "uncached" else {}) | moved)

    def to_device(self, inputs: Mapping[str, object]) -> dict[str, object]:
        """Move inputs to the model's device."""
        device = self.module.device
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in inputs.items()}

    def _wired_for(self, edits: Sequence[Edit]) -> Wired:
        """Return the model's own wiring, or that of traced media if only it has these blocks."""
        own = self._attach()
        blocks = {edit.block for edit in edits if isinstance(edit, Edit)} - {None}
        candidates = [own, *self._wired.values()]
        return next((wired for wired in candidates if blocks <= set(wired.wiring.blocks)), own)


def once(reader: LayerReader) -> LayerReader:
    """Wrap a reader of one forward pass so that reading a layer twice raises TapUnsupported."""
    seen: set[tuple[str, int, int]] = set()

    def read(attention: Attention) -> None:
        start = 0 if attention.rows is None else attention.rows.start
        key = attention.block, attention.layer, start
        if key in seen:
            raise TapUnsupported(
                f"Layer {attention.layer} ({attention.block}) was read twice: the model ran again "
                "inside its own forward pass. If a hook of yours runs it, remove the hook while "
                "headscope reads, or let it run a copy of the model."
            )
        seen.add(key)
        reader(attention)

    return read
