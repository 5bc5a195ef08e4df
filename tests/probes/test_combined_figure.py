"""The heat map of a probe's heads, and `headscope probe combined`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
import xarray as xr

import headscope as hs
from headscope.app.cli.command import register
from headscope.app.cli.probe import combined
from headscope.errors import UnknownName
from headscope.figures.table_charts import reliance_figure
from headscope.model.model import Model
from tests.probes.test_combined import SENTENCES, document


def conllu(path: Path) -> Path:
    lines = []
    for number, sentence in enumerate(SENTENCES):
        one = document(number, *sentence, "d")
        assert one.parents is not None
        assert one.upos is not None
        lines += [f"# newdoc id = d{number % 3}"] if number < 3 else []
        lines += [f"# sent_id = {one.id}", f"# text = {one.text}"]
        for word in range(len(one)):
            relation = "root" if one.parents[word] < 0 else "dep"
            columns = (word + 1, one.words[word], "_", one.upos[word], "_", "_")
            columns += (one.parents[word] + 1, relation, "_", "_")
            lines.append("\t".join(map(str, columns)))
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_both_directions_on_one_scale() -> None:
    values = np.zeros((2, 3, 4))
    values[1, 2, 3] = 5.0
    values[0, 1, 0] = 1.0
    reliance = xr.DataArray(
        values,
        dims=("direction", "layer", "head"),
        coords={"direction": ["candidate", "dependent"], "layer": range(3), "head": range(4)},
    )
    figure = reliance_figure(reliance, title="a model")
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert [image.get_clim() for image in images] == [(0, 5.0)] * 2
    assert images[0].get_array()[2, 3] == 5.0  # the word attends: first
    assert "most: L2 H3, L1 H0" in figure.get_supxlabel()


def test_the_command(
    tiny_bert: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hs, "load", lambda name, **_: tiny_bert)
    file = conllu(tmp_path / "toy.conllu")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("the 1 2\ncat 0.5 1\nsat -1 0\n")
    app = typer.Typer()
    register(app, combined, example="probe combined train.conllu dev.conllu -o probes")
    options = ["-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), "--quiet"]
    options += ["--vectors", str(vectors), "--epochs", "1"]
    app([str(file), str(file), *options, "--json"], standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)
    kinds = ["control", "distance+words", "attention", "attention+words"]
    assert list(answer) == ["model", "right-branching", *kinds]
    probe = hs.open(tmp_path / "out" / "probe-attention-words.nc")
    assert isinstance(probe, hs.Probe)
    assert probe.uas == answer["attention+words"]["uas"]
    assert probe.provenance["vectors"]["source"] == str(vectors)
    drawn = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert drawn == {"probe-control.png", "probe-attention.png", "probe-attention-words.png"}
    app([str(file), str(file), *options, "--kinds", "attention"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "right-branching" in out
    assert f"{100 * hs.open(tmp_path / 'out' / 'probe-attention.nc').uas:.1f}" in out
    plain = hs.open(tmp_path / "out" / "probe-attention.nc")
    app(
        [str(file), str(file), *options, "--kinds", "attention", "--over", "norm"],
        standalone_mode=False,
    )
    normed = hs.open(tmp_path / "out" / "probe-attention.nc")
    assert isinstance(plain, hs.Probe)
    assert isinstance(normed, hs.Probe)
    assert normed.provenance["options"]["over"] == "norm"
    assert not np.allclose(normed.parameters["weights"], plain.parameters["weights"])
    with pytest.raises(UnknownName, match="Unknown kind of probe 'words'"):
        app([str(file), str(file), *options, "--kinds", "words"], standalone_mode=False)
