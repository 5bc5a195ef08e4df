"""Documents that both models read, as populations to draw samples from."""

from __future__ import annotations

import ast
import csv
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

import headscope as hs
from headscope.results.result import Result
from headscope.text.document import Document
from studies.gum.corpora import draw_per_document, read_gum

__all__ = ["HELD_OUT", "Population", "Relations", "read_populations"]

METRICS = ("null_share", "distance", "entropy", "dep_alignment", "pos_to")
RELATIONS = ("dep_accuracy", "dep_offset")
TITLES = {"minilm": "MiniLM", "smollm2": "SmolLM2"}
SENTENCES = {"minilm": 12, "smollm2": 3}
"""Of each document, at most; a document of EWT has 1 to 60."""

HELD_OUT = ("PYDOC",)
"""Corpora on which no procedure was chosen: they were first read when all were settled. GAP2 was
held out in the second edition; the third knew its rates."""
SHORTEST, LONGEST = 200, 6000
"""Characters of the docstrings of a module."""
PAGES = 400
"""Documents of GAP: the first passage of each of so many pages; those of GAP2 are of the next."""


@dataclass(frozen=True)
class Relations:
    """`document …`: what heads and offsets get right, by relation."""

    names: tuple[str, ...]
    right: np.ndarray
    """`document classifier relation`."""
    offsets: np.ndarray
    """`document offset relation`."""
    cases: np.ndarray
    """`document relation`."""


@dataclass(frozen=True)
class Population:
    """The sums of each document, for each head."""

    name: str
    numerators: dict[str, np.ndarray]
    """By variable, `document head`."""
    denominators: dict[str, np.ndarray]
    layers: int
    genres: np.ndarray
    """`document`: the number of its genre; 0 where there are none."""
    relations: Relations

    def __len__(self) -> int:
        return len(self.genres)


def read_populations(data: Path, out: Path, models: Sequence[str]) -> dict[str, Population]:
    """Each model over EWT's documents, whose sizes differ a lot, over GUM's, over GAP's two, and
    over docstrings.
    """
    corpora = {
        "gum": read_gum(data / "gum"),
        "ewt": list(hs.read(data / "ud_ewt" / "en_ewt-ud-dev.conllu", unit="document")),
        "gap": read_gap(data / "gap"),
        "gap2": read_gap(data / "gap", first=PAGES),
        "pydoc": read_docstrings(),
    }
    populations = {}
    for model in models:
        n = SENTENCES[model]
        for corpus, documents in corpora.items():
            pieces = (p for d in documents for p in d.split("sentence"))
            chosen = [_named(piece) for piece in draw_per_document(pieces, n)]
            name = f"{TITLES[model]}, {corpus.upper()}"
            loaded = hs.load(model)
            read = hs.read(chosen, name=f"{model}, {corpus.upper()}")
            folder = out / f"{model}-{corpus}"
            result = hs.analyze(loaded, read, [*METRICS, *RELATIONS], by="source", out=folder)
            populations[name] = _population(name, result, documents)
    return populations


def read_gap(folder: Path, first: int = 0) -> list[Document]:
    """Passages of Wikipedia, one of each page, with trees by spaCy.

    Args:
        folder: with `gap-development.tsv`.
        first: the number of the first page, in the order of the file.
    """
    passages: dict[str, str] = {}
    with (folder / "gap-development.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            passages.setdefault(row["URL"], row["Text"])
    return list(hs.annotate(list(passages.values())[first : first + PAGES]))


def read_docstrings() -> list[Document]:
    """Docstrings of the modules of Python's library, a document for each module, by spaCy.

    Prose with code, names and addresses in it, of very uneven length. Sources are parsed, not
    imported.
    """
    texts = {}
    for name in sorted(sys.stdlib_module_names):
        spec = None if name.startswith("_") else importlib.util.find_spec(name)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        nodes = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, nodes))
        texts[name] = " ".join(" ".join(filter(None, found)).split())[:LONGEST]
    kept = [text for text in texts.values() if len(text) >= SHORTEST]
    return list(hs.annotate(kept))


def _named(piece: Document) -> Document:
    return replace(piece, meta={**piece.meta, "source": piece.part_of or piece.id})


def _population(name: str, result: Result, documents: list[Document]) -> Population:
    states = result.states[next(iter(result.blocks))]
    numerators, denominators = {}, {}
    for metric in METRICS:
        state = states[metric]
        a = state["numerator"].transpose("bucket", "layer", "head", ...)
        if a.ndim > 3:
            a = a.isel({a.dims[3]: -1 if metric == "dep_alignment" else 7})  # either; NOUN
        numerators[metric] = a.values.reshape(len(a), -1)
        b = state["denominator"].transpose("bucket", "layer", "head").values
        denominators[metric] = b.reshape(len(a), -1)
    sources = [result.provenance["axes"]["groups"][n] for n in _groups(result)]
    genre = {d.part_of or d.id: d.meta.get("genre", "") for d in documents}
    _, numbers = np.unique([genre.get(s, "") for s in sources], return_inverse=True)
    layers = result.dataset.sizes["layer"]
    return Population(name, numerators, denominators, layers, numbers, _relations(result))


def _groups(result: Result) -> list[int]:
    axes = result.provenance["axes"]
    return [number // axes["buckets_per_group"] for number in axes["buckets"]]


def _relations(result: Result) -> Relations:
    states = result.states[next(iter(result.blocks))]
    heads, offsets = states["dep_accuracy"], states["dep_offset"]
    right = heads["right"].stack(at=("direction", "layer", "head"))
    cases = heads["cases"].isel(layer=0).transpose("bucket", "relation").values
    names = tuple(result.provenance["axes"]["relations"])
    return Relations(
        names,
        _values(right, "bucket", "at", "relation"),
        _values(offsets["right"], "bucket", "offset_tried", "relation"),
        cases,
    )


def _values(array: xr.DataArray, *dims: str) -> np.ndarray:
    values: np.ndarray = array.transpose(*dims).values
    return values
