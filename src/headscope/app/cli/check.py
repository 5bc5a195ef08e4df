"""`headscope check`: compare a run with a baseline, and fail if heads changed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree as ET

from headscope.app.cli.command import CommandResult, argument, option
from headscope.app.cli.shared_options import open_results
from headscope.atomic import atomic_path
from headscope.errors import InputError, UnknownName, warn

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from headscope.results.result import Result

RULE = re.compile(
    r"(?P<name>\w+)(\[(?P<labels>[^\]]*)\])?\s+(?P<verb>changes|rises|falls)"
    r"(\s+by\s+(?P<size>[0-9.eE+-]+))?(\s+in\s+(?P<place>any head|the mean|L\d+\W?H\d+))?"
)
GRAMMAR = "VARIABLE[AXIS=LABEL] changes|rises|falls by NUMBER [in any head | the mean | L3.H1]"
LEVEL = 0.05
PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"


@dataclass
class Verdict:
    """One rule and the numbers that broke it."""

    rule: str
    tested: int
    failures: list[dict[str, Any]] = field(default_factory=list)
    undecided: list[dict[str, Any]] = field(default_factory=list)
    """Numbers that changed by as much, but have too few documents for a test."""

    @property
    def status(self) -> str:
        """Failed, undecided or passed."""
        return FAILED if self.failures else UNDECIDED if self.undecided else PASSED

    @property
    def lines(self) -> list[str]:
        """Lines of the failures, or of what could not be decided."""
        return [_line(row) for row in self.failures or self.undecided]


def check(
    run: Annotated[Path, argument("A run folder or result file.")],
    *,
    against: Annotated[Path, option("The baseline: a run of the same documents.")],
    fail_if: Annotated[
        list[str],
        option(
            "A rule; may be given again: 'null_share changes by 0.1 in any head', "
            "'accuracy_best[relation=nsubj] falls by 0.05', 'role changes in any head'."
        ),
    ],
    junit: Annotated[Path | None, option("Also write a JUnit XML file.")] = None,
) -> CommandResult:
    """Compare a run with a baseline. The exit code is 1 if a rule fails, 2 if undecided.

    A number breaks a rule if it changed by as much as the rule says, and if the change is
    significant: p, corrected over all numbers of the rule (Holm), is below 0.05.
    """
    (result,), (baseline,) = open_results([run]), open_results([against])
    verdicts = [judge(result, baseline, rule) for rule in fail_if]
    if junit is not None:
        with atomic_path(junit) as temporary:
            temporary.write_text(to_junit(verdicts), encoding="utf-8")
    lines = []
    for verdict in verdicts:
        lines.append(f"{verdict.status:<9} {verdict.rule} ({verdict.tested} tested)")
        lines += [f"  {line}" for line in verdict.lines]
    data = {
        "run": str(run),
        "against": str(against),
        "level": LEVEL,
        "correction": "Holm, over the numbers of each rule",
        "rules": [{"rule": v.rule, "status": v.status, **vars(v)} for v in verdicts],
    }
    found = {verdict.status for verdict in verdicts}
    return CommandResult(data, "\n".join(lines), 1 if FAILED in found else 2 * (UNDECIDED in found))


def judge(run: Result, baseline: Result, rule: str) -> Verdict:
    """Apply one rule; raise InputError if it is not one, or if the runs lack its variable."""
    import numpy as np

    from headscope.statistics.intervals import holm

    match = RULE.fullmatch(rule.strip())
    if match is None or (match["size"] is None and match["name"] != "role"):
        raise InputError(f"--fail-if {rule!r} is not a rule. Expected: {GRAMMAR}.")
    place, text = match["place"] or "", match["labels"]
    given = [] if text is None else re.split(r",(?=\s*\w+\s*=)", text)  # a tag may be a comma
    given += map("{}={}".format, ("layer", "head"), map(int, re.findall(r"\d+", place)))
    labels = {a.strip(): x.strip() for a, _, x in (pair.partition("=") for pair in given)}
    if "" in labels.values() or len(labels) < len(given):
        raise InputError(f"--fail-if {rule!r}: labels should be AXIS=LABEL, each axis once.")
    if match["name"] == "role":
        verb = match["verb"] if match["size"] is None else "by"
        if {*labels} - {"layer", "head"} or verb != "changes" or place == "the mean":
            raise InputError(f"--fail-if {rule!r}: a role changes, in any head or in one.")
        return _judge_roles(run, baseline, rule, labels)
    try:
        size = float(match["size"])
    except ValueError:
        raise InputError(f"--fail-if {rule!r}: {match['size']!r} is not a number.") from None
    if not 0 <= size < np.inf:
        raise InputError(f"--fail-if {rule!r}: a change is by a finite number from 0 on.")
    name = f"{match['name']}_mean" if place == "the mean" else match["name"]
    change, p, values = _changes(run, baseline, name)
    if place == "any head" and not {"layer", "head"} <= {*change.dims}:
        raise InputError(f"--fail-if {rule!r}: {name} has no axes layer and head.")
    at = {axis: _label(change, axis, label, rule) for axis, label in labels.items()}
    least = _least_p(run, baseline, name, change).sel(at).values
    change, p = change.sel(at), p.sel(at)
    values = [side.sel({k: v for k, v in at.items() if k in side.dims}) for side in values]
    adjusted = holm(p.values)
    # no change of so few documents can break the rule
    is_out_of_reach = (adjusted >= LEVEL) & (least * np.isfinite(p.values).sum() >= LEVEL)
    adjusted = np.where(is_out_of_reach, np.nan, adjusted)
    amount = {"rises": change.values, "falls": -change.values}.get(
        match["verb"], np.abs(change.values)
    )
    verdict = Verdict(rule, int(np.isfinite(adjusted).sum()))
    broken = np.nan_to_num(amount, nan=-np.inf) >= size
    if len(values) == 2:  # a head without a value in one run did change
        lost = np.isnan(values[0]) != np.isnan(values[1])
        broken |= np.isnan(amount) & lost.transpose(*change.dims).values
    for index in map(tuple, np.argwhere(broken)):
        row = _row(change, values, index, adjusted)
        if np.isnan(adjusted[index]):
            verdict.undecided.append(row)
        elif adjusted[index] < LEVEL:
            verdict.failures.append(row)
    return verdict


def _changes(
    run: Result, baseline: Result, name: str
) -> tuple[xr.DataArray, xr.DataArray, list[xr.DataArray]]:
    """Return the change of a variable, its p values, and both sides where the runs have them."""
    from headscope.run.compare import SAME

    sides = [side[name] for side in (run, baseline) if name in side]
    if name == "effect" and len(sides) == 2:
        return (*_effect_changes(run, baseline), sides)
    data = run.compare(baseline)
    if data.attrs["comparison"] != SAME:
        warn(f"{data.attrs['comparison'].capitalize()}, so smaller changes are missed.")
    if name not in data or f"{name}_p" not in data:
        if name not in data and len(sides) == 2:
            raise InputError(
                f"{name} cannot be compared: it has {dict(sides[0].sizes)} in the run and "
                f"{dict(sides[1].sizes)} in the baseline, or no sums."
            )
        raise UnknownName.of(
            "variable of both runs", name, [str(n) for n in data if f"{n}_p" in data]
        )
    return data[name], data[f"{name}_p"], sides


def _least_p(run: Result, baseline: Result, name: str, change: xr.DataArray) -> xr.DataArray:
    """Return the sign test's p if all documents agreed; 0 where no such bound is known."""
    import numpy as np
    import xarray as xr

    from headscope.run.compare import is_of_same_documents, labeled_jackknives

    least = xr.zeros_like(change, dtype=float)
    if name == "effect" or not {"layer", "head"} <= {*change.dims}:
        return least
    left, right = (labeled_jackknives(side).get(name) for side in (run, baseline))
    if left is None or right is None or not is_of_same_documents(run, baseline):
        return least
    values = left.jackknife.bucket_values - right.jackknife.bucket_values
    return least.copy(data=2 * 0.5 ** np.isfinite(values).sum(0))


def _effect_changes(run: Result, baseline: Result) -> tuple[xr.DataArray, xr.DataArray]:
    """Return changes of effects, whose sums are not kept: as of different texts (Welch)."""
    import numpy as np

    from headscope.statistics.intervals import t_critical, t_two_sided

    errors = []
    for side in (run, baseline):
        low, high = side["effect_interval"].transpose("bound", "layer", "head").values
        errors.append((high - low) / 2 / t_critical(max(side.n_documents - 1, 1)))
    change = run["effect"] - baseline["effect"]
    df = max(min(run.n_documents, baseline.n_documents) - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = change.values / np.hypot(*errors)
    p = np.where(change.values == 0, 1.0, t_two_sided(t, df))
    return change, change.copy(data=p)


def _judge_roles(run: Result, baseline: Result, rule: str, labels: dict[str, str]) -> Verdict:
    """Compare the roles of heads over both corpora, by the rule of roles, without a test."""
    from headscope.heads.roles import corpus_roles

    roles = [corpus_roles(side.dataset) for side in (run, baseline)]
    if roles[0] is None or roles[1] is None or roles[0].sizes != roles[1].sizes:
        raise InputError(
            f"--fail-if {rule!r}: both runs need offset_share, class_share and as many heads."
        )
    at = {axis: [_label(roles[0]["role"], axis, label, rule)] for axis, label in labels.items()}
    new, old = (data["role"].sel(at) for data in roles if data is not None)
    verdict = Verdict(rule, new.size)
    for layer, head in ((int(x), int(y)) for x in new["layer"] for y in new["head"]):
        pair = [str(side.sel(layer=layer, head=head).item()) for side in (new, old)]
        if pair[0] != pair[1]:
            row = {"layer": layer, "head": head, "run": pair[0], "baseline": pair[1]}
            verdict.failures.append(row)
    return verdict


def _label(array: xr.DataArray, axis: str, label: str, rule: str) -> Any:
    if axis not in array.dims:
        raise InputError(
            f"--fail-if {rule!r}: {array.name} has the axes {', '.join(map(str, array.dims))}, "
            f"not {axis}."
        )
    known = {str(value): value for value in array[axis].values.tolist()}
    UnknownName.check(axis, label, known)
    return known[label]


def _row(
    change: xr.DataArray, sides: list[xr.DataArray], index: tuple[int, ...], adjusted: np.ndarray
) -> dict[str, Any]:
    at = {str(d): change[d].values[i].item() for d, i in zip(change.dims, index, strict=True)}
    names = ("run", "baseline") if len(sides) == 2 else ()
    values = {n: float(side.sel(at)) for n, side in zip(names, sides, strict=False)}
    values |= {"change": float(change.values[index]), "p_adjusted": float(adjusted[index])}
    return at | {name: None if value != value else value for name, value in values.items()}


def _line(row: dict[str, Any]) -> str:
    labels = [f"{k} {v}" for k, v in row.items() if k not in NUMBERS]
    head = f"L{row['layer']} H{row['head']} " if "head" in row else ""
    sides = f"{_shown(row['baseline'])} → {_shown(row['run'])}" if "run" in row else ""
    if "change" in row and row["change"] is None:
        return f"{head}{' '.join(labels)}: {sides} (a value is missing)"
    end = f" (change {row['change']:+.4g}" if "change" in row else ""
    p = row.get("p_adjusted")
    end += end and (", too few documents)" if p is None else f", p {p:.2g} corrected)")
    return f"{(head + ' '.join(labels)).rstrip()}{': ' if head or labels else ''}{sides}{end}"


NUMBERS = ("layer", "head", "run", "baseline", "change", "p_adjusted")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value) or "no role"


def to_junit(verdicts: list[Verdict]) -> str:
    """Return a JUnit test suite: a case for each rule."""
    n_failed, n_errors = (sum(v.status == s for v in verdicts) for s in (FAILED, UNDECIDED))
    counts = {"tests": str(len(verdicts)), "failures": str(n_failed), "errors": str(n_errors)}
    suite = ET.Element("testsuite", {"name": "headscope check", **counts})
    for verdict in verdicts:
        case = ET.SubElement(suite, "testcase", {"classname": "headscope", "name": verdict.rule})
        if verdict.status != PASSED:
            tag = "failure" if verdict.status == FAILED else "error"
            ET.SubElement(case, tag, {"message": verdict.lines[0]}).text = "\n".join(verdict.lines)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
