"""What a person waits for: whole commands beside merely running the model over the same texts.

    python -m benchmarks.endtoend [--part shell|cpu|commands|workers|growth|memory] [--rounds 3]

Shell: wall seconds of `headscope analyze` with default options, from the shell to the saved result,
beside a bare forward (`bare.py`: all cores, sdpa, sorted by length, tokenizing included, importing
and loading not). CPU: `hs.analyze` of a loaded model, everything included, beside the bare forward,
one thread each; and beside it only reading attention, nothing measured: what is possible at best.
Commands: wall seconds of what should be quick. Workers: one beside two. Growth: how the cost of a
token grows with the length of the text, beside the forward's own growth. Memory: its peak for one
text, above the loaded model (`memory.py`).

Each side in turn, the least of the rounds: what disturbs a run only adds to it. The machine should
be idle otherwise. HEADSCOPE_DATA names the folder with `ud_ewt` and `gum`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import headscope as hs
from benchmarks.corpus.__main__ import bert_base
from benchmarks.endtoend.bare import MAX_TOKENS, batches
from benchmarks.endtoend.bare import run as run_bare
from benchmarks.endtoend.texts import GUM, cut_document, data, joined_documents
from benchmarks.rows import record
from headscope.model.identity import weights_sha256
from headscope.model.load import _find
from headscope.model.model import Model

EWT = "ud_ewt/en_ewt-ud-dev.conllu"
SHELL = (("minilm", EWT, 3.0), ("smollm2", EWT, 1.0), ("minilm", GUM, 1.6))
"""Model, corpus and the bound of `headscope analyze` over a bare forward."""
CPU: dict[str, tuple[Callable[[], Model], int | None, float]] = {
    "smollm2": (lambda: hs.load("smollm2"), 600, 1.0),
    "bert-base shape": (bert_base, 600, 0.95),
    "minilm": (lambda: hs.load("minilm"), None, 1.4),
}
"""How to load a model, how many sentences to take (all, where they take seconds), and the bound."""
MAX_ROUNDS = 2
"""Of what takes minutes, which is disturbed less."""
VIEW = "headscope view of a sentence, minilm"
IMPORTS = "import torch; from transformers.models.bert.modeling_bert import BertModel"
COMMANDS = {
    "headscope report of a run": (["report", "{run}", "-o", "{folder}/report.html"], 3.0),
    VIEW: (
        ["view", "The cat sat on the mat.", "-o", "{folder}/page.html"],
        4.0,
    ),
    "headscope --help": (["--help"], 1.0),
}
LENGTHS = (128, 512, 2048, 8192)
WHOLE = 2048
"""Longest text of what keeps whole layers, or takes many passes."""
MEMORY = {512: 0.3, 2048: 0.5, 8192: 1.2, 32768: 4.0}
"""Length of a text, and the bound of its memory in gigabytes."""
LONG = 1024
"""Texts of so many tokens are run once: a run takes a minute."""


def headscope(*arguments: str) -> float:
    """Wall seconds of a command."""
    return _wall([sys.executable, "-m", "headscope", *arguments])


def _wall(command: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - start


def shell(rounds: int) -> None:
    for model, name, bound in SHELL:
        corpus = data(name)
        place = _find(model, None).location
        ours, bare = [], []
        with tempfile.TemporaryDirectory() as folder:
            texts = Path(folder) / "texts.json"
            texts.write_text(json.dumps([document.text for document in hs.read(corpus)]))
            command = [sys.executable, "-m", "benchmarks.endtoend.bare", place, str(texts)]
            for n in range(rounds if model == "minilm" else min(rounds, MAX_ROUNDS)):
                out = str(Path(folder) / f"run-{n}")
                ours.append(headscope("analyze", str(corpus), "--model", model, "-o", out, "-q"))
                answer = subprocess.run(command, check=True, capture_output=True, text=True)
                bare.append(json.loads(answer.stdout.splitlines()[-1])["wall"])
        what = (
            f"headscope analyze, {model}, {corpus.parent.name} ({_n_sentences(corpus)} sentences)"
        )
        _tell("end to end", what, min(ours), "a bare forward", min(bare), bound)


def _n_sentences(corpus: Path) -> str:
    return f"{hs.read(corpus).summary().documents:,}"


def some_sentences(file: Path, n: int | None, folder: Path) -> Path:
    """A file with n of a treebank's sentences, evenly spread; the treebank itself for None."""
    if n is None:
        return file
    blocks = file.read_text(encoding="utf-8").strip().split("\n\n")
    chosen = [blocks[i * len(blocks) // n] for i in range(n)]
    part = folder / f"{n}.conllu"
    part.write_text("\n\n".join(chosen) + "\n\n", encoding="utf-8")
    return part


def cpu(rounds: int) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        _cpu_of_models(rounds, Path(folder))


def _cpu_of_models(rounds: int, folder: Path) -> None:
    for name, (load, sentences, bound) in CPU.items():
        corpus = hs.read(some_sentences(data(EWT), sentences, folder))
        texts = [document.text for document in corpus]
        model = load()
        ways: dict[str, Callable[[], object]] = {
            "whole": partial(hs.analyze, model, corpus, workers=1),
            "bare": partial(run_bare, model.module, model.tokenizer, texts),
            "read": partial(_read_only, model, texts),
        }
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds if sentences is None else min(rounds, MAX_ROUNDS)):
            for way, run in ways.items():
                taken[way].append(_cpu(run))
        least = {way: min(seconds) for way, seconds in taken.items()}
        what = f"CPU of hs.analyze, {name}, {len(texts):,} sentences of EWT dev"
        _tell("end to end", what, least["whole"], "a bare forward", least["bare"], bound)
        what = f"CPU of only reading attention, {name}, the same sentences"
        _tell("end to end", what, least["read"], "a bare forward", least["bare"])


def _read_only(model: Model, texts: list[str]) -> None:
    """Attention is read as `hs.analyze` reads it, in the bare forward's batches, and dropped."""
    for batch in batches(model.tokenizer, texts, MAX_TOKENS):
        model.read(batch, lambda attention: None)


def commands(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        headscope("analyze", str(data(EWT)), "-o", run, "-q")
        seconds: dict[str, float] = {}
        for what, (arguments, bound) in COMMANDS.items():
            given = [argument.format(run=run, folder=folder) for argument in arguments]
            seconds[what] = min(headscope(*given) for _ in range(rounds))
            _limit(what, seconds[what], bound)
        demo = [sys.executable, "examples/demo.py", "-o", f"{folder}/demo"]
        _limit("make demo", _wall(demo), 45.0)
        least = min(_wall([sys.executable, "-c", IMPORTS]) for _ in range(rounds))
        _tell("end to end", VIEW, seconds[VIEW], "importing torch and its BERT alone", least)
        opened = []
        for _ in range(rounds):
            start = time.monotonic()
            hs.open(run)
            opened.append(time.monotonic() - start)
        _limit("hs.open of a run", min(opened), 0.7)


def workers(rounds: int) -> None:
    """`hs.analyze` of a loaded model with one worker and with two."""
    model, corpus = hs.load("minilm"), hs.read(data(GUM))
    _ = model.info
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(min(rounds, MAX_ROUNDS)):
        for n, taken in seconds.items():
            start = time.monotonic()
            hs.analyze(model, corpus, workers=n)
            taken.append(time.monotonic() - start)
    one, two = min(seconds[1]), min(seconds[2])
    print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f} times")
    record(
        "end to end",
        "two workers, hs.analyze over GUM train, minilm",
        f"{two:.1f} s",
        f"one worker, {one:.1f} s",
        one / two,
        bound=1.7,
    )


def memory(_rounds: int) -> None:
    """Peak memory of one text above the model, a process for each length."""
    for length, bound in MEMORY.items():
        command = [sys.executable, "-m", "benchmarks.endtoend.memory", str(length)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(answer.stdout.splitlines()[-1])
        what = f"memory above the model, all metrics, {length:,} tokens, smollm2"
        shown = f"{found['gigabytes']:.2f} GB"
        print(f"{what}: {shown} (≤ {bound} GB), {found['seconds']:.0f} s", flush=True)
        ratio = found["gigabytes"] / bound
        record("growth", what, shown, f"the limit, {bound:g} GB", ratio, is_cost=True, bound=1.0)


def growth(rounds: int, figure: Path | None) -> None:
    """CPU milliseconds of a token at each length, one thread, the forward's beside ours."""
    torch.set_num_threads(1)
    model = hs.load("smollm2")
    document = joined_documents(hs.read(data(GUM), unit="document"), 6 * LENGTHS[-1])
    table: dict[str, list[float]] = {}
    for length in LENGTHS:
        ways = _ways(model, document, length)
        print(f"{length} tokens", flush=True)
        for name, way in ways.items():
            if length > WHOLE and name not in ("a bare forward", "all metrics"):
                continue
            if length == LENGTHS[0]:
                way()  # whatever is made once, such as compiled loops
            n = rounds if length < LONG else 1
            least = min(_cpu(way) for _ in range(n))
            table.setdefault(name, []).append(1000 * least / length)
            print(f"  {name:28}{table[name][-1]:9.2f} ms a token", flush=True)
    fixed = min(_cpu(lambda: weights_sha256(model.module)) for _ in range(rounds))
    whole = min(
        _cpu(lambda: hs.analyze(model, hs.read(["A cat sat."]), workers=1, progress=False))
        for _ in range(rounds)
    )
    forward = table["a bare forward"][0] * LENGTHS[0] / 1000
    what = f"once a run: {fixed:.2f} s for the hash of the weights, the rest for intervals; smollm2"
    shown = f"a bare forward of {LENGTHS[0]} tokens, {forward:.2f} s"
    record("growth", what, f"{whole:.2f} s", shown, whole / forward, is_cost=True)
    bare = table["a bare forward"]
    for name, per_token in table.items():
        for length, ours, theirs in zip(LENGTHS, per_token, bare, strict=False):
            if name != "a bare forward":
                record(
                    "growth",
                    f"{name}, {length:,} tokens, smollm2",
                    f"{ours:.2f} ms a token",
                    f"a bare forward, {theirs:.2f} ms",
                    ours / theirs,
                    is_cost=True,
                )
    if figure is not None:
        draw(table, figure)


def _ways(model: Model, document: hs.Document, length: int) -> dict[str, Callable[[], object]]:
    """What is done with a text of so many tokens, the beginning of a document."""
    tokenizer = model.require_tokenizer()
    given = {"workers": 1, "max_tokens": length, "progress": False}
    ids = tokenizer(document.text)["input_ids"][:length]
    text, last = tokenizer.decode(ids[:-1]), tokenizer.decode(ids[-1:])
    document = cut_document(document, tokenizer, length)
    return {
        "a bare forward": lambda: run_bare(model.module, tokenizer, [document.text], length),
        "all metrics": lambda: hs.analyze(model, document, **given),
        "Jensen–Shannon divergence": lambda: hs.analyze(model, document, ["js"], **given),
        "dependency probe": lambda: hs.probe_dependencies(model, document, **given),
        "gradient importance": lambda: hs.importance(model, document, **given),
        "effects by gradient": lambda: hs.effects(
            model, text, last, method="gradient", progress=False
        ),
    }


def draw(table: dict[str, list[float]], path: Path) -> None:
    """Cost of a token over the length of the text."""
    from headscope.figures.style import PALETTE, new_figure, save_figure, styled

    with styled():
        figure = new_figure(4.2, 2.8)
        axes = figure.add_subplot()
        for color, (name, per_token) in zip(PALETTE, table.items(), strict=False):
            axes.plot(
                LENGTHS[: len(per_token)],
                per_token,
                color=color,
                marker="o",
                markersize=3,
                label=name,
            )
        axes.set(xscale="log", yscale="log", xlabel="tokens of the text", ylabel="CPU ms a token")
        axes.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS])
        axes.minorticks_off()
        axes.legend()
    save_figure(figure, path)


def _cpu(way: Callable[[], object]) -> float:
    start = time.process_time()
    way()
    return time.process_time() - start


def _tell(
    part: str, what: str, ours: float, other: str, theirs: float, bound: float | None = None
) -> None:
    ratio = ours / theirs
    limit = "" if bound is None else f" (≤ {bound})"
    print(f"{what}: {ours:.1f} s, {other} {theirs:.1f} s: {ratio:.2f}{limit}", flush=True)
    ours_shown, theirs_shown = f"{ours:.1f} s", f"{other}, {theirs:.1f} s"
    record(part, what, ours_shown, theirs_shown, ratio, is_cost=True, bound=bound)


def _limit(what: str, seconds: float, bound: float) -> None:
    """A row whose bound is in seconds."""
    print(f"{what}: {seconds:.2f} s (≤ {bound} s)", flush=True)
    limit = f"the limit, {bound:g} s"
    record("end to end", what, f"{seconds:.2f} s", limit, seconds / bound, is_cost=True, bound=1.0)


PARTS: dict[str, Callable[[int], None]] = {
    "shell": shell,
    "cpu": cpu,
    "commands": commands,
    "workers": workers,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=(*PARTS, "growth"), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="where growth is drawn")
    options = parser.parse_args()
    for part in options.part or [*PARTS, "growth"]:
        if part == "growth":
            growth(options.rounds, options.figure)
        else:
            PARTS[part](options.rounds)


if __name__ == "__main__":
    main()
