"""Images, recordings and chats that cannot be traced as they are: told, not dropped or cut."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from headscope.errors import InputError, TruncationWarning
from tests.model import media_zoo as zoo


def test_images_without_pixels_are_refused() -> None:
    for model in (zoo.vit(), zoo.clip()):
        text = None if model is zoo.vit() else "the cat"
        for size in ((0, 0), (0, 5), (5, 0)):
            with pytest.raises(InputError, match="no pixels"):
                model.trace(text, image=Image.new("RGB", size))
        with pytest.raises(InputError, match="empty list"):
            model.trace(text, image=[])


def test_a_placeholder_without_an_image_is_no_word() -> None:
    model = zoo.llava()
    ids = torch.tensor([[5, model.module.config.image_token_id, 6]])
    chat = [{"role": "user", "content": "<image> cat"}]
    for given in ("the<image> cat", {"input_ids": ids}, chat):
        with pytest.raises(InputError, match=r"is <image>: it stands for the image, but none"):
            model.trace(given)
    with pytest.raises(InputError, match=r"Token 1 of the input is <image>.* \(image=…"):
        model.trace("the<image> cat", generate=2)
    with pytest.raises(InputError, match="stands for the image"):
        model.predict("the<image> cat")
    assert len(model.trace("the<image> cat", image=zoo.picture()).text) == 18


def test_a_text_is_not_dropped_where_none_is_read() -> None:
    with pytest.raises(InputError, match="reads no text beside its pixel_values"):
        zoo.vit().trace("the cat", image=zoo.picture())
    with pytest.raises(InputError, match=r"looks at images and reads no text: model.trace\(image"):
        zoo.vit().trace("the cat")
    with pytest.raises(InputError, match="text as target="):
        zoo.whisper().trace("the cat", audio=zoo.tone(), generate=2)


@pytest.mark.parametrize("message", [{}, {"content": None}, {"content": ["a"]}, {"content": 3}])
def test_messages_without_a_content(message: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"Message 0 .* Expected a text, or a list of parts"):
        zoo.llava().trace([{"role": "user", **message}], image=zoo.picture())


def test_a_chat_by_the_template_of_the_processor() -> None:
    """Tokenizers of models that see often have none of their own."""
    model = zoo.llava()
    assert model.require_tokenizer().chat_template is None
    trace = model.trace([{"role": "user", "content": "the cat"}])
    assert trace.text.texts[0] == "[user]the cat[assistant]"
    with pytest.raises(InputError, match="place 1 images, but none is given"):
        model.trace([{"role": "user", "content": [{"type": "image"}]}])


def test_no_message_is_lost_in_a_template_that_reads_parts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = zoo.llava()
    parts_alone = (
        "{% for m in messages %}[{{ m.role }}]"
        "{% for p in m.content | selectattr('type', 'equalto', 'image') %}<image>{% endfor %}"
        "{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %}"
        "{% endfor %}"
    )
    monkeypatch.setattr(model.processor, "chat_template", parts_alone)
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the cat"}]
    assert "[system]be brief[user]" in model.trace(chat, image=zoo.picture()).text.texts[0]
    assert model.trace(chat).text.texts[0] == "[system]be brief[user]the cat"
    monkeypatch.setattr(model.processor, "chat_template", "{{ raise_exception('no') }}")
    with pytest.raises(InputError, match="template refused the messages: no"):
        model.trace(chat, image=zoo.picture())


def test_a_recording_that_is_cut_is_told() -> None:
    model, longer = zoo.whisper(), zoo.tone(3.0)
    with pytest.warns(TruncationWarning, match=r"lasts 3.0 s and .* reads 2.0 s"):
        trace = model.trace(audio=longer, generate=2)
    assert trace.provenance["n_cut"] == 50
    with pytest.raises(InputError, match=r"lasts 3.0 s"):
        model.trace(audio=longer, generate=2, truncate=False)
    for seconds in (0.5, 2.0):
        with warnings.catch_warnings():
            warnings.simplefilter("error", TruncationWarning)
            assert model.trace(audio=zoo.tone(seconds), generate=2).provenance["n_cut"] == 0
            assert zoo.wav2vec2().trace(audio=zoo.tone(seconds)).provenance["n_cut"] == 0


@pytest.mark.parametrize("n", [1, 10])
def test_a_recording_too_short_for_a_frame(n: int) -> None:
    with pytest.raises(InputError, match=f"recording of {n} samples .* too short"):
        zoo.wav2vec2().trace(audio=np.zeros(n, np.float32))
    with pytest.raises(InputError, match="parts of different shapes"):
        zoo.wav2vec2().trace(audio=[zoo.tone(), 16_000])
