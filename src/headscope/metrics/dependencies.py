"""Alignment of attention with dependency trees, and accuracy of heads that predict parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np

from headscope.batch import Axes
from headscope.errors import UnknownName
from headscope.lazy import Tensor, torch
from headscope.metrics.core import regions
from headscope.metrics.core.contract import (
    SELF_BLOCKS,
    Need,
    RatioMetric,
    State,
    SumMetric,
    Variable,
)
from headscope.metrics.core.layer_data import LayerData, per_batch
from headscope.metrics.core.word_attention import (
    ALL,
    DepCases,
    Possessive,
    add_cases,
    best_words,
    dep_cases,
)
from headscope.metrics.tags import LabelShare
from headscope.statistics.jackknife import Jackknife, pool, ratio_jackknife

PARENTS = ("query", "key", "either")
"""Position of the parent in a pair of tokens."""
FARTHEST = 64


@dataclass(frozen=True)
class DepAlignment(RatioMetric):
    """Share of a head's attention that runs along dependency arcs.

    Σ a[i,j]·dep(i,j) / Σ a[i,j], null attention left out of both, in three forms: the query
    token is the parent, the key token is, or either. Tokens of one word are in no relation
    with one another. Compare with `dep_baseline`.

    Vig & Belinkov 2019, Eq. 4, Figure 8.
    """

    name = "dep_alignment"
    title = "Attention along dependencies"
    short_title = "Along dependencies"
    equation = r"\frac{\sum_{i,j} a_{ij} \cdot \text{dep}(i, j)}{\sum_{i,j} a_{ij}}"
    paper = "Vig & Belinkov 2019, Eq. 4, Figure 8"
    units = "share of attention"
    format = ".1%"
    order = 110
    reductions = (regions.masses, regions.pair_sums)
    needs = frozenset(("parents",))
    blocks = SELF_BLOCKS
    dims = ("parent",)
    axis_labels = {"parent": PARENTS}

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention between related tokens, all attention, and queries."""
        is_parsed = regions.has_labels(layer_data, "parents")
        aligned = regions.pair_sums(layer_data)[0][..., 1:] * is_parsed[..., None]
        total = regions.total_mass(layer_data) * is_parsed
        either = aligned.sum(-1, keepdim=True)
        return (
            torch.cat((aligned, either), dim=-1),
            total,
            regions.query_counts(layer_data, "parents"),
        )


@dataclass(frozen=True)
class DepTypeTo(LabelShare):
    """Share of a head's attention that goes to words of each dependency relation.

    Σ a[i,j]·1(relation(j) = r) / Σ a[i,j], null attention left out of both; the relation is
    that of the key's word to its parent, as labeled in the data.

    Vig & Belinkov 2019, section 5.3.2, Figure 9 (as Eq. 3, with relations for tags).
    """

    name = "dep_type_to"
    title = "Attention to each relation"
    short_title = "To each relation"
    equation = (
        r"\frac{\sum_{i,j} a_{ij} \cdot \mathbb{1}[\text{relation}(j) = r]}{\sum_{i,j} "
        r"a_{ij}}"
    )
    paper = "Vig & Belinkov 2019, section 5.3.2, Figure 9"
    order = 260
    needs = frozenset(("parents", "relations"))
    dims = ("relation",)
    side = "key"
    labels = "relations"


class _OfPairs(RatioMetric):
    """Ratio over token pairs of parsed documents, equal for all layers and heads."""

    units = "share of token pairs"
    format = ".1%"
    scope = "text"
    needs = frozenset(("parents",))
    blocks = SELF_BLOCKS


@dataclass(frozen=True)
class DepBaselineByParent(_OfPairs):
    """Share of token pairs in a dependency relation: the alignment of uniform attention.

    TokenPairs of the same region as `dep_alignment`, each counted once, attention ignored; in
    its three forms.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name = "dep_baseline_by_parent"
    title = "Related pairs, by parent"
    equation = r"\frac{\sum_{i,j} \text{dep}(i, j)}{\sum_{i,j} 1}"
    paper = "Vig & Belinkov 2019, Figure 8, orange line"
    order = 112
    dims = ("parent",)
    axis_labels = {"parent": PARENTS}

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return related pairs, all pairs, and queries."""
        forms = [_per_document(layer_data, pairs) for pairs in regions.related_pairs(layer_data)]
        queries, pairs = _counts(layer_data)
        return torch.stack((*forms, forms[0] + forms[1]), dim=-1), pairs, queries


@dataclass(frozen=True)
class DepBaseline(_OfPairs):
    """Share of token pairs in a dependency relation, in either direction.

    The value of `dep_alignment` for uniform attention over the region.

    Vig & Belinkov 2019, Figure 8 (orange line).
    """

    name = "dep_baseline"
    title = "Related pairs"
    equation = r"\frac{\sum_{i,j} \text{dep}(i, j)}{\sum_{i,j} 1}"
    paper = "Vig & Belinkov 2019, Figure 8, orange line"
    order = 111

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return related pairs, all pairs, and queries."""
        queries, pairs = _counts(layer_data)
        related = sum(_per_document(layer_data, some) for some in regions.related_pairs(layer_data))
        return cast("Tensor", related), pairs, queries


@dataclass(frozen=True)
class DepByDistance(_OfPairs):
    """Probability that two tokens d positions apart are in a dependency relation.

    Share of related pairs among the pairs of the region, by distance from 1 to 64 tokens.

    Vig & Belinkov 2019, section 5.3.3 (0.42, 0.07 and 0.02 at distance 1, 5 and 10).
    """

    name = "dep_by_distance"
    title = "Dependencies by distance"
    equation = r"\frac{\sum_{|i - j| = d} \text{dep}(i, j)}{\sum_{|i - j| = d} 1}"
    paper = "Vig & Belinkov 2019, section 5.3.3"
    order = 113
    dims = ("distance_between",)
    denominator_dims = ("distance_between",)
    axis_labels = {"distance_between": range(1, FARTHEST + 1)}

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return related pairs and all pairs at each distance, and queries."""
        queries, _ = _counts(layer_data)
        n, size = len(queries), FARTHEST + 2
        numerator = np.zeros((n, size))
        for pairs in regions.related_pairs(layer_data):
            far = np.minimum(_distances(layer_data, pairs), size - 1).astype(np.int64)
            np.add.at(numerator, (pairs.document, far), 1)
        denominator = _pairs_by_distance(layer_data, size)
        is_parsed = layer_data.queries.is_parsed[:, None]
        rows = (torch.from_numpy((x * is_parsed)[:, 1:-1]) for x in (numerator, denominator))
        return *rows, queries  # type: ignore[return-value]


@dataclass(frozen=True)
class DepSpan(_OfPairs):
    """Mean number of tokens that a dependency arc spans.

    Mean |i − j| over the pairs of the region that are in a dependency relation.

    Vig & Belinkov 2019, section 5.3.2 (3.89 tokens).
    """

    name = "dep_span"
    title = "Span of dependencies"
    short_title = "Span"
    equation = r"\frac{\sum_{i,j} \text{dep}(i, j) \cdot |i - j|}{\sum_{i,j} \text{dep}(i, j)}"
    paper = "Vig & Belinkov 2019, section 5.3.2"
    units = "tokens"
    format = ".2f"
    order = 114

    def rows(self, layer_data: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Return distances of related pairs, related pairs, and queries."""
        both = regions.related_pairs(layer_data)
        spans = [_per_document(layer_data, p, _distances(layer_data, p)) for p in both]
        related = [_per_document(layer_data, pairs) for pairs in both]
        return spans[0] + spans[1], related[0] + related[1], _counts(layer_data)[0]


@per_batch
def _counts(layer_data: LayerData) -> tuple[Tensor, Tensor]:
    """`document`, float64: return queries, and pairs of the region, in parsed documents."""
    region = regions.region_of(layer_data)
    queries, keys = region.queries.double().cpu(), region.keys.double().cpu()
    is_parsed = torch.from_numpy(layer_data.queries.is_parsed).double()
    visible = keys.cumsum(-1) if layer_data.is_causal else keys.sum(-1, keepdim=True)
    return queries.sum(-1) * is_parsed, (queries * visible).sum(-1) * is_parsed


def _per_document(
    layer_data: LayerData, pairs: regions.TokenPairs, weights: np.ndarray | None = None
) -> Tensor:
    """`document`, float64: return the number of pairs in parsed documents, or their sum."""
    sums = np.bincount(pairs.document, weights, minlength=len(layer_data.batch))
    return torch.from_numpy(sums * layer_data.queries.is_parsed).double()


def _distances(layer_data: LayerData, pairs: regions.TokenPairs) -> np.ndarray:
    queries, keys = regions.positions(layer_data)
    rows = pairs.document % len(queries)
    return np.abs(queries[rows, pairs.query] - keys[rows, pairs.key]).astype(np.float64)


def _pairs_by_distance(layer_data: LayerData, size: int) -> np.ndarray:
    """`document distance`: return the pairs of the region at each distance below `size` − 1."""
    region = regions.region_of(layer_data)
    is_query, is_key = (x.double().cpu().numpy() for x in (region.queries, region.keys))
    at = regions.positions(layer_data)[0].astype(np.int64)
    counts = np.zeros((len(is_query), size))
    for row, (queries, keys) in enumerate(zip(is_query, is_key, strict=True)):
        place = at[row % len(at)] - 1
        # By position, without words that are left out.
        placed = [np.bincount(place[x > 0], minlength=place[-1] + 1) for x in (queries, keys)]
        for far in range(min(size - 1, len(placed[0]))):
            counts[row, far] = placed[0][far:] @ placed[1][: len(placed[1]) - far]
            if far and not layer_data.is_causal:
                counts[row, far] += placed[1][far:] @ placed[0][: len(placed[0]) - far]
    return counts


DIRECTIONS = ("dependent", "head")
OFFSETS = (-3, -2, -1, 1, 2, 3)
_COUNTED = {
    "cases": ("bucket", "relation"),
    "cases_all": ("bucket",),
    "visible": ("bucket", "direction", "relation"),
    "visible_all": ("bucket", "direction"),
}
"""Axes of the counts of both metrics: words, and words whose parent is visible."""


@dataclass(frozen=True)
class _DepMetric(SumMetric):
    """Base of `DepAccuracy` and `DepOffset`: selection and number of words."""

    paper = "Clark et al. 2019, section 4.2, Table 1"
    units = "share of words"
    format = ".1%"
    counts = "words"
    blocks = SELF_BLOCKS
    is_default = False

    punctuation: bool = True
    possessive: Possessive = "auto"
    min_cases: int = 1

    def __post_init__(self) -> None:
        if self.possessive not in get_args(Possessive):
            raise UnknownName.of("possessive", self.possessive, map(str, get_args(Possessive)))

    @property
    def needs(self) -> frozenset[Need]:
        """Parents; also relations, if they determine which words count."""
        if not self.punctuation or self.possessive not in ("auto", False):
            return frozenset(("parents", "relations"))
        return frozenset(("parents",))

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str] | Sequence[int]]:
        """Return directions, relations as in the data, and all words together."""
        return {"direction": DIRECTIONS, "relation": (*axes.relations, ALL)}

    def axis_sizes(self, n_heads: int, axes: Axes) -> dict[str, int]:
        own = {"relation": len(axes.relations), "offset_tried": len(OFFSETS)}
        return {**super().axis_sizes(n_heads, axes), **own}

    def _cases(self, layer_data: LayerData) -> DepCases:
        return dep_cases(layer_data, punctuation=self.punctuation, possessive=self.possessive)

    def _counted(self, layer_data: LayerData) -> State:
        """Return cases of a batch by bucket, and cases with a visible target."""
        batch, cases = layer_data.batch, self._cases(layer_data)

        def make() -> State:
            zero = self.zero(0, batch.axes, is_causal=layer_data.is_causal)
            state = {name: zero[name] for name in _COUNTED}
            add_cases(state["cases"], state["cases_all"], cases, torch.ones(len(cases.parent)))
            visible = torch.from_numpy(cases.visible(is_causal=layer_data.is_causal).T)
            by_relation = np.zeros(state["visible"].swapaxes(1, 2).shape)
            add_cases(by_relation, state["visible_all"], cases, visible)
            return {**state, "visible": by_relation.swapaxes(1, 2).copy()}

        key = ("dep counts", layer_data.block, self.punctuation, self.possessive)
        return batch.once(key, make)

    def _reported(self, cases: np.ndarray) -> np.ndarray:
        """Return the number of cases, or NaN below `min_cases`."""
        return np.where(cases >= max(self.min_cases, 1), cases, np.nan)


@dataclass(frozen=True)
class DepAccuracy(_DepMetric):
    """Share of words whose parent is the word that a head attends to most.

    For each word, a head predicts another word of the document (special tokens are not words):
    argmax a[word, ·] in the direction `dependent` (the dependent attends to its parent), argmax
    a[·, word] in the direction `head` (the parent attends to its dependent). Attention to a split
    word is the sum over its tokens, from it the mean. Ties go to the first word; a word that
    attends to no other word predicts nothing. Every word with a token counts; the root is always
    wrong. `accuracy_visible` counts only words that can attend to their parent (`dependent`) or
    whose parent can attend to them (`head`).

    Clark et al. 2019, section 4.2 and Table 1. Options: leave out `punctuation`; let the
    `possessive` particle predict instead of the word before it; return NaN for relations with fewer
    cases than `min_cases`.
    """

    name = "dep_accuracy"
    title = "Finds the parent, by relation"
    short_title = "Finds parents"
    equation = r"\underset{j \neq i}{\text{arg max}}\; a_{ij} = \text{parent}(i)"
    order = 270
    reductions = (best_words,)
    arrays = {
        "right": ("bucket", "relation", "head", "direction"),
        "right_all": ("bucket", "head", "direction"),
        "count": ("bucket", "head"),
    } | _COUNTED

    def add(self, state: State, layer_data: LayerData) -> None:
        """Count the right predictions, by bucket, relation and direction."""
        cases, best = self._cases(layer_data), best_words(layer_data)[:2]
        document, query = map(torch.from_numpy, (cases.document, cases.query))
        predicted = torch.stack([words.cpu()[document, :, query] for words in best], dim=-1)
        parent = torch.from_numpy(cases.parent)[:, None, None]
        right = (predicted == parent) & (parent >= 0)  # the root has no parent to find
        add_cases(state["right"], state["right_all"], cases, right)
        counted = self._counted(layer_data)
        for name, array in counted.items():
            state[name] += array
        state["count"] += counted["cases_all"][:, None]

    def variables(self) -> tuple[Variable, ...]:
        """Return the accuracy over all words, and over words with a visible target."""
        dims = ("direction", "relation", "layer", "head")
        return (
            self.variable("accuracy", dims),
            self.variable("accuracy_visible", dims, title=""),
            self.count_variable(("layer", "head"), "accuracy_count"),
        )

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return right predictions over cases."""
        ratios = self.jackknives(state, axes, np.arange(state["cases"].shape[1]))
        values = {name: estimate.value for name, estimate in ratios.items()}
        return {**values, "accuracy_count": state["count"].sum(1)}

    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Return the jackknives of both ratios, of right predictions to cases."""
        cases = _joined(state["cases"], state["cases_all"])  # layer bucket relation
        visible = _joined(state["visible"], state["visible_all"])  # layer bucket direction relation
        right = np.concatenate((state["right"], state["right_all"][:, :, None]), axis=2)
        is_enough = np.isfinite(self._reported(cases.sum(1))).T[None, :, :, None]
        is_reported = is_enough & (state["count"].sum(1) > 0)
        # All with the axes `bucket direction relation layer head`.
        pooled = np.where(is_reported, pool(right.transpose(1, 4, 2, 0, 3), units), 0.0)
        counted = {
            "accuracy": cases.transpose(1, 2, 0)[:, None, :, :, None],
            "accuracy_visible": visible.transpose(1, 2, 3, 0)[..., None],
        }
        return {
            name: ratio_jackknife(pooled, np.where(is_reported, pool(sums, units), 0.0), "logit")
            for name, sums in counted.items()
        }


@dataclass(frozen=True)
class DepOffset(_DepMetric):
    """Share of words whose parent is at the best fixed offset: the baseline of `dep_accuracy`.

    The best of the offsets −3 … 3 without 0, for each relation; `baseline_offset` names it. The
    same words count as in `dep_accuracy`, and the root is always wrong.

    Clark et al. 2019, section 4.2 and Table 1 (whose code tries −3 … 2).
    """

    name = "dep_offset"
    title = "Best fixed offset, by relation"
    short_title = "Best offset"
    equation = r"\max_{o} \frac{1}{n} \sum_{i} \mathbb{1}[i + o = \text{parent}(i)]"
    order = 271
    scope = "text"
    arrays = {
        "right": ("bucket", "offset_tried", "relation"),
        "right_all": ("bucket", "offset_tried"),
    } | _COUNTED

    def add(self, state: State, layer_data: LayerData) -> None:
        """Count the right predictions of each offset, by bucket and relation."""
        cases = self._cases(layer_data)
        guesses = cases.query[:, None] + np.array(OFFSETS)
        rows = (guesses == cases.parent[:, None]) & cases.has_target[:, None]
        by_relation = np.zeros(state["right"].swapaxes(1, 2).shape)
        add_cases(by_relation, state["right_all"], cases, torch.from_numpy(rows))
        state["right"] += by_relation.swapaxes(1, 2)
        for name, array in self._counted(layer_data).items():
            state[name] += array

    def variables(self) -> tuple[Variable, ...]:
        """Return the baseline, its offset, and the number of words."""
        count_display = {"units": "words", "format": ".0f", "short_title": "", "equation": ""}
        return (
            self.variable("baseline", ("relation",)),
            self.variable("baseline_offset", ("relation",), title="", units="words from the word"),
            self.variable("cases", ("relation",), title="Words of the relation", **count_display),
            self.variable("cases_visible", ("direction", "relation"), title="", **count_display),
        )

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """Return the best offset of each relation."""
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

    def jackknives(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Jackknife]:
        """Return the jackknife of the offset that is best in the whole corpus."""
        right = pool(_joined(state["right"], state["right_all"]), units)
        cases = pool(_joined(state["cases"], state["cases_all"]), units)
        best = right.sum(0).argmax(0)
        is_reported = np.isfinite(self._reported(cases.sum(0)))
        best_right = np.take_along_axis(right, best[None, None], 1)[:, 0]
        return {
            "baseline": ratio_jackknife(
                np.where(is_reported, best_right, 0.0), np.where(is_reported, cases, 0.0), "logit"
            )
        }


def _joined(by_relation: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.concatenate((by_relation, total[..., None]), axis=-1)
