"""`headscope.patch`: the heads that carry the difference between two texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.arguments import expect, whole_number
from headscope.attention import Attention, BlockName
from headscope.causal.ablation import head_sets
from headscope.causal.batched_forward import BatchedAblation, ForwardPass, Head, HeadSet
from headscope.causal.effects import output_gradients, read_text
from headscope.causal.readout import LogitDifference, Readout, find_position, make_answer
from headscope.errors import InputError
from headscope.model.edits import Edit, ReplaceRows
from headscope.model.load import as_model
from headscope.model.logits import KINDS, answer_names, find_answer
from headscope.model.model import Model
from headscope.run.progress import Meter
from headscope.statistics.intervals import interval
from headscope.statistics.jackknife import ratio_jackknife

TextPairs = Sequence[tuple[str, str]]


def patch(
    model: Model | str,
    pairs: TextPairs,
    target: str | int | Sequence[str | int] | None = None,
    foil: str | int | Sequence[str | int] | None = None,
    *,
    position: int = -1,
    exact: int | Literal["all"] = 10,
    heads: Sequence[Head] | None = None,
    block: BlockName | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Which heads carry the difference between two texts: each head's output in the one run is
    replaced by that of the other.

    m = logit(target) − logit(foil); the gap of a pair is m(first text) − m(second text). A head's
    share of the gap is Σ sign(gap) · (m − m with the head's output of the other text) / Σ |gap|
    over pairs, never a mean of ratios: pairs without a gap would blow it up. The shares of heads
    need not sum to 1.

    All heads are ranked by attribution patching, Σ (z′ − z) · ∂m/∂z, from one backward pass for
    each pair; it ranks well and misses single heads by factors of 2 to 4, so the top heads are
    run exactly.

    Vig et al. 2020 (causal mediation analysis); Meng et al. 2022; Nanda 2023 for the ranking.

    Args:
        model: a model with logits, or what `headscope.load` takes.
        pairs: two texts each, of equal numbers of tokens: contrasts such as a swapped name or
            pronoun.
        target: the answer of the first texts (the likeliest by default): one, or one each.
        foil: the answer of the second texts (their likeliest by default), likewise.
        position: of the prediction.
        exact: how many heads to run exactly, from the top; `"all"` for every head.
        heads: pairs of layer and head to run exactly instead of those at the top.
        block: which attention in an encoder-decoder.
        progress: show progress; by default on a terminal.

    Returns:
        `share` over layer and head (exact; NaN for heads that were not run) with `low` and `high`
        (over pairs), `estimate` (all heads, to first order), and over `pair` the `gap`.

    Raises:
        InputError: a pair whose texts differ in their numbers of tokens, or without any gap.
    """
    model = as_model(model)
    chosen = model.wiring.main_block() if block is None else block
    listed = _checked(pairs)
    targets, foils = _each(listed, target, "target"), _each(listed, foil, "foil")
    sets = head_sets(model, None, chosen)
    wanted = None if heads is None else head_sets(model, heads, chosen)
    if any(len(members) > 1 for members in wanted or ()):
        raise InputError(f"heads={heads!r}; patching is of single heads: pairs of layer and head.")
    several = [
        _prepare(model, one, aim, other, position, chosen)
        for one, aim, other in zip(listed, targets, foils, strict=True)
    ]
    gaps = np.array([pair.gap for pair in several])
    if not np.abs(gaps).sum() > 0:
        raise InputError("The two texts of every pair give the same logits: there is no gap.")
    estimates = np.stack([pair.estimates(sets) for pair in several])
    estimate = ratio_jackknife(_signed(estimates, gaps), np.abs(gaps)[:, None])
    n = len(sets) if exact == "all" else min(whole_number("exact", exact), len(sets))
    top = np.argsort(-np.abs(estimate.value), kind="stable")[:n]
    if wanted is not None:
        top = np.array([sets.index(one) for one in wanted])
    meter = Meter(len(several) * len(top), shown=progress)
    try:
        moved = np.stack([pair.exact([sets[i] for i in top], meter.advance) for pair in several])
    finally:
        meter.close()
    share = ratio_jackknife(_signed(moved, gaps), np.abs(gaps)[:, None])
    bounds = interval(share)
    grids = {
        "share": (top, share.value),
        "low": (top, bounds.low),
        "high": (top, bounds.high),
        "estimate": (np.arange(len(sets)), estimate.value),
    }
    sites = model.wiring.of_block(chosen)
    layers = [site.layer for site in sites]
    data = xr.Dataset(
        coords={
            "layer": layers,
            "head": np.arange(max(site.n_heads for site in sites)),
            "pair": [" / ".join(pair) for pair in listed],
        },
        attrs={
            "model": model.name,
            "block": chosen,
            "pairs": len(listed),
            "number": "logit(target) − logit(foil)",
            "targets": " | ".join(dict.fromkeys(pair.answer.names[0] for pair in several)),
            "foils": " | ".join(dict.fromkeys(pair.answer.names[1] for pair in several)),
            "units": "share of the gap",
        },
    )
    for name, (rows, values) in grids.items():
        grid = np.full((len(layers), data.sizes["head"]), np.nan)
        for number, value in zip(rows, values, strict=True):
            ((layer, head),) = sets[number]
            grid[layers.index(layer), head] = value
        data[name] = (("layer", "head"), grid)
    data["gap"] = ("pair", gaps)
    return data


def _signed(changes: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """`pair head`: by how much each change closes the gap; `changes` are m(patched) − m."""
    return np.asarray(-np.sign(gaps)[:, None] * changes)


@dataclass(frozen=True, eq=False)
class _Pair:
    """A pair of texts, ready to be patched."""

    rows: BatchedAblation
    answer: LogitDifference
    gap: float
    mine: dict[int, Tensor]
    theirs: dict[int, Tensor]
    gradients: dict[int, Tensor]
    block: BlockName

    def estimates(self, sets: Sequence[HeadSet]) -> np.ndarray:
        """`head`: Σ (z′ − z)·∂m/∂z."""
        by_layer = {
            layer: ((self.theirs[layer] - z) * self.gradients[layer]).sum((-1, -2)).double().cpu()
            for layer, z in self.mine.items()
        }
        return np.array([float(by_layer[layer][head]) for ((layer, head),) in sets])

    def exact(self, sets: Sequence[HeadSet], advance: Callable[[int], None]) -> np.ndarray:
        """`head`: m with the other text's output of a head − m."""
        base = self.rows.base(lambda *_: self.answer)
        values = self.rows.values(base, sets, self._edit, advance)
        return values - float(base.value)

    def _edit(self, layer: int, rows: Sequence[int], sets: Sequence[HeadSet]) -> Edit:
        heads = torch.tensor([head for ((_, head),) in sets])
        return ReplaceRows(
            layer=layer,
            head=int(heads[0]),
            block=self.block,
            rows=torch.tensor(rows),
            heads=heads,
            values=self.theirs[layer][heads],
        )


def _prepare(
    model: Model,
    texts: tuple[str, str],
    target: str | int | None,
    foil: str | int | None,
    position: int,
    block: BlockName,
) -> _Pair:
    objective = model.require_objective("Patching")
    if objective == "seq2seq":
        raise InputError(
            f"{model.name} is an encoder-decoder; patching is of models with one stack."
        )
    stacks, inputs, shapes = [], [], []
    for text in texts:
        tokens, prepared = read_text(model, text, None, None)
        stacks.append(tokens)
        inputs.append(prepared)
        shapes.append(len(next(iter(tokens.values()))))
    if shapes[0] != shapes[1]:
        raise InputError(
            f"{texts[0]!r} has {shapes[0]} tokens and {texts[1]!r} has {shapes[1]}: a head's "
            "output at a position of the one has no place in the other. Give texts of equal "
            "length in tokens."
        )
    at = find_position(model, stacks[0], position)
    first, second = (ForwardPass(model, prepared, at) for prepared in inputs)
    theirs, other_logits = _outputs(second, block)

    def make(_: ModelOutput, logits: Tensor | None) -> Readout:
        assert logits is not None
        number = int(logits[0].argmax()) if target is None else find_answer(model, target)
        other = int(other_logits.argmax()) if foil is None else find_answer(model, foil, "foil")
        if number == other:
            raise InputError(
                f"The two texts {texts[0]!r} and {texts[1]!r} have the same answer, "
                f"{answer_names(model, KINDS[objective], [number])[0]!r}: give a target and a foil "
                "that differ."
            )
        return make_answer(model, number, other, "logit", at)

    answer, value, mine, gradients = output_gradients(first, make, block)
    assert isinstance(answer, LogitDifference)
    gap = value - float(answer.read(ModelOutput(), other_logits[None])[0])
    return _Pair(BatchedAblation(first, block), answer, gap, mine, theirs, gradients, block)


def _outputs(text: ForwardPass, block: BlockName) -> tuple[dict[int, Tensor], Tensor]:
    """By layer, `head query neuron`: the head outputs; and the logits at the position."""
    outputs: dict[int, Tensor] = {}

    def keep(attention: Attention) -> None:
        if attention.block != block:
            return
        if attention.outputs is None:
            raise InputError(
                f"The tap does not see the head outputs of {text.model.info.family}, so they "
                "cannot be replaced."
            )
        outputs[attention.layer] = attention.outputs[0].clone()

    with torch.inference_mode(), text.model.tapped(keep, returns_weights=False):
        _, logits = text.run()
    assert logits is not None
    return {layer: z.clone() for layer, z in outputs.items()}, logits[0].float().clone()


def _checked(pairs: TextPairs) -> list[tuple[str, str]]:
    expect("pairs", pairs, Iterable, "pairs of texts")
    listed = list(pairs)
    if not listed:
        raise InputError("There are no pairs: give at least one pair of texts.")
    for pair in listed:
        is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise InputError(f"{pair!r:.80} is not a pair of texts.")
    return [(first, second) for first, second in listed]


def _each(pairs: Sequence[tuple[str, str]], answers: object, name: str) -> list[str | int | None]:
    if isinstance(answers, Sequence) and not isinstance(answers, str):
        if len(answers) != len(pairs):
            raise InputError(f"{len(pairs)} pairs, and {len(answers)} for {name}: give one each.")
        return list(answers)
    return [answers] * len(pairs)  # type: ignore[list-item]
