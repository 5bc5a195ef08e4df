"""Wrong arguments are met with what was expected, never with a traceback from inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.arguments import expect, whole_number
from headscope.errors import InputError, UnknownName
from headscope.metrics.exemplars import Exemplars
from headscope.metrics.variability import Variability
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.measure import measure
from tests.run.corpora import make_corpus

CORPUS = make_corpus(4)
Call = Callable[[Model, Any], object]
NUMBER = "{} should be a whole number from 1 on, not {}."


@pytest.fixture(scope="module")
def result(tiny_bert: Model) -> Result:
    return hs.analyze(tiny_bert, CORPUS, ["pos_to", "dep_accuracy", "null_share"])


def analysis(**options: Any) -> Call:
    return lambda model, _: hs.analyze(model, CORPUS, **{"metrics": "null_share", **options})


REFUSED: dict[str, tuple[Call, str]] = {
    "max_tokens text": (analysis(max_tokens="128"), NUMBER.format("max_tokens", "'128'")),
    "metrics None": (
        analysis(metrics=None),
        'metrics should be "all", names, or metrics, not None.',
    ),
    "out": (analysis(out=3), "out should be the name of a folder, or None, not 3."),
    "budget": (lambda m, r: Variability(budget=0), NUMBER.format("budget", 0)),
    "k": (lambda m, r: Exemplars(k=0), NUMBER.format("k", 0)),
    "first": (lambda m, r: Variability(first=0), NUMBER.format("first", 0)),
    "sample": (lambda m, r: hs.read(["a"], sample=2.5), NUMBER.format("sample", 2.5)),  # type: ignore[arg-type]
    "epochs": (
        lambda m, r: hs.train_probe(m, CORPUS, CORPUS, "attention", epochs="3"),  # type: ignore[arg-type]
        NUMBER.format("epochs", "'3'"),
    ),
    "probe max_tokens": (
        lambda m, r: hs.train_probe(m, CORPUS, CORPUS, "attention", max_tokens="a"),  # type: ignore[arg-type]
        NUMBER.format("max_tokens", "'a'"),
    ),
    "segments": (
        lambda m, r: hs.cut_segments(m, CORPUS, max_tokens="a"),  # type: ignore[arg-type]
        NUMBER.format("max_tokens", "'a'"),
    ),
    "beginnings": (
        lambda m, r: hs.probe_coreference(m, CORPUS, max_tokens="a"),  # type: ignore[arg-type]
        NUMBER.format("max_tokens", "'a'"),
    ),
    "sequences": (lambda m, r: hs.detect_heads(m, sequences=0), NUMBER.format("sequences", 0)),
    "length": (lambda m, r: hs.detect_heads(m, length=0), NUMBER.format("length", 0)),
    "compare": (
        lambda m, r: r.compare(3),  # type: ignore[arg-type]
        "other should be a result of headscope.analyze or headscope.open, not 3.",
    ),
    "merge": (
        lambda m, r: hs.merge(None, r),  # type: ignore[arg-type]
        "left should be a result of headscope.analyze or headscope.open, not None.",
    ),
    "measure": (
        lambda m, r: measure(None),  # type: ignore[arg-type]
        "trace should be a trace of model.trace or Trace.from_arrays, not None.",
    ),
    "report": (
        lambda m, r: hs.report(None, "report.html"),  # type: ignore[arg-type]
        "results should be results, or files or folders of them, not None.",
    ),
    "open": (
        lambda m, r: hs.open(None),  # type: ignore[arg-type]
        "path should be the name of a file or folder, not None.",
    ),
    "probe_table": (
        lambda m, r: r.table(),
        "This result has no baseline beside accuracy: measure dep_offset with it, as "
        "headscope.probe_dependencies and headscope.probe_coreference do.",
    ),
    "layer text": (
        lambda m, r: r.card("0", 0),  # type: ignore[arg-type]
        "There is no layer '0' in this result: expected 0 to 1.",
    ),
    "head bool": (
        lambda m, r: r.card(0, True),
        "There is no head True in this result: expected 0 to 3.",
    ),
    "n_exemplars": (
        lambda m, r: r.card(0, 0, n_exemplars=-1),
        "n_exemplars should be a whole number from 0 on, not -1.",
    ),
    "figure folder": (
        lambda m, r: r.save_figures(__file__),
        f"{__file__} is a file; give the name of a folder to write to.",
    ),
    "weight": (
        lambda m, r: hs.set_attention(0, 0, key=1, weight=float("nan"), renormalize=False),
        "weight should be a finite number, not nan.",
    ),
    "key": (
        lambda m, r: hs.set_attention(0, 0, key="a", weight=0.5),
        "key should be a whole number from 0 on, not 'a'.",
    ),
    "factor": (
        lambda m, r: hs.scale_neurons(0, 0, 1, float("inf")),
        "factor should be a finite number, not inf.",
    ),
    "map": (
        lambda m, r: hs.map_heads(None),  # type: ignore[arg-type]
        "result should be a result of headscope.analyze, or several, not None.",
    ),
    "detect": (
        lambda m, r: hs.detect_heads(None),  # type: ignore[arg-type]
        "Cannot load a model from NoneType. Give a name, a folder, or a transformers model (a "
        "PreTrainedModel) with its tokenizer.",
    ),
    "model name": (
        lambda m, r: hs.load(""),
        "The name of the model is empty. Give a name, a folder, or a model.",
    ),
    "corpus name": (
        lambda m, r: hs.read(["a"], name=3),  # type: ignore[arg-type]
        "name should be a text, or None, not 3.",
    ),
    "seed": (
        lambda m, r: hs.read(["a"], seed="x"),  # type: ignore[arg-type]
        "seed should be a whole number, not 'x'.",
    ),
    "document id": (
        lambda m, r: hs.Document(id=3, text="a", words=(), spans=()),  # type: ignore[arg-type]
        "id should be a text, not 3.",
    ),
    "evidence": (
        lambda m, r: m.trace("the cat").save_page("page.html", evidence=3),  # type: ignore[arg-type]
        "evidence should be results of headscope.analyze or headscope.open, not 3.",
    ),
    "no room": (
        analysis(max_tokens=2),
        "max_tokens=2 leaves no room for text beside the 2 special tokens of BertForMaskedLM. "
        "Give at least 3.",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_arguments_are_refused(
    call: Call, message: str, tiny_bert: Model, result: Result
) -> None:
    with pytest.raises(InputError) as caught:
        call(tiny_bert, result)
    assert str(caught.value) == message


UNKNOWN: dict[str, tuple[Call, str]] = {
    "metric": (analysis(metrics=[["x"]]), r"Unknown metric \['x'\]\. Known: all, "),
    "label": (lambda m, r: r.top("pos_to", tag="XX"), r"Unknown tag 'XX'\. Known: ADJ, ADP, "),
    "axis": (lambda m, r: r.top("pos_to", tags="ADJ"), r"Unknown axis of pos_to 'tags'.*: tag\."),
    "block": (lambda m, r: r.significant("null_share", block="x"), r"block 'x'\. Known: self\."),
    "figure format": (lambda m, r: r.save_figures("f", formats="svgg"), r"format 'svgg'.*'svg'\?"),
    "no axis": (lambda m, r: r.top("null_share", tag="ADJ"), r"Known: \(none\)"),
}


@pytest.mark.parametrize(("call", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_names_are_met_with_the_known(
    call: Call, message: str, tiny_bert: Model, result: Result
) -> None:
    with pytest.raises(UnknownName, match=message):
        call(tiny_bert, result)


def test_as_few_tokens_as_there_is_room_for(tiny_bert: Model, tiny_llama: Model) -> None:
    for model, least in ((tiny_bert, 3), (tiny_llama, 1)):
        with pytest.warns(hs.errors.HeadscopeWarning, match=f"cut to {least} tokens"):
            result = hs.analyze(model, CORPUS, "null_share", max_tokens=least)
        assert float(result["tokens_per_document"]) == 1


def test_numbers_of_any_kind_count() -> None:
    assert whole_number("n", np.int64(3)) == 3
    assert type(whole_number("n", np.int64(3))) is int
    assert whole_number("n", 0, 0) == 0
    for wrong in (True, 1.0, float("nan"), "1", None, -1):
        with pytest.raises(InputError, match="n should be a whole number from 0 on"):
            whole_number("n", wrong, 0)


def test_long_values_are_cut() -> None:
    with pytest.raises(InputError) as caught:
        expect("n", list(range(1000)), int, "a number")
    assert str(caught.value).startswith("n should be a number, not [0, 1, 2, ")
    assert len(str(caught.value)) < 100
