"""A model and its tap: trace an input, edit heads, ask for gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.generic import ModelOutput

from headscope.attention import Block, LayerReader
from headscope.errors import InputError, TapUnsupported
from headscope.model.edit import Edit, check_edit
from headscope.model.info import ModelInfo, describe, model_facts
from headscope.model.options import Messages, Options
from headscope.model.predictor import Predictor
from headscope.model.tap.attachment import Attachment
from headscope.model.tap.check import Check, wire
from headscope.model.tap.claims import claimed, modules_of
from headscope.model.tap.example import media_of
from headscope.model.tap.junction import uses_of
from headscope.model.tap.official import uncached
from headscope.model.tap.sites import Wiring
from headscope.model.tap.tap import Tap
from headscope.model.transfer import structure_of
from headscope.notebook import facts_table
from headscope.results.trace import Trace

if TYPE_CHECKING:
    from headscope.model.tap.projection import Projection


class Model(Predictor):
    """A transformers model with a tap on every attention head. Made by `headscope.load`.

    Attributes:
        module: the transformers model, as it was loaded.
        tokenizer: its tokenizer, or None.
        processor: what prepares its images and recordings, or None.
        name: what to call it in views and reports.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        name: str,
        source: str = "live",
        has_lm_head: bool = False,
        notes: tuple[str, ...] = (),
        example: Mapping[str, object] | None = None,
        processor: Any = None,
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.processor = processor
        self.name = name
        self._source = source
        self._has_lm_head = has_lm_head
        self._notes = notes
        self._example = example
        self._wired: dict[frozenset[str], tuple[Wiring, Check, Tap]] = {}
        """By the media that the forward pass is given: images change where attention happens."""
        self._own_media: frozenset[str] | None = None
        self._info: ModelInfo | None = None
        self._projections: (
            tuple[int, Mapping[tuple[Block, int], Projection] | TapUnsupported] | None
        ) = None
        self._lasting = ExitStack()

    @property
    def info(self) -> ModelInfo:
        """What the model is, and how the tap reads it. The first use runs the self-check."""
        if self._info is None:
            wiring, check, _ = self._attach()
            self._info = describe(
                self.module,
                self.tokenizer,
                wiring,
                check,
                name=self.name,
                source=self._source,
                has_lm_head=self._has_lm_head,
                notes=self._notes,
            )
        return self._info

    @property
    def wiring(self) -> Wiring:
        """Where the model's attention happens, given what the self-check made up itself."""
        return self._attach()[0]

    def wiring_for(self, inputs: Mapping[str, object]) -> Wiring:
        """Where attention happens when the model is given these inputs. An image or a sound
        that the self-check has not seen yet is checked first, with these very inputs.
        """
        return self._attach(inputs)[0]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits in effect for this thread, outermost first. Edits act on the module, so
        those made through another `Model` over the same module are among them.
        """
        if not self._wired and not uses_of(modules_of(self.module)):
            return ()
        return self._attach()[2].edits()

    def _attach(self, inputs: Mapping[str, object] | None = None) -> tuple[Wiring, Check, Tap]:
        """The wiring, its check and the tap for a forward pass with the media of `inputs`;
        without, for what the self-check makes up or was given as `example`.
        """
        media = self._own_media if inputs is None else media_of(inputs)
        if media is None or media not in self._wired:
            with claimed(modules_of(self.module)):  # one thread checks, others wait for it
                media = self._own_media if inputs is None else media
                if media is None or media not in self._wired:
                    media = self._wire(inputs)
        return self._wired[media]

    def _wire(self, inputs: Mapping[str, object] | None) -> frozenset[str]:
        """Run the self-check; returns the media it was run with."""
        example = self._example
        is_own = inputs is None or media_of(inputs) in (frozenset(), media_of(example or {}))
        if inputs is not None and media_of(inputs) != media_of(example or {}):
            example = None if is_own else self.placed(inputs)
        wiring, check = wire(self.module, example)
        self._wired[wiring.media] = wiring, check, Tap(self.module, wiring)
        if inputs is None or example is self._example:
            self._own_media = wiring.media
        return wiring.media

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
        if attachment.returns_weights or not getattr(self.module, "_supports_sdpa", False):
            # Fused attention returns None in place of weights. Classes that do not support
            # it were never written for that.
            attachment = replace(attachment, returns_weights=True)
        with self._attach(inputs)[2].attached(attachment):
            yield

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
        placed = self.placed(inputs)
        if not self.wiring_for(inputs).may_cache:
            placed = uncached(self.module) | placed
        with (
            torch.inference_mode(),
            self.tapped(reader, scores=scores, returns_weights=False, inputs=placed),
        ):
            outputs: ModelOutput = self.module(**placed | options)
            return outputs

    def placed(self, inputs: Mapping[str, object]) -> dict[str, object]:
        """Inputs on the model's device."""
        device = self.module.device
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in inputs.items()}

    @overload
    def trace(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self,
        text: str | Mapping[str, object] | Messages | None = ...,
        pair: str | None = ...,
        *,
        image: object | None = ...,
        audio: object | None = ...,
        target: str | None = ...,
        generate: int = ...,
        vectors: bool = ...,
        scores: bool | None = ...,
        layers: Sequence[int] | None = ...,
        norms: bool = ...,
        truncate: bool = ...,
    ) -> Trace: ...

    @overload
    def trace(
        self,
        text: Sequence[str],
        pair: Sequence[str] | None = ...,
        *,
        target: Sequence[str] | None = ...,
        generate: int = ...,
        vectors: bool = ...,
        scores: bool | None = ...,
        layers: Sequence[int] | None = ...,
        norms: bool = ...,
        truncate: bool = ...,
    ) -> list[Trace]: ...

    def trace(
        self,
        text: str | Sequence[str] | Mapping[str, Any] | Messages | None = None,
        pair: str | Sequence[str] | None = None,
        *,
        image: object | None = None,
        audio: object | None = None,
        target: str | Sequence[str] | None = None,
        generate: int = 0,
        vectors: bool = True,
        scores: bool | None = None,
        layers: Sequence[int] | None = None,
        norms: bool = False,
        truncate: bool = True,
    ) -> Trace | list[Trace]:
        """Everything one input does in every attention head.

        Args:
            text: a text; several texts, for a list of traces; a chat (dicts with `role` and
                `content`), by the model's template; or prepared inputs of one row
                (`{"pixel_values": …}`).
            pair: a second text for each, as in sentence-pair tasks.
            image: a Pillow image, the name of a file, an array of `row column color`; or a list
                of them. The model's processor prepares it.
            audio: the name of a WAV file, samples at the rate the model takes, or
                `(samples, rate)`.
            target: what the decoder reads, for encoder-decoders.
            generate: let the model continue by up to so many tokens (greedily), and trace
                them too. In encoder-decoders it writes the decoder's side.
            vectors: also keep queries, keys, values, head outputs and hidden states.
            scores: also keep what the softmax was taken of. By default only where that is
                more than `scale · q·k` (position biases, caps).
            layers: keep only these; attention grows with the square of the length.
            norms: also keep how long each value is behind the output projection, for
                `trace.by_norm()` and `trace.measure(over="norm")`.
            truncate: cut a text that is too long, with a warning; else it is an error.
        """
        from headscope.model.dispatch import trace_any

        kept = Options(vectors=vectors, scores=scores, layers=layers, norms=norms)
        return trace_any(
            self,
            text,
            pair,
            image=image,
            audio=audio,
            target=target,
            generate=generate,
            options=kept,
            truncate=truncate,
        )

    @contextmanager
    def edit(self, *edits: Edit) -> Iterator[Model]:
        """Within the block, the model runs with these edits: in `trace`, `gradients`,
        `generate` and any forward pass of `model.module`. Blocks nest.

            with model.edit(hs.ablate(3, 5), hs.set_attention(2, 1, query=4, key=0, weight=1.0)):
                trace = model.trace(text)
        """
        if not edits:
            raise InputError("edit needs at least one edit: ablate, set_attention, scale_neurons.")
        wiring, _, tap = self._wired_for(edits)
        for edit in edits:
            check_edit(edit, wiring)
        with tap.attached(Attachment(edits=edits)):
            yield self

    def _wired_for(self, edits: Sequence[Edit]) -> tuple[Wiring, Check, Tap]:
        """The model's own wiring; or, where edits name a block that only an image or a sound
        brings, the wiring that one traced before was read by.
        """
        own = self._attach()
        named = {edit.block for edit in edits} - {None}
        known = [own, *self._wired.values()]
        return next((wired for wired in known if named <= set(wired[0].blocks)), own)

    def need_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, or an error that says how to give one."""
        if self.tokenizer is None:
            raise InputError(
                f"{self.name} has no tokenizer. Load it with one: headscope.load(model, "
                "tokenizer); or trace prepared inputs: model.trace({'pixel_values': …})."
            )
        return self.tokenizer

    def need_processor(self) -> Any:
        """The processor, or an error that says how to give one."""
        if self.processor is None:
            raise InputError(
                f"{self.name} has no processor for images and recordings. Load it with one: "
                "headscope.load(model, processor=AutoProcessor.from_pretrained(…)); or trace "
                "prepared inputs: model.trace({'pixel_values': …})."
            )
        return self.processor

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model for another process. The edits in effect stay in effect there, in
        all threads; the self-check runs anew.
        """
        options = {
            "name": self.name,
            "source": self._source,
            "has_lm_head": self._has_lm_head,
            "notes": self._notes,
            "example": self._example,
            "processor": self.processor,
        }
        return _restored, (structure_of(self.module), self.tokenizer, options, self.edits)

    def __repr__(self) -> str:
        return f"<Model {self.name}: {type(self.module).__name__}>"

    def _repr_html_(self) -> str:
        """A table for notebooks. It never runs the self-check, which may take a while."""
        return facts_table(self.name, model_facts(self.module, self._source, self._info))


def _restored(
    module: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    options: Mapping[str, Any],
    edits: tuple[Edit, ...],
) -> Model:
    model = Model(module, tokenizer, **options)
    if edits:
        tap = model._attach()[2]
        model._lasting.enter_context(tap.attached_for_all(Attachment(edits=edits)))
    return model
