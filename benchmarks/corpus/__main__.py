"""What measuring a corpus costs: all metrics beside a bare forward and the way of 2019.

    python -m benchmarks.corpus [--sentences 400] [--part time|memory|workers]

Time: CPU seconds on one thread, the ways taken in turn for each batch, the least of all
rounds (what disturbs a run only adds to it); small models take more of them, because little
disturbs them much. "bare" is the model's own sdpa forward over the very same batches; metrics
are measured as in a long run, with compiled loops; "2019" is `baseline.py` over the same
sentences. Memory: peak resident memory of a process that measures n sentences, and of one
that measures them ten times over. Workers: wall seconds of one and two.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

import headscope as hs
from benchmarks.corpus.baseline import run_2019
from benchmarks.rows import record
from headscope.metrics import VIG_BELINKOV
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.layer_data import has_numba
from headscope.model.model import Model
from headscope.run.analyze import analyze, make_plan
from headscope.run.batches import Encoder
from headscope.run.checkpoint import ShardStore
from headscope.run.engines.local import _Pool
from headscope.run.options import Settings
from headscope.run.plan import Plan, Shard, survey
from headscope.run.progress import Meter
from headscope.run.shard import measure_shard
from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.readers.read import read


def load_corpus(sentences: int) -> Corpus:
    """Sentences of GUM's training part, or of the bundled corpus again and again."""
    folder = os.environ.get("HEADSCOPE_DATA")
    if not folder:
        print("HEADSCOPE_DATA is not set: sentences of the bundled corpus, repeated")
        return read(_Round(hs.demo_corpus("sentence"), sentences))
    file = Path(folder) / "gum" / "en_gum-train.conllu"
    return read(file, unit="sentence", sample=sentences)


def first_sentences() -> Corpus:
    """Sentences of GUM's development part, or of the bundled corpus."""
    folder = os.environ.get("HEADSCOPE_DATA")
    if not folder:
        return hs.demo_corpus("sentence")
    return read(Path(folder) / "gum" / "en_gum-dev.conllu", unit="sentence")


class _Round:
    """The first sentences of a corpus, up to `most`, again and again up to `n`; never all
    in memory.
    """

    def __init__(self, corpus: Corpus, n: int, most: int | None = None) -> None:
        self.corpus, self.n, self.most = corpus, n, most

    def __iter__(self) -> Iterator[Document]:
        made = 0
        for number in count():
            for document in islice(self.corpus, self.most):
                if made == self.n:
                    return
                made += 1
                yield replace(document, id=f"{number}-{document.id}")


def bert_base() -> Model:
    """BERT-base's shape with random weights, and MiniLM's tokenizer."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = hs.load("minilm").tokenizer
    return hs.load(BertModel(BertConfig()).eval(), tokenizer)


MODELS: dict[str, Callable[[], Model]] = {
    "minilm": lambda: hs.load("minilm"),
    "bert-base shape": bert_base,
}


ROUNDS = {"minilm": 3}
"""How many times the rounds that were asked for."""


def cpu(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def as_long(plan: Plan) -> Plan:
    """The plan as if the corpus were long: with compiled loops, where numba is installed."""
    return replace(plan, is_compiled=has_numba())


def compare_ways(model: Model, corpus: Corpus, rounds: int) -> dict[str, float]:
    """CPU seconds of each way, in one run."""
    settings = Settings()
    found = survey(corpus, settings)
    plan = as_long(make_plan(model, found, VIG_BELINKOV, settings))
    shards = list(plan.shards(corpus, found.lengths, set()))
    encoder = Encoder.of(model, plan)
    batches = [
        encoder.batch(batch)
        for shard in shards
        for batch in encoder.batches(encoder.encode(shard.documents))
    ]
    n_tokens = sum(int(inputs["attention_mask"].sum()) for inputs, _ in batches)

    def bare(inputs: Any, batch: Any) -> None:
        with torch.inference_mode():
            model.module(**inputs)

    def tap_alone(inputs: Any, batch: Any) -> None:
        model.read(inputs, lambda attention: None)

    fold = Accumulator(plan.metrics)

    def all_metrics(inputs: Any, batch: Any) -> None:
        with fold.batch(batch) as read_layer:
            model.read(inputs, read_layer)

    assert model.module.config._attn_implementation == "sdpa"
    ways = {"bare sdpa": bare, "tap alone": tap_alone, "all metrics": all_metrics}
    least = dict.fromkeys(ways, 0.0)
    for inputs, batch in batches:
        # Batch by batch, the ways in turn: a moment of quiet then serves all of them.
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                times[name].append(cpu(partial(way, inputs, batch)))
        for name, found_times in times.items():
            least[name] += min(found_times)
    least["all metrics"] += len(shards) * min(cpu(fold.states) for _ in range(3))
    least["whole"] = min(
        sum(cpu(partial(measure_shard, model, plan, shard)) for shard in shards) for _ in range(2)
    )
    least["2019"] = old_way(model, plan, shards)
    least["tokens"] = float(n_tokens)
    return least


def old_way(model: Model, plan: Plan, shards: list[Any]) -> float:
    encoder = Encoder.of(model, plan)
    documents = [d for shard in shards for d in encoder.encode(shard.documents) if d.length <= 128]
    labels = [encoder.batch([d])[1].stacks["self"] for d in documents]
    rows = [d.inputs for d in documents]
    sizes = len(plan.axes.tags), len(plan.axes.relations)
    model.module.set_attn_implementation("eager")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cpu(lambda: run_2019(model.module, rows, labels, sizes))
    finally:
        model.module.set_attn_implementation("sdpa")


def table(sentences: int, rounds: int, models: list[str]) -> None:
    print(f"{sentences} sentences, CPU seconds on one thread, least of {rounds} rounds or more")
    print(
        f"{'':18}{'bare sdpa':>11}{'tap alone':>11}{'metrics':>11}{'whole':>11}{'2019':>11}", end=""
    )
    print(f"{'metrics/bare':>14}{'2019/whole':>12}")
    for name in models:
        found = compare_ways(MODELS[name](), load_corpus(sentences), rounds * ROUNDS.get(name, 1))
        shown = "".join(
            f"{found[way]:11.2f}"
            for way in ("bare sdpa", "tap alone", "all metrics", "whole", "2019")
        )
        ratio = found["all metrics"] / found["bare sdpa"]
        old = found["2019"] / found["whole"]
        print(f"{name:18}{shown}{ratio:14.3f}{old:12.1f}", flush=True)
        record(
            "corpus",
            f"all metrics of Vig & Belinkov, {name}",
            f"{found['all metrics']:.2f} s",
            f"a bare sdpa forward, {found['bare sdpa']:.2f} s",
            ratio,
            is_cost=True,
            bound=1.25 if name == "minilm" else 1.10,
        )
        record(
            "corpus",
            f"all metrics from text to states, {name}",
            f"{found['whole']:.2f} s",
            f"the way of 2019, {found['2019']:.2f} s",
            old,
            bound=4,
        )


def memory(sentences: int) -> None:
    """Peak memory of measuring n sentences once and ten times over, each in a process of
    its own: the same lengths, so that only their number differs.
    """
    peaks = {}
    for rounds in (1, 10):
        command = [sys.executable, "-m", "benchmarks.corpus", "--part", "peak"]
        command += ["--sentences", str(sentences), "--rounds", str(rounds)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peaks[rounds] = json.loads(output.splitlines()[-1])["peak"]
        print(f"{sentences * rounds:6} sentences: peak {peaks[rounds] / 1024:.0f} MB", flush=True)
    print(f"ten times the documents: {peaks[10] / peaks[1] - 1:+.1%}")
    record(
        "corpus",
        f"peak memory, MiniLM over {10 * sentences} sentences",
        f"{peaks[10] / 1024:.0f} MB",
        f"{sentences} sentences, {peaks[1] / 1024:.0f} MB",
        peaks[10] / peaks[1],
        is_cost=True,
        bound=1.05,
    )


def peak(sentences: int, rounds: int) -> None:
    many = _Round(first_sentences(), sentences * rounds, most=sentences)
    analyze(hs.load("minilm"), read(many), VIG_BELINKOV)
    print(json.dumps({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


def workers(sentences: int) -> None:
    """Wall seconds of one worker process and of two, from the moment all are ready."""
    model, corpus, settings = hs.load("minilm"), load_corpus(sentences), Settings()
    found = survey(corpus, settings)
    plan = make_plan(model, found, VIG_BELINKOV, settings)
    shards = list(plan.shards(corpus, found.lengths, set()))
    seconds: dict[int, float] = {}
    for n in (1, 2, 1, 2):
        with tempfile.TemporaryDirectory() as folder:
            ledger = ShardStore(Path(folder), plan, len(shards))
            clock = _Clock(n)
            pool = _Pool(model, plan, ledger, Meter(found.documents, shown=False))
            pool.run(clock.start(pool, iter(shards)), n)
            seconds[n] = min(seconds.get(n, float("inf")), time.monotonic() - clock.started)
    one, two = seconds[1], seconds[2]
    print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times")
    record(
        "corpus", "two workers", f"{two:.1f} s", f"one worker, {one:.1f} s", one / two, bound=1.7
    )


class _Clock:
    """Holds the first shard back until all workers are ready, and starts counting."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.started = 0.0

    def start(self, pool: _Pool, shards: Iterator[Shard]) -> Iterator[Shard]:
        while sum(worker.is_ready for worker in pool._workers) < self._n:
            for worker in pool._waiting():
                pool._hear(worker)
        self.started = time.monotonic()
        yield from shards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", choices=tuple(MODELS), action="append")
    parser.add_argument("--part", choices=("time", "memory", "workers", "peak"), default="time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "time":
        table(options.sentences, options.rounds, options.model or list(MODELS))
    elif options.part == "memory":
        memory(options.sentences)
    elif options.part == "workers":
        workers(options.sentences)
    else:
        peak(options.sentences, options.rounds)


if __name__ == "__main__":
    main()
