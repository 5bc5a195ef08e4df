"""What the report is about: models, each with all results that are of it.

Results of one model (an analysis, its importance, its probes) make one subject. A second
analysis of the same variables (another corpus, a genre) is a subject of its own, so that
both stand side by side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import xarray as xr

from headscope.errors import InputError
from headscope.heads.first_edition import with_descriptions
from headscope.reporting.wording import Measured, measured
from headscope.results.probe import Probe
from headscope.results.result import Result

MAIN = ("null_share", "distance", "entropy", "dep_alignment", "variability")
"""What an analysis of a corpus measures; two results that share one are two subjects."""
CONTROL = ", random weights"
"""What follows a model's name where a probe was trained on its random-weights control."""


@dataclass(frozen=True)
class Subject:
    """A model and its results.

    Attributes:
        title: what to call it; unique in a report.
        results: first the one that others are held against.
        probes: trained probes of the model.
        page: address of an explorer page of the model.
    """

    title: str
    results: tuple[Result, ...]
    probes: tuple[Probe, ...] = ()
    page: str | None = field(default=None)

    @property
    def model(self) -> Mapping[str, Any]:
        """The model's provenance."""
        found: Mapping[str, Any] = self.results[0].provenance["model"]
        return found

    @property
    def is_causal(self) -> bool:
        """Do tokens see only what came before? Of several attentions, in the main one."""
        return next(iter(self.results[0].blocks)) == "decoder" or bool(self.model.get("is_causal"))

    @property
    def null_is_first(self) -> bool:
        """Is null attention that to the first token, rather than to special ones?"""
        result = self.result("null_share") or self.results[0]
        rule = result.provenance.get("settings", {}).get("null_keys", "auto")
        return rule == "first" or (rule == "auto" and self.is_causal)

    @property
    def layers(self) -> list[int]:
        """Numbers of its layers."""
        return [int(n) for n in self._axis("layer")]

    @property
    def n_heads(self) -> int:
        """Heads of a layer."""
        return len(self._axis("head"))

    def has(self, name: str) -> bool:
        """Was this variable measured?"""
        return any(name in result for result in self.results)

    def data(self, name: str) -> xr.Dataset | None:
        """The values of the first result that has a variable."""
        result = self.result(name)
        return None if result is None else result.dataset

    def result(self, name: str) -> Result | None:
        """The first result that has a variable."""
        return next((result for result in self.results if name in result), None)

    def elsewhere(self, name: str) -> str:
        """` on another corpus`, where a variable was not measured on the first one."""
        result = self.result(name)
        if result is None:
            return ""
        corpus = result.corpus_name
        return "" if corpus == self.results[0].corpus_name else f" on {corpus}"

    def measured(self, name: str, **labels: Any) -> Measured:
        """One value with its interval."""
        data = self.data(name)
        return Measured(float("nan")) if data is None else measured(data, name, **labels)

    def _axis(self, name: str) -> Sequence[int]:
        for result in self.results:
            if name in result.dataset.coords:
                return [int(n) for n in result.dataset[name].values]
        return ()


def find_subjects(
    results: Iterable[Any], pages: Mapping[str, str] | None = None
) -> tuple[Subject, ...]:
    """The subjects of a report, in the order in which they were first given.

    Args:
        results: results and trained probes.
        pages: addresses of explorer pages by the model's name (or part of it).

    Raises:
        InputError: nothing to report on, or something that is no result.
    """
    found: list[tuple[tuple[str, ...], list[Result]]] = []
    trained: list[Probe] = []
    for item in results:
        if isinstance(item, Result):
            for result in _by_block(with_descriptions(item)):
                _place(result, found)
        elif isinstance(item, Probe):
            trained.append(item)
        else:
            raise InputError(
                f"A report is made of results; {type(item).__name__} is none. "
                "Pass what analyze, importance or the probes return, or open a saved one."
            )
    if not found:
        raise InputError("There is nothing to report: give at least one result.")
    for _, of in found:  # what a report is about comes first, however it was given
        of.sort(key=lambda result: not any(name in result for name in MAIN))
    titles = _titles([of for _, of in found])
    subjects = [
        Subject(title, tuple(of), (), _page(of[0].model, pages or {}))
        for title, (_, of) in zip(titles, found, strict=True)
    ]
    for probe in trained:
        model = str(probe.provenance["model"]["name"]).removesuffix(CONTROL)
        at = next((i for i, s in enumerate(subjects) if s.results[0].model == model), None)
        if at is None:
            known = ", ".join(s.results[0].model for s in subjects)
            raise InputError(
                f"A trained probe is of the model {model!r}, but the results are of {known}."
            )
        subjects[at] = replace(subjects[at], probes=(*subjects[at].probes, probe))
    return tuple(subjects)


def measured_elsewhere(subjects: Iterable[Subject], name: str) -> str:
    """A sentence on the subjects whose variable comes from another corpus; often empty."""
    found = [f"{s.title}{s.elsewhere(name)}" for s in subjects if s.elsewhere(name)]
    return f" Measured for {'; '.join(found)}." if found else ""


def _by_block(result: Result) -> list[Result]:
    """An encoder-decoder's attention, one result for each."""
    if len(result.blocks) == 1:
        return [result]
    return [
        replace(
            result,
            blocks={name: data},
            states={name: result.states.get(name, {})},
            groups={group: {name: of[name]} for group, of in result.groups.items() if name in of},
        )
        for name, data in result.blocks.items()
    ]


def _place(result: Result, found: list[tuple[tuple[str, ...], list[Result]]]) -> None:
    """Put a result with the others of its model, unless they were measured the same way."""
    model = result.provenance.get("model", {})
    key = (
        str(model.get("name")),
        str(model.get("weights_sha256")),
        json.dumps(model.get("edits", []), default=str),
        next(iter(result.blocks)),
    )
    for known, of in found:
        is_twice = any(name in result and any(name in other for other in of) for name in MAIN)
        if known == key and not is_twice:
            of.append(result)
            return
    found.append((key, [result]))


def _titles(subjects: Sequence[Sequence[Result]]) -> list[str]:
    """The models' names; where they are the same, with what tells them apart."""
    firsts = [of[0] for of in subjects]
    titles = [result.model for result in firsts]
    for more in (_edit, _block, _group, _corpus):
        if len(set(titles)) == len(titles):
            break
        extra = [more(result) for result in firsts]
        if len(set(extra)) > 1:
            titles = [
                f"{title} · {text}" if text and titles.count(title) > 1 else title
                for title, text in zip(titles, extra, strict=True)
            ]
    for number, title in enumerate(titles):
        if title in titles[:number]:
            titles[number] = f"{title} · {number + 1}"
    return titles


def _group(result: Result) -> str:
    return str(result.provenance.get("group") or "")


def _corpus(result: Result) -> str:
    return result.corpus_name


def _edit(result: Result) -> str:
    return "edited" if result.provenance.get("model", {}).get("edits") else ""


def _block(result: Result) -> str:
    return next(iter(result.blocks))


def _page(model: str, pages: Mapping[str, str]) -> str | None:
    """The page given for a model: by its name, or by an alias that is part of it."""
    for page in pages.values():
        scheme = urlsplit(str(page)).scheme
        if len(scheme) > 1 and scheme not in ("file", "http", "https"):  # C: is a drive
            raise InputError(f"A page is {page!r}; expected the path of an HTML file.")
    if model in pages:
        return pages[model]
    bare = model.lower().replace("-", "").replace("_", "")
    for name, page in pages.items():
        if name.lower().replace("-", "").replace("_", "") in bare:
            return page
    return None
