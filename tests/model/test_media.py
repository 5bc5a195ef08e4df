"""Images, recordings and chats: what tokens are is found by value, and attention is the model's."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile

import headscope as hs
from headscope.errors import FileFormatError, InputError
from headscope.model.model import Model
from headscope.model.processing import prepare, read_image, read_sound
from headscope.model.trace_media import find_patches
from headscope.results.files import piece_table, read_pieces
from headscope.text.tokens import Frame, Patch
from tests.model import media_zoo as zoo

SIDE, PATCH = zoo.SIDE, zoo.PATCH
GRID = [(row, column) for row in range(4) for column in range(4)]


def places(pieces: tuple[object, ...]) -> list[tuple[int, int] | None]:
    return [(p.row, p.column) if isinstance(p, Patch) else None for p in pieces]


@pytest.mark.parametrize(("make", "n_extra"), [(zoo.vit, 1), (zoo.dinov2, 5), (zoo.clip, 1)])
def test_patches_are_where_the_convolution_reads(make: Callable[[], Model], n_extra: int) -> None:
    """The reference: these families cut the image row by row, after their extra tokens."""
    model = make()
    trace = model.trace("the cat" if make is zoo.clip else None, image=zoo.picture())
    block = trace.blocks["vision" if make is zoo.clip else "self"]
    tokens = block.key_tokens
    assert places(tokens.media_tokens) == [None] * n_extra + GRID
    assert tokens.special == (True,) * n_extra + (False,) * 16
    (seen,) = trace.media.images
    for piece in tokens.media_tokens[n_extra:]:
        assert isinstance(piece, Patch)
        top, left = piece.row * PATCH, piece.column * PATCH
        expected = seen[top : top + PATCH, left : left + PATCH]
        np.testing.assert_array_equal(trace.media.thumbnail(piece), expected)


def test_the_image_is_what_the_model_saw() -> None:
    trace = zoo.vit().trace(image=zoo.picture(SIDE))  # nothing to resize
    np.testing.assert_array_equal(trace.media.images[0], zoo.picture(SIDE))


def test_clip_has_two_stacks_with_tokens_of_their_own() -> None:
    trace = zoo.clip().trace("the cat sat", image=zoo.picture())
    assert list(trace.blocks) == ["text", "vision"]
    assert trace.tokens == ("[CLS]", "the", "cat", "sat", "[SEP]")
    assert len(trace.vision.key_tokens) == 17
    with pytest.raises(InputError, match="reads a text beside an image"):
        zoo.clip().trace(image=zoo.picture())


def test_llava_knows_the_patches_behind_its_projector() -> None:
    trace = zoo.llava().trace("the cat", image=zoo.picture(), generate=3)
    tokens = trace.text
    assert places(tokens.media_tokens) == [*GRID, *[None] * (len(tokens) - 16)]
    assert tokens.tokens[:2] == ("0,0", "0,1")
    assert tokens.tokens[16:19] == ("\n", "the", " cat")
    assert tokens.texts[0].startswith("\nthe cat")
    assert tokens.generated == (False,) * 19 + (True,) * (len(tokens) - 19)
    assert tokens.word_texts[0] == "the"
    assert list(trace.blocks) == ["self", "vision"]
    assert len(trace.by_word().text.media_tokens) == len(trace.by_word().text)


def test_llava_attention_is_the_official_one() -> None:
    model = zoo.llava()
    trace = model.trace("the cat", image=zoo.picture())
    inputs, _ = prepare(model, "the cat", zoo.picture(), None)
    module = model.module
    implementation = module.config._attn_implementation
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        reference = module(**inputs, output_attentions=True)
        tower = module.model.vision_tower(inputs["pixel_values"], output_attentions=True)
    module.set_attn_implementation(implementation)
    for block, maps in (("self", reference.attentions), ("vision", tower.attentions)):
        found = trace.blocks[block].attention.values
        for ours, theirs in zip(found, maps, strict=True):
            np.testing.assert_array_equal(ours, theirs[0].numpy())


@pytest.mark.parametrize("change", ["reversed", "mixed"])
def test_patches_are_found_by_value_not_by_order(change: str) -> None:
    """Behind a projector that turns its tokens around, they are found turned around; behind one
    that mixes them all (as a resampler does), none is a patch."""
    model = zoo.llava()
    inputs, _ = prepare(model, "the cat", zoo.picture(), None)

    def alter(module: object, args: object, output: torch.Tensor) -> torch.Tensor:
        return output.flip(-2) if change == "reversed" else output + output.sum(-2, keepdim=True)

    hook = model.module.model.multi_modal_projector.register_forward_hook(alter)
    try:
        patches = find_patches(model, inputs, "self", "vision")
    finally:
        hook.remove()
    assert patches is not None
    expected = GRID[::-1] if change == "reversed" else [None] * 16
    assert places(tuple(patches[:16])) == expected
    assert places(tuple(patches[16:])) == [None] * 3


def test_a_chat_is_written_by_the_template() -> None:
    chat = [{"role": "user", "content": "the cat"}]
    trace = zoo.llava().trace(chat, image=zoo.picture())
    assert trace.text.texts[0] == "[user]the cat[assistant]"
    assert places(trace.text.media_tokens)[6:22] == GRID  # the image before the text
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]
    assert places(zoo.llava().trace(messages, image=zoo.picture()).text.media_tokens)[7:23] == GRID
    with pytest.raises(InputError, match="place 1 images, but 2 are given"):
        zoo.llava().trace(messages, image=[zoo.picture(), zoo.picture()])


def test_two_images_are_told_apart() -> None:
    trace = zoo.llava().trace("the cat", image=[zoo.picture(), 255 - zoo.picture()])
    images = [p.image for p in trace.text.media_tokens if isinstance(p, Patch)]
    assert images == [0] * 16 + [1] * 16
    assert len(trace.media.images) == 2
    with pytest.raises(InputError, match="<image> 1 times for 2 images"):
        zoo.llava().trace("<image> the cat", image=[zoo.picture(), zoo.picture()])


def test_chats_of_text_models(tiny_llama: Model, smollm2: Model) -> None:
    trace = smollm2.trace([{"role": "user", "content": "Hello"}], generate=2)
    assert trace.tokens[0] == "<|im_start|>"
    assert sum(trace.text.generated) == 2
    assert "Hello" in trace.text.texts[0]
    with pytest.raises(InputError, match="no chat template"):
        tiny_llama.trace([{"role": "user", "content": "the cat"}])
    with pytest.raises(InputError, match="pair= cannot be combined with chat"):
        smollm2.trace([{"role": "user", "content": "Hello"}], "there")
    with pytest.raises(InputError, match="template refused the messages"):
        smollm2.trace([{"role": "user"}, {"role": 3, "content": []}])


def test_every_form_of_an_image_gives_the_same_trace(tmp_path: Path) -> None:
    pixels = zoo.picture()
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    forms = [tmp_path / "picture.png", str(tmp_path / "picture.png"), Image.fromarray(pixels),
             pixels, pixels / 255, torch.tensor(pixels), [pixels]]  # fmt: skip
    traces = [zoo.vit().trace(image=form, vectors=False) for form in forms]
    for trace in traces[1:]:
        np.testing.assert_array_equal(trace.attention.values, traces[0].attention.values)
    assert read_image(pixels[..., 0]).mode == "RGB"


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("nothing.png", "There is no file 'nothing.png' to read an image from"),
        (np.zeros((3, 8, 8), np.uint8), r"\(row, column, color\) with 3 or 4"),
        (np.full((8, 8, 3), 7.0), "shares from 0 to 1; this one is float64 from 7 to 7"),
        (np.zeros((8, 8), np.int64), "this one is int64"),
        (object(), "Expected an image: a file's name, a Pillow image or an array, not object"),
    ],
)
def test_what_is_no_image_is_refused(image: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        zoo.vit().trace(image=image)


def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(InputError, match=r"'text\.png' cannot be read as an image"):
        zoo.vit().trace(image=tmp_path / "text.png")
    (tmp_path / "text.wav").write_text("no sound, and long enough to be read")
    with pytest.raises(InputError, match=r"'text\.wav' cannot be read as a WAV file"):
        zoo.wav2vec2().trace(audio=tmp_path / "text.wav")


def test_models_say_what_they_do_not_take(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match="has no processor for images and recordings"):
        tiny_bert.trace("the cat", image=zoo.picture())
    with pytest.raises(InputError, match="reads no recording"):
        zoo.vit().trace(audio=zoo.tone())
    with pytest.raises(InputError, match="reads no image"):
        zoo.wav2vec2().trace(image=zoo.picture())
    with pytest.raises(InputError, match="There is nothing to trace"):
        tiny_bert.trace()
    with pytest.raises(InputError, match="one text or one chat"):
        zoo.clip().trace(["the", "cat"], image=zoo.picture())
    with pytest.raises(InputError, match="has no decoder side"):
        zoo.llava().trace("the cat", image=zoo.picture(), target="it")
    with pytest.raises(InputError, match="encoder-decoder: say what its decoder reads"):
        zoo.whisper().trace(audio=zoo.tone())


def test_frames_of_samples_by_the_strides() -> None:
    """By hand: strides 5 · 8 · 8 = 320 samples, 0.02 s at 16,000 a second."""
    trace = zoo.wav2vec2().trace(audio=zoo.tone(0.5))
    frames = trace.text.media_tokens
    assert [f.start for f in frames if isinstance(f, Frame)] == [
        pytest.approx(0.02 * i) for i in range(len(trace.tokens))
    ]
    assert len(frames) == 24 or len(frames) == 25
    assert not any(trace.text.special)
    assert len(trace.media.clip(frames[3])) == 320  # type: ignore[arg-type]


def test_frames_of_a_spectrogram_and_padding() -> None:
    """Two seconds are 100 frames of 0.02 s; what lies behind the recording is padding."""
    trace = zoo.whisper().trace(audio=zoo.tone(0.7), target="the cat")
    tokens = trace.encoder.key_tokens
    assert tokens.media_tokens[35] == Frame(0.7, 0.72)
    assert tokens.special == (False,) * 35 + (True,) * 65
    words = trace.by_word()
    assert words.encoder.key_tokens.tokens == ("0.0 s", "0.5 s", "padding")
    assert words.encoder.key_tokens.media_tokens == (
        Frame(0, 0.5),
        Frame(0.5, 0.7),
        Frame(0.7, 2.0),
    )
    whole = trace.cross.attention.values[:, :, :, :25].sum(-1)
    np.testing.assert_allclose(words.cross.attention.values[:, :, :, 0], whole, atol=1e-5)


def test_whisper_writes(tmp_path: Path) -> None:
    trace = zoo.whisper().trace(audio=zoo.tone(0.7), generate=5)
    assert trace.decoder.query_tokens.generated == (False, *(True,) * 5)
    assert trace.cross.attention.sizes == {"layer": 2, "head": 4, "query": 6, "key": 100}


def test_every_form_of_a_recording(tmp_path: Path) -> None:
    sound = zoo.tone(0.4)
    whole = np.rint(sound * 32767).astype(np.int16)
    wavfile.write(tmp_path / "sound.wav", 16_000, whole)
    np.testing.assert_allclose(read_sound(tmp_path / "sound.wav", 16_000), sound, atol=1e-4)
    both = np.stack([sound, sound], axis=1)
    np.testing.assert_allclose(read_sound((both, 16_000), 16_000), sound, atol=1e-6)
    assert len(read_sound((sound, 8_000), 16_000)) == 2 * len(sound)
    unsigned = np.array([0, 128, 255], np.uint8)
    np.testing.assert_allclose(read_sound(unsigned, 8), [-1, 0, 127 / 128])
    for wrong, said in (
        (np.zeros((2, 2, 2)), "not of shape"),
        (np.array([0, 9.0]), "between -1 and 1; these reach 9"),
        ((sound, 0), "samples a second, not 0"),
        ("no.wav", "There is no file 'no.wav'"),
    ):
        with pytest.raises(InputError, match=said):
            read_sound(wrong, 16_000)


def test_saved_and_opened_with_the_trace(tmp_path: Path) -> None:
    for name, trace in (
        ("image", zoo.llava().trace("the cat", image=zoo.picture())),
        ("sound", zoo.whisper().trace(audio=zoo.tone(0.3), target="the cat")),
    ):
        trace.save(tmp_path / f"{name}.nc")
        again = hs.open(tmp_path / f"{name}.nc")
        assert isinstance(again, hs.Trace)
        assert again.stack_tokens == trace.stack_tokens
        for ours, theirs in zip(again.media.images, trace.media.images, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if trace.media.sound is not None:
            np.testing.assert_array_equal(again.media.sound, trace.media.sound)
            assert again.media.seconds == pytest.approx(0.3)
        assert "media" in again._repr_html_()


def test_damaged_pieces_are_refused() -> None:
    table = piece_table([Patch(0, 1, 0.0, 0.25, 0.25, 0.5), None, Frame(1.0, 2.0)])
    assert read_pieces(table) == (Patch(0, 1, 0.0, 0.25, 0.25, 0.5), None, Frame(1.0, 2.0))
    for row, column, value, error in (
        (0, 0, 7.0, FileFormatError),
        (0, 4, np.nan, FileFormatError),
        (0, 6, 5.0, InputError),
        (2, 2, 0.5, InputError),
    ):
        wrong = table.copy()
        wrong[row, column] = value
        with pytest.raises(error):
            read_pieces(wrong)
    with pytest.raises(FileFormatError, match=r"shape \(3, 7\)"):
        read_pieces(table[:, :7])


def test_a_folder_brings_its_processor(tmp_path: Path) -> None:
    model = zoo.vit()
    model.module.save_pretrained(tmp_path)
    model.processor.save_pretrained(tmp_path)
    trace = hs.load(tmp_path).trace(image=zoo.picture(), vectors=False)
    expected = model.trace(image=zoo.picture(), vectors=False)
    np.testing.assert_array_equal(trace.attention.values, expected.attention.values)


def test_an_edit_of_a_tower_acts_on_the_trace() -> None:
    model = zoo.llava()
    before = model.trace("the cat", image=zoo.picture())
    with model.edit(hs.ablate(0, 1, block="vision")):
        after = model.trace("the cat", image=zoo.picture())
    assert not after.vision.attention.values[0, 1].any()
    assert places(after.text.media_tokens) == places(before.text.media_tokens)
    assert not np.array_equal(after.hidden.values, before.hidden.values)


def test_towers_need_both_inputs() -> None:
    with pytest.raises(InputError, match="compares a text with an image"):
        zoo.clip().trace("the cat")


def test_images_of_numbers_are_refused_and_photos_stand_upright(tmp_path: Path) -> None:
    numbers = Image.fromarray((np.mgrid[:4, :6][0] * 1600).astype(np.uint16))
    with pytest.raises(InputError, match="mode 'I;16'"):
        read_image(numbers)
    photo = Image.new("RGB", (6, 4))
    exif = photo.getexif()
    exif[0x0112] = 6  # turned by a quarter
    photo.save(tmp_path / "photo.png", exif=exif)
    assert read_image(tmp_path / "photo.png").size == (4, 6)


def png_header(width: int, height: int) -> bytes:
    """A PNG file of these sizes that has almost no pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(99)))


@pytest.mark.parametrize("side", [10_001, 12_000, 30_000, 2**31 - 1])
def test_images_are_bounded_by_their_headers(tmp_path: Path, side: int) -> None:
    (path := tmp_path / "large.png").write_bytes(png_header(side, side))
    started = time.process_time()
    with pytest.raises(InputError, match=f"{side**2:,} pixels; at most 100,000,000 are read"):
        read_image(path)
    assert time.process_time() - started < 1


def test_arrays_are_bounded_as_files_are() -> None:
    pixels = np.broadcast_to(np.uint8(0), (30_000, 30_000, 3))
    with pytest.raises(InputError, match="30,000 × 30,000"):
        read_image(pixels)
    samples = np.broadcast_to(np.float32(0), (16_000 * 3600,))
    for audio in (samples, (samples[: 8000 * 3600], 8000)):
        with pytest.raises(InputError, match=r"60 minutes long .* at most 30 minutes are read"):
            read_sound(audio, 16_000)
    with pytest.raises(InputError, match="1,000,000,000 samples a second"):
        read_sound((np.zeros(9), 10**9), 16_000)


@pytest.mark.parametrize("kind", ["gif", "png", "tiff", "webp"])
def test_files_of_several_frames_are_refused(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "green", "blue")]
    frames[0].save(path := tmp_path / f"a.{kind}", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="several frames"):
        read_image(path)
    frames[0].save(path)
    assert read_image(path).size == (8, 8)


def wav_header(rate: int, n_bytes: int, chunks: bytes = b"") -> bytes:
    """A WAV file that declares this much, with eight bytes of sound."""
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate & 0xFFFFFFFF, 2, 16)
    start = b"RIFF" + struct.pack("<I", 0xFFFFFFFF) + b"WAVE" + chunks
    return (
        start
        + b"fmt "
        + struct.pack("<I", 16)
        + form
        + struct.pack("<4sI", b"data", n_bytes)
        + bytes(8)
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (wav_header(16_000, 16_000 * 2 * 3600 * 5), "300 minutes long"),
        (wav_header(8_000, 0xFFFFFFFE), "at most 30 minutes"),
        (wav_header(4_000_000_000, 8), "4,000,000,000 samples a second; at most 768,000"),
        (wav_header(16_000, 8, b"JUNK\0\0\0\0" * 5000), "has 1000 chunks before its samples"),
        (b"fLaC" + bytes(38), "cannot be read as a WAV file"),
        (b"RIFF", "cannot be read as a WAV file"),
        (b"", "cannot be read as a WAV file"),
    ],
)
def test_recordings_are_bounded_by_their_headers(tmp_path: Path, content: bytes, said: str) -> None:
    (path := tmp_path / "long.wav").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_sound(path, 16_000)
