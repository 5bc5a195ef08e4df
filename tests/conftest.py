"""What several tests share: tiny models with tokenizers, the packaged models, real data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from headscope.model.model import Model
    from headscope.results.result import Result


def pytest_configure(config: pytest.Config) -> None:
    """Worker processes share the cores: one thread each."""
    if hasattr(config, "workerinput"):
        os.environ["OMP_NUM_THREADS"] = "1"
    # Shared machines are slow at times; speed is not what properties are about.
    settings.register_profile("headscope", deadline=None)
    settings.load_profile("headscope")


WORDS = """
the cat sat on mat lay rug doctor asked nurse question she he said that it was fine
dog ran under table a an of to in and red blue house tree un ##bel ##iev ##able . , ! ?
""".split()  # noqa: SIM905


def word_piece_tokenizer() -> PreTrainedTokenizerFast:
    """A BERT-like tokenizer over a few words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: i for i, token in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A GPT-2-like tokenizer: every byte is a token, and a few merges."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from headscope.model.encode import byte_alphabet

    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("c", "a"), ("ca", "t"), ("Ġ", "cat")]
    tokens = ["<pad>", "<end>", *sorted(byte_alphabet()), *(a + b for a, b in merges)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", model_max_length=64
    )


@pytest.fixture(scope="session")
def tiny_bert() -> Model:
    """A masked-language BERT with seeded weights."""
    import headscope as hs
    from tests.families.zoo import ENCODERS, build

    return hs.load(build(next(f for f in ENCODERS if f.name == "bert")), word_piece_tokenizer())


@pytest.fixture(scope="session")
def tiny_llama() -> Model:
    """A causal Llama with grouped queries and seeded weights."""
    import headscope as hs
    from tests.families.zoo import DECODERS, build

    member = next(f for f in DECODERS if f.name == "llama")
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    larger = replace(member, settings={**member.settings, "vocab_size": 300, **special})
    return hs.load(build(larger), byte_tokenizer())


@pytest.fixture(scope="session")
def tiny_t5() -> Model:
    """An encoder-decoder with relative position biases and seeded weights."""
    import headscope as hs
    from tests.families.zoo import ENCODER_DECODERS, build

    return hs.load(
        build(next(f for f in ENCODER_DECODERS if f.name == "t5")), word_piece_tokenizer()
    )


MAP_METRICS = ["js", "offset_share", "class_share", "row_entropy", "uniform_entropy"]


@pytest.fixture(scope="session")
def encoder_results(tiny_bert: Model) -> list[Result]:
    """An analysis by genre, divergences, a probe and gradients of one encoder."""
    import headscope as hs
    from tests.run.corpora import make_corpus

    corpus = make_corpus(40)
    return [
        hs.analyze(tiny_bert, corpus, by="genre"),
        hs.analyze(tiny_bert, corpus, MAP_METRICS),
        hs.probe_dependencies(tiny_bert, corpus, min_cases=5),
        hs.importance(tiny_bert, corpus),
    ]


@pytest.fixture(scope="session")
def decoder_result(tiny_llama: Model) -> Result:
    """An analysis of a causal model over the same documents."""
    import headscope as hs
    from tests.run.corpora import make_corpus

    return hs.analyze(tiny_llama, make_corpus(40))


def _packaged(alias: str) -> Model:
    import headscope as hs
    from headscope.model.packaged.pinned import PACKAGED

    packaged = PACKAGED[alias]
    if not packaged.is_installed():
        pytest.skip(f"the packaged model {alias} is not installed ({packaged.command})")
    return hs.load(alias)


@pytest.fixture(scope="session")
def minilm() -> Model:
    """The packaged encoder."""
    return _packaged("minilm")


@pytest.fixture(scope="session")
def smollm2() -> Model:
    """The packaged decoder."""
    return _packaged("smollm2")


@pytest.fixture(scope="session")
def whisper() -> Model:
    """The packaged model of speech."""
    return _packaged("whisper")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real treebanks and coreference data, where there are any."""
    folder = os.environ.get("HEADSCOPE_DATA")
    if not folder:
        pytest.skip("HEADSCOPE_DATA is not set: no real data to test on")
    return Path(folder)
