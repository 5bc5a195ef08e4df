"""Getting all attention of a model at once: headscope beside what people use for it.

    python -m benchmarks.tap.peers

GPT-2-small's shape with random weights, 8 × 128 tokens, the same module for all: plain
`output_attentions`, headscope's tap keeping every layer, and, where they are installed or lie in
`.peers`, TransformerLens (its bridge around the same module, caching the attention patterns) and
nnsight (a trace that saves what each attention module returns).
Least CPU seconds of all rounds, taken in turn; all maps are compared first.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscope as hs
from benchmarks.rows import record

BATCH, TOKENS, ROUNDS = 8, 128, 12

Maps = list[torch.Tensor]


def make_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()  # type: ignore[call-arg]


def ways(ids: torch.Tensor) -> dict[str, Callable[[], Maps]]:
    """Each gives the attention of all layers. Of one module each, as bridges change theirs."""
    plain, own = make_model(), hs.load(make_model())
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    own.info  # noqa: B018  # the self-check runs once, before anything is measured

    def official() -> Maps:
        with torch.inference_mode():
            return list(plain(**inputs, output_attentions=True, use_cache=False).attentions)

    def tap() -> Maps:
        found: Maps = []
        own.run(inputs, lambda attention: found.append(attention.weights), use_cache=False)
        return found

    found = {"output_attentions": official, "headscope": tap}
    bridge = transformer_lens()
    if bridge is not None:

        def cached() -> Maps:
            with torch.inference_mode():
                _, cache = bridge.run_with_cache(
                    ids, names_filter=lambda name: name.endswith("hook_pattern")
                )
            return list(cache.values())

        found["TransformerLens"] = cached
    try:
        nnsight = importlib.import_module("nnsight")
    except ImportError as error:
        print(f"nnsight is not here ({error}): left out.")
        return found
    wrapped = nnsight.NNsight(make_model())

    def traced() -> Maps:
        with torch.inference_mode():
            # It rewrites the block below from its source: one context, nothing else in it.
            with wrapped.trace(**inputs, use_cache=False):
                saved = nnsight.save([block.attn.output[1] for block in wrapped.transformer.h])
            return list(saved)

    return {**found, "nnsight": traced}


def transformer_lens() -> Any:
    """Its bridge around the same weights, or None where it is not installed."""
    if Path(".peers").is_dir():
        sys.path.append(".peers")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        bridges = importlib.import_module("transformer_lens.model_bridge")
    except ImportError as error:
        print(f"TransformerLens is not here ({error}): left out.")
        return None
    tokenizer = hs.load("smollm2").tokenizer  # it wants one; it is never used
    return bridges.TransformerBridge.boot_transformers(
        "gpt2", hf_model=make_model(), tokenizer=tokenizer
    )


def main() -> None:
    torch.set_num_threads(1)
    ids = torch.randint(5, 1000, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    runs = ways(ids)
    expected = runs["output_attentions"]()
    for name, run in runs.items():
        furthest = max(float((a - b).abs().max()) for a, b in zip(expected, run(), strict=True))
        print(f"{name}: {len(expected)} maps, furthest from the official ones {furthest:.1e}")
        assert furthest < 1e-5
    least = dict.fromkeys(runs, float("inf"))
    for number in range(ROUNDS):
        for name, run in list(runs.items())[:: 1 if number % 2 else -1]:
            start = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - start)
    for name, seconds in least.items():
        print(f"{name:20} {seconds:.3f} CPU-s  {seconds / least['headscope']:.2f} of headscope's")
        if name != "headscope":
            record(
                "extraction",
                f"all attention of GPT-2 small's shape, {BATCH} × {TOKENS} tokens",
                f"{least['headscope']:.2f} s",
                f"{name}: {seconds:.2f} s",
                seconds / least["headscope"],
            )


if __name__ == "__main__":
    main()
