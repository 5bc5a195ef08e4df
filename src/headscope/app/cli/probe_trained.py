"""`headscope probe combined`: probes trained on the attention of all heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.app.cli import options
from headscope.app.cli.answer import Answer, settings
from headscope.app.cli.models import load_model

if TYPE_CHECKING:
    from headscope.probes.scorers import Kind
    from headscope.results.probe import Probe

CONTROL = "control"
KINDS: dict[str, Kind] = {
    CONTROL: "attention+words",
    "distance+words": "distance+words",
    "attention": "attention",
    "attention+words": "attention+words",
}
"""What a probe of each name reads, in the order of the paper: the lowest score first."""
TITLES = {CONTROL: "random weights + words"}


def combined(
    train: Annotated[str, typer.Argument(help="A treebank to learn from (CoNLL-U, …).")],
    dev: Annotated[str, typer.Argument(help="A treebank to score on.")],
    out: options.Out,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    kinds: Annotated[
        str,
        typer.Option(
            help="Names with commas between, or 'all': attention, attention+words, distance+words "
            "and control (attention+words of a model with random weights)."
        ),
    ] = "all",
    vectors: Annotated[
        str | None, typer.Option(help="A file of word vectors; by default GloVe.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How many times to go through the training data.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Draw this many sentences to learn from.")
    ] = None,
    dev_sample: Annotated[
        int | None, typer.Option(min=1, help="Draw this many sentences to score on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of draws, batches and random weights.")] = 0,
    over: options.Over = "attention",
    max_tokens: options.MaxTokens = 512,
    cache: Annotated[
        Path | None, typer.Option(help="Folder to keep attention in; by default the user's cache.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Keep no attention: run the model every epoch.")
    ] = False,
    on_error: options.OnError = "raise",
) -> Answer:
    """Train probes that find each word's parent from all heads (Clark et al. 2019, Table 3)."""
    import headscope as hs
    from headscope.figures.style import save_figure
    from headscope.probes.vectors import load_vectors

    chosen = _chosen(kinds)
    loaded = load_model(model, device)
    learned, scored = (
        hs.read(name, unit="sentence", sample=n, seed=seed, on_error=on_error)
        for name, n in ((train, sample), (dev, dev_sample))
    )
    words = None if chosen == ["attention"] else load_vectors(vectors)
    where = False if stream else True if cache is None else cache
    probes: dict[str, Probe] = {}
    files: dict[str, str] = {}
    for name in chosen:
        probe = hs.train_probe(
            loaded,
            learned,
            scored,
            KINDS[name],
            seed=seed,
            vectors=words,
            control=name == CONTROL,
            epochs=epochs,
            over=over,
            max_tokens=max_tokens,
            cache=where,
            progress=settings.progress,
        )
        path = out / f"probe-{name.replace('+', '-')}.nc"
        probe.save(path)
        probes[name], files[name] = probe, str(path)
        if "reliance" in probe.scores:
            save_figure(probe.figure(), path.with_suffix(".png"))
    data = {name: _row(probe) | {"file": files[name]} for name, probe in probes.items()}
    answer = {"model": loaded.name, "right-branching": _baseline(probes[chosen[0]]), **data}
    return Answer(answer, _table(loaded.name, probes) + f"\n  probes and figures: {out}")


def _chosen(kinds: str) -> list[str]:
    from headscope.errors import UnknownName

    names = list(KINDS) if kinds == "all" else [name.strip() for name in kinds.split(",")]
    for name in names:
        if name not in KINDS:
            raise UnknownName.of("kind of probe", name, KINDS)
    return [name for name in KINDS if name in names]


def _row(probe: Probe) -> dict[str, float | list[float]]:
    row: dict[str, float | list[float]] = {
        "uas": probe.uas,
        "uas_interval": list(probe.uas_interval),
    }
    for decoding in ("greedy", "tree"):
        for punctuation in ("without", "with"):
            value = probe.scores["uas"].sel(decoding=decoding, punctuation=punctuation)
            row[f"{decoding}, {punctuation} punctuation"] = float(value)
    row["seconds"] = probe.provenance["seconds"]
    return row


def _baseline(probe: Probe) -> dict[str, float]:
    values = probe.scores["right_branching"]
    return {
        f"{name} punctuation": float(values.sel(punctuation=name)) for name in ("without", "with")
    }


def _table(model: str, probes: dict[str, Probe]) -> str:
    """Clark et al.'s Table 3 as text, in the order of the paper."""
    first = next(iter(probes.values()))
    about, words = first.provenance, first.scores["words"].values
    lines = [
        f"{model}: parents found (UAS, %) for {words[0]:,} words of {about['dev']['sentences']:,} "
        f"sentences, after {about['train']['sentences']:,} sentences",
        f"  {'':<24} {'greedy':>6}  {'95 % interval':<13}  {'tree':>5}  "
        "with punctuation: greedy  tree",
    ]
    low, high = 100 * first.scores["right_branching_interval"].sel(punctuation="without").values
    base = 100 * first.scores["right_branching"].values
    lines.append(
        f"  {'right-branching':<24} {base[0]:6.1f}  {f'{low:.1f}–{high:.1f}':<13}  {'':>5}  "
        f"{base[1]:24.1f}"
    )
    for name, probe in probes.items():
        uas = 100 * probe.scores["uas"].transpose("decoding", "punctuation").values
        low, high = (100 * bound for bound in probe.uas_interval)
        lines.append(
            f"  {TITLES.get(name, name):<24} {uas[0, 0]:6.1f}  {f'{low:.1f}–{high:.1f}':<13}  "
            f"{uas[1, 0]:5.1f}  {uas[0, 1]:24.1f} {uas[1, 1]:5.1f}"
        )
    return "\n".join(lines)
