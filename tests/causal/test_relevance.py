"""Rollout, flow, gradient-weighted relevance and removal against their definitions."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as tf

import headscope as hs
from headscope.causal.relevance import _flow
from headscope.errors import InputError, UnknownName
from tests.model.media_zoo import VISION, picture, vit_processor

if TYPE_CHECKING:
    from headscope.model.model import Model

TEXT = "a bat sat on"


def test_rollout_is_the_product_of_layers(tiny_llama: Model) -> None:
    attention = tiny_llama.trace(TEXT).attention.values
    product = np.eye(attention.shape[-1])
    for layer in attention:
        product = (0.5 * layer.mean(0) + 0.5 * np.eye(len(product))) @ product
    found = hs.relevance(tiny_llama, TEXT, "rollout")
    np.testing.assert_allclose(found, product[-1], atol=1e-6)
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)


def test_flow_is_the_smallest_cut() -> None:
    """Max-flow = min-cut, by trying every cut of a small graph."""
    draw = np.random.default_rng(0)
    layers = [np.tril(draw.random((3, 3))) for _ in range(2)]
    layers = [layer / layer.sum(1, keepdims=True) for layer in layers]
    found = _flow(layers, 2)
    nodes = [(depth, i) for depth in range(3) for i in range(3)]
    for key in range(3):
        inner = [n for n in nodes if n not in ((2, 2), (0, key))]
        cuts = []
        for chosen in itertools.product([False, True], repeat=len(inner)):
            side = {(2, 2)} | {n for n, c in zip(inner, chosen, strict=True) if c}
            cuts.append(sum(
                layers[d - 1][i, j] for d in (1, 2) for i in range(3) for j in range(3)
                if (d, i) in side and (d - 1, j) not in side
            ))  # fmt: skip
        assert found[key] == pytest.approx(min(cuts), abs=1e-5)


def test_gradient_relevance_is_chefers_rule(tiny_llama: Model) -> None:
    module = tiny_llama.module
    ids = tiny_llama.require_tokenizer()(TEXT, return_tensors="pt")
    module.set_attn_implementation("eager")
    outputs = module(**ids, output_attentions=True)
    row = outputs.logits[0, -1].softmax(-1)
    gradients = torch.autograd.grad(row.max(), outputs.attentions)
    total = torch.eye(ids["input_ids"].shape[1])
    for weights, gradient in zip(outputs.attentions, gradients, strict=True):
        total = total + (weights[0] * gradient[0]).clamp(min=0).mean(0) @ total
    found = hs.relevance(tiny_llama, TEXT)
    np.testing.assert_allclose(found, total[-1].detach(), atol=1e-5)


def test_removal_equals_a_mask(tiny_llama: Model) -> None:
    tokenizer = tiny_llama.require_tokenizer()
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    found = hs.relevance(tiny_llama, TEXT, "removal").values
    n = ids.shape[1]
    positions = torch.arange(n)[None]
    with torch.no_grad():
        plain = tiny_llama.module(input_ids=ids).logits[0, -1].log_softmax(-1)
        target = int(plain.argmax())
        for place in (2, 4):
            mask = torch.ones_like(ids)
            mask[0, place] = 0
            row = tiny_llama.module(input_ids=ids, attention_mask=mask, position_ids=positions)
            expected = float(plain[target] - row.logits[0, -1].log_softmax(-1)[target])
            assert found[place] == pytest.approx(expected, abs=1e-4)
    assert found[0] == found[-1] == 0


def test_the_check_compares_with_random(tiny_llama: Model, tiny_bert: Model) -> None:
    texts = [TEXT, "the cat in a hat", "my red house is", "one tree by it", "so he said that"]
    found = hs.check_relevance(tiny_llama, texts, n_random=4)
    assert found["ranking"].values.tolist() == ["rollout", "flow", "gradient", "removal", "random"]
    assert not found["fall"].sel(removed=0).any()
    # Everything is removed at the end, in any order.
    assert np.ptp(found["fall"].sel(removed=1).values) < 1e-4
    area = found["area"].values
    np.testing.assert_allclose(found["gain"].values, area - area[-1], atol=1e-9)
    assert float(found["gain"].sel(ranking="removal")) > float(found["gain"].sel(ranking="rollout"))
    masked = hs.check_relevance(
        tiny_bert, ["the cat sat on the [MASK] ."], ["gradient"], n_random=2
    )
    assert masked.sizes["ranking"] == 2


LABELS: dict[str, Any] = {"num_labels": 3}


@cache
def classifier() -> Model:
    torch.manual_seed(0)
    config = tf.ViTConfig(**VISION, **LABELS, initializer_range=0.5)
    return hs.load(tf.ViTForImageClassification(config), processor=vit_processor())


def test_patches_of_an_image_are_tokens() -> None:
    """Rollout and Chefer's rule start at the class token; a removed patch is a masked key."""
    model = classifier()
    image, module = picture(), model.module
    trace = model.trace(image=image)
    rollout = np.eye(17)[0]
    for layer in trace.attention.values[::-1]:
        rollout = rollout @ (0.5 * layer.mean(0) + 0.5 * np.eye(17))
    found = hs.relevance(model, method="rollout", image=image)
    np.testing.assert_allclose(found, rollout, atol=1e-6)
    assert found["token"].values.tolist() == list(trace.tokens)
    first = found.isel(token=1)
    assert [float(first[side]) for side in ("top", "left", "bottom", "right")] == [0, 0, 0.25, 0.25]
    assert np.isnan(found["top"].values[0])  # the class token

    module.set_attn_implementation("eager")
    pixels = {"pixel_values": vit_processor()(image, return_tensors="pt")["pixel_values"]}
    outputs = module(**pixels, output_attentions=True)
    row = outputs.logits[0].softmax(-1)
    gradients = torch.autograd.grad(row.max(), outputs.attentions)
    total = torch.eye(17)
    for weights, gradient in zip(outputs.attentions, gradients, strict=True):
        total = total + (weights[0] * gradient[0]).clamp(min=0).mean(0) @ total
    np.testing.assert_allclose(
        hs.relevance(model, image=image), total[0].detach(), atol=1e-5, rtol=1e-4
    )

    removal = hs.relevance(model, method="removal", image=image)
    target = int(row.argmax())
    edits = [
        hs.set_attention(layer, head, key=5, weight=0) for layer in (0, 1) for head in range(4)
    ]
    with torch.no_grad(), model.edit(*edits):
        without = module(**pixels).logits[0].log_softmax(-1)[target]
    assert float(removal[5]) == pytest.approx(float(row.detach().log()[target] - without), abs=1e-4)
    assert removal[0] == 0


def test_the_check_removes_patches() -> None:
    images = [picture(side) for side in (40, 48, 56)]
    found = hs.check_relevance(classifier(), images=images, n_random=3)
    assert found.attrs["images"] == 3
    assert found.attrs["holds"].startswith("3 templates of one image each")
    assert np.ptp(found["fall"].sel(removed=1).values) < 1e-4
    area = found["area"]
    assert float(area.sel(ranking="removal")) > float(area.sel(ranking="random"))


def test_a_pooled_prediction_has_no_row_to_start_at() -> None:
    torch.manual_seed(0)
    config = tf.BeitConfig(**VISION, **LABELS, use_mean_pooling=True)
    model = hs.load(tf.BeitForImageClassification(config), processor=vit_processor())
    with pytest.raises(InputError, match="reads 16 of 17 rows of the last layer"):
        hs.relevance(model, image=picture())


def test_bad_input(tiny_llama: Model, tiny_t5: Model) -> None:
    with pytest.raises(InputError, match="position=3 is not used: a label is of the whole text"):
        hs.relevance(classifier(), image=picture(), position=3)
    with pytest.raises(UnknownName, match="Unknown method 'roll'"):
        hs.relevance(tiny_llama, TEXT, "roll")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Give a list of texts"):
        hs.check_relevance(tiny_llama, TEXT)
    with pytest.raises(InputError, match="Give a list of texts"):
        hs.check_relevance(tiny_llama, images=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed should be a whole number from 0 on"):
        hs.check_relevance(tiny_llama, [TEXT], seed=-1)
    with pytest.raises(InputError, match="removable tokens: give longer texts"):
        hs.check_relevance(tiny_llama, ["abc"])
    with pytest.raises(InputError, match="an encoder-decoder"):
        hs.relevance(tiny_t5, "the cat sat")
    for given in ({}, {"text": TEXT, "image": picture()}):
        with pytest.raises(InputError, match="one text or one image"):
            hs.relevance(tiny_llama, **given)
