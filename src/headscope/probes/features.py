"""What a trained probe reads: the attention of all heads between the words of a sentence.

For a sentence of n words, one array `word column head`: columns 0 … n-1 are the attention
from the word to each word (to a split word the sum, from it the mean; Clark et al. 2019,
section 4.1); then come the attention from the word to each *edge* token, and from each edge
token to the word, which score ROOT. Edges are the first and the last special token; the
only special token where there is one; the first token where the tokenizer adds none.

Attention between words on disk, so that the model runs over a treebank only once.

There is one memory-mapped file of float16 per model and treebank, which the next kind of probe
reads again. A store appears under its name only when it is complete. In the user's cache, the
stores used longest ago are removed when a new one needs room; in another folder, all are kept.

The sentences a trained probe learns from: words, parents, and which of them count.

Plain NumPy, no attention and no model: `headscope.probes.features` tokenizes, and says which words
have tokens.
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

from headscope.atomic import atomic_folder
from headscope.attention import Attention
from headscope.batch import Axes, Sequences
from headscope.errors import InputError
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.word_attention import word_members, word_weights
from headscope.model.identity import describe_model
from headscope.model.model import Model
from headscope.model.norm_weights import NormWeights
from headscope.model.packaged.pinned import cache_folder
from headscope.run.batches import EncodedDocument, Encoder, token_limit
from headscope.run.options import Over, Settings
from headscope.run.plan import Numbered
from headscope.text.corpus import Corpus
from headscope.text.document import NO_PARENT, ROOT, Document, Span
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.token_classes import is_punctuation
from headscope.text.tokens import align_array

MAX_VALUES = 1 << 25
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
        size = max(1, MAX_VALUES // max(each, 1))
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
            reading = LayerData(attention, batch)
            words = word_weights(reading)
            to, from_ = edge_weights(reading, edges.to(words.device))
            start = self._start[attention.layer]
            at = slice(start, start + attention.n_heads)
            w = words.shape[-1]
            values[:, :w, :w, at] = words.permute(0, 2, 3, 1).float().cpu()
            values[:, :w, n : n + n_edges, at] = to.permute(0, 2, 3, 1).float().cpu()
            values[:, :w, n + n_edges :, at] = from_.permute(0, 3, 2, 1).float().cpu()

        norm_weighted = self.settings.over == "norm"
        self.model.read(inputs, NormWeights(self.model, read) if norm_weighted else read)
        array = values.numpy()
        for row, (document, length) in enumerate(zip(documents, lengths, strict=True)):
            columns = np.r_[0:length, n : n + 2 * n_edges]
            yield document.numbered[0], array[row, :length][:, columns]


def edge_weights(reading: LayerData, edges: Tensor) -> tuple[Tensor, Tensor]:
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


NOT_COUNTED = -1
"""Target of a word that is neither trained on nor scored."""


@dataclass(frozen=True, eq=False)
class Treebank:
    """Parsed sentences, each a document of its own."""

    name: str
    hash: str
    documents: tuple[Document, ...]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def lengths(self) -> np.ndarray:
        """`sentence`: how many words."""
        return np.array([len(document) for document in self.documents], dtype=np.int64)

    def describe(self) -> dict[str, str | int]:
        """For provenance."""
        return {
            "name": self.name,
            "hash": self.hash,
            "sentences": len(self),
            "words": int(self.lengths.sum()),
        }


def read_treebank(corpus: Corpus | Readable) -> Treebank:
    """The sentences of a corpus, which must be parsed. Documents are not cut.

    Raises:
        InputError: there are no sentences, a sentence has no parents, or a document has several
            sentences; the message names the document.
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
    """`word`: the number of its parent, `len(document)` for ROOT, or `NOT_COUNTED` where the
    parent is unknown or the word has no token.
    """
    parents = np.asarray(document.parents, dtype=np.int64)
    wanted = np.where(parents == ROOT, len(document), parents)
    return np.where((parents == NO_PARENT) | ~has_tokens, NOT_COUNTED, wanted)


def punctuation(document: Document) -> np.ndarray:
    """`word`: is it punctuation? By the universal tag, else the relation, else its characters."""
    if document.upos is not None and "_" not in document.upos:
        return np.array([tag == "PUNCT" for tag in document.upos])
    if document.relations is not None and "punct" in document.relations:
        return np.array([relation == "punct" for relation in document.relations])
    return np.array([is_punctuation(word) for word in document.words])


def right_branching(n_words: int) -> np.ndarray:
    """`word`: the next word; ROOT (`n_words`) for the last."""
    return np.arange(1, n_words + 1)


FORMAT = 1
MAX_BYTES = 8 << 30
"""Of all stores in the user's cache together."""
PREFIX = "attention-"
ABOUT, VALUES = "about.json", "attention.npy"
DTYPE = np.dtype(np.float16)
SENTENCES_AT_ONCE = 512


class AttentionSource(Protocol):
    """Where the attention of a treebank's sentences comes from."""

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """`word column head` of each of these sentences."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Streamed:
    """Runs the model each time it is asked: nothing is kept."""

    reader: AttentionReader
    treebank: Treebank

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """`word column head` of each of these sentences, float32."""
        documents = [(number, self.treebank.documents[number]) for number in numbers]
        tables = dict(self.reader.read(documents))
        return [tables[number] for number in numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """A treebank's attention in a file, of which only the sentences asked for are read."""

    values: np.ndarray
    """All sentences one after the other."""
    shapes: tuple[tuple[int, int, int], ...]
    starts: np.ndarray

    def take(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """`word column head` of each of these sentences, as stored."""
        return [
            self.values[self.starts[n] : self.starts[n + 1]].reshape(self.shapes[n])
            for n in numbers
        ]


def store_size(reader: AttentionReader, treebank: Treebank) -> int:
    """Bytes a store will have, known before the model runs."""
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
    """The store of a model and treebank, made if it is not there.

    Args:
        reader: reads the model.
        treebank: its sentences.
        surveyed: what the reader found of them.
        folder: where stores are; None for the user's cache, where old ones are removed.
        say: told the size before the model runs.
        advance: told how many sentences are done.

    Raises:
        InputError: the disk has not enough room.
    """
    base = cache_folder() / "probes" if folder is None else folder
    base.mkdir(parents=True, exist_ok=True)
    target = base / f"{PREFIX}{_key(reader, surveyed)}"
    with FileLock(f"{target}.lock"):
        if not _is_complete(target):
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
    """A hash of everything that the stored attention depends on."""
    model = describe_model(reader.model)
    about = {
        "format": FORMAT,
        "dtype": str(DTYPE),
        "model": {
            name: model[name] for name in ("architecture", "dtype", "weights_sha256", "edits")
        },
        "inputs": surveyed.hash,
    }
    if reader.settings.over != "attention":
        about["over"] = reader.settings.over
    content = json.dumps(about, sort_keys=True).encode()
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
        sizes = {VALUES: (work / VALUES).stat().st_size}
        about = {"model": reader.model.name, "treebank": treebank.describe(), "files": sizes}
        (work / ABOUT).write_text(json.dumps(about, indent=1))


def _is_complete(target: Path) -> bool:
    try:
        sizes = json.loads((target / ABOUT).read_text())["files"]
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _make_room(base: Path, size: int) -> None:
    """Remove the stores used longest ago until a new one fits."""
    stores = sorted(base.glob(f"{PREFIX}*/{VALUES}"), key=lambda file: file.parent.stat().st_mtime)
    held = sum(file.stat().st_size for file in stores)
    for file in stores:
        if held + size <= MAX_BYTES:
            break
        held -= file.stat().st_size
        shutil.rmtree(file.parent, ignore_errors=True)
