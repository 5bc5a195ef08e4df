"""`headscope probe …`: tables on stdout, JSON, files, and exit code 2 for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headscope as hs
from headscope.model.model import Model
from tests.app.test_cli import run
from tests.probes.test_bias import ANTI, PRO


@pytest.fixture(autouse=True)
def tiny(tiny_bert: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb gets the tiny model, whatever it asks for."""
    monkeypatch.setattr(hs, "load", lambda name, **_: tiny_bert)


def test_dependencies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    options = (
        "demo",
        "-o",
        str(out),
        "--min-cases",
        "20",
        "--sample",
        "30",
        "--workers",
        "1",
        "-q",
    )
    assert run("probe", "dependencies", *options) == 0
    text = capsys.readouterr().out
    assert "relation" in text.splitlines()[1]
    assert (out / "table.csv").is_file()
    assert (out / "table.png").stat().st_size > 5000
    assert len(list(out.glob("examples-*.png"))) == 3
    assert run("probe", "dependencies", *options, "--no-figures", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["best"][0]["relation"] == "all"
    assert run("probe", "dependencies", "demo", "-o", str(tmp_path / "norm"), *options[3:],
               "--no-figures", "--over", "norm") == 0  # fmt: skip
    assert "weighted by norms" in capsys.readouterr().out
    assert hs.open(tmp_path / "norm")["accuracy"].attrs["over"] == "norm"
    assert answer["best"][0]["cases"] == int(hs.open(out)["cases"].sel(relation="all"))


def test_coreference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    options = ("-o", str(out), "--workers", "1", "--json", "-q")
    assert run("probe", "coreference", "demo", *options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["mention_kind"] for row in answer["best"]} >= {"all", "pronoun"}
    assert {"nearest", "head_match", "sieves", "crossfit"} <= set(answer["best"][0])
    options = ("-o", str(tmp_path / "norm"), "--workers", "1", "--over", "norm", "-q")
    assert run("probe", "coreference", "demo", *options, "--no-figures") == 0
    assert "weighted by norms" in capsys.readouterr().out


def test_bias(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, documents in (("pro", PRO), ("anti", ANTI)):
        hs.read(documents).save(tmp_path / f"{name}.jsonl")
    sources = [str(tmp_path / f"{name}.jsonl") for name in ("pro", "anti")]
    out = tmp_path / "run"
    assert run("probe", "bias", *sources, "-o", str(out), "-n", "2", "--workers", "1", "-q") == 0
    assert "preference" in capsys.readouterr().out
    assert len((out / "table.csv").read_text(encoding="utf-8").splitlines()) == 3
    options = ("-o", str(tmp_path / "norm"), "--workers", "1", "--over", "norm", "-q")
    assert run("probe", "bias", *sources, *options) == 0
    assert "weighted by norms" in capsys.readouterr().out


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("The cat sat.\n", encoding="utf-8")
    for verb, message in (
        ("dependencies", "needs parents, which no document has"),
        ("coreference", "has a mention with an antecedent"),
    ):
        assert run("probe", verb, str(plain), "-o", str(tmp_path / verb), "-q") == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
