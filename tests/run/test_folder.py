"""A folder's result and checkpoints belong to its plan; damage counts as not done."""

from __future__ import annotations

import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import headscope as hs
from headscope.atomic import SEAL_SIZE, sealed
from headscope.errors import (
    FileFormatError,
    HeadscopeError,
    HeadscopeWarning,
    InputError,
    RunMismatch,
)
from headscope.run.analyze import analyze
from headscope.run.checkpoint import ShardStore, read_keyed
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards, stop_after

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.result import Result


METRICS = ["distance", "exemplars"]


@pytest.fixture(scope="module")
def half_done(tiny_bert: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after four of six shards, before their sum was written."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.MonkeyPatch.context() as patched:
        small_shards(patched)
        stop_after(4, patched)
        patched.setattr("headscope.run.checkpoint.ShardStore.merge", lambda self, flush=False: None)
        with pytest.raises(KeyboardInterrupt):
            analyze(tiny_bert, make_corpus(30), METRICS, out=folder)
    assert len(list((folder / "shards").glob("*.npz"))) == 4
    return folder


@pytest.fixture
def stopped(half_done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to be damaged."""
    small_shards(monkeypatch)
    return Path(shutil.copytree(half_done, tmp_path / "run"))


@pytest.fixture(scope="module")
def expected(tiny_bert: Model) -> Result:
    """What the run comes to when nobody stops it."""
    with pytest.MonkeyPatch.context() as patched:
        small_shards(patched)
        return analyze(tiny_bert, make_corpus(30), METRICS)


def test_a_result_without_its_plan_is_refused(tiny_bert: Model, tmp_path: Path) -> None:
    analyze(tiny_bert, make_corpus(5), ["distance"], out=tmp_path)
    (tmp_path / "plan.json").unlink()
    with pytest.raises(RunMismatch, match=r"holds a result, but no plan\.json"):
        analyze(tiny_bert, make_corpus(6), ["distance"], out=tmp_path)
    assert hs.open(tmp_path)["distance"].size
    replaced = analyze(tiny_bert, make_corpus(6), ["distance"], out=tmp_path, resume=False)
    assert replaced.n_documents == 6


def test_the_result_of_another_plan_is_refused(tiny_bert: Model, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    analyze(tiny_bert, make_corpus(5), ["distance"], out=one)
    analyze(tiny_bert, make_corpus(6), ["distance"], out=other)
    shutil.copy(one / "result.nc", other / "result.nc")
    with pytest.raises(RunMismatch, match=r"result of another run than .*plan\.json describes"):
        analyze(tiny_bert, make_corpus(6), ["distance"], out=other)


def test_checkpoints_of_another_plan_are_named_and_left_alone(
    tiny_bert: Model, stopped: Path
) -> None:
    (stopped / "plan.json").unlink()
    before = {path.name: path.read_bytes() for path in (stopped / "shards").glob("*.npz")}
    corpus = make_corpus(31)
    with pytest.warns(HeadscopeWarning, match=r"checkpoints of another run, .* alone: 0-\w+\.npz"):
        result = analyze(tiny_bert, corpus, METRICS, out=stopped)
    assert_same_bits(result, analyze(tiny_bert, corpus, METRICS))
    assert before == {path.name: path.read_bytes() for path in (stopped / "shards").iterdir()}


def test_a_checkpoint_under_another_name_is_not_taken_for_it(
    tiny_bert: Model, stopped: Path, expected: Result
) -> None:
    first, second = sorted((stopped / "shards").glob("*.npz"))[:2]
    shutil.copy(first, second)
    with pytest.warns(HeadscopeWarning, match="1-.* it says that it is shard 0 of plan"):
        result = analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)
    assert_same_bits(result, expected)


def rewritten(content: bytes, change: Callable[[dict[str, np.ndarray]], None]) -> bytes:
    """A checkpoint with other arrays, sealed."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return sealed(buffer.getvalue())


def with_meta(content: bytes, meta: bytes) -> bytes:
    return rewritten(
        content, lambda arrays: arrays.update(meta=np.frombuffer(meta, dtype=np.uint8))
    )


def without_report(content: bytes) -> bytes:
    with np.load(io.BytesIO(content)) as file:
        meta = json.loads(file["meta"].tobytes())
    meta["report"] = {"unheard": 1}
    return with_meta(content, json.dumps(meta).encode())


def reshape(arrays: dict[str, np.ndarray]) -> None:
    for name in arrays:
        if name != "meta":
            arrays[name] = np.zeros((2, 3))


def retype(arrays: dict[str, np.ndarray]) -> None:
    for name in arrays:
        if name != "meta":
            arrays[name] = arrays[name].astype(np.float32)


def empty_zip(content: bytes) -> bytes:
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    return sealed(buffer.getvalue())


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a flipped byte": lambda content: content[:700] + b"\xff" + content[701:],
    "no zip": lambda content: b"not a zip at all" * 40,
    "an empty zip": empty_zip,
    "zeros": lambda content: bytes(len(content)),
    "no meta": lambda content: rewritten(content, lambda arrays: arrays.pop("meta")),
    "meta that is not JSON": lambda content: with_meta(content, b"{"),
    "meta that is a list": lambda content: with_meta(content, b"[]"),
    "another report": without_report,
    "other shapes": lambda content: rewritten(content, reshape),
    "an array without a place": lambda content: rewritten(
        content, lambda arrays: arrays.update(astray=np.zeros(3))
    ),
    "other types": lambda content: rewritten(content, retype),
    "pickled objects": lambda content: rewritten(
        content, lambda arrays: arrays.update({"self|distance|x": np.array([{}], dtype=object)})
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoints_count_as_not_done(
    tiny_bert: Model, stopped: Path, expected: Result, damage: str
) -> None:
    corpus = make_corpus(30)
    victim = sorted((stopped / "shards").glob("*.npz"))[1]
    victim.write_bytes(DAMAGE[damage](victim.read_bytes()))
    with pytest.warns(HeadscopeWarning, match="could not be read and are measured again: 1-"):
        result = analyze(tiny_bert, corpus, METRICS, out=stopped)
    assert_same_bits(result, expected)


def test_no_flipped_bit_of_a_checkpoint_is_counted(tmp_path: Path, half_done: Path) -> None:
    """Names in the zip directory and shapes in array headers are not covered by zip's own CRC."""
    original = sorted((half_done / "shards").glob("*.npz"))[1]
    content, file = original.read_bytes(), tmp_path / original.name
    key, _ = read_keyed(original)
    chance = random.Random(0)
    directory = content.index(b"PK\x01\x02")
    places = [
        *chance.sample(range(len(content) - SEAL_SIZE), 300),
        *range(directory, directory + 120),
    ]
    for place in places:
        flipped = bytes([content[place] ^ (1 << chance.randrange(8))])
        file.write_bytes(content[:place] + flipped + content[place + 1 :])
        with pytest.raises(FileFormatError):
            read_keyed(file)
    file.write_bytes(content)
    assert read_keyed(file)[0] == key


def test_a_checkpoint_damaged_while_the_run_uses_it(
    tiny_bert: Model, stopped: Path, expected: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, calls = ShardStore.merge, 0

    def damaging(self: ShardStore, *, flush: bool = False) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # after the files were checked, and before they are added
            self.path(4).write_bytes(b"PK")
            monkeypatch.setattr(self, "_next", 4)
        merge(self, flush=flush)

    with monkeypatch.context() as patched:
        patched.setattr(ShardStore, "merge", damaging)
        with pytest.raises(HeadscopeError, match="was damaged while the run used it"):
            analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)
    assert_same_bits(analyze(tiny_bert, make_corpus(30), METRICS, out=stopped), expected)


def test_what_a_killed_run_left_is_swept(tiny_bert: Model, stopped: Path) -> None:
    leftovers = [stopped / ".result.nc.x.part", stopped / "shards" / ".3.npz.x.part"]
    for path in leftovers:
        path.write_bytes(b"half")
    analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)
    assert not any(path.exists() for path in leftovers)
    assert not (stopped / "shards").exists()


def test_checkpoints_that_outlived_their_result_are_swept(tiny_bert: Model, stopped: Path) -> None:
    kept = {path.name: path.read_bytes() for path in (stopped / "shards").iterdir()}
    analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)
    (stopped / "shards").mkdir()
    for name, content in kept.items():
        (stopped / "shards" / name).write_bytes(content)
    analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)
    assert not (stopped / "shards").exists()


def test_a_plan_with_a_flipped_bit(tiny_bert: Model, stopped: Path) -> None:
    file = stopped / "plan.json"
    file.write_text(file.read_text().replace('"max_tokens": ', '"max_tokens": 1'))
    with pytest.raises(InputError, match=r"plan\.json is damaged \(its hash is"):
        analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)


@pytest.mark.parametrize("content", ["[1]", '{"plan": [1]}', '{"plan": null}', "[" * 200_000])
def test_a_plan_that_is_no_plan(tiny_bert: Model, tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"plan\.json is damaged"):
        analyze(tiny_bert, make_corpus(3), METRICS, out=tmp_path)


def test_a_folder_in_the_place_of_a_checkpoint(tiny_bert: Model, stopped: Path) -> None:
    checkpoint = next((stopped / "shards").glob("*.npz"))
    checkpoint.unlink()
    checkpoint.mkdir()
    with pytest.raises(InputError, match="is a folder where a checkpoint belongs"):
        analyze(tiny_bert, make_corpus(30), METRICS, out=stopped)
