"""What to call a head, from what was measured: the labels of Clark et al.'s Figure 6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.heads import probed
from headscope.results.result import Result
from headscope.text.token_classes import FIRST, PERIOD_OR_COMMA, REST, is_repeated

OTHER = "other"
SURFACE = ("offset_share", "class_share", "row_entropy", "uniform_entropy")
"""The variables that name a head."""
MOST_NAMES = 3
"""Names a head is given at most: some heads are best at many relations."""

Probes = Mapping[tuple[int, int], str] | Result | Iterable[Result]
"""Names by layer and head, or the results of probes that give them."""


@dataclass(frozen=True)
class Thresholds:
    """From which value on a head is named after a behavior (Clark et al. 2019)."""

    offset: float = 0.5
    """Next or previous token, section 3.1."""
    key_class: float = 0.6
    """[CLS], [SEP], punctuation, the first token: Figure 6."""
    broad: float = 0.8
    """Row entropy as a share of the uniform one: 3.8 nats of 4.85 at 128 tokens."""


def behaviors(
    result: Result, thresholds: Thresholds | None = None, probes: Probes | None = None
) -> xr.DataArray:
    """`layer head`: what each head does, one name each.

    Names from probing come first, because they are the most specific; then the share of
    attention that is furthest above its threshold.

    Args:
        result: with `offset_share`, `class_share`, `row_entropy` and `uniform_entropy`.
        thresholds: where behaviors begin.
        probes: results of `probe_dependencies` and `probe_coreference`, whose best heads are
            named after what they find; or names: `{(7, 9): "direct object"}`.
    """
    limits = thresholds or Thresholds()
    missing = [name for name in SURFACE if name not in result]
    if missing:
        raise InputError(
            f"Heads are named after {', '.join(missing)}, which this result does not have. "
            'Run analyze with the surface metrics (they are among "all").'
        )
    scores: dict[str, np.ndarray] = {}
    for offset, name in ((-1, "previous token"), (1, "next token")):
        scores[name] = result["offset_share"].sel(offset=offset).values / limits.offset
    shares = result["class_share"]
    names = [str(name) for name in shares["key_class"].values]
    for name in names:
        if name in (REST, PERIOD_OR_COMMA) or (name == FIRST and is_repeated(shares)):
            continue
        shown = "first token" if name == FIRST else name
        scores[shown] = shares.sel(key_class=name).values / limits.key_class
    uniform = float(result["uniform_entropy"])
    if uniform > 0:
        scores["broad"] = result["row_entropy"].values / (limits.broad * uniform)
    table = np.nan_to_num(np.stack(list(scores.values())))
    best = table.argmax(0)
    labels = np.array([*scores, OTHER], dtype=object)[np.where(table.max(0) > 1, best, len(scores))]
    behavior = xr.DataArray(
        labels,
        dims=("layer", "head"),
        coords={"layer": result["row_entropy"]["layer"], "head": result["row_entropy"]["head"]},
        name="behavior",
    )
    for (layer, head), name in probed_names(probes).items():
        if layer not in behavior["layer"].values or head not in behavior["head"].values:
            raise InputError(f"A probe names L{layer} H{head}, which this result does not have.")
        behavior.loc[{"layer": layer, "head": head}] = name
    return behavior


def probed_names(probes: Probes | None) -> Mapping[tuple[int, int], str]:
    """One name for each head that probes single out."""
    if probes is None or isinstance(probes, Mapping):
        return probes or {}
    names: dict[tuple[int, int], list[str]] = {}
    for result in [probes] if isinstance(probes, Result) else probes:
        for at, more in probed.behaviors(result).items():
            names.setdefault(at, []).extend(more)
    return {at: ", ".join(all_names[:MOST_NAMES]) for at, all_names in names.items()}
