"""Train a probe with Adam, in batches of sentences of similar length. The model stays frozen.

For one seed, the same machine with the same number of threads gives the same bits. The number of
epochs is fixed beforehand, and the step size falls to zero. Development data are used once, at the
end, and do not choose an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headscope.probes.features import AttentionSource
from headscope.probes.scorers import ProbeBatch, Scorer

MAX_PAIRS = 1 << 14
"""Maximum pairs of words in a batch with padding, which bounds the memory."""
SORTED_SENTENCES = 2048
"""Sentences that are sorted by length together."""
SCALE_SENTENCES = 512
"""Sentences that estimate the spread of each head."""

MIN_EPOCHS, MAX_EPOCHS = 5, 40
SEEN = 20_000
"""Sentences seen in training, in at most `MAX_EPOCHS` epochs."""
STILL_FALLING = 0.02
"""Relative fall of the loss in the last epoch above which a probe has not converged."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of the training."""

    epochs: int = MIN_EPOCHS
    step: float = 0.01
    """First step size of Adam, on inputs of unit spread."""
    pairs: int = MAX_PAIRS


@dataclass(frozen=True, slots=True)
class Epoch:
    """Line of the training log."""

    loss: float
    """Mean cross-entropy of a word's parent while training, in nats."""
    accuracy: float
    """Share of words whose parent had the highest score while training."""
    seconds: float


def epochs_for(n_sentences: int) -> int:
    """Return the number of epochs: 5 from 4,000 sentences on, 20 for 1,000, 40 at most."""
    needed = -(-SEEN // max(n_sentences, 1))
    return min(max(needed, MIN_EPOCHS), MAX_EPOCHS)


def fall_of_last(log: Sequence[Epoch]) -> float:
    """Return the relative fall of the loss in the last epoch; NaN with fewer than two."""
    return 1 - log[-1].loss / log[-2].loss if len(log) > 1 and log[-2].loss > 0 else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class TreebankExamples:
    """Sentences of a treebank as numbers."""

    lengths: np.ndarray
    candidates: Sequence[np.ndarray]
    """For each sentence `word`: whether it can be a parent."""
    targets: Sequence[np.ndarray]
    """For each sentence `word`: number of its parent, n for ROOT, -1 if it does not count."""
    rows: Sequence[np.ndarray] | None
    """For each sentence `word`: the row of its vector in `vectors`."""
    vectors: Tensor | None
    """`row dimension`, of the words that occur."""
    source: AttentionSource | None
    """Source of attention; None for probes without attention."""

    def __len__(self) -> int:
        return len(self.lengths)


def fit(
    scorer: Scorer,
    examples: TreebankExamples,
    options: TrainingOptions,
    seed: int,
    *,
    report: Callable[[int, Epoch], None] = lambda number, epoch: None,
    advance: Callable[[int], None] = lambda sentences: None,
) -> list[Epoch]:
    """Train a scorer and rescale its parameters for unscaled inputs.

    In training, each head's attention and the vectors are divided by their spread. The scaling
    changes only the steps of the optimizer. A head that hardly varies, as with random weights,
    needs a large weight that it would not reach otherwise.
    """
    generator = np.random.default_rng(seed)
    scales = input_scales(examples, generator)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=options.step)
    used = np.array([bool((target >= 0).any()) for target in examples.targets])
    usable = np.flatnonzero(used)
    n_steps = options.epochs * sum(1 for _ in _batches(examples, usable, options.pairs))
    log: list[Epoch] = []
    step = 0
    for number in range(options.epochs):
        started = time.perf_counter()
        loss_sum = right = words = 0.0
        chosen = shuffled_batches(examples, usable, options.pairs, generator)
        for numbers in chosen:
            batch = make_batch(examples, numbers, scales)
            for group in optimizer.param_groups:
                group["lr"] = options.step * max(0.0, 1 - step / max(n_steps, 1))
            loss, n_right, n = _loss(scorer(batch), batch.targets)
            if n:
                optimizer.zero_grad()
                (loss / n).backward()
                optimizer.step()
            step += 1
            loss_sum += float(loss.detach())
            right += n_right
            words += n
            advance(len(numbers))
        epoch = Epoch(loss_sum / words, right / words, time.perf_counter() - started)
        log.append(epoch)
        report(number, epoch)
    scorer.rescale(scales)
    return log


def _loss(scores: Tensor, targets: Tensor) -> tuple[Tensor, int, int]:
    """Return the summed cross-entropy of words whose parent is a candidate, the number of correct
    words, and the number of words in the sum.
    """
    flat, parents = scores.flatten(0, 1), targets.flatten()
    counted = parents >= 0
    flat, parents = flat[counted], parents[counted]
    losses = torch.nn.functional.cross_entropy(flat, parents, reduction="none")
    findable = torch.isfinite(losses)
    right = int((flat.argmax(1) == parents).sum())
    return losses[findable].sum(), right, int(findable.sum())


def make_batch(
    examples: TreebankExamples, numbers: Sequence[int], scales: Mapping[str, Tensor] | None = None
) -> ProbeBatch:
    """Return sentences padded to the longest, with inputs divided by `scales`."""
    n = int(max(examples.lengths[number] for number in numbers))
    candidates = torch.zeros(len(numbers), n, dtype=torch.bool)
    targets = torch.full((len(numbers), n), -1, dtype=torch.int64)
    for row, number in enumerate(numbers):
        length = int(examples.lengths[number])
        candidates[row, :length] = torch.from_numpy(examples.candidates[number])
        parents = torch.from_numpy(examples.targets[number])
        targets[row, :length] = torch.where(parents == length, n, parents)
    return ProbeBatch(
        candidates,
        targets,
        _attention(examples, numbers, n, scales),
        _vectors(examples, numbers, n, scales),
    )


def _attention(
    examples: TreebankExamples, numbers: Sequence[int], n: int, scales: Mapping[str, Tensor] | None
) -> Tensor | None:
    if examples.source is None:
        return None
    tables = examples.source.take(numbers)
    length, columns, n_heads = tables[0].shape
    padded = torch.zeros(len(numbers), n, n + columns - length, n_heads)
    for row, table in enumerate(tables):
        length = len(table)
        values = torch.from_numpy(np.asarray(table, dtype=np.float32))
        padded[row, :length, :length] = values[:, :length]
        padded[row, :length, n:] = values[:, length:]
    if scales is not None:
        padded[:, :, :n] /= scales["between"]
        padded[:, :, n:] /= scales["edges"]
    return padded


def _vectors(
    examples: TreebankExamples, numbers: Sequence[int], n: int, scales: Mapping[str, Tensor] | None
) -> Tensor | None:
    if examples.vectors is None or examples.rows is None:
        return None
    padded = torch.zeros(len(numbers), n, examples.vectors.shape[1])
    for row, number in enumerate(numbers):
        rows = torch.from_numpy(examples.rows[number])
        padded[row, : len(rows)] = examples.vectors[rows]
    return padded if scales is None else padded / scales["vectors"]


def input_scales(examples: TreebankExamples, generator: np.random.Generator) -> dict[str, Tensor]:
    """Return the spread of each head's attention between words (`between`, over `head`) and to
    and from the edges (`edges`, over `edge head`), and the length of two `vectors` together.
    """
    scales: dict[str, Tensor] = {}
    if examples.vectors is not None:
        squares = examples.vectors.square().sum(1).mean()
        scales["vectors"] = (2 * squares).sqrt().clamp(min=1e-6)
    if examples.source is not None:
        n = min(SCALE_SENTENCES, len(examples))
        numbers = np.sort(generator.choice(len(examples), n, replace=False))
        between, edges = _Spread(), _Spread()
        for batch in _batches(examples, numbers, MAX_PAIRS):
            for number, table in zip(batch, examples.source.take(batch), strict=True):
                has_tokens = examples.candidates[number]
                length = len(has_tokens)
                plain = np.asarray(table, dtype=np.float64)[has_tokens]
                between.add(plain[:, :length][:, has_tokens].reshape(-1, plain.shape[2]))
                edges.add(plain[:, length:])
        scales["between"], scales["edges"] = between.tensor(), edges.tensor()
    return scales


class _Spread:
    """Standard deviation over the first axis of the added arrays."""

    def __init__(self) -> None:
        self._n: float = 0.0
        self._sum: np.ndarray = np.zeros(())
        self._squares: np.ndarray = np.zeros(())

    def add(self, values: np.ndarray) -> None:
        self._n += len(values)
        self._sum = self._sum + values.sum(0)
        self._squares = self._squares + (values**2).sum(0)

    def tensor(self) -> Tensor:
        """Return the deviations, at least 1e-6: a head may attend to no word at all."""
        mean = self._sum / max(self._n, 1)
        variance = np.maximum(self._squares / max(self._n, 1) - mean**2, 0)
        return torch.from_numpy(np.maximum(np.sqrt(variance), 1e-6)).float()


def shuffled_batches(
    examples: TreebankExamples, numbers: np.ndarray, pairs: int, generator: np.random.Generator
) -> list[list[int]]:
    """Return batches of similar length in a new random order."""
    order = generator.permutation(numbers)
    batches: list[list[int]] = []
    for start in range(0, len(order), SORTED_SENTENCES):
        batches += _batches(examples, order[start : start + SORTED_SENTENCES], pairs)
    return [batches[place] for place in generator.permutation(len(batches))]


def _batches(examples: TreebankExamples, numbers: np.ndarray, pairs: int) -> Iterator[list[int]]:
    """Yield sentences sorted by length, in batches of at most `pairs` pairs of words."""
    batch: list[int] = []
    for number in numbers[np.argsort(examples.lengths[numbers], kind="stable")]:
        if batch and (len(batch) + 1) * int(examples.lengths[number]) ** 2 > pairs:
            yield batch
            batch = []
        batch.append(int(number))
    if batch:
        yield batch


def ordered_batches(examples: TreebankExamples, pairs: int = MAX_PAIRS) -> Iterator[list[int]]:
    """Yield all sentences in batches of similar length."""
    return _batches(examples, np.arange(len(examples)), pairs)
