"""`kill -9` at random moments: a run that is called again ends with the same bits."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headscope.results.opening import RESULT
from headscope.run import checkpoint
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus
from tests.run.same import assert_same_bits
from tests.run.test_analyze import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model

KILLS = 5


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_five_times_at_random_moments(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    monkeypatch.setattr(checkpoint, "FOLD_EVERY", 4)
    corpus = make_corpus(200)
    metrics = ["null_share", "pos_to", "dep_alignment", "variability", "exemplars"]
    start = time.monotonic()
    undisturbed = analyze(tiny_bert, corpus, metrics)
    seconds = time.monotonic() - start
    seed = int(os.environ.get("HEADSCOPE_SEED") or random.randrange(2**32))
    print(f"HEADSCOPE_SEED={seed} kills at the same moments again")
    chance = random.Random(seed)
    for attempt in range(4):
        # Where the machine was slow before and is quick now, five moments come too late.
        out = tmp_path / str(attempt)
        delays = [chance.uniform(0.02, 0.25) * seconds / 2**attempt for _ in range(KILLS)]
        if all(killed_after(delay, tiny_bert, corpus, metrics, out) for delay in delays):
            break
    else:
        pytest.fail("the run ended four times before it could be killed five times")
    assert list((out / "shards").iterdir()), f"no shard was written before {delays}"
    assert_same_bits(undisturbed, analyze(tiny_bert, corpus, metrics, out=out))
    assert not [path for path in out.rglob("*") if path.suffix in (".part", ".npz")]


def killed_after(delay: float, *arguments: Any) -> bool:
    """Was the run killed before it ended? Forked, because a new interpreter would take
    longer to start than the run takes.
    """
    *arguments, out = arguments
    run = multiprocessing.get_context("fork").Process(
        target=analyze, args=arguments, kwargs={"out": out, "progress": False}
    )
    run.start()
    run.join(delay)
    run.kill()
    run.join()
    return run.exitcode == -9 and not (out / RESULT).exists()
