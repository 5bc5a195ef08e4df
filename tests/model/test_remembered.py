"""Self-checks are remembered for models from files, and never where anything differs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import headscope as hs
from headscope.atomic import read_sealed
from headscope.errors import TapUnsupported
from headscope.model import tapped
from headscope.model.tap import check_cache as remembered
from tests.results.sealing import seal_as_stranger

if TYPE_CHECKING:
    from headscope.model.model import Model


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A cache of its own; a number is appended for every self-check that really runs."""
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    ran: list[int] = []
    wire = tapped.wire  # type: ignore[attr-defined]

    def counted(*args: object) -> object:
        ran.append(1)
        return wire(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(tapped, "wire", counted)
    return ran


@pytest.fixture
def folder(tiny_bert: Model, tmp_path: Path) -> Path:
    tiny_bert.module.save_pretrained(tmp_path / "bert")
    assert tiny_bert.tokenizer is not None
    tiny_bert.tokenizer.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_folder_is_checked_once(folder: Path, checks: list[int]) -> None:
    first, second = hs.load(folder), hs.load(folder)
    assert not first.info.check.is_cached
    assert str(second.info.check) == f"{first.info.check} (cached)"
    assert len(checks) == 1
    assert second.wiring == first.wiring


def test_a_live_model_is_always_checked(tiny_bert: Model, checks: list[int]) -> None:
    for _ in range(2):
        assert not hs.load(tiny_bert.module, tiny_bert.tokenizer).info.check.is_cached
    assert len(checks) == 2


def test_other_weights_another_type_or_another_code_are_checked(
    folder: Path, checks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hs.load(folder).wiring  # noqa: B018
    changed = hs.load(folder)
    with torch.no_grad():
        next(changed.module.parameters()).data[0, 0] += 1e-3
    scaled = hs.load(folder)
    next(m for m in scaled.module.modules() if hasattr(m, "scaling")).scaling *= 2
    hooked = hs.load(folder)
    hooked.module.register_forward_hook(lambda *_: None)
    double = hs.load(folder, dtype="float64")
    for n, model in enumerate((changed, scaled, hooked, double), 2):
        assert not model.info.check.is_cached
        assert len(checks) == n
    monkeypatch.setattr(remembered, "environment", lambda: "another version")
    hs.load(folder).wiring  # noqa: B018
    assert len(checks) == 6


@pytest.mark.parametrize("damage", ["", "{}", '{"key": "another"}'])
def test_a_damaged_or_deleted_file_is_made_again(
    folder: Path, checks: list[int], damage: str, tmp_path: Path
) -> None:
    hs.load(folder).wiring  # noqa: B018
    (file,) = (tmp_path / "cache" / "checks").iterdir()
    good = json.loads(read_sealed(file))
    file.write_text(damage)
    hs.load(folder).wiring  # noqa: B018
    assert len(checks) == 2
    assert json.loads(read_sealed(file)) == good


def test_a_check_of_another_user_does_not_count(
    folder: Path, checks: list[int], tmp_path: Path
) -> None:
    hs.load(folder).wiring  # noqa: B018
    (file,) = (tmp_path / "cache" / "checks").iterdir()
    seal_as_stranger(file)
    assert not hs.load(folder).info.check.is_cached
    assert len(checks) == 2


def test_a_refused_model_is_not_remembered(
    folder: Path, checks: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise TapUnsupported("no")

    monkeypatch.setattr(tapped, "wire", refuse)
    with pytest.raises(TapUnsupported):
        hs.load(folder).wiring  # noqa: B018
    assert not (tmp_path / "cache" / "checks").exists()


def test_a_copy_in_another_process_is_trusted_on_the_same_machine_alone(
    tiny_llama: Model, checks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = hs.load(tiny_llama.module, tiny_llama.tokenizer)
    model.wiring  # noqa: B018
    packed = pickle.dumps(model)
    assert pickle.loads(packed).wiring == model.wiring
    assert len(checks) == 1
    monkeypatch.setattr(tapped, "environment", lambda: "another machine")
    assert pickle.loads(packed).wiring == model.wiring
    assert len(checks) == 2
