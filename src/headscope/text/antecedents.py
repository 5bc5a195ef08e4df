"""Mentions with an antecedent, their candidates, and agreement in number, gender and person.

Traits of a mention come, in this order, from features of its head word, English pronouns, the
entity's type, tags, and short lists of titles, kin terms, nouns and names. Unknown traits agree
with everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headscope.text.document import Document, Mention, mention_head

PRONOUNS: dict[str, tuple[str, str, str]] = {
    form: traits
    for forms, traits in (
        ("i me my mine myself", ("1", "sing", "mf")),
        ("we us our ours ourselves", ("1", "plur", "mf")),
        ("you your yours", ("2", "sing plur", "mf")),
        ("yourself", ("2", "sing", "mf")),
        ("yourselves", ("2", "plur", "mf")),
        ("he him his himself", ("3", "sing", "m")),
        ("she her hers herself", ("3", "sing", "f")),
        ("it its itself", ("3", "sing", "n")),
        ("they them their theirs themselves themself", ("3", "plur", "mfn")),
        ("this that", ("3", "sing", "mfn")),
        ("these those", ("3", "plur", "mfn")),
        ("who whom whose whoever", ("3", "sing plur", "mfn")),
        ("which what whatever", ("3", "sing plur", "n")),
        ("one oneself", ("3", "sing", "mfn")),
        ("someone somebody anyone anybody everyone everybody nobody", ("3", "sing", "mf")),
        ("something anything everything nothing", ("3", "sing", "n")),
        ("there here", ("3", "sing", "n")),
        ("y'all", ("2", "plur", "mf")),
        ("'em", ("3", "plur", "mfn")),
    )
    for form in forms.split()
}
"""Person, numbers and genders (m, f, n) of each pronoun."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MALE = _words(
    """
    mr mr. mister sir lord king prince duke baron emperor pope monk priest wizard
    man men boy boys gentleman gentlemen guy guys lad male father dad daddy papa husband
    brother son uncle nephew grandfather grandpa grandson stepfather stepson godfather groom
    bridegroom boyfriend widower businessman businessmen chairman congressman policeman
    fireman salesman spokesman fisherman cameraman actor waiter host hero steward bachelor
    """
)
"""Titles, kin and other nouns for men and boys."""
FEMALE = _words(
    """
    mrs mrs. ms ms. miss madam madame ma'am lady ladies queen princess duchess baroness
    empress nun witch woman women girl girls gal female mother mom mommy mum mama mamma wife
    sister daughter aunt auntie niece grandmother grandma granddaughter stepmother stepdaughter
    godmother bride girlfriend widow businesswoman businesswomen chairwoman congresswoman
    policewoman saleswoman spokeswoman actress waitress hostess heroine stewardess goddess
    """
)
"""Titles, kin and other nouns for women and girls."""

MALE_NAMES = _words(
    """
    aaron abraham adam adrian alan albert alexander alfred andrew andy anthony antonio arnold
    arthur barack ben benjamin bernard bill bob brad brandon brian bruce carl carlos charles
    charlie chris christopher craig dan daniel dave david dean dennis derek diego don donald
    doug douglas ed eddie edgar edward edwin eric ernest ethan eugene felix francis frank fred
    frederick gary geoffrey george gerald gilbert glenn gordon greg gregory harold harry
    henry herbert howard hugh ian isaac ivan jack jackson jacob james jason jeff jeffrey jeremy
    jerry jesse jim jimmy joe joel john johnny jonathan jose joseph joshua juan justin karl
    keith ken kenneth kevin kurt kyle larry lawrence lee leo leonard lewis louis lucas luis
    luke marcus mario mark martin matt matthew max michael miguel mike mitchell mohammed
    muhammad nathan neil nicholas nick noah norman oliver oscar patrick paul pedro peter phil
    philip phillip ralph randy raymond richard rick rob robert roger ronald roy russell ryan
    sam samuel scott sean sebastian simon stanley stephen steve steven stuart ted theodore
    thomas tim timothy todd tom tommy tony vincent vladimir walter warren wayne william zachary
    """
)
FEMALE_NAMES = _words(
    """
    abigail alice alicia amanda amber amy andrea angela anita ann anna anne annie april ashley
    audrey barbara beatrice betty beverly bonnie brenda brittany carmen carol caroline carolyn
    catherine cathy charlotte cheryl christina christine cindy claire clara connie crystal
    cynthia danielle deborah debra denise diana diane donna doris dorothy edith eileen elaine
    eleanor elena elizabeth ella ellen emily emma erica erin esther eva evelyn florence
    frances gina gloria grace hannah hazel heather heidi helen hillary holly ida irene isabel
    isabella jacqueline jane janet janice jean jennifer jessica jill joan joanna joanne josephine
    joyce juanita judith judy julia julie june karen kate katherine kathleen kathy katie kelly
    kim kimberly kristen laura lauren leah lillian linda lisa lois loretta lori louise lucia
    lucy lydia lynn madison margaret maria marie marilyn marjorie martha mary megan melanie
    melissa michelle mildred monica nancy naomi natalie nicole nina nora norma olivia pamela
    patricia paula pauline peggy phyllis rachel rebecca renee rita roberta rosa rose ruby ruth
    sally samantha sandra sara sarah sharon sheila sherry shirley sofia sonia sophia sophie
    stacy stephanie sue susan suzanne sylvia tammy teresa theresa tiffany tina tracy ursula
    valerie vanessa vera veronica victoria virginia vivian wanda wendy yolanda yvonne zoe
    """
)
"""Common given names; those of both genders (Robin, Alex, Jordan) are left out."""

PLURALS = _words(
    """
    people men women children feet teeth mice geese oxen lice data media criteria phenomena
    alumni bacteria cattle police folk clergy gentlemen ladies policemen policewomen fishermen
    """
)
SINGULARS = _words(
    """
    news series species means politics physics mathematics economics linguistics athletics
    diabetes measles headquarters bus gas lens glass class boss business process address access
    success progress congress process mess loss dress press kiss pass mass grass
    """
)
"""Singular nouns that end in -s."""
COLLECTIVES = _words(
    """
    team group family company government committee council army band crew staff audience crowd
    police public press media majority minority couple club firm party faculty jury gang fleet
    department university agency organization association class community population board
    """
)
"""Nouns of either number: `the team … it` and `the team … they`."""

THINGS = _words(
    """
    abstract object place event time plant substance organization
    gpe loc org fac norp product work_of_art law language date money percent quantity
    ordinal cardinal
    """
)
"""Types of entities in corpora (GUM, OntoNotes) that are not persons."""

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
    """Return the mentions whose head word the model reads, in order of their head words.

    Repeated mentions in one cluster count once; the same words in two clusters are two mentions.
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
    """Return the mentions with an earlier mention of their entity.

    Mentions are ordered by their head words, also nested (`[[his] wife]`) and crossing ones.
    Mentions that share a head word are not candidates for each other: the word would attend to
    itself.

    Args:
        document: a document with mentions.
        has_tokens: true for words that the model reads, by default all. Mentions with another
            head word are left out.
    """
    is_read = [True] * len(document) if has_tokens is None else has_tokens
    mentions = headed_mentions(document, is_read)
    with_antecedent = []
    for mention in mentions:
        before = tuple(other for other in mentions if other.head_word < mention.head_word)
        cluster = mention.mention.cluster
        antecedents = frozenset(o.head_word for o in before if o.mention.cluster == cluster)
        if antecedents:
            with_antecedent.append(Anaphor(mention, before, antecedents))
    return with_antecedent


def mention_kind(document: Document, word: int) -> str:
    """Return pronoun, proper or nominal, from the tag of the head word.

    Without tags, English pronouns are known, and a name is a capitalized word that does not start a
    sentence.
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
        number = _NUMBERS[features["Number"]]
        return ANY_NUMBER if number == "sing" and is_group else frozenset((number,))
    tag = document.xpos[mention.head_word] if document.xpos is not None else "_"
    is_name = mention.kind == "proper"
    if tag in ("NNS", "NNPS") or mention.form in PLURALS or (tag == "_" and _has_s(mention)):
        return ANY_NUMBER if is_name and tag == "_" else frozenset(("plur",))
    if tag in ("NN", "NNP") or tag == "_":
        return ANY_NUMBER if is_group else frozenset(("sing",))
    return ANY_NUMBER


def _has_s(mention: Headed) -> bool:
    form = mention.form
    is_other = form in SINGULARS or form.endswith(("ss", "us", "is"))
    return form.endswith("s") and len(form) > 3 and not is_other


def _is_coordinated(document: Document, mention: Headed) -> bool:
    """Return whether the mention is a coordination: `the cat and the dog`."""
    words = mention.mention.words()
    if document.parents is not None and document.relations is not None:
        joined = [word for word in words if document.relations[word] == "conj"]
        return any(document.parents[word] == mention.head_word for word in joined)
    forms = [document.words[word].lower() for word in words]
    return "and" in forms[1:-1] and mention.head_word < words[0] + forms.index("and")


def _genders(document: Document, mention: Headed, features: dict[str, str]) -> frozenset[str]:
    if "Gender" in features:
        genders = "".join(_GENDERS.get(g, "") for g in features["Gender"].split(","))
        if genders:
            return frozenset(genders)
    # Titles and given names stand next to the head word of a name.
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
