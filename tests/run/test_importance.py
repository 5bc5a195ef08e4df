"""Gradient importance over corpora."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.importance import check_importance, importance
from headscope.errors import HeadscopeError, HeadscopeWarning, InputError, MissingObjective
from headscope.model.edits import ScaleKeys
from headscope.model.objective import losses_of
from headscope.run.analyze import analyze, make_plan
from headscope.run.batches import Encoder
from headscope.run.measure import measure
from headscope.run.merge import merge
from headscope.run.options import Settings
from headscope.run.plan import survey
from headscope.run.shard import question
from headscope.text.readers.read import read
from tests.run.corpora import make_corpus
from tests.run.same import assert_close, assert_same_bits

if TYPE_CHECKING:
    from headscope.model.model import Model


def test_equals_the_gradients_of_single_texts(tiny_llama: Model) -> None:
    texts = ["the cat sat.", "a tree, the cat", "the the"]
    result = importance(tiny_llama, texts)
    sums, counts = 0.0, 0
    dots, dot_counts = 0.0, 0
    total = tokens = 0.0
    for text in texts:
        found = tiny_llama.gradients(text)
        g = np.tril(np.abs(found.attention.values))  # what comes later cannot be attended to
        n = g.shape[-1]
        sums = sums + g.sum((-1, -2))
        counts += n * (n + 1) // 2
        marks = [j for j, t in enumerate(found.tokens) if t.strip() in (".", ",")]
        dots = dots + g[..., marks].sum((-1, -2))
        dot_counts += sum(n - j for j in marks)
        total += found.loss * len(found.predicted)
        tokens += len(found.predicted)
    values = result["importance"]
    np.testing.assert_allclose(values.sel(gradient_class="all"), sums / counts, rtol=1e-4)
    np.testing.assert_allclose(values.sel(gradient_class=". or ,"), dots / dot_counts, rtol=1e-4)
    assert float(result["loss"]) == pytest.approx(total / tokens, rel=1e-5)
    assert int(result["loss_count"]) == tokens


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_bert", "tiny_t5"])
def test_estimates_agree_with_finite_differences(name: str, request: pytest.FixtureRequest) -> None:
    original: Model = request.getfixturevalue(name)
    model = hs.load(copy.deepcopy(original.module).double(), original.tokenizer)
    corpus = read(["the cat sat on the mat.", "she said , it was fine"])
    result = importance(model, corpus)
    settings = Settings()
    plan = make_plan(model, survey(corpus, settings), "null_share", settings)
    encoder = Encoder.of(model, plan)
    documents = encoder.encode(list(enumerate(corpus)))
    inputs, batch = encoder.batch(documents)
    posed, labels = question(model, inputs, batch, 0)

    def loss() -> float:
        with torch.inference_mode(), model.tapped():
            found = losses_of(model.module(**posed).logits, labels)
        return float(found[:, 0].sum() / found[:, 1].sum())  # per token

    block = model.info.blocks[0]
    classes = batch.key_sequences(block).classes
    for layer, head, column in ((0, 0, 0), (1, 0, -1), (1, 2, -3)):
        members = torch.from_numpy(classes[..., column])
        sides = []
        for factor in (1 - 1e-3, 1 + 1e-3):
            with model.edit(ScaleKeys(layer=layer, head=head, members=members, factor=factor)):
                sides.append(loss())
        slope = (sides[0] - sides[1]) / 2e-3
        at = result["removal_estimate"].sel(layer=layer, head=head)
        label = plan.axes.key_classes[column]
        # transformers computes some norms and softmaxes in float32 whatever the model's type.
        assert float(at.sel(gradient_class=label)) == pytest.approx(slope, rel=1e-2, abs=5e-5)


def test_shards_batches_and_resume_change_nothing(tiny_bert: Model, tmp_path: Path) -> None:
    corpus = make_corpus(30)
    whole = importance(tiny_bert, corpus, out=tmp_path / "run")
    assert_same_bits(importance(tiny_bert, corpus, out=tmp_path / "run"), whole)
    assert_close(importance(tiny_bert, corpus, batch_tokens=16), whole, 1e-4)
    left, right = make_corpus(30), make_corpus(8, seed=5, first=30)
    both = merge(importance(tiny_bert, left), importance(tiny_bert, right))
    joint = importance(tiny_bert, read([*left, *right]))
    np.testing.assert_allclose(both["importance"], joint["importance"], rtol=1e-5)
    assert whole["importance_by_layer"].dims == ("layer", "gradient_class")


def test_the_seed_decides_what_is_masked(tiny_bert: Model) -> None:
    corpus = make_corpus(10)
    first, again, other = (importance(tiny_bert, corpus, seed=seed) for seed in (0, 0, 1))
    assert_same_bits(first, again)
    assert not np.allclose(first["importance"], other["importance"])
    stated = [m for m in other.provenance["metrics"] if m["name"] == "importance"]
    assert stated == [{"name": "importance", "seed": 1, "target": None, "scalar": None}]


def test_models_without_a_head_are_refused(tiny_bert: Model) -> None:
    headless = hs.load(tiny_bert.module.bert, tiny_bert.tokenizer)
    with pytest.raises(MissingObjective, match="A loss needs a model that predicts"):
        importance(headless, ["the cat"])
    with pytest.raises(MissingObjective):
        check_importance(headless, ["the cat"])


@pytest.mark.packaged
def test_minilm_has_no_head(minilm: Model) -> None:
    with pytest.raises(MissingObjective, match="no language-model head"):
        importance(minilm, ["The cat sat."])


def test_one_token_has_nothing_to_predict(tiny_llama: Model) -> None:
    with pytest.warns(HeadscopeWarning, match="one token has no next token to predict"):
        result = importance(tiny_llama, ["t", "the cat sat"])
    assert result.provenance["counts"]["failed"] == 1
    with pytest.raises(HeadscopeError, match="No document could be measured"):
        importance(tiny_llama, ["t"])


def test_gradients_are_not_measured_beside_attention(tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="run them apart"):
        analyze(tiny_llama, ["the cat"], ["importance", "distance"])
    with pytest.raises(InputError, match="needs a backward pass"):
        measure(tiny_llama.trace("the cat"), "importance")


def test_workers_give_the_same_bits(tiny_bert: Model) -> None:
    corpus = make_corpus(300)
    assert_same_bits(importance(tiny_bert, corpus, workers=2), importance(tiny_bert, corpus))
