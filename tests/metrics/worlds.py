"""Small worlds to measure: random attention over random annotated documents."""

from __future__ import annotations

import numpy as np
import torch

from headscope.attention import Attention
from headscope.batch import Axes, Batch, Sequences
from headscope.text.document import Document, Mention
from headscope.text.token_classes import class_members, class_names
from tests.metrics.slow import Case

TAGS = ("ADJ", "NOUN", "VERB")
RELATIONS = ("det", "nsubj", "obj", "root")
TOKENS = ("[CLS]", "[SEP]", "cat", "dog", "the", ".", ",", "!", "##ing")
KEY_CLASSES = class_names(("[CLS]", "[SEP]"))


def make_cases(
    seed: int,
    n: int,
    *,
    is_causal: bool,
    layers: int = 2,
    heads: int = 3,
    longest: int = 14,
    dtype: type = np.float64,
    annotated: bool = True,
) -> list[Case]:
    """Documents of 1 to `longest` tokens; encoders have a special token at both ends."""
    generator = np.random.default_rng(seed)
    cases = []
    for number in range(n):
        size = int(generator.integers(1, longest + 1))
        special = [False] * size if is_causal else [True, *[False] * size, True]
        length = len(special)
        scores = generator.normal(0, 2, (layers, heads, length, length))
        scores[..., 0] += generator.normal(2, 2, (layers, heads, 1))
        if is_causal:
            scores[..., ~np.tril(np.ones((length, length), dtype=bool))] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = (weights / weights.sum(-1, keepdims=True)).astype(dtype)
        case = Case(weights, special, is_causal)
        drawn = np.random.default_rng([seed, number]).integers(2, len(TOKENS), length)
        case.tokens = [TOKENS[i] for i in drawn]
        if not is_causal:
            case.tokens[0], case.tokens[-1] = "[CLS]", "[SEP]"
        # Every third document has no annotations; some tokens belong to no word.
        if annotated and number % 3 != 2:
            word_of = np.repeat(np.arange(size), generator.integers(1, 3, size))[:size]
            n_words = int(word_of[-1]) + 1
            parents = [int(generator.integers(0, n_words)) for _ in range(n_words)]
            parents = [p if p != w else -1 for w, p in enumerate(parents)]
            for w, p in enumerate(parents):  # no two words are each other's head
                if p >= 0 and parents[p] == w:
                    parents[w] = -1
            tag = [str(generator.choice(TAGS)) for _ in range(n_words)]
            relation = [str(generator.choice(RELATIONS)) for _ in range(n_words)]
            words = [int(w) for w in word_of]
            if size > 4:
                words[3] = -1
            edge = [] if is_causal else [-1]
            words = [*edge, *words, *edge]
            case.words = words
            case.tags = [tag[w] if w >= 0 else None for w in words]
            case.heads = [parents[w] if w >= 0 else -1 for w in words]
            case.relations = [relation[w] if w >= 0 else None for w in words]
        cases.append(case)
    return cases


def make_batch(
    cases: list[Case],
    *,
    first_number: int = 0,
    extra_padding: int = 0,
    numbers: list[int] | None = None,
    buckets_per_group: int = 5,
) -> Batch:
    """The batch of these cases, padded at the right."""
    longest = max(case.n for case in cases) + extra_padding
    shape = len(cases), longest
    arrays = {name: np.full(shape, -1, dtype=np.int64) for name in ("words", "parents")}
    tags, relations = np.full(shape, -1, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    mask, special = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    ids = np.full(shape, -1, dtype=np.int64)
    classes = np.zeros((*shape, len(KEY_CLASSES)), dtype=bool)
    for row, case in enumerate(cases):
        mask[row, : case.n] = True
        special[row, : case.n] = case.special
        ids[row, : case.n] = [TOKENS.index(token) for token in case.tokens]
        classes[row, : case.n] = class_members(
            case.tokens, np.array(case.special, dtype=bool), KEY_CLASSES
        )
        if case.words is None:
            continue
        arrays["words"][row, : case.n] = case.words
        arrays["parents"][row, : case.n] = case.heads
        tags[row, : case.n] = [TAGS.index(t) if t else -1 for t in case.tags]
        relations[row, : case.n] = [RELATIONS.index(r) if r else -1 for r in case.relations]
    annotated = np.array([case.words is not None for case in cases])
    sequences = Sequences(
        mask=mask,
        special=special,
        tags=tags,
        relations=relations,
        is_tagged=annotated,
        is_parsed=annotated,
        ids=ids,
        classes=classes,
        **arrays,
    )
    found = np.array(
        numbers if numbers is not None else range(first_number, first_number + len(cases)),
        dtype=np.float64,
    )
    return Batch(
        Axes(TAGS, RELATIONS, buckets_per_group=buckets_per_group, key_classes=KEY_CLASSES),
        {"self": sequences},
        found,
        np.mod(found * 0.6180339887498949, 1.0),
        np.mod(found.astype(np.int64) * 7, buckets_per_group),
        losses=np.stack([found + 1.5, np.mod(found, 3) + 1], axis=-1),
        documents=tuple(map(make_document, cases)),
    )


def make_document(case: Case) -> Document:
    """The words of a case, with mentions drawn from its own first weights."""
    n = 0 if case.words is None else max(case.words) + 1
    generator = np.random.default_rng((case.attention.ravel()[:4] * 1e6).astype(np.int64))
    words = [str(word) for word in generator.choice(["he", "cat", "Mary", "dogs", "she"], n)]
    ends = np.cumsum([len(word) + 1 for word in words], dtype=np.int64)
    mentions = []
    for _ in range(n):
        start = int(generator.integers(0, n))
        stop = min(n, start + int(generator.integers(1, 4)))
        mentions.append(Mention(str(generator.integers(0, 3)), ((start, stop),)))
    return Document(
        id="case",
        text=" ".join(words),
        words=tuple(words),
        spans=tuple((int(e) - len(w) - 1, int(e) - 1) for e, w in zip(ends, words, strict=True)),
        mentions=tuple(mentions),
        meta={"condition": str(generator.choice(["pro", "anti"]))},
    )


def attentions(cases: list[Case], batch: Batch, garbage: float = 0.25) -> list[Attention]:
    """The layers of a batch; rows and columns of padding hold garbage and zeros."""
    length = batch.stacks["self"].mask.shape[1]
    layers = []
    for layer in range(cases[0].attention.shape[0]):
        weights = np.zeros(
            (len(cases), cases[0].attention.shape[1], length, length), cases[0].attention.dtype
        )
        for row, case in enumerate(cases):
            weights[row, :, : case.n, : case.n] = case.attention[layer]
            weights[row, :, case.n :, :] = garbage
        tensor = torch.from_numpy(weights)
        layers.append(
            Attention(
                tensor,
                "self",
                layer,
                cases[0].is_causal,
                gradients=torch.sin(7 * tensor),  # of either sign, and not 0 where weights are
            )
        )
    return layers
