"""Does removal do what gradients foretell? The check itself, checked."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy import stats

import headscope as hs
from headscope.causal import importance as removal
from headscope.causal.batched_forward import layer_modules
from headscope.causal.importance import RemovalComparison, check_importance, correlate_with_removal
from headscope.errors import InputError, UnknownName
from headscope.model.edits import Positions, ScaleKeys
from headscope.text.readers.read import read
from tests.families.zoo import ENCODERS, build
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model

TEXTS = ["the cat sat on the mat.", "she said , it was fine", "a red house , a tree ."]


@pytest.mark.parametrize("renormalized", [False, True], ids=["plain", "renormalized"])
@pytest.mark.parametrize("name", ["tiny_llama", "tiny_bert", "tiny_t5"])
def test_a_small_removal_is_what_the_gradient_says(
    name: str, renormalized: bool, request: pytest.FixtureRequest
) -> None:
    original: Model = request.getfixturevalue(name)
    model = hs.load(copy.deepcopy(original.module).double(), original.tokenizer)
    found = check_importance(model, TEXTS, levels=[1e-3], renormalized=renormalized)
    slopes = found["rise"].sel(level=1e-3) / 1e-3
    # transformers computes some norms and softmaxes in float32 whatever the model's type.
    np.testing.assert_allclose(slopes, found["removal_estimate"], rtol=2e-2, atol=1e-4)
    assert float(found["r"].min()) > 0.999
    assert float(np.abs(found["removal_estimate"]).max()) > 1e-3


def test_removal_is_what_an_edit_does(tiny_llama: Model) -> None:
    text = "the cat. the mat, a"
    found = check_importance(
        tiny_llama, [text], classes=["first", ". or ,"], heads=[(0, 0), (1, 3)], levels=[1.0]
    )
    tokens = tiny_llama.trace(text).tokens
    keys = [j for j, token in enumerate(tokens) if token.strip() in (".", ",")]
    before = tiny_llama.gradients(text).loss
    for renormalized in (False, True):
        if renormalized:
            found = check_importance(
                tiny_llama, [text], heads=[(0, 0), (1, 3)], levels=[1.0], renormalized=True
            )
        edit = hs.set_attention(1, 3, key=keys, weight=0.0, renormalize=renormalized)
        with tiny_llama.edit(edit):
            after = tiny_llama.gradients(text).loss
        at = found["rise"].sel(layer=1, head=3, key_class=". or ,", level=1.0)
        assert float(at) == pytest.approx(after - before, abs=1e-5)
        assert np.isfinite(found["rise"]).sum() == 4
    assert float(found["loss"]) == pytest.approx(before, abs=1e-5)


def test_edits_by_hand() -> None:
    rows = torch.tensor([[[[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]]]])
    members = torch.tensor([[True, False, False]])
    half = ScaleKeys(layer=0, head=0, members=members, factor=0.5)
    at = Positions(0, 0)
    assert torch.allclose(
        half.on_weights(rows, at), torch.tensor([[[[0.25, 0.3, 0.2], [0.5, 0, 0]]]])
    )
    none = ScaleKeys(layer=0, head=0, members=members, renormalized=True)
    # 0.3 and 0.2 share the 0.5 that is gone; a row with nothing else stays.
    assert torch.allclose(
        none.on_weights(rows, at), torch.tensor([[[[0.0, 0.6, 0.4], [1.0, 0, 0]]]])
    )
    assert rows[0, 0, 0, 0] == 0.5


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_bert", "tiny_t5"])
def test_layers_before_the_edit_need_not_run(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Model = request.getfixturevalue(name)
    assert list(layer_modules(model)) == list(range(model.info.n_layers))
    quick = check_importance(model, TEXTS, levels=[1.0])
    monkeypatch.setattr(removal, "layer_modules", lambda _: {})
    assert check_importance(model, TEXTS, levels=[1.0]).identical(quick)
    assert not any("forward" in vars(module) for module in model.module.modules())


def test_shared_layers_are_not_replayed() -> None:
    albert = hs.load(build(next(f for f in ENCODERS if f.name == "albert")))
    assert layer_modules(albert) == {}


def test_numbers_of_agreement() -> None:
    generator = np.random.default_rng(0)
    n_documents, n_heads = 6, 9
    estimates = generator.normal(size=(n_documents, n_heads, 1))
    gradients = generator.random((n_documents, n_heads, 1))
    pairs = np.full((n_documents, n_heads, 1), 4.0)
    rises = (estimates + 0.5 * generator.normal(size=estimates.shape))[..., None]
    sources = np.arange(n_documents).astype(str)
    tokens = np.array([3.0, 5.0, 9.0, 8.0, 4.0, 6.0])
    level = np.array([1.0])
    paired = RemovalComparison(estimates, gradients, pairs, rises, tokens, level, sources)
    found = correlate_with_removal(paired)
    estimate = estimates.sum(0)[:, 0] / tokens.sum()
    rise = rises.sum(0)[:, 0, 0] / tokens.sum()
    np.testing.assert_allclose(found["rise"][0][:, 0, 0], rise)
    np.testing.assert_allclose(found["removal_estimate"][0][:, 0], estimate)
    steep = gradients.sum(0)[:, 0] / pairs.sum(0)[:, 0]
    expected = {
        "r": stats.pearsonr(estimate, rise).statistic,
        "rho": stats.spearmanr(estimate, rise).statistic,
        "r_importance": stats.pearsonr(steep, np.abs(rise)).statistic,
        "rho_importance": stats.spearmanr(steep, np.abs(rise)).statistic,
        "error": np.abs(rise - estimate).sum() / np.abs(rise).sum(),
    }
    for name, value in expected.items():
        assert found[name][0].item() == pytest.approx(value)
        low, high = found[name][1].ravel()
        assert low < high
    one = RemovalComparison(
        estimates, gradients, pairs, rises, tokens, level, np.zeros(n_documents)
    )
    assert np.isnan(correlate_with_removal(one)["r"][1]).all()  # pieces of one text: no interval


def test_estimate_and_removal_agree_over_heads(tiny_bert: Model) -> None:
    found = check_importance(tiny_bert, make_corpus(6), levels=[0.05, 1.0])
    assert found["rise"].notnull().all()
    assert float(found["r"].sel(key_class="[SEP]", level=0.05)) > 0.99
    assert float(found["r"].sel(key_class="[SEP]", level=1.0)) > 0.7
    assert np.isnan(found["r"].sel(key_class=". or ,")).all()  # there is none in the text
    assert found["r_interval"].dims == ("bound", "key_class", "level")


def test_a_draw_of_heads(tiny_llama: Model) -> None:
    found = check_importance(tiny_llama, TEXTS, heads=1, classes=["first"], levels=[1.0])
    assert np.isfinite(found["rise"]).sum() == tiny_llama.info.n_layers == found.attrs["heads"]
    again = check_importance(tiny_llama, TEXTS, heads=1, classes=["first"], levels=[1.0])
    assert found.identical(again)


def test_what_is_refused(tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="There is no layer 9; layers with attention: 0, 1"):
        check_importance(tiny_llama, TEXTS, heads=[(9, 0)])
    with pytest.raises(InputError, match="Layer 1 has heads 0 to 3, not 4"):
        check_importance(tiny_llama, TEXTS, heads=[(1, 0), (1, 4)])
    with pytest.raises(InputError, match=r"asks for no head"):
        check_importance(tiny_llama, TEXTS, heads=[])
    with pytest.raises(InputError, match="expected at least 1"):
        check_importance(tiny_llama, TEXTS, heads=0)
    with pytest.raises(InputError, match="above 0 and at most 1"):
        check_importance(tiny_llama, TEXTS, levels=[0.0])
    with pytest.raises(UnknownName, match="class of keys"):
        check_importance(tiny_llama, TEXTS, classes=["[CLS]"])
    with pytest.raises(InputError, match="nothing to predict"):
        check_importance(tiny_llama, ["t"])


@pytest.mark.packaged
def test_gradients_of_real_weights_are_right(smollm2: Model) -> None:
    corpus = read(["The doctor asked the nurse a question. She said, after a while, no."])
    at = [(0, 4), (9, 2), (18, 6), (27, 1)]
    found = check_importance(smollm2, corpus, heads=at, levels=[0.02])
    slopes = found["rise"].sel(level=0.02) / 0.02
    error = float(np.abs(slopes - found["removal_estimate"]).max())
    assert error < 0.05 * float(np.abs(found["removal_estimate"]).max())
