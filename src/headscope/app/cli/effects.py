"""`headscope effects`: what each head does to a prediction."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headscope.app.cli import options
from headscope.app.cli.answer import Answer, settings


def effects(
    text: Annotated[list[str], typer.Argument(help="A text; several of one kind for intervals.")],
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
        Literal["exact", "gradient"], typer.Option(help="Run every head, or estimate all at once.")
    ] = "exact",
    top: Annotated[int, typer.Option(min=1, help="How many heads to print.")] = 10,
) -> Answer:
    """Show what each head does to a prediction: the number without the head − with it.

    Below 0 a head speaks for the target, above 0 against it. What one text shows is about that
    text: give several of one kind for a mean with an interval.
    """
    import headscope as hs
    from headscope.causal.wanted import rank

    loaded = hs.load(model, device=device)
    array = hs.effects(
        loaded,
        text[0] if len(text) == 1 else text,
        target,
        foil,
        position=position,
        measure=measure,
        method=method,
        progress=settings.progress,
    )
    about = array.attrs
    ranked = rank(array, top)
    rows = []
    for name, value in ranked:
        row: dict[str, object] = {"head": name, "effect": value}
        if "low" in array.coords:
            layer, head = (int(part[1:]) for part in name.split())
            at = array.sel(layer=layer, head=head)
            row |= {"low": float(at["low"]), "high": float(at["high"])}
        rows.append(row)
    how = f"{about['method']}, in {about['units']}"
    lines = [f"{loaded.name}: {about['number']} = {about['with']:.3f} ({how})"]
    for row in rows:
        bounds = f"  [{row['low']:+.3f}, {row['high']:+.3f}]" if "low" in row else ""
        lines.append(f"  {row['head']:<8} {row['effect']:+.3f}{bounds}")
    lines.append(
        f"  {about['holds']}" if "holds" in about else f"  mean over {about['texts']} texts"
    )
    data = {"model": loaded.name, "texts": text, "number": about["number"],
            "with": about["with"], "method": about["method"], "heads": rows}  # fmt: skip
    return Answer(data, "\n".join(lines))
