"""The tap equals transformers' official eager attention, bit for bit, over many families."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from torch import Tensor

import headscope as hs
from headscope.attention import Attention
from headscope.errors import TapUnsupported
from headscope.model.model import Model
from headscope.model.tap.example import example_inputs
from tests.families.official import main_output, official, padded_inputs, tapped
from tests.families.zoo import OTHERS, REFUSED, SUPPORTED, Family, build

READS_TEXT = [member for member in SUPPORTED if member not in OTHERS and member.name != "whisper"]


def each(members: list[Family]) -> pytest.MarkDecorator:
    """Parametrize over families; one worker process keeps all tests of a family."""
    return pytest.mark.parametrize(
        "member",
        [pytest.param(m, id=m.name, marks=pytest.mark.xdist_group(m.name)) for m in members],
    )


@functools.cache
def load(member: Family) -> Model:
    return hs.load(build(member))


def assert_same(found: dict[str, list[Tensor]], expected: dict[str, list[Tensor]]) -> None:
    assert found.keys() == expected.keys()
    for block, maps in expected.items():
        assert len(found[block]) == len(maps)
        for ours, theirs in zip(found[block], maps, strict=True):
            # Masked rows may hold NaN in the official output too: compare them as equal.
            torch.testing.assert_close(
                ours, theirs.reshape(ours.shape), rtol=0, atol=0, equal_nan=True
            )


def test_there_are_enough_families() -> None:
    required = {
        "bert", "roberta", "distilbert", "electra", "albert", "modernbert", "deberta-v2", "xlnet",
        "mpnet", "gpt2", "gpt_neox", "gptj", "gpt_neo", "opt", "bloom", "falcon", "llama",
        "mistral", "qwen3", "gemma2", "gemma3", "phi", "olmo", "gpt_oss", "deepseek_v3", "bart",
        "t5", "marian", "whisper", "vit",
    }  # fmt: skip
    assert required <= {member.name for member in SUPPORTED}


@each(SUPPORTED)
def test_self_check_is_exact(member: Family) -> None:
    check = load(member).info.check
    assert check.largest_difference == 0
    assert check.output_difference == 0
    assert check.against == (
        "scores" if member.name in ("squeezebert", "prophetnet") else "weights"
    )


@pytest.mark.parametrize("left", [False, True], ids=["right-padded", "left-padded"])
@each(READS_TEXT)
def test_equals_official_attention_on_padded_batches(member: Family, left: bool) -> None:
    model = load(member)
    inputs = padded_inputs(model.module, left=left)
    found, output = tapped(model, inputs)
    expected, expected_output = official(model.module, inputs)
    assert_same(found, expected)
    torch.testing.assert_close(output, expected_output, rtol=0, atol=0, equal_nan=True)


@each(READS_TEXT)
def test_masks_name_the_padding(member: Family) -> None:
    model = load(member)
    inputs = padded_inputs(model.module, left=False)
    masks: dict[str, tuple[Tensor | None, Tensor | None]] = {}

    def read(attention: Attention) -> None:
        masks[attention.block] = attention.query_mask, attention.key_mask
        assert attention.key_mask is not None or attention.block == "decoder"
        if attention.key_mask is not None:
            padding = ~attention.key_mask[:, None, None, :].expand_as(attention.weights)
            assert attention.query_mask is not None or attention.block == "cross"
            if attention.query_mask is not None:
                padding = padding & attention.query_mask[:, None, :, None]
            assert float(attention.weights[padding].abs().max()) == 0

    model.run(inputs, read)
    expected = inputs["attention_mask"].bool()
    _, key_mask = masks[model.wiring.main_block()]
    assert key_mask is not None
    assert torch.equal(key_mask.cpu(), expected)


@each(SUPPORTED)
def test_vectors_make_the_output(member: Family) -> None:
    """Weights times values are the head outputs, and scale·q·k the scores where we say so."""
    model = load(member)

    def read(attention: Attention) -> None:
        site = model.wiring.find(attention.block, attention.layer, None)
        if site.value_size is None:
            assert member.name == "ibert"  # its quantized products are modules of its own
            return
        assert attention.values is not None
        assert attention.outputs is not None
        values = attention.values.repeat_interleave(site.n_heads // attention.values.shape[1], 1)
        torch.testing.assert_close(
            attention.weights @ values, attention.outputs, rtol=1e-4, atol=1e-5
        )
        if not site.is_dot_product:
            return
        assert attention.queries is not None
        assert attention.keys is not None
        assert attention.scores is not None
        keys = attention.keys.repeat_interleave(site.n_heads // attention.keys.shape[1], 1)
        scores = attention.queries @ keys.transpose(-1, -2) * site.scale
        seen = attention.weights > 0
        torch.testing.assert_close(scores[seen], attention.scores[seen], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(
            attention.scores.softmax(-1), attention.weights, rtol=1e-4, atol=1e-6
        )

    model.run(example_inputs(model.module), read, scores=True)


@each(SUPPORTED)
def test_edits_act_at_their_layer_and_leave_no_trace(member: Family) -> None:
    model = load(member)
    inputs = example_inputs(model.module)
    before, output_before = tapped(model, inputs)
    block = model.wiring.main_block()
    layer = model.wiring.of_block(block)[-1].layer
    with model.edit(hs.ablate(layer, 1)):
        during, output_during = tapped(model, inputs)
    after, output_after = tapped(model, inputs)

    assert_same(after, before)
    assert torch.equal(output_after, output_before)
    assert not torch.equal(output_during, output_before)
    for ours, theirs in zip(during[block][:-1], before[block][:-1], strict=True):
        assert torch.equal(ours, theirs)
    assert float(during[block][-1][:, 1].abs().max()) == 0
    kept = [head for head in range(during[block][-1].shape[1]) if head != 1]
    assert torch.equal(during[block][-1][:, kept], before[block][-1][:, kept])


@each(REFUSED)
def test_refuses_what_it_cannot_read(member: Family) -> None:
    module = build(member)
    with pytest.raises(TapUnsupported, match=f"cannot read {member.name!r}"):
        hs.load(module).info  # noqa: B018
    with torch.no_grad():
        main_output(module(**example_inputs(module)))  # left in working order


def test_the_table_in_the_documentation_is_this_run() -> None:
    from tests.families.table import table

    page = Path(__file__).parents[2] / "docs" / "families.md"
    assert page.read_text(encoding="utf-8") == table()
