from __future__ import annotations

import builtins
import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import FileFormatError, MissingExtra, UnknownName
from headscope.text import annotate as module
from headscope.text.annotate import annotate
from headscope.text.document import ROOT
from headscope.text.readers.read import read

TEXT = "Apple isn't buying  U.K. startups.\n\nDr. Smith said so in Berlin."


def has_pipeline() -> bool:
    try:
        spacy = importlib.import_module("spacy")
    except ImportError:
        return False
    return any(name.startswith("en_core_web_sm") for name in spacy.util.get_installed_models())


needs_pipeline = pytest.mark.skipif(
    not has_pipeline(), reason="spaCy or its pipeline en_core_web_sm is not installed"
)


@needs_pipeline
def test_raw_text_gets_words_tags_heads_relations_and_entities() -> None:
    (document,) = annotate([TEXT])
    assert document.words[:7] == ("Apple", "is", "n't", "buying", "U.K.", "startups", ".")
    assert [document.text[a:b] for a, b in document.spans] == list(document.words)
    assert document.sentences == ((0, 7), (7, 14))
    assert document.parents is not None
    assert document.parents[:7] == (3, 3, 3, ROOT, 5, 3, 3)
    assert document.relations is not None
    assert document.relations[:4] == ("nsubj", "aux", "neg", "ROOT")
    assert document.upos is not None
    assert document.upos[:4] == ("PROPN", "AUX", "PART", "VERB")
    assert document.xpos is not None
    assert document.xpos[3] == "VBG"
    assert document.features is not None
    assert "Number=Plur" in document.features[5]
    kinds = {m.kind: [document.words[w] for w in m.words()] for m in document.mentions}
    assert kinds["ORG"] == ["Apple"]
    assert kinds["PERSON"][-1] == "Smith"
    assert len(document.clusters()) == len(document.mentions)
    assert document.meta["annotator"] == "en_core_web_sm"


@needs_pipeline
def test_units_samples_and_pickles() -> None:
    corpus = annotate([TEXT, "One more."])
    assert [d.text for d in corpus.by("sentence")] == [
        "Apple isn't buying  U.K. startups.",
        "Dr. Smith said so in Berlin.",
        "One more.",
    ]
    copy = pickle.loads(pickle.dumps(corpus))
    assert copy.hash == corpus.hash
    drawn = annotate(read([TEXT, "One more.", "And more."], sample=2, seed=4))
    assert drawn.summary().documents == 2
    assert "annotated by en_core_web_sm" in drawn.name
    sentences = annotate(read([TEXT], unit="sentence"))
    assert sentences.summary().documents == 2  # spaCy's sentences, not the guessed ones


@needs_pipeline
def test_empty_and_blank_documents_stay() -> None:
    assert [len(d) for d in annotate(["a b", "", "  ", "\n\n"])] == [2, 0, 0, 0]


@needs_pipeline
def test_batches_make_no_difference() -> None:
    texts = [f"The {i} old dogs barked, and Ann laughed." for i in range(150)]
    whole = list(annotate(texts))
    for number in (0, 63, 64, 149):
        (alone,) = annotate([texts[number]])
        assert (alone.parents, alone.xpos) == (whole[number].parents, whole[number].xpos)


@needs_pipeline
def test_a_text_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._load("en_core_web_sm"), "max_length", 30)
    with pytest.raises(FileFormatError, match="'list-0' has 64 characters; en_core_web_sm takes"):
        list(annotate([TEXT]))
    corpus = annotate(read([TEXT, "Short."], on_error="skip"))
    assert corpus.summary().skipped == {"documents": 1}


@needs_pipeline
def test_saved_annotations(tmp_path: Path) -> None:
    corpus = annotate([TEXT])
    corpus.save(tmp_path / "a.jsonl")
    assert list(read(tmp_path / "a.jsonl", unit="document")) == list(corpus)


@needs_pipeline
def test_unknown_pipelines_name_the_installed() -> None:
    with pytest.raises(UnknownName, match=r"'de_core_news_sm'.* Known: .*en_core_web_sm.* Install"):
        annotate(["x"], "de_core_news_sm")


def test_without_spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "spacy":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    module._load.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r'Annotating text needs spaCy.*"headscope\[spacy\]"'):
        annotate(["x"])


def test_reading_loads_neither_spacy_nor_torch() -> None:
    code = (
        "import sys, headscope.text.annotate; from headscope.text.readers.read import demo_corpus;"
        "import headscope.text.segments; demo_corpus().summary();"
        "print([m for m in ('spacy', 'torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
