"""`headscope verify` reads everything and says what is damaged, and what follows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headscope as hs
from headscope.app.cli.main import main
from headscope.atomic import cache_folder
from headscope.model.packaged.pinned import PACKAGED
from tests.run.corpora import make_corpus
from tests.run.shards import small_shards, stop_after

if TYPE_CHECKING:
    from headscope.model.model import Model


def verify(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code: object = 0
    try:
        main(["verify", str(path)])
    except SystemExit as stop:
        code = stop.code
    assert isinstance(code, int)
    return code, capsys.readouterr().out


def flip(path: Path, place: int = -200) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.fixture
def run(tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run, and checkpoints of a stopped one below it."""
    small_shards(monkeypatch)
    hs.analyze(tiny_bert, make_corpus(10), "distance", out=tmp_path / "run")
    with monkeypatch.context() as patched:
        stop_after(3, patched)
        with pytest.raises(KeyboardInterrupt):
            hs.analyze(tiny_bert, make_corpus(30), "distance", out=tmp_path / "run" / "stopped")
    return tmp_path / "run"


def test_sound(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = verify(run, capsys)
    assert code == 0
    assert shown.splitlines()[-1] == "4 sound, 0 damaged"
    assert verify(run / "result.nc", capsys)[0] == 0


@pytest.mark.parametrize(
    ("name", "consequence"),
    [
        ("result.nc", "The next run into this folder measures it again"),
        ("stopped/shards/*.npz", "The next run into this folder measures it again"),
        ("plan.json", "a run into this folder is refused"),
    ],
)
def test_damaged(
    run: Path, name: str, consequence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = run.glob(name)
    flip(file)
    code, shown = verify(run, capsys)
    assert code == 1
    (line,) = [line for line in shown.splitlines() if line.startswith("DAMAGED")]
    assert str(file) in line
    assert consequence in line
    assert shown.splitlines()[-1] == "3 sound, 1 damaged"


def test_caches(tiny_bert: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = make_corpus(20)
    options = {"cache": tmp_path / "cache", "epochs": 1, "progress": False}
    probe = hs.train_probe(tiny_bert, sentences, sentences, "attention", **options)
    assert verify(tmp_path / "cache", capsys)[0] == 0
    (values,) = (tmp_path / "cache").glob("*/attention.npy")
    flip(values)
    code, shown = verify(tmp_path / "cache", capsys)
    assert code == 1
    assert "the next probe stores it again" in shown
    again = hs.train_probe(tiny_bert, sentences, sentences, "attention", **options)
    assert again.scores.identical(probe.scores)
    assert verify(tmp_path / "cache", capsys)[0] == 0


@pytest.mark.skipif(not PACKAGED["minilm"].is_installed(), reason="minilm is not installed")
def test_a_damaged_self_check_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    hs.load("minilm").info  # noqa: B018, runs the check
    (file,) = (tmp_path / "checks").glob("*.json")
    content = file.read_bytes()
    assert hs.load("minilm").info.route
    flip(file, content.index(b'"wiring"') + 40)
    assert verify(tmp_path, capsys)[0] == 1
    hs.load("minilm").info  # noqa: B018
    assert verify(tmp_path, capsys)[0] == 0
    assert json.loads(file.read_bytes()[:-80]) == json.loads(content[:-80])


def test_what_is_not_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        with pytest.raises(SystemExit) as stop:
            main(["verify", str(path)])
        assert stop.value.code == 2
    shutil.rmtree(tmp_path)
