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
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from headscope.arguments import whole_number
from headscope.batch import Axes, Batch
from headscope.errors import InputError
from headscope.metrics.core.contract import LayersMetric
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
    inputs: Mapping[str, Sequence[int]]
    """Model inputs, without batch axis and padding."""
    n_cut: int
    """Number of tokens cut; the maximum over stacks."""

    @property
    def length(self) -> int:
        """Tokens of the longest stack."""
        return max(len(tokens) for tokens in self.stacks.values())


class Encoder:
    """Maker of batches for one model, with rules for labeling, cutting and batching documents."""

    def __init__(
        self,
        model: Model,
        axes: Axes,
        settings: Settings,
        plan: Plan | None = None,
    ) -> None:
        self.model = model
        self.settings = settings
        self._axes = axes
        self._plan = plan
        self._rows = plan.rows if plan and plan.rows else NO_LIMIT
        self._tokenizer = model.require_tokenizer()
        self._labeler = Labeler(axes, settings.tagset, settings.max_word_tokens)
        self._has_decoder = "decoder" in model.info.blocks
        self._start = decoder_start(model) if self._has_decoder else -1
        limits = [settings.max_tokens, model.info.max_length]
        self._max_tokens = min(limit for limit in limits if limit is not None)
        self._n_heads = model.info.n_heads
        # Metrics that compare layers keep all layers of a batch, so batches are smaller.
        couples = plan is not None and any(isinstance(m, LayersMetric) for m in plan.metrics)
        layers = max(1, model.info.n_layers // 4) if couples else 1
        self._max_weights = max_weights(model.module.device) // layers
        pad = self._tokenizer.pad_token_id
        self._pad = 0 if pad is None else int(pad)
        self._speller = Speller(self._tokenizer)
        self._joins_pairs = joins_pairs(self._tokenizer)

    @classmethod
    def of(cls, model: Model, plan: Plan) -> Encoder:
        """Create the encoder of a plan."""
        return cls(model, plan.axes, plan.settings, plan)

    def encode(self, documents: Sequence[Numbered]) -> list[EncodedDocument]:
        """Tokenize documents. Encoder-decoders read the document on both sides, as in
        denoising, unless its meta names another `target`.
        """
        whole = [document.text for _, document in documents]
        seconds = [self._second(document) for _, document in documents]
        spans = list(zip(whole, seconds, strict=True))
        texts = [text if at is None else text[:at].rstrip() for text, at in spans]
        pairs = [None if at is None else text[at:] for text, at in spans]
        encode = partial(
            encode_texts, self._tokenizer, max_length=self._max_tokens, speller=self._speller
        )
        encoded = encode(texts, pairs)
        found = []
        if not self._has_decoder:
            for numbered, source, at in zip(documents, encoded, seconds, strict=True):
                tokens = source.tokens
                tokens = tokens if at is None else tokens.joined(numbered[1].text, at)
                found.append(
                    EncodedDocument(numbered, {"self": tokens}, source.inputs, source.n_cut)
                )
            return found
        targets = encode([d.meta.get("target", d.text) for _, d in documents], as_target=True)
        for numbered, source, target in zip(documents, encoded, targets, strict=True):
            decoder = shifted_target(target, self._start, self._speller)
            stacks = {"encoder": source.tokens, "decoder": decoder}
            inputs = {**source.inputs, "decoder_input_ids": decoder.ids}
            n_cut = max(source.n_cut, target.n_cut)
            found.append(EncodedDocument(numbered, stacks, inputs, n_cut))
        return found

    def _second(self, document: Document) -> int | None:
        """Return the start of a segment's second span, if the tokenizer separates pairs."""
        start = document.meta.get(SECOND)
        is_pair = self._joins_pairs and not self._has_decoder
        return int(start) if start is not None and is_pair else None

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
        numbered, is_cut = [d.numbered for d in documents], [d.n_cut > 0 for d in documents]
        batch = label_batch(
            numbered, stacks, self._axes, self.settings, is_cut=is_cut, labeler=self._labeler
        )
        if (plan := self._plan) is None:
            return inputs, batch
        facts, last_hashes = plan.facts, plan.last_hashes
        compiled = plan.is_compiled
        return inputs, replace(batch, is_compiled=compiled, facts=facts, last_hashes=last_hashes)


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
    numbers, plain = zip(*documents, strict=True)
    keys, hashes = zip(*map(document_key, plain), strict=True)
    groups = (group_of(document, settings.by) for document in plain)
    return Batch(
        axes,
        {stack: labeler.sequences(plain, tokens) for stack, tokens in stacks.items()},
        np.array(numbers, dtype=np.float64),
        np.array(keys),
        np.array(list(map(axes.bucket_of, groups, hashes)), dtype=np.int64),
        settings.null_keys,
        documents=plain,
        is_cut=np.array(is_cut) if any(is_cut) else None,
    )


def max_weights(device: torch.device) -> int:
    """Return the maximum attention weights of one layer in one batch on a device. On a GPU it
    depends on total memory: last bits of sums are the same on all GPUs of one kind.
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
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=fill)


def offsets_by(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], Sequence[Span]]:
    """Return a function from a text to the spans of its tokens, without special ones."""
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    return lambda text: tokenizer(text, **options)["offset_mapping"]


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
