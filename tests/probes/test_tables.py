"""Tables of best heads: rows, formats, the cross-fitted accuracy, names and figures."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.heads.roles import best_at
from headscope.model.model import Model
from headscope.probes.probe_dependencies import probe_examples
from headscope.results.display import latex_table
from headscope.results.probe import ProbeExamples
from headscope.results.result import Result
from headscope.statistics.cross_fitting import cross_fit_score
from tests.conftest import word_piece_tokenizer
from tests.families.zoo import DECODERS, build
from tests.probes.slow_probes import crossfit_accuracy
from tests.probes.test_coreference import LONG
from tests.probes.test_dependencies import PARSED
from tests.run.corpora import make_corpus


@pytest.fixture(scope="module")
def dependencies(tiny_bert: Model) -> Result:
    return hs.probe_dependencies(tiny_bert, hs.read(PARSED), 2)


def test_crossfit_scores_by_hand() -> None:
    """Two parts, two heads. Head 0 is best on part 0 (3 of 4) and gets 1 of 4 on part 1; head 1
    is best on part 1 (2 of 4) and gets 1 of 4 on part 0: 2 of 8, where the best has 4 of 8."""
    right = np.array([[3.0, 1.0], [1.0, 2.0]])
    cases = np.array([4.0, 4.0])
    assert cross_fit_score(right, cases, np.zeros((2, 1))).score == 2 / 8


def test_crossfit_scores_against_loops() -> None:
    generator = np.random.default_rng(0)
    cases = generator.integers(1, 20, (10, 3)).astype(float)
    right = generator.integers(0, 10, (10, 6, 3)).astype(float)
    rival = np.zeros((10, 1))
    for label in range(3):
        rows = {part: right[part, :, label] for part in range(10)}
        totals = {part: cases[part, label] for part in range(10)}
        score = cross_fit_score(right[..., label], cases[:, label], rival).score
        assert score == pytest.approx(crossfit_accuracy(rows, totals))
    of_one_half = np.where(np.arange(10) % 2, 0, cases[:, 0])
    assert np.isnan(cross_fit_score(right[..., 0], of_one_half, rival).score)


def test_rows_are_the_best_heads(dependencies: Result) -> None:
    table = dependencies.table()
    assert table.rows[0].label == "all"
    assert "root" not in [row.label for row in table.rows]
    for row in table.rows:
        values = dependencies["accuracy"].sel(relation=row.label)
        assert row.accuracy == float(values.max())
        here = {"direction": row.direction, "layer": row.layer, "head": row.head}
        assert float(values.sel(here)) == row.accuracy
        assert row.baselines["offset"] == float(dependencies["baseline"].sel(relation=row.label))
        assert row.crossfit_accuracy <= row.accuracy + 1e-12 or np.isnan(row.crossfit_accuracy)
    gains = [row.gain for row in table.rows[1:]]
    assert gains == sorted(gains, reverse=True)
    assert table["nsubj"].label == "nsubj"
    with pytest.raises(UnknownName, match=r"Unknown row 'nsub'\. Did you mean 'nsubj'"):
        table["nsub"]


def test_planned_relations_are_corrected_among_themselves(tiny_bert: Model) -> None:
    probe = hs.probe_dependencies(tiny_bert, make_corpus(60), min_cases=5)
    plain, planned = probe.table(), probe.table(relations=["obj", "det"])
    assert {row.label for row in planned.rows[1:3]} == {"obj", "det"}
    alone = sorted((planned[label].gains["offset"].p, label) for label in ("obj", "det"))
    (low, first), (high, second) = alone
    assert planned[first].gains["offset"].p_adjusted == pytest.approx(min(1, 2 * low))
    expected = max(min(1, 2 * low), high)
    assert planned[second].gains["offset"].p_adjusted == pytest.approx(expected)
    assert planned["all"] == plain["all"]
    families = {record["relation"]: record["family"] for record in planned.records()}
    assert families["obj"] == "planned"
    assert families["case"] == "exploratory"
    assert "exploratory" in str(planned)
    assert "family" not in plain.records()[0]
    with pytest.raises(UnknownName):
        probe.table(relations=["objj"])


def test_csv_has_the_rows(dependencies: Result, tmp_path: Path) -> None:
    table = dependencies.table()
    table.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["relation"] for row in rows] == [row.label for row in table.rows]
    assert float(rows[0]["accuracy"]) == table.rows[0].accuracy
    assert "visible" not in rows[0]


def test_causal_tables_show_what_is_visible(tiny_llama: Model) -> None:
    table = hs.probe_dependencies(tiny_llama, hs.read(PARSED), 2).table()
    assert "visible" in table.to_dataframe()
    assert "visible" in str(table)


def test_text_of_a_table(dependencies: Result) -> None:
    lines = str(dependencies.table()).splitlines()
    assert lines[1].split() == [
        *("relation", "cases", "head", "direction", "accuracy", "ties"),
        *("cross-fitted", "baseline", "p", "(Holm)"),
    ]
    assert lines[2].startswith("all")


def test_latex_and_dataframe_of_a_table(dependencies: Result) -> None:
    table = dependencies.table()
    frame = table.to_dataframe()
    assert list(frame.columns) == list(table.records()[0])
    assert frame["accuracy"].tolist() == [row.accuracy for row in table.rows]
    lines = table.to_latex().splitlines()
    assert lines[2].startswith(r"\caption{")
    assert "Holm-corrected. ties: other heads" in lines[2]
    assert r"95 \%" in lines[2]
    assert lines[3] == r"\begin{tabular}{lrllrrrrr}"
    assert lines[5].startswith("relation & cases & head & direction & accuracy & ties & cross-fit")
    assert len(lines) == len(table.rows) + 10


def test_latex_is_escaped() -> None:
    assert latex_table(["a_b", "c"], [["−1 %", "<0.001"]], "x & y") == (
        "\\begin{table}\n\\centering\n\\caption{x \\& y}\n\\begin{tabular}{lr}\n\\toprule\n"
        "a\\_b & c \\\\\n\\midrule\n$-$1 \\% & $<$0.001 \\\\\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def test_names_are_for_heads_above_their_baseline(dependencies: Result) -> None:
    table = dependencies.table()
    named = best_at(dependencies, margin=-1.0)
    expected = {
        (row.layer, row.head)
        for row in table.rows
        if row.label != "all" and row.crossfit_accuracy >= -1
    }
    assert set(named) == expected
    assert best_at(dependencies, margin=1.0) == {}


def test_other_results_are_refused(tiny_bert: Model) -> None:
    other = hs.analyze(tiny_bert, hs.read(PARSED), "distance")
    with pytest.raises(InputError, match=r"Expected a result of headscope\.probe_dependencies"):
        other.table()


def test_figures_are_drawn(dependencies: Result, tiny_bert: Model, tmp_path: Path) -> None:
    coreference = hs.probe_coreference(tiny_bert, hs.read([LONG]))
    for number, result in enumerate((dependencies, coreference)):
        path = tmp_path / f"{number}.png"
        result.table().figure().savefig(path)
        assert path.stat().st_size > 5000
    with pytest.raises(InputError, match="no relation has enough cases"):
        hs.probe_dependencies(tiny_bert, hs.read(PARSED), 1000).table().figure()


def test_examples_are_what_the_probe_counts(tiny_bert: Model, dependencies: Result) -> None:
    """All six documents are alike: a head is right in all or in none."""
    accuracy = dependencies["accuracy"].sel(direction="head", relation="nsubj")
    for layer in range(tiny_bert.info.n_layers):
        for head in range(tiny_bert.info.n_heads):
            examples = probe_examples(
                tiny_bert, hs.read(PARSED), layer, head, "nsubj", direction="head", right=2, wrong=1
            )
            is_right = float(accuracy.sel(layer=layer, head=head)) == 1
            assert [example.is_right for example in examples] == (
                [True] * 2 if is_right else [False]
            )
            (arc,) = examples[0].arcs
            assert (arc.query, arc.target) == (2, 3)
            others = np.delete(examples[0].weights[2], 2)
            assert arc.predicted is not None
            assert examples[0].weights[2, arc.predicted] == others.max()
    figure = examples.figure("nsubj")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("cat") == 2


def test_examples_of_layers_with_numbers_of_their_own() -> None:
    """In a hybrid model not every layer has attention: these are 1 and 3."""
    jamba = build(next(model for model in DECODERS if model.name == "jamba"))
    model = hs.load(jamba, word_piece_tokenizer())
    for layer in (1, 3):
        assert probe_examples(model, hs.read(PARSED), layer, 0, "nsubj")
    for layer in (0, 2):
        with pytest.raises(InputError, match=f"no layer {layer}; layers with attention: 1, 3"):
            probe_examples(model, hs.read(PARSED), layer, 0, "nsubj")


def test_examples_of_each_block(tiny_t5: Model) -> None:
    encoder, decoder = (
        probe_examples(tiny_t5, hs.read(PARSED), 0, 0, "nsubj", block=block)
        for block in ("encoder", "decoder")
    )
    assert encoder[0].weights.shape == decoder[0].weights.shape
    assert not np.allclose(encoder[0].weights, decoder[0].weights)


def test_bad_examples_are_refused(tiny_bert: Model) -> None:
    corpus = hs.read(PARSED)
    with pytest.raises(UnknownName, match=r"Unknown relation 'nsuj'\. Did you mean 'nsubj'"):
        probe_examples(tiny_bert, corpus, 0, 0, "nsuj")
    with pytest.raises(UnknownName, match="Unknown direction 'up'"):
        probe_examples(tiny_bert, corpus, 0, 0, "nsubj", direction="up")
    with pytest.raises(InputError, match="There is no layer 99; layers with attention: 0, 1"):
        probe_examples(tiny_bert, corpus, 99, 0, "nsubj")
    with pytest.raises(InputError, match="Layer 0 has heads 0 to 3, not 4"):
        probe_examples(tiny_bert, corpus, 0, 4, "nsubj")
    with pytest.raises(InputError, match="No 'decoder' attention was seen"):
        probe_examples(tiny_bert, corpus, 0, 0, "nsubj", block="decoder")
    with pytest.raises(InputError, match="There is no example to draw"):
        ProbeExamples("none", ()).figure()


def test_examples_of_a_result_are_of_its_best_head(tiny_bert: Model, dependencies: Result) -> None:
    best = dependencies.table()["nsubj"]
    examples = dependencies.examples(tiny_bert, hs.read(PARSED), "nsubj", right=1, wrong=1)
    assert examples.title == f"{tiny_bert.name} · L{best.layer} H{best.head} · nsubj"
    expected = probe_examples(
        tiny_bert,
        hs.read(PARSED),
        best.layer,
        best.head,
        "nsubj",
        direction=best.direction,
        right=1,
        wrong=1,
    )
    assert len(examples) == len(expected)
    for one, other in zip(examples, expected, strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
    assert examples.figure().get_suptitle() == examples.title
    other = dependencies.examples(tiny_bert, hs.read(PARSED), "nsubj", layer=0, head=3)
    assert "L0 H3" in repr(other)


def test_examples_of_a_probe_over_norms(tiny_bert: Model) -> None:
    """They show what the probe counted, not plain attention."""
    result = hs.probe_dependencies(tiny_bert, hs.read(PARSED), 2, over="norm")
    assert "weighted by norms" in str(result.table())
    accuracy = result["accuracy"].sel(direction="dependent", relation="nsubj")
    differs = 0
    for layer, head in np.ndindex(tiny_bert.info.n_layers, tiny_bert.info.n_heads):
        normed, plain = (
            probe_examples(tiny_bert, hs.read(PARSED), layer, head, "nsubj", over=over)
            for over in ("norm", "attention")
        )
        assert normed[0].is_right == (float(accuracy.sel(layer=layer, head=head)) == 1)
        differs += not np.allclose(normed[0].weights, plain[0].weights, atol=1e-3)
    assert differs > 4
    examples = result.examples(tiny_bert, hs.read(PARSED), "nsubj", layer=layer, head=head)
    assert examples.title.endswith("nsubj · by norm")
    np.testing.assert_array_equal(examples[0].weights, normed[0].weights)


def test_examples_of_folded_relations(tiny_bert: Model) -> None:
    poss = [dataclasses.replace(d, relations=tuple(f"{r}:x" for r in d.relations)) for d in PARSED]
    result = hs.probe_dependencies(tiny_bert, hs.read(poss), 2, fold_subtypes=True)
    assert result.examples(tiny_bert, hs.read(poss), "nsubj")


def test_examples_are_of_the_probed_model(
    tiny_bert: Model, tiny_llama: Model, dependencies: Result
) -> None:
    with pytest.raises(InputError, match="has other weights"):
        dependencies.examples(tiny_llama, hs.read(PARSED), "nsubj")
    with pytest.raises(InputError, match="Give layer and head, or neither"):
        dependencies.examples(tiny_bert, hs.read(PARSED), "nsubj", layer=1)
    other = hs.analyze(tiny_bert, hs.read(PARSED), "distance")
    with pytest.raises(InputError, match="This result lacks accuracy"):
        other.examples(tiny_bert, hs.read(PARSED), "nsubj")


def test_only_bias_tables_choose_heads(dependencies: Result) -> None:
    with pytest.raises(InputError, match="other tables show the best head of each row"):
        dependencies.table([(0, 0)])
