"""Heads as finders of antecedents: against loops, by hand, and at the edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.contract import Metric
from headscope.metrics.coreference import (
    MENTION_KINDS,
    RULES,
    CorefAccuracy,
    CorefBaseline,
    guess,
)
from headscope.model.model import Model
from headscope.text.antecedents import anaphors, mention_kind
from headscope.text.document import Document, Mention
from tests.probes.slow_probes import divide, slow_coreference
from tests.probes.test_dependencies import measured
from tests.probes.worlds import make_worlds


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("candidates", ["mentions", "words"])
def test_equals_the_slow_reference(is_causal: bool, candidates: str) -> None:
    worlds = make_worlds(5, 40, is_causal=is_causal)
    metrics: list[Metric] = [CorefAccuracy(candidates), CorefBaseline()]  # type: ignore[arg-type]
    data = measured(worlds, metrics)
    expected = slow_coreference(worlds, words=candidates == "words")
    assert expected["cases"]["all"] > 50
    for kind in MENTION_KINDS:
        cases = expected["cases"][kind]
        assert float(data["coref_cases"].sel(mention_kind=kind)) == cases
        for layer in range(2):
            for head in range(3):
                right = expected["right"][kind, layer, head]
                found = data["coref_accuracy"].sel(layer=layer, head=head, mention_kind=kind)
                assert float(found) == pytest.approx(divide(right, cases), abs=1e-12, nan_ok=True)
        for rule in RULES:
            found = data["coref_baseline"].sel(mention_kind=kind, rule=rule)
            wanted = divide(expected["by_rule"][kind, rule], cases)
            assert float(found) == pytest.approx(wanted, abs=1e-12, nan_ok=True), (kind, rule)


def document(text: str, *mentions: Mention, **more: object) -> Document:
    words = tuple(text.split())
    ends = np.cumsum([len(word) + 1 for word in words])
    spans = tuple((int(e) - len(w) - 1, int(e) - 1) for e, w in zip(ends, words, strict=True))
    return Document("d", text, words, spans, ((0, len(words)),), mentions=mentions, **more)  # type: ignore[arg-type]


def span(cluster: str, start: int, stop: int, **more: object) -> Mention:
    return Mention(cluster, ((start, stop),), **more)  # type: ignore[arg-type]


def test_nested_mentions_are_ordered_by_their_head_words() -> None:
    """[[his] wife] … [he]: `his` is before `wife`, and both are before `he`."""
    one = document("his wife said he left", span("a", 0, 1), span("b", 0, 2), span("a", 3, 4))
    (only,) = anaphors(one)
    assert only.mention.head_word == 3
    assert [c.head_word for c in only.candidates] == [0, 1]
    assert only.antecedents == {0}


def test_crossing_and_doubled_mentions() -> None:
    """Crossing spans are two mentions; the same one twice is one; the same words in two
    clusters are two, and share a head word, so neither is a candidate of the other."""
    crossing = document("a b c d", span("x", 0, 3, head_word=1), span("y", 2, 4, head_word=3))
    assert anaphors(crossing) == []
    doubled = document("Bob saw Bob", span("x", 0, 1), span("x", 2, 3), span("x", 2, 3))
    assert len(anaphors(doubled)) == 1
    twice = document("Bob saw him", span("x", 0, 1), span("x", 2, 3), span("y", 2, 3))
    (only,) = anaphors(twice)
    assert [c.head_word for c in only.candidates] == [0]
    same_head = document("the man left", span("x", 0, 2, head_word=1), span("x", 0, 3, head_word=1))
    assert anaphors(same_head) == []


def test_mentions_whose_head_word_is_not_read_are_left_out() -> None:
    one = document("Bob saw Bob", span("x", 0, 1), span("x", 2, 3))
    assert anaphors(one, [True, True, True])
    assert anaphors(one, [False, True, True]) == []
    assert anaphors(one, [True, True]) == []


def test_the_three_rules_by_hand() -> None:
    """`Mary met Bob . she` — the nearest is Bob, no head word matches, `she` agrees with Mary."""
    she = document("Mary met Bob . she smiled", span("m", 0, 1), span("b", 2, 3), span("m", 4, 5))
    (only,) = anaphors(she)
    assert guess(she, only) == {"nearest": 2, "head_match": None, "sieves": 0}
    again = document(
        "the old cat saw the new dog , the old cat ran",
        span("c", 0, 3, head_word=2),
        span("d", 4, 7, head_word=6),
        span("c", 8, 11, head_word=10),
    )
    (only,) = anaphors(again)
    assert guess(again, only) == {"nearest": 6, "head_match": 2, "sieves": 2}


def test_full_strings_come_before_head_words() -> None:
    """`the red car … a car … the red car`: the nearest car is not the one meant."""
    cars = document(
        "the red car hit a car and the red car burned",
        span("r", 0, 3, head_word=2),
        span("o", 4, 6, head_word=5),
        span("r", 7, 10, head_word=9),
    )
    (only,) = anaphors(cars)
    assert guess(cars, only) == {"nearest": 5, "head_match": 5, "sieves": 2}


def test_kinds_of_mentions() -> None:
    tags = ("PROPN", "VERB", "PRON", "NOUN", "DET", "NOUN")
    one = document("Mary saw her cat 's tail", upos=tags)
    assert [mention_kind(one, w) for w in (0, 2, 3)] == ["proper", "pronoun", "nominal"]
    possessive = document("my cat", upos=("DET", "NOUN"))
    assert mention_kind(possessive, 0) == "pronoun"
    untagged = document("Cats like Bob and he runs")
    assert [mention_kind(untagged, w) for w in (0, 2, 4)] == ["nominal", "proper", "pronoun"]
    penn = document("Bob likes his dog", xpos=("NNP", "VBZ", "PRP$", "NN"))
    assert [mention_kind(penn, w) for w in (0, 2, 3)] == ["proper", "pronoun", "nominal"]


TEXT = "the doctor asked the nurse a question . she said the nurse was fine"
LONG = document(
    TEXT, span("d", 0, 2), span("n", 3, 5), span("n", 8, 9), span("n", 10, 12), span("q", 5, 7)
)


def test_probe_through_the_engine(tiny_bert: Model, tmp_path: Path) -> None:
    result = hs.probe_coreference(tiny_bert, hs.read([LONG]), out=tmp_path / "run")
    assert set(result["coref_accuracy"].dims) == {"layer", "head", "mention_kind"}
    assert [int(n) for n in result["coref_cases"]] == [2, 1, 0, 1]
    assert np.isnan(result["coref_accuracy"].sel(mention_kind="proper")).all()
    table = hs.open(tmp_path / "run").table()
    assert table.rows[0].label == "all"
    assert "proper" not in [row.label for row in table.rows]


def test_documents_are_cut_between_words_and_mentions(tiny_bert: Model) -> None:
    """12 tokens: [CLS], ten words, [SEP]; `the nurse` at words 10–11 is cut away."""
    cut = hs.probe_coreference(tiny_bert, hs.read([LONG]), max_tokens=12)
    assert int(cut["coref_cases"].sel(mention_kind="all")) == 1
    middle = hs.probe_coreference(tiny_bert, hs.read([LONG]), max_tokens=13)  # cuts it in two
    assert int(middle["coref_cases"].sel(mention_kind="all")) == 1
    assert cut.provenance["counts"]["truncated"] == 0
    whole = hs.probe_coreference(tiny_bert, hs.read([LONG]), max_tokens=None)
    assert int(whole["coref_cases"].sel(mention_kind="all")) == 2


def test_models_of_all_kinds(tiny_llama: Model, tiny_t5: Model) -> None:
    causal = hs.probe_coreference(tiny_llama, hs.read([LONG]))
    assert int(causal["coref_cases"].sel(mention_kind="all")) >= 1
    both = hs.probe_coreference(tiny_t5, hs.read([LONG]))
    for block in ("encoder", "decoder"):
        assert int(both.block(block)["coref_cases"].sel(mention_kind="all")) == 2


def test_workers_change_nothing(tiny_bert: Model) -> None:
    documents = [LONG, LONG.cut(0, 10, "short")]
    one, two = (hs.probe_coreference(tiny_bert, hs.read(documents), workers=n) for n in (1, 2))
    xr.testing.assert_identical(one.dataset, two.dataset)


def test_bad_input_is_refused(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match=r"No document of .* has a mention with an antecedent"):
        hs.probe_coreference(tiny_bert, hs.read(["the cat sat"]))
    with pytest.raises(UnknownName, match="Unknown candidates 'any'"):
        hs.probe_coreference(tiny_bert, hs.read([LONG]), candidates="any")  # type: ignore[arg-type]
