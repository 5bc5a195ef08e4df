"""What effects, wires, attribution and norm weighting cost, in the model's own forward passes.

python -m benchmarks.effects [--model smollm2] [--repeats 3]

A forward pass is the bare model on the same prompt; CPU seconds on one thread, the least of the
repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

import headscope as hs
from benchmarks.rows import record
from headscope.causal.pair_wires import WireRun, encode_pair, graph_of

PROMPT = "When Mary and John went to the big store, John gave a drink to"
GIVER = "When Mary and John went to the big store, Mary gave a drink to"
BOUNDS = {"effects, exact": 60.0, "effects, by gradient": 3.0}
N_WIRES = 100
WIRES = {"the screen": 20.0, "EAP-IG": 18.0, f"{N_WIRES} exact wires": 0.4 * N_WIRES}
"""Bounds in forward passes of a pair: both texts as one batch."""


def cpu_seconds(run: Callable[[], object], repeats: int) -> float:
    """The least of the repeats, after one that warms up."""
    run()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = hs.load(options.model)
    inputs = model.require_tokenizer()(PROMPT, return_tensors="pt")
    n_heads = sum(site.n_heads for site in model.wiring.sites)

    def forward() -> None:
        with torch.inference_mode():
            model.module(**inputs)

    base = cpu_seconds(forward, 10)
    n_tokens = inputs["input_ids"].shape[1]
    print(f"{model.name}, {n_tokens} tokens, {n_heads} heads; a forward pass {base:.3f} CPU-s")
    ways: dict[str, Callable[[], object]] = {
        "effects, exact": lambda: hs.effects(model, PROMPT, " Mary", " John", progress=False),
        "effects, by gradient": lambda: hs.effects(
            model, PROMPT, " Mary", " John", method="gradient", progress=False
        ),
        "attribution": lambda: hs.attribute(model, PROMPT, " Mary", " John"),
        "a score explained": lambda: hs.explain_score(model, PROMPT, 17, 4, -1, 1),
    }
    for name, run in ways.items():
        seconds = cpu_seconds(run, options.repeats)
        print(f"  {name:22} {seconds:7.3f} CPU-s  {seconds / base:6.1f} forwards")
        record(
            "effects",
            f"{name}, {n_heads} heads, {n_tokens} tokens",
            f"{seconds:.2f} CPU-s",
            f"a forward pass, {base:.3f} CPU-s",
            seconds / base,
            is_cost=True,
            bound=BOUNDS.get(name),
        )
    _wires(model, options.repeats)
    _over_norms(model, options.repeats)


def _wires(model: hs.Model, repeats: int) -> None:
    """One pair: both estimates of all wires, and the exact effects of the top of the screen."""
    pair = encode_pair(model, (PROMPT, GIVER), " Mary", " John")
    run = pair.run(graph_of(model, pair))
    inputs = model.require_tokenizer()([PROMPT, GIVER], return_tensors="pt")
    sizes = np.abs(run.screen()).max(-1)
    top = np.unravel_index(np.argsort(-sizes, axis=None)[:N_WIRES], sizes.shape)
    rows = [WireRun(source, reader) for source, reader in np.transpose(top).tolist()]
    ways: dict[str, Callable[[], object]] = dict(
        zip(WIRES, (run.screen, run.integrated, lambda: run.exact(rows)), strict=True)
    )

    def forward() -> None:
        with torch.inference_mode():
            model.module(**inputs)

    base = cpu_seconds(forward, 10)
    for name, way in ways.items():
        seconds = cpu_seconds(way, repeats)
        print(f"  wires: {name:15} {seconds:7.3f} CPU-s  {seconds / base:6.1f} forwards of a pair")
        record(
            "effects",
            f"wires of one pair, {name}, {inputs['input_ids'].shape[1]} tokens",
            f"{seconds:.2f} CPU-s",
            f"a forward pass of the pair, {base:.3f} CPU-s",
            seconds / base,
            is_cost=True,
            bound=WIRES[name],
        )


def _over_norms(model: hs.Model, repeats: int) -> None:
    """The default metrics over attention and over norms, on the demo corpus."""
    corpus = hs.demo_corpus("sentence").sample(60, 0)
    plain, norm = (
        cpu_seconds(lambda over=over: hs.analyze(model, corpus, over=over), repeats)  # type: ignore[misc]
        for over in ("attention", "norm")
    )
    print(f"  analyze {plain:.2f} CPU-s, over norms {norm:.2f} CPU-s: {norm / plain:.2f}")
    record(
        "effects",
        "analyze over norms, 60 sentences",
        f"{norm:.2f} CPU-s",
        f"over attention, {plain:.2f} CPU-s",
        norm / plain,
        is_cost=True,
        bound=1.1,
    )


if __name__ == "__main__":
    main()
