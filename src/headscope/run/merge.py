"""Merge results, and extract the result of one group of documents, from states alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import xarray as xr

from headscope.arguments import expect
from headscope.batch import Axes
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.accumulator import States, merge_states
from headscope.metrics.core.contract import Metric
from headscope.metrics.core.finalize import finalize_all, label_states, state_of
from headscope.metrics.core.registry import COUNTS_DOCUMENTS, metric_from_dict
from headscope.results.result import Result


def merge(left: Result, right: Result) -> Result:
    """Merge two results over disjoint corpora; equal to one run over both.

    Raises:
        InputError: models, metrics or settings differ, or corpora overlap.
    """
    check_results(left=left, right=right)
    _check_mergeable(left, right)
    metrics = metrics_of(left)
    axes = _joint_axes(axes_of(left), axes_of(right))
    offset = int(left.provenance["corpus"]["documents"])
    states = merge_states(
        metrics, _aligned(left, metrics, axes, 0), _aligned(right, metrics, axes, offset)
    )
    layers = {block: layers_of(data) for block, data in left.blocks.items()}
    blocks = finalize_all(states, metrics, axes, layers, over=left.over)
    documents = dict(left.documents)
    documents.update({number + offset: doc for number, doc in right.documents.items()})
    result = Result(
        blocks,
        label_states(states, metrics),
        _merged_provenance(left, right, axes),
        {n: documents[n] for n in used_documents(blocks)},
    )
    return with_groups(result)


def with_groups(result: Result) -> Result:
    """Add the values of each group, if there is more than one."""
    names = axes_of(result).groups
    if len(names) < 2:
        return result
    groups = {name: dict(group_result(result, name).blocks) for name in names}
    return replace(result, groups=groups)


def group_result(result: Result, name: str) -> Result:
    """Return the result of one group of documents (a genre), without metrics that lack buckets."""
    axes = axes_of(result)
    UnknownName.check("group", name, axes.groups)
    number = axes.groups.index(name)
    inside = np.flatnonzero(axes.groups_of_buckets == number)
    has_buckets = {
        metric
        for measured in result.states.values()
        for metric, data in measured.items()
        if "bucket" in data.dims or "bucket" in data
    }
    metrics = [metric for metric in metrics_of(result) if metric.name in has_buckets]
    states: States = {}
    for block, measured in result.states.items():
        for metric in metrics:
            if metric.name not in measured:
                continue
            data = measured[metric.name]
            if "bucket" in data.dims:
                data = data.isel(bucket=inside)
            elif "bucket" in data:
                bucket = data["bucket"].isel(layer=0, drop=True).astype(int)
                data = data.isel(sampled=np.flatnonzero(np.isin(bucket, inside)))
                indices = np.searchsorted(inside, data["bucket"].astype(int))
                data = data.assign(bucket=data["bucket"].copy(data=indices.astype(float)))
            states.setdefault(block, {})[metric.name] = state_of(data)
    buckets = tuple(axes.units[inside].tolist()) if axes.buckets else ()
    group_axes = replace(axes, groups=(name,), buckets=buckets)
    layers = {block: layers_of(data) for block, data in result.blocks.items()}
    provenance = {**result.provenance, "group": name, "axes": group_axes.to_dict()}
    provenance["metrics"] = [
        metric for metric in result.provenance["metrics"] if metric["name"] in has_buckets
    ]
    group = Result(
        finalize_all(states, metrics, group_axes, layers, over=result.over),
        label_states(states, metrics),
        provenance,
    )
    if COUNTS_DOCUMENTS in group:
        provenance["counts"] = {"documents": group.n_documents}
    return group


def check_results(**results: object) -> None:
    """Raise InputError, naming the argument, unless all values are results."""
    for name, result in results.items():
        expect(name, result, Result, "a result of headscope.analyze or headscope.open")


def layers_of(data: xr.Dataset) -> list[int]:
    """Return the layer numbers of a result's dataset."""
    return [int(n) for n in data["layer"].values] if "layer" in data.coords else []


def metrics_of(result: Result) -> tuple[Metric, ...]:
    """Return the metrics of a result, with their options."""
    return tuple(metric_from_dict(values) for values in result.provenance["metrics"])


def registered_metrics_of(result: Result) -> tuple[Metric, ...]:
    """Return the metrics whose classes are registered; others have values but no usable states."""
    registered = []
    for values in result.provenance["metrics"]:
        with suppress(InputError):
            registered.append(metric_from_dict(values))
    return tuple(registered)


def axes_of(result: Result) -> Axes:
    """Return the labels of a result's states."""
    return Axes.from_dict(result.provenance["axes"])


def used_documents(blocks: Mapping[str, xr.Dataset]) -> list[int]:
    """Return the numbers of the documents that are exemplars or samples."""
    names = ("exemplar_document", "sample_document")
    shown = (data[name].values for data in blocks.values() for name in names if name in data)
    return sorted({int(n) for numbers in shown for n in np.unique(numbers)} - {-1})


COMPARED = {
    "model": ("weights_sha256", "architecture", "dtype", "edits"),
    "settings": (
        *("max_tokens", "max_word_tokens", "null_keys", "over", "tagset", "by", "unit"),
        *("layers", "windows"),
    ),
}
"""Provenance that must be equal in two results to merge."""


def _not_merged(reason: str) -> InputError:
    return InputError(f"These results cannot be merged: {reason}.")


def _check_mergeable(left: Result, right: Result) -> None:
    for section, keys in COMPARED.items():
        for key in keys:
            ours, theirs = (r.provenance[section].get(key) for r in (left, right))
            if ours != theirs:
                raise _not_merged(
                    f"{section} {key} is {ours!r} in one and {theirs!r} in the other. Merge runs "
                    "that differ in their corpus alone"
                )
    mine, yours = ({str(m["name"]): m for m in r.provenance["metrics"]} for r in (left, right))
    for name in {**mine, **yours}:
        if name not in mine or name not in yours:
            raise _not_merged(f"only one of them has {name}. Run the same metrics on both")
        for option in {**mine[name], **yours[name]}:
            ours, theirs = mine[name].get(option), yours[name].get(option)
            if ours != theirs:
                raise _not_merged(
                    f"{name} has {option}={ours!r} in one and {theirs!r} in the other"
                )
    if list(mine) != list(yours):
        raise _not_merged("their metrics are in another order")
    if with_facts := [metric.name for metric in metrics_of(left) if metric.facts]:
        raise _not_merged(
            f"{with_facts[0]} depends on what was counted in its whole corpus. Run it over both "
            "together"
        )
    ours, theirs = (set(str(r.provenance["corpus"]["hash"]).split("+")) for r in (left, right))
    if ours & theirs:
        raise InputError(
            "These results are of the same corpus, or share one; merging them would count it twice."
        )


def _joint_axes(left: Axes, right: Axes) -> Axes:
    if left.buckets_per_group != right.buckets_per_group:
        n_left, n_right = left.buckets_per_group, right.buckets_per_group
        raise _not_merged(f"one has {n_left} buckets per group, the other {n_right}")
    groups = tuple(sorted({*left.groups, *right.groups}))
    joint = Axes(
        tuple(sorted({*left.tags, *right.tags})),
        tuple(sorted({*left.relations, *right.relations})),
        groups,
        left.buckets_per_group,
        left.key_classes,
    )
    if len(groups) == 1 and not (left.buckets or right.buckets):
        return joint
    buckets = {
        number for axes in (left, right) for number in _bucket_numbers(axes, groups).tolist()
    }
    return replace(joint, buckets=tuple(sorted(buckets)))


def _bucket_numbers(axes: Axes, groups: Sequence[str]) -> np.ndarray:
    """Return the number of each bucket of `axes` among the buckets of `groups`: `bucket`."""
    positions = np.array([groups.index(name) for name in axes.groups])
    numbers: np.ndarray = positions[axes.groups_of_buckets] * axes.buckets_per_group + axes.units
    return numbers


def _aligned(result: Result, metrics: Sequence[Metric], axes: Axes, offset: int) -> States:
    """Return states with the labels of `axes`, and documents numbered from `offset`."""
    by_name = {metric.name: metric for metric in metrics}
    axes_before = axes_of(result)
    buckets = np.searchsorted(axes.bucket_numbers, _bucket_numbers(axes_before, axes.groups))
    states: States = {}
    for block, measured in result.states.items():
        for name, data in measured.items():
            for dim, old, new in (
                ("tag", list(axes_before.tags), list(axes.tags)),
                ("relation", list(axes_before.relations), list(axes.relations)),
                ("bucket", buckets, np.arange(axes.n_buckets)),
            ):
                if dim in data.dims:
                    data = data.assign_coords({dim: old}).reindex({dim: new}, fill_value=0.0)
            if "bucket" in data and "bucket" not in data.dims:
                moved = buckets[data["bucket"].astype(int)].astype(float)
                data = data.assign(bucket=data["bucket"].copy(data=moved))
            state = state_of(data)
            for array in by_name[name].document_arrays:
                numbers = state[array]
                state = {**state, array: np.where(numbers < 0, numbers, numbers + offset)}
            states.setdefault(block, {})[name] = state
    return states


def _merged_provenance(left: Result, right: Result, axes: Axes) -> dict[str, object]:
    ours, theirs = left.provenance["corpus"], right.provenance["corpus"]
    sampling = ("sample", "seed")  # kept for each side under "merged"; the whole is not a sample
    corpus = {
        **{key: value for key, value in ours.items() if key not in sampling},
        "name": f"{ours['name']} + {theirs['name']}",
        "documents": ours["documents"] + theirs["documents"],
        "hash": f"{ours['hash']}+{theirs['hash']}",
        "left_out": _added(ours.get("left_out", {}), theirs.get("left_out", {})),
        "messages": [*ours.get("messages", ()), *theirs.get("messages", ())],
    }
    both = left.provenance, right.provenance
    if said := dict.fromkeys(filter(None, (side.get("independence") for side in (ours, theirs)))):
        corpus["independence"] = "; ".join(said)
    return {
        **left.provenance,
        "corpus": corpus,
        "counts": _added(*(about["counts"] for about in both)),
        "failed": [document for about in both for document in about["failed"]],
        "plan": " + ".join(about["plan"] for about in both),
        "axes": axes.to_dict(),
        "merged": [dict(left.provenance), dict(right.provenance)],
    }


def _added(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}
