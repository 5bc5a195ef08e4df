"""What the papers left open: does attention that rests fetch anything, and do heads matter?"""

from __future__ import annotations

import numpy as np
import xarray as xr

from headscope.figures.chart_data import find_subjects
from headscope.figures.head_charts import roles_of
from headscope.reporting.report_tables import effects_of
from headscope.results.result import Result
from studies.gum.estimates import SIZE, decide, describe, estimate, over_heads, rests_of
from studies.gum.finding import Finding, Judgement
from studies.gum.measure import Runs

__all__ = ["WEIGHTED_FINDINGS", "head_rows", "judge_weighted", "role_rows"]

MOST = 8
"""Heads of each kind in the table of heads that look and heads that decide."""

WEIGHTED_FINDINGS = (
    Finding(
        "noop",
        "V&B §5.2.3; CLARK §3.2",
        "Null attention is a no-op: norm-weighted, most of it vanishes",
        "mean null share, weighted by norms / of attention < 0.5",
    ),
    Finding(
        "noop_heads",
        "CLARK §3.2",
        "Heads with a sink read something else: norm-weighted, the sink is gone",
        "of the heads with a null share above 0.5, the share that stays above it when weighted < "
        "0.5",
    ),
    Finding(
        "near_weighted",
        "V&B §5.3.3",
        "Heads that follow dependencies look near, also norm-weighted",
        "r of distance and alignment over heads, both weighted < 0",
    ),
)


def judge_weighted(plain: Result, weighted: Result) -> dict[str, Judgement]:
    """Attention beside attention weighted by norms, over the same documents."""
    data = _joined(plain.dataset, weighted.dataset)
    rests = _joined(rests_of(plain, ("null_share",)), rests_of(weighted))
    rests[SIZE] = rests_of(plain, ("null_share",))[SIZE]
    ratio = estimate(data, rests, lambda d: d["null_weighted"].mean() / d["null"].mean())
    staying = estimate(data, rests, _staying)
    fewer, staying = describe(staying, below=0.5)
    near = estimate(data, rests, lambda d: over_heads(d["distance"], d["alignment"]))
    means = (float(data[name].mean()) for name in ("null", "null_weighted"))
    n = int((data["null"] > 0.5).sum())
    return {
        "noop": Judgement(
            decide(ratio, below=0.5),
            "{:.2f} → {:.2f}: ".format(*means) + ratio.format(),
        ),
        "noop_heads": Judgement(fewer, f"{staying.format()} of {n} heads")
        if n
        else Judgement(None, "no head rests"),
        "near_weighted": Judgement(decide(near, below=0), near.format()),
    }


def role_rows(structure: Result, surface: Result, effects: Result) -> list[str]:
    """Lines of a table: the effect of heads by what they do."""
    (subject,) = find_subjects([structure, surface, effects])
    found, roles = effects_of(subject), roles_of(subject)
    assert found is not None
    assert roles is not None
    names = np.array(roles, dtype=object)
    rows = ["| role | heads | with an effect | mean rise | largest |", "|---|---|---|---|---|"]
    means = {str(name): float(np.nanmean(found.values[names == name])) for name in set(names.flat)}
    for name in sorted(means, key=lambda name: -means[name]):
        among = names == name
        largest = found.largest(among)
        shown = "–"
        if largest is not None:
            row, head = largest
            shown = f"L{found.layers[row]} H{head}: {found.values[row, head]:+.4f}"
        n = int((among & found.is_clear).sum())
        rows.append(f"| {name} | {int(among.sum())} | {n} | {means[name]:+.4f} | {shown} |")
    return [row.replace("-0.", "−0.") for row in rows]


def head_rows(runs: Runs) -> list[str]:
    """Lines of a table: the heads that find most, and those whose loss matters most."""
    assert runs.effects is not None
    (subject,) = find_subjects([runs.structure, runs.surface, runs.effects])
    found, roles = effects_of(subject), roles_of(subject)
    assert found is not None
    assert roles is not None
    data = runs.effects.dataset
    finds: dict[tuple[int, int], list[str]] = {}
    tables = [runs.dependencies.table(), *([runs.coreference.table()] if runs.coreference else [])]
    for table in tables:
        for row in table.rows[: MOST + 1] if table is tables[0] else [table["all"]]:
            if table is not tables[0]:
                finds.setdefault((row.layer, row.head), []).append("antecedents")
            elif row.label != "all":
                finds.setdefault((row.layer, row.head), []).append(f"`{row.label}`")
    values = found.values
    order = [
        (int(n) // values.shape[1], int(n) % values.shape[1]) for n in np.argsort(-values, None)
    ]
    rank = {place: n for n, place in enumerate(order, 1)}
    rows = ["| head | finds | role | rise of the loss | rank |", "|---|---|---|---|---|"]
    deciding = [place for place in order[:MOST] if place not in finds]
    for layer, head in [*finds, *deciding]:
        low, high = data["effect_interval"].sel(layer=layer, head=head).values
        rise = f"{values[layer, head]:+.4f} [{low:+.4f}, {high:+.4f}]".replace("-", "−")
        mark = "**" if found.is_clear[layer, head] else ""
        what = ", ".join(finds.get((layer, head), [])) or "–"
        rows.append(
            f"| L{layer} H{head} | {what} | {roles[layer][head]} | {mark}{rise}{mark} | "
            f"{rank[layer, head]} of {values.size} |"
        )
    return rows


def _joined(plain: xr.Dataset, weighted: xr.Dataset) -> xr.Dataset:
    return xr.Dataset(
        {
            "null": plain["null_share"],
            "null_weighted": weighted["null_share"],
            "distance": weighted["distance"],
            "alignment": weighted["dep_alignment"].sel(parent="either", drop=True),
        }
    )


def _staying(d: xr.Dataset) -> float:
    is_resting = d["null"].values > 0.5
    return float((d["null_weighted"].values[is_resting] > 0.5).mean()) if is_resting.any() else 0.0
