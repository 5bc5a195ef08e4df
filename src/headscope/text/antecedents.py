"""Mentions with an antecedent, their candidates, and agreement in number, gender and person.

Traits of a mention come, in this order, from features of its head word, English pronouns, the
entity's type, tags, and short lists of titles, kin terms, nouns and names. Unknown traits agree
with everything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from headscope.text.document import Document, Mention, mention_head

_LISTS = tomllib.loads(
    (resources.files("headscope.text") / "english_words.toml").read_text("utf-8")
)
PRONOUNS: dict[str, tuple[str, str, str]] = {
    form: tuple(traits) for forms, *traits in _LISTS.pop("pronouns") for form in forms.split()
}
"""Person, numbers and genders (m, f, n) of each pronoun."""
_WORDS = {name: frozenset(words.split()) for name, words in _LISTS.items()}
"""Titles, names, kin terms and nouns that tell gender or number, and types of entities."""
KINDS = ("pronoun", "proper", "nominal")

_PRONOUN_TAGS = frozenset(("PRP", "PRP$", "WP", "WP$", "EX"))
_PROPER_TAGS = frozenset(("NNP", "NNPS"))


@dataclass(frozen=True, slots=True)
class Headed:
    """Mention with its head word."""

    mention: Mention
    head_word: int
    kind: str
    """`pronoun`, `proper` or `nominal`."""
    form: str
    """Head word in lower case."""
    text: str
    """All words in lower case."""


@dataclass(frozen=True, slots=True)
class Anaphor:
    """Mention that has an antecedent."""

    mention: Headed
    candidates: tuple[Headed, ...]
    """Mentions before it, the nearest last."""
    antecedents: frozenset[int]
    """Head words of earlier mentions of the same entity."""


def headed_mentions(document: Document, has_tokens: Sequence[bool]) -> list[Headed]:
    """Return the mentions whose head word the model reads, in order of their head words. Repeated
    mentions in one cluster count once; the same words in two clusters are two mentions.
    """
    headed: dict[tuple[str, tuple[tuple[int, int], ...]], Headed] = {}
    for mention in document.mentions:
        word = mention_head(document, mention)
        is_known = (mention.cluster, mention.spans) in headed
        if word < len(has_tokens) and has_tokens[word] and not is_known:
            text = " ".join(document.words[number] for number in mention.words()).lower()
            kind = mention_kind(document, word)
            form = document.words[word].lower()
            headed[mention.cluster, mention.spans] = Headed(mention, word, kind, form, text)
    # Of mentions with the same head word the shortest comes last: it is the nearest.
    return sorted(
        headed.values(),
        key=lambda m: (m.head_word, -len(m.mention.words()), m.mention.spans, m.mention.cluster),
    )


def anaphors(document: Document, has_tokens: Sequence[bool] | None = None) -> list[Anaphor]:
    """Return the mentions with an earlier mention of their entity, ordered by their head words.

    Mentions that share a head word are not candidates for each other: the word would attend to
    itself. With `has_tokens` (true for words that the model reads), mentions with other head words
    are left out.
    """
    is_read = [True] * len(document) if has_tokens is None else has_tokens
    mentions = headed_mentions(document, is_read)
    found = []
    for mention in mentions:
        before = tuple(other for other in mentions if other.head_word < mention.head_word)
        cluster = mention.mention.cluster
        antecedents = frozenset(o.head_word for o in before if o.mention.cluster == cluster)
        found.append(Anaphor(mention, before, antecedents))
    return [anaphor for anaphor in found if anaphor.antecedents]


def mention_kind(document: Document, word: int) -> str:
    """Return pronoun, proper or nominal, from the tag of the head word. Without tags, English
    pronouns are known, and a name is a capitalized word that does not start a sentence.
    """
    upos = document.upos[word] if document.upos is not None else "_"
    xpos = document.xpos[word] if document.xpos is not None else "_"
    form = document.words[word]
    if upos == "_" and xpos == "_":
        opens = any(word == start for start, _ in document.sentences) or word == 0
        if form.lower() in PRONOUNS:
            return "pronoun"
        return "proper" if form[:1].isupper() and not opens else "nominal"
    is_possessive = upos == "DET" and form.lower() in PRONOUNS
    if upos == "PRON" or xpos in _PRONOUN_TAGS or is_possessive:
        return "pronoun"
    return "proper" if upos == "PROPN" or xpos in _PROPER_TAGS else "nominal"


ANY_GENDER = frozenset("mfn")
ANY_NUMBER = frozenset(("sing", "plur"))

_NUMBERS = {"Sing": "sing", "Plur": "plur", "Ptan": "plur", "Dual": "plur"}
_GENDERS = {"Masc": "m", "Fem": "f", "Neut": "n", "Com": "mf"}


@dataclass(frozen=True, slots=True)
class Traits:
    """Possible persons, numbers and genders of a mention: all values if unknown."""

    person: str
    numbers: frozenset[str] = ANY_NUMBER
    genders: frozenset[str] = ANY_GENDER


def agree(left: Traits, right: Traits) -> bool:
    """Return whether both can have the same person, number and gender."""
    return (
        left.person == right.person
        and bool(left.numbers & right.numbers)
        and bool(left.genders & right.genders)
    )


def traits_of(document: Document, mention: Headed) -> Traits:
    """Return the known traits of a mention."""
    text = "_" if document.features is None else document.features[mention.head_word]
    features = dict(item.split("=", 1) for item in text.split("|") if "=" in item)
    marked = "".join(_GENDERS.get(gender, "") for gender in features.get("Gender", "").split(","))
    if mention.kind != "pronoun":
        genders = frozenset(marked) if marked else _genders(document, mention)
        return Traits("3", _numbers(document, mention, features), genders)
    person, numbers, of_form = PRONOUNS.get(mention.form, ("3", "sing plur", "mfn"))
    if "Number" in features and mention.form not in PRONOUNS:
        numbers = _NUMBERS.get(features["Number"], "sing")
    return Traits(
        features.get("Person", person), frozenset(numbers.split()), frozenset(marked or of_form)
    )


def _numbers(document: Document, mention: Headed, features: dict[str, str]) -> frozenset[str]:
    words, form = mention.mention.words(), mention.form
    if document.parents is not None and document.relations is not None:
        joined = [word for word in words if document.relations[word] == "conj"]
        is_coordinated = any(document.parents[word] == mention.head_word for word in joined)
    else:
        forms = [document.words[word].lower() for word in words]
        is_joined = "and" in forms[1:-1]  # `the cat and the dog`
        is_coordinated = is_joined and mention.head_word < words[0] + forms.index("and")
    if is_coordinated:
        return frozenset(("plur",))
    is_group = form in _WORDS["collectives"] or mention.mention.kind in ("organization", "ORG")
    if features.get("Number") in _NUMBERS:
        number = _NUMBERS[features["Number"]]
        return ANY_NUMBER if number == "sing" and is_group else frozenset((number,))
    tag = document.xpos[mention.head_word] if document.xpos is not None else "_"
    is_singular = form in _WORDS["singulars"] or form.endswith(("ss", "us", "is"))
    has_s = tag == "_" and form.endswith("s") and len(form) > 3 and not is_singular
    if tag in ("NNS", "NNPS") or form in _WORDS["plurals"] or has_s:
        is_name = mention.kind == "proper" and tag == "_"
        return ANY_NUMBER if is_name else frozenset(("plur",))
    return frozenset(("sing",)) if tag in ("NN", "NNP", "_") and not is_group else ANY_NUMBER


def _genders(document: Document, mention: Headed) -> frozenset[str]:
    # Titles and given names stand next to the head word of a name.
    forms = [mention.form]
    male, female = _WORDS["male"], _WORDS["female"]
    if mention.kind == "proper":
        words = [document.words[word] for word in mention.mention.words()]
        forms += [word.lower() for word in words if word[:1].isupper()]
        male, female = male | _WORDS["male_names"], female | _WORDS["female_names"]
    for form in forms:
        if (form in male) != (form in female):
            return frozenset("m" if form in male else "f")
    kind = (mention.mention.kind or "").lower()
    if kind == "person":
        return frozenset("mf")
    return frozenset("n") if kind in _WORDS["things"] else ANY_GENDER
