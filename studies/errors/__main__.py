"""Count error rates on real documents, and write docs/study/errors.csv and docs/statistics.md."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from studies.errors.endtoend import front_door
from studies.errors.measures import QUESTIONS, TOGETHER
from studies.errors.page import write_page
from studies.errors.populations import HELD_OUT, Population, read_populations
from studies.errors.record import Rate, write_rates

FRONT = "front"


def main() -> None:
    """Measure what is not there yet, simulate, write the numbers, the figure and the tables.

    Asked for everything, it writes all rows of the table anew.
    """
    every = [FRONT, *QUESTIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with gum/, ud_ewt/ and gap/"
    )
    parser.add_argument("--out", type=Path, default=Path("studies/runs/errors"),
                        help="where the sums of documents are kept")  # fmt: skip
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=["minilm", "smollm2"])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--questions", nargs="+", choices=every, default=every)
    options = parser.parse_args()
    began = time.perf_counter()
    run = _run()
    populations = read_populations(options.data, options.out, options.models)
    _say(f"read after {time.perf_counter() - began:.0f} s")
    rates: list[Rate] = []
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(_counted, question, some, options.data, options.repetitions): question
            for question in options.questions
            for some in _at_a_time(question, populations)
        }
        for done in as_completed(waiting):
            for rate in done.result():
                rates.append(replace(rate, choosing=_choosing(rate.population), run=run))
                _say(rates[-1])
            _say(f"{waiting[done]}: {time.perf_counter() - began:.0f} s")
    write_rates(rates, is_whole=options.questions == every)
    write_page()


def _at_a_time(
    question: str, populations: Mapping[str, Population]
) -> list[Mapping[str, Population]]:
    """The populations that a question is asked about at once: one, or those it compares."""
    if question == FRONT:
        return [{}]
    if question in TOGETHER:
        return [populations]
    return [{name: population} for name, population in populations.items()]


def _counted(
    question: str, populations: Mapping[str, Population], data: Path, repetitions: int
) -> list[Rate]:
    """The rates of one question; in a process of its own."""
    if question == FRONT:
        return list(front_door(data, repetitions))
    return list(QUESTIONS[question](populations, repetitions))


def _choosing(population: str) -> str:
    return "held out" if population.split(", ")[1] in HELD_OUT else "used"


def _run() -> str:
    """When this run began, and the commit of its code."""
    named = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} {named.stdout.strip()}".strip()


def _say(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
