"""`kill -9` at random moments, twenty times: what is called again ends with the same bits."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headscope as hs
from headscope.results.files import RESULT_FILE
from headscope.results.probe import Probe
from headscope.results.result import Result
from headscope.run import checkpoint
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.shards import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The loss was still falling"),
]
KILLS = 5
"""Of each of the four kinds of work."""
METRICS = ["null_share", "pos_to", "dep_alignment", "variability", "exemplars"]
Job = Callable[["Model", Path], object]


def analysis(model: Model, out: Path) -> Result:
    return hs.analyze(model, make_corpus(200), METRICS, out=out, progress=False)


def dependencies(model: Model, out: Path) -> Result:
    return hs.probe_dependencies(model, make_corpus(300), 5, out=out, progress=False)


def gradients(model: Model, out: Path) -> Result:
    return hs.importance(model, make_corpus(80), out=out, progress=False)


def training(model: Model, out: Path) -> Probe:
    train, dev = make_corpus(150), make_corpus(30, seed=1)
    probe = hs.train_probe(model, train, dev, "attention", cache=out / "cache", progress=False)
    probe.save(out / RESULT_FILE)
    return probe


@pytest.mark.parametrize("job", [analysis, dependencies, gradients, training])
def test_killed_five_times_at_random_moments(
    job: Job, tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    monkeypatch.setattr(checkpoint, "FOLD_EVERY", 4)
    start = time.monotonic()
    expected = job(tiny_bert, tmp_path / "undisturbed")
    seconds = time.monotonic() - start
    seed = int(os.environ.get("HEADSCOPE_SEED") or random.randrange(2**32))
    print(f"HEADSCOPE_SEED={seed} kills at the same moments again")
    chance = random.Random(seed)
    out, kills = tmp_path / "0", 0
    for attempt in range(1, 10 * KILLS):
        if was_killed(job, tiny_bert, out, after=chance.uniform(0.02, 0.5) * seconds):
            kills += 1
            if kills == KILLS:
                break
        else:  # too late: it is whole, and the next one starts anew
            assert_same(expected, hs.open(out / RESULT_FILE))
            out = tmp_path / str(attempt)
    assert kills == KILLS
    assert_same(expected, job(tiny_bert, out))
    assert_same(expected, hs.open(out / RESULT_FILE))
    left = [path for path in out.rglob("*") if path.suffix == ".part"]
    assert not left + list(out.glob("shards/*"))


def was_killed(job: Job, model: Model, out: Path, after: float) -> bool:
    """Was it killed before it ended? Forked, because a new interpreter would take longer to start
    than the work takes.
    """
    work = multiprocessing.get_context("fork").Process(target=job, args=(model, out))
    work.start()
    work.join(after)
    work.kill()
    work.join()
    return work.exitcode == -9 and not (out / RESULT_FILE).exists()


def assert_same(left: object, right: object) -> None:
    if isinstance(left, Result):
        assert isinstance(right, Result)
        assert_same_bits(left, right)
        return
    assert isinstance(left, Probe)
    assert isinstance(right, Probe)
    for one, other in ((left.parameters, right.parameters), (left.scores, right.scores)):
        assert set(one.variables) == set(other.variables)
        for name in one.variables:
            assert one[name].values.tobytes() == other[name].values.tobytes(), name
