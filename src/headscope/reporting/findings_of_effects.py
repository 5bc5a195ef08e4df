"""Findings about what matters: effects of heads, norms of what they fetch, gradients."""

from __future__ import annotations

import numpy as np

from headscope.errors import InputError
from headscope.reporting.effect_table import effects_of
from headscope.reporting.evidence import differ_from
from headscope.reporting.subjects import Subject
from headscope.reporting.wording import (
    Sentence,
    aside,
    count_of,
    figure,
    head,
    listed,
    measured,
    with_interval,
)
from headscope.results.described import label_of
from headscope.run.compare import compare


def effects(subject: Subject, number: int) -> Sentence | None:
    """Without which head the loss rises most, and how many heads it depends on."""
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
            figure("effects"),
            ".",
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
        figure("effects"),
        ".",
    ]


def norms(subject: Subject, number: int) -> Sentence | None:
    """Whether null attention is a no-op: its share by what it fetches."""
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
        figure("finder"),
        ".",
    ]


def importance(subject: Subject, number: int) -> Sentence | None:
    """At which keys gradients are larger or smaller than on average."""
    data = subject.data("importance_mean")
    pulls = subject.pulls("importance")
    if data is None or pulls is None:
        return None
    names = [str(name) for name in data["gradient_class"].values]
    if "all" not in names:
        return None
    overall = subject.measured("importance_mean", gradient_class="all")
    means = pulls.mean((0, 1))
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
        figure("importance"),
        ".",
    ]


def _quoted(name: str) -> str:
    shown = label_of("key_class", name)
    return f"“{shown}”" if not shown[0].isalpha() and not shown.startswith("[") else shown
