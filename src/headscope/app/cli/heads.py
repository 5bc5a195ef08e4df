"""`headscope map` and `headscope card`: map all heads, and describe one head."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult
from headscope.app.cli.shared_options import open_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.heads.head_map import HeadMap
    from headscope.results.result import Result

MAX_LISTED = 6


class _Cluster(TypedDict):
    """Size of a cluster, in all and by layer."""

    size: int
    layers: dict[int, int]


def map_heads(
    runs: options.RunsOption,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where to write. [default: RUN/heads]")
    ] = None,
    explorer: Annotated[
        str | None,
        typer.Option(help="An explorer page of the same model, which heads then link to."),
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Number of random starts of the map; the best is kept.")
    ] = 8,
    seed: options.SeedOption = 0,
    over: Annotated[
        Literal["attention", "norm"] | None,
        typer.Option(help="Run to map, if there are runs over attention and over norms."),
    ] = None,
) -> CommandResult:
    """Map all heads of a model: near heads attend alike. Each has a role and a cluster.

    Exactly one run must have js, and it needs the surface metrics too (analyze --metrics all,js).
    Runs of probes add roles. Runs of effects (effects --corpus) set the size of heads. The page
    shows the numbers of all runs.
    """
    import headscope as hs
    from headscope.errors import InputError
    from headscope.heads.roles import of_probes

    results = open_results(runs)
    with_js = [result for result in results if "js" in result and over in (None, result.over)]
    if len(with_js) != 1:
        suffix = "" if over is None else f" over {over}"
        raise InputError(
            f"{len(with_js)} of these {len(results)} runs have js{suffix}, the divergence of all "
            "pairs of heads; a map needs exactly one. Measure it: headscope analyze CORPUS -o RUN "
            "--metrics all,js. Of one over attention and one over norms, choose with --over."
        )
    effects = next((result for result in results if "effect" in result), None)
    probes = of_probes(results)
    heads = hs.map_heads(with_js[0], probes=probes, effects=effects, seed=seed, starts=starts)
    if out is None:
        out = (runs[0] if runs[0].is_dir() else runs[0].parent) / "heads"
    page = out / "map.html"
    heads.save_page(page, *results, explorer=explorer)
    figures = _draw(results, heads, out)
    roles, clusters = _heads_by_role(heads), _clusters(heads)
    data = {
        "title": heads.title,
        "stress": heads.stress,
        "page": str(page),
        "figures": [str(path) for path in figures],
        "roles": roles,
        "clusters": clusters,
    }
    lines = [f"{heads.title}: {heads.data.sizes['at']} heads, stress {heads.stress:.2f}"]
    width = max(len(name) for name in roles)
    lines += [
        f"  {name:<{width}}  {len(members):>3}  {_listed(members)}"
        for name, members in roles.items()
    ]
    for number, cluster in enumerate(clusters):
        layers = ", ".join(f"L{layer} {n}" for layer, n in cluster["layers"].items())
        lines.append(f"  cluster {number}: {cluster['size']} heads ({layers})")
    lines += [f"  {heads.size_meaning}"] if heads.size_meaning else []
    lines += [f"  page     {page}", f"  figures  {out}"]
    return CommandResult(data, "\n".join(lines))


def card(
    runs: options.RunsOption,
    layer: Annotated[int, typer.Option(min=0, help="Counted from 0.")],
    head: Annotated[int, typer.Option(min=0, help="Counted from 0.")],
) -> CommandResult:
    """Show all measurements of one head. Give all runs of its model."""
    first, *others = open_results(runs)
    description = first.card(layer, head, *others)
    data = {
        "model": description.model,
        "layer": description.layer,
        "head": description.head,
        "summary": description.summary,
        "evidence": {
            topic: [{"what": row.what, "value": row.value, "rank": row.rank} for row in rows]
            for topic, rows in description.evidence
        },
        "nearest": [{"layer": a, "head": b, "js": js} for a, b, js in description.nearest],
        "exemplars": [str(exemplar) for exemplar in description.exemplars],
    }
    return CommandResult(data, str(description))


def _draw(results: list[Result], heads: HeadMap, out: Path) -> list[Path]:
    """Draw Clark et al.'s figures whose variables the runs have."""
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


def _heads_by_role(heads: HeadMap) -> dict[str, list[str]]:
    """Return the heads of each role, the most frequent first."""
    names: dict[str, list[str]] = {}
    data = heads.data
    for name, layer, head in zip(
        data["role"].values, data["layer"].values, data["head"].values, strict=True
    ):
        names.setdefault(str(name), []).append(f"L{layer} H{head}")
    return dict(sorted(names.items(), key=lambda entry: -len(entry[1])))


def _clusters(heads: HeadMap) -> list[_Cluster]:
    clusters: dict[int, Counter[int]] = {}
    numbers, layers = (heads.data[name].values.tolist() for name in ("cluster", "layer"))
    for number, layer in zip(numbers, layers, strict=True):
        clusters.setdefault(number, Counter())[layer] += 1
    return [{"size": sizes.total(), "layers": dict(sizes)} for _, sizes in sorted(clusters.items())]


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
