"""What `headscope analyze` does and prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus

__all__ = ["open_corpus", "run_analysis", "with_workers"]

SHOWN = {
    "null_share": "of the attention is null (special tokens, or the first token)",
    "distance": "tokens from query to key, on average over heads",
    "entropy": "nats of entropy, on average over heads",
    "dep_alignment": "of the attention follows a dependency (either direction)",
    "variability": "of the attention varies with content rather than position",
}


def run_analysis(
    corpus: str,
    out: Path,
    *,
    model: str,
    device: str | None,
    metrics: str,
    reading: dict[str, Any],
    running: dict[str, Any],
    figures: bool,
    progress: bool | None,
) -> tuple[dict[str, Any], str]:
    """Run, write figures beside the result, and say what was found: as data, and as text."""
    import headscope as hs

    documents = open_corpus(corpus, reading)
    running = with_workers(running)
    names = metrics if metrics == "all" else [name.strip() for name in metrics.split(",")]
    result = hs.analyze(
        hs.load(model, device=device), documents, names, out=out, progress=progress, **running
    )
    drawn = hs.save_figures(result, out / "figures") if figures else []
    counts = result.provenance["counts"]
    answer = {
        "model": result.model,
        "documents": counts["documents"],
        "tokens": counts["tokens"],
        "result": str(out / "result.nc"),
        "figures": [str(path) for path in drawn],
        "means": _means(result),
    }
    lines = [f"{result.model}: {counts['documents']} documents, {counts['tokens']:,} tokens"]
    for name, value in answer["means"].items():
        shown = f"{value:.1%}" if "of the" in SHOWN[name] else f"{value:.2f}"
        lines.append(f"  {name:<14} {shown:>6} {SHOWN[name]}")
    lines.append(f"  result         {answer['result']} (headscope.open reads it)")
    if drawn:
        lines.append(f"  figures        {out / 'figures'}")
    return answer, "\n".join(lines)


def open_corpus(name: str, reading: dict[str, Any]) -> Corpus:
    """The corpus a command was given: a file or folder, or the bundled one (`demo`)."""
    import headscope as hs

    if name != "demo":
        return hs.read(name, **reading)
    documents = hs.demo_corpus().by(reading["unit"])
    sample = reading["sample"]
    return documents if sample is None else documents.draw(sample, reading["seed"])


def with_workers(running: dict[str, Any]) -> dict[str, Any]:
    """Options of a run with a worker for each core where none was asked for."""
    from headscope.run.local import n_cores

    return running if running["workers"] is not None else {**running, "workers": n_cores()}


def _means(result: Result) -> dict[str, float]:
    """The mean over heads of a few variables."""
    found = {}
    for name in SHOWN:
        if name in result:
            values = result[name]
            if "parent" in values.dims:
                values = values.sel(parent="either")
            found[name] = float(values.mean())
    return found
