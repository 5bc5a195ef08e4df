"""Scorers of candidate parents: the three probes of Clark et al. 2019, section 5.

p(i | j) ∝ exp(score(i, j)): word i, or ROOT, is the parent of word j.

- `attention`: Σ_k w_k a_k[i, j] + u_k a_k[j, i]
- `attention+words`: the same with w_k = W_k · [v_i; v_j; 1] and u_k = U_k · [v_i; v_j; 1]
- `distance+words`: a layer of tanh units over [v_i; v_j; distance features]

a_k[i, j] is the attention of head k from word i to word j, v_i the word's vector. The 1 makes
`attention` a special case of `attention+words`, as in the authors' code. ROOT has no vector and no
position. Separate weights score it from the attention to and from the edge tokens
(`headscope.probes.features`) and the dependent's vector, plus a constant; `distance+words` has a
learned vector for it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from headscope.errors import UnknownName
from headscope.probes.features import AttentionSource

Kind = Literal["attention", "attention+words", "distance+words"]
PROBE_KINDS: tuple[Kind, ...] = get_args(Kind)
N_HIDDEN = 256
NEAR = (-2, -1, 1, 2)
"""Offsets from the dependent to the candidate with an indicator feature."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBatch:
    """Sentences of n words, padded to the longest."""

    candidates: Tensor
    """`sentence word`, true for words with tokens, which can be a parent."""
    targets: Tensor
    """`sentence word`: number of its parent, n for ROOT, -1 if it does not count."""
    attention: Tensor | None = None
    """`sentence word column head`, as in `headscope.probes.features`."""
    vectors: Tensor | None = None


class Scorer(nn.Module, ABC):
    """Scores every candidate of every word."""

    reads_attention: bool = True
    reads_words: bool = True

    @abstractmethod
    def raw(self, batch: ProbeBatch) -> Tensor:
        """Return `sentence word candidate`; the last candidate is ROOT."""

    def forward(self, batch: ProbeBatch) -> Tensor:
        """Return the scores, with -inf for words without tokens, padding and the word itself."""
        scores = self.raw(batch)
        n = scores.shape[1]
        allowed = batch.candidates[:, None, :] & ~torch.eye(n, dtype=torch.bool)
        allowed = torch.cat((allowed, allowed.new_ones(len(scores), n, 1)), dim=2)
        return scores.masked_fill(~allowed, -torch.inf)

    @abstractmethod
    def rescale(self, scales: Mapping[str, Tensor]) -> None:
        """Convert parameters learned on scaled inputs to unscaled inputs."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters by name."""
        return {name: p.detach().numpy().copy() for name, p in self.named_parameters()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load parameters from `arrays`."""
        parameters = dict(self.named_parameters())
        with torch.no_grad():
            for name, array in arrays.items():
                parameters[name].copy_(torch.from_numpy(np.asarray(array)))


class AttentionScorer(Scorer):
    """`attention`; with word vectors (`n_dimensions` above 0), `attention+words`."""

    def __init__(self, n_heads: int, n_edges: int, n_dimensions: int = 0) -> None:
        super().__init__()
        self.reads_words = n_dimensions > 0
        self.weights = nn.Parameter(torch.zeros(2, n_heads))
        """`direction head`: constant part of w and u. Direction 0 is the attention from the
        candidate to the dependent (w), 1 from the dependent to the candidate (u)."""
        self.root_weights = nn.Parameter(torch.zeros(2 * n_edges, n_heads))
        """`edge head`: from the dependent to each edge token, then from each edge token."""
        self.root_bias = nn.Parameter(torch.zeros(()))
        if self.reads_words:
            self.word_weights = nn.Parameter(torch.zeros(2, 2, n_dimensions, n_heads))
            """`direction role dimension head`: roles are the candidate and the dependent."""
            self.root_word_weights = nn.Parameter(torch.zeros(2 * n_edges, n_dimensions, n_heads))

    def raw(self, batch: ProbeBatch) -> Tensor:
        """Return `sentence word candidate`; the last candidate is ROOT."""
        assert batch.attention is not None
        n = batch.attention.shape[1]
        between, edges = batch.attention[:, :, :n], batch.attention[:, :, n:]
        if not self.reads_words:
            by_direction = between @ self.weights.T
            root = (edges * self.root_weights).sum((2, 3))
        else:
            vectors = batch.vectors
            assert vectors is not None
            (w_candidate, w_dependent), (u_candidate, u_dependent) = self.word_weights
            # a[p, q]: in direction 0 word p is the candidate and q the dependent, in 1 p is the
            # dependent. Weights are sums of a part of p and a part of q: no pair has its own.
            by_row = torch.stack((vectors @ w_candidate, vectors @ u_dependent), -1)
            by_row = by_row + self.weights.T
            by_column = torch.stack((vectors @ w_dependent, vectors @ u_candidate), -1)
            by_direction = between @ by_row
            by_direction = by_direction + (between.transpose(1, 2) @ by_column).transpose(1, 2)
            by_edge = torch.einsum("bnd,edk->bnek", vectors, self.root_word_weights)
            root = (edges * (by_edge + self.root_weights)).sum((2, 3))
        scores = by_direction[..., 0].transpose(1, 2) + by_direction[..., 1]
        return torch.cat((scores, (root + self.root_bias)[:, :, None]), dim=2)

    def rescale(self, scales: Mapping[str, Tensor]) -> None:
        """Divide the weights by the scales of attention and of word vectors."""
        with torch.no_grad():
            self.weights.div_(scales["between"])
            self.root_weights.div_(scales["edges"])
            if self.reads_words:
                self.word_weights.div_(scales["between"] * scales["vectors"])
                self.root_word_weights.div_(scales["edges"][:, None] * scales["vectors"])


class DistanceScorer(Scorer):
    """`distance+words`: reads words and their order, without attention."""

    reads_attention = False

    def __init__(self, n_dimensions: int, n_hidden: int = N_HIDDEN) -> None:
        super().__init__()
        self.word_weights = nn.Parameter(torch.empty(2, n_dimensions, n_hidden))
        """`role dimension unit`: roles are the candidate and the dependent."""
        self.distance_weights = nn.Parameter(torch.empty(2 + len(NEAR), n_hidden))
        """`feature unit`: log distance ahead, log distance behind, then an indicator per NEAR."""
        self.root_vector = nn.Parameter(torch.empty(n_hidden))
        self.bias = nn.Parameter(torch.zeros(n_hidden))
        self.out_weights = nn.Parameter(torch.empty(n_hidden))
        # Vectors have a length of 1 for both words together; features are not scaled.
        nn.init.normal_(self.word_weights, std=1.0)
        nn.init.normal_(self.root_vector, std=1.0)
        nn.init.normal_(self.distance_weights, std=len(self.distance_weights) ** -0.5)
        nn.init.normal_(self.out_weights, std=n_hidden**-0.5)

    def raw(self, batch: ProbeBatch) -> Tensor:
        """Return `sentence word candidate`; the last candidate is ROOT."""
        vectors = batch.vectors
        assert vectors is not None
        candidate = vectors @ self.word_weights[0]
        dependent = vectors @ self.word_weights[1] + self.bias
        distance = distance_features(vectors.shape[1]).to(vectors) @ self.distance_weights
        hidden = candidate[:, None] + dependent[:, :, None] + distance
        scores = torch.tanh(hidden) @ self.out_weights
        root = torch.tanh(dependent + self.root_vector) @ self.out_weights
        return torch.cat((scores, root[:, :, None]), dim=2)

    def rescale(self, scales: Mapping[str, Tensor]) -> None:
        """Divide the weights of words by the scale of word vectors."""
        with torch.no_grad():
            self.word_weights.div_(scales["vectors"])


def distance_features(n_words: int) -> Tensor:
    """Return `dependent candidate feature`: log(1 + words ahead), log(1 + words behind), and an
    indicator for each offset of NEAR. The authors divide the distance by the length.
    """
    place = torch.arange(n_words)
    offset = place[None, :] - place[:, None]
    far = torch.stack((offset.clamp(min=0), (-offset).clamp(min=0)), -1).float().log1p()
    near = torch.stack([offset == value for value in NEAR], -1).float()
    return torch.cat((far, near), -1)


def make_scorer(kind: str, *, n_heads: int, n_edges: int, n_dimensions: int) -> Scorer:
    """Return an untrained scorer."""
    if kind == "attention":
        return AttentionScorer(n_heads, n_edges)
    if kind == "attention+words":
        return AttentionScorer(n_heads, n_edges, n_dimensions)
    if kind == "distance+words":
        return DistanceScorer(n_dimensions)
    raise UnknownName.of("kind of probe", kind, PROBE_KINDS)


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
    attention = vectors = None
    if examples.source is not None:
        tables = examples.source.take(numbers)
        length, columns, n_heads = tables[0].shape
        attention = torch.zeros(len(numbers), n, n + columns - length, n_heads)
        for row, table in enumerate(tables):
            length = len(table)
            values = torch.from_numpy(np.asarray(table, dtype=np.float32))
            attention[row, :length, :length] = values[:, :length]
            attention[row, :length, n:] = values[:, length:]
        if scales is not None:
            attention[:, :, :n] /= scales["between"]
            attention[:, :, n:] /= scales["edges"]
    if examples.vectors is not None and examples.rows is not None:
        vectors = torch.zeros(len(numbers), n, examples.vectors.shape[1])
        for row, number in enumerate(numbers):
            rows = torch.from_numpy(examples.rows[number])
            vectors[row, : len(rows)] = examples.vectors[rows]
        vectors = vectors if scales is None else vectors / scales["vectors"]
    return ProbeBatch(candidates, targets, attention, vectors)


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
