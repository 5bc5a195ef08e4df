"""Findings from probes."""

from __future__ import annotations

import numpy as np

from headscope.reporting.subjects import Subject
from headscope.reporting.table_figures import (
    RULES,
    accuracy_of,
    best_rows,
    probe_name,
    probe_scores,
)
from headscope.reporting.wording import (
    Measured,
    Sentence,
    aside,
    count_of,
    figure,
    head,
    listed,
    points,
    with_interval,
)
from headscope.results.described import label_of


def relations(subject: Subject, number: int) -> Sentence | None:
    """Whether single heads find relations better than a fixed offset."""
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
            figure("relations"),
            ".",
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
        f"{with_interval(Measured(best.honest, *best.honest_interval), 'accuracy')}, "
        f"{points(Measured(gain.value, *gain.interval))} above the best offset",
        figure("relations"),
        ".",
    ]


def coreference(subject: Subject, number: int) -> Sentence | None:
    """Which baselines the best head for antecedents beats."""
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
    parts: Sentence = [
        "The best single head for coreference is ",
        head(number, best.layer, best.head),
        f": it finds an antecedent for {with_interval(accuracy_of(best), 'accuracy')} of "
        f"{count_of(best.cases, 'mention')}{subject.elsewhere('coref_accuracy')}",
    ]
    if beaten:
        parts += [
            f" ({with_interval(Measured(best.honest, *best.honest_interval), 'accuracy')} by heads "
            "chosen on other documents), more than the rules ",
            *listed(beaten),
            aside(f" (after correction over {len(said)} rules)"),
        ]
    if missed:
        parts += ["; it does not clearly beat ", *listed(missed)]
    return [*parts, figure("coreference"), "."]


def trained(subject: Subject, number: int) -> Sentence | None:
    """How often trained probes over all heads find a word's parent."""
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
        figure("probes"),
        ".",
    ]
