"""How large a default page is, and how long it takes to write, at several lengths of text.

    python -m benchmarks.pages [--model smollm2] [--tokens 133 291 547]

The bundled corpus, cut to so many tokens, is traced once; then the page is written by
`save_page` as anyone would. Sizes do not depend on the machine; seconds do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import headscope as hs
from benchmarks.rows import record

LARGEST = {133: 4.0, 291: 12.0, 547: 30.0}
"""Megabytes that a default page of SmolLM2 may have, by tokens."""
LONGEST = 3.0
"""Seconds that writing it may take."""


def text_of(model: hs.Model, n_tokens: int) -> str:
    """The beginning of the bundled corpus, of so many tokens."""
    text = " ".join(document.text for document in hs.demo_corpus("document"))
    offsets = model.require_tokenizer()(text, return_offsets_mapping=True)["offset_mapping"]
    if len(offsets) < n_tokens:
        raise SystemExit(
            f"The bundled corpus has {len(offsets)} tokens; {n_tokens} were asked for."
        )
    return text[: offsets[n_tokens - 1][1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, nargs="+", default=list(LARGEST))
    options = parser.parse_args()
    model = hs.load(options.model)
    print("| tokens | page | bound | writing, CPU | writing, wall | bound |")
    print("|---|---|---|---|---|---|")
    for n in options.tokens:
        trace = model.trace(text_of(model, n))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "page.html"
            started, cpu = time.perf_counter(), time.process_time()
            trace.save_page(file)
            wall, cpu = time.perf_counter() - started, time.process_time() - cpu
            size = file.stat().st_size / 1e6
        bound = LARGEST.get(n) if options.model == "smollm2" else None
        shown = "" if bound is None else f"{bound:g} MB"
        n_tokens = trace.attention.sizes["query"]
        times = f"{cpu:.1f} s", f"{wall:.1f} s", f"{LONGEST:g} s"
        cells = (n_tokens, f"{size:.1f} MB", shown, *times)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        what = f"default page of {model.name}, {n_tokens} tokens"
        if bound is not None:
            record("pages", what, f"{size:.1f} MB", shown, size / bound, is_cost=True, bound=1.0)
        record(
            "pages",
            f"writing a {what}",
            f"{wall:.1f} s",
            f"{LONGEST:g} s",
            wall / LONGEST,
            is_cost=True,
            bound=1.0,
        )


if __name__ == "__main__":
    main()
