"""What a model predicts, and losses of classifiers and of a user's own scalar."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import InputError, MissingObjective, UnknownName
from headscope.metrics.gradients import Importance
from tests.causal.classifiers import LABELS, first_logit, tiny_classifier

if TYPE_CHECKING:
    from headscope.model.model import Model

TEXT = "the cat sat on the mat ."


@pytest.fixture(scope="module")
def classifier() -> Model:
    return tiny_classifier()


def _logits(model: Model, text: str) -> torch.Tensor:
    inputs = model.require_tokenizer()(text, return_tensors="pt", return_token_type_ids=False)
    with torch.inference_mode():
        logits: torch.Tensor = model.module(**inputs).logits
    return logits


def test_next_tokens_at_every_position(tiny_llama: Model, tmp_path: Path) -> None:
    trace = tiny_llama.trace(TEXT)
    predictions = trace.predictions
    assert predictions is not None
    assert predictions.kind == "next"
    shares = _logits(tiny_llama, TEXT)[0].softmax(-1)
    assert len(predictions) == len(trace.tokens) == len(shares)
    best = shares.topk(10)
    np.testing.assert_allclose(predictions.data["probability"], best.values, rtol=1e-4)
    np.testing.assert_array_equal(predictions.data["id"], best.indices)
    trace.save(tmp_path / "trace.nc")
    opened = hs.open(tmp_path / "trace.nc").predictions
    assert opened is not None
    assert repr(opened) == repr(predictions)
    assert repr(tiny_llama.predict(TEXT)) == repr(predictions)
    assert predictions.top()[0][1] == pytest.approx(float(best.values[-1, 0]), rel=1e-4)
    assert len(predictions.to_dataframe()) == 10 * len(predictions)
    with pytest.raises(InputError, match="Nothing is predicted at position 99"):
        predictions.top(99)


def test_edits_and_generated_tokens_count(tiny_llama: Model) -> None:
    plain = tiny_llama.predict(TEXT)
    with tiny_llama.edit(hs.ablate(0, 0)):
        edited = tiny_llama.predict(TEXT)
    assert not np.allclose(plain.data["logit"], edited.data["logit"])
    trace = tiny_llama.trace(TEXT, generate=2)
    assert trace.predictions is not None
    assert len(trace.predictions) == len(trace.tokens)
    n = len(plain)
    written = trace.tokens[n]
    assert trace.predictions.top(n - 1)[0][0] == written


def test_masks_alone_in_masked_models(tiny_bert: Model) -> None:
    predictions = tiny_bert.predict("the [MASK] sat on the [MASK] .")
    assert predictions.kind == "mask"
    assert predictions.positions == (2, 6)
    nothing = tiny_bert.predict(TEXT)
    assert len(nothing) == 0
    with pytest.raises(InputError, match="no mask token"):
        nothing.top()


def test_labels_of_classifiers(classifier: Model) -> None:
    predictions = classifier.predict(TEXT)
    assert predictions.kind == "label"
    assert predictions.positions == (-1,)
    shares = dict(predictions.top())
    assert set(shares) == set(LABELS.values())
    assert sum(shares.values()) == pytest.approx(1, rel=1e-5)
    assert "text" in repr(predictions)
    tokens = tiny_classifier("Token").predict(TEXT)
    assert tokens.kind == "token_label"
    assert len(tokens) == 9


def test_scores_have_no_probability_and_loose_labels_one_each() -> None:
    score = tiny_classifier(id2label={0: "score"}, label2id={"score": 0})
    assert np.isnan(score.predict(TEXT).top()[0][1])
    with pytest.raises(MissingObjective, match="a single score, which has no cross-entropy"):
        score.gradients(TEXT)
    loose = tiny_classifier(problem_type="multi_label_classification")
    expected = _logits(loose, TEXT)[0].sigmoid().sort(descending=True).values
    np.testing.assert_allclose([p for _, p in loose.predict(TEXT).top()], expected, rtol=1e-4)


def test_plain_encoders_predict_nothing(minilm: Model) -> None:
    assert minilm.trace(TEXT, vectors=False).predictions is None
    with pytest.raises(MissingObjective, match="A prediction needs a model that predicts") as seen:
        minilm.predict(TEXT)
    assert str(pickle.loads(pickle.dumps(seen.value))) == str(seen.value)


def test_gradients_of_labels_tokens_and_scalars(classifier: Model, tiny_llama: Model) -> None:
    likeliest = classifier.predict(TEXT).top()[0]
    by_default = classifier.gradients(TEXT)
    named = classifier.gradients(TEXT, target=likeliest[0])
    assert by_default.loss == pytest.approx(-np.log(likeliest[1]), rel=1e-5)
    np.testing.assert_array_equal(by_default.attention, named.attention)
    by_number = classifier.gradients(TEXT, target=2)
    assert by_number.loss == pytest.approx(
        -np.log(dict(classifier.predict(TEXT).top())["POSITIVE"])
    )
    own = classifier.gradients(TEXT, target=first_logit)
    assert own.loss == pytest.approx(float(_logits(classifier, TEXT)[0, 0]), rel=1e-5)
    assert float(np.abs(own.attention).max()) > 0
    token = tiny_llama.gradients(TEXT, target="t")
    logs = _logits(tiny_llama, TEXT)[0, -1].log_softmax(-1)
    at = tiny_llama.require_tokenizer().convert_tokens_to_ids("t")
    assert token.loss == pytest.approx(-float(logs[at]), rel=1e-4)


def test_targets_that_cannot_be(classifier: Model, tiny_llama: Model, tiny_bert: Model) -> None:
    with pytest.raises(UnknownName, match=r"Unknown label 'POSITIV'. Did you mean 'POSITIVE'"):
        classifier.gradients(TEXT, target="POSITIV")
    with pytest.raises(InputError, match=r"is 3 tokens of .*A prediction is of one token"):
        tiny_llama.gradients(TEXT, target="dog")
    with pytest.raises(InputError, match="write it where 'cat' should stand"):
        tiny_bert.gradients(TEXT, target="cat")
    with pytest.raises(InputError, match="is not in the vocabulary"):
        tiny_bert.gradients("the [MASK] sat", target="zebra")
    with pytest.raises(InputError, match="returned 3 numbers for 1 rows"):
        classifier.gradients(TEXT, target=lambda output: output.logits)


def test_importance_of_a_classifier(classifier: Model) -> None:
    texts = [TEXT, "a dog ran under the table"]
    result = hs.importance(classifier, texts, target="POSITIVE")
    sums = pairs = 0.0
    for text in texts:
        gradients = classifier.gradients(text, target="POSITIVE").attention.values
        sums = sums + np.abs(gradients).sum((-1, -2))
        pairs += gradients.shape[-1] ** 2
    np.testing.assert_allclose(
        result["importance"].sel(gradient_class="all"), sums / pairs, rtol=1e-4
    )
    assert hs.importance(classifier, texts)["loss"] < result["loss"] + 1e-6
    own = hs.importance(classifier, texts, target=first_logit)
    assert float(own["loss"]) == pytest.approx(
        float(np.mean([float(_logits(classifier, text)[0, 0]) for text in texts])), rel=1e-4
    )
    assert Importance(scalar="tests.causal.classifiers:first_logit") in [
        Importance(**{k: v for k, v in m.items() if k in ("seed", "target", "scalar")})
        for m in own.provenance["metrics"]
        if m["name"] == "importance"
    ]
    with pytest.raises(InputError, match="cannot be imported again"):
        hs.importance(classifier, texts, target=lambda output: output.logits[:, 0])


def test_checked_importance_of_a_classifier_and_a_plain_encoder(classifier: Model) -> None:
    texts = [TEXT, "a dog ran under the table"]
    checked = hs.check_importance(
        classifier, texts, heads=[(0, 1)], target="POSITIVE", levels=(0.01,), progress=False
    )
    at = checked.sel(layer=0, head=1, key_class="[SEP]")
    rise, estimate = float(at["rise"].squeeze()), float(at["removal_estimate"])
    assert rise / 0.01 == pytest.approx(estimate, rel=0.05)
