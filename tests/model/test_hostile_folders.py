"""Model folders from anywhere: what is wrong with them is said, soon, and nothing of them runs."""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import headscope as hs
from headscope.app.cli.main import main
from headscope.errors import InputError, ModelError
from headscope.model.weight_files import read_shapes
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import SUPPORTED, build

SECONDS = 10.0
"""CPU time a refusal may take on a slow machine; what it replaced took minutes."""
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as it should be."""
    folder = tmp_path_factory.mktemp("whole")
    build(next(m for m in SUPPORTED if m.name == "bert")).save_pretrained(folder)
    word_piece_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def refused(folder: Path, words: str, **options: Any) -> str:
    start = time.process_time()
    with pytest.raises(ModelError, match=words) as caught:
        hs.load(folder, **options)
    assert time.process_time() - start < SECONDS
    message = str(caught.value)
    for advice in ("weights_only", "trust_remote_code", "use_safetensors", "ignore_mismatched"):
        assert advice not in message
    return message


def configure(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 0.5, -1])
def test_cut_weights(folder: Path, keep: float) -> None:
    file = folder / WEIGHTS
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep) if keep == 0.5 else int(keep)])
    refused(folder, "model.safetensors is (cut|damaged)|bytes of weights")


HEADERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a list": lambda header: list(header),
    "no offsets": lambda header: {name: {"shape": [1], "dtype": "F32"} for name in header},
    "a shape that is not there": lambda header: {
        name: entry | {"shape": [10**12, 10**12]} for name, entry in header.items()
    },
    "a negative shape": lambda header: {
        name: entry | {"shape": [-1, -1]} for name, entry in header.items()
    },
    "offsets beyond the end": lambda header: {
        name: entry | {"data_offsets": [0, 2**62]} for name, entry in header.items()
    },
    "text for numbers": lambda header: {
        name: entry | {"data_offsets": ["0", "8"]} for name, entry in header.items()
    },
}


@pytest.mark.parametrize("kind", HEADERS)
def test_lying_headers(folder: Path, kind: str) -> None:
    file = folder / WEIGHTS
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    lying = json.dumps(HEADERS[kind](header)).encode()
    file.write_bytes(len(lying).to_bytes(8, "little") + lying + content[8 + length :])
    refused(folder, "model.safetensors is damaged, or not a safetensors file")


def test_a_header_of_gigabytes_or_endless_nesting(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((2**40).to_bytes(8, "little") + b"{}")
    refused(folder, "its header should have 1,099,511,627,776 bytes")
    deep = b"[" * 200_000
    (folder / WEIGHTS).write_bytes(len(deep).to_bytes(8, "little") + deep)
    refused(folder, "is damaged, or not a safetensors file")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"vocab_size": 10**7}, "asks for more than is stored|disagree"),
        ({"vocab_size": 10**12}, "asks for more than is stored"),
        ({"hidden_size": 10**6}, "asks for more than is stored"),
        ({"intermediate_size": 65}, r"disagree: .* stored as \(48,\), .* asks for \(65,\)"),
        ({"max_position_embeddings": 10**9}, "asks for more than is stored"),
        ({"num_hidden_layers": 10**5}, "asks for more than is stored"),
        ({"num_hidden_layers": 10**9}, r"config.json has num_hidden_layers = 1,000,000,000"),
        ({"num_labels": 10**9}, r"config.json has num_labels = 1,000,000,000"),
        ({"num_hidden_layers": 3}, "lacks 16 of the weights of BertModel"),
        ({"hidden_size": 33}, "Could not load"),
        ({"hidden_size": "32; rm -rf"}, "Could not load"),
        ({"hidden_size": -32}, "Could not load|disagree"),
        ({"num_attention_heads": 0}, "Could not load"),
        ({"hidden_act": "nonsense"}, "Could not load"),
        ({"pad_token_id": 10**6}, "Could not load"),
        ({"dtype": "nonsense"}, "Could not load"),
        ({"architectures": 3}, "Could not load"),
        ({"transformers_weights": "../../adapter_model.bin"}, "not a safetensors"),
        ({"transformers_weights": "adapter_model.bin"}, "not a safetensors"),
        ({"model_type": "mine", "auto_map": {"AutoConfig": "a.B"}}, "which is not run"),
    ],
    ids=str,
)
def test_lying_configurations(folder: Path, values: dict[str, Any], words: str) -> None:
    (folder / "a.py").write_text("raise SystemExit('this ran')")
    configure(folder, **values)
    refused(folder, words)


def test_what_is_no_model_is_no_architecture(folder: Path) -> None:
    configure(folder, architectures=["Trainer"])
    assert type(hs.load(folder).module).__name__ == "BertModel"


@pytest.mark.parametrize("content", ["", "[]", "null", "[" * 100_000, '{"model_type": []}', "\0"])
def test_configurations_that_are_none(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    refused(folder, "Could not load")


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (Path.touch, (self.path,))


def test_a_pickle_is_read_only_when_asked_for_and_nothing_in_it_runs(
    folder: Path, tmp_path: Path
) -> None:
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    refused(folder, "has no weights that can be read")
    ran = tmp_path / "it ran"
    pickled = folder / "pytorch_model.bin"
    for protocol in (2, 4):
        pickled.write_bytes(pickle.dumps({"a": Touch(ran)}, protocol))
        assert "--allow-pickle" in refused(folder, "pytorch_model.bin alone, a pickle")
        refused(folder, "contains more than weights|Could not load", allow_pickle=True)
    torch.save({"a": Touch(ran)}, pickled)
    refused(folder, "contains more than weights", allow_pickle=True)
    assert not ran.exists()
    torch.save(weights, pickled)
    refused(folder, "pytorch_model.bin alone, a pickle")
    model = hs.load(folder, allow_pickle=True)
    stored = model.module.state_dict()
    assert all(torch.equal(stored[name], value) for name, value in weights.items())
    configure(folder, vocab_size=10**8)
    refused(folder, "asks for more than is stored", allow_pickle=True)


def test_the_command_line_takes_a_pickle_when_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    with pytest.raises(SystemExit) as stop:
        main(["models", str(folder)])
    assert stop.value.code == 2
    assert "a pickle" in capsys.readouterr().err
    main(["models", str(folder), "--allow-pickle"])
    assert "2 layers" in capsys.readouterr().out


def test_safetensors_are_preferred_to_a_pickle(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"\x80")
    assert hs.load(folder, allow_pickle=True).module is not None
    torch.save(weights, folder / "pytorch_model.bin")
    save_file({}, folder / WEIGHTS, metadata={"format": "pt"})  # an empty one does not open the way
    refused(folder, "lacks .* of the weights")


def test_weights_in_parts(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, held in parts.items():
        save_file({name: weights[name] for name in held}, folder / part, metadata={"format": "pt"})
    where = {name: part for part, held in parts.items() for name in held}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    assert hs.load(folder).info.n_layers == 2
    (folder / "b.safetensors").write_bytes((folder / "b.safetensors").read_bytes()[:-9])
    refused(folder, "b.safetensors is damaged")
    (folder / "b.safetensors").unlink()
    refused(folder, "names 'b.safetensors', which is not there")
    index.write_text(json.dumps({"weight_map": {"a": "../model/a.safetensors"}}))
    refused(folder, "expected a file beside it")
    for content in ("[]", "{", '{"weight_map": 3}'):
        index.write_text(content)
        refused(folder, "is not an index of weight files")


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0", "model": {"type": "BPE"}}'])
def test_a_damaged_tokenizer(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    refused(folder, "The tokenizer of '.*' cannot be read")


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["cat"] = 50_000
    path.write_text(json.dumps(content))
    model = hs.load(folder)
    with pytest.raises(
        InputError, match="the tokenizer and the weights belong to different models"
    ):
        model.trace("the cat sat")
    assert model.trace("the mat").tokens


@pytest.mark.long
@pytest.mark.parametrize("member", SUPPORTED, ids=lambda member: member.name)
def test_the_shapes_of_every_family_are_taken(member: Any, tmp_path: Path) -> None:
    module = build(member)
    module.save_pretrained(tmp_path)
    shapes = read_shapes(tmp_path / WEIGHTS)
    stored = load_file(tmp_path / WEIGHTS)
    assert shapes == {name: tuple(tensor.shape) for name, tensor in stored.items()}
    assert type(hs.load(tmp_path).module) is type(module)
