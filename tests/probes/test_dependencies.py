"""Heads as classifiers of dependencies: against loops, by hand, and at the edges."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import headscope as hs
from headscope.attention import Attention
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.accumulator import Accumulator, measure_layer
from headscope.metrics.core.contract import Metric
from headscope.metrics.core.finalize import finalize_all
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.coreference import Bias, CorefAccuracy
from headscope.metrics.dependencies import DIRECTIONS, OFFSETS, DepAccuracy, DepOffset
from headscope.metrics.surface import TokensPerDocument
from headscope.model.model import Model
from headscope.probes.probe_dependencies import fold_subtypes
from headscope.text.document import Document
from tests.metrics.test_rows import blocks
from tests.probes.slow_probes import divide, slow_dependencies
from tests.probes.worlds import (
    RELATIONS,
    World,
    batch_of_worlds,
    layers_of,
    make_worlds,
    tokens_at,
)


def measured(
    worlds: list[World],
    metrics: list[Metric],
    per: int = 7,
    relations: tuple[str, ...] = RELATIONS,
    rows: int | None = None,
) -> xr.Dataset:
    accumulator = Accumulator(metrics)
    for start in range(0, len(worlds), per):
        some = worlds[start : start + per]
        batch = batch_of_worlds(some, first=start, relations=relations)
        with accumulator.batch(batch) as read:
            for attention in layers_of(some, batch):
                for block in [attention] if rows is None else blocks(attention, rows):
                    read(block)
    return finalize_all(accumulator.states(), metrics, batch.axes, accumulator.layers())["self"]


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("punctuation", [True, False])
@pytest.mark.parametrize("possessive", [True, False])
def test_equals_the_slow_reference(is_causal: bool, punctuation: bool, possessive: bool) -> None:
    worlds = make_worlds(1, 30, is_causal=is_causal)
    options = {"punctuation": punctuation, "possessive": possessive}
    data = measured(worlds, [DepAccuracy(**options), DepOffset(**options)])
    expected = slow_dependencies(worlds, **options)
    assert expected["cases"]["all"] > 100
    for relation in (*RELATIONS, "all"):
        cases = expected["cases"][relation]
        assert float(data["cases"].sel(relation=relation)) == cases
        for direction in DIRECTIONS:
            visible = expected["visible"][direction, relation]
            at = {"direction": direction, "relation": relation}
            assert float(data["cases_visible"].sel(at)) == visible
            for layer in range(2):
                for head in range(3):
                    right = expected["right"][direction, relation, layer, head]
                    here = {**at, "layer": layer, "head": head}
                    for name, total in (("accuracy", cases), ("accuracy_visible", visible)):
                        found = float(data[name].sel(here))
                        wanted = pytest.approx(divide(right, total), abs=1e-12, nan_ok=True)
                        assert found == wanted, (name, here)
        shares = [divide(expected["by_offset"][o, relation], cases) for o in OFFSETS]
        best = float(data["baseline"].sel(relation=relation))
        assert best == pytest.approx(max(shares), nan_ok=True)
        if best > 0:
            offset = int(data["baseline_offset"].sel(relation=relation))
            assert shares[OFFSETS.index(offset)] == max(shares)


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("rows", [1, 3, 7, 64])
def test_rows_count_what_whole_layers_count(rows: int, is_causal: bool) -> None:
    """Words of several tokens are cut apart, and many weights are equal."""
    worlds = make_worlds(2, 30, is_causal=is_causal)
    for world in worlds[::2]:  # sums and means of eighths are exact
        world.attention = np.round(world.attention * 8) / 8
    split = [np.diff(world.words, prepend=-2) == 0 for world in worlds]
    assert sum(map(np.count_nonzero, split)) > 20
    metrics: list[Metric] = [DepAccuracy(), CorefAccuracy(), CorefAccuracy("words"), Bias()]
    for metric in metrics:
        whole, found = (measured(worlds, [metric], rows=n) for n in (None, rows))
        for name, values in whole.data_vars.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-12, err_msg=name)


def by_hand(
    weights: list[list[float]],
    heads: tuple[int, ...],
    relations: tuple[str, ...],
    forms: str,
    *,
    is_causal: bool = False,
) -> World:
    """A document whose every word is one token, without special tokens."""
    words = forms.split()
    ends = np.cumsum([len(word) + 1 for word in words])
    spans = tuple((int(e) - len(w) - 1, int(e) - 1) for e, w in zip(ends, words, strict=True))
    document = Document(
        "hand", forms, tuple(words), spans, ((0, len(words)),), parents=heads, relations=relations
    )
    tokens = tokens_at(document, spans)
    attention = np.array(weights, dtype=np.float64)[None, None]
    return World(document, list(range(len(words))), attention, is_causal, tokens)


def test_three_words_by_hand() -> None:
    """`the` and `cat` attend most to `cat` and `sat`; the root is never right.

    dependent: the → cat right (0.5 > 0.3), cat → sat right (0.6 > 0.1); sat is the root.
    head: to `the` cat gives 0.1 and sat 0.7, so sat: wrong; to `cat` the gives 0.5 and sat
    0.2, so the: wrong.
    """
    world = by_hand(
        [[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.7, 0.2, 0.1]],
        (1, 2, -1),
        ("punct", "obj", "root"),
        "the cat sat",
    )
    data = measured([world], [DepAccuracy(), DepOffset()])
    accuracy = data["accuracy"].sel(layer=0, head=0)
    assert float(accuracy.sel(direction="dependent", relation="all")) == pytest.approx(2 / 3)
    assert float(accuracy.sel(direction="head", relation="all")) == 0
    assert float(accuracy.sel(direction="dependent", relation="obj")) == 1
    visible = data["accuracy_visible"].sel(layer=0, head=0, direction="dependent")
    assert float(visible.sel(relation="all")) == 1
    assert float(data["baseline"].sel(relation="all")) == pytest.approx(2 / 3)
    assert int(data["baseline_offset"].sel(relation="all")) == 1
    assert math.isnan(float(data["baseline_offset"].sel(relation="root")))
    without = measured([world], [DepAccuracy(punctuation=False)])["accuracy"]
    found = without.sel(layer=0, head=0, direction="dependent", relation="all")
    assert float(found) == pytest.approx(1 / 2)


def test_the_possessive_particle_predicts_for_its_word() -> None:
    """In `Bob 's cat`, Bob attends to 's but 's attends to cat, the head of Bob."""
    world = by_hand(
        [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]],
        (2, 0, -1),
        ("poss", "case", "root"),
        "Bob 's cat",
    )
    at = {"layer": 0, "head": 0, "direction": "dependent", "relation": "poss"}
    with_rule, without = (
        float(measured([world], [DepAccuracy(possessive=rule)])["accuracy"].sel(at))
        for rule in (True, False)
    )
    assert (with_rule, without) == (1, 0)
    by_default = measured([world], [DepAccuracy()])["accuracy"].sel(at)
    assert float(by_default) == 1  # `poss` is Stanford's label


def test_ties_go_to_the_first_word_and_nothing_to_none() -> None:
    """An even row predicts the first other word; a row of zeros predicts nothing."""
    world = by_hand(
        [[0.0, 0.0, 0.0], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]],
        (1, -1, 1),
        ("obj", "root", "case"),
        "a b c",
    )
    accuracy = measured([world], [DepAccuracy()])["accuracy"].sel(layer=0, head=0)
    assert float(accuracy.sel(direction="dependent", relation="obj")) == 0
    assert float(accuracy.sel(direction="dependent", relation="case")) == 0  # a came first
    assert float(accuracy.sel(direction="head", relation="obj")) == 1  # b and c tie for a


def test_relations_with_few_cases_are_not_reported() -> None:
    worlds = make_worlds(1, 30, is_causal=False)
    probes: list[Metric] = [DepAccuracy(min_cases=30), DepOffset(min_cases=30)]
    data = measured(worlds, [TokensPerDocument(), *probes])
    enough = data["cases"] >= 30
    assert 1 < int(enough.sum()) < len(RELATIONS) + 1
    for name in ("accuracy", "baseline"):
        dims = [dim for dim in data[name].dims if dim != "relation"]
        assert (data[name].notnull().all(dims) == enough).all(), name
        interval = data[f"{name}_interval"].sel(relation=~enough)
        assert interval.isnull().all(), name


def test_a_document_of_one_word_is_a_case_without_an_answer() -> None:
    world = by_hand([[1.0]], (-1,), ("root",), "Yes")
    data = measured([world], [DepAccuracy(), DepOffset()])
    assert float(data["cases"].sel(relation="all")) == 1
    assert float(data["accuracy"].sel(relation="all").max()) == 0
    assert float(data["cases_visible"].sel(relation="all").max()) == 0


def test_unknown_possessive_is_refused() -> None:
    with pytest.raises(UnknownName, match="Unknown possessive 'maybe'"):
        DepAccuracy(possessive="maybe")  # type: ignore[arg-type]


PARSED = [
    Document(
        f"s{number}",
        "the red cat sat",
        ("the", "red", "cat", "sat"),
        ((0, 3), (4, 7), (8, 11), (12, 15)),
        ((0, 4),),
        parents=(2, 2, 3, -1),
        relations=("det", "amod:big", "nsubj", "root"),
    )
    for number in range(6)
]


def test_probe_through_the_engine(tiny_bert: Model, tmp_path: Path) -> None:
    result = hs.probe_dependencies(tiny_bert, hs.read(PARSED), 2, out=tmp_path / "run")
    assert result["accuracy"].dims == ("direction", "relation", "layer", "head")
    assert list(result["relation"].values) == ["amod:big", "det", "nsubj", "root", "all"]
    assert float(result["cases"].sel(relation="all")) == 24
    again = hs.probe_dependencies(tiny_bert, hs.read(PARSED), 2, out=tmp_path / "run")
    xr.testing.assert_identical(again.dataset, result.dataset)
    opened = hs.open(tmp_path / "run")
    assert str(opened.table()) == str(result.table())


def test_models_of_all_kinds(tiny_llama: Model, tiny_t5: Model) -> None:
    """Without special tokens (and causal), and with an encoder and a decoder."""
    causal = hs.probe_dependencies(tiny_llama, hs.read(PARSED), 2)
    visible = causal["cases_visible"].sel(relation="all")
    assert float(visible.sel(direction="dependent")) == 0  # all heads stand to the right
    assert float(visible.sel(direction="head")) == 18
    assert float(causal["accuracy"].sel(direction="dependent").max()) == 0
    both = hs.probe_dependencies(tiny_t5, hs.read(PARSED), 2)
    for block in ("encoder", "decoder"):
        assert float(both.block(block)["cases"].sel(relation="all")) > 0
    assert "accuracy" not in both.block("cross")
    assert both.table(block="encoder").rows


def test_subtypes_can_be_folded(tiny_bert: Model) -> None:
    folded = hs.probe_dependencies(tiny_bert, hs.read(PARSED), 2, fold_subtypes=True)
    assert "amod" in folded["relation"].values
    assert "amod:big" not in folded["relation"].values
    plain = replace(PARSED[0], parents=None, relations=None)
    assert fold_subtypes(plain) is plain


def test_merged_results_are_those_of_one_run(tiny_bert: Model) -> None:
    whole = hs.probe_dependencies(tiny_bert, hs.read(PARSED), 5)
    parts = [hs.probe_dependencies(tiny_bert, hs.read(PARSED[a:b]), 5) for a, b in ((0, 2), (2, 6))]
    assert np.isnan(parts[0]["accuracy"].sel(relation="det")).all()  # 2 cases
    merged = hs.merge(*parts)
    xr.testing.assert_allclose(merged.dataset, whole.dataset)


def test_bad_input_is_refused(tiny_bert: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="min_cases should be a whole number from 1 on, not 0"):
        hs.probe_dependencies(tiny_bert, hs.read(PARSED), 0)
    with pytest.raises(InputError, match="needs parents, which no document has"):
        hs.probe_dependencies(tiny_bert, hs.read(["the cat sat"]))
    broken = tmp_path / "broken.conllu"
    broken.write_text(
        "# sent_id = loop-7\n# text = a b\n"
        "1\ta\ta\tX\tX\t_\t2\tdet\t_\t_\n2\tb\tb\tX\tX\t_\t1\tdet\t_\t_\n\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="loop-7"):
        hs.probe_dependencies(tiny_bert, broken)


def test_sources_are_left_as_they_were() -> None:
    worlds = make_worlds(3, 5, is_causal=False)
    batch = batch_of_worlds(worlds)
    layer: Attention = layers_of(worlds, batch)[0]
    before = layer.weights.clone()
    measure_layer(DepAccuracy(), LayerData(layer, batch))
    assert torch.equal(layer.weights, before)
