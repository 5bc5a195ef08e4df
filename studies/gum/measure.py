"""The runs of the study. Each has a folder: one that was stopped goes on, one that is
complete is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import headscope as hs
from headscope.results.result import Result
from headscope.text.document import Document
from studies.gum.corpora import segments, sentences

__all__ = ["MODELS", "Runs", "measure_model"]

MODELS = ("smollm2", "minilm")

STRUCTURE = (
    "null_share",
    "pos_to",
    "pos_from",
    "dep_alignment",
    "dep_baseline",
    "dep_baseline_by_parent",
    "dep_type_to",
    "dep_by_distance",
    "dep_span",
    "variability",
    "distance",
    "entropy",
    "exemplars",
)
"""Vig & Belinkov's metrics, over sentences."""

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


@dataclass(frozen=True)
class Runs:
    """What was measured for one model."""

    structure: Result
    surface: Result


def measure_model(name: str, documents: list[Document], out: Path, workers: int) -> Runs:
    """All runs of one model."""
    model = hs.load(name)
    structure = hs.analyze(
        model,
        sentences(documents),
        STRUCTURE,
        out=out / f"{name}-sentences",
        by="genre",
        workers=workers,
    )
    surface = hs.analyze(
        model,
        segments(model, documents),
        SURFACE,
        out=out / f"{name}-segments",
        by="genre",
        workers=workers,
    )
    return Runs(structure, surface)
