"""Role of each head: one taxonomy for single texts and corpora.

A role names the keys that a head attends to: the previous token, duplicate tokens, the first token.
A head has a role if the queries that could show it pay most of their attention there. Names that
probes give (`obj`, `coreference`) stand beside roles, not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.probes.tables import probe_table
from headscope.results.result import Result
from headscope.results.trace import Block
from headscope.text.tokens import FIRST, PERIOD_OR_COMMA, PUNCTUATION, REST, Tokens, is_punctuation


@dataclass(frozen=True, slots=True)
class Role:
    """Name, sentence and color of a role, the same in cards, pages, reports and figures."""

    name: str
    claim: str
    """Sentence about a head with the role, without its share."""
    color: str
    """Color on light paper; `web/src/paint/roles.ts` has the same, and those on dark paper."""


ROLES: dict[str, Role] = {
    "previous_token": Role("previous token", "Attends to the previous token", "#054c7a"),
    "next_token": Role("next token", "Attends to the next token", "#17a3e9"),
    "current_token": Role("current token", "Attends to the current token", "#8e31c2"),
    "duplicate_token": Role("duplicate token", "Attends to duplicate tokens", "#b8440d"),
    "induction": Role("induction", "Induction: attends to what followed the same token", "#d9a53a"),
    "broad": Role("broad attention", "Broad attention: rows as wide as uniform ones", "#38966f"),
    "first_token": Role("first token", "Attention sink: first token", "#5a6673"),
    "special_token": Role("special tokens", "Attention sink: special tokens", "#9da4ad"),
    "punctuation": Role("punctuation", "Attention sink: punctuation", "#c2ccd6"),
}
"""All roles, by the id that payloads, files and addresses use."""
NAMES = tuple(ROLES)
TOKEN_ROLES = ("duplicate_token", "induction")
"""Roles that depend on the tokens themselves."""
SINK_ROLES = ("first_token", "special_token", "punctuation")
"""Keys that collect attention (attention sinks)."""
NO_ROLE = "other"
OFFSETS = {"previous_token": -1, "current_token": 0, "next_token": 1}
ROLE_VARIABLES = ("offset_share", "class_share", "row_entropy", "uniform_entropy")
"""Variables of a corpus run that roles are read from."""
MIN_VISIBLE_KEYS = 4
"""Rows with fewer visible keys are neither broad nor narrow."""
TINY = 1e-30
"""Replaces 0 in a logarithm, which is then multiplied by 0."""


@dataclass(frozen=True, slots=True)
class RoleThresholds:
    """Minimum values for a role, the same for a text and for a corpus."""

    share: float = 0.5
    """Minimum share of attention: more than half, as in Clark et al. 2019, section 3.1."""
    times_uniform: float = 2.0
    """Minimum ratio to uniform attention, where that is known. In a text of four tokens, a head
    without any preference gives the previous token half of its attention."""
    broad: float = 0.5
    """A head is broad if exp(entropy) ≥ this fraction of its visible keys (perplexity; Clark et
    al. 2019, section 3.3, compare the entropies themselves)."""
    queries: int = 3
    """Minimum number of queries that could show the role; for duplicates, of different words."""
    induction: float = 0.55
    """Minimum share for induction in a text, as a mean over different tokens: on lists, commas
    would outvote the rest. With 0.4, one in seven named heads of lists fails the direct test
    (`studies/roles.py`)."""
    induction_kinds: int = 4
    """Minimum number of different tokens that could show induction."""


DEFAULT = RoleThresholds()


@dataclass(frozen=True, eq=False)
class RoleShares:
    """Share of attention that each head pays to each role (`role layer head`), before one is
    chosen. `queries` (`role`) counts those that could show it; `holds` says where the share reaches
    the thresholds.
    """

    shares: np.ndarray
    queries: np.ndarray
    holds: np.ndarray

    def share(self, role: str) -> np.ndarray:
        """`layer head` of one role."""
        return np.asarray(self.shares[NAMES.index(role)])

    def has(self, role: str) -> np.ndarray:
        """`layer head`: whether each head reaches the role's thresholds."""
        return np.asarray(self.holds[NAMES.index(role)])

    def choose(self, coords: Mapping[str, np.ndarray], source: str) -> xr.Dataset:
        """Return the role with the largest share of each head, as a table."""
        best = np.where(self.holds, self.shares, -1.0).argmax(0)
        is_named = self.holds.any(0)
        share = np.take_along_axis(self.shares, best[None], 0)[0]
        axes = ("layer", "head")
        return xr.Dataset(
            {
                "role": (axes, np.where(is_named, np.array(NAMES, dtype=object)[best], "")),
                "share": (axes, np.where(is_named, share, np.nan)),
                "queries": (axes, np.where(is_named, self.queries[best], 0)),
            },
            coords=dict(coords),
            attrs={"source": source},
        )


def role_sentence(role: str, share: float, over: str = "") -> str:
    """Return one sentence about a head with a role ("" for none)."""
    over = f" {over}" if over else ""
    if not role:
        return f"No role: follows no simple pattern of position or token{over}."
    unit = "of the visible keys" if role == "broad" else "of its attention"
    return f"{ROLES[role].claim}, {100 * share:.0f} % {unit}{over}."


def name_roles(block: Block, entropies: np.ndarray | None = None) -> xr.Dataset:
    """Return the role of each head of a block in one text. See `Trace.roles`."""
    if entropies is None:
        entropies = row_entropies(known_weights(block))
    coords = {name: block.attention[name].values for name in ("layer", "head")}
    return role_shares(block, entropies).choose(coords, "text")


def role_shares(block: Block, entropies: np.ndarray | None = None) -> RoleShares:
    """Return the share of each role in one text; `broad` needs the entropies of the rows."""
    weights = known_weights(block)
    places = role_places(block)
    names = [name for name in NAMES if name in places]
    shares = np.full((len(NAMES), *weights.shape[:2]), np.nan)
    queries = np.zeros(len(NAMES), dtype=np.int64)
    uniform = np.zeros((len(NAMES), len(weights), 1))
    visible = _visible(block)
    votes = [_votes(block, name, places[name]) for name in names]
    chosen = [places[name] for name in names]
    for name, share, vote in zip(names, _shares(weights, chosen, votes), votes, strict=True):
        row = NAMES.index(name)
        queries[row] = int((vote > 0).sum())
        shares[row] = share
        uniform[row] = _uniform_share(places[name], visible, vote)[:, None]
    if entropies is not None:
        row = NAMES.index("broad")
        shares[row], queries[row] = _breadth(weights, visible, entropies)
    return _apply(DEFAULT, shares, queries, uniform)


def _votes(block: Block, role: str, place: np.ndarray) -> np.ndarray:
    """`query`: weight of each query that could show a role; all are 0 if too few tokens differ.

    Roles that depend on tokens give one vote to each token (duplicates: each word), however often
    it occurs. Otherwise the commas of a list decide.
    """
    could = np.asarray(place.any(-1))
    if role not in TOKEN_ROLES:
        return could.astype(np.float64)
    tokens = block.query_tokens
    kinds = _kinds(tokens.tokens) if role == "induction" else _word_kinds(tokens)
    _, number, counts = np.unique(kinds[could], return_inverse=True, return_counts=True)
    votes = np.zeros(len(could))
    if len(counts) >= (DEFAULT.induction_kinds if role == "induction" else DEFAULT.queries):
        votes[could] = 1 / counts[number]
    return votes


def corpus_roles(data: xr.Dataset, thresholds: RoleThresholds = DEFAULT) -> xr.Dataset | None:
    """Return the role of each head over a corpus, by the rule of single texts.

    None if the block was measured without `offset_share` and `class_share`. Uniform attention is
    known for roles of one key: exp(−`uniform_entropy`).
    """
    if not {"offset_share", "class_share"} <= set(data):
        return None
    tables = {
        role: data["offset_share"].sel(offset=offset)
        for role, offset in OFFSETS.items()
        if offset in data["offset_share"]["offset"]
    }
    classes = [str(name) for name in data["class_share"]["key_class"].values]
    added = [name for name in classes if name not in (FIRST, PERIOD_OR_COMMA, PUNCTUATION, REST)]
    for role, members in zip(SINK_ROLES, ([FIRST], added, [PUNCTUATION]), strict=True):
        if members and set(members) <= set(classes):
            tables[role] = data["class_share"].sel(key_class=members).sum("key_class")
    tables |= {role: data[role] for role in TOKEN_ROLES if role in data}
    uniform = np.zeros((len(NAMES), 1, 1))
    if {"row_entropy", "uniform_entropy"} <= set(data):
        tables["broad"] = xr.apply_ufunc(np.exp, data["row_entropy"] - data["uniform_entropy"])
        for role in (*OFFSETS, "first_token"):
            uniform[NAMES.index(role)] = np.exp(-float(data["uniform_entropy"].max()))
    first = next(iter(tables.values())).transpose("layer", "head")
    shares = np.full((len(NAMES), *first.shape), np.nan)
    queries = np.zeros(len(NAMES), dtype=np.int64)
    for role, table in tables.items():
        row = NAMES.index(role)
        shares[row] = table.transpose("layer", "head").values
        count = f"{role if role in TOKEN_ROLES else 'offset_share'}_count"
        queries[row] = int(data[count].max()) if count in data else thresholds.queries
    coords = {name: first[name].values for name in ("layer", "head")}
    # Over a corpus, every query has one vote.
    thresholds = replace(thresholds, induction=thresholds.share)
    return _apply(thresholds, shares, queries, uniform).choose(coords, "corpus")


def _apply(
    thresholds: RoleThresholds, shares: np.ndarray, queries: np.ndarray, uniform: np.ndarray
) -> RoleShares:
    """Apply the one rule for roles. A head that looks at one place is not broad; the first token is
    named before the special tokens, one of which it may be.
    """
    share = np.full((len(NAMES), 1, 1), thresholds.share)
    share[NAMES.index("induction")] = thresholds.induction
    least = np.maximum(share, thresholds.times_uniform * uniform)
    broad, first, special = map(NAMES.index, ("broad", "first_token", "special_token"))
    least[broad] = thresholds.broad
    holds = (np.nan_to_num(shares) >= least) & (queries >= thresholds.queries)[:, None, None]
    holds[broad] &= ~np.delete(holds, broad, 0).any(0)
    holds[special] &= ~holds[first]
    return RoleShares(shares, queries, holds)


def role_places(block: Block) -> dict[str, np.ndarray]:
    """Return `query key` for each role: the keys that a query with the role attends to.

    A query that cannot show a role has an empty row. Special tokens are not queries. The first key,
    a sink of many heads, counts only for the sink roles.
    """
    keys = block.key_tokens
    n_queries, n_keys = len(block.query_tokens), len(keys)
    special = np.array(keys.special, dtype=bool)
    stops = np.array([is_punctuation(token) for token in keys.tokens], dtype=bool) & ~special
    everywhere = np.ones((n_queries, 1), dtype=bool)
    places = {
        "first_token": everywhere & (np.arange(n_keys) == 0),
        "special_token": everywhere & special,
        "punctuation": everywhere & stops,
    }
    if n_queries == n_keys and block.name != "cross":
        offsets = np.subtract.outer(np.arange(n_keys), np.arange(n_queries)).T
        places |= {role: offsets == offset for role, offset in OFFSETS.items()}
        places |= {"duplicate_token": _duplicates(keys, stops), "induction": _after_duplicate(keys)}
    for name, place in places.items():
        if name not in SINK_ROLES:
            place[:, 0] = False
        place[np.array(block.query_tokens.special, dtype=bool)] = False
        if block.is_causal:
            place &= np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)
        if name == "first_token":
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
    """`layer head query key`, with 0 for missing heads."""
    array: np.ndarray = block.attention.transpose("layer", "head", "query", "key").values
    return np.nan_to_num(array, nan=0.0) if np.isnan(array).any() else array


def _kinds(texts: Iterable[str]) -> np.ndarray:
    """Return numbers that are equal where texts are, ignoring case."""
    plain = np.array([text.strip().casefold() for text in texts], dtype=object)
    return np.unique(plain, return_inverse=True)[1]


def _word_kinds(tokens: Tokens) -> np.ndarray:
    of_words = _kinds(tokens.word_texts)
    return np.array([of_words[word] if word >= 0 else -1 for word in tokens.words], np.int64)


def _duplicates(tokens: Tokens, stops: np.ndarray) -> np.ndarray:
    """`query key`: tokens of the same word at another place."""
    words, kinds = np.array(tokens.words), _word_kinds(tokens)
    kinds[stops] = -1
    equal = np.equal.outer(kinds, kinds) & (kinds >= 0)[:, None]
    return np.asarray(equal & np.not_equal.outer(words, words))


def _after_duplicate(tokens: Tokens) -> np.ndarray:
    """`query key`: the token after an earlier copy of the query's token, unless it is the previous
    token: in A B A it follows a copy whatever the head does.
    """
    kinds = _kinds(tokens.tokens)
    kinds[np.array(tokens.special, dtype=bool)] = -1
    earlier = np.tril(np.equal.outer(kinds, kinds) & (kinds >= 0)[:, None], -1)
    after: np.ndarray = np.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]
    return np.tril(after, -2)


def _shares(weights: np.ndarray, places: list[np.ndarray], votes: list[np.ndarray]) -> np.ndarray:
    """`place layer head`: attention to a place as a share of all that its queries pay."""
    n_layers, n_heads = weights.shape[:2]
    flat = weights.reshape(n_layers * n_heads, -1)
    voted = [(place * vote[:, None]).ravel() for place, vote in zip(places, votes, strict=True)]
    tables = np.stack(voted, axis=1).astype(weights.dtype)
    paid = (flat @ tables).astype(np.float64)
    total = weights.sum(-1, dtype=np.float64).reshape(n_layers * n_heads, -1) @ np.stack(votes, 1)
    shares = np.divide(paid, total, out=np.full_like(paid, np.nan), where=total > 0)
    return np.asarray(shares.T.reshape(len(places), n_layers, n_heads))


def _visible(block: Block) -> np.ndarray:
    """`layer query key`: visible keys; one layer if all layers see the same."""
    if "visible" in block.data:
        return np.asarray(block.data["visible"].transpose("layer", "query", "key").values)
    n_queries, n_keys = block.attention.sizes["query"], block.attention.sizes["key"]
    if block.is_causal:
        return np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)[None]
    return np.ones((1, n_queries, n_keys), dtype=bool)


def _uniform_share(place: np.ndarray, visible: np.ndarray, votes: np.ndarray) -> np.ndarray:
    """`layer`: the share that uniform attention would pay to a place."""
    rows = votes > 0
    if not rows.any():
        return np.zeros(len(visible))
    n_there = (visible[:, rows] & place[rows]).sum(-1)
    shares: np.ndarray = n_there / np.maximum(visible[:, rows].sum(-1), 1)
    return np.average(shares, axis=-1, weights=votes[rows])


def _breadth(
    weights: np.ndarray, visible: np.ndarray, entropies: np.ndarray
) -> tuple[np.ndarray, int]:
    """`layer head`: mean of exp(entropy) of a row over its visible keys; and the number of rows."""
    counts = visible.sum(-1)
    rows = (counts >= MIN_VISIBLE_KEYS).all(0)
    if not rows.any():
        return np.zeros(weights.shape[:2]), 0
    shares = np.exp(entropies[..., rows]) / counts[:, None, rows]
    is_live = weights.sum((2, 3)) > 0
    return np.where(is_live, shares.mean(-1), 0.0), int(rows.sum())


Probes = Mapping[tuple[int, int], str] | Result | Iterable[Result]
"""Names by layer and head, or the results of probes that give them."""
MAX_NAMES = 3
"""Maximum names of one head; some heads are the best at many relations."""
_PLURAL = {"pronoun": "pronouns", "proper": "names", "nominal": "nouns"}


def name_heads(
    result: Result, thresholds: RoleThresholds | None = None, probes: Probes | None = None
) -> xr.DataArray:
    """Return one name for each head over a corpus, `layer head`; the result needs `ROLE_VARIABLES`.

    A name that a probe gives comes first, because it is more specific; then the name of the role,
    or `NO_ROLE`. See `headscope.map_heads` for `probes`.
    """
    missing = [name for name in ROLE_VARIABLES if name not in result]
    roles = None if missing else corpus_roles(result.dataset, thresholds or DEFAULT)
    if roles is None:
        raise InputError(
            f"Heads are named after {', '.join(missing)}, which this result does not have. "
            'Run analyze with the surface metrics (they are among "all").'
        )
    shown = [ROLES[role].name if role else NO_ROLE for role in roles["role"].values.ravel()]
    names = roles["role"].copy(data=np.array(shown, dtype=object).reshape(roles["role"].shape))
    for (layer, head), name in probed_names(probes).items():
        if layer not in names["layer"].values or head not in names["head"].values:
            raise InputError(f"A probe names L{layer} H{head}, which this result does not have.")
        names.loc[{"layer": layer, "head": head}] = name
    return names


def of_probes(results: Iterable[Result]) -> list[Result]:
    """Return the results that score heads as classifiers."""
    return [r for r in results if "accuracy" in r or "coref_accuracy" in r]


def probed_names(probes: Probes | None) -> Mapping[tuple[int, int], str]:
    """Return one name for each head that probes single out."""
    if probes is None or isinstance(probes, Mapping):
        return probes or {}
    names: dict[tuple[int, int], list[str]] = {}
    for result in [probes] if isinstance(probes, Result) else probes:
        for place, more in best_at(result).items():
            names.setdefault(place, []).extend(more)
    return {place: ", ".join(all_names[:MAX_NAMES]) for place, all_names in names.items()}


def best_at(
    result: Result, *, margin: float = 0.10, block: str | None = None
) -> dict[tuple[int, int], list[str]]:
    """Return the relations or mentions that each head is best at, by layer and head.

    A head is named after a relation if it is the best of all heads and its cross-fitted accuracy is
    `margin` above the fixed-offset baseline: `obj`, or `obj (from its parent)` where parents attend
    to their dependents. After coreference it is named `coreference of pronouns` and so on, if it is
    `margin` above the rule that takes the nearest mention with the same head word.
    """
    table = probe_table(result, block=block)
    names: dict[tuple[int, int], list[str]] = {}
    for row in table.rows:
        if table.axis == "relation":
            name = row.label if row.direction == "dependent" else f"{row.label} (from its parent)"
            baseline, is_named = row.baselines["offset"], row.label != "all"
        else:
            name = "coreference" if row.label == "all" else f"coreference of {_PLURAL[row.label]}"
            baseline, is_named = row.baselines["head_match"], True
        if is_named and min(row.crossfit_accuracy, row.accuracy) >= baseline + margin:
            names.setdefault((row.layer, row.head), []).append(name)
    return names
