"""Made-up documents for sentences about several runs: no model, no data.

Documents differ in size, agree in part about heads, and one in thirty is odd: ten times as long as
the others, and with other attention.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from headscope.batch import Axes
from headscope.metrics import METRICS, metric_to_dict
from headscope.results.result import Result
from studies.errors.sentences import Runs

N, LAYERS, HEADS = 150, 2, 4
Arrays = dict[str, np.ndarray]


def runs(states: dict[str, Arrays], over: str = "attention", **axes: Any) -> Runs:
    """Runs with these sums (`document …`), as of one model."""
    metrics = tuple(METRICS[name]() for name in states)
    places = {
        metric.name: {name: int(metric.scope == "layer") for name in states[metric.name]}
        for metric in metrics
    }
    about = {
        "model": {"name": "toy", "weights_sha256": "0", "is_causal": False},
        "corpus": {"name": "toy", "hash": "toy"},
        "metrics": [metric_to_dict(metric) for metric in metrics],
        "axes": Axes(**axes).to_dict(),
        "settings": {"over": over},
    }
    layers = {"layer": np.arange(LAYERS), "head": np.arange(HEADS), "offset": [-1, 0, 1]}
    return Runs(Result({"self": xr.Dataset(coords=layers)}, {}, about), states, places, metrics)


def shares(seed: int = 0, *, shift: float = 0.0) -> Arrays:
    """Shares of attention of heads, which agree about documents."""
    generator = np.random.default_rng(seed)
    is_odd = np.random.default_rng(99).random((N, 1, 1)) < 1 / 30
    sizes = generator.lognormal(5, 0.5, (N, 1, 1)) * np.ones((LAYERS, HEADS))
    sizes = np.where(is_odd, 10 * sizes, sizes)
    heads = np.linspace(-2, 1, LAYERS * HEADS).reshape(LAYERS, HEADS)
    noise = generator.normal(0, 0.4, (N, 1, 1)) + generator.normal(0, 0.3, (N, LAYERS, HEADS))
    noise = noise + is_odd * generator.normal(0, 1.0, (N, LAYERS, HEADS))
    numerator = sizes / (1 + np.exp(-heads - noise - shift))
    return {"numerator": numerator, "denominator": sizes, "count": sizes}


def reaches() -> Arrays:
    """Distances, which grow with the length of documents."""
    of = shares(3)
    longer = np.random.default_rng(4).lognormal(0, 0.3, (N, 1, 1))
    return {**of, "numerator": of["numerator"] * 8 * longer}


def offsets() -> Arrays:
    """Attention to the previous token."""
    of = shares(5)
    numerator = np.zeros((*of["numerator"].shape, 3))
    numerator[..., 0] = of["numerator"]
    denominator = np.broadcast_to(of["denominator"][..., None], numerator.shape)
    return {**of, "numerator": numerator, "denominator": denominator}


def relations(generator: np.random.Generator) -> dict[str, Arrays]:
    """Heads and offsets that find a relation by chance, one head often."""
    cases = generator.integers(2, 12, (N, 1))
    chance = np.full((LAYERS, HEADS, 2), 0.3)
    chance[1, 2, 0] = 0.8
    right = generator.binomial(
        cases[..., None, None, None], chance[:, None], (N, LAYERS, 1, HEADS, 2)
    )
    by_offset = generator.binomial(cases[:, None], 0.4, (N, 6, 1))
    by_layer = np.broadcast_to(cases[:, None], (N, LAYERS, 1))
    visible = np.broadcast_to(by_layer[:, :, None], (N, LAYERS, 2, 1))
    counts = {"cases": by_layer, "cases_all": by_layer[..., 0], "visible": visible,
              "visible_all": visible[..., 0]}  # fmt: skip
    text = {name: array[:, 0] for name, array in counts.items()}
    return {
        "dep_accuracy": {"right": right, "right_all": right[:, :, 0], **counts,
                         "count": np.broadcast_to(by_layer, (N, LAYERS, HEADS))},
        "dep_offset": {"right": by_offset, "right_all": by_offset[..., 0], **text},
    }  # fmt: skip


def antecedents_of(generator: np.random.Generator) -> dict[str, Arrays]:
    """Heads and rules that find antecedents, each more often than the one before."""
    kinds, rules = 4, 3
    cases = generator.integers(3, 12, (N, 1, 1, 1)) * np.ones((LAYERS, HEADS, kinds), int)
    skill = generator.normal(0, 0.08, (N, 1, 1, 1))
    chance = np.linspace(0.2, 0.7, HEADS)[:, None] + skill
    right = generator.binomial(cases, np.clip(chance, 0.02, 0.98))
    easy = np.clip(np.linspace(0.2, 0.6, rules) + skill, 0.02, 0.98)
    rule = generator.binomial(cases[:, 0, 0, :, None], easy[:, 0])
    of_text = cases[:, 0, 0]
    return {
        "coref_accuracy": {"numerator": right, "denominator": cases, "count": cases[..., 0]},
        "coref_baseline": {"numerator": rule, "denominator": of_text, "count": of_text[:, 0]},
    }


def scores_of(generator: np.random.Generator) -> xr.Dataset:
    """Scores of a trained probe on three sentences of each document."""
    text = np.repeat(np.arange(N), 3)
    counts = generator.integers(5, 30, (len(text), 2))
    chance = generator.beta(12, 6, N)[text, None, None]
    right = generator.binomial(counts[:, None], chance, (len(text), 2, 2))
    sums = {
        "right": (("sentence", "decoding", "punctuation"), right),
        "counted": (("sentence", "punctuation"), counts),
        "text": ("sentence", text),
    }
    return xr.Dataset(sums, {"decoding": ["greedy", "tree"], "punctuation": ["without", "with"]})


def made_up_runs() -> tuple[dict[str, Runs], xr.Dataset]:
    """Runs of one made-up model, and the scores of its probe."""
    found = {
        "plain": runs({"null_share": shares(), "distance": reaches()}),
        "norm": runs({"null_share": shares(1, shift=-1.0)}, "norm"),
        "offsets": runs({"offset_share": offsets()}),
        "relations": runs(relations(np.random.default_rng(0)), relations=("obj",)),
        "coreference": runs(antecedents_of(np.random.default_rng(0))),
    }
    return found, scores_of(np.random.default_rng(0))
