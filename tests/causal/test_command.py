"""`headscope effects`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

import headscope as hs
from tests.app.test_cli import run

if TYPE_CHECKING:
    from pathlib import Path

    from headscope.model.model import Model


@pytest.mark.packaged
def test_effects_are_ranked_and_say_what_they_hold_for(
    capsys: pytest.CaptureFixture[str], smollm2: Model
) -> None:
    text = "When Mary and John went to the store, John gave a drink to"
    arguments = ["effects", text, "--target", " Mary", "--foil", " John", "--method", "gradient"]
    assert run(*arguments, "--top", "3") == 0
    said = capsys.readouterr().out
    assert "logit(' Mary') − logit(' John') = 6.1" in said
    assert "exact for the heads that the gradient ranks first" in said
    (line,) = (line for line in said.splitlines() if "L23 H3" in line)
    value, estimate = (float(part) for part in re.findall(r"[+-]\d+\.\d+", line))
    known = hs.effects(smollm2, text, " Mary", " John", heads=[(23, 3)])
    assert value == pytest.approx(float(known.sel(layer=23, head=3)), abs=1e-3)
    assert estimate != value
    assert "of this text alone" in said
    assert run("effects", text, "--target", "Maryland Mary") == 2
    assert "A prediction is of one token" in capsys.readouterr().err


@pytest.mark.packaged
@pytest.mark.usefixtures("minilm")
def test_too_few_texts_have_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["The cat sat on the mat.", "A dog slept."]
    assert run("effects", *texts, "--model", "minilm", "--top", "2") == 0
    said = capsys.readouterr().out
    assert "mean over 2 texts: too few for an interval" in said
    assert "nan" not in said
    assert "(mean over tokens) (exact, in 1 − cosine)" in said
    assert run("effects", *texts, "--model", "minilm", "--json") == 0
    assert json.loads(capsys.readouterr().out)["heads"][0]["low"] is None
    assert run("effects", *texts, "It rained.", "--model", "minilm", "--top", "2") == 0
    assert re.search(r"L\d+ H\d+ +\+0\.\d+  \[[+-]", capsys.readouterr().out)


@pytest.mark.packaged
@pytest.mark.usefixtures("smollm2")
def test_wires_are_written_and_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hs.pairs("ioi", 2).save(tmp_path / "pairs.jsonl")
    out = tmp_path / "wires"
    arguments = ["wires", str(tmp_path / "pairs.jsonl"), "-o", str(out), "--exact", "6"]
    assert run(*arguments, "--no-curve", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    opened = hs.open(out)
    assert [row["source"] for row in said["wires"]] == [w.source for w in opened.table]
    assert opened.table[0].reader == "L0 MLP"
    for name in ("wires.csv", "wires.png", "graph.json", "page.html"):
        assert (out / name).stat().st_size > 100
    assert run("wires", "io", "-o", str(out)) == 2
    assert "Did you mean 'ioi'" in capsys.readouterr().err


def test_stopped_wires_say_how_to_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hs, "wires", stopped)
    monkeypatch.setattr("headscope.app.cli.wires.load_model", lambda *names: None)
    assert run("wires", "ioi", "-o", str(tmp_path / "wires")) == 130
    assert "Run the same again to go on (-o " in capsys.readouterr().err
