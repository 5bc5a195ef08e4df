from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.text.document import NO_PARENT, ROOT, Document, Mention, check_tree, mention_head
from headscope.text.readers.records import document_from_dict

#       0123456789012345678901234
TEXT = "She saw the old cat. It ran."
DOCUMENT = Document(
    id="d",
    text=TEXT,
    words=("She", "saw", "the", "old", "cat", ".", "It", "ran", "."),
    spans=((0, 3), (4, 7), (8, 11), (12, 15), (16, 19), (19, 20), (21, 23), (24, 27), (27, 28)),
    sentences=((0, 6), (6, 9)),
    paragraphs=((0, 9),),
    upos=("PRON", "VERB", "DET", "ADJ", "NOUN", "PUNCT", "PRON", "VERB", "PUNCT"),
    parents=(1, ROOT, 4, 4, 1, 1, 7, ROOT, 7),
    relations=("nsubj", "root", "det", "amod", "obj", "punct", "nsubj", "root", "punct"),
    mentions=(Mention("a", ((0, 1),)), Mention("b", ((2, 5),), "animal"), Mention("b", ((6, 7),))),
    meta={"genre": "fiction"},
)


def test_cut_keeps_what_lies_inside() -> None:
    piece = DOCUMENT.cut(2, 7, "piece")
    assert piece.id == "piece"
    assert piece.text == "the old cat. It"
    assert [piece.text[a:b] for a, b in piece.spans] == list(piece.words)
    assert piece.sentences == ((0, 4), (4, 5))
    assert piece.parents == (2, 2, NO_PARENT, NO_PARENT, NO_PARENT)
    assert piece.mentions == (Mention("b", ((0, 3),), "animal"), Mention("b", ((4, 5),)))
    assert piece.meta == {"genre": "fiction"}
    assert DOCUMENT.cut(0, 9) == DOCUMENT
    assert len(DOCUMENT.cut(3, 3)) == 0
    with pytest.raises(InputError, match="Cannot cut words 3–10 from document 'd', which has 9"):
        DOCUMENT.cut(3, 10)


def test_split() -> None:
    first, second = DOCUMENT.split("sentence")
    assert (first.id, first.text, first.part_of) == ("d-1", "She saw the old cat.", "d")
    assert (second.id, second.parents) == ("d-2", (1, ROOT, 1))
    assert list(DOCUMENT.split("document")) == [DOCUMENT]
    (paragraph,) = DOCUMENT.split("paragraph")
    assert (paragraph.id, paragraph.part_of) == ("d-p1", "d")
    assert next(replace(DOCUMENT, paragraphs=()).split("paragraph")).id == "d"


def test_unknown_sentences_are_guessed() -> None:
    raw = replace(DOCUMENT, sentences=(), parents=None)
    assert [part.text for part in raw.split("sentence")] == ["She saw the old cat.", "It ran."]
    assert list(Document("x", "", (), ()).split("sentence")) == []


def test_clusters() -> None:
    assert {name: len(mentions) for name, mentions in DOCUMENT.clusters().items()} == {
        "a": 1,
        "b": 2,
    }


def test_documents_are_plain() -> None:
    copy = pickle.loads(pickle.dumps(DOCUMENT))
    assert copy == DOCUMENT
    assert hash(copy) == hash(DOCUMENT)
    assert copy.digest() == DOCUMENT.digest()
    with pytest.raises(FrozenInstanceError):
        DOCUMENT.text = "other"  # type: ignore[misc]
    assert DOCUMENT.digest() != replace(DOCUMENT, meta={}).digest()


def test_a_dict_and_back() -> None:
    assert document_from_dict(json.loads(json.dumps(DOCUMENT.to_dict()))) == DOCUMENT
    empty = Document("e", "", (), ())
    assert document_from_dict(empty.to_dict() | {"text": ""}) == empty


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": DOCUMENT.words[:3]}, "has 3 words, but 9 spans"),
        ({"upos": ("X",)}, "has 9 words, but 1 upos"),
        ({"parents": (1,)}, "has 9 words, but 1 parents"),
        (
            {"spans": (*DOCUMENT.spans[:-1], (27, 99))},
            r"Word 8 of document 'd', '.', is at \(27, 99\): expected characters .*length 28",
        ),
        ({"spans": ((4, 7), (0, 3), *DOCUMENT.spans[2:])}, r"Word 1 .* at \(0, 3\)"),
        ({"sentences": ((0, 5), (6, 9))}, "sentences of document 'd' leave a gap or overlap at"),
        ({"sentences": ((0, 6), (6, 8))}, "leave a gap or overlap at word 8"),
        ({"sentences": ((0, 6), (6, 6), (6, 9))}, "has an empty sentence"),
        ({"paragraphs": ((1, 9),)}, "paragraphs of document 'd' leave a gap"),
        (
            {"parents": (1, ROOT, 4, 4, 1, 1, 7, ROOT, 0)},
            "Sentence 1 of document 'd': the parent of",
        ),
        (
            {"parents": (1, ROOT, 4, 4, 1, 1, 7, ROOT, ROOT)},
            "Sentence 1 of document 'd' has 2",
        ),
        ({"sentences": ()}, "has parents but no sentences"),
        ({"mentions": (Mention("a", ((8, 12),)),)}, r"a mention of cluster 'a' at \(\(8, 12\),\)"),
        ({"text": "\ud800" * 30}, "half a surrogate pair in its text, at character 0"),
    ],
)
def test_wrong_documents_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(DOCUMENT, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spans", "head"), [((), None), (((2, 2),), None), (((3, 4), (1, 2)), None), (((1, 2),), 2)]
)
def test_wrong_mentions_are_refused(spans: tuple[tuple[int, int], ...], head: int | None) -> None:
    with pytest.raises(InputError, match="Ranges must be in order and not empty"):
        Mention("a", spans, head_word=head)


def test_head_of_a_mention_given_by_tree_or_by_rule() -> None:
    given_ = Mention("b", ((2, 5),), head_word=3)
    assert mention_head(DOCUMENT, given_) == 3
    assert mention_head(DOCUMENT, Mention("b", ((2, 5),))) == 4
    # Two words with heads outside: the one highest in the tree, punctuation last.
    assert mention_head(DOCUMENT, Mention("b", ((4, 6),))) == 4
    assert mention_head(DOCUMENT, Mention("b", ((0, 2),))) == 1


@pytest.mark.parametrize(
    ("phrase", "head"),
    [
        ("the designer", "designer"),
        ("the designer of the bridge", "designer"),
        ("Ada Lovelace , who wrote it", "Lovelace"),
        ("the mechanic 's", "mechanic"),
        ("she", "she"),
        ("all that", "all"),
    ],
)
def test_head_of_a_mention_without_a_tree(phrase: str, head: str) -> None:
    document = document_from_dict({"words": phrase.split()})
    mention = Mention("a", ((0, len(document)),))
    assert document.words[mention_head(document, mention)] == head


def is_tree(heads: list[int]) -> bool:
    """From the definition: one root, and every word reaches it in at most n steps."""
    n = len(heads)
    if heads.count(ROOT) != 1:
        return False
    for at in range(n):
        for _ in range(n):
            if at == ROOT:
                break
            if not 0 <= heads[at] < n and heads[at] != ROOT:
                return False
            at = heads[at]
        if at != ROOT:
            return False
    return True


@settings(deadline=None)
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=6))
def test_trees_are_told_from_others(heads: list[int]) -> None:
    shifted = [99, 99, *(head + 2 if head >= 0 else head for head in heads), 99]
    try:
        check_tree(shifted, 2, 2 + len(heads), "x")
    except InputError:
        assert not is_tree(heads)
    else:
        assert is_tree(heads)


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9))
def test_any_cut_is_a_document(a: int, b: int) -> None:
    start, stop = sorted((a, b))
    piece = DOCUMENT.cut(start, stop)
    assert piece.words == DOCUMENT.words[start:stop]
    assert [piece.text[x:y] for x, y in piece.spans] == list(piece.words)
    for part in piece.split("sentence"):
        assert part.text in DOCUMENT.text


def test_words_make_a_text_with_spans() -> None:
    document = Document.from_words(
        ["Dogs", "bark", "."],
        "d1",
        upos=["NOUN", "VERB", "PUNCT"],
        parents=[1, -1, 1],
        relations=["nsubj", "root", "punct"],
        meta={"genre": "news"},
    )
    assert document.text == "Dogs bark ."
    assert [document.text[start:stop] for start, stop in document.spans] == ["Dogs", "bark", "."]
    assert document.sentences == ((0, 3),)
    assert document.upos == ("NOUN", "VERB", "PUNCT")
    assert pickle.loads(pickle.dumps(document)) == document
    two = Document.from_words(["A", "b", "C"], sentences=[(0, 2), (2, 3)])
    assert [sentence.text for sentence in two.split("sentence")] == ["A b", "C"]
    assert Document.from_words([]).text == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("Dogs bark", "words should be a list of words"),
        (["Dogs", ""], "Word 1 of document 'document' is ''"),
        (["Dogs ", "bark"], "Word 0 of document 'document' is 'Dogs '"),
        (["Dogs", 3], "Word 1 of document 'document' is 3. Expected a text"),
    ],
)
def test_words_that_are_not_words_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Document.from_words(words)
