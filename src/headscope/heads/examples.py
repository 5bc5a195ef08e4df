"""`Result.examples`: sentences of a relation under its best head, or another."""

from __future__ import annotations

from headscope.attention import Block
from headscope.errors import InputError
from headscope.heads.probe_table import probe_table
from headscope.model.fingerprint import weights_sha256
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.probes.probe_dependencies import without_subtypes
from headscope.probes.probe_examples import probe_examples
from headscope.results.probe_example import ProbeExamples
from headscope.results.result import Result
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus


def examples_of(
    result: Result,
    model: Model | str,
    corpus: Corpus | Readable,
    relation: str,
    *,
    layer: int | None = None,
    head: int | None = None,
    direction: str | None = None,
    right: int = 3,
    wrong: int = 3,
    max_words: int = 16,
    block: Block | None = None,
) -> ProbeExamples:
    """Sentences of a relation under its best head, or another; `Result.examples` says more."""
    if "accuracy" not in result:
        raise InputError("Examples are of a result of headscope.probe_dependencies; this is none.")
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
        # Measured without subtypes: those of the corpus are folded likewise.
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
        right=right,
        wrong=wrong,
        max_words=max_words,
        block=block,
        over=result.provenance["settings"].get("over", "attention"),
    )
