"""Checks that every metric passes, for the tests of packages with their own metrics.

A test is one line: `headscope.testing.check_metric(MyMetric())`.
"""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from headscope.arguments import expect
from headscope.attention import Attention, BlockName
from headscope.batch import Axes, Batch, Sequences
from headscope.errors import InputError
from headscope.lazy import torch
from headscope.metrics.core.accumulator import Accumulator, measure_layer
from headscope.metrics.core.contract import LayersMetric, Metric, RatioMetric, State, SumMetric
from headscope.metrics.core.layer_data import LayerData
from headscope.metrics.core.registry import find_metrics, metric_from_dict, metric_to_dict
from headscope.text.document import Document, Mention
from headscope.text.tokens import class_members, class_names

TAGS = ("ADJ", "NOUN", "VERB")
RELATIONS = ("det", "nsubj", "obj", "root")
TOKENS = ("[CLS]", "[SEP]", "cat", "dog", "the", ".", ",", "!", "##ing")
KEY_CLASSES = class_names(("[CLS]", "[SEP]"))
N_HEADS, N_DOCUMENTS = 3, 12
REL_TOL, ABS_TOL = 1e-12, 1e-13
"""Tolerances for sums in another order."""


def check_metric(metric: Metric, seed: int = 7) -> None:
    """Raise AssertionError if a metric breaks a rule that headscope relies on.

    Measures random attention over random annotated documents, causal and bidirectional. The rules
    are the functions in `CHECKS`. The metric is registered, as `analyze` does it.
    """
    expect("metric", metric, Metric, "a metric, such as MyMetric()")
    for is_causal in (False, True):
        sample = MetricSample(metric, is_causal, seed)
        for check in CHECKS:
            try:
                check(sample)
            except InputError as error:
                raise AssertionError(f"{type(metric).__name__}: {error}") from error


@dataclass
class RandomDocument:
    """Random attention over the tokens of one document, and their labels."""

    attention: np.ndarray
    """`layer head query key`, without padding."""
    special: list[bool]
    is_causal: bool
    words: list[int] | None = None
    tags: list[str | None] | None = None
    parents: list[int] | None = None
    """Parent of each token's word."""
    relations: list[str | None] | None = None
    tokens: list[str] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of tokens."""
        return len(self.special)


def random_documents(
    seed: int,
    n: int,
    *,
    is_causal: bool,
    layers: int = 2,
    heads: int = N_HEADS,
    longest: int = 14,
    dtype: type = np.float64,
    annotated: bool = True,
) -> list[RandomDocument]:
    """Draw documents of 1 to `longest` tokens; encoders have a special token at both ends. Every
    third document lacks annotations, and some tokens belong to no word.
    """
    generator = np.random.default_rng(seed)
    documents = []
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
        document = RandomDocument(weights, special, is_causal)
        drawn = np.random.default_rng([seed, number]).integers(2, len(TOKENS), length)
        document.tokens = [TOKENS[i] for i in drawn]
        if not is_causal:
            document.tokens[0], document.tokens[-1] = "[CLS]", "[SEP]"
        if annotated and number % 3 != 2:
            _annotate(document, size, generator)
        documents.append(document)
    return documents


def _annotate(document: RandomDocument, size: int, generator: np.random.Generator) -> None:
    word_of = np.repeat(np.arange(size), generator.integers(1, 3, size))[:size]
    n_words = int(word_of[-1]) + 1
    drawn = [int(generator.integers(0, n_words)) for _ in range(n_words)]
    parents = [parent if parent != word else -1 for word, parent in enumerate(drawn)]
    for word, parent in enumerate(parents):  # two words are not each other's parent
        if parent >= 0 and parents[parent] == word:
            parents[word] = -1
    tags = [str(generator.choice(TAGS)) for _ in range(n_words)]
    relations = [str(generator.choice(RELATIONS)) for _ in range(n_words)]
    words = word_of.tolist()
    if size > 4:
        words[3] = -1
    edge = [] if document.is_causal else [-1]
    document.words = [*edge, *words, *edge]
    document.tags = [tags[w] if w >= 0 else None for w in document.words]
    document.parents = [parents[w] if w >= 0 else -1 for w in document.words]
    document.relations = [relations[w] if w >= 0 else None for w in document.words]


def make_batch(
    documents: Sequence[RandomDocument],
    *,
    first_number: int = 0,
    extra_padding: int = 0,
    numbers: Sequence[int] | None = None,
    buckets_per_group: int = 5,
    block: BlockName = "self",
) -> Batch:
    """Return the batch of these documents, padded at the right."""
    shape = len(documents), max(document.n for document in documents) + extra_padding
    names = ("words", "parents", "tags", "relations", "ids")
    arrays = {name: np.full(shape, -1, dtype=np.int64) for name in names}
    mask, special = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    classes = np.zeros((*shape, len(KEY_CLASSES)), dtype=bool)
    numbers_of = {label: i for labels in (TAGS, RELATIONS) for i, label in enumerate(labels)}
    for row, document in enumerate(documents):
        n = document.n
        mask[row, :n] = True
        special[row, :n] = document.special
        arrays["ids"][row, :n] = [TOKENS.index(token) for token in document.tokens]
        classes[row, :n] = class_members(document.tokens, special[row, :n], KEY_CLASSES)
        if document.words is not None and document.parents is not None:
            arrays["words"][row, :n] = document.words
            arrays["parents"][row, :n] = document.parents
            for name, labels in (("tags", document.tags), ("relations", document.relations)):
                arrays[name][row, :n] = [numbers_of.get(label or "", -1) for label in labels or ()]
    has = np.array([document.words is not None for document in documents])
    sequences = Sequences(mask, special, is_tagged=has, is_parsed=has, classes=classes, **arrays)
    if numbers is None:
        numbers = range(first_number, first_number + len(documents))
    number = np.array(numbers, dtype=np.float64)
    stacks = ("encoder", "decoder") if block == "cross" else (block,)
    return Batch(
        Axes(TAGS, RELATIONS, buckets_per_group=buckets_per_group, key_classes=KEY_CLASSES),
        dict.fromkeys(stacks, sequences),
        number,
        np.mod(number * 0.6180339887498949, 1.0),
        np.mod(number.astype(np.int64) * 7, buckets_per_group),
        losses=np.stack([number + 1.5, np.mod(number, 3) + 1], axis=-1),
        documents=tuple(map(_with_mentions, documents)),
    )


def _with_mentions(document: RandomDocument) -> Document:
    n = 0 if document.words is None else max(document.words) + 1
    generator = np.random.default_rng((document.attention.ravel()[:4] * 1e6).astype(np.int64))
    words = [str(word) for word in generator.choice(["he", "cat", "Mary", "dogs", "she"], n)]
    mentions = []
    for _ in range(n):
        start = int(generator.integers(0, n))
        stop = min(n, start + int(generator.integers(1, 4)))
        mentions.append(Mention(str(generator.integers(0, 3)), ((start, stop),)))
    condition = str(generator.choice(["pro", "anti"]))
    return Document.from_words(words, "case", mentions=mentions, meta={"condition": condition})


def make_attention(
    documents: Sequence[RandomDocument], batch: Batch, garbage: float = 0.25
) -> list[Attention]:
    """Return the layers of a batch; rows of padding hold garbage, columns zeros."""
    block = cast("BlockName", "cross" if len(batch.stacks) > 1 else next(iter(batch.stacks)))
    length = batch.query_sequences(block).mask.shape[1]
    first = documents[0]
    n_layers, n_heads = first.attention.shape[:2]
    shape = n_layers, len(documents), n_heads, length, length
    weights = torch.zeros(shape, dtype=torch.from_numpy(first.attention).dtype)
    for row, document in enumerate(documents):
        weights[:, row, :, : document.n, : document.n] = torch.from_numpy(document.attention)
        weights[:, row, :, document.n :, :] = garbage
    # Gradients are of either sign, and not 0 where weights are.
    return [
        Attention(layer, block, number, first.is_causal, gradients=torch.sin(7 * layer))
        for number, layer in enumerate(weights)
    ]


class MetricSample:
    """One metric and twelve random documents to measure."""

    def __init__(self, metric: Metric, is_causal: bool = False, seed: int = 7) -> None:
        self.metric = metric
        self.documents = random_documents(seed, N_DOCUMENTS, is_causal=is_causal)
        preferred: tuple[BlockName, ...] = ("self", "encoder", "decoder", "cross")
        self.block: BlockName = next((b for b in preferred if b in metric.blocks), "self")

    @cached_property
    def facts(self) -> dict[str, Counter[str]]:
        """Counts over the corpus that the metric asks for."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in self.metric.facts}
        for document in make_batch(self.documents).documents:
            for name, count in self.metric.facts.items():
                counts[name].update(count(document))
        return counts

    @cached_property
    def axes(self) -> Axes:
        """Labels of the axes."""
        return make_batch(self.documents).axes

    def batch(self, numbers: Sequence[int], padding: int = 0) -> Batch:
        """Return the batch of the documents with these numbers."""
        documents = [self.documents[n] for n in numbers]
        batch = make_batch(documents, numbers=numbers, extra_padding=padding, block=self.block)
        return replace(batch, facts=self.facts)

    def state(self, numbers: Sequence[int], padding: int = 0) -> State:
        """Measure some documents in one batch, and return the state of both layers."""
        accumulator = Accumulator([self.metric])
        batch = self.batch(numbers, padding)
        with accumulator.batch(batch) as read:
            for attention in make_attention([self.documents[n] for n in numbers], batch):
                read(attention)
        return accumulator.states()[self.block][self.metric.name]

    def zero(self) -> State:
        """Return the state of no documents, for both layers."""
        empty = self.metric.zero(N_HEADS, self.axes, is_causal=self.documents[0].is_causal)
        if self.metric.scope == "text" or isinstance(self.metric, LayersMetric):
            return empty
        return {name: np.stack([array, array]) for name, array in empty.items()}

    def require(self, condition: object, message: str) -> None:
        """Raise AssertionError with the metric's name if the condition is false."""
        if not condition:
            raise AssertionError(f"{self.metric.name}: {message}")

    def require_same(self, left: State, right: State, rule: str, *, bits: bool = False) -> None:
        """Raise AssertionError if two states differ; sums may differ by rounding."""
        self.require(left.keys() == right.keys(), f"{rule} (arrays {[*left]} and {[*right]})")
        rtol, atol = (0.0, 0.0) if bits else (REL_TOL, ABS_TOL)
        for name in left:
            shapes = left[name].shape, right[name].shape
            self.require(shapes[0] == shapes[1], f"{rule} ({name} has the shapes {shapes})")
            is_same = np.allclose(left[name], right[name], rtol, atol, equal_nan=True)
            with np.errstate(invalid="ignore"):
                largest = np.max(np.abs(left[name] - right[name]), initial=0)
            self.require(is_same, f"{rule} ({name} differs by up to {largest:.3g})")


def check_description(sample: MetricSample) -> None:
    """Check that the registry accepts the metric, and that plans and files can hold it."""
    metric = sample.metric
    try:
        find_metrics(metric, metric.needs)
        again = metric_from_dict(metric_to_dict(metric))
    except InputError as error:
        raise AssertionError(f"{type(metric).__name__}: {error}") from error
    sample.require(again == metric, f"options should survive JSON, but {metric} became {again}")
    try:
        copy = pickle.loads(pickle.dumps(metric))
    except (pickle.PicklingError, AttributeError) as error:
        raise AssertionError(
            f"{metric.name}: workers cannot unpickle it ({error}). Define its class at the top "
            "level of a module."
        ) from error
    sample.require(copy == metric, "a pickled metric should equal the original")


def check_zero(sample: MetricSample) -> None:
    """Check that `zero` is the identity of `merge`."""
    merge, state, zero = sample.metric.merge, sample.state([0, 1, 2]), sample.zero()
    rule = "merging with `zero` should change nothing"
    sample.require_same(merge([state, zero]), state, rule, bits=True)
    sample.require_same(merge([zero, state]), state, rule, bits=True)


def check_merge(sample: MetricSample) -> None:
    """Check that `merge` is commutative and associative, and may work in place."""
    merge = sample.metric.merge
    a, b, c = sample.state([0, 1]), sample.state([2, 3, 4]), sample.state([5])
    both = merge([a, b])
    sample.require_same(both, merge([b, a]), "merge([a, b]) should equal merge([b, a])", bits=True)
    left, right = merge([both, c]), merge([a, merge([b, c])])
    sample.require_same(left, right, "merge should be associative")
    sample.require_same(left, merge([a, b, c]), "merge([a, b, c]) should equal merging in turn")
    copy = pickle.loads(pickle.dumps(b))
    rule = "merge(in_place=True) should equal merge and leave its other states unchanged"
    sample.require_same(merge([a, b], in_place=True), both, rule, bits=True)
    sample.require_same(b, copy, rule, bits=True)


def check_sharding(sample: MetricSample) -> None:
    """Check that any division of the corpus into batches and shards gives the same state."""
    merge = sample.metric.merge
    whole = merge([sample.state(range(N_DOCUMENTS)), sample.zero()])
    generator = np.random.default_rng(1)
    for _ in range(4):
        order = [int(n) for n in generator.permutation(N_DOCUMENTS)]
        cuts = sorted({0, N_DOCUMENTS, *(int(n) for n in generator.integers(1, N_DOCUMENTS, 3))})
        total = sample.zero()
        for start, stop in itertools.pairwise(cuts):
            total = merge([total, sample.state(order[start:stop])])
        sample.require_same(total, whole, "any sharding should equal the whole")


def check_batching(sample: MetricSample) -> None:
    """Check that padding and the order of documents change nothing."""
    plain, padded = sample.state(range(8)), sample.state(range(8), padding=5)
    sample.require_same(plain, padded, "padding should change nothing")
    orders = [0, 1, 2, 3], [3, 1, 2, 0]
    forward, backward = (sample.metric.merge([sample.state(o), sample.zero()]) for o in orders)
    rule = "the order of documents in a batch should change nothing"
    sample.require_same(forward, backward, rule)


def check_inputs(sample: MetricSample) -> None:
    """Check that measuring, merging and finalizing leave their inputs unchanged."""
    metric, numbers = sample.metric, range(N_DOCUMENTS)
    batch = sample.batch(numbers)
    layer = make_attention(sample.documents, batch)[0]
    weights, stacks = layer.weights.clone(), pickle.dumps(batch.stacks)
    measure_layer(metric, LayerData(layer, batch))
    sample.require((layer.weights == weights).all(), "the weights should be left unchanged")
    sample.require(pickle.dumps(batch.stacks) == stacks, "the batch should be left unchanged")
    a, b = sample.state([0, 1]), sample.state([2])
    copies = pickle.loads(pickle.dumps((a, b)))
    metric.merge([a, b])
    metric.finalize(a, batch.axes)
    rule = "`merge` and `finalize` should leave states unchanged"
    for state, copy in zip((a, b), copies, strict=True):
        sample.require_same(state, copy, rule, bits=True)


def check_state(sample: MetricSample) -> None:
    """Check that a state is a dict of arrays that pickles; sums are float64."""
    state = sample.state([0, 1])
    is_sum = isinstance(sample.metric, RatioMetric | SumMetric)
    for name, array in state.items():
        sample.require(isinstance(array, np.ndarray), f"{name} should be an array: {array!r}")
        is_exact = not is_sum or array.dtype == np.float64
        sample.require(is_exact, f"{name} is {array.dtype}, but sums should be float64")
    again = pickle.loads(pickle.dumps(state))
    sample.require_same(again, state, "a pickled state should equal the original", bits=True)


def check_nothing_measured(sample: MetricSample) -> None:
    """Check that nothing measured is NaN with a count of 0; -1 for numbers of documents."""
    for name, array in sample.metric.finalize(sample.zero(), sample.axes).items():
        is_count = name.endswith("_count") or "cases" in name
        is_empty = (array == 0).all() if is_count else np.isnan(array).all() or (array == -1).all()
        expected = "0" if is_count else "NaN"
        rule = f"{name} of no documents should be {expected}, not {array.flat[:3]}"
        sample.require(is_empty, rule)


def check_axes(sample: MetricSample) -> None:
    """Check that `finalize` returns what `variables` describes."""
    metric = sample.metric
    values = metric.finalize(sample.state([0, 1]), sample.axes)
    variables = {variable.name: variable for variable in metric.variables()}
    rule = f"`finalize` returns {sorted(values)}, but `variables` describes {sorted(variables)}"
    sample.require(values.keys() == variables.keys(), rule)
    sizes = dict.fromkeys(("layer", "layer_a", "layer_b"), 2)
    sizes |= dict.fromkeys(("head", "head_a", "head_b"), N_HEADS)
    sizes |= {dim: len(labels) for dim, labels in metric.coordinates(sample.axes).items()}
    for name, array in values.items():
        dims = variables[name].dims
        expected = tuple(sizes.get(dim, -1) for dim in dims)
        rule = f"{name} {dims} has the shape {array.shape}, not {expected}"
        sample.require(array.shape == expected, rule)


def check_jackknife(sample: MetricSample) -> None:
    """Check that leave-one-out changes are what the values lose without each bucket."""
    metric, axes = sample.metric, sample.axes
    state = sample.state(range(N_DOCUMENTS))
    values = metric.finalize(state, axes)
    jackknives = metric.jackknives(state, axes, np.arange(axes.n_buckets))
    is_given = bool(jackknives) or not isinstance(metric, RatioMetric)
    sample.require(is_given, "a ratio should have a jackknife")
    pooled = metric.jackknives(state, axes, np.arange(axes.n_buckets) % 2)
    for name, estimate in (*jackknives.items(), *pooled.items()):
        is_same = np.allclose(estimate.value, values[name], REL_TOL, ABS_TOL, equal_nan=True)
        sample.require(is_same, f"the jackknife of {name} has another value than `finalize`")
    for name, estimate in pooled.items():
        sample.require(len(estimate.deltas) == 2, f"{name} should pool buckets by `units`")
    buckets = sample.batch(range(N_DOCUMENTS)).buckets
    for bucket in (0, 3):
        rest = metric.finalize(sample.state(np.flatnonzero(buckets != bucket).tolist()), axes)
        for name in jackknives.keys() - {"baseline"}:  # another offset may then be best
            change = values[name] - rest[name]
            is_finite = np.isfinite(change)
            deltas = jackknives[name].deltas[bucket]
            is_same = np.allclose(deltas[is_finite], change[is_finite], 0, 1e-6)
            sample.require(is_same, f"deltas of {name} are not its change without bucket {bucket}")


CHECKS: tuple[Callable[[MetricSample], None], ...] = (
    check_description,
    check_zero,
    check_merge,
    check_batching,
    check_sharding,
    check_inputs,
    check_state,
    check_nothing_measured,
    check_axes,
    check_jackknife,
)
"""The rules, each a function that raises AssertionError."""
