"""Probes with the packaged models on real treebanks: against loops, and what they find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.metrics.coreference import MENTION_KINDS, RULES, CorefAccuracy, CorefBaseline
from headscope.metrics.dependencies import DepAccuracy, DepOffset
from headscope.model.model import Model
from headscope.text.document import Document
from headscope.text.tokens import align_tokens
from tests.probes.slow_probes import divide, slow_coreference, slow_dependencies
from tests.probes.test_dependencies import measured
from tests.probes.worlds import World

pytestmark = [pytest.mark.packaged, pytest.mark.xdist_group("packaged")]


LAYERS = (1, 3)
"""Two are enough for loops."""


def traced(model: Model, document: Document) -> World:
    trace = model.trace(document.text, vectors=False, layers=LAYERS)
    offsets = trace.text.offsets
    assert offsets is not None
    words = align_tokens(offsets, document.spans)
    words = [-1 if s else w for w, s in zip(words, trace.text.special, strict=True)]
    weights = trace.attention.values.astype(np.float64)
    return World(document, words, weights, model.info.is_causal, trace.text)


def assert_alike(engine: xr.DataArray, same: xr.DataArray) -> None:
    """What a run gives in float32 is what the metric gives in float64 but for near ties."""
    both = xr.align(engine.sel(layer=list(LAYERS)), same.assign_coords(layer=list(LAYERS)))
    differs = (both[0] - both[1]).fillna(0)
    assert float((abs(differs) > 1e-9).mean()) < 0.01


@pytest.fixture(scope="module")
def ewt(data_folder: Path) -> Path:
    return data_folder / "ud_ewt" / "en_ewt-ud-dev.conllu"


@pytest.fixture(params=["minilm", "smollm2"])
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.getfixturevalue(request.param)
    return found


def test_dependencies_equal_the_slow_reference(model: Model, ewt: Path) -> None:
    documents = [d for d in hs.read(ewt, unit="sentence", sample=30) if 4 < len(d) < 13]
    documents = documents[: 5 if model.info.n_layers < 10 else 2]
    worlds = [traced(model, document) for document in documents]
    relations = tuple(sorted({name for d in documents for name in d.relations or ()}))
    data = measured(worlds, [DepAccuracy(), DepOffset()], relations=relations)
    expected = slow_dependencies(worlds, punctuation=True, possessive=False)
    for relation in (*relations, "all"):
        cases = expected["cases"][relation]
        assert float(data["cases"].sel(relation=relation)) == cases
        for direction in ("dependent", "head"):
            found = data["accuracy"].sel(relation=relation, direction=direction).values
            for (layer, head), value in np.ndenumerate(found):
                wanted = expected["right"][direction, relation, layer, head] / cases
                assert value == pytest.approx(wanted, abs=1e-9)
    result = hs.probe_dependencies(model, hs.read(documents), 1)
    assert_alike(result["accuracy"], data["accuracy"])


def test_coreference_equals_the_slow_reference(model: Model, data_folder: Path) -> None:
    gum = data_folder / "gum" / "en_gum-dev"
    corpus = hs.read(
        gum.with_suffix(".conllu"), coreference=gum.with_suffix(".ontogum.conll"), sample=12
    )
    documents = [document.cut(0, min(len(document), 45)) for document in corpus]
    documents = [d for d in documents if len(d.mentions) > 3][:3]
    worlds = [traced(model, document) for document in documents]
    data = measured(worlds, [CorefAccuracy(), CorefBaseline()])
    expected = slow_coreference(worlds)
    assert expected["cases"]["all"] > 5
    for kind in MENTION_KINDS:
        cases = expected["cases"][kind]
        assert float(data["coref_cases"].sel(mention_kind=kind)) == cases
        found = data["coref_accuracy"].sel(mention_kind=kind).values
        for (layer, head), value in np.ndenumerate(found):
            wanted = divide(expected["right"][kind, layer, head], cases)
            assert value == pytest.approx(wanted, abs=1e-9, nan_ok=True)
        for rule in RULES:
            value = float(data["coref_baseline"].sel(mention_kind=kind, rule=rule))
            wanted = divide(expected["by_rule"][kind, rule], cases)
            assert value == pytest.approx(wanted, abs=1e-9, nan_ok=True)
    result = hs.probe_coreference(model, hs.read(documents))
    assert_alike(result["coref_accuracy"], data["coref_accuracy"])


def test_minilm_has_heads_for_syntax(minilm: Model, ewt: Path) -> None:
    """METHODS section 8: `obj` 71 against 39 %, `det` 81 / 56, `case` 69 / 39 on such text."""
    corpus = hs.read(ewt, unit="sentence", sample=200)
    table = hs.probe_dependencies(minilm, corpus, 100).table()
    for relation, accuracy, baseline in (
        ("obj", 0.71, 0.39),
        ("det", 0.81, 0.56),
        ("case", 0.69, 0.39),
    ):
        row = table[relation]
        assert row.accuracy == pytest.approx(accuracy, abs=0.07)
        assert row.baselines["offset"] == pytest.approx(baseline, abs=0.07)
        assert row.crossfit_accuracy > row.baselines["offset"] + 0.1
