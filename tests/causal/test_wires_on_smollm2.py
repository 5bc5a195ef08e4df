"""Wires of SmolLM2: 150 wires against hooks, the known circuit of indirect objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.pair_wires import PairWires, WireRun, encode_pair, graph_of
from tests.causal.slow_wires import SlowLlama, reader_name, source_name

if TYPE_CHECKING:
    from headscope.model.model import Model

pytestmark = pytest.mark.packaged

FIRST = "When Mary and John went to the store, John gave a drink to"
GIVER = "When Mary and John went to the store, Mary gave a drink to"
BOTH = "When John and Mary went to the store, Mary gave a drink to"


@pytest.fixture(scope="module")
def giver(smollm2: Model) -> PairWires:
    pair = encode_pair(smollm2, (FIRST, GIVER), " Mary", " John")
    return pair.run(graph_of(smollm2, pair))


def run_of(wires: PairWires, source: str, reader: str, head: int = -1) -> WireRun:
    graph = wires.graph
    sources = [u.name for u in graph.sources]
    readers = [r.name for r in graph.readers]
    return WireRun(sources.index(source), readers.index(reader), head)


def test_the_graph_is_that_of_the_formula(giver: PairWires) -> None:
    graph = giver.graph
    assert (len(graph.sources), len(graph.readers)) == (301, 481)
    assert graph.exists.sum() == 70_651


def test_150_wires_equal_hooks_one_by_one(smollm2: Model, giver: PairWires) -> None:
    graph = giver.graph
    estimates = np.abs(giver.screen()).max(-1)
    top = np.argsort(-estimates, axis=None)[:100]
    draw = np.random.default_rng(0)
    some = draw.choice(np.flatnonzero(graph.exists.ravel()), 50, replace=False)
    places = np.stack(np.unravel_index([*top, *some], graph.exists.shape), 1).tolist()
    values = giver.exact([WireRun(s, r) for s, r in places])
    first, second = (SlowLlama(smollm2, text, " Mary", " John") for text in (FIRST, GIVER))
    off = []
    with torch.no_grad():
        for (s, r), value in zip(places, values, strict=True):
            source = source_name(graph.sources[s])
            delta = second.source(source) - first.source(source)
            expected = float(first.with_reader(reader_name(graph.readers[r]), delta)) - first.value
            off.append(abs(value - expected))
    assert len(off) == 150
    assert max(off) < 1e-4


def test_all_wires_replaced_is_the_contrast(giver: PairWires) -> None:
    everything = np.ones_like(giver.graph.exists)
    assert giver.alone(~everything) == pytest.approx(giver.other_value, abs=1e-4)
    assert giver.alone(everything) == pytest.approx(giver.value, abs=1e-4)


def test_the_known_wires_and_their_contrast(smollm2: Model, giver: PairWires) -> None:
    k = run_of(giver, "L16 H0", "k of L17 H3-5")
    named = [
        run_of(giver, "L20 H0", "q of L23 H0"),
        run_of(giver, "L23 H3", "logits"),
        run_of(giver, "embedding", "L0 MLP"),
        k,
    ]
    query, logits, first, none = giver.exact(named)
    assert query < -0.5
    assert logits < -3
    assert first == pytest.approx(-giver.gap, rel=0.05)
    assert abs(none) < 0.05
    pair = encode_pair(smollm2, (FIRST, BOTH), " Mary", " John")
    both = pair.run(giver.graph)
    assert both.exact([k])[0] < -1
    eap = giver.integrated(0)[run_of(giver, "embedding", "L0 MLP").source]
    reader = run_of(giver, "embedding", "L0 MLP").reader
    assert abs(eap[reader]) < 1  # EAP misses the largest wire of all
    assert giver.integrated()[0, reader] < -8


def test_a_groups_wire_hides_opposite_heads(giver: PairWires) -> None:
    name = ("L23 H3", "v of L29 H0-2")
    whole, *heads = giver.exact(
        [run_of(giver, *name), *(run_of(giver, *name, h) for h in range(3))]
    )
    assert heads[0] > 0.5 > -0.5 > heads[1]
    assert sum(heads) == pytest.approx(whole, abs=0.2)


def test_composition_of_the_induction_head(smollm2: Model) -> None:
    found = hs.composition(smollm2, (17, 4, "k"))
    assert found.sizes["source"] == 153
    assert int(found["rank"].sel(source="L16 H0")) == 1
    assert float(found["composition"].sel(source="L16 H0")) == pytest.approx(0.173, abs=0.01)
    assert float(found["z"].sel(source="L16 H0")) > 20
    assert found.attrs["null"] == pytest.approx(0.042, abs=0.001)


def test_the_path_runs_on(smollm2: Model) -> None:
    nodes = [(16, 0), (17, 4, "k"), (20, 0, "v")]
    path = hs.path(smollm2, [(FIRST, BOTH)], nodes, " Mary", " John")
    wire = hs.path(smollm2, [(FIRST, BOTH)], nodes[:2], " Mary", " John")
    assert float(wire["effect"][0]) < float(path["effect"][0]) < -0.2


def test_the_lens_needs_the_rank(smollm2: Model) -> None:
    lens = hs.lens(smollm2, FIRST, " Mary", " John")
    assert int(lens.data["target_rank"].isel(layer=-1)) == 1
    assert int(lens.data["target_rank"].sel(layer=5)) > 10
