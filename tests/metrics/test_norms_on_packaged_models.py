"""Every metric over norms on the packaged models, against loops over a·‖v W_O‖.

The loops take attention, values and the weights of the output projections by their names, and
everything else from the formulas: nothing of the code that finds projections or weighs is used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

import headscope as hs
from headscope.text.tokens import align_tokens
from tests.metrics.slow import Case, slow_metrics
from tests.metrics.slow_surface import slow_surface
from tests.metrics.test_norm_weighted import slow_weights
from tests.metrics.test_slow_reference import compare
from tests.probes.slow_probes import slow_dependencies
from tests.probes.worlds import World

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.result import Result
    from headscope.text.document import Document

pytestmark = [pytest.mark.packaged, pytest.mark.xdist_group("packaged")]
TOLERANCE = 1e-5
SURFACE = ["offset_share", "class_share", "row_entropy", "first_entropy", "induction",
           "duplicate_token"]  # fmt: skip

AXES = {"offset_share": "offset", "class_share": "key_class"}


class Read(NamedTuple):
    """A model's analysis over norms, and the same documents for loops."""

    model: Model
    layers: tuple[int, ...]
    documents: list[Document]
    cases: list[Case]
    result: Result


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("minilm", "encoder.layer.{}.attention.output.dense", (1, 4)), id="minilm"),
        pytest.param(
            ("smollm2", "model.layers.{}.self_attn.o_proj", (0, 17)),
            id="smollm2",
            marks=pytest.mark.long,  # the divergence of 270 heads
        ),
    ],
)
def read(request: pytest.FixtureRequest) -> Read:
    name, projection, layers = request.param
    model: Model = request.getfixturevalue(name)
    corpus = hs.demo_corpus("sentence")
    documents = [document for document in corpus if 5 < len(document) < 14][:5]
    cases = [_case(model, document, projection, layers) for document in documents]
    result = hs.analyze(model, documents, ["all", "js"], over="norm", max_tokens=None)
    return Read(model, layers, documents, cases, result)


def _case(model: Model, document: Document, projection: str, layers: tuple[int, ...]) -> Case:
    trace = model.trace(document.text, layers=list(layers))
    matrices = {
        at: model.module.get_submodule(projection.format(layer)).weight.detach().double().numpy().T
        for at, layer in enumerate(layers)
    }
    assert trace.text.offsets is not None
    special = list(trace.text.special)
    words = align_tokens(trace.text.offsets, document.spans)
    words = [-1 if s else w for w, s in zip(words, special, strict=True)]
    assert document.upos is not None
    assert document.parents is not None
    assert document.relations is not None
    return Case(
        slow_weights(trace, matrices),
        special,
        model.info.is_causal,
        words,
        [document.upos[w] if w >= 0 else None for w in words],
        [document.parents[w] if w >= 0 else -1 for w in words],
        [document.relations[w] if w >= 0 else None for w in words],
        list(trace.tokens),
    )


def test_metrics_of_vig_and_belinkov(read: Read) -> None:
    data = read.result.dataset.sel(layer=list(read.layers))
    data = data.assign_coords(layer=range(len(read.layers)))
    compare(data, slow_metrics(read.cases), TOLERANCE)


def test_surface_metrics(read: Read) -> None:
    data = read.result.dataset
    for (at, head), values in slow_surface(read.cases, ("first",)).items():
        for key, wanted in values.items():
            name, *label = key if isinstance(key, tuple) else (key,)
            if name not in SURFACE:
                continue
            here = data[name].sel(layer=read.layers[at], head=head)
            if label:
                here = here.sel({AXES[name]: label[0]})
            assert float(here) == pytest.approx(wanted, abs=TOLERANCE, nan_ok=True), (key, at, head)


def test_divergence_of_heads(read: Read) -> None:
    """Mean over tokens of the Jensen-Shannon divergence of two heads' rows, in nats."""
    n_heads = read.cases[0].attention.shape[1]
    for (a, h), (b, k) in (((0, 0), (0, 3)), ((0, 1), (1, n_heads - 1))):
        rows = [
            (case.attention[a, h, i], case.attention[b, k, i])
            for case in read.cases
            for i in range(case.n)
        ]
        wanted = math.fsum(_divergence(p, q) for p, q in rows) / len(rows)
        found = float(read.result["js"].values[read.layers[a], h, read.layers[b], k])
        assert found == pytest.approx(wanted, abs=TOLERANCE)


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    middle = (p + q) / 2
    return sum(
        0.5 * x * math.log(x / m) for of in (p, q) for x, m in zip(of, middle, strict=True) if x > 0
    )


def test_heads_as_classifiers(read: Read) -> None:
    worlds = []
    for document, case in zip(read.documents, read.cases, strict=True):
        assert case.words is not None
        tokens = read.model.trace(document.text, layers=[0], vectors=False).text
        worlds.append(World(document, case.words, case.attention, case.is_causal, tokens))
    wanted = slow_dependencies(worlds, punctuation=True, possessive=False)
    found = hs.probe_dependencies(read.model, hs.read(read.documents), 1, over="norm")["accuracy"]
    apart = 0
    for (direction, relation, at, head), right in wanted["right"].items():
        here = found.sel(direction=direction, relation=relation, layer=read.layers[at], head=head)
        apart += abs(float(here) - right / wanted["cases"][relation]) > TOLERANCE
    assert apart <= 0.005 * len(wanted["right"])  # float32 may turn a tie around
