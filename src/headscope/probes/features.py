"""Inputs of trained probes: treebanks, and attention between words in memory-mapped stores.

A sentence of n words is one array `word column head`. Columns 0 … n-1 are the attention from the
word to each word (to a split word the sum, from it the mean; Clark et al. 2019, section 4.1).
Further columns, which score ROOT, are the attention to each *edge* token, then from each. Edges
are the first and last special token, the only special token, or the first token without any.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from headscope.atomic import atomic_folder, cache_folder
from headscope.attention import Attention
from headscope.batch import Axes
from headscope.errors import InputError
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.word_attention import word_members, word_weights
from headscope.model.identity import describe_model
from headscope.model.model import Model
from headscope.model.packaged.pinned import sha256
from headscope.model.tap.projection import NormWeights
from headscope.run.batches import EncodedDocument, Encoder, token_limit
from headscope.run.options import Over, Settings
from headscope.run.plan import Numbered
from headscope.text.corpus import Corpus
from headscope.text.document import NO_PARENT, ROOT, Document
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.tokens import align_array, is_punctuation, overlong

MAX_VALUES = 1 << 25
"""Maximum values of one batch over all layers: 128 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Surveyed:
    """Token counts of a treebank."""

    has_tokens: tuple[np.ndarray, ...]
    """For each sentence `word`: whether a token covers it."""
    tokens: int
    truncated: int
    hash: str
    """SHA-256 over the model's inputs and the word of each token. Attention between words depends
    only on these and on the model's weights."""


class AttentionReader:
    """Reader of one model's attention between words, by sentence."""

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
        """Layer and head of each input of the probe."""
        limit = token_limit(model, max_tokens)
        self.settings = Settings(max_tokens=limit, batch_tokens=batch_tokens, over=over)
        self._encoder = Encoder(model, Axes(), self.settings)
        self._start = {site.layer: self.heads.index((site.layer, 0)) for site in sites}
        document = Document("x", "x", ("x",), ((0, 1),))
        tokens = self._encoder.encode([(0, document)])[0].stacks[self.block]
        if tokens.offsets is None:
            raise InputError(
                f"The tokenizer of {self.model.name} does not return offsets, so tokens cannot be "
                "joined into words. Use a fast tokenizer."
            )
        names = (("first token",), ("special token",), ("first special", "last special"))
        self.edges: tuple[str, ...] = names[min(sum(tokens.special), 2)]

    def columns(self, n_words: int) -> int:
        """Return the number of columns of a sentence."""
        return n_words + 2 * len(self.edges)

    def survey(self, documents: Sequence[Document]) -> Surveyed:
        """Tokenize the documents, to find the words with tokens before the model runs."""
        has_tokens: list[np.ndarray] = []
        content = hashlib.sha256()
        tokens = truncated = 0
        for start in range(0, len(documents), 1024):
            numbered = list(enumerate(documents[start : start + 1024]))
            for encoded in self._encoder.encode(numbered):
                document, stack = encoded.numbered[1], encoded.stacks[self.block]
                assert stack.offsets is not None, "checked when the reader was made"
                words = align_array(stack.offsets, document.spans)
                long = overlong(document.text, stack.offsets, self.settings.max_word_tokens)
                words[np.isin(words, words[long >= 0])] = -1
                content.update(repr(sorted(encoded.inputs.items())).encode())
                content.update(f"{len(document)} {words.tolist()}".encode())
                covered = np.zeros(len(document), dtype=bool)
                covered[words[(words >= 0) & ~np.array(stack.special, dtype=bool)]] = True
                has_tokens.append(covered)
                tokens += len(stack)
                truncated += encoded.n_cut > 0
        return Surveyed(tuple(has_tokens), tokens, truncated, content.hexdigest())

    def read(self, documents: Sequence[Numbered]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield number and array (`word column head`, float32) of each document, longest first.

        Documents without tokens give zeros.
        """
        encoded = self._encoder.encode(documents)
        empty = [d for d in encoded if not len(d.stacks[self.block])]
        for document in empty:
            n = len(document.numbered[1])
            yield document.numbered[0], np.zeros((n, self.columns(n), len(self.heads)), np.float32)
        for batch in self._encoder.batches([d for d in encoded if len(d.stacks[self.block])]):
            longest = max(len(d.numbered[1]) for d in batch)
            each = longest * self.columns(longest) * len(self.heads)
            size = max(1, MAX_VALUES // max(each, 1))  # documents in memory at once
            for start in range(0, len(batch), size):
                yield from self._run(batch[start : start + size])

    def _run(self, documents: list[EncodedDocument]) -> Iterator[tuple[int, np.ndarray]]:
        inputs, batch = self._encoder.batch(documents)
        sequences = batch.stacks[self.block]
        lengths = [len(d.numbered[1]) for d in documents]
        n, n_edges = max(lengths), len(self.edges)
        values = torch.zeros(len(documents), n, n + 2 * n_edges, len(self.heads))
        special = sequences.special & sequences.mask
        ends = [special.argmax(1), special.shape[1] - 1 - special[:, ::-1].argmax(1)]
        edges = torch.from_numpy(np.stack(ends[:n_edges], axis=1))

        def read(attention: Attention) -> None:
            if attention.block != self.block:
                return
            layer_data = LayerData(attention, batch)
            words = word_weights(layer_data)
            to, from_ = edge_weights(layer_data, edges.to(words.device))
            start = self._start[attention.layer]
            heads = slice(start, start + attention.n_heads)
            w = words.shape[-1]
            values[:, :w, :w, heads] = words.permute(0, 2, 3, 1).float().cpu()
            values[:, :w, n : n + n_edges, heads] = to.permute(0, 2, 3, 1).float().cpu()
            values[:, :w, n + n_edges :, heads] = from_.permute(0, 3, 2, 1).float().cpu()

        norm_weighted = self.settings.over == "norm"
        self.model.read(inputs, NormWeights(self.model, read) if norm_weighted else read)
        array = values.numpy()
        for row, (document, length) in enumerate(zip(documents, lengths, strict=True)):
            columns = np.r_[0:length, n : n + 2 * n_edges]
            yield document.numbered[0], array[row, :length][:, columns]


def edge_weights(layer_data: LayerData, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention between words and edge tokens, whose positions are `document edge`.

    The first is `document head word edge` (to the edges: the mean over the word's tokens), the
    second `document head edge word` (from the edges: the sum).
    """
    to_words, from_words = word_members(layer_data)
    weights = layer_data.weights
    shape = (*weights.shape[:3], edges.shape[1])
    columns = weights.gather(3, edges[:, None, None].expand(shape))
    shape = (*weights.shape[:2], edges.shape[1], weights.shape[3])
    rows = weights.gather(2, edges[:, None, :, None].expand(shape))
    return from_words @ columns, rows @ to_words


NOT_COUNTED = -1
"""Target of a word that is excluded from training and scoring."""


@dataclass(frozen=True, eq=False)
class Treebank:
    """Parsed sentences, one document each."""

    name: str
    hash: str
    documents: tuple[Document, ...]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def lengths(self) -> np.ndarray:
        """`sentence`: number of words."""
        return np.array([len(document) for document in self.documents], dtype=np.int64)

    def describe(self) -> dict[str, str | int]:
        """Return name, hash and counts, for provenance."""
        return {
            "name": self.name,
            "hash": self.hash,
            "sentences": len(self),
            "words": int(self.lengths.sum()),
        }


def read_treebank(corpus: Corpus | Readable) -> Treebank:
    """Return the sentences of a parsed corpus. Documents are not cut. Raises InputError for an
    empty corpus, and for documents without parents or with several sentences.
    """
    corpus = as_corpus(corpus)
    documents = tuple(document for document in corpus if len(document))
    for document in documents:
        if document.parents is None or set(document.parents) == {NO_PARENT}:
            raise InputError(
                f"Document {document.id!r} of {corpus.name} has no trees, and a probe learns from "
                "them. Give a treebank (CoNLL-U), or parse the corpus: headscope.annotate."
            )
        if len(document.sentences) > 1:
            raise InputError(
                f"Document {document.id!r} of {corpus.name} has {len(document.sentences)} "
                "sentences, and a probe learns from one at a time. Read it by sentence: "
                'corpus.by("sentence"), or headscope.read(…, unit="sentence").'
            )
    if not documents:
        raise InputError(f"{corpus.name} has no sentences: there is nothing to learn from.")
    return Treebank(corpus.name, corpus.hash, documents)


def targets(document: Document, has_tokens: np.ndarray) -> np.ndarray:
    """Return `word`: the number of its parent, `len(document)` for ROOT, or `NOT_COUNTED` if the
    parent is unknown or the word has no token.
    """
    parents = np.asarray(document.parents, dtype=np.int64)
    numbers = np.where(parents == ROOT, len(document), parents)
    return np.where((parents == NO_PARENT) | ~has_tokens, NOT_COUNTED, numbers)


def punctuation(document: Document) -> np.ndarray:
    """Return `word`: true for punctuation, by universal tag, else relation, else characters."""
    if document.upos is not None and "_" not in document.upos:
        return np.array([tag == "PUNCT" for tag in document.upos])
    if document.relations is not None and "punct" in document.relations:
        return np.array([relation == "punct" for relation in document.relations])
    return np.array([is_punctuation(word) for word in document.words])


def right_branching(n_words: int) -> np.ndarray:
    """Return `word`: the next word; ROOT (`n_words`) for the last."""
    return np.arange(1, n_words + 1)


STORE_FORMAT = 2
MAX_STORE_BYTES = 8 << 30
"""Maximum bytes of all stores in the user's cache."""
PREFIX = "attention-"
METADATA, VALUES = "about.json", "attention.npy"
DTYPE = np.dtype(np.float16)
SENTENCES_AT_ONCE = 512


class AttentionSource(Protocol):
    """Source of the attention of a treebank's sentences."""

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """Return `word column head` of each sentence."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Streamed:
    """Source that runs the model for each request, without a store."""

    reader: AttentionReader
    treebank: Treebank

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """Return `word column head` of each sentence, float32."""
        documents = [(number, self.treebank.documents[number]) for number in numbers]
        tables = dict(self.reader.read(documents))
        return [tables[number] for number in numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Attention of a treebank in a memory-mapped file of float16, for all kinds of probes. In the
    user's cache, the least recently used stores make room for new ones.
    """

    values: np.ndarray
    """All sentences end to end."""
    shapes: tuple[tuple[int, int, int], ...]
    starts: np.ndarray

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """Return `word column head` of each sentence, as stored."""
        return [
            self.values[self.starts[n] : self.starts[n + 1]].reshape(self.shapes[n])
            for n in numbers
        ]


def store_size(reader: AttentionReader, treebank: Treebank) -> int:
    """Return the bytes of a store, before the model runs."""
    return int(_starts(_shapes(reader, treebank))[-1]) * DTYPE.itemsize


def open_store(
    reader: AttentionReader,
    treebank: Treebank,
    surveyed: Surveyed,
    folder: Path | None,
    *,
    say: Callable[[str], None] = lambda line: None,
    advance: Callable[[int], None] = lambda sentences: None,
) -> Store:
    """Open the store of a model and treebank in a folder; write it if it is missing.

    `folder=None` is the user's cache, where old stores are removed. `say` gets the size before the
    model runs, `advance` the number of sentences done. Raises InputError if the disk lacks space.
    """
    base = cache_folder() / "probes" if folder is None else folder
    base.mkdir(parents=True, exist_ok=True)
    target = base / f"{PREFIX}{_key(reader, surveyed)}"
    with FileLock(f"{target}.lock"):
        if not is_intact_store(target):
            size = store_size(reader, treebank)
            if folder is None:
                _make_room(base, size)
            free = shutil.disk_usage(base).free
            if size > free:
                raise InputError(
                    f"The attention of {len(treebank)} sentences takes {size / 1e9:.1f} GB and "
                    f"{str(base)!r} has {free / 1e9:.1f} GB free. Name another folder (cache=…), "
                    "draw fewer sentences, or pass cache=False to run the model in every epoch."
                )
            say(f"Storing attention: {size / 1e6:,.0f} MB in {target}")
            _write(reader, treebank, target, advance)
        else:
            say(f"Attention is stored: {target}")
            advance(len(treebank))
        os.utime(target)
        shapes = _shapes(reader, treebank)
        values = np.load(target / VALUES, mmap_mode="r", allow_pickle=False)
    return Store(values, shapes, _starts(shapes))


def _shapes(reader: AttentionReader, treebank: Treebank) -> tuple[tuple[int, int, int], ...]:
    n_heads = len(reader.heads)
    return tuple((int(n), reader.columns(int(n)), n_heads) for n in treebank.lengths)


def _starts(shapes: Sequence[tuple[int, int, int]]) -> np.ndarray:
    sizes = [words * columns * heads for words, columns, heads in shapes]
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def _key(reader: AttentionReader, surveyed: Surveyed) -> str:
    model = describe_model(reader.model)
    parts: dict[str, object] = {
        "format": STORE_FORMAT,
        "dtype": str(DTYPE),
        "model": {
            name: model[name] for name in ("architecture", "dtype", "weights_sha256", "edits")
        },
        "inputs": surveyed.hash,
    }
    if reader.settings.over != "attention":
        parts["over"] = reader.settings.over
    content = json.dumps(parts, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:20]


def _write(
    reader: AttentionReader, treebank: Treebank, target: Path, advance: Callable[[int], None]
) -> None:
    shapes = _shapes(reader, treebank)
    starts = _starts(shapes)
    with atomic_folder(target) as work:
        values = np.lib.format.open_memmap(
            work / VALUES, mode="w+", dtype=DTYPE, shape=(int(starts[-1]),)
        )
        numbered = list(enumerate(treebank.documents))
        for start in range(0, len(numbered), SENTENCES_AT_ONCE):
            for number, array in reader.read(numbered[start : start + SENTENCES_AT_ONCE]):
                values[starts[number] : starts[number + 1]] = array.reshape(-1)
                advance(1)
        values.flush()
        del values
        metadata = {
            "model": reader.model.name,
            "treebank": treebank.describe(),
            "files": {VALUES: sha256(work / VALUES)},
        }
        (work / METADATA).write_text(json.dumps(metadata, indent=1))


def is_intact_store(target: Path) -> bool:
    """Return whether a store has the content that was written."""
    try:
        hashes = json.loads((target / METADATA).read_text())["files"]
        return bool(hashes == {VALUES: sha256(target / VALUES)})
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _make_room(base: Path, size: int) -> None:
    stores = sorted(base.glob(f"{PREFIX}*/{VALUES}"), key=lambda file: file.parent.stat().st_mtime)
    total = sum(file.stat().st_size for file in stores)
    for file in stores:
        if total + size <= MAX_STORE_BYTES:
            break
        total -= file.stat().st_size
        shutil.rmtree(file.parent, ignore_errors=True)
