"""Metrics that draw documents: what cannot be drawn is not kept, and the sample is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from headscope.metrics.variability import Variability
from headscope.run import analyze as analyze_module
from headscope.run.analyze import analyze
from headscope.run.plan import SPARE, SPARE_SHARE, document_key, last_hashes
from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.readers.read import read
from tests.run.corpora import make_corpus, make_documents
from tests.run.same import assert_same_bits

if TYPE_CHECKING:
    from headscope.model.model import Model


def _with_copies() -> Corpus:
    """A third of the documents are one and the same, which is drawn first or never."""
    documents = make_documents(60)
    copied = min(documents, key=lambda document: document_key(document)[0])
    return read([copied if number % 3 else one for number, one in enumerate(documents)])


def _with_failures() -> Corpus:
    """Ten documents without a token of their own, which would be drawn first."""
    empty = [Document(id=f"e{n}", text=" ", words=(), spans=()) for n in range(3000)]
    empty.sort(key=lambda document: document_key(document)[0])
    return read([*make_documents(60), *empty[:SPARE]])


@pytest.mark.parametrize("made", [lambda: make_corpus(60), _with_copies, _with_failures])
@pytest.mark.parametrize("budget", [1, 7, 20])
@pytest.mark.filterwarnings("ignore:.*could not be measured")
def test_the_sample_is_the_same_as_if_all_were_kept(
    tiny_bert: Model, monkeypatch: pytest.MonkeyPatch, made: Callable[[], Corpus], budget: int
) -> None:
    metrics = [Variability(budget=budget)]
    drawn = analyze(tiny_bert, made(), metrics=metrics)
    monkeypatch.setattr(analyze_module, "last_hashes", lambda keys, metrics: {})
    assert_same_bits(drawn, analyze(tiny_bert, made(), metrics=metrics))
    assert (drawn["variability_count"] == budget).all()


def test_workers_draw_the_same(tiny_bert: Model) -> None:
    corpus, metrics = make_corpus(600), [Variability(budget=5)]
    alone = analyze(tiny_bert, corpus, metrics=metrics, workers=1)
    assert_same_bits(alone, analyze(tiny_bert, corpus, metrics=metrics, workers=2))


def test_few_more_are_shown_than_drawn() -> None:
    keys = np.random.default_rng(0).random(1000)
    bound = last_hashes(keys, [Variability(budget=100), Variability(budget=5000)])
    assert bound.keys() == {100}
    assert (keys <= bound[100]).sum() == 100 + SPARE + 100 * SPARE_SHARE


def test_a_budget_beyond_the_corpus_draws_all(tiny_bert: Model) -> None:
    result = analyze(tiny_bert, make_corpus(30), metrics=[Variability(budget=30)])
    assert (result["variability_count"] == 30).all()
    assert replace(Variability(), budget=3).sample == 3


def test_a_sample_is_near_the_whole(tiny_bert: Model) -> None:
    corpus = make_corpus(50)
    result = analyze(tiny_bert, corpus, metrics=[Variability(budget=20)])
    assert (result["variability_count"] == 20).all()
    whole = analyze(tiny_bert, corpus, metrics=[Variability()])
    assert float(abs(result["variability"] - whole["variability"]).max()) < 0.1
