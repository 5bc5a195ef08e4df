"""`headscope.analyze` from end to end, in this process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr

import headscope as hs
from headscope.errors import (
    HeadscopeError,
    HeadscopeWarning,
    InputError,
    UnknownName,
)
from headscope.metrics.dependencies import DepAccuracy, DepOffset
from headscope.run.analyze import analyze
from headscope.run.compare import compare
from headscope.run.measure import measure
from headscope.run.merge import merge
from headscope.run.options import Settings
from headscope.run.plan import survey
from headscope.text.document import Document
from headscope.text.readers.read import read
from tests.metrics.slow import Case, slow_metrics
from tests.metrics.test_slow_reference import compare as compare_with_slow
from tests.run.corpora import make_corpus, make_documents
from tests.run.same import assert_close

if TYPE_CHECKING:
    from headscope.model.model import Model


def case_of(model: Model, document: Document) -> Case:
    """A document's attention by way of a trace, and its labels token by token."""
    trace = model.trace(document.text, vectors=False)
    tokens = trace.text
    words = []
    for (start, end), special in zip(tokens.offsets, tokens.special, strict=True):
        overlaps = [(min(end, b) - max(start, a), -w) for w, (a, b) in enumerate(document.spans)]
        most = max(overlaps)
        words.append(-1 if special or most[0] <= 0 else -most[1])

    def labels(values: tuple[str, ...]) -> list[str | None]:
        return [values[w] if w >= 0 and values[w] != "_" else None for w in words]

    return Case(
        trace.attention.values.astype(np.float64),
        list(tokens.special),
        trace.main.is_causal,
        words,
        labels(document.upos),
        [document.parents[w] if w >= 0 else -1 for w in words],
        labels(document.relations),
    )


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_llama"])
def test_equals_the_slow_reference(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    documents = make_documents(30)
    result = analyze(model, read(documents), batch_tokens=64)
    slow = slow_metrics([case_of(model, document) for document in documents])
    compare_with_slow(result.dataset, slow, 1e-5)


@pytest.mark.packaged
@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [("minilm", 20), ("smollm2", 6)])
def test_equals_the_slow_reference_on_real_text(
    name: str, n: int, request: pytest.FixtureRequest, data_folder: Path
) -> None:
    model = request.getfixturevalue(name)
    file = data_folder / "ud_ewt" / "en_ewt-ud-dev.conllu"
    documents = list(read(file, unit="sentence", sample=n, seed=3))
    result = analyze(model, read(documents))
    slow = slow_metrics([case_of(model, document) for document in documents])
    compare_with_slow(result.dataset, slow, 1e-5)


def test_one_document_equals_its_trace(tiny_bert: Model) -> None:
    document = make_documents(5)[3]
    result = analyze(tiny_bert, read([document]))
    alone = measure(tiny_bert.trace(document.text), document=document)
    for variable in ("distance", "null_share", "pos_to", "dep_alignment", "entropy"):
        np.testing.assert_allclose(result[variable], alone[variable], rtol=1e-5, atol=1e-6)


def test_batches_change_nothing_but_rounding(tiny_llama: Model) -> None:
    corpus = make_corpus(40)
    assert_close(
        analyze(tiny_llama, corpus, batch_tokens=16),
        analyze(tiny_llama, corpus, batch_tokens=4096),
        1e-5,
    )


def test_encoder_decoders_read_the_document_on_both_sides(tiny_t5: Model) -> None:
    result = analyze(tiny_t5, make_corpus(10))
    assert list(result.blocks) == ["encoder", "decoder", "cross"]
    assert float(result.block("decoder")["pos_to"].sum("tag").mean()) > 0
    assert "dep_alignment" not in result.block("cross")
    assert result.exemplars(0, 0, block="cross")[0].query_tokens[0] == "[PAD]"
    (layer, head, value), *_ = result.top("distance", 2, block="decoder")
    assert value == float(result.block("decoder")["distance"].sel(layer=layer, head=head))
    assert value == float(result.block("decoder")["distance"].max())


def test_edits_take_effect(tiny_bert: Model) -> None:
    corpus = make_corpus(10)
    with tiny_bert.edit(hs.ablate(1, 2)):
        result = analyze(tiny_bert, corpus, metrics="distance")
    assert np.isnan(result["distance"].sel(layer=1, head=2))
    assert "blate" in result.provenance["model"]["edits"][0]


def test_documents_that_break_the_model_are_reported(
    tiny_bert: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = make_documents(20)
    original = type(tiny_bert).read

    def fragile(self: Any, inputs: Any, reader: Any, **options: Any) -> Any:
        output = original(self, inputs, reader, **options)
        if inputs["input_ids"].shape[1] == 2 + max(len(d) for d in documents):
            raise RuntimeError("too long for me")
        return output

    longest = [d.id for d in documents if len(d) == max(map(len, documents))]
    rest = [d for d in documents if d.id not in longest]
    expected = analyze(tiny_bert, read(rest), batch_tokens=10_000)
    monkeypatch.setattr(type(tiny_bert), "read", fragile)
    with pytest.warns(HeadscopeWarning, match="could not be measured"):
        result = analyze(tiny_bert, read(documents), batch_tokens=10_000)
    assert [f["id"] for f in result.provenance["failed"]] == longest
    assert "RuntimeError: too long for me" in result.provenance["failed"][0]["reason"]
    assert result.n_documents == len(rest)
    np.testing.assert_allclose(result["distance"], expected["distance"], rtol=1e-5)


def test_attention_that_is_not_a_number_is_left_out(tiny_bert: Model) -> None:
    import torch

    documents = make_documents(6)
    table = tiny_bert.module.get_input_embeddings().weight
    token = tiny_bert.tokenizer("tree", add_special_tokens=False)["input_ids"][0]
    kept = table[token].detach().clone()
    try:
        with torch.no_grad():
            table[token] = float("nan")
        with pytest.warns(HeadscopeWarning, match="not a number"):
            result = analyze(tiny_bert, read(documents))
    finally:
        with torch.no_grad():
            table[token] = kept
    failed = {f["id"] for f in result.provenance["failed"]}
    assert failed == {d.id for d in documents if "tree" in d.words}


def test_long_documents_are_cut_and_counted(tiny_bert: Model) -> None:
    with pytest.warns(HeadscopeWarning, match=r"\d+ documents were cut to 6 tokens") as caught:
        result = analyze(tiny_bert, make_corpus(20), max_tokens=6)
    assert caught[0].filename == __file__
    assert result.provenance["counts"]["truncated"] > 0
    assert float(result["tokens_per_document"]) <= 4


def test_text_without_annotations(tiny_bert: Model) -> None:
    result = analyze(tiny_bert, ["The cat sat. The dog ran.", "A house"])
    assert "pos_to" not in result
    assert "distance" in result
    assert "pos_to" in result.provenance["not_measured"]
    assert result.n_documents == 2  # as they were given
    with pytest.raises(InputError, match="pos_to needs tags"):
        analyze(tiny_bert, ["the cat"], metrics=["pos_to"])


def test_trees_without_labels(tiny_bert: Model) -> None:
    """What needs heads alone is the same with and without relations."""
    documents = make_documents(20)
    bare = [replace(document, relations=None) for document in documents]
    wanted = ["all", "dep_accuracy", "dep_offset"]
    labeled, result = (analyze(tiny_bert, read(some), wanted) for some in (documents, bare))
    assert "dep_type_to" in result.provenance["not_measured"]
    for name in ("dep_alignment", "dep_baseline", "dep_by_distance", "dep_span"):
        np.testing.assert_array_equal(result[name], labeled[name])
    assert list(result["relation"].values) == ["all"]
    for name in ("accuracy", "baseline", "cases"):
        np.testing.assert_array_equal(result[name], labeled[name].sel(relation=["all"]))
    assert [row.label for row in result.table().rows] == ["all"]
    for metric in ("dep_type_to", DepAccuracy(punctuation=False), DepOffset(possessive=True)):
        with pytest.raises(InputError, match="needs relations, which no document has"):
            analyze(tiny_bert, read(bare), [metric])
    trace = tiny_bert.trace(bare[0].text)
    one = measure(trace, ["dep_alignment"], document=bare[0])
    assert_close(one, measure(trace, ["dep_alignment"], document=documents[0]), 0)


def test_documents_without_labels_are_left_out_of_relations(tiny_bert: Model) -> None:
    documents = make_documents(12)
    mixed = [replace(d, relations=None) if n % 2 else d for n, d in enumerate(documents)]
    result = analyze(tiny_bert, read(mixed), ["dep_type_to", "dep_alignment"])
    labeled = analyze(tiny_bert, read(documents[::2]), "dep_type_to")
    np.testing.assert_allclose(result["dep_type_to"], labeled["dep_type_to"], rtol=1e-12)
    whole = analyze(tiny_bert, read(documents), "dep_alignment")
    np.testing.assert_array_equal(result["dep_alignment"], whole["dep_alignment"])


def test_bad_arguments(tiny_bert: Model, tmp_path: Path) -> None:
    corpus = make_corpus(3)
    with pytest.raises(UnknownName, match="Unknown engine 'rai'"):
        analyze(tiny_bert, corpus, engine="rai")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="workers should be"):
        analyze(tiny_bert, corpus, workers=0)
    with pytest.raises(InputError, match="has no documents"):
        analyze(tiny_bert, [])
    with pytest.raises(InputError, match="no document of list has 'style' in its"):
        analyze(tiny_bert, corpus, by="style")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="is a file"):
        analyze(tiny_bert, corpus, out=file)
    with pytest.raises(HeadscopeError, match="No document could be measured"):
        analyze(tiny_bert, read([Document("e", "", (), ())]))


def test_merged_runs_equal_one_run_over_both(tiny_bert: Model) -> None:
    documents = make_documents(50)
    left, right = (analyze(tiny_bert, read(part)) for part in (documents[:20], documents[20:]))
    both = analyze(tiny_bert, read(documents))
    merged = merge(left, right)
    assert_close(merged, both, 1e-6)
    numbers = set(np.unique(merged["exemplar_document"].values).astype(int)) - {-1}
    assert set(merged.documents) == numbers
    assert merged.provenance["counts"] == both.provenance["counts"]
    assert merged.n_documents == 50
    with pytest.raises(InputError, match="same corpus"):
        merge(left, left)
    with pytest.warns(HeadscopeWarning, match="were cut"):
        other = analyze(tiny_bert, read(documents[20:]), max_tokens=8)
    with pytest.raises(InputError, match="settings max_tokens"):
        merge(left, other)


def test_a_merged_run_is_called_after_both_files(tiny_bert: Model, tmp_path: Path) -> None:
    for name, text in (("a", "One cat."), ("b", "Two dogs.")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(text)
    left, right = (
        analyze(tiny_bert, str(tmp_path / name / f"{name}.txt"), "distance") for name in "ab"
    )
    assert left.corpus_name == "a.txt"
    assert merge(left, right).corpus_name == "a.txt + b.txt"
    drawn = [
        analyze(tiny_bert, read(["A cat.", "A dog.", f"{word}."], sample=2), "distance")
        for word in ("One", "Two")
    ]
    merged = merge(*drawn).provenance
    assert "sample" not in merged["corpus"]  # each part is, and the whole is not
    assert [part["corpus"]["sample"] for part in merged["merged"]] == [2, 2]
    named = analyze(tiny_bert, read(["A cat.", "A dog."], name="Cats and dogs"), "distance")
    assert named.title.endswith(" · Cats and dogs")


def test_merging_aligns_labels(tiny_bert: Model) -> None:
    documents = make_documents(30)
    few = [d for d in documents if "ADJ" not in d.upos]
    rest = [d for d in documents if d not in few]
    merged = merge(analyze(tiny_bert, read(few)), analyze(tiny_bert, read(rest)))
    both = analyze(tiny_bert, read(few + rest))
    assert list(merged["pos_to"]["tag"].values) == list(both["pos_to"]["tag"].values)
    assert_close(merged, both, 1e-6)


def test_groups(tiny_bert: Model, tmp_path: Path) -> None:
    documents = make_documents(40)
    result = analyze(tiny_bert, read(documents), by="genre", out=tmp_path)
    news = analyze(tiny_bert, read([d for d in documents if d.meta["genre"] == "news"]))
    assert list(result.groups) == ["fiction", "news"]
    for name in ("distance", "pos_to", "variability", "entropy", "dep_baseline"):
        np.testing.assert_allclose(result.group("news")[name], news[name], rtol=1e-5, atol=1e-6)
    opened = analyze(tiny_bert, read(documents), by="genre", out=tmp_path)
    xr.testing.assert_allclose(opened.group("news").dataset, result.group("news").dataset)
    found = result.group("news").compare(result.group("fiction"))
    expected = result.group("news")["distance"] - result.group("fiction")["distance"]
    np.testing.assert_allclose(found["distance"], expected)
    low, high = found["distance_interval"].values
    assert (low <= high).all()
    assert "news" in found.attrs["left"]


def test_comparing_models_of_different_shape(tiny_bert: Model, tiny_t5: Model) -> None:
    corpus = make_corpus(20)
    found = compare(analyze(tiny_bert, corpus), analyze(tiny_t5, corpus))
    assert "distance_mean" in found
    assert found["distance_mean_interval"].dims == ("bound",)


def test_intervals_cover_and_shrink(tiny_llama: Model) -> None:
    small, large = (analyze(tiny_llama, make_corpus(n), metrics="distance") for n in (40, 300))
    for result in (small, large):
        low, high = result["distance_interval"].values
        assert ((low <= result["distance"]) & (result["distance"] <= high)).all()
    width = [
        float((r["distance_interval"][1] - r["distance_interval"][0]).mean())
        for r in (small, large)
    ]
    assert width[1] < width[0]


def test_provenance_says_where_it_came_from(tiny_bert: Model) -> None:
    corpus = make_corpus(10)
    provenance = analyze(tiny_bert, corpus).provenance
    assert provenance["corpus"]["hash"] == corpus.hash
    assert len(provenance["model"]["weights_sha256"]) == 64
    assert provenance["counts"]["documents"] == 10
    assert json.dumps(dict(provenance))


def test_survey_finds_labels(tiny_bert: Model) -> None:
    found = survey(make_corpus(30), Settings(by="genre"))
    assert found.groups == ("fiction", "news")
    assert "NOUN" in found.tags
    assert "root" in found.relations
