"""Read images and recordings, and prepare a model's inputs by the family's own processor."""

from __future__ import annotations

import inspect
import itertools
import math
import os
import re
import struct
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from headscope.errors import InputError
from headscope.model.encode import Messages, n_placed_images, written_chat
from headscope.model.tap.forward_pass import takes
from headscope.model.weight_files import quiet
from headscope.results.media import Media

if TYPE_CHECKING:
    from headscope.model.model import Model

MAX_CHANNELS = 8
MAX_PIXELS = 100_000_000
"""Maximum pixels of an image, by its header: 100 megapixels are 300 MB as RGB."""
MAX_SECONDS = 1800
MAX_RATE = 768_000
MAX_CHUNKS = 1000
SOUND = "a recording: the name of a WAV file, samples, or (samples, rate)"


def read_image(image: object) -> Image.Image:
    """Read an image as RGB: a file, a Pillow image, or an array of bytes or shares of 1."""
    if isinstance(image, Image.Image):
        return _in_colors(image)
    if isinstance(image, str | os.PathLike):
        path = _file(image, "an image")
        try:
            with warnings.catch_warnings():  # our limit is lower
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                with Image.open(path) as opened:  # reads the header alone
                    return _in_colors(opened)
        except Image.DecompressionBombError as error:
            number = re.search(r"\d+", str(error))
            raise _too_large(path.name, int(number[0]) if number else 0) from None
        except (UnidentifiedImageError, OSError, SyntaxError, struct.error) as error:
            raise InputError(f"{path.name!r} cannot be read as an image: {error}") from None
    pixels = _array(image, "an image: a file's name, a Pillow image or an array")
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if not is_image or not pixels.size:
        raise InputError(
            f"An image as an array should be (row, column), or (row, column, color) with 3 or 4 "
            f"colors, not {pixels.shape}."
        )
    _check_pixels(pixels.shape[1], pixels.shape[0])
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        if not np.issubdtype(pixels.dtype, np.floating) or not 0 <= low <= high <= 1:
            raise InputError(
                f"An image as an array should be bytes, or shares from 0 to 1; this one is "
                f"{pixels.dtype} from {low:.4g} to {high:.4g}."
            )
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return Image.fromarray(pixels).convert("RGB")


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise _too_large(f"{width:,} × {height:,}", width * height)


def _too_large(image: str, pixels: int) -> InputError:
    return InputError(
        f"The image ({image}) has {pixels:,} pixels; at most {MAX_PIXELS:,} are read. Scale it "
        "down: models see some hundred pixels a side."
    )


def _in_colors(image: Image.Image) -> Image.Image:
    """Rotate the image upright by its EXIF data and convert it to RGB bytes."""
    if not image.width or not image.height:
        raise InputError(f"The image has no pixels: it is {image.width} × {image.height}.")
    _check_pixels(image.width, image.height)
    # An MPO is a photo with previews after it.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise InputError(
            f"The image has several frames (animated or multi-page {image.format}). Save "
            "the frame to trace as a file of its own, or give it as an array."
        )
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        raise InputError(
            f"The image has one channel of numbers (Pillow's mode {image.mode!r}), not of bytes. "
            "Scale it to shares from 0 to 1 and give the array."
        )
    return ImageOps.exif_transpose(image).convert("RGB")


def read_sound(audio: object, rate: int) -> np.ndarray:
    """Read one channel of samples at the model's `rate` per second, float32 from -1 to 1.

    `audio` is the name of a WAV file, samples at `rate`, or samples and their rate. Several
    channels (`sample channel`) are averaged.
    """
    recorded_rate = rate
    if isinstance(audio, str | os.PathLike):
        from scipy.io import wavfile

        path = _file(audio, "a recording")
        try:
            _check_wav(path)
            recorded_rate, samples = wavfile.read(path)
        except (ValueError, struct.error, EOFError) as error:
            raise InputError(
                f"{path.name!r} cannot be read as a WAV file: {error} Convert it (ffmpeg -i "
                f"FILE out.wav), or give its samples: audio=(samples, rate)."
            ) from None
    elif isinstance(audio, tuple) and len(audio) == 2:
        samples, recorded_rate = _array(audio[0], SOUND), audio[1]
        is_integer = isinstance(recorded_rate, int | np.integer)
        if isinstance(recorded_rate, bool) or not is_integer or recorded_rate <= 0:
            raise InputError(
                f"The rate of a recording should be samples a second, not {recorded_rate!r}."
            )
    else:
        samples = _array(audio, SOUND)
    _check_length(len(samples) if samples.ndim else 0, int(recorded_rate))
    if samples.ndim == 2 and 1 <= samples.shape[1] <= MAX_CHANNELS:
        samples = _floats(samples).mean(axis=1)
    if samples.ndim != 1 or not samples.size:
        raise InputError(
            f"A recording should be samples, or (sample, channel), not of shape {samples.shape}."
        )
    mono = _floats(samples)
    if not np.isfinite(mono).all() or np.abs(mono).max() > 2:
        raise InputError(
            f"Samples should lie between -1 and 1; these reach {float(np.abs(mono).max()):.4g}."
        )
    if recorded_rate == rate:
        return mono
    from scipy.signal import resample_poly  # a slow import

    common = math.gcd(int(recorded_rate), rate)
    resampled = resample_poly(mono, rate // common, int(recorded_rate) // common)
    return np.asarray(resampled, dtype=np.float32)


def _check_length(n_samples: int, rate: int) -> None:
    if rate > MAX_RATE:
        raise InputError(
            f"The recording has {rate:,} samples a second; at most {MAX_RATE:,} are read. Check "
            "its header, or resample it."
        )
    if n_samples > MAX_SECONDS * max(rate, 1):
        raise InputError(
            f"The recording is {n_samples / max(rate, 1) / 60:,.0f} minutes long ({n_samples:,} "
            f"samples at {rate:,} a second); at most {MAX_SECONDS // 60} minutes are read. Cut it."
        )


def _check_wav(path: Path) -> None:
    """Check the rate and length that a WAV file declares: scipy reserves memory for them."""
    with path.open("rb") as file:
        order: Literal["little", "big"] = "big" if file.read(4) == b"RIFX" else "little"
        file.seek(12)
        rate = sample_bytes = 0
        for _ in range(MAX_CHUNKS):
            name, size = file.read(4), int.from_bytes(file.read(4), order)
            if name == b"fmt ":
                content = file.read(min(size, 16))
                rate = int.from_bytes(content[4:8], order)
                sample_bytes = int.from_bytes(content[12:14], order)
                size -= len(content)
            elif name == b"data":
                _check_length(size // max(sample_bytes, 1), rate)
                return
            elif len(name) < 4:
                return  # scipy's error says what is missing
            file.seek(size + size % 2, os.SEEK_CUR)
    raise InputError(
        f"{path.name!r} has {MAX_CHUNKS} chunks before its samples, unlike a WAV file."
    )


def _floats(samples: np.ndarray) -> np.ndarray:
    """Convert integer samples of WAV files to shares of the largest."""
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    if samples.dtype == np.uint8:  # the only unsigned type of WAV files
        return ((samples.astype(np.float32)) - 128) / 128
    if samples.dtype.kind != "i":
        raise InputError(f"Samples should be numbers, not {samples.dtype}.")
    return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)


def _file(name: str | os.PathLike[str], content: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r} to read {content} from.")
    return path


def _array(values: object, expected: str) -> np.ndarray:
    for name in ("detach", "cpu"):
        values = getattr(values, name, lambda values=values: values)()
    try:
        array = np.asarray(values)
    except ValueError:  # parts of different shapes
        raise InputError(f"Expected {expected}, not parts of different shapes.") from None
    if array.dtype.kind not in "uif":
        raise InputError(f"Expected {expected}, not {type(values).__name__}.")
    return array


Processor = Callable[..., Mapping[str, object]]
"""Preparer of a model's inputs; transformers has several kinds, without a common base."""
MEDIA_INPUTS = ("pixel_values", "input_features", "input_values")
"""Inputs of images or sound, in all families."""


def image_processor(processor: object) -> Any:
    """Return the part of a processor that prepares images, or None."""
    part = getattr(processor, "image_processor", None)
    return processor if part is None and hasattr(processor, "image_mean") else part


def sound_processor(processor: object) -> Any:
    """Return the part of a processor that prepares recordings, or None."""
    part = getattr(processor, "feature_extractor", None)
    return processor if part is None and hasattr(processor, "sampling_rate") else part


def prepare(
    model: Model, text: str | Messages | None, image: object | None, audio: object | None
) -> tuple[dict[str, Tensor], Media]:
    """Prepare inputs of one row with the model's processor; return them and the media seen."""
    processor = model.require_processor()
    image_list = image if isinstance(image, list) else [image]
    if not image_list:
        raise InputError("image is an empty list. Give at least one image, or leave it out.")
    images = [read_image(item) for item in image_list if item is not None]
    if images and image_processor(processor) is None:
        raise InputError(f"{model.name} reads no image: its processor prepares none.")
    arguments: dict[str, object] = {"images": images} if images else {}
    sound, rate = None, 0
    if audio is not None:
        listener = sound_processor(processor)
        if listener is None:
            raise InputError(f"{model.name} reads no recording: its processor prepares none.")
        rate = int(listener.sampling_rate)
        sound = read_sound(audio, rate)
        is_whole = getattr(processor, "feature_extractor", None) is not None
        arguments |= {"audio" if is_whole else "raw_speech": sound, "sampling_rate": rate}
    main = model.module.main_input_name
    if text is not None and main in MEDIA_INPUTS and not takes(model.module, "input_ids"):
        hint = " Pass the decoder's text as target='…'."
        raise InputError(
            f"{model.name} reads no text beside its {main}: leave it out."
            + hint * bool(model.module.config.is_encoder_decoder)
        )
    prompt = _prompt(model, processor, text, len(images))
    if prompt is not None:
        arguments["text"] = prompt
        tokenizer = model.tokenizer
        if tokenizer is not None and tokenizer.bos_token and prompt.startswith(tokenizer.bos_token):
            arguments["add_special_tokens"] = False  # the template wrote it
    with quiet():
        try:
            encoding = processor(**arguments, return_tensors="pt")
        except (TypeError, ValueError) as error:
            raise InputError(f"{model.name}'s processor refused the input: {error}") from error
    parameters = inspect.signature(model.module.forward).parameters
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    inputs = {
        name: value.to(model.module.dtype) if value.is_floating_point() else value
        for name, value in encoding.items()
        if isinstance(value, Tensor) and (takes_all or name in parameters)
    }
    ids, limit = inputs.get("input_ids"), model.info.max_length
    if ids is not None and len(ids) != 1:
        raise InputError(f"The processor made {len(ids)} rows of the input; a trace has one.")
    if ids is not None and limit is not None and ids.shape[1] > limit:
        raise InputError(
            f"The input has {ids.shape[1]} tokens; {model.name} takes {limit}. Shorten the text."
        )
    seen = _seen_images(inputs, image_processor(processor))
    return inputs, Media(seen, sound, rate)


def _prompt(
    model: Model, processor: Processor, text: str | Messages | None, n_images: int
) -> str | None:
    """Return the processor's text, with a placeholder for each image."""
    placeholder = getattr(processor, "image_token", None) if n_images else None
    if text is None:
        if placeholder is None and n_images and getattr(processor, "tokenizer", None) is not None:
            raise InputError(
                f"{model.name} reads a text beside an image: model.trace('a cat', image=…)."
            )
        return placeholder * n_images if placeholder is not None else None
    if not isinstance(text, str):
        return _from_template(model, processor, text, n_images)
    if not text.strip():
        raise InputError(f"text is empty ({text!r}). Give at least one word, or leave it out.")
    if placeholder is None:
        return text
    n_named = text.count(placeholder)
    if n_named not in (0, n_images):
        raise InputError(
            f"The text has {placeholder} {n_named} times for {n_images} images. Name each once, "
            "or none: then they come first."
        )
    return text if n_named else f"{placeholder * n_images}\n{text}"


def _from_template(model: Model, processor: Processor, messages: Messages, n_images: int) -> str:
    """Apply the chat template. Images that no message contains come before the first text."""
    chat = [dict(message) for message in messages]
    for number, message in enumerate(chat):
        content = message.get("content")
        is_parts = isinstance(content, list) and all(isinstance(part, Mapping) for part in content)
        if not isinstance(content, str) and not is_parts:
            raise InputError(
                f"Message {number} of the chat has the content {content!r:.60}. Expected a text, "
                'or a list of parts: [{"type": "image"}, {"type": "text", "text": "…"}].'
            )
    n_placed = n_placed_images(chat)
    if n_placed not in (0, n_images):
        raise InputError(f"The messages place {n_placed} images, but {n_images} are given.")
    if n_images and not n_placed:
        first = next((m for m in chat if m["role"] == "user"), chat[0])
        content = first["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        first["content"] = [{"type": "image"}] * n_images + parts
    if getattr(processor, "chat_template", None) is None:
        raise InputError(f"{model.name}'s processor has no chat template: give a text.")
    return written_chat(processor, chat, takes_parts=True)


def _seen_images(inputs: Mapping[str, Tensor], processor: Any) -> tuple[np.ndarray, ...]:
    """Undo the normalization of pixels (`… color row column`); return the images as bytes."""
    pixels, grid = inputs.get("pixel_values"), inputs.get("image_grid_thw")
    if pixels is not None and pixels.ndim == 2 and grid is not None:
        parts = zip(pixels.split(grid.prod(-1).tolist()), grid, strict=True)
        images = (_unfolded(part, shape, processor)[None] for part, shape in parts)
        seen = (_seen_images({"pixel_values": image}, processor) for image in images)
        return tuple(itertools.chain.from_iterable(seen))
    if pixels is None or pixels.ndim < 4 or pixels.shape[-3] != 3:
        return ()
    values = pixels.detach().float().cpu().reshape(-1, *pixels.shape[-3:]).numpy()
    if getattr(processor, "do_normalize", False):
        both = np.array([processor.image_std, processor.image_mean], np.float32)
        std, mean = both[..., None, None]
        values = values * std + mean
    if getattr(processor, "do_rescale", False):
        values = values / float(processor.rescale_factor)
    images = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return tuple(np.ascontiguousarray(image.transpose(1, 2, 0)) for image in images)


def _unfolded(patches: Tensor, grid: Tensor, processor: Any) -> Tensor:
    """Return the image (`color row column`) of patches in a line, as Qwen-VL's processor cuts it.

    Patches that are merged into one token follow one another.
    """
    _, rows, columns = (int(n) for n in grid)
    merge, side = int(processor.merge_size), int(processor.patch_size)
    first = patches[: rows * columns].reshape(
        rows // merge, columns // merge, merge, merge, 3, -1, side, side
    )[:, :, :, :, :, 0]
    return first.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, rows * side, columns * side)
