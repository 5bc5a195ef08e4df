"""What merely running a model over a corpus takes: transformers and nothing else.

    python -m benchmarks.endtoend.bare FOLDER SENTENCES.json [--threads N]

Texts are sorted by length and put into batches of at most 1,024 tokens, as headscope does; the
model runs with its fused attention (sdpa), without a cache. Prints wall and CPU seconds of
tokenizing and running; importing and loading are not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

BATCH_TOKENS = 1024
MAX_TOKENS = 512


def batches(tokenizer: Any, texts: list[str], limit: int) -> Iterator[dict[str, torch.Tensor]]:
    """Padded batches, longest first."""
    ids = tokenizer(texts, truncation=True, max_length=limit)["input_ids"]
    rows: list[list[int]] = []
    for row in sorted((row for row in ids if row), key=len, reverse=True):
        if rows and (len(rows) + 1) * len(rows[0]) > BATCH_TOKENS:
            yield padded(rows)
            rows = []
        rows.append(row)
    if rows:
        yield padded(rows)


def padded(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    n = len(rows[0])
    ids = torch.tensor([row + [0] * (n - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (n - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def run(model: Any, tokenizer: Any, texts: list[str], limit: int = MAX_TOKENS) -> tuple[float, ...]:
    """Wall and CPU seconds of one pass over the texts."""
    wall, cpu = time.monotonic(), time.process_time()
    options = {} if "Bert" in type(model).__name__ else {"use_cache": False}
    with torch.inference_mode():
        for batch in batches(tokenizer, texts, limit):
            model(**batch, **options)
    return time.monotonic() - wall, time.process_time() - cpu


def main() -> None:
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    kinds = AutoConfig.from_pretrained(options.folder).architectures or [""]
    model_class = AutoModelForCausalLM if kinds[0].endswith("ForCausalLM") else AutoModel
    model = model_class.from_pretrained(options.folder, dtype=torch.float32).eval()
    assert model.config._attn_implementation == "sdpa"
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    texts = json.loads(options.texts.read_text(encoding="utf-8"))
    wall, cpu = run(model, tokenizer, texts)
    print(json.dumps({"wall": wall, "cpu": cpu}))


if __name__ == "__main__":
    main()
