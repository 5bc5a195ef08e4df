"""Map of heads: all heads of a model in the plane and in clusters, by their divergences.

The only module that uses scikit-learn.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from headscope.arguments import expect
from headscope.errors import InputError, MissingExtra, UnknownName
from headscope.heads.roles import Probes, RoleThresholds, name_heads
from headscope.notebook import facts_table
from headscope.results.effect_data import result_of_effects
from headscope.results.result import Result
from headscope.results.trace import OVER
from headscope.run.options import Over

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

ANALYZE = (
    'headscope.analyze(model, corpus, ["js", "offset_share", "class_share", "row_entropy", '
    '"uniform_entropy"])'
)


@dataclass(frozen=True, eq=False)
class HeadMap:
    """Heads in the plane.

    Attributes:
        data: over `at` (every head, with coordinates `layer` and `head`): `x`, `y`,
            `role`, `cluster`, and `effect` where effects were given; `distance` over `at`
            and `other`; `silhouette` over `n_clusters`; `linkage` as SciPy's dendrograms take it.
        stress: how badly the plane distorts distances: 0 not at all, above 0.2 much.
        result: the result that the map was made of.
    """

    data: xr.Dataset
    stress: float
    result: Result

    @property
    def title(self) -> str:
        """Model and corpus."""
        return self.result.title

    def nearest(self, layer: int, head: int, n: int = 5) -> list[tuple[int, int, float]]:
        """The heads that attend most alike: layer, head, divergence in nats."""
        if not ((self.data["layer"] == layer) & (self.data["head"] == head)).any():
            raise InputError(f"There is no L{layer} H{head} on this map.")
        return nearest_in(self.result.dataset, layer, head, n)

    def layer_spread(self) -> tuple[float, float]:
        """Mean divergence of heads of the same layer, and of different layers."""
        layers = self.data["layer"].values
        same = layers[:, None] == layers[None, :]
        apart = self.data["distance"].values
        off = ~np.eye(len(layers), dtype=bool)
        return float(apart[same & off].mean()), float(apart[~same].mean())

    @property
    def largest_effect(self) -> float | None:
        """The largest |effect| on the map; None where it has no effects, or none but 0."""
        if "effect" not in self.data:
            return None
        sizes = np.abs(self.data["effect"].values)
        largest = float(np.nanmax(sizes)) if np.isfinite(sizes).any() else 0.0
        return largest or None

    def effect_sizes(self) -> np.ndarray | None:
        """`at`: each head's |effect| as a share of the largest, 0 where it was not measured; None
        where the map has no effects.
        """
        largest = self.largest_effect
        if largest is None:
            return None
        return np.asarray(np.nan_to_num(np.abs(self.data["effect"].values) / largest))

    @property
    def size_meaning(self) -> str:
        """Meaning of the size of a point; empty without effects."""
        largest = self.largest_effect
        if largest is None:
            return ""
        about = self.data["effect"].attrs
        return (
            f"size: by how much the loss{about['elsewhere']} changes without the head, up to "
            f"{largest:.2g} {about['units']}"
        )

    def __repr__(self) -> str:
        return f"<HeadMap of {self.title}: {self.data.sizes['at']} heads, stress {self.stress:.2f}>"

    def _repr_html_(self) -> str:
        names, counts = np.unique(self.data["role"].values, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        facts: list[tuple[str, object]] = [("stress", f"{self.stress:.2f}")]
        facts += [(str(names[i]), f"{counts[i]} heads") for i in order]
        return facts_table(f"Map of {self.title}", facts)

    def figure(self, name: Literal["clark-6", "clusters"] = "clark-6") -> Figure:
        """Draw the map by role and by layer (Clark et al. 2019, Figure 6), or its clusters."""
        from headscope.figures.table_charts import map_figure

        return map_figure(self, name)

    def save_page(
        self, path: str | os.PathLike[str], *results: Result, explorer: str | None = None
    ) -> None:
        """Write the map as one HTML file that opens without a network: point at a head to read its
        card.

        Args:
            path: the file to write; it appears whole or not at all.
            results: further results of the model, for the cards.
            explorer: address of an explorer page of the same model; cards then link to it.
        """
        from headscope.reporting.report import build_map_report, write_report

        write_report(build_map_report(self, results, explorer=explorer), path)


def nearest_in(data: xr.Dataset, layer: int, head: int, n: int = 5) -> list[tuple[int, int, float]]:
    """The heads that attend most like one, by the divergences of all pairs of heads (`js`)."""
    js = data["js"].values
    layers = data["layer"].values.tolist() if "layer" in data.coords else [*range(len(js))]
    distances = js[layers.index(layer), head].ravel()
    at = [(name, number) for name in layers for number in range(js.shape[1])]
    order = np.argsort(distances, kind="stable")  # NaN, not measured, last
    closest = [i for i in order if at[i] != (layer, head) and np.isfinite(distances[i])][:n]
    return [(*at[i], float(distances[i])) for i in closest]


def map_heads(
    result: Result | Sequence[Result],
    *,
    over: Over | None = None,
    probes: Probes | None = None,
    effects: xr.DataArray | Result | None = None,
    thresholds: RoleThresholds | None = None,
    seed: int = 0,
    starts: int = 8,
    most_clusters: int = 12,
) -> HeadMap:
    """All heads in the plane (Clark et al. 2019, section 6, Figure 6), named and clustered.

    Args:
        result: of `analyze` with `js` and the surface metrics:
            `hs.analyze(model, corpus, ["js", "offset_share", "class_share", "row_entropy",
            "uniform_entropy"])`. Also several of one model, of which `over` chooses.
        over: `attention`, or `norm` for attention times the length of what it fetches: which of
            the results to map. By default the only one with `js`, which was measured with
            `hs.analyze(…, over=…)`.
        probes: results of probes on the same model, or names for heads, as `{(7, 9): "obj"}`:
            they come before the names of roles.
        effects: of the same model's heads over a corpus, `hs.effects(model, corpus)`: the larger a
            head's effect on the loss, the larger its point is drawn.
        thresholds: minimum values for a role, a `headscope.heads.roles.RoleThresholds`.
        seed: of the embedding's starts.
        starts: how many; the best is kept.
        most_clusters: the largest number of clusters that is tried; the smallest is 2.
    """
    result = _chosen(result, over)
    expect("thresholds", thresholds, RoleThresholds | None, "a RoleThresholds")
    labels = name_heads(result, thresholds, probes)
    n_layers, n_heads = result["js"].shape[:2]
    distances = result["js"].values.reshape(n_layers * n_heads, -1)
    is_there = ~np.isnan(distances).all(1)
    distances = distances[is_there][:, is_there]
    if len(distances) < 3:
        raise InputError(f"A map needs at least 3 heads; this model has {len(distances)}.")
    if np.isnan(distances).any():
        raise InputError("Nothing was measured: every divergence is NaN.")
    places, stress = embed(distances, seed=seed, starts=starts)
    tree, silhouette, clusters = cluster(distances, most=most_clusters)
    layer, head = (
        np.broadcast_to(grid, (n_layers, n_heads)).ravel()[is_there]
        for grid in (labels["layer"].values[:, None], labels["head"].values[None, :])
    )
    data = xr.Dataset(
        {
            "x": ("at", places[:, 0]),
            "y": ("at", places[:, 1]),
            "role": ("at", labels.values.ravel()[is_there].astype(str)),
            "cluster": ("at", clusters),
            "distance": (("at", "other"), distances),
            "silhouette": ("n_clusters", silhouette),
            "linkage": (("join", "column"), tree),
        },
        coords={
            "layer": ("at", layer),
            "head": ("at", head),
            "n_clusters": np.arange(2, 2 + len(silhouette)),
        },
        attrs={"seed": seed, "starts": starts},
    )
    if effects is not None:
        data["effect"] = _effect_at(data, result, effects)
    return HeadMap(data, stress, result)


def _chosen(results: Result | Sequence[Result], over: Over | None) -> Result:
    """The one result with the divergences of all pairs of heads, over what is asked for."""
    if over not in (None, *OVER):
        raise UnknownName.of("over", over, OVER)
    expect("result", results, Result | Iterable, "a result of headscope.analyze, or several")
    given = [results] if isinstance(results, Result) else list(results)
    for result in given:
        expect("result", result, Result, "a result of headscope.analyze, or several")
    with_js = [result for result in given if "js" in result]
    fitting = [result for result in with_js if over in (None, result.over)]
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        over_what = ", ".join(result.over for result in fitting)
        raise InputError(
            f"{len(fitting)} of these results have js (over {over_what}): a map is of one. Choose "
            "with over='attention' or over='norm'."
        )
    if with_js:
        raise InputError(f"This result is over {with_js[0].over}. Measure it over {over}: "
                         f"{ANALYZE[:-1]}, over={over!r}).")  # fmt: skip
    raise InputError(
        f"A map needs the divergences of all pairs of heads (js). Measure them: {ANALYZE}."
    )


def _effect_at(data: xr.Dataset, result: Result, effects: xr.DataArray | Result) -> xr.DataArray:
    """`at`: the effect of each head on the map."""
    given = result_of_effects(effects) if isinstance(effects, xr.DataArray) else effects
    expect("effects", given, Result, "what headscope.effects(model, corpus) returns")
    if "effect" not in given:
        raise InputError(
            "effects=… takes what headscope.effects(model, corpus) returns, or its saved file; "
            "this result has no effects."
        )
    if given.model != result.model:
        raise InputError(f"The effects are of {given.model}, the map is of {result.model}.")
    values = given["effect"]
    known = values.reindex(layer=np.unique(data["layer"]), head=np.unique(data["head"]))
    elsewhere = "" if given.corpus_name == result.corpus_name else f" on {given.corpus_name}"
    return xr.DataArray(
        known.sel(layer=data["layer"], head=data["head"]).values,
        dims="at",
        attrs={"units": values.attrs.get("units", ""), "elsewhere": elsewhere},
    )


def embed(distances: np.ndarray, *, seed: int, starts: int) -> tuple[np.ndarray, float]:
    """`item 2` and the normalized stress (0 perfect, above 0.2 poor): metric MDS by SMACOF.

    Clark et al. 2019, section 6. The best of several seeded starts; turned so that the axes
    are its principal ones, with signs fixed, because MDS leaves rotation open.
    """
    from scipy.spatial.distance import squareform  # type: ignore[import-untyped, unused-ignore]

    model = _sklearn("manifold").MDS(
        n_components=2,
        n_init=starts,
        init="random",
        metric="precomputed",
        metric_mds=True,
        random_state=seed,
        max_iter=1000,
        eps=1e-6,
        normalized_stress=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of defaults that we set
        places = model.fit_transform(distances)
    places = places - places.mean(0)
    _, _, axes = np.linalg.svd(places, full_matrices=False)
    places = places @ axes.T
    signs = np.sign(places[np.abs(places).argmax(0), [0, 1]])
    places = places * np.where(signs == 0, 1, signs)
    apart = squareform(distances, checks=False)
    shown = np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1))
    stress = np.sqrt(((squareform(shown, checks=False) - apart) ** 2).sum() / (apart**2).sum())
    return places, float(stress)


def cluster(distances: np.ndarray, *, most: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hierarchical clusters by Ward's linkage on the square roots of the distances.

    The root of a Jensen-Shannon divergence is a metric that embeds in Euclidean space, as Ward's
    method assumes. Average linkage would split off one odd head after another. Returns the linkage,
    the silhouette of each number of clusters from 2 to `most`, and each item's cluster, from 0, in
    the number that has the highest.
    """
    from scipy.cluster import hierarchy  # type: ignore[import-untyped, unused-ignore]
    from scipy.spatial.distance import squareform  # type: ignore[import-untyped, unused-ignore]

    silhouette_score = _sklearn("metrics").silhouette_score
    n = len(distances)
    distances = np.sqrt(distances)
    tree = hierarchy.linkage(squareform(distances, checks=False), method="ward")
    scores, cuts = [], []
    for k in range(2, min(most, n - 1) + 1):
        cut = hierarchy.fcluster(tree, k, criterion="maxclust") - 1
        cuts.append(cut)
        is_split = 1 < len(np.unique(cut)) < n
        score = silhouette_score(distances, cut, metric="precomputed") if is_split else np.nan
        scores.append(float(score))
    if not cuts or np.isnan(scores).all():
        return tree, np.array(scores), np.zeros(n, dtype=np.int64)
    return tree, np.array(scores), cuts[int(np.nanargmax(scores))]


def _sklearn(name: str) -> Any:
    """Import a module of scikit-learn, which only maps need."""
    try:
        return importlib.import_module(f"sklearn.{name}")
    except ImportError as error:
        raise MissingExtra.of("scikit-learn", "heads", "The map of heads") from error
