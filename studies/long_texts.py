"""Attention of SmolLM2 at up to 8,192 tokens: distances, sinks, and a planted sentence.

    HEADSCOPE_DATA=… python -m studies.long_texts [--out docs/study/long_texts.csv]

Documents of GUM are joined, so a text is longer than any of them. A row of the table is one
quantity at one length.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import headscope as hs
from headscope.metrics.long_range import BANDS

LENGTHS = (512, 2048, 8192)
N_TEXTS = 3
METRICS = ["tokens_per_document", "distance_share", "null_share", "distance", "entropy"]
NEEDLE = "The number written on the door of the old library is 7342."
QUESTION = " The number written on the door of the old library is"
DEPTHS = (0.1, 0.5, 0.9)
SHOWN = 8
SHOWN_BANDS = dict(
    zip(BANDS, ("itself", "1 token away", "2–8", "9–64", "65–512", "513 or more"), strict=True)
)


def joined(data: Path) -> str:
    """Return all documents of GUM's training part, one after another."""
    paths = sorted((data / "gum").glob("*train*.conllu"))
    return "\n".join(document.text for document in hs.read(paths, unit="document"))


def texts(model: hs.Model, text: str, length: int) -> list[dict[str, object]]:
    """Return texts of at least `length` tokens; `max_tokens` cuts the rest."""
    size = 6 * length  # a token has four to five characters
    starts = (n * size for n in range(N_TEXTS))
    return [{"id": f"joined-{n}", "text": text[a : a + size]} for n, a in enumerate(starts)]


def needles(model: hs.Model, text: str, length: int) -> list[dict[str, object]]:
    """Return texts with the needle at each depth and the question at the end."""
    tokenizer = model.require_tokenizer()
    n_fixed = len(tokenizer(NEEDLE + QUESTION)["input_ids"])
    offsets = tokenizer(text[: 6 * length], return_offsets_mapping=True)["offset_mapping"]
    made = []
    for depth in DEPTHS:
        n = length - n_fixed - 8
        cut = offsets[int(depth * n)][0]
        before, after = text[:cut].rsplit(" ", 1)[0], text[cut : offsets[n][0]]
        start = len(before) + 1 + NEEDLE.index("7342")
        whole = f"{before} {NEEDLE} {after}\n{QUESTION}"
        span = f"{start}:{start + 4}"
        made.append({"id": f"depth {depth}", "text": whole, "meta": {"span": span}})
    return made


def rows(model: hs.Model, text: str) -> Iterator[tuple[str, int, str, float]]:
    """Yield quantity, length, label and value."""
    for length in LENGTHS:
        options = {"max_tokens": length, "workers": 1}
        result = hs.analyze(model, hs.read(texts(model, text, length)), METRICS, **options)
        for band in BANDS:
            share = result["distance_share"].sel(band=band)
            yield "share of attention by distance, mean of heads", length, band, float(share.mean())
        far = result["distance_share"].sel(band=list(BANDS[4:])).sum("band")
        n_far = int((far > 0.5).sum())
        yield "heads with most attention beyond 64 tokens", length, "heads", n_far
        for name in ("null_share", "distance", "entropy"):
            yield f"{name}, mean of heads", length, name, float(result[name].mean())
    for length in LENGTHS:
        corpus = hs.read(needles(model, text, length))
        options = {"max_tokens": length, "workers": 1}
        result = hs.analyze(model, corpus, ["retrieval", "tokens_per_document"], **options)
        share = result["retrieval"]
        best = share.sel(target="span").stack(at=("layer", "head")).fillna(0)
        for layer, head in best.sortby(best, ascending=False)["at"].values[:SHOWN]:
            at = share.sel(layer=layer, head=head)
            for target in ("span", "random"):
                label = f"L{layer} H{head}, {target}"
                yield "attention to the planted number", length, label, float(at.sel(target=target))


def lines(path: Path) -> list[str]:
    """Return the rows of both tables in `docs/guide/long.md`, from the table of the study."""
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))

    def values(quantity: str, label: str) -> list[float]:
        rows = [row for row in found if (row["quantity"], row["label"]) == (quantity, label)]
        return [float(row["value"]) for row in rows]

    def line(name: str, cells: Sequence[float], form: str = ".2f") -> str:
        return f"| {name} | {' | '.join(f'{cell:{form}}' for cell in cells)} |"

    bands = "share of attention by distance, mean of heads"
    made = [line(name, values(bands, band)) for band, name in SHOWN_BANDS.items()]
    far = "heads with most attention beyond 64 tokens"
    made.append(line(f"{far.replace('attention', 'of it')}, of 270", values(far, "heads"), ".0f"))
    for name, shown in (("null_share", "null attention"), ("entropy", "entropy, nats")):
        made.append(line(shown, values(f"{name}, mean of heads", name)))
    needle = "attention to the planted number"
    for head in dict.fromkeys(row["label"].split(",")[0] for row in found):
        spans, others = (values(needle, f"{head}, {target}") for target in ("span", "random"))
        if len(spans) == len(LENGTHS):
            made.append(f"{line(head, spans)} {max(others):.4f} |")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/study/long_texts.csv"))
    options = parser.parse_args()
    model = hs.load("smollm2")
    text = joined(Path(os.environ["HEADSCOPE_DATA"]))
    with options.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("quantity", "tokens", "label", "value"))
        for quantity, length, label, value in rows(model, text):
            table.writerow((quantity, length, label, f"{value:.4g}"))
            file.flush()


if __name__ == "__main__":
    main()
