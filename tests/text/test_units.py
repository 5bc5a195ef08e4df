"""One default unit through every door: files by sentence, what is given as it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Mention
from headscope.text.readers.read import as_corpus, demo_corpus

TEXT = "A cat sat. A dog ran."


def parsed() -> Document:
    """Two sentences with trees."""
    return Document(
        "two",
        TEXT,
        ("A", "cat", "sat", ".", "A", "dog", "ran", "."),
        ((0, 1), (2, 5), (6, 9), (9, 10), (11, 12), (13, 16), (17, 20), (20, 21)),
        sentences=((0, 4), (4, 8)),
        parents=(1, 2, -1, 2, 5, 6, -1, 6),
        relations=("det", "nsubj", "root", "punct") * 2,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    hs.read([parsed()]).save(path)
    return path


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in corpus]


def test_files_are_read_by_sentence(file: Path) -> None:
    for source in (file, str(file), file.parent, [file]):
        corpus = hs.read(source)
        assert corpus.unit == corpus.unit_name == "sentence"
        assert texts(corpus) == ["A cat sat.", "A dog ran."]
    assert texts(hs.read(file, unit="document")) == [TEXT]
    assert demo_corpus().unit == "sentence"


def test_what_is_given_is_never_cut() -> None:
    def again() -> Iterator[Document]:
        yield parsed()

    for source in (parsed(), [parsed()], (parsed(),), again, [TEXT], [{"text": TEXT}]):
        corpus = hs.read(source)
        assert (corpus.unit, corpus.unit_name) == (None, "document as given")
        assert texts(corpus) == [TEXT]
        assert texts(as_corpus(source)) == texts(as_corpus(source, "document")) == [TEXT]
        assert texts(hs.read(source, unit="sentence")) == ["A cat sat.", "A dog ran."]
        assert hs.read(source, unit="sentence").unit_name == "sentence"


def test_a_verb_takes_a_corpus_as_it_is(file: Path) -> None:
    whole = hs.read(file, unit="document")
    assert as_corpus(whole) is whole
    assert texts(as_corpus(file)) == ["A cat sat.", "A dog ran."]
    assert texts(as_corpus(file, "document")) == [TEXT]


def test_a_result_says_what_its_documents_were(tiny_bert: hs.Model, file: Path) -> None:
    units = {
        "document as given": (parsed(), [parsed()], [TEXT]),
        "sentence": (file, hs.read(file), hs.read([parsed()], unit="sentence")),
        "document": (hs.read(file, unit="document"),),
        "segment": (hs.cut_segments(tiny_bert, file, 12),),
    }
    documents = {"document as given": 1, "sentence": 2, "document": 1, "segment": 3}
    for unit, sources in units.items():
        for source in sources:
            result = hs.analyze(tiny_bert, source, "distance")
            assert result.provenance["corpus"]["unit"] == unit
            assert result.provenance["settings"]["unit"] == unit
            if unit != "segment":
                assert result.provenance["counts"]["documents"] == documents[unit]


def test_verbs_do_not_cut_what_is_given(tiny_bert: hs.Model, tiny_llama: hs.Model) -> None:
    result = hs.importance(tiny_llama, [parsed()])
    assert result.provenance["counts"]["documents"] == 1
    result = hs.probe_dependencies(tiny_bert, [parsed()], 1)
    assert result.provenance["counts"]["documents"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few documents and heads
        checked = hs.check_importance(tiny_llama, [parsed(), parsed()], heads=1, levels=(1.0,))
    assert checked.attrs["documents"] == 2


def test_a_trained_probe_asks_for_sentences(tiny_bert: hs.Model) -> None:
    for source in ([parsed()], demo_corpus("document")):
        with pytest.raises(InputError, match=r"has \d+ sentences, .* corpus\.by\(\"sentence\"\)"):
            hs.train_probe(tiny_bert, source, source, "attention")


def test_coreference_says_what_sentences_hide(tiny_bert: hs.Model, tmp_path: Path) -> None:
    mentions = (Mention("c", ((0, 2),)), Mention("c", ((4, 6),)))
    hs.read([replace(parsed(), mentions=mentions)]).save(tmp_path / "a.jsonl")
    result = hs.probe_coreference(tiny_bert, tmp_path / "a.jsonl")
    assert int(result["coref_cases"].sel(mention_kind="all")) == 1
    with (
        pytest.warns(HeadscopeWarning, match=r"read by sentence.*corpus\.by\(\"document\"\)"),
        pytest.raises(InputError, match=r"No document .* has a mention with an antecedent"),
    ):
        hs.probe_coreference(tiny_bert, hs.read(tmp_path / "a.jsonl"))


def test_segments_are_cut_from_whole_documents(tiny_bert: hs.Model, file: Path) -> None:
    (whole,) = hs.cut_segments(tiny_bert, file, 64)
    assert whole.text == TEXT
    assert list(hs.cut_segments(tiny_bert, [parsed()], 64)) == [whole]
