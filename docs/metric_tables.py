"""Writes the tables of metrics in docs/papers.md from the metrics' own descriptions:
`python docs/metric_tables.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from headscope.metrics import METRICS
from headscope.metrics.core.contract import Metric

PAGE = Path(__file__).with_name("papers.md")
MARK = re.compile(r"(<!-- metrics: (\w+) -->\n).*?(<!-- end of metrics -->)", re.DOTALL)
SHORT = {
    "Vig & Belinkov 2019,": "V&B",
    "Clark et al. 2019,": "CLARK",
    "Vig 2019,": "VIG",
    "sections ": "§",
    "section ": "§",
    "Figures ": "Fig. ",
    "Figure ": "Fig. ",
}
FAMILIES = {
    "structure": lambda metric: metric.paper.startswith("Vig & Belinkov"),
    "surface": lambda metric: (
        (not metric.paper.startswith("Vig & Belinkov") and metric.is_default)
        or metric.name in ("js", "importance", "removal_estimate", "loss", "head_samples")
        or metric.name == "retrieval"
    ),
    "classifiers": lambda metric: metric.name.startswith(("dep_acc", "dep_off", "coref", "bias")),
}


def table(family: str) -> str:
    """A row for each metric of a family, in the order in which pages list them."""
    chosen = [metric for metric in METRICS.values() if FAMILIES[family](metric)]
    rows = [row(metric) for metric in sorted(chosen, key=lambda metric: metric.order)]
    return "\n".join(
        ["| metric | what | equation | units | paper |", "|---|---|---|---|---|", *rows]
    )


def row(metric: type[Metric]) -> str:
    """Name, title, equation, units, paper."""
    equations = dict.fromkeys(v.equation for v in metric().variables() if v.equation)
    shown = "; ".join(f"${equation}$".replace("|", r"\vert ") for equation in equations)
    what = metric.title.replace("|", r"\|")
    cells = (f"`{metric.name}`", what, shown, metric.units, short(metric.paper))
    return f"| {' | '.join(cells)} |"


def short(paper: str) -> str:
    """A paper's place by the short names of the page."""
    for name, shortened in SHORT.items():
        paper = paper.replace(name, shortened)
    return paper


def written(text: str) -> str:
    """The page with its tables as the metrics describe themselves."""
    return MARK.sub(lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
