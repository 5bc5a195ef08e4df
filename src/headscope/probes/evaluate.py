"""How good a probe is: unlabeled attachment with intervals, and which heads it relies on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr

from headscope.probes.decode import DECODINGS, decode
from headscope.probes.scorers import AttentionScorer, ProbeBatch, Scorer
from headscope.probes.training import Examples, make_batch, ordered_batches
from headscope.probes.treebank import right_branching
from headscope.statistics.intervals import BOUNDS, interval
from headscope.statistics.pulls import ratio_pulls

PUNCTUATION = ("without", "with")


def evaluate(
    scorer: Scorer,
    examples: Examples,
    is_punctuation: Sequence[np.ndarray],
    texts: Sequence[str],
) -> xr.Dataset:
    """Score every sentence once: attachment by both decodings, and reliance on attention heads.

    Args:
        scorer: a trained probe.
        examples: the sentences to score.
        is_punctuation: for each sentence `word`.
        texts: for each sentence, the text it is from.
    """
    right = np.zeros((len(examples), len(DECODINGS), len(PUNCTUATION)))
    baseline = np.zeros((len(examples), len(PUNCTUATION)))
    counts = np.zeros((len(examples), len(PUNCTUATION)))
    spread = _Reliance()
    for numbers in ordered_batches(examples):
        batch = make_batch(examples, numbers)
        with torch.inference_mode():
            scores = scorer(batch).double().numpy()
            if isinstance(scorer, AttentionScorer):
                spread.add(scorer, batch)
        for row, number in enumerate(numbers):
            length = int(examples.lengths[number])
            columns = [*range(length), scores.shape[2] - 1]
            sentence_scores = scores[row, :length][:, columns]
            target = examples.targets[number]
            masks = _masks(target, is_punctuation[number])
            counts[number] = masks.sum(1)
            baseline[number] = (masks & (right_branching(length) == target)).sum(1)
            for place, decoding in enumerate(DECODINGS):
                right[number, place] = (masks & (decode(sentence_scores, decoding) == target)).sum(
                    1
                )
    accuracies = attachment(right, baseline, counts, texts)
    return accuracies if not spread.n else accuracies.assign(spread.values())


def _masks(target: np.ndarray, is_punctuation: np.ndarray) -> np.ndarray:
    """`punctuation word`: which words count."""
    counted = target >= 0
    return np.stack((counted & ~is_punctuation, counted))


def attachment(
    right: np.ndarray, baseline: np.ndarray, counts: np.ndarray, texts: Sequence[str]
) -> xr.Dataset:
    """`uas` and `right_branching` with intervals, from counts.

    Args:
        right: `sentence decoding punctuation`, words whose parent was found.
        baseline: `sentence punctuation`, the same of right-branching.
        counts: `sentence punctuation`, words that count.
        texts: the text of each sentence: intervals are over texts, because sentences of one text
            are not independent draws.
    """
    names, text_of = np.unique(np.asarray(texts), return_inverse=True)
    sums = [np.zeros((len(names), *array.shape[1:])) for array in (right, baseline, counts)]
    for total, array in zip(sums, (right, baseline, counts), strict=True):
        np.add.at(total, text_of, array)
    dims = ("decoding", "punctuation")
    with np.errstate(invalid="ignore"):
        n = counts.sum(0)
        uas, low = right.sum(0) / n, baseline.sum(0) / n
    of_uas = interval(ratio_pulls(sums[0], sums[2][:, None], "logit"))
    of_chain = interval(ratio_pulls(sums[1], sums[2], "logit"))
    about = {"units": "1", "long_name": "share of words whose parent was found"}
    return xr.Dataset(
        {
            "uas": (dims, uas, {**about, "paper": "Clark et al. 2019, section 5, Table 3"}),
            "uas_interval": (("bound", *dims), of_uas.bounds),
            "uas_documents": (dims, of_uas.documents),
            "right_branching": ("punctuation", low, about),
            "right_branching_interval": (("bound", "punctuation"), of_chain.bounds),
            "words": ("punctuation", n.astype(np.int64)),
            "right": (("sentence", *dims), right.astype(np.int32)),
            "counted": (("sentence", "punctuation"), counts.astype(np.int32)),
        },
        coords={
            "decoding": list(DECODINGS),
            "punctuation": list(PUNCTUATION),
            "bound": list(BOUNDS),
        },
    )


class _Reliance:
    """Mean over words of how far a head's part of the score spreads over the candidates."""

    def __init__(self) -> None:
        self.n = 0
        self._sum: np.ndarray = np.zeros(())

    def add(self, scorer: AttentionScorer, batch: ProbeBatch) -> None:
        """Add the words of a batch."""
        for row in range(len(batch.targets)):
            wanted = batch.targets[row] >= 0
            has = batch.candidates[row]
            if int(has.sum()) < 3 or not bool(wanted.any()):
                continue
            parts = contributions(scorer, batch, row)[:, wanted][:, :, has]
            is_itself = wanted.nonzero() == has.nonzero()[:, 0]
            others = parts.masked_fill(is_itself[None, :, :, None], 0.0)
            n = (~is_itself).sum(1)[None, :, None].float()
            mean = others.sum(2) / n
            deviations = (others - mean[:, :, None]).masked_fill(is_itself[None, :, :, None], 0.0)
            spread = (deviations.square().sum(2) / n).sqrt()
            self._sum = self._sum + spread.double().sum(1).numpy()
            self.n += int(wanted.sum())

    def values(self) -> dict[str, tuple[tuple[str, str], np.ndarray, dict[str, str]]]:
        """`reliance` over `direction input`."""
        about = {
            "units": "nats",
            "long_name": "spread of a head's part of the score over a word's candidates",
        }
        return {"reliance": (("direction", "input"), self._sum / self.n, about)}


def contributions(scorer: AttentionScorer, batch: ProbeBatch, row: int) -> torch.Tensor:
    """`direction word candidate head`: what each head adds to the scores of one sentence."""
    assert batch.attention is not None
    n = batch.attention.shape[1]
    between = batch.attention[row, :, :n]
    to_dependent, from_dependent = between.transpose(0, 1), between
    parts = []
    for direction, attention in enumerate((to_dependent, from_dependent)):
        weight = scorer.weights[direction]
        if scorer.reads_words and batch.vectors is not None:
            of_candidate, of_dependent = scorer.word_weights[direction]
            vectors = batch.vectors[row]
            weight = weight + (vectors @ of_candidate)[None] + (vectors @ of_dependent)[:, None]
        parts.append(attention * weight)
    return torch.stack(parts)
