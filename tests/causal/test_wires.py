"""Wires of one pair against hooks one by one, a linear toy, a planted wire, and many families."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headscope as hs
from headscope.causal.pair_wires import PairWires, WireRun, encode_pair, graph_of
from headscope.errors import InputError, TapUnsupported
from tests.causal.decoders import tiny_decoder, tiny_module
from tests.causal.slow_wires import SlowLlama, reader_name, source_name
from tests.conftest import byte_tokenizer

if TYPE_CHECKING:
    from headscope.model.model import Model

PAIR = ("a bat sat", "a rat sat")


def pair_of(
    model: Model, texts: tuple[str, str] = PAIR, target: str = "t", foil: str = "a"
) -> PairWires:
    pair = encode_pair(model, texts, target, foil)
    return pair.run(graph_of(model, pair))


def every_row(wires: PairWires) -> list[WireRun]:
    return [WireRun(int(s), int(r)) for s, r in np.argwhere(wires.graph.exists)]


@pytest.fixture(scope="module")
def llama_pair(tiny_llama: Model) -> tuple[PairWires, SlowLlama, SlowLlama]:
    slow = (SlowLlama(tiny_llama, text, "t", "a") for text in PAIR)
    return pair_of(tiny_llama), *slow


def test_sources_sum_to_what_hooks_see(llama_pair: Any) -> None:
    wires, first, second = llama_pair
    assert wires.value == pytest.approx(first.value, abs=1e-5)
    assert wires.gap == pytest.approx(first.value - second.value, abs=1e-5)
    for source, delta in zip(wires.graph.sources, wires.deltas, strict=True):
        expected = second.source(source_name(source)) - first.source(source_name(source))
        torch.testing.assert_close(delta, expected[0].detach(), atol=1e-5, rtol=1e-4)


def test_exact_equals_hooks_one_by_one(llama_pair: Any) -> None:
    wires, first, second = llama_pair
    rows = every_row(wires)
    values = wires.exact(rows)
    graph = wires.graph
    n = len(graph.sites)
    heads = graph.sites[0].n_heads
    groups = graph.sites[0].n_groups
    assert len(graph.sources) == 1 + n * (heads + 1)
    assert len(graph.readers) == n * (heads + 2 * groups + 1) + 1
    for row, value in zip(rows, values, strict=True):
        source = source_name(graph.sources[row.source])
        reader = reader_name(graph.readers[row.reader])
        with torch.no_grad():
            delta = second.source(source) - first.source(source)
            expected = float(first.with_reader(reader, delta)) - first.value
        assert value == pytest.approx(expected, abs=1e-4), (source, reader)


def test_a_row_does_not_depend_on_its_batch(llama_pair: Any) -> None:
    wires, *_ = llama_pair
    rows = every_row(wires)[::7]
    alone = np.array([wires.exact([row])[0] for row in rows])
    np.testing.assert_allclose(wires.exact(rows[::-1])[::-1], alone, atol=1e-5)


def test_estimates_equal_autograd(llama_pair: Any) -> None:
    wires, first, second = llama_pair
    graph = wires.graph
    eap, integrated = wires.integrated(0), wires.integrated(5)
    starts = [second.entering[0] + alpha * (first.entering[0] - second.entering[0])
              for alpha in (0, 0.2, 0.4, 0.6, 0.8)]  # fmt: skip
    for row in every_row(wires)[::11]:
        reader = reader_name(graph.readers[row.reader])
        delta = wires.deltas[row.source][None]
        step = torch.zeros((), requires_grad=True)
        (slope,) = torch.autograd.grad(first.with_reader(reader, step * delta), step)
        assert eap[row.source, row.reader] == pytest.approx(float(slope), abs=1e-5)
        total = 0.0
        for start in starts:
            handle = first.module.model.embed_tokens.register_forward_hook(lambda *_, s=start: s)
            run = SlowLlama(first.model, PAIR[0], "t", "a")
            (slope,) = torch.autograd.grad(run.with_reader(reader, step * delta), step)
            handle.remove()
            total += float(slope) / 5
        assert integrated[row.source, row.reader] == pytest.approx(total, abs=1e-5)


def test_the_screen_runs_each_softmax(llama_pair: Any) -> None:
    wires, first, _ = llama_pair
    graph = wires.graph
    screen = wires.screen()
    joined: dict[int, torch.Tensor] = {}
    with ExitStack() as stack:  # ∂m/∂z
        for n, layer in enumerate(first.layers):

            def watch(_: Any, args: Any, n: int = n) -> None:
                joined[n] = args[0]

            stack.callback(layer.self_attn.o_proj.register_forward_pre_hook(watch).remove)
        slopes = (
            dict(zip(joined, torch.autograd.grad(first.number(), joined.values()), strict=True))
            if first.number() is not None
            else {}
        )
        own = {n: z.detach().clone() for n, z in joined.items()}
        for row in every_row(wires)[::5]:
            reader = graph.readers[row.reader]
            if reader.kind not in "qkv":
                continue
            with torch.no_grad():
                first.with_reader(reader_name(reader), wires.deltas[row.source][None])
            moved = ((joined[reader.layer] - own[reader.layer]) * slopes[reader.layer]).sum(1)[0]
            by_head = moved.reshape(first.n_heads, -1).sum(-1)
            assert screen[row.source, row.reader].sum() == pytest.approx(
                float(by_head.sum()), abs=1e-5
            )
            found = screen[row.source, row.reader, : len(reader.heads)]
            np.testing.assert_allclose(found, by_head[list(reader.heads)].detach(), atol=1e-5)


def test_a_groups_wire_has_a_split_by_head(llama_pair: Any) -> None:
    wires, *_ = llama_pair
    graph = wires.graph
    for kind in ("k", "v"):
        reader = graph.readers_of(1, kind)[0]
        heads = graph.readers[reader].heads
        assert len(heads) == 2
        whole, *parts = wires.exact([WireRun(0, reader), *(WireRun(0, reader, h) for h in heads)])
        assert abs(whole - sum(parts)) < 0.2 * max(abs(whole), *map(abs, parts)) + 1e-4
        assert parts[0] != pytest.approx(parts[1], abs=1e-6)


def test_positions_split_a_wire(llama_pair: Any) -> None:
    wires, *_ = llama_pair
    row = WireRun(0, wires.graph.readers_of(1, "v")[0])
    parts = [
        wires.exact([WireRun(row.source, row.reader, place=t)])[0]
        for t in range(wires.first.n_tokens)
    ]
    changed = [t for t in range(wires.first.n_tokens) if bool(wires.deltas[0, t].abs().max() > 0)]
    assert [t for t, part in enumerate(parts) if part] == changed == [2]
    assert sum(parts) == pytest.approx(wires.exact([row])[0], abs=1e-5)


FAMILIES = ["gpt2", "llama", "gpt_neox", "phi", "qwen3", "gptj", "opt", "mixtral", "gpt_bigcode",
            "gpt_oss", "deepseek_v3", "mpt", "cohere", "gemma"]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_circuits_and_wires_agree_in_families(name: str) -> None:
    """All wires replaced is the contrast text; all but one is the effect of that one."""
    model = tiny_decoder(name)
    wires = pair_of(model)
    graph = wires.graph
    assert graph.is_parallel == (name in ("gpt_neox", "phi", "gptj", "cohere"))
    everything = np.ones_like(graph.exists)
    assert wires.alone(~everything) == pytest.approx(wires.other_value, abs=1e-4)
    assert wires.alone(everything) == pytest.approx(wires.value, abs=1e-4)
    rows = every_row(wires)
    chosen = [rows[i] for i in np.random.default_rng(0).choice(len(rows), 25, replace=False)]
    values = wires.exact(chosen)
    for row, value in zip(chosen, values, strict=True):
        kept = everything.copy()
        kept[row.source, row.reader] = False
        assert value == pytest.approx(wires.alone(kept) - wires.value, abs=1e-4)
    wires.deltas *= 0.05  # where the first order is enough
    estimates = wires.integrated(0)[graph.exists]
    assert np.corrcoef(estimates, wires.exact(rows))[0, 1] > 0.98


@pytest.mark.parametrize("name", ["gemma2", "olmo2", "granite", "falcon", "bloom"])
def test_families_that_do_not_add_up_are_refused(name: str) -> None:
    settings = {"residual_multiplier": 0.5} if name == "granite" else {}
    with pytest.raises(
        TapUnsupported, match=r"cannot be decomposed into contributions: .*hs\.effects"
    ):
        pair_of(tiny_decoder(name, **settings))


def test_half_precision_is_refused() -> None:
    model = hs.load(tiny_module("llama").bfloat16(), byte_tokenizer())
    with pytest.raises(TapUnsupported, match="bfloat16, which rounds too much"):
        pair_of(model)


class _LinearMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.map(x)


def test_a_linear_toy_sums() -> None:
    module = tiny_module("llama").double()
    width = module.config.hidden_size
    for layer in module.model.layers:
        layer.input_layernorm = nn.Identity()
        layer.post_attention_layernorm = nn.Identity()
        layer.mlp = _LinearMlp(width).double()
        nn.init.zeros_(layer.self_attn.q_proj.weight)  # patterns do not depend on the text
        for weight in (
            layer.mlp.map.weight,
            layer.self_attn.v_proj.weight,
            layer.self_attn.o_proj.weight,
        ):
            nn.init.normal_(weight, std=0.1)
    module.model.norm = nn.Identity()
    wires = pair_of(hs.load(module, byte_tokenizer()))
    graph = wires.graph
    rows = every_row(wires)
    effects = np.zeros(graph.exists.shape)
    effects[[r.source for r in rows], [r.reader for r in rows]] = wires.exact(rows)
    assert np.abs(effects).max() > 1e-3
    for i in range(len(graph.readers)):  # wires into a reader: the reader's total
        kept = np.ones_like(graph.exists)
        kept[:, i] = False
        total = wires.alone(kept) - wires.value
        assert effects[:, i].sum() == pytest.approx(total, abs=1e-6)
    for i in range(len(graph.sources)):  # wires out of a node: the node's total
        kept = np.ones_like(graph.exists)
        kept[i] = False
        total = wires.alone(kept) - wires.value
        assert effects[i].sum() == pytest.approx(total, abs=1e-6)
    np.testing.assert_allclose(wires.integrated(0), effects, atol=1e-6)


N_WORDS, N_PLACES, GAIN = 12, 12, 10.0


def saturated_induction() -> Model:
    """Layer 0, head 1 copies the previous token; layer 1, head 0 looks for the token after an
    earlier equal one and writes it out. Softmaxes are saturated; all other weights are 0.
    """
    width, size = 64, 32
    token, place, copy, out = slice(0, 12), slice(12, 24), slice(24, 36), slice(36, 48)
    config = GPT2Config(  # type: ignore[call-arg]
        vocab_size=N_WORDS, n_embd=width, n_layer=2, n_head=2, n_positions=N_PLACES,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    module = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "ln_" not in name:
                parameter.zero_()
        stack = module.transformer
        stack.wte.weight[:, token] = torch.eye(12)
        stack.wpe.weight[:, place] = torch.eye(12)
        first, second = (layer.attn for layer in stack.h)
        queries, keys, values = first.c_attn.weight.split(width, 1)
        queries[place, size : size + 12] = GAIN * torch.eye(12)
        keys[place, size : size + 12] = GAIN * torch.eye(12).roll(1, 1)
        values[token, size : size + 12] = torch.eye(12)
        first.c_proj.weight[size : size + 12, copy] = torch.eye(12)
        queries, keys, values = second.c_attn.weight.split(width, 1)
        queries[token, 0:12] = GAIN * torch.eye(12)
        keys[copy, 0:12] = GAIN * torch.eye(12)
        values[token, 0:12] = torch.eye(12)
        second.c_proj.weight[0:12, out] = 4 * torch.eye(12)
        module.lm_head.weight[:, out] = 2 * torch.eye(12)
    words = [chr(ord("a") + i) for i in range(N_WORDS)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "l"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="l", pad_token="l")
    return hs.load(module, fast, name="planted induction")


def test_the_planted_wire_is_found_where_gradients_are_blind() -> None:
    model = saturated_induction()
    generator = np.random.default_rng(0)
    named = {"exact": 0, "screen": 0, "eap": 0, "integrated": 0}
    for _ in range(24):
        words = [chr(ord("a") + i) for i in generator.permutation(N_WORDS - 1)]
        at = int(generator.integers(1, 4))
        first, second = words[:7], words[:7]
        second[at], second[at + 2] = first[at + 2], first[at]  # the match is elsewhere
        target, foil = first[at + 1], first[at + 3]
        texts = (" ".join([*first, first[at]]), " ".join([*second, first[at]]))
        wires = pair_of(model, texts, target, foil)
        graph = wires.graph
        source = [u.name for u in graph.sources].index("L0 H1")
        reader = [r.name for r in graph.readers].index("k of L1 H0")
        rows = [row for row in every_row(wires) if row.source == source]
        effects = np.zeros(len(graph.readers))
        effects[[row.reader for row in rows]] = wires.exact(rows)
        estimates = {"exact": effects, "screen": wires.screen()[source].sum(-1),
                     "eap": wires.integrated(0)[source],
                     "integrated": wires.integrated(5)[source]}  # fmt: skip
        for kind, values in estimates.items():
            is_largest = np.abs(values).argmax() == reader
            named[kind] += bool(is_largest and -values[reader] > 0.25 * wires.gap)
        assert effects[reader] == pytest.approx(-wires.gap, rel=0.1)
    assert named["exact"] == named["screen"] == 24
    assert named["eap"] == 0
    assert named["integrated"] == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a bat sat", "a bat sat down"), r"has \d+ tokens and .* has \d+"),
        (("a bat sat", "a bat sat"), "two texts of a pair are equal"),
        (("a bat sat", "x rot pun"), "differ at 6 of 9 positions: 0 .*at most half"),
    ],
)
def test_texts_that_do_not_align(tiny_llama: Model, texts: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode_pair(tiny_llama, texts, "t", "a")


def test_other_kinds_of_models_are_refused(tiny_bert: Model, tiny_t5: Model) -> None:
    with pytest.raises(TapUnsupported, match="cannot be decomposed"):
        pair_of(tiny_bert, ("the cat sat on [MASK]", "the dog sat on [MASK]"), "mat", "rug")
    with pytest.raises(InputError, match="an encoder-decoder"):
        pair_of(tiny_t5, ("the cat sat", "the dog sat"), "mat", "rug")
