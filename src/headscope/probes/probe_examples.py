"""`Result.examples`: sentences in which a head finds a relation, and some in which it does not."""

from __future__ import annotations

from typing import get_args

import numpy as np

from headscope.attention import Attention, Block
from headscope.batch import Batch
from headscope.errors import UnknownName
from headscope.measuring.dep_words import Possessive, dep_cases
from headscope.measuring.reading import Reading
from headscope.measuring.word_attention import other_words, word_weights
from headscope.metrics.dependency_accuracy import DIRECTIONS
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.norm_weights import NormWeights
from headscope.results.probe_example import ProbeArc, ProbeExample, ProbeExamples
from headscope.run.batches import Encoder
from headscope.run.options import Over, Settings
from headscope.run.plan import axes_for, survey
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus


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
    block: Block | None = None,
    over: Over = "attention",
) -> ProbeExamples:
    """The first sentences in which a head always finds a relation, and in which it misses one.

    `Result.examples` says more; `possessive` is as in `probe_dependencies`.

    Returns:
        Those that are right, then those that are wrong, in order of the corpus.
    """
    if direction not in DIRECTIONS:
        raise UnknownName.of("direction", direction, DIRECTIONS)
    if possessive not in get_args(Possessive):
        raise UnknownName.of("possessive", possessive, map(str, get_args(Possessive)))
    model = as_model(model)
    site = model.wiring.find(block, layer, head)
    corpus = as_corpus(corpus)
    settings = Settings(over=over)
    surveyed = survey(corpus, settings)
    if relation not in surveyed.relations:
        raise UnknownName.of("relation", relation, surveyed.relations)
    encoder = Encoder(model, axes_for(surveyed, settings), settings)
    number_of = surveyed.relations.index(relation)
    examples: dict[bool, list[ProbeExample]] = {True: [], False: []}
    for numbered in enumerate(corpus):
        document = numbered[1]
        if len(document) > max_words or relation not in (document.relations or ()):
            continue
        inputs, batch = encoder.batch(encoder.encode([numbered]))
        made: list[ProbeExample] = []

        def look(
            attention: Attention, batch: Batch = batch, made: list[ProbeExample] = made
        ) -> None:
            if (attention.block, attention.layer) == (site.block, site.layer):
                reading = Reading(attention, batch)
                made.append(_example(reading, head, number_of, direction, possessive))

        model.read(inputs, NormWeights(model, look) if over == "norm" else look)
        example = made[0]
        wanted = right if example.is_right else wrong
        if example.arcs and len(examples[example.is_right]) < wanted:
            examples[example.is_right].append(example)
        if len(examples[True]) >= right and len(examples[False]) >= wrong:
            break
    title = f"{model.name} · L{layer} H{head} · {relation}" + " · by norm" * (over == "norm")
    return ProbeExamples(title, (*examples[True], *examples[False]))


def _example(
    reading: Reading, head: int, relation: int, direction: str, possessive: Possessive
) -> ProbeExample:
    cases = dep_cases(reading, punctuation=True, possessive=possessive)
    weights, others = (
        (w[0, head] if direction == "dependent" else w[0, head].T).double().cpu().numpy()
        for w in (word_weights(reading), other_words(reading))
    )
    arcs = []
    for case in np.flatnonzero((cases.relation == relation) & cases.has_target):
        query, target = int(cases.query[case]), int(cases.parent[case])
        best = int(others[query].argmax())
        predicted = best if others[query, best] > 0 else None
        arcs.append(ProbeArc(query, predicted, target, predicted == target))
    document = reading.batch.documents[0]
    return ProbeExample(document.id, document.words[: len(weights)], weights, tuple(arcs))
