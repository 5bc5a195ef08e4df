"""What each head does to a prediction, against edits one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.ablation import Replacement, head_sets, rank
from headscope.causal.batched_forward import BatchedAblation, ForwardPass
from headscope.causal.effects import METHODS, effects
from headscope.causal.readout import CustomScalar
from headscope.errors import InputError, MissingObjective, UnknownName
from headscope.model.edits import ScaleKeys
from headscope.model.objective import make_loss_inputs
from headscope.model.tracing import encode_for
from tests.causal.classifiers import first_logit, tiny_classifier
from tests.families.zoo import DECODERS, ENCODERS, build

if TYPE_CHECKING:
    from headscope.model.model import Model

TEXT = "the cat sat on the mat, the cat"


def _logits(model: Model, text: str) -> torch.Tensor:
    inputs = model.require_tokenizer()(text, return_tensors="pt")
    with torch.inference_mode():
        logits: torch.Tensor = model.module(**inputs).logits[0].double()
    return logits


def _one_by_one(model: Model, text: str, target: int, foil: int, position: int) -> np.ndarray:
    """Every head silenced alone, in a pass of its own."""

    def number() -> float:
        logits = _logits(model, text)
        row = logits if logits.ndim == 1 else logits[position]
        return float(row[target] - row[foil])

    base = number()
    values = np.zeros((model.info.n_layers, model.info.n_heads))
    for layer, head in np.ndindex(*values.shape):
        with model.edit(hs.ablate(layer, head)):
            values[layer, head] = number() - base
    return values


def _ids(model: Model, *tokens: str) -> list[int]:
    found: list[int] = model.require_tokenizer().convert_tokens_to_ids(list(tokens))
    return found


def test_equals_edits_one_by_one(tiny_llama: Model, tiny_bert: Model) -> None:
    target, foil = _ids(tiny_llama, "t", "a")
    exact = effects(tiny_llama, TEXT, "t", "a")
    np.testing.assert_allclose(exact, _one_by_one(tiny_llama, TEXT, target, foil, -1), atol=1e-5)
    assert exact.attrs["number"] == "logit('t') − logit('a')"
    masked = "the [MASK] sat on the mat"
    target, foil = _ids(tiny_bert, "cat", "dog")
    exact = effects(tiny_bert, masked, "cat", "dog")
    np.testing.assert_allclose(exact, _one_by_one(tiny_bert, masked, target, foil, 2), atol=1e-5)
    assert exact.attrs["position"] == 2


@pytest.mark.parametrize("family", [*ENCODERS, *DECODERS], ids=lambda family: family.name)
def test_every_family_of_the_zoo(family: object) -> None:
    """Rows of a batch on reused layers give what plain passes give, however the family is built."""
    module = build(family)  # type: ignore[arg-type]
    model = hs.load(module)
    ids = torch.randint(5, 90, (1, 9), generator=torch.Generator().manual_seed(1))

    def last(output: object) -> torch.Tensor:
        first = next(x for x in output.to_tuple() if isinstance(x, torch.Tensor))  # type: ignore[attr-defined]
        return first.flatten(1)[:, -3:].sum(1)

    block = model.wiring.main_block()
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    rows = BatchedAblation(ForwardPass(model, inputs, None), block)
    base = rows.base(lambda *_: CustomScalar(last))
    sets = head_sets(model, None, block)
    edit = Replacement(block).edit
    values = rows.values(base, sets, edit)
    for number in (0, len(sets) // 2, len(sets) - 1):
        ((layer, head),) = sets[number]
        with model.edit(hs.ablate(layer, head)), torch.inference_mode():
            plain = float(last(model.module(**inputs))[0])
        assert values[number] == pytest.approx(plain, abs=2e-4)


def test_the_gradient_is_right_to_first_order(tiny_llama: Model) -> None:
    estimate = effects(tiny_llama, TEXT, "t", "a", method="gradient")
    target, foil = _ids(tiny_llama, "t", "a")
    small = 1e-3
    base = _logits(tiny_llama, TEXT)[-1]
    for layer, head in ((0, 1), (1, 3)):
        members = torch.ones((1, len(_logits(tiny_llama, TEXT))))
        edit = ScaleKeys(layer=layer, head=head, members=members, factor=1 - small)
        with tiny_llama.edit(edit):
            changed = _logits(tiny_llama, TEXT)[-1]
        rise = float((changed - base)[target] - (changed - base)[foil]) / small
        assert float(estimate.sel(layer=layer, head=head)) == pytest.approx(
            rise, rel=0.05, abs=2e-3
        )


def test_means_keep_the_first_position(tiny_llama: Model) -> None:
    reference = ["a dog ran under the table", "he said that it was fine"]
    exact = effects(tiny_llama, TEXT, "t", "a", ablation="mean", reference=reference)
    outputs = []
    for text in reference:
        trace = tiny_llama.trace(text)
        outputs.append(trace.outputs.values[:, :, 1:])
    means = torch.from_numpy(np.concatenate(outputs, axis=2).mean(2))
    target, foil = _ids(tiny_llama, "t", "a")
    base = _logits(tiny_llama, TEXT)[-1]
    module = tiny_llama.module.model.layers[1].self_attn.o_proj
    size = means.shape[-1]

    def put(_: object, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        changed = args[0].clone()
        changed[:, 1:, 2 * size : 3 * size] = means[1, 2]
        return (changed,)

    hook = module.register_forward_pre_hook(put)
    changed = _logits(tiny_llama, TEXT)[-1]
    hook.remove()
    slow = float((changed - base)[target] - (changed - base)[foil])
    assert float(exact.sel(layer=1, head=2)) == pytest.approx(slow, abs=1e-5)
    gradient = effects(
        tiny_llama, TEXT, "t", "a", ablation="mean", reference=reference, method="gradient"
    )
    assert np.corrcoef(gradient.values.ravel(), exact.values.ravel())[0, 1] > 0.6


def test_sets_and_some_heads(tiny_llama: Model) -> None:
    both = effects(tiny_llama, TEXT, "t", "a", heads=[[(0, 1), (1, 2)], [(1, 3)]])
    target, foil = _ids(tiny_llama, "t", "a")
    base = _logits(tiny_llama, TEXT)[-1]
    with tiny_llama.edit(hs.ablate(0, 1), hs.ablate(1, 2)):
        changed = _logits(tiny_llama, TEXT)[-1]
    slow = float((changed - base)[target] - (changed - base)[foil])
    assert both.dims == ("set",)
    assert float(both.sel(set="L0 H1 + L1 H2")) == pytest.approx(slow, abs=1e-5)
    one = effects(tiny_llama, TEXT, "t", "a", heads=[(1, 3)])
    assert float(one.sel(layer=1, head=3)) == pytest.approx(float(both.sel(set="L1 H3")), abs=1e-5)
    assert int(one.notnull().sum()) == 1
    assert rank(one) == [(1, 3, float(one.sel(layer=1, head=3)))]


def test_classifiers_encoders_and_own_scalars() -> None:
    classifier = tiny_classifier()
    text = "the cat sat on the mat ."
    found = effects(classifier, text)
    best, second = (name for name, _ in classifier.predict(text).top()[:2])
    assert (found.attrs["target"], found.attrs["foil"]) == (best, second)
    own = effects(classifier, text, first_logit)
    with torch.inference_mode(), classifier.edit(hs.ablate(0, 2)):
        inputs = classifier.require_tokenizer()(text, return_tensors="pt")
        without = float(classifier.module(**inputs).logits[0, 0])
    assert own.attrs["with"] + float(own.sel(layer=0, head=2)) == pytest.approx(without, abs=1e-5)


def test_a_plain_encoders_vector_turns(minilm: Model) -> None:
    text = "The cat sat on the mat."
    found = effects(minilm, text, heads=[(0, 3), (4, 7)])
    plain = minilm.trace(text).hidden.values[-1].mean(0)
    with minilm.edit(hs.ablate(4, 7)):
        other = minilm.trace(text).hidden.values[-1].mean(0)
    turn = 1 - plain @ other / np.linalg.norm(plain) / np.linalg.norm(other)
    assert float(found.sel(layer=4, head=7)) == pytest.approx(turn, abs=1e-5)
    assert found.attrs["pooling"] == "mean"
    with pytest.raises(MissingObjective, match="target='cat' needs a model that predicts"):
        effects(minilm, text, "cat")
    with pytest.raises(InputError, match="1 − cosine has a gradient of 0"):
        effects(minilm, text, method="gradient")


def test_several_texts_have_an_interval(tiny_llama: Model) -> None:
    texts = [TEXT, "a dog ran, the dog", "the tree, a tree in the house", "he said that he"]
    together = effects(tiny_llama, texts, "t", "a")
    alone = np.stack([effects(tiny_llama, text, "t", "a").values for text in texts])
    np.testing.assert_allclose(together, alone.mean(0), atol=1e-5)
    half = 3.182446 * alone.std(0, ddof=1) / 2  # t with 3 degrees of freedom, √4
    np.testing.assert_allclose(together["high"], alone.mean(0) + half, atol=1e-4)
    assert together.attrs["texts"] == 4
    assert together.attrs["templates"] == 4
    assert "the interval is over templates, which are few" in together.attrs["holds"]
    names = [f"when {name} and he went to the house, he saw" for name in ("Ann", "Eve", "Sue")]
    one = effects(tiny_llama, names, "t", "a", heads=[(0, 1)])
    assert one.attrs["templates"] == 1
    assert "speaks of these names in this sentence, not of the construction" in one.attrs["holds"]
    labeled = effects(tiny_llama, names, "t", "a", heads=[(0, 1)], templates=["x", "y", "y"])
    assert labeled.attrs["templates"] == 2
    assert np.isnan(labeled["low"].sel(layer=0, head=1))  # 3 texts − 2 templates: df 1
    with pytest.raises(InputError, match="needs a label for each of 3 texts"):
        effects(tiny_llama, names, "t", "a", templates=["x"])
    assert "of this text alone" in effects(tiny_llama, TEXT).attrs["holds"]


def test_the_loss_of_a_corpus_and_pruning(tiny_llama: Model) -> None:
    texts = [TEXT, "a dog ran, the dog", "the tree, a tree in the house", "he said", "it was fine"]
    corpus = hs.read(texts)
    found = effects(tiny_llama, corpus, heads=[(0, 1), (1, 2)])
    rises = tokens = 0.0
    for text in texts:
        question = make_loss_inputs(tiny_llama, text)
        n = len(question.predicted)
        before = tiny_llama.gradients(text).loss
        with tiny_llama.edit(hs.ablate(1, 2)):
            rises += (tiny_llama.gradients(text).loss - before) * n
        tokens += n
    assert float(found.sel(layer=1, head=2)) == pytest.approx(rises / tokens, abs=1e-5)
    assert found.attrs["texts"] == len(texts)
    low, high = (float(found[name].sel(layer=1, head=2)) for name in ("low", "high"))
    assert low < rises / tokens < high
    assert "holds" not in found.attrs  # no near-copies
    curve = hs.prune_heads(tiny_llama, corpus, [(1, 2), (0, 1)], steps=2)
    assert curve["removed"].values.tolist() == [0, 1, 2]
    assert float(curve["rise"][1]) == pytest.approx(rises / tokens, abs=1e-5)
    assert curve["head"].values.tolist() == ["", "L1 H2", "L0 H1"]
    ordered = hs.prune_heads(tiny_llama, corpus, found, steps=1)
    assert float(ordered["loss"][-1]) == pytest.approx(float(curve["loss"][-1]), abs=1e-5)


def test_encoder_decoders(tiny_t5: Model) -> None:
    found = effects(tiny_t5, "the cat sat", "cat", "dog", block="cross", decoder="the dog")
    assert found.attrs["block"] == "cross"
    target, foil = _ids(tiny_t5, "cat", "dog")

    def number() -> float:
        _, _, inputs = encode_for(
            tiny_t5, "the cat sat", None, target="the dog", generate=0, truncate=True
        )
        with torch.inference_mode(), tiny_t5.tapped():
            row = tiny_t5.module(**inputs).logits[0, -1]
        return float(row[target] - row[foil])

    base = number()
    with tiny_t5.edit(hs.ablate(1, 2, block="cross")):
        slow = number() - base
    assert float(found.sel(layer=1, head=2)) == pytest.approx(slow, abs=1e-5)


def test_random_weights_as_control(tiny_llama: Model) -> None:
    found = effects(tiny_llama, TEXT, control=True)
    assert found.attrs["control_largest"] > 0
    assert "random weights" in found.attrs["control"]


def test_input_that_cannot_be(tiny_llama: Model, tiny_bert: Model) -> None:
    with pytest.raises(InputError, match=r"target='dog' is 3 tokens of .*: 'd', 'o', 'g'"):
        effects(tiny_llama, TEXT, "dog")
    with pytest.raises(InputError, match="position=99 is out of range: the text has"):
        effects(tiny_llama, TEXT, position=99)
    with pytest.raises(InputError, match="The text is one token, 'the', which attends to nothing"):
        effects(tiny_llama, "the")
    with pytest.raises(InputError, match="The text is one token, 'the', which attends to nothing"):
        effects(tiny_llama, "the", first_logit)
    with pytest.raises(InputError, match="The text is one token"):
        tiny_llama.trace("the", effects=True)
    with pytest.raises(InputError, match="has no mask token"):
        effects(tiny_bert, "the cat sat")
    with pytest.raises(UnknownName, match="Unknown measure 'logits'"):
        effects(tiny_llama, TEXT, measure="logits")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ablation='mean' needs texts"):
        effects(tiny_llama, TEXT, ablation="mean")
    with pytest.raises(InputError, match="There is no layer 7"):
        effects(tiny_llama, TEXT, heads=[(7, 0)])
    with pytest.raises(InputError, match="neither a pair"):
        effects(tiny_llama, TEXT, heads=[(1, 2, 3)])  # type: ignore[list-item]
    with pytest.raises(InputError, match="their difference is always 0"):
        effects(tiny_llama, TEXT, "t", "t")
    with pytest.raises(InputError, match="2 texts, and 1 for target"):
        effects(tiny_llama, [TEXT, TEXT], ["t"])
    with pytest.raises(InputError, match="needs a text"):
        effects(tiny_llama, hs.read([TEXT]), "t")


@pytest.mark.packaged
def test_the_sink_is_not_overwritten(smollm2: Model) -> None:
    text = "When Mary and John went to the store, John gave a drink to"
    reference = [
        "The committee will meet again in March to discuss the budget.",
        "She opened the window and looked at the garden below.",
    ]
    found = effects(
        smollm2, text, " Mary", " John", ablation="mean", reference=reference, heads=[(0, 0)]
    )
    assert abs(float(found.sel(layer=0, head=0))) < 0.7


def test_a_mean_reaches_the_position_that_a_classifier_reads() -> None:
    """[CLS] is the first position: kept, no head of the last layer would have an effect."""
    model = tiny_classifier()
    found = effects(model, TEXT, ablation="mean", reference=["the dog sat", "a cat ran"])
    assert found.attrs["kept"] == "nothing"
    assert (abs(found.isel(layer=-1)) > 0).all()
    estimate = effects(
        model, TEXT, ablation="mean", reference=["the dog sat", "a cat ran"], method="gradient"
    )
    assert (abs(estimate.isel(layer=-1)) > 0).all()


def test_a_mean_keeps_the_sink_of_a_causal_model(tiny_llama: Model) -> None:
    found = effects(tiny_llama, TEXT, "t", "a", ablation="mean", reference=["the dog sat"])
    assert found.attrs["kept"] == "first position"


def test_a_mean_reaches_the_first_position_if_the_answer_is_read_there(
    tiny_llama: Model, tiny_t5: Model
) -> None:
    """A first position sees itself alone: kept, no head would have an effect on it."""
    reference = ["the dog sat", "a cat ran"]
    for position in (0, -len(tiny_llama.trace(TEXT).tokens)):
        for method in METHODS:
            found = effects(
                tiny_llama, TEXT, "t", "a", position=position, ablation="mean",
                reference=reference, method=method,
            )  # fmt: skip
            assert found.attrs["kept"] == "nothing"
            assert (abs(found) > 1e-7).all()
    found = effects(
        tiny_t5, "the cat sat", "cat", "dog", block="decoder", ablation="mean", reference=reference
    )  # the decoder has read its start token alone
    assert found.attrs["kept"] == "nothing"
    assert (abs(found) > 1e-7).all()
