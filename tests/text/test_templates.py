"""Near-copies are recognized, and unrelated sentences are not taken for copies."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError
from headscope.text.pairs import describe_templates, find_templates, number_templates

NAMES = (("Mary", "John"), ("Anna", "Tom"), ("Sarah", "Paul"))
RECEIVES = (
    "When {a} and {b} went to the store, {b} gave a drink to",
    "After {a} and {b} finished dinner, {b} handed the bill to",
    "{a} was sick, so {b} brought some soup to",
)


def test_names_places_and_things_may_differ() -> None:
    texts = [
        "When Mary and John went to the store, John gave a drink to",
        "When Anna and Tom went to the store, Tom gave a drink to",
        "When John and Mary went to the store, John gave a drink to",
        "When Anna and Tom went to the park, Tom gave a book to",
    ]
    assert find_templates(texts).tolist() == [0, 0, 0, 0]


def test_sentences_of_one_construction_are_templates_of_their_own() -> None:
    texts = [form.format(a=a, b=b) for form in RECEIVES for a, b in NAMES]
    assert find_templates(texts).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_near_copies_of_near_copies_and_equal_texts_are_one() -> None:
    first, second, third = "a b c d e", "a b c x y", "a u v x y"
    assert find_templates([first, third, second, first]).tolist() == [0, 0, 0, 0]
    assert find_templates([first, third]).tolist() == [0, 1]
    assert find_templates(["", "", "one"]).tolist() == [0, 0, 1]


def test_short_sentences_are_not_joined_by_articles_and_conjunctions() -> None:
    texts = [
        "The chief encouraged the writer because",
        "The developer corrected the secretary because",
        "The farmer fed the tailor because",
    ]
    assert find_templates(texts).tolist() == [0, 1, 2]
    hired = [
        f"The {a} hired the {b} because" for a, b in (("mechanic", "nurse"), ("cook", "clerk"))
    ]
    assert find_templates(hired).tolist() == [0, 0]


def test_order_counts_not_only_words() -> None:
    assert find_templates(["one two three four five six", "six five four three two one"]).max() == 1


def test_prose_is_not_grouped() -> None:
    texts = [document.text for document in hs.demo_corpus("sentence")]
    long = [text for text in texts if len(text.split()) >= 8]
    numbers = find_templates(long)
    assert len(long) > 80
    assert numbers.max() + 1 >= 0.98 * len(long)


def test_labels_are_taken_as_they_are() -> None:
    assert number_templates(["x", "y", "z"], ["b", "a", "b"]).tolist() == [0, 1, 0]
    with pytest.raises(InputError, match="needs a label for each of 2 texts"):
        number_templates(["x", "y"], "ab")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([0, 0], "one template: the interval speaks of these names in this sentence, not of the"),
        ([0, 1, 1], "3 texts of 2 templates, fewer than 5: the interval speaks of these names in"),
        ([0, 1, 2], "3 templates of one text each: the interval is over templates, which are few"),
        ([0, 0, 1, 2, 3, 4], "6 texts of 5 templates: the interval is over templates"),
        ([0, 1, 2, 3, 4], "5 templates of one text each: the interval is over templates"),
    ],
)
def test_words_say_what_an_interval_speaks_of(numbers: list[int], said: str) -> None:
    assert describe_templates(np.array(numbers)).startswith(said)
