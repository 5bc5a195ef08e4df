"""`headscope map` and `headscope card`: map all heads, and describe one head."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, option
from headscope.app.cli.shared_options import open_results
from headscope.errors import InputError

MAX_LISTED = 6


def map_heads(
    runs: options.RunsOption,
    out: Annotated[
        Path | None, option("Where to write. [default: RUN/heads]", "-o", "--out")
    ] = None,
    explorer: Annotated[
        str | None, option("An explorer page of the same model, which heads then link to.")
    ] = None,
    starts: Annotated[
        int, option("Number of random starts of the map; the best is kept.", min=1)
    ] = 8,
    seed: options.SeedOption = 0,
    over: Annotated[
        Literal["attention", "norm"] | None,
        option("Run to map, if there are runs over attention and over norms."),
    ] = None,
) -> CommandResult:
    """Map all heads of a model: near heads attend alike. Each has a role and a cluster.

    Exactly one run must have js, and it needs the surface metrics too (analyze --metrics all,js).
    Runs of probes add roles. Runs of effects (effects --corpus) set the size of heads. The page
    shows the numbers of all runs.
    """
    from headscope.figures.papers import FIGURES
    from headscope.figures.style import save_figure
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
    out.mkdir(parents=True, exist_ok=True)
    page = out / "map.html"
    heads.save_page(page, *results, explorer=explorer)
    drawn = {name: heads.figure(name) for name in ("clark-6", "clusters")}
    for result in results:
        for name in ("clark-1", "clark-2", "clark-3", "clark-4"):
            if name not in drawn and all(needed in result for needed in FIGURES[name].needs):
                drawn[name] = result.figure(name)
    figures = [save_figure(drawn[name], out / f"{name}.png") for name in sorted(drawn)]
    roles: dict[str, list[tuple[int, int]]] = {}
    clusters: dict[int, Counter[int]] = {}
    columns = (heads.data[name].values.tolist() for name in ("role", "cluster", "layer", "head"))
    for role, cluster, layer, head in zip(*columns, strict=True):
        roles.setdefault(role, []).append((layer, head))
        clusters.setdefault(cluster, Counter())[layer] += 1
    roles = dict(sorted(roles.items(), key=lambda entry: -len(entry[1])))
    data = {
        "title": heads.title,
        "stress": heads.stress,
        "page": str(page),
        "figures": [str(path) for path in figures],
        "roles": {
            role: [{"layer": layer, "head": head} for layer, head in members]
            for role, members in roles.items()
        },
        "clusters": [
            {"size": layers.total(), "layers": dict(layers)}
            for _, layers in sorted(clusters.items())
        ],
    }
    lines = [f"{heads.title}: {heads.data.sizes['at']} heads, stress {heads.stress:.2f}"]
    width = max(len(name) for name in roles)
    for name, members in roles.items():
        more = len(members) - MAX_LISTED
        listed = ", ".join(f"L{layer} H{head}" for layer, head in members[:MAX_LISTED])
        listed += f" and {more} more" if more > 0 else ""
        lines.append(f"  {name:<{width}}  {len(members):>3}  {listed}")
    for number, (_, sizes) in enumerate(sorted(clusters.items())):
        layers = ", ".join(f"L{layer} {n}" for layer, n in sizes.items())
        lines.append(f"  cluster {number}: {sizes.total()} heads ({layers})")
    lines += [f"  {heads.size_meaning}"] if heads.size_meaning else []
    lines += [f"  page     {page}", f"  figures  {out}"]
    return CommandResult(data, "\n".join(lines))


def card(
    runs: options.RunsOption,
    layer: Annotated[int, option("Counted from 0.", min=0)],
    head: Annotated[int, option("Counted from 0.", min=0)],
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
