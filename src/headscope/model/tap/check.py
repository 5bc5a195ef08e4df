"""Find a model's attention and prove that the tap reads it right.

Before a model is trusted, it runs twice on a small random input: once as transformers
runs it, asked for its official `output_attentions`, and once with every attention
computation recorded. Each official map is then looked up among the recordings *by its
values*. That gives each computation its place (block, layer) without a word of the
model's naming, and it is the proof that what we read is what the model computes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from headscope.attention import Block
from headscope.errors import TapUnsupported
from headscope.model.tap.claims import claimed, modules_of
from headscope.model.tap.example import example_inputs, media_of
from headscope.model.tap.interface import eager_attention
from headscope.model.tap.junction import suspended
from headscope.model.tap.record import Recording, record_fallback, record_interface
from headscope.model.tap.sites import Route, Site, Wiring

OFFICIAL: dict[str, Block] = {
    "attentions": "self",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
TOLERANCE = 1e-4
"""Largest difference at which a recording still counts as the official map. Exact
equality is expected and reported; the slack is for families that recompute in another
precision, or return their attention after a cast."""


@dataclass(frozen=True, slots=True)
class Check:
    """What the self-check saw. `str()` says it in a line."""

    against: Literal["weights", "scores", "nothing"]
    """What the official output holds: attention weights, scores before the softmax
    (compared after taking it), or no attention at all (only outputs were compared)."""
    n_maps: int
    largest_difference: float
    """Between the tap's weights and the official ones."""
    output_difference: float
    """Between the model's outputs with and without the tap."""

    @property
    def is_exact(self) -> bool:
        """Bit for bit the official attention and the official output?"""
        return (
            self.against == "weights"
            and self.largest_difference == 0
            and self.output_difference == 0
        )

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.n_maps} maps, exactly the official attention and output"
        official = {
            "weights": "the official attention",
            "scores": "the softmax of the official scores",
            "nothing": "no official attention to compare with",
        }[self.against]
        compared = "" if self.against == "nothing" else f" to {self.largest_difference:.1e}"
        return (
            f"{self.n_maps} maps, {official}{compared}; "
            f"output differs by {self.output_difference:.1e}"
        )


def wire(
    root: PreTrainedModel, example: Mapping[str, object] | None = None
) -> tuple[Wiring, Check]:
    """Find every attention computation of a model and check the tap against the model's own.

    The model is checked as it is: edits in effect are suspended meanwhile.

    Args:
        root: the model.
        example: inputs to try it with, where `example_inputs` cannot make them.
    """
    family = root.config.model_type
    if getattr(root.config, "attention_type", None) == "block_sparse":
        # Its attention is dense on short inputs, like the example, and sparse on long ones.
        _refuse(
            family, "its attention is block-sparse. Load it with attention_type='original_full'"
        )
    inputs = dict(example) if example is not None else example_inputs(root)
    batch = next(x.shape[0] for x in inputs.values() if isinstance(x, Tensor))
    with (
        claimed(modules_of(root)),
        suspended(),
        torch.inference_mode(),
        eager_attention(root),
    ):
        official, reference = _official(root, inputs, family)
        route: Route = "interface"
        recordings, outputs = record_interface(root, inputs)
        matches = _match(official, recordings)
        if matches is None:
            route = "fallback"
            recordings, outputs = record_fallback(root, inputs)
            matches = _match(official, recordings)
        if matches is None or not _is_square(matches, batch):
            _refuse(family, _reason(official, recordings, batch))
        wiring = Wiring(route, _sites(matches), _causal_blocks(matches), media_of(inputs))
        check = Check(
            against=max(matches, key=lambda match: match.against == "scores").against,
            n_maps=len(matches),
            largest_difference=max(match.difference for match in matches),
            output_difference=float((_main_output(outputs) - reference).abs().max()),
        )
    if check.output_difference > TOLERANCE * max(1.0, float(reference.abs().max())):
        raise TapUnsupported(
            f"{family}: the model's output changes by {check.output_difference:.2g} under the "
            "tap, so what the tap reads is not what the model computes."
        )
    return wiring, check


def _official(
    root: PreTrainedModel, inputs: Mapping[str, object], family: str
) -> tuple[dict[Block, list[Tensor]], Tensor]:
    """The model's own attention maps (those it returns) and its main output."""
    try:
        try:
            outputs = root(**inputs, output_attentions=True)
        except TypeError:
            outputs = root(**inputs)
    except Exception as error:
        raise TapUnsupported(
            f"{family}: the self-check could not run the model on an example input "
            f"({type(error).__name__}: {error}). Pass inputs it accepts: "
            "headscope.load(model, tokenizer, example={'input_ids': …})."
        ) from error
    maps: dict[Block, list[Tensor]] = {}
    for key, block in OFFICIAL.items():
        returned = [x for x in getattr(outputs, key, None) or () if isinstance(x, Tensor)]
        if returned:
            maps[block] = returned
    if list(maps) == ["self", "cross"] and root.config.is_encoder_decoder:
        maps = {"decoder": maps["self"], "cross": maps["cross"]}
    return maps, _main_output(outputs)


def _main_output(outputs: ModelOutput) -> Tensor:
    for key in ("logits", "last_hidden_state"):
        value = getattr(outputs, key, None)
        if isinstance(value, Tensor):
            return value
    return next(x for x in outputs.to_tuple() if isinstance(x, Tensor))


@dataclass(slots=True)
class _Match:
    block: Block
    recording: Recording
    difference: float
    against: Literal["weights", "scores", "nothing"]


def _match(
    official: Mapping[Block, Sequence[Tensor]], recordings: Sequence[Recording]
) -> list[_Match] | None:
    """For every official map, the recording that is it; None where one has none."""
    if not recordings:
        return None
    if not official:
        complete = [r for r in recordings if r.weights.ndim == 4 and r.value is not None]
        return [_Match(_named_block(r.module), r, 0.0, "nothing") for r in complete] or None
    free = list(recordings)
    matches = []
    for block, maps in official.items():
        for target in maps:
            best = _nearest(target, free)
            if best is None:
                return None
            index, difference, against = best
            recording = free.pop(index)
            if recording.weights.shape != target.shape:
                recording = _reshaped(recording, target.shape)
            matches.append(_Match(block, recording, difference, against))
    return matches


def _nearest(
    target: Tensor, recordings: Sequence[Recording]
) -> tuple[int, float, Literal["weights", "scores"]] | None:
    """Index, difference and form of the first recording equal to an official map."""
    best: tuple[int, float, Literal["weights", "scores"]] | None = None
    candidates: list[tuple[Literal["weights", "scores"], Tensor]] = [("weights", target)]
    if not _sums_to_at_most_one(target):
        candidates.append(("scores", torch.softmax(target.float(), -1)))
    for against, expected in candidates:
        for index, recording in enumerate(recordings):
            weights = recording.weights
            if weights.numel() != target.numel() or weights.shape[-2:] != target.shape[-2:]:
                continue
            difference = float((weights.reshape(target.shape) - expected).abs().nan_to_num().max())
            if difference <= TOLERANCE and (best is None or difference < best[1]):
                best = (index, difference, against)
            if difference == 0:
                return best
    return best


def _sums_to_at_most_one(weights: Tensor) -> bool:
    return bool((weights >= 0).all()) and bool((weights.sum(-1) <= 1 + 1e-3).all())


def _reshaped(recording: Recording, shape: torch.Size) -> Recording:
    """A recording with `batch·head` on one axis, given the two axes of the official map."""
    n_heads = shape[1]

    def unfold(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.ndim != 3:
            return tensor
        return tensor.reshape(-1, n_heads, *tensor.shape[1:])

    return replace(
        recording,
        weights=recording.weights.reshape(shape),
        scores=unfold(recording.scores),
        query=unfold(recording.query),
        key=unfold(recording.key),
        value=unfold(recording.value),
    )


def _sites(matches: Sequence[_Match]) -> tuple[Site, ...]:
    sites: list[Site] = []
    for block in dict.fromkeys(match.block for match in matches):
        group = [match.recording for match in matches if match.block == block]
        for layer, recording in zip(_layer_numbers(group), group, strict=True):
            sites.append(_site(block, layer, recording))
    return tuple(sites)


def _layer_numbers(recordings: Sequence[Recording]) -> list[int]:
    """The model's own numbering where its names carry one (hybrid models have layers
    without attention), else the order of computation.
    """
    numbers = []
    for recording in recordings:
        number = re.search(r"\.(\d+)\.", f".{recording.module}.")
        numbers.append(int(number[1]) if number else -1)
    increasing = all(a < b for a, b in itertools.pairwise(numbers))
    return numbers if increasing and numbers[0] >= 0 else list(range(len(numbers)))


def _site(block: Block, layer: int, recording: Recording) -> Site:
    query, key, value = (
        tensor if tensor is not None and tensor.ndim == 4 else None
        for tensor in (recording.query, recording.key, recording.value)
    )
    n_heads = int(recording.weights.shape[1])
    if query is None or key is None or query.shape[1] != n_heads or n_heads % key.shape[1]:
        query = key = None
    fitted, residual = _fit_scale(recording, query, key)
    scale = recording.scale if recording.scale is not None else fitted
    vectors = key if key is not None else value
    return Site(
        block=block,
        layer=layer,
        module=recording.module,
        occurrence=recording.occurrence,
        computation=recording.computation,
        n_heads=n_heads,
        n_groups=None if vectors is None else int(vectors.shape[1]),
        head_size=None if key is None else int(key.shape[-1]),
        value_size=None if value is None else int(value.shape[-1]),
        scale=scale if scale is None else float(scale),
        is_dot_product=scale is not None and residual,
        can_edit_vectors=key is not None and recording.n_products == 1,
    )


def _fit_scale(
    recording: Recording, query: Tensor | None, key: Tensor | None
) -> tuple[float | None, bool]:
    """The factor on q·k in the scores, and whether there is nothing else in them.

    A position bias is the same in both rows of the example, so the difference of the rows
    is `scale` times the difference of their q·k; anything that does not fit that is not a
    plain factor.
    """
    scores = recording.scores
    if query is None or key is None or scores is None or scores.shape != recording.weights.shape:
        return None, False
    repeated = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    dots = (query.double() @ repeated.double().transpose(-1, -2)).cpu()
    scores = scores.double().cpu()
    seen = (recording.weights > 0).all(0).cpu()
    x, y = (dots[0] - dots[1])[seen], (scores[0] - scores[1])[seen]
    if x.square().sum() == 0:
        return None, False
    scale = float((x @ y) / (x @ x))
    size = float(y.abs().max())
    if float((y - scale * x).abs().max()) > 1e-3 * size:
        return None, False
    rest = (scores - scale * dots)[:, seen]
    return scale, float(rest.abs().max()) <= 1e-3 * max(size, 1e-12)


def _is_square(matches: Sequence[_Match], batch: int) -> bool:
    """Is every map of a block over the same queries and keys (not windowed, not pooled)?"""
    shapes: dict[Block, set[tuple[int, int]]] = {}
    for match in matches:
        if match.recording.weights.ndim != 4:
            return False
        n_rows, _, n_queries, n_keys = match.recording.weights.shape
        if n_rows != batch or (match.block != "cross" and n_queries != n_keys):
            return False
        shapes.setdefault(match.block, set()).add((n_queries, n_keys))
    return all(len(sizes) == 1 for sizes in shapes.values())


def _causal_blocks(matches: Sequence[_Match]) -> frozenset[Block]:
    """Blocks in which no query ever attends to a later key."""
    causal: dict[Block, bool] = {}
    for match in matches:
        weights = match.recording.weights
        if match.block == "cross":
            continue
        square = weights.shape[-1] == weights.shape[-2] and weights.shape[-1] > 1
        looks_back = square and not bool(weights.triu(1).any())
        causal[match.block] = causal.get(match.block, True) and looks_back
    return frozenset(block for block, is_causal in causal.items() if is_causal)


def _named_block(module: str) -> Block:
    """The block by the module's name, for models that return no attention to compare with."""
    name = module.lower()
    if re.search(r"cross|enc_?dec|encoder_attn", name):
        return "cross"
    return "self"


def _reason(
    official: Mapping[Block, Sequence[Tensor]], recordings: Sequence[Recording], batch: int
) -> str:
    """Why a model's attention could not be wired."""
    if not recordings:
        return "it has no softmax attention (state-space and Fourier models have none)"
    maps = [m for block, maps in official.items() if block != "cross" for m in maps]
    shapes = {tuple(m.shape) for m in maps}
    if any(m.ndim != 4 or m.shape[-1] != m.shape[-2] or len(m) != batch for m in maps):
        return (
            "its attention is laid out in windows or blocks, not as queries by keys, so a head "
            "has no single matrix to read"
        )
    if len({shape[-1] for shape in shapes}) > len(set(official) - {"cross"}):
        return "its layers attend over pooled sequences of different lengths"
    return (
        f"{len(recordings)} softmaxes were seen, but not all of the "
        f"{sum(map(len, official.values()))} official attention maps are among them"
    )


def _refuse(family: str, reason: str) -> NoReturn:
    raise TapUnsupported(f"The tap cannot read {family!r}: {reason}.")
