"""Training a probe with Adam, in batches of sentences of similar length. The model is not changed.

For one seed, the same machine with the same number of threads gives the same bits. The number of
epochs is fixed beforehand, and the step size falls to zero over them: no epoch is chosen by its
score, and the development data is seen once, at the end.
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
"""Most pairs of words in a batch, padding included: this bounds the memory."""
WINDOW = 2048
"""So many sentences at a time are sorted by length and put into batches."""
SCALE_SENTENCES = 512
"""The spread of each attention head is estimated from so many sentences."""

MIN_EPOCHS, MAX_EPOCHS = 5, 40
SEEN = 20_000
"""A probe sees so many sentences while it is trained, in at most `MAX_EPOCHS` epochs."""
STILL_FALLING = 0.02
"""A probe whose loss falls by more than this share in its last epoch has not converged."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a probe is trained."""

    epochs: int = MIN_EPOCHS
    step: float = 0.01
    """Adam's first step size, on inputs of unit spread."""
    pairs: int = MAX_PAIRS


@dataclass(frozen=True, slots=True)
class Epoch:
    """A line of the training log."""

    loss: float
    """Mean cross-entropy of a word's parent while training, in nats."""
    accuracy: float
    """Share of words whose parent had the highest score while training."""
    seconds: float


def epochs_for(n_sentences: int) -> int:
    """More epochs on small treebanks: 5 from 4,000 sentences on, 20 for 1,000, 40 at most.

    The number depends on the size of the treebank alone: no epoch is chosen by its score.
    """
    asked = -(-SEEN // max(n_sentences, 1))
    return min(max(asked, MIN_EPOCHS), MAX_EPOCHS)


def fall_of_last(log: Sequence[Epoch]) -> float:
    """By which share the loss fell in the last epoch; NaN with fewer than two."""
    return 1 - log[-1].loss / log[-2].loss if len(log) > 1 and log[-2].loss > 0 else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """The sentences of a treebank as numbers."""

    lengths: np.ndarray
    candidates: Sequence[np.ndarray]
    """For each sentence `word`: can it be a parent?"""
    targets: Sequence[np.ndarray]
    """For each sentence `word`: number of its parent, n for ROOT, -1 where it does not count."""
    rows: Sequence[np.ndarray] | None
    """For each sentence `word`: the row of its vector in `vectors`."""
    vectors: Tensor | None
    """`row dimension`, of the words that occur."""
    source: AttentionSource | None
    """Where the attention comes from; None for probes that read none."""

    def __len__(self) -> int:
        return len(self.lengths)


def fit(
    scorer: Scorer,
    examples: Examples,
    options: Options,
    seed: int,
    *,
    tell: Callable[[int, Epoch], None] = lambda number, epoch: None,
    advance: Callable[[int], None] = lambda sentences: None,
) -> list[Epoch]:
    """Train a scorer; afterwards its parameters fit unscaled inputs.

    While training, each head's attention and the vectors are divided by their spread. This
    changes only the steps of the optimizer, not what a probe can learn: an attention head that
    hardly varies, as with random weights, needs a large weight, and would never reach it otherwise.
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
        tell(number, epoch)
    scorer.rescale(scales)
    return log


def _loss(scores: Tensor, targets: Tensor) -> tuple[Tensor, int, int]:
    """Summed cross-entropy of the words that count and whose parent is a candidate; how many
    were right; how many there were.
    """
    flat, wanted = scores.flatten(0, 1), targets.flatten()
    counted = wanted >= 0
    flat, wanted = flat[counted], wanted[counted]
    losses = torch.nn.functional.cross_entropy(flat, wanted, reduction="none")
    findable = torch.isfinite(losses)
    right = int((flat.argmax(1) == wanted).sum())
    return losses[findable].sum(), right, int(findable.sum())


def make_batch(
    examples: Examples, numbers: Sequence[int], scales: Mapping[str, Tensor] | None = None
) -> ProbeBatch:
    """Sentences padded to the longest, their inputs divided by `scales`."""
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
    examples: Examples, numbers: Sequence[int], n: int, scales: Mapping[str, Tensor] | None
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
    examples: Examples, numbers: Sequence[int], n: int, scales: Mapping[str, Tensor] | None
) -> Tensor | None:
    if examples.vectors is None or examples.rows is None:
        return None
    padded = torch.zeros(len(numbers), n, examples.vectors.shape[1])
    for row, number in enumerate(numbers):
        rows = torch.from_numpy(examples.rows[number])
        padded[row, : len(rows)] = examples.vectors[rows]
    return padded if scales is None else padded / scales["vectors"]


def input_scales(examples: Examples, generator: np.random.Generator) -> dict[str, Tensor]:
    """The spread of the inputs: of each head's attention between words (`between`, over
    `head`) and to and from the edges (`edges`, over `edge head`), and the length of two
    `vectors` together, so that words move a weight as far as its constant part does.
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
                has = examples.candidates[number]
                length = len(has)
                plain = np.asarray(table, dtype=np.float64)[has]
                between.add(plain[:, :length][:, has].reshape(-1, plain.shape[2]))
                edges.add(plain[:, length:])
        scales["between"], scales["edges"] = between.tensor(), edges.tensor()
    return scales


class _Spread:
    """Standard deviation over the first axis of what is added."""

    def __init__(self) -> None:
        self._n: float = 0.0
        self._sum: np.ndarray = np.zeros(())
        self._squares: np.ndarray = np.zeros(())

    def add(self, values: np.ndarray) -> None:
        self._n += len(values)
        self._sum = self._sum + values.sum(0)
        self._squares = self._squares + (values**2).sum(0)

    def tensor(self) -> Tensor:
        """At least a millionth: a head may attend to no word at all."""
        mean = self._sum / max(self._n, 1)
        variance = np.maximum(self._squares / max(self._n, 1) - mean**2, 0)
        return torch.from_numpy(np.maximum(np.sqrt(variance), 1e-6)).float()


def shuffled_batches(
    examples: Examples, numbers: np.ndarray, pairs: int, generator: np.random.Generator
) -> list[list[int]]:
    """Batches of similar length in random order, drawn anew for each epoch."""
    order = generator.permutation(numbers)
    batches: list[list[int]] = []
    for start in range(0, len(order), WINDOW):
        batches += _batches(examples, order[start : start + WINDOW], pairs)
    return [batches[place] for place in generator.permutation(len(batches))]


def _batches(examples: Examples, numbers: np.ndarray, pairs: int) -> Iterator[list[int]]:
    """Sentences sorted by length, in batches of at most so many pairs of words."""
    batch: list[int] = []
    for number in numbers[np.argsort(examples.lengths[numbers], kind="stable")]:
        if batch and (len(batch) + 1) * int(examples.lengths[number]) ** 2 > pairs:
            yield batch
            batch = []
        batch.append(int(number))
    if batch:
        yield batch


def ordered_batches(examples: Examples, pairs: int = MAX_PAIRS) -> Iterator[list[int]]:
    """All sentences in batches of similar length."""
    return _batches(examples, np.arange(len(examples)), pairs)
