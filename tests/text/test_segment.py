from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.text.document import Document
from headscope.text.readers.read import demo_corpus, read
from headscope.text.segments import segments, shorten
from headscope.text.splitting import split_words


def characters(text: str) -> list[tuple[int, int]]:
    """A tokenizer with a token per character that is no space."""
    return [(i, i + 1) for i, c in enumerate(text) if not c.isspace()]


def one(text: str) -> Document:
    (document,) = read([text])
    return document


def test_shorten_cuts_after_the_last_word_that_fits() -> None:
    document = one("ab cde f gh")
    assert shorten(document, characters, 8) is document
    assert shorten(document, characters, 7).text == "ab cde f"
    assert shorten(document, characters, 5).text == "ab cde"
    assert shorten(document, characters, 4).text == "ab"
    assert shorten(document, characters, 4, special=2).text == "ab"
    assert shorten(document, characters, 1).text == ""
    with pytest.raises(InputError, match="max_tokens=2 leaves no room beside 2 special tokens"):
        shorten(document, characters, 2, special=2)


def test_tokens_outside_words_count_too() -> None:
    # A token for every character, spaces included: "ab cd" is five tokens.
    every = lambda text: [(i, i + 1) for i in range(len(text))]  # noqa: E731
    document = one("ab cd ef")
    assert shorten(document, every, 6).text == "ab cd"
    assert shorten(document, every, 5).text == "ab"  # the space after cd would be a sixth


def test_two_spans_of_whole_sentences() -> None:
    document = one("Aaa. Bb. Cccc. Dd. Eeeeeee.")
    found = [(s.id, s.first.text, s.second.text) for s in segments([document], split_words, 11)]
    # Room for eight tokens: four sentences of two; then one alone, split in the middle.
    assert found == [
        ("list-0-s1", "Aaa. Bb.", "Cccc. Dd."),
        ("list-0-s2", "Eeeeeee", "."),
    ]


def test_halves_are_as_equal_as_sentences_allow() -> None:
    document = one("A b c d e f. G. H.")
    (segment,) = segments([document], split_words, 30)
    assert (segment.first.text, segment.second.text) == ("A b c d e f.", "G. H.")


def test_long_sentences_are_cut() -> None:
    document = one("a b c d e f g")
    found = [(s.first.text, s.second.text) for s in segments([document], split_words, 7)]
    assert found == [("a b", "c d"), ("e", "f g")]
    assert list(segments([one("abcdefgh")], characters, 7)) == []
    assert list(segments([one("")], characters, 7)) == []


def test_documents_are_not_mixed_but_paragraphs_of_one_are() -> None:
    two = [one("A b."), one("C d.")]
    assert len(list(segments(two, split_words, 20))) == 2
    corpus = read(["A b.\n\nC d."], unit="sentence")
    (segment,) = segments(corpus, split_words, 20)
    assert (segment.first.text, segment.second.text) == ("A b.", "C d.")


def test_annotations_come_along() -> None:
    corpus = demo_corpus("document")
    taken = list(segments(corpus, split_words, 128))
    assert sum(len(s.first) + len(s.second) for s in taken) == 1529
    for segment in taken:
        for half in (segment.first, segment.second):
            assert half.parents is not None
            assert half.sentences
            assert half.part_of is not None
            assert half.meta["genre"]
            assert [half.text[a:b] for a, b in half.spans] == list(half.words)
        assert segment.first.part_of == segment.second.part_of
    mentions = sum(len(s.first.mentions) + len(s.second.mentions) for s in taken)
    assert 220 < mentions <= 228  # less those that a cut goes through


def test_no_room_for_two() -> None:
    with pytest.raises(InputError, match="max_tokens=4 leaves no room for two spans"):
        list(segments([one("a b")], split_words, 4))


@settings(deadline=None)
@given(
    st.lists(st.text("ab .!?\n", max_size=40), max_size=4),
    st.integers(5, 20),
)
def test_every_segment_fits_and_nothing_comes_twice(texts: list[str], room: int) -> None:
    documents = list(read(texts))
    for segment in segments(documents, split_words, room):
        n = len(split_words(segment.first.text)) + len(split_words(segment.second.text))
        assert 2 <= n <= room - 3
    for document in documents:
        words: list[str] = []
        made = 0
        for segment in segments([document], split_words, room):
            words += segment.first.words + segment.second.words
            made += 1
        # In order; what is missing are single words that nothing fits beside.
        rest = iter(document.words)
        assert all(word in rest for word in words)
        assert len(document.words) - len(words) <= made + 1
