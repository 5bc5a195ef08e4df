"""Count error rates on real documents, and write docs/study/errors.csv and docs/statistics.md."""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from studies.errors.asking import FRONT, ask
from studies.errors.causal import CORPORA, causal_rates
from studies.errors.causal import HELD_OUT as CAUSAL_HELD_OUT
from studies.errors.made_up import made_up_runs
from studies.errors.measures import QUESTIONS
from studies.errors.page import write_page
from studies.errors.populations import HELD_OUT, TITLES, read_populations
from studies.errors.record import Rate, read_rates, write_rates
from studies.errors.sentences import CORPORA as SPOKEN_CORPORA
from studies.errors.sentences import SPOKEN, asked_of, real_runs, sentence_rates


def main() -> None:
    """Measure what is not there yet, simulate, write the numbers, the figure and the tables.

    Asked for everything, it writes all rows of the table anew.
    """
    every = [FRONT, *QUESTIONS]
    parser = argparse.ArgumentParser(
        prog="python -m studies.errors",
        description=__doc__,
        epilog="Each row has the rate before and now, and whether its corpus was held out (PYDOC). "
        "The sums of documents are measured once and kept in --out. "
        "tests/statistics has a small version with fixed seeds.",
    )
    parser.add_argument("--data", type=Path, help="folder with gum/, ud_ewt/ and gap/")
    parser.add_argument("--out", type=Path, default=Path("studies/runs/errors"),
                        help="where the sums of documents are kept")  # fmt: skip
    parser.add_argument("--repetitions", type=int, default=1000,
                        help="samples drawn for each rate (default: 1000)")  # fmt: skip
    parser.add_argument("--models", nargs="+", default=["minilm", "smollm2"])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--questions", nargs="+", choices=every, default=every,
                        help="what to count (default: everything, which replaces all rows); "
                        "`front` runs a model, the others draw from the sums of --out")  # fmt: skip
    parser.add_argument("--causal", action="store_true",
                        help="only effects, patching, importance, variability, tags")  # fmt: skip
    parser.add_argument("--sentences", action="store_true",
                        help="only antecedents, norms, probes, replication, training")  # fmt: skip
    options = parser.parse_args()
    if options.data is None and not options.sentences:
        parser.error("--data is missing: a folder with gum/, ud_ewt/ and gap/")
    began = time.perf_counter()
    run = _run()
    rates: list[Rate] = []
    if options.causal:
        for model, corpus in itertools.product(options.models, CORPORA):
            found = causal_rates(options.data, options.out, model, corpus, options.repetitions)
            choosing = "held out" if corpus in CAUSAL_HELD_OUT else "used"
            write_rates([replace(rate, choosing=choosing, run=run) for rate in found])
        write_page()
        return
    if options.sentences:
        sources = itertools.product(options.models, SPOKEN_CORPORA) if options.data else ()
        spoken = {"made up, documents": asked_of(*made_up_runs())}
        for model, corpus in sources:
            runs, scores = real_runs(options.data, options.out, model, corpus)
            spoken[f"{TITLES[model]}, {corpus}"] = asked_of(runs, scores)
        for name, samples in spoken.items():
            few = options.repetitions // 5
            found = sentence_rates(name, samples, few, options.processes)
            rates += [replace(rate, choosing=_choosing(name), run=run) for rate in found]
        kept = [rate for rate in read_rates() if rate.question not in SPOKEN]
        write_rates([*kept, *rates], is_whole=True)
        write_page()
        return
    populations = read_populations(options.data, options.out, options.models)
    _say(f"read after {time.perf_counter() - began:.0f} s")
    asked = ask(options.questions, populations, options.data, options.repetitions,
                processes=options.processes)  # fmt: skip
    for question, some in asked:
        for rate in some:
            rates.append(replace(rate, choosing=_choosing(rate.population), run=run))
            _say(rates[-1])
        _say(f"{question}: {time.perf_counter() - began:.0f} s")
    rates += [r for r in read_rates() if r.question.startswith("causal") or r.question in SPOKEN]
    write_rates(rates, is_whole=options.questions == every)
    write_page()


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
