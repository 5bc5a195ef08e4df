"""`headscope.patch`: activation patching of head outputs between two texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Literal, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor
from transformers.utils.generic import ModelOutput

from headscope.arguments import expect, whole_number
from headscope.attention import Attention, BlockName
from headscope.causal.ablation import Replacement, head_grid, head_sets
from headscope.causal.batched_forward import BatchedAblation, ForwardPass, Head, HeadSet
from headscope.causal.effects import ONE_TEXT, one_each, output_gradients, read_text
from headscope.causal.readout import LogitDifference, Readout, find_position, make_contrast
from headscope.errors import InputError
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.run.progress import Meter
from headscope.statistics.differences import Difference, over_texts
from headscope.statistics.jackknife import ratio_jackknife
from headscope.text.pairs import Pairs, describe_templates, number_templates, read_pairs
from headscope.text.tokens import Tokens

TextPairs = Pairs | Sequence[tuple[str, str]] | str | os.PathLike[str]
PatchPlace = Literal["residual", "mlp", "head", "q", "k", "v", "pattern"]


def as_pairs(
    pairs: TextPairs,
    target: object = None,
    foil: object = None,
    templates: Sequence[object] | None = None,
) -> Pairs:
    """Return pairs with targets, foils and templates; given arguments win."""
    if isinstance(pairs, str | os.PathLike):
        pairs = read_pairs(pairs)
    expect("pairs", pairs, Iterable, "pairs of texts")
    texts = list(pairs)
    if not texts:
        raise InputError("There are no pairs: give at least one pair of texts.")
    for pair in texts:
        is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise InputError(f"{pair!r:.80} is not a pair of texts.")
    known = pairs if isinstance(pairs, Pairs) else None
    own = (None, None, None) if known is None else (known.targets, known.foils, known.templates)
    targets = one_each("pairs", len(texts), own[0] if target is None else target, "target")
    foils = one_each("pairs", len(texts), own[1] if foil is None else foil, "foil")
    labels = own[2] if templates is None else templates
    numbers = number_templates([first for first, _ in texts], labels)
    names = [str(label) for label in (numbers if labels is None else labels)]
    return Pairs(
        tuple((str(a), str(b)) for a, b in texts), tuple(targets), tuple(foils), tuple(names),
        "pairs" if known is None else known.name,
    )  # fmt: skip


def about_pairs(model: Model, pairs: Pairs, numbers: np.ndarray) -> dict[str, str | int]:
    """Return the attributes of shares of the gap; `numbers` are those of the templates."""
    return {
        "model": model.name,
        "pairs": len(pairs),
        "templates": int(numbers.max()) + 1,
        "holds": ONE_TEXT if len(pairs) == 1 else describe_templates(numbers),
        "number": "logit(target) − logit(foil)",
        "units": "share of the gap",
    }


def require_gap(gaps: np.ndarray) -> None:
    """Raise InputError if the two texts of every pair have the same logit difference."""
    if not np.abs(gaps).sum() > 0:
        raise InputError("The two texts of every pair give the same logits: there is no gap.")


def closed(effects: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Return `pair …`: the closed part of the gap; `effects` are m(patched) − m."""
    return np.asarray(-np.sign(gaps).reshape(-1, *(1,) * (effects.ndim - 1)) * effects)


def shares(effects: np.ndarray, gaps: np.ndarray, pairs: Pairs) -> tuple[Difference, np.ndarray]:
    """Return the shares of the gap (`pair …`) over templates, and the templates' numbers."""
    require_gap(gaps)
    numbers = number_templates([first for first, _ in pairs.texts], pairs.templates)
    sums = closed(effects, gaps).reshape(len(gaps), -1)
    found = over_texts(sums, np.broadcast_to(np.abs(gaps)[:, None], sums.shape), numbers)
    names = ("low", "high", "documents", "value", "p")
    arrays = {name: getattr(found, name).reshape(effects.shape[1:]) for name in names}
    return Difference(**arrays), numbers


def read_aligned(
    model: Model, texts: tuple[str, str], position: int
) -> tuple[list[Tokens], list[dict[str, Tensor]], int | None]:
    """Return tokens and inputs of both texts, and the position of the prediction."""
    stacks, inputs = zip(*(read_text(model, text, None, None) for text in texts), strict=True)
    tokens = [next(iter(stack.values())) for stack in stacks]
    if len(tokens[0]) != len(tokens[1]):
        raise InputError(
            f"{texts[0]!r} has {len(tokens[0])} tokens and {texts[1]!r} has {len(tokens[1])}: a "
            "position of the one has no place in the other. Give texts of equal length in tokens."
        )
    return tokens, list(inputs), find_position(model, stacks[0], position)


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
    templates: Sequence[object] | None = None,
    at: PatchPlace = "head",
    where: Sequence[int] | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Replace each head's output by its output in the other text of a pair (activation patching).

    m = logit(target) − logit(foil); the gap of a pair is m(first text) − m(second text). A head's
    share of the gap is Σ sign(gap) · (m − m with the head's output of the other text) / Σ |gap|
    over pairs. It is a ratio of sums, because pairs without a gap would dominate a mean of
    ratios. The shares of heads need not sum to 1.

    All heads are ranked by attribution patching, Σ (z′ − z) · ∂m/∂z, with one backward pass for
    each pair. The estimate ranks well and misses single heads by factors of 2 to 4, so the top
    heads are run exactly.

    Vig et al. 2020 (causal mediation analysis); Meng et al. 2022; Nanda 2023 for the ranking.

    Args:
        model: model with logits, or an argument of `headscope.load`.
        pairs: pairs of texts of equal numbers of tokens: contrasts such as a swapped name or
            pronoun.
        target: answer of the first texts (by default their top prediction): one, or one each.
        foil: answer of the second texts (by default their top prediction): one, or one each.
        position: position of the prediction.
        exact: number of top heads to run exactly; `"all"` for every head.
        heads: pairs of layer and head to run exactly instead of the top heads.
        block: attention block of an encoder-decoder.
        templates: label of each pair's template; by default near-copies of the first texts are
            recognized. Attributes `templates` and `holds` say what the interval speaks of.
        at: place to replace. `head`: its output. `residual` and `mlp`: the stream that enters a
            layer, or the output of its MLP, at one position at a time: a map over `layer` and
            `position`. `q`, `k`, `v`, `pattern`: a head's queries, its own copy of keys or values,
            or its attention weights. All are exact; they need layers that add up.
        where: positions; negative ones count from the end. For `residual` and `mlp` the columns
            of the map, for others where a head is replaced: queries, or keys for `k` and `v`.
        progress: show progress; by default on a terminal.

    Returns:
        `share` over layer and head (exact; NaN for other heads) with `low` and `high` (over
        templates, or over the pairs of fewer than five), `estimate` (all heads, first order),
        and over `pair` the `gap`.

    Raises:
        InputError: the texts of a pair differ in their numbers of tokens, or no pair has a gap.
    """
    model = as_model(model)
    chosen = model.wiring.main_block() if block is None else block
    given = as_pairs(pairs, target, foil, templates)
    if at != "head" or where is not None:
        for name, value, default in (
            ("exact", exact, 10), ("heads", heads, None), ("block", block, None)
        ):  # fmt: skip
            if value != default:
                raise InputError(f"{name}={value!r} is not used with at={at!r}, where={where!r}.")
        from headscope.causal.places import patch_places

        return patch_places(model, given, at, where, position, progress)
    sets = head_sets(model, None, chosen)
    exact_sets = None if heads is None else head_sets(model, heads, chosen)
    if any(len(members) > 1 for members in exact_sets or ()):
        raise InputError(f"heads={heads!r}; patching is of single heads: pairs of layer and head.")
    prepared = [
        _prepare(model, texts, answers, position, chosen)
        for texts, *answers in zip(given.texts, given.targets, given.foils, strict=True)
    ]
    gaps = np.array([pair.gap for pair in prepared])
    require_gap(gaps)
    estimates = np.array(
        [[pair.estimates[layer][head] for ((layer, head),) in sets] for pair in prepared]
    )
    estimate = ratio_jackknife(closed(estimates, gaps), np.abs(gaps)[:, None])
    n = len(sets) if exact == "all" else min(whole_number("exact", exact), len(sets))
    top = np.argsort(-np.abs(estimate.value), kind="stable")[:n]
    if exact_sets is not None:
        top = np.array([sets.index(members) for members in exact_sets])
    top_sets = [sets[i] for i in top]
    with closing(Meter(len(prepared) * len(top), shown=progress)) as meter:
        moved = np.stack([pair.exact(top_sets, meter.advance) for pair in prepared])
    share, numbers = shares(moved, gaps, given)
    sites = model.wiring.of_block(chosen)
    layers = [site.layer for site in sites]
    n_heads = max(site.n_heads for site in sites)
    grids = {
        "share": (top_sets, share.value),
        "low": (top_sets, share.low),
        "high": (top_sets, share.high),
        "estimate": (sets, estimate.value),
    }
    variables = {
        name: (("layer", "head"), head_grid(members, values, layers, n_heads))
        for name, (members, values) in grids.items()
    }
    return xr.Dataset(
        {**variables, "gap": ("pair", gaps)},
        coords={
            "layer": layers,
            "head": np.arange(n_heads),
            "pair": [" / ".join(pair) for pair in given.texts],
        },
        attrs={
            **about_pairs(model, given, numbers),
            "block": chosen,
            "targets": " | ".join(dict.fromkeys(pair.answer.names[0] for pair in prepared)),
            "foils": " | ".join(dict.fromkeys(pair.answer.names[1] for pair in prepared)),
        },
    )


class _Pair(NamedTuple):
    """Pair of texts, with the heads' outputs in the second and first-order estimates."""

    ablation: BatchedAblation
    answer: LogitDifference
    gap: float
    other: Replacement
    estimates: dict[int, list[float]]
    """By layer, `head`: Σ (z′ − z)·∂m/∂z."""

    def exact(self, sets: Sequence[HeadSet], advance: Callable[[int], None]) -> np.ndarray:
        """Return `head`: m with the other text's output of a head − m."""
        base = self.ablation.base(lambda *_: self.answer)
        return self.ablation.values(base, sets, self.other.edit, advance) - float(base.value)


def _prepare(
    model: Model,
    texts: tuple[str, str],
    answers: list[str | int | None],
    position: int,
    block: BlockName,
) -> _Pair:
    if model.require_objective("Patching") == "seq2seq":
        raise InputError(
            f"{model.name} is an encoder-decoder; patching is of models with one stack."
        )
    _, inputs, index = read_aligned(model, texts, position)
    first, second = (ForwardPass(model, prepared, index) for prepared in inputs)
    theirs, other_logits = _outputs(second, block)

    def make(_: ModelOutput, logits: Tensor | None) -> Readout:
        assert logits is not None
        top = logits[0], other_logits
        return make_contrast(model, texts, (answers[0], answers[1]), top, index)

    answer, value, mine, gradients = output_gradients(first, make, block)
    assert isinstance(answer, LogitDifference)
    gap = value - float(answer.read(ModelOutput(), other_logits[None])[0])
    estimates = {
        layer: ((theirs[layer] - z) * gradients[layer]).sum((-1, -2)).double().tolist()
        for layer, z in mine.items()
    }
    other = Replacement(block, theirs)
    return _Pair(BatchedAblation(first, block), answer, gap, other, estimates)


def _outputs(text: ForwardPass, block: BlockName) -> tuple[dict[int, Tensor], Tensor]:
    """Return head outputs by layer (`head query neuron`), and the logits at the position."""
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
