"""`headscope map` and `headscope card`: all heads on a page, and one head in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headscope.app.cli import options
from headscope.app.cli.answer import Answer
from headscope.app.cli.runs import open_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.heads.head_map import HeadMap
    from headscope.results.result import Result

PROBED = ("accuracy", "coref_accuracy")
MOST_LISTED = 6


def map_heads(
    runs: options.Runs,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write. [default: RUN/heads]")
    ] = None,
    explorer: Annotated[
        str | None,
        typer.Option(help="An explorer page of the same model; heads then link into it."),
    ] = None,
    starts: Annotated[int, typer.Option(min=1, help="Starts of the embedding.")] = 8,
    seed: options.Seed = 0,
) -> Answer:
    """Map all heads of a model: heads that attend alike are near; named and clustered.

    One run needs js and the surface metrics (analyze --metrics all,js); runs of probes name
    heads, and all runs add to what the page says of a head.
    """
    import headscope as hs
    from headscope.errors import InputError

    results = open_results(runs)
    of_pairs = [result for result in results if "js" in result]
    if len(of_pairs) != 1:
        raise InputError(
            f"{len(of_pairs)} of these {len(results)} runs have js, the divergence of all pairs of "
            "heads; a map needs one that has. Measure it: headscope analyze CORPUS -o RUN "
            "--metrics all,js."
        )
    probes = [result for result in results if any(name in result for name in PROBED)]
    heads = hs.map_heads(of_pairs[0], probes=probes or None, seed=seed, starts=starts)
    if out is None:
        out = (runs[0] if runs[0].is_dir() else runs[0].parent) / "heads"
    page = out / "map.html"
    heads.save_page(page, *results, explorer=explorer)
    figures = _draw(results, heads, out)
    groups, clusters = _behaviors(heads), _clusters(heads)
    data = {
        "title": heads.title,
        "stress": heads.stress,
        "page": str(page),
        "figures": [str(path) for path in figures],
        "behaviors": groups,
        "clusters": clusters,
    }
    lines = [f"{heads.title}: {heads.data.sizes['at']} heads, stress {heads.stress:.2f}"]
    width = max(len(name) for name in groups)
    lines += [f"  {name:<{width}}  {len(at):>3}  {_listed(at)}" for name, at in groups.items()]
    for number, cluster in enumerate(clusters):
        layers = ", ".join(f"L{layer} {n}" for layer, n in cluster["layers"].items())
        lines.append(f"  cluster {number}: {cluster['size']} heads ({layers})")
    lines += [f"  page     {page}", f"  figures  {out}"]
    return Answer(data, "\n".join(lines))


def card(
    runs: options.Runs,
    layer: Annotated[int, typer.Option(min=0, help="Counted from 0.")],
    head: Annotated[int, typer.Option(min=0, help="Counted from 0.")],
) -> Answer:
    """Say everything that was measured about one head: give all runs of its model."""
    first, *others = open_results(runs)
    about = first.explain(layer, head, *others)
    data = {
        "model": about.model,
        "layer": about.layer,
        "head": about.head,
        "summary": about.summary,
        "evidence": {
            topic: [{"what": row.what, "value": row.value, "rank": row.rank} for row in rows]
            for topic, rows in about.evidence
        },
        "nearest": [{"layer": a, "head": b, "js": js} for a, b, js in about.nearest],
        "exemplars": list(about.exemplars),
    }
    return Answer(data, str(about))


def _draw(results: list[Result], heads: HeadMap, out: Path) -> list[Path]:
    """Clark et al.'s figures that the runs have the numbers for."""
    from headscope.figures.papers import FIGURES
    from headscope.figures.style import save_figure

    drawn: dict[str, Figure] = {}
    for result in results:
        for name in ("clark-1", "clark-2", "clark-3", "clark-4"):
            if name not in drawn and all(needed in result for needed in FIGURES[name].needs):
                drawn[name] = result.figure(name)
    drawn["clark-6"] = heads.figure("clark-6")
    drawn["clusters"] = heads.figure("clusters")
    return [save_figure(drawn[name], out / f"{name}.png") for name in sorted(drawn)]


def _behaviors(heads: HeadMap) -> dict[str, list[str]]:
    """The heads of each behavior, the most frequent first."""
    names: dict[str, list[str]] = {}
    data = heads.data
    for name, layer, head in zip(
        data["behavior"].values, data["layer"].values, data["head"].values, strict=True
    ):
        names.setdefault(str(name), []).append(f"L{layer} H{head}")
    return dict(sorted(names.items(), key=lambda item: -len(item[1])))


def _clusters(heads: HeadMap) -> list[dict[str, Any]]:
    """The size of each cluster, and how many heads of each layer are in it."""
    clusters: dict[int, dict[int, int]] = {}
    for cluster, layer in zip(
        heads.data["cluster"].values.tolist(), heads.data["layer"].values.tolist(), strict=True
    ):
        layers = clusters.setdefault(cluster, {})
        layers[layer] = layers.get(layer, 0) + 1
    return [
        {"size": sum(layers.values()), "layers": layers} for _, layers in sorted(clusters.items())
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
