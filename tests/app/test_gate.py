"""The gate for CI: rules, exit codes, and numbers that agree with `compare`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import headscope as hs
from headscope.app.cli.check import judge
from headscope.app.cli.main import main
from headscope.errors import InputError, UnknownName
from headscope.model.load import randomized
from headscope.model.model import Model
from headscope.results.effect_data import result_of_effects
from headscope.results.result import Result
from headscope.statistics.intervals import holm
from tests.run.corpora import make_corpus


@pytest.fixture(scope="module")
def runs(tiny_bert: Model) -> tuple[Result, Result]:
    """The same documents under the model and under one with other weights."""
    corpus, other = make_corpus(40), randomized(tiny_bert, 3)
    other.name = tiny_bert.name
    for parameter in other.module.parameters():
        parameter.data *= 3
    return hs.analyze(other, corpus), hs.analyze(tiny_bert, corpus)


def by_hand(run: Result, baseline: Result, name: str, size: float, sign: int = 0) -> set[tuple]:
    """Heads that changed by as much, with p corrected by Holm's rule written out."""
    data = run.compare(baseline)
    change, p = data[name].values, data[f"{name}_p"].values.ravel()
    order = np.argsort(p)
    adjusted, largest = np.ones(p.size), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (p.size - rank) * p[place])
        adjusted[place] = min(largest, 1.0)
    amount = np.abs(change) if not sign else sign * change
    is_broken = (amount >= size) & (adjusted.reshape(change.shape) < 0.05)
    return {tuple(map(int, index)) for index in np.argwhere(is_broken)}


@pytest.mark.parametrize(
    ("verb", "sign"), [("changes", 0), ("rises", 1), ("falls", -1)], ids=lambda x: str(x)
)
def test_rules_find_the_heads_that_changed(
    runs: tuple[Result, Result], verb: str, sign: int
) -> None:
    found = set()
    for size in (0.0, 0.002, 0.01, 0.05, 0.5):
        for pair in (runs, runs[::-1]):
            verdict = judge(*pair, f"null_share {verb} by {size} in any head")
            rows = {(row["layer"], row["head"]) for row in verdict.failures}
            assert rows == by_hand(*pair, "null_share", size, sign)
            assert verdict.tested == 8
            assert all(type(row["layer"]) is int for row in verdict.failures)
            found.add(len(rows))
            for row in verdict.failures:
                assert row["change"] == pytest.approx(row["run"] - row["baseline"])
    assert len(found) > 1  # sizes matter


def test_other_places(runs: tuple[Result, Result]) -> None:
    run, baseline = runs
    data = run.compare(baseline)
    mean = judge(run, baseline, "null_share changes by 0 in the mean")
    assert mean.tested == 1
    assert (mean.status == "failed") == (float(data["null_share_mean_p"]) < 0.05)
    one = judge(run, baseline, "null_share changes by 0 in L1.H2")
    assert one.tested == 1
    p = float(data["null_share_p"].sel(layer=1, head=2))
    assert (one.status == "failed") == (p < 0.05)
    tag = judge(run, baseline, "pos_to[tag=NOUN] changes by 0 in any head")
    p = data["pos_to_p"].sel(tag="NOUN").values
    assert len(tag.failures) == int((holm(p) < 0.05).sum())
    all_tags = judge(run, baseline, "pos_to changes by 0 in any head")
    assert all_tags.tested > tag.tested  # all labels are one family
    assert judge(baseline, baseline, "null_share changes by 0.0001").status == "passed"
    roles = judge(run, baseline, "role changes in any head")
    assert roles.tested == 8


def test_too_few_documents_are_undecided(tiny_bert: Model) -> None:
    corpus = make_corpus(3)
    other = randomized(tiny_bert, 3)
    run, baseline = (hs.analyze(m, corpus, ["null_share"]) for m in (other, tiny_bert))
    verdict = judge(run, baseline, "null_share changes by 0 in any head")
    assert verdict.status == "undecided"
    assert verdict.undecided[0]["p_adjusted"] is None
    assert "too few documents" in verdict.lines[0]


def test_a_rule_that_no_change_can_break_is_undecided(tiny_bert: Model) -> None:
    """The sign test of six documents has p of at least 1/32: above 0.05 over eight heads."""
    corpus, other = make_corpus(6), randomized(tiny_bert, 3)
    for parameter in other.module.parameters():
        parameter.data *= 3
    run, baseline = (hs.analyze(m, corpus, ["null_share"]) for m in (other, tiny_bert))
    assert np.isfinite(run.compare(baseline)["null_share_p"]).any()
    verdict = judge(run, baseline, "null_share changes by 0.0001 in any head")
    assert verdict.status == "undecided"
    assert verdict.tested == 0
    assert all("too few documents" in line for line in verdict.lines)
    assert judge(run, baseline, "null_share changes by 0.9 in any head").status == "passed"
    place = "L{layer}.H{head}".format(**verdict.undecided[0])
    alone = judge(run, baseline, f"null_share changes by 0.0001 in {place}")
    assert alone.tested == 1  # 1/32 is below 0.05


def test_other_documents_are_said(tiny_bert: Model) -> None:
    corpus = make_corpus(20)
    halves = hs.read(list(corpus)[:10]), hs.read(list(corpus)[10:])
    run, baseline = (hs.analyze(tiny_bert, half, ["null_share"]) for half in halves)
    with pytest.warns(UserWarning, match="Unpaired: not the same documents on both sides"):
        judge(run, baseline, "null_share changes by 0.1 in any head")


def test_effects_are_compared_without_their_sums(tiny_llama: Model) -> None:
    corpus = make_corpus(20)
    effect = result_of_effects(hs.effects(tiny_llama, corpus))
    assert judge(effect, effect, "effect changes by 0.001 in any head").status == "passed"
    data = effect.dataset.copy(deep=True)
    data["effect"][0, 1] += 5.0
    data["effect_interval"][:, 0, 1] += 5.0
    moved = replace(effect, blocks={next(iter(effect.blocks)): data})
    verdict = judge(moved, effect, "effect rises by 1 in any head")
    assert [(row["layer"], row["head"]) for row in verdict.failures] == [(0, 1)]
    assert judge(moved, effect, "effect falls by 1 in any head").status == "passed"


@pytest.mark.parametrize(
    ("rule", "error", "words"),
    [
        ("null_share is odd", InputError, "is not a rule. Expected: VARIABLE"),
        ("null_share changes in any head", InputError, "is not a rule"),
        ("null_share changes by 1-1", InputError, "'1-1' is not a number"),
        ("null_share changes by -nan", InputError, "is not a rule"),
        ("null_share falls by -0.1 in any head", InputError, "a finite number from 0 on"),
        ("null_share changes by 1e400 in any head", InputError, "a finite number from 0 on"),
        ("null_share_interval changes by 0.1", UnknownName, "Unknown variable of both runs"),
        ("nul_share changes by 1", UnknownName, "Did you mean 'null_share'"),
        ("pos_to[tag=NUN] changes by 1", UnknownName, "NUN"),
        ("null_share[tag=NOUN] changes by 1", InputError, "has the axes layer, head, not tag"),
        ("dep_baseline changes by 1 in any head", InputError, "no axes layer and head"),
    ],
)
def test_bad_rules(
    runs: tuple[Result, Result], rule: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        judge(*runs, rule)


def test_the_command(
    runs: tuple[Result, Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, result in zip(("run", "baseline"), runs, strict=True):
        (tmp_path / name).mkdir()
        result.save(tmp_path / name / "result.nc")
    places = [str(tmp_path / "run"), "--against", str(tmp_path / "baseline")]
    rules = ["null_share changes by 0 in any head", "null_share changes by 0.9 in any head"]
    junit = tmp_path / "junit.xml"
    arguments = [*places, "--fail-if", rules[0], "--fail-if", rules[1], "--junit", str(junit)]
    with pytest.raises(SystemExit) as stop:
        main(["check", *arguments, "--json"])
    assert stop.value.code == 1
    data = json.loads(capsys.readouterr().out)
    expected = by_hand(*runs, "null_share", 0.0)
    first, second = data["rules"]
    assert {(row["layer"], row["head"]) for row in first["failures"]} == expected
    assert (first["status"], second["status"]) == ("failed", "passed")
    suite = ET.parse(junit).getroot()
    assert suite.attrib == {
        "name": "headscope check", "tests": "2", "failures": "1", "errors": "0"
    }  # fmt: skip
    cases = suite.findall("testcase")
    assert [case.attrib["name"] for case in cases] == rules
    assert [len(case) for case in cases] == [1, 0]
    main(["check", *places, "--fail-if", rules[1]])
    assert "passed    null_share changes by 0.9 in any head (8 tested)" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["check", *places, "--fail-if", "no rule"])
    assert stop.value.code == 2


def test_tracking_checkpoints(
    tiny_llama: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (5, 50):
        folder = tmp_path / f"checkpoint-{step}"
        randomized(tiny_llama, step).module.save_pretrained(folder)
        assert tiny_llama.tokenizer is not None
        tiny_llama.tokenizer.save_pretrained(folder)
    (tmp_path / "corpus.txt").write_text("The cat sat.\nThe dog ran.\n", encoding="utf-8")
    folders = [str(tmp_path / f"checkpoint-{n}") for n in (50, 5)]
    out = str(tmp_path / "track")
    for _ in range(2):  # the second time, everything is known
        main(["track", *folders, str(tmp_path / "corpus.txt"), "-o", out, "--json"])
        data = json.loads(capsys.readouterr().out)
        assert data["corpus"]["steps"] == data["detect"]["steps"] == [5, 50]
    main(["report", out, "-o", str(tmp_path / "report.html")])
    assert (tmp_path / "report.html").stat().st_size > 10_000
    with pytest.raises(SystemExit) as stop:
        main(["track", folders[0], "-o", out])
    assert stop.value.code == 2
    assert "give checkpoints, then a corpus" in capsys.readouterr().err


def test_a_head_that_lost_its_value_is_not_passed(tiny_bert: Model) -> None:
    corpus = make_corpus(20)
    whole = hs.analyze(tiny_bert, corpus, "null_share")
    with tiny_bert.edit(hs.ablate(1, 1)):
        without = hs.analyze(tiny_bert, corpus, "null_share")
    for pair in ((without, whole), (whole, without)):
        verdict = judge(*pair, "null_share changes by 5 in any head")
        assert verdict.status == "undecided"
        assert len(verdict.lines) == 1
        assert "a value is missing" in verdict.lines[0]


def test_a_missing_folder_of_the_junit_file_is_named(
    runs: tuple[Result, Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    runs[0].save(tmp_path / "run" / "result.nc")
    places = [str(tmp_path / "run"), "--against", str(tmp_path / "run")]
    rule = "null_share changes by 0.9 in any head"
    with pytest.raises(SystemExit) as stop:
        main(["check", *places, "--fail-if", rule, "--junit", str(tmp_path / "none" / "x.xml")])
    assert stop.value.code == 2
    assert f"there is no folder '{tmp_path / 'none'}'" in capsys.readouterr().err


def test_a_rule_on_roles_keeps_to_its_head(runs: tuple[Result, Result]) -> None:
    changed = judge(*runs, "role changes in any head").failures
    assert 0 < len(changed) < 8
    for layer, head in ((layer, head) for layer in range(2) for head in range(4)):
        found = judge(*runs, f"role changes in L{layer}.H{head}")
        assert found.tested == 1
        own = [row for row in changed if (row["layer"], row["head"]) == (layer, head)]
        assert found.failures == own
    assert judge(*runs, "role[layer=1] changes in any head").tested == 4
    with pytest.raises(UnknownName, match="Unknown layer '99'"):
        judge(*runs, "role changes in L99.H0")
    for rule in ("role falls in L0.H0", "role changes by 3", "role changes in the mean"):
        with pytest.raises(InputError, match="a role changes, in any head or in one"):
            judge(*runs, rule)


@pytest.mark.parametrize(
    "rule",
    [
        "pos_to[NOUN] changes by 0",
        "pos_to[] changes by 0",
        "pos_to[tag=] changes by 0",
        "pos_to[tag=NOUN,tag=VERB] changes by 0",
        "pos_to[layer=0] changes by 0 in L1.H2",
    ],
)
def test_labels_that_would_be_left_out_are_refused(runs: tuple[Result, Result], rule: str) -> None:
    with pytest.raises(InputError, match="labels should be AXIS=LABEL, each axis once"):
        judge(*runs, rule)


def test_spaces_around_labels(runs: tuple[Result, Result]) -> None:
    assert judge(*runs, "pos_to[tag = NOUN, layer=1] changes by 0").tested <= 4
    with pytest.raises(UnknownName, match="Unknown tag ','"):  # a tag of the Penn Treebank
        judge(*runs, "pos_to[tag=,] changes by 0")
