"""What each head does with one text, in one word: the roles of the page and of `Trace.roles`.

A role is a place that a query could look at: the previous token, an equal word elsewhere, the first
token. A head has the role if the queries that could look there do, mostly.

What to call a head, from what was measured: the labels of Clark et al.'s Figure 6.

What probes call heads: the relations and mentions that each is best at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.probes.tables import probe_table
from headscope.results.result import Result
from headscope.results.trace import Block
from headscope.text.token_classes import (
    FIRST,
    PERIOD_OR_COMMA,
    PUNCTUATION,
    REST,
    is_punctuation,
    is_repeated,
)
from headscope.text.tokens import Tokens

ROLES = (
    "previous",
    "next",
    "same",
    "equal",
    "after",
    "broad",
    "first",
    "special",
    "punctuation",
)
"""Previous, next and same token; an equal word elsewhere; the token after an earlier equal one;
everything in sight; and the resting places: the first token, special tokens, punctuation."""
CONTENT = ("equal", "after")
"""Roles that depend on what the words are."""
SINK_ROLES = ("first", "special", "punctuation")
"""Where heads rest that have nothing to do."""
MIN_SHARE = 0.5
"""Of the attention that the queries pay which could show a role."""
TIMES_UNIFORM = 2.0
"""So many times what even attention would give."""
MIN_QUERIES = 3
MIN_BROAD = 0.5
"""A row is broad whose exp(entropy) is so large a part of the keys in sight."""
FEWEST_KEYS = 4
"""Rows with fewer keys in sight are neither broad nor narrow."""
CORPUS_NAMES = {"equal": "duplicate_token", "after": "induction"}
"""The variables of a run that say how far a head shows a content role over a corpus."""
TINY = 1e-30
"""Stands for 0 in a logarithm; it is multiplied by 0 afterwards."""


@dataclass(frozen=True, eq=False)
class RoleShares:
    """How far each head shows each role, before one is chosen.

    Attributes:
        shares: `role layer head`, in the order of `ROLES`; NaN where no query could show it.
        queries: `role`: how many queries could show it.
        holds: `role layer head`: is the share large enough for the name?
    """

    shares: np.ndarray
    queries: np.ndarray
    holds: np.ndarray

    def share(self, role: str) -> np.ndarray:
        """`layer head` of one role."""
        table: np.ndarray = self.shares[ROLES.index(role)]
        return table

    def has(self, role: str) -> np.ndarray:
        """`layer head`: which heads show the role strongly enough."""
        table: np.ndarray = self.holds[ROLES.index(role)]
        return table


def name_roles(block: Block, entropies: np.ndarray | None = None) -> xr.Dataset:
    """What each head of a block does with this text.

    Args:
        block: of a trace.
        entropies: what `row_entropies` gives for its weights, where that is known.

    Returns:
        Over `layer` and `head`: `role` (one of `ROLES`, or "" for a head that follows none of
        them), its `share` of attention and the `queries` that could show it.
    """
    if entropies is None:
        entropies = row_entropies(known_weights(block))
    coords = {name: block.attention[name].values for name in ("layer", "head")}
    return choose_roles(role_shares(block, entropies), coords, "text")


def choose_roles(measured: RoleShares, coords: Mapping[str, np.ndarray], source: str) -> xr.Dataset:
    """The strongest of each head's roles, as a table."""
    best = np.where(measured.holds, measured.shares, -1.0).argmax(0)
    is_named = measured.holds.any(0)
    share = np.take_along_axis(measured.shares, best[None], 0)[0]
    axes = ("layer", "head")
    return xr.Dataset(
        {
            "role": (axes, np.where(is_named, np.array(ROLES, dtype=object)[best], "")),
            "share": (axes, np.where(is_named, share, np.nan)),
            "queries": (axes, np.where(is_named, measured.queries[best], 0)),
        },
        coords=dict(coords),
        attrs={"source": source},
    )


def role_shares(block: Block, entropies: np.ndarray | None = None) -> RoleShares:
    """How far each head of a block shows each role in this text.

    Without the entropies of its rows, `broad` is left out.
    """
    weights = known_weights(block)
    places = role_places(block)
    names = [name for name in ROLES if name in places]
    shares = np.full((len(ROLES), *weights.shape[:2]), np.nan)
    queries = np.zeros(len(ROLES), dtype=np.int64)
    holds = np.zeros(shares.shape, dtype=bool)
    in_sight = _in_sight(block)
    for name, share in zip(names, _shares(weights, [places[name] for name in names]), strict=True):
        row = ROLES.index(name)
        queries[row] = int(places[name].any(-1).sum())
        shares[row] = share
        least = np.maximum(MIN_SHARE, TIMES_UNIFORM * _even(places[name], in_sight))[:, None]
        holds[row] = (share >= least) & (queries[row] >= MIN_QUERIES)
    if entropies is not None:
        row = ROLES.index("broad")
        shares[row], queries[row] = _breadth(weights, in_sight, entropies)
        holds[row] = (shares[row] >= MIN_BROAD) & (queries[row] >= MIN_QUERIES)
    return RoleShares(shares, queries, _settled(holds))


def _settled(holds: np.ndarray) -> np.ndarray:
    """Of two roles that hold, drop the one that says less: a head that looks at one place is not
    broad, and one that rests on the first token rests on no special token besides.
    """
    settled = holds.copy()
    broad, first, special = (ROLES.index(name) for name in ("broad", "first", "special"))
    settled[broad] &= ~np.delete(holds, broad, 0).any(0)
    settled[special] &= ~holds[first]
    return settled


def role_places(block: Block) -> dict[str, np.ndarray]:
    """`query key`: where a query would look that shows a role. A query without such a key has an
    empty row. Special tokens are no queries, and the first key, where many heads rest, counts
    for no role but the resting ones.
    """
    keys = block.key_tokens
    n_queries, n_keys = len(block.query_tokens), len(keys)
    special = np.array(keys.special, dtype=bool)
    stops = np.array([is_punctuation(token) for token in keys.tokens], dtype=bool) & ~special
    everywhere = np.ones((n_queries, 1), dtype=bool)
    places = {
        "first": everywhere & (np.arange(n_keys) == 0),
        "special": everywhere & special,
        "punctuation": everywhere & stops,
    }
    if n_queries == n_keys and block.name != "cross":
        offset = np.subtract.outer(np.arange(n_queries), np.arange(n_keys))
        places |= {"previous": offset == 1, "next": offset == -1, "same": offset == 0}
        places |= {"equal": _equal_words(keys, stops), "after": _after_equal(keys)}
    for name, place in places.items():
        if name not in SINK_ROLES:
            place[:, 0] = False
        place[np.array(block.query_tokens.special, dtype=bool)] = False
        if block.is_causal:
            place &= np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)
        if name == "first":
            place[:1] = place[:1] & (n_keys > 1) & (not block.is_causal)
    return places


def row_entropies(weights: np.ndarray) -> np.ndarray:
    """`layer head query`: the entropy of each row, in nats."""
    entropies = np.empty(weights.shape[:3], dtype=np.float32)
    logs = np.empty(weights.shape[2:], dtype=weights.dtype)
    for layer, head in np.ndindex(*weights.shape[:2]):
        rows = weights[layer, head]
        np.maximum(rows, TINY, out=logs)
        np.log(logs, out=logs)
        entropies[layer, head] = -np.einsum("qk,qk->q", rows, logs)
    return entropies


def known_weights(block: Block) -> np.ndarray:
    """`layer head query key`, with 0 for what is missing."""
    array: np.ndarray = block.attention.transpose("layer", "head", "query", "key").values
    return np.nan_to_num(array, nan=0.0) if np.isnan(array).any() else array


def _equal_words(tokens: Tokens, stops: np.ndarray) -> np.ndarray:
    """Tokens of the same word at another place."""
    words = np.array(tokens.words)
    texts = [text.strip().casefold() for text in tokens.word_texts]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    kinds = np.array([numbers[texts[word]] if word >= 0 else -1 for word in words])
    kinds[stops] = -1
    equal: np.ndarray = np.equal.outer(kinds, kinds) & (kinds >= 0)[:, None]
    equal &= np.not_equal.outer(words, words)
    return equal


def _after_equal(tokens: Tokens) -> np.ndarray:
    """The token after an earlier token that is equal."""
    texts = [token.strip().casefold() for token in tokens.tokens]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    kinds = np.array([numbers[text] for text in texts])
    kinds[np.array(tokens.special, dtype=bool)] = -1
    earlier = np.tril(np.equal.outer(kinds, kinds) & (kinds >= 0)[:, None], -1)
    after: np.ndarray = np.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]
    return np.tril(after, -1)


def _shares(weights: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
    """`place layer head`: what the queries that have a place pay to it, of all they pay."""
    n_layers, n_heads = weights.shape[:2]
    flat = weights.reshape(n_layers * n_heads, -1)
    tables = np.stack([place.ravel() for place in places], axis=1).astype(weights.dtype)
    paid = (flat @ tables).astype(np.float64)
    could = np.stack([place.any(-1) for place in places], axis=1).astype(np.float64)
    total = weights.sum(-1, dtype=np.float64).reshape(n_layers * n_heads, -1) @ could
    shares = np.divide(paid, total, out=np.full_like(paid, np.nan), where=total > 0)
    table: np.ndarray = shares.T.reshape(len(places), n_layers, n_heads)
    return table


def _in_sight(block: Block) -> np.ndarray:
    """`layer query key`: what a query may look at; one layer where all are alike."""
    if "visible" in block.data:
        visible: np.ndarray = block.data["visible"].transpose("layer", "query", "key").values
        return visible
    n_queries, n_keys = block.attention.sizes["query"], block.attention.sizes["key"]
    if block.is_causal:
        return np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)[None]
    return np.ones((1, n_queries, n_keys), dtype=bool)


def _even(place: np.ndarray, in_sight: np.ndarray) -> np.ndarray:
    """`layer`: the share that even attention would pay to a place."""
    rows = place.any(-1)
    if not rows.any():
        return np.zeros(len(in_sight))
    there = (in_sight[:, rows] & place[rows]).sum(-1)
    shares: np.ndarray = (there / np.maximum(in_sight[:, rows].sum(-1), 1)).mean(-1)
    return shares


def _breadth(
    weights: np.ndarray, in_sight: np.ndarray, entropies: np.ndarray
) -> tuple[np.ndarray, int]:
    """`layer head`: exp(entropy) of a row as a share of the keys in sight, on average; and of
    how many rows.
    """
    counts = in_sight.sum(-1)
    rows = (counts >= FEWEST_KEYS).all(0)
    if not rows.any():
        return np.zeros(weights.shape[:2]), 0
    shares = np.exp(entropies[..., rows]) / counts[:, None, rows]
    is_live = weights.sum((2, 3)) > 0
    return np.where(is_live, shares.mean(-1), 0.0), int(rows.sum())


def corpus_roles(data: xr.Dataset) -> xr.Dataset | None:
    """What each head does over a corpus, by the shares that a run measured: the same names and
    the same least share as in one text. None where the run did not measure them.

    Args:
        data: one block of a result.
    """
    if not {"offset_share", "class_share"} <= set(data):
        return None
    by_offset = {"previous": -1, "same": 0, "next": 1}
    tables = {
        role: data["offset_share"].sel(offset=offset)
        for role, offset in by_offset.items()
        if offset in data["offset_share"]["offset"]
    }
    classes = [str(name) for name in data["class_share"]["key_class"].values]
    added = [name for name in classes if name not in (FIRST, PERIOD_OR_COMMA, PUNCTUATION, REST)]
    for role, members in (("first", [FIRST]), ("special", added), ("punctuation", [PUNCTUATION])):
        if members and set(members) <= set(classes):
            tables[role] = data["class_share"].sel(key_class=members).sum("key_class")
    tables |= {role: data[name] for role, name in CORPUS_NAMES.items() if name in data}
    if {"row_entropy", "uniform_entropy"} <= set(data):
        tables["broad"] = xr.apply_ufunc(np.exp, data["row_entropy"] - data["uniform_entropy"])
    first = next(iter(tables.values())).transpose("layer", "head")
    shares = np.full((len(ROLES), *first.shape), np.nan)
    queries = np.zeros(len(ROLES), dtype=np.int64)
    for role, table in tables.items():
        row = ROLES.index(role)
        shares[row] = table.transpose("layer", "head").values
        count = f"{CORPUS_NAMES.get(role, 'offset_share')}_count"
        queries[row] = int(data[count].max()) if count in data else MIN_QUERIES
    least = np.where(np.array(ROLES) == "broad", MIN_BROAD, MIN_SHARE)[:, None, None]
    holds = (np.nan_to_num(shares) >= least) & (queries >= MIN_QUERIES)[:, None, None]
    coords = {name: first[name].values for name in ("layer", "head")}
    return choose_roles(RoleShares(shares, queries, _settled(holds)), coords, "corpus")


def of_probes(results: Iterable[Result]) -> list[Result]:
    """Those of the results that score heads as classifiers."""
    return [r for r in results if "accuracy" in r or "coref_accuracy" in r]


def probed_behaviors(
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
        if is_named and min(row.crossfit_accuracy, row.accuracy) >= baseline + margin:
            names.setdefault((row.layer, row.head), []).append(name)
    return names


_PLURAL = {"pronoun": "pronouns", "proper": "names", "nominal": "nouns"}

OTHER = "other"
SURFACE = ("offset_share", "class_share", "row_entropy", "uniform_entropy")
"""The variables that name a head."""
MAX_NAMES = 3
"""Names a head is given at most: some heads are best at many relations."""

Probes = Mapping[tuple[int, int], str] | Result | Iterable[Result]
"""Names by layer and head, or the results of probes that give them."""


@dataclass(frozen=True)
class RoleThresholds:
    """From which value on a head is named after a behavior (Clark et al. 2019)."""

    offset: float = 0.5
    """Next or previous token, section 3.1."""
    key_class: float = 0.6
    """[CLS], [SEP], punctuation, the first token: Figure 6."""
    broad: float = 0.8
    """Row entropy as a share of the uniform one: 3.8 nats of 4.85 at 128 tokens."""


def behaviors(
    result: Result, thresholds: RoleThresholds | None = None, probes: Probes | None = None
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
    limits = thresholds or RoleThresholds()
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
        for at, more in probed_behaviors(result).items():
            names.setdefault(at, []).extend(more)
    return {at: ", ".join(all_names[:MAX_NAMES]) for at, all_names in names.items()}
