"""`headscope.probe_dependencies` and its examples: heads as classifiers of dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Unpack, get_args

import numpy as np

from headscope.arguments import whole_number
from headscope.attention import Attention, BlockName
from headscope.batch import Batch
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.word_attention import Possessive, dep_cases, other_words, word_weights
from headscope.metrics.dependencies import DIRECTIONS, DepAccuracy, DepOffset
from headscope.model.identity import weights_sha256
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.tap.projection import NormWeights
from headscope.probes.tables import probe_table
from headscope.results.probe import ProbeArc, ProbeExample, ProbeExamples
from headscope.results.result import Result
from headscope.run.analyze import analyze
from headscope.run.batches import Encoder
from headscope.run.options import Over, RunOptions, Settings, with_defaults
from headscope.run.plan import axes_for, survey
from headscope.text.corpus import Corpus, DerivedSource
from headscope.text.document import Document, Unit
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.readers.reader import ReadLog


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
    """Score each head as a classifier of parents, by relation (Clark et al. 2019, 4.2).

    A head predicts, for each word, the other word it attends to most. All heads, both
    directions and all relations are scored in one pass, which runs and merges as in
    `headscope.analyze`. `result.table()` gives the best head of each relation.

    Args:
        model: the model, or an argument of `headscope.load`.
        corpus: parsed documents, or an argument of `headscope.read` (files by sentence).
        min_cases: relations with fewer words are NaN.
        punctuation: count punctuation too (the relation `punct`).
        possessive: use the attention of the particle `'s` or `'` for the dependent of a
            possessive (`poss`, `nmod:poss`) before it. By default in data with Stanford's label
            `poss`.
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
    if fold_subtypes:
        corpus = without_subtypes(as_corpus(corpus))
    metrics = [
        make(punctuation=punctuation, possessive=possessive, min_cases=min_cases)
        for make in (DepAccuracy, DepOffset)
    ]
    return analyze(model, corpus, metrics, **with_defaults(options, batch_tokens=2048))


def fold_subtypes(document: Document) -> Document:
    """Return the document with relations without subtypes: `nmod` for `nmod:poss`."""
    if document.relations is None:
        return document
    return replace(
        document, relations=tuple(relation.split(":")[0] for relation in document.relations)
    )


def without_subtypes(corpus: Corpus) -> Corpus:
    """Return the corpus with relations without subtypes."""
    source = DerivedSource(f"{corpus.name}, subtypes folded", partial(_folded, corpus))
    return Corpus(source, unit=corpus.unit, on_error=corpus.on_error)


def _folded(corpus: Corpus, unit: Unit, report: ReadLog) -> Iterator[Document]:
    return map(fold_subtypes, corpus.by(unit).read(report))


def probe_examples(
    model: Model | str,
    corpus: Corpus | Readable,
    layer: int,
    head: int,
    relation: str,
    *,
    direction: str = "dependent",
    possessive: Possessive = "auto",
    right: int = 3,
    wrong: int = 3,
    max_words: int = 16,
    block: BlockName | None = None,
    over: Over = "attention",
) -> ProbeExamples:
    """Return sentences in which a head finds or misses a relation, right ones first. See
    `Result.examples`.
    """
    UnknownName.check("direction", direction, DIRECTIONS)
    if possessive not in get_args(Possessive):
        raise UnknownName.of("possessive", possessive, map(str, get_args(Possessive)))
    model = as_model(model)
    site = model.wiring.find(block, layer, head)
    corpus = as_corpus(corpus)
    settings = Settings(over=over)
    surveyed = survey(corpus, settings)
    UnknownName.check("relation", relation, surveyed.relations)
    encoder = Encoder(model, axes_for(surveyed, settings), settings)
    relation_number = surveyed.relations.index(relation)
    examples: dict[bool, list[ProbeExample]] = {True: [], False: []}
    for numbered in enumerate(corpus):
        document = numbered[1]
        if len(document) > max_words or relation not in (document.relations or ()):
            continue
        inputs, batch = encoder.batch(encoder.encode([numbered]))
        read: list[ProbeExample] = []

        def read_layer(
            attention: Attention, batch: Batch = batch, read: list[ProbeExample] = read
        ) -> None:
            if (attention.block, attention.layer) == (site.block, site.layer):
                layer_data = LayerData(attention, batch)
                read.append(_example(layer_data, head, relation_number, direction, possessive))

        model.read(inputs, NormWeights(model, read_layer) if over == "norm" else read_layer)
        example = read[0]
        most = right if example.is_right else wrong
        if example.arcs and len(examples[example.is_right]) < most:
            examples[example.is_right].append(example)
        if len(examples[True]) >= right and len(examples[False]) >= wrong:
            break
    title = f"{model.name} · L{layer} H{head} · {relation}" + " · by norm" * (over == "norm")
    return ProbeExamples(title, (*examples[True], *examples[False]))


def _example(
    layer_data: LayerData, head: int, relation: int, direction: str, possessive: Possessive
) -> ProbeExample:
    cases = dep_cases(layer_data, punctuation=True, possessive=possessive)
    weights, others = (
        (w[0, head] if direction == "dependent" else w[0, head].T).double().cpu().numpy()
        for w in (word_weights(layer_data), other_words(layer_data))
    )
    arcs = []
    for case in np.flatnonzero((cases.relation == relation) & cases.has_target):
        query, target = int(cases.query[case]), int(cases.parent[case])
        best = int(others[query].argmax())
        predicted = best if others[query, best] > 0 else None
        arcs.append(ProbeArc(query, predicted, target, predicted == target))
    document = layer_data.batch.documents[0]
    return ProbeExample(document.id, document.words[: len(weights)], weights, tuple(arcs))


def examples_of(
    result: Result,
    model: Model | str,
    corpus: Corpus | Readable,
    relation: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    direction: str | None = None,
    block: BlockName | None = None,
    **limits: int,
) -> ProbeExamples:
    """Return sentences of a relation under a head. See `Result.examples`."""
    if "accuracy" not in result:
        raise InputError("This result lacks accuracy. Expected headscope.probe_dependencies(…).")
    if (layer is None) != (head is None):
        raise InputError(f"Give layer and head, or neither: layer is {layer}, head is {head}.")
    model = as_model(model)
    expected = result.provenance["model"].get("weights_sha256")
    if expected is not None and weights_sha256(model.module) != expected:
        raise InputError(f"The result is of {result.model}; {model.name} has other weights.")
    if layer is None or head is None or direction is None:
        best = probe_table(result, block=block)[relation]
        layer, head = (best.layer, best.head) if layer is None or head is None else (layer, head)
        direction = direction or best.direction or "dependent"
    corpus = as_corpus(corpus)
    if not any(":" in str(name) for name in result["accuracy"]["relation"].values):
        # Measured without subtypes: fold those of the corpus too.
        corpus = without_subtypes(corpus)
    (metric,) = (m for m in result.provenance["metrics"] if m["name"] == "dep_accuracy")
    return probe_examples(
        model,
        corpus,
        layer,
        head,
        relation,
        direction=direction,
        possessive=metric["possessive"],
        block=block,
        **limits,
        over=result.provenance["settings"].get("over", "attention"),
    )
