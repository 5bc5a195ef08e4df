"""`headscope effects`: ablate each head; measure a prediction, or the loss of a corpus."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, option, settings
from headscope.app.cli.models import load_model
from headscope.errors import InputError

if TYPE_CHECKING:
    import xarray as xr


def effects(
    text: Annotated[
        list[str] | None, argument("A text; several of one kind for intervals.")
    ] = None,
    model: options.ModelOption = "smollm2",
    device: options.DeviceOption = None,
    target: Annotated[
        str | None, option("A token or label; by default the top prediction.")
    ] = None,
    foil: Annotated[
        str | None, option("Token or label to compare with; by default the next prediction.")
    ] = None,
    position: Annotated[int, option("Of the prediction; -1 is the last.")] = -1,
    measure: Annotated[
        Literal["logit", "logprob"], option("Difference of logits, or log-probability.")
    ] = "logit",
    method: Annotated[
        Literal["exact", "gradient"],
        option("Ablate every head, or those with the largest gradient estimate."),
    ] = "exact",
    corpus: Annotated[
        str | None, option("Instead of a text: effects on the loss of a file, or of 'demo'.")
    ] = None,
    sample: options.SampleOption = None,
    seed: options.SeedOption = 0,
    max_tokens: options.MaxTokensOption = 128,
    out: Annotated[
        Path | None, option("With --corpus: a file that report, card and map read.", "-o", "--out")
    ] = None,
    top: Annotated[int, option("How many heads to print.", min=1)] = 10,
) -> CommandResult:
    """Ablate each head and show the change: the number without the head − with it.

    Below 0 a head increases the logit difference, above 0 it decreases it. One text describes
    only that text: give several of one kind for a mean with an interval. With --corpus the number
    is the loss: above 0 the model needs the head.
    """
    from headscope.causal.ablation import rank
    from headscope.results.effect_data import result_of_effects

    if (corpus is None) == (not text):
        raise InputError("Give either a text or --corpus.")
    loaded = load_model(model, device)
    if corpus is not None:
        if target is not None or foil is not None:
            raise InputError("--target and --foil need a text; --corpus measures the loss.")
        documents = options.open_corpus(corpus, sample=sample, seed=seed)
        array = hs.effects(
            loaded, documents, max_tokens=max_tokens, seed=seed, progress=settings.progress
        )
        if out is not None:
            result_of_effects(array).save(out)
        return _answer(array, top, {"corpus": documents.name, "result": str(out or "")})
    if out is not None:
        raise InputError("--out needs --corpus: effects in one text describe only that text.")
    assert text is not None
    measure_effects = partial(
        hs.effects,
        loaded,
        text[0] if len(text) == 1 else text,
        target,
        foil,
        position=position,
        measure=measure,
        progress=settings.progress,
    )
    array = measure_effects(method=method)
    if method == "exact":
        return _answer(array, top, {"texts": text})
    exact = measure_effects(heads=[(layer, head) for layer, head, _ in rank(array, top)])
    return _answer(exact, top, {"texts": text}, estimates=array)


def _answer(
    array: xr.DataArray, top: int, inputs: dict[str, object], estimates: xr.DataArray | None = None
) -> CommandResult:
    """Return the heads with the largest effects; `estimates` by gradient chose them, if given."""
    from headscope.causal.ablation import rank
    from headscope.results.effect_data import COSINE_DISTANCE

    attributes = array.attrs
    rows, lines = [], []
    for layer, head, value in rank(array, top):
        row: dict[str, object] = {"layer": layer, "head": head, "effect": value}
        line = f"  {f'L{layer} H{head}':<8} {value:+.3f}"
        values = array.sel(layer=layer, head=head)
        if "low" in array.coords:
            low, high = (float(values[bound]) for bound in ("low", "high"))
            is_finite = math.isfinite(low) and math.isfinite(high)
            row |= {"low": low, "high": high} if is_finite else {"low": None, "high": None}
            line += f"  [{low:+.3f}, {high:+.3f}]" if is_finite else ""
        if estimates is not None:
            row["estimate"] = float(estimates.sel(layer=layer, head=head))
            line += f"  (estimate {row['estimate']:+.3f})"
        rows.append(row)
        lines.append(line)
    how = "exact" if estimates is None else "exact for the heads that the gradient ranks first"
    is_distance = attributes["measure"] == COSINE_DISTANCE
    before = "" if is_distance else f" = {attributes['with']:.3f}"
    first = (
        f"{attributes['model']}: {attributes['number']}{before} ({how}, in {attributes['units']})"
    )
    n = attributes["texts"]
    last = f"mean over {n} text{'s' * (n != 1)}"
    if rows and rows[0].get("low", 0.0) is None:
        last += ": too few for an interval"
    elif "holds" in attributes:
        last = attributes["holds"] if n == 1 else f"{last}; {attributes['holds']}"
    lines = [first, *lines, f"  {last}"]
    if inputs.get("result"):
        lines.append(f"  result   {inputs['result']}")
    method = "exact" if estimates is None else "gradient"
    data = {"model": attributes["model"], **inputs, "number": attributes["number"],
            "with": attributes["with"], "method": method, "heads": rows,
            "templates": attributes.get("templates", 1), "holds": last}  # fmt: skip
    return CommandResult(data, "\n".join(lines))
