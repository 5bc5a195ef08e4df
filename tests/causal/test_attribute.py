"""Logits and scores as sums over parts: proved, or refused with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from headscope.causal.explain_score import explain_score
from headscope.causal.residual_stream import attribute
from headscope.errors import InputError, MissingObjective, TapUnsupported
from tests.causal.classifiers import tiny_classifier
from tests.causal.decoders import tiny_decoder
from tests.causal.planted import planted_induction

if TYPE_CHECKING:
    from headscope.model.model import Model

TEXT = "the cat sat on the mat"
VALID = ["gpt2", "llama", "qwen2", "gemma", "gpt_neox", "phi", "opt", "mixtral"]
REFUSED = {
    "gemma2": "as they are",
    "olmo2": "as they are",
    "granite": "as they are",
    "cohere": "scaled or capped",
}
SCALED: dict[str, dict[str, Any]] = {"granite": {"residual_multiplier": 0.5}}


@pytest.mark.parametrize("name", VALID)
def test_parts_sum_to_the_logits(name: str) -> None:
    model = tiny_decoder(name)
    found = attribute(model, TEXT, "t", "a")
    ids = model.require_tokenizer()(TEXT, return_tensors="pt")
    with torch.inference_mode():
        logits = model.module(**ids).logits[0, -1].double()
    target, foil = model.require_tokenizer().convert_tokens_to_ids(["t", "a"])
    assert float(found.sum()) == pytest.approx(float(logits[target] - logits[foil]), abs=1e-4)
    kinds = set(found["kind"].values)
    assert kinds == {"embedding", "head", "bias", "mlp", "constant"}
    heads = found.isel(component=np.flatnonzero(found["kind"].values == "head"))
    assert len(heads) == model.info.n_layers * model.info.n_heads


def test_a_head_of_the_last_layer_by_hand() -> None:
    """Frozen norm: x/rms(x)·w of what the head writes, times the unembedding's difference."""
    model = tiny_decoder("llama")
    found = attribute(model, TEXT, "t", "a")
    seen: dict[str, torch.Tensor] = {}
    attention = model.module.model.layers[1].self_attn
    hooks = [
        attention.o_proj.register_forward_pre_hook(lambda _m, a: seen.update(z=a[0][0, -1])),
        model.module.model.norm.register_forward_pre_hook(lambda _m, a: seen.update(x=a[0][0, -1])),
    ]
    model.trace(TEXT)
    for hook in hooks:
        hook.remove()
    size = model.info.head_size
    assert size is not None
    head = slice(2 * size, 3 * size)
    written = attention.o_proj.weight[:, head].double() @ seen["z"][head].double()
    x = seen["x"].double()
    scale = (x.square().mean() + model.module.config.rms_norm_eps).rsqrt()
    target, foil = model.require_tokenizer().convert_tokens_to_ids(["t", "a"])
    rows = model.module.lm_head.weight.double()
    by_hand = (
        written * scale * model.module.model.norm.weight.double() @ (rows[target] - rows[foil])
    )
    assert float(found.sel(component="L1 H2")) == pytest.approx(float(by_hand.detach()), abs=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_add_up_is_refused(name: str) -> None:
    model = tiny_decoder(name, **SCALED.get(name, {}))
    with pytest.raises(TapUnsupported, match=REFUSED[name]):
        attribute(model, TEXT, "t", "a")


def test_bert_is_refused(tiny_bert: Model) -> None:
    with pytest.raises(TapUnsupported, match=r"as they are .* hs\.effects, which runs"):
        attribute(tiny_bert, "the [MASK] sat", "cat", "dog")


def test_a_planted_circuit_is_named() -> None:
    model = planted_induction()
    text = "k c f b d a e c f b d a e c"
    attention = model.trace(text).attention
    assert float(attention.sel(layer=0, head=1)[7, 6]) > 0.99
    assert float(attention.sel(layer=1, head=0)[13, 8]) > 0.45  # after either earlier c
    score = explain_score(model, text, 1, 0, 13, 8)
    (name, value), (_, second) = score.top(2)
    assert name == "L0 H1"
    assert value > 0.9 * score.contrast
    assert abs(second) < 0.1 * value
    assert score.top(1, "query")[0][0] == "embedding"
    assert "L0 H1" in repr(score)
    assert score.figure() is not None


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "phi", "opt", "xglm", "ctrl"])
def test_scores_are_sums(name: str) -> None:
    model = tiny_decoder(name)
    trace = model.trace(TEXT, scores=True)
    found = explain_score(model, TEXT, 1, 2, 5, 3)
    row = trace.main.scores.sel(layer=1, head=2).values[5, :6].astype(np.float64)
    contrast = row[3] - np.delete(row, 3).mean()
    for side in ("key_side", "query_side"):
        assert float(found.data[side].sum()) == pytest.approx(contrast, abs=1e-4)
    assert found.weight == pytest.approx(
        float(trace.attention.sel(layer=1, head=2)[5, 3]), abs=1e-6
    )


@pytest.mark.parametrize("name", ["gpt_neo", "mistral"])
def test_keys_out_of_the_window_are_not_compared_with(name: str) -> None:
    model = tiny_decoder(name)
    trace = model.trace(TEXT, scores=True)
    weights = trace.attention.sel(layer=1, head=2).values[13]
    (seen,) = np.nonzero(weights)
    assert len(seen) < 13
    row = trace.main.scores.sel(layer=1, head=2).values[13].astype(np.float64)
    found = explain_score(model, TEXT, 1, 2, 13, int(seen[0]))
    assert found.contrast == pytest.approx(row[seen[0]] - row[seen[1:]].mean(), abs=1e-4)
    with pytest.raises(InputError, match="cannot attend to key 1: it is out of the layer's window"):
        explain_score(model, TEXT, 1, 2, 13, 1)


def test_the_table_of_a_score_sums_to_it() -> None:
    score = explain_score(tiny_decoder("gpt2"), TEXT, 1, 2, 5, 3)
    first, *lines = repr(score).splitlines()
    assert score.contrast < 0
    assert first.endswith(f"{-score.contrast:.2f} below the mean of the other keys")
    numbers = [line.split()[-1] for line in lines if not line.endswith("parts")]
    assert sum(map(float, numbers)) == pytest.approx(2 * score.contrast, abs=0.1)
    assert "0.00" not in numbers
    assert len({len(line) for line in lines if not line.endswith("parts")}) == 1


def test_norms_on_queries_are_refused() -> None:
    with pytest.raises(TapUnsupported, match="queries of layer 1 are not affine"):
        explain_score(tiny_decoder("qwen3"), TEXT, 1, 2, 5, 3)


def test_predictions_that_cannot_be(tiny_llama: Model, minilm: Model) -> None:
    with pytest.raises(InputError, match=r"target='dog' is 3 tokens of .*: 'd', 'o', 'g'"):
        attribute(tiny_llama, TEXT, "dog")
    with pytest.raises(InputError, match="position=99 is out of range: the text has"):
        attribute(tiny_llama, TEXT, position=99)
    with pytest.raises(InputError, match="The text is one token, 't'"):
        attribute(tiny_llama, "t")
    with pytest.raises(MissingObjective, match="needs a model that predicts"):
        attribute(minilm, TEXT, "cat")
    with pytest.raises(InputError, match=r"is a classifier\. hs\.effects works"):
        attribute(tiny_classifier(), TEXT)


def test_positions_that_cannot_be(tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="Query 2 cannot attend to key 4"):
        explain_score(tiny_llama, TEXT, 1, 2, 2, 4)
    with pytest.raises(InputError, match="query=99 is out of range"):
        explain_score(tiny_llama, TEXT, 1, 2, 99, 4)
    with pytest.raises(InputError, match="sees key 0 alone"):
        explain_score(tiny_llama, TEXT, 1, 2, 0, 0)
    with pytest.raises(InputError, match="The text is one token, 't'"):
        explain_score(tiny_llama, "t", 1, 2, 0, 0)
    with pytest.raises(InputError, match="There is no layer 9"):
        explain_score(tiny_llama, TEXT, 9, 2, 3, 0)
