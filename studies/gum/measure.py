"""The runs of the study. Each has a folder: one that was stopped goes on, one that is
complete is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headscope as hs
from headscope.metrics import VIG_BELINKOV
from headscope.results.effect_data import result_of_effects
from headscope.results.files import RESULT
from headscope.results.result import Result
from headscope.text.document import Document
from studies.gum.corpora import TRAIN, segments, sentences

__all__ = ["MODELS", "PROBES", "Runs", "measure_model", "open_runs", "train_probes"]

MODELS = ("smollm2", "minilm")

SURFACE = (
    "offset_share",
    "class_share",
    "sep_from_sep",
    "sep_from_other",
    "row_entropy",
    "first_entropy",
    "uniform_entropy",
    "sink_rate",
    "js",
)
"""Clark et al.'s, over segments of 128 tokens."""
WEIGHTED = ("null_share", "distance", "entropy", "dep_alignment")
EVERY = 3
"""Effects are measured on one sentence of every third document: each costs some fifty forwards."""

PROBES: dict[str, dict[str, Any]] = {
    "distance+words": {"kind": "distance+words"},
    "random+words": {"kind": "attention+words", "control": True},
    "attention": {"kind": "attention"},
    "attention+words": {"kind": "attention+words"},
}
"""Clark et al.'s Table 3, by what the probe sees; the second on random weights."""


@dataclass(frozen=True)
class Runs:
    """What was measured for one model."""

    structure: Result
    surface: Result
    dependencies: Result
    weighted: Result
    """Some of `structure`, over attention weighted by the norm of what it fetches."""
    coreference: Result | None
    """None where it was not measured: the page then says so."""
    effects: Result | None
    """On the loss; None for a model without one."""


def measure_model(
    name: str, documents: list[Document], with_ontogum: list[Document], out: Path, workers: int
) -> Runs:
    """All runs of one model."""
    model = hs.load(name)
    drawn = sentences(documents)
    runs: dict[str, Callable[..., Result]] = {
        "sentences": lambda **o: hs.analyze(model, drawn, VIG_BELINKOV, by="genre", **o),
        "segments": lambda **o: hs.analyze(
            model, segments(model, documents), SURFACE, by="genre", **o
        ),
        "dependencies": lambda **o: hs.probe_dependencies(model, drawn, **o),
        "weighted": lambda **o: hs.analyze(model, drawn, WEIGHTED, over="norm", by="genre", **o),
        "coreference": lambda **o: hs.probe_coreference(model, hs.read(with_ontogum), **o),
    }
    for label, run in runs.items():
        folder = out / f"{name}-{label}"
        if not (folder / RESULT).is_file():
            run(out=folder, workers=workers)
    path = out / f"{name}-effects.nc"
    if model.info.objective is not None and not path.is_file():
        found = hs.effects(model, sentences(documents[::EVERY], 1))
        result_of_effects(found).save(path)
    return open_runs(name, out)


def open_runs(name: str, out: Path) -> Runs:
    """The runs of one model that are complete."""
    labels = ("sentences", "segments", "dependencies", "weighted")
    optional = out / f"{name}-coreference"
    coreference = hs.open(optional) if (optional / RESULT).is_file() else None
    path = out / f"{name}-effects.nc"
    effects = hs.open(path) if path.is_file() else None
    return Runs(*(hs.open(out / f"{name}-{label}") for label in labels), coreference, effects)  # type: ignore[call-arg]


def train_probes(name: str, documents: list[Document], out: Path) -> dict[str, hs.Probe]:
    """The probes over all heads: trained on the sentences of the training part, scored on
    those of the development part.
    """
    train, dev = (list(sentences(part)) for part in (documents[:TRAIN], documents[TRAIN:]))
    found = {}
    for label, options in PROBES.items():
        path = out / f"{name}-probe-{label}.nc"
        if path.is_file():
            found[label] = hs.open(path)
            continue
        model = hs.load(name)
        found[label] = hs.train_probe(model, train, dev, cache=out / "attention", **options)
        found[label].save(path)
    return found
