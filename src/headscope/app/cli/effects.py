"""`headscope effects`: what each head does to a prediction, or to the loss of a corpus."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headscope.app.cli import shared_options as options
from headscope.app.cli.analyze import open_corpus
from headscope.app.cli.command import CommandResult, settings
from headscope.app.cli.models import load_model

if TYPE_CHECKING:
    import xarray as xr


def effects(
    text: Annotated[
        list[str] | None, typer.Argument(help="A text; several of one kind for intervals.")
    ] = None,
    model: options.ModelName = "smollm2",
    device: options.Device = None,
    target: Annotated[
        str | None, typer.Option(help="A token or label; by default the likeliest.")
    ] = None,
    foil: Annotated[
        str | None, typer.Option(help="What to compare with; by default the likeliest other one.")
    ] = None,
    position: Annotated[int, typer.Option(help="Of the prediction; -1 is the last.")] = -1,
    measure: Annotated[
        Literal["logit", "logprob"], typer.Option(help="Difference of logits, or log-probability.")
    ] = "logit",
    method: Annotated[
        Literal["exact", "gradient"],
        typer.Option(help="Run every head, or those that a quick estimate ranks first."),
    ] = "exact",
    corpus: Annotated[
        str | None,
        typer.Option(help="Instead of a text: effects on the loss of a file, or of 'demo'."),
    ] = None,
    sample: options.Sample = None,
    seed: options.Seed = 0,
    max_tokens: options.MaxTokens = 128,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="With --corpus: a file that report, card and map read."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many heads to print.")] = 10,
) -> CommandResult:
    """Show what each head does to a prediction: the number without the head − with it.

    Below 0 a head speaks for the target, above 0 against it. What one text shows is about that
    text: give several of one kind for a mean with an interval. With --corpus the number is the
    loss: above 0 the model needs the head.
    """
    import headscope as hs
    from headscope.causal.ablation import rank
    from headscope.errors import InputError
    from headscope.results.effect_data import result_of_effects

    if (corpus is None) == (not text):
        raise InputError("Give a text, or --corpus: one of the two.")
    loaded = load_model(model, device)
    if corpus is not None:
        if target is not None or foil is not None:
            raise InputError("--target and --foil are about a text; --corpus is about the loss.")
        documents = open_corpus(corpus, sample=sample, seed=seed)
        array = hs.effects(
            loaded, documents, max_tokens=max_tokens, seed=seed, progress=settings.progress
        )
        if out is not None:
            result_of_effects(array).save(out)
        return _answer(array, top, {"corpus": documents.name, "result": str(out or "")})
    if out is not None:
        raise InputError("--out is for --corpus: what one text shows is about that text.")
    assert text is not None
    ask = partial(
        hs.effects,
        loaded,
        text[0] if len(text) == 1 else text,
        target,
        foil,
        position=position,
        measure=measure,
        progress=settings.progress,
    )
    array = ask(method=method)
    if method == "exact":
        return _answer(array, top, {"texts": text})
    exact = ask(heads=[(layer, head) for layer, head, _ in rank(array, top)])
    return _answer(exact, top, {"texts": text}, estimates=array)


def _answer(
    array: xr.DataArray,
    top: int,
    given: dict[str, object],
    estimates: xr.DataArray | None = None,
) -> CommandResult:
    """The heads with the largest effects, as data and as lines.

    Args:
        array: exact effects.
        top: how many heads are shown.
        given: what was asked, for the data.
        estimates: by which the shown heads were chosen, where it was not by exact effects.
    """
    from headscope.causal.ablation import rank

    about = array.attrs
    rows, lines = [], []
    for layer, head, value in rank(array, top):
        row: dict[str, object] = {"head": f"L{layer} H{head}", "effect": value}
        line = f"  {row['head']:<8} {value:+.3f}"
        at = array.sel(layer=layer, head=head)
        if "low" in array.coords:
            low, high = (float(at[bound]) for bound in ("low", "high"))
            known = math.isfinite(low) and math.isfinite(high)
            row |= {"low": low, "high": high} if known else {"low": None, "high": None}
            line += f"  [{low:+.3f}, {high:+.3f}]" if known else ""
        if estimates is not None:
            row["estimate"] = float(estimates.sel(layer=layer, head=head))
            line += f"  (estimate {row['estimate']:+.3f})"
        rows.append(row)
        lines.append(line)
    how = "exact" if estimates is None else "exact for the heads that the gradient ranks first"
    now = "" if about["measure"] == "turn" else f" = {about['with']:.3f}"
    first = f"{about['model']}: {about['number']}{now} ({how}, in {about['units']})"
    last = about.get("holds", f"mean over {about['texts']} texts")
    if rows and rows[0].get("low", 0.0) is None:
        last += ": too few for an interval"
    lines = [first, *lines, f"  {last}"]
    if given.get("result"):
        lines.append(f"  result   {given['result']}")
    method = "exact" if estimates is None else "gradient"
    data = {"model": about["model"], **given, "number": about["number"],
            "with": about["with"], "method": method, "heads": rows}  # fmt: skip
    return CommandResult(data, "\n".join(lines))
