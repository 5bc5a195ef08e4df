"""Damaged run folders: a run goes on in one with its own numbers, or says what is wrong."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import HeadscopeError
from headscope.run import checkpoint
from headscope.run.analyze import analyze
from headscope.run.progress import Meter
from tests.fuzz.hostile import damaged, fuzz, quick
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model

METRICS = ["null_share", "exemplars"]


class Enough(Exception):
    """The run was stopped."""


@pytest.fixture
def stopped(tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was stopped when half of its shards were done."""
    small_shards(monkeypatch)
    monkeypatch.setattr(checkpoint, "FOLD_EVERY", 2)
    advance = Meter.advance
    shards = 0

    def stop(self: Meter, *amount: int) -> None:
        nonlocal shards
        advance(self, *amount)
        shards += 1
        if shards == 5:
            raise Enough

    with monkeypatch.context() as patch:
        patch.setattr(Meter, "advance", stop)
        with pytest.raises(Enough):
            analyze(tiny_bert, make_corpus(50), METRICS, out=tmp_path / "run")
    return tmp_path / "run"


def test_a_run_goes_on_in_a_damaged_folder(tiny_bert: Model, stopped: Path) -> None:
    corpus = make_corpus(50)
    expected = analyze(tiny_bert, corpus, METRICS)
    files = sorted(path.relative_to(stopped) for path in stopped.rglob("*") if path.is_file())
    assert len(files) >= 3

    @fuzz("damaged runs")
    @given(st.sampled_from(files), st.data())
    def attempt(name: Path, data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder, quick(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = Path(shutil.copytree(stopped, Path(folder) / "run"))
            if data.draw(st.booleans()):
                (out / name).write_bytes(data.draw(damaged((out / name).read_bytes(), most=2)))
            else:
                (out / name).unlink()
            try:
                result = analyze(tiny_bert, corpus, METRICS, out=out, progress=False)
            except HeadscopeError:
                assert not (out / "result.nc").exists()
                return
            assert_same_bits(expected, result)
            assert not [path for path in out.rglob("*") if path.suffix == ".part"]

    attempt()
