"""Tables: heads as classifiers beside their baselines, trained probes, differences.

A cell is text, a number, `{"value", "low", "high"}`, or `{"head": [subject, layer, head]}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from headscope.reporting.figures import Figure, figure_of
from headscope.reporting.subjects import Subject
from headscope.reporting.variables import label_of, name_of, numbers
from headscope.reporting.wording import Measured, head, measured

__all__ = [
    "Best",
    "best_heads",
    "cell",
    "coreference_table",
    "difference_table",
    "probe_table",
    "relation_table",
]

ALL = "all"
Best = tuple[int, int, Measured]
"""Layer, head, accuracy."""


def cell(found: Measured) -> Any:
    """A value with its interval as a cell."""
    if not found.has_interval:
        return numbers(found.value)
    return {"value": numbers(found.value), "low": numbers(found.low), "high": numbers(found.high)}


def best_heads(data: xr.Dataset, name: str, **labels: Any) -> Best | None:
    """The head with the highest value at these labels, with its interval."""
    values = data[name].sel(labels).transpose("layer", "head")
    if not np.isfinite(values.values).any():
        return None
    row, column = np.unravel_index(int(np.nanargmax(values.values)), values.shape)
    layer, number = int(values["layer"][row]), int(values["head"][column])
    return layer, number, measured(data, name, layer=layer, head=number, **labels)


def relation_table(subjects: Sequence[Subject]) -> Figure | None:
    """The best head for each relation beside the best fixed offset (Clark et al.'s Table 1)."""
    rows = []
    for number, subject in enumerate(subjects):
        data = subject.data("accuracy")
        if data is None or "relation" not in data["accuracy"].dims:
            continue
        for relation in _relations(data):
            found = [
                (best, direction)
                for direction in data["direction"].values.tolist()
                if (best := best_heads(data, "accuracy", relation=relation, direction=direction))
            ]
            if not found:
                continue
            (layer, at, accuracy), direction = max(found, key=lambda pair: pair[0][2].value)
            baseline = measured(data, "baseline", relation=relation)
            offset = measured(data, "baseline_offset", relation=relation)
            cases = measured(data, "cases", relation=relation)
            rows.append(
                [
                    subject.title,
                    str(relation),
                    None if not cases.is_known else int(cases.value),
                    head(number, layer, at),
                    label_of("direction", direction),
                    cell(accuracy),
                    cell(baseline),
                    None if not offset.is_known else f"{int(offset.value):+d}".replace("-", "−"),
                ]
            )
    if not rows:
        return None
    return figure_of(
        "relations",
        "table",
        "The best head for each relation",
        "A head is right where the word it attends to most is the one that the treebank names. "
        "Beside it the best fixed offset. The best of many heads is chosen on the words it is "
        "scored on, so its accuracy is somewhat high.",
        equation="accuracy",
        paper="Clark et al. 2019, section 4.2, Table 1",
        columns=[
            {"label": "Model", "kind": "text"},
            {"label": "Relation", "kind": "text"},
            {"label": "Cases", "kind": "count"},
            {"label": "Head", "kind": "head"},
            {"label": "Direction", "kind": "text"},
            {"label": "Accuracy", "kind": "bar", "against": 6},
            {"label": "Offset baseline", "kind": "share"},
            {"label": "Offset", "kind": "text"},
        ],
        rows=rows,
    )


def coreference_table(subjects: Sequence[Subject]) -> Figure | None:
    """The best head for each kind of mention beside the baselines (Clark et al.'s Table 2)."""
    rows, names = [], []
    for subject in subjects:
        data = subject.data("coref_baseline")
        if data is not None:
            names += [str(n) for n in data["baseline"].values if str(n) not in names]
    for number, subject in enumerate(subjects):
        data = subject.data("coref_accuracy")
        if data is None:
            continue
        for kind in data["mention_kind"].values.tolist():
            best = best_heads(data, "coref_accuracy", mention_kind=kind)
            if best is None:
                continue
            layer, at, accuracy = best
            known = [str(n) for n in data["baseline"].values] if "coref_baseline" in data else []
            baselines = [
                cell(measured(data, "coref_baseline", mention_kind=kind, baseline=name))
                if name in known
                else None
                for name in names
            ]
            rows.append(
                [subject.title, str(kind), head(number, layer, at), cell(accuracy), *baselines]
            )
    if not rows:
        return None
    return figure_of(
        "coreference",
        "table",
        "The best head for antecedents",
        "A head is right where the head word of a mention attends most to the head word of one of "
        "its antecedents. The baselines see no attention.",
        equation="coref_accuracy",
        paper="Clark et al. 2019, section 4.3, Table 2",
        columns=[
            {"label": "Model", "kind": "text"},
            {"label": "Mentions", "kind": "text"},
            {"label": "Head", "kind": "head"},
            {"label": "Accuracy", "kind": "bar"},
            *({"label": _baseline_name(name), "kind": "share"} for name in names),
        ],
        rows=rows,
    )


def probe_table(subjects: Sequence[Subject]) -> Figure | None:
    """Trained probes over all heads, and what they are held against (Clark et al.'s Table 3)."""
    rows = []
    for subject in subjects:
        for probe in subject.probes:
            rows.append([subject.title, probe_name(probe), cell(probe_uas(probe))])
            baselines = getattr(probe, "baselines", None) or {}
            for name, value in dict(baselines).items():
                rows.append([subject.title, f"baseline: {_baseline_name(name)}", float(value)])
    if not rows:
        return None
    return figure_of(
        "probes",
        "table",
        "Trees from all heads together",
        "A probe weighs the attention of all heads, both ways, and guesses the head of each word. "
        "Unlabeled attachment score without punctuation; the model is frozen.",
        equation="uas",
        paper="Clark et al. 2019, section 5, Table 3",
        columns=[
            {"label": "Model", "kind": "text"},
            {"label": "Probe", "kind": "text"},
            {"label": "UAS", "kind": "bar"},
        ],
        rows=rows,
    )


def probe_name(probe: Any) -> str:
    """What kind of probe it is."""
    return str(getattr(probe, "kind", type(probe).__name__)).replace("+", " and ")


def probe_uas(probe: Any) -> Measured:
    """Its score on the documents it was not trained on."""
    bounds = getattr(probe, "uas_interval", None)
    low, high = (float(x) for x in bounds) if bounds is not None else (float("nan"),) * 2
    return Measured(float(probe.uas), low, high)


def difference_table(
    subjects: Sequence[Subject], differences: Sequence[tuple[int, int, xr.Dataset]]
) -> Figure | None:
    """Means over heads of two subjects and their difference, with intervals."""
    rows = []
    for left, right, data in differences:
        for key in data.data_vars:
            name = str(key).removesuffix("_mean")
            if not str(key).endswith("_mean") or name not in COMPARED:
                continue
            labels = {"parent": "either"} if "parent" in data[key].dims else {}
            if data[key].sel(labels).ndim:
                continue
            ours, theirs = (subjects[n].measured(str(key), **labels) for n in (left, right))
            apart = measured(data, str(key), **labels)
            rows.append(
                [
                    subjects[left].title,
                    subjects[right].title,
                    name_of(name),
                    COMPARED[name],
                    cell(ours),
                    cell(theirs),
                    cell(apart),
                    "yes" if apart.is_above(0) or apart.is_below(0) else "no",
                ]
            )
    if not rows:
        return None
    return figure_of(
        "differences",
        "table",
        "Differences",
        "Means over heads, and first minus second. “Clear” says that the 95 % interval of the "
        "difference leaves out 0; both sides are drawn independently.",
        columns=[
            {"label": "First", "kind": "text"},
            {"label": "Second", "kind": "text"},
            {"label": "Mean over heads of", "kind": "text"},
            {"label": "Units", "kind": "text"},
            {"label": "First", "kind": "number"},
            {"label": "Second", "kind": "number"},
            {"label": "Difference", "kind": "signed"},
            {"label": "Clear", "kind": "text"},
        ],
        rows=rows,
    )


COMPARED = {
    "null_share": "share",
    "dep_alignment": "share",
    "distance": "tokens",
    "entropy": "nats",
    "variability": "share",
    "row_entropy": "nats",
    "sink_rate": "share",
}


def _relations(data: xr.Dataset) -> list[Any]:
    """The relations by number of cases, all of them together first."""
    names = data["relation"].values.tolist()
    if "cases" in data:
        cases = {name: float(data["cases"].sel(relation=name)) for name in names}
        names.sort(key=lambda name: -cases[name] if np.isfinite(cases[name]) else 0.0)
    return sorted(names, key=lambda name: str(name).lower() != ALL)


def _baseline_name(name: Any) -> str:
    return str(name).replace("_", " ")
