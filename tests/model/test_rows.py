"""Attention by blocks of rows: the family's own attention, linear memory, only some layers."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask

import headscope as hs
from headscope.attention import Attention
from headscope.errors import InputError
from headscope.model.model import Model
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.rows import MaskRecipe, blocks_of
from headscope.run import analyze as analyze_module
from tests.families.examine import rows_difference
from tests.families.reference import padded_inputs, tapped
from tests.families.zoo import SUPPORTED, build

PLAIN = ["llama", "bert", "gpt2", "qwen3", "bart", "opt"]
NOT_PLAIN = ["gemma2", "t5"]
"""A soft cap, and a position bias: rows through the family's own function."""


def load(name: str, **settings: object) -> Model:
    member = next(m for m in SUPPORTED if m.name == name)
    return hs.load(build(replace(member, settings={**member.settings, **settings})))


@pytest.mark.parametrize("name", PLAIN + NOT_PLAIN)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_rows_are_the_whole_layers(name: str, left: bool) -> None:
    model = load(name)
    assert model.wiring.has_rows
    assert all(site.is_plain for site in model.wiring.sites) == (name in PLAIN)
    inputs = padded_inputs(model.module, left=left)
    whole, _ = tapped(model, inputs)
    for rows in (1, 3, 64):
        for computes_softmax in (False, True):
            options = {"computes_softmax": computes_softmax}
            assert rows_difference(model, inputs, whole, rows, **options) <= 1e-5


def test_a_soft_cap_that_small_scores_hide_is_not_plain() -> None:
    capped = load("gemma2", attn_logit_softcapping=50.0)
    assert not any(site.is_plain for site in capped.wiring.sites)
    free = load("gemma2", attn_logit_softcapping=None)
    assert all(site.is_plain for site in free.wiring.sites)


def test_hand_written_attention_keeps_whole_layers() -> None:
    model = load("gptj")
    assert model.info.route == "fallback"
    assert not model.wiring.has_rows


def test_blocks_join_a_short_end() -> None:
    assert blocks_of(300, 128) == [slice(0, 128), slice(128, 256), slice(256, 300)]
    assert blocks_of(260, 128) == [slice(0, 128), slice(128, 260)]
    assert blocks_of(5, 128) == [slice(0, 5)]


def test_a_recipe_makes_the_rows_of_the_mask() -> None:
    padding = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    arguments = {"batch_size": 2, "q_length": 7, "kv_length": 7, "attention_mask": padding}
    recipe = MaskRecipe(eager_mask, arguments)
    whole = eager_mask(**arguments)
    assert torch.equal(recipe.whole(), whole)
    assert torch.equal(recipe.rows(2, 5, 5), whole[:, :, 2:5, :5])
    assert recipe.plain is not None
    assert recipe.plain.is_causal
    assert recipe.plain.n_keys.tolist() == [7, 4]
    left = MaskRecipe(eager_mask, {**arguments, "attention_mask": padding.flip(1)})
    assert left.plain is None
    windowed = MaskRecipe(eager_mask, {**arguments, "mask_function": lambda *at: at[2] >= at[3]})
    assert windowed.plain is None


def test_masks_of_other_threads_and_later_ones_are_tensors(tiny_llama: Model) -> None:
    ids = {"input_ids": torch.arange(3, 23)[None]}
    found: list[object] = []

    def read(attention: Attention) -> None:
        if attention.layer or attention.rows.start:
            return

        def make() -> None:
            mask = ALL_MASK_ATTENTION_FUNCTIONS["eager"](batch_size=1, q_length=3, kv_length=3)
            found.append(mask)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()

    tiny_llama.read(ids, read, rows=4)
    assert isinstance(found[0], Tensor)
    assert ALL_MASK_ATTENTION_FUNCTIONS["eager"] is eager_mask


def test_only_some_layers(tiny_llama: Model) -> None:
    ids = {"input_ids": torch.arange(3, 43)[None]}
    whole, _ = tapped(tiny_llama, ids)
    seen: dict[int, Tensor] = {}
    tiny_llama.read(ids, lambda a: seen.update({a.layer: a.weights}), layers=frozenset([1]))
    assert list(seen) == [1]
    torch.testing.assert_close(seen[1], whole["self"][1], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("computes_softmax", [False, True], ids=["family", "softmax"])
@pytest.mark.parametrize("name", ["llama", "bert", "gemma2", "t5"])
def test_ablated_heads_and_scaled_neurons_are_read_by_rows(
    name: str, computes_softmax: bool
) -> None:
    """A layer is never whole under these edits, also when its rows are computed again."""
    model = load(name)
    inputs = padded_inputs(model.module, left=False)
    edits = [hs.ablate(0, 1)]
    if name != "t5":
        edits.append(hs.scale_neurons(1, 0, [0, 1], 3.0))
    before, _ = tapped(model, inputs)
    with model.edit(*edits):
        whole, _ = tapped(model, inputs)
        options = {"computes_softmax": computes_softmax}
        assert rows_difference(model, inputs, whole, 4, **options) <= 1e-5
        kinds: set[bool] = set()
        late: list[tuple[Attention, Tensor]] = []

        def read(attention: Attention) -> None:
            kinds.add(attention.rows is None)
            if (attention.block, attention.layer) == (model.wiring.main_block(), 0):
                late.append((attention, attention.weights[:, 1].clone()))

        model.read(inputs, read, rows=4, **options)
    assert kinds == {False}
    assert not any(weights.any() for _, weights in late)
    for attention, _ in late:
        assert not attention.again(attention.rows)[:, 1].any()
    block = model.wiring.main_block()
    assert not torch.equal(before[block][1], whole[block][1])


def test_edits_of_outputs_and_of_places_need_whole_layers(tiny_llama: Model) -> None:
    ids = {"input_ids": torch.arange(3, 23)[None]}
    for edit in (hs.edit(lambda z: z - z.mean(1), 0, 0), hs.set_attention(0, 0, key=0, weight=1)):
        kinds: dict[int, bool] = {}
        with tiny_llama.edit(edit):
            tiny_llama.read(ids, lambda a: kinds.update({a.layer: a.rows is None}), rows=4)  # noqa: B023
        assert kinds == {0: True, 1: False}


def test_runs_under_edits_do_not_depend_on_rows(tiny_llama: Model, monkeypatch) -> None:
    texts = ["the cat sat on the mat and the dog sat by the cat", "a dog and a cat"]
    measured = {}
    for rows in (128, 4):
        monkeypatch.setattr(analyze_module, "ROWS", rows)
        for edit in (hs.ablate(0, 1), hs.edit(lambda z: 2 * z, 0, 1)):
            with tiny_llama.edit(edit):
                found = hs.analyze(tiny_llama, texts, ["entropy", "js", "exemplars"], workers=1)
                gradients = hs.importance(tiny_llama, texts, workers=1)
            measured.setdefault(type(edit), []).append((found, gradients))
    for (found, gradients), (by_rows, their) in measured.values():
        for name in ("entropy", "js", "exemplar_weight"):
            np.testing.assert_allclose(by_rows[name], found[name], atol=1e-5, err_msg=name)
        np.testing.assert_allclose(their["importance"], gradients["importance"], atol=1e-6)


@pytest.mark.parametrize("name", ["llama", "bert", "bart"])
def test_gradients_by_rows_are_autograds(name: str) -> None:
    model = load(name)
    inputs = padded_inputs(model.module, left=False)

    def whole() -> dict[tuple[str, int], Tensor]:
        found: dict[tuple[str, int], Tensor] = {}
        attachment = Attachment(
            on_gradient=lambda site, g: found.update({(site.block, site.layer): g.clone()}),
            returns_weights=False,
        )
        _backward(model, inputs, attachment)
        return found

    def by_rows() -> dict[tuple[str, int], Tensor]:
        found: dict[tuple[str, int], list[Tensor]] = {}

        def read(a: Attention) -> None:
            n_keys = a.gradients.shape[-1]
            full = max(n_keys, a.n_rows) if a.is_causal else n_keys
            padded = torch.nn.functional.pad(a.gradients.clone(), (0, full - n_keys))
            found.setdefault((a.block, a.layer), []).append(padded)

        options = {"rows": 3, "takes_gradients": True, "returns_weights": False}
        _backward(model, inputs, Attachment(reader=read, **options))
        return {at: torch.cat(parts, 2) for at, parts in found.items()}

    expected, found = whole(), by_rows()
    assert expected.keys() == found.keys()
    mask = inputs["attention_mask"].bool()
    for at, gradient in expected.items():
        ours = found[at]
        if at[0] in ("self", "encoder"):  # rows of padding are not read
            gradient, ours = (g * mask[:, None, :, None] for g in (gradient, ours))
            gradient, ours = (g * mask[:, None, None] for g in (gradient, ours))
        if at[0] in model.wiring.causal_blocks:  # nor later keys of a block
            gradient, ours = gradient.tril(), ours.tril()
        visible = ours != 0
        size = float(gradient.abs().max())
        torch.testing.assert_close(ours[visible], gradient[visible], atol=1e-5 * size, rtol=1e-4)
        assert visible.any()


def _backward(model: Model, inputs: dict[str, Tensor], attachment: Attachment) -> None:
    for parameter in model.module.parameters():
        parameter.requires_grad_(False)
    with torch.enable_grad(), model.attached(attachment):
        output = model.module(**inputs)
        logits = output["logits"] if "logits" in output else output[0]
        mask = inputs.get("decoder_attention_mask", inputs["attention_mask"])
        mask = mask if mask.shape[1] == logits.shape[1] else torch.ones(logits.shape[:2])
        (logits.pow(3).mean(-1) * mask).sum().backward()


def test_importance_is_the_same_by_rows(tiny_llama: Model, monkeypatch) -> None:
    texts = ["the cat sat on the mat and the dog sat by the cat", "a cat and the cat"]
    by_rows = hs.importance(tiny_llama, texts, workers=1)
    make_plan = analyze_module.make_plan
    plans = []

    def without_rows(*args, **options):
        plans.append(make_plan(*args, **options))
        return replace(plans[-1], rows=None)

    monkeypatch.setattr(analyze_module, "make_plan", without_rows)
    whole = hs.importance(tiny_llama, texts, workers=1)
    assert plans[0].rows is not None
    for name in ("importance", "removal_estimate"):
        np.testing.assert_allclose(
            by_rows[name].values, whole[name].values, rtol=1e-4, atol=1e-9, err_msg=name
        )


def test_analyze_takes_layers(tiny_llama: Model) -> None:
    texts = ["the cat sat on the mat", "a dog and a cat"]
    whole = hs.analyze(tiny_llama, texts, ["entropy", "null_share"], workers=1)
    some = hs.analyze(tiny_llama, texts, ["entropy", "null_share"], workers=1, layers=[1])
    assert some["entropy"]["layer"].values.tolist() == [1]
    np.testing.assert_allclose(
        some["entropy"].values, whole["entropy"].sel(layer=[1]).values, rtol=1e-5
    )
    with pytest.raises(InputError, match=r"layers=\[7\].* layers 0 to 1"):
        hs.analyze(tiny_llama, texts, ["entropy"], layers=[7])
    with pytest.raises(InputError, match="layer numbers"):
        hs.analyze(tiny_llama, texts, ["entropy"], layers="1")


def test_what_does_not_fit_is_refused_before_running(tiny_llama: Model, monkeypatch) -> None:
    monkeypatch.setattr(analyze_module, "memory", lambda: 1000)
    with pytest.raises(InputError, match=r"js need whole layers.*max_tokens=512"):
        hs.analyze(tiny_llama, ["the cat sat on the mat"], ["js"], over="norm")
    with (
        tiny_llama.edit(hs.set_attention(0, 1, key=0, weight=0.5)),
        pytest.raises(InputError, match=r"edits \(L0 H1 .*\) need whole layers.*max_tokens=512"),
    ):
        hs.analyze(tiny_llama, ["the cat sat on the mat"], ["entropy"])
    result = hs.analyze(tiny_llama, ["the cat sat on the mat"], ["entropy"])
    assert result["entropy"].notnull().all()


def test_a_long_trace_of_some_layers_runs_the_others_fused(tiny_llama: Model, monkeypatch) -> None:
    text = "the cat sat on the mat and the dog sat by the cat"
    whole = tiny_llama.trace(text)
    monkeypatch.setattr("headscope.model.tracing.LONG", 8)
    some = tiny_llama.trace(text, layers=[1])
    np.testing.assert_allclose(
        some.attention.values, whole.attention.sel(layer=[1]).values, atol=1e-5
    )
    np.testing.assert_allclose(some.queries.values, whole.queries.sel(layer=[1]).values, atol=1e-4)
