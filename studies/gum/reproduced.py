"""The findings of the papers and what became of them here, as tables for README and docs:
`python -m studies.gum.reproduced`. It reads the judgements that the study stored.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from studies.gum.finding import Finding
from studies.gum.page import DESCRIBED, FINDINGS, TITLES

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "study" / "judgements.json"
PAGES = ROOT / "README.md", ROOT / "docs" / "reproduced.md"
MARK = re.compile(
    r"(<!-- reproduced: (all|misses) -->\n).*?(<!-- end of reproduced -->)", re.DOTALL
)
MISSES = 5
"""Findings in the README: tested, and missed by one of the models."""
SIGNS = {"holds": "✓", "open": "~", "fails": "✗"}
Stored = Mapping[str, Mapping[str, Mapping[str, Mapping[str, str | float | None]]]]
"""Part, model and finding → `verdict` and `text`."""


def written(text: str, judged: Stored) -> str:
    """A page with its tables as the judgements have them."""
    return MARK.sub(lambda found: f"{found[1]}\n{table(judged, found[2])}\n\n{found[3]}", text)


def table(judged: Stored, which: str) -> str:
    """All findings, or those that one of the models does not bear out, after the counts."""
    rows = [
        f"| {finding.claim} | {finding.where} | {' | '.join(cells)} |"
        for finding, cells, missed in _judged_findings(judged)
        if which == "all" or (missed and not any("·" in cell for cell in cells))
    ]
    rows = rows if which == "all" else rows[:MISSES]
    names = " | ".join(TITLES.values())
    heading = [f"| finding | where | {names} |", "|---|---|---|---|"]
    n = sum(len(FINDINGS[part]) for part in judged)
    return "\n".join([*heading, f"| **all {n}** | | {' | '.join(_counts(judged))} |", *rows])


def _counts(judged: Stored) -> Iterator[str]:
    for model in TITLES:
        found = [judgement for part in judged for judgement in judged[part][model].values()]
        counted = Counter(j["verdict"] for j in found if j["p_adjusted"] is not None)
        described = Counter(j["verdict"] for j in found if j["p_adjusted"] is None)
        others = described.pop(None, 0)
        yield ", ".join(
            [
                *(f"{counted[verdict]} {sign} {verdict}" for verdict, sign in SIGNS.items()),
                *(f"{described[verdict]} {mark}" for verdict, mark in DESCRIBED.items()),
                *([f"{others} do not apply"] if others else []),
            ]
        )


def _judged_findings(judged: Stored) -> Iterator[tuple[Finding, list[str], bool]]:
    """Each finding, what each model says to it, and whether one of them does not bear it out."""
    for part in judged:
        for finding in FINDINGS[part]:
            judgements = [judged[part][model].get(finding.id) for model in TITLES]
            cells = []
            for judgement in judgements:
                if judgement is None or judgement["verdict"] is None:
                    cells.append(f"– {'' if judgement is None else judgement['text']}".strip())
                else:
                    verdict = str(judgement["verdict"])
                    is_tested = judgement["p_adjusted"] is not None
                    mark = f"{SIGNS[verdict]} {verdict}" if is_tested else DESCRIBED[verdict]
                    cells.append(f"{mark}: {judgement['text']}")
            missed = any(j is not None and j["verdict"] in ("open", "fails") for j in judgements)
            yield finding, cells, missed


def read_judgements() -> Stored:
    """What the study stored."""
    stored: Stored = json.loads(STORED.read_text(encoding="utf-8"))
    return stored


if __name__ == "__main__":
    for page in PAGES:
        text = written(page.read_text(encoding="utf-8"), read_judgements())
        page.write_text(text, encoding="utf-8")
