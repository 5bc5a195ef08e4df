"""`headscope.report`: results as one offline HTML file that reads like a paper.

The report is built as plain data (`report_types`); equations travel as trees of MathML, not as
markup.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import xarray as xr
from latex2mathml.converter import convert

from headscope.arguments import expect
from headscope.errors import InputError, MissingExtra
from headscope.figures import layer_charts
from headscope.figures.chart_data import (
    MAIN,
    ModelResults,
    describe,
    figure_of,
    find_subjects,
    rounded,
)
from headscope.figures.chart_types import Figure, Phrase, SentencePart
from headscope.figures.head_charts import (
    Documents,
    exemplar_figure,
    head_variables,
    heads_figure,
    map_figure,
    roles_of,
)
from headscope.heads.cards import make_all_cards
from headscope.heads.head_map import HeadMap, map_heads
from headscope.heads.replication import Hypothesis
from headscope.heads.roles import of_probes
from headscope.page.codec import Payload
from headscope.page.save_page import make_page, write_page
from headscope.reporting import comparisons
from headscope.reporting.findings import about_model, notable_heads
from headscope.reporting.hypothesis_tests import settled
from headscope.reporting.report_tables import (
    coreference_table,
    difference_table,
    effect_table,
    probe_name,
    relation_table,
    trained_table,
    wires_table,
)
from headscope.reporting.report_types import (
    Finding,
    Provenance,
    Report,
    ReportCard,
    Rows,
    Section,
    Tree,
)
from headscope.reporting.wording import with_interval
from headscope.results.files import open as open_file
from headscope.results.probe import Probe
from headscope.results.result import Result
from headscope.results.trace import Trace
from headscope.results.wires import Wires
from headscope.run.compare import compare
from headscope.run.merge import check_results

UNDER = ("∑", "max")
"""Signs whose index stands under them, even in fractions, where LaTeX sets it beside them."""
OTHERS = {
    "uas": r"p(i \mid j) \propto \exp \sum_{k} w_k a_{ij} + u_k a_{ji}",
    "correlation": r"r = \frac{\sum_{h} (x_h - \bar{x}) (y_h - \bar{y})}{s_x s_y}",
}
"""Equations of numbers that no metric describes."""


def equation_tree(latex: str) -> Tree | None:
    """The tree of an equation; None if the text is empty or is not LaTeX."""
    if not latex:
        return None
    try:
        math = ET.fromstring(convert(latex, display="block"))
    except Exception:  # a result file may hold any text here
        return None
    return ["mrow", *(_tree(child) for child in math)]


def _tree(element: ET.Element) -> Tree:
    tag = element.tag.rpartition("}")[2]
    children: Tree = [_tree(child) for child in element]
    if element.text and not children:
        children = [element.text]
    if tag == "msub" and children[0][1:] in [[sign] for sign in UNDER]:
        tag = "munder"
    return [tag, *children]


SHOWN = ("unit", "by", "tagset", "null_keys", "max_tokens", "max_word_tokens")


def provenance_of(subject: ModelResults) -> Provenance:
    """The model, then each run on it."""
    runs: list[Rows] = [{"title": r.corpus_name, "rows": _run_rows(r)} for r in subject.results]
    runs += [{"title": f"Probe: {probe_name(p)}", "rows": _probe_rows(p)} for p in subject.probes]
    return {"title": subject.title, "rows": _model_rows(subject.results[0]), "runs": runs}


def _model_rows(result: Result) -> list[tuple[str, str]]:
    model = result.provenance["model"]
    return _kept(
        {
            "Model": _joined(model, "name", "architecture", "dtype"),
            "Source": model.get("source"),
            "Revision": model.get("revision"),
            "Weights (SHA-256)": model.get("weights_sha256"),
            "Notes": "; ".join(map(str, model.get("notes") or [])),
            "Edits": "; ".join(map(str, model.get("edits") or [])),
            "Attention read by": model.get("route"),
        }
    )


def _run_rows(result: Result) -> list[tuple[str, str]]:
    about = result.provenance
    corpus, counts, settings = (about.get(name, {}) for name in ("corpus", "counts", "settings"))
    left_out = corpus.get("left_out") or {}
    metrics = [str(metric.get("name")) for metric in about.get("metrics", [])]
    documents = counts.get("documents", corpus.get("documents"))
    failures = [
        f"{_count(counts[key])} {what}"
        for key, what in (
            ("truncated", "cut to the model's length"),
            ("failed", "failed"),
            ("long_words", "overlong words left out"),
        )
        if key in counts
    ]
    return _kept(
        {
            "Corpus": result.corpus_name,
            "Corpus hash": corpus.get("hash"),
            "Documents": ", ".join(filter(None, [_count(documents), *failures])),
            "Independence": result.independence,
            "Tokens": _count(counts.get("tokens")),
            "Skipped when reading": json.dumps(left_out, ensure_ascii=False) if left_out else None,
            "Settings": ", ".join(f"{k} {settings[k]}" for k in SHOWN if settings.get(k)),
            "Plan": about.get("plan"),
            "Measured": ", ".join(metrics),
            "Versions": _versions(about.get("versions", {})),
        }
    )


def _probe_rows(probe: Probe) -> list[tuple[str, str]]:
    about = probe.provenance
    treebanks = {
        name: _joined(about[name], "name", "documents", "sentences", "words", "hash")
        for name in ("train", "dev")
        if isinstance(about.get(name), Mapping)
    }
    return _kept(
        {
            "Trained on": treebanks.get("train"),
            "Scored on": treebanks.get("dev"),
            "Seed": about.get("seed"),
            "Versions": _versions(about.get("versions", {})),
        }
    )


def _kept(rows: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, str(text)) for name, text in rows.items() if text not in (None, "")]


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _joined(values: Mapping[str, object], *names: str) -> str:
    return ", ".join(str(values[name]) for name in names if values.get(name))


def _count(value: object) -> str | None:
    return f"{int(value):,}" if isinstance(value, int | float) else None


PAIRS = (
    ("Distance and alignment", "distance", "dep_alignment:either"),
    ("Distance and entropy", "distance", "entropy"),
    ("Null attention and effect", "null_share", "effect"),
    ("Null attention, norm-weighted", "null_share", "null_share_by_norm"),
    ("Gradient and effect", "removal_estimate:all", "effect"),
)
"""Pairs of variables that papers compare: a title and two variables."""


def _finder(subjects: Sequence[ModelResults]) -> Figure | None:
    """Return heads as points, between any two variables of the figure of all heads."""
    known = [variable.id for variable in head_variables(subjects)]
    if len(known) < 2:
        return None
    pairs = [pair for pair in PAIRS if pair[1] in known and pair[2] in known]
    presets = [
        {"title": title, "x": x, "y": y, "notes": [_note(s, x, y) for s in subjects]}
        for title, x, y in pairs or [("", known[0], known[1])]
    ]
    return figure_of(
        "finder",
        "finder",
        "Find a head",
        "Each point is a head, colored by what it does. Choose any two measures; drag a rectangle "
        "to list the heads in it; click a point for its card. r is Pearson's, over heads; its "
        "interval is over documents.",
        equation="correlation",
        paper="Vig & Belinkov 2019, section 5.3.3",
        presets=presets,
        panels=[{"subject": n, "roles": roles_of(s)} for n, s in enumerate(subjects)],
    )


def _note(subject: ModelResults, x: str, y: str) -> str:
    r = subject.data("correlation")
    key = f"{x}-{y.split(':')[0]}"
    if r is None or key not in r["correlated"].values:
        return ""
    value = subject.measured("correlation", correlated=key)
    return f"r = {with_interval(value)}" if value.is_known else ""


FORMAT = "headscope-report"
VERSION = 1


def build_report(
    results: Iterable[object],
    *,
    title: str | None = None,
    pages: Mapping[str, str] | None = None,
    replicate: Sequence[Result] = (),
    hypotheses: Sequence[Hypothesis] = (),
) -> Report:
    """Return all that the page shows: findings, sections of figures, cards of heads, provenance."""
    given = list(results)
    wires = [result for result in given if isinstance(result, Wires)]
    given = [result for result in given if not isinstance(result, Wires)]
    tracked = [result for result in given if isinstance(result, Result) and result.steps]
    last = {id(result): result.at_step(result.steps[-1]) for result in tracked}
    subjects = find_subjects([last.get(id(result), result) for result in given], pages)
    tracks = [(_subject_of(subjects, last[id(result)]), result) for result in tracked]
    differences = _differences(subjects)
    replicated = comparisons.replications(subjects, replicate)
    between = {
        "Means over heads": comparisons.about_differences(subjects, differences),
        "Best heads": comparisons.about_best_heads(subjects),
        "Kinds of text": comparisons.about_groups(subjects),
    }
    written = [
        (None, "What was planned", [("", comparisons.about_planned(subjects, hypotheses))]),
        (None, "What replicates", [("", comparisons.about_replications(replicated))]),
        (None, "Through training", [("", comparisons.about_training(tracks))]),
        *settled(
            [
                (None, "What changed", [("", comparisons.about_changes(subjects, differences))]),
                *((n, s.title, about_model(s, n)) for n, s in enumerate(subjects)),
                (None, "Side by side", list(between.items())),
            ]
        ),
    ]
    maps, documents = _maps(subjects), Documents()
    cards = _cards(subjects, maps, documents)
    charts = [layer_charts.training_lines(result, number) for number, result in tracks]
    for place, chart in enumerate(charts):
        if chart is not None and place:
            chart["id"] += f"-{place + 1}"
    sections = _sections(
        ("training-section", "Through training", [*charts, comparisons.onset_table(tracks)]),
        *_parts(subjects, maps, differences, documents),
        ("replication-section", "What replicates", [comparisons.replication_table(replicated)]),
        ("wires", "Wires", [wires_table(w, number) for number, w in enumerate(wires)]),
    )
    _add_independence(sections, subjects)
    figures = {figure["id"] for shown in sections for figure in shown["figures"]}
    findings = [_finding(*finding, figures) for finding in written]
    return _report(title or _title(subjects), subjects, sections, cards, documents, findings)


def _subject_of(subjects: Sequence[ModelResults], result: Result) -> int:
    """Return the number of the first subject with a result, which may be cut into blocks."""
    of_subject = (any(r.provenance is result.provenance for r in s.results) for s in subjects)
    return list(of_subject).index(True)


def _add_independence(sections: Sequence[Section], subjects: Sequence[ModelResults]) -> None:
    """Add the units that are taken as independent to captions that speak of intervals."""
    results = (result for subject in subjects for result in subject.results)
    said = dict.fromkeys(result.independence for result in results if result.independence)
    for figure in (figure for section in sections for figure in section["figures"] if said):
        caption = figure["caption"]
        if any(isinstance(part, str) and "interval" in part for part in caption):
            figure["caption"] = [*caption, f" Independence: {'; '.join(said)}."]


def build_map_report(
    heads: HeadMap, results: Iterable[object], *, explorer: str | None = None
) -> Report:
    """Return a report with one figure, the map of heads, and the cards of its heads. Cards link to
    the page `explorer`.
    """
    name = heads.result.model
    pages = {name: explorer} if explorer else None
    others = [result for result in results if result is not heads.result]
    subjects = find_subjects([heads.result, *others], pages)[:1]
    maps, documents = {0: heads}, Documents()
    sections = _sections(_map_part(subjects, maps))
    cards = _cards(subjects, maps, documents)
    return _report(f"Heads of {heads.title}", subjects, sections, cards, documents, [])


def _cards(
    subjects: Sequence[ModelResults], maps: Mapping[int, HeadMap], documents: Documents
) -> list[list[ReportCard]]:
    return [
        [
            {
                "layer": card.layer,
                "head": card.head,
                "summary": card.summary,
                "evidence": [
                    (topic, [[row.what, row.value, row.rank] for row in rows])
                    for topic, rows in card.evidence
                ],
                "nearest": [(layer, head, rounded(js)) for layer, head, js in card.nearest],
                "exemplars": documents.arcs(
                    subject.result("exemplar_weight"), card.layer, card.head
                ),
            }
            for card in make_all_cards(subject.results, heads=maps.get(number), n_exemplars=0)
        ]
        for number, subject in enumerate(subjects)
    ]


def _report(
    title: str,
    subjects: Sequence[ModelResults],
    sections: list[Section],
    cards: list[list[ReportCard]],
    documents: Documents,
    findings: Sequence[Finding],
) -> Report:
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "subjects": [subject.entry for subject in subjects],
        "findings": [finding for finding in findings if finding["paragraphs"]],
        "sections": sections,
        "equations": _used_equations(sections, subjects),
        "cards": cards,
        "documents": documents.tokens,
        "provenance": [provenance_of(subject) for subject in subjects],
    }


_Part = tuple[str, str, Sequence[Figure | None]]


def _map_part(subjects: Sequence[ModelResults], maps: Mapping[int, HeadMap]) -> _Part:
    return "map-section", "Heads that attend alike", [map_figure(subjects, maps)]


def _parts(
    subjects: Sequence[ModelResults],
    maps: Mapping[int, HeadMap],
    differences: Sequence[tuple[int, int, xr.Dataset]],
    documents: Documents,
) -> list[_Part]:
    chosen = {number: notable_heads(subject) for number, subject in enumerate(subjects)}
    by_layer = [
        layer_charts.layer_lines(
            subjects,
            "layers",
            layer_charts.LAYERS,
            "Null attention, distance and entropy",
            "Each value is a ratio of sums over all heads of a layer, with its 95 % "
            "interval over documents. Distance and entropy leave null attention out.",
        ),
        layer_charts.layer_lines(
            subjects,
            "surface",
            layer_charts.SURFACE,
            "Breadth and sinks",
            "Null attention included. The dashed line is the entropy of attending evenly "
            "to every token that can be attended to.",
        ),
    ]

    return [
        ("what-changed", "What changed", [comparisons.change_table(subjects, differences)]),
        ("every-head", "Every head", [heads_figure(subjects), _finder(subjects)]),
        ("by-layer", "Layer by layer", by_layer),
        (
            "syntax",
            "Syntax",
            [
                layer_charts.layer_lines(
                    subjects,
                    "alignment",
                    layer_charts.ALIGNMENT,
                    "Attention along dependencies",
                    "The share of attention between words that stand in a dependency relation. The "
                    "dashed line is the share of such pairs among all pairs of tokens: what "
                    "evenly spread attention would give.",
                    equation="dep_alignment",
                ),
                relation_table(subjects),
                layer_charts.label_maps(subjects, "dep_type_to", "relation"),
                layer_charts.distances_of_text(subjects),
            ],
        ),
        (
            "tags",
            "Parts of speech",
            [
                layer_charts.label_maps(subjects, "pos_to", "tag"),
                layer_charts.label_maps(subjects, "pos_from", "tag"),
            ],
        ),
        ("coreference-section", "Coreference", [coreference_table(subjects)]),
        ("probes-section", "Trained probes", [trained_table(subjects)]),
        (
            "effects-section",
            "Does it matter?",
            [effect_table(subjects), layer_charts.importance_lines(subjects)],
        ),
        _map_part(subjects, maps),
        ("exemplars-section", "Exemplars", [exemplar_figure(subjects, chosen, documents)]),
        (
            "side-by-side",
            "Side by side",
            [difference_table(subjects, differences), layer_charts.group_figure(subjects)],
        ),
    ]


def _sections(*parts: _Part) -> list[Section]:
    shown = ((key, title, [f for f in figures if f is not None]) for key, title, figures in parts)
    return [
        {"id": key, "title": title, "text": [], "figures": figures}
        for key, title, figures in shown
        if figures
    ]


def _maps(subjects: Sequence[ModelResults]) -> dict[int, HeadMap]:
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


def _differences(subjects: Sequence[ModelResults]) -> list[tuple[int, int, xr.Dataset]]:
    """The first subject compared with each other one, where both have an analysis."""
    differences: list[tuple[int, int, xr.Dataset]] = []
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


def _title(subjects: Sequence[ModelResults]) -> str:
    models = list(dict.fromkeys(subject.results[0].model for subject in subjects))
    if len(models) == 1:
        return f"What the heads of {models[0]} attend to"
    return f"What the heads of {', '.join(models[:-1])} and {models[-1]} attend to"


def _finding(
    subject: int | None,
    title: str,
    paragraphs: Sequence[tuple[str, Sequence[Phrase]]],
    figures: set[str],
) -> Finding:
    def is_known(part: SentencePart) -> bool:
        return isinstance(part, str) or "figure" not in part or part["figure"] in figures

    return {
        "subject": subject,
        "title": title,
        "paragraphs": [
            {"topic": topic, "sentences": [[*filter(is_known, text)] for text in sentences]}
            for topic, sentences in paragraphs
            if sentences
        ],
    }


def _used_equations(
    sections: Sequence[Section], subjects: Sequence[ModelResults]
) -> dict[str, Tree]:
    """The equations that figures, columns and variables name, as their metrics wrote them."""
    names: set[str] = set()
    for figure in (figure for shown in sections for figure in shown["figures"]):
        names.add(str(figure["equation"]))
        columns: Sequence[Mapping[str, object]] = figure.get("columns", ())  # type: ignore[assignment]
        names.update(str(column.get("equation")) for column in columns)
        if figure["kind"] == "heads":
            names.update(variable["name"] for variable in figure["variables"])
    trees = {
        name: equation_tree(OTHERS.get(name) or describe(subjects, name).equation)
        for name in sorted(names)
    }
    return {name: tree for name, tree in trees.items() if tree is not None}


STYLE = """
#headscope > p { font: 15px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 3rem auto; }
""".strip()
WAITING = (
    "Opening the report … If this text stays, the file is incomplete (save it once more), "
    "or JavaScript is switched off."
)


def report(
    results: Result
    | str
    | os.PathLike[str]
    | Iterable[Result | Probe | Wires | str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    pages: Mapping[str, str] | None = None,
    replicate: Result | str | os.PathLike[str] | Iterable[Result | str | os.PathLike[str]] = (),
    hypotheses: Sequence[Hypothesis] = (),
) -> Path:
    """Write a report on one or several results: one HTML file that opens without a network.

    It begins with findings, written from the numbers. Then come figures with their equations and
    papers, a card for every head, and where the numbers come from. Results of the same model
    (`analyze`, `importance`, probes) are put together; several models, corpora or genres stand
    side by side.

    Args:
        results: results, run folders or files of results, trained probes, and wires.
        path: the file to write; it appears whole or not at all.
        title: the title of the report; by default it names the models.
        pages: addresses of explorer pages, relative to the report, by the model's name or a
            part of it: `{"minilm": "minilm.html"}`. Cards of heads then link to them.
        replicate: results of the same models on other corpora, or files or folders of them: a
            section says which findings hold there (`Result.replicates`).
        hypotheses: planned claims, told apart from what was found: variables, or variables with
            labels, `("offset_share", {"offset": -1, "layer": 2, "head": 3})`. Heads are tested
            against their baseline or the mean over heads, Holm-corrected over all planned tests.

    Returns:
        The path.

    Raises:
        InputError: there is no result, or something else was given.
    """
    single = Result | str | os.PathLike
    expect("results", results, single | Iterable, "results, or files or folders of them")
    expect("replicate", replicate, single | Iterable, "results, or files or folders of them")
    sources = [results] if isinstance(results, single) else list(results)
    others = [_opened(x) for x in ([replicate] if isinstance(replicate, single) else replicate)]
    check_results(**{f"replicate[{i}]": other for i, other in enumerate(others)})
    content = build_report(
        [_opened(source) for source in sources],
        title=title,
        pages=pages,
        replicate=[other for other in others if isinstance(other, Result)],
        hypotheses=hypotheses,
    )
    write_report(content, path)
    return Path(path)


def write_report(content: Report, path: str | os.PathLike[str]) -> None:
    """Write a report as one HTML file."""
    header = {"format": FORMAT, "version": VERSION, "title": content["title"]}
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    packed = gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)
    page = make_page(
        Payload(header, [packed]),
        script="report.js",
        style=STYLE,
        waiting=WAITING,
        title=content["title"],
    )
    write_page(path, page)


def _opened(source: object) -> object:
    if not isinstance(source, str | os.PathLike):
        return source
    opened = open_file(source)
    if isinstance(opened, Trace):
        raise InputError(
            f"{os.fspath(source)!r} is a trace, not a result: a report is made of what analyze, "
            "importance or the probes wrote. Traces are shown by save_page."
        )
    return opened
