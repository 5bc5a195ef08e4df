"""Sentences under a head: Vig & Belinkov's Tables 1 to 3, and Clark et al.'s Figure 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from headscope.errors import InputError
from headscope.figures.style import (
    BLUE,
    DASHED_SHORT,
    GRAY,
    ORANGE,
    VERMILION,
    new_canvas,
    new_figure,
    styled,
)
from headscope.results.probe import ProbeExample, ProbeExamples
from headscope.results.result import Exemplar, Result

WIDTH = 6.8
LEFT_EDGE = 0.55
LINE = 0.19
DOCUMENT_GAP = 0.2
FONT = 8
WORD_SPACE = 0.045
KEY_COLOR = "#8A5F00"
MAX_TOKENS_AROUND = 45
"""Tokens around the arc of a long document."""


@dataclass(frozen=True, slots=True)
class _TextRun:
    """Token with its place, in inches from the left and lines from the top."""

    text: str
    position: int
    x: float
    line: int
    width: float


def exemplar_table(
    result: Result, layer: int, head: int, *, n: int = 6, block: str | None = None
) -> Figure:
    """Draw documents with a head's highest weights, with an arrow from query to key."""
    exemplars = result.exemplars(layer, head, block)[:n]
    if not exemplars:
        raise InputError(f"L{layer} H{head} has no exemplars: no document gave it attention.")
    with styled():
        ruler = new_figure(WIDTH, 1)
        tables = [_lay_out(ruler, exemplar) for exemplar in exemplars]
        height = sum(LINE * (runs[-1].line + 1) + DOCUMENT_GAP for runs in tables) + 0.35
        figure, axes = new_canvas(WIDTH, height)
        axes.text(0.1, 0.18, f"L{layer} H{head}", fontsize=10, weight="bold", va="center")
        axes.text(0.75, 0.18, "query", color=BLUE, weight="bold", va="center", fontsize=FONT)
        axes.text(1.15, 0.18, "→ key", color=KEY_COLOR, style="italic", va="center", fontsize=FONT)
        top = 0.45
        for exemplar, runs in zip(exemplars, tables, strict=True):
            _draw(axes, exemplar, runs, top)
            top += LINE * (runs[-1].line + 1) + DOCUMENT_GAP
    return figure


def _lay_out(ruler: Figure, exemplar: Exemplar) -> list[_TextRun]:
    """Break the tokens into lines of text."""
    renderer = ruler.canvas.get_renderer()  # type: ignore[attr-defined]
    tokens = exemplar.query_tokens
    has_spaces = any(token.startswith(" ") for token in tokens)
    first, last = _window(len(tokens), exemplar.query, exemplar.key)
    runs: list[_TextRun] = []
    x, line = LEFT_EDGE, 0
    word: list[tuple[str, int, float]] = []

    def end_word() -> None:
        nonlocal x, line
        width = sum(w for _, _, w in word)
        if x + width > WIDTH - 0.1 and x > LEFT_EDGE:
            x, line = LEFT_EDGE, line + 1
        for text, position, w in word:
            runs.append(_TextRun(text, position, x, line, w))
            x += w
        x += WORD_SPACE
        word.clear()

    for position in range(first, last):
        token = tokens[position].replace("\n", "⏎")
        is_new = token.startswith(" ") if has_spaces else not token.startswith("##")
        text = (token.strip() if has_spaces else token.removeprefix("##")) or "·"
        if is_new and word:
            end_word()
        is_end = position in (exemplar.query, exemplar.key)
        label = ruler.text(0, 0, text, fontsize=FONT, weight="bold" if is_end else "normal")
        word.append((text, position, label.get_window_extent(renderer).width / ruler.dpi))
        label.remove()
    if word:
        end_word()
    return runs


def _window(n: int, query: int, key: int) -> tuple[int, int]:
    """Return the range of tokens: all of a short document, else those around the arc."""
    if n <= 2 * MAX_TOKENS_AROUND:
        return 0, n
    low, high = sorted((query, key))
    return max(0, low - MAX_TOKENS_AROUND // 2), min(n, high + MAX_TOKENS_AROUND // 2)


def _draw(axes: Axes, exemplar: Exemplar, runs: Sequence[_TextRun], top: float) -> None:
    axes.text(0.1, top, f"{exemplar.weight:.2f}", fontsize=FONT, color=GRAY, va="center")
    places: dict[int, _TextRun] = {}
    for run in runs:
        y = top + LINE * run.line
        is_query, is_key = run.position == exemplar.query, run.position == exemplar.key
        places[run.position] = run
        style: dict[str, object] = {"fontsize": FONT, "va": "center", "color": "#333333"}
        if is_query:
            style |= {"color": BLUE, "weight": "bold"}
        if is_key:
            style |= {"style": "italic", "weight": "bold"}
            style |= {} if is_query else {"color": KEY_COLOR}
        axes.text(run.x, y, run.text, **style)  # type: ignore[arg-type]
        if is_query or is_key:
            color = BLUE if is_query else ORANGE
            bottom = y + LINE * 0.4
            axes.plot([run.x, run.x + run.width], [bottom, bottom], color=color, linewidth=1.2)
    start, end = places.get(exemplar.query), places.get(exemplar.key)
    if start is None or end is None or start is end:
        return
    a = start.x + start.width / 2, top + LINE * (start.line - 0.36)
    b = end.x + end.width / 2, top + LINE * (end.line - 0.36)
    reach = abs(a[0] - b[0])
    bend = min(0.35, 0.12 / max(reach, 0.12)) * (1 if b[0] < a[0] else -1)
    axes.add_patch(
        FancyArrowPatch(
            a,
            b,
            connectionstyle=f"arc3,rad={bend:.3f}",
            arrowstyle="-|>",
            mutation_scale=6,
            linewidth=0.8,
            color=GRAY,
            alpha=0.8 if start.line == end.line else 0.45,
            shrinkA=0,
            shrinkB=0,
            zorder=0,
        )
    )


SENTENCE_LINE = 0.17
"""Height of a word in inches."""
KEY = "blue: attends most to its target · red: to another word (dashed: the target it missed)"
MIN_DRAWN = 0.03
"""Minimum attention of a drawn line."""


def example_figure(
    examples: ProbeExamples, title: str | None = None, *, columns: int = 3
) -> Figure:
    """See `ProbeExamples.figure`."""
    title = examples.title if title is None else title
    if not examples:
        raise InputError("There is no example to draw: the relation may not occur in the corpus.")
    rows = [examples[start : start + columns] for start in range(0, len(examples), columns)]
    heights = [max(len(example.words) for example in row) for row in rows]
    with styled():
        height = SENTENCE_LINE * sum(heights) + 0.45 * len(rows) + (0.5 if title else 0.2)
        figure = new_figure(2.35 * columns, height)
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for axes_row, row, most in zip(grid, rows, heights, strict=True):
            for number, axes in enumerate(axes_row):
                axes.set_axis_off()
                if number < len(row):
                    _draw_sentence(axes, row[number], most)
        figure.supxlabel(KEY, fontsize=7, color="#555555")
        if title:
            figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    return figure


def _draw_sentence(axes: Axes, example: ProbeExample, most: int) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(most - 0.4, -0.6)
    left, right = 0.36, 0.64
    by_query = {arc.query: arc for arc in example.arcs}
    for query, row in enumerate(example.weights):
        arc = by_query.get(query)
        color = "#555555" if arc is None else BLUE if arc.is_right else VERMILION
        for key, weight in enumerate(row):
            if weight >= MIN_DRAWN:
                strength = min(1.0, float(weight))
                axes.plot(
                    [left, right],
                    [query, key],
                    color=color,
                    alpha=strength * (0.55 if arc is None else 1.0),
                    linewidth=0.5 + 1.3 * strength if arc is None else 0.9 + 1.6 * strength,
                    zorder=1 if arc is None else 3,
                )
        if arc is not None and not arc.is_right:
            axes.plot(
                [left, right], [query, arc.target], color=VERMILION, linestyle=DASHED_SHORT,
                linewidth=0.9, zorder=2,
            )  # fmt: skip
    by_target = {arc.target: arc for arc in example.arcs}
    for number, word in enumerate(example.words):
        for x, side, arcs in ((left - 0.02, "right", by_query), (right + 0.02, "left", by_target)):
            arc = arcs.get(number)
            color = "#333333" if arc is None else BLUE if arc.is_right else VERMILION
            weight = "normal" if arc is None else "bold"
            text = word if len(word) <= 14 else f"{word[:13]}…"
            axes.text(
                x, number, text, ha=side, va="center", fontsize=7, color=color, weight=weight,
                parse_math=False,
            )  # fmt: skip
    right_arcs = sum(arc.is_right for arc in example.arcs)
    axes.set_title(
        f"{right_arcs} of {len(example.arcs)} right", fontsize=7.5, color="#555555", pad=3
    )
