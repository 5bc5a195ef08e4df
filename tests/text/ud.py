"""A strict validator for CoNLL-U, independent of headscope's reader.

Checks what can be checked by rule of UD v2 for English: the format, the inventories, the
shape of the tree, how relations and tags go together, the text, and CorefUD's brackets.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field


def words(text: str) -> set[str]:
    return set(text.split())


UPOS = words("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X")
RELATIONS = words(
    "acl acl:relcl advcl advcl:relcl advmod amod appos aux aux:pass case cc cc:preconj ccomp "
    "compound compound:prt conj cop csubj csubj:pass dep det det:predet discourse dislocated "
    "expl fixed flat goeswith iobj list mark nmod nmod:desc nmod:poss nmod:unmarked nsubj "
    "nsubj:pass nummod obj obl obl:agent obl:unmarked orphan parataxis punct reparandum root "
    "vocative xcomp"
)
AUX_LEMMAS = words("be have do can could may might must shall should will would get")
PENN = words(
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO "
    "UH VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB . , : `` '' -LRB- -RRB- HYPH $"
)
PENN_OF = {
    "NOUN": {"NN", "NNS"},
    "PROPN": {"NNP", "NNPS"},
    "ADJ": {"JJ", "JJR", "JJS", "NNP"},
    "ADV": {"RB", "RBR", "RBS", "WRB"},
    "VERB": {"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"},
    "AUX": {"VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD"},
    "ADP": {"IN", "RP"},
    "SCONJ": {"IN"},
    "CCONJ": {"CC"},
    "DET": {"DT", "PDT", "WDT"},
    "PRON": {"PRP", "PRP$", "WP", "WP$", "WDT", "DT", "EX", "NN"},
    "NUM": {"CD"},
    "PART": {"TO", "POS", "RB"},
    "INTJ": {"UH"},
    "PUNCT": {".", ",", ":", "``", "''", "-LRB-", "-RRB-", "HYPH"},
}
FEATURES_OF = {
    "NOUN": {"Number", "NumForm", "NumType"},
    "PROPN": {"Number"},
    "ADJ": {"Degree", "NumForm", "NumType", "ExtPos"},
    "ADV": {"Degree", "PronType", "NumForm", "NumType", "ExtPos"},
    "VERB": {"Mood", "Number", "Person", "Tense", "VerbForm", "Voice"},
    "AUX": {"Mood", "Number", "Person", "Tense", "VerbForm"},
    "PRON": {"Case", "Gender", "Number", "Person", "Poss", "PronType", "Reflex"},
    "DET": {"Definite", "Number", "PronType"},
    "NUM": {"NumForm", "NumType"},
    "PART": {"Polarity"},
    "INTJ": {"Polarity"},
    "ADP": {"ExtPos"},
    "SCONJ": {"ExtPos"},
    "CCONJ": set(),
    "PUNCT": set(),
}
NEEDED = {"NOUN": "Number", "PROPN": "Number", "VERB": "VerbForm", "AUX": "VerbForm"} | {
    "PRON": "PronType",
    "DET": "PronType",
    "NUM": "NumType",
    "ADJ": "Degree",
}
LEAVES = {"aux", "cop", "case", "mark", "cc", "punct", "det", "fixed"}
MAY_STAND_UNDER_LEAF = {"fixed", "punct", "conj", "cc", "advmod", "goeswith", "reparandum"}
NOMINAL = {"NOUN", "PROPN", "PRON", "NUM", "DET", "ADJ", "X", "SYM"}
PREDICATE = {"VERB", "ADJ", "NOUN", "PROPN", "PRON", "NUM", "ADV", "AUX", "DET"}
CORE = {"nsubj", "obj", "iobj", "nsubj:pass"}


@dataclass
class Word:
    number: int
    form: str
    lemma: str
    upos: str
    xpos: str
    features: dict[str, str]
    head: int
    relation: str
    misc: dict[str, str]


@dataclass
class Sentence:
    comments: dict[str, str]
    words: list[Word] = field(default_factory=list)
    surface: str = ""

    @property
    def id(self) -> str:
        return self.comments.get("sent_id", "?")

    def children(self, word: Word) -> list[Word]:
        return [other for other in self.words if other.head == word.number]


def pairs(value: str) -> dict[str, str]:
    if value == "_":
        return {}
    found = dict(item.split("=", 1) for item in value.split("|"))
    assert len(found) == len(value.split("|")), f"repeated feature in {value}"
    return found


def parse(text: str) -> Iterator[Sentence]:
    assert text.endswith("\n\n"), "a sentence ends with a blank line"
    assert "\r" not in text
    for block in text[:-2].split("\n\n"):
        comments: dict[str, str] = {}
        sentence = Sentence(comments)
        until, surface = 0, []
        for line in block.split("\n"):
            if line.startswith("#"):
                key, _, value = line[1:].strip().partition(" = ")
                assert key not in comments, f"{line}: twice"
                comments[key] = value
                continue
            columns = line.split("\t")
            assert len(columns) == 10, line
            assert all(c == c.strip() and c for c in columns), line
            misc = pairs(columns[9])
            space = "" if misc.get("SpaceAfter") == "No" else " "
            if "-" in columns[0]:
                first, last = map(int, columns[0].split("-"))
                assert first == len(sentence.words) + 1
                assert columns[2:9] == ["_"] * 7, line
                until = last
                surface.append(columns[1] + space)
                continue
            features = pairs(columns[5])
            assert list(features) == sorted(features, key=str.lower), f"unsorted: {line}"
            sentence.words.append(
                Word(int(columns[0]), *columns[1:5], features, int(columns[6]), columns[7], misc)  # type: ignore[call-arg]
            )
            assert int(columns[0]) == len(sentence.words), line
            if int(columns[0]) > until:
                surface.append(columns[1] + space)
            else:
                assert "SpaceAfter" not in misc, line
        sentence.surface = "".join(surface).rstrip()
        yield sentence


def problems(sentence: Sentence) -> Iterator[str]:
    words = sentence.words
    if sentence.comments.get("text") != sentence.surface:
        yield f"text is {sentence.comments.get('text')!r}, words say {sentence.surface!r}"
    yield from tree_problems(sentence)
    for word in words:
        for what in word_problems(sentence, word):
            yield f"word {word.number} {word.form!r} ({word.upos}, {word.relation}): {what}"


def tree_problems(sentence: Sentence) -> Iterator[str]:
    words = sentence.words
    roots = [w.number for w in words if w.head == 0]
    if len(roots) != 1:
        yield f"roots {roots}"
    for word in words:
        if (word.head == 0) != (word.relation == "root"):
            yield f"word {word.number}: root and head 0 go together"
        seen, at = set(), word.number
        while at and at not in seen and at <= len(words):
            seen.add(at)
            at = words[at - 1].head
        if at:
            yield f"word {word.number} never reaches the root"
    arcs = [(min(w.number, w.head), max(w.number, w.head)) for w in words if w.head]
    for a, b in arcs:
        for c, d in arcs:
            if a < c < b < d and sentence.id not in NONPROJECTIVE:
                yield f"arcs {(a, b)} and {(c, d)} cross"


NONPROJECTIVE = {
    "demo-braille-5",  # a code … that soldiers were meant to read _
    "demo-tides-2",  # more strongly on the side … than on the center
}
"""Sentences where crossing arcs are right."""


def word_problems(sentence: Sentence, word: Word) -> Iterator[str]:
    head = sentence.words[word.head - 1] if word.head else None
    children = sentence.children(word)
    relation, base = word.relation, word.relation.split(":")[0]
    if word.upos not in UPOS:
        yield "unknown tag"
        return
    if relation not in RELATIONS:
        yield "unknown relation"
    if word.xpos not in PENN or word.xpos not in PENN_OF.get(word.upos, PENN):
        yield f"Penn tag {word.xpos}"
    extra = set(word.features) - FEATURES_OF.get(word.upos, set())
    if extra:
        yield f"features {extra}"
    needed = NEEDED.get(word.upos)
    if needed and needed not in word.features:
        yield f"no {needed}"
    yield from verb_problems(word, children)
    # Which tags go with which relations.
    allowed = {
        "det": {"DET", "PRON"},
        "case": {"ADP", "PART", "ADV"},
        "mark": {"SCONJ", "PART", "ADP", "ADV"},
        "cc": {"CCONJ"},
        "aux": {"AUX"},
        "cop": {"AUX"},
        "nummod": {"NUM"},
        "amod": {"ADJ", "VERB"},
        "advmod": {"ADV", "PART", "ADJ"},
        "punct": {"PUNCT"},
        "expl": {"PRON"},
        "flat": {"PROPN"},
        "nsubj": NOMINAL,
        "obj": NOMINAL,
        "iobj": NOMINAL,
        "obl": NOMINAL | {"ADV"},
        "nmod": NOMINAL,
        "appos": NOMINAL,
        "vocative": {"PROPN", "NOUN"},
        "discourse": {"INTJ", "NOUN"},
        "compound": {"NOUN", "PROPN", "NUM", "ADP"},
    }
    if base in allowed and word.upos not in allowed[base]:
        yield "this tag does not go with this relation"
    if word.upos == "PUNCT" and relation != "punct":
        yield "punctuation is punct"
    if word.upos == "AUX" and base not in ("aux", "cop"):
        yield "an auxiliary is aux or cop"
    if word.upos == "AUX" and word.lemma not in AUX_LEMMAS:
        yield f"no auxiliary: {word.lemma}"
    if base == "cop" and word.lemma != "be":
        yield "the copula is be"
    if word.upos == "CCONJ" and base != "cc":
        yield "a conjunction is cc"
    if relation == "compound:prt" and word.xpos != "RP":
        yield "a particle is RP"
    if (word.xpos == "TO") != (word.upos == "PART" and word.lemma == "to"):
        yield "infinitival to is TO and PART"
    if word.xpos == "POS" and relation != "case":
        yield "a possessive marker is case"
    if word.xpos == "PRP$" and relation != "nmod:poss":
        yield "a possessive pronoun is nmod:poss"
    # Direction.
    if base in ("conj", "fixed", "flat", "appos", "goeswith") and word.head >= word.number:
        yield "stands before its head"
    if base in ("det", "cop", "cc", "mark", "aux") and word.head <= word.number:
        yield "stands after its head"
    # Heads.
    if head is not None:
        yield from head_problems(word, head)
    # Children.
    if base in LEAVES:
        for child in children:
            if child.relation.split(":")[0] not in MAY_STAND_UNDER_LEAF:
                yield f"heads {child.form!r} ({child.relation})"
    subjects = [c for c in children if c.relation.split(":")[0] in ("nsubj", "csubj")]
    if len(subjects) > 1:
        yield "has two subjects"
    if len([c for c in children if c.relation == "obj"]) > 1:
        yield "has two objects"
    is_passive = any(c.relation == "aux:pass" for c in children)
    for subject in subjects:
        if subject.relation.endswith(":pass") != is_passive:
            yield f"subject {subject.form!r} is {subject.relation}, auxiliaries say otherwise"
    if any(c.relation == "obl:agent" for c in children) and not word.features.get("Voice"):
        yield "an agent without a passive"
    fixed = any(c.relation == "fixed" for c in children)
    if fixed != ("ExtPos" in word.features):
        yield "ExtPos goes with fixed expressions"
    if any(c.relation == "iobj" for c in children) and not any(
        c.relation in ("obj", "ccomp") for c in children
    ):
        yield "iobj without obj"


def verb_problems(word: Word, children: list[Word]) -> Iterator[str]:
    if word.upos not in ("VERB", "AUX"):
        return
    form = word.features.get("VerbForm")
    expected = {"VBZ": "Fin", "VBD": "Fin", "VBP": "Fin", "MD": "Fin", "VBN": "Part"}
    if word.xpos in expected and form != expected[word.xpos]:
        yield f"VerbForm {form} of {word.xpos}"
    if word.xpos == "VB" and (form, word.features.get("Mood")) not in {
        ("Inf", None),
        ("Fin", "Imp"),
    }:
        yield "a base form is an infinitive or an imperative"
    if word.xpos == "VBG" and form not in ("Ger", "Part"):
        yield "a form in -ing is a gerund or a participle"
    if any(c.relation == "aux:pass" for c in children) and word.features.get("Voice") != "Pass":
        yield "Voice=Pass goes with aux:pass"
    if word.xpos in ("VBD", "VBP", "VBZ") and not {"Number", "Person", "Tense"} <= set(
        word.features
    ):
        yield "a finite form has number, person and tense"


def head_problems(word: Word, head: Word) -> Iterator[str]:
    base = word.relation.split(":")[0]
    nominal_heads = {"det", "amod", "nummod", "nmod", "acl", "appos", "flat"}
    if base in nominal_heads and head.upos not in NOMINAL:
        yield f"under {head.form!r} ({head.upos})"
    clausal = CORE | {"ccomp", "aux", "aux:pass", "iobj", "obl:agent"}
    if word.relation in clausal and head.upos not in PREDICATE:
        yield f"under {head.form!r} ({head.upos})"
    if base in ("obj", "iobj", "compound:prt") and head.upos != "VERB":
        yield f"object of {head.upos}"
    is_predicate = head.relation.startswith(
        ("root", "conj", "xcomp", "acl", "ccomp", "advcl", "parataxis")
    )
    if base in ("obl", "advcl") and head.upos in ("NOUN", "PROPN") and not is_predicate:
        yield f"{base} under a noun that is no predicate"
    if base == "nmod" and head.upos in ("VERB", "AUX", "ADV"):
        yield "nmod under a verb"
    if head.upos == "PUNCT":
        yield "under punctuation"


def entity_problems(sentences: list[Sentence]) -> Iterator[str]:
    """Balanced brackets, one type per cluster, a head that is the mention's top word."""
    kinds: dict[str, str] = {}
    sizes: Counter[str] = Counter()
    names: defaultdict[str, bool] = defaultdict(bool)
    for sentence in sentences:
        stack: list[tuple[str, int, int]] = []
        for word in sentence.words:
            value = word.misc.get("Entity", "")
            pattern = r"\((e\d+)-([a-z]+)-(\d+)(\))?|(e\d+)\)"
            if "".join(m[0] for m in re.finditer(pattern, value)) != value:
                yield f"{sentence.id}: cannot read {value!r}"
            for match in re.finditer(pattern, value):
                if match[1]:
                    if kinds.setdefault(match[1], match[2]) != match[2]:
                        yield f"{sentence.id}: {match[1]} is {kinds[match[1]]} and {match[2]}"
                    stack.append((match[1], word.number, int(match[3])))
                    if not match[4]:
                        continue
                if not stack or stack[-1][0] != (match[5] or match[1]):
                    yield f"{sentence.id}: {value!r} closes what is not open"
                    continue
                cluster, start, head = stack.pop()
                inside = sentence.words[start - 1 : word.number]
                tops = [w.number for w in inside if not start <= w.head <= word.number]
                sizes[cluster] += 1
                names[cluster] |= any(w.upos == "PROPN" for w in inside)
                if tops != [start + head - 1]:
                    yield f"{sentence.id}: head of {cluster} at {start} is {head}, tree: {tops}"
        if stack:
            yield f"{sentence.id}: never closed: {stack}"
    for cluster, size in sizes.items():
        if size == 1 and not names[cluster]:
            yield f"{sentences[0].id}: {cluster} is mentioned once and has no name"
