"""One map across layers: rollout, flow, gradient-weighted relevance, and the check of all three.

`headscope.relevance` gives each token a score. `headscope.check_relevance` removes tokens in the
order of the scores and counts how fast the prediction falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headscope.arguments import whole_number
from headscope.attention import Attention
from headscope.causal.batched_forward import ForwardPass
from headscope.causal.effects import ONE_TEXT, read_text
from headscope.causal.readout import LogitDifference, find_answers, find_position
from headscope.errors import InputError, UnknownName
from headscope.model.edits import Edit, Positions
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.model.objective import frozen, require_gradients
from headscope.model.processing import prepare
from headscope.model.tap.dispatch import Attachment
from headscope.model.tap.sites import Site
from headscope.run.progress import Meter
from headscope.statistics.differences import over_texts
from headscope.text.pairs import describe_templates, number_templates
from headscope.text.tokens import Tokens

RelevanceMethod = Literal["rollout", "flow", "gradient", "removal"]
METHODS: tuple[RelevanceMethod, ...] = ("rollout", "flow", "gradient", "removal")
N_POINTS = 11
"""Points of a deletion curve, from none to all removable tokens."""
UNITS_OF_FLOW = 1_000_000
"""Capacity of an edge with weight 1: flows are computed in whole numbers."""
MAX_FLOW_TOKENS = 128
PATCH_SIDES = ("top", "left", "bottom", "right")


def relevance(
    model: Model | str,
    text: str | None = None,
    method: RelevanceMethod = "gradient",
    target: str | int | None = None,
    *,
    image: object | None = None,
    position: int = -1,
) -> xr.DataArray:
    """Score each token, or patch of an image, for a prediction by one map across all layers.

    `rollout` multiplies ½(mean over heads) + ½I over layers; `flow` is the maximum flow through
    the same graph (Abnar & Zuidema 2020). `gradient`: R ← R + Ā R with Ā the mean over heads of
    (∂p/∂a ⊙ a)⁺ (Chefer et al. 2021). `removal` is exact: the fall of log p(target) when all heads
    ignore the token. Only the last one is an effect. `headscope.check_relevance` measures whether
    tokens with high scores matter.

    Args:
        model: model with logits and one stack, or an argument of `headscope.load`.
        text: the text.
        method: `rollout`, `flow`, `gradient` or `removal`.
        target: answer; by default the top prediction.
        image: image instead of a text, as in `Model.trace`.
        position: position of the prediction.

    Returns:
        Scores over `token`; in causal models the first token, an attention sink, is `kept` out of
        checks. Patches of an image also have `top`, `left`, `bottom` and `right`, as shares of it.
    """
    loaded = as_model(model)
    UnknownName.check("method", method, METHODS)
    if (text is None) == (image is None):
        raise InputError("Relevance is of one text or one image: give text or image=….")
    run = _TextRun.of(loaded, text, image, target, position)
    coords: dict[str, object] = {"token": list(run.tokens.tokens)}
    if image is not None:
        patches = run.tokens.media_tokens or (None,) * len(run.tokens)
        for side in PATCH_SIDES:
            coords[side] = ("token", [getattr(patch, side, np.nan) for patch in patches])
    about = {"method": method, "text": "an image" if text is None else text}
    return xr.DataArray(
        run.scores(method),
        dims="token",
        coords=coords,
        name="relevance",
        attrs={"model": loaded.name, **about, **run.answer.describe()},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DropKeys(Edit):
    """Remove keys in all heads of a layer; rows keep their sums."""

    dropped: Tensor = field(repr=False)
    """`row key`: True for removed keys."""

    def on_weights(self, weights: Tensor, positions: Positions) -> Tensor:
        kept = weights * ~self.dropped[:, None, None, :]
        left = kept.sum(-1, keepdim=True)
        grown = kept * weights.sum(-1, keepdim=True) / left.clamp(min=1e-6)
        return torch.where(left > 1e-6, grown, weights)


@dataclass(frozen=True, eq=False)
class _TextRun:
    text: ForwardPass
    tokens: Tokens
    answer: LogitDifference
    weights: Mapping[int, Tensor]
    """By layer, `head query key`."""
    gradients: Mapping[int, Tensor]
    row: int
    """Query whose scores are read: the only row of the last layer that the prediction reads."""

    @classmethod
    def of(
        cls,
        model: Model,
        text: str | None,
        image: object | None,
        target: str | int | None,
        position: int,
    ) -> _TextRun:
        objective = model.require_objective("Relevance")
        if objective == "seq2seq":
            raise InputError(f"{model.name} is an encoder-decoder; relevance is of one stack.")
        require_gradients(model)
        block = model.wiring.main_block()
        if text is None:
            stacks = model.trace(image=image, vectors=False).stack_tokens
            inputs, _ = prepare(model, None, image, None)
            tokens = stacks[block]
        else:
            stacks, inputs = read_text(model, text, None, None)
            tokens = next(iter(stacks.values()))
        index = find_position(model, stacks, position)
        if index is None and position != -1:
            raise InputError(f"position={position!r} is not used: a label is of the whole text.")
        run = ForwardPass(model, inputs, index)
        weights: dict[int, Tensor] = {}
        gradients: dict[int, Tensor] = {}

        def keep(attention: Attention) -> None:
            if attention.block == block:
                weights[attention.layer] = attention.weights[0].detach().double().cpu()

        def keep_gradient(site: Site, gradient: Tensor) -> None:
            if site.block == block:
                gradients[site.layer] = gradient[0].detach().double().cpu()

        attachment = Attachment(keep, on_gradient=keep_gradient, returns_weights=False)
        with torch.enable_grad(), model.attached(attachment), frozen(model.module):
            outputs, logits = run.run()
            assert logits is not None
            answer = find_answers(model, logits[0].detach().float(), target, None, "logprob", index)
            answer.read(outputs, logits)[0].exp().backward()
        n = len(tokens)
        for layer, tensor in weights.items():
            if tensor.shape[1:] != (n, n):
                raise InputError(
                    f"Layer {layer} of {model.name} attends among {tuple(tensor.shape[1:])} "
                    f"positions, and the input has {n} tokens: maps of windows do not multiply."
                )
        read = gradients[max(gradients)].abs().sum((0, 2)).nonzero().flatten().tolist()
        if len(read) != 1:
            raise InputError(
                f"The prediction of {model.name} reads {len(read)} of {n} rows of the last "
                "layer; relevance starts at one, such as a class token."
            )
        return cls(run, tokens, answer, weights, gradients, read[0])

    @property
    def removable(self) -> list[int]:
        """Positions that can be removed: not the prediction's, nor a causal model's first."""
        block = self.text.model.wiring.main_block()
        is_causal = block in self.text.model.wiring.causal_blocks
        last = self.row if is_causal else len(self.tokens) - 1
        kept = {self.row} | ({0} if is_causal else set())
        return [i for i in range(last + 1) if i not in kept and not self.tokens.special[i]]

    def scores(self, method: RelevanceMethod) -> np.ndarray:
        if method == "removal":
            scores = np.zeros(len(self.tokens))
            if removed := [[place] for place in self.removable]:
                scores[self.removable] = -self.falls(removed)
            return scores
        total = np.eye(len(self.tokens))
        if method == "gradient":
            for layer, weights in self.weights.items():
                positive = (weights * self.gradients[layer]).clamp(min=0).mean(0).numpy()
                total = total + positive @ total
            return np.asarray(total[self.row])
        mixed = [0.5 * layer.mean(0).numpy() + 0.5 * total for layer in self.weights.values()]
        if method == "flow":
            return _flow(mixed, self.row)
        scores = total[self.row]
        for matrix in reversed(mixed):  # a row of Ã_L ⋯ Ã_1 (Abnar & Zuidema 2020, section 3)
            scores = scores @ matrix
        return np.asarray(scores)

    def falls(self, removed: Sequence[Sequence[int]]) -> np.ndarray:
        """Return log p(target) without each set of tokens − with all."""
        model, n = self.text.model, len(self.tokens)
        dropped = torch.zeros((len(removed) + 1, n), dtype=torch.bool)
        for row, places in zip(dropped[1:], removed, strict=True):
            row[list(places)] = True
        dropped = dropped.to(model.module.device)
        block = model.wiring.main_block()
        edits = tuple(
            _DropKeys(layer=site.layer, head=0, block=block, dropped=dropped)
            for site in model.wiring.of_block(block)
        )
        with torch.no_grad(), model.attached(Attachment(edits=edits, returns_weights=False)):
            outputs, logits = self.text.run(len(dropped))
        values = self.answer.read(outputs, logits).double().cpu().numpy()
        return np.asarray(values[1:] - values[0])


def _flow(mixed: Sequence[np.ndarray], row: int) -> np.ndarray:
    """Return the maximum flow from a token of the last layer to each input token."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import maximum_flow

    n = len(mixed[0])
    if n > MAX_FLOW_TOKENS:
        raise InputError(
            f"The text has {n} tokens; flow takes at most {MAX_FLOW_TOKENS}. Use method='rollout'."
        )
    capacities = [np.round(layer * UNITS_OF_FLOW).astype(np.int32) for layer in reversed(mixed)]
    starts, ends, sizes = [], [], []
    for depth, layer in enumerate(capacities):
        query, key = np.nonzero(layer)
        starts.append(query + depth * n)
        ends.append(key + (depth + 1) * n)
        sizes.append(layer[query, key])
    shape = (n * (len(mixed) + 1),) * 2
    edges = (np.concatenate(starts), np.concatenate(ends))
    graph = csr_array(coo_array((np.concatenate(sizes), edges), shape=shape), dtype=np.int32)
    last = n * len(mixed)
    flows = [maximum_flow(graph, row, last + key).flow_value for key in range(n)]
    return np.array(flows) / UNITS_OF_FLOW


def check_relevance(
    model: Model | str,
    texts: Sequence[str] | None = None,
    methods: Sequence[RelevanceMethod] = METHODS,
    *,
    images: Sequence[object] | None = None,
    position: int = -1,
    n_random: int = 10,
    seed: int = 0,
    templates: Sequence[object] | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Remove tokens in the order of each method's scores and measure how fast log p falls.

    The deletion curve is the fall of log p(top prediction) after removing 0, 10, … 100 % of the
    removable tokens, the highest scores first; its area is the mean fall. Compare with `random`
    (the mean over orders) and with `removal`, the exact effect of each token alone. A method whose
    area does not exceed random's points at tokens that matter no more than others.

    Removal here, of tokens and of patches: all heads ignore their keys, so no pixel needs another
    color. In causal models the first token stays, in image models the class token and registers.

    Args:
        model: model with logits and one stack.
        texts: several texts.
        methods: methods to check.
        images: several images instead of texts; each is a template of its own by default.
        position: position of the prediction.
        n_random: random orders for each text.
        seed: seed of the random orders.
        templates: label of each text's template.
        progress: show progress; by default on a terminal.

    Returns:
        `fall` over `ranking` and `removed` (share of tokens), `area` with its difference to random
        (`gain`) and the interval of that difference over texts (`low`, `high`).
    """
    loaded = as_model(model)
    for method in methods:
        UnknownName.check("method", method, METHODS)
    given = texts if images is None else images
    if isinstance(given, str) or not isinstance(given, Sequence) or not given or (texts and images):
        raise InputError(
            "Give a list of texts or of images: one deletion curve describes only one."
        )
    orders_at_random = whole_number("n_random", n_random)
    draw = np.random.default_rng(whole_number("seed", seed, 0))
    curves = np.zeros((len(given), len(methods) + 1, N_POINTS))
    with closing(Meter(len(given), shown=progress)) as meter:
        for i, item in enumerate(given):
            text, image = (item, None) if images is None else (None, item)
            run = _TextRun.of(loaded, text, image, None, position)  # type: ignore[arg-type]
            places = run.removable
            if len(places) < 2:
                raise InputError(
                    f"{item!r:.80} has {len(places)} removable tokens: give longer texts."
                )
            for j, method in enumerate(methods):
                scores = run.scores(method)[places]
                curves[i, j] = _curve(run.falls, [places[k] for k in np.argsort(-scores)])
            orders = [draw.permutation(places).tolist() for _ in range(orders_at_random)]
            curves[i, -1] = np.mean([_curve(run.falls, order) for order in orders], axis=0)
            meter.advance(1)
    areas = curves.mean(-1)
    gains = areas[:, :-1] - areas[:, -1:]
    if templates is None and images is not None:
        templates = range(len(given))
    numbers = number_templates([str(item) for item in given], templates)
    found = over_texts(gains, np.ones_like(gains), numbers)
    names = [*methods, "random"]
    holds = ONE_TEXT if len(given) == 1 else describe_templates(numbers)
    if images is not None:
        holds = holds.replace("text", "image").replace("sentence", "kind of image")
    unknown = [np.nan]
    return xr.Dataset(
        {
            "fall": (("ranking", "removed"), curves.mean(0)),
            "area": ("ranking", areas.mean(0)),
            "gain": ("ranking", np.append(found.value, 0.0)),
            "low": ("ranking", np.append(found.low, unknown)),
            "high": ("ranking", np.append(found.high, unknown)),
        },
        coords={"ranking": names, "removed": np.linspace(0, 1, N_POINTS)},
        attrs={
            "model": loaded.name,
            "texts" if images is None else "images": len(given),
            "holds": holds,
            "units": "nats",
        },
    )


def _curve(
    falls: Callable[[Sequence[Sequence[int]]], np.ndarray], order: Sequence[int]
) -> np.ndarray:
    counts = np.round(np.linspace(0, len(order), N_POINTS)).astype(int)
    return -falls([order[:count] for count in counts])
