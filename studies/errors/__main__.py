"""Count error rates on real documents, and write docs/study/errors.csv and docs/statistics.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from studies.errors.measures import QUESTIONS
from studies.errors.page import write_page
from studies.errors.populations import read_populations
from studies.errors.record import write_rates


def main() -> None:
    """Measure what is not there yet, simulate, write the numbers, the figure and the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with gum/ and ud_ewt/")
    parser.add_argument("--out", type=Path, default=Path("studies/runs/errors"))
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--models", nargs="+", default=["minilm", "smollm2"])
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    options = parser.parse_args()
    populations = read_populations(options.data, options.out, options.models)
    for question in options.questions:
        rates = []
        for rate in QUESTIONS[question](populations, options.repetitions):
            rates.append(rate)
            print(rate, file=sys.stderr, flush=True)
        write_rates(rates)
    write_page()


if __name__ == "__main__":
    main()
