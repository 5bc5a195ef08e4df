"""A trained probe on a new sentence: the model it belongs to, and the scores of candidates."""

from __future__ import annotations

import numpy as np
import torch

from headscope.errors import InputError
from headscope.model.fingerprint import weights_sha256
from headscope.model.model import Model
from headscope.probes.control import randomized
from headscope.probes.features import AttentionReader
from headscope.probes.scorers import ProbeBatch, Scorer, make_scorer
from headscope.probes.vectors import WordVectors, load_vectors
from headscope.results.probe import Probe
from headscope.text.document import Document

__all__ = ["probed_model", "probed_vectors", "scorer_of", "sentence_scores"]


def sentence_scores(
    probe: Probe, sentence: Document, model: Model | None, vectors: WordVectors | None
) -> np.ndarray:
    """`word candidate`; the last candidate is ROOT."""
    reader = AttentionReader(
        probed_model(probe, model), max_tokens=int(probe.provenance["options"]["max_tokens"])
    )
    scorer = scorer_of(probe)
    has = torch.from_numpy(reader.survey([sentence]).has_tokens[0])[None]
    attention = words = None
    if scorer.reads_attention:
        ((_, array),) = reader.read([(0, sentence)])
        attention = torch.from_numpy(array)[None]
    if scorer.reads_words:
        words = torch.from_numpy(probed_vectors(probe, vectors).of(sentence.words))[None]
    batch = ProbeBatch(has, torch.full_like(has, -1, dtype=torch.int64), attention, words)
    with torch.inference_mode():
        return np.asarray(scorer(batch)[0].double().numpy())


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


def probed_model(probe: Probe, model: Model | None) -> Model:
    """The model the probe was trained on, after checking that it is."""
    if model is None:
        if probe.model is None:
            raise InputError(
                "A probe opened from a file does not hold its model. Pass it: "
                f"probe.predict(document, model=headscope.load(…)) for "
                f"{probe.provenance['model']['name']}."
            )
        return probe.model
    expected = probe.provenance["model"]["weights_sha256"]
    seed = probe.provenance["control_seed"]
    candidate = model if seed is None else randomized(model, int(seed))
    if weights_sha256(candidate.module) != expected:
        raise InputError(
            f"The probe was trained on {probe.provenance['model']['name']} with other weights "
            f"(SHA-256 {expected[:16]}…) than those of {model.name}."
        )
    return candidate


def probed_vectors(probe: Probe, vectors: WordVectors | None) -> WordVectors:
    """The vectors the probe was trained with, after checking that they are."""
    found = vectors or probe.vectors
    about = probe.provenance["vectors"]
    if found is None:
        found = load_vectors(about["source"])
    if found.sha256 != about["sha256"]:
        raise InputError(
            f"The probe was trained with {about['name']} (SHA-256 {about['sha256'][:16]}…), not "
            f"with {found.name} ({found.sha256[:16]}…)."
        )
    return found
