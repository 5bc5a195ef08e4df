"""`headscope importance`: how much the loss depends on attention to each class of keys.

`headscope check-importance`: do gradients predict what removing attention does?
"""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.app.cli import shared_options as options
from headscope.app.cli.analyze import open_corpus
from headscope.app.cli.command import CommandResult, settings
from headscope.app.cli.models import load_model


def importance(
    corpus: options.CorpusName,
    out: options.Out,
    *,
    model: options.ModelName = "smollm2",
    device: options.Device = None,
    unit: options.UnitName = "sentence",
    segments: options.Segments = True,
    max_tokens: options.MaxTokens = 128,
    sample: options.Sample = None,
    seed: options.Seed = 0,
    running: options.Running,
) -> CommandResult:
    """Measure how much the loss depends on attention to each class of keys (gradients).

    The model needs its language-model head: smollm2 has one, minilm does not.
    """
    import headscope as hs
    from headscope.figures.style import save_figure
    from headscope.results.files import RESULT_FILE

    loaded = load_model(model, device)
    if segments:
        unit = "document"
    documents = open_corpus(corpus, unit=unit, sample=sample, seed=seed, on_error=running.on_error)
    if segments:
        documents = hs.cut_segments(loaded, documents, max_tokens)
    result = hs.importance(
        loaded, documents, seed=seed, **running.options(out=out, max_tokens=max_tokens)
    )
    figure = save_figure(result.figure("clark-3"), out / "clark-3.png")
    values = result["importance"].mean(("layer", "head"))
    means = {
        str(name): float(value)
        for name, value in zip(values["gradient_class"].values, values.values, strict=True)
    }
    answer = {
        "model": result.model,
        "documents": result.provenance["counts"]["documents"],
        "result": str(out / RESULT_FILE),
        "figure": str(figure),
        "means": means,
    }
    lines = [f"{result.model}: mean |∂L/∂a| over {answer['documents']} documents, by class of keys"]
    lines += [f"  {name:<14} {value:.2e}" for name, value in means.items()]
    lines += [f"  result         {answer['result']}", f"  figure         {figure}"]
    return CommandResult(answer, "\n".join(lines))


AGREEMENT = ("r", "rho", "r_importance", "rho_importance", "error")
"""What says how well gradients foretell the rise; each has an interval beside it."""


def check_importance(
    corpus: options.CorpusName,
    out: options.Out,
    model: options.ModelName = "smollm2",
    device: options.Device = None,
    sample: Annotated[int, typer.Option(min=2, help="Draw this many segments.")] = 10,
    heads: Annotated[int, typer.Option(min=1, help="Draw this many heads of each layer.")] = 2,
    max_tokens: options.MaxTokens = 64,
    renormalized: Annotated[
        bool, typer.Option(help="Scale up the rest of each row so that the row keeps its sum.")
    ] = False,
    seed: options.Seed = 0,
    on_error: options.OnError = "raise",
) -> CommandResult:
    """Remove attention, one head and one class of keys at a time, and measure how the loss rises.

    Prints how the rises correlate over heads with what the gradients predicted.
    """
    import headscope as hs
    from headscope.atomic import atomic_path
    from headscope.figures.clark import removal_figure
    from headscope.figures.style import save_figure

    loaded = load_model(model, device)
    loaded.require_objective("Gradient importance")
    documents = open_corpus(corpus, unit="document", on_error=on_error)
    checked = hs.check_importance(
        loaded,
        hs.cut_segments(loaded, documents, max_tokens).sample(sample, seed),
        heads=heads,
        max_tokens=max_tokens,
        renormalized=renormalized,
        seed=seed,
        progress=settings.progress,
    )
    data, figure = out / "check.nc", out / "check.png"
    with atomic_path(data) as temporary:
        checked.to_netcdf(temporary, engine="h5netcdf")
    save_figure(removal_figure(checked), figure)
    about = dict(checked.attrs)
    lines = [
        f"{about['model']}: {about['heads']} heads, {about['documents']} segments of "
        f"{about['texts']} texts, {about['tokens']:,} predicted tokens, loss "
        f"{float(checked['loss']):.2f} nats",
        "  removed      share   estimate and rise of the loss      |∂L/∂a| and |rise|",
        "                       r                  ρ                  ρ                  error",
    ]
    rows = []
    for name in map(str, checked["key_class"].values):
        for level in map(float, checked["level"].values):
            at = checked.sel(key_class=name, level=level)
            numbers = {
                what: [float(at[what]), *at[f"{what}_interval"].values.tolist()]
                for what in AGREEMENT
            }
            rows.append({"class": name, "level": level, **numbers})
            shown = "  ".join(
                f"{value:5.2f} ({low:5.2f} {high:5.2f})"
                for what, (value, low, high) in numbers.items()
                if what != "r_importance"
            )
            lines.append(f"  {name:<12} {level:>5.0%}   {shown}")
    lines += [f"  data         {data}", f"  figure       {figure}"]
    answer = {
        **{name: getattr(value, "item", lambda v=value: v)() for name, value in about.items()},
        "loss": float(checked["loss"]),
        "agreement": rows,
        "data": str(data),
        "figure": str(figure),
    }
    return CommandResult(answer, "\n".join(lines))
