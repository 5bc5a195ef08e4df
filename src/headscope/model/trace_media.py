"""Traces of images and recordings, alone or beside a text; and the tokens they are made of."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headscope.arguments import whole_number
from headscope.attention import Block
from headscope.errors import HeadscopeError, InputError, TruncationWarning, warn
from headscope.model.chat import Messages
from headscope.model.encode import decoded_tokens, encode
from headscope.model.frames import find_frames
from headscope.model.patches import find_patches
from headscope.model.processing import MEDIA_INPUTS, Prepared, prepare, sound_processor
from headscope.model.trace_options import TraceOptions
from headscope.model.tracing import (
    IDS_OF_STACK,
    check_target,
    decoder_start,
    let_write,
    run_trace,
)
from headscope.results.media import Media
from headscope.results.trace import Trace
from headscope.text.align import NO_WORD
from headscope.text.pieces import Frame, Patch
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from headscope.model.model import Model

SHORT = 0.1
"""Seconds below which a recording may be too short for a model to make a frame of it."""
SPAN = 0.5
"""Seconds of the stretches into which `by_word` joins frames."""


def trace_media(
    model: Model,
    text: str | Messages | None,
    image: object | None,
    audio: object | None,
    target: str | None,
    options: TraceOptions,
) -> Trace:
    """See `Model.trace`."""
    generate = whole_number("generate", options.generate, 0)
    prepared = prepare(model, text, image, audio)
    with _telling_of_short_sounds(model, prepared.media):
        inputs, n_given = _with_decoder(model, prepared.inputs, target, generate)
        trace = run_trace(model, inputs, {}, options, n_cut=0)
    stacks = _text_stacks(model, trace, inputs, n_given)
    stacks |= _image_stacks(model, trace, inputs, stacks, prepared.media)
    sounds = _sound_stacks(model, trace, inputs, prepared)
    n_cut = sum(_n_cut(tokens, prepared.media.seconds) for tokens in sounds.values())
    if n_cut:
        _tell_of_cut(model, next(iter(sounds.values())), prepared.media, options)
        trace = replace(trace, about={**trace.about, "n_cut": n_cut})
    return trace.with_tokens(stacks | sounds, prepared.media)


@contextmanager
def _telling_of_short_sounds(model: Model, media: Media) -> Iterator[None]:
    """Within the block, whatever a model says of a very short recording is told as such."""
    try:
        yield
    except HeadscopeError:
        raise
    except (RuntimeError, ValueError) as error:
        if media.sound is None or media.seconds >= SHORT:
            raise
        raise InputError(
            f"{model.name} cannot read a recording of {len(media.sound)} samples "
            f"({media.seconds:.4f} s): it is too short ({error})."
        ) from error


def _n_cut(tokens: Tokens, seconds: float) -> int:
    """How many frames more the whole recording would have made."""
    last = tokens.pieces[-1] if tokens.pieces else None
    if not isinstance(last, Frame) or seconds - last.end <= max(SHORT, 2 * (last.end - last.start)):
        return 0  # what the last frames look at reaches beyond their strides
    return round((seconds - last.end) / (last.end - last.start))


def _tell_of_cut(model: Model, tokens: Tokens, media: Media, options: TraceOptions) -> None:
    last = tokens.pieces[-1]
    assert isinstance(last, Frame)
    told = f"The recording lasts {media.seconds:.1f} s and {model.name} reads {last.end:.1f} s"
    if not options.truncate:
        raise InputError(f"{told}. Shorten it, or pass truncate=True to cut it.")
    warn(f"{told}: the rest was cut.", TruncationWarning)


def _with_decoder(
    model: Model, inputs: dict[str, Tensor], target: str | None, generate: int
) -> tuple[dict[str, Tensor], int]:
    """Inputs with what the decoder reads or the model writes, and how many tokens of the
    sequence it goes on with were given.
    """
    check_target(model, target, generate, has_decoder=bool(model.module.config.is_encoder_decoder))
    if generate:
        return _written(model, inputs, generate)
    if target is not None:
        tokenizer = model.need_tokenizer()
        limit = model.info.max_length
        aim = list(encode(tokenizer, target, max_length=limit, as_target=True).tokens.ids)
        start = decoder_start(model)
        ids = aim[:-1] if aim[0] == start else [start, *aim[:-1]]
        return inputs | {"decoder_input_ids": torch.tensor([ids])}, len(ids)
    given = inputs.get("input_ids")
    return inputs, 0 if given is None else given.shape[1]


def _written(model: Model, inputs: dict[str, Tensor], n: int) -> tuple[dict[str, Tensor], int]:
    """Inputs with up to n tokens that the model writes, and how many it was given."""
    ids = let_write(model, inputs, n)
    if model.module.config.is_encoder_decoder:
        start = decoder_start(model)
        if int(ids[0, 0]) != start:
            ids = torch.cat([torch.tensor([[start]]), ids], 1)
        return inputs | {"decoder_input_ids": ids}, 1
    given = inputs["input_ids"]
    longer = {name: _longer(value, given, ids.shape[1]) for name, value in inputs.items()}
    return longer | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, given.shape[1]


def _longer(value: Tensor, ids: Tensor, n: int) -> Tensor:
    """An input with a number for each id, with zeros for those that were written."""
    if value.shape != ids.shape:
        return value
    return torch.cat([value, value.new_zeros(1, n - ids.shape[1])], 1)


def _text_stacks(
    model: Model, trace: Trace, inputs: Mapping[str, Tensor], n_given: int
) -> dict[str, Tokens]:
    """Tokens of the stacks that read ids, with those that the model wrote marked."""
    stacks = {}
    for stack, name in IDS_OF_STACK.items():
        ids = inputs.get(name)
        known = trace.stack_tokens.get(stack)
        if ids is None or known is None or model.tokenizer is None or ids.shape[1] != len(known):
            continue
        listed = ids[0].tolist()
        start = decoded_tokens(model.tokenizer, listed[:n_given])
        stacks[stack] = decoded_tokens(model.tokenizer, listed, start=start, is_generated=True)
    return stacks


def _tower(trace: Trace, name: Block, stacks: Container[str]) -> Block | None:
    """The block that reads an image or a sound: of that name, or the main one where it reads
    no text.

    Args:
        trace: of the input.
        name: of the block, if there is one for such media alone.
        stacks: those that read text.
    """
    if name in trace.blocks:
        return name
    main = trace.main.name
    return main if main not in stacks else None


def _image_stacks(
    model: Model,
    trace: Trace,
    inputs: Mapping[str, Tensor],
    stacks: Mapping[str, Tokens],
    media: Media,
) -> dict[str, Tokens]:
    """Tokens of the tower that reads the image, and of a text with the image's tokens in it."""
    if "pixel_values" not in inputs or not media.images:
        return {}
    tower = _tower(trace, "vision", stacks)
    if tower is None:
        return {}
    patches = find_patches(model, inputs, tower, tower)
    if patches is None or not any(patches):
        return {}
    named = {str(tower): _patch_tokens(patches)}
    if "self" in stacks and tower != "self":
        inside = find_patches(model, inputs, "self", tower)
        if inside is not None and any(inside):
            named["self"] = _with_patches(stacks["self"], inside)
    return named


def _patch_tokens(patches: Sequence[Patch | None]) -> Tokens:
    """Tokens of a sequence of patches; what is no patch is special."""
    extra = itertools.count()
    names = [f"[+{next(extra)}]" if patch is None else patch.label for patch in patches]
    bare = Tokens.of(names, special=[patch is None for patch in patches])
    return replace(bare, texts=("",), pieces=tuple(patches))


def _with_patches(tokens: Tokens, patches: Sequence[Patch | None]) -> Tokens:
    """A text with patches in it: each is shown as one, is its own word, and no part of the text."""
    text, names = "", list(tokens.tokens)
    whole, offsets = tokens.texts[-1], []
    for position, patch in enumerate(patches):
        start, end = (0, 0) if tokens.offsets is None else tokens.offsets[position]
        piece = whole[start:end] if patch is None else ""
        offsets.append((len(text), len(text) + len(piece)))
        text += piece
        names[position] = names[position] if patch is None else patch.label
    is_patch = [patch is not None for patch in patches]
    bare = replace(
        tokens,
        texts=(text,),
        tokens=tuple(names),
        special=tuple(map(operator.or_, tokens.special, is_patch)),
        offsets=None if tokens.offsets is None else tuple(offsets),
        words=(),
        word_texts=(),
    ).with_words()
    numbers = itertools.count(len(bare.word_texts))
    labels = tuple(patch.label for patch in patches if patch is not None)
    return replace(
        bare,
        special=tuple(s and not p for s, p in zip(bare.special, is_patch, strict=True)),
        words=tuple(
            next(numbers) if p else word for word, p in zip(bare.words, is_patch, strict=True)
        ),
        word_texts=bare.word_texts + labels,
        pieces=tuple(patches),
    )


def _sound_stacks(
    model: Model, trace: Trace, inputs: Mapping[str, Tensor], prepared: Prepared
) -> dict[str, Tokens]:
    """Tokens of the tower that reads the recording."""
    if prepared.media.sound is None or not any(name in inputs for name in MEDIA_INPUTS):
        return {}
    tower = _tower(trace, "audio", ("self",) if "input_ids" in inputs else ())
    if tower is None:
        return {}
    n_tokens = len(trace.stack_tokens[tower])
    listener = sound_processor(model.need_processor())
    assert listener is not None  # it prepared the recording
    frames = find_frames(model.module.config, listener, inputs, n_tokens)
    return {} if frames is None else {tower: _frame_tokens(frames, prepared.media.seconds)}


def _frame_tokens(frames: Sequence[Frame], seconds: float) -> Tokens:
    """Tokens of a sequence of frames, in words of half a second. Frames behind the end of the
    recording are padding: special, and one word together.
    """
    padding = [frame.start >= seconds for frame in frames]
    spans = [int(frame.start / SPAN + 1e-6) for frame in frames]
    n_spans = 1 + max((s for s, p in zip(spans, padding, strict=True) if not p), default=NO_WORD)
    names = [f"{SPAN * span:.1f} s" for span in range(n_spans)]
    words = [n_spans if p else s for s, p in zip(spans, padding, strict=True)]
    bare = Tokens.of([frame.label for frame in frames], special=padding, words=words)
    return replace(bare, texts=("",), word_texts=(*names, "padding"), pieces=tuple(frames))
