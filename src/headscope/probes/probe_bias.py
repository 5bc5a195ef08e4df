"""`headscope.probe_bias`: do heads that find antecedents follow stereotypes?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Unpack

from headscope.errors import InputError
from headscope.metrics.bias import CONDITION, CONDITIONS, Bias, rivals
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.options import RunOptions, with_defaults
from headscope.text.antecedents import anaphors, mention_kind
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Unit
from headscope.text.mention import Mention, mention_head
from headscope.text.readers.lines import Report
from headscope.text.readers.read import Readable, as_corpus

OTHER = "other candidate"


def probe_bias(
    model: Model | str,
    pro: Corpus | Readable,
    anti: Corpus | Readable,
    **options: Unpack[RunOptions],
) -> Result:
    """How differently each head treats pronouns that fit a stereotype and those that do not.

    Reads sentence pairs as WinoBias has them: the n-th document of `pro` and of `anti` are
    the same sentence with the pronoun's gender swapped. The true candidate is annotated (its
    mention and the pronoun's are of one cluster); the other is the word of the sentence,
    before the pronoun and outside all mentions, that is the head word of a mention elsewhere
    in the two corpora. `result.table()` shows the heads that matter.

    Args:
        model: the model, or what `headscope.load` takes.
        pro: sentences whose pronoun fits the stereotype of its antecedent.
        anti: the same sentences with the other pronoun.
        options: see `RunOptions`. A batch has at most 2,048 tokens by default.

    Returns:
        `bias_attention` over `condition` (pro, anti), `candidate` (true, other), `layer` and
        `head`; `bias_preference` and `bias_accuracy` over `condition`, `layer` and `head`;
        `bias_preference_gap` and `bias_accuracy_gap`, pro minus anti; `bias_cases`. With
        intervals over sentence pairs.

    Raises:
        InputError: the corpora are not pairs, or no pronoun has two candidates.
    """
    both = [as_corpus(corpus, "document") for corpus in (pro, anti)]
    paired = pair_documents(*both)
    asked = (a for document in paired for a in anaphors(document) if a.mention.kind == "pronoun")
    if not any(all(rivals(anaphor)) for anaphor in asked):
        raise InputError(
            f"No pronoun of {paired.name} has two candidates before it: its antecedent, and "
            "another word that is the head word of a mention elsewhere. Expected sentences as "
            "in WinoBias (CoNLL-2012 with coreference)."
        )
    return analyze(model, paired, [Bias()], **with_defaults(options, batch_tokens=2048))


def pair_documents(pro: Corpus, anti: Corpus) -> Corpus:
    """Both corpora as one, pair by pair; the other candidate becomes a mention."""
    return Corpus(_Pairs(pro, anti), unit=pro.unit, on_error=pro.on_error)


@dataclass(frozen=True)
class _Pairs:
    """Sentence pairs, as a source of documents."""

    pro: Corpus
    anti: Corpus

    @property
    def name(self) -> str:
        pro, anti = (Path(corpus.name).name for corpus in (self.pro, self.anti))
        return f"{pro} and {anti}"

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """The two sentences of each pair one after the other."""
        names = {
            document.words[head].lower()
            for corpus in (self.pro, self.anti)
            for document in corpus
            for mention in document.mentions
            if mention_kind(document, head := mention_head(document, mention)) != "pronoun"
        }
        pairs = zip_longest(self.pro.read(report), self.anti.read(report))
        for number, pair in enumerate(pairs):
            for condition, document in zip(CONDITIONS, pair, strict=True):
                if document is None:
                    raise InputError(
                        f"{self.name} are not pairs: document {number} of the {condition}-"
                        "stereotyped sentences is missing. Expected the same number of sentences "
                        "in both, in the same order."
                    )
                yield _with_other(document, names, condition, number)


def _with_other(document: Document, names: set[str], condition: str, number: int) -> Document:
    inside = {word for mention in document.mentions for word in mention.words()}
    others = tuple(
        Mention(f"{OTHER} {word}", ((word, word + 1),))
        for word, form in enumerate(document.words)
        if form.lower() in names and word not in inside
    )
    return replace(
        document,
        id=f"{number}-{condition}-{document.id}",
        mentions=tuple(sorted((*document.mentions, *others), key=lambda mention: mention.spans)),
        part_of=f"pair {number}",
        meta={**document.meta, CONDITION: condition},
    )
