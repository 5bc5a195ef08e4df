"""A metric of the user's own is named wherever metrics are: nothing else knows it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.app.cli.main import main
from headscope.errors import InputError
from headscope.metrics import Fact, LayerData, query_counts, region_weights, total_mass
from headscope.metrics.core import registry
from headscope.reporting.report import build_report
from headscope.run.measure import measure
from tests.run.corpora import make_corpus, make_documents
from tests.run.same import assert_close

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.text.document import Document


def word_counts(document: Document) -> Mapping[str, float]:
    return Counter(word.lower() for word in document.words)


@dataclass(frozen=True)
class RareShare(hs.RatioMetric):
    """Share of a head's attention that goes to words that are rare in the corpus.

    Σ a[i,j]·1(count(j) ≤ most) / Σ a[i,j].
    """

    name = "rare_share"
    title = "Attention to rare words"
    short_title = "Rare words"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[\text{count}(j) \le m]}{n}"
    paper = "this test, section 1"
    units = "share of attention"
    format = ".1%"
    order = 115
    facts: ClassVar[Mapping[str, Fact]] = {"word_counts": word_counts}

    most: int = 15
    ignored: tuple[str, ...] = ("the", ".")

    def rows(self, reading: LayerData) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Attention to rare words; all of it; queries."""
        counts = reading.batch.facts["word_counts"]
        rare = np.zeros(reading.keys.words.shape)
        for row, document in enumerate(reading.batch.documents):
            words = [word.lower() for word in document.words]
            is_rare = [counts[w] <= self.most and w not in self.ignored for w in words]
            rare[row] = np.array([*is_rare, False])[reading.keys.words[row]]  # -1: no word
        weights = region_weights(reading)
        to_rare = (weights * torch.from_numpy(rare).to(weights)[:, None, None]).sum((-2, -1))
        return to_rare.double(), total_mass(reading), query_counts(reading)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    registry._theirs.clear()


@pytest.fixture
def result(tiny_bert: Model) -> hs.Result:
    return hs.analyze(tiny_bert, make_corpus(30), [RareShare(), "distance"], progress=False)


def test_facts_are_of_the_whole_corpus(tiny_bert: Model, result: hs.Result) -> None:
    """By hand: attention to words that occur at most 15 times in all documents together."""
    documents = make_documents(30)
    counts = Counter(word.lower() for document in documents for word in document.words)
    to_rare = total = 0.0
    for document in documents:
        trace = tiny_bert.trace(document.text, vectors=False)
        weights = trace.attention.values[1, 2][1:-1, 1:-1].astype(np.float64)
        starts = [start for start, _ in document.spans]
        offsets = trace.text.offsets
        assert offsets is not None
        of_token = [np.searchsorted(starts, o[0], side="right") - 1 for o in offsets[1:-1]]
        words = [document.words[n].lower() for n in of_token]
        is_rare = [counts[w] <= 15 and w not in ("the", ".") for w in words]
        to_rare += weights[:, is_rare].sum()
        total += weights.sum()
    assert to_rare > 0
    assert float(result["rare_share"][1, 2]) == pytest.approx(to_rare / total, rel=1e-5)


def test_workers_get_the_facts_too(tiny_bert: Model, result: hs.Result) -> None:
    two = hs.analyze(
        tiny_bert, make_corpus(30), [RareShare(), "distance"], workers=2, progress=False
    )
    assert np.array_equal(two["rare_share"], result["rare_share"])


def test_results_with_facts_are_not_merged(tiny_bert: Model, result: hs.Result) -> None:
    other = hs.analyze(tiny_bert, make_corpus(12, 1), [RareShare(), "distance"], progress=False)
    with pytest.raises(InputError, match="rare_share depends on what was counted in its whole"):
        hs.merge(result, other)


def test_two_meanings_of_one_fact_are_refused(tiny_bert: Model) -> None:
    class Other(RareShare):
        """Counts something else by the same name."""

        name = "other_share"
        facts: ClassVar[Mapping[str, Fact]] = {"word_counts": lambda document: {"a": 1.0}}

    with pytest.raises(InputError, match="Two metrics count different things as 'word_counts'"):
        hs.analyze(tiny_bert, make_corpus(3), [RareShare(), Other()])


def test_attributes_say_everything(result: hs.Result, tmp_path: Path) -> None:
    result.save(tmp_path / "result.nc")
    opened = hs.open(tmp_path / "result.nc")
    assert isinstance(opened, hs.Result)
    attributes = opened["rare_share"].attrs
    assert attributes["title"] == "Attention to rare words"
    assert attributes["short_title"] == "Rare words"
    assert attributes["equation"] == RareShare.equation
    assert (attributes["format"], attributes["order"]) == (".1%", 115)
    assert attributes["paper"] == "this test, section 1"
    assert attributes["long_name"].startswith("Share of a head's attention that goes to words")
    assert "title" not in opened["rare_share_count"].attrs


def test_figure_card_and_report_name_it(result: hs.Result) -> None:
    figure = result.figure("rare_share")
    assert figure.axes[0].get_title() == "Attention to rare words"
    card = str(result.card(0, 1))
    shown = float(result["rare_share"][0, 1])
    assert re.search(rf"Attention to rare words +{100 * shown:.1f}\s% +\w+ of 8", card)
    content = build_report([result])
    (heads,) = (f for s in content["sections"] for f in s["figures"] if f["id"] == "heads")
    named = {v["name"]: v for v in heads["variables"]}
    assert named["rare_share"]["group"] == "Attention to rare words"
    assert named["rare_share"]["share"]
    assert named["rare_share"]["paper"] == "this test, section 1"
    assert list(named).index("rare_share") < list(named).index("distance")  # 115 before 120
    assert "count" in json.dumps(content["equations"]["rare_share"])
    html = result._repr_html_()
    assert "rare_share" in html


def test_the_command_line_names_it(
    tiny_bert: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hs.register_metric(RareShare)
    tiny_bert.module.save_pretrained(tmp_path / "model")
    tiny_bert.require_tokenizer().save_pretrained(tmp_path / "model")
    make_corpus(12).save(tmp_path / "corpus.jsonl")
    main([
        "analyze", str(tmp_path / "corpus.jsonl"), "-o", str(tmp_path / "run"),
        "--model", str(tmp_path / "model"), "--metrics", "rare_share,distance",
        "--workers", "1", "--no-figures",
    ])  # fmt: skip
    out = capsys.readouterr().out
    assert re.search(r"Attention to rare words +\d+\.\d\s%", out)
    assert re.search(r"Mean distance +\d+\.\d\d\stokens", out)
    assert "documents (sentences)" in out


def test_a_saved_result_merges_with_a_fresh_one_whose_options_are_tuples(
    tiny_bert: Model, tmp_path: Path
) -> None:
    """JSON makes tuples lists; the options are the same all the same."""

    @dataclass(frozen=True)
    class Kept(RareShare):
        """The same without facts of the corpus."""

        name = "kept_share"
        facts: ClassVar[Mapping[str, Fact]] = {}

        def rows(self, reading: LayerData) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            """Everything; all of it; queries."""
            assert isinstance(self.ignored, tuple)
            return total_mass(reading), total_mass(reading), query_counts(reading)

    first, second = make_documents(12), make_documents(9, 1, first=12)
    hs.analyze(tiny_bert, first, Kept(), progress=False).save(tmp_path / "a.nc")
    saved = hs.open(tmp_path / "a.nc")
    fresh = hs.analyze(tiny_bert, second, Kept(), progress=False)
    assert isinstance(saved, hs.Result)
    whole = hs.analyze(tiny_bert, [*first, *second], Kept(), progress=False)
    assert_close(hs.merge(saved, fresh), whole)
    assert_close(hs.merge(fresh, saved), hs.analyze(tiny_bert, [*second, *first], Kept()))


def test_a_trace_counts_facts_in_its_document(tiny_bert: Model) -> None:
    document = max(make_documents(20), key=len)
    trace = tiny_bert.trace(document.text, vectors=False)
    run = hs.analyze(tiny_bert, [document], RareShare(), progress=False)
    np.testing.assert_allclose(
        measure(trace, RareShare(), document=document)["rare_share"], run["rare_share"], rtol=1e-6
    )
