"""`headscope.probe_coreference`: every head as a finder of antecedents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.arguments import whole_number
from headscope.errors import InputError
from headscope.metrics.coreference import Candidates, CorefAccuracy, CorefBaseline
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.segments import offsets_by
from headscope.results.result import Result
from headscope.run.analyze import Engine, analyze
from headscope.text.antecedents import anaphors
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Unit
from headscope.text.readers.lines import Report
from headscope.text.readers.read import read
from headscope.text.segment import shorten

__all__ = ["cut_documents", "probe_coreference"]


def probe_coreference(
    model: Model | str,
    corpus: Corpus | str | Path | Iterable[Any],
    *,
    max_tokens: int | None = 128,
    candidates: Candidates = "mentions",
    out: str | Path | None = None,
    engine: Engine = "local",
    workers: int = 1,
    resume: bool = True,
    by: str | None = None,
    batch_tokens: int = 2048,
    threads: int = 1,
    address: str | None = None,
    progress: bool | None = None,
) -> Result:
    """How well each head finds the antecedents of mentions (Clark et al. 2019, 4.3).

    Of the head words of the mentions before it, is the one that a mention's head word attends
    to most the head word of an antecedent? Plan, shards, workers and resume are those of
    `headscope.analyze`. `result.table()` gives the best head of each kind of mention.

    Args:
        model: the model, or what `headscope.load` takes.
        corpus: documents with mentions (CorefUD's CoNLL-U, CoNLL-2012, OntoGUM), or what
            `headscope.read` takes.
        max_tokens: documents are cut after the last word that fits; None for as much as the
            model reads. Mentions that are cut in two are left out.
        candidates: `mentions`: the head words of mentions before; `words`: any other word.
        out: a folder for checkpoints and the result.
        engine: `local` or `ray`.
        workers: worker processes.
        resume: go on with what is in `out`.
        by: also the values of each group of documents.
        batch_tokens: tokens of a batch.
        threads: of each worker.
        address: of a Ray cluster.
        progress: show progress; by default on a terminal.

    Returns:
        `coref_accuracy` over `layer`, `head` and `mention_kind` (all, pronoun, proper,
        nominal); `coref_baseline` over `rule` (nearest, head_match, sieves) and
        `mention_kind`; `coref_cases` over `mention_kind`.

    Raises:
        InputError: no mention has an antecedent.
    """
    if max_tokens is not None:
        whole_number("max_tokens", max_tokens)
    model = as_model(model)
    corpus = corpus if isinstance(corpus, Corpus) else read(corpus)
    limits = [limit for limit in (max_tokens, model.info.max_length) if limit is not None]
    cut = cut_documents(model, corpus, min(limits)) if limits else corpus
    if not any(anaphors(document) for document in cut):
        raise InputError(
            f"No document of {cut.name} has a mention with an antecedent: there is nothing to "
            "find. Coreference is read from CoNLL-U with Entity= (CorefUD), CoNLL-2012 and "
            "OntoGUM files, and needs whole documents (unit='document')."
        )
    return analyze(
        model,
        cut,
        [CorefAccuracy(candidates), CorefBaseline()],
        out=out,
        engine=engine,
        workers=workers,
        resume=resume,
        by=by,
        max_tokens=min(limits) if limits else 1 << 30,
        batch_tokens=batch_tokens,
        threads=threads,
        address=address,
        progress=progress,
    )


def cut_documents(model: Model, corpus: Corpus, max_tokens: int) -> Corpus:
    """The beginnings of a corpus's documents, at most so many tokens of the model long."""
    source = _Beginnings(corpus, model.need_tokenizer(), max_tokens)
    return Corpus(source, unit=corpus.unit, on_error=corpus.on_error)


@dataclass(frozen=True)
class _Beginnings:
    """The beginnings of a corpus's documents, as a source of documents."""

    corpus: Corpus
    tokenizer: Any = field(repr=False, compare=False)
    max_tokens: int

    @property
    def name(self) -> str:
        return f"{self.corpus.name}, first {self.max_tokens} tokens"

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """Documents that fit; those of which no word fits are left out."""
        special = int(self.tokenizer.num_special_tokens_to_add(pair=False))
        for document in self.corpus.by(unit).read(report):
            cut = shorten(document, offsets_by(self.tokenizer), self.max_tokens, special=special)
            if len(cut):
                yield cut
