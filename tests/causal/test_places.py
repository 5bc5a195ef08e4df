"""Patching by place, paths, lens and composition, against hooks and formulas."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import InputError, TapUnsupported, UnknownName
from headscope.model.edits import Edit
from headscope.model.tap.dispatch import Attachment
from tests.causal.decoders import tiny_decoder
from tests.causal.slow_wires import SlowLlama

if TYPE_CHECKING:
    from headscope.model.model import Model

PAIR = ("a bat sat", "a rat sat")


@pytest.fixture(scope="module")
def ungrouped() -> Model:
    return tiny_decoder("llama", num_key_value_heads=4)


@pytest.fixture(scope="module")
def both(ungrouped: Model) -> tuple[SlowLlama, SlowLlama]:
    first, second = (SlowLlama(ungrouped, text, "t", "a") for text in PAIR)
    return first, second


def hooked(first: SlowLlama, module: Any, change: Any) -> float:
    """m with the output of a module changed."""
    handle = module.register_forward_hook(lambda _, __, output: change(output.clone()))
    with torch.no_grad():
        value = float(first.number())
    handle.remove()
    return value


def outputs_of(slow: SlowLlama, module: Any) -> torch.Tensor:
    seen = []
    handle = module.register_forward_hook(lambda _, __, output: seen.append(output.clone()))
    with torch.no_grad():
        slow.number()
    handle.remove()
    return seen[0]


def share(first: SlowLlama, second: SlowLlama, value: float) -> float:
    return (first.value - value) / (first.value - second.value)


def put(rows: Any, columns: Any, theirs: torch.Tensor) -> Any:
    def change(output: torch.Tensor) -> torch.Tensor:
        output[:, rows, columns] = theirs[:, rows, columns]
        return output

    return change


def test_residual_and_mlp_maps(ungrouped: Model, both: Any) -> None:
    first, second = both
    found = hs.patch(ungrouped, [PAIR], "t", "a", at="residual")
    assert found["share"].dims == ("layer", "position")
    assert found.sizes["position"] == 9
    for place in (1, 2, 5):
        theirs = outputs_of(second, first.layers[0])
        value = hooked(first, first.layers[0], put(place, slice(None), theirs))
        assert float(found["share"].sel(layer=1, position=place)) == pytest.approx(
            share(first, second, value), abs=1e-4
        )
        value = hooked(
            first, first.module.model.embed_tokens, put(place, slice(None), second.entering[0])
        )
        assert float(found["share"].sel(layer=0, position=place)) == pytest.approx(
            share(first, second, value), abs=1e-4
        )
    assert float(found["share"].sel(layer=0, position=2)) == pytest.approx(1, abs=1e-4)
    mlp = hs.patch(ungrouped, [PAIR], "t", "a", at="mlp", where=[-1, 2])
    assert mlp["position"].values.tolist() == [-1, 2]
    value = hooked(first, first.layers[1].mlp, put(8, slice(None), second.written[1]))
    assert float(mlp["share"].sel(layer=1, position=-1)) == pytest.approx(
        share(first, second, value), abs=1e-4
    )


@pytest.mark.parametrize("where", [None, [2, 8]])
@pytest.mark.parametrize("kind", ["q", "k", "v"])
def test_vector_maps(ungrouped: Model, both: Any, kind: str, where: list[int] | None) -> None:
    first, second = both
    found = hs.patch(ungrouped, [PAIR], "t", "a", at=kind, where=where)  # type: ignore[arg-type]
    for layer, head in ((0, 1), (1, 3)):
        module = getattr(first.layers[layer].self_attn, f"{kind}_proj")
        columns = slice(head * first.size, (head + 1) * first.size)
        rows = slice(None) if where is None else where
        theirs = outputs_of(second, module)
        value = hooked(first, module, put(rows, columns, theirs))
        assert float(found["share"].sel(layer=layer, head=head)) == pytest.approx(
            share(first, second, value), abs=1e-4
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pattern(Edit):
    theirs: torch.Tensor
    rows: Any

    def on_weights(self, weights: torch.Tensor, positions: Any) -> torch.Tensor:
        weights = weights.clone()
        weights[:, self.head, self.rows] = self.theirs[self.head, self.rows]
        return weights


@pytest.mark.parametrize("where", [None, [8]])
def test_pattern_and_head_maps(ungrouped: Model, both: Any, where: list[int] | None) -> None:
    first, second = both
    found = hs.patch(ungrouped, [PAIR], "t", "a", at="pattern", where=where)
    theirs = torch.tensor(ungrouped.trace(PAIR[1]).attention.sel(layer=1).values)
    rows = slice(None) if where is None else where
    edit = _Pattern(layer=1, head=2, theirs=theirs, rows=rows)
    with ungrouped.attached(Attachment(edits=(edit,))), torch.no_grad():
        value = float(first.number())
    expected = share(first, second, value)
    assert float(found["share"].sel(layer=1, head=2)) == pytest.approx(expected, abs=1e-4)
    heads = hs.patch(ungrouped, [PAIR], "t", "a", at="head", where=list(range(9)))["share"]
    plain = hs.patch(ungrouped, [PAIR], "t", "a", exact="all")["share"]
    np.testing.assert_allclose(heads, plain, atol=1e-4)


def test_intervals_and_errors_of_maps(tiny_llama: Model) -> None:
    pairs = [
        (f"a {word} sat", f"a {word[0]}ow sat") for word in ("bat", "rat", "hat", "mat", "cot")
    ]
    found = hs.patch(tiny_llama, pairs, "t", "a", at="mlp", templates=list("abcde"))
    assert found.attrs["templates"] == 5
    assert bool((found["low"] <= found["share"]).all())
    assert bool((found["share"] <= found["high"]).all())
    longer = [*pairs, ("a big bat sat", "a big rat sat")]
    with pytest.raises(InputError, match="Pairs have 9 to 13 tokens, so their positions mean"):
        hs.patch(tiny_llama, longer, "t", "a", at="residual")
    assert hs.patch(tiny_llama, longer, "t", "a", at="residual", where=[-1]).sizes["position"] == 1
    # Heads are patched at all positions of each text.
    assert hs.patch(tiny_llama, longer, "t", "a", at="q").sizes["head"] == 4
    with pytest.raises(InputError, match="where should be a list of positions, not 3"):
        hs.patch(tiny_llama, pairs, "t", "a", at="q", where=3)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="Unknown at 'heads'"):
        hs.patch(tiny_llama, pairs, "t", "a", at="heads")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="where=99 is out of range"):
        hs.patch(tiny_llama, pairs, "t", "a", at="q", where=[99])
    with pytest.raises(InputError, match="exact='all' is not used with at='q'"):
        hs.patch(tiny_llama, pairs, "t", "a", at="q", exact="all")
    with pytest.raises(TapUnsupported, match="cannot be decomposed"):
        hs.patch(tiny_decoder("gemma2"), [PAIR], "t", "a", at="mlp")


def test_a_path_hands_the_change_of_each_head_on(ungrouped: Model, both: Any) -> None:
    first, second = both
    found = hs.path(ungrouped, [PAIR], [(0, 1), (1, 2, "k"), "logits"], "t", "a")
    delta = second.source(("head", 0, 1)) - first.source(("head", 0, 1))
    columns = slice(2 * first.size, 3 * first.size)
    seen: list[torch.Tensor] = []
    with ExitStack() as stack, torch.no_grad():
        first.hook(stack, ("k", 1, 2), delta)
        keep = first.layers[1].self_attn.o_proj.register_forward_pre_hook(
            lambda _, args: seen.append(args[0].clone())
        )
        first.number()
        keep.remove()
    written = (seen[0] - first.joined[1])[..., columns]
    moved = written @ first.layers[1].self_attn.o_proj.weight[:, columns].T
    with torch.no_grad():
        expected = float(first.with_reader(("logits",), moved)) - first.value
    assert float(found["effect"][0]) == pytest.approx(expected, abs=1e-4)
    assert found.attrs["path"] == "L0 H1 → k of L1 H2 → logits"
    wire = hs.path(ungrouped, [PAIR], ["embedding", (1, "mlp")], "t", "a")
    with torch.no_grad():
        delta = second.source(("embedding",)) - first.source(("embedding",))
        expected = float(first.with_reader(("mlp", 1), delta)) - first.value
    assert float(wire["effect"][0]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([(0, 1)], "needs a source and at least one reader"),
        ([(1, 1), (0, 2, "k")], "is not added to the stream before"),
        ([(0, 1), "logits", (1, 0, "q")], "'logits' ends a path"),
        ([(0, 1), (1, 2)], "is not a reader"),
        (["logits", (1, 2, "q")], "is not a source"),
        (None, "needs a source and at least one reader"),
        ([(0, 9), "logits"], "has heads 0 to 3"),
    ],
)
def test_paths_that_cannot_be(ungrouped: Model, nodes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hs.path(ungrouped, [PAIR], nodes, "t", "a")


def test_the_lens_reads_every_layer(tiny_llama: Model) -> None:
    lens = hs.lens(tiny_llama, PAIR[0], "t", "a", top=3)
    module = tiny_llama.module
    ids = tiny_llama.require_tokenizer()(PAIR[0], return_tensors="pt")
    target = tiny_llama.require_tokenizer().convert_tokens_to_ids("t")
    with torch.no_grad():
        states = module(**ids, output_hidden_states=True).hidden_states
        for layer, state in ((-1, states[0]), (0, states[1])):
            row = module.lm_head(module.model.norm(state[0, -1]))
            data = lens.data.sel(layer=layer)
            assert float(data["target_probability"]) == pytest.approx(
                float(row.softmax(-1)[target]), abs=1e-6
            )
            assert int(data["target_rank"]) == 1 + int((row > row[target]).sum())
    last = lens.data.isel(layer=-1)
    with torch.no_grad():
        own = module(**ids).logits[0, -1].softmax(-1).max()
    assert float(last["probability"][0]) == pytest.approx(float(own), abs=1e-6)
    assert lens.to_dataframe().shape == (len(states), 4)
    assert len(lens.to_page()["rows"]) == len(states)
    whole = hs.lens(tiny_llama, PAIR[0], "t", "a", top=10**6)
    assert whole.data.sizes["place"] == module.config.vocab_size
    assert len(lens.figure().axes) == 2
    assert "rank" in repr(lens)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox"])
@pytest.mark.parametrize("kind", ["q", "k", "v"])
def test_composition_is_the_ratio_of_norms(name: str, kind: str) -> None:
    model = tiny_decoder(name)
    module = model.module
    found = hs.composition(model, (1, 2, kind))
    if name == "llama":
        layer = module.model.layers[1]
        size, groups = 8, 4 if kind == "q" else 2
        weight = getattr(layer.self_attn, f"{kind}_proj").weight * layer.input_layernorm.weight
        read = weight.reshape(groups, size, -1)[2 if kind == "q" else 1].T
        out = module.model.layers[0].self_attn.o_proj.weight.T
    elif name == "gpt2":
        layer = module.transformer.h[1]
        width = module.config.n_embd
        weight = layer.attn.c_attn.weight.split(width, 1)["qkv".index(kind)]
        centering = torch.eye(width) - 1 / width
        read = (centering * layer.ln_1.weight) @ weight.reshape(width, 4, -1)[:, 2]
        out = module.transformer.h[0].attn.c_proj.weight
    else:
        layer = module.gpt_neox.layers[1]
        width = module.config.hidden_size
        weight = layer.attention.query_key_value.weight.reshape(4, 3, -1, width)
        centering = torch.eye(width) - 1 / width
        read = (centering * layer.input_layernorm.weight) @ weight[2, "qkv".index(kind)].T
        out = module.gpt_neox.layers[0].attention.dense.weight.T
    by_head = out.detach().reshape(4, -1, out.shape[-1])
    read = read.detach()
    expected = [
        float(torch.linalg.norm(w @ read) / torch.linalg.norm(w) / torch.linalg.norm(read))
        for w in by_head
    ]
    np.testing.assert_allclose(found["composition"], expected, rtol=1e-4)
    assert sorted(found["rank"].values.tolist()) == [1, 2, 3, 4]
    assert found.attrs["null"] == pytest.approx(out.shape[-1] ** -0.5)


def test_composition_that_cannot_be(tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="Layer 0 is the first"):
        hs.composition(tiny_llama, (0, 1, "q"))
    with pytest.raises(InputError, match="should be layer, head and 'q', 'k' or 'v'"):
        hs.composition(tiny_llama, (1, 1, "o"))
    with pytest.raises(TapUnsupported, match="are not linear in its input"):
        hs.composition(tiny_decoder("qwen3"), (1, 1, "q"))


def test_a_path_takes_numpys_numbers(ungrouped: Model) -> None:
    nodes = [(0, 1), (1, 2, "k"), "logits"]
    theirs = [(np.int64(0), np.int64(1)), (np.int32(1), np.int64(2), "k"), "logits"]
    first, second = (hs.path(ungrouped, [PAIR], n, "t", "a") for n in (nodes, theirs))  # type: ignore[arg-type]
    assert first.identical(second)
