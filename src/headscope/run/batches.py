"""Turn documents into batches: tokens, model inputs, and annotations for metrics.

`cut_segments` cuts a corpus into the segments of BERT's pre-training. Their length is in tokens, so
they depend on a tokenizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from headscope.arguments import whole_number
from headscope.batch import Axes, Batch
from headscope.errors import InputError
from headscope.metrics.core.contract import LayersMetric, Metric
from headscope.metrics.core.labels import Labeler
from headscope.model.encode import Speller, encode_texts, joins_pairs, shifted_target
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.tracing import decoder_start
from headscope.run.options import Settings
from headscope.run.plan import Numbered, Plan, document_key, group_of
from headscope.text.corpus import Corpus, DerivedSource
from headscope.text.document import Document, Span, Unit
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.readers.reader import ReadLog
from headscope.text.segments import SECOND, segments, windows
from headscope.text.tokens import Tokens, class_names

MAX_BATCH_WEIGHTS = {"cpu": 1 << 20}
"""Maximum attention weights of one layer in one batch, by device: 4 MB fit into the cache."""
MAX_WEIGHTS_ELSEWHERE = 1 << 24
SHARE_OF_MEMORY = 64
"""Minimum ratio of a GPU's memory to the weights of one layer."""
PER_BATCH = 128
"""Fixed cost of a batch, in tokens of padding."""
NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class EncodedDocument:
    """A document of a corpus, tokenized by `encode_texts`."""

    numbered: Numbered
    stacks: dict[str, Tokens]
    """Tokens by stack: `self`, or `encoder` and `decoder`."""
    inputs: dict[str, Sequence[int]]
    """Model inputs, without batch axis and padding."""
    n_cut: int
    """Number of tokens cut; the maximum over stacks."""

    @property
    def length(self) -> int:
        """Tokens of the longest stack."""
        return max(len(tokens) for tokens in self.stacks.values())


class Encoder:
    """Maker of batches for one model, with rules for labeling, cutting and batching documents.
    Metrics that compare layers need smaller batches.
    """

    def __init__(
        self,
        model: Model,
        axes: Axes,
        settings: Settings,
        metrics: Sequence[Metric] = (),
        *,
        is_compiled: bool = False,
        facts: Mapping[str, Mapping[str, float]] | None = None,
        last_hashes: Mapping[int, float] | None = None,
        rows: int | None = None,
    ) -> None:
        self.model = model
        self._rows = rows or NO_LIMIT
        self.settings = settings
        self._is_compiled = is_compiled
        self._facts = facts or {}
        self._last_hashes = last_hashes or {}
        self._axes = axes
        self._tokenizer = model.require_tokenizer()
        self._labeler = Labeler(axes, settings.tagset, settings.max_word_tokens)
        self._has_decoder = "decoder" in model.info.blocks
        self._start = decoder_start(model) if self._has_decoder else -1
        limits = [settings.max_tokens, model.info.max_length]
        self._max_tokens = min(limit for limit in limits if limit is not None)
        self._n_heads = model.info.n_heads
        couples = any(isinstance(metric, LayersMetric) for metric in metrics)
        # Metrics that compare layers keep all layers of a batch, so batches are smaller.
        layers = max(1, model.info.n_layers // 4) if couples else 1
        self._max_weights = max_weights(model.module.device) // layers
        pad = self._tokenizer.pad_token_id
        self._pad = 0 if pad is None else int(pad)
        self._speller = Speller(self._tokenizer)
        self._joins_pairs = joins_pairs(self._tokenizer)

    @classmethod
    def of(cls, model: Model, plan: Plan) -> Encoder:
        """Create the encoder of a plan."""
        return cls(
            model,
            plan.axes,
            plan.settings,
            plan.metrics,
            is_compiled=plan.is_compiled,
            facts=plan.facts,
            last_hashes=plan.last_hashes,
            rows=plan.rows,
        )

    def encode(self, documents: Sequence[Numbered]) -> list[EncodedDocument]:
        """Tokenize documents. Encoder-decoders read the document on both sides, as in
        denoising, unless its meta names another `target`.
        """
        texts, pairs = [], []
        for _, document in documents:
            second = self._second(document)
            is_whole = second is None
            texts.append(document.text if is_whole else document.text[:second].rstrip())
            pairs.append(None if is_whole else document.text[second:])
        encoded = encode_texts(
            self._tokenizer, texts, pairs, max_length=self._max_tokens, speller=self._speller
        )
        if not self._has_decoder:
            alone = []
            for numbered, source in zip(documents, encoded, strict=True):
                second, tokens = self._second(numbered[1]), source.tokens
                if second is not None:
                    tokens = tokens.joined(numbered[1].text, second)
                stacks = {"self": tokens}
                alone.append(EncodedDocument(numbered, stacks, {**source.inputs}, source.n_cut))
            return alone
        targets = encode_texts(
            self._tokenizer,
            [document.meta.get("target", document.text) for _, document in documents],
            max_length=self._max_tokens,
            as_target=True,
            speller=self._speller,
        )
        both = []
        for numbered, source, target in zip(documents, encoded, targets, strict=True):
            decoder = shifted_target(target, self._start, self._speller)
            stacks = {"encoder": source.tokens, "decoder": decoder}
            inputs = {**source.inputs, "decoder_input_ids": decoder.ids}
            n_cut = max(source.n_cut, target.n_cut)
            both.append(EncodedDocument(numbered, stacks, inputs, n_cut))
        return both

    def _second(self, document: Document) -> int | None:
        """Return the start of a segment's second span, if the tokenizer separates pairs."""
        start = document.meta.get(SECOND)
        if start is None or self._has_decoder or not self._joins_pairs:
            return None
        return int(start)

    def batches(self, documents: Sequence[EncodedDocument]) -> Iterator[list[EncodedDocument]]:
        """Yield batches of documents with similar lengths, longest first: later batches then fit
        into freed memory. Minimizes padding plus `PER_BATCH` tokens per batch, over all cuts of the
        sorted documents.
        """
        row = sorted(documents, key=lambda d: (-d.length, d.numbered[0]))
        lengths = [document.length for document in row]
        # By number of documents: the minimum cost, and the start of the last batch.
        costs, starts = [0], [0]
        for end in range(1, len(row) + 1):
            least, best = costs[-1] + lengths[end - 1] + PER_BATCH, end - 1
            for start in range(end - 2, -1, -1):
                n, length = end - start, lengths[start]
                pairs = n * length * min(length, self._rows)
                is_small = pairs * self._n_heads <= self._max_weights
                if not is_small or n * length > self.settings.batch_tokens:
                    break
                cost = costs[start] + n * length + PER_BATCH
                if cost < least:
                    least, best = cost, start
            costs.append(least)
            starts.append(best)
        ends = [len(row)]
        while ends[-1]:
            ends.append(starts[ends[-1]])
        for start, end in itertools.pairwise(reversed(ends)):
            yield row[start:end]

    def batch(self, documents: Sequence[EncodedDocument]) -> tuple[dict[str, Tensor], Batch]:
        """Return model inputs, padded at the right, and the batch for metrics."""
        inputs: dict[str, Tensor] = {}
        for name in documents[0].inputs:
            fill = self._pad if name.endswith("input_ids") else 0
            inputs[name] = _padded([d.inputs[name] for d in documents], fill)
        for stack, name in (("self", ""), ("encoder", ""), ("decoder", "decoder_")):
            if stack in documents[0].stacks:
                ones = [[1] * len(d.stacks[stack]) for d in documents]
                inputs[f"{name}attention_mask"] = _padded(ones, 0)
        stacks = {stack: [d.stacks[stack] for d in documents] for stack in documents[0].stacks}
        batch = label_batch(
            [d.numbered for d in documents],
            stacks,
            self._axes,
            self.settings,
            is_cut=[d.n_cut > 0 for d in documents],
            labeler=self._labeler,
        )
        return inputs, replace(
            batch, is_compiled=self._is_compiled, facts=self._facts, last_hashes=self._last_hashes
        )


def label_batch(
    documents: Sequence[Numbered],
    stacks: Mapping[str, Sequence[Tokens]],
    axes: Axes,
    settings: Settings,
    *,
    is_cut: Sequence[bool],
    labeler: Labeler | None = None,
) -> Batch:
    """Make a batch for metrics: labels of its tokens, and buckets of its documents. `stacks` are
    the tokens of each document by stack; `is_cut` says whether its end was cut.
    """
    labeler = labeler or Labeler(axes, settings.tagset, settings.max_word_tokens)
    plain = [document for _, document in documents]
    keys, buckets = [], []
    for document in plain:
        key, number = document_key(document)
        keys.append(key)
        buckets.append(axes.bucket_of(group_of(document, settings.by), number))
    return Batch(
        axes,
        {stack: labeler.sequences(plain, tokens) for stack, tokens in stacks.items()},
        np.array([number for number, _ in documents], dtype=np.float64),
        np.array(keys),
        np.array(buckets, dtype=np.int64),
        settings.null_keys,
        documents=tuple(plain),
        is_cut=np.array(is_cut) if any(is_cut) else None,
    )


def max_weights(device: torch.device) -> int:
    """Return the maximum attention weights of one layer in one batch on a device. On a GPU it
    depends on total memory: batches, and so last bits of sums, are the same on all GPUs of one
    kind.
    """
    if device.type != "cuda":
        return MAX_BATCH_WEIGHTS.get(device.type, MAX_WEIGHTS_ELSEWHERE)
    numbers = int(torch.cuda.get_device_properties(device).total_memory) // 4 // SHARE_OF_MEMORY
    return max(MAX_BATCH_WEIGHTS["cpu"], 1 << (max(numbers, 1).bit_length() - 1))


def key_classes_of(model: Model) -> tuple[str, ...]:
    """Return the classes of keys among a model's tokens."""
    return class_names(special_names(model.require_tokenizer()))


def token_limit(model: Model, max_tokens: int | None) -> int:
    """Return the maximum number of tokens of a document: the option's, or the model's limit."""
    requested = NO_LIMIT if max_tokens is None else whole_number("max_tokens", max_tokens)
    limit = min(requested, model.info.max_length or requested)
    special = int(model.require_tokenizer().num_special_tokens_to_add(pair=False))
    if limit <= special:
        raise InputError(
            f"max_tokens={limit} leaves no room for text beside the {special} special tokens of "
            f"{model.name}. Give at least {special + 1}."
        )
    return limit


def special_names(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the special tokens that a tokenizer adds to texts, in order."""
    texts = ("a", "a") if joins_pairs(tokenizer) else ("a",)
    encoding = tokenizer(*texts, return_special_tokens_mask=True)
    ids = list(itertools.compress(encoding["input_ids"], encoding["special_tokens_mask"]))
    return tuple(dict.fromkeys(tokenizer.convert_ids_to_tokens(ids)))


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    longest = max(len(row) for row in rows)
    array = np.full((len(rows), longest), fill, dtype=np.int64)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return torch.from_numpy(array)


def offsets_by(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], Sequence[Span]]:
    """Return a function from a text to the spans of its tokens, without special ones."""

    def offsets(text: str) -> Sequence[Span]:
        encoding = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        spans: Sequence[Span] = encoding["offset_mapping"]
        return spans

    return offsets


def _segments(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_tokens: int, unit: Unit, report: ReadLog
) -> Iterator[Document]:
    special = int(tokenizer.num_special_tokens_to_add(pair=joins_pairs(tokenizer)))
    cut = segments(corpus.read(report), offsets_by(tokenizer), max_tokens, special=special)
    return (segment.joined() for segment in cut)


def _windows(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, max_tokens: int, unit: Unit, report: ReadLog
) -> Iterator[Document]:
    special = int(tokenizer.num_special_tokens_to_add(pair=False))
    for document in corpus.read(report):
        yield from windows(document, offsets_by(tokenizer), max_tokens, special=special)


def cut_windows(model: Model, corpus: Corpus, max_tokens: int) -> Corpus:
    """Cut documents that are too long into overlapping windows (`headscope.text.segments`)."""
    cut = partial(_windows, corpus, model.require_tokenizer(), max_tokens)
    source = DerivedSource(f"{corpus.name}, windows of {max_tokens} tokens", cut)
    return Corpus(source, on_error=corpus.on_error, given_as=f"window of {max_tokens} tokens")


def cut_segments(model: Model | str, corpus: Corpus | Readable, max_tokens: int = 128) -> Corpus:
    """Cut a corpus into segments as in BERT's pre-training (Clark et al. 2019, section 3).

    `[CLS] first span [SEP] second span [SEP]`, token types 0 and 1, two consecutive spans of
    one document. For tokenizers without pairs (most causal models) a segment is the same text
    without separators. Either way it has at most `max_tokens` tokens.

    Args:
        model: the model whose tokenizer counts, or a source for `headscope.load`.
        corpus: whole documents (or paragraphs), or a source for `headscope.read`: files are read
            as whole documents.
        max_tokens: maximum tokens of a segment, including special ones.
    """
    whole_number("max_tokens", max_tokens)
    corpus = as_corpus(corpus, "document")
    tokenizer = as_model(model).require_tokenizer()
    cut = partial(_segments, corpus, tokenizer, max_tokens)
    source = DerivedSource(f"{corpus.name}, segments of {max_tokens} tokens", cut)
    return Corpus(source, on_error=corpus.on_error, given_as="segment")
