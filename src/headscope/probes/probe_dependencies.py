"""`headscope.probe_dependencies`: every head as a classifier of every dependency relation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Unpack

from headscope.arguments import whole_number
from headscope.measuring.dep_words import Possessive
from headscope.metrics.dependency_accuracy import DepAccuracy, DepOffset
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.options import RunOptions, with_defaults
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Unit
from headscope.text.readers.lines import Report
from headscope.text.readers.read import Readable, as_corpus


def probe_dependencies(
    model: Model | str,
    corpus: Corpus | Readable,
    min_cases: int = 100,
    *,
    punctuation: bool = True,
    possessive: Possessive = "auto",
    fold_subtypes: bool = False,
    **options: Unpack[RunOptions],
) -> Result:
    """How well each head finds the parent of each word, by relation (Clark et al. 2019, 4.2).

    A head predicts, for each word, the other word it attends to most. All heads, both
    directions and all relations in one pass; plan, shards, workers and resume are those of
    `headscope.analyze`, and results merge likewise. `result.table()` gives the best head of
    each relation.

    Args:
        model: the model, or what `headscope.load` takes.
        corpus: parsed documents, or what `headscope.read` takes (files by sentence).
        min_cases: relations with fewer words are NaN.
        punctuation: count punctuation too (the relation `punct`).
        possessive: where the dependent of a possessive (`poss`, `nmod:poss`) is followed by
            the particle `'s` or `'`, the particle predicts in its place. By default in data
            with Stanford's label `poss`.
        fold_subtypes: count `nmod:poss` as `nmod`.
        options: see `RunOptions`. A batch has at most 2,048 tokens by default.

    Returns:
        `accuracy` and `accuracy_visible` over `direction` (`dependent`: the dependent attends
        to its parent; `head`: the parent attends to the dependent), `relation` (with `all`),
        `layer` and `head`; `baseline`, `baseline_offset` and `cases` over `relation`;
        `cases_visible` over `direction` and `relation`.

    Raises:
        InputError: no document is parsed, or `min_cases` is below 1.
    """
    min_cases = whole_number("min_cases", min_cases)
    corpus = as_corpus(corpus)
    if fold_subtypes:
        corpus = without_subtypes(corpus)
    metrics = [
        make(punctuation=punctuation, possessive=possessive, min_cases=min_cases)
        for make in (DepAccuracy, DepOffset)
    ]
    return analyze(model, corpus, metrics, **with_defaults(options, batch_tokens=2048))


def fold_subtypes(document: Document) -> Document:
    """The document with relations without their subtypes: `nmod` for `nmod:poss`."""
    if document.relations is None:
        return document
    return replace(
        document, relations=tuple(relation.split(":")[0] for relation in document.relations)
    )


def without_subtypes(corpus: Corpus) -> Corpus:
    """The corpus with relations without their subtypes."""
    return Corpus(_Folded(corpus), unit=corpus.unit, on_error=corpus.on_error)


@dataclass(frozen=True)
class _Folded:
    """A corpus with relations without subtypes, as a source of documents."""

    corpus: Corpus

    @property
    def name(self) -> str:
        """The corpus's name, and that its subtypes are folded."""
        return f"{self.corpus.name}, subtypes folded"

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """The corpus's documents."""
        yield from map(fold_subtypes, self.corpus.by(unit).read(report))
