"""Long texts: no metric makes a tensor that grows with pairs of tokens."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.metrics import METRICS
from headscope.metrics.core import accumulator
from headscope.metrics.core.layer_data import has_numba
from headscope.model.model import Model
from headscope.run import analyze as analyze_module
from headscope.run.progress import Meter
from headscope.text.document import Document, Mention
from tests.conftest import byte_tokenizer

N = 1500
"""Words; tokens are bytes."""
WORDS = ("the", "cat", "saw", "the", "dog", "and", "he", "ran", "to", "him")
MEASURED = [name for name, make in METRICS.items() if not make().needs & {"gradients", "loss"}]


class Largest(TorchDispatchMode):
    """Number of elements of the largest tensor that torch makes."""

    size = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = call(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        self.size = max(self.size, *sizes, 0)
        return made


@pytest.fixture(scope="module")
def long_llama(tiny_llama: Model) -> Model:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=tiny_llama.module.config.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8 * N,
    )
    tokenizer = byte_tokenizer()
    tokenizer.model_max_length = 8 * N
    return hs.load(transformers.LlamaForCausalLM(config).eval(), tokenizer)


def long_document() -> Document:
    """A text of N words, with everything that a metric needs."""
    repeats = N // len(WORDS)
    document = Document.from_words(
        WORDS * repeats,
        "long",
        upos=("NOUN", "NOUN", "VERB", "DET", "NOUN", "CCONJ", "PRON", "VERB", "ADP", "PRON")
        * repeats,
        parents=(*range(1, N), -1),
        relations=("det",) * N,
        mentions=[Mention(str(n % 3), ((n, n + 1),)) for n in range(0, N, 7)],
        meta={"condition": "pro"},
    )
    return replace(document, meta={**document.meta, "span": "10:30"})


@pytest.mark.parametrize("is_compiled", [False, True], ids=["torch", "compiled"])
def test_no_metric_makes_a_table_of_pairs(
    long_llama: Model, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_compiled and not has_numba():
        pytest.skip("numba is not installed")
    monkeypatch.setattr(analyze_module, "COMPILED_FROM_PAIRS", 0 if is_compiled else np.inf)
    monkeypatch.setattr(accumulator, "MAX_COMPARED", 1 << 18)
    options: dict[str, Any] = {"max_tokens": 8 * N, "workers": 1}
    hs.analyze(long_llama, ["the cat sat"], MEASURED[:1], **options)  # checks the model
    with Largest() as largest:
        result = hs.analyze(long_llama, [long_document()], MEASURED, **options)
    assert result.provenance["compiled"] is is_compiled
    n_tokens = result.provenance["counts"]["tokens"]
    assert n_tokens > 2 * N
    assert largest.size < n_tokens**2 / 3
    for name in ("accuracy", "coref_accuracy", "bias_preference", "js", "retrieval", "distance"):
        assert np.isfinite(result[name].values).any(), name


def test_limits_are_raised_on_purpose(tiny_llama: Model) -> None:
    """Rotary positions go on; a table of positions ends, which the error says."""
    tokenizer = copy.deepcopy(tiny_llama.require_tokenizer())
    sizes = {"n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(vocab_size=len(tokenizer), **sizes)
    rotary, table = copy.deepcopy(tiny_llama.module), transformers.GPT2LMHeadModel(config)
    limit = tokenizer.model_max_length = 64 + 40
    rotary.config.max_position_embeddings = table.config.n_positions = limit
    options: dict[str, Any] = {"max_tokens": 1000, "workers": 1, "progress": False}
    longer = hs.load(rotary, tokenizer=tokenizer)
    with pytest.warns(UserWarning, match="cut to 104 tokens, all that LlamaForCausalLM takes"):
        found = hs.analyze(longer, ["the cat sat " * limit], ["entropy"], **options)
    assert found.provenance["counts"]["tokens"] == limit
    with pytest.raises(HeadscopeError, match=r"A token id or position is beyond .* too long"):
        hs.analyze(
            hs.load(table, tokenizer=tokenizer), ["the cat sat " * limit], ["entropy"], **options
        )


@pytest.mark.parametrize("layers", [None, [1]])
def test_the_last_row_of_the_last_layer_is_the_whole(
    tiny_llama: Model, layers: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[int] = []
    monkeypatch.setattr("headscope.run.shard.LONG", 4)
    monkeypatch.setattr(analyze_module, "ROWS", 4)
    monkeypatch.setattr(Meter, "reach", lambda self, worker, done: reached.append(done.tokens))
    text = "the cat sat on the mat and the dog sat by the cat"
    found = hs.analyze(tiny_llama, [text], ["entropy"], layers=layers, workers=1)
    assert reached == sorted(reached)
    assert reached[-1] == found.provenance["counts"]["tokens"]
    assert len(reached) > 3
