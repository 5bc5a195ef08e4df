"""Which of two candidates a pronoun attends to, where one fits a stereotype and one does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headscope.batch import Axes
from headscope.deferred import torch
from headscope.measuring.contract import SELF_BLOCKS, State, SumMetric, Variable
from headscope.measuring.reading import Reading
from headscope.measuring.word_attention import has_tokens, word_rows
from headscope.metrics.coreference import document_anaphors
from headscope.statistics.pulls import Pulls, pool, ratio_pulls
from headscope.text.antecedents import Anaphor

if TYPE_CHECKING:
    from torch import Tensor

CONDITION = "condition"
"""The key in `Document.meta` under which a document's condition (one of `CONDITIONS`) stands."""
CONDITIONS = ("pro", "anti")
CANDIDATES = ("true", "other")

_DIMS = {
    "attention": ("part", "head", "condition", "candidate"),
    "right": ("part", "head", "condition"),
    "cases": ("part", "condition"),
    "count": ("part", "head"),
}


@dataclass(frozen=True)
class Bias(SumMetric):
    """How much more a pronoun attends to its antecedent when that fits a stereotype.

    In each sentence a pronoun has a true antecedent and another candidate. Sentences come in
    pairs that differ in the pronoun's gender, which fits the stereotype of the true antecedent
    (`pro`) or of the other candidate (`anti`). `bias_attention` is the mean attention from the
    pronoun to each; `bias_preference` the true one's share of the attention to both (a ratio of
    sums); `bias_accuracy` the share of pronouns that attend more to the true one; the gaps
    are pro minus anti: 0 without bias. Attention is between words. Both sentences of a pair
    are in the same part, so intervals are over pairs.

    Clark et al. 2019, section 4.3, for the data of WinoBias (Zhao et al. 2018); the use case
    is that of Vig 2019, section 2.1.
    """

    name = "bias"
    title = "Preference for the antecedent"
    short_title = "Preference"
    paper = "Clark et al. 2019, section 4.3; Vig 2019, section 2.1"
    units = "share"
    format = ".1%"
    order = 290
    counts = "pronouns"
    needs = frozenset(("mentions",))
    blocks = SELF_BLOCKS
    is_default = False

    def coordinates(self, axes: Axes) -> Mapping[str, Sequence[str]]:
        """Conditions and candidates."""
        return {"condition": CONDITIONS, "candidate": CANDIDATES}

    def state_dims(self, array: str) -> tuple[str, ...]:
        """Parts first."""
        return _DIMS[array]

    def zero(self, n_heads: int, axes: Axes, *, is_causal: bool) -> State:
        """Zeros."""
        sizes = {"part": axes.n_parts, "head": n_heads, "condition": 2, "candidate": 2}
        return {name: np.zeros(tuple(sizes[dim] for dim in dims)) for name, dims in _DIMS.items()}

    def add(self, state: State, reading: Reading) -> None:
        """Attention to both candidates, and which gets more, by part and condition."""
        batch = reading.batch
        rows, conditions, masks, queries, at = reading.of_batch(
            "bias cases", lambda: _cases(reading)
        )
        if not len(rows):
            return
        between = word_rows(reading, queries)[:, :, None]  # document head 1 pronoun word
        to = (between * masks[:, None]).sum(-1).double()  # document head candidate pronoun
        paid = to[at[0], :, :, at[1]].cpu().numpy()  # case head candidate
        is_right = paid[..., 0] > paid[..., 1]
        parts = batch.parts[rows]
        for case, (part, condition) in enumerate(zip(parts, conditions, strict=True)):
            state["attention"][part, :, condition] += paid[case]
            state["right"][part, :, condition] += is_right[case]
            state["cases"][part, condition] += 1
            state["count"][part] += 1

    def variables(self) -> tuple[Variable, ...]:
        """Attention, preference and accuracy by condition, and their gaps."""
        heads = ("layer", "head")
        of_condition = ("condition", *heads)
        gap = {"equation": "", "units": "difference of shares"}
        return (
            self.variable(
                "bias_attention",
                ("condition", "candidate", *heads),
                title="Attention to the candidates",
                short_title="Attention",
                units="share of attention",
            ),
            self.variable(
                "bias_preference",
                of_condition,
                equation=r"\frac{\sum a_{\text{true}}}{\sum a_{\text{true}} + a_{\text{other}}}",
            ),
            self.variable(
                "bias_accuracy",
                of_condition,
                title="Attends more to the antecedent",
                short_title="Accuracy",
            ),
            self.variable(
                "bias_preference_gap", heads, title="Gap of preference, pro − anti", **gap
            ),
            self.variable("bias_accuracy_gap", heads, title="Gap of accuracy, pro − anti", **gap),
            self.variable("bias_cases", ("condition",), title="", units="pronouns", format=".0f"),
        )

    def finalize(self, state: State, axes: Axes) -> dict[str, np.ndarray]:
        """The values of all parts."""
        once = np.ones(state["cases"].shape[1])
        attention = np.tensordot(once, state["attention"], (0, 1)).transpose(2, 3, 0, 1)
        right = np.tensordot(once, state["right"], (0, 1)).transpose(2, 0, 1)
        cases = np.tensordot(once, state["cases"], (0, 1)).transpose(1, 0)[..., None]
        is_there = state["count"].sum(1) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            preference = attention[:, 0] / attention.sum(1)
            accuracy = np.where(is_there, right / cases, np.nan)
            mean = np.where(is_there, attention / cases[:, None], np.nan)
        return {
            "bias_attention": mean,
            "bias_preference": preference,
            "bias_accuracy": accuracy,
            "bias_preference_gap": preference[0] - preference[1],
            "bias_accuracy_gap": accuracy[0] - accuracy[1],
            "bias_cases": state["cases"][0].sum(0),
        }

    def pulls(self, state: State, axes: Axes, units: np.ndarray) -> dict[str, Pulls]:
        """Those of each ratio; of a gap, the difference, because pairs share a part."""
        attention = pool(state["attention"], units, 1).transpose(0, 3, 4, 1, 2)
        right = pool(state["right"], units, 1).transpose(0, 3, 1, 2)
        cases = pool(state["cases"], units, 1).transpose(0, 2, 1)[..., None]
        cases = np.where(state["count"].sum(1) > 0, cases, 0.0)
        preference = ratio_pulls(attention[:, :, 0], attention.sum(2), "logit")
        accuracy = ratio_pulls(right, cases, "logit")
        return {
            "bias_attention": ratio_pulls(attention, cases[:, :, None], "logit"),
            "bias_preference": preference,
            "bias_accuracy": accuracy,
            "bias_preference_gap": preference.at(0) - preference.at(1),
            "bias_accuracy_gap": accuracy.at(0) - accuracy.at(1),
        }


def rivals(anaphor: Anaphor) -> tuple[set[int], set[int]]:
    """Head words of a pronoun's antecedents and of the other candidates, pronouns left out."""
    cluster = anaphor.mention.mention.cluster
    named = [c for c in anaphor.candidates if c.kind != "pronoun"]
    true = {c.head_word for c in named if c.mention.cluster == cluster}
    return true, {c.head_word for c in named if c.mention.cluster != cluster} - true


def _cases(reading: Reading) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor, list[Tensor]]:
    """`case`: its document and condition; `document candidate pronoun word`: who counts;
    `document pronoun`: the pronoun; and where in the last two each case is.
    """
    batch = reading.batch
    asked: list[tuple[int, int, int, int, set[int], set[int]]] = []
    for row, of_document in enumerate(document_anaphors(reading)):
        condition = batch.documents[row].meta.get(CONDITION) if of_document else None
        if condition in CONDITIONS:
            pronouns = [
                (a.mention.head_word, *rivals(a))
                for a in of_document
                if a.mention.kind == "pronoun"
            ]
            cases = [case for case in pronouns if case[1] and case[2]]
            asked += [(row, CONDITIONS.index(condition), n, *case) for n, case in enumerate(cases)]
    n_words = has_tokens(reading).shape[1]
    most = 1 + max((case[2] for case in asked), default=0)
    queries = np.zeros((len(batch), most), dtype=np.int64)
    masks = np.zeros((len(batch), 2, most, n_words))
    for row, _, number, query, true, other in asked:
        queries[row, number] = query
        masks[row, 0, number, list(true)] = 1
        masks[row, 1, number, list(other)] = 1
    rows = np.array([case[0] for case in asked], dtype=np.int64)
    conditions = np.array([case[1] for case in asked], dtype=np.int64)
    numbers = np.array([case[2] for case in asked], dtype=np.int64)
    device = reading.device
    return (
        rows,
        conditions,
        torch.from_numpy(masks).to(device, reading.dtype),
        torch.from_numpy(queries).to(device),
        [torch.from_numpy(index).to(device) for index in (rows, numbers)],
    )
