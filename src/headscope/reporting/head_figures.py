"""Figures and cards of single heads: finder, map, exemplars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headscope.errors import InputError
from headscope.heads.cards import make_all_cards
from headscope.heads.head_map import HeadMap
from headscope.heads.roles import name_heads, of_probes
from headscope.reporting.figure_data import figure_of, head_variables, numbers, rounded
from headscope.reporting.model_results import ModelResults, measured_elsewhere
from headscope.reporting.report_types import Arc, Figure, ReportCard
from headscope.reporting.wording import with_interval
from headscope.results.result import Exemplar

PAIRS = (
    ("Distance and alignment", "distance", "dep_alignment:either"),
    ("Distance and entropy", "distance", "entropy"),
    ("Null attention and effect", "null_share", "effect"),
    ("Null attention, norm-weighted", "null_share", "null_share_by_norm"),
    ("Gradient and effect", "removal_estimate:all", "effect"),
)
"""Pairs of variables that papers compare: a title and two variables."""


def finder_figure(subjects: Sequence[ModelResults]) -> Figure | None:
    """Heads as points, between any two of the variables that the figure of all heads shows."""
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


def roles_of(subject: ModelResults) -> list[list[str]] | None:
    """`layer head`: what each head does; None where that was not measured."""
    result = subject.result("offset_share")
    if result is None:
        return None
    try:
        names = name_heads(result, probes=of_probes(subject.results))
    except InputError:  # some surface metric is missing
        return None
    return [[str(name) for name in row] for row in names.values]


def map_figure(subjects: Sequence[ModelResults], maps: Mapping[int, HeadMap]) -> Figure | None:
    """Heads in the plane: those that attend alike are near (Clark et al.'s Figure 6)."""
    panels = []
    for number, heads in maps.items():
        data = heads.data
        same, different = heads.layer_spread()
        panels.append(
            {
                "subject": number,
                "layer": [int(n) for n in data["layer"].values],
                "head": [int(n) for n in data["head"].values],
                "x": numbers(data["x"]),
                "y": numbers(data["y"]),
                "role": [str(name) for name in data["role"].values],
                "cluster": [int(n) for n in data["cluster"].values],
                **({"effect": numbers(data["effect"])} if "effect" in data else {}),
                "note": (
                    f"stress {heads.stress:.2f}; mean JS {same:.3f} in a layer, "
                    f"{different:.3f} between layers"
                ),
            }
        )
    if not panels:
        return None
    if any("effect" in panel for panel in panels):
        sizes = (
            " The larger a point, the more the loss per predicted token changes without the head "
            "(rises or falls)." + measured_elsewhere(subjects, "effect")
        )
    else:
        sizes = ""
    return figure_of(
        "map",
        "map",
        "The map of heads",
        "Heads that attend alike lie near one another: metric multidimensional scaling of their "
        "Jensen-Shannon divergence, averaged over tokens. Stress says how much the plane distorts "
        "the divergence: 0 is not at all, above 0.2 is much."
        + measured_elsewhere(subjects, "js")
        + sizes,
        equation="js",
        paper="Clark et al. 2019, section 6, Figure 6",
        panels=panels,
    )


PER_CARD = 3
"""Exemplars on a card."""
AROUND = 20
"""Tokens shown on either side of an arc where a document is shown in part."""
LONGEST = 80
"""Tokens up to which a document is shown whole."""


class Documents:
    """Token lists that arcs refer to by number, each stored once."""

    def __init__(self) -> None:
        self.tokens: list[list[str]] = []
        self._numbers: dict[tuple[str, ...], int] = {}

    def add(self, tokens: tuple[str, ...]) -> int:
        """Store these tokens, if they are new, and return their number."""
        if tokens not in self._numbers:
            self._numbers[tokens] = len(self.tokens)
            self.tokens.append(list(tokens))
        return self._numbers[tokens]

    def arc(self, exemplar: Exemplar) -> Arc:
        """An exemplar as an arc. Of a long document, only the part around it is stored."""
        query, key = exemplar.query, exemplar.key
        if exemplar.query_tokens != exemplar.key_tokens:  # cross-attention
            tokens = (*exemplar.query_tokens, "⏐", *exemplar.key_tokens)
            key += len(exemplar.query_tokens) + 1
        else:
            tokens = exemplar.query_tokens
        start = stop = 0
        if len(tokens) > LONGEST:
            start = max(0, min(query, key) - AROUND)
            stop = min(len(tokens), max(query, key) + AROUND + 1)
            if stop - start > LONGEST * 2:
                start = stop = 0
        shown = tokens[start:stop] if stop else tokens
        return {
            "weight": rounded(exemplar.weight),
            "document": self.add(tuple(shown)),
            "query": query - start,
            "key": key - start,
        }


def make_cards(
    subject: ModelResults, heads: HeadMap | None, documents: Documents
) -> list[ReportCard]:
    """The cards of all heads of a subject, layer by layer."""
    source = subject.result("exemplar_weight")
    cards: list[ReportCard] = []
    for card in make_all_cards(subject.results, heads=heads, n_exemplars=0):
        exemplars = source.exemplars(card.layer, card.head)[:PER_CARD] if source else []
        cards.append(
            {
                "layer": card.layer,
                "head": card.head,
                "summary": card.summary,
                "evidence": [
                    (topic, [[row.what, row.value, row.rank] for row in rows])
                    for topic, rows in card.evidence
                ],
                "nearest": [(layer, head, rounded(js)) for layer, head, js in card.nearest],
                "exemplars": [documents.arc(exemplar) for exemplar in exemplars],
            }
        )
    return cards


def exemplar_figure(
    subjects: Sequence[ModelResults],
    chosen: Mapping[int, Mapping[tuple[int, int], str]],
    documents: Documents,
) -> Figure | None:
    """The highest weights of notable heads, as arcs.

    Args:
        subjects: the subjects of the report.
        chosen: for each subject, by its number, the heads to show and why.
        documents: takes the tokens that arcs refer to.
    """
    panels = []
    for number, heads in chosen.items():
        source = subjects[number].result("exemplar_weight")
        if source is None:
            continue
        shown = []
        for (layer, head), why in heads.items():
            exemplars = source.exemplars(layer, head)[:PER_CARD]
            if exemplars:
                arcs = [documents.arc(exemplar) for exemplar in exemplars]
                shown.append({"layer": layer, "head": head, "why": why, "exemplars": arcs})
        if shown:
            panels.append({"subject": number, "heads": shown})
    if not panels:
        return None
    return figure_of(
        "exemplars",
        "exemplars",
        "Heads at work",
        "The documents in which a head pays its highest weights to a single token, null attention "
        "left out: an arc from the query to the key, one for each document. They show what a head "
        "can do at its strongest, not what it does on average.",
        paper="Vig & Belinkov 2019, section 5.4, Tables 1-3",
        panels=panels,
    )
