"""Do two mentions agree in number, gender and person?

For the third of the sieves that coreference is compared with. What a mention is known to
be comes, in this order, from its head word's features where they are annotated (`Number`,
`Gender`, `Person`), from English's pronouns, from the source's type of the entity, from
tags, and from short lists of titles, kin terms, nouns and given names
(`headscope.text.english`). What is not known agrees with everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from headscope.text.antecedents import Headed
from headscope.text.document import Document
from headscope.text.english import (
    COLLECTIVES,
    FEMALE,
    FEMALE_NAMES,
    MALE,
    MALE_NAMES,
    PLURALS,
    PRONOUNS,
    SINGULARS,
    THINGS,
)

ANY_GENDER = frozenset("mfn")
ANY_NUMBER = frozenset(("sing", "plur"))

_NUMBERS = {"Sing": "sing", "Plur": "plur", "Ptan": "plur", "Dual": "plur"}
_GENDERS = {"Masc": "m", "Fem": "f", "Neut": "n", "Com": "mf"}


@dataclass(frozen=True, slots=True)
class Traits:
    """What a mention may be: one value where it is known, all where it is not."""

    person: str
    numbers: frozenset[str] = ANY_NUMBER
    genders: frozenset[str] = ANY_GENDER


def agree(left: Traits, right: Traits) -> bool:
    """Is there a person, number and gender that both can have?"""
    return (
        left.person == right.person
        and bool(left.numbers & right.numbers)
        and bool(left.genders & right.genders)
    )


def traits_of(document: Document, mention: Headed) -> Traits:
    """What is known about a mention."""
    features = _features(document, mention.head_word)
    if mention.kind == "pronoun":
        return _pronoun(mention, features)
    return Traits("3", _numbers(document, mention, features), _genders(document, mention, features))


def _pronoun(mention: Headed, features: dict[str, str]) -> Traits:
    person, numbers, genders = PRONOUNS.get(mention.form, ("3", "sing plur", "mfn"))
    person = features.get("Person", person)
    allowed = frozenset(numbers.split())
    if "Number" in features and mention.form not in PRONOUNS:
        allowed = frozenset((_NUMBERS.get(features["Number"], "sing"),))
    if "Gender" in features:
        genders = "".join(_GENDERS.get(g, "") for g in features["Gender"].split(",")) or genders
    return Traits(person, allowed, frozenset(genders))


def _numbers(document: Document, mention: Headed, features: dict[str, str]) -> frozenset[str]:
    if _is_coordinated(document, mention):
        return frozenset(("plur",))
    is_group = mention.form in COLLECTIVES or mention.mention.kind in ("organization", "ORG")
    if features.get("Number") in _NUMBERS:
        known = _NUMBERS[features["Number"]]
        return ANY_NUMBER if known == "sing" and is_group else frozenset((known,))
    tag = document.xpos[mention.head_word] if document.xpos is not None else "_"
    is_name = mention.kind == "proper"
    if tag in ("NNS", "NNPS") or mention.form in PLURALS or (tag == "_" and _has_s(mention)):
        return ANY_NUMBER if is_name and tag == "_" else frozenset(("plur",))
    if tag in ("NN", "NNP") or tag == "_":
        return ANY_NUMBER if is_group else frozenset(("sing",))
    return ANY_NUMBER


def _has_s(mention: Headed) -> bool:
    """Does the head word end as plurals do?"""
    form = mention.form
    is_other = form in SINGULARS or form.endswith(("ss", "us", "is"))
    return form.endswith("s") and len(form) > 3 and not is_other


def _is_coordinated(document: Document, mention: Headed) -> bool:
    """Is it `the cat and the dog`? By the tree where there is one."""
    words = mention.mention.words()
    if document.parents is not None and document.relations is not None:
        joined = [word for word in words if document.relations[word] == "conj"]
        return any(document.parents[word] == mention.head_word for word in joined)
    forms = [document.words[word].lower() for word in words]
    return "and" in forms[1:-1] and mention.head_word < words[0] + forms.index("and")


def _genders(document: Document, mention: Headed, features: dict[str, str]) -> frozenset[str]:
    if "Gender" in features:
        named = "".join(_GENDERS.get(g, "") for g in features["Gender"].split(","))
        if named:
            return frozenset(named)
    # Titles and given names may stand beside the head word of a name.
    forms = [mention.form]
    if mention.kind == "proper":
        words = [document.words[word] for word in mention.mention.words()]
        forms += [word.lower() for word in words if word[:1].isupper()]
    for form in forms:
        is_male = form in MALE or (mention.kind == "proper" and form in MALE_NAMES)
        is_female = form in FEMALE or (mention.kind == "proper" and form in FEMALE_NAMES)
        if is_male != is_female:
            return frozenset("m" if is_male else "f")
    kind = (mention.mention.kind or "").lower()
    if kind == "person":
        return frozenset("mf")
    return frozenset("n") if kind in THINGS else ANY_GENDER


def _features(document: Document, word: int) -> dict[str, str]:
    text = "_" if document.features is None else document.features[word]
    if text == "_":
        return {}
    pairs = (item.partition("=") for item in text.split("|"))
    return {name: value for name, _, value in pairs}
