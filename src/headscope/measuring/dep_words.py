"""The words whose parents are looked for, as flat arrays: what a batch's trees say.

They depend on the trees alone, not on attention: they are made once per batch, and the accuracy of
the heads of all layers and the baseline share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from headscope.batch import Batch
from headscope.deferred import torch
from headscope.measuring.reading import Reading
from headscope.measuring.word_attention import has_tokens
from headscope.text.tree import ROOT

if TYPE_CHECKING:
    from torch import Tensor

ALL = "all"
PUNCTUATION = "punct"
Possessive = Literal["auto", True, False]
"""Does the possessive particle predict in place of the word before it? `auto`: in data with
Stanford's `poss`."""
POSSESSIVE = frozenset(("poss", "nmod:poss"))
PARTICLES = frozenset(("'s", "’s", "s'", "s’", "'", "’"))


@dataclass(frozen=True, slots=True, eq=False)
class DepCases:
    """One entry for each word that counts."""

    document: np.ndarray
    """Its row in the batch."""
    query: np.ndarray
    """The word that predicts: itself, or the possessive particle after it."""
    parent: np.ndarray
    """Its parent; negative for the root."""
    relation: np.ndarray
    """Number in `Axes.relations`; `len(Axes.relations)` for a word without a relation."""
    part: np.ndarray
    has_target: np.ndarray
    """Is the parent a word that the model reads?"""

    def visible(self, *, is_causal: bool) -> np.ndarray:
        """`direction case`: can the model attend from the word to its parent, and from its
        parent to the word? Causal models see only what came before.
        """
        if not is_causal:
            return np.stack((self.has_target, self.has_target))
        return np.stack(
            (
                self.has_target & (self.parent < self.query),
                self.has_target & (self.parent > self.query),
            )
        )


def dep_cases(reading: Reading, *, punctuation: bool, possessive: Possessive) -> DepCases:
    """The words of a batch that count.

    These are the words of parsed documents that have a token, the root among them. Left out are
    words whose parent is unknown because the tree was cut; words whose parent stands in the end of
    a document that the model does not read; and punctuation, unless it is asked for.
    """
    key = ("dep_cases", reading.block, punctuation, possessive)
    return reading.batch.once(key, lambda: _cases(reading, punctuation, possessive))


def _cases(reading: Reading, punctuation: bool, possessive: Possessive) -> DepCases:
    batch, trees = reading.batch, reading.queries
    has = has_tokens(reading)
    parents = np.full(has.shape, ROOT - 1, dtype=np.int64)
    relations = np.full(has.shape, -1, dtype=np.int64)
    documents, tokens = np.nonzero((trees.words >= 0) & trees.is_parsed[:, None])
    words = trees.words[documents, tokens]
    parents[documents, words] = trees.parents[documents, tokens]
    relations[documents, words] = trees.relations[documents, tokens]
    counted = has & trees.is_parsed[:, None] & (parents >= ROOT)
    if batch.is_cut is not None:
        last = has.shape[1] - 1 - has[:, ::-1].argmax(axis=1)
        counted &= ~(batch.is_cut[:, None] & (parents > last[:, None]))
    names = batch.axes.relations
    if not punctuation and PUNCTUATION in names:
        counted &= relations != names.index(PUNCTUATION)
    document, word = np.nonzero(counted)
    parent = parents[document, word]
    inside = np.clip(parent, 0, has.shape[1] - 1)
    query = word.copy()
    is_possessive = "poss" in names if possessive == "auto" else possessive
    if is_possessive:
        after = _particles(batch, has)[document, word]
        owned = [number for number, name in enumerate(names) if name in POSSESSIVE]
        query[after & np.isin(relations[document, word], owned)] += 1
    relation = relations[document, word]
    return DepCases(
        document=document,
        query=query,
        parent=parent,
        relation=np.where(relation < 0, len(names), relation),
        part=np.asarray(batch.parts, dtype=np.int64)[document],
        has_target=(parent >= 0) & (parent < has.shape[1]) & has[document, inside],
    )


def _particles(batch: Batch, has: np.ndarray) -> np.ndarray:
    """`document word`: is the next word a possessive particle, with a token?"""
    after = np.zeros(has.shape, dtype=bool)
    for row, document in enumerate(batch.documents):
        for word, form in enumerate(document.words[1 : has.shape[1]]):
            after[row, word] = form.lower() in PARTICLES and has[row, word + 1]
    return after


def add_cases(by_relation: np.ndarray, of_all: np.ndarray, cases: DepCases, rows: Tensor) -> None:
    """Add the rows (`case …`) of the cases to `part relation …` and `part …`, in place."""
    rows = rows.double()
    torch.from_numpy(of_all).index_add_(0, torch.from_numpy(cases.part), rows)
    n_relations = by_relation.shape[1]
    has = cases.relation < n_relations
    bins = torch.from_numpy((cases.part * n_relations + cases.relation)[has])
    flat = torch.from_numpy(by_relation).view(-1, *by_relation.shape[2:])
    flat.index_add_(0, bins, rows if has.all() else rows[torch.from_numpy(has)])
