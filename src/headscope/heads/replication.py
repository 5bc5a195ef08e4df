"""Findings of one corpus tested again: on another corpus, in another run, or as planned.

The findings are the family of tests. Each test is one-sided, in the direction that was found, and
Holm-corrected over the family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from headscope.errors import HeadscopeError, InputError, UnknownName
from headscope.heads.significant import at_labels, of_heads, rivals_of
from headscope.metrics.core.finalize import HEADS
from headscope.probes.tables import ProbeTable, table_of
from headscope.results.display import Table, Value, VariableDisplay, display_of, is_shown, label_of
from headscope.results.result import Result
from headscope.run.compare import Labeled, is_of_same_documents, labeled_jackknives, probe_counts
from headscope.run.merge import check_results
from headscope.statistics.cross_fitting import cross_fit_score
from headscope.statistics.differences import p_above_both
from headscope.statistics.intervals import (
    ALPHA,
    benjamini_hochberg,
    holm,
    interval,
    p_above,
    p_differs,
)
from headscope.statistics.jackknife import Jackknife, ratio_jackknife

LabelMap = Mapping[str, str | int]
Hypothesis = str | tuple[str, LabelMap]
"""A variable, or a variable with labels: `("pos_to", {"tag": "NOUN", "layer": 3, "head": 1})`."""
HOLDS, NOT_SHOWN, UNTESTED = "holds", "not shown", "cannot be tested"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Value of a finding in one run, with the one-sided p of H0: the finding is false."""

    value: float = np.nan
    interval: tuple[float, float] = (np.nan, np.nan)
    p: float = np.nan
    p_adjusted: float = np.nan

    @classmethod
    def of(cls, jackknife: Jackknife, p: np.ndarray) -> Estimate:
        """Return the estimate of a single number."""
        low, high = interval(jackknife).bounds.tolist()
        return cls(float(jackknife.value), (low, high), float(p))

    @property
    def verdict(self) -> str:
        """`holds`, `not shown` or `cannot be tested`."""
        if np.isnan(self.p_adjusted):
            return UNTESTED
        return HOLDS if self.p_adjusted < ALPHA else NOT_SHOWN


class Measured:
    """Jackknives and counts of a result, computed once for all findings."""

    def __init__(self, result: Result, *, is_equal: bool = False) -> None:
        known = labeled_jackknives(result)
        self.known = {k: _reweighted(v) for k, v in known.items()} if is_equal else known
        self.result, self.counts = result, probe_counts(result)

    def above(self, name: str, labels: LabelMap) -> tuple[Labeled, str, np.ndarray]:
        """Return a variable over heads, the title of its baseline (else the mean), and p."""
        labeled = of_heads(self.known, name, labels)
        baseline = "dep_baseline" + "_by_parent" * (labels.get("parent") != "either")
        has_baseline = name == "dep_alignment" and baseline in self.known
        against = "baseline" if has_baseline else "mean"
        title, rivals = rivals_of(self.known, self.counts, labeled, name, against, labels)
        return labeled, title, np.max([p_above_both(labeled.jackknife, r) for r in rivals], axis=0)


def _reweighted(labeled: Labeled) -> Labeled:
    values = labeled.jackknife.bucket_values
    is_known = np.isfinite(values)
    sums = np.where(is_known, values, 0.0), is_known.astype(float)
    new = ratio_jackknife(*sums, labeled.jackknife.scale)
    return Labeled(labeled.array.copy(data=new.value), new)


@dataclass(frozen=True)
class Claim:
    """A finding of one run, and its test in any other."""

    text: str
    display: VariableDisplay
    found: Estimate
    test: partial[Estimate]

    def show(self, estimate: Estimate) -> str:
        """`43.1 % [42.0, 44.2]`."""
        low, high = (self.display.show(end).split("\u00a0")[0] for end in estimate.interval)
        bounds = f" [{low}, {high}]" if np.isfinite(estimate.interval[0]) else ""
        return self.display.show(estimate.value) + bounds


def tested(claims: Sequence[Claim], measured: Measured) -> list[Estimate]:
    """Test claims in a run: Holm over those that can be tested there."""
    estimates = []
    for claim in claims:
        try:
            estimates.append(claim.test(measured))
        except (HeadscopeError, KeyError, ValueError):  # a variable or label is missing
            estimates.append(Estimate())
    adjusted = holm(np.array([estimate.p for estimate in estimates])).tolist()
    return [replace(e, p_adjusted=p) for e, p in zip(estimates, adjusted, strict=True)]


def claims_of(measured: Measured, names: Sequence[str] | None, n: int | None) -> list[Claim]:
    """Return the findings of a run.

    At most `n` heads of each list above the baseline or the mean (BH), the highest layer above the
    lowest (Bonferroni over pairs), and the best heads of clear rows of a probe's table.
    """
    claims: list[Claim] = []
    for name in names or measured.known:
        if names and name not in measured.known:
            raise UnknownName.of("variable with intervals", name, measured.known)
        if measured.counts is not None and name == measured.counts.name:
            claims += _probe_claims(measured)
        elif name in measured.known and is_shown(measured.known[name].array):
            for labels in _labels(measured.known[name], is_named=bool(names)):
                claims += _head_claims(measured, name, labels, n)
                claims += _layer_claims(measured, name, labels)
    return claims


def _labels(labeled: Labeled, *, is_named: bool) -> list[dict[str, str | int]]:
    """Return the labels under which a variable is over heads; many labels only if named."""
    others = [str(dim) for dim in labeled.array.dims if dim not in HEADS]
    if len(others) + 2 != labeled.array.ndim or len(others) > 1:
        return []
    usual: dict[str, list[str | int]] = {"parent": ["either"], "offset": [-1, 1]}
    for axis in others:
        known = labeled.array[axis].values.tolist() if is_named else usual.get(axis, [])
        return [{axis: label} for label in known]
    return [{}]


def _titled(display: VariableDisplay, labels: LabelMap) -> str:
    shown = [label_of(*label) for label in labels.items() if label[1] != "either"]
    return display.title + (f" ({', '.join(shown)})" if shown else "")


def _head_claims(
    measured: Measured, name: str, labels: LabelMap, n: int | None, *, is_planned: bool = False
) -> Iterator[Claim]:
    labeled, rival, p = measured.above(name, labels)
    array, display = labeled.array, display_of(labeled.array)
    with np.errstate(invalid="ignore"):
        places = np.argwhere((benjamini_hochberg(p) < ALPHA) | is_planned).tolist()
    places.sort(key=lambda place: -array.values[tuple(place)])
    for i, j in places[:n]:
        place = int(array["layer"][i]), int(array["head"][j])
        text = f"{_titled(display, labels)}: L{place[0]} H{place[1]} is above {rival}"
        test = partial(_of_head, name=name, labels=labels, place=place)
        yield Claim(text, display, Estimate.of(labeled.jackknife.at(i, j), p[i, j]), test)


def _of_head(
    measured: Measured, *, name: str, labels: LabelMap, place: tuple[int, int]
) -> Estimate:
    labeled, _, p = measured.above(name, labels)
    i, j = (labeled.array[d].values.tolist().index(x) for d, x in zip(HEADS, place, strict=True))
    return Estimate.of(labeled.jackknife.at(i, j), p[i, j])


def _layer_claims(measured: Measured, name: str, labels: LabelMap) -> Iterator[Claim]:
    if f"{name}_by_layer" not in measured.known:
        return
    layers = at_labels(measured.known[f"{name}_by_layer"], labels)
    values, n = layers.jackknife.value, int(np.isfinite(layers.jackknife.value).sum())
    if n < 2:
        return
    low, high = int(np.nanargmin(values)), int(np.nanargmax(values))
    difference = layers.jackknife.at(high) - layers.jackknife.at(low)
    if p_differs(difference) * n * (n - 1) / 2 < ALPHA:
        display = display_of(measured.known[name].array)
        pair = int(layers.array["layer"][high]), int(layers.array["layer"][low])
        text = f"{_titled(display, labels)}: layer {pair[0]} is above layer {pair[1]}"
        test = partial(_of_layers, name=name, labels=labels, pair=pair)
        yield Claim(text, display, test(measured), test)


def _of_layers(
    measured: Measured, *, name: str, labels: LabelMap, pair: tuple[int, int]
) -> Estimate:
    layers = at_labels(measured.known[f"{name}_by_layer"], labels)
    high, low = (layers.array["layer"].values.tolist().index(layer) for layer in pair)
    difference = layers.jackknife.at(high) - layers.jackknife.at(low)
    return Estimate.of(difference, p_above(difference))


def _probe_claims(measured: Measured, label: str | None = None) -> Iterator[Claim]:
    table, data = table_of(measured.result), measured.result.dataset
    assert isinstance(table, ProbeTable)
    is_relation = table.axis == "relation"
    name = "accuracy" if is_relation else "coref_accuracy"
    dims = ("direction", *HEADS) if is_relation else HEADS
    for row in [table[label]] if label else table.rows:
        place = [data[d].values.tolist().index(getattr(row, d)) for d in dims]
        number = int(np.ravel_multi_index(place, [data.sizes[d] for d in dims]))
        way = f" ({label_of('direction', row.direction)})" if row.direction else ""
        for i, (rule, gain) in enumerate(row.gains.items()):
            if gain.is_clear or label:
                is_offset = rule == "offset"
                rival = "every fixed offset" if is_offset else f"the rule {rule}"
                text = f"{row.label}: L{row.layer} H{row.head}{way} is better than {rival}"
                rules = slice(None) if is_offset else slice(i, i + 1)
                test = partial(_of_probe, label=row.label, place=number, rules=rules)
                found = Estimate(row.crossfit_accuracy, row.crossfit_interval, gain.p)
                yield Claim(text, display_of(data[name]), found, test)


def _of_probe(measured: Measured, *, label: str, place: int, rules: slice) -> Estimate:
    if measured.counts is None:
        return Estimate()
    counts, i = measured.counts, measured.counts.labels.index(label)
    right = counts.right[:, place : place + 1, i]  # both halves choose the only head
    score = cross_fit_score(right, counts.cases[:, i], counts.baselines[:, rules, i])
    return Estimate(score.score, score.interval, score.p)


@dataclass(frozen=True)
class TestedFindings(Table):
    """Findings of a run, tested in other runs; `print` it, or use `to_dataframe`, `to_latex`."""

    __test__ = False  # not a class of tests
    _left = ("found", "second", "p, adjusted", "verdict")

    title: str
    columns: tuple[str, ...]
    """Names of the runs in which findings were tested."""
    rows: tuple[tuple[Claim, tuple[Estimate, ...]], ...]

    @property
    def summary(self) -> str:
        """`31 of 40 findings hold (one-sided, Holm over findings); 2 cannot be tested`."""
        places = "" if len(self.columns) == 1 else " under every choice"
        verdicts = [{estimate.verdict for estimate in row} for _, row in self.rows]
        untested = sum(UNTESTED in each for each in verdicts)
        more = f"; {untested} cannot be tested" if untested else ""
        test = "one-sided, Holm over findings"
        return f"{verdicts.count({HOLDS})} of {len(self)} findings hold{places} ({test}){more}"

    @property
    def _heading(self) -> str:
        return f"{self.title}: {self.summary}"

    @property
    def _note(self) -> str:
        """Choices under which findings do not hold, and how many."""
        columns = zip(*(estimates for _, estimates in self.rows), strict=True)
        missed = [sum(e.verdict != HOLDS for e in column) for column in columns]
        said = [f"{name} {n}" for name, n in zip(self.columns, missed, strict=False) if n]
        if len(self.columns) == 1 or not said:
            return ""
        return f"Findings that do not hold, by choice: {', '.join(said)}."

    @property
    def _caption(self) -> str:
        return f"{self._heading}. 95 % intervals over documents."

    def records(self) -> list[dict[str, Value]]:
        """Return one row for each finding."""
        rows: list[dict[str, Value]] = []
        for claim, estimates in self.rows:
            row: dict[str, Value] = {"finding": claim.text}
            for name, e in zip(("found", *self.columns), (claim.found, *estimates), strict=True):
                row |= {name: e.value, f"{name}_low": e.interval[0], f"{name}_high": e.interval[1]}
                if name != "found":
                    row |= {f"{name}_p_adjusted": e.p_adjusted, f"{name}_verdict": e.verdict}
            rows.append(row)
        return rows

    def _cells(self) -> list[list[str]]:
        if len(self.columns) > 1:
            rows = [[c.text, c.show(c.found), *(e.verdict for e in row)] for c, row in self.rows]
            return [["finding", "found", *self.columns], *rows]
        rows = [
            [claim.text, *map(claim.show, (claim.found, e)), f"{e.p_adjusted:.2g}", e.verdict]
            for claim, (e,) in self.rows
        ]
        return [["finding", "found", "second", "p, adjusted", "verdict"], *rows]


def replicate(
    result: Result, other: Result, names: Sequence[str] | None = None, n: int | None = 3
) -> TestedFindings:
    """See `Result.replicates`."""
    check_results(other=other)
    if not is_same_model(result, other):
        raise InputError(
            f"{result.title} and {other.title} are not of the same model, edits and weighting. "
            "Findings are carried over to another corpus of the same model."
        )
    if is_of_same_documents(result, other):
        raise InputError("Both results are of the same documents. Expected another corpus.")
    claims = claims_of(Measured(result), names, n)
    rows = tuple((c, (e,)) for c, e in zip(claims, tested(claims, Measured(other)), strict=True))
    title = f"{result.model}: findings of {result.corpus_name} on {other.corpus_name}"
    return TestedFindings(title, ("second",), rows)


def is_same_model(left: Result, right: Result) -> bool:
    """Return whether two results have the same weights, edits and weighting of attention."""
    keys = ("weights_sha256", "architecture", "edits")
    models = [[r.provenance["model"].get(key) for key in keys] + [r.over] for r in (left, right)]
    return models[0] == models[1]


def planned_findings(
    results: Sequence[Result], hypotheses: Sequence[Hypothesis]
) -> list[tuple[Claim, Estimate]]:
    """Test planned claims on the results themselves: Holm over all tests of all hypotheses.

    A variable is tested head by head, unless labels name a head; a probe's accuracy by the
    cross-fitted best head of the relation.
    """
    claims: list[Claim] = []
    for hypothesis in [hypotheses] if isinstance(hypotheses, str) else hypotheses:
        match hypothesis:
            case str(name):
                given: LabelMap = {}
            case (str(name), Mapping() as given):
                pass
            case _:
                raise InputError(
                    f"hypotheses has {hypothesis!r}: expected the name of a variable, or a pair of "
                    "a name and labels, such as ('pos_to', {'tag': 'NOUN'})."
                )
        result = next((result for result in results if name in result), None)
        if result is None:
            known = [str(v) for r in results for v in r.dataset.data_vars if is_shown(r[str(v)])]
            raise UnknownName.of("variable of a hypothesis", name, known)
        measured, place = Measured(result), [given.get(dim) for dim in HEADS]
        if measured.counts is not None and name == measured.counts.name:
            axis = measured.counts.axis
            if unknown := {*given} - {axis}:
                raise InputError(
                    f"hypotheses has {hypothesis!r}: {name} is tested by its best head, and takes "
                    f"{axis!r} alone, not {', '.join(map(repr, sorted(unknown)))}."
                )
            claims += _probe_claims(measured, str(given.get(axis, "all")))
            continue
        labels = {axis: label for axis, label in given.items() if axis not in HEADS}
        if "parent" in result[name].dims:
            labels.setdefault("parent", "either")
        mine = [
            claim
            for claim in _head_claims(measured, name, labels, None, is_planned=True)
            if all(a in (None, b) for a, b in zip(place, claim.test.keywords["place"], strict=True))
        ]
        claims += mine
        if not mine:
            raise InputError(f"hypotheses has {hypothesis!r}, but no head is there.")
    adjusted = holm(np.array([claim.found.p for claim in claims])).tolist()
    return [(c, replace(c.found, p_adjusted=p)) for c, p in zip(claims, adjusted, strict=True)]
