"""Bias: by hand, against loops, and pairs that are none."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.batch import Axes
from headscope.errors import InputError
from headscope.metrics.core.finalize import state_of
from headscope.metrics.coreference import Bias
from headscope.metrics.surface import TokensPerDocument
from headscope.model.model import Model
from headscope.probes.probe_coreference import pair_documents
from headscope.probes.tables import bias_table
from headscope.run.merge import metrics_of
from headscope.text.antecedents import mention_kind
from headscope.text.document import mention_head
from tests.probes.slow_probes import between_words, divide
from tests.probes.test_coreference import document, span
from tests.probes.test_dependencies import measured
from tests.probes.worlds import World, make_worlds

PRO = [
    document("the doctor asked the nurse and he said that", span("1", 0, 2), span("1", 6, 7)),
    document("the nurse asked the doctor and she said that", span("1", 0, 2), span("1", 6, 7)),
]
ANTI = [
    document("the doctor asked the nurse and she said that", span("1", 0, 2), span("1", 6, 7)),
    document("the nurse asked the doctor and he said that", span("1", 0, 2), span("1", 6, 7)),
]


def slow_bias(worlds: list[World]) -> dict[str, Any]:
    to: dict[Any, float] = defaultdict(float)
    right: dict[Any, int] = defaultdict(int)
    cases: dict[str, int] = defaultdict(int)
    for world in worlds:
        one, condition = world.document, world.document.meta["condition"]
        heads = {}
        for mention in one.mentions:
            heads.setdefault((mention.cluster, mention.spans), mention_head(one, mention))
        known = [(c, h) for (c, _), h in heads.items() if world.covered[h]]
        for cluster, head in known:
            if mention_kind(one, head) != "pronoun":
                continue
            named = [(c, h) for c, h in known if h < head and mention_kind(one, h) != "pronoun"]
            true = {h for c, h in named if c == cluster}
            other = {h for c, h in named if c != cluster} - true
            if not true or not other:
                continue
            cases[condition] += 1
            for layer in range(world.attention.shape[0]):
                for number in range(world.attention.shape[1]):
                    between = between_words(world, layer, number)
                    a, b = (sum(between[head, h] for h in some) for some in (true, other))
                    to[condition, "true", layer, number] += a
                    to[condition, "other", layer, number] += b
                    right[condition, layer, number] += a > b
    return {"to": to, "right": right, "cases": cases}


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
def test_equals_the_slow_reference(is_causal: bool) -> None:
    worlds = make_worlds(11, 250, is_causal=is_causal)
    data = measured(worlds, [TokensPerDocument(), Bias()])
    expected = slow_bias(worlds)
    assert min(expected["cases"].values()) > 5
    for layer in range(2):
        for head in range(3):
            here = data.sel(layer=layer, head=head)
            accuracy, preference = {}, {}
            for condition in ("pro", "anti"):
                cases = expected["cases"][condition]
                assert float(data["bias_cases"].sel(condition=condition)) == cases
                sums = [expected["to"][condition, c, layer, head] for c in ("true", "other")]
                found = here["bias_attention"].sel(condition=condition)
                assert found.values.tolist() == pytest.approx([s / cases for s in sums])
                preference[condition] = sums[0] / sum(sums)
                accuracy[condition] = divide(expected["right"][condition, layer, head], cases)
                for name, wanted in (("preference", preference), ("accuracy", accuracy)):
                    value = float(here[f"bias_{name}"].sel(condition=condition))
                    assert value == pytest.approx(wanted[condition])
            for name, wanted in (("preference", preference), ("accuracy", accuracy)):
                gap = float(here[f"bias_{name}_gap"])
                assert gap == pytest.approx(wanted["pro"] - wanted["anti"])


def test_the_other_candidate_is_a_mention_elsewhere() -> None:
    """`nurse` is annotated in the second sentence only, so it is the first's other candidate."""
    paired = list(pair_documents(hs.read(PRO), hs.read(ANTI)))
    assert [d.meta["condition"] for d in paired] == ["pro", "anti", "pro", "anti"]
    assert {d.part_of for d in paired} == {"doctor and nurse"}
    others = [m for m in paired[0].mentions if m.cluster.startswith("other")]
    assert [m.words() for m in others] == [(4,)]


def test_probe_through_the_engine(tiny_bert: Model, tmp_path: Path) -> None:
    result = hs.probe_bias(tiny_bert, hs.read(PRO), hs.read(ANTI), out=tmp_path / "run")
    assert result["bias_cases"].values.tolist() == [2, 2]
    table = hs.open(tmp_path / "run").table(n=2)
    assert len(table.rows) == 2
    row = table.rows[0]
    here = result.dataset.sel(layer=row.layer, head=row.head)
    assert row.gap == float(here["bias_accuracy_gap"]) == pytest.approx(row.pro - row.anti)
    assert row.to_other_anti == float(
        here["bias_attention"].sel(condition="anti", candidate="other")
    )
    table.to_csv(tmp_path / "table.csv")
    lines = (tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("layer,head,coreference,pro,anti,gap")
    assert len(lines) == 3
    assert "L" in str(table)


def test_pairs_are_dealt_together(tiny_bert: Model) -> None:
    """Each pair is in one part: the interval of the gap is over pairs."""
    result = hs.probe_bias(tiny_bert, hs.read(PRO), hs.read(ANTI))
    cases = result.states["self"]["bias"]["cases"].isel(layer=0)
    assert (cases.sel(condition=0) == cases.sel(condition=1)).all()


def test_cases_count_for_both_of_their_occupations(tiny_bert: Model) -> None:
    jobs = ["doctor", "nurse", "cook", "driver", "guard", "lawyer", "tailor"]
    pairs = [(a, b) for a in jobs for b in jobs if a != b]
    sides = [
        [
            document(f"the {a} asked the {b} and {p} said that", span("1", 0, 2), span("1", 6, 7))
            for a, b in pairs
        ]
        for p in ("he", "she")
    ]
    result = hs.probe_bias(tiny_bert, *(hs.read(side) for side in sides))
    state = result.states["self"]["bias"].isel(layer=0)
    by_job = state["occupation_cases"].sum(("half", "condition"))
    assert sorted(by_job.values[by_job.values > 0]) == [24] * 7  # 12 pairs, pro and anti
    for name in ("right", "attention"):
        total = state[f"occupation_{name}"].sum(("half", "occupation"))
        assert np.allclose(total, 2 * state[name].sum("bucket"))
    (metric,) = (m for m in metrics_of(result) if m.name == "bias")
    axes = Axes.from_dict(result.provenance["axes"])
    found = metric.jackknives(state_of(result.states["self"]["bias"]), axes, axes.units)
    gap = found["bias_accuracy_gap"]
    assert gap.crossed is not None
    assert (gap.variance >= replace(gap, crossed=None).variance).all()
    slow = np.zeros_like(gap.value)  # the change without each job's cases, from its sums
    right = (
        result.states["self"]["bias"]["occupation_right"]
        .sum("half")
        .transpose("occupation", "condition", "layer", "head")
    )
    cases = (
        result.states["self"]["bias"]["occupation_cases"]
        .sum("half")
        .transpose("occupation", "condition", "layer")
    )
    for job in range(len(right)):
        a, b = right.values[job], cases.values[job][..., None]
        total_a, total_b = right.values.sum(0), cases.values.sum(0)[..., None]
        change = 2 * (total_a / total_b - (total_a - a) / (total_b - b))
        slow += (change[0] - change[1]) ** 2
    np.testing.assert_allclose(gap.crossed.variance, slow * 6 / 7, atol=1e-12)


def test_heads_can_be_named(tiny_bert: Model) -> None:
    result = hs.probe_bias(tiny_bert, hs.read(PRO), hs.read(ANTI))
    table = result.table([(1, 0)])
    assert [(row.layer, row.head) for row in table.rows] == [(1, 0)]
    with pytest.raises(InputError, match="There is no L9 H0 in this result"):
        result.table([(9, 0)])
    with pytest.raises(InputError, match=r"heads= lacks coref_accuracy"):
        result.table(result)
    coreference = hs.probe_coreference(tiny_bert, hs.read(PRO))
    chosen = result.table(coreference, n=1).rows[0]
    best = coreference.top("coref_accuracy", 1, mention_kind="all")[0]
    assert (chosen.layer, chosen.head, chosen.coreference) == best
    with pytest.raises(InputError, match=r"This result lacks bias_accuracy"):
        bias_table(coreference)
    figure = table.figure()
    texts = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert texts == ["L1 H0"]
    drawn = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert drawn == pytest.approx([table.rows[0].pro, table.rows[0].anti], rel=1e-5)
    assert "L1 H0" in table._repr_html_()


def test_bad_input_is_refused(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match="document 1 of the anti-stereotyped sentences is missing"):
        hs.probe_bias(tiny_bert, hs.read(PRO), hs.read(ANTI[:1]))
    alone = [document("the doctor said he ran", span("1", 0, 2), span("1", 3, 4))]
    with pytest.raises(InputError, match=r"No pronoun of .* has two candidates before it"):
        hs.probe_bias(tiny_bert, hs.read(alone), hs.read(alone))
