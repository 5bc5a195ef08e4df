"""`headscope wires`: which source feeds which reader on contrast pairs."""

from __future__ import annotations

import math
from typing import Annotated

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, option, settings
from headscope.app.cli.models import load_model


def wires(
    pairs: Annotated[
        str,
        argument(
            "JSON lines with text, contrast, target, foil, template; or ioi, agreement, "
            "pronouns, greater-than, induction."
        ),
    ],
    out: options.OutOption,
    *,
    model: options.ModelOption = "smollm2",
    device: options.DeviceOption = None,
    n: Annotated[int, option("Pairs of a named task.", min=1)] = 64,
    exact: Annotated[int, option("Wires to run exactly.", min=1)] = 100,
    curve: Annotated[bool, option("Also measure circuits alone on held-out pairs.")] = True,
    seed: options.SeedOption = 0,
    top: Annotated[int, option("How many wires to print.", min=1)] = 20,
) -> CommandResult:
    """Measure wires between heads: exact effects with intervals over templates, and stability.

    Writes result.nc, wires.csv, wires.png, graph.json (for MIB) and page.html, which opens on the
    wires. A stopped run goes on where it was.
    """
    from headscope.atomic import atomic_path
    from headscope.figures.style import save_figure
    from headscope.results.files import RESULT_FILE

    given = hs.pairs(pairs, n, seed=seed)
    loaded = load_model(model, device)
    out.mkdir(parents=True, exist_ok=True)
    shown = settings.progress
    try:
        found = hs.wires(loaded, given, exact=exact, folder=out, seed=seed, progress=shown)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Stopped. Run the same again to go on (-o {out}).") from None
    found.save(out / RESULT_FILE)
    with atomic_path(out / "wires.csv") as temporary:
        found.to_dataframe().to_csv(temporary, index=False)
    figure = save_figure(found.figure(), out / "wires.png")
    found.save_mib(out / "graph.json")
    measured = found.curve(progress=shown) if curve and found.n_templates > 1 else None
    trace = loaded.trace(found.about["shown"]["texts"][0], effects=True)
    hs.save_page(
        trace, out / "page.html", wires=found.to_page(curve=measured), selection={"tab": "wires"}
    )
    lines = [f"{found.about['model']}: wires on {found.about['pairs']}, as shares of the gap"]
    for wire in found.table[:top]:
        bounds = "" if math.isnan(wire.low) else f"  [{wire.low:+.3f}, {wire.high:+.3f}]"
        stable = "" if math.isnan(wire.stability) else f"  stability {wire.stability:.2f}"
        lines.append(f"  {wire.source:<10} → {wire.reader:<16} {wire.share:+.3f}{bounds}{stable}")
    lines.append(f"  {found.holds}")
    data = {
        "model": found.about["model"], "pairs": given.name, "result": str(out / RESULT_FILE),
        "figure": str(figure), "page": str(out / "page.html"), "holds": found.holds,
        "wires": found.to_page(top)["wires"],
    }  # fmt: skip
    if measured is not None:
        values = measured["faithfulness"]
        data["curve"] = dict(zip(values["k"].values.tolist(), values.values.tolist(), strict=True))
        lines.append(
            f"  faithfulness on {measured.attrs['pairs']} held-out pairs: "
            f"{float(values.sel(k=0.01)):.2f} with 1 % of wires and the embedding's; CPR "
            f"{measured.attrs['cpr']:.3f}, CMD {measured.attrs['cmd']:.3f}"
        )
    lines += [f"  result   {out / RESULT_FILE}", f"  page     {out / 'page.html'}"]
    return CommandResult(data, "\n".join(lines))
