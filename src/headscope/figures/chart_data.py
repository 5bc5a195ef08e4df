"""Data of charts: each model with all of its results (a subject), and values as charts hold them.

An analysis, importance and probes of one model make one subject. A second analysis of the same
variables (another corpus, one genre) makes another subject.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.figures.chart_types import (
    Axis,
    Figure,
    IntervalCell,
    MaybeNumber,
    Phrase,
    SubjectEntry,
)
from headscope.results.display import VariableDisplay, display_of, is_shown
from headscope.results.effect_data import result_of_effects
from headscope.results.probe import Probe
from headscope.results.result import Result
from headscope.run.compare import Labeled, labeled_jackknives
from headscope.statistics.jackknife import Jackknife

MAIN = ("null_share", "distance", "entropy", "dep_alignment", "variability")
"""Variables of an analysis; two results of a model that share one of them are two subjects."""
CONTROL = ", random weights"
"""Suffix of the model's name for a probe trained on random weights."""

_Key = tuple[str, ...]
"""Equal for results of the same model, weights, edits and attention block."""


@dataclass(frozen=True, slots=True)
class ValueText:
    """A value with its 95 % interval, where it has one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def is_known(self) -> bool:
        """Is there a value at all?"""
        return math.isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        """Is there an interval?"""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def is_above(self, other: float) -> bool:
        """Is all of the interval above a number? Without an interval: no."""
        return self.has_interval and math.isfinite(other) and self.low > other

    def is_below(self, other: float) -> bool:
        """Is all of the interval below a number? Without an interval: no."""
        return self.has_interval and math.isfinite(other) and self.high < other


def measured(data: xr.Dataset, name: str, **labels: object) -> ValueText:
    """One value of a dataset with its interval; NaN where the dataset does not have it."""
    if name not in data:
        return ValueText(math.nan)
    value = float(data[name].sel(labels))
    if f"{name}_interval" not in data:
        return ValueText(value)
    low, high = (float(x) for x in data[f"{name}_interval"].sel(labels).values)
    return ValueText(value, low, high)


@dataclass(frozen=True)
class ModelResults:
    """A model and its results, an analysis first; the title is unique in a report.

    `normed` is the analysis over norms (`over="norm"`), beside the one over attention; its
    variables stand among the results as `…_by_norm`.
    """

    title: str
    results: tuple[Result, ...]
    probes: tuple[Probe, ...] = ()
    page: str | None = None
    normed: Result | None = None

    @property
    def entry(self) -> SubjectEntry:
        """The subject as charts hold it."""
        return {
            "title": self.title,
            "layers": self.layers,
            "heads": self.n_heads,
            "causal": self.is_causal,
            "page": self.page,
        }

    @property
    def is_causal(self) -> bool:
        """Does a token attend only to tokens before it, in the model's main attention?"""
        first = self.results[0]
        is_causal = first.provenance["model"].get("is_causal")
        return next(iter(first.blocks)) == "decoder" or bool(is_causal)

    @property
    def null_is_first(self) -> bool:
        """Is null attention the attention to the first token, rather than to special tokens?"""
        result = self.result("null_share") or self.results[0]
        rule = result.provenance.get("settings", {}).get("null_keys", "auto")
        return rule == "first" or (rule == "auto" and self.is_causal)

    @property
    def layers(self) -> list[int]:
        """The numbers of the layers."""
        return self._axis("layer")

    @property
    def n_heads(self) -> int:
        """Number of heads in a layer."""
        return len(self._axis("head"))

    def has(self, name: str) -> bool:
        """Does any result have this variable?"""
        return any(name in result for result in self.results)

    def data(self, name: str) -> xr.Dataset | None:
        """The dataset of the first result that has a variable."""
        result = self.result(name)
        return None if result is None else result.dataset

    def result(self, name: str) -> Result | None:
        """The first result that has a variable."""
        return next((result for result in self.results if name in result), None)

    def elsewhere(self, name: str) -> str:
        """` on CORPUS`, if a variable was not measured on the corpus of the first result."""
        result = self.result(name)
        if result is None:
            return ""
        corpus = result.corpus_name
        return "" if corpus == self.results[0].corpus_name else f" on {corpus}"

    def measured(self, name: str, **labels: object) -> ValueText:
        """One value with its interval."""
        data = self.data(name)
        return ValueText(float("nan")) if data is None else measured(data, name, **labels)

    def jackknife(self, name: str, **labels: str | int) -> Jackknife | None:
        """The jackknife of the parts of the corpus on a variable; None where there are no sums."""
        result = self.result(name)
        if result is None or not result.states:
            return None
        stored = _JACKKNIVES.setdefault(result, {})
        if name not in stored:  # with the others of its metric, once for a report
            stored[name] = None
            stored.update(labeled_jackknives(result, only=name))
        known = stored[name]
        if known is None:
            return None
        array = known.array
        at = [
            array[dim].values.tolist().index(labels[str(dim)]) if dim in labels else slice(None)
            for dim in array.dims
        ]
        return known.jackknife.at(*at)

    def _axis(self, name: str) -> list[int]:
        for result in self.results:
            if name in result.dataset.coords:
                return [int(n) for n in result.dataset[name].values]
        return []


_JACKKNIVES: WeakKeyDictionary[Result, dict[str, Labeled | None]] = WeakKeyDictionary()


def find_subjects(
    results: Iterable[object], pages: Mapping[str, str] | None = None
) -> tuple[ModelResults, ...]:
    """Return the subjects of a report, in the order in which they were first given. `pages` are
    addresses of explorer pages by the model's name, or a part of it.
    """
    groups: list[tuple[_Key, list[Result]]] = []
    norm_weighted: list[Result] = []
    trained: list[Probe] = []
    for given in (result_of_effects(g) if isinstance(g, xr.DataArray) else g for g in results):
        if isinstance(given, Result):
            for result in _by_block(given):
                if result.over == "norm":
                    norm_weighted.append(result)
                else:
                    _place(result, groups)
        elif isinstance(given, Probe):
            trained.append(given)
        else:
            raise InputError(
                f"A report is made of results; {type(given).__name__} is not one. "
                "Pass what analyze, importance, effects of a corpus or the probes return, or open "
                "a saved result."
            )
    normed: dict[_Key, Result] = {}
    for result in norm_weighted:
        key = _key(result)
        plain = next((members for known, members in groups if known == key), None)
        if plain is None or key in normed:
            _place(result, groups)
        else:
            normed[key] = result
            plain.append(_renamed(result))
    if not groups:
        raise InputError("There is nothing to report: give at least one result.")
    of_subjects = [members for _, members in groups]
    for members in of_subjects:  # analyses come first, in whatever order results were given
        members.sort(key=lambda result: not any(name in result for name in MAIN))
    subjects = [
        ModelResults(
            title, tuple(members), (), _page(members[0].model, pages or {}), normed.get(key)
        )
        for title, (key, members) in zip(_titles(of_subjects), groups, strict=True)
    ]
    for probe in trained:
        model = str(probe.provenance["model"]["name"]).removesuffix(CONTROL)
        at = next((n for n, s in enumerate(subjects) if s.results[0].model == model), None)
        if at is None:
            known = ", ".join(s.results[0].model for s in subjects)
            raise InputError(
                f"A probe was trained on the model {model!r}, but the results are of {known}. "
                "Give a result of the same model, or leave the probe out."
            )
        subjects[at] = replace(subjects[at], probes=(*subjects[at].probes, probe))
    return tuple(subjects)


def measured_elsewhere(subjects: Iterable[ModelResults], name: str) -> str:
    """A sentence that names the subjects for which a variable was measured on another corpus."""
    places = [f"{s.title}{s.elsewhere(name)}" for s in subjects if s.elsewhere(name)]
    return f" Measured for {'; '.join(places)}." if places else ""


def _by_block(result: Result) -> list[Result]:
    """One result for each attention block: an encoder-decoder has several."""
    if len(result.blocks) == 1:
        return [result]
    return [
        replace(
            result,
            blocks={name: data},
            states={name: result.states.get(name, {})},
            groups={
                group: {name: blocks[name]}
                for group, blocks in result.groups.items()
                if name in blocks
            },
        )
        for name, data in result.blocks.items()
    ]


def _key(result: Result) -> _Key:
    model = result.provenance.get("model", {})
    return (
        str(model.get("name")),
        str(model.get("weights_sha256")),
        json.dumps(model.get("edits", []), default=str),
        next(iter(result.blocks)),
    )


def _renamed(result: Result) -> Result:
    """An analysis over norms under names of its own, to stand beside the one over attention."""
    data = result.dataset
    kept = {
        f"{name}_by_norm": array
        for name, array in data.data_vars.items()
        if {"layer", "head"} <= {*array.dims} and is_shown(array)
    }
    intervals = {
        f"{name}_by_norm_interval": data[f"{name}_interval"]
        for name in (str(key).removesuffix("_by_norm") for key in kept)
        if f"{name}_interval" in data
    }
    block = next(iter(result.blocks))
    return replace(result, blocks={block: xr.Dataset({**kept, **intervals})}, states={}, groups={})


def _place(result: Result, groups: list[tuple[_Key, list[Result]]]) -> None:
    """Put a result with the others of its model, unless one of them has the same variables."""
    key = _key(result)
    for known, members in groups:
        is_twice = any(name in result and any(name in other for other in members) for name in MAIN)
        if known == key and not is_twice:
            members.append(result)
            return
    groups.append((key, [result]))


def _titles(subjects: Sequence[Sequence[Result]]) -> list[str]:
    """The models' names, with what tells subjects apart where the names are the same."""
    firsts = [results[0] for results in subjects]
    titles = [result.model for result in firsts]
    for details in zip(*map(_details, firsts), strict=True):
        if len(set(details)) > 1:
            titles = [
                f"{title} · {detail}" if detail and titles.count(title) > 1 else title
                for title, detail in zip(titles, details, strict=True)
            ]
    for number, title in enumerate(titles):
        if title in titles[:number]:
            titles[number] = f"{title} · {number + 1}"
    return titles


def _details(result: Result) -> tuple[str, ...]:
    """Return the details that may tell a result from others of its model, most telling first."""
    return (
        "edited" if result.provenance.get("model", {}).get("edits") else "",
        "by norm" if result.over == "norm" else "",
        next(iter(result.blocks)),
        str(result.provenance.get("group") or ""),
        result.corpus_name,
    )


def _page(model: str, pages: Mapping[str, str]) -> str | None:
    for page in pages.values():
        scheme = urlsplit(str(page)).scheme
        if len(scheme) > 1 and scheme not in ("file", "http", "https"):  # C: is a drive
            raise InputError(f"A page is {page!r}; expected the path or address of an HTML file.")
    if model in pages:
        return pages[model]
    return next((page for name, page in pages.items() if _bare(name) in _bare(model)), None)


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def describe(subjects: Sequence[ModelResults], name: str) -> VariableDisplay:
    """Return the display of a variable, from the first result that has it."""
    arrays = (data.variables[name] for s in subjects if (data := s.data(name)) is not None)
    return display_of(next(arrays, xr.Variable((), np.nan)), name)


def parent_label(array: xr.DataArray) -> dict[str, str]:
    """Return the label `either` for variables that tell parents from dependents."""
    return {"parent": "either"} if "parent" in array.dims else {}


def rounded(value: float) -> MaybeNumber:
    """A number with six significant digits; None for NaN and infinity."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def numbers(array: np.ndarray | xr.DataArray | Sequence[float]) -> Any:
    """Lists of numbers, nested as the array's axes are."""
    values = np.asarray(array, dtype=np.float64)
    if values.ndim == 1:
        return [rounded(value) for value in values.tolist()]
    return [numbers(part) for part in values]


def figure_of(
    key: str,
    kind: str,
    title: str,
    caption: Phrase | str,
    *,
    equation: str | None = None,
    paper: str = "",
    **content: Any,
) -> Figure:
    """Return a figure: the fields of all figures, then the content of its kind (`chart_types`)."""
    common = {
        "id": key,
        "kind": kind,
        "title": title,
        "caption": [caption] if isinstance(caption, str) else caption,
        "equation": equation,
        "paper": paper,
    }
    return cast("Figure", {**common, **content})


def axis_of(known: VariableDisplay) -> Axis:
    """The axis of a variable."""
    return {"title": known.title, "units": known.units, "share": known.is_share}


def cell(value: ValueText, *, share: bool | None = None) -> MaybeNumber | IntervalCell:
    """A value with its interval as a cell; a bare number if there is nothing beside it."""
    if not value.has_interval and share is None:
        return rounded(value.value)
    interval: IntervalCell = {
        "value": rounded(value.value),
        "low": rounded(value.low),
        "high": rounded(value.high),
    }
    if share is not None:
        interval["share"] = share
    return interval
