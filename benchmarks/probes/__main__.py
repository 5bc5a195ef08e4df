"""What probing all heads costs: beside a bare forward, and the way of 2019.

    HEADSCOPE_DATA=… python -m benchmarks.probes [--sentences 400] [--rounds 5]

CPU seconds on one thread, the ways taken in turn for each batch, the least of all rounds
(what disturbs a run only adds to it). "bare" is the model's own sdpa forward over the very
same batches; "probe" is the forward with every head, both directions and all relations
counted; "2019" is `baseline.py` over the same sentences, and gives the same counts.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.corpus.__main__ import MODELS, ROUNDS, as_long, cpu, load_corpus
from benchmarks.probes.baseline import run_2019
from benchmarks.rows import record
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.dependencies import DepAccuracy, DepOffset
from headscope.model.model import Model
from headscope.run.analyze import make_plan
from headscope.run.batches import Encoder
from headscope.run.options import Settings
from headscope.run.plan import survey


def compare_ways(model: Model, sentences: int, rounds: int, old: bool) -> dict[str, float]:
    """CPU seconds of each way, in one run."""
    corpus, settings = load_corpus(sentences), Settings()
    found = survey(corpus, settings)
    plan = as_long(make_plan(model, found, [DepAccuracy(), DepOffset()], settings))
    encoder = Encoder.of(model, plan)
    shards = list(plan.shards(corpus, found.lengths, set()))
    encoded = [document for shard in shards for document in encoder.encode(shard.documents)]
    batches = [encoder.batch(batch) for batch in encoder.batches(encoded)]

    def bare(inputs: Any, batch: Any) -> None:
        with torch.inference_mode():
            model.module(**inputs)

    def tap_alone(inputs: Any, batch: Any) -> None:
        model.run(inputs, lambda attention: None)

    fold = Accumulator(plan.metrics)

    def probe(inputs: Any, batch: Any) -> None:
        with fold.batch(batch) as read_layer:
            model.run(inputs, read_layer)

    assert model.module.config._attn_implementation == "sdpa"
    ways = {"bare": bare, "tap": tap_alone, "probe": probe}
    least = dict.fromkeys(ways, 0.0)
    for inputs, batch in batches:
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                times[name].append(cpu(partial(way, inputs, batch)))
        for name, seconds in times.items():
            least[name] += min(seconds)
    least["probe"] += len(shards) * min(cpu(fold.states) for _ in range(3))
    if old:
        least["2019"] = _old_way(model, encoder, encoded, batches, plan)
    return least


def _old_way(model: Model, encoder: Encoder, encoded: Any, batches: Any, plan: Any) -> float:
    labels = [encoder.batch([document])[1].stacks["self"] for document in encoded]
    rows = [document.inputs for document in encoded]
    model.module.set_attn_implementation("eager")
    counted: list[Any] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = cpu(lambda: counted.append(run_2019(model.module, rows, labels)))
    finally:
        model.module.set_attn_implementation("sdpa")
    fold = Accumulator(plan.metrics)
    for inputs, batch in batches:
        with fold.batch(batch) as read_layer:
            model.run(inputs, read_layer)
    right = fold.states()["self"]["dep_accuracy"]["right"].sum(1)  # layer relation head direction
    theirs = np.zeros_like(right)
    for (layer, head, direction), counts in counted[0].items():
        for relation, count in counts.items():
            theirs[layer, relation, head, int(direction == "head")] += count
    apart = np.abs(right - theirs).sum() / right.sum()
    print(f"  counts differ from the way of 2019 in {apart:.4%} of the right predictions")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", choices=tuple(MODELS), action="append")
    parser.add_argument("--no-2019", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{options.sentences} sentences, one thread, CPU seconds, least of {options.rounds} or more"
    )
    print(
        f"{'':18}{'bare':>9}{'tap':>9}{'probe':>9}{'2019':>9}{'probe/bare':>12}{'2019/probe':>12}"
    )
    for name in options.model or MODELS:
        rounds = options.rounds * ROUNDS.get(name, 1)
        found = compare_ways(MODELS[name](), options.sentences, rounds, not options.no_2019)
        found.setdefault("2019", float("nan"))
        shown = "".join(f"{found[way]:9.2f}" for way in ("bare", "tap", "probe", "2019"))
        ratios = found["probe"] / found["bare"], found["2019"] / found["probe"]
        print(f"{name:18}{shown}{ratios[0]:12.3f}{ratios[1]:12.1f}", flush=True)
        record(
            "probes",
            f"every head as a classifier of dependencies, {name}",
            f"{found['probe']:.2f} s",
            f"a bare sdpa forward, {found['bare']:.2f} s",
            ratios[0],
            is_cost=True,
            bound=1.15,
        )
        if not options.no_2019:
            record(
                "probes",
                f"every head as a classifier of dependencies, {name}",
                f"{found['probe']:.2f} s",
                f"the way of 2019, {found['2019']:.2f} s",
                ratios[1],
            )


if __name__ == "__main__":
    main()
