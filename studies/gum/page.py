"""docs/study.md: the template filled with tables made from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import headscope as hs
from headscope.results.wires import Wires
from studies.gum.finding import Finding, Judged, Judgement, settle
from studies.gum.genres import COLUMNS, genre_rows
from studies.gum.measure import Runs
from studies.gum.structure import STRUCTURE_FINDINGS, judge_structure
from studies.gum.surface import (
    PROBE_FINDINGS,
    SURFACE_FINDINGS,
    judge_coreference,
    judge_dependencies,
    judge_probes,
    judge_surface,
)
from studies.gum.weighted import WEIGHTED_FINDINGS, head_rows, judge_weighted, role_rows

__all__ = ["all_judgements", "write_page"]

TITLES = {"smollm2": "SmolLM2-135M", "minilm": "MiniLM-L6"}
MARKS = {"holds": "✓ holds", "fails": "✗ fails", "open": "~ open"}
DESCRIBED = {"holds": "· so", "fails": "· not so"}
"""The marks of verdicts without a test."""
TEMPLATE = Path(__file__).with_name("study.md")
FINDINGS = {
    "structure": STRUCTURE_FINDINGS,
    "surface": SURFACE_FINDINGS,
    "probes": PROBE_FINDINGS,
    "weighted": WEIGHTED_FINDINGS,
}


def all_judgements(
    runs: Mapping[str, Runs], probes: Mapping[str, Mapping[str, hs.Probe]]
) -> Judged:
    """Every finding on every model, with verdicts that are corrected for one another."""
    judged: Judged = {part: {} for part in FINDINGS}
    for name, run in runs.items():
        judged["structure"][name] = judge_structure(run.structure)
        judged["surface"][name] = judge_surface(run.surface)
        found = judge_dependencies(run.dependencies)
        if run.coreference is not None:
            found.update(judge_coreference(run.coreference))
        if probes.get(name):
            found.update(judge_probes(probes[name]))
        judged["probes"][name] = found
        judged["weighted"][name] = judge_weighted(run.structure, run.weighted)
    return settle(judged)


def write_page(
    judged: Judged,
    replicated: Judged,
    runs: Mapping[str, Runs],
    probes: Mapping[str, Mapping[str, hs.Probe]],
    wires: Mapping[str, Wires],
    path: Path,
) -> None:
    """Fill the template's marks with tables; nothing on the page is typed by hand but prose."""
    text = TEMPLATE.read_text(encoding="utf-8")
    first = next(iter(runs.values()))
    marks = {
        **{part: _findings(found, judged[part]) for part, found in FINDINGS.items()},
        "replication": _replication(judged, replicated),
        "effects": _effects(runs),
        "heads": "\n".join(head_rows(runs["smollm2"])),
        "wires": _wires(wires),
        "tests": _tests(judged),
        "relations": "\n\n".join(
            f"**{TITLES[name]}**\n\n{_relations(run)}" for name, run in runs.items()
        ),
        "coreference": _coreference(runs),
        "uas": _uas(probes),
        "genres": "\n\n".join(
            f"**{TITLES[name]}**\n\n{_genres(run)}" for name, run in runs.items()
        ),
        "score": _score(judged),
        "n_sentences": f"{first.structure.n_documents:,}",
        "n_segments": f"{first.surface.n_documents:,}",
        "versions": _versions(first),
    }
    for mark, content in marks.items():
        if f"<!-- {mark} -->" not in text:
            raise SystemExit(f"{TEMPLATE} has no place for {mark!r}.")
        text = text.replace(f"<!-- {mark} -->", content)
    path.write_text(text, encoding="utf-8")


def _findings(findings: Sequence[Finding], judged: Mapping[str, Mapping[str, Judgement]]) -> str:
    names = list(judged)
    rows = [
        f"| finding | where | {' | '.join(TITLES[name] for name in names)} | test |",
        "|---|---|" + "---|" * len(names) + "---|",
    ]
    for finding in findings:
        cells = [_cell(judged[name].get(finding.id)) for name in names]
        rows.append(f"| {finding.claim} | {finding.where} | {' | '.join(cells)} | {finding.test} |")
    return "\n".join(rows)


def _cell(judgement: Judgement | None) -> str:
    if judgement is None:
        return "not measured"
    if judgement.verdict is None:
        return f"– ({judgement.text})"
    is_tested = judgement.p_adjusted is not None
    mark = MARKS[judgement.verdict] if is_tested else DESCRIBED[judgement.verdict]
    return f"**{mark}**: {judgement.text}" if is_tested else f"{mark}: {judgement.text}"


def _score(judged: Judged) -> str:
    rows = [
        "| | ✓ holds | ~ open | ✗ fails | · so | · not so | not applicable or not measured |",
        "|---|---|---|---|---|---|---|",
    ]
    n = sum(map(len, FINDINGS.values()))
    for name in next(iter(judged.values())):
        found = [j for part in judged.values() for j in part[name].values()]
        tested = [j.verdict for j in found if j.p_adjusted is not None]
        others = [j.verdict for j in found if j.p_adjusted is None]
        counts = [tested.count(v) for v in ("holds", "open", "fails")]
        counts += [others.count(v) for v in DESCRIBED]
        rows.append(f"| {TITLES[name]} | {' | '.join(map(str, [*counts, n - sum(counts)]))} |")
    return "\n".join(rows)


def _tests(judged: Judged) -> str:
    """How many verdicts there are, and how many of them rest on a test."""
    found = [one for models in judged.values() for of in models.values() for one in of.values()]
    verdicts = sum(one.verdict is not None for one in found)
    tests = sum(one.p_adjusted is not None for one in found)
    return f"{verdicts} verdicts, {tests} of them by a test"


def _replication(judged: Judged, replicated: Judged) -> str:
    """Each verdict on both corpora; before them, how many are the same."""
    names = list(next(iter(judged.values())))
    rows, counts = [], {name: [0, 0, 0, 0, 0] for name in names}
    for part, findings in FINDINGS.items():
        for finding in findings:
            cells = []
            for name in names:
                first, second = (j[part][name].get(finding.id) for j in (judged, replicated))
                if first is None or second is None or None in (first.verdict, second.verdict):
                    cells.append("–")
                    continue
                is_tested = None not in (first.p_adjusted, second.p_adjusted)
                signs = [_cell(x).replace("*", "").partition(":")[0] for x in (first, second)]
                is_same = first.verdict == second.verdict
                cells.append(f"{signs[0] if is_same else ' → '.join(signs)}: {second.text}")
                is_open = "open" in (first.verdict, second.verdict)
                place = (0 if is_same else 1 if is_open else 2) if is_tested else 4 - is_same
                counts[name][place] += 1
            rows.append(f"| {finding.claim} | {' | '.join(cells)} |")
    said = [
        f"**{TITLES[name]}**: of {sum(n[:3])} verdicts by a test on both corpora, {n[0]} are the "
        f"same, {n[1]} are open on one of them, {n[2]} are reversed. Of {sum(n[3:])} described, "
        f"{n[3]} are the same."
        for name, n in counts.items()
    ]
    heading = f"| finding | {' | '.join(TITLES[name] for name in names)} |\n|---|---|---|"
    return "\n\n".join([*said, "\n".join([heading, *rows])])


def _wires(wires: Mapping[str, Wires], most: int = 6) -> str:
    rows = ["| task | wire | share of the gap | stability |", "|---|---|---|---|"]
    for task, found in wires.items():
        about = f"{task}, {found.n_pairs} pairs"
        for wire in found.table[:most]:
            share = f"{wire.share:.2f} [{wire.low:.2f}, {wire.high:.2f}]".replace("-", "−")
            name = f"{wire.source} → {wire.reader}"
            rows.append(f"| {about} | {name} | {share} | {wire.stability:.2f} |")
        stable = np.mean([wire.stability >= 0.9 for wire in found.table])
        rows.append(f"| {about} | {len(found.table)} exact | | {stable:.0%} of at least .9 |")
    return "\n".join(rows)


def _effects(runs: Mapping[str, Runs]) -> str:
    shown = [
        f"**{TITLES[name]}**, {run.effects.n_documents} sentences\n\n"
        + "\n".join(role_rows(run.structure, run.surface, run.effects))
        for name, run in runs.items()
        if run.effects is not None
    ]
    return "\n\n".join(shown)


def _relations(run: Runs, most: int = 12) -> str:
    table = run.dependencies.table()
    rows = [
        "| relation | words | best head | accuracy | chosen elsewhere | best offset | visible |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table.rows[: most + 1]:
        way = "" if row.direction == "dependent" else " (to the dependent)"
        visible = "" if row.visible is None else f"{100 * row.visible:.0f}"
        rows.append(
            f"| `{row.label}` | {row.cases:,} | L{row.layer} H{row.head}{way} | "
            f"{100 * row.accuracy:.0f} {_interval(row.interval)} | "
            f"{100 * row.crossfit_accuracy:.0f} | {100 * row.baselines['offset']:.0f} | {visible} |"
        )
    return "\n".join(rows)


def _coreference(runs: Mapping[str, Runs]) -> str:
    rows = [
        "| model | mentions | n | best head | accuracy | chosen elsewhere | nearest | head match "
        "| sieves |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, run in runs.items():
        for row in run.coreference.table().rows if run.coreference else ():
            rules = " | ".join(f"{100 * value:.0f}" for value in row.baselines.values())
            rows.append(
                f"| {TITLES[name]} | {row.label} | {row.cases:,} | L{row.layer} H{row.head} | "
                f"{100 * row.accuracy:.0f} {_interval(row.interval)} | "
                f"{100 * row.crossfit_accuracy:.0f} | {rules} |"
            )
    return "\n".join(rows)


def _uas(probes: Mapping[str, Mapping[str, hs.Probe]]) -> str:
    known = {
        "right-branching": 26,
        "distance+words": 58,
        "random+words": 30,
        "attention": 61,
        "attention+words": 77,
    }
    measured = {name: found for name, found in probes.items() if found}
    rows = [
        f"| probe | {' | '.join(TITLES[name] for name in measured)} | BERT-base, WSJ (paper) |",
        "|---|" + "---|" * len(measured) + "---|",
    ]
    for label, paper in known.items():
        cells = []
        for found in measured.values():
            if label == "right-branching":
                value = next(iter(found.values())).scores["right_branching"]
                cells.append(f"{100 * float(value.sel(punctuation='without')):.1f}")
            else:
                low, high = found[label].uas_interval
                cells.append(f"{100 * found[label].uas:.1f} [{100 * low:.1f}, {100 * high:.1f}]")
        rows.append(f"| {label} | {' | '.join(cells)} | {paper} |")
    return "\n".join(rows)


def _genres(run: Runs) -> str:
    rows = [
        f"| genre | sentences | tokens each | {' | '.join(COLUMNS)} |",
        "|---|---|---|" + "---|" * len(COLUMNS),
    ]
    for row in genre_rows(run.structure):
        cells = " | ".join(value.format() for value in row.values.values())
        rows.append(f"| {row.genre} | {row.sentences} | {row.tokens:.1f} | {cells} |")
    return "\n".join(rows)


def _versions(run: Runs) -> str:
    versions = run.structure.provenance["versions"]
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _interval(bounds: tuple[float, float]) -> str:
    return f"[{100 * bounds[0]:.0f}, {100 * bounds[1]:.0f}]"
