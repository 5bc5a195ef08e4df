"""The tables and the figure of docs/probing.md, from the files that studies.probing wrote.

python -m studies.probing_page
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from headscope.figures.style import BLUE, GRAY, ORANGE, VERMILION, new_figure, styled

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "probing.md"
FIGURE = DOCS / "figures" / "probe-relations.png"
MARK = re.compile(r"(<!-- studied: (\w+) -->\n\n).*?(\n\n<!-- end of studied -->)", re.DOTALL)
SHOWN = ("all", "obj", "det", "case", "nsubj", "xcomp", "nmod")
"""Relations of the page's table; the figure and the file have all."""
MODELS = {"minilm": ("MiniLM", BLUE), "smollm2": ("SmolLM2", VERMILION)}
Row = dict[str, str]


def main() -> None:
    """Write the tables into the page, and draw."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    with styled():
        draw(read("relations")).savefig(FIGURE, dpi=150)


def data_file(name: str) -> Path:
    """Where the numbers of a table are."""
    return DOCS / "data" / f"probing-{name}.csv"


def read(name: str) -> list[Row]:
    """The rows of a data file."""
    with data_file(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(text: str) -> str:
    """The page with its tables as the data files have them."""
    tables = {
        "relations": "\n".join(relation_lines(read("relations"))),
        "coreference": "\n".join(coreference_lines(read("coreference"))),
        "bias": "\n".join(bias_lines(read("bias"))),
    }
    return MARK.sub(lambda mark: f"{mark[1]}{tables[mark[2]]}{mark[3]}", text)


def relation_lines(rows: list[Row]) -> Iterator[str]:
    """The best head of some relations, in both models; a star where it is clear of all offsets."""
    yield "| relation | best offset | MiniLM | head | SmolLM2 | head |"
    yield "|---" * 6 + "|"
    by_relation = {row["relation"]: row for row in rows}
    for name in SHOWN:
        row = by_relation[name]
        cells = [f"`{name}`", f"{row['offset_accuracy']} ({int(row['offset']):+d})"]
        for model in MODELS:
            star = "*" if row[f"{model}_clear"] == "yes" else ""
            cells.append(f"{row[f'{model}_honest']}{star}")
            cells.append(f"L{row[f'{model}_layer']} H{row[f'{model}_head']}")
        yield f"| {' | '.join(cells)} |".replace("-", "−")


def coreference_lines(rows: list[Row]) -> Iterator[str]:
    """The best head and the rules, over all mentions."""
    names = (
        "model, data | mentions | best head | all | cross-fitted | nearest | head match | sieves"
    )
    yield f"| {names} |"
    yield "|---" * 8 + "|"
    for row in rows:
        cells = (
            f"{row['model']}, {row['data']}",
            f"{int(row['mentions']):,}",
            f"L{row['layer']} H{row['head']}",
            f"{row['accuracy']} [{row['low']}, {row['high']}]",
            *(row[name] for name in ("honest", "nearest", "head_match", "sieves")),
        )
        yield f"| {' | '.join(cells)} |"


def bias_lines(rows: list[Row]) -> Iterator[str]:
    """The best coreference head of each model, and beside it heads chosen on other pairs."""
    yield "| sentences, model | head | pro | anti | gap | chosen on other pairs: pro | anti |"
    yield "|---" * 7 + "|"
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["type"], row["model"]), []).append(row)
    for (kind, model), (best, *_, chosen) in groups.items():
        low, high = (f"{float(best[f'gap_{end}']):+.1f}" for end in ("low", "high"))
        cells = (
            f"type {kind}, {model}",
            f"L{best['layer']} H{best['head']}",
            best["pro"],
            best["anti"],
            f"{float(best['gap']):+.1f} [{low}, {high}]",
            chosen["pro"],
            chosen["anti"],
        )
        yield f"| {' | '.join(cells)} |".replace("-", "−")


def draw(rows: list[Row]) -> Figure:
    """Draw the best fixed offset and the best head (cross-fitted) of every relation."""
    figure = new_figure(5.6, 4.4)
    axes = figure.subplots()
    places = range(len(rows))
    offsets = [float(row["offset_accuracy"]) for row in rows]
    axes.scatter(offsets, places, s=60, marker="|", color=ORANGE, label="best fixed offset")
    for shift, (model, (title, color)) in zip((-0.16, 0.16), MODELS.items(), strict=True):
        y = [place + shift for place in places]
        low, high = ([float(row[f"{model}_{end}"]) for row in rows] for end in ("low", "high"))
        axes.hlines(y, low, high, color=color, lw=0.9, alpha=0.5)
        for clear, filled in (("yes", color), ("no", "white")):
            chosen = [n for n, row in enumerate(rows) if row[f"{model}_clear"] == clear]
            x = [float(rows[n][f"{model}_honest"]) for n in chosen]
            label = title if clear == "yes" else None
            at = [y[n] for n in chosen]
            axes.scatter(x, at, s=16, color=filled, edgecolors=color, lw=0.9, label=label, zorder=3)
    axes.set_yticks(places, [f"{row['relation']} ({int(row['words']):,})" for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="x", color="#EEEEEE", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(0, 100)
    axes.set_xlabel("parents found (%)", color=GRAY)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    main()
