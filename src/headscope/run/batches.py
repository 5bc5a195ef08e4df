"""From documents to batches: tokens, model inputs, and what metrics know about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscope.arguments import whole_number
from headscope.batch import Axes, Batch
from headscope.errors import InputError
from headscope.measuring.contract import LayersMetric, Metric
from headscope.measuring.labels import Labeler, Tokenized
from headscope.model.encode import joins_pairs
from headscope.model.model import Model
from headscope.model.readable import readable, spelling_of
from headscope.model.tracing import decoder_start
from headscope.run.options import Settings
from headscope.run.plan import Numbered, Plan, document_key, group_of
from headscope.text.document import Document
from headscope.text.segment import SECOND
from headscope.text.token_classes import class_members, class_names

__all__ = ["EncodedDocument", "Encoder", "key_classes_of", "special_names", "token_limit"]

INPUTS = ("input_ids", "token_type_ids")
MOST_WEIGHTS = {"cpu": 1 << 20}
"""Attention weights of a layer in one batch, by device: 4 MB, which caches hold."""
MOST_WEIGHTS_ELSEWHERE = 1 << 24
ENOUGH_TOKENS = 768
NO_LIMIT = 1 << 30
MOST_STRETCH = 1.15


@dataclass(frozen=True, slots=True, eq=False)
class EncodedDocument:
    """A document as the model takes it."""

    numbered: Numbered
    stacks: dict[str, Tokenized]
    inputs: dict[str, list[int]]
    n_cut: int

    @property
    def length(self) -> int:
        """Tokens of the longest stack."""
        return max(len(tokens) for tokens in self.stacks.values())


class Encoder:
    """Makes batches for one model.

    Args:
        model: the model.
        axes: numbers the labels.
        settings: how documents are cut, labeled and batched.
        metrics: what batches are for: some need smaller ones.
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
    ) -> None:
        self.model = model
        self.settings = settings
        self._is_compiled = is_compiled
        self._facts = facts or {}
        self._axes = axes
        self._classes = axes.key_classes
        self._tokenizer: Any = model.need_tokenizer()
        self._labeler = Labeler(axes, settings.tagset)
        self._has_decoder = "decoder" in model.info.blocks
        self._start = decoder_start(model) if self._has_decoder else None
        limits = [settings.max_tokens, model.info.max_length]
        self._max_tokens = min(limit for limit in limits if limit is not None)
        self._n_heads = model.info.n_heads
        couples = any(isinstance(metric, LayersMetric) for metric in metrics)
        # What compares layers keeps all of them for a batch: four layers' worth of memory.
        layers = max(1, model.info.n_layers // 4) if couples else 1
        most = MOST_WEIGHTS.get(model.module.device.type, MOST_WEIGHTS_ELSEWHERE)
        self._most_weights = most // layers
        pad = self._tokenizer.pad_token_id
        self._pad = 0 if pad is None else int(pad)
        self._spelling: Any = None
        self._shown: dict[int, str] = {}
        self._joins_pairs = joins_pairs(self._tokenizer)

    @classmethod
    def of(cls, model: Model, plan: Plan) -> Encoder:
        """The encoder of a plan."""
        return cls(
            model,
            plan.axes,
            plan.settings,
            plan.metrics,
            is_compiled=plan.is_compiled,
            facts=plan.facts,
        )

    def encode(self, documents: Sequence[Numbered]) -> list[EncodedDocument]:
        """Tokenize documents. Encoder-decoders read the document on both sides, as in
        denoising, unless its meta names another `target`.
        """
        texts = [document.text for _, document in documents]
        seconds = [self._second(document) for _, document in documents]
        sources = self._tokenize(texts, seconds)
        if not self._has_decoder:
            return [
                EncodedDocument(numbered, {"self": tokens}, inputs, n_cut)
                for numbered, (tokens, inputs, n_cut) in zip(documents, sources, strict=True)
            ]
        targets = [document.meta.get("target", document.text) for _, document in documents]
        aims = self._tokenize(targets, as_target=True)
        found = []
        for numbered, source, aim in zip(documents, sources, aims, strict=True):
            tokens, inputs, n_cut = source
            own = "target" not in numbered[1].meta
            shifted, ids = self._shift(aim[0], aim[1]["input_ids"], own)
            both = {**inputs, "decoder_input_ids": ids}
            stacks = {"encoder": tokens, "decoder": shifted}
            found.append(EncodedDocument(numbered, stacks, both, max(n_cut, aim[2])))
        return found

    def _second(self, document: Document) -> int | None:
        """Where the second span of a segment starts, if the tokenizer keeps spans apart."""
        at = document.meta.get(SECOND)
        return None if at is None or self._has_decoder or not self._joins_pairs else int(at)

    def _tokenize(
        self,
        texts: list[str],
        seconds: Sequence[int | None] | None = None,
        *,
        as_target: bool = False,
    ) -> list[tuple[Tokenized, dict[str, list[int]], int]]:
        seconds = seconds if seconds is not None else [None] * len(texts)
        rows = [row for row, at in enumerate(seconds) if at is None]
        encoding: Any = self._call([texts[row] for row in rows], as_target) if rows else {}
        place = {row: index for index, row in enumerate(rows)}
        found = []
        for row, (text, at) in enumerate(zip(texts, seconds, strict=True)):
            one, index = (
                (encoding, place[row]) if at is None else (self._call_pair(text, at, None), 0)
            )
            n_all = len(one["input_ids"][index])
            if n_all > self._max_tokens:
                one = (
                    self._call([text], as_target, self._max_tokens)
                    if at is None
                    else self._call_pair(text, at, self._max_tokens)
                )
                index = 0
            special = np.array(one["special_tokens_mask"][index], dtype=bool)
            offsets = None
            if "offset_mapping" in one:
                offsets = np.array(one["offset_mapping"][index], dtype=np.int64).reshape(-1, 2)
                if at is not None:
                    is_second = np.array([s == 1 for s in one.sequence_ids(index)])
                    offsets[is_second] += at
            inputs = {name: one[name][index] for name in INPUTS if name in one}
            ids = np.array(inputs["input_ids"], dtype=np.int64)
            classes = class_members(self._readable(inputs["input_ids"]), special, self._classes)
            found.append((Tokenized(special, offsets, ids, classes), inputs, n_all - len(special)))
        return found

    def _call_pair(self, text: str, at: int, max_length: int | None) -> Any:
        first, second = text[:at].rstrip(), text[at:]
        return self._tokenizer([first], [second], **self._options(max_length))

    def _call(self, texts: list[str], as_target: bool, max_length: int | None = None) -> Any:
        options = self._options(max_length)
        if as_target:
            return self._tokenizer(text_target=texts, **options)
        return self._tokenizer(texts, **options)

    def _options(self, max_length: int | None) -> dict[str, Any]:
        options: dict[str, Any] = {
            "return_special_tokens_mask": True,
            "return_offsets_mapping": self._tokenizer.is_fast,
            "return_attention_mask": False,
            "verbose": False,
            "truncation": max_length is not None,
        }
        if max_length is not None:
            options["max_length"] = max_length
        return options

    def _readable(self, ids: Sequence[int]) -> list[str]:
        """Tokens as people read them, each looked up once."""
        unseen = [token for token in dict.fromkeys(ids) if token not in self._shown]
        if unseen:
            if self._spelling is None:
                self._spelling = spelling_of(self._tokenizer)
            spelled = readable(
                self._tokenizer.convert_ids_to_tokens(unseen),
                self._spelling,
                self._tokenizer.all_special_tokens,
            )
            self._shown.update(zip(unseen, spelled, strict=True))
        return [self._shown[token] for token in ids]

    def _shift(self, aim: Tokenized, ids: list[int], own: bool) -> tuple[Tokenized, list[int]]:
        """What the decoder reads to predict the target: its start, and all but the last."""
        special = np.concatenate(([True], aim.special[:-1]))
        assert self._start is not None
        shifted = [self._start, *ids[:-1]]
        offsets = None
        if own and aim.offsets is not None:
            offsets = np.concatenate((np.zeros((1, 2), dtype=np.int64), aim.offsets[:-1]))
        classes = class_members(self._readable(shifted), special, self._classes)
        return Tokenized(special, offsets, np.array(shifted), classes), shifted

    def batches(self, documents: Sequence[EncodedDocument]) -> Iterator[list[EncodedDocument]]:
        """Documents of similar length together, longest first: what later batches need then
        fits into memory that earlier ones have left.
        """
        batch: list[EncodedDocument] = []
        for document in sorted(documents, key=lambda d: (-d.length, d.numbered[0])):
            n, length = len(batch) + 1, batch[0].length if batch else document.length
            is_full = n * length > self.settings.batch_tokens
            is_large = n * length**2 * self._n_heads > self._most_weights
            # Padding costs as much as text: a batch that fills a core takes no shorter ones.
            is_enough = (n - 1) * length > ENOUGH_TOKENS
            is_shorter = length > MOST_STRETCH * document.length + 2
            if batch and (is_full or is_large or (is_enough and is_shorter)):
                yield batch
                batch = []
            batch.append(document)
        if batch:
            yield batch

    def batch(self, documents: Sequence[EncodedDocument]) -> tuple[dict[str, Tensor], Batch]:
        """Model inputs, padded at the right, and the batch metrics see."""
        inputs: dict[str, Tensor] = {}
        for name in documents[0].inputs:
            fill = self._pad if name.endswith("input_ids") else 0
            inputs[name] = _padded([d.inputs[name] for d in documents], fill)
        for stack, name in (("self", ""), ("encoder", ""), ("decoder", "decoder_")):
            if stack in documents[0].stacks:
                ones = [[1] * len(d.stacks[stack]) for d in documents]
                inputs[f"{name}attention_mask"] = _padded(ones, 0)
        plain = [d.numbered[1] for d in documents]
        stacks = {
            stack: self._labeler.sequences(plain, [d.stacks[stack] for d in documents])
            for stack in documents[0].stacks
        }
        keys, parts = [], []
        for document in plain:
            key, number = document_key(document)
            group = self._axes.groups.index(group_of(document, self.settings.by))
            per = self._axes.parts_per_group
            keys.append(key)
            parts.append(group * per + number % per)
        numbers = np.array([d.numbered[0] for d in documents], dtype=np.float64)
        is_cut = np.array([d.n_cut > 0 for d in documents])
        return inputs, Batch(
            self._axes,
            stacks,
            numbers,
            np.array(keys),
            np.array(parts, dtype=np.int64),
            self.settings.null_keys,
            documents=tuple(plain),
            is_cut=is_cut if is_cut.any() else None,
            is_compiled=self._is_compiled,
            facts=self._facts,
        )

    def shown(self, document: EncodedDocument) -> dict[str, tuple[str, ...]]:
        """The tokens of each stack, as people read them."""
        names = {"self": "input_ids", "encoder": "input_ids", "decoder": "decoder_input_ids"}
        return {
            stack: tuple(self._readable(document.inputs[names[stack]])) for stack in document.stacks
        }


def key_classes_of(model: Model) -> tuple[str, ...]:
    """The classes of keys that a model's tokens fall into."""
    return class_names(special_names(model.need_tokenizer()))


def token_limit(model: Model, max_tokens: int | None) -> int:
    """How many tokens of a document are read: so many, or what the model takes.

    Raises:
        InputError: not one token of a text would fit beside the special ones.
    """
    asked = NO_LIMIT if max_tokens is None else whole_number("max_tokens", max_tokens)
    limit = min(asked, model.info.max_length or asked)
    special = int(model.need_tokenizer().num_special_tokens_to_add(pair=False))
    if limit <= special:
        raise InputError(
            f"max_tokens={limit} leaves no room for text beside the {special} special tokens of "
            f"{model.name}. Give at least {special + 1}."
        )
    return limit


def special_names(tokenizer: Any) -> tuple[str, ...]:
    """The special tokens that a tokenizer adds to texts, in the order they come."""
    texts = ("a", "a") if joins_pairs(tokenizer) else ("a",)
    encoding = tokenizer(*texts, return_special_tokens_mask=True)
    ids = [
        token
        for token, is_special in zip(
            encoding["input_ids"], encoding["special_tokens_mask"], strict=True
        )
        if is_special
    ]
    return tuple(dict.fromkeys(tokenizer.convert_ids_to_tokens(ids)))


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    longest = max(len(row) for row in rows)
    array = np.full((len(rows), longest), fill, dtype=np.int64)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return torch.from_numpy(array)
