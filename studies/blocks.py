"""Widths of intervals if a treebank's documents are unknown, by the size of blocks.

    python -m studies.blocks --data FOLDER    # ud_ewt/ and gum/; writes docs/study/blocks.csv

The first 1,500 sentences of EWT and GUM are measured with MiniLM: by their documents, and with
these replaced by blocks of consecutive sentences, as `headscope.read` does with files that mark no
documents. `width` is the median over heads of an interval's width relative to the documents', and
`effective` the median effective number of documents.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch

import headscope as hs
from headscope.text.document import Document

FILE = Path(__file__).parents[1] / "docs" / "study" / "blocks.csv"
SOURCES = {"EWT": "ud_ewt/en_ewt-ud-dev.conllu", "GUM": "gum/en_gum-dev.conllu"}
METRICS = ("null_share", "distance", "entropy", "dep_alignment")
SIZES = (0, 1, 5, 10, 20, 40)
"""Sentences of a block; 0 for the documents."""
N_SENTENCES = 1500


def blocks(documents: list[Document], size: int) -> list[Document]:
    """Replace documents by blocks, unless the size is 0."""
    if not size:
        return documents
    return [d.within(f"block {number // size}") for number, d in enumerate(documents)]


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    torch.set_num_threads(1)
    model = hs.load("minilm")
    rows = []
    for corpus, path in SOURCES.items():
        documents = list(hs.read(data / path))[:N_SENTENCES]
        widths: dict[str, np.ndarray] = {}
        for size in SIZES:
            result = hs.analyze(model, blocks(documents, size), METRICS, workers=1)
            for name in METRICS:
                low, high = result[f"{name}_interval"].transpose("bound", ...).values
                widths.setdefault(name, high - low)
                rows.append(
                    {
                        "corpus": corpus,
                        "block": size or "documents",
                        "metric": name,
                        "width": f"{np.nanmedian((high - low) / widths[name]):.2f}",
                        "effective": f"{np.nanmedian(result[f'{name}_n_eff']):.1f}",
                    }
                )
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
