"""The findings of Clark et al. (2019), each as a test on one model's results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

import headscope as hs
from headscope.results.result import Result
from headscope.statistics.intervals import interval
from headscope.statistics.jackknife import pool, ratio_jackknife
from studies.gum.estimates import Estimate, decide, describe, estimate, rests_of
from studies.gum.finding import Finding, Judgement

__all__ = [
    "PROBE_FINDINGS",
    "SURFACE_FINDINGS",
    "judge_coreference",
    "judge_dependencies",
    "judge_probes",
    "judge_surface",
]

SURFACE_FINDINGS = (
    Finding(
        "positional",
        "CLARK §3.1",
        "Some heads put most of their attention on the previous or next token",
        "highest share at offset −1 or 1 > 0.5",
    ),
    Finding(
        "early",
        "CLARK §3.1",
        "Such heads are in the earlier layers",
        "mean depth of the heads above 0.5 < 0.5 (0 first layer, 1 last)",
    ),
    Finding(
        "sep",
        "CLARK §3.2, Fig. 2",
        "In some layer more than half of the attention goes to [SEP]",
        "largest share of a layer to [SEP] > 0.5",
    ),
    Finding(
        "sepsep",
        "CLARK §3.2, Fig. 2",
        "There, [SEP] looks at [SEP] (more than 0.9)",
        "largest share of a layer from separators to separators > 0.9",
    ),
    Finding(
        "rest",
        "CLARK §3.2 and V&B §5.2.3",
        "In some layer one special token is an attention sink, whichever it is",
        "largest share of a layer to the first token, [CLS] or [SEP] > 0.5",
    ),
    Finding(
        "broad",
        "CLARK §3.3, Fig. 4",
        "Heads of the first layer are the broadest",
        "mean row entropy, first layer − the others > 0 (nats)",
    ),
    Finding(
        "cls",
        "CLARK §3.3, Fig. 4",
        "In the last layer [CLS] attends broadly again (3.89 nats)",
        "mean entropy from [CLS], last layer − the layers between > 0 (nats)",
    ),
    Finding(
        "layers",
        "CLARK §6, Fig. 6",
        "Heads of one layer behave alike",
        "mean divergence within layers / between layers < 1",
    ),
)

PROBE_FINDINGS = (
    Finding(
        "relations",
        "CLARK §4.2, Table 1",
        "For many relations there is a head that finds them better than a fixed offset",
        "share of relations (≥ 100 cases) whose best head, chosen on other documents, beats "
        "the best offset > 0.5",
    ),
    Finding(
        "overall",
        "CLARK §4.2",
        "No single head parses: the best finds few of all parents (34.5 %)",
        "accuracy of the best head over all words < 0.5",
    ),
    Finding(
        "coreference",
        "CLARK §4.3, Table 2",
        "A head finds antecedents better than the head-match rule",
        "best head, chosen on other documents, − head match > 0",
    ),
    Finding(
        "sieves",
        "CLARK §4.3, Table 2",
        "It comes near the four sieves (65 against 69 %)",
        "best head, chosen on other documents, − sieves > −0.1",
    ),
    Finding(
        "probe",
        "CLARK §5, Table 3",
        "All heads together know more syntax than word vectors and distances do (61 against 58)",
        "UAS, attention − distances and words > 0",
    ),
    Finding(
        "words",
        "CLARK §5, Table 3",
        "Attention and words together know most (77)",
        "UAS, attention and words − the better of either > 0",
    ),
    Finding(
        "random",
        "CLARK §5, Table 3",
        "It is learned: random weights hold little (30)",
        "UAS, attention and words − the same on random weights > 0",
    ),
)


def judge_surface(result: Result) -> dict[str, Judgement]:
    """Section 3 and 6 on one model."""
    data, rests = result.dataset, rests_of(result)
    classes = [str(name) for name in data["key_class"].values]
    has_separators = "[SEP]" in classes
    n_layers = data.sizes["layer"]

    def of(statistic) -> Estimate:  # type: ignore[no-untyped-def]
        return estimate(data, rests, statistic)

    def fixed(d: xr.Dataset) -> xr.DataArray:
        return d["offset_share"].sel(offset=[-1, 1]).max("offset")

    def by_layer(d: xr.Dataset, name: str) -> float:
        return float(d["class_share"].sel(key_class=name).mean("head").max())

    positional = of(lambda d: fixed(d).max())
    depth = of(lambda d: _depth_above(fixed(d), n_layers))
    early, depth = describe(depth, below=0.5)
    above = int((fixed(data) > 0.5).sum())
    places = [name for name in ("first", "[CLS]", "[SEP]") if name in classes]
    rest = of(lambda d: max(by_layer(d, name) for name in places))
    place = max(places[::-1], key=lambda name: by_layer(data, name))
    broad = of(
        lambda d: (
            d["row_entropy"].isel(layer=0).mean()
            - d["row_entropy"].isel(layer=slice(1, None)).mean()
        )
    )
    layers, others = hs.map_heads(result).layer_spread()
    found = {
        "positional": Judgement(
            decide(positional, above=0.5), f"{positional.format()}; {above} heads above 0.5"
        ),
        "early": Judgement(early, depth.format()),
        "sep": Judgement(None, "has no [SEP]"),
        "sepsep": Judgement(None, "has no [SEP]"),
        "rest": Judgement(decide(rest, above=0.5), f"{rest.format()}, {_shown(place)}"),
        "broad": Judgement(decide(broad, above=0), broad.format()),
        "cls": Judgement(None, "the first token sees only itself"),
        "layers": Judgement(
            decide(Estimate(layers / others, np.nan, np.nan), below=1),
            f"{layers:.2f} / {others:.2f} = {layers / others:.2f}",
        ),
    }
    if has_separators:
        sep = of(lambda d: by_layer(d, "[SEP]"))
        twice = of(lambda d: d["sep_from_sep"].mean("head").max())
        cls = of(
            lambda d: (
                d["first_entropy"].isel(layer=-1).mean()
                - d["first_entropy"].isel(layer=slice(1, -1)).mean()
            )
        )
        found["sep"] = Judgement(decide(sep, above=0.5), sep.format())
        found["sepsep"] = Judgement(decide(twice, above=0.9), twice.format())
        found["cls"] = Judgement(decide(cls, above=0), cls.format())
    return found


def judge_dependencies(result: Result) -> dict[str, Judgement]:
    """Section 4.2 on one model."""
    table = result.table()
    rows = [row for row in table.rows if row.label != "all"]
    better = sum(row.gains["offset"].is_clear for row in rows)
    overall = table["all"]
    total = Estimate(overall.accuracy, *overall.interval)
    share = Estimate(better / len(rows), np.nan, np.nan)
    offset = overall.baselines["offset"]
    return {
        "relations": Judgement(decide(share, above=0.5), f"{better} of {len(rows)}"),
        "overall": Judgement(decide(total, below=0.5), f"{total.format()}; offset {offset:.2f}"),
    }


def judge_coreference(result: Result) -> dict[str, Judgement]:
    """Section 4.3 on one model: the best head, chosen on other documents, against the rules."""
    row = result.table()["all"]
    values = {name: row.baselines[name] for name in ("head_match", "sieves")}
    gaps = {name: Estimate(row.gains[name].value, *row.gains[name].interval) for name in values}
    text = f"L{row.layer} H{row.head}: {row.crossfit_accuracy:.2f} against {{:.2f}}"
    return {
        "coreference": Judgement(
            decide(gaps["head_match"], above=0), text.format(values["head_match"])
        ),
        "sieves": Judgement(decide(gaps["sieves"], above=-0.1), text.format(values["sieves"])),
    }


def judge_probes(probes: Mapping[str, hs.Probe]) -> dict[str, Judgement]:
    """Section 5 on one model: paired differences over the same texts."""
    attention, both = probes["attention"], probes["attention+words"]
    vectors, random = probes["distance+words"], probes["random+words"]
    better = attention if attention.uas >= vectors.uas else vectors
    pairs = {"probe": (attention, vectors), "words": (both, better), "random": (both, random)}
    found = {}
    for name, (left, right) in pairs.items():
        gap = _paired(left, right)
        text = f"{left.uas:.1%} − {right.uas:.1%} = {100 * gap.value:+.1f}".replace("-", "−")
        found[name] = Judgement(decide(gap, above=0), text)
    return found


def _paired(left: hs.Probe, right: hs.Probe) -> Estimate:
    """Difference of two scores on the same texts."""
    hits, others = (
        probe.scores["right"].sel(decoding="greedy", punctuation="without").values
        for probe in (left, right)
    )
    total = left.scores["counted"].sel(punctuation="without").values
    texts = left.scores["text"].values
    gap = ratio_jackknife(
        pool((hits - others).astype(float), texts), pool(total.astype(float), texts)
    )
    bounds = interval(gap)
    return Estimate(left.uas - right.uas, float(bounds.low), float(bounds.high), gap)


def _depth_above(shares: xr.DataArray, n_layers: int) -> float:
    layers = np.nonzero(shares.transpose("layer", "head").values > 0.5)[0]
    return float(layers.mean() / (n_layers - 1)) if len(layers) else float("nan")


def _shown(place: str) -> str:
    return "first token" if place == "first" else place
