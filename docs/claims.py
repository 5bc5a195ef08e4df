"""Writes what README and docs say about speed and size from the table that `make bench` made:
`python docs/claims.py`. Nothing else in them states a measurement of time; a test holds it so.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "benchmarks.md"
PAGES = ROOT / "README.md", ROOT / "docs" / "guide" / "bertviz.md"
MARK = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end of measured -->)", re.DOTALL)
Rows = dict[tuple[str, str], list[tuple[str, str, str]]]
"""Part and what → headscope, beside, ratio; several where there are several to compare with."""


def rows(text: str) -> Rows:
    """The table of a page of measurements."""
    found: Rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 6 and cells[0] != "part":
            found.setdefault((cells[0], cells[1]), []).append((cells[2], cells[3], cells[4]))
    return found


class Measured:
    """Numbers of the table, as sentences say them."""

    def __init__(self, table: Rows) -> None:
        self._table = table

    def ours(self, part: str, what: str) -> str:
        """What headscope takes."""
        return self._table[part, what][0][0]

    def theirs(self, part: str, what: str, at: int = 0) -> str:
        """What stands beside it, without its name."""
        return re.split(r"[:,] ", self._table[part, what][at][1])[-1]

    def cost(self, part: str, what: str) -> str:
        """A ratio to something bare as what it adds: `18 %`, or `nothing`."""
        added = round((float(self._table[part, what][0][2]) - 1) * 100)
        return f"{added} %" if added > 0 else "nothing"

    def ratio(self, part: str, what: str, at: int = 0) -> float:
        """A ratio as a number."""
        return float(self._table[part, what][at][2].removesuffix(" ×"))


VB = "all metrics of Vig & Belinkov, {}"
WHOLE = "all metrics from text to states, {}"
MEMORY = "peak memory, MiniLM over 11000 sentences"
BERT = "bert-base shape"
SHELL = "headscope analyze, smollm2, ud_ewt (2,001 sentences)"


def costs(m: Measured) -> str:
    """For README."""
    fast = [m.ratio("corpus", WHOLE.format(name)) for name in (BERT, "minilm")]
    added = [m.cost("corpus", VB.format(name)) for name in (BERT, "minilm")]
    items = (
        "`headscope analyze` measures every head of SmolLM2 over 2,001 sentences. From the shell "
        f"to the saved result, it takes {m.ratio('end to end', SHELL):.2f} of the time of the bare "
        "forward passes.",
        f"All metrics of Vig & Belinkov add {added[0]} to a bare forward pass of BERT-base's shape "
        f"and {added[1]} to MiniLM's. That is {fast[0]:.0f} and {fast[1]:.0f} times faster than "
        "the code of 2019. With ten times the documents, peak memory grows by "
        f"{m.cost('corpus', MEMORY)}.",
        "A page of 12 × 12 heads over 128 tokens has "
        f"{m.ours('views', 'page, 128 tokens')}; BertViz's has "
        f"{m.theirs('views', 'page, 128 tokens')}.",
    )
    return "\n".join(
        textwrap.fill(item, 120, initial_indent="- ", subsequent_indent="  ") for item in items
    )


def views(m: Measured) -> str:
    """For the guide for users of BertViz."""
    lines = ["| 12 × 12 heads, 128 tokens | headscope | BertViz 1.4.1 |", "|---|---|---|"]
    for what in (
        "page",
        "model view, CPU",
        "layer change, all heads, CPU",
        "hover, all heads, CPU",
    ):
        name = f"{what}, 128 tokens"
        lines.append(f"| {what} | {m.ours('views', name)} | {m.theirs('views', name)} |")
    return "\n".join(lines)


WRITTEN: dict[str, Callable[[Measured], str]] = {
    "costs": costs,
    "views": views,
}


def written(text: str, measured: Measured) -> str:
    """A page with its measurements as the table has them."""
    return MARK.sub(lambda found: f"{found[1]}\n{WRITTEN[found[2]](measured)}\n\n{found[3]}", text)


def read_table() -> Measured:
    """What `make bench` wrote."""
    return Measured(rows(TABLE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8"), read_table()), encoding="utf-8")
