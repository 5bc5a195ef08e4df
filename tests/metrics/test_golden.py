"""Cases small enough to do by hand; the arithmetic is in the test."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from headscope.errors import InputError, UnknownName
from headscope.results.trace import Trace
from headscope.run.measure import measure
from headscope.text.document import Document

# "the cat sat": rows are queries. Causal, so null attention goes to "the".
CAUSAL = np.array([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.5, 0.3, 0.2]])


def causal_trace() -> Trace:
    return Trace.from_arrays(CAUSAL[None, None], ["the", " cat", " sat"], is_causal=True)


def value(name: str, **labels: object) -> float:
    return float(measure(causal_trace(), name)[name].isel(layer=0, head=0).sel(labels))


def test_null_share() -> None:
    assert value("null_share") == pytest.approx((1.0 + 0.4 + 0.5) / 3)


def test_distance() -> None:
    # cat→cat 0.6 at 0, sat→cat 0.3 at 1, sat→sat 0.2 at 0.
    assert value("distance") == pytest.approx(0.3 / (0.6 + 0.3 + 0.2))


def test_entropy() -> None:
    # "the" has null attention only and is skipped; cat has all of the rest on itself: 0.
    of_sat = -(0.6 * log(0.6) + 0.4 * log(0.4))
    assert value("entropy") == pytest.approx(of_sat / 2)


def test_entropy_skips_rows_that_rest() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.91, 0.09, 0.0], [0.5, 0.25, 0.25]])
    trace = Trace.from_arrays(rows[None, None], ["a", "b", "c"], is_causal=True)
    result = measure(trace, "entropy")
    assert result["entropy"].item() == pytest.approx(log(2))
    assert result["entropy_count"].item() == 1


def test_exemplar() -> None:
    found = measure(causal_trace(), "exemplars").exemplars(0, 0)
    assert [(e.weight, e.query, e.key) for e in found] == [(0.6, 1, 1)]


def test_one_document_has_no_variability() -> None:
    assert value("variability") == 0.0


def test_tags_and_dependencies() -> None:
    import headscope as hs  # noqa: F401

    text = "the cat sat"
    document = Document(
        id="d",
        text=text,
        words=("the", "cat", "sat"),
        spans=((0, 3), (4, 7), (8, 11)),
        sentences=((0, 3),),
        upos=("DET", "NOUN", "VERB"),
        parents=(1, 2, -1),
        relations=("det", "nsubj", "root"),
    )
    trace = causal_trace()
    tokens = trace.text.__class__.of(["the", " cat", " sat"])
    from dataclasses import replace

    tokens = replace(tokens, texts=(text,), offsets=((0, 3), (3, 7), (7, 11)))
    trace = Trace.from_arrays(CAUSAL[None, None], tokens, is_causal=True)
    result = measure(trace, document=document)
    all_of_it = 0.6 + 0.3 + 0.2
    to = result["pos_to"].isel(layer=0, head=0)
    assert float(to.sel(tag="NOUN")) == pytest.approx((0.6 + 0.3) / all_of_it)
    assert float(to.sel(tag="DET")) == 0.0  # "the" is null
    frm = result["pos_from"].isel(layer=0, head=0)
    assert float(frm.sel(tag="VERB")) == pytest.approx((0.3 + 0.2) / all_of_it)
    aligned = result["dep_alignment"].isel(layer=0, head=0)
    assert float(aligned.sel(parent="query")) == pytest.approx(0.3 / all_of_it)  # sat ⊃ cat
    assert float(aligned.sel(parent="key")) == 0.0
    assert float(result["dep_baseline"]) == pytest.approx(1 / 3)  # cat-cat, sat-cat, sat-sat
    assert float(result["dep_span"]) == 1.0
    assert float(result["dep_by_distance"].sel(distance_between=1)) == 1.0
    kind = result["dep_type_to"].isel(layer=0, head=0)
    assert float(kind.sel(relation="nsubj")) == pytest.approx((0.6 + 0.3) / all_of_it)


def test_encoder_leaves_special_tokens_out() -> None:
    rows = np.array(
        [[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.2, 0.5, 0.1, 0.2], [0.25, 0.25, 0.25, 0.25]]
    )
    trace = Trace.from_arrays(
        rows[None, None],
        ["[CLS]", "a", "b", "[SEP]"],
        special=[True, False, False, True],
        is_causal=False,
    )
    result = measure(trace)
    assert result["null_share"].item() == pytest.approx((0.1 + 0.4 + 0.2 + 0.2) / 2)
    assert result["distance"].item() == pytest.approx((0.3 + 0.5) / (0.2 + 0.3 + 0.5 + 0.1))


def test_null_keys_can_be_chosen() -> None:
    rows = np.full((3, 3), 1 / 3)
    trace = Trace.from_arrays(rows[None, None], ["a", "b", "c"], is_causal=False)
    assert measure(trace, "null_share")["null_share"].item() == 0.0
    first = measure(trace, "null_share", null_keys="first")
    assert first["null_share"].item() == pytest.approx(1 / 3)


def test_a_word_is_not_related_to_itself() -> None:
    from tests.metrics.slow import Case, slow_metrics

    case = Case(
        np.full((1, 1, 2, 2), 0.5), [False, False], False, [0, 0], ["NOUN"] * 2, [-1, -1], ["x"] * 2
    )
    assert slow_metrics([case])["dep_baseline"] == 0.0


def test_needs_annotations() -> None:
    with pytest.raises(InputError, match="pos_to needs tags, which no document has"):
        measure(causal_trace(), "pos_to")
    with pytest.raises(UnknownName, match="Did you mean 'distance'"):
        measure(causal_trace(), "distanc")
    with pytest.raises(InputError, match="metrics is empty"):
        measure(causal_trace(), [])
