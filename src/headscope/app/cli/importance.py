"""`headscope importance`: how much the loss depends on attention to each class of keys."""

from __future__ import annotations

from headscope.app.cli import options
from headscope.app.cli.analyze import open_corpus
from headscope.app.cli.answer import Answer
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
) -> Answer:
    """Measure how much the loss depends on attention to each class of keys (gradients).

    The model needs its language-model head: smollm2 has one, minilm does not.
    """
    import headscope as hs
    from headscope.figures.style import save_figure
    from headscope.results.opening import RESULT

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
        "result": str(out / RESULT),
        "figure": str(figure),
        "means": means,
    }
    lines = [f"{result.model}: mean |∂L/∂a| over {answer['documents']} documents, by class of keys"]
    lines += [f"  {name:<14} {value:.2e}" for name, value in means.items()]
    lines += [f"  result         {answer['result']}", f"  figure         {figure}"]
    return Answer(answer, "\n".join(lines))
