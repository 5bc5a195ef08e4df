"""Mentions with an antecedent, and what could be mistaken for it.

What coreference probes ask about a document: no attention, no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headscope.text.document import Document
from headscope.text.english import PRONOUNS
from headscope.text.mention import Mention, mention_head

KINDS = ("pronoun", "proper", "nominal")

_PRONOUN_TAGS = frozenset(("PRP", "PRP$", "WP", "WP$", "EX"))
_PROPER_TAGS = frozenset(("NNP", "NNPS"))


@dataclass(frozen=True, slots=True)
class Headed:
    """A mention with its head word."""

    mention: Mention
    head_word: int
    kind: str
    """`pronoun`, `proper` or `nominal`."""
    form: str
    """The head word in lower case."""
    text: str
    """All its words in lower case."""


@dataclass(frozen=True, slots=True)
class Anaphor:
    """A mention that has an antecedent."""

    mention: Headed
    candidates: tuple[Headed, ...]
    """The mentions before it, the nearest last."""
    antecedents: frozenset[int]
    """Head words of those that name the same entity."""


def headed_mentions(document: Document, has_tokens: Sequence[bool]) -> list[Headed]:
    """The mentions whose head word the model reads, in order of their head words.

    A mention that is there twice in one cluster is taken once; the same words in two
    clusters are two mentions.
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
    """The mentions that have an antecedent: another mention of their entity before them.

    Mentions are ordered by their head words, so nested mentions (`[[his] wife]`) and crossing
    ones have an order. Mentions that share a head word are no candidates of one another: an
    attention head would have to attend from the word to itself.

    Args:
        document: with mentions.
        has_tokens: of each word, does the model read it? All of them by default. Mentions
            whose head word it does not read are left out.
    """
    known = [True] * len(document) if has_tokens is None else has_tokens
    mentions = headed_mentions(document, known)
    with_antecedent = []
    for mention in mentions:
        before = tuple(other for other in mentions if other.head_word < mention.head_word)
        cluster = mention.mention.cluster
        antecedents = frozenset(o.head_word for o in before if o.mention.cluster == cluster)
        if antecedents:
            with_antecedent.append(Anaphor(mention, before, antecedents))
    return with_antecedent


def mention_kind(document: Document, word: int) -> str:
    """Pronoun, proper or nominal, by the tag of its head word.

    Without tags a pronoun is one of English's, and a name is a word with a capital that does
    not open a sentence.
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
