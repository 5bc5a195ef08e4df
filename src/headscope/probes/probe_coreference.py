"""`headscope.probe_coreference`: every head as a finder of antecedents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Unpack

from transformers import PreTrainedTokenizerBase

from headscope.arguments import whole_number
from headscope.errors import InputError, warn
from headscope.metrics.coreference import Candidates, CorefAccuracy, CorefBaseline
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.segments import offsets_by
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.options import RunOptions, with_defaults
from headscope.text.antecedents import anaphors
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Unit
from headscope.text.readers.lines import Report
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.segment import shorten


def probe_coreference(
    model: Model | str,
    corpus: Corpus | Readable,
    *,
    candidates: Candidates = "mentions",
    **options: Unpack[RunOptions],
) -> Result:
    """How well each head finds the antecedents of mentions (Clark et al. 2019, 4.3).

    A head is right about a mention if, of the head words of all earlier mentions, the mention's
    head word attends most to that of an antecedent. Plan, shards, workers and resume are those of
    `headscope.analyze`. `result.table()` gives the best head of each kind of mention.

    Args:
        model: the model, or what `headscope.load` takes.
        corpus: documents with mentions (CorefUD's CoNLL-U, CoNLL-2012, OntoGUM), or what
            `headscope.read` takes: files are read as whole documents.
        candidates: `mentions`: the head words of mentions before; `words`: any other word.
        options: see `RunOptions`. Documents are cut after the last word that fits into
            `max_tokens`, 128 by default; mentions that are cut in two are left out.

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
            'found. For whole documents pass corpus.by("document").',
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
    metrics = [CorefAccuracy(candidates), CorefBaseline()]
    return analyze(model, cut, metrics, **with_defaults(options, batch_tokens=2048))


def cut_documents(model: Model, corpus: Corpus, max_tokens: int) -> Corpus:
    """The beginning of each document of a corpus, at most so many tokens long."""
    source = _Beginnings(corpus, model.need_tokenizer(), max_tokens)
    return Corpus(source, unit=corpus.unit, on_error=corpus.on_error)


@dataclass(frozen=True)
class _Beginnings:
    """The beginning of each document of a corpus, as a source of documents."""

    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase = field(repr=False, compare=False)
    max_tokens: int

    @property
    def name(self) -> str:
        return f"{self.corpus.name}, first {self.max_tokens} tokens"

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """The beginnings; a document of which no word fits is left out."""
        special = int(self.tokenizer.num_special_tokens_to_add(pair=False))
        for document in self.corpus.by(unit).read(report):
            cut = shorten(document, offsets_by(self.tokenizer), self.max_tokens, special=special)
            if len(cut):
                yield cut
