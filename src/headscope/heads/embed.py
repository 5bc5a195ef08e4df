"""Heads in the plane and in clusters, from their distances; the only file with scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.cluster import hierarchy  # type: ignore[import-untyped, unused-ignore]
from scipy.spatial.distance import squareform  # type: ignore[import-untyped, unused-ignore]

from headscope.errors import MissingExtra

try:
    from sklearn.manifold import MDS  # type: ignore[import-untyped, unused-ignore]
    from sklearn.metrics import silhouette_score  # type: ignore[import-untyped, unused-ignore]
except ImportError as error:
    raise MissingExtra.of("scikit-learn", "heads", "The map of heads") from error


def embed(distances: np.ndarray, *, seed: int, starts: int) -> tuple[np.ndarray, float]:
    """`item 2` and the normalized stress (0 perfect, above 0.2 poor): metric MDS by SMACOF.

    Clark et al. 2019, section 6. The best of several seeded starts; turned so that the axes
    are its principal ones, with signs fixed, because MDS leaves rotation open.

    Args:
        distances: `item item`, symmetric.
        seed: of the starts.
        starts: how many.
    """
    model = MDS(
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
    """Hierarchical clusters by Ward's linkage.

    On the square roots of the distances: the root of a Jensen-Shannon divergence is a metric
    that embeds in Euclidean space, as Ward's method assumes; the root of a mean of such
    divergences comes close. Average linkage would split off one odd head after another.

    Returns:
        The linkage (for a dendrogram); the silhouette of each number of clusters from 2 to
        `most`; and each item's cluster, from 0, in the number that has the highest.
    """
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
