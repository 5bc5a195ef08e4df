"""Record every attention computation of a forward pass and match the reference maps by value.

`proved_site` proves on a recording all that a site states beyond its weights.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from headscope.attention import BlockName
from headscope.model.tap.interface import EagerFunction, intercepted
from headscope.model.tap.interrupts import held
from headscope.model.tap.sites import Site
from headscope.model.tap.watch import (
    MANY_HEADS,
    SDPA,
    SOFTMAX,
    Args,
    Kwargs,
    TorchFunction,
    Watch,
    ending_watches,
    unfold,
    watching,
)


@dataclass(slots=True)
class Recording:
    """One recorded attention computation; vectors may have `batch·head` on one axis."""

    module: str
    occurrence: int
    computation: int
    weights: Tensor
    scores: Tensor | None
    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    output: Tensor | None
    scale: float | None
    n_products: int
    """Batched products in the scores."""

    @property
    def place(self) -> tuple[str, int, int]:
        """Module, its call, and the computation within the call."""
        return self.module, self.occurrence, self.computation

    @property
    def is_complete(self) -> bool:
        """True if the weights were multiplied with values, as in attention."""
        return self.value is not None and self.weights.ndim >= 3


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded forward pass."""

    recordings: list[Recording]
    outputs: ModelOutput
    n_softmaxes: int
    """All softmaxes over at least three axes, recorded or not."""


class _Count(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_function__(
        self, func: TorchFunction, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.n += func in (SDPA, MANY_HEADS) or (func in SOFTMAX and result.ndim >= 3)
        return result


def record_interface(root: PreTrainedModel, inputs: Mapping[str, object]) -> Run:
    """Run the model and record every call through transformers' interface."""
    modules = dict(root.named_modules())
    names = {id(module): name for name, module in modules.items()}
    thread = threading.current_thread()
    calls: Counter[str] = Counter()
    recordings: list[Recording] = []

    def record(
        function: EagerFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: object,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if threading.current_thread() is not thread:
            return function(module, query, key, value, *args, **kwargs)
        place = names[id(module)], calls[names[id(module)]], 0
        calls[place[0]] += 1
        with Watch() as watch:
            output, weights = function(module, query, key, value, *args, **kwargs)
        if len(watch.steps) != 1 or weights is None or watch.steps[0].value is None:
            return output, weights  # not one softmax and one product: a case for the fallback
        vectors = query, key, value, output.transpose(1, 2) if output.ndim == 4 else None
        scores, scale = watch.steps[0].scores, kwargs.get("scaling")
        recordings.append(Recording(*place, weights, scores, *vectors, scale, n_products=1))
        return output, weights

    with intercepted(modules.values(), record), _Count() as count:
        outputs = root(**inputs)
    return Run(recordings, outputs, count.n)


def record_fallback(root: PreTrainedModel, inputs: Mapping[str, object]) -> Run:
    """Run the model and record every softmax inside any module."""
    recordings: list[Recording] = []
    calls: Counter[str] = Counter()
    thread = threading.current_thread()

    def start() -> Watch | None:
        return Watch() if threading.current_thread() is thread else None

    def keep(module: str, watch: Watch) -> None:
        for index, steps in enumerate(watch.steps):
            assert steps.weights is not None
            vectors = steps.query, steps.key, steps.value, steps.output
            scale = steps.products[0].scale if steps.products else None
            place, n_products = (module, calls[module], index), len(steps.products)
            recordings.append(
                Recording(*place, steps.weights, steps.scores, *vectors, scale, n_products)
            )
        calls[module] += 1

    @contextmanager
    @held
    def watching_all() -> Iterator[None]:
        with ending_watches(), ExitStack() as stack:
            for name, module in root.named_modules():
                # A bare nn.Softmax is part of the module that holds it.
                if name and not type(module).__module__.startswith("torch.nn."):
                    stack.enter_context(watching(module, start, partial(keep, name)))
            yield

    with watching_all():
        outputs = root(**inputs)
    # Every module around a softmax records it; the innermost returns first.
    unique: dict[int, Recording] = {}
    for recording in recordings:
        unique.setdefault(id(recording.scores), recording)
    return Run([*unique.values()], outputs, len(unique))


REL_TOL = 1e-4
"""Maximum difference of equal tensors, relative to the larger of 1 and their size. Exact equality
is expected and reported; some families recompute in another precision or return a cast."""
Against = Literal["weights", "scores", "averages", "nothing"]


@dataclass(slots=True)
class Match:
    """A reference map and the computation that made it."""

    block: BlockName
    recording: Recording
    difference: float
    against: Against
    copies: list[Recording] = field(default_factory=list)
    """Computations of the same module that repeat this map for other values (the two halves of
    differential attention)."""


def is_close(difference: float, size: float = 1.0) -> bool:
    """True if a maximum difference is within REL_TOL of the maximum size of what is compared."""
    return difference <= REL_TOL * max(1.0, size)


def match_maps(
    reference: Mapping[BlockName, Sequence[Tensor]], recordings: Sequence[Recording]
) -> tuple[list[Match], list[Recording]] | None:
    """Match maps to recordings by value; return matches and the rest, None if a map is missing."""
    left = list(recordings)
    matches = []
    for block, maps in reference.items():
        for target in maps:
            best = _nearest(target, left)
            if best is None:
                return None
            index, difference, against = best
            recording = left.pop(index)
            if recording.weights.shape != target.shape:  # `batch·head` on one axis
                vectors = {
                    name: unfold(getattr(recording, name), target.shape[1])
                    for name in ("scores", "query", "key", "value", "output")
                }
                weights = recording.weights.reshape(target.shape)
                recording = replace(recording, weights=weights, **vectors)
            matches.append(Match(block, recording, difference, against))
    for matched in matches:
        module, weights = matched.recording.module, matched.recording.weights
        matched.copies = [x for x in left if x.module == module and equals(x.weights, weights)]
        left = [other for other in left if other not in matched.copies]
    return matches, left


def equals(weights: Tensor, target: Tensor) -> bool:
    """True if two maps are bit-equal, in any layout of heads."""
    return (
        weights.numel() == target.numel()
        and weights.shape[-2:] == target.shape[-2:]
        and bool(torch.equal(weights.reshape(target.shape), target))
    )


def _nearest(target: Tensor, recordings: Sequence[Recording]) -> tuple[int, float, Against] | None:
    """Return index, difference and form of the recording nearest to a reference map."""
    best: tuple[int, float, Against] | None = None
    candidates: list[tuple[Against, Tensor]] = [("weights", target)]
    are_weights = bool((target >= 0).all()) and bool((target.sum(-1) <= 1 + 1e-3).all())
    if not are_weights:
        candidates.append(("scores", torch.softmax(target.float(), -1)))
    if target.ndim == 4 and torch.equal(target[:, 1:], target[:, :-1]):
        candidates.append(("averages", target))
    for against, expected in candidates:
        for index, recording in enumerate(recordings):
            weights = recording.weights
            if weights.numel() != target.numel() or weights.shape[-2:] != target.shape[-2:]:
                continue
            weights = weights.reshape(target.shape)
            if against == "averages":
                weights = weights.mean(1, keepdim=True)
            difference = float((weights - expected).abs().nan_to_num().max())
            if is_close(difference) and (best is None or difference < best[1]):
                best = (index, difference, against)
            if difference == 0:
                return best
    return best


VECTOR_REL_TOL = 1e-3
"""Relative to the largest number compared: products are taken in another order here."""
MAX_ULPS = 2.0
"""Units in the last place of the model's own numbers, for half precision."""


def proved_site(match: Match, layer: int) -> Site:
    """Return the site of a match with all properties that its recording proves."""
    recording = match.recording
    n_heads = int(recording.weights.shape[1])
    n_queries, n_keys = recording.weights.shape[-2:]
    query, key = recording.query, recording.key
    is_queries = query is not None and query.shape[1:-1] == (n_heads, n_queries)
    is_keys = key is not None and key.ndim == 4 and not n_heads % key.shape[1]
    if key is None or not is_queries or not is_keys or key.shape[2] != n_keys:
        query = key = None
    value = _proved_value(recording, n_heads) if not match.copies else None
    fitted, is_all = _fit_scale(recording, query, key)
    scale = recording.scale if recording.scale is not None else fitted
    vectors = key if key is not None else value
    return Site(
        block=match.block,
        layer=layer,
        module=recording.module,
        occurrence=recording.occurrence,
        computation=recording.computation,
        n_heads=n_heads,
        n_groups=None if vectors is None else int(vectors.shape[1]),
        head_size=None if key is None else int(key.shape[-1]),
        value_size=None if value is None else int(value.shape[-1]),
        scale=scale if scale is None else float(scale),
        is_dot_product=scale is not None and is_all,
        can_edit_vectors=key is not None and recording.n_products == 1,
        has_scores=_softmax_is_weights(recording),
    )


def repeated(vectors: Tensor, n_heads: int) -> Tensor:
    """Repeat keys or values of each group for all its heads: `batch head … …`."""
    return vectors.repeat_interleave(n_heads // vectors.shape[1], 1)


def is_causal(weights: Tensor) -> bool:
    """True if no query attends to a later key; NaN does not decide."""
    n_queries, n_keys = weights.shape[-2:]
    return n_queries == n_keys and n_keys > 1 and not weights.nan_to_num(0).triu(1).any().item()


def _proved_value(recording: Recording, n_heads: int) -> Tensor | None:
    """Return the values if weights times values equal the head outputs."""
    value, output, weights = recording.value, recording.output, recording.weights
    if value is None or value.ndim != 4 or n_heads % value.shape[1]:
        return None
    if output is None or output.ndim != 4 or weights.shape[-1] != value.shape[2]:
        return None
    computed = weights.double() @ repeated(value, n_heads).double()
    is_proved = computed.shape == output.shape and _are_close(computed, output)
    return value if is_proved else None


def _softmax_is_weights(recording: Recording) -> bool:
    """True if the attention is the softmax of the scores (with the sink logit, if any)."""
    scores, weights = recording.scores, recording.weights
    if scores is None or scores.shape[:-1] != weights.shape[:-1]:
        return False
    n_sinks = scores.shape[-1] - weights.shape[-1]
    computed = torch.softmax(scores.double(), -1)[..., : weights.shape[-1]]
    return n_sinks in (0, 1) and _are_close(computed, weights)


def _are_close(computed: Tensor, expected: Tensor) -> bool:
    """True if a product in float64 equals the model's within the precision of its type."""
    size = max(float(expected.abs().nan_to_num().max()), 1e-12)
    difference = float((computed - expected.double()).abs().nan_to_num().max())
    return difference <= max(VECTOR_REL_TOL, MAX_ULPS * torch.finfo(expected.dtype).eps) * size


def _fit_scale(
    recording: Recording, query: Tensor | None, key: Tensor | None
) -> tuple[float | None, bool]:
    """Return the factor on q·k in the scores, and whether the scores contain nothing else.

    A position bias is the same in both rows of the example, so the rows differ by `scale` times
    the difference of their q·k. With one row, a bias and a factor that does not fit look alike.
    """
    scores, weights = recording.scores, recording.weights
    if query is None or key is None or scores is None or scores.shape != weights.shape:
        return None, False
    dots = query.double() @ repeated(key, query.shape[1]).double().transpose(-1, -2)
    scores = scores.double()
    seen = (weights > 0).all(0)
    x, y = (t[0] - t[1] if len(t) > 1 else t[0] for t in (dots, scores))
    x, y = x[seen], y[seen]
    if x.square().sum() == 0:
        return None, False
    scale = float((x @ y) / (x @ x))
    size = float(y.abs().max())
    if float((y - scale * x).abs().max()) > VECTOR_REL_TOL * size:
        return None, False
    rest = (scores - scale * dots)[:, seen]
    return scale, float(rest.abs().max()) <= VECTOR_REL_TOL * max(size, 1e-12)


def is_tower(block: BlockName) -> bool:
    """True for a tower, whose rows may be tiles rather than documents."""
    return block in ("text", "vision", "audio")
