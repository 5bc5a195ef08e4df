"""The demo corpus is gold: it passes a validator that knows nothing of our reader."""

from __future__ import annotations

from collections import Counter
from importlib import resources
from itertools import pairwise

import pytest

from headscope.text.document import mention_head
from headscope.text.readers.read import demo_corpus
from tests.text import ud

TEXT = (resources.files("headscope.text") / "demo.conllu").read_text(encoding="utf-8")
SENTENCES = list(ud.parse(TEXT))


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda s: s.id)
def test_sentence_is_valid(sentence: ud.Sentence) -> None:
    assert list(ud.problems(sentence)) == []


def documents() -> list[list[ud.Sentence]]:
    found: list[list[ud.Sentence]] = []
    for sentence in SENTENCES:
        if "newdoc id" in sentence.comments:
            found.append([])
        found[-1].append(sentence)
    return found


def test_coreference_is_balanced_and_consistent() -> None:
    for document in documents():
        assert list(ud.entity_problems(document)) == []


def test_ids_are_unique_and_in_order() -> None:
    for document in documents():
        name = document[0].comments["newdoc id"]
        assert [s.id for s in document] == [f"{name}-{i}" for i in range(1, len(document) + 1)]
        paragraphs = [s.comments["newpar id"] for s in document if "newpar id" in s.comments]
        assert paragraphs == [f"{name}-p{i}" for i in range(1, len(paragraphs) + 1)]
        assert "newpar id" in document[0].comments
        assert document[0].comments["meta::genre"] in {"encyclopedia", "howto", "dialogue"}
    assert SENTENCES[0].comments["global.Entity"] == "eid-etype-head"


def test_words_are_tagged_alike_everywhere() -> None:
    """The same form with the same Penn tag has one lemma."""
    lemmas: dict[tuple[str, str], set[str]] = {}
    for sentence in SENTENCES:
        for word in sentence.words:
            lemmas.setdefault((word.form.lower(), word.xpos), set()).add(word.lemma)
    assert {key: value for key, value in lemmas.items() if len(value) > 1} == {}


def test_it_is_what_the_docs_say() -> None:
    summary = demo_corpus("document").summary()
    assert (summary.documents, summary.sentences, summary.words) == (11, 88, 1529)
    assert (summary.mentions, summary.clusters) == (228, 83)
    assert demo_corpus() == demo_corpus("sentence")
    assert demo_corpus().summary().documents == 88
    assert demo_corpus("paragraph").summary().documents == 30
    relations = Counter(r for d in demo_corpus() for r in d.relations or ())
    assert len(relations) >= 38
    tags = Counter(t for d in demo_corpus() for t in d.upos or ())
    assert set(tags) == ud.UPOS - {"SYM", "X"}


def test_our_reader_agrees_with_the_validator() -> None:
    read = list(demo_corpus("sentence"))
    for document, sentence in zip(read, SENTENCES, strict=True):
        assert document.id == sentence.id
        assert document.text == sentence.comments["text"]
        assert document.words == tuple(word.form for word in sentence.words)
        assert document.parents == tuple(word.head - 1 for word in sentence.words)
        assert document.relations == tuple(word.relation for word in sentence.words)
        assert document.upos == tuple(word.upos for word in sentence.words)
        for (start, end), word in zip(document.spans, document.words, strict=True):
            assert document.text[start:end] == word
        for (_, end), (start, _) in pairwise(document.spans):
            assert document.text[end:start] in ("", " ")


def test_given_heads_of_mentions_are_those_of_the_tree() -> None:
    for document in demo_corpus():
        for mention in document.mentions:
            inside = set(mention.words())
            assert document.parents is not None
            top = [w for w in inside if document.parents[w] not in inside]
            assert [mention_head(document, mention)] == top


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\t3\tdet\t", "\t4\tdet\t", "cross|under|heads|det"),
        ("\tDET\tDT\t", "\tNOUN\tNN\t", "features"),
        ("\tnsubj\t", "\tsubj\t", "unknown relation"),
        ("\tADP\t", "\tPREP\t", "unknown tag"),
        ("|SpaceAfter=No", "", "words say"),
        ("\t4\tnsubj\t", "\t3\tnsubj\t", "never reaches the root"),
        ("\t4\tpunct\t", "\t0\troot\t", "roots"),
    ],
)
def test_the_validator_sees_what_is_wrong(old: str, new: str, problem: str) -> None:
    first = TEXT.split("\n\n")[0] + "\n\n"
    assert old in first
    (sentence,) = ud.parse(first.replace(old, new, 1))
    found = " / ".join(ud.problems(sentence))
    assert any(part in found for part in problem.split("|")), found


def test_the_validator_sees_brackets() -> None:
    first = TEXT.split("\n\n")[0] + "\n\n"
    for old, new, problem in [
        ("Entity=e1)", "Entity=e9)", "closes what is not open"),
        ("(e1-object-3", "(e1-object-2", "head of e1"),
        ("(e1-object-3", "(e1-Object-3", "cannot read"),
    ]:
        (sentence,) = ud.parse(first.replace(old, new, 1))
        assert problem in " / ".join(ud.entity_problems([sentence]))
