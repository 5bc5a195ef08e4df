"""Measuring a trace is analyzing a corpus of one: the same numbers for every metric."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import headscope as hs
from headscope.metrics.core.registry import known_metrics
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.measure import measure
from headscope.text.document import Document, Mention

OF_ATTENTION = sorted(
    name
    for name, make in known_metrics().items()
    if not make().needs & {"gradients", "loss"}  # a trace has no backward pass
)
WORDS = (
    *("the", "cat", "'s", "dog", "saw", "the", "man", ",", "and", "he", "ran", "to"),
    *("the", "cat", "'s", "dog", "."),
)
PARENTS = (1, 3, 1, 4, -1, 6, 4, 10, 10, 10, 4, 15, 13, 15, 13, 10, 4)
RELATIONS = (
    *("det", "poss", "case", "nsubj", "root", "det", "obj", "punct", "cc", "nsubj", "conj"),
    *("case", "det", "poss", "case", "obl", "punct"),
)


def make_document() -> Document:
    """One sentence with a possessive, mentions and a condition: something for every metric."""
    starts = np.cumsum([0, *(len(word) + 1 for word in WORDS)])[:-1]
    return Document(
        id="one",
        text=" ".join(WORDS),
        words=WORDS,
        spans=tuple((int(s), int(s) + len(w)) for s, w in zip(starts, WORDS, strict=True)),
        sentences=((0, len(WORDS)),),
        upos=tuple("PRON" if word == "he" else "NOUN" for word in WORDS),
        parents=PARENTS,
        relations=RELATIONS,
        mentions=(
            Mention("dog", ((0, 4),)),
            Mention("man", ((5, 7),)),
            Mention("man", ((9, 10),)),
            Mention("dog", ((12, 16),)),
        ),
        meta={"condition": "pro"},
    )


def assert_same_values(left: Result, right: Result) -> None:
    assert list(left.blocks) == list(right.blocks)
    for block, data in left.blocks.items():
        compared = 0
        for name, array in data.data_vars.items():
            if not str(name).endswith(
                ("_interval", "_n_eff", "_mean", "_typical")
            ):  # one document has no interval
                other = right.block(block)[name]
                np.testing.assert_allclose(array, other, rtol=1e-6, atol=1e-7, err_msg=str(name))
                compared += 1
        assert compared


def analyzed(model: Model, document: Document, metric: str) -> Result:
    return hs.analyze(model, [document], metric, progress=False)


@pytest.mark.parametrize("name", OF_ATTENTION)
@pytest.mark.parametrize("kind", ["tiny_bert", "tiny_llama", "tiny_t5"])
def test_for_every_metric(name: str, kind: str, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(kind)
    document = make_document()
    target = {"target": document.text} if kind == "tiny_t5" else {}
    trace = model.trace(document.text, vectors=False, **target)
    assert_same_values(analyzed(model, document, name), measure(trace, name, document=document))


def test_something_is_measured_everywhere(tiny_bert: Model) -> None:
    """The document is not so poor that NaN would equal NaN."""
    trace = tiny_bert.trace(make_document().text, vectors=False)
    result = measure(trace, OF_ATTENTION, document=make_document())
    for name in ("accuracy", "coref_accuracy", "coref_baseline", "bias_preference", "induction"):
        assert np.isfinite(result[name]).any(), name
    possessive = result["accuracy"].sel(relation="poss")
    assert np.isfinite(possessive).all()


def test_possessives_predict_as_in_a_run(tiny_bert: Model) -> None:
    document = make_document()
    without = replace(document, relations=tuple("nmod" if r == "poss" else r for r in RELATIONS))
    trace = tiny_bert.trace(document.text, vectors=False)
    with_particle = measure(trace, "dep_accuracy", document=document)["accuracy"]
    plain = measure(trace, "dep_accuracy", document=without)["accuracy"]
    assert not np.array_equal(
        with_particle.sel(relation="poss").values, plain.sel(relation="nmod").values
    )


def test_a_text_that_was_cut(tiny_bert: Model) -> None:
    """Words whose parents were cut off do not count, as in a run."""
    document = make_document()
    limit = tiny_bert.info.max_length
    assert limit is not None
    many = limit // len(WORDS) + 2
    offsets = [len(WORDS) * n for n in range(many)]
    text = " ".join([document.text] * many)
    long = replace(
        document,
        text=text,
        words=document.words * many,
        spans=tuple(
            (s + n * (len(document.text) + 1), e + n * (len(document.text) + 1))
            for n in range(many)
            for s, e in document.spans
        ),
        sentences=tuple((at, at + len(WORDS)) for at in offsets),
        upos=tuple(document.upos or ()) * many,
        parents=tuple(p if p < 0 else p + at for at in offsets for p in PARENTS),
        relations=RELATIONS * many,
        mentions=(),
    )
    with pytest.warns(UserWarning, match="were cut"):
        trace = tiny_bert.trace(text, vectors=False)
    measured = measure(trace, "dep_accuracy", document=long)
    with pytest.warns(UserWarning, match="was cut to"):
        run = analyzed(tiny_bert, long, "dep_accuracy")
    assert_same_values(run, measured)


def test_another_text_is_refused(tiny_bert: Model) -> None:
    with pytest.raises(hs.errors.InputError, match="The trace is not of document 'one'"):
        measure(tiny_bert.trace("the cat ran"), document=make_document())


def test_gradients_are_refused_with_where_to_get_them(tiny_bert: Model) -> None:
    with pytest.raises(hs.errors.InputError, match=r"Run headscope\.importance"):
        measure(tiny_bert.trace("the cat ran"), "importance")
