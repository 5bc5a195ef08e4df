"""What a trained probe reads: the attention of all heads between the words of a sentence.

For a sentence of n words, one array `word column head`: columns 0 … n-1 are the attention
from the word to each word (to a split word the sum, from it the mean; Clark et al. 2019,
section 4.1); then come the attention from the word to each *edge* token, and from each edge
token to the word, which score ROOT. Edges are the first and the last special token; the
only special token where there is one; the first token where the tokenizer adds none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headscope.attention import Attention
from headscope.batch import Axes, Sequences
from headscope.errors import InputError
from headscope.measuring.reading import Reading
from headscope.measuring.word_attention import word_members, word_weights
from headscope.model.model import Model
from headscope.model.norm_weights import NormWeights
from headscope.run.batches import EncodedDocument, Encoder, token_limit
from headscope.run.options import Over, Settings
from headscope.run.plan import Numbered
from headscope.text.align import align_array
from headscope.text.document import Document, Span

MOST_VALUES = 1 << 25
"""Values of one batch over all layers: 128 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Surveyed:
    """What is known of a treebank after it was tokenized."""

    has_tokens: tuple[np.ndarray, ...]
    """For each sentence `word`: does a token cover it?"""
    tokens: int
    truncated: int
    """Sentences that were cut."""
    hash: str
    """SHA-256 over the model's inputs and the word of each token. Attention between words depends
    on these and on the model's weights, and on nothing else."""


class AttentionReader:
    """Reads one model's attention between words, sentence by sentence."""

    def __init__(
        self,
        model: Model,
        *,
        max_tokens: int = 512,
        batch_tokens: int = 2048,
        over: Over = "attention",
    ) -> None:
        self.model = model
        self.block = model.wiring.main_block()
        sites = model.wiring.of_block(self.block)
        self.heads = [(site.layer, head) for site in sites for head in range(site.n_heads)]
        """Layer and head of each of the probe's inputs."""
        limit = token_limit(model, max_tokens)
        self.settings = Settings(max_tokens=limit, batch_tokens=batch_tokens, over=over)
        self._encoder = Encoder(model, Axes(), self.settings)
        self._start = {site.layer: self.heads.index((site.layer, 0)) for site in sites}
        self.edges = self._edge_names()
        """What the edge tokens are."""

    def _edge_names(self) -> tuple[str, ...]:
        document = Document("x", "x", ("x",), ((0, 1),))
        tokens = self._encoder.encode([(0, document)])[0].stacks[self.block]
        if tokens.offsets is None:
            raise InputError(
                f"The tokenizer of {self.model.name} does not tell where its tokens stand in the "
                "text, so they cannot be joined into words. Use a fast tokenizer."
            )
        n = min(sum(tokens.special), 2)
        return (("first token",), ("special token",), ("first special", "last special"))[n]

    def columns(self, n_words: int) -> int:
        """Columns of the array of a sentence."""
        return n_words + 2 * len(self.edges)

    def survey(self, documents: Sequence[Document]) -> Surveyed:
        """Tokenize the documents, to know which words have tokens before the model runs."""
        has_tokens: list[np.ndarray] = []
        content = hashlib.sha256()
        tokens = truncated = 0
        for start in range(0, len(documents), 1024):
            numbered = list(enumerate(documents[start : start + 1024]))
            for encoded in self._encoder.encode(numbered):
                document, stack = encoded.numbered[1], encoded.stacks[self.block]
                words = align_array(_offsets(stack.offsets), document.spans)
                content.update(repr(sorted(encoded.inputs.items())).encode())
                content.update(f"{len(document)} {words.tolist()}".encode())
                has = np.zeros(len(document), dtype=bool)
                has[words[(words >= 0) & ~np.array(stack.special, dtype=bool)]] = True
                has_tokens.append(has)
                tokens += len(stack)
                truncated += encoded.n_cut > 0
        return Surveyed(tuple(has_tokens), tokens, truncated, content.hexdigest())

    def read(self, documents: Sequence[Numbered]) -> Iterator[tuple[int, np.ndarray]]:
        """Number and array (`word column head`, float32) of each document, longest first.

        Documents without any token give zeros.
        """
        encoded = self._encoder.encode(documents)
        empty = [d for d in encoded if not len(d.stacks[self.block])]
        for document in empty:
            n = len(document.numbered[1])
            yield document.numbered[0], np.zeros((n, self.columns(n), len(self.heads)), np.float32)
        for batch in self._encoder.batches([d for d in encoded if len(d.stacks[self.block])]):
            for part in self._split(batch):
                yield from self._run(part)

    def _split(self, batch: list[EncodedDocument]) -> Iterator[list[EncodedDocument]]:
        longest = max(len(d.numbered[1]) for d in batch)
        each = longest * self.columns(longest) * len(self.heads)
        size = max(1, MOST_VALUES // max(each, 1))
        for start in range(0, len(batch), size):
            yield batch[start : start + size]

    def _run(self, documents: list[EncodedDocument]) -> Iterator[tuple[int, np.ndarray]]:
        inputs, batch = self._encoder.batch(documents)
        sequences = batch.stacks[self.block]
        lengths = [len(d.numbered[1]) for d in documents]
        n, n_edges = max(lengths), len(self.edges)
        values = torch.zeros(len(documents), n, n + 2 * n_edges, len(self.heads))
        edges = torch.from_numpy(_edges(sequences, n_edges))

        def read(attention: Attention) -> None:
            if attention.block != self.block:
                return
            reading = Reading(attention, batch)
            words = word_weights(reading)
            to, from_ = edge_weights(reading, edges.to(words.device))
            start = self._start[attention.layer]
            at = slice(start, start + attention.n_heads)
            w = words.shape[-1]
            values[:, :w, :w, at] = words.permute(0, 2, 3, 1).float().cpu()
            values[:, :w, n : n + n_edges, at] = to.permute(0, 2, 3, 1).float().cpu()
            values[:, :w, n + n_edges :, at] = from_.permute(0, 3, 2, 1).float().cpu()

        by_norm = self.settings.over == "norm"
        self.model.read(inputs, NormWeights(self.model, read) if by_norm else read)
        array = values.numpy()
        for row, (document, length) in enumerate(zip(documents, lengths, strict=True)):
            columns = np.r_[0:length, n : n + 2 * n_edges]
            yield document.numbered[0], array[row, :length][:, columns]


def edge_weights(reading: Reading, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Attention between words and edge tokens: a word's tokens are joined as between words.

    Args:
        reading: one layer.
        edges: `document edge`, the position of each edge token.

    Returns:
        `document head word edge` (to the edges: the mean over the word's tokens) and
        `document head edge word` (from the edges: the sum).
    """
    to_words, from_words = word_members(reading)
    weights = reading.weights
    shape = (*weights.shape[:3], edges.shape[1])
    columns = weights.gather(3, edges[:, None, None].expand(shape))
    shape = (*weights.shape[:2], edges.shape[1], weights.shape[3])
    rows = weights.gather(2, edges[:, None, :, None].expand(shape))
    return from_words @ columns, rows @ to_words


def _edges(sequences: Sequences, n_edges: int) -> np.ndarray:
    """`document edge`: positions of the edge tokens."""
    n = sequences.mask.shape[1]
    special = sequences.special & sequences.mask
    first: np.ndarray = special.argmax(1)
    if n_edges == 1:
        return first.reshape(-1, 1)
    return np.stack((first, n - 1 - special[:, ::-1].argmax(1)), axis=1)


def _offsets(offsets: Sequence[Span] | None) -> Sequence[Span]:
    assert offsets is not None, "checked when the reader was made"
    return offsets
