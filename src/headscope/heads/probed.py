"""What probes call heads: the relations and mentions that each is best at."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.heads.probe_table import probe_table
from headscope.results.result import Result


def of_probes(results: Iterable[Result]) -> list[Result]:
    """Those of the results that score heads as classifiers."""
    return [r for r in results if "accuracy" in r or "coref_accuracy" in r]


def behaviors(
    result: Result, *, margin: float = 0.10, block: str | None = None
) -> dict[tuple[int, int], list[str]]:
    """By layer and head, what the head is best at; heads that are best at nothing are missing.

    A head is named after a relation where it is the best of all heads and its honest
    accuracy (chosen on one half of the documents, scored on the other) is `margin` above the
    fixed-offset baseline: `obj`, or `obj (head)` where parents attend to their dependents.
    After coreference it is named `coreference`, `coreference of pronouns` and so on, where it
    is `margin` above the rule that takes the nearest mention with the same head word.

    Args:
        result: of `probe_dependencies` or `probe_coreference`.
        margin: how far above its baseline.
        block: another attention of the model: `decoder`.
    """
    table = probe_table(result, block=block)
    names: dict[tuple[int, int], list[str]] = {}
    for row in table.rows:
        if table.axis == "relation":
            name = row.label if row.direction == "dependent" else f"{row.label} (head)"
            baseline, is_named = row.baselines["offset"], row.label != "all"
        else:
            name = "coreference" if row.label == "all" else f"coreference of {_PLURAL[row.label]}"
            baseline, is_named = row.baselines["head_match"], True
        if is_named and min(row.honest, row.accuracy) >= baseline + margin:
            names.setdefault((row.layer, row.head), []).append(name)
    return names


_PLURAL = {"pronoun": "pronouns", "proper": "names", "nominal": "nouns"}
