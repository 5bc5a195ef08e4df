"""Each row of docs/guide/transformerlens.md, on one model in both libraries; values of nnsight.

Runs where TransformerLens and nnsight are installed: `make peers` puts them into .peers.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscope as hs
from headscope.errors import InputError
from tests.conftest import byte_tokenizer

PEERS = Path(__file__).parents[2] / ".peers"
TEXT = "the cat sat on the cat"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of transformers, and a bridge around a copy of it."""
    if PEERS.is_dir() and str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))
    pytest.importorskip("transformer_lens", reason="TransformerLens is not installed (make peers)")
    from transformer_lens.model_bridge import TransformerBridge

    tokenizer = byte_tokenizer()
    ids = {"bos_token_id": 1, "eos_token_id": 1}
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64, **ids
    )
    model = GPT2LMHeadModel(config).eval()
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    bridge = TransformerBridge.boot_transformers(
        str(folder), tokenizer=tokenizer, hf_model=copy.deepcopy(model)
    )
    return hs.load(model, byte_tokenizer()), bridge


@pytest.mark.filterwarnings("ignore")
def test_rows_of_the_page(pair: Any) -> None:
    model, bridge = pair
    trace = model.trace(TEXT)
    tokens = torch.tensor([trace.text.ids])  # to_tokens(text) would put the first token before
    logits, cache = bridge.run_with_cache(tokens)
    z = trace.main.outputs
    for layer in (0, 1):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][0].detach().numpy()
        np.testing.assert_allclose(trace.attention.sel(layer=layer), pattern, atol=1e-6)
        theirs = cache[f"blocks.{layer}.attn.hook_z"][0].detach().reshape(len(trace.tokens), 4, 8)
        mine = z.sel(layer=layer).transpose("query", "head", "value_neuron")
        np.testing.assert_allclose(mine, theirs.numpy(), atol=1e-5)
        stream = cache[f"blocks.{layer}.hook_resid_pre"][0].detach().numpy()
        np.testing.assert_allclose(trace.hidden.values[layer], stream, atol=1e-5)
    from_cache = hs.Trace.from_arrays(cache, trace.tokens)
    np.testing.assert_allclose(from_cache.attention, trace.attention, atol=1e-6)

    def zero(value: torch.Tensor, hook: Any) -> torch.Tensor:
        value = value.clone()
        value.reshape(*value.shape[:2], 4, 8)[:, :, 2] = 0
        return value

    ablated = bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", zero)])
    for edit in (hs.ablate(0, 2), hs.edit(lambda output: 0 * output, 0, 2)):
        with model.edit(edit):
            mine = model.run({"input_ids": tokens})["logits"]
        np.testing.assert_allclose(mine, ablated.detach(), atol=1e-4)
    assert not torch.allclose(ablated, logits, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_what_nnsight_saved_is_taken(pair: Any) -> None:
    nnsight = pytest.importorskip("nnsight", reason="nnsight is not installed (make peers)")
    model, _ = pair
    trace = model.trace(TEXT)
    module = copy.deepcopy(model.module)
    module.set_attn_implementation("eager")
    wrapped = nnsight.NNsight(module)
    with wrapped.trace(input_ids=torch.tensor([trace.text.ids])):
        saved = nnsight.save([block.attn.output[1] for block in wrapped.transformer.h])
    from_saved = hs.Trace.from_arrays(saved, trace.tokens)
    np.testing.assert_allclose(from_saved.attention, trace.attention, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_bridge_is_loaded(pair: Any) -> None:
    model, bridge = pair
    loaded = hs.load(bridge)
    assert loaded.module is bridge.original_model
    trace, expected = loaded.trace(TEXT), model.trace(TEXT)
    n = len(expected.tokens)
    assert trace.tokens[-n:] == expected.tokens
    if len(trace.tokens) == n:
        np.testing.assert_allclose(trace.attention, expected.attention, atol=1e-6)


def test_a_hooked_transformer_is_refused_with_two_ways_on() -> None:
    class HookedTransformer(torch.nn.Module):
        """The name is all that is looked at."""

    with pytest.raises(InputError, match=r"converted weights .* hs\.Trace\.from_arrays"):
        hs.load(HookedTransformer())
