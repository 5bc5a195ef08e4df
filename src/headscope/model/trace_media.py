"""Trace images and recordings, alone or with a text, and locate their tokens.

Patches are found by changing strips of pixels: tokens whose first-layer keys change read from the
strip. Strips in rows and columns give each token its rectangle. Keys of a language model behind a
tower follow the tower's attention, so all its heads are ablated for the comparison. Class tokens,
registers and resampler tokens have no rectangle. Frames of recordings follow from the lengths that
the model itself computes.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig

from headscope.arguments import whole_number
from headscope.attention import Attention, BlockName
from headscope.errors import HeadscopeError, InputError, TruncationWarning, warn
from headscope.model import tracing
from headscope.model.edits import ablate
from headscope.model.encode import Messages, decoded_tokens, encode
from headscope.model.processing import MEDIA_INPUTS, prepare, sound_processor
from headscope.model.tap.dispatch import Attachment
from headscope.results.media import Media
from headscope.results.trace import Trace
from headscope.text.tokens import NO_WORD, Frame, Patch, Tokens

if TYPE_CHECKING:
    from headscope.model.model import Model


def _samples_per_token(
    config: PretrainedConfig, listener: Any, inputs: Mapping[str, Tensor], n_tokens: int
) -> int | None:
    """Return the samples of the recording for each of `n_tokens`; None if they may not be frames.

    From samples: the strides of the configured convolutions, if they give this number of tokens.
    From a spectrogram: the hops per token, if that is a whole number.
    """
    if (samples := inputs.get("input_values")) is not None and samples.ndim == 2:
        kernels, strides = (getattr(config, f"conv_{kind}", None) for kind in ("kernel", "stride"))
        if not kernels or not strides or len(kernels) != len(strides):
            return None
        n = samples.shape[1]
        for kernel, stride in zip(kernels, strides, strict=True):
            n = (n - kernel) // stride + 1
        return math.prod(strides) if n == n_tokens else None
    features = inputs.get("input_features")
    hop = getattr(listener, "hop_length", None)
    if features is None or features.ndim != 3 or not hop:
        return None
    sizes = list(features.shape[1:])
    n_features = getattr(listener, "feature_size", None)
    if n_features in sizes:
        sizes.remove(n_features)
    n_hops = sizes[0]
    return int(hop) * (n_hops // n_tokens) if len(sizes) == 1 and n_hops % n_tokens == 0 else None


N_STRIPS = 16
"""Strips of an image if the model states no patch size."""
WHOLE_SIDE = (0.0, 1.0)
NOISE = 0.5
"""Change of pixels; normalized pixels have size 1."""


class _Read(Exception):
    """Ends the forward pass once the layer was read."""


def find_patches(
    model: Model, inputs: Mapping[str, Tensor], block: BlockName, tower: BlockName
) -> list[Patch | None] | None:
    """Return the rectangle of the image for each token of `block`, or None for a token.

    `tower` is the block that reads the image (`pixel_values`, `… color row column`). The result is
    None if the tap sees no keys, or pixels are not in images.
    """
    pixels = inputs["pixel_values"]
    if pixels.ndim < 4:
        return None
    wiring = model.wiring_for(inputs)
    layer = wiring.of_block(block)[0].layer
    ablated = tuple(
        ablate(site.layer, head, block=tower)
        for site in (wiring.of_block(tower) if block != tower else ())
        for head in range(site.n_heads)
    )

    def keys(values: Tensor) -> Tensor | None:
        """Return the layer's keys, `token feature`, and stop the model there."""
        kept: list[Tensor] = []

        def read(attention: Attention) -> None:
            if attention.block == block and attention.layer == layer:
                if attention.keys is not None:
                    by_token = attention.keys.transpose(1, 2).flatten(2)
                    kept.append(by_token.flatten(0, 1).float())
                raise _Read

        attachment = Attachment(reader=read, edits=ablated, returns_weights=False)
        changed_inputs = {**inputs, "pixel_values": values}
        with torch.inference_mode(), model.attached(attachment, changed_inputs), suppress(_Read):
            model.module(**model.to_device(changed_inputs))
        return kept[0] if kept else None

    original = keys(pixels)
    if original is None:
        return None
    noise = NOISE * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(0))
    noise = noise.to(pixels)

    def changed(mask: Tensor) -> np.ndarray:
        other = keys(pixels + noise * mask)
        assert other is not None
        size = original.abs().amax(-1)
        moved: np.ndarray = ((other - original).abs().amax(-1) > 1e-5 * size).cpu().numpy()
        return moved

    height, width = pixels.shape[-2:]
    config = model.module.config
    parts = getattr(config, "vision_config", None), config
    sizes = (getattr(part, "patch_size", None) for part in parts)
    patch = next((size for size in sizes if size is not None), None)
    steps = max(1, height // N_STRIPS), max(1, width // N_STRIPS)
    if isinstance(patch, int) and patch > 0:
        steps = patch, patch
    elif isinstance(patch, list | tuple) and len(patch) >= 2:
        steps = int(patch[-2]), int(patch[-1])
    strips = [
        [(start, min(start + step, size)) for start in range(0, size, step)]
        for size, step in zip((height, width), steps, strict=True)
    ]
    by_axis = []
    for axis, edges in zip((-2, -1), strips, strict=True):
        rows = []
        for start, end in edges:
            mask = torch.zeros_like(pixels)
            mask.narrow(axis, start, end - start).fill_(1)
            rows.append(changed(mask))
        by_axis.append(np.array(rows))
    outer = pixels.shape[:-3]
    whole_images = torch.eye(outer.numel()).to(pixels).reshape(-1, *outer, 1, 1, 1)
    images = np.array([changed(mask) for mask in whole_images])
    return _rectangles(by_axis[0], by_axis[1], images, strips, (height, width))


def _rectangles(
    rows: np.ndarray,
    columns: np.ndarray,
    images: np.ndarray,
    strips: list[list[tuple[int, int]]],
    size: tuple[int, int],
) -> list[Patch | None]:
    """Make patches from the strips (`strip token`) and images (`image token`) that move a token."""
    edges: list[tuple[int, tuple[float, float], tuple[float, float]] | None] = []
    for token in range(rows.shape[1]):
        down = _run(rows[:, token], strips[0], size[0])
        across = _run(columns[:, token], strips[1], size[1])
        (read,) = np.nonzero(images[:, token])
        is_all = len(rows) * len(columns) > 1 and down == across == WHOLE_SIDE
        is_one = len(read) == 1 and not is_all
        edges.append((int(read[0]), down, across) if down and across and is_one else None)
    tops = sorted({edge[1] for edge in edges if edge})
    lefts = sorted({edge[2] for edge in edges if edge})

    def patch(image: int, down: tuple[float, float], across: tuple[float, float]) -> Patch:
        row, column = tops.index(down), lefts.index(across)
        return Patch(row, column, down[0], across[0], down[1], across[1], image)

    return [None if edge is None else patch(*edge) for edge in edges]


def _run(moved: np.ndarray, strips: list[tuple[int, int]], size: int) -> tuple[float, float] | None:
    """Return the start and end of the strips that move a token, if they are adjacent."""
    (numbers,) = np.nonzero(moved)
    if len(numbers) == 0 or numbers[-1] - numbers[0] + 1 != len(numbers):
        return None
    return strips[numbers[0]][0] / size, strips[numbers[-1]][1] / size


SHORT_SECONDS = 0.1
"""Shorter recordings may be too short for one frame."""
SPAN_SECONDS = 0.5
"""Length of the spans into which `by_word` joins frames."""


def trace_media(
    model: Model,
    text: str | Messages | None,
    image: object | None,
    audio: object | None,
    target: str | None,
    options: tracing.TraceOptions,
) -> Trace:
    """Trace media; see `Model.trace`."""
    generate = whole_number("generate", options.generate, 0)
    inputs, media = prepare(model, text, image, audio)
    seconds = media.seconds
    try:
        inputs, n_given = _with_decoder(model, inputs, target, generate)
        trace = tracing.run_trace(model, inputs, {}, options, n_cut=0)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, HeadscopeError) or media.sound is None or seconds >= SHORT_SECONDS:
            raise
        raise InputError(
            f"{model.name} cannot read a recording of {len(media.sound)} samples "
            f"({seconds:.4f} s): it is too short ({error})."
        ) from error
    stacks = {}
    for stack, name in tracing.IDS_OF_STACK.items():
        ids, numbered = inputs.get(name), trace.stack_tokens.get(stack)
        if model.tokenizer and ids is not None and numbered and ids.shape[1] == len(numbered):
            listed = ids[0].tolist()
            start = decoded_tokens(model.tokenizer, listed[:n_given])
            stacks[stack] = decoded_tokens(model.tokenizer, listed, start=start, is_generated=True)
    stacks |= _image_stacks(model, trace, inputs, stacks, media)
    for tower, frames in _frames(model, trace, inputs, media).items():
        stacks[tower] = _frame_tokens(frames, seconds)
        length, end = frames[-1].end - frames[-1].start, frames[-1].end
        if seconds - end <= max(SHORT_SECONDS, 2 * length):
            continue  # the last frames read beyond their strides
        message = f"The recording lasts {seconds:.1f} s and {model.name} reads {end:.1f} s"
        if not options.truncate:
            raise InputError(f"{message}. Shorten it, or pass truncate=True to cut it.")
        warn(f"{message}: the rest was cut.", TruncationWarning)
        n_cut = round((seconds - end) / length)
        trace = replace(trace, provenance={**trace.provenance, "n_cut": n_cut})
    return trace.with_tokens(stacks, media)


def _with_decoder(
    model: Model, inputs: dict[str, Tensor], target: str | None, generate: int
) -> tuple[dict[str, Tensor], int]:
    """Add the decoder's input or generated tokens; return the inputs and the prompt's length."""
    has_decoder = bool(model.module.config.is_encoder_decoder)
    tracing.check_target(model, target, generate, has_decoder=has_decoder)
    if target is not None:
        limit = model.info.max_length
        encoded = encode(model.require_tokenizer(), target, max_length=limit, as_target=True)
        target_ids = list(encoded.tokens.ids)
        start = tracing.decoder_start(model)
        listed = target_ids[:-1] if target_ids[0] == start else [start, *target_ids[:-1]]
        return inputs | {"decoder_input_ids": torch.tensor([listed])}, len(listed)
    prompt = inputs.get("input_ids")
    if not generate:
        return inputs, 0 if prompt is None else prompt.shape[1]
    ids = tracing.let_write(model, inputs, generate)
    if has_decoder:
        start = tracing.decoder_start(model)
        if int(ids[0, 0]) != start:
            ids = torch.cat([torch.tensor([[start]]), ids], 1)
        return inputs | {"decoder_input_ids": ids}, 1
    prompt = inputs["input_ids"]
    zeros = prompt.new_zeros(1, ids.shape[1] - prompt.shape[1])
    longer = {
        name: torch.cat([value, zeros.to(value)], 1) if value.shape == prompt.shape else value
        for name, value in inputs.items()
    }
    return longer | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, prompt.shape[1]


def _tower(trace: Trace, name: BlockName, stacks: Container[str]) -> BlockName | None:
    """Return the block that reads media: that of this name, or a main block without text."""
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
    tower = _tower(trace, "vision", stacks)
    if "pixel_values" not in inputs or not media.images:
        return {}
    if tower is None:
        counted = _grid_patches(model, inputs) if "self" in stacks else None
        return {} if counted is None else {"self": _with_patches(stacks["self"], counted)}
    patches = find_patches(model, inputs, tower, tower)
    if patches is None or not any(patches):
        return {}
    extra = itertools.count()
    names = [f"[+{next(extra)}]" if patch is None else patch.label for patch in patches]
    bare = Tokens.of(names, special=[patch is None for patch in patches])
    named = {str(tower): replace(bare, texts=("",), media_tokens=tuple(patches))}
    if "self" in stacks and tower != "self":
        inside = find_patches(model, inputs, "self", tower)
        if inside is not None and any(inside):
            named["self"] = _with_patches(stacks["self"], inside)
    return named


def _grid_patches(model: Model, inputs: Mapping[str, Tensor]) -> list[Patch | None] | None:
    """Return the rectangles of image tokens by the grid that the processor states (Qwen-VL).

    Its tower attends in windows, which the tap does not read. Tokens go row by row. None if their
    number is not that of the grid.
    """
    config, grid = model.module.config, inputs.get("image_grid_thw")
    merge = getattr(getattr(config, "vision_config", None), "spatial_merge_size", None)
    token = getattr(config, "image_token_id", None)
    if grid is None or merge is None or token is None:
        return None
    listed = [
        Patch(r, c, r / rows, c / columns, (r + 1) / rows, (c + 1) / columns, image)
        for image, (_, h, w) in enumerate(grid.tolist())
        for rows, columns in [(h // merge, w // merge)]
        for r, c in itertools.product(range(rows), range(columns))
    ]
    is_image = (inputs["input_ids"][0] == token).tolist()
    if sum(is_image) != len(listed):
        return None
    patches = iter(listed)
    return [next(patches) if flag else None for flag in is_image]


def _with_patches(tokens: Tokens, patches: Sequence[Patch | None]) -> Tokens:
    """Make tokens of a text with patches: each patch is a word outside the text."""
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
        media_tokens=tuple(patches),
    )


def _frames(
    model: Model, trace: Trace, inputs: Mapping[str, Tensor], media: Media
) -> dict[BlockName, list[Frame]]:
    """Return the frames of the block that reads the recording, if it has frames."""
    tower = _tower(trace, "audio", ("self",) if "input_ids" in inputs else ())
    if media.sound is None or tower is None or not any(name in inputs for name in MEDIA_INPUTS):
        return {}
    n_tokens = len(trace.stack_tokens[tower])
    listener = sound_processor(model.require_processor())
    step = _samples_per_token(model.module.config, listener, inputs, n_tokens)
    if step is None:
        return {}
    rate = int(listener.sampling_rate)
    return {tower: [Frame(i * step / rate, (i + 1) * step / rate) for i in range(n_tokens)]}


def _frame_tokens(frames: Sequence[Frame], seconds: float) -> Tokens:
    """Make tokens of frames, in words of half a second; frames after the end are special."""
    padding = [frame.start >= seconds for frame in frames]
    spans = [int(frame.start / SPAN_SECONDS + 1e-6) for frame in frames]
    n_spans = 1 + max((s for s, p in zip(spans, padding, strict=True) if not p), default=NO_WORD)
    names = [f"{SPAN_SECONDS * span:.1f} s" for span in range(n_spans)]
    words = [n_spans if p else s for s, p in zip(spans, padding, strict=True)]
    bare = Tokens.of([frame.label for frame in frames], special=padding, words=words)
    return replace(bare, texts=("",), word_texts=(*names, "padding"), media_tokens=tuple(frames))
