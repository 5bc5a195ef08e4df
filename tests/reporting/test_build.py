"""The report as plain data: sections, figures and cards hold what the results do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from headscope.errors import InputError
from headscope.figures.chart_data import find_subjects
from headscope.heads.cards import make_card
from headscope.metrics import METRICS
from headscope.model.model import Model
from headscope.probes.probe_dependencies import probe_dependencies
from headscope.probes.tables import probe_table
from headscope.reporting.report import build_report, equation_tree
from headscope.reporting.wording import plain
from headscope.results.probe import Probe
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.compare import compare
from headscope.run.merge import group_result
from tests.reporting.made_up import result
from tests.run.corpora import make_corpus

pytestmark = pytest.mark.xdist_group("report")  # the results are made once


@pytest.fixture(scope="module")
def content(encoder_results: list[Result], decoder_result: Result) -> dict[str, Any]:
    return build_report([*encoder_results, decoder_result])


def figures(content: dict[str, Any]) -> dict[str, Any]:
    return {f["id"]: f for section in content["sections"] for f in section["figures"]}


def test_everything_is_json_without_nan(content: dict[str, Any]) -> None:
    assert json.loads(json.dumps(content, allow_nan=False))["sections"]


def test_results_of_a_model_are_put_together(content: dict[str, Any]) -> None:
    assert len(content["subjects"]) == 2
    assert [len(of["runs"]) for of in content["provenance"]] == [4, 1]
    titles = [section["title"] for section in content["sections"]]
    assert titles == [
        "What changed",
        "Every head",
        "Layer by layer",
        "Syntax",
        "Parts of speech",
        "Does it matter?",
        "Heads that attend alike",
        "Exemplars",
        "Side by side",
    ]


def test_heat_maps_hold_the_values_and_intervals(
    content: dict[str, Any], encoder_results: list[Result], decoder_result: Result
) -> None:
    variables = {v["id"]: v for v in figures(content)["heads"]["variables"]}
    assert {"null_share", "pos_to:NOUN", "offset_share:-1", "dep_alignment:either"} <= {*variables}
    for number, of in enumerate((encoder_results[0], decoder_result)):
        shown = variables["distance"]["values"][number]
        np.testing.assert_allclose(np.array(shown["value"]), of["distance"], rtol=1e-5)
        bounds = of["distance_interval"]
        np.testing.assert_allclose(np.array(shown["low"]), bounds.sel(bound="low"), rtol=1e-5)
        np.testing.assert_allclose(np.array(shown["high"]), bounds.sel(bound="high"), rtol=1e-5)
    noun = variables["pos_to:NOUN"]["values"][0]["value"]
    np.testing.assert_allclose(
        np.array(noun), encoder_results[0]["pos_to"].sel(tag="NOUN"), rtol=1e-5
    )
    assert variables["importance:all"]["values"][1] is None
    assert "js" not in variables


def test_lines_hold_layers_and_baselines(
    content: dict[str, Any], encoder_results: list[Result]
) -> None:
    figure = figures(content)["alignment"]
    of = encoder_results[0]
    for column, form in enumerate(("query", "key", "either")):
        panel = figure["rows"][0]["panels"][column]
        expected = of["dep_alignment_by_layer"].sel(parent=form)
        np.testing.assert_allclose(panel["series"][0]["value"], expected, rtol=1e-5)
        baseline = of["dep_baseline_by_parent"].sel(parent=form)
        assert panel["baseline"]["value"] == pytest.approx(float(baseline), rel=1e-5)


def test_label_maps_hold_shares_by_layer(
    content: dict[str, Any], encoder_results: list[Result]
) -> None:
    figure = figures(content)["pos_from"]
    row = figure["labels"].index("VERB")
    expected = encoder_results[0]["pos_from_by_layer"].sel(tag="VERB")
    np.testing.assert_allclose(figure["panels"][0]["value"][row], expected, rtol=1e-5)
    means = [np.nanmean(values) for values in figure["panels"][0]["value"]]
    assert max(means) == means[0]


def value_of(cell: Any) -> float:
    """The number of a cell, which has bounds beside it where there are documents enough."""
    return float(cell["value"] if isinstance(cell, dict) else cell)


def test_the_table_of_relations_is_the_probe_table(
    content: dict[str, Any], encoder_results: list[Result]
) -> None:
    rows = figures(content)["relations"]["rows"]
    expected = probe_table(encoder_results[2]).rows
    assert [row[1] for row in rows] == [row.label for row in expected]
    assert rows[0][3] == {"head": (0, expected[0].layer, expected[0].head)}
    assert value_of(rows[0][5]) == pytest.approx(expected[0].accuracy, rel=1e-5)
    assert value_of(rows[0][6]) == pytest.approx(expected[0].crossfit_accuracy, rel=1e-5)
    assert rows[0][7] == pytest.approx(expected[0].baselines["offset"], rel=1e-5)


def test_cards_are_what_explain_head_says(
    content: dict[str, Any], encoder_results: list[Result]
) -> None:
    n_layers, n_heads = encoder_results[0]["distance"].shape
    cards = content["cards"][0]
    assert len(cards) == n_layers * n_heads
    for card in (cards[0], cards[-1]):
        expected = make_card(encoder_results, card["layer"], card["head"])
        assert card["summary"] == expected.summary
        assert card["evidence"] == [
            (topic, [[row.what, row.value, row.rank] for row in rows])
            for topic, rows in expected.evidence
        ]
        nearest = [(a, b) for a, b, _ in expected.nearest]
        assert [(a, b) for a, b, _ in card["nearest"]] == nearest


def test_no_evidence_twice(content: dict[str, Any]) -> None:
    for topic, rows in content["cards"][0][0]["evidence"]:
        names = [what for what, _, _ in rows]
        assert len(names) == len({*names}), topic


def test_arcs_point_at_the_exemplars_tokens(
    content: dict[str, Any], encoder_results: list[Result]
) -> None:
    card = content["cards"][0][1]
    arc = card["exemplars"][0]
    expected = encoder_results[0].exemplars(card["layer"], card["head"])[0]
    tokens = content["documents"][arc["document"]]
    assert tokens[arc["query"]] == expected.query_tokens[expected.query]
    assert tokens[arc["key"]] == expected.key_tokens[expected.key]
    assert arc["weight"] == pytest.approx(expected.weight, rel=1e-5)


def test_groups_and_differences(
    content: dict[str, Any], encoder_results: list[Result], decoder_result: Result
) -> None:
    dots = figures(content)["groups"]
    names = [group.split(" (")[0] for group in dots["groups"]]
    assert sorted(names) == ["fiction", "news"]
    distance = next(column for column in dots["columns"] if column["title"] == "Distance")
    for name, shown in zip(names, distance["values"][0], strict=True):
        expected = float(group_result(encoder_results[0], name)["distance_mean"])
        assert shown["value"] == pytest.approx(expected, rel=1e-5)
    rows = {row[0]: row for row in figures(content)["differences"]["rows"]}
    expected = compare(encoder_results[0], decoder_result)
    shown = rows["Mean distance (tokens)"][3]
    assert shown["value"] == pytest.approx(float(expected["distance_mean"]), rel=1e-5)
    assert shown["low"] == pytest.approx(float(expected["distance_mean_interval"][0]), rel=1e-5)


def test_genres_side_by_side(encoder_results: list[Result]) -> None:
    genres = [group_result(encoder_results[0], name) for name in ("news", "fiction")]
    content = build_report(genres)
    model = encoder_results[0].model
    assert [s["title"] for s in content["subjects"]] == [f"{model} · news", f"{model} · fiction"]
    assert "differences" in figures(content)


def test_figures_referred_to_are_there(content: dict[str, Any]) -> None:
    known = figures(content)
    parts = [
        part
        for finding in content["findings"]
        for paragraph in finding["paragraphs"]
        for sentence in paragraph["sentences"]
        for part in sentence
        if isinstance(part, dict)
    ]
    assert {part["figure"] for part in parts if "figure" in part} <= {*known}
    for figure in known.values():
        assert figure["equation"] is None or figure["equation"] in content["equations"]


def leaves(tree: list[Any]) -> str:
    return "".join(leaves(part) if isinstance(part, list) else part for part in tree[1:])


def test_equations_of_all_metrics_become_trees() -> None:
    for make in METRICS.values():
        for variable in make().variables():
            if variable.equation:
                tree = equation_tree(variable.equation)
                assert tree is not None, variable.name
                assert "\\" not in leaves(tree), variable.name  # a command it does not know
    tree = equation_tree(METRICS["distance"].equation)
    assert tree is not None
    assert leaves(tree) == "∑i,jaij·|i−j|∑i,jaij"
    assert "munder" in str(tree)
    assert equation_tree("") is None
    assert equation_tree("\\frac{") is None


def test_metrics_over_heads_have_an_equation() -> None:
    lacking = {name for name, metric in METRICS.items() if not metric.equation}
    # Rules in words; one for its preference; documents, not a number.
    assert lacking == {"coref_baseline", "bias", "head_samples"}


def test_sections_appear_only_with_their_data() -> None:
    content = build_report([result({"distance": 2.0})])
    assert [section["id"] for section in content["sections"]] == ["every-head", "by-layer"]
    assert len(content["findings"]) == 1
    assert content["findings"][0]["subject"] == 0


def test_variables_of_a_metric_of_ones_own_are_shown_by_their_attributes() -> None:
    (variable,) = figures(build_report([result({"my_metric": 2.0})]))["heads"]["variables"]
    assert (variable["group"], variable["meaning"], variable["paper"]) == (
        "My metric",
        "A meaning.",
        "A paper",
    )


def test_another_corpus_is_another_subject_and_said_so() -> None:
    subjects = find_subjects(
        [result({"distance": 1.0}), result({"distance": 2.0}, corpus="other.txt")]
    )
    assert [s.title for s in subjects] == ["toy · toy.conllu", "toy · other.txt"]
    twice = find_subjects([result({"distance": 1.0}), result({"distance": 2.0})])
    assert [s.title for s in twice] == ["toy", "toy · 2"]


def test_the_order_of_results_does_not_matter(encoder_results: list[Result]) -> None:
    (forth,) = find_subjects(encoder_results)
    (back,) = find_subjects(encoder_results[::-1])
    assert back.results[0] is forth.results[0] is encoder_results[0]
    assert (
        build_report(encoder_results[::-1])["findings"] == build_report(encoder_results)["findings"]
    )


def test_edits_make_another_subject() -> None:
    ablated = result({"distance": 1.0}, model="toy")
    about = {**ablated.provenance["model"], "edits": ["ablate L0 H1"]}
    edited = Result(ablated.blocks, {}, {**ablated.provenance, "model": about})
    assert [s.title for s in find_subjects([ablated, edited])] == ["toy", "toy · edited"]


def trained(model: str = "toy", **about: Any) -> Probe:
    """A trained probe with what a report needs."""
    scores = xr.Dataset(
        {
            "uas": (("decoding", "punctuation"), [[0.6]]),
            "uas_interval": (("bound", "decoding", "punctuation"), [[[0.58]], [[0.62]]]),
            "right_branching": ("punctuation", [0.25]),
            "right_branching_interval": (("bound", "punctuation"), [[0.2], [0.3]]),
        },
        {"decoding": ["greedy"], "punctuation": ["without"], "bound": ["low", "high"]},
    )
    provenance = {"model": {"name": model}, "seed": 1, **about}
    return Probe("attention", xr.Dataset(), scores, xr.Dataset(), provenance)


def test_trained_probes_stand_beside_their_model() -> None:
    control = trained("toy, random weights", control_seed=3)
    content = build_report([result({"distance": 1.0}), trained(), control])
    table = figures(content)["probes"]
    assert [row[1] for row in table["rows"]] == [
        "attention",
        "attention, random weights (control)",
        "right-branching",
    ]
    assert table["rows"][0][2] == {"value": 0.6, "low": 0.58, "high": 0.62}
    with pytest.raises(
        InputError, match="trained on the model 'other', but the results are of toy"
    ):
        build_report([result({"distance": 1.0}), trained("other")])


def test_what_is_no_result_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to report: give at least one result"):
        build_report([])
    with pytest.raises(InputError, match="A report is made of results; int is not one"):
        build_report([3])


def test_encoder_decoders_have_a_subject_for_each_attention(tiny_t5: Any) -> None:
    import headscope as hs
    from tests.run.corpora import make_corpus

    found = hs.analyze(tiny_t5, make_corpus(6), ["null_share", "entropy", "exemplars"])
    content = build_report([found])
    assert [s["title"].rsplit(" · ", 1)[-1] for s in content["subjects"]] == list(found.blocks)
    assert all(content["cards"])


def test_what_replicates_and_what_was_planned(
    encoder_results: list[Result], tiny_bert: Model
) -> None:
    other = analyze(tiny_bert, make_corpus(40, seed=1, first=100))
    hypotheses = ["null_share", ("offset_share", {"offset": -1})]
    content = build_report(encoder_results[:1], replicate=[other], hypotheses=hypotheses)
    said = {
        finding["title"]: finding["paragraphs"][0]["sentences"] for finding in content["findings"]
    }
    table = encoder_results[0].replicates(other)
    assert table.summary in plain(said["What replicates"][0])
    rows = figures(content)["replication"]["rows"]
    assert [row[0] for row in rows] == [claim.text for claim, _ in table.rows]
    assert [row[-1] for row in rows] == [row[0].verdict for _, row in table.rows]
    sizes = encoder_results[0]["null_share"].sizes
    n = 2 * sizes["layer"] * sizes["head"]
    assert f"after correction over {n} planned tests" in plain(said["What was planned"][0])
    assert "All other findings were found, not planned." in plain(said["What was planned"][-1])
    without = build_report(encoder_results[:1])
    assert "What replicates" not in [section["title"] for section in without["sections"]]
    json.dumps(content, allow_nan=False)


def test_replications_are_of_the_same_model(
    encoder_results: list[Result], decoder_result: Result
) -> None:
    with pytest.raises(InputError, match="no result is of the same model"):
        build_report(encoder_results[:1], replicate=[decoder_result])


def test_best_heads_of_two_models_are_compared(
    encoder_results: list[Result], decoder_result: Result, tiny_llama: Model
) -> None:
    probe = probe_dependencies(tiny_llama, make_corpus(40), min_cases=5)
    content = build_report([*encoder_results, decoder_result, probe])
    topics = {
        paragraph["topic"]: paragraph["sentences"]
        for finding in content["findings"]
        for paragraph in finding["paragraphs"]
    }
    found = encoder_results[2].compare(probe)
    is_clear = found["accuracy_best_p_adjusted"] < 0.05
    said = plain(topics["Best heads"][0])
    assert said.startswith("The best heads of ")
    assert ("for none of" in said) == (not is_clear.any())
    for label in found["relation"].values[is_clear.values]:
        assert f"{'all relations together' if label == 'all' else label} by " in said
