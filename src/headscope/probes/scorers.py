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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from headscope.errors import UnknownName

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
    """`sentence word dimension`."""


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
