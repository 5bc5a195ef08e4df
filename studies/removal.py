"""Gradient importance against removal: do gradients say what the loss does without a key?

    python -m studies.removal --data FOLDER   # measure, write docs/study/removal.csv and the table
    python -m studies.removal --page          # write the table of docs/heads.md from the file

`headscope.check_importance` on SmolLM2 and documents of GUM, two heads of each layer: the attention
to a class of keys is removed, a twentieth of it or all, with and without rescaling the row.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import headscope as hs

DOCS = Path(__file__).parents[1] / "docs"
FILE, PAGE = DOCS / "study" / "removal.csv", DOCS / "heads.md"
MARK = re.compile(r"(<!-- removal: measured -->\n\n).*?(\n\n<!-- end of removal -->)", re.DOTALL)
DOCUMENTS, LEVELS = 16, (0.05, 1.0)
CLASSES = {"first": "first token", ". or ,": '". or ,"'}
Row = dict[str, str]


def rows_of(folder: Path) -> Iterator[Row]:
    """Yield a row for each class, share of attention and way of removal."""
    corpus = hs.read(sorted(folder.glob("*.conllu")), unit="document").sample(DOCUMENTS)
    model = hs.load("smollm2")
    for renormalized in (False, True):
        found = hs.check_importance(
            model, corpus, classes=list(CLASSES), heads=2, levels=LEVELS, renormalized=renormalized
        )
        for name in CLASSES:
            estimate = found["removal_estimate"].sel(key_class=name).values
            for level in LEVELS:
                at = {"key_class": name, "level": level}
                rise = found["rise"].sel(at).values
                known = ~np.isnan(rise)
                agree = np.sign(rise[known]) == np.sign(estimate[known])
                row = {"class": name, "level": str(level), "renormalized": str(renormalized)}
                for value in ("r", "r_importance", "error"):
                    low, high = found[f"{value}_interval"].sel(at).values
                    numbers = float(found[value].sel(at)), low, high
                    row |= {k: f"{x:.3f}" for k, x in
                            zip((value, f"{value}_low", f"{value}_high"), numbers, strict=True)}  # fmt: skip
                row |= {"heads": str(int(known.sum())), "right_sign": str(int(agree.sum()))}
                row |= {"mean_rise": f"{rise[known].mean():.5f}"}
                row |= {"mean_estimate": f"{level * estimate[known].mean():.5f}"}
                yield row


def main() -> None:
    """Measure, unless only the page is requested, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with gum")
    parser.add_argument("--page", action="store_true", help="write the table alone")
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        rows = list(rows_of(options.data / "gum"))
        with FILE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def read() -> list[Row]:
    """Return the rows of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def written(text: str) -> str:
    """Return the page with its table as the file has it."""
    table = "\n".join(lines(read()))
    return MARK.sub(lambda mark: f"{mark[1]}{table}{mark[2]}", text)


def lines(rows: list[Row]) -> Iterator[str]:
    """Yield the table: what was removed, how well two estimates predict the rise of the loss."""
    yield (
        "| removed | r of estimate and rise | r of mean \\|∂L/∂a\\| and \\|rise\\| | error | right sign "
        "| rise, predicted |"
    )
    yield "|---" * 6 + "|"
    for row in rows:
        share = "5 % of " if row["level"] == "0.05" else ""
        more = ", row rescaled" if row["renormalized"] == "True" else ""
        cells = [f"{share}{CLASSES[row['class']]}{more}"]
        for value in ("r", "r_importance", "error"):
            number, low, high = (float(row[f"{value}{end}"]) for end in ("", "_low", "_high"))
            cells.append(f"{number:.2f} ({low:.2f}–{high:.2f})")
        cells.append(f"{row['right_sign']}/{row['heads']}")
        cells.append(f"{float(row['mean_rise']):.4f}, {float(row['mean_estimate']):.4f}")
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
