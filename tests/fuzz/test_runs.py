"""Damaged run folders: a run goes on in one with its own numbers, or says what is wrong."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run import checkpoint
from headscope.run.analyze import analyze
from headscope.run.progress import Meter
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import ENCODERS, build
from tests.fuzz.aimed import STATES, aimed, mutated_json, with_state
from tests.fuzz.hostile import damaged, fuzz
from tests.fuzz.watch import watch
from tests.results.sealing import sealed_by_a_stranger
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards

METRICS = ["null_share", "exemplars"]
Files = dict[str, bytes]
"""Content of a folder, by path."""


class Enough(Exception):
    """The run was stopped."""


def small_checkpoints(patch: pytest.MonkeyPatch) -> None:
    small_shards(patch)
    patch.setattr(checkpoint, "FOLD_EVERY", 2)


@pytest.fixture(scope="module")
def runs(tiny_bert: Model, tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """Folders of a run that was stopped when half of its shards were done, and of a finished one.

    The stopped run has a sum of shards and a shard that follows it.
    """
    folder = tmp_path_factory.mktemp("runs") / "run"
    advance = Meter.advance
    shards = 0

    def stop(self: Meter, *amount: int) -> None:
        nonlocal shards
        advance(self, *amount)
        shards += 1
        if shards == 5:
            raise Enough

    with pytest.MonkeyPatch.context() as patch:
        small_checkpoints(patch)
        with pytest.MonkeyPatch.context() as stopping:
            stopping.setattr(Meter, "advance", stop)
            with pytest.raises(Enough):
                analyze(tiny_bert, make_corpus(50), METRICS, out=folder)
        stopped = files_in(folder)
        analyze(tiny_bert, make_corpus(50), METRICS, out=folder)
    return stopped, files_in(folder)


def files_in(folder: Path) -> Files:
    """Return the content of every file but locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def write_files(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@cache
def undisturbed() -> tuple[Model, Result]:
    """Return the model of the runs, and the result of a run that was not stopped."""
    model = hs.load(build(next(f for f in ENCODERS if f.name == "bert")), word_piece_tokenizer())
    with pytest.MonkeyPatch.context() as patch:
        small_checkpoints(patch)
        return model, analyze(model, make_corpus(50), METRICS, progress=False)


def resume(files: Files, *, may_refuse: bool, may_differ: bool = False) -> str:
    """Go on with a run in the watched process."""
    model, expected = undisturbed()
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
    ):
        warnings.simplefilter("ignore")
        small_checkpoints(patch)
        out = write_files(Path(folder) / "run", files)
        try:
            result = analyze(model, make_corpus(50), METRICS, out=out, progress=False)
        except HeadscopeError:
            assert may_refuse
            return "refused"
        assert not [path for path in out.rglob("*") if path.suffix == ".part"]
        try:
            assert_same_bits(expected, result)
        except AssertionError:
            assert may_differ
            return "other numbers"
        return "same bits"


def test_a_run_goes_on_in_a_damaged_folder(runs: tuple[Files, Files]) -> None:
    @fuzz("damaged runs")
    @given(st.sampled_from(runs), st.data())
    def attempt(whole: Files, data: st.DataObject) -> None:
        files = dict(whole)
        name = data.draw(st.sampled_from(sorted(files)))
        content = files.pop(name)
        if data.draw(st.booleans()):
            files[name] = data.draw(damaged(content, most=2))
        watch("damaged runs", resume, files, may_refuse=name == "plan.json", setup=undisturbed)

    attempt()


def test_fields_of_checkpoints(runs: tuple[Files, Files]) -> None:
    for seed in watch.seeds("fields of checkpoints"):
        chance = random.Random(seed)
        state = STATES[seed % 3]
        files = dict(runs[chance.random() < 0.2])
        name = chance.choice([name for name in files if name != "plan.json"])
        files[name] = with_state(aimed(files[name], chance), files[name], state, chance)
        if "prefix" not in name and chance.random() < 0.5:  # the shard is not next in order then
            files = {other: files[other] for other in files if "prefix" not in other}
        is_hostile = state == "by a stranger"
        watch(
            "fields of checkpoints",
            resume,
            files,
            may_refuse=is_hostile,
            may_differ=is_hostile,
            case=f"{name} {state}, seed {seed}",
            setup=undisturbed,
        )


def test_a_shard_with_another_shape_is_refused(runs: tuple[Files, Files]) -> None:
    """Its shape is compared when the shards before it are done."""
    files = {name: content for name, content in runs[0].items() if "prefix" not in name}
    (name,) = [name for name in files if name.endswith(".npz")]
    with np.load(io.BytesIO(files[name])) as file:
        arrays = {key: file[key] for key in file.files}
    key = next(key for key in arrays if key != "meta")
    arrays[key] = arrays[key][:0]
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    files[name] = sealed_by_a_stranger(content.getvalue())
    assert resume(files, may_refuse=True) == "refused"


def test_an_interrupt_while_sums_are_added(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that was half added is not written."""
    small_checkpoints(monkeypatch)
    merge = checkpoint.merge_states  # type: ignore[attr-defined]
    calls: list[int] = []

    def interrupted(*args: Any, **options: Any) -> Any:
        merged = merge(*args, **options)
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return merged

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "merge_states", interrupted)
        with pytest.raises(KeyboardInterrupt):
            analyze(tiny_bert, make_corpus(50), METRICS, out=tmp_path)
    again = analyze(tiny_bert, make_corpus(50), METRICS, out=tmp_path)
    assert_same_bits(analyze(tiny_bert, make_corpus(50), METRICS), again)


def test_plans(runs: tuple[Files, Files]) -> None:
    """A plan that was changed is refused, also if its hash was changed with it."""
    for seed in watch.seeds("plans"):
        chance = random.Random(seed)
        files = dict(runs[seed % 2])
        plan = json.loads(files["plan.json"])
        if chance.random() < 0.5:
            content = mutated_json(files["plan.json"], chance)
        else:
            content = mutated_json(json.dumps(plan["plan"], sort_keys=True).encode(), chance)
            plan_hash = hashlib.sha256(content).hexdigest().encode()
            content = b'{"hash": "' + plan_hash + b'", "plan": ' + content + b"}"
        files["plan.json"] = content
        watch("plans", resume, files, may_refuse=True, case=f"seed {seed}", setup=undisturbed)
