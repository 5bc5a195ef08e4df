"""What effects, attribution, wires and norm weighting cost, in the model's own forward passes.

python -m benchmarks.effects [--model smollm2] [--repeats 3]

A forward pass is the bare model on the same prompt (for wires, on the two texts of a pair); CPU
seconds on one thread, the least of the repeats. EAP is the peer of the screen and of EAP-IG.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import headscope as hs
from benchmarks.rows import record
from headscope.causal.pair_wires import WireRun, encode_pairs
from headscope.causal.wires import choose

PROMPT = "When Mary and John went to the big store, John gave a drink to"
BOUNDS = {"effects, exact": 60.0, "effects, by gradient": 3.0}
N_EXACT = 100
WIRE_BOUNDS = {
    "all wires by EAP-IG": 18.0,
    "all wires by the screen": 20.0,
    f"{N_EXACT} exact wires": 0.4 * N_EXACT,
}


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
        what = f"{name}, {n_heads} heads, {n_tokens} tokens"
        _record(what, seconds, "a forward pass", base, BOUNDS.get(name))
    _wires(model, options.repeats)
    _over_norms(model, options.repeats)


def _wires(model: hs.Model, repeats: int) -> None:
    """Estimates of all wires of a pair, and exact wires, in forward passes of the pair."""
    pairs = hs.pairs("ioi", 1)
    (encoded,), graph = encode_pairs(model, pairs, -1)
    run = encoded.run(graph)
    top = choose(run.integrated(), run.screen(), graph.exists, N_EXACT).tolist()
    rows = [WireRun(source, reader) for source, reader in top]

    def forwards() -> None:
        with torch.inference_mode():
            for inputs in encoded.inputs:
                model.module(**inputs)

    base = cpu_seconds(forwards, 10)
    ways: dict[str, Callable[[], object]] = {
        "all wires by EAP, one backward pass": lambda: encoded.run(graph).integrated(0),
        "all wires by EAP-IG": lambda: encoded.run(graph).integrated(),
        "all wires by the screen": lambda: encoded.run(graph).screen(),
        f"{N_EXACT} exact wires": lambda: run.exact(rows),
    }
    for name, measure in ways.items():
        seconds = cpu_seconds(measure, repeats)
        what = f"{name}, {len(encoded.tokens[0])} tokens"
        _record(what, seconds, "a forward pass of both texts", base, WIRE_BOUNDS.get(name))


def _over_norms(model: hs.Model, repeats: int) -> None:
    """The default metrics over attention and over norms, on the demo corpus."""
    corpus = hs.demo_corpus("sentence").sample(60, 0)
    plain, norm = (
        cpu_seconds(lambda over=over: hs.analyze(model, corpus, over=over), repeats)  # type: ignore[misc]
        for over in ("attention", "norm")
    )
    _record("analyze over norms, 60 sentences", norm, "over attention", plain, 1.1)


def _record(what: str, ours: float, name: str, other: float, bound: float | None) -> None:
    """Print and record CPU seconds beside those of something else."""
    print(f"  {what:60} {ours:7.3f} CPU-s  {ours / other:6.2f} of {name}")
    shown = f"{ours:.2f} CPU-s", f"{name}, {other:.3f} CPU-s"
    record("effects", what, *shown, ours / other, is_cost=True, bound=bound)


if __name__ == "__main__":
    main()
