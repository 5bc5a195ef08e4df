"""A trained probe on new text: the parents of its words, from the attention of its model."""

from __future__ import annotations

import numpy as np
import torch

from headscope.arguments import expect
from headscope.errors import InputError, UnknownName
from headscope.model.control import randomized
from headscope.model.fingerprint import weights_sha256
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.probes.decode import DECODINGS, Decoding, decode
from headscope.probes.features import AttentionReader
from headscope.probes.scorers import ProbeBatch, Scorer, make_scorer
from headscope.probes.vectors import WordVectors, load_vectors
from headscope.results.probe import Probe
from headscope.text.document import Document
from headscope.text.readers.read import read
from headscope.text.tree import ROOT


def predict(
    probe: Probe,
    document: Document | str,
    model: Model | str,
    *,
    decoding: Decoding = "greedy",
    vectors: WordVectors | None = None,
) -> tuple[int, ...]:
    """The parent of each word, -1 for a root; `Probe.predict` says more."""
    expect("document", document, Document | str, "a document or a text")
    if decoding not in DECODINGS:
        raise UnknownName.of("decoding", decoding, DECODINGS)
    if isinstance(document, str):
        document = next(iter(read([document])))
    scorer = scorer_of(probe)
    max_tokens = int(probe.provenance["options"]["max_tokens"])
    reader = AttentionReader(
        _checked_model(probe, as_model(model)),
        max_tokens=max_tokens,
        over=probe.provenance["options"].get("over", "attention"),
    )
    words = _checked_vectors(probe, vectors) if scorer.reads_words else None
    parents: list[int] = []
    for sentence in document.split("sentence"):
        start, n = len(parents), len(sentence)
        scores = _sentence_scores(scorer, reader, words, sentence)
        parents += [
            ROOT if parent == n else start + int(parent) for parent in decode(scores, decoding)
        ]
    return tuple(parents)


def scorer_of(probe: Probe) -> Scorer:
    """The probe's weights, ready to score."""
    sizes = probe.parameters.sizes
    scorer = make_scorer(
        probe.kind,
        n_heads=sizes.get("input", 0),
        n_edges=sizes.get("edge", 0) // 2,
        n_dimensions=sizes.get("dimension", 0),
    )
    scorer.load({str(name): data.values for name, data in probe.parameters.data_vars.items()})
    return scorer.eval()


def _sentence_scores(
    scorer: Scorer, reader: AttentionReader, vectors: WordVectors | None, sentence: Document
) -> np.ndarray:
    """`word candidate`; the last candidate is ROOT."""
    has_tokens = torch.from_numpy(reader.survey([sentence]).has_tokens[0])[None]
    attention = words = None
    if scorer.reads_attention:
        ((_, array),) = reader.read([(0, sentence)])
        attention = torch.from_numpy(array)[None]
    if vectors is not None:
        words = torch.from_numpy(vectors.of(sentence.words))[None]
    targets = torch.full_like(has_tokens, -1, dtype=torch.int64)
    batch = ProbeBatch(has_tokens, targets, attention, words)
    with torch.inference_mode():
        return np.asarray(scorer(batch)[0].double().numpy())


def _checked_model(probe: Probe, model: Model) -> Model:
    """The model the probe was trained on: this one, or the control made of it."""
    expected = probe.provenance["model"]["weights_sha256"]
    seed = probe.provenance["control_seed"]
    candidate = model if seed is None else randomized(model, int(seed))
    if weights_sha256(candidate.module) != expected:
        raise InputError(
            f"The probe was trained on {probe.provenance['model']['name']} with other weights "
            f"(SHA-256 {expected[:16]}…) than those of {model.name}."
        )
    return candidate


def _checked_vectors(probe: Probe, vectors: WordVectors | None) -> WordVectors:
    """The vectors the probe was trained with: these, or those loaded from where they were."""
    about = probe.provenance["vectors"]
    vectors = load_vectors(about["source"]) if vectors is None else vectors
    if vectors.sha256 != about["sha256"]:
        raise InputError(
            f"The probe was trained with {about['name']} (SHA-256 {about['sha256'][:16]}…), not "
            f"with {vectors.name} ({vectors.sha256[:16]}…)."
        )
    return vectors
