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
from headscope.results.files import RESULT_FILE
from headscope.results.result import Result
from headscope.text.document import Document
from studies.gum.corpora import TRAIN, segments, sentences

__all__ = [
    "MODELS",
    "PROBES",
    "TASKS",
    "Runs",
    "measure_model",
    "measure_wires",
    "open_probes",
    "open_runs",
    "train_probes",
]

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
SECOND = "ewt"
"""Prefix of the runs on the second corpus: `smollm2-ewt-sentences`."""
SCORED = 2
"""Sentences of each document of the second corpus that probes are scored on."""
TASKS = {"ioi": (64, 100), "agreement": (32, 80)}
"""Tasks whose wires are measured: pairs, and wires that are run exactly."""

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
    name: str,
    documents: list[Document],
    with_ontogum: list[Document] | None,
    out: Path,
    workers: int,
) -> Runs:
    """All runs of one model; on the second corpus, those without coreference and effects."""
    model = hs.load(name)
    prefix, corpus, by = (
        (name, "GUM", "genre") if with_ontogum else (f"{name}-{SECOND}", "EWT", None)
    )
    drawn = sentences(documents, name=corpus)
    runs: dict[str, Callable[..., Result]] = {
        "sentences": lambda **o: hs.analyze(model, drawn, VIG_BELINKOV, by=by, **o),
        "segments": lambda **o: hs.analyze(
            model, segments(model, documents, corpus), SURFACE, by=by, **o
        ),
        "dependencies": lambda **o: hs.probe_dependencies(model, drawn, **o),
        "weighted": lambda **o: hs.analyze(model, drawn, WEIGHTED, over="norm", by=by, **o),
    }
    if with_ontogum:
        mentions = hs.read(with_ontogum)
        runs["coreference"] = lambda **o: hs.probe_coreference(model, mentions, **o)
    for label, run in runs.items():
        folder = out / f"{prefix}-{label}"
        if not (folder / RESULT_FILE).is_file():
            run(out=folder, workers=workers)
    path = out / f"{prefix}-effects.nc"
    if with_ontogum and model.info.objective is not None and not path.is_file():
        found = hs.effects(model, sentences(documents[::EVERY], 1))
        result_of_effects(found).save(path)
    return open_runs(prefix, out)


def open_runs(prefix: str, out: Path) -> Runs:
    """The runs of one model on one corpus that are complete."""
    labels = ("sentences", "segments", "dependencies", "weighted")
    optional = out / f"{prefix}-coreference"
    coreference = hs.open(optional) if (optional / RESULT_FILE).is_file() else None
    path = out / f"{prefix}-effects.nc"
    effects = hs.open(path) if path.is_file() else None
    return Runs(*(hs.open(out / f"{prefix}-{label}") for label in labels), coreference, effects)  # type: ignore[call-arg]


def measure_wires(out: Path) -> None:
    """Wires of two tasks; a stopped run goes on where it was."""
    for task, (n_pairs, exact) in TASKS.items():
        path = out / f"wires-{task}.nc"
        if not path.is_file():
            pairs = hs.pairs(task, n_pairs)
            hs.wires("smollm2", pairs, exact=exact, folder=out / f"wires-{task}").save(path)


def train_probes(
    name: str, documents: list[Document], out: Path, second: list[Document] | None = None
) -> None:
    """The probes over all heads: trained on the sentences of GUM's training part, scored on those
    of its development part, or of the second corpus.
    """
    train = list(sentences(documents[:TRAIN]))
    dev = list(sentences(second, SCORED, "EWT") if second else sentences(documents[TRAIN:]))
    for label, options in PROBES.items():
        path = _probe_path(name, label, out, is_second=second is not None)
        if not path.is_file():
            probe = hs.train_probe(hs.load(name), train, dev, cache=out / "attention", **options)
            probe.save(path)


def open_probes(name: str, out: Path, *, is_second: bool = False) -> dict[str, hs.Probe]:
    """The probes of one model; none if one of them is missing."""
    paths = {label: _probe_path(name, label, out, is_second=is_second) for label in PROBES}
    if not all(path.is_file() for path in paths.values()):
        return {}
    return {label: hs.open(path) for label, path in paths.items()}


def _probe_path(name: str, label: str, out: Path, *, is_second: bool) -> Path:
    prefix = f"{name}-{SECOND}" if is_second else name
    return out / f"{prefix}-probe-{label}.nc"
