"""`hs.wires`: choice, statistics, circuits, files, the command and the report."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import stats

import headscope as hs
from headscope.causal.pair_wires import WireRun, encode_pair, graph_of, mean_sources
from headscope.causal.wires import choose, describe
from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.text.pairs import TASKS, Pairs, pairs, read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from headscope.model.model import Model
    from headscope.results.result import Result
    from headscope.results.wires import Wires

WORDS = ["bat", "rat", "hat", "mat"]
FRAMES = ["a {} sat", "the {} ran", "my {} is", "one {} at", "a big {} in", "so {} by", "the {} of",
          "is {} to"]  # fmt: skip


def tiny_pairs(n_templates: int = 8) -> Pairs:
    texts, labels = [], []
    for frame in FRAMES[:n_templates]:
        for word in WORDS[:2]:
            texts.append((frame.format(word), frame.format(word.replace("at", "ow"))))
            labels.append(frame)
    n = len(texts)
    return Pairs(tuple(texts), ("t",) * n, ("a",) * n, tuple(labels), "tiny")


@pytest.fixture(scope="module")
def tiny_wires(tiny_llama: Model) -> Wires:
    return hs.wires(tiny_llama, tiny_pairs(), exact=12)


def test_shares_and_intervals_are_those_of_the_formula(
    tiny_llama: Model, tiny_wires: Wires
) -> None:
    data, given = tiny_wires.data, tiny_pairs()
    assert len(tiny_wires.table) == 12
    effects, gaps = [], []
    for texts in given:
        pair = encode_pair(tiny_llama, texts, "t", "a")
        run = pair.run(graph_of(tiny_llama, pair))
        rows = zip(data["wire_source"].values, data["wire_reader"].values, strict=True)
        effects.append(run.exact([WireRun(int(s), int(r)) for s, r in rows]))
        gaps.append(run.gap)
    effects, gaps = np.array(effects), np.array(gaps)
    closed = -np.sign(gaps)[:, None] * effects
    labels = list(dict.fromkeys(given.templates))
    members = [[i for i, t in enumerate(given.templates) if t == label] for label in labels]
    share = closed.sum(0) / np.abs(gaps).sum()
    np.testing.assert_allclose(data["share"], share, atol=1e-4)
    without = np.array([
        np.delete(closed, m, 0).sum(0) / np.delete(np.abs(gaps), m).sum() for m in members
    ])  # fmt: skip
    n = len(members)
    error = np.sqrt((n - 1) / n * ((without - share) ** 2).sum(0))
    half = stats.t.ppf(0.975, n - 1) * error
    np.testing.assert_allclose(data["high"] - data["share"], half, rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(data["share"] - data["low"], half, rtol=1e-2, atol=1e-5)
    odd = [m for i, m in enumerate(members) if i % 2]
    rows = [i for m in odd for i in m]
    half_share = closed[rows].sum(0) / np.abs(gaps[rows]).sum()
    left = np.array([
        closed[[i for i in rows if i not in m]].sum(0)
        / np.abs(gaps[[i for i in rows if i not in m]]).sum()
        for m in odd
    ])  # fmt: skip
    se = np.sqrt((len(odd) - 1) / len(odd) * ((left - half_share) ** 2).sum(0))
    raw = 2 * stats.t.sf(np.abs(half_share / se), len(odd) - 1)
    p = data["p"].values
    known = np.isfinite(p)
    assert 3 <= known.sum() <= 12
    order = np.argsort(raw[known])
    expected = np.maximum.accumulate(raw[known][order] * (12 - np.arange(known.sum())))
    np.testing.assert_allclose(p[known][order], np.minimum(expected, 1), rtol=2e-2, atol=1e-6)


def test_choice_by_turns_and_by_the_larger_of_group_and_head() -> None:
    screen = np.zeros((2, 3, 2))
    screen[0, 0] = (3.0, -3.0)  # opposite heads cancel in the group
    screen[1, 2] = (0.5, 0.5)
    integrated = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, -1.5]])
    every = np.ones((2, 3), dtype=bool)
    assert choose(integrated, screen, every, 3).tolist() == [[0, 0], [0, 1], [1, 2]]
    every[0, 0] = False
    assert choose(integrated, screen, every, 2).tolist() == [[1, 2], [0, 1]]


def test_stability_counts_resamples(tiny_wires: Wires) -> None:
    stability = tiny_wires.data["stability"].values
    assert ((stability >= 0) & (stability <= 1)).all()
    assert stability.max() > 0.9
    assert stability.min() < 0.9


def test_splits_positions_and_estimates(tiny_llama: Model, tiny_wires: Wires) -> None:
    for wire in tiny_wires.table:
        if wire.by in "kv":
            assert len(wire.by_head) == 2
            size = max(map(abs, [wire.share, *wire.by_head.values()]))
            assert abs(sum(wire.by_head.values()) - wire.share) < 0.3 * size + 1e-3
        else:
            assert wire.by_head == {}
        if wire.by == "logits":
            assert (wire.at, wire.part) == (tiny_wires.about["shown"]["position"], 1.0)
        elif wire.source == "embedding":
            assert wire.at in tiny_wires.about["shown"]["changed"]
    shares = [wire.largest for wire in tiny_wires.table]
    assert shares == sorted(shares, reverse=True)
    only = hs.wires(tiny_llama, tiny_pairs(2), exact=5, heads=[(1, 2)])
    assert all(
        "L1 H2" in (w.source, w.reader.split("of ")[-1]) or "H2" in w.reader for w in only.table
    )


def test_zero_keeps_the_first_position(tiny_llama: Model) -> None:
    zero = hs.wires(tiny_llama, tiny_pairs(2), exact=4, replace="zero")
    pair = encode_pair(tiny_llama, tiny_pairs(2)[0], "t", "a")
    run = pair.run(graph_of(tiny_llama, pair), "zero")
    assert not run.deltas[:, 0].any()
    assert bool((run.deltas[:, 1:] == -run.first.sources[:, 1:]).all())
    assert zero.about["replace"] == "zero"
    with pytest.raises(InputError, match="needs replace='contrast'"):
        run.alone(run.graph.exists)


def test_the_mean_is_over_positions_of_all_texts(tiny_llama: Model, tmp_path: Path) -> None:
    texts = tiny_pairs(2)
    pairs = [encode_pair(tiny_llama, text, "t", "a") for text in texts]
    graph = graph_of(tiny_llama, pairs[0])
    rows = [
        runner.sources[:, place]
        for pair in pairs
        for runner in pair.runners(graph)
        for place in range(1, runner.sources.shape[1])
    ]
    expected = torch.stack(rows).double().mean(0)
    mean = mean_sources(graph, pairs)
    torch.testing.assert_close(mean.double(), expected, atol=1e-6, rtol=1e-5)
    run = pairs[0].run(graph, "mean", mean)
    assert not run.deltas[:, 0].any()
    torch.testing.assert_close(run.first.sources[:, 1:] + run.deltas[:, 1:],
                               mean[:, None].expand_as(run.deltas[:, 1:]))  # fmt: skip
    found = hs.wires(tiny_llama, texts, exact=4, replace="mean", folder=tmp_path)
    again = hs.wires(tiny_llama, texts, exact=4, replace="mean", folder=tmp_path)
    assert [w.share for w in found.table] == [w.share for w in again.table]
    assert found.about["replace"] == "mean"


def test_a_stopped_run_goes_on(
    tiny_llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tiny_pairs(3)
    whole = hs.wires(tiny_llama, given, exact=6, folder=tmp_path / "a")
    from headscope.causal.pair_wires import PairWires

    exact, n_calls = PairWires.exact, 0

    def stopping(self: PairWires, rows: list[WireRun]) -> np.ndarray:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            raise KeyboardInterrupt
        return exact(self, rows)

    monkeypatch.setattr(PairWires, "exact", stopping)
    with pytest.raises(KeyboardInterrupt):
        hs.wires(tiny_llama, given, exact=6, folder=tmp_path / "b")
    assert len(list((tmp_path / "b" / "pairs").iterdir())) == 6 + 2
    n_calls = 10
    again = hs.wires(tiny_llama, given, exact=6, folder=tmp_path / "b")
    assert n_calls == 10 + 4 + 1  # the other pairs, and positions
    np.testing.assert_array_equal(again.data["exact"], whole.data["exact"])
    damaged = next((tmp_path / "b" / "pairs").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-100])
    once_more = hs.wires(tiny_llama, given, exact=6, folder=tmp_path / "b")
    np.testing.assert_allclose(once_more.data["share"], whole.data["share"], atol=1e-6)


def test_an_edited_model_does_not_go_on_with_other_numbers(
    tiny_llama: Model, tmp_path: Path
) -> None:
    given = tiny_pairs(2)
    plain = hs.wires(tiny_llama, given, exact=3, folder=tmp_path)
    with tiny_llama.edit(hs.ablate(0, 0)):
        edited = hs.wires(tiny_llama, given, exact=3)
        again = hs.wires(tiny_llama, given, exact=3, folder=tmp_path)
    np.testing.assert_array_equal(again.data["exact"], edited.data["exact"])
    assert not np.array_equal(again.data["gap"], plain.data["gap"])
    assert "; without L0 H0" in again.holds
    assert "without L0" not in plain.holds


def test_circuits_and_their_curve(tiny_llama: Model, tiny_wires: Wires) -> None:
    curve = tiny_wires.curve(n_pairs=4)
    assert curve["k"].values.tolist() == [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    assert float(curve["faithfulness"].sel(k=1.0)) == pytest.approx(1, abs=1e-3)
    f, k = curve["faithfulness"].values, curve["k"].values
    area = sum((k[i + 1] - k[i]) * (f[i] + f[i + 1]) / 2 for i in range(9))
    assert curve.attrs["cpr"] == pytest.approx(area)
    off = np.abs(1 - f)
    area = sum((k[i + 1] - k[i]) * (off[i] + off[i + 1]) / 2 for i in range(9))
    assert curve.attrs["cmd"] == pytest.approx(area)
    kept = tiny_wires.circuit(5, keeps_embedding=False)
    assert kept.sum() == 5
    scores = np.abs(tiny_wires.scores())
    assert scores[kept].min() >= scores[tiny_wires.data["exists"].values.astype(bool) & ~kept].max()
    assert tiny_wires.circuit(0)[0].sum() == tiny_wires.data["exists"].values[0].sum()
    with pytest.raises(InputError, match="k=100000 is out of range: the model has"):
        tiny_wires.circuit(100000)
    with pytest.raises(InputError, match="k=nan is out of range"):
        tiny_wires.circuit(float("nan"))
    # Held-out: other templates' pairs do not rank.
    even = tiny_wires.scores([0, 2, 4, 6])
    assert not np.allclose(even, tiny_wires.scores())
    one = hs.wires(tiny_llama, tiny_pairs(1), exact=3)
    with pytest.raises(InputError, match="All pairs are of one template"):
        one.curve()
    assert one.curve(pairs=tiny_pairs(2)[2:])["faithfulness"].shape == (10,)


def test_few_pairs_are_said_in_words(tiny_llama: Model) -> None:
    one = hs.wires(tiny_llama, tiny_pairs(1)[:1], exact=3)
    assert "one pair of one template: about these words" in one.holds
    assert np.isnan([[w.low, w.high, w.stability, w.p] for w in one.table]).all()
    assert "fewer than 4: without interval" in describe(np.array([0, 0, 1, 1, 2]), 5)
    assert "fewer than 8 templates, so without test" in describe(np.arange(20) % 5, 20)
    assert "fewer than 16 pairs" in describe(np.arange(8), 8)
    assert (
        describe(np.arange(64) % 8, 64) == "64 pairs of 8 templates: intervals are over templates"
    )


def test_files_tables_and_figures(tiny_wires: Wires, tmp_path: Path) -> None:
    tiny_wires.save(tmp_path / "wires.nc")
    opened = hs.open(tmp_path / "wires.nc")
    assert str(opened.table) == str(tiny_wires.table)
    assert repr(opened) == repr(tiny_wires)
    with pytest.raises(InputError, match="opened from a file: give the model"):
        opened.curve()
    frame = tiny_wires.to_dataframe()
    assert frame.shape == (12, 16)
    assert frame["share"].tolist() == [wire.share for wire in tiny_wires.table]
    latex = tiny_wires.to_latex(3)
    assert latex.count(r"\\") == 4
    assert tiny_wires.table[0].source in latex
    assert re.search(r"\+0\.\d{3} \[\S+, \S+\]", latex)
    assert f"n = {tiny_wires.n_pairs} pairs of {tiny_wires.n_templates} templates" in latex
    assert len(tiny_wires.figure().axes) >= 2
    assert "Wires" in tiny_wires._repr_html_()


def test_mib_file_splits_groups(tiny_wires: Wires, tmp_path: Path) -> None:
    tiny_wires.save_mib(tmp_path / "graph.json", k=20)
    graph = json.loads((tmp_path / "graph.json").read_text())
    data = tiny_wires.data
    n_layers, n_heads = graph["cfg"]["n_layers"], graph["cfg"]["n_heads"]
    expected = n_layers + 1 + n_layers  # nodes besides heads
    assert (
        len(graph["nodes"])
        == n_layers * n_heads + n_layers + 2
        == expected + n_layers * n_heads + 1 - n_layers
    )
    # TransformerLens counts: q, k and v of every head are readers of their own.
    count = 0
    for layer in range(n_layers):
        below = 1 + layer * (n_heads + 1)
        count += 3 * n_heads * below + below + n_heads
    count += 1 + n_layers * (n_heads + 1)
    assert len(graph["edges"]) == count
    mean_gap = float(np.abs(data["gap"]).mean())
    for wire in tiny_wires.table:
        source = "input" if wire.source == "embedding" else wire.source
        if wire.by == "q" and source != "input" and "MLP" not in source:
            layer, head = source[1:].split(" H")
            name = f"a{layer}.h{head}->a{wire.layer}.h{wire.reader.split(' H')[-1]}<q>"
            assert graph["edges"][name]["score"] == pytest.approx(wire.share * mean_gap, rel=1e-4)
        if wire.by == "k" and source == "input":
            for head, share in wire.by_head.items():
                name = f"input->a{wire.layer}.h{head[1:]}<k>"
                assert graph["edges"][name]["score"] == pytest.approx(share * mean_gap, rel=1e-4)
    assert graph["nodes"]["input"]["in_graph"]


def test_data_for_a_page(tiny_wires: Wires) -> None:
    page = tiny_wires.to_page(5, curve=tiny_wires.curve(n_pairs=2))
    json.dumps(page, allow_nan=False)
    assert len(page["wires"]) == 5
    first, second = page["tokens"]
    assert page["changed"] == [
        i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b
    ]
    wire = page["wires"][0]
    assert {"source", "reader", "share", "low", "high", "stability", "at", "part", "by_head",
            "source_layer", "source_head", "reader_heads"} <= set(wire)  # fmt: skip
    assert len(page["pairs"]) == len(page["templates"]) == tiny_wires.n_pairs
    for wire in page["wires"]:
        assert np.mean(wire["values"]) == pytest.approx(wire["share"], abs=1e-4)
    assert len(page["curve"]["faithfulness"]) == 10


def test_bad_input(tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="There are no pairs"):
        hs.wires(tiny_llama, [])
    with pytest.raises(InputError, match="is not a pair of texts"):
        hs.wires(tiny_llama, ["a bat"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="2 pairs, and 1 for target"):
        hs.wires(tiny_llama, [("a bat sat", "a rat sat")] * 2, ["t"], "a")
    with pytest.raises(UnknownName, match="Unknown replace 'means'"):
        hs.wires(tiny_llama, tiny_pairs(1), replace="means")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="have the same answer, 't'"):
        hs.wires(tiny_llama, [("a bat sat", "a rat sat")], "t", "t")
    with pytest.raises(InputError, match="There is no layer 9"):
        hs.wires(tiny_llama, tiny_pairs(1), heads=[(9, 0)])
    with pytest.raises(InputError, match="names no head"):
        hs.wires(tiny_llama, tiny_pairs(1), heads=[])
    with pytest.raises(InputError, match="neither a pair"):
        hs.wires(tiny_llama, tiny_pairs(1), heads=[(0, 1, "q")])  # type: ignore[list-item]
    with pytest.raises(InputError, match="seed should be a whole number from 0 on"):
        hs.wires(tiny_llama, tiny_pairs(1), seed=-1)
    with pytest.raises(InputError, match="needs a label for each of 1 texts"):
        hs.wires(tiny_llama, [("a bat sat", "a rat sat")], "t", "a", templates=["x", "y"])


@pytest.mark.parametrize("task", TASKS)
def test_tasks_have_templates_and_aligned_texts(task: str, smollm2: Model) -> None:
    made = pairs(task, 40)
    tokenizer = smollm2.require_tokenizer()
    assert len(set(made.texts)) == len(made) == 40
    assert len(set(made.templates)) >= 6
    for (first, second), target, foil in zip(made, made.targets, made.foils, strict=True):
        ids = [tokenizer(text)["input_ids"] for text in (first, second)]
        assert len(ids[0]) == len(ids[1])
        changed = sum(a != b for a, b in zip(*ids, strict=True))
        assert 1 <= changed <= 3
        assert all(len(tokenizer(answer)["input_ids"]) == 1 for answer in (target, foil))
        assert target != foil
    assert pairs(task, 40) == made
    assert pairs(task, 40, seed=1) != made


def test_pairs_of_names_and_contrasts() -> None:
    both = pairs("ioi", 4, contrast="both", names=["Ann", "Bob"])
    for (first, second), target in zip(both, both.targets, strict=True):
        swapped = first.replace("Ann", "X").replace("Bob", "Ann").replace("X", "Bob")
        assert second == swapped
        assert target.strip() in ("Ann", "Bob")
    with pytest.raises(UnknownName, match="Did you mean 'ioi'"):
        pairs("ioo")
    with pytest.raises(InputError, match="fewer than two names"):
        pairs("ioi", names=["Ann"])
    with pytest.raises(InputError, match="a list of names, not 'Ann'"):
        pairs("ioi", names="Ann")
    with pytest.raises(InputError, match="seed should be a whole number from 0 on"):
        pairs("ioi", seed=-1)
    with pytest.raises(InputError, match="are for 'ioi'"):
        pairs("agreement", contrast="both")


def test_pairs_with_breaks_of_lines_are_read_again(tmp_path: Path) -> None:
    broken = Pairs((("a\u2028b", "a\x85c"),), ("t",), ("f",), ("x",))
    broken.save(tmp_path / "pairs.jsonl")
    assert pairs(tmp_path / "pairs.jsonl").texts == broken.texts
    (tmp_path / "latin.jsonl").write_bytes('{"text": "é"}'.encode("latin-1"))
    with pytest.raises(FileFormatError, match="is not UTF-8"):
        pairs(tmp_path / "latin.jsonl")


def test_json_lines_of_pairs(tmp_path: Path) -> None:
    made = pairs("agreement", 10)
    made.save(tmp_path / "p.jsonl")
    read = pairs(tmp_path / "p.jsonl")
    assert (read.texts, read.targets, read.templates) == (made.texts, made.targets, made.templates)
    assert read[2:4].texts == made.texts[2:4]
    bare = tmp_path / "bare.jsonl"
    bare.write_text(
        '{"text": "a b", "contrast": "a c"}\n\n{"text": "x y z", "contrast": "x y w"}\n'
    )
    assert read_pairs(bare).templates == ("0", "1")
    for content, message in (
        ("{", "line 1: not JSON"),
        ('{"text": "a"}', "expected an object with the texts"),
        ('{"text": "a", "contrast": "b", "target": [1]}', "'target' should be a token"),
        ('{"text": "a", "contrast": "b", "template": 1}\n{"text": "a", "contrast": "b"}',
         "pair 2 has no 'template'"),
    ):  # fmt: skip
        bare.write_text(content)
        with pytest.raises(FileFormatError, match=message):
            read_pairs(bare)
    with pytest.raises(InputError, match="There is no file"):
        read_pairs(tmp_path / "none.jsonl")


def test_a_report_has_a_section_of_wires(
    tiny_wires: Wires, decoder_result: Result, tmp_path: Path
) -> None:
    from headscope.reporting.report import build_report

    report = build_report([decoder_result, tiny_wires])
    section = next(s for s in report["sections"] if s["id"] == "wires")
    table = section["figures"][0]
    assert len(table["rows"]) == 12
    assert table["rows"][0][0] == tiny_wires.table[0].source
    tiny_wires.save(tmp_path / "w.nc")
    assert hs.report([decoder_result, tmp_path / "w.nc"], tmp_path / "report.html").is_file()


def test_a_curve_reads_the_position_of_its_wires(tiny_llama: Model, tmp_path: Path) -> None:
    wires = hs.wires(tiny_llama, tiny_pairs(2), exact=3, position=-2)
    cut = Pairs(
        tuple((first[:-1], second[:-1]) for first, second in wires_pairs(wires)),
        *([e[name] for e in wires.about["examples"]] for name in ("target", "foil", "template")),
    )  # fmt: skip
    same = hs.wires(tiny_llama, cut, exact=3)
    np.testing.assert_allclose(wires.data["gap"], same.data["gap"], atol=1e-5)
    expected = same.curve()["faithfulness"].values
    np.testing.assert_allclose(wires.curve()["faithfulness"], expected, atol=1e-3)
    wires.save(tmp_path / "wires.nc")
    opened = hs.open(tmp_path / "wires.nc")
    np.testing.assert_allclose(opened.curve(tiny_llama)["faithfulness"], expected, atol=1e-3)


def wires_pairs(wires: Wires) -> list[tuple[str, str]]:
    return [tuple(example["texts"]) for example in wires.about["examples"]]


def test_estimates_of_zero_have_the_size_of_effects(tiny_llama: Model) -> None:
    """The norm of a stream of zeros has a gradient of 1/√ε: EAP-IG from there means nothing."""
    found = hs.wires(tiny_llama, tiny_pairs(2), exact=20, replace="zero")
    largest = max(wire.largest for wire in found.table)
    assert max(abs(wire.estimate) for wire in found.table) < 5 * largest


@pytest.mark.parametrize("templates", [5, [["a"], ["b"]], {"a": 1}])
def test_templates_that_are_no_labels(tiny_llama: Model, templates: object) -> None:
    pairs = list(tiny_pairs(1))[:2]
    with pytest.raises(InputError, match="needs a label for each of 2 texts"):
        hs.wires(tiny_llama, pairs, "t", "a", templates=templates)  # type: ignore[arg-type]
