"""Findings about one model, written from its numbers by rules.

A rule gives one sentence or none. It says that one value is higher than another only if their
intervals do not overlap, and that a head passes a threshold only if its whole interval does:
nothing is said that another draw of documents might not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from headscope.heads.behavior import Thresholds
from headscope.reporting.findings_more import coreference, importance, relations, trained
from headscope.reporting.subjects import Subject
from headscope.reporting.wording import (
    Measured,
    Part,
    Sentence,
    count_of,
    figure,
    head,
    listed,
    sentence,
    with_interval,
)

Rule = Callable[[Subject, int], Sentence | None]
"""From a subject and its number in the report."""
HeadValue = tuple[int, int, Measured]
"""Layer, head and value."""
LayerValue = tuple[int, Measured]
LEVEL = 0.05
"""A p value below it is significant."""
EXACT = 8
"""Up to this many layers, the p value of a trend is counted over all orders of the layers."""
FEW = 20
"""With fewer documents than this, intervals are too narrow."""
NAMED = 3
"""A sentence names at most this many heads."""


def about_model(subject: Subject, number: int) -> list[tuple[str, list[Sentence]]]:
    """What the numbers say about one model: topics with their sentences; the first has no topic."""
    paragraphs = []
    for topic, rules in TOPICS.items():
        sentences = [text for rule in rules if (text := rule(subject, number))]
        if sentences:
            paragraphs.append((topic, sentences))
    return paragraphs


def heads_beyond(
    subject: Subject, name: str, threshold: float, **labels: object
) -> list[HeadValue]:
    """Heads whose whole interval is above a threshold, the highest value first."""
    data = subject.data(name)
    if data is None or f"{name}_interval" not in data:
        return []
    values = data[name].sel(labels).transpose("layer", "head")
    bounds = data[f"{name}_interval"].sel(labels).transpose("bound", "layer", "head").values
    layers, heads = values["layer"].values, values["head"].values
    above = [
        (
            int(layers[row]),
            int(heads[column]),
            Measured(float(values.values[row, column]), *map(float, bounds[:, row, column])),
        )
        for row, column in np.argwhere(bounds[0] > threshold)
    ]
    return sorted(above, key=lambda entry: -entry[2].value)


def layers_of(subject: Subject, name: str, **labels: object) -> list[LayerValue]:
    """The layers that have a value of a variable, with that value."""
    data = subject.data(f"{name}_by_layer")
    if data is None:
        return []
    layers = data["layer"].values.tolist()
    values = [(n, subject.measured(f"{name}_by_layer", layer=n, **labels)) for n in layers]
    return [(layer, value) for layer, value in values if value.is_known]


def _opening(subject: Subject, number: int) -> Sentence | None:
    counts = subject.results[0].provenance.get("counts", {})
    documents = counts.get("documents")
    if documents is None:
        return None
    kind = "causal" if subject.is_causal else "bidirectional"
    tokens = f", {int(counts['tokens']):,} tokens" if "tokens" in counts else ""
    warning = " With so few documents, intervals are too narrow to rely on."
    return [
        f"{subject.title} ({len(subject.layers)} layers of {count_of(subject.n_heads, 'head')}, "
        f"{kind}) read {count_of(int(documents), 'document')}{tokens} of "
        f"{subject.results[0].corpus_name}." + (warning if int(documents) < FEW else "")
    ]


def _null(subject: Subject, number: int) -> Sentence | None:
    mean = subject.measured("null_share_mean")
    if not mean.is_known:
        return None
    where = "the first token" if subject.null_is_first else "special tokens"
    units = "share of attention"
    parts: Sentence = [
        f"On average over heads, {with_interval(mean, units)} of the attention is null attention, "
        f"paid to {where}"
    ]
    layers = layers_of(subject, "null_share")
    if layers:
        low, high = _extremes(layers)
        if high[1].is_apart(low[1]):
            parts.append(
                f"; by layer it runs from {with_interval(low[1], units)} in layer {low[0]} to "
                f"{with_interval(high[1], units)} in layer {high[0]}"
            )
    return [*parts, figure("layers"), "."]


def _alignment(subject: Subject, number: int) -> Sentence | None:
    layers = layers_of(subject, "dep_alignment", parent="either")
    baseline = subject.measured("dep_baseline").value
    if not layers or not np.isfinite(baseline):
        return None
    layer, best = max(layers, key=_value)
    if not best.has_interval:
        return None
    units = "share of attention"
    even = with_interval(Measured(baseline), units)
    if not best.is_above(baseline):
        return [
            f"In no layer does clearly more of the attention follow dependencies than the {even} "
            "that evenly spread attention would give",
            figure("alignment"),
            ".",
        ]
    above = [n for n, value in layers if value.is_above(baseline)]
    parts: Sentence = [
        f"Attention runs along dependencies most in layer {layer}: {with_interval(best, units)} of "
        f"it, {best.value / baseline:.1f} times the {even} that evenly spread attention would give"
    ]
    if len(above) < len(layers):
        parts.append(f"; {len(above)} of {len(layers)} layers are above that baseline")
    return [*parts, figure("alignment"), "."]


def _aligned_head(subject: Subject, number: int) -> Sentence | None:
    baseline = subject.measured("dep_baseline").value
    if not np.isfinite(baseline):
        return None
    above = heads_beyond(subject, "dep_alignment", baseline, parent="either")
    if not above:
        return None
    layer, at, value = above[0]
    total = len(subject.layers) * subject.n_heads
    return [
        "The head that does so most is ",
        head(number, layer, at),
        f" with {with_interval(value, 'share of attention')}; "
        f"{len(above)} of {total} heads are above the baseline.",
    ]


def _distance(subject: Subject, number: int) -> Sentence | None:
    layers = layers_of(subject, "distance")
    if len(layers) < 2:
        return None
    low, high = _extremes(layers)
    if not high[1].is_apart(low[1]):
        return None
    span = (
        f"from {with_interval(low[1], 'tokens')} in layer {low[0]} to "
        f"{with_interval(high[1], 'tokens')} in layer {high[0]}"
    )
    trend = _trend(layers)
    if trend is None:
        return ["Mean distance runs ", span, figure("layers"), "."]
    rho, p = trend
    verb = "grows" if rho > 0 else "falls"
    return [
        f"Mean distance {verb} with the layer (Spearman's ρ = {_r(rho)} over {len(layers)} layers, "
        f"{_p(p)}) and runs {span}",
        figure("layers"),
        ".",
    ]


def _correlation(other: str, more: str, less: str) -> Rule:
    def rule(subject: Subject, number: int) -> Sentence | None:
        data = subject.data("correlation")
        key = f"distance-{other}"
        if data is None or key not in data["correlated"].values:
            return None
        r = subject.measured("correlation", correlated=key)
        p = subject.measured("correlation_p", correlated=key).value
        if not p < LEVEL or not (r.is_above(0) or r.is_below(0)):
            return None
        way = more if r.value > 0 else less
        return [
            f"Heads that look farther {way}: r = {with_interval(r)}, {_p(p)}",
            figure(f"correlation-{other}"),
            ".",
        ]

    return rule


def _offsets(subject: Subject, number: int) -> Sentence | None:
    limit = Thresholds().offset
    parts: list[Sentence] = []
    for offset, name in ((-1, "previous"), (1, "next")):
        above = heads_beyond(subject, "offset_share", limit, offset=offset)
        if above:
            verb, whose = ("pays", "its") if len(above) == 1 else ("pay", "their")
            parts.append(
                sentence(
                    f"{count_of(len(above), 'head')} {verb} more than half of {whose} "
                    f"attention to the {name} token (",
                    _named(number, above),
                    ")",
                )
            )
    if not parts:
        return None
    return [*_capital(listed(parts)), "."]


def _variability(subject: Subject, number: int) -> Sentence | None:
    data = subject.data("variability")
    if data is None or "variability_interval" not in data:
        return None
    values = data["variability"].transpose("layer", "head")
    if not np.isfinite(values.values).any():
        return None
    row, column = np.unravel_index(int(np.nanargmin(values.values)), values.shape)
    layer, at = int(values["layer"][row]), int(values["head"][column])
    least = subject.measured("variability", layer=layer, head=at)
    mean = subject.measured("variability_mean")
    if not least.is_below(mean.value):
        return None
    return [
        "The head that depends most on position and least on the text is ",
        head(number, layer, at),
        f": {with_interval(least, 'share of attention')} of its attention varies, against "
        f"{with_interval(mean, 'share of attention')} on average.",
    ]


def _sinks(subject: Subject, number: int) -> Sentence | None:
    sinks = heads_beyond(subject, "sink_rate", 0.9)
    total = len(subject.layers) * subject.n_heads
    if not sinks:
        return None
    return [
        f"In {len(sinks)} of {total} heads the first token is an attention sink in more than nine "
        "of ten documents."
    ]


def _tags(subject: Subject, number: int) -> Sentence | None:
    data = subject.data("pos_to")
    if data is None or "pos_to_interval" not in data:
        return None
    tags = [str(tag) for tag in data["tag"].values]
    low = data["pos_to_interval"].sel(bound="low")
    mean = data["pos_to"].mean(("layer", "head"))
    strongest = (low / (2 * mean)).max(("layer", "head"))
    named = [tag for tag in tags if float(strongest.sel(tag=tag)) > 1]
    if not named:
        return None
    every = "every one" if len(named) == len(tags) else f"{len(named)}"
    return [
        f"For {every} of {len(tags)} tags there is a head that pays it more than twice the "
        "attention of the average head",
        figure("pos_to"),
        ".",
    ]


def _broad(subject: Subject, number: int) -> Sentence | None:
    uniform = subject.measured("uniform_entropy").value
    if not np.isfinite(uniform) or uniform <= 0:
        return None
    share = Thresholds().broad
    broad = heads_beyond(subject, "row_entropy", share * uniform)
    if not broad:
        return None
    noun = count_of(len(broad), "head")
    verb = "attends" if len(broad) == 1 else "attend"
    return sentence(
        f"{noun.capitalize()} {verb} broadly, with more than {share:.0%} of the entropy of "
        "attending evenly (".replace("%", "\u00a0%"),
        _named(number, broad, "nats"),
        ").",
    )


def _repeats(subject: Subject, number: int) -> Sentence | None:
    if not subject.is_causal:
        return None
    above = heads_beyond(subject, "induction", 0.5)
    if not above:
        return None
    verb = "pays" if len(above) == 1 else "pay"
    return sentence(
        f"{count_of(len(above), 'head').capitalize()} {verb} more than half of the attention of "
        "repeated tokens to what followed them before, as induction heads do (",
        _named(number, above),
        ").",
    )


TOPICS: dict[str, tuple[Rule, ...]] = {
    "": (_opening,),
    "Rest": (_null, _sinks, _broad),
    "Reach": (
        _distance,
        _correlation("entropy", "spread their attention more", "spread their attention less"),
        _correlation("dep_alignment", "align more with syntax", "align less with syntax"),
    ),
    "Syntax": (_alignment, _aligned_head, relations, trained),
    "Position": (_offsets, _variability, _repeats),
    "Parts of speech": (_tags,),
    "Coreference": (coreference,),
    "Gradients": (importance,),
}
"""The rules of each topic, in the order of the page."""


def notable_heads(subject: Subject) -> dict[tuple[int, int], str]:
    """Heads worth seeing at work, and why: the strongest of each kind."""
    notable: dict[tuple[int, int], str] = {}
    baseline, offset = subject.measured("dep_baseline").value, Thresholds().offset
    kinds: list[tuple[str, float, dict[str, object], str]] = [
        ("dep_alignment", baseline, {"parent": "either"}, "most along dependencies"),
        ("offset_share", offset, {"offset": -1}, "most to the previous token"),
        ("offset_share", offset, {"offset": 1}, "most to the next token"),
        ("induction", 0.3, {}, "most to what followed the same token"),
        ("distance", subject.measured("distance_mean").value, {}, "farthest on average"),
    ]
    for name, threshold, labels, why in kinds:
        if np.isfinite(threshold):
            best = heads_beyond(subject, name, threshold, **labels)[:1]
            for layer, at, _ in best:
                notable.setdefault((layer, at), why)
    return notable


def _extremes(
    layers: Sequence[LayerValue],
) -> tuple[LayerValue, LayerValue]:
    """The layers with the lowest and the highest value."""
    return min(layers, key=_value), max(layers, key=_value)


def _trend(layers: Sequence[LayerValue]) -> tuple[float, float] | None:
    """Spearman's ρ of value and layer, and its p value; None unless it is significant."""
    if len(layers) < 5:
        return None
    values = [value.value for _, value in layers]
    rho, p = map(float, stats.spearmanr([n for n, _ in layers], values))
    if len(layers) <= EXACT:  # for so few layers, scipy's p value is too small
        orders = np.array(list(permutations(range(len(layers)))))
        ranks = stats.rankdata(values)
        centered = np.arange(len(layers)) - (len(layers) - 1) / 2
        products = np.abs(ranks[orders] @ centered)
        p = float((products >= products[0] - 1e-9).mean())
    return (rho, p) if p < LEVEL else None


def _named(number: int, heads: Sequence[HeadValue], units: str = "share of attention") -> Sentence:
    """The first few heads with their values, and how many more there are."""
    items: list[Part | Sequence[Part]] = [
        [head(number, layer, at), f" {with_interval(value, units)}"]
        for layer, at, value in heads[:NAMED]
    ]
    if len(heads) > NAMED:
        items.append(f"{len(heads) - NAMED} more")
    return listed(items)


def _value(of_layer: LayerValue) -> float:
    return of_layer[1].value


def _capital(parts: Sentence) -> Sentence:
    first = parts[0]
    return [first[:1].upper() + first[1:], *parts[1:]] if isinstance(first, str) else parts


def _r(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
