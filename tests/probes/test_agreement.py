"""Number, gender and person of English mentions."""

from __future__ import annotations

from typing import Any

import pytest

from headscope.text.antecedents import Traits, agree, headed_mentions, traits_of
from headscope.text.document import Mention
from tests.probes.test_coreference import document


def traits(text: str, *, kind: str | None = None, head: int | None = None, **more: Any) -> Traits:
    """Of a mention of all the words."""
    n = len(text.split())
    whole = document(f"… {text}", Mention("x", ((1, n + 1),), kind, head and head + 1), **more)
    (mention,) = headed_mentions(whole, [True] * (n + 1))
    return traits_of(whole, mention)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("he", "Mr. Smith", True),
        ("she", "Mr. Smith", False),
        ("she", "Aunt Polly", True),
        ("he", "Aunt Polly", False),
        ("she", "Mary", True),
        ("he", "Mary", False),
        ("they", "the dogs", True),
        ("it", "the dogs", False),
        ("it", "the dog", True),
        ("he", "the women", False),
        ("they", "the team", True),
        ("it", "the team", True),
        ("they", "the boss", False),
        ("they", "Bob and Mary", True),
        ("he", "Bob and Mary", False),
        ("I", "Bob", False),
        ("I", "you", False),
        ("we", "us", True),
        ("we", "me", False),
        ("you", "yourself", True),
        ("it", "the king", False),
        ("who", "Bob", True),
    ],
)
def test_pairs(left: str, right: str, expected: bool) -> None:
    assert agree(traits(left), traits(right)) is expected
    assert agree(traits(right), traits(left)) is expected


def test_features_are_believed_first() -> None:
    feminine = traits("la table", features=("_", "_", "Gender=Fem|Number=Sing"), head=1)
    assert feminine.genders == frozenset("f")
    assert feminine.numbers == frozenset(("sing",))
    sheep = traits("the sheep", features=("_", "_", "Number=Plur"))
    assert sheep.numbers == frozenset(("plur",))


def test_types_of_entities_tell_persons_from_things() -> None:
    assert traits("the spokesperson", kind="person").genders == frozenset("mf")
    assert traits("the bridge", kind="object").genders == frozenset("n")
    assert not agree(traits("it"), traits("the spokesperson", kind="person"))
    assert not agree(traits("she"), traits("the bridge", kind="object"))
    assert traits("Acme", kind="organization").numbers == frozenset(("sing", "plur"))


def test_tags_tell_number() -> None:
    assert traits("the fish", xpos=("_", "DT", "NNS")).numbers == frozenset(("plur",))
    assert traits("the lens", xpos=("_", "DT", "NN")).numbers == frozenset(("sing",))


def test_what_is_not_known_agrees() -> None:
    assert agree(traits("he"), traits("the wug"))
    assert agree(traits("it"), traits("the wug"))
    assert traits("the wug").genders == frozenset("mfn")


def test_coordination_by_the_tree() -> None:
    both = traits(
        "Bob and Mary",
        parents=(-1, 0, 3, 1),
        relations=("root", "dep", "cc", "conj"),
    )
    assert both.numbers == frozenset(("plur",))
