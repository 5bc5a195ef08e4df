"""Questions asked in several processes at once, of one population at a time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from studies.errors.endtoend import front_door
from studies.errors.measures import QUESTIONS, TOGETHER
from studies.errors.populations import Population
from studies.errors.record import Rate

__all__ = ["FRONT", "ask"]

FRONT = "front"
"""The question that runs a model itself."""
Populations = Mapping[str, Population]


def ask(
    questions: Sequence[str],
    populations: Populations,
    data: Path,
    repetitions: int,
    *,
    processes: int | None = None,
) -> Iterator[tuple[str, list[Rate]]]:
    """Each question with its rates of some populations, as they come."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(_counted, question, some, data, repetitions): question
            for question in questions
            for some in _at_a_time(question, populations)
        }
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _at_a_time(question: str, populations: Populations) -> list[Populations]:
    """The populations that a question is asked about at once: one, or those it compares."""
    if question == FRONT:
        return [{}]
    if question in TOGETHER:
        return [populations]
    return [{name: population} for name, population in populations.items()]


def _counted(question: str, populations: Populations, data: Path, repetitions: int) -> list[Rate]:
    """The rates of one question; in a process of its own."""
    if question == FRONT:
        return list(front_door(data, repetitions))
    return list(QUESTIONS[question](populations, repetitions))
