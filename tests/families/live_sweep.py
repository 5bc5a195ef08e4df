"""Fill the column *live* of docs/families.md: each family's tiny model, exported and compared.

    python -m tests.families.live_sweep STORE                   # all families of the page: hours
    python -m tests.families.live_sweep STORE --only bert,llama # those, again
    python -m tests.families.live_sweep STORE --write           # STORE goes into the page

STORE has a JSON line for each family that is done, so a sweep may be stopped and continued.
Every family runs in a process of its own, within a limit of CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import resource
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import transformers

import headscope as hs
from headscope.errors import HeadscopeError, TapUnsupported
from headscope.live.graph import export
from headscope.model.model import Model
from tests.families.examine import Row
from tests.families.shrink import NotBuilt, classes, tiny
from tests.families.table import PAGE, live_column, with_live_column

CPU_SECONDS = 90
FORK = multiprocessing.get_context("fork")
REASONS = re.compile(
    r"reads [\w ]+, not text|by the objective '\w+'|layers of \[.*?\] heads|"
    r"predicts a score|returns no \w+|cannot be exported: ([^.]*(?:\.\w[^.]*)*)|"
    r"differs from the model: [^;]*?\(output\)|does not run for \d+ tokens"
)


def live(model: Model) -> str:
    """The larger difference between the exported graph and the tap, or why it is refused."""
    try:
        return f"{max(export(model).error):.0e}"
    except HeadscopeError as error:
        reason = REASONS.search(str(error))
        return "no: " + (reason[1] or reason[0] if reason else str(error).partition("\n")[0])[:90]


def attempt(family: str, architecture: str) -> str:
    """What the column says of a family; empty if its tiny model is not built here."""
    try:
        small = tiny(family, architecture)
        model = hs.load(small.module)
        try:
            model.info  # noqa: B018
        except TapUnsupported:
            model = hs.load(small.module, example=small.inputs)
        return live(model)
    except NotBuilt:
        return ""
    except Exception as error:  # a fault of headscope, to be read in the table
        return f"no: {type(error).__name__}: {str(error).partition(chr(10))[0]}"[:110]


def limited(family: str, architecture: str) -> str:
    """The same, in a process that ends after `CPU_SECONDS`."""
    here, there = FORK.Pipe()
    process = FORK.Process(target=_child, args=(family, architecture, there))
    process.start()
    there.close()
    try:
        return str(here.recv())
    except EOFError:
        process.join()
        is_late = process.exitcode in (-24, -9)  # SIGXCPU
        return f"no: not done after {CPU_SECONDS} CPU-s" if is_late else "no: the process crashed"
    finally:
        process.join()
        here.close()


def _child(family: str, architecture: str, pipe: Connection) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    with Path(os.devnull).open("w") as silent, contextlib.redirect_stdout(silent):
        pipe.send(attempt(family, architecture))


def order(row: Row) -> tuple[int, str]:
    """Text encoders and causal decoders first, then other models of one block, then the others."""
    is_text = bool(re.search("ForMaskedLM|ForCausalLM|LMHead", row.architecture))
    return (0 if is_text else 1) + (0 if row.blocks == "self" else 2), row.family


def main() -> None:
    """Sweep, or write the column."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--only", help="families, comma-separated")
    parser.add_argument("--write", action="store_true", help="write the store into the page")
    options = parser.parse_args()
    lines = options.store.read_text("utf-8").splitlines() if options.store.exists() else []
    done: dict[str, str] = dict(json.loads(line) for line in lines)
    text = PAGE.read_text("utf-8")
    if options.write:
        PAGE.write_text(with_live_column(text, live_column(text) | done), "utf-8")
        return
    known = classes()
    rows = [Row(family, known[family]) for family in live_column(text) if family in known]
    for row in rows:
        row.blocks = re.search(rf"^\| {re.escape(row.family)} .*$", text, re.M)[0].split(" | ")[4]  # type: ignore[index]
    only = options.only.split(",") if options.only else None
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    attempt("bert", known["bert"])  # what every process needs is imported once
    for row in sorted(rows, key=order):
        if row.family not in (only or {r.family for r in rows} - done.keys()):
            continue
        started = time.monotonic()
        found = limited(row.family, row.architecture)
        with options.store.open("a", encoding="utf-8") as file:
            file.write(json.dumps([row.family, found]) + "\n")
        print(f"{row.family:36s} {found} ({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
