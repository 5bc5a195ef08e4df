"""A model and its tap: trace an input, edit heads, compute gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, cast, overload

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscope.arguments import whole_number
from headscope.attention import BlockName
from headscope.errors import InputError, MissingObjective, TapUnsupported, UnknownName
from headscope.model.edits import Edit, check_edit
from headscope.model.encode import Messages, is_chat
from headscope.model.identity import structure_of, weights_version
from headscope.model.info import ModelInfo, Objective, describe, is_language_model, model_facts
from headscope.model.logits import read_predictions
from headscope.model.tap.dispatch import Attachment
from headscope.model.tapped import Checks, TappedModule
from headscope.model.trace_media import trace_media
from headscope.model.tracing import TraceOptions, encode_for, trace_inputs, trace_text
from headscope.notebook import facts_table
from headscope.results.effect_data import Gradients
from headscope.results.predictions import Predictions
from headscope.results.trace import Trace

if TYPE_CHECKING:
    from headscope.model.objective import Target
    from headscope.model.processing import Processor
    from headscope.model.tap.projection import Projection


class TraceArguments(TypedDict, total=False):
    """Options of `Model.trace`, for type checkers."""

    generate: int
    vectors: bool
    scores: bool | None
    layers: Sequence[int] | None
    keep: Literal["all", "top"]
    top: int
    heads: Sequence[int] | None
    norms: bool
    effects: bool
    truncate: bool


class Model(TappedModule):
    """A transformers model with a tap on every attention head. Made by `headscope.load`.

    Attributes:
        module: the transformers model.
        tokenizer: its tokenizer, or None.
        processor: its processor of images and recordings, or None.
        name: its name in views and reports.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        name: str,
        source: str = "live",
        notes: tuple[str, ...] = (),
        example: Mapping[str, object] | None = None,
        processor: Processor | None = None,
    ) -> None:
        super().__init__(module, example, is_from_files=source != "live")
        self.tokenizer = tokenizer
        self.processor = processor
        self.name = name
        self._source = source
        self._notes = notes
        self._info: ModelInfo | None = None
        self._projections: (
            tuple[int, Mapping[tuple[BlockName, int], Projection] | TapUnsupported] | None
        ) = None
        self._lasting = ExitStack()

    @property
    def info(self) -> ModelInfo:
        """Properties of the model and its tap. The first use runs the self-check."""
        wired = self._attach()
        if self._info is None or self._info.check is not wired.check:
            self._info = describe(self, wired, self._source, self._notes)
        return self._info

    @property
    def projections(self) -> Mapping[tuple[BlockName, int], Projection]:
        """Output projection of each block and layer, head by head; TapUnsupported if unproven."""
        from headscope.model.tap.projection import find_projections

        version = weights_version(self.module)
        if self._projections is None or self._projections[0] != version:
            try:
                self._projections = version, find_projections(self, self._example)
            except TapUnsupported as refusal:
                self._projections = version, refusal
        if isinstance(self._projections[1], TapUnsupported):
            raise self._projections[1]
        return self._projections[1]

    @overload
    def trace(  # type: ignore[overload-overlap]  # a str is a sequence of str
        self,
        text: str | Mapping[str, object] | Messages | None = ...,
        pair: str | None = ...,
        *,
        image: object | None = ...,
        audio: object | None = ...,
        target: str | None = ...,
        **options: Unpack[TraceArguments],
    ) -> Trace: ...

    @overload
    def trace(
        self,
        text: Sequence[str],
        pair: Sequence[str] | None = ...,
        *,
        target: Sequence[str] | None = ...,
        **options: Unpack[TraceArguments],
    ) -> list[Trace]: ...

    def trace(
        self,
        text: str | Sequence[str] | Mapping[str, object] | Messages | None = None,
        pair: str | Sequence[str] | None = None,
        *,
        image: object | None = None,
        audio: object | None = None,
        target: str | Sequence[str] | None = None,
        generate: int = 0,
        vectors: bool = True,
        scores: bool | None = None,
        layers: Sequence[int] | None = None,
        keep: Literal["all", "top"] = "all",
        top: int = 32,
        heads: Sequence[int] | None = None,
        norms: bool = False,
        effects: bool = False,
        truncate: bool = True,
        **unknown: object,
    ) -> Trace | list[Trace]:
        """Trace one input: the attention and vectors of every head.

        Args:
            text: a text; several texts, for a list of traces; a chat (dicts with `role` and
                `content`), by the model's template; or prepared inputs of one row
                (`{"pixel_values": …}`).
            pair: a second text for each, as in sentence-pair tasks.
            image: a Pillow image, a file name, an array of `row column color`; or a list of
                these. The model's processor prepares it.
            audio: the name of a WAV file, samples at the model's rate, or `(samples, rate)`.
            target: the decoder's input, for encoder-decoders.
            generate: maximum number of tokens to generate greedily and trace too. In
                encoder-decoders these are the decoder's.
            vectors: also keep queries, keys, values, head outputs and hidden states.
            scores: also keep the scores before the softmax. Default: only if they are more than
                `scale · q·k` (position biases, caps).
            layers: keep only these; attention grows with the square of the length.
            keep: `top` keeps the `top` strongest keys of each row and the sum of the rest, for
                long texts: `trace.top` instead of `trace.attention`.
            top: kept keys of each row.
            heads: with `keep="top"`, keep only these heads of each layer.
            norms: also keep the norm of each projected value, for `trace.norm_weighted()` and
                `trace.measure(over="norm")`.
            effects: also ablate each head alone and keep the predictions (`trace.effects`): the
                top ten, or the vector of a plain encoder. Costs some tens of forward passes.
            truncate: cut a long text with a warning; otherwise raise an error.
            unknown: an error that names the nearest option.
        """
        if unknown:
            known = inspect.signature(self.trace).parameters
            raise UnknownName.of("option of trace", next(iter(unknown)), list(known)[:-1])
        UnknownName.check("value of keep", keep, ("all", "top"))
        n_top = whole_number("top", top) if keep == "top" else None
        options = TraceOptions(
            vectors, scores, layers, norms, effects, generate, truncate, n_top, heads
        )
        has_media = image is not None or audio is not None
        if isinstance(text, Mapping):
            if pair is not None or target is not None or has_media or options.generate:
                raise InputError("Prepared inputs take no pair, image, audio, target or generate.")
            return trace_inputs(self, text, options)
        if has_media:
            if pair is not None or not (text is None or isinstance(text, str) or is_chat(text)):
                raise InputError("With an image or a recording, text must be one text or one chat.")
            return trace_media(self, text, image, audio, _as_one(target, "target"), options)
        if text is None:
            raise InputError("There is nothing to trace: give a text, an image or a recording.")
        if is_chat(text) or isinstance(text, str | bytes) or not isinstance(text, Sequence):
            if pair is not None and is_chat(text):
                raise InputError("pair= cannot be combined with chat messages.")
            single = _as_one(pair, "pair"), _as_one(target, "target")
            return trace_text(self, text, *single, options)
        texts = cast("Sequence[str]", text)
        pairs, targets = (_as_many(texts, x, n) for x, n in ((pair, "pair"), (target, "target")))
        return [
            trace_text(self, single, second, decoder_text, options)
            for single, second, decoder_text in zip(texts, pairs, targets, strict=True)
        ]

    def predict(
        self, text: str, pair: str | None = None, *, target: str | None = None, generate: int = 0
    ) -> Predictions:
        """Predict without tracing attention; the result prints as a table.

        Args:
            text: the text.
            pair: a second text, as in sentence-pair tasks.
            target: the decoder's input, for encoder-decoders.
            generate: maximum number of tokens to generate first.

        Raises:
            MissingObjective: the model is a plain encoder, which predicts nothing.
        """
        self.require_objective("A prediction")
        _, stacks, inputs = encode_for(
            self, text, pair, target=target, generate=generate, truncate=True
        )
        predictions = read_predictions(self, self.run(inputs), stacks)
        if predictions is None:
            raise MissingObjective(f"{self.info.architecture} returned no logits for its tokens.")
        return predictions

    @contextmanager
    def edit(self, *edits: Edit) -> Iterator[Model]:
        """Apply edits within the block: to `trace`, `gradients`, `generate` and any forward pass
        of `model.module`. Blocks nest.

            with model.edit(hs.ablate(3, 5), hs.set_attention(2, 1, query=4, key=0, weight=1.0)):
                trace = model.trace(text)
        """
        if not edits:
            raise InputError(
                "edit needs at least one edit: hs.ablate, set_attention, scale_neurons or edit."
            )
        wired = self._wired_for(edits)
        for edit in edits:
            check_edit(edit, wired.wiring)
        with wired.tap.attached(Attachment(edits=edits)):
            yield self

    def gradients(
        self,
        text: str,
        pair: str | None = None,
        *,
        target: Target | None = None,
        seed: int = 0,
        truncate: bool = True,
    ) -> Gradients:
        """Compute ∂L/∂a for every layer and head, for the model's own objective or any scalar.

        Causal models predict each next token. Encoders with a masked-language head predict 15 % of
        the tokens, which the mask token replaces. Encoder-decoders predict `target`; classifiers
        their most likely label.

        Args:
            text: the text.
            pair: a second text, as in sentence-pair tasks.
            target: another L: a label of a classifier, the token after the text (causal models) or
                at its masks (masked ones), both as −log p; or a function of the model's output,
                which is L itself. In encoder-decoders, the decoder's input.
            seed: seed for the choice of masked tokens.
            truncate: cut a long text with a warning; otherwise raise an error.

        Raises:
            MissingObjective: the weights have no head that predicts, so there is no loss.
        """
        from headscope.model.objective import gradients_of_text

        return gradients_of_text(self, text, pair, target=target, seed=seed, truncate=truncate)

    def require_tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the tokenizer; raise InputError if there is none."""
        if self.tokenizer is None:
            raise InputError(
                f"{self.name} has no tokenizer. Load it with one: headscope.load(model, "
                "tokenizer); or trace prepared inputs: model.trace({'pixel_values': …})."
            )
        return self.tokenizer

    def require_processor(self) -> Processor:
        """Return the processor; raise InputError if there is none."""
        if self.processor is None:
            raise InputError(
                f"{self.name} has no processor for images and recordings. Load it with one: "
                "headscope.load(model, processor=AutoProcessor.from_pretrained(…)); or trace "
                "prepared inputs: model.trace({'pixel_values': …})."
            )
        return self.processor

    def require_objective(self, purpose: str) -> Objective:
        """Return the objective; raise MissingObjective if the model predicts nothing."""
        if self.info.objective is None:
            reason = (
                f"its class {self.info.architecture} predicts nothing headscope has a loss for"
                if is_language_model(self.module)
                else "its weights have no language-model head and no classifier"
            )
            raise MissingObjective(
                f"{purpose} needs a model that predicts tokens or labels, but {self.name} does "
                f"not: {reason}. Load a checkpoint with its head (a …ForCausalLM, …ForMaskedLM, "
                "…ForConditionalGeneration or …ForSequenceClassification)."
            )
        return self.info.objective

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the model and its edits; another machine or library repeats the self-check."""
        make = functools.partial(
            Model,
            structure_of(self.module),
            self.tokenizer,
            name=self.name,
            source=self._source,
            notes=self._notes,
            example=self._example,
            processor=self.processor,
        )
        return _restored, (make, self.edits, self._checks())

    def __repr__(self) -> str:
        return f"<Model {self.name}: {type(self.module).__name__}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks, without running the slow self-check."""
        return facts_table(self.name, model_facts(self.module, self._source, self._info))


def _restored(make: Callable[[], Model], edits: tuple[Edit, ...], checks: Checks) -> Model:
    model = make()
    model._trust(checks)
    if edits:
        attached = model._attach().tap.attached(Attachment(edits=edits), all_threads=True)
        model._lasting.enter_context(attached)
    return model


def _as_one(other: str | Sequence[str] | None, name: str) -> str | None:
    if other is None or isinstance(other, str):
        return other
    raise InputError(f"{name} should be a string, not {type(other).__name__}: {other!r:.80}.")


def _as_many(
    texts: Sequence[str], others: str | Sequence[str] | None, name: str
) -> Sequence[str | None]:
    if others is None:
        return [None] * len(texts)
    if isinstance(others, str) or len(others) != len(texts):
        raise InputError(f"{len(texts)} texts need a list of {len(texts)} for {name}.")
    return list(others)
