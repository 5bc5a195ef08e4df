"""Peak memory of all metrics over one text, above the loaded model.

    python -m benchmarks.endtoend.memory TOKENS [--layers N]

One text of so many tokens, the longest documents of GUM joined, SmolLM2, all cores. Prints JSON:
gigabytes of the peak above what the process had once the model was loaded, and wall seconds. The
process measures one length, since memory that was used once may stay with it. Texts beyond the
8,192 tokens that SmolLM2 was trained on show cost, not what its heads do there.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import headscope as hs
from benchmarks.endtoend.texts import GUM, cut_document, data, joined_documents
from headscope.metrics.core.layer_data import load_loops

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
PEAK_TO_NOW = "5"
"""Sets the highest resident memory to the present one (Linux, proc(5))."""


def gigabytes(name: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the highest)."""
    lines = STATUS.read_text().splitlines()
    kilobytes = next(line for line in lines if line.startswith(name)).split()[1]
    return int(kilobytes) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=int)
    parser.add_argument("--layers", type=int, help="read the first N layers, and end there")
    options = parser.parse_args()
    length = options.tokens
    layers = options.layers and range(options.layers)
    model = hs.load("smollm2")
    module, tokenizer = model.module, model.require_tokenizer()
    limit = max(length, module.config.max_position_embeddings)
    module.config.max_position_embeddings = tokenizer.model_max_length = limit
    model = hs.load(module, tokenizer=tokenizer)
    text = joined_documents(hs.read(data(GUM), unit="document"), 6 * length)
    document = cut_document(text, tokenizer, length)
    load_loops()
    hs.analyze(model, hs.read(["A cat sat."]), workers=1, progress=False)
    before = gigabytes("VmRSS")
    RESET.write_text(PEAK_TO_NOW)
    start = time.monotonic()
    result = hs.analyze(
        model, document, workers=1, max_tokens=length, layers=layers, progress=False
    )
    tokens = int(result.provenance["counts"]["tokens"])
    assert tokens > 0.99 * length, f"{tokens} tokens were read"
    seconds = time.monotonic() - start
    print(json.dumps({"gigabytes": gigabytes("VmHWM") - before, "seconds": seconds}))


if __name__ == "__main__":
    main()
