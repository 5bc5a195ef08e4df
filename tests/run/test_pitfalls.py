"""What measuring must not get wrong: half precision, cut trees, unequal sides, misspelt rules."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError, UnknownName
from headscope.metrics.entropy import RowEntropy
from headscope.results.trace import Trace
from headscope.run.analyze import analyze
from headscope.run.compare import compare
from headscope.run.measure import measure
from headscope.run.merge import group_result, merge
from headscope.text.readers.read import read
from tests.run.corpora import make_documents

if TYPE_CHECKING:
    from headscope.model.model import Model


def test_half_precision_stays_finite(tiny_bert: Model) -> None:
    """Distances summed in float16 would pass 65,504."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tiny_bert.module.config.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    module = BertModel(config).eval()
    tokenizer = copy.deepcopy(tiny_bert.tokenizer)
    tokenizer.model_max_length = 512
    corpus = read([" ".join(["the cat sat on the mat"] * 84)])
    whole = analyze(hs.load(module, tokenizer), corpus, ["distance", "row_entropy"])
    half = analyze(hs.load(module.half(), tokenizer), corpus, ["distance", "row_entropy"])
    for name in ("distance", "row_entropy"):
        np.testing.assert_allclose(half[name], whole[name], rtol=2e-3)


def test_words_whose_head_was_cut_off_do_not_count(tiny_bert: Model) -> None:
    documents = [document for document in make_documents(40) if len(document) > 4]
    # Heads to the right, so that cutting takes them away.
    mirrored = [
        replace(
            document,
            parents=tuple(
                -1 if head < 0 else len(document) - 1 - head for head in reversed(document.parents)
            ),
            relations=tuple(reversed(document.relations)),
        )
        for document in documents
    ]
    with pytest.warns(HeadscopeWarning, match="were cut"):
        cut = hs.probe_dependencies(tiny_bert, read(mirrored), 1, max_tokens=6)
    short = hs.probe_dependencies(tiny_bert, read([d.cut(0, 4) for d in mirrored]), 1)
    assert int(cut["cases"].sel(relation="all")) == int(short["cases"].sel(relation="all"))
    np.testing.assert_allclose(
        cut["accuracy"].sel(relation="all"), short["accuracy"].sel(relation="all")
    )


def test_rules_that_do_not_exist_are_refused(tiny_bert: Model) -> None:
    documents = make_documents(4)
    with pytest.raises(UnknownName, match="null_keys 'frist'"):
        analyze(tiny_bert, read(documents), null_keys="frist")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="tagset 'univeral'"):
        analyze(tiny_bert, read(documents), tagset="univeral")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="weighting 'tokens'"):
        RowEntropy(weighting="tokens")  # type: ignore[arg-type]
    trace = Trace.from_arrays(np.full((1, 1, 2, 2), 0.5), ["a", "b"], is_causal=False)
    with pytest.raises(UnknownName, match="null_keys"):
        measure(trace, null_keys="none")  # type: ignore[arg-type]


def test_a_value_says_how_it_is_averaged(tiny_bert: Model) -> None:
    corpus = read(make_documents(12))
    for weighting, said in (("token", "sums over the corpus"), ("document", "documents' ratios")):
        result = analyze(tiny_bert, corpus, [RowEntropy(weighting=weighting)])  # type: ignore[arg-type]
        assert said in result["row_entropy"].attrs["weighting"]


def test_variability_is_compared_only_for_as_many_documents(tiny_bert: Model) -> None:
    few, many, as_many = (
        analyze(tiny_bert, read(make_documents(n, first=first)), ["variability", "distance"])
        for n, first in ((8, 0), (30, 100), (8, 200))
    )
    found = compare(few, many)
    assert "distance" in found
    assert not [name for name in found if "variability" in str(name)]
    assert "variability_mean" in compare(few, as_many)


def test_metrics_that_label_an_axis_differently_are_compared(tiny_bert: Model) -> None:
    names = ["dep_type_to", "dep_accuracy"]
    left, right = (analyze(tiny_bert, read(make_documents(30, first=n)), names) for n in (0, 50))
    found = compare(left, right)
    assert "all" in found["accuracy"]["relation"].values
    low, high = found["accuracy_interval"].values
    assert (np.isnan(low) | (low <= high)).all()


def test_coreference_needs_mentions(tiny_bert: Model) -> None:
    with pytest.raises(InputError, match=r"coref_accuracy needs mentions.*\(CoNLL-U\)\.$"):
        analyze(tiny_bert, read(make_documents(4)), ["coref_accuracy"])


def test_no_document_is_merged_twice(tiny_bert: Model) -> None:
    a, b = (analyze(tiny_bert, read(make_documents(9, first=n)), ["distance"]) for n in (0, 20))
    both = merge(a, b)
    for left, right in ((both, a), (b, both)):
        with pytest.raises(InputError, match="or share one"):
            merge(left, right)


def test_a_group_has_counts_of_its_own(tiny_bert: Model) -> None:
    documents = make_documents(15)
    result = analyze(tiny_bert, read(documents), by="genre")
    news = [document for document in documents if document.meta["genre"] == "news"]
    assert group_result(result, "news").provenance["counts"] == {"documents": len(news)}
