"""Texts of the benchmarks: where the treebanks are, and one long document made of many."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import headscope as hs

GUM = "gum/en_gum-train.conllu"


def data(name: str) -> Path:
    """A file below the folder that HEADSCOPE_DATA names."""
    folder = os.environ.get("HEADSCOPE_DATA")
    if not folder:
        sys.exit("HEADSCOPE_DATA is not set: it names the folder with ud_ewt and gum")
    return Path(folder) / name


def joined_documents(documents: hs.Corpus, characters: int) -> hs.Document:
    """The longest documents, one after another, with their trees, until they have enough text."""
    spans, parents, words, upos, relations, sentences = [], [], [], [], [], []
    text = ""
    for document in sorted(documents, key=lambda document: -len(document.text)):
        start, n = len(text) + bool(text), len(words)
        text += " " * bool(text) + document.text
        spans += [(a + start, b + start) for a, b in document.spans]
        sentences += [(a + n, b + n) for a, b in document.sentences]
        parents += [p + n if p >= 0 else p for p in document.parents or ()]
        words += document.words
        upos += document.upos or ()
        relations += document.relations or ()
        if len(text) >= characters:
            break
    labels = {"upos": upos, "parents": parents, "relations": relations, "sentences": sentences}
    tuples = {name: tuple(values) for name, values in labels.items()}
    return hs.Document(id="joined", text=text, words=tuple(words), spans=tuple(spans), **tuples)


def cut_document(document: hs.Document, tokenizer: Any, length: int) -> hs.Document:
    """The sentences of a document up to so many tokens, and the one around the last."""
    ends = tokenizer(document.text, return_offsets_mapping=True)["offset_mapping"][:length]
    assert len(ends) == length, f"{document.id} has {len(ends)} tokens"
    end = ends[-1][1]
    sentences = [s for s in document.sentences if document.spans[s[0]][0] < end]
    n = sentences[-1][1]
    labels = {
        name: getattr(document, name)[:n]
        for name in ("words", "spans", "upos", "parents", "relations")
        if getattr(document, name)
    }
    text = document.text[: document.spans[n - 1][1]]
    return hs.Document(id=document.id, text=text, sentences=tuple(sentences), **labels)
