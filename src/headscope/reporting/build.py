"""The report as plain data, which `json.dumps` takes and the page draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import xarray as xr

from headscope.errors import InputError, MissingExtra
from headscope.heads.head_map import HeadMap, map_heads
from headscope.heads.probed import of_probes
from headscope.reporting.change_table import change_table
from headscope.reporting.effect_table import effect_table
from headscope.reporting.equations import OTHERS, Tree, equation_tree
from headscope.reporting.exemplar_cards import Card, Documents, exemplar_figure, make_cards
from headscope.reporting.figure import Figure, Section, heads_figure, section
from headscope.reporting.finder import finder_figure
from headscope.reporting.findings import about_model, notable_heads
from headscope.reporting.findings_between import about_changes, about_differences, about_groups
from headscope.reporting.group_figure import group_figure
from headscope.reporting.layer_figures import (
    ALIGNMENT,
    LAYERS,
    SURFACE,
    distances_of_text,
    importance_lines,
    label_maps,
    layer_lines,
)
from headscope.reporting.map_figure import map_figure
from headscope.reporting.provenance import Provenance, provenance_of
from headscope.reporting.subjects import MAIN, Subject, find_subjects
from headscope.reporting.table_figures import (
    coreference_table,
    difference_table,
    relation_table,
    trained_table,
)
from headscope.reporting.variables import describe
from headscope.reporting.wording import Sentence
from headscope.run.compare import compare

FORMAT = "headscope-report"
VERSION = 1


class SubjectEntry(TypedDict):
    """A subject, as the page needs to know it."""

    title: str
    layers: list[int]
    heads: int
    causal: bool
    page: str | None


class Paragraph(TypedDict):
    """Sentences on one topic."""

    topic: str
    sentences: list[Sentence]


class Finding(TypedDict):
    """What the numbers say about one subject; `subject` is None for what they say between them."""

    subject: int | None
    title: str
    paragraphs: list[Paragraph]


class Report(TypedDict):
    """Everything the page shows; `web/src/report/data.ts` reads it."""

    format: str
    version: int
    title: str
    subjects: list[SubjectEntry]
    findings: list[Finding]
    sections: list[Section]
    equations: dict[str, Tree]
    cards: list[list[Card]]
    documents: list[list[str]]
    provenance: list[Provenance]


def build_report(
    results: Iterable[object], *, title: str | None = None, pages: Mapping[str, str] | None = None
) -> Report:
    """Everything the page shows: findings, sections of figures, cards of heads, provenance.

    A section is left out if the results have nothing to show in it.
    """
    subjects = find_subjects(results, pages)
    maps = _maps(subjects)
    differences = _differences(subjects)
    documents = Documents()
    sections = _sections(subjects, maps, differences, documents)
    figures = {figure["id"] for shown in sections for figure in shown["figures"]}
    findings = [
        _finding(number, subject.title, about_model(subject, number), figures)
        for number, subject in enumerate(subjects)
    ]
    between = {
        "Means over heads": about_differences(subjects, differences),
        "Kinds of text": about_groups(subjects),
    }
    findings.append(_finding(None, "Side by side", list(between.items()), figures))
    changes = about_changes(subjects, differences)
    findings.insert(0, _finding(None, "What changed", [("", changes)], figures))
    return _report(title or _title(subjects), subjects, sections, maps, documents, findings)


def build_map_report(
    heads: HeadMap, results: Iterable[object], *, explorer: str | None = None
) -> Report:
    """Return a report with one figure, the map of heads, and the cards of its heads.

    Args:
        heads: the map.
        results: further results of the model, for the cards.
        explorer: address of an explorer page of the model, which cards link to.
    """
    name = heads.result.model
    pages = {name: explorer} if explorer else None
    others = [result for result in results if result is not heads.result]
    subjects = find_subjects([heads.result, *others], pages)[:1]
    maps = {0: heads}
    sections = [section("map-section", "Heads that attend alike", [map_figure(subjects, maps)])]
    shown = [made for made in sections if made is not None]
    return _report(f"Heads of {heads.title}", subjects, shown, maps, Documents(), [])


def _report(
    title: str,
    subjects: Sequence[Subject],
    sections: list[Section],
    maps: Mapping[int, HeadMap],
    documents: Documents,
    findings: Sequence[Finding],
) -> Report:
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "subjects": [
            {
                "title": subject.title,
                "layers": subject.layers,
                "heads": subject.n_heads,
                "causal": subject.is_causal,
                "page": subject.page,
            }
            for subject in subjects
        ],
        "findings": [finding for finding in findings if finding["paragraphs"]],
        "sections": sections,
        "equations": _used_equations(sections, subjects),
        "cards": [
            make_cards(subject, maps.get(number), documents)
            for number, subject in enumerate(subjects)
        ],
        "documents": documents.tokens,
        "provenance": [provenance_of(subject) for subject in subjects],
    }


def _sections(
    subjects: Sequence[Subject],
    maps: Mapping[int, HeadMap],
    differences: Sequence[tuple[int, int, xr.Dataset]],
    documents: Documents,
) -> list[Section]:
    chosen = {number: notable_heads(subject) for number, subject in enumerate(subjects)}
    parts: list[tuple[str, str, Sequence[Figure | None]]] = [
        ("what-changed", "What changed", [change_table(subjects, differences)]),
        ("every-head", "Every head", [heads_figure(subjects), finder_figure(subjects)]),
        (
            "by-layer",
            "Layer by layer",
            [
                layer_lines(
                    subjects,
                    "layers",
                    LAYERS,
                    "Null attention, distance and entropy",
                    "Each value is a ratio of sums over all heads of a layer, with its 95 % "
                    "interval over documents. Distance and entropy leave null attention out.",
                ),
                layer_lines(
                    subjects,
                    "surface",
                    SURFACE,
                    "Breadth and sinks",
                    "Null attention included. The dashed line is the entropy of attending evenly "
                    "to every token that can be attended to.",
                ),
            ],
        ),
        (
            "syntax",
            "Syntax",
            [
                layer_lines(
                    subjects,
                    "alignment",
                    ALIGNMENT,
                    "Attention along dependencies",
                    "The share of attention between words that stand in a dependency relation. The "
                    "dashed line is the share of such pairs among all pairs of tokens: what "
                    "evenly spread attention would give.",
                    "dep_alignment",
                ),
                relation_table(subjects),
                label_maps(subjects, "dep_type_to", "relation"),
                distances_of_text(subjects),
            ],
        ),
        (
            "tags",
            "Parts of speech",
            [
                label_maps(subjects, "pos_to", "tag"),
                label_maps(subjects, "pos_from", "tag"),
            ],
        ),
        ("coreference-section", "Coreference", [coreference_table(subjects)]),
        ("probes-section", "Trained probes", [trained_table(subjects)]),
        (
            "effects-section",
            "Does it matter?",
            [effect_table(subjects), importance_lines(subjects)],
        ),
        ("map-section", "Heads that attend alike", [map_figure(subjects, maps)]),
        ("exemplars-section", "Exemplars", [exemplar_figure(subjects, chosen, documents)]),
        (
            "side-by-side",
            "Side by side",
            [difference_table(subjects, differences), group_figure(subjects)],
        ),
    ]
    made = (section(*part) for part in parts)
    return [shown for shown in made if shown is not None]


def _maps(subjects: Sequence[Subject]) -> dict[int, HeadMap]:
    """A map for each subject that has divergences of heads; none without scikit-learn."""
    maps: dict[int, HeadMap] = {}
    for number, subject in enumerate(subjects):
        result = subject.result("js")
        if result is None:
            continue
        try:
            probes = of_probes(subject.results)
            maps[number] = map_heads(result, probes=probes, effects=subject.result("effect"))
        except (InputError, MissingExtra):  # too few heads, or no surface metrics to name them
            continue
    return maps


def _differences(subjects: Sequence[Subject]) -> list[tuple[int, int, xr.Dataset]]:
    """The first subject compared with each other one, where both have an analysis."""
    differences = []
    for number in range(1, len(subjects)):
        left, right = (
            next((r for r in subjects[n].results if any(name in r for name in MAIN)), None)
            for n in (0, number)
        )
        if left is not None and right is not None and left.states and right.states:
            try:
                differences.append((0, number, compare(left, right)))
            except InputError:  # nothing in common
                continue
    return differences


def _title(subjects: Sequence[Subject]) -> str:
    models = list(dict.fromkeys(subject.results[0].model for subject in subjects))
    if len(models) == 1:
        return f"What the heads of {models[0]} attend to"
    return f"What the heads of {', '.join(models[:-1])} and {models[-1]} attend to"


def _finding(
    subject: int | None,
    title: str,
    paragraphs: Sequence[tuple[str, Sequence[Sentence]]],
    figures: set[str],
) -> Finding:
    return {
        "subject": subject,
        "title": title,
        "paragraphs": [
            {"topic": topic, "sentences": [_with_known(text, figures) for text in sentences]}
            for topic, sentences in paragraphs
            if sentences
        ],
    }


def _with_known(text: Sentence, figures: set[str]) -> Sentence:
    """A sentence without the references to figures that the report does not have."""
    return [
        part
        for part in text
        if isinstance(part, str) or "figure" not in part or part["figure"] in figures
    ]


def _used_equations(sections: Sequence[Section], subjects: Sequence[Subject]) -> dict[str, Tree]:
    """The equations that figures, columns and variables name, as their metrics wrote them."""
    names: set[str] = set()
    for figure in (figure for shown in sections for figure in shown["figures"]):
        names.add(str(figure["equation"]))
        names.update(str(column.get("equation")) for column in figure.get("columns", ()))
        names.update(variable["name"] for variable in figure.get("variables", ()))
    trees = {
        name: equation_tree(OTHERS.get(name) or describe(subjects, name).equation)
        for name in sorted(names)
    }
    return {name: tree for name, tree in trees.items() if tree is not None}
