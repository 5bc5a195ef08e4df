"""Traces of text: tokens, words, generated continuations, encoder-decoders, bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, PreTrainedTokenizerFast

import headscope as hs
from headscope.errors import InputError, MissingObjective, TruncationWarning
from headscope.model.model import Model
from tests.conftest import byte_tokenizer, word_piece_tokenizer
from tests.families.reference import reference_maps
from tests.families.zoo import SUPPORTED, build


def test_a_pair_has_segments_words_and_special_tokens(tiny_bert: Model) -> None:
    trace = tiny_bert.trace("The unbelievable cat", pair="a dog.")
    text = trace.text
    assert trace.tokens == (
        "[CLS]", "the", "un", "##bel", "##iev", "##able", "cat", "[SEP]", "a", "dog", ".", "[SEP]",
    )  # fmt: skip
    assert text.texts == ("The unbelievable cat", "a dog.")
    assert text.segments == (0,) * 8 + (1,) * 4
    assert [i for i, special in enumerate(text.special) if special] == [0, 7, 11]
    assert text.words == (-1, 0, 1, 1, 1, 1, 2, -1, 3, 4, 5, -1)
    assert text.word_texts == ("The", "unbelievable", "cat", "a", "dog", ".")
    assert text.offsets is not None
    assert [text.texts[0][a:b] for a, b in text.offsets[1:7]] == [
        "The", "un", "bel", "iev", "able", "cat",
    ]  # fmt: skip


def test_every_array_has_its_axes(tiny_llama: Model) -> None:
    trace = tiny_llama.trace("the cat")
    n = len(trace.tokens)
    assert trace.tokens == ("the", " cat")
    shapes = {
        "attention": {"layer": 2, "head": 4, "query": n, "key": n},
        "queries": {"layer": 2, "head": 4, "query": n, "neuron": 8},
        "keys": {"layer": 2, "group": 2, "key": n, "neuron": 8},
        "values": {"layer": 2, "group": 2, "key": n, "value_neuron": 8},
        "outputs": {"layer": 2, "head": 4, "query": n, "value_neuron": 8},
        "hidden": {"state": 3, "query": n, "unit": 32},
    }
    for name, sizes in shapes.items():
        assert dict(getattr(trace, name).sizes) == sizes
    assert trace.main.data["group_of_head"].values.tolist() == [0, 0, 1, 1]
    assert trace.main.is_causal
    assert trace.layers == (0, 1)


@pytest.mark.parametrize("name", ["bert", "llama", "bloom", "gemma2", "t5"])
def test_scores_are_what_the_softmax_was_taken_of(name: str) -> None:
    """Recorded where the family adds something to q·k, recomputed from q and k elsewhere."""
    model = hs.load(build(next(m for m in SUPPORTED if m.name == name)), word_piece_tokenizer())
    trace = model.trace("the cat sat.", target="a dog." if name == "t5" else None)
    assert ("scores" in trace.main.data) == (name in ("bloom", "gemma2", "t5"))
    scores = trace.main.scores.transpose("layer", "head", "query", "key").values
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, trace.attention.values, atol=1e-5)


def test_outputs_are_attention_times_values(tiny_llama: Model) -> None:
    main = tiny_llama.trace("the cat sat on").main
    values = main.values.isel(group=main.data["group_of_head"])
    expected = (main.attention * values).sum("key").transpose(*main.outputs.dims)
    np.testing.assert_allclose(main.outputs.values, expected.values, atol=1e-5)


def test_hidden_states_are_the_models_own(tiny_bert: Model) -> None:
    trace = tiny_bert.trace("the cat sat")
    ids = torch.tensor([trace.text.ids])
    with torch.no_grad():
        states = tiny_bert.module(ids, output_hidden_states=True).hidden_states
    for ours, theirs in zip(trace.hidden.values, states, strict=True):
        np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1e-5)


def test_without_vectors(tiny_bert: Model) -> None:
    trace = tiny_bert.trace("the cat", vectors=False)
    assert set(trace.main.data.data_vars) == {"attention", "scale"}
    with pytest.raises(InputError, match="no queries: it was made without vectors"):
        trace.queries  # noqa: B018
    with pytest.raises(InputError, match="no hidden states"):
        trace.hidden  # noqa: B018


def test_several_texts_give_several_traces(tiny_bert: Model) -> None:
    texts = ["the cat sat", "a dog"]
    traces = tiny_bert.trace(texts, pair=["the mat", "the house"])
    assert [t.text.texts for t in traces] == [("the cat sat", "the mat"), ("a dog", "the house")]
    alone = tiny_bert.trace("a dog", pair="the house")
    np.testing.assert_array_equal(traces[1].attention.values, alone.attention.values)
    with pytest.raises(InputError, match="2 texts need a list of 2 for pair"):
        tiny_bert.trace(texts, pair=["one"])
    assert tiny_bert.trace([]) == []


def test_texts_without_a_separator_are_kept_apart(tiny_llama: Model) -> None:
    trace = tiny_llama.trace("the cat", pair="the cat")
    assert trace.tokens == ("the", " cat", " the", " cat")
    assert trace.text.segments == (0, 0, 1, 1)
    assert trace.text.words == (0, 1, 2, 3)


def test_generated_tokens_are_traced_and_marked(tiny_llama: Model) -> None:
    trace = tiny_llama.trace("the cat", generate=5)
    n = len(trace.tokens)
    assert 3 <= n <= 7
    assert trace.text.generated == (False,) * 2 + (True,) * (n - 2)
    assert trace.text.texts[0].startswith("the cat")
    ids = torch.tensor([trace.text.ids])
    expected, _ = reference_maps(tiny_llama.module, {"input_ids": ids})
    np.testing.assert_array_equal(trace.attention.values[1], expected["self"][1][0].numpy())
    with torch.no_grad():
        logits = tiny_llama.module(ids).logits[0]
    assert logits[1:-1].argmax(-1).tolist() == list(trace.text.ids[2:])


def test_a_generated_piece_may_continue_the_last_word(smollm2: Model) -> None:
    trace = smollm2.trace("The largest city of Germany is Berl", generate=3)
    word = trace.text.words[-4]
    assert trace.text.word_texts[word].startswith("Berl")
    assert trace.text.generated[-3:] == (True,) * 3


def test_encoder_decoders_have_three_blocks(tiny_t5: Model) -> None:
    trace = tiny_t5.trace("the cat sat.", target="a red dog")
    assert list(trace.blocks) == ["encoder", "decoder", "cross"]
    assert trace.tokens == ("[CLS]", "the", "cat", "sat", ".", "[SEP]")
    assert trace.decoder.query_tokens.tokens == ("[PAD]", "[CLS]", "a", "red", "dog")
    cross = trace.cross
    assert dict(cross.attention.sizes) == {"layer": 2, "head": 4, "query": 5, "key": 6}
    assert cross.query_tokens is trace.decoder.query_tokens
    assert cross.key_tokens is trace.text
    assert (trace.encoder.is_causal, trace.decoder.is_causal) == (False, True)
    assert set(trace.stack_hidden) == {"encoder", "decoder"}
    inputs = {
        "input_ids": torch.tensor([trace.text.ids]),
        "decoder_input_ids": torch.tensor([trace.decoder.query_tokens.ids]),
    }
    expected, _ = reference_maps(tiny_t5.module, inputs)
    for name, block in trace.blocks.items():
        for ours, theirs in zip(block.attention.values, expected[name], strict=True):
            np.testing.assert_array_equal(ours, theirs[0].numpy())


def test_encoder_decoders_write_their_own_target(tiny_t5: Model) -> None:
    trace = tiny_t5.trace("the cat sat.", generate=4)
    tokens = trace.decoder.query_tokens
    assert tokens.generated == (False,) + (True,) * (len(tokens) - 1)
    with pytest.raises(InputError, match="target='…', or let it write with generate=n"):
        tiny_t5.trace("the cat sat.")
    with pytest.raises(InputError, match="either target"):
        tiny_t5.trace("the cat", target="a dog", generate=2)


def test_models_that_read_no_text() -> None:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == "vit")))
    trace = model.trace({"pixel_values": torch.randn(1, 3, 16, 16)})
    assert trace.tokens == tuple(str(i) for i in range(17))
    assert trace.attention.shape == (2, 4, 17, 17)
    with pytest.raises(InputError, match="looks at images and reads no text"):
        model.trace("text")
    reader = hs.load(build(next(m for m in SUPPORTED if m.name == "bert")))
    with pytest.raises(InputError, match="has no tokenizer"):
        reader.trace("text")
    with pytest.raises(InputError, match="should be 1"):
        model.trace({"pixel_values": torch.randn(2, 3, 16, 16)})


def test_prepared_ids_are_shown_as_tokens(tiny_bert: Model) -> None:
    trace = tiny_bert.trace({"input_ids": torch.tensor([[2, 5, 6, 3]])})
    assert trace.tokens == ("[CLS]", "the", "cat", "[SEP]")
    assert trace.text.special == (True, False, False, True)
    assert trace.text.word_texts == ("the", "cat")


def test_too_long_is_cut_with_one_warning(tiny_bert: Model) -> None:
    with pytest.warns(TruncationWarning) as caught:
        trace = tiny_bert.trace("the cat " * 50)
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "The text has 102 tokens and the model takes 64: the last 38 were cut."
    )
    assert caught[0].filename == __file__
    assert len(trace.tokens) == 64
    assert trace.tokens[-1] == "[SEP]"
    assert trace.provenance["n_cut"] == 38
    with pytest.raises(InputError, match="102 tokens; the model takes 64"):
        tiny_bert.trace("the cat " * 50, truncate=False)


def test_room_is_left_for_what_is_generated(tiny_llama: Model) -> None:
    with pytest.warns(TruncationWarning, match="the model takes 54"):
        trace = tiny_llama.trace("the cat " * 50, generate=10)
    assert len(trace.tokens) <= 64
    with pytest.raises(InputError, match="generate=64 leaves no room"):
        tiny_llama.trace("the", generate=64)


def test_length_limits_count_the_padding_offset() -> None:
    """RoBERTa's 64 positions start after its padding index 1."""
    model = hs.load(
        build(next(m for m in SUPPORTED if m.name == "roberta")), word_piece_tokenizer()
    )
    assert model.info.max_length == 62
    with pytest.warns(TruncationWarning, match="takes 62"):
        model.trace("the cat " * 50)


BAD_TEXT = [
    ("", "text is empty"),
    (" \n\t", "text is empty"),
    (None, "There is nothing to trace: give a text"),
    (7, "should be a string, not int"),
    (b"bytes", "should be a string, not bytes"),
    ("\ud800", "lone surrogate"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXT)
def test_what_is_no_text_is_refused(tiny_bert: Model, text: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny_bert.trace(text)  # type: ignore[call-overload]
    if text is not None:
        with pytest.raises(InputError, match=message.replace("text is", "pair is")):
            tiny_bert.trace("the cat", pair=text)  # type: ignore[call-overload]


def test_text_of_special_tokens_alone_is_refused(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match="gives no token of its own"):
        tiny_bert.trace("\u200b")


@pytest.mark.parametrize("generate", [-1, 2.5, "3"])
def test_generate_is_a_number_of_tokens(tiny_llama: Model, generate: object) -> None:
    with pytest.raises(InputError, match="generate should be a number of tokens"):
        tiny_llama.trace("the cat", generate=generate)  # type: ignore[call-overload]


def test_what_has_no_head_cannot_generate(minilm: Model, tiny_bert: Model) -> None:
    with pytest.raises(MissingObjective, match="Generating needs a model that predicts"):
        minilm.trace("the cat", generate=3)
    with pytest.raises(InputError, match="BertForMaskedLM cannot generate text"):
        tiny_bert.trace("the cat", generate=3)


def test_no_target_without_a_decoder(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match="takes no target"):
        tiny_bert.trace("the cat", target="a dog")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "naïve café",
        "שלום עולם",
        "🐈‍⬛ 👩‍👩‍👧",
        "a\u0301 e\u0302",
        "a\nb\r\nc\x00d",
        "x" * 60,
    ],
)
def test_odd_texts_come_back_character_by_character(text: str) -> None:
    model = hs.load(build(next(m for m in SUPPORTED if m.name == "gpt2")), byte_tokenizer())
    model.module.resize_token_embeddings(300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        trace = model.trace(text)
    offsets = trace.text.offsets
    assert offsets is not None
    covered = {i for a, b in offsets for i in range(a, b)}
    last = max(covered)
    assert covered >= {i for i, c in enumerate(text[: last + 1]) if not c.isspace()}
    for token, (a, b) in zip(trace.tokens, offsets, strict=True):
        assert token == text[a:b] or token.startswith("<0x")


def test_gradients_with_each_objective(tiny_bert: Model, tiny_llama: Model, tiny_t5: Model) -> None:
    causal = tiny_llama.gradients("the cat sat")
    n = len(causal.tokens)
    assert causal.predicted == tuple(range(1, n))
    assert causal.attention.shape == (2, 4, n, n)
    with torch.no_grad():
        ids = torch.tensor([next(iter(causal.stack_tokens.values())).ids])
        expected = float(tiny_llama.module(ids, labels=ids).loss)
    assert causal.loss == pytest.approx(expected, rel=1e-5)

    text = "the cat sat on the mat and the dog ran under the red table."
    masked = tiny_bert.gradients(text, seed=1)
    assert [masked.tokens[i] for i in masked.predicted] == ["[MASK]"] * 2  # 15 % of 14
    assert masked.predicted == tiny_bert.gradients(text, seed=1).predicted
    assert any(masked.predicted != tiny_bert.gradients(text, seed=s).predicted for s in (2, 3, 4))
    ids = torch.tensor([masked.stack_tokens["self"].ids])
    original = torch.tensor([tiny_bert.trace(text).text.ids])
    labels = torch.where(ids == original, -100, original)
    with torch.no_grad():
        expected = float(tiny_bert.module(ids, labels=labels).loss)
    assert masked.loss == pytest.approx(expected, rel=1e-5)

    both = tiny_t5.gradients("the cat sat", target="a red dog")
    assert set(both.blocks) == {"encoder", "decoder", "cross"}
    assert both.about["objective"] == "seq2seq"
    with pytest.raises(InputError, match="One token has no next token"):
        tiny_llama.gradients("the")


def test_only_some_layers_are_kept(tiny_bert: Model) -> None:
    whole = tiny_bert.trace("the cat")
    one = tiny_bert.trace("the cat", layers=[1])
    assert one.layers == (1,)
    np.testing.assert_array_equal(one.attention.values[0], whole.attention.values[1])
    np.testing.assert_array_equal(one.queries.values[0], whole.queries.values[1])
    for layers in ([], [2], [-1]):
        with pytest.raises(InputError, match="has attention in layers 0 to 1"):
            tiny_bert.trace("the cat", layers=layers)


def test_what_would_not_fit_in_memory_is_refused(
    tiny_bert: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 tokens in 2 layers of 4 heads: 64² · 8 · 4 bytes, twice while stacking."""
    text = "the cat " * 31
    monkeypatch.setattr("headscope.model.tracing._free_memory", lambda: 64**2 * 8 * 4 * 2 - 1)
    with pytest.raises(InputError, match="A trace of 64 tokens in 2 layers would take"):
        tiny_bert.trace(text)
    assert tiny_bert.trace(text, layers=[0]).layers == (0,)


def with_kinds() -> PreTrainedTokenizerFast:
    """A tokenizer that numbers the texts of a pair, as most do, wanted or not."""
    tokenizer = word_piece_tokenizer()
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


def test_what_is_generated_is_traced_with_the_kinds_of_its_tokens() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.5,
        is_decoder=True,
    )
    model = hs.load(BertLMHeadModel(config), with_kinds())
    prompt = model.trace("the cat sat", pair="on the mat")
    longer = model.trace("the cat sat", pair="on the mat", generate=3)
    n = len(prompt.tokens)
    np.testing.assert_allclose(longer.attention[:, :, :n, :n], prompt.attention, atol=1e-6)
    assert longer.text.segments[n:] == (1, 1, 1)


@pytest.mark.parametrize("family", ["llama", "bloom", "bart"])
def test_models_that_know_no_kinds_of_tokens_generate_all_the_same(family: str) -> None:
    module = build(next(member for member in SUPPORTED if member.name == family))
    trace = hs.load(module, with_kinds()).trace("the cat", pair="the mat", generate=2)
    assert any(any(tokens.generated) for tokens in trace.stack_tokens.values())
