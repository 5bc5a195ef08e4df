"""Results of one model at several steps of its training, as one result with the axis `step`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from headscope.arguments import as_integer
from headscope.errors import InputError
from headscope.results.result import Result

STEP = "step"
PREVIOUS = "previous_token"
SAME = {
    "model": ("architecture", "n_layers", "n_heads", "edits"),
    "corpus": ("hash",),
    "settings": ("max_tokens", "max_word_tokens", "null_keys", "over", "tagset", "unit"),
}
"""Entries of the provenance that all steps share."""


def steps_of(result: Result) -> list[int]:
    """Return the training steps of a result; empty for a result of one model."""
    return [int(n) for n in result.dataset[STEP].values] if STEP in result.dataset.dims else []


def stack_steps(results: Mapping[int, Result]) -> Result:
    """Join the results of several steps, in the order of their numbers, along the axis `step`."""
    if not results:
        raise InputError("There is no step to join: log one first.")
    steps = sorted(results)
    ordered = [results[step] for step in steps]
    for step, result in zip(steps, ordered, strict=True):
        check_same(steps[0], ordered[0], step, result)
    last = ordered[-1]
    blocks = {
        name: stacked(
            [r.blocks[name] for r in ordered], STEP, {STEP: steps, **ordered[0].blocks[name].coords}
        )
        for name in last.blocks
    }
    states = {
        block: {
            name: stacked(
                [r.states[block][name] for r in ordered],
                STEP,
                ordered[0].states[block][name].coords,
            )
            for name in metrics
        }
        for block, metrics in last.states.items()
    }
    models = [{"step": n, **r.provenance["model"]} for n, r in zip(steps, ordered, strict=True)]
    documents = {number: doc for r in ordered for number, doc in r.documents.items()}
    return Result(blocks, states, {**last.provenance, "steps": models}, documents)


def check_same(step: int, result: Result, other_step: int, other: Result) -> None:
    """Raise InputError unless two steps measured the same metrics on the same documents."""

    def fail(what: str, ours: object, theirs: object) -> None:
        raise InputError(
            f"Steps {step} and {other_step} cannot be joined: {what} is {ours!s:.80} in one and "
            f"{theirs!s:.80} in the other. Track one training into one folder, with the same "
            "corpus and metrics."
        )

    for section, keys in SAME.items():
        ours, theirs = (r.provenance.get(section, {}) for r in (result, other))
        for key in keys:
            if ours.get(key) != theirs.get(key):
                fail(f"{section} {key}", ours.get(key), theirs.get(key))
    mine, yours = (r.provenance.get("metrics") for r in (result, other))
    if mine != yours:
        fail("the list of metrics", mine, yours)


def result_at(result: Result, step: int) -> Result:
    """Return the result of one step. See `Result.at_step`."""
    steps = steps_of(result)
    if not steps:
        raise InputError("This result has no axis step: it is of one model, not of a training.")
    number = as_integer(step)
    if number not in steps:
        raise InputError(f"There is no step {step!r} in this result: it has {_listed(steps)}.")
    place = steps.index(number)
    blocks = {name: data.isel(step=place, drop=True) for name, data in result.blocks.items()}
    states = {
        block: {name: data.isel(step=place) for name, data in metrics.items()}
        for block, metrics in result.states.items()
    }
    provenance: dict[str, Any] = {k: v for k, v in result.provenance.items() if k != "steps"}
    provenance["model"] = {**result.provenance["steps"][place]}
    return replace(result, blocks=blocks, states=states, provenance=provenance)


def with_previous(result: Result) -> Result:
    """Add `previous_token`, the attention to offset −1, as a variable of its own."""
    data = result.dataset
    if PREVIOUS in data or "offset_share" not in data:
        return result
    ends = [end for end in ("", "_interval", "_n_eff") if f"offset_share{end}" in data]
    added = {f"{PREVIOUS}{e}": data[f"offset_share{e}"].sel(offset=-1, drop=True) for e in ends}
    about = {"title": "To the previous token", "short_title": "Previous token"}
    added[PREVIOUS] = added[PREVIOUS].assign_attrs(about)
    return replace(result, blocks={**result.blocks, next(iter(result.blocks)): data.assign(added)})


def stacked(parts: Sequence[xr.Dataset], axis: str, coords: Mapping[Any, object]) -> xr.Dataset:
    """Stack each variable along a new first axis; names, axes and labels must agree."""
    arrays = {
        name: (
            (axis, *array.dims),
            np.stack([part.variables[name].values for part in parts]),
            array.attrs,
        )
        for name, array in parts[0].data_vars.items()
    }
    return xr.Dataset(arrays, coords)


def _listed(steps: Sequence[int], most: int = 8) -> str:
    shown = ", ".join(map(str, steps[:most]))
    return shown if len(steps) <= most else f"{shown} … {steps[-1]} ({len(steps)} steps)"
