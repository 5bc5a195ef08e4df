"""How universal is the tap? Every family of the installed transformers, held against its own
reference attention; the rows become docs/families.md.

    python -m tests.families.sweep                        # all; `make families`
    python -m tests.families.sweep --only bert,llama      # prints rows, writes nothing
    python -m tests.families.sweep --testers DIR          # a checkout of transformers: its tests
                                                          # build what we cannot

Every family runs in a process of its own, so a crash or a hang costs one row.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections import Counter
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import transformers

from tests.families.examine import Row, examine
from tests.families.shrink import classes
from tests.families.table import PAGE, live_column, page, with_live_column

TIMEOUT = 300.0
FORK = multiprocessing.get_context("fork")


def sweep(
    families: list[str],
    workers: int,
    checkout: Path | None = None,
    say: bool = True,
) -> list[Row]:
    """The rows of these families, in order."""
    known = classes()
    waiting = [(family, known[family]) for family in families]
    running: list[tuple[Row, multiprocessing.process.BaseProcess, Connection, float]] = []
    rows: list[Row] = []
    while waiting or running:
        while waiting and len(running) < workers:
            running.append(_started(*waiting.pop(0), checkout))
        multiprocessing.connection.wait([pipe for _, _, pipe, _ in running], timeout=1)
        for one in list(running):
            row, process, pipe, started = one
            is_late = time.monotonic() - started > TIMEOUT
            if not pipe.poll() and process.is_alive() and not is_late:
                continue
            running.remove(one)
            rows.append(_finished(row, process, pipe, is_late=is_late))
            if say:
                last = rows[-1]
                said = f"{last.verdict:12s} {last.detail[:90]}"
                print(f"{len(rows):4d} {last.family:36s} {said}", flush=True)
    return sorted(rows, key=lambda row: row.family)


def _started(
    family: str, architecture: str, checkout: Path | None
) -> tuple[Row, multiprocessing.process.BaseProcess, Connection, float]:
    here, there = FORK.Pipe()
    process = FORK.Process(target=_examine, args=(family, architecture, checkout, there))
    process.start()
    there.close()
    return Row(family, architecture), process, here, time.monotonic()


def _examine(family: str, architecture: str, checkout: Path | None, pipe: Connection) -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    pipe.send(asdict(examine(family, architecture, checkout)))


def _finished(
    row: Row, process: multiprocessing.process.BaseProcess, pipe: Connection, *, is_late: bool
) -> Row:
    try:
        if pipe.poll():
            return Row(**pipe.recv())
    except EOFError:
        pass
    finally:
        if process.is_alive():
            process.kill()
        process.join()
        pipe.close()
    row.verdict = "not built" if is_late else "crash"
    row.detail = f"not done after {TIMEOUT:.0f} s" if is_late else f"ended with {process.exitcode}"
    return row


def main() -> None:
    """Sweep, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="families, comma-separated; the page is not written")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--testers", type=Path, help="a checkout of transformers with its tests")
    parser.add_argument("--json", type=Path, help="write the rows there, and no page")
    options = parser.parse_args()
    families = options.only.split(",") if options.only else list(classes())
    rows = sweep(families, options.workers, options.testers)
    print(dict(Counter(row.verdict for row in rows)))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if not (options.only or options.json):
        kept = live_column(PAGE.read_text("utf-8"))  # see live_sweep
        PAGE.write_text(with_live_column(page(rows), kept), encoding="utf-8")


if __name__ == "__main__":
    main()
