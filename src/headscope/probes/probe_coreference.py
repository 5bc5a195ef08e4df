"""`headscope.probe_coreference` and `headscope.probe_bias`: heads and antecedents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Unpack

from transformers import PreTrainedTokenizerBase

from headscope.arguments import whole_number
from headscope.errors import InputError, warn
from headscope.metrics import coreference
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.batches import offsets_by
from headscope.run.options import RunOptions, with_defaults
from headscope.text.antecedents import anaphors, mention_kind
from headscope.text.corpus import Corpus, DerivedSource
from headscope.text.document import Document, Mention, Unit, mention_head
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.readers.reader import ReadLog
from headscope.text.segments import shorten


def probe_coreference(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    candidates: coreference.Candidates = "mentions",
    **options: Unpack[RunOptions],
) -> Result:
    """Score each head as a classifier of antecedents (Clark et al. 2019, 4.3).

    A head is right about a mention if, of the head words of all earlier mentions, the mention's
    head word attends most to that of an antecedent. The run is that of `headscope.analyze`.
    `result.table()` gives the best head of each kind of mention.

    Args:
        model: the model, or an argument of `headscope.load`.
        corpus: documents with mentions (CorefUD's CoNLL-U, CoNLL-2012, OntoGUM), or an argument
            of `headscope.read`: files are read as whole documents.
        candidates: `mentions`: the head words of earlier mentions; `words`: any other word.
        options: see `RunOptions`. Documents are cut after the last word that fits into
            `max_tokens`, 128 by default; mentions across the cut are omitted.

    Returns:
        `coref_accuracy` over `layer`, `head` and `mention_kind` (all, pronoun, proper,
        nominal); `coref_baseline` over `rule` (nearest, head_match, sieves) and
        `mention_kind`; `coref_cases` over `mention_kind`.

    Raises:
        InputError: no mention has an antecedent.
    """
    max_tokens = options.get("max_tokens", 128)
    if max_tokens is not None:
        whole_number("max_tokens", max_tokens)
    model = as_model(model)
    corpus = as_corpus(corpus, "document")
    if corpus.unit == "sentence":
        warn(
            f"{corpus.name} is read by sentence, so antecedents in earlier sentences cannot be "
            'found. For whole documents pass corpus.by("document").'
        )
    limits = [limit for limit in (max_tokens, model.info.max_length) if limit is not None]
    cut = cut_documents(model, corpus, min(limits)) if limits else corpus
    if not any(anaphors(document) for document in cut):
        raise InputError(
            f"No document of {cut.name} has a mention with an antecedent: there is nothing to "
            "find. Coreference is read from CoNLL-U with Entity= (CorefUD), CoNLL-2012 and "
            "OntoGUM files, and needs whole documents (unit='document')."
        )
    options["max_tokens"] = min(limits) if limits else None
    metrics = [coreference.CorefAccuracy(candidates), coreference.CorefBaseline()]
    return analyze(model, cut, metrics, **with_defaults(options, batch_tokens=2048))


def cut_documents(model: Model, corpus: Corpus, max_tokens: int) -> Corpus:
    """Return the corpus with each document cut to `max_tokens` tokens."""
    name = f"{corpus.name}, first {max_tokens} tokens"
    beginnings = partial(_beginnings, corpus, model.require_tokenizer(), max_tokens)
    return Corpus(DerivedSource(name, beginnings), unit=corpus.unit, on_error=corpus.on_error)


def _beginnings(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_tokens: int, unit: Unit, report: ReadLog
) -> Iterator[Document]:
    """Yield the beginnings of documents; a document without a word that fits is omitted."""
    special = int(tokenizer.num_special_tokens_to_add(pair=False))
    for document in corpus.by(unit).read(report):
        cut = shorten(document, offsets_by(tokenizer), max_tokens, special=special)
        if len(cut):
            yield cut


OTHER_CANDIDATE = "other candidate"


def probe_bias(
    model: Model | str,
    pro: Corpus | Readable,
    anti: Corpus | Readable,
    **options: Unpack[RunOptions],
) -> Result:
    """Compare heads on pronouns that fit a stereotype and pronouns that do not (WinoBias).

    The n-th documents of `pro` and of `anti` are the same sentence with the pronoun's gender
    swapped. The true candidate is annotated: its mention and the pronoun's are of one cluster.
    The other candidate is a word before the pronoun, outside all mentions, that is the head word
    of a mention elsewhere in the two corpora. `result.table()` shows the best heads.

    Args:
        model: the model, or an argument of `headscope.load`.
        pro: sentences whose pronoun fits the stereotype of its antecedent.
        anti: the same sentences with the other pronoun.
        options: see `RunOptions`. A batch has at most 2,048 tokens by default.

    Returns:
        `bias_attention` over `condition` (pro, anti), `candidate` (true, other), `layer` and
        `head`; `bias_preference` and `bias_accuracy` over `condition`, `layer` and `head`;
        `bias_preference_gap` and `bias_accuracy_gap`, pro minus anti; `bias_cases`. With
        intervals by occupation: pairs that share a candidate are not independent.

    Raises:
        InputError: the corpora are not pairs, or no pronoun has two candidates.
    """
    corpora = [as_corpus(corpus, "document") for corpus in (pro, anti)]
    paired = pair_documents(*corpora)
    pronouns = (a for document in paired for a in anaphors(document) if a.mention.kind == "pronoun")
    if not any(all(coreference.rivals(anaphor)) for anaphor in pronouns):
        raise InputError(
            f"No pronoun of {paired.name} has two candidates before it: its antecedent, and "
            "another word that is the head word of a mention elsewhere. Expected sentences as "
            "in WinoBias (CoNLL-2012 with coreference)."
        )
    return analyze(model, paired, [coreference.Bias()], **with_defaults(options, batch_tokens=2048))


def pair_documents(pro: Corpus, anti: Corpus) -> Corpus:
    """Join both corpora, pair by pair; the other candidate becomes a mention."""
    name = " and ".join(Path(corpus.name).name for corpus in (pro, anti))
    source = DerivedSource(name, partial(_pairs, name, pro, anti))
    return Corpus(source, unit=pro.unit, on_error=pro.on_error)


def _pairs(name: str, pro: Corpus, anti: Corpus, unit: Unit, report: ReadLog) -> Iterator[Document]:
    """Yield the two sentences of each pair; words that are candidates elsewhere are mentions."""
    candidates = {
        document.words[head].lower()
        for corpus in (pro, anti)
        for document in corpus
        for mention in document.mentions
        if mention_kind(document, head := mention_head(document, mention)) != "pronoun"
    }
    for number, pair in enumerate(zip_longest(pro.read(report), anti.read(report))):
        named = sorted({w.lower() for w in (pair[0].words if pair[0] else ())} & candidates)
        jobs = " and ".join(named) if len(named) > 1 else f"pair {number}"
        for condition, document in zip(coreference.CONDITIONS, pair, strict=True):
            if document is None:
                raise InputError(
                    f"{name} are not pairs: document {number} of the {condition}-stereotyped "
                    "sentences is missing. Expected the same number of sentences in both, in the "
                    "same order."
                )
            inside = {word for mention in document.mentions for word in mention.words()}
            others = [
                Mention(f"{OTHER_CANDIDATE} {word}", ((word, word + 1),))
                for word, form in enumerate(document.words)
                if form.lower() in candidates and word not in inside
            ]
            mentions = sorted((*document.mentions, *others), key=lambda mention: mention.spans)
            yield replace(
                document,
                id=f"{number}-{condition}-{document.id}",
                mentions=tuple(mentions),
                part_of=jobs,
                meta={**document.meta, coreference.CONDITION: condition},
            )
