"""A finding of a paper, and the judgement on it for one model."""

from __future__ import annotations

from dataclasses import dataclass

from studies.gum.estimates import Verdict

__all__ = ["Finding", "Judgement"]


@dataclass(frozen=True)
class Finding:
    """What a paper says, and the test it is put to here."""

    id: str
    where: str
    claim: str
    test: str


@dataclass(frozen=True)
class Judgement:
    """What the interval says; None where the finding is not about such a model."""

    verdict: Verdict | None
    text: str
