"""Findings about one model, written from its numbers by rules.

A rule gives one sentence or None. Each claim has a test (`hypothesis_tests`) and its p value in an
aside; the report corrects all of them together. A superlative comes with what cannot be told from
it. Lists explore, correlations describe: neither has a p value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headscope.errors import InputError
from headscope.figures.chart_data import ModelResults, ValueText, measured
from headscope.figures.chart_types import Phrase, SentencePart
from headscope.heads.roles import RoleThresholds
from headscope.reporting import report_tables
from headscope.reporting.hypothesis_tests import (
    ALPHA,
    Extremes,
    HeadValue,
    heads_beyond,
    labels_above_twice_the_mean,
    layer_extremes,
    layer_slope,
    layers_above,
    least_below_mean,
    scaled,
)
from headscope.reporting.wording import (
    aside,
    cited,
    count_of,
    head,
    listed,
    points,
    sentence,
    tied_heads,
    with_interval,
)
from headscope.results.display import label_of
from headscope.run.compare import compare
from headscope.statistics.intervals import holm, p_differs
from headscope.statistics.jackknife import Jackknife

BROAD_ENTROPY = 0.8
"""Entropy as a share of the uniform one, for the count of broad heads: 3.8 nats of 4.85 at 128
tokens (Clark et al. 2019, section 3.3)."""


def effects(subject: ModelResults, number: int) -> Phrase | None:
    """Write the head with the largest effect on the loss, and how many heads have one."""
    known = report_tables.effects_of(subject)
    if known is None or not known.n_tested:
        return None
    where = subject.elsewhere("effect")
    tested = (
        "in total and in most documents, after correction over "
        f"{count_of(known.n_tested, 'head')}{known.holds}"
    )
    corrected = aside(f" ({tested})")
    largest = known.largest(np.ones_like(known.is_clear))
    if largest is None:
        return [
            f"Of {count_of(known.n_tested, 'head')} taken away alone, none changes the "
            f"loss{where} enough to be told from 0",
            corrected,
            *cited("effects"),
        ]
    row, column = largest
    layer = known.layers[row]
    rise = subject.measured("effect", layer=layer, head=column)
    verb = "rises" if rise.value > 0 else "falls"
    better = int((known.is_clear & (known.values < 0)).sum())
    also = f"; without {count_of(better, 'head')} of these it falls" if better else ""
    return [
        f"Taken away alone, {int(known.is_clear.sum())} of {count_of(known.n_tested, 'head')} "
        f"change the loss{where}",
        corrected,
        f"{also}. Without ",
        head(number, layer, column),
        f", for example, it {verb} by {with_interval(rise, 'nats per token')}",
        *cited("effects"),
    ]


def norms(subject: ModelResults, number: int) -> Phrase | None:
    """Write whether null attention is a no-op: its share weighted by norms."""
    plain = subject.result("null_share")
    if plain is None or subject.normed is None or "null_share" not in subject.normed:
        return None
    try:
        compared = compare(plain, subject.normed)
    except InputError:  # no sums to compare
        return None
    difference, p = measured(compared, "null_share_mean"), float(compared["null_share_mean_p"])
    if not p < ALPHA:
        return None
    units = "share of attention"
    before = measured(plain.dataset, "null_share_mean")
    after = measured(subject.normed.dataset, "null_share_mean")
    way = "falls" if difference.value > 0 else "rises"
    return [
        "Weighted by the length of the vectors it fetches, the mean share of null attention "
        f"{way} from {with_interval(before, units)} to {with_interval(after, units)}",
        aside(" (paired over documents)", p),
        *cited("finder"),
    ]


def importance(subject: ModelResults, number: int) -> Phrase | None:
    """At which keys gradients are larger or smaller than on average."""
    data = subject.data("importance_mean")
    jackknife = subject.jackknife("importance")
    if data is None or jackknife is None:
        return None
    names = [str(name) for name in data["gradient_class"].values]
    if "all" not in names:
        return None
    overall = subject.measured("importance_mean", gradient_class="all")
    means = jackknife.mean((0, 1))
    every = means.at(slice(names.index("all"), names.index("all") + 1))
    p = holm(p_differs(means - every))
    said = []
    for name, corrected in zip(names, p.tolist(), strict=True):
        gradient = subject.measured("importance_mean", gradient_class=name)
        if name in ("all", "rest") or not corrected < ALPHA or gradient.value <= 0:
            continue
        ratio = gradient.value / overall.value
        said.append(f"{100 * ratio:.0f}\u00a0% at {_quoted(name)}")
    if not said:
        return None
    return [
        f"The loss{subject.elsewhere('importance_mean')} does not depend on attention to all keys "
        "alike: in percent of its mean over all keys, the gradient |∂L/∂a| is ",
        *listed(said),
        aside(" (after correction over classes of keys)", max(p[p < ALPHA])),
        *cited("importance"),
    ]


def _quoted(name: str) -> str:
    shown = label_of("key_class", name)
    return f"“{shown}”" if not shown[0].isalpha() and not shown.startswith("[") else shown


def relations(subject: ModelResults, number: int) -> Phrase | None:
    """Write whether single heads find relations better than a fixed offset."""
    rows = [row for row in report_tables.best_rows(subject, "accuracy") if row.label != "all"]
    if not rows:
        return None
    tested = [row for row in rows if np.isfinite(row.gains["offset"].p)]
    better = [row for row in tested if row.gains["offset"].is_clear]
    if not tested:
        return None
    noun = count_of(len(tested), "relation") + subject.elsewhere("accuracy")
    p = max((row.gains["offset"].p_adjusted for row in better), default=None)
    corrected = aside(f" (after correction over {count_of(len(tested), 'relation')})", p)
    if not better:
        return [
            f"For none of {noun} does a single head find the related word clearly more often than "
            "the best fixed offset does",
            corrected,
            *cited("relations"),
        ]
    best = max(better, key=lambda row: row.gains["offset"].value)
    gain = best.gains["offset"]
    ties = f"; {count_of(best.ties, 'other head')} cannot be told from it" if best.ties else ""
    return [
        f"As classifiers, single heads beat the best fixed offset for {len(better)} of {noun}",
        corrected,
        f", for example for {best.label}: chosen on one half of the documents and scored on the "
        f"other, heads are right in {with_interval(report_tables.crossfit_of(best), 'accuracy')} "
        f"of {count_of(best.cases, 'case')}, {points(ValueText(gain.value, *gain.interval))} above "
        "the best offset. Over all documents the best is ",
        head(number, best.layer, best.head),
        f" ({label_of('direction', best.direction)}){ties}",
        *cited("relations"),
    ]


def coreference(subject: ModelResults, number: int) -> Phrase | None:
    """Write the baselines that the best head for antecedents beats."""
    rows = report_tables.best_rows(subject, "coref_accuracy")
    best = next((row for row in rows if row.label == "all"), None)
    if best is None:
        return None
    said = {
        name: f"{report_tables.RULES.get(name, name).lower()} ({100 * value:.1f}\u00a0%)"
        for name, value in best.baselines.items()
    }
    beaten = [said[name] for name in best.baselines if best.gains[name].is_clear]
    missed = [text for text in said.values() if text not in beaten]
    ties = f", from which {count_of(best.ties, 'other')} cannot be told" if best.ties else ""
    parts: Phrase = [
        "Chosen on one half of the documents and scored on the other, single heads find an "
        f"antecedent for {with_interval(report_tables.crossfit_of(best), 'accuracy')} of "
        f"{count_of(best.cases, 'mention')}{subject.elsewhere('coref_accuracy')}"
    ]
    if beaten:
        p = max(gain.p_adjusted for gain in best.gains.values() if gain.is_clear)
        parts += [
            ", more than the rules ",
            *listed(beaten),
            aside(f" (after correction over {len(said)} rules)", p),
        ]
    if missed:
        parts += ["; they do not clearly beat ", *listed(missed)]
    parts += [". Over all documents the best is ", head(number, best.layer, best.head), ties]
    return [*parts, *cited("coreference")]


def trained(subject: ModelResults, number: int) -> Phrase | None:
    """Write the accuracy of trained probes over all heads."""
    if not subject.probes:
        return None
    items = []
    for probe in subject.probes:
        uas, chain = report_tables.probe_scores(probe)
        against = ""
        if chain.is_known:
            against = f"; right-branching {with_interval(chain, 'UAS')}"
        items.append(f"{with_interval(uas, 'UAS')} ({report_tables.probe_name(probe)}{against})")
    return [
        "Probes trained on all heads together find the parent of ",
        *listed(items),
        " of the words",
        *cited("probes"),
    ]


Rule = Callable[[ModelResults, int], Phrase | None]
"""From a subject and its number in the report."""
LayerValue = tuple[int, ValueText]
APART = "; lowest and highest differ after correction over all pairs of layers"
MIN_R = 0.1
"""A direction is said of an r whose interval stays this far from 0: where one document decides an r
near 0, intervals miss it too often (docs/statistics.md)."""
NAMED = 3
"""A sentence names at most this many heads."""


def about_model(subject: ModelResults, number: int) -> list[tuple[str, list[Phrase]]]:
    """Return the findings about one model by topic; the first topic is empty."""
    paragraphs = []
    for topic, rules in TOPICS.items():
        sentences = [text for rule in rules if (text := rule(subject, number))]
        if sentences:
            paragraphs.append((topic, sentences))
    return paragraphs


def layers_of(subject: ModelResults, name: str, **labels: object) -> list[LayerValue]:
    """The layers that have a value of a variable, with that value."""
    data = subject.data(f"{name}_by_layer")
    if data is None:
        return []
    layers = data["layer"].values.tolist()
    values = [(n, subject.measured(f"{name}_by_layer", layer=n, **labels)) for n in layers]
    return [(layer, value) for layer, value in values if value.is_known]


def _opening(subject: ModelResults, number: int) -> Phrase | None:
    counts = subject.results[0].provenance.get("counts", {})
    documents = counts.get("documents")
    if documents is None:
        return None
    kind = "causal" if subject.is_causal else "bidirectional"
    unit = str(subject.results[0].provenance.get("corpus", {}).get("unit", "document"))
    unit = unit if unit in ("sentence", "paragraph") else "document"
    tokens = f", {int(counts['tokens']):,} tokens" if "tokens" in counts else ""
    measured = subject.measured("tokens_per_document")
    said = subject.results[0].independence
    independence = f" Intervals and tests: {said}." if said else ""
    warning = " There are too few documents for intervals and tests: values stand alone."
    return [
        f"{subject.title} ({len(subject.layers)} layers of {count_of(subject.n_heads, 'head')}, "
        f"{kind}) read {count_of(int(documents), unit)}{tokens} of "
        f"{subject.results[0].corpus_name}.{independence}"
        + ("" if measured.has_interval else warning)
    ]


def _null(subject: ModelResults, number: int) -> Phrase | None:
    mean = subject.measured("null_share_mean")
    if not mean.is_known:
        return None
    where = "the first token" if subject.null_is_first else "special tokens"
    units = "share of attention"
    parts: Phrase = [
        f"On average over heads, {with_interval(mean, units)} of the attention is null attention, "
        f"paid to {where}"
    ]
    extremes = layer_extremes(subject, "null_share")
    if extremes is not None:
        span = _span(subject, "null_share", extremes, units)
        parts += [f"; by layer it runs {span}", aside(APART, extremes.p)]
    return [*parts, *cited("layers")]


def _alignment(subject: ModelResults, number: int) -> Phrase | None:
    layers = layers_of(subject, "dep_alignment", parent="either")
    baseline = subject.measured("dep_baseline").value
    if not layers or not np.isfinite(baseline):
        return None
    layer, best = max(layers, key=_value)
    above = layers_above(subject, "dep_alignment", "dep_baseline", parent="either")
    if above is None:
        return None
    units = "share of attention"
    even = with_interval(ValueText(baseline), units)
    if layer not in above:
        return [
            f"In no layer does clearly more of the attention follow dependencies than the {even} "
            "that evenly spread attention would give",
            aside(f" (after correction over {len(layers)} layers)"),
            *cited("alignment"),
        ]
    extremes = layer_extremes(subject, "dep_alignment", parent="either")
    where = f"most in {_tied_layers(extremes.highest)}" if extremes else f"in layer {layer}"
    return [
        f"Attention runs along dependencies {where}: {with_interval(best, units)} of "
        f"it, {best.value / baseline:.1f} times the {even} that evenly spread attention would give"
        f"; {len(above)} of {len(layers)} layers are above that baseline",
        aside(f" (after correction over {len(layers)} layers)", max(above.values())),
        *cited("alignment"),
    ]


def _aligned_head(subject: ModelResults, number: int) -> Phrase | None:
    above = heads_beyond(subject, "dep_alignment", "dep_baseline", parent="either")
    if not above.passed:
        return None
    layer, at, value = above.passed[0]
    most = "The head that does so most is "
    return [
        most if above.n_best else "Of heads that do so in most documents, the highest is ",
        head(number, layer, at),
        f" with {with_interval(value, 'share of attention')}{tied_heads(above.n_best - 1)}; "
        f"{len(above.passed)} of {above.n_tested} heads are above the baseline",
        aside(f" ({above.correction})"),
        ".",
    ]


def _distance(subject: ModelResults, number: int) -> Phrase | None:
    extremes = layer_extremes(subject, "distance")
    if extremes is None:
        return None
    span, apart = _span(subject, "distance", extremes, "tokens"), aside(APART, extremes.p)
    trend = layer_slope(subject, "distance")
    if trend is None or not trend[1] < ALPHA:
        return [f"Mean distance runs {span}", apart, *cited("layers")]
    slope, p = trend
    verb = "grows" if slope.value > 0 else "falls"
    low, high = sorted((abs(slope.low), abs(slope.high)))
    size = with_interval(ValueText(abs(slope.value), low, high), "tokens")
    return [
        f"Mean distance {verb} by {size} a layer on average",
        aside(" (slope, interval over documents)", p),
        f" and runs {span}",
        apart,
        *cited("layers"),
    ]


def _correlation(other: str, more: str, less: str) -> Rule:
    def rule(subject: ModelResults, number: int) -> Phrase | None:
        data = subject.data("correlation")
        key = f"distance-{other}"
        if data is None or key not in data["correlated"].values:
            return None
        r = subject.measured("correlation", correlated=key)
        if not (r.is_above(MIN_R) or r.is_below(-MIN_R)):
            return None
        way = more if r.value > 0 else less
        within = subject.measured("correlation_within", correlated=key)
        inside = f"; within layers r = {within.value:.2f}".replace("-", "−")
        return [
            f"In this model, heads that look farther {way}: r = {with_interval(r)}",
            aside(" over its heads, a description rather than a test"),
            *([aside(inside)] if within.is_known else []),
            *cited("finder"),
        ]

    return rule


def _offsets(subject: ModelResults, number: int) -> Phrase | None:
    limit = RoleThresholds().share
    parts: list[Phrase] = []
    for offset, name in ((-1, "previous"), (1, "next")):
        above = heads_beyond(subject, "offset_share", limit, offset=offset)
        if above.passed:
            n = len(above.passed)
            verb, whose = ("pays", "its") if n == 1 else ("pay", "their")
            parts.append(
                sentence(
                    f"{count_of(n, 'head')} {verb} more than half of {whose} attention to the "
                    f"{name} token (",
                    _named(number, above.passed),
                    aside(f"; {above.correction}"),
                    ")",
                )
            )
    if not parts:
        return None
    return [*_capital(listed(parts)), "."]


def _variability(subject: ModelResults, number: int) -> Phrase | None:
    data, below = subject.data("variability"), least_below_mean(subject, "variability")
    if data is None or below is None:
        return None
    values = data["variability"].transpose("layer", "head")
    row, column = np.unravel_index(int(np.nanargmin(values.values)), values.shape)
    layer, at = int(values["layer"][row]), int(values["head"][column])
    least = subject.measured("variability", layer=layer, head=at)
    mean = subject.measured("variability_mean")
    return [
        "The head that depends most on position and least on the text is ",
        head(number, layer, at),
        f": {with_interval(least, 'share of attention')} of its attention varies, against "
        f"{with_interval(mean, 'share of attention')} on average{tied_heads(below[1])}",
        aside(f" (after correction over {values.size} heads)"),
        ".",
    ]


def _sinks(subject: ModelResults, number: int) -> Phrase | None:
    sinks = heads_beyond(subject, "sink_rate", 0.9)
    if not sinks.passed:
        return None
    return [
        f"In {len(sinks.passed)} of {sinks.n_tested} heads the first token is an attention sink in "
        "more than nine of ten documents",
        aside(f" ({sinks.correction})"),
        ".",
    ]


def _tags(subject: ModelResults, number: int) -> Phrase | None:
    data = subject.data("pos_to")
    p = labels_above_twice_the_mean(subject, "pos_to")
    if data is None or p is None:
        return None
    tags = [str(tag) for tag in data["tag"].values]
    named = [tag for tag, corrected in zip(tags, p, strict=False) if corrected < ALPHA]
    if not named:
        return None
    every = "every one" if len(named) == len(tags) else f"{len(named)}"
    return [
        f"For {every} of {len(tags)} tags there is a head that pays the tag more than twice the "
        "attention of the average head",
        aside(" (after correction over heads and tags)", max(p[p < ALPHA])),
        *cited("pos_to"),
    ]


def _broad(subject: ModelResults, number: int) -> Phrase | None:
    uniform = subject.jackknife("uniform_entropy")
    if uniform is None or not uniform.value > 0:
        return None
    share = BROAD_ENTROPY
    broad = heads_beyond(subject, "row_entropy", scaled(uniform, share))
    if not broad.passed:
        return None
    noun = count_of(len(broad.passed), "head")
    verb = "has" if len(broad.passed) == 1 else "have"
    more = f"more than {100 * share:.0f}\u00a0% of the entropy of uniform attention ("
    return sentence(
        f"{noun.capitalize()} {verb} {more}",
        _named(number, broad.passed, "nats"),
        aside(f"; {broad.correction}"),
        ").",
    )


def _repeats(subject: ModelResults, number: int) -> Phrase | None:
    if not subject.is_causal:
        return None
    above = heads_beyond(subject, "induction", 0.5)
    if not above.passed:
        return None
    verb = "pays" if len(above.passed) == 1 else "pay"
    return sentence(
        f"{count_of(len(above.passed), 'head').capitalize()} {verb} more than half of the "
        "attention of repeated tokens to what followed them before, as induction heads do (",
        _named(number, above.passed),
        aside(f"; {above.correction}"),
        ").",
    )


TOPICS: dict[str, tuple[Rule, ...]] = {
    "": (_opening,),
    "Sinks": (_null, _sinks, _broad),
    "Reach": (
        _distance,
        _correlation("entropy", "spread their attention more", "spread their attention less"),
        _correlation("dep_alignment", "align more with syntax", "align less with syntax"),
    ),
    "Syntax": (_alignment, _aligned_head, relations, trained),
    "Position": (_offsets, _variability, _repeats),
    "Parts of speech": (_tags,),
    "Coreference": (coreference,),
    "Does it matter": (effects, norms, importance),
}


def notable_heads(subject: ModelResults) -> dict[tuple[int, int], str]:
    """Heads worth seeing at work, and why: the strongest of each kind."""
    notable: dict[tuple[int, int], str] = {}
    offset = RoleThresholds().share
    reach = subject.jackknife("distance")
    mean = None if reach is None else reach.mean((0, 1))
    kinds: list[tuple[str, float | str | Jackknife | None, dict[str, str | int], str]] = [
        ("dep_alignment", "dep_baseline", {"parent": "either"}, "much along dependencies"),
        ("offset_share", offset, {"offset": -1}, "mostly to the previous token"),
        ("offset_share", offset, {"offset": 1}, "mostly to the next token"),
        ("induction", 0.3, {}, "to what followed the same token"),
        ("distance", mean, {}, "far on average"),
    ]
    for name, threshold, labels, why in kinds:
        if threshold is not None:
            best = heads_beyond(subject, name, threshold, **labels).passed[:1]
            for layer, at, _ in best:
                notable.setdefault((layer, at), why)
    data = subject.data("exemplar_weight")
    if not notable and data is not None:
        highest = data["exemplar_weight"].max("rank").transpose("layer", "head").values
        row, column = divmod(int(highest.argmax()), highest.shape[1])
        notable[subject.layers[row], column] = "with the highest single weight"
    return notable


def _span(subject: ModelResults, name: str, extremes: Extremes, units: str) -> str:
    """`from 12 % in layer 0 to 60 % in layer 5 (or 4, which cannot be told from it)`."""
    ends = [
        f"{with_interval(subject.measured(f'{name}_by_layer', layer=tied[0]), units)} in "
        f"{_tied_layers(tied)}"
        for tied in (extremes.lowest, extremes.highest)
    ]
    return f"from {ends[0]} to {ends[1]}"


def _tied_layers(tied: Sequence[int]) -> str:
    """`layer 5`, `layer 5 (or 3 or 4, which cannot be told from it)`."""
    others = [str(layer) for layer in tied[1:]]
    if len(others) > NAMED:
        others = [f"one of {len(others)} more"]
    alike = f" (or {' or '.join(others)}, which cannot be told from it)" if others else ""
    return f"layer {tied[0]}{alike}"


def _named(number: int, heads: Sequence[HeadValue], units: str = "share of attention") -> Phrase:
    items: list[SentencePart | Sequence[SentencePart]] = [
        [head(number, layer, at), f" {with_interval(value, units)}"]
        for layer, at, value in heads[:NAMED]
    ]
    if len(heads) > NAMED:
        items.append(f"{len(heads) - NAMED} more")
    return listed(items)


def _value(of_layer: LayerValue) -> float:
    return of_layer[1].value


def _capital(parts: Phrase) -> Phrase:
    first = parts[0]
    return [first[:1].upper() + first[1:], *parts[1:]] if isinstance(first, str) else parts
