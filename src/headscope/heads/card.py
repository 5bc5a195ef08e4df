"""Everything that was measured about one head, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number about a head, among the other heads."""

    what: str
    value: str
    rank: str
    """Where the head stands among all, from the highest: `3rd of 72`. Beside a probe's accuracy
    also what a baseline reaches."""


@dataclass(frozen=True)
class HeadCard:
    """All evidence on one head. Prints as text; a notebook shows `html()`.

    Attributes:
        layer: 0-based.
        head: 0-based.
        model: its name.
        summary: one sentence.
        evidence: numbers by topic.
        nearest: the heads that attend most alike, with their divergence in nats.
        exemplars: its highest single weights, in words.
    """

    layer: int
    head: int
    model: str
    summary: str
    evidence: tuple[tuple[str, tuple[Evidence, ...]], ...]
    nearest: tuple[tuple[int, int, float], ...]
    exemplars: tuple[str, ...]

    @property
    def name(self) -> str:
        """`L7 H9`."""
        return f"L{self.layer} H{self.head}"

    def __str__(self) -> str:
        lines = [f"{self.name} of {self.model}", self.summary]
        for topic, rows in self.evidence:
            lines += ["", topic]
            width, room = (max(len(x) for x in column) for column in _columns(rows))
            lines += [f"  {row.what:{width}}  {row.value:{room}}  {row.rank}" for row in rows]
        if self.nearest:
            near = ", ".join(f"L{a} H{b} ({js:.3f})" for a, b, js in self.nearest)
            lines += ["", "Nearest heads (Jensen-Shannon divergence, nats)", f"  {near}"]
        if self.exemplars:
            lines += ["", "Highest weights", *(f"  {text}" for text in self.exemplars)]
        return "\n".join(lines)

    def html(self) -> str:
        """The card as a piece of HTML, without scripts; all text is escaped."""
        e = escape
        parts = [
            f'<article class="head-card" id="L{self.layer}H{self.head}">',
            f"<h3>{self.name} <small>{e(self.model)}</small></h3><p>{e(self.summary)}</p>",
        ]
        for topic, rows in self.evidence:
            cells = "".join(
                f"<tr><td>{e(r.what)}</td><td>{e(r.value)}</td><td>{e(r.rank)}</td></tr>"
                for r in rows
            )
            parts.append(f"<h4>{e(topic)}</h4><table>{cells}</table>")
        if self.nearest:
            near = "".join(
                f'<li><a href="#L{a}H{b}">L{a} H{b}</a> {js:.3f} nats</li>'
                for a, b, js in self.nearest
            )
            parts.append(f"<h4>Nearest heads</h4><ul>{near}</ul>")
        if self.exemplars:
            shown = "".join(f"<li>{e(text)}</li>" for text in self.exemplars)
            parts.append(f"<h4>Highest weights</h4><ol>{shown}</ol>")
        return "\n".join([*parts, "</article>"])

    _repr_html_ = html


def _columns(rows: Sequence[Evidence]) -> tuple[list[str], list[str]]:
    return [row.what for row in rows], [row.value for row in rows]
