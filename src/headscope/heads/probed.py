"""What probes call heads: the relations and mentions that each is best at."""

from __future__ import annotations

from headscope.heads.probe_table import probe_table
from headscope.results.result import Result

__all__ = ["behaviors"]


def behaviors(
    result: Result, *, margin: float = 0.10, block: str | None = None
) -> dict[tuple[int, int], list[str]]:
    """By layer and head: what the head was singled out for; other heads are not in it.

    A head is named after a relation where it is the best of all heads and its honest
    accuracy (chosen on one half of the documents, scored on the other) is `margin` above the
    fixed-offset baseline: `obj`, or `obj (head)` where the head attends to the dependent. In
    coreference `coreference`, and `coreference of pronouns` and so on, where it is `margin`
    above the nearest mention with the same head word.

    Args:
        result: of `probe_dependencies` or `probe_coreference`.
        margin: how far above its baseline.
        block: another attention of the model: `decoder`.
    """
    table = probe_table(result, block=block)
    found: dict[tuple[int, int], list[str]] = {}
    for row in table.rows:
        if table.of == "relation":
            name = row.label if row.direction == "dependent" else f"{row.label} (head)"
            baseline, is_named = row.baselines["offset"], row.label != "all"
        else:
            name = "coreference" if row.label == "all" else f"coreference of {_PLURAL[row.label]}"
            baseline, is_named = row.baselines["head_match"], True
        if is_named and min(row.honest, row.accuracy) >= baseline + margin:
            found.setdefault((row.layer, row.head), []).append(name)
    return found


_PLURAL = {"pronoun": "pronouns", "proper": "names", "nominal": "nouns"}
