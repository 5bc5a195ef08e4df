"""The verbs about heads: map, card and check-importance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headscope as hs
from headscope.app.cli.heads import card, map_heads
from headscope.app.cli.importance import check_importance
from headscope.errors import InputError
from headscope.results.effect_data import result_of_effects
from headscope.run.analyze import analyze
from tests.reporting.test_report import content_of
from tests.run.corpora import make_corpus

if TYPE_CHECKING:
    from headscope.model.model import Model

pytest.importorskip("sklearn", reason="scikit-learn is not installed (headscope[heads])")

METRICS = ["js", "offset_share", "class_share", "sep_from_sep", "sep_from_other"]
METRICS += ["row_entropy", "first_entropy", "uniform_entropy"]


@pytest.fixture(scope="module")
def run(tiny_bert: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    analyze(tiny_bert, make_corpus(6), METRICS, out=folder)
    return folder


def test_map(run: Path, tmp_path: Path) -> None:
    answer = map_heads([run], tmp_path / "heads", starts=1)
    names = {path.name for path in (tmp_path / "heads").iterdir()}
    figures = {f"clark-{n}.png" for n in (1, 2, 4, 6)}
    assert names == {"map.html", "clusters.png", *figures}
    assert json.loads(json.dumps(answer.data)) is not None
    assert sum(len(heads) for heads in answer.data["roles"].values()) == 8
    assert sum(cluster["size"] for cluster in answer.data["clusters"]) == 8
    assert "cluster 0: " in answer.text


def test_map_with_effects_and_by_norm(tiny_llama: Model, tmp_path: Path) -> None:
    corpus = make_corpus(6)
    analyze(tiny_llama, corpus, METRICS, out=tmp_path / "plain")
    analyze(tiny_llama, corpus, METRICS, out=tmp_path / "norm", over="norm")
    result_of_effects(hs.effects(tiny_llama, corpus)).save(tmp_path / "effects.nc")
    runs = [tmp_path / "plain", tmp_path / "norm", tmp_path / "effects.nc"]
    with pytest.raises(InputError, match=r"2 of these 3 runs have js, .* choose with --over"):
        map_heads(runs, tmp_path / "heads", starts=1)
    plain, normed = (
        map_heads(runs, tmp_path / over, starts=1, over=over)  # type: ignore[arg-type]
        for over in ("attention", "norm")
    )
    assert "weighted by norms" not in plain.data["title"]
    assert normed.data["title"].endswith("weighted by norms")
    assert "size: by how much the loss changes without the head" in plain.text
    page = (tmp_path / "norm" / "map.html").read_text("utf-8")
    assert "Effect on the loss" in json.dumps(content_of(page)["cards"])


def test_card(run: Path) -> None:
    answer = card([run], layer=1, head=2)
    assert answer.text.startswith("L1 H2 of ")
    assert answer.data["evidence"]["Attention by position"]
    json.dumps(answer.data)
    with pytest.raises(InputError, match="There is no head 9"):
        card([run], layer=1, head=9)


def test_runs_that_do_not_fit(
    run: Path, tiny_llama: Model, tiny_bert: Model, tmp_path: Path
) -> None:
    analyze(tiny_llama, make_corpus(3), "distance", out=tmp_path / "other")
    with pytest.raises(InputError, match="These runs are of different models"):
        map_heads([run, tmp_path / "other"], tmp_path / "heads")
    with pytest.raises(InputError, match="0 of these 1 runs have js"):
        map_heads([tmp_path / "other"], tmp_path / "heads")
    tiny_bert.trace("the cat").save(tmp_path / "trace.nc")
    with pytest.raises(InputError, match="holds a trace of one input"):
        card([tmp_path / "trace.nc"], layer=0, head=0)
    assert not (tmp_path / "heads").exists()


def test_check_importance(tiny_llama: Model, tmp_path: Path) -> None:
    tiny_llama.module.save_pretrained(tmp_path / "model")
    assert tiny_llama.tokenizer is not None
    tiny_llama.tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "a.txt").write_text("the cat sat. a mat, the cat.\n\nthe dog, a tree.\n")
    answer = check_importance(
        str(tmp_path / "a.txt"),
        tmp_path / "check",
        model=str(tmp_path / "model"),
        sample=2,
        heads=1,
        max_tokens=24,
    )
    assert {path.name for path in (tmp_path / "check").iterdir()} == {"check.nc", "check.png"}
    json.dumps(answer.data)
    rows = answer.data["agreement"]
    assert [(row["class"], row["level"]) for row in rows][:3] == [
        ("first", 0.05),
        ("first", 0.5),
        ("first", 1.0),
    ]
    assert "100%" in answer.text


def test_a_card_with_exemplars_is_json(tiny_bert: Model, tmp_path: Path) -> None:
    analyze(tiny_bert, make_corpus(6), ["exemplars", "distance"], out=tmp_path / "run")
    answer = card([tmp_path / "run"], layer=0, head=1)
    assert json.loads(json.dumps(answer.data))["exemplars"]
