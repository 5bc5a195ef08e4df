"""Any arguments: an answer or one line about what is wrong, and nothing half written."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.app.cli.main import main
from tests.fuzz.hostile import NASTY, fuzz, quick, texts

if TYPE_CHECKING:
    from headscope.model.model import Model

# A process cannot be given NUL in an argument; half surrogates it can (bytes that are no UTF-8).
VALUES = st.one_of(st.sampled_from(NASTY), texts(12)).map(lambda text: text.replace("\0", ""))
NUMBERS = st.sampled_from(("0", "1", "2", "-1", "1.5", "", "x", "1e9", "9" * 40, "٣"))
OUT = ("page.html", "sub/page.html", ".", "", "/dev/null/page.html", "x" * 300)
OPTIONS: dict[str, dict[str, st.SearchStrategy[str]]] = {
    "view": {
        "--pair": VALUES,
        "--target": VALUES,
        "--generate": NUMBERS,
        "--device": st.sampled_from(("cpu", "cuda:99", "tpu", "", "meta", "cpu:x")),
        "--no-neurons": st.just(""),
    },
    "analyze": {
        "--metrics": st.one_of(VALUES, st.sampled_from(("distance", "distance,", ",", "js"))),
        "--unit": st.one_of(VALUES, st.just("sentence")),
        "--sample": NUMBERS,
        "--seed": NUMBERS,
        "--by": VALUES,
        "--engine": VALUES,
        "--on-error": st.one_of(VALUES, st.just("skip")),
        "--no-figures": st.just(""),
        "--no-resume": st.just(""),
    },
    "importance": {"--max-tokens": NUMBERS, "--sample": NUMBERS, "--no-segments": st.just("")},
    "models": {"--device": VALUES},
    "effects": {
        "--target": VALUES,
        "--foil": VALUES,
        "--position": NUMBERS,
        "--measure": VALUES,
        "--method": VALUES,
        "--top": NUMBERS,
    },
    "check-importance": {"--sample": NUMBERS, "--heads": NUMBERS, "--max-tokens": NUMBERS},
    "probe dependencies": {
        "--min-cases": NUMBERS,
        "--possessive": VALUES,
        "--by": VALUES,
        "--address": VALUES,
        "--no-figures": st.just(""),
    },
    "probe coreference": {"--candidates": VALUES, "--max-tokens": NUMBERS, "--brackets": VALUES},
    "probe bias": {"--heads": VALUES, "-n": NUMBERS, "--on-error": VALUES},
    "probe combined": {
        "--kinds": st.one_of(VALUES, st.just("attention")),
        "--vectors": VALUES,
        "--epochs": st.sampled_from(("0", "1", "x")),
        "--dev-sample": NUMBERS,
        "--no-stream": st.just(""),
    },
    "map": {"--starts": NUMBERS, "--seed": NUMBERS},
    "card": {"--layer": NUMBERS, "--head": NUMBERS},
    "report": {"--title": VALUES, "--page": VALUES},
}
WRITES = ("analyze", "importance", "check-importance", "probe", "map")
READS = ("map", "card", "report")
"""Verbs that are given runs, and load no model."""
ARGUMENTS = {"probe bias": 2, "probe combined": 2}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Model) -> dict[str, str]:
    """A tiny model on disk, and files that are and are not corpora."""
    folder = tmp_path_factory.mktemp("fuzz")
    tiny_bert.module.save_pretrained(folder / "model")
    assert tiny_bert.tokenizer is not None
    tiny_bert.tokenizer.save_pretrained(folder / "model")
    (folder / "a.txt").write_text("The cat sat on the mat.\nThe dog ran.\n")
    (folder / "empty.txt").write_text("")
    (folder / "broken.conllu").write_text("1\tThe\n2\n")
    (folder / "bytes.nc").write_bytes(b"\x89HDF\r\n\x1a\n\0\0")
    (folder / "none").mkdir()
    demo = (resources.files("headscope.text") / "demo.conllu").read_text(encoding="utf-8")
    (folder / "a.conllu").write_text(demo[: demo.index("\n\n", 5000) + 2], encoding="utf-8")
    hs.analyze(tiny_bert, ["The cat sat."], ["distance"], out=folder / "run")
    names = ("model", "a.txt", "empty.txt", "broken.conllu", "bytes.nc", "none", "missing.txt")
    names += ("a.conllu", "run")
    return {name: str(folder / name) for name in names}


@pytest.fixture
def run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str]], None]:
    """Run a command in a folder of its own; it may answer, or complain."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)

    def call(arguments: list[str]) -> None:
        capfd.readouterr()
        code: object = 0
        with quick():
            try:
                main(arguments)
            except SystemExit as stopped:
                code = stopped.code
        stdout, stderr = capfd.readouterr()
        assert code in (0, None, 2), (arguments, stderr)
        assert "Traceback" not in stderr
        if code == 2:
            assert stderr.strip()
            assert not stdout.strip()
        left = [file for _, _, files in os.walk(tmp_path) for file in files]
        assert not [file for file in left if file.endswith(".part")]
        if code == 2:
            assert not [file for file in left if file.endswith((".html", ".nc", ".png"))]

    return call


@st.composite
def commands(draw: st.DrawFn, places: dict[str, str]) -> list[str]:
    """A verb with arguments of which any may be hostile."""
    verb = draw(st.sampled_from(list(OPTIONS)))
    files = st.sampled_from(list(places.values()))
    arguments = verb.split()
    text = st.one_of(VALUES, st.just("the cat sat"))
    given_text = st.one_of(files, VALUES) if verb not in ("view", "effects") else text
    arguments += [draw(given_text) for _ in range(ARGUMENTS.get(verb, 1))]
    if arguments[0] in WRITES:
        arguments += ["--out", "run"]
    elif verb in ("view", "report"):
        arguments += ["--out", draw(st.sampled_from(OUT))]
    if verb in ("analyze", "importance") or (verb.startswith("probe ") and verb[-1] != "d"):
        arguments += ["--workers", "1"]
    if verb == "card":
        arguments += ["--layer", "0", "--head", "0"]
    if verb != "models" and verb not in READS:
        arguments += ["--model", draw(st.one_of(st.just(places["model"]), files, VALUES))]
    for name in draw(st.lists(st.sampled_from(list(OPTIONS[verb])), max_size=3, unique=True)):
        value = draw(OPTIONS[verb][name])
        arguments += [name, value] if value or not name.startswith("--no-") else [name]
    return arguments


def test_hostile_arguments(
    places: dict[str, str],
    run: Callable[[list[str]], None],
    tmp_path: Path,
) -> None:
    import shutil

    @fuzz("command lines")
    @given(commands(places))
    def attempt(arguments: list[str]) -> None:
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        run(arguments)

    attempt()


@pytest.mark.parametrize("verb", ["map", "card", "report", "probe"])
def test_runs_that_are_none(
    verb: str, places: dict[str, str], run: Callable[[list[str]], None]
) -> None:
    more = {"card": ["--layer", "0", "--head", "0"], "probe": ["dependencies"]}.get(verb, [])
    for name in ("a.txt", "bytes.nc", "none", "missing.txt"):
        arguments = [places[name], *more] if verb != "probe" else [*more, places[name]]
        run([verb, *arguments, *(["--out", "out"] if verb != "card" else [])])
