"""The findings of Vig & Belinkov (2019), each as a test on one model's result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy import stats

from headscope.results.result import Result
from studies.gum.estimates import Estimate, decide, describe, estimate, over_heads, rests_of
from studies.gum.finding import Finding, Judgement

__all__ = ["STRUCTURE_FINDINGS", "judge_structure"]

EARLY_RELATIONS = ("aux", "cc", "det", "expl")
SUBJECTS = ("nsubj", "nsubj:pass", "csubj")

STRUCTURE_FINDINGS = (
    Finding(
        "null",
        "V&B §5.2.3",
        "More than half of all attention is null attention (57 % in GPT-2)",
        "mean null share of all heads > 0.5",
    ),
    Finding(
        "middle",
        "V&B §5.3.2, Fig. 8",
        "Attention follows dependencies most in the middle layers",
        "highest alignment of a layer of the middle third − of the other layers > 0",
    ),
    Finding(
        "baseline",
        "V&B Fig. 8",
        "There, it follows them more than uniform attention would",
        "highest alignment of a layer / baseline > 1",
    ),
    Finding(
        "deepest",
        "V&B §5.3.3, Fig. 11",
        "Attention reaches farthest in the deepest layers",
        "ρ of layer and mean distance > 0",
    ),
    Finding(
        "entropy",
        "V&B §5.3.3",
        "Heads that reach far spread their attention (r = 0.61)",
        "r of distance and entropy over heads > 0",
    ),
    Finding(
        "near",
        "V&B §5.3.3",
        "Heads that follow dependencies look near (r = −0.73)",
        "r of distance and alignment over heads < 0",
    ),
    Finding(
        "tags",
        "V&B §5.3.1, Fig. 6",
        "Most tags have a head of their own (13 of 16)",
        "share of tags to which some head pays more than twice the mean > 0.5",
    ),
    Finding(
        "from",
        "V&B §5.3.1, Fig. 7",
        "Heads specialize in what they look at more than in what looks (13 against 7)",
        "share of tags with such a head, *to* minus *from* > 0",
    ),
    Finding(
        "depth",
        "V&B §5.3.1",
        "Heads for proper nouns lie deeper than heads for determiners",
        "mean depth of the top five heads, PROPN − DET > 0 (depth: 0 first layer, 1 last)",
    ),
    Finding(
        "relations",
        "V&B §5.3.2, Fig. 9",
        "Subjects are looked at in deeper layers than aux, cc, det and expl",
        "center of attention over depth, subjects − the others > 0",
    ),
    Finding(
        "position",
        "V&B §5.3.2, Fig. 10",
        "Early heads go by position: variability is lower in the first layers",
        "median variability of heads, first quarter of layers − the rest < 0",
    ),
)


def judge_structure(result: Result) -> dict[str, Judgement]:
    """Every finding's judgement on one model."""
    data, rests = result.dataset, rests_of(result)
    n_layers = data.sizes["layer"]

    def of(statistic) -> Estimate:  # type: ignore[no-untyped-def]
        return estimate(data, rests, statistic)

    centers = np.arange(n_layers) + 0.5
    is_middle = (n_layers / 3 <= centers) & (centers <= 2 * n_layers / 3)

    def ahead(d: xr.Dataset) -> float:
        by_layer = d["dep_alignment_by_layer"].sel(parent="either").values
        return float(by_layer[is_middle].max() - by_layer[~is_middle].max())

    null = of(lambda d: d["null_share"].mean())
    best = int(data["dep_alignment_by_layer"].sel(parent="either").argmax("layer"))
    middle = of(ahead)
    ratio = of(lambda d: d["dep_alignment_by_layer"].sel(parent="either").max() / d["dep_baseline"])
    deepest = of(lambda d: _rho(d["distance_by_layer"].values))
    farthest = int(data["distance_by_layer"].values.argmax())
    spread = of(lambda d: over_heads(d["distance"], d["entropy"]))
    near = of(lambda d: over_heads(d["distance"], d["dep_alignment"].sel(parent="either")))
    to = of(lambda d: _specialists(d["pos_to"]))
    both = of(lambda d: _specialists(d["pos_to"]) - _specialists(d["pos_from"]))
    depth = of(lambda d: _depth(d["pos_to"], "PROPN") - _depth(d["pos_to"], "DET"))
    relations = of(
        lambda d: (
            _center(d["dep_type_to_by_layer"], SUBJECTS)
            - _center(d["dep_type_to_by_layer"], EARLY_RELATIONS)
        )
    )
    early = max(1, round(n_layers / 4))
    position = of(
        lambda d: (
            d["variability"].isel(layer=slice(early)).median()
            - d["variability"].isel(layer=slice(early, None)).median()
        )
    )
    n_tags = data.sizes["tag"]
    rho, deepest = describe(deepest, above=0)
    deeper, depth = describe(depth, above=0)
    earlier, position = describe(position, below=0)
    peak = float(data["dep_alignment_by_layer"].sel(parent="either").max())
    return {
        "null": Judgement(decide(null, above=0.5), null.format()),
        "middle": Judgement(decide(middle, above=0), f"layer {best} of {n_layers} ({peak:.2f})"),
        "baseline": Judgement(decide(ratio, above=1), f"{ratio.format()} times"),
        "deepest": Judgement(rho, f"ρ = {deepest.format()}; farthest in layer {farthest}"),
        "entropy": Judgement(decide(spread, above=0), spread.format()),
        "near": Judgement(decide(near, below=0), near.format()),
        "tags": Judgement(describe(to, above=0.5)[0], f"{round(to.value * n_tags)} of {n_tags}"),
        "from": Judgement(
            describe(both, above=0)[0],
            f"{round(to.value * n_tags)} against {round((to.value - both.value) * n_tags)}",
        ),
        "depth": Judgement(deeper, depth.format()),
        "relations": Judgement(decide(relations, above=0), relations.format(3)),
        "position": Judgement(earlier, position.format(3)),
    }


def _rho(values: np.ndarray) -> float:
    return float(stats.spearmanr(np.arange(len(values)), values).statistic)


def _specialists(shares: xr.DataArray) -> float:
    """Share of tags for which some head is above twice the mean over heads."""
    is_above = shares.max(("layer", "head")) > 2 * shares.mean(("layer", "head"))
    return float(is_above.mean())


def _depth(shares: xr.DataArray, tag: str) -> float:
    """Mean depth of the five heads that look at a tag most."""
    values = shares.sel(tag=tag).transpose("layer", "head").values
    n_layers, n_heads = values.shape
    top = np.argsort(-np.nan_to_num(values.ravel()), kind="stable")[:5] // n_heads
    return float(top.mean() / (n_layers - 1))


def _center(shares: xr.DataArray, relations: Sequence[str]) -> float:
    """Mean depth of attention to these relations, each relation counting alike."""
    there = [name for name in relations if name in shares["relation"].values]
    values = shares.sel(relation=there).transpose("layer", "relation").values
    layers = np.linspace(0, 1, len(values))[:, None]
    return float(((values * layers).sum(0) / values.sum(0)).mean())
