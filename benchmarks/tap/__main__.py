"""What reading attention costs: the tap beside the model's own ways, in one run.

    python -m benchmarks.tap

Time: CPU seconds of a forward pass at 8 × 128 tokens, the ways taken in turn, the least
of all rounds (what disturbs a run only adds to it), as a ratio to the model's own eager
forward. Memory: the peak a forward adds, each way in a process of its
own. Models have random weights in the shape of BERT-base (interface route) and of a
12-layer GPT-J of the same width (fallback route).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, GPTJConfig, GPTJModel, PreTrainedModel

import headscope as hs
from benchmarks.rows import record
from headscope.attention import Attention
from headscope.model.tap.interface import eager_attention

BATCH, TOKENS = 8, 128
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert-base": lambda: BertModel(BertConfig()),
    "gptj-12": lambda: GPTJModel(GPTJConfig(n_embd=768, n_layer=12, n_head=12, vocab_size=30522)),
}
LAYER_BYTES = BATCH * 12 * TOKENS * TOKENS * 4


def ways(module: PreTrainedModel) -> dict[str, Callable[[], Any]]:
    """The ways to run a forward pass, from bare to everything kept."""
    model = hs.load(module)
    ids = torch.randint(5, 1000, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    options = {"use_cache": False} if module.config.model_type == "gptj" else {}
    model.info  # noqa: B018  # the self-check runs once, before anything is measured

    def nothing(attention: Attention) -> None:
        """Read, and keep nothing."""

    def eager(**more: Any) -> Any:
        with torch.inference_mode(), eager_attention(module):
            return module(**inputs, **options, **more)

    def bare() -> Any:
        with torch.inference_mode():
            return module(**inputs, **options)

    def kept() -> Any:
        found: list[torch.Tensor] = []
        model.run(inputs, lambda attention: found.append(attention.weights), **options)
        return found

    found: dict[str, Callable[[], Any]] = {
        "eager": eager,
        "tap, nothing kept": lambda: model.run(inputs, nothing, **options),
        "tap, all kept": kept,
        "output_attentions": lambda: eager(output_attentions=True),
    }
    if module.config._attn_implementation == "sdpa":
        found = {"sdpa": bare, **found}
    return found


def measure_time(name: str, repeats: int) -> dict[str, float]:
    """Least CPU seconds of each way over that of the eager forward."""
    runs = ways(MODELS[name]().eval())
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(2):
        for run in runs.values():
            run()
    for number in range(repeats):
        # Back and forth, so that no way always runs after the same other.
        for way, run in list(runs.items())[:: 1 if number % 2 else -1]:
            start = time.process_time()
            run()
            best[way] = min(best[way], time.process_time() - start)
    return {way: seconds / best["eager"] for way, seconds in best.items()}


def measure_memory(name: str, way: str) -> float:
    """Megabytes that one forward adds at its peak, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.tap", "--peak", name, way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def peak(name: str, way: str) -> float:
    """Peak minus resident memory around one forward, in megabytes (Linux)."""
    torch.manual_seed(0)
    run = ways(MODELS[name]().eval())[way]
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    kept = run()
    after = _status("VmHWM")
    del kept
    return (after - before) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--peak", nargs=2, metavar=("MODEL", "WAY"))
    arguments = parser.parse_args()
    if arguments.peak:
        print(json.dumps(peak(*arguments.peak)))
        return
    torch.set_num_threads(2)
    print(f"{BATCH} × {TOKENS} tokens, 12 layers × 12 heads; torch {torch.__version__}")
    print(f"One layer's attention: {LAYER_BYTES / 2**20:.1f} MB\n")
    print("| model | way | CPU time / eager | peak MB added |")
    print("|---|---|---|---|")
    for name in MODELS:
        ratios = measure_time(name, arguments.repeats)
        for way, ratio in ratios.items():
            megabytes = measure_memory(name, way)
            print(f"| {name} | {way} | {ratio:.3f} | {megabytes:.0f} |", flush=True)
            if way == "tap, nothing kept":
                record(
                    "extraction",
                    f"reading every layer of {name} without keeping it, {BATCH} × {TOKENS} tokens",
                    f"{megabytes:.0f} MB added",
                    "the model's own eager forward",
                    ratio,
                    is_cost=True,
                    bound=1.05 if name == "bert-base" else None,
                )


if __name__ == "__main__":
    main()
