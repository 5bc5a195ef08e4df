"""The one way from text to tokens: batches, pairs, targets; traces and runs alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

import headscope as hs
from headscope.batch import Axes
from headscope.errors import TruncationWarning
from headscope.metrics.core.labels import Labeler
from headscope.model import encode as module
from headscope.model.encode import Speller, encode, encode_texts, shifted_target
from headscope.model.model import Model
from headscope.run.batches import Encoder
from headscope.run.plan import Settings  # type: ignore[attr-defined]
from headscope.text.document import Document
from tests.run.corpora import make_documents

TEXTS = ["the cat sat", "a", "the red dog ran, and the cat sat on the mat.", "she said it was fine"]


@pytest.fixture(params=["tiny_bert", "tiny_llama", "tiny_t5"])
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("max_length", [None, 6])
def test_a_batch_is_its_texts_one_by_one(model: Model, max_length: int | None) -> None:
    tokenizer = model.require_tokenizer()
    pairs = [None, " the dog", None, " he left"]
    together = encode_texts(tokenizer, TEXTS, pairs, max_length=max_length)
    for text, pair, encoded in zip(TEXTS, pairs, together, strict=True):
        (alone,) = encode_texts(tokenizer, [text], [pair], max_length=max_length)
        assert encoded.tokens == alone.tokens
        assert (encoded.inputs, encoded.n_cut) == (alone.inputs, alone.n_cut)
        assert encoded.tokens.ids == tuple(encoded.inputs["input_ids"])
        assert encoded.tokens.texts == ((text,) if pair is None else (text, pair))
        assert max_length is None or len(encoded.tokens) <= max_length
        assert set(encoded.tokens.segments) == ({0} if pair is None else {0, 1})
    n_cut = [encoded.n_cut for encoded in together]
    assert n_cut == [0] * 4 if max_length is None else n_cut[2] > 0


def test_a_user_is_told_of_a_cut(tiny_bert: Model) -> None:
    with pytest.warns(TruncationWarning, match="has 15 tokens and the model takes 6: the last 9"):
        encoded = encode(tiny_bert.require_tokenizer(), TEXTS[2], max_length=6)
    assert encoded.n_cut == 9


def test_tensors_are_what_the_tokenizer_gives(model: Model) -> None:
    tokenizer = model.require_tokenizer()
    expected = tokenizer(TEXTS[0], return_tensors="pt")
    tensors = encode(tokenizer, TEXTS[0], max_length=None).tensors(tokenizer)
    assert set(tensors) == set(expected)
    assert all((tensors[name] == expected[name]).all() for name in expected)


def test_a_target_keeps_its_offsets(tiny_t5: Model) -> None:
    tokenizer = tiny_t5.require_tokenizer()
    (target,) = encode_texts(tokenizer, ["the cat sat"], max_length=None, as_target=True)
    shifted = shifted_target(target, 0, Speller(tokenizer))
    assert shifted.ids == (0, *target.tokens.ids[:-1])
    assert shifted.special == (True, *target.tokens.special[:-1])
    assert shifted.texts == ("the cat sat",)
    offsets = shifted.offsets
    assert offsets is not None
    assert offsets[0] == (0, 0)
    assert offsets[1:] == (target.tokens.offsets or ())[:-1]
    shifted = shifted.with_words()
    assert shifted.word_texts == ("the", "cat", "sat")
    words = [w for w, special in zip(shifted.words, shifted.special, strict=True) if not special]
    assert words == sorted(words)
    assert words[0] == 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    calls: list[int] = []
    original = module._tokens

    def spy(*arguments: object) -> object:
        calls.append(1)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_tokens", spy)
    yield calls
    monkeypatch.undo()


def test_traces_and_runs_take_the_same_way(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    document = make_documents(5)[3]
    target = document.text if "decoder" in model.info.blocks else None
    with counted(monkeypatch) as calls:
        trace = model.trace(document.text, target=target)
        in_trace = len(calls)
        (encoded,) = Encoder(model, Axes(), Settings()).encode([(0, document)])
        assert in_trace == len(calls) - in_trace == (1 if target is None else 2)
    found = {stack: tokens.with_words() for stack, tokens in encoded.stacks.items()}
    assert dict(trace.stack_tokens) == found


def test_both_stacks_of_a_trace_are_labeled_as_in_a_run(tiny_t5: Model) -> None:
    document = next(d for d in make_documents(20) if len(d) > 5)
    result = hs.analyze(tiny_t5, [document])
    trace = tiny_t5.trace(document.text, target=document.text)
    alone = trace.measure(document=document)
    for block in ("encoder", "decoder"):
        for name in ("pos_to", "dep_alignment", "distance", "null_share"):
            expected, found = result.block(block)[name], alone.block(block)[name]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert float(alone.block(block)["pos_to"].sum("tag").mean()) > 0


def test_a_target_of_its_own_has_no_labels(tiny_t5: Model) -> None:
    document = next(d for d in make_documents(20) if len(d) > 5)
    trace = tiny_t5.trace(document.text, target="a red dog")
    labeler = Labeler(Axes(tags=("NOUN",)), "universal")
    labels = {
        stack: labeler.sequences([document], [tokens])
        for stack, tokens in trace.stack_tokens.items()
    }
    assert labels["encoder"].is_tagged.all()
    assert (labels["encoder"].words >= 0).any()
    assert not labels["decoder"].is_tagged.any()
    assert (labels["decoder"].words == -1).all()
    other = Document("x", "a b", ("a", "b"), ((0, 1), (2, 3)), meta={"target": "the cat"})
    (encoded,) = Encoder(tiny_t5, Axes(), Settings()).encode([(0, other)])
    assert encoded.stacks["decoder"].texts == ("the cat",)


def test_a_python_tokenizer_has_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """What a tokenizer written in Python gives: lists, and neither offsets nor segments."""

        is_fast = False
        all_special_tokens = ("<s>",)
        model_input_names = ("input_ids",)

        def __call__(self, texts: list[str], pairs: list[str] | None = None, **options: object):  # type: ignore[no-untyped-def]
            assert options["return_offsets_mapping"] is False
            rows = [text.split() for text in texts]
            seconds = [[] for _ in texts] if pairs is None else [pair.split() for pair in pairs]
            return {
                "input_ids": [
                    [0, *range(1, len(a) + len(b) + 1)] for a, b in zip(rows, seconds, strict=True)
                ],
                "special_tokens_mask": [
                    [1] + [0] * (len(a) + len(b)) for a, b in zip(rows, seconds, strict=True)
                ],
                "token_type_ids": [
                    [0] * (len(a) + 1) + [1] * len(b) for a, b in zip(rows, seconds, strict=True)
                ],
            }

        def convert_ids_to_tokens(self, ids: list[int]) -> list[str | None]:
            return ["<s>" if token == 0 else None if token > 3 else f"t{token}" for token in ids]

    slow: PreTrainedTokenizerBase = Slow()  # type: ignore[assignment]
    one, two = encode_texts(slow, ["a b", "a b"], [None, "c d"], max_length=None)
    assert one.tokens.offsets is None
    assert one.tokens.with_words().words == (-1, 0, 1)
    assert two.tokens.segments == (0, 0, 0, 1, 1)
    assert two.tokens.tokens == ("<s>", "t1", "t2", "t3", "<4>")
    assert list(one.tensors(slow)) == ["input_ids", "token_type_ids"]
