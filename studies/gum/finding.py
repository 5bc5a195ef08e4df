"""A finding of a paper, and the judgement on it for one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from headscope.statistics.intervals import holm
from studies.gum.estimates import Tested

__all__ = ["Finding", "Judged", "Judgement", "Verdict", "as_plain", "settle"]

LEVEL = 0.05
Verdict = Literal["holds", "fails", "open"]


@dataclass(frozen=True)
class Finding:
    """What a paper says, and the test it is put to here."""

    id: str
    where: str
    claim: str
    test: str


@dataclass(frozen=True)
class Judgement:
    """What was measured of a finding, and what follows."""

    tested: Tested | None
    """None where the finding is not about such a model."""
    text: str
    verdict: Verdict | None = None
    """Known once all tests of the page are: `settle`."""
    p_adjusted: float | None = None
    """Corrected over all tests of the page (Holm)."""


Judged = dict[str, dict[str, dict[str, Judgement]]]
"""By part, model and finding."""


def settle(judged: Judged) -> Judged:
    """The verdicts, such that the chance that any of them is wrong is at most 5 %.

    A number that differs from its threshold after Holm's correction over all tests of the page
    decides: the finding holds or fails. One that does not leaves it open. Where there is no test
    the number alone decides.
    """
    keys = [
        (part, model, name)
        for part, models in judged.items()
        for model, found in models.items()
        for name, one in found.items()
        if one.tested is not None
    ]
    tests = [_of(judged, key) for key in keys]
    adjusted = holm(np.array([one.p for one in tests]))
    settled = {part: {m: dict(found) for m, found in of.items()} for part, of in judged.items()}
    for (part, model, name), one, p in zip(keys, tests, adjusted, strict=True):
        said: Verdict = "holds" if one.is_so else "fails"
        settled[part][model][name] = replace(
            judged[part][model][name],
            verdict="open" if p > LEVEL else said,
            p_adjusted=None if np.isnan(p) else float(p),
        )
    return settled


def as_plain(judged: Judged) -> Mapping[str, object]:
    """For a JSON file: text, verdict and corrected p of every judgement."""
    return {
        part: {
            model: {
                name: {key: value for key, value in asdict(one).items() if key != "tested"}
                for name, one in found.items()
            }
            for model, found in models.items()
        }
        for part, models in judged.items()
    }


def _of(judged: Judged, key: tuple[str, str, str]) -> Tested:
    part, model, name = key
    tested = judged[part][model][name].tested
    assert tested is not None
    return tested
