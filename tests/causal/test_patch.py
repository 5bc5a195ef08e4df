"""Heads that carry the difference between two texts, against passes one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from headscope.causal.patch import patch
from headscope.errors import InputError, MissingObjective

if TYPE_CHECKING:
    from headscope.model.model import Model


def _run(model: Model, text: str, put: torch.Tensor | None = None) -> tuple[float, torch.Tensor]:
    """logit(t) − logit(a) after the text, and the input of layer 1's output projection; `put`
    replaces head 2 there.
    """
    ids = model.require_tokenizer()(text, return_tensors="pt")
    target, foil = model.require_tokenizer().convert_tokens_to_ids(["t", "a"])
    size = model.info.head_size
    assert size is not None
    seen: list[torch.Tensor] = []

    def hook(_: object, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        given = args[0].clone()
        seen.append(given.clone())
        if put is not None:
            given[..., 2 * size : 3 * size] = put[..., 2 * size : 3 * size]
        return (given,)

    handle = model.module.model.layers[1].self_attn.o_proj.register_forward_pre_hook(hook)
    with torch.inference_mode():
        row = model.module(**ids).logits[0, -1].double()
    handle.remove()
    return float(row[target] - row[foil]), seen[0]


def test_equals_passes_one_by_one(tiny_llama: Model) -> None:
    pairs = [("a bat sat", "a rat sat"), ("a tree in", "a free in")]
    found = patch(tiny_llama, pairs, "t", "a", exact="all")
    closed = gaps = 0.0
    for first, second in pairs:
        mine, _ = _run(tiny_llama, first)
        theirs, outputs = _run(tiny_llama, second)
        patched, _ = _run(tiny_llama, first, outputs)
        gap = mine - theirs
        closed += np.sign(gap) * (mine - patched)
        gaps += abs(gap)
    assert float(found["share"].sel(layer=1, head=2)) == pytest.approx(closed / gaps, abs=1e-4)
    assert int(found["share"].isnull().sum()) == 0
    assert np.corrcoef(found["share"].values.ravel(), found["estimate"].values.ravel())[0, 1] > 0.7


def test_only_the_top_is_run(tiny_llama: Model) -> None:
    pairs = [("a bat sat", "a rat sat")]
    some = patch(tiny_llama, pairs, "t", "a", exact=3)
    every = patch(tiny_llama, pairs, "t", "a", exact="all")
    known = some["share"].notnull()
    assert int(known.sum()) == 3
    np.testing.assert_allclose(
        some["share"].values[known.values], every["share"].values[known.values], atol=1e-5
    )


def test_heads_that_are_asked_for(tiny_llama: Model) -> None:
    pairs = [("a bat sat", "a rat sat")]
    asked = patch(tiny_llama, pairs, "t", "a", heads=[(1, 2), (0, 3)])["share"]
    every = patch(tiny_llama, pairs, "t", "a", exact="all")["share"]
    assert sorted(asked.to_series().dropna().index) == [(0, 3), (1, 2)]
    for layer, head in ((1, 2), (0, 3)):
        at = {"layer": layer, "head": head}
        assert float(asked.sel(at)) == pytest.approx(float(every.sel(at)), abs=1e-5)
    with pytest.raises(InputError, match="There is no layer 7"):
        patch(tiny_llama, pairs, "t", "a", heads=[(7, 0)])
    with pytest.raises(InputError, match="patching is of single heads"):
        patch(tiny_llama, pairs, "t", "a", heads=[[(0, 1), (1, 2)]])  # type: ignore[list-item]


def test_pairs_that_cannot_be(tiny_llama: Model, minilm: Model) -> None:
    with pytest.raises(InputError, match=r"has \d+ tokens and .* has \d+"):
        patch(tiny_llama, [("a bat sat", "a bat sat down")], "t", "a")
    with pytest.raises(InputError, match="There are no pairs"):
        patch(tiny_llama, [])
    with pytest.raises(InputError, match="is not a pair of texts"):
        patch(tiny_llama, ["a bat"])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"target='dog' is 3 tokens of .*: 'd', 'o', 'g'"):
        patch(tiny_llama, [("a bat sat", "a rat sat")], "dog", "a")
    with pytest.raises(InputError, match="foil='dog' is 3 tokens"):
        patch(tiny_llama, [("a bat sat", "a rat sat")], "t", "dog")
    with pytest.raises(InputError, match="position=99 is out of range: the text has 9 tokens"):
        patch(tiny_llama, [("a bat sat", "a rat sat")], "t", "a", position=99)
    with pytest.raises(InputError, match="The text is one token, 'a'"):
        patch(tiny_llama, [("a", "t")], "t", "a")
    with pytest.raises(MissingObjective, match="Patching needs a model that predicts"):
        patch(minilm, [("a bat sat", "a rat sat")], "t", "a")
    with pytest.raises(InputError, match="there is no gap"):
        patch(tiny_llama, [("a bat sat", "a bat sat")], "t", "a")
