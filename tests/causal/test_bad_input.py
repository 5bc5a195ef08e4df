"""What cannot be asked of effects, with errors that say why; and what only looks odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.readout import find_position
from headscope.errors import InputError, TapUnsupported
from headscope.model.load import randomized
from headscope.model.tracing import encode_for
from tests.causal.classifiers import first_logit, tiny_classifier
from tests.causal.decoders import tiny_decoder, tiny_module
from tests.conftest import byte_tokenizer, word_piece_tokenizer
from tests.families.zoo import ENCODER_DECODERS, build

if TYPE_CHECKING:
    from headscope.model.model import Model

TEXT = "the cat sat on the mat"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no text": ({"text": None}, "text should be a text, several texts or a corpus, not None"),
    "position": ({"position": -99}, "position=-99 is out of range: the text has .* tokens"),
    "a position's type": ({"position": "3"}, "position should be a whole number, not '3'"),
    "token id": ({"target": 5000}, "target=5000 is not a token id of"),
    "token": ({"target": 1.5}, "target should be a token, as text or by its id, not 1.5"),
    "pooling": ({"pooling": "max"}, "Unknown pooling 'max'"),
    "pooling of logits": ({"pooling": "first"}, "pooling='first' is not used"),
    "foil of a function": (
        {"target": first_logit, "foil": "t"},
        "foil='t' is not used: target is a function of the output",
    ),
    "position of a function": (
        {"target": first_logit, "position": 2},
        "position=2 is not used",
    ),
    "no heads": ({"heads": []}, r"heads=\[\] names no head"),
    "one pair": ({"heads": (0, 1)}, r"heads=\(0, 1\): 0 is neither a pair .*Write heads="),
    "names": ({"heads": ["L0 H1"]}, "'L0 H1' is neither a pair"),
    "truth values": ({"heads": [(True, False)]}, "is neither a pair"),
    "negative layer": ({"heads": [(-1, 0)]}, "There is no layer -1"),
    "negative head": ({"heads": [(0, -1)]}, "Layer 0 has heads 0 to 3, not -1"),
}
OF_A_CORPUS: dict[str, Any] = {"position": 2, "measure": "logprob", "target": "t", "pair": TEXT}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tiny_llama: Model) -> None:
    options, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        hs.effects(tiny_llama, **{"text": TEXT, **options})


@pytest.mark.parametrize("name", OF_A_CORPUS)
def test_what_is_about_one_text_is_refused_for_a_corpus(name: str, tiny_llama: Model) -> None:
    with pytest.raises(InputError, match=f"^{name}=.* needs a text"):
        hs.effects(tiny_llama, hs.read([TEXT]), **{name: OF_A_CORPUS[name]})


def test_positions_of_labels_and_vectors(minilm: Model) -> None:
    with pytest.raises(InputError, match=r"Unknown label 'positive'\. Did you mean 'POSITIVE'"):
        hs.effects(tiny_classifier(), TEXT, "positive")
    with pytest.raises(InputError, match="position=3 is not used: a label is of the whole"):
        hs.effects(tiny_classifier(), TEXT, position=3)
    with pytest.raises(InputError, match=r"measure='logprob' is not used: .* cosine distance"):
        hs.effects(minilm, TEXT, measure="logprob")


def test_a_classifier_of_tokens_reads_its_last_word() -> None:
    model = tiny_classifier("Token")
    _, stacks, _ = encode_for(model, TEXT, None, target=None, generate=0, truncate=False)
    assert next(iter(stacks.values())).tokens[find_position(model, stacks, -1) or 0] == "mat"
    assert hs.effects(model, TEXT).attrs["position"] == find_position(model, stacks, -1)


def test_numpys_numbers_ids_and_heads_twice(tiny_llama: Model) -> None:
    target, foil = tiny_llama.require_tokenizer().convert_tokens_to_ids(["t", "a"])
    plain = hs.effects(tiny_llama, TEXT, "t", "a", position=3)
    assert plain.equals(hs.effects(tiny_llama, TEXT, target, np.int64(foil), position=np.int64(3)))
    some = hs.effects(tiny_llama, TEXT, "t", "a", position=3, heads=np.array([[0, 1], [0, 1]]))
    assert some.to_series().dropna().index.to_list() == [(0, 1)]
    sets = hs.effects(tiny_llama, TEXT, heads=[[(0, 1), (1, 1)], [(1, 1), (0, 1)], [(0, 2)]])
    assert sets["set"].values.tolist() == ["L0 H1 + L1 H1", "L0 H2"]


def test_weights_that_are_no_numbers() -> None:
    module = tiny_module("llama")
    with torch.no_grad():
        module.model.layers[1].self_attn.o_proj.weight[0, 0] = float("nan")
    model = hs.load(module, byte_tokenizer(), name="spoiled")
    for options in ({}, {"method": "gradient"}, {"target": first_logit_of_last}):
        with pytest.raises(InputError, match=r"is nan for this text: spoiled .* not finite"):
            hs.effects(model, TEXT, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is nan for this text"):
        hs.effects(model, hs.read([TEXT]))
    with pytest.raises(InputError, match="is nan for this text"):
        hs.patch(model, [("a bat sat", "a rat sat")], "t", "a")
    with pytest.raises(TapUnsupported, match="puts out NaN or infinity: look at its weights"):
        hs.attribute(model, TEXT, "t", "a")


def test_attention_that_is_nan_does_not_hide_the_objective() -> None:
    module = tiny_module("llama")
    with torch.no_grad():
        module.model.layers[1].self_attn.q_proj.weight[0, 0] = float("nan")
    model = hs.load(module, byte_tokenizer(), name="spoiled")
    assert model.info.objective == "causal"
    with pytest.raises(InputError, match=r"is nan for this text: spoiled .* not finite"):
        hs.effects(model, TEXT)


def first_logit_of_last(output: Any) -> torch.Tensor:
    logits: torch.Tensor = output.logits
    return logits[:, -1, 0]


@pytest.mark.parametrize(
    "options",
    [
        {"target": "t", "foil": "a"},
        {"target": "t", "foil": False},
        {"target": "t", "measure": "logprob"},
        {"target": first_logit_of_last},
        {
            "target": "t",
            "foil": "a",
            "ablation": "mean",
            "reference": ["a dog ran under the table"],
        },
    ],
)
def test_the_control_is_asked_the_same(options: dict[str, Any], tiny_llama: Model) -> None:
    """The same number over the same texts, with means of its own heads."""
    texts = [TEXT, "a dog ran in the house"]
    found = hs.effects(tiny_llama, texts, control=True, **options)
    other = hs.effects(randomized(tiny_llama, 0), texts, **options)
    assert found.attrs["control_largest"] == pytest.approx(float(np.abs(other).max()), rel=1e-4)
    n = int((np.abs(found) > found.attrs["control_largest"]).sum())
    assert found.attrs["control_heads_above"] == n


def test_the_control_of_a_corpus(tiny_llama: Model) -> None:
    corpus = hs.read([TEXT, "a dog ran in the house", "it was fine"])
    found = hs.effects(tiny_llama, corpus, control=True)
    other = hs.effects(randomized(tiny_llama, 0), corpus)
    assert found.attrs["control_largest"] == pytest.approx(float(np.abs(other).max()), rel=1e-4)


def test_half_precision_is_run_but_not_taken_apart() -> None:
    model = hs.load(tiny_module("llama").to(torch.bfloat16), byte_tokenizer())
    found, exact = (hs.effects(one, TEXT, "t", "a") for one in (model, tiny_decoder("llama")))
    assert found.attrs["dtype"] == "bfloat16"
    assert "dtype" not in exact.attrs
    np.testing.assert_allclose(found, exact, atol=0.1)
    for ask in (
        lambda: hs.attribute(model, TEXT, "t", "a"),
        lambda: hs.explain_score(model, TEXT, 1, 2, 5, 3),
    ):
        with pytest.raises(TapUnsupported, match=r"computes in bfloat16, .* dtype='float32'"):
            ask()


def test_a_model_of_speech_reads_no_text() -> None:
    family = next(family for family in ENCODER_DECODERS if family.name == "whisper")
    model = hs.load(build(family), word_piece_tokenizer())
    with pytest.raises(InputError, match="listens to recordings and reads no text"):
        hs.effects(model, TEXT)


def test_scores_and_loose_labels() -> None:
    """A score has no other answer and no probability; loose labels have one each."""
    score = tiny_classifier(id2label={0: "score"}, label2id={"score": 0})
    found = hs.effects(score, TEXT)
    assert found.attrs["number"] == "logit('score')"
    np.testing.assert_allclose(found, hs.effects(score, TEXT, first_logit), atol=1e-6)
    with pytest.raises(InputError, match="predicts a score, which has no probability"):
        hs.effects(score, TEXT, measure="logprob")
    loose = tiny_classifier(problem_type="multi_label_classification")
    log = hs.effects(loose, TEXT, "POSITIVE", measure="logprob")

    def log_share(output: Any) -> torch.Tensor:
        return torch.nn.functional.logsigmoid(output.logits[:, 2])

    np.testing.assert_allclose(log, hs.effects(loose, TEXT, log_share), atol=1e-5)
    share = dict(loose.predict(TEXT).top())["POSITIVE"]
    assert log.attrs["with"] == pytest.approx(np.log(share), abs=1e-5)


@pytest.mark.parametrize("pairs", [None, 5, [5], [("a",)], [("a", 5)]])
def test_what_is_no_pair(pairs: Any, tiny_llama: Model) -> None:
    with pytest.raises(InputError, match=r"pairs should be pairs of texts|is not a pair of texts"):
        hs.patch(tiny_llama, pairs)


@pytest.mark.parametrize("order", ["abc", [(0, 1), (0, 1)], [], [(0.5, 1)], [[(0, 1), (1, 1)]]])
def test_what_is_no_order(order: Any, tiny_llama: Model) -> None:
    with pytest.raises(InputError, match=r"neither a pair|names no head|each head to remove once"):
        hs.prune_heads(tiny_llama, hs.read([TEXT]), order)
