"""Gradients against removal: the table of docs/heads.md.

    python -m studies.removal --data FOLDER    # gum/; writes docs/study/removal.csv and the table
    python -m studies.removal                  # the table alone

SmolLM2, two heads of each layer (60), 10 segments of GUM's development part with 64 tokens: as
`headscope check-importance en_gum-dev.conllu -o check` draws them. Measured datasets are kept.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import xarray as xr

import headscope as hs

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "study" / "removal.csv"
PAGE = ROOT / "docs" / "heads.md"
OUT = ROOT / "studies" / "runs" / "removal"
MARK = re.compile(r"(<!-- removal -->\n).*?(\n<!-- end of removal -->)", re.DOTALL)
KEYS = {"first": "first token", ". or ,": '". or ,"'}
LEVELS = (0.05, 1.0)
SEGMENTS, TOKENS, HEADS = 10, 64, 2
STATISTICS = ("r", "r_importance", "error")
Row = dict[str, str]


def measured(data: Path) -> xr.Dataset:
    """The rise of the loss after removal, kept once measured."""
    path = OUT / "removed.nc"
    if not path.is_file():
        model = hs.load("smollm2")
        read = hs.read(data / "gum" / "en_gum-dev.conllu", unit="document")
        segments = hs.cut_segments(model, read, TOKENS).sample(SEGMENTS, 0)
        checked = hs.check_importance(
            model, segments, heads=HEADS, levels=LEVELS, max_tokens=TOKENS
        )
        OUT.mkdir(parents=True, exist_ok=True)
        checked.to_netcdf(path, engine="h5netcdf")
    return xr.load_dataset(path, engine="h5netcdf")


def rows_of(checked: xr.Dataset) -> Iterator[Row]:
    """Yield a row for each class of keys and removed share."""
    for name in checked["key_class"].values.tolist():
        for level in checked["level"].values.tolist():
            of = checked.sel(key_class=name, level=level)
            row = {"keys": name, "removed": f"{level:g}"}
            for statistic in STATISTICS:
                low, high = of[f"{statistic}_interval"].values
                row |= {statistic: f"{float(of[statistic]):.4f}", f"{statistic}_low": f"{low:.4f}",
                        f"{statistic}_high": f"{high:.4f}"}  # fmt: skip
            rise, estimate = (of[name].values.ravel() for name in ("rise", "removal_estimate"))
            is_known = np.isfinite(rise)
            agree = np.sign(rise[is_known]) == np.sign(estimate[is_known])
            yield row | {
                "heads": str(int(is_known.sum())),
                "right_sign": str(int(agree.sum())),
                "mean_rise": f"{rise[is_known].mean():.4f}",
                "highest_rise": f"{rise[is_known].max():.4f}",
            }


def read() -> list[Row]:
    """The rows of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines(rows: list[Row]) -> Iterator[str]:
    """Yield the table, of whole removals."""
    yield "| keys | r of estimate and rise | r of mean \\|∂L/∂a\\| and \\|rise\\| | error | sign |"
    yield "|---|---|---|---|---|"
    for row in rows:
        if row["removed"] == "1":
            cells = [_cell(row, statistic) for statistic in STATISTICS]
            sign = f"{row['right_sign']} of {row['heads']}"
            yield f"| {KEYS[row['keys']]} | {' | '.join(cells)} | {sign} |"


def _cell(row: Row, name: str) -> str:
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]".replace("-", "−")


def written(text: str) -> str:
    """The page with its table as the file has it."""
    table = "\n".join(lines(read()))
    return MARK.sub(lambda mark: f"{mark[1]}\n{table}\n{mark[2]}", text)


def main() -> None:
    """Measure, if data are given, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with gum/")
    data = parser.parse_args().data
    if data is not None:
        torch.set_num_threads(1)
        rows = list(rows_of(measured(data)))
        with FILE.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
