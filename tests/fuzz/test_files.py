"""Damaged files are refused in words, not opened as something else and not by a crash."""

from __future__ import annotations

import random
import tempfile
import warnings
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.errors import FileFormatError, HeadscopeError
from headscope.results.probe import Probe
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.run.measure import measure
from headscope.text.document import Document
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import ENCODERS, build
from tests.fuzz.aimed import STATES, aimed, with_state
from tests.fuzz.hostile import damaged, fuzz
from tests.fuzz.watch import watch
from tests.results.sealing import sealed_by_a_stranger, unsealed

KINDS = st.sampled_from(("trace", "result", "probe"))


@cache
def saved(kind: str, *, is_old: bool = False) -> bytes:
    """Return a whole file of a kind; `is_old`: groups are symbol tables, as in older HDF5."""
    attention = np.random.default_rng(0).dirichlet(np.ones(5), (2, 2, 5))
    trace = Trace.from_arrays(attention, ["The", " cat", " sat", ".", "<b>"])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "a.nc"
        if is_old:
            open_file, create = h5py.File, h5py.Group.create_group
            patch.setattr(h5py, "File", lambda path, mode, **_: open_file(path, mode))
            patch.setattr(h5py.Group, "create_group", lambda self, name, **_: create(self, name))
        if kind == "trace":
            trace.save(path)
        elif kind == "result":
            measure(trace, ["distance", "exemplars"]).save(path)
        else:
            make_probe().save(path)
        return path.read_bytes()


def make_probe() -> Probe:
    sentences = [
        Document(
            id=f"s{number}",
            text="the cat sat",
            words=("the", "cat", "sat"),
            spans=((0, 3), (4, 7), (8, 11)),
            sentences=((0, 3),),
            upos=("DET", "NOUN", "VERB"),
            parents=(1, 2, -1),
            relations=("det", "nsubj", "root"),
        )
        for number in range(6)
    ]
    model = hs.load(build(next(f for f in ENCODERS if f.name == "bert")), word_piece_tokenizer())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hs.train_probe(
            model, sentences, sentences, "attention", epochs=1, cache=False, progress=False
        )


def open_bytes(data: bytes, *, is_damaged: bool = False) -> str:
    """Open a file in the watched process; a damaged one must be refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.nc"
        path.write_bytes(data)
        try:
            found = hs.open(path)
        except HeadscopeError as error:
            assert isinstance(error, FileFormatError)  # noqa: PT017, any other type is as wrong
            return "refused"
        assert not is_damaged
        assert isinstance(found, Trace | Result | Probe)
        repr(found)
        return "opened"


@fuzz("damaged files")
@given(KINDS, st.data())
def test_damaged_bytes(kind: str, data: st.DataObject) -> None:
    content = data.draw(damaged(saved(kind), most=3))
    is_damaged = unsealed(content) != unsealed(saved(kind))
    watch("damaged files", open_bytes, content, is_damaged=is_damaged)


@pytest.mark.parametrize("kind", ["trace", "result", "probe"])
def test_old_layouts_are_opened(kind: str) -> None:
    content = saved(kind, is_old=True)
    assert all(content.count(name) for name in (b"TREE", b"SNOD", b"HEAP"))
    assert open_bytes(sealed_by_a_stranger(content)) == "opened"


def test_fields() -> None:
    for seed in watch.seeds("fields of files"):
        chance = random.Random(seed)
        kind, state = ("trace", "result", "probe")[seed % 3], STATES[seed // 3 % 3]
        original = saved(kind, is_old=chance.random() < 0.5)
        content = with_state(aimed(original, chance), original, state, chance)
        watch(
            "fields of files",
            open_bytes,
            content,
            is_damaged=state != "by a stranger",
            case=f"{kind} {state}, seed {seed}",
        )


@fuzz("bytes as files")
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=40).map(b"\x89HDF\r\n\x1a\n".__add__)))
def test_random_bytes(data: bytes) -> None:
    watch("bytes as files", open_bytes, data, is_damaged=True)


@fuzz("files with wrong parts")
@given(KINDS, st.data())
def test_files_with_parts_missing_or_wrong(kind: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.nc"
        path.write_bytes(unsealed(saved(kind)))
        with h5py.File(path, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            name = data.draw(st.sampled_from(["/", *sorted(names)]))
            how = data.draw(st.sampled_from(("delete", "text", "number", "attribute")))
            if how == "attribute":
                attributes = list(file[name].attrs)
                if attributes:
                    chosen = data.draw(st.sampled_from(attributes))
                    del file[name].attrs[chosen]
                    if data.draw(st.booleans()):
                        file[name].attrs[chosen] = "[1, {"
            elif name != "/":
                del file[name]
                if how == "text":
                    file[name] = "}{"
                elif how == "number":
                    file[name] = np.full((3, 2), np.nan)
        content = sealed_by_a_stranger(path.read_bytes())
        watch("files with wrong parts", open_bytes, content)
