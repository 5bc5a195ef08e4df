"""Effects, patching, attribution and scores of the packaged models, against plain passes.

The references touch modules by their names, with hooks of torch alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from studies.effects import PAGE, exchanged_pronouns, share_line
from torch import Tensor

import headscope as hs
from headscope.causal.explain_score import explain_score
from headscope.causal.patch import patch
from headscope.causal.residual_stream import attribute

if TYPE_CHECKING:
    from headscope.model.model import Model

pytestmark = [pytest.mark.packaged, pytest.mark.xdist_group("packaged")]
TEXT = "When Mary and John went to the store, John gave a drink to"
OTHER = "When Mary and John went to the store, Mary gave a drink to"
SIZE = 64
"""Neurons of a head of SmolLM2."""
SOME = [(0, 0), (0, 5), (7, 2), (16, 0), (17, 4), (20, 0), (23, 3), (29, 1), (29, 8)]
TOLERANCE = 1e-4


@contextmanager
def changed(module: torch.nn.Module, head: int, size: int, value: Tensor | float) -> Iterator[None]:
    """Within the block, a head's part of what enters an output projection is replaced."""

    def put(_: torch.nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        given = args[0].clone()
        given[..., head * size : (head + 1) * size] = value
        return (given,)

    hook = module.register_forward_pre_hook(put)
    try:
        yield
    finally:
        hook.remove()


def gap(model: Model, text: str, target: str = " Mary", foil: str = " John") -> float:
    """logit(target) − logit(foil) after the text."""
    ids = model.require_tokenizer()(text, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        row = model.module(input_ids=ids).logits[0, -1].double()
    a, b = (model.require_tokenizer()(word)["input_ids"][0] for word in (target, foil))
    return float(row[a] - row[b])


def projection(model: Model, layer: int) -> torch.nn.Module:
    return model.module.get_submodule(f"model.layers.{layer}.self_attn.o_proj")


def one_by_one(model: Model, heads: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
    base = gap(model, TEXT)
    effects = {}
    for layer, head in heads:
        with changed(projection(model, layer), head, SIZE, 0.0):
            effects[layer, head] = gap(model, TEXT) - base
    return effects


def test_effects_of_some_heads(smollm2: Model) -> None:
    found = hs.effects(smollm2, TEXT, " Mary", " John", heads=SOME)
    assert found.attrs["with"] == pytest.approx(gap(smollm2, TEXT), abs=TOLERANCE)
    for (layer, head), wanted in one_by_one(smollm2, SOME).items():
        value = float(found.sel(layer=layer, head=head))
        assert value == pytest.approx(wanted, abs=TOLERANCE), (layer, head)
    in_docs = {(23, 3): -3.0, (29, 1): -1.7, (20, 0): -1.3, (17, 4): -0.9}
    for (layer, head), value in in_docs.items():
        assert round(float(found.sel(layer=layer, head=head)), 1) == value


@pytest.mark.long
def test_effects_of_all_heads(smollm2: Model) -> None:
    found = hs.effects(smollm2, TEXT, " Mary", " John")
    wanted = one_by_one(smollm2, [(layer, head) for layer in range(30) for head in range(9)])
    for (layer, head), value in wanted.items():
        assert float(found.sel(layer=layer, head=head)) == pytest.approx(value, abs=TOLERANCE)


def test_how_far_the_vector_of_a_text_turns(minilm: Model) -> None:
    text = "The cat sat on the mat."
    found = hs.effects(minilm, text)

    def vector() -> np.ndarray:
        inputs = minilm.require_tokenizer()(text, return_tensors="pt")
        with torch.inference_mode():
            hidden = minilm.module(**inputs).last_hidden_state[0]
        return np.asarray(hidden.double().mean(0).numpy())

    plain = vector()
    for layer, head in np.ndindex(6, 12):
        module = minilm.module.get_submodule(f"encoder.layer.{layer}.attention.output.dense")
        with changed(module, head, 32, 0.0):
            other = vector()
        turn = 1 - plain @ other / np.linalg.norm(plain) / np.linalg.norm(other)
        assert float(found.sel(layer=layer, head=head)) == pytest.approx(turn, abs=TOLERANCE)


def outputs_of(model: Model, text: str, layer: int) -> Tensor:
    """What enters a layer's output projection."""
    seen: list[Tensor] = []
    module = projection(model, layer)
    hook = module.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    gap(model, text)
    hook.remove()
    return seen[0]


def test_patching(smollm2: Model) -> None:
    """Two pairs, one the other way round: signs of gaps and of changes."""
    pairs = [(TEXT, OTHER), (OTHER, TEXT)]
    found = patch(smollm2, pairs, " Mary", " John", exact=3)
    shares = found["share"].to_series().dropna()
    assert len(shares) == 3
    for (layer, head), share in shares.items():
        closed = gaps = 0.0
        for first, second in pairs:
            mine, theirs = gap(smollm2, first), gap(smollm2, second)
            part = slice(head * SIZE, (head + 1) * SIZE)
            put = outputs_of(smollm2, second, layer)[..., part]
            with changed(projection(smollm2, layer), head, SIZE, put):
                patched = gap(smollm2, first)
            closed += np.sign(mine - theirs) * (mine - patched)
            gaps += abs(mine - theirs)
        assert share == pytest.approx(closed / gaps, abs=TOLERANCE), (layer, head)


def test_attribution_sums(smollm2: Model) -> None:
    found = attribute(smollm2, TEXT, " Mary", " John")
    wanted = gap(smollm2, TEXT)
    assert float(found.sum()) == pytest.approx(wanted, abs=TOLERANCE)
    assert found.attrs["difference"] < TOLERANCE
    assert int((found["kind"] == "head").sum()) == 270
    alone = attribute(smollm2, TEXT, " Mary", False)
    assert float(alone.sum()) == pytest.approx(alone.attrs["with"], abs=TOLERANCE)


@pytest.mark.parametrize(("layer", "head", "key"), [(0, 3, 1), (16, 0, 10), (17, 4, 1), (29, 1, 3)])
def test_scores_sum(smollm2: Model, layer: int, head: int, key: int) -> None:
    found = explain_score(smollm2, TEXT, layer, head, 11, key)
    row = smollm2.trace(TEXT, scores=True, layers=[layer]).main.scores.sel(layer=layer, head=head)
    scores = row.values[11, :12].astype(np.float64)
    contrast = scores[key] - np.delete(scores, key).mean()
    allowed = TOLERANCE * max(1.0, float(np.abs(scores).max()))
    for side in ("key_side", "query_side"):
        assert float(found.data[side].sum()) == pytest.approx(contrast, abs=allowed)


KELLER = (
    "Barbara Keller is a doctor from Chicago. Everyone in town likes Barbara",
    "My neighbor is Barbara Keller. Everyone likes Barbara",
    "Yesterday Barbara Keller went to the store. The clerk greeted Barbara",
    "Last week Barbara Keller opened a shop. Yesterday I saw Barbara",
    "In 1990 Barbara Keller moved to Paris. In 1995 Barbara",
    "We spoke with Barbara Keller about the weather. The next day Barbara",
)
"""METHODS 11; docs/effects.md states the range over these texts."""


def test_keller(smollm2: Model) -> None:
    """The parts sum where the first token's stream is a thousand times as long as the others'."""
    weights, parts, without = [], [], []
    for text in KELLER:
        key = smollm2.require_tokenizer().tokenize(text).index("ĠKeller")
        score = explain_score(smollm2, text, 17, 4, -1, key)
        assert score.data.attrs["difference"] < TOLERANCE
        name, value = score.top(1)[0]
        assert name == "L16 H0"
        weights.append(score.weight)
        parts.append(value)
        with changed(projection(smollm2, 16), 0, SIZE, 0.0):
            attention = smollm2.trace(text, layers=[17], vectors=False).attention
        without.append(float(attention.sel(layer=17, head=4)[-1, key]))
    assert 0.96 < min(weights) < max(weights) < 1
    assert 9.2 < min(parts) < max(parts) < 11.5
    assert 0.16 < min(without) < max(without) < 0.47
    first = attribute(smollm2, KELLER[1])
    assert first.attrs["difference"] < TOLERANCE


@pytest.mark.long
def test_the_nurse_of_the_docs(smollm2: Model) -> None:
    """The table of docs/effects.md, and the sentence before it."""
    found = exchanged_pronouns(smollm2, heads=[(25, 1), (23, 5)])
    page = PAGE.read_text("utf-8")
    for share in share_line(found).split(" · "):
        assert share in page
    assert float(found["gap"].min()) == pytest.approx(0.5, abs=0.05)
    assert float(found["gap"].max()) == pytest.approx(1.9, abs=0.05)
