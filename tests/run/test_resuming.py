"""`headscope.analyze` goes on where it was stopped, and sees what was damaged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import xarray as xr

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError
from headscope.run import checkpoint
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards, stop_after

if TYPE_CHECKING:
    from headscope.model.model import Model


def test_resumes_and_opens_what_is_done(tiny_bert: Model, tmp_path: Path) -> None:
    corpus = make_corpus(60)
    whole = analyze(tiny_bert, corpus, out=tmp_path / "whole")
    assert not (tmp_path / "whole" / "shards").exists()
    assert_same_bits(analyze(tiny_bert, corpus, out=tmp_path / "whole"), whole)
    plain = xr.open_dataset(tmp_path / "whole" / "result.nc", engine="h5netcdf")
    assert plain["distance"].dims == ("layer", "head")
    assert plain["distance"].attrs["paper"] == "Vig & Belinkov 2019, Eq. 6, Figure 11"
    plain.close()


def test_goes_on_after_any_shard(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    monkeypatch.setattr(checkpoint, "FOLD_EVERY", 3)
    corpus = make_corpus(63)
    whole = analyze(tiny_bert, corpus, out=tmp_path / "whole")
    from headscope.run.engines import local

    original = local.measure_shard  # type: ignore[attr-defined]
    for stops in range(3):
        left = 4

        def interrupted(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return original(*args, **options)

        monkeypatch.setattr(local, "measure_shard", interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"{4 * (stops + 1)} of 13 shards done"):
            analyze(tiny_bert, corpus, out=tmp_path / "stopped")
    monkeypatch.setattr(local, "measure_shard", original)
    assert_same_bits(analyze(tiny_bert, corpus, out=tmp_path / "stopped"), whole)


def test_a_damaged_shard_is_run_again(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    corpus = make_corpus(30)
    whole = analyze(tiny_bert, corpus)
    from headscope.run.engines import local

    original = local.measure_shard  # type: ignore[attr-defined]
    calls = []

    def stopping(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(checkpoint.ShardStore, "merge", lambda self, flush=False: None)
    monkeypatch.setattr(local, "measure_shard", stopping)
    with pytest.raises(KeyboardInterrupt):
        analyze(tiny_bert, corpus, out=tmp_path)
    monkeypatch.undo()
    small_shards(monkeypatch)
    files = sorted((tmp_path / "shards").glob("*.npz"))
    assert len(files) == 3
    files[1].write_bytes(files[1].read_bytes()[:500])
    with pytest.warns(HeadscopeWarning, match="could not be read and are measured again: 1-"):
        again = analyze(tiny_bert, corpus, out=tmp_path)
    assert_same_bits(again, whole)


def test_a_damaged_sum_is_measured_again(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    corpus = make_corpus(30)
    whole = analyze(tiny_bert, corpus)
    for number, damage in enumerate((lambda b: b[:1000], lambda b: b[:600] + b"x" + b[601:])):
        out = tmp_path / str(number)
        with monkeypatch.context() as stopped:
            stop_after(4, stopped)
            with pytest.raises(KeyboardInterrupt, match=r"4 of 6 shards done\. Run the same again"):
                analyze(tiny_bert, corpus, out=out)
        (prefix,) = (out / "shards").glob("prefix-*.npz")
        prefix.write_bytes(damage(prefix.read_bytes()))
        with pytest.warns(HeadscopeWarning, match=r"measured again: prefix-\w+.npz"):
            again = analyze(tiny_bert, corpus, out=out)
        assert_same_bits(again, whole)


def test_stopped_without_a_folder_nothing_is_kept(
    tiny_bert: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    stop_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt) as caught:
        analyze(tiny_bert, make_corpus(30))
    assert str(caught.value) == (
        "Stopped with 2 of 6 shards done. Nothing is kept without a folder: pass out=…."
    )


def test_a_damaged_result_is_measured_again(tiny_bert: Model, tmp_path: Path) -> None:
    corpus = make_corpus(5)
    whole = analyze(tiny_bert, corpus, out=tmp_path)
    file = tmp_path / "result.nc"
    content = file.read_bytes()
    flipped = content[:4000] + bytes([content[4000] ^ 1]) + content[4001:]
    for damaged in (b"xx", content[:3000], flipped):
        file.write_bytes(damaged)
        with pytest.warns(HeadscopeWarning, match=r"renamed to result\.nc\.damaged and is"):
            assert_same_bits(analyze(tiny_bert, corpus, out=tmp_path), whole)
        assert file.with_name("result.nc.damaged").read_bytes() == damaged
        assert_same_bits(analyze(tiny_bert, corpus, out=tmp_path), whole)


def test_refuses_another_run(tiny_bert: Model, tiny_llama: Model, tmp_path: Path) -> None:
    corpus = make_corpus(10)
    analyze(tiny_bert, corpus, out=tmp_path, max_tokens=32)
    with pytest.raises(InputError, match="settings max_tokens was 32, is 16"):
        analyze(tiny_bert, corpus, out=tmp_path, max_tokens=16)
    with pytest.raises(InputError, match="model name was"):
        analyze(tiny_llama, corpus, out=tmp_path, max_tokens=32)
    with pytest.raises(InputError, match="the documents were other ones"):
        analyze(tiny_bert, make_corpus(10, seed=1), out=tmp_path, max_tokens=32)
    with pytest.raises(InputError, match="edits was"), tiny_bert.edit(hs.ablate(0, 0)):
        analyze(tiny_bert, corpus, out=tmp_path, max_tokens=32)
    again = analyze(tiny_bert, corpus, out=tmp_path, max_tokens=16, resume=False)
    assert again.provenance["settings"]["max_tokens"] == 16
