"""What `headscope importance` does and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.app.analyze import open_corpus, with_workers

__all__ = ["run_importance"]


def run_importance(
    corpus: str,
    out: Path,
    *,
    model: str,
    device: str | None,
    segments: bool,
    reading: dict[str, Any],
    running: dict[str, Any],
    max_tokens: int,
    progress: bool | None,
) -> tuple[dict[str, Any], str]:
    """Run, draw Clark et al.'s Figure 3, and say what was found: as data, and as text."""
    import headscope as hs
    from headscope.figures.clark_importance import clark_figure_3

    loaded = hs.load(model, device=device)
    documents = open_corpus(corpus, reading)
    if segments:
        documents = hs.cut_segments(loaded, documents, max_tokens)
    result = hs.importance(
        loaded,
        documents,
        out=out,
        max_tokens=max_tokens,
        progress=progress,
        **with_workers(running),
    )
    figure = out / "figure-3.png"
    clark_figure_3(result).savefig(figure, dpi=200)
    values = result["importance"].mean(("layer", "head"))
    means = {
        str(name): float(value)
        for name, value in zip(values["gradient_class"].values, values.values, strict=True)
    }
    answer = {
        "model": result.model,
        "documents": result.provenance["counts"]["documents"],
        "result": str(out / "result.nc"),
        "figure": str(figure),
        "means": means,
    }
    lines = [f"{result.model}: mean |∂L/∂a| over {answer['documents']} documents, by key"]
    lines += [f"  {name:<14} {value:.2e}" for name, value in means.items()]
    lines += [f"  result         {answer['result']}", f"  figure         {figure}"]
    return answer, "\n".join(lines)
