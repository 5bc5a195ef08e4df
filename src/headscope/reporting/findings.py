"""Findings about one model, written from its numbers by rules.

A rule gives one sentence or None. Each claim has a test (`hypothesis_tests`), and its sentence
names the correction. Correlations describe and claim nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np

from headscope.errors import InputError
from headscope.figures.chart_data import ModelResults, ValueText, measured
from headscope.figures.chart_types import Phrase, SentencePart
from headscope.heads.roles import RoleThresholds
from headscope.reporting.hypothesis_tests import (
    ALPHA,
    HeadValue,
    are_layers_apart,
    differ_from,
    heads_beyond,
    is_least_below_mean,
    labels_above_twice_the_mean,
    layers_above,
    scaled,
)
from headscope.reporting.report_tables import (
    RULES,
    accuracy_of,
    best_rows,
    crossfit_of,
    effects_of,
    probe_name,
    probe_scores,
)
from headscope.reporting.wording import (
    aside,
    cited,
    count_of,
    head,
    listed,
    p_value,
    points,
    sentence,
    two_digits,
    with_interval,
)
from headscope.results.display import label_of
from headscope.run.compare import compare
from headscope.statistics.correlation import pearson, ranks
from headscope.statistics.jackknife import Jackknife

BROAD_ENTROPY = 0.8
"""Entropy as a share of the uniform one, for the count of broad heads: 3.8 nats of 4.85 at 128
tokens (Clark et al. 2019, section 3.3)."""


def effects(subject: ModelResults, number: int) -> Phrase | None:
    """Write the head with the largest effect on the loss, and how many heads have one."""
    known = effects_of(subject)
    if known is None or not known.n_tested:
        return None
    where = subject.elsewhere("effect")
    corrected = aside(f" (after correction over {count_of(known.n_tested, 'head')})")
    largest = known.largest(np.ones_like(known.is_clear))
    if largest is None:
        return [
            f"Without any single head the loss{where} changes too little to be told from 0",
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
        f"{also}. It {verb} most without ",
        head(number, layer, column),
        f", by {with_interval(rise, 'nats per token')}",
        *cited("effects"),
    ]


def norms(subject: ModelResults, number: int) -> Phrase | None:
    """Write whether null attention is a no-op: its share weighted by norms."""
    plain = subject.result("null_share")
    if plain is None or subject.normed is None or "null_share" not in subject.normed:
        return None
    try:
        difference = measured(compare(plain, subject.normed), "null_share_mean")
    except InputError:  # no sums to compare
        return None
    if not (difference.is_above(0) or difference.is_below(0)):
        return None
    units = "share of attention"
    before = measured(plain.dataset, "null_share_mean")
    after = measured(subject.normed.dataset, "null_share_mean")
    way = "falls" if difference.value > 0 else "rises"
    return [
        "Weighted by the length of the vectors it fetches, the mean share of null attention "
        f"{way} from {with_interval(before, units)} to {with_interval(after, units)}",
        aside(" (paired over documents)"),
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
    is_different = differ_from(means, means.at(slice(names.index("all"), names.index("all") + 1)))
    said = []
    for name, differs in zip(names, is_different.tolist(), strict=True):
        gradient = subject.measured("importance_mean", gradient_class=name)
        if name in ("all", "rest") or not differs or gradient.value <= 0:
            continue
        ratio = gradient.value / overall.value
        said.append(f"{100 * ratio:.0f}\u00a0% at {_quoted(name)}")
    if not said:
        return None
    return [
        f"The loss{subject.elsewhere('importance_mean')} does not depend on attention to all keys "
        "alike: in percent of its mean over all keys, the gradient |∂L/∂a| is ",
        *listed(said),
        aside(" (after correction over classes of keys)"),
        *cited("importance"),
    ]


def _quoted(name: str) -> str:
    shown = label_of("key_class", name)
    return f"“{shown}”" if not shown[0].isalpha() and not shown.startswith("[") else shown


def relations(subject: ModelResults, number: int) -> Phrase | None:
    """Write whether single heads find relations better than a fixed offset."""
    rows = [row for row in best_rows(subject, "accuracy") if row.label != "all"]
    if not rows:
        return None
    tested = [row for row in rows if np.isfinite(row.gains["offset"].p)]
    better = [row for row in tested if row.gains["offset"].is_clear]
    if not tested:
        return None
    noun = count_of(len(tested), "relation") + subject.elsewhere("accuracy")
    corrected = aside(f" (after correction over {count_of(len(tested), 'relation')})")
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
        f", by the widest margin for {best.label}, where ",
        head(number, best.layer, best.head),
        f" ({label_of('direction', best.direction)}) is right in "
        f"{with_interval(accuracy_of(best), 'accuracy')} of {count_of(best.cases, 'case')}{ties}. "
        "Chosen on one half of the documents and scored on the other, heads are right in "
        f"{with_interval(crossfit_of(best), 'accuracy')}, "
        f"{points(ValueText(gain.value, *gain.interval))} above the best offset",
        *cited("relations"),
    ]


def coreference(subject: ModelResults, number: int) -> Phrase | None:
    """Write the baselines that the best head for antecedents beats."""
    rows = best_rows(subject, "coref_accuracy")
    best = next((row for row in rows if row.label == "all"), None)
    if best is None:
        return None
    said = {
        name: f"{RULES.get(name, name).lower()} ({100 * value:.1f}\u00a0%)"
        for name, value in best.baselines.items()
    }
    beaten = [said[name] for name in best.baselines if best.gains[name].is_clear]
    missed = [text for text in said.values() if text not in beaten]
    parts: Phrase = [
        "The best single head for coreference is ",
        head(number, best.layer, best.head),
        f": it finds an antecedent for {with_interval(accuracy_of(best), 'accuracy')} of "
        f"{count_of(best.cases, 'mention')}{subject.elsewhere('coref_accuracy')}",
    ]
    if beaten:
        parts += [
            f" ({with_interval(crossfit_of(best), 'accuracy')} by heads chosen on other "
            "documents), more than the rules ",
            *listed(beaten),
            aside(f" (after correction over {len(said)} rules)"),
        ]
    if missed:
        parts += ["; it does not clearly beat ", *listed(missed)]
    return [*parts, *cited("coreference")]


def trained(subject: ModelResults, number: int) -> Phrase | None:
    """Write the accuracy of trained probes over all heads."""
    if not subject.probes:
        return None
    items = []
    for probe in subject.probes:
        uas, chain = probe_scores(probe)
        against = ""
        if chain.is_known:
            against = f"; right-branching {with_interval(chain, 'UAS')}"
        items.append(f"{with_interval(uas, 'UAS')} ({probe_name(probe)}{against})")
    return [
        "Probes trained on all heads together find the parent of ",
        *listed(items),
        " of the words",
        *cited("probes"),
    ]


Rule = Callable[[ModelResults, int], Phrase | None]
"""From a subject and its number in the report."""
LayerValue = tuple[int, ValueText]
EXACT = 8
"""Up to this many layers, the p value of a trend is counted over all orders of the layers."""
PAIRS_OF_LAYERS = aside(", which differ after correction over all pairs of layers")
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
    tokens = f", {int(counts['tokens']):,} tokens" if "tokens" in counts else ""
    measured = subject.measured("tokens_per_document")
    warning = " There are too few documents for intervals and tests: values stand alone."
    return [
        f"{subject.title} ({len(subject.layers)} layers of {count_of(subject.n_heads, 'head')}, "
        f"{kind}) read {count_of(int(documents), 'document')}{tokens} of "
        f"{subject.results[0].corpus_name}." + ("" if measured.has_interval else warning)
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
    layers = layers_of(subject, "null_share")
    if layers:
        low, high = _extremes(layers)
        if are_layers_apart(subject, "null_share"):
            parts += [
                f"; by layer it runs from {with_interval(low[1], units)} in layer {low[0]} to "
                f"{with_interval(high[1], units)} in layer {high[0]}",
                PAIRS_OF_LAYERS,
            ]
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
    return [
        f"Attention runs along dependencies most in layer {layer}: {with_interval(best, units)} of "
        f"it, {best.value / baseline:.1f} times the {even} that evenly spread attention would give"
        f"; {len(above)} of {len(layers)} layers are above that baseline",
        aside(f" (after correction over {len(layers)} layers)"),
        *cited("alignment"),
    ]


def _aligned_head(subject: ModelResults, number: int) -> Phrase | None:
    above = heads_beyond(subject, "dep_alignment", "dep_baseline", parent="either")
    if not above.passed:
        return None
    layer, at, value = above.passed[0]
    return [
        "The head that does so most is ",
        head(number, layer, at),
        f" with {with_interval(value, 'share of attention')}; "
        f"{len(above.passed)} of {above.n_tested} heads are above the baseline",
        aside(f" ({above.correction})"),
        ".",
    ]


def _distance(subject: ModelResults, number: int) -> Phrase | None:
    layers = layers_of(subject, "distance")
    if len(layers) < 2:
        return None
    low, high = _extremes(layers)
    if not are_layers_apart(subject, "distance"):
        return None
    span = (
        f"from {with_interval(low[1], 'tokens')} in layer {low[0]} to "
        f"{with_interval(high[1], 'tokens')} in layer {high[0]}"
    )
    trend = _trend(layers)
    if trend is None:
        return ["Mean distance runs ", span, PAIRS_OF_LAYERS, *cited("layers")]
    rho, p = trend
    verb = "grows" if rho > 0 else "falls"
    return [
        f"Mean distance {verb} with the layer",
        aside(f" (Spearman's ρ = {two_digits(rho)} over {len(layers)} layers, {p_value(p)})"),
        f" and runs {span}",
        PAIRS_OF_LAYERS,
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
        p = subject.measured("correlation_within_p", correlated=key).value
        shuffled = f"(heads shuffled within layers: {p_value(p)})"
        inside = f"; within layers r = {two_digits(within.value)} {shuffled}"
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
    data = subject.data("variability")
    if data is None or not is_least_below_mean(subject, "variability"):
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
        f"{with_interval(mean, 'share of attention')} on average",
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
    is_above = labels_above_twice_the_mean(subject, "pos_to")
    if data is None or is_above is None:
        return None
    tags = [str(tag) for tag in data["tag"].values]
    named = [tag for tag, above in zip(tags, is_above, strict=False) if above]
    if not named:
        return None
    every = "every one" if len(named) == len(tags) else f"{len(named)}"
    return [
        f"For {every} of {len(tags)} tags there is a head that pays it more than twice the "
        "attention of the average head",
        aside(" (after correction over heads and tags)"),
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
    "Does it matter": (effects, norms, importance),
}
"""The rules of each topic, in the order of the page."""


def notable_heads(subject: ModelResults) -> dict[tuple[int, int], str]:
    """Heads worth seeing at work, and why: the strongest of each kind."""
    notable: dict[tuple[int, int], str] = {}
    offset = RoleThresholds().share
    reach = subject.jackknife("distance")
    mean = None if reach is None else reach.mean((0, 1))
    kinds: list[tuple[str, float | str | Jackknife | None, dict[str, str | int], str]] = [
        ("dep_alignment", "dep_baseline", {"parent": "either"}, "most along dependencies"),
        ("offset_share", offset, {"offset": -1}, "most to the previous token"),
        ("offset_share", offset, {"offset": 1}, "most to the next token"),
        ("induction", 0.3, {}, "most to what followed the same token"),
        ("distance", mean, {}, "farthest on average"),
    ]
    for name, threshold, labels, why in kinds:
        if threshold is not None:
            best = heads_beyond(subject, name, threshold, **labels).passed[:1]
            for layer, at, _ in best:
                notable.setdefault((layer, at), why)
    return notable


def _extremes(layers: Sequence[LayerValue]) -> tuple[LayerValue, LayerValue]:
    """The layers with the lowest and the highest value."""
    return min(layers, key=_value), max(layers, key=_value)


def _trend(layers: Sequence[LayerValue]) -> tuple[float, float] | None:
    """Spearman's ρ of value and layer, and its p value; None unless it is significant."""
    if len(layers) < 5:
        return None
    of_values = ranks(np.array([value.value for _, value in layers]))
    rho, p = pearson(ranks(np.array([n for n, _ in layers])), of_values)
    if len(layers) <= EXACT:  # for so few layers, the p value of the t test is too small
        orders = np.array(list(permutations(range(len(layers)))))
        centered = np.arange(len(layers)) - (len(layers) - 1) / 2
        products = np.abs(of_values[orders] @ centered)
        p = float((products >= products[0] - 1e-9).mean())
    return (rho, p) if p < ALPHA else None


def _named(number: int, heads: Sequence[HeadValue], units: str = "share of attention") -> Phrase:
    """The first few heads with their values, and how many more there are."""
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
