"""Heads as classifiers of dependencies: does a word attend most to its parent?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np

from headscope.batch import Axes
from headscope.deferred import torch
from headscope.errors import UnknownName
from headscope.measuring.contract import SELF_BLOCKS, Need, State, SumMetric, Variable
from headscope.measuring.dep_words import ALL, DepCases, Possessive, add_cases, dep_cases
from headscope.measuring.reading import Reading
from headscope.measuring.word_attention import best_words
from headscope.statistics.pulls import Pulls, pool, ratio_pulls

DIRECTIONS = ("dependent", "head")
OFFSETS = (-3, -2, -1, 1, 2, 3)
_COUNTED = {
    "cases": ("part", "relation"),
    "cases_all": ("part",),
    "visible": ("part", "direction", "relation"),
    "visible_all": ("part", "direction"),
}
"""Axes of what both metrics count: words, and those whose parent can be attended to."""


@dataclass(frozen=True)
class _DepMetric(SumMetric):
    """What `DepAccuracy` and `DepOffset` share: which words count, and how many there are."""

    paper = "Clark et al. 2019, section 4.2, Table 1"
    units = "share of words"
    format = ".1%"
    counts = "words"
    blocks = SELF_BLOCKS
    is_default = False
    arrays: ClassVar[Mapping[str, tuple[str, ...]]]
    """The arrays of a state, and their axes."""

    punctuation: bool = True
    possessive: Possessive = "auto"
    min_cases: int = 1

    def __post_init__(self) -> None:
        if self.possessive not in get_args(Possessive):
            raise UnknownName.of("possessive", self.possessive, map(str, get_args(Possessive)))

    @property
    def needs(self) -> frozenset[Need]:
        """Trees; also relations, if they decide which words count."""
        if not self.punctuation or self.possessive not in ("auto", False):
            return frozenset(("parents", "relations"))
        return frozenset(("parents",))

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str] | Sequence[int]]:
        """Directions; relations as in the data, and all words together."""
        return {"direction": DIRECTIONS, "relation": (*axes.relations, ALL)}

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Parts first."""
        return self.arrays[array]

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Zeros."""
        return _zeros(self.arrays, axes, n_heads)

    def _cases(self, reading: Reading) -> DepCases:
        return dep_cases(reading, punctuation=self.punctuation, possessive=self.possessive)

    def _counted(self, reading: Reading) -> State:
        """Cases of a batch by part, and those whose target can be attended to."""
        batch, cases = reading.batch, self._cases(reading)

        def make() -> State:
            state = _zeros(_COUNTED, batch.axes)
            add_cases(state["cases"], state["cases_all"], cases, torch.ones(len(cases.parent)))
            visible = torch.from_numpy(cases.visible(is_causal=reading.is_causal).T)
            by_relation = np.zeros(state["visible"].swapaxes(1, 2).shape)
            add_cases(by_relation, state["visible_all"], cases, visible)
            return {**state, "visible": by_relation.swapaxes(1, 2).copy()}

        key = ("dep counts", reading.block, self.punctuation, self.possessive)
        return batch.once(key, make)

    def _reported(self, cases: np.ndarray) -> np.ndarray:
        """The number of cases, or NaN where there are fewer than `min_cases`."""
        reported: np.ndarray = np.where(cases >= max(self.min_cases, 1), cases, np.nan)
        return reported


@dataclass(frozen=True)
class DepAccuracy(_DepMetric):
    """How often a head's most attended word is the word's parent in the tree.

    For each word, a head predicts another word of the document (special tokens are not words):
    argmax a[word, ·] in the direction `dependent` (the dependent attends to its parent),
    argmax a[·, word] in the direction `head` (the parent attends to its dependent). Attention to
    a split word is the sum over its tokens, from it the mean. Of equals the first wins; a word
    that attends to no other predicts nothing. Every word with a token counts; the root, which has
    no parent to find, is never right. `accuracy_visible` counts only words that can attend to
    their parent (`dependent`) or whose parent can attend to them (`head`).

    Clark et al. 2019, section 4.2 and Table 1. Options: leave out `punctuation`; let the
    `possessive` particle predict in place of the word before it; give NaN for relations with
    fewer cases than `min_cases`.
    """

    name = "dep_accuracy"
    title = "Finds the parent, by relation"
    short_title = "Finds parents"
    equation = r"\underset{j \neq i}{\text{arg max}}\; a_{ij} = \text{parent}(i)"
    order = 270
    digests = (best_words,)
    arrays = {
        "right": ("part", "relation", "head", "direction"),
        "right_all": ("part", "head", "direction"),
        "count": ("part", "head"),
    } | _COUNTED

    def add(self, state: State, reading: Reading) -> None:
        """Count the right predictions, by part, relation and direction."""
        cases, best = self._cases(reading), best_words(reading)
        document, query = map(torch.from_numpy, (cases.document, cases.query))
        predicted = torch.stack([words.cpu()[document, :, query] for words in best], dim=-1)
        parent = torch.from_numpy(cases.parent)[:, None, None]
        right = (predicted == parent) & (parent >= 0)  # the root has no parent to find
        add_cases(state["right"], state["right_all"], cases, right)
        counted = self._counted(reading)
        for name, array in counted.items():
            state[name] += array
        state["count"] += counted["cases_all"][:, None]

    def variables(self) -> tuple[Variable, ...]:
        """Over all words, and over those whose target is visible."""
        dims = ("direction", "relation", "layer", "head")
        return (
            self.variable("accuracy", dims),
            self.variable("accuracy_visible", dims, title=""),
            self.count_variable(("layer", "head"), "accuracy_count"),
        )

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Right over cases."""
        values = {}
        is_reported = self._is_reported(state)
        for name, (right, cases) in self._sums(state).items():
            with np.errstate(divide="ignore", invalid="ignore"):
                values[name] = np.where(is_reported, right.sum(0) / cases.sum(0), np.nan)
        return {**values, "accuracy_count": state["count"].sum(1)}

    def pulls(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Pulls]:
        """Those of both ratios."""
        is_reported = self._is_reported(state)
        return {
            name: ratio_pulls(
                np.where(is_reported, pool(right, units), 0.0),
                np.where(is_reported, pool(cases, units), 0.0),
                "logit",
            )
            for name, (right, cases) in self._sums(state).items()
        }

    def _is_reported(self, state: State) -> np.ndarray:
        """`direction relation layer head`: was the head measured, on cases enough?"""
        cases = _joined(state["cases"], state["cases_all"]).sum(1)  # layer relation
        is_enough = np.isfinite(self._reported(cases)).T[None, :, :, None]
        is_there = state["count"].sum(1) > 0
        of_heads = is_enough & is_there
        return np.broadcast_to(of_heads, (len(DIRECTIONS), *of_heads.shape[1:]))

    def _sums(self, state: State) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """`part direction relation layer head`: right predictions, and those that count."""
        right = np.concatenate((state["right"], state["right_all"][:, :, None]), axis=2)
        cases = _joined(state["cases"], state["cases_all"])  # layer part relation
        visible = _joined(state["visible"], state["visible_all"])  # layer part direction relation
        right = right.transpose(1, 4, 2, 0, 3)
        return {
            "accuracy": (right, cases.transpose(1, 2, 0)[:, None, :, :, None]),
            "accuracy_visible": (right, visible.transpose(1, 2, 3, 0)[..., None]),
        }


@dataclass(frozen=True)
class DepOffset(_DepMetric):
    """How often the word a fixed number of words away is the word's parent.

    The best of the offsets −3 … 3 without 0, for each relation: what a head has to beat.
    `baseline_offset` says which. The same words count as in `dep_accuracy`, and the root is
    never right.

    Clark et al. 2019, section 4.2 and Table 1 (whose code tries −3 … 2).
    """

    name = "dep_offset"
    title = "Best fixed offset, by relation"
    short_title = "Best offset"
    equation = r"\max_{o} \frac{1}{n} \sum_{i} \mathbb{1}[i + o = \text{parent}(i)]"
    order = 271
    scope = "text"
    arrays = {
        "right": ("part", "offset_tried", "relation"),
        "right_all": ("part", "offset_tried"),
    } | _COUNTED

    def add(self, state: State, reading: Reading) -> None:
        """Count the right predictions of each offset, by part and relation."""
        cases = self._cases(reading)
        guesses = cases.query[:, None] + np.array(OFFSETS)
        rows = (guesses == cases.parent[:, None]) & cases.has_target[:, None]
        by_relation = np.zeros(state["right"].swapaxes(1, 2).shape)
        add_cases(by_relation, state["right_all"], cases, torch.from_numpy(rows))
        state["right"] += by_relation.swapaxes(1, 2)
        for name, array in self._counted(reading).items():
            state[name] += array

    def variables(self) -> tuple[Variable, ...]:
        """The baseline, its offset, and how many words there are."""
        many = {"units": "words", "format": ".0f", "short_title": "", "equation": ""}
        return (
            self.variable("baseline", ("relation",)),
            self.variable("baseline_offset", ("relation",), title="", units="words from the word"),
            self.variable("cases", ("relation",), title="Words of the relation", **many),
            self.variable("cases_visible", ("direction", "relation"), title="", **many),
        )

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The best offset of each relation."""
        right = _joined(state["right"], state["right_all"]).sum(0)
        cases = _joined(state["cases"], state["cases_all"]).sum(0)
        values = right / self._reported(cases)
        best = np.array(OFFSETS, dtype=np.float64)[values.argmax(0)]
        highest = values.max(0)
        return {
            "baseline": highest,
            "baseline_offset": np.where(highest > 0, best, np.nan),
            "cases": cases,
            "cases_visible": _joined(state["visible"], state["visible_all"]).sum(0),
        }

    def pulls(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Pulls]:
        """Those of the offset that is best in all of the corpus."""
        right = pool(_joined(state["right"], state["right_all"]), units)
        cases = pool(_joined(state["cases"], state["cases_all"]), units)
        best = right.sum(0).argmax(0)
        is_reported = np.isfinite(self._reported(cases.sum(0)))
        of_best = np.take_along_axis(right, best[None, None], 1)[:, 0]
        return {
            "baseline": ratio_pulls(
                np.where(is_reported, of_best, 0.0), np.where(is_reported, cases, 0.0), "logit"
            )
        }


def _zeros(arrays: Mapping[str, tuple[str, ...]], axes: Axes, n_heads: int = 0) -> State:
    """Zeros over the named axes; relations without the one that stands for all."""
    sizes = {
        "part": axes.n_parts,
        "relation": len(axes.relations),
        "direction": len(DIRECTIONS),
        "offset_tried": len(OFFSETS),
        "head": n_heads,
    }
    return {name: np.zeros([sizes[dim] for dim in dims]) for name, dims in arrays.items()}


def _joined(by_relation: np.ndarray, of_all: np.ndarray) -> np.ndarray:
    return np.concatenate((by_relation, of_all[..., None]), axis=-1)
