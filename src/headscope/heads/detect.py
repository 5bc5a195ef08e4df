"""Induction, duplicate-token and previous-token heads, on random tokens repeated once.

Text is full of cues; a sequence of random tokens followed by itself has one. Scores are those of
Olsson et al. 2022 and Wang et al. 2022.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from headscope.arguments import whole_number
from headscope.batch import Axes, Batch, Sequences
from headscope.errors import InputError
from headscope.metrics.core.accumulator import Accumulator
from headscope.metrics.core.contract import Metric
from headscope.metrics.core.finalize import finalize_all, label_states
from headscope.metrics.core.registry import metric_to_dict
from headscope.metrics.induction import DuplicateToken, Induction
from headscope.metrics.surface import OffsetShare, SinkRate, TokensPerDocument
from headscope.model.identity import describe_model, versions
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.result import Result
from headscope.results.steps import with_previous

ROWS_AT_ONCE = 4


def detect_heads(
    model: Model | str,
    *,
    sequences: int = 16,
    length: int = 32,
    words: bool = False,
    seed: int = 0,
) -> Result:
    """Score each head on random token sequences repeated once.

    Tokens are drawn without replacement from the vocabulary, special ones left out; an
    encoder's special tokens are put around them.

    With `words`, whole words are drawn and repeated in another order: equal words then share no
    neighbors. Some heads find duplicates in short sequences of words alone (`length=12`).

    Args:
        model: the model, or what `headscope.load` takes; not an encoder-decoder.
        sequences: how many sequences.
        length: tokens of what is repeated; inputs are twice as long.
        words: draw whole words, and repeat them in another order.
        seed: of the drawn tokens.

    Returns:
        A result, as `analyze` gives: `induction` (not with `words`), `duplicate_token`,
        `previous_token` and `sink_rate` over layer and head, with 95 % intervals over sequences.
    """
    model = as_model(model)
    if "decoder" in model.info.blocks:
        raise InputError(
            f"{model.name} is an encoder-decoder; heads are detected in models with one stack "
            "of layers."
        )
    for name, value in (("sequences", sequences), ("length", length)):
        whole_number(name, value)
    whole_number("seed", seed, 0)
    ids, special = _draw(model, sequences, length, words, seed)
    if model.info.max_length is not None and ids.shape[1] > model.info.max_length:
        raise InputError(
            f"A sequence of {length} tokens, repeated, makes {ids.shape[1]}; {model.name} takes "
            f"at most {model.info.max_length}. Give a smaller length."
        )
    metrics: tuple[Metric, ...] = (TokensPerDocument(), OffsetShare(), SinkRate(), DuplicateToken())
    if not words:
        metrics += (Induction(),)
    accumulator = Accumulator(metrics)
    axes = Axes(buckets_per_group=sequences)
    for start in range(0, sequences, ROWS_AT_ONCE):
        rows = ids[start : start + ROWS_AT_ONCE]
        numbers = np.arange(start, start + len(rows))
        mask = np.ones(rows.shape, dtype=bool)
        marks = np.broadcast_to(special, rows.shape).copy()
        stack = replace(Sequences.plain(mask, marks), ids=rows)
        batch = Batch(axes, {"self": stack}, numbers, numbers / sequences, numbers)
        inputs = {"input_ids": torch.from_numpy(rows), "attention_mask": torch.ones(rows.shape)}
        inputs["attention_mask"] = inputs["attention_mask"].long()
        with accumulator.batch(batch) as read:
            model.read(inputs, read)
    states = accumulator.states()
    blocks = finalize_all(states, metrics, axes, accumulator.layers())
    found = Result(
        blocks,
        label_states(states, metrics),
        {
            "model": describe_model(model),
            "corpus": {
                "name": f"{sequences} random sequences of {length} "
                + ("words, repeated in another order" if words else "tokens, repeated once"),
                "unit": "sequence",
                "documents": sequences,
                "hash": hashlib.sha256(ids.tobytes()).hexdigest(),
            },
            "counts": {"documents": sequences, "tokens": int(ids.size)},
            "settings": {"max_tokens": int(ids.shape[1]), "over": "attention", "seed": seed},
            "metrics": [metric_to_dict(metric) for metric in metrics],
            "axes": axes.to_dict(),
            "versions": versions(),
        },
    )
    return with_previous(found)


def _draw(
    model: Model, sequences: int, length: int, words: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`sequence token` ids, and which positions hold special tokens."""
    tokenizer = model.require_tokenizer()
    added = set(tokenizer.all_special_ids)
    vocabulary = np.array([i for i in range(len(tokenizer)) if i not in added], dtype=np.int64)
    if words:
        spelled = tokenizer.convert_ids_to_tokens(vocabulary.tolist())
        vocabulary = vocabulary[_are_words(spelled)]
    if len(vocabulary) < length:
        kind = "whole words" if words else "tokens that are not special"
        raise InputError(
            f"length is {length}, but the vocabulary has only {len(vocabulary)} {kind}, and none "
            "is drawn twice."
        )
    generator = np.random.default_rng(seed)
    encoding = tokenizer("a", return_special_tokens_mask=True)
    marks = np.array(encoding["special_tokens_mask"], dtype=bool)
    around = np.array(encoding["input_ids"], dtype=np.int64)
    plain = np.flatnonzero(~marks)
    before, after = around[: plain[0]], around[plain[-1] + 1 :]
    rows = []
    for _ in range(sequences):
        once = generator.choice(vocabulary, length, replace=False)
        again = generator.permutation(once) if words else once
        rows.append(np.concatenate((before, once, again, after)))
    special = np.zeros(len(rows[0]), dtype=bool)
    special[: len(before)] = True
    special[len(rows[0]) - len(after) :] = True
    return np.stack(rows), special


def _are_words(spelled: Sequence[str]) -> np.ndarray:
    """Return which tokens are lower-case words of three letters or more, by the mark of their kind
    of tokenizer: a leading space (byte-level BPE, SentencePiece), `</w>` at the end (the first GPT,
    XLM), or no `##` (WordPiece).
    """
    kinds = ("Ġ", ""), ("▁", ""), ("", "</w>")
    marked = (
        (start, end)
        for start, end in kinds
        if sum(t.startswith(start) and t.endswith(end) for t in spelled) > len(spelled) / 10
    )
    start, end = next(marked, ("", ""))
    pattern = re.compile(f"{start}[a-z]{{3,}}{end}")
    return np.array([bool(pattern.fullmatch(token)) for token in spelled], dtype=bool)
