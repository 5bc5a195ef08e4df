"""A metric of the user's own, from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError
from headscope.metrics.core import registry
from headscope.run import checkpoint
from tests.run.corpora import make_corpus, make_documents
from tests.run.own_metric import BackwardShare
from tests.run.same import assert_close, assert_same_bits
from tests.run.shards import small_shards

if TYPE_CHECKING:
    from headscope.model.model import Model

MINE = [BackwardShare(reach=2), "distance"]


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    registry._theirs.clear()


def test_it_says_what_it_should(tiny_bert: Model) -> None:
    documents = make_documents(12)
    result = hs.analyze(tiny_bert, hs.read(documents), MINE)
    back, total = 0.0, 0.0
    for document in documents:
        weights = tiny_bert.trace(document.text, vectors=False).attention.values[1, 2]
        weights = weights[1:-1, 1:-1].astype(np.float64)
        back += np.tril(weights, -2).sum()
        total += weights.sum()
    assert float(result["backward_share"][1, 2]) == pytest.approx(back / total, rel=1e-5)
    assert result["backward_share"].attrs["long_name"].startswith("Share of a head's attention")
    low, high = result["backward_share_interval"][:, 1, 2].values
    assert low <= float(result["backward_share"][1, 2]) <= high


def test_workers_and_a_resumed_run_give_the_same_bits(
    tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_shards(monkeypatch)
    corpus = make_corpus(60)
    alone = hs.analyze(tiny_bert, corpus, MINE, by="genre")
    assert_same_bits(alone, hs.analyze(tiny_bert, corpus, MINE, by="genre", workers=2))

    original, calls = checkpoint.ShardStore.merge, []

    def stop(ledger: Any, **options: Any) -> None:
        calls.append(1)
        original(ledger, **options)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.ShardStore, "merge", stop)
        with pytest.raises(KeyboardInterrupt):
            hs.analyze(tiny_bert, corpus, MINE, by="genre", out=tmp_path)
    assert_same_bits(alone, hs.analyze(tiny_bert, corpus, MINE, by="genre", out=tmp_path))
    assert set(alone.groups) == {"news", "fiction"}
    for metrics, differs in (
        ([BackwardShare(reach=3)], "backward_share reach was 2, is 3; distance was measured, and"),
        ([*MINE, "entropy"], "holds another run: entropy was not measured. Choose"),
        (MINE[::-1], "its metrics were in another order"),
    ):
        with pytest.raises(InputError, match=differs):
            hs.analyze(tiny_bert, corpus, metrics, by="genre", out=tmp_path)


def test_saved_results_open_anywhere_and_merge_where_the_class_is_known(
    tiny_bert: Model, tmp_path: Path
) -> None:
    first, second = make_documents(20), make_documents(15, 1, first=20)
    whole = hs.analyze(tiny_bert, hs.read([*first, *second]), MINE)
    for name, documents in (("a", first), ("b", second)):
        hs.analyze(tiny_bert, hs.read(documents), MINE).save(tmp_path / name)
    registry._theirs.clear()  # as in a new process
    left, right = hs.open(tmp_path / "a"), hs.open(tmp_path / "b")
    assert isinstance(left, hs.Result)
    assert isinstance(right, hs.Result)
    assert left["backward_share"].dims == ("layer", "head")
    with pytest.raises(InputError) as error:
        hs.merge(left, right)
    assert str(error.value) == (
        "'backward_share' is not one of headscope's metrics. Its values can be read; for "
        "anything more, define its class and call headscope.register_metric(its class) first."
    )
    hs.register_metric(BackwardShare)
    assert_close(hs.merge(left, right), whole, 1e-7)  # other batches: float32
    assert "backward_share" in left.compare(right)
    assert "backward_share" in hs.analyze(tiny_bert, hs.read(first), "backward_share")


def test_a_process_without_the_class_reports_and_compares_the_rest(
    tiny_bert: Model, tmp_path: Path
) -> None:
    corpus = make_corpus(20)
    for name in ("a", "b"):
        result = hs.analyze(tiny_bert, corpus, ["all", BackwardShare(reach=2)], by="genre")
        result.save(tmp_path / name)
    registry._theirs.clear()  # as in a new process
    left, right = hs.open(tmp_path / "a"), hs.open(tmp_path / "b")
    assert isinstance(left, hs.Result)
    assert isinstance(right, hs.Result)
    left.report(tmp_path / "report.html")
    assert left.significant("distance").n_tested == 8
    with pytest.raises(InputError, match="'backward_share' is not one of headscope's metrics"):
        left.significant("backward_share")
    with pytest.warns(HeadscopeWarning) as caught:
        compared = left.compare(right)
    assert [str(one.message) for one in caught] == [
        "Not compared: backward_share, measured by classes that are not registered here. Define "
        "them and call headscope.register_metric(the class) first."
    ]
    assert "distance" in compared
    assert "backward_share" not in compared


def test_other_code_under_the_same_name_is_not_mixed_in(tiny_bert: Model, tmp_path: Path) -> None:
    hs.analyze(tiny_bert, make_corpus(5), MINE).save(tmp_path / "a")
    hs.analyze(tiny_bert, make_corpus(6, 1), MINE).save(tmp_path / "b")

    class Other(BackwardShare):
        """Something else."""

    hs.register_metric(Other)
    with pytest.raises(InputError, match="measured with other code"):
        hs.merge(hs.open(tmp_path / "a"), hs.open(tmp_path / "b"))  # type: ignore[arg-type]


def test_what_is_no_metric_is_refused(tiny_bert: Model) -> None:
    class Distance(BackwardShare):
        """Not headscope's."""

        name: ClassVar[str] = "distance"

    class Half(hs.RatioMetric):
        """Not finished."""

        name: ClassVar[str] = "half"

    with pytest.raises(InputError, match="is named 'distance', as one of headscope's own"):
        hs.analyze(tiny_bert, make_corpus(3), Distance())
    with pytest.raises(InputError, match="Half lacks paper, units, rows"):
        hs.register_metric(Half)
    with pytest.raises(InputError, match="A metric is a class derived from"):
        hs.register_metric(3)  # type: ignore[type-var]
    with pytest.raises(InputError, match="options of backward_share cannot be stored"):
        hs.analyze(tiny_bert, make_corpus(3), BackwardShare(reach=object()))  # type: ignore[arg-type]
