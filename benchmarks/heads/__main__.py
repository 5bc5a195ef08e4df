"""What the map of heads and gradient importance cost: CPU seconds and ratios in one run.

python -m benchmarks.heads [--heads 144] [--many 1024] [--tokens 128] [--model smollm2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from scipy.special import rel_entr

import headscope as hs
from benchmarks.heads.baseline import js_2019
from benchmarks.rows import record
from headscope.batch import Axes, Batch, Sequences
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.divergence import compiled, js_sums, js_sums_blocked
from headscope.metrics.gradients import Importance, Loss, RemovalEstimate
from headscope.model.objective import losses_of, with_loss
from headscope.run.shard import question


def cpu_seconds(run: Callable[[], object], repeats: int) -> float:
    """The least of the repeats, after one that warms up: what disturbs a run only adds to it."""
    run()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def random_attention(heads: int, tokens: int) -> np.ndarray:
    """`head query key`: rows as sharp as those of real heads are on average."""
    scores = np.random.default_rng(0).normal(0, 3, (heads, tokens, tokens))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def divergence(heads: int, tokens: int) -> None:
    rows = random_attention(heads, tokens)
    fast = compiled()
    print(f"Jensen-Shannon divergence of {heads} heads, one segment of {tokens} tokens")
    base = cpu_seconds(lambda: js_2019(rows), 2)
    print(f"  2019 formula, float32 NumPy  {base:8.3f} CPU-s      1.0 ×")
    ways: list[tuple[str, Callable[[], object]]] = [
        ("without numba (NumPy)", lambda: js_sums_blocked(rows, is_causal=False))
    ]
    if fast is not None:
        ways.append(("numba", lambda: fast(rows, is_causal=False)))
        ways.append(("numba, causal attention", lambda: fast(rows, is_causal=True)))
    for name, run in ways:
        seconds = cpu_seconds(run, 5)
        print(f"  {name:27}  {seconds:8.3f} CPU-s  {base / seconds:7.1f} ×")
        record(
            "heads",
            f"divergence of all pairs of {heads} heads, {tokens} tokens, {name}",
            f"{seconds:.3f} s",
            f"the formula of 2019 in NumPy, {base:.2f} s",
            base / seconds,
        )


def many_heads(heads: int, tokens: int, pairs: int = 500) -> None:
    """A model of many heads: what a segment costs, and how far it is from the definition."""
    rows = random_attention(heads, tokens)
    start = time.process_time()
    sums = js_sums(rows, is_causal=False)
    seconds = time.process_time() - start
    chosen = np.random.default_rng(0).integers(0, heads, (pairs, 2))
    error = max(abs(sums[a, b] - exact(rows[a], rows[b])) / tokens for a, b in chosen)
    print(f"Jensen-Shannon divergence of {heads} heads, one segment of {tokens} tokens")
    sizes = f"{rows.nbytes >> 20} MB of attention, {sums.nbytes >> 20} MB of sums"
    print(f"  {seconds:.2f} CPU-s; {sizes}")
    print(f"  off the definition by at most {error:.1e} nats a token, in {pairs} pairs")


def exact(p: np.ndarray, q: np.ndarray) -> float:
    """The sum over queries of ½ KL(p‖m) + ½ KL(q‖m), m = (p+q)/2, in float64."""
    p, q = p.astype(np.float64), q.astype(np.float64)
    m = (p + q) / 2
    return float((rel_entr(p, m) + rel_entr(q, m)).sum() / 2)


def importance(name: str, tokens: int) -> None:
    """The passes of one batch: forward with the tap reading nothing, and importance."""
    model = hs.load(name)
    ids = torch.randint(100, 20_000, (4, tokens), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    mask = np.ones(ids.shape, dtype=bool)
    classes = np.zeros((*ids.shape, 3), dtype=bool)
    axes = Axes(buckets_per_group=1, key_classes=("first", ". or ,", "rest"))
    stack = replace(Sequences.plain(mask), classes=classes)
    batch = Batch(axes, {"self": stack}, np.zeros(4), np.zeros(4), np.zeros(4, dtype=np.int64))
    posed, labels = question(model, inputs, batch, 0)

    def forward() -> None:
        with torch.inference_mode():
            losses_of(model.module(**posed).logits, labels)

    def both() -> None:
        fold = Accumulator([Importance(), RemovalEstimate(), Loss()])
        with (
            with_loss(model, posed, labels) as (losses, backward),
            fold.batch(replace(batch, losses=losses)) as read,
        ):
            backward(read)

    base, all_of_it = cpu_seconds(forward, 3), cpu_seconds(both, 3)
    print(f"Gradient importance of {name}, 4 documents of {tokens} tokens")
    print(f"  forward and loss, the model's own attention  {base:8.3f} CPU-s      1.0 ×")
    ratio = all_of_it / base
    print(f"  forward, backward and all sums               {all_of_it:8.3f} CPU-s  {ratio:7.1f} ×")
    record(
        "heads",
        f"gradient importance of every weight, {name}",
        f"{all_of_it:.2f} s",
        f"a forward pass, {base:.2f} s",
        ratio,
        is_cost=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=144)
    parser.add_argument("--many", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--model", default="smollm2", help="a causal model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    divergence(arguments.heads, arguments.tokens)
    many_heads(arguments.many, arguments.tokens)
    importance(arguments.model, arguments.tokens)


if __name__ == "__main__":
    main()
