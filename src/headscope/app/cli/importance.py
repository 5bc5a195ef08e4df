"""`headscope importance` and `headscope check-importance`: gradients of the loss."""

from __future__ import annotations

from typing import Annotated

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, option, settings
from headscope.app.cli.models import load_model


def importance(
    corpus: options.CorpusOption,
    out: options.OutOption,
    *,
    model: options.ModelOption = "smollm2",
    device: options.DeviceOption = None,
    unit: options.UnitOption = "sentence",
    segments: options.SegmentsOption = True,
    max_tokens: options.MaxTokensOption = 128,
    sample: options.SampleOption = None,
    seed: options.SeedOption = 0,
    engine: options.EngineOptions,
) -> CommandResult:
    """Measure the mean gradient of the loss for attention to each class of keys.

    The model needs its language-model head: smollm2 has one, minilm does not.
    """
    from headscope.figures.style import save_figure
    from headscope.results.display import counted
    from headscope.results.files import RESULT_FILE

    loaded = load_model(model, device)
    if segments:
        unit = "document"
    documents = options.open_corpus(
        corpus, unit=unit, sample=sample, seed=seed, on_error=engine.on_error
    )
    if segments:
        documents = hs.cut_segments(loaded, documents, max_tokens)
    result = hs.importance(
        loaded, documents, seed=seed, **engine.options(out=out, max_tokens=max_tokens)
    )
    figure = save_figure(result.figure("clark-3"), out / "clark-3.png")
    values = result["importance"].mean(("layer", "head"))
    means = {
        str(name): float(value)
        for name, value in zip(values["gradient_class"].values, values.values, strict=True)
    }
    data = {
        "model": result.model,
        "documents": result.provenance["counts"]["documents"],
        "result": str(out / RESULT_FILE),
        "figure": str(figure),
        "means": means,
    }
    lines = [f"{result.model}: mean |∂L/∂a| over {counted(data['documents'])}, by class of keys"]
    lines += [f"  {name:<14} {value:.2e}" for name, value in means.items()]
    lines += [f"  result         {data['result']}", f"  figure         {figure}"]
    return CommandResult(data, "\n".join(lines))


AGREEMENT = ("r", "rho", "r_importance", "rho_importance", "error")
"""Statistics of the gradient's predictions, each with an interval."""


def check_importance(
    corpus: options.CorpusOption,
    out: options.OutOption,
    model: options.ModelOption = "smollm2",
    device: options.DeviceOption = None,
    sample: Annotated[int, option("Draw this many segments.", min=2)] = 10,
    heads: Annotated[int, option("Draw this many heads of each layer.", min=1)] = 2,
    max_tokens: options.MaxTokensOption = 64,
    renormalized: Annotated[
        bool, option("Rescale the remaining weights so that each row keeps its sum.")
    ] = False,
    seed: options.SeedOption = 0,
    on_error: options.OnErrorOption = "raise",
) -> CommandResult:
    """Compare gradients with the measured rise of the loss after removing attention.

    Attention of one head to one class of keys is removed at a time. Prints correlations over heads.
    """
    from headscope.atomic import atomic_path
    from headscope.figures.style import save_figure
    from headscope.figures.table_charts import removal_figure

    out.mkdir(parents=True, exist_ok=True)
    loaded = load_model(model, device)
    loaded.require_objective("Gradient importance")
    documents = options.open_corpus(corpus, unit="document", on_error=on_error)
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
    attributes = dict(checked.attrs)
    lines = [
        f"{attributes['model']}: {attributes['heads']} heads, {attributes['documents']} segments "
        f"of {attributes['texts']} texts, {attributes['tokens']:,} predicted tokens, loss "
        f"{float(checked['loss']):.2f} nats per token",
        "  removed      share   estimate and rise of the loss      |∂L/∂a| and |rise|",
        "                       r                  ρ                  ρ                  error",
    ]
    rows = []
    for key_class in map(str, checked["key_class"].values):
        for level in map(float, checked["level"].values):
            values = checked.sel(key_class=key_class, level=level)
            numbers = {
                name: [float(values[name]), *values[f"{name}_interval"].values.tolist()]
                for name in AGREEMENT
            }
            rows.append({"class": key_class, "level": level, **numbers})
            text = "  ".join(
                f"{value:5.2f} ({low:5.2f} {high:5.2f})"
                for name, (value, low, high) in numbers.items()
                if name != "r_importance"
            )
            lines.append(f"  {key_class:<12} {level:>5.0%}   {text}")
    lines += [f"  data         {data}", f"  figure       {figure}"]
    result = {
        **{name: getattr(value, "item", lambda v=value: v)() for name, value in attributes.items()},
        "loss": float(checked["loss"]),
        "agreement": rows,
        "data": str(data),
        "figure": str(figure),
    }
    return CommandResult(result, "\n".join(lines))
