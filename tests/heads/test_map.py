"""Behaviors, the map, clusters, cards and detectors."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from headscope.causal.importance import importance
from headscope.errors import InputError
from headscope.heads.cards import make_card
from headscope.heads.detect import _are_words, _draw, detect_heads
from headscope.heads.head_map import HeadMap, map_heads
from headscope.heads.roles import RoleThresholds, name_heads
from headscope.metrics import describe_variable
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.run.analyze import analyze
from headscope.run.measure import measure
from headscope.text.readers.read import read
from tests.run.corpora import make_documents

if TYPE_CHECKING:
    from headscope.model.model import Model

pytest.importorskip("sklearn", reason="scikit-learn is not installed (headscope[heads])")

N = 8


def patterns() -> Result:
    """An encoder whose heads do one thing each."""
    eye = np.eye(N)
    previous, following = np.roll(eye, -1, axis=1), np.roll(eye, 1, axis=1)
    cls, sep = (np.tile(eye[i], (N, 1)) for i in (0, N - 1))
    dot = np.tile(eye[3], (N, 1))
    uniform = np.full((N, N), 1 / N)
    mixed = 0.4 * previous + 0.4 * eye + 0.2 * following
    heads = np.stack([previous, following, cls, sep, dot, uniform, mixed, mixed])
    tokens = ["[CLS]", "a", "b", ".", "c", "a", "d", "[SEP]"]
    special = [True, *[False] * 6, True]
    trace = Trace.from_arrays(heads.reshape(2, 4, N, N), tokens, special=special, is_causal=False)
    names = ["js", "offset_share", "class_share", "row_entropy", "uniform_entropy", "exemplars"]
    return measure(trace, [*names, "distance", "induction"])


def test_every_role_has_its_name() -> None:
    found = name_heads(patterns())
    assert found.values.ravel().tolist() == [
        "previous token",
        "next token",
        "first token",
        "special tokens",
        "punctuation",
        "broad attention",
        "other",
        "other",
    ]
    named = name_heads(patterns(), probes={(1, 2): "direct object"})
    assert named.sel(layer=1, head=2).item() == "direct object"
    loose = name_heads(patterns(), RoleThresholds(share=0.3))
    assert loose.sel(layer=1, head=2).item() == "current token"


def test_map_keeps_like_heads_together() -> None:
    heads = map_heads(patterns(), starts=4)
    assert isinstance(heads, HeadMap)
    assert heads.nearest(1, 2, 1) == [(1, 3, pytest.approx(0, abs=1e-6))]
    places = np.stack([heads.data["x"], heads.data["y"]], axis=1)
    assert np.linalg.norm(places[6] - places[7]) < 0.1 * np.linalg.norm(places[0] - places[1])
    assert heads.data["cluster"].values[6] == heads.data["cluster"].values[7]
    again = map_heads(patterns(), starts=4)
    np.testing.assert_array_equal(heads.data["x"], again.data["x"])
    same, different = heads.layer_spread()
    assert 0 < same < np.log(2)
    assert 0 < different < np.log(2)
    assert "8 heads" in repr(heads)
    with pytest.raises(InputError, match="no L9 H0"):
        heads.nearest(9, 0)


def test_embedding_is_exact_where_the_plane_suffices() -> None:
    from headscope.heads.head_map import embed

    points = np.random.default_rng(0).normal(size=(20, 2))
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    places, stress = embed(apart, seed=0, starts=6)
    assert stress < 0.01
    found = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.testing.assert_allclose(found, apart, atol=0.05)


def test_clusters_of_two_clouds() -> None:
    from headscope.heads.head_map import cluster

    points = np.concatenate([np.zeros((6, 1)), np.full((5, 1), 9.0)])
    points += np.random.default_rng(0).normal(0, 0.1, points.shape)
    apart = np.abs(points - points.T)
    tree, silhouette, clusters = cluster(apart)
    assert tree.shape == (10, 4)
    assert int(np.argmax(silhouette)) == 0
    assert len(set(clusters[:6])) == 1
    assert len(set(clusters)) == 2


def test_a_map_says_what_it_lacks() -> None:
    result = patterns()
    without = measure(
        Trace.from_arrays(np.full((1, 2, 2, 2), 0.5), ["a", "b"], is_causal=False), "distance"
    )
    with pytest.raises(InputError, match="A map needs the divergences of all pairs"):
        map_heads(without)
    with pytest.raises(InputError, match="offset_share, class_share, row_entropy"):
        name_heads(without)
    few = measure(
        Trace.from_arrays(np.full((1, 2, 2, 2), 0.5), ["a", "b"], is_causal=False),
        ["js", "offset_share", "class_share", "row_entropy", "uniform_entropy"],
    )
    with pytest.raises(InputError, match="at least 3 heads"):
        map_heads(few)
    assert map_heads(result, starts=1).stress >= 0


def test_a_card_has_all_evidence() -> None:
    result = patterns()
    card = make_card(result, 0, 0)
    text = str(card)
    assert text.startswith("L0 H0 of ")
    assert "Attends to the previous token, " in text
    assert "previous" in text
    assert "1st of 8" in text
    assert "Nearest heads" in text
    assert "Highest weights" in text
    assert card.nearest[0][:2] in {(1, 2), (1, 3)}
    assert make_card(result, 0, 0, heads=map_heads(result, starts=1)).nearest[0][:2] in {
        (1, 2),
        (1, 3),
    }


def test_a_card_of_few_heads_names_those_there_are() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(3), (1, 3, 3))
    trace = Trace.from_arrays(weights, ["a", "b", "c"], is_causal=False)
    card = make_card(measure(trace, ["js", "distance"]), 0, 1)
    assert [at[:2] for at in card.nearest] in ([(0, 0), (0, 2)], [(0, 2), (0, 0)])
    assert "nan" not in str(card)


def test_a_card_without_the_uniform_entropy_says_what_is_missing() -> None:
    trace = Trace.from_arrays(np.full((1, 2, 2, 2), 0.5), ["a", "b"], is_causal=False)
    result = measure(trace, ["offset_share", "class_share", "row_entropy"])
    assert make_card(result, 0, 0).role == ""  # two queries show nothing
    assert make_card(measure(trace, "distance"), 0, 0).role is None
    assert "Role not measured" in make_card(measure(trace, "distance"), 0, 0).summary
    with pytest.raises(InputError, match="uniform_entropy"):
        name_heads(result)


def test_a_card_of_several_results(tiny_llama: Model) -> None:
    corpus = read([document for document in make_documents(6) if len(document) > 2])
    results = [analyze(tiny_llama, corpus), importance(tiny_llama, corpus)]
    card = make_card(results, 1, 2)
    topics = [topic for topic, _ in card.evidence]
    assert "Gradient |∂L/∂a| by class of key" in topics
    assert "Attention to each tag" in topics
    with pytest.raises(InputError, match="There is no head 99"):
        make_card(results, 0, 99)
    with pytest.raises(InputError, match="give at least one"):
        make_card([], 0, 0)


def test_probes_name_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    result = patterns()
    accuracy = np.zeros((2, 4, 2, 1))
    accuracy[1, 2, :, 0] = 0.7, 0.2
    data = result.dataset.assign(
        accuracy=(("layer", "head", "relation", "direction"), accuracy),
        baseline=("relation", np.array([0.4, 0.3])),
    ).assign_coords(relation=["obj", "det"], direction=["dependent"])
    data["accuracy"].attrs = dict(describe_variable("accuracy"))
    probe = replace(result, blocks={"self": data})
    monkeypatch.setattr(
        "headscope.heads.roles.best_at", lambda _: {(1, 2): ["obj", "aux", "cop", "xcomp"]}
    )
    heads = map_heads(result, probes=[probe], starts=1)
    assert str(heads.data["role"].values[6]) == "obj, aux, cop"  # no more than three
    text = str(make_card([result, probe], 1, 2))
    assert "The best head for obj, aux, cop." in text
    assert re.search(
        r"\(obj\) +70\.0\s% +1st of 8; best offset 40\.0\s%",
        text,
    )
    assert "det" not in text.split("Finds the parent")[1].split("\n\n")[0]  # an offset finds more
    with pytest.raises(InputError, match="A probe names L9 H0"):
        name_heads(result, probes={(9, 0): "obj"})


def test_cards_escape_what_they_show() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    trace = Trace.from_arrays(rows[None, None], ["<script>", "b"], is_causal=False)
    shown = make_card(measure(trace), 0, 0).html()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_detectors_on_repeated_sequences(tiny_llama: Model, tiny_bert: Model) -> None:
    for model in (tiny_llama, tiny_bert):
        found = detect_heads(model, sequences=3, length=8)
        assert isinstance(found, Result)  # as analyze returns, with intervals over sequences
        assert {"induction", "duplicate_token", "previous_token", "sink_rate"} <= set(found.dataset)
        assert found.n_documents == 3
        assert found["induction"].dims == ("layer", "head")
        assert float(found["induction"].min()) > 0
        assert detect_heads(model, sequences=3, length=8).dataset.equals(found.dataset)
    many = detect_heads(tiny_llama, sequences=12, length=8)
    assert many["induction_interval"].notnull().all()
    listed = many.significant("induction", against=0.0).rows
    assert len(listed) == many["induction"].size
    n = 8  # by hand, from the diagonals of one trace's worth of attention
    ids = np.concatenate([np.arange(n)] * 2)
    rows = np.random.default_rng(0).dirichlet(np.ones(2 * n), (1, 1, 2 * n))
    trace = Trace.from_arrays(rows, [str(i) for i in ids], is_causal=False)
    data = measure(trace, ["induction", "duplicate_token"]).dataset
    a = rows[0, 0]
    after = np.mean([a[i, i - n + 1] for i in range(n, 2 * n)])
    same = np.mean([a[i, i - n] for i in range(n, 2 * n)])
    assert data["induction"].item() == pytest.approx(after)
    assert data["duplicate_token"].item() == pytest.approx(same)


def test_detectors_refuse_what_they_cannot_do(tiny_llama: Model, tiny_t5: Model) -> None:
    with pytest.raises(InputError, match="one stack of layers"):
        detect_heads(tiny_t5)
    with pytest.raises(InputError, match=r"makes 200; .* takes at most 64"):
        detect_heads(tiny_llama, length=100)


@pytest.mark.packaged
def test_words_are_whole_and_repeated_in_another_order(smollm2: Model, minilm: Model) -> None:
    for model in (smollm2, minilm):
        ids, special = _draw(model, 3, 12, True, 0)
        tokens = [
            [model.require_tokenizer().decode([i]).strip() for i in row[~special]] for row in ids
        ]
        for row in tokens:
            assert all(word.isalpha() and word.islower() and len(word) >= 3 for word in row)
            assert sorted(row[:12]) == sorted(row[12:])
            assert row[:12] != row[12:]
    assert "induction" not in detect_heads(minilm, sequences=2, length=8, words=True)
    assert _are_words(["the</w>", "the", "in", "a</w>"]).tolist() == [True, False, False, False]
    assert _are_words([]).dtype == bool
    assert _are_words(["Ġcat", "ing", "ĠThe", "Ġ12"]).tolist() == [True, False, False, False]
    of_word_piece = _are_words([*["cat", "##ing", "at"] * 9, "▁"]).tolist()
    assert of_word_piece == [*[True, False, False] * 9, False]


@pytest.mark.packaged
def test_a_head_that_finds_duplicates_among_words_alone(smollm2: Model) -> None:
    tokens = detect_heads(smollm2, sequences=4)
    words = detect_heads(smollm2, sequences=16, length=12, words=True)
    scores = [float(found["duplicate_token"].sel(layer=8, head=1)) for found in (tokens, words)]
    assert scores[0] < 0.25 < scores[1]


@pytest.mark.packaged
def test_smollm2_has_induction_heads(smollm2: Model) -> None:
    found = detect_heads(smollm2, sequences=2, length=16)
    assert float(found["induction"].max()) > 0.5
    assert float(found["previous_token"].max()) > 0.5
