"""How trained probes learn: UAS on one development set after more and more sentences.

    python -m studies.curve --data FOLDER      # the folder of GUM's files

Prints the numbers and draws the figure of docs/probing.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, get_args

import headscope as hs
from headscope.atomic import atomic_path
from headscope.figures.style import BLUE, GRAY, GREEN, ORANGE, new_figure, styled
from headscope.probes.training import Kind

ROOT = Path(__file__).parents[1]
SIZES = (320, 640, 1280, 2560, 5120)
"""Sentences drawn for training; the last point has all."""
COLORS = dict(zip(get_args(Kind), (BLUE, GREEN, ORANGE), strict=True))

Point = dict[str, Any]


def measure(name: str, data: Path, file: Path) -> list[Point]:
    """A point for each kind and size; those that the file has are not trained again."""
    points: list[Point] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    done = {(point["kind"], point["size"]) for point in points}
    model = hs.load(name)
    dev = hs.read(data / "en_gum-dev.conllu", unit="sentence")
    for size in (*SIZES, None):
        train = hs.read(data / "en_gum-train.conllu", unit="sentence", sample=size)
        for kind in get_args(Kind):
            if (kind, size) in done:
                continue
            probe = hs.train_probe(model, train, dev, kind, cache=file.parent / "attention")
            points.append(
                {
                    "kind": kind,
                    "size": size,
                    "sentences": probe.provenance["train"]["sentences"],
                    "uas": probe.uas,
                    "interval": list(probe.uas_interval),
                }
            )
            with atomic_path(file) as temporary:
                temporary.write_text(json.dumps(points, indent=1), encoding="utf-8")
    return points


def table(points: list[Point]) -> str:
    """Markdown: a row for each size, a column for each kind."""
    sizes = sorted({point["sentences"] for point in points})
    lines = ["| sentences | " + " | ".join(f"`{kind}`" for kind in COLORS) + " |"]
    lines.append("|---|" + "---|" * len(COLORS))
    for size in sizes:
        found = {p["kind"]: p for p in points if p["sentences"] == size}
        cells = [
            f"{found[kind]['uas']:.1%} ({_range(found[kind]['interval'])})".replace("%", "")
            for kind in COLORS
        ]
        lines.append(f"| {size:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _range(interval: list[float]) -> str:
    low, high = interval
    return f"{100 * low:.1f}–{100 * high:.1f}"


def draw(points: list[Point], file: Path) -> None:
    """UAS by the number of training sentences, with intervals."""
    with styled():
        figure = new_figure(4.2, 2.8)
        axes = figure.subplots()
        for kind, color in COLORS.items():
            own = sorted((p for p in points if p["kind"] == kind), key=lambda p: p["sentences"])
            x = [p["sentences"] for p in own]
            low, high = zip(*(p["interval"] for p in own), strict=True)
            axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
            axes.plot(x, [p["uas"] for p in own], ".-", color=color, label=kind)
        axes.set_xscale("log", base=2)
        axes.set_xticks(x, [f"{n:,}" for n in x])
        axes.minorticks_off()
        axes.set_xlabel("training sentences", color=GRAY)
        axes.set_ylabel("UAS, without punctuation", color=GRAY)
        axes.legend(loc="best")
        figure.savefig(file, dpi=170)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of GUM's files")
    parser.add_argument("--out", type=Path, default=ROOT / "studies" / "runs")
    parser.add_argument("--model", default="minilm")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    points = measure(options.model, options.data, options.out / f"{options.model}-curve.json")
    print(table(points))
    draw(points, ROOT / "docs" / "figures" / f"{options.model}-probe-curve.png")


if __name__ == "__main__":
    main()
