"""`headscope probe …`: heads as classifiers of dependencies and coreference, and their bias.

`headscope probe combined`: probes trained on the attention of all heads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headscope.app.cli import shared_options as options
from headscope.app.cli.analyze import open_corpus
from headscope.app.cli.command import CommandResult, settings
from headscope.app.cli.models import load_model
from headscope.app.cli.shared_options import open_results

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscope.model.model import Model
    from headscope.probes.scorers import Kind
    from headscope.results.probe import Probe
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus

By = Annotated[str | None, typer.Option(help="Also score each group of documents: genre.")]
Figures = Annotated[
    bool, typer.Option(help="Draw the table, and example sentences of the best heads.")
]


def dependencies(
    corpus: options.CorpusName,
    out: options.Out,
    *,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    min_cases: Annotated[
        int, typer.Option(min=1, help="Leave out relations with fewer words.")
    ] = 100,
    punctuation: Annotated[bool, typer.Option(help="Count punctuation too.")] = True,
    possessive: Annotated[
        Literal["auto", "yes", "no"],
        typer.Option(
            help="Let 's attend for the word before it (auto: if relations are Stanford's)."
        ),
    ] = "auto",
    fold_subtypes: Annotated[bool, typer.Option(help="Count nmod:poss as nmod.")] = False,
    sample: options.Sample = None,
    seed: options.Seed = 0,
    by: By = None,
    over: options.Over = "attention",
    running: options.Running,
    figures: Figures = True,
) -> CommandResult:
    """Find the best head for every dependency relation (Clark et al. 2019, Table 1)."""
    import headscope as hs
    from headscope.run.progress import phase

    loaded = load_model(model, device)
    documents = open_corpus(corpus, sample=sample, seed=seed, on_error=running.on_error)
    rules: dict[str, Literal["auto", True, False]] = {"auto": "auto", "yes": True, "no": False}
    result = hs.probe_dependencies(
        loaded,
        documents,
        min_cases,
        punctuation=punctuation,
        possessive=rules[possessive],
        fold_subtypes=fold_subtypes,
        **running.options(out=out, by=by, over=over),
    )
    if not figures:
        return _answer(result, out, [])
    drawn = _figures(result, out)
    with phase("drawing examples", settings.progress):
        drawn += _examples(result, loaded, documents, out)
    return _answer(result, out, drawn)


def coreference(
    corpus: options.CorpusName,
    out: options.Out,
    *,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    brackets: Annotated[
        Path | None, typer.Option(help="A file of the same documents to take mentions from.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=0, help="Cut longer documents; 0 for as long as the model reads.")
    ] = 128,
    candidates: Annotated[
        Literal["mentions", "words"],
        typer.Option(help="Choose among the head words of earlier mentions, or any word."),
    ] = "mentions",
    sample: options.Sample = None,
    seed: options.Seed = 0,
    by: By = None,
    over: options.Over = "attention",
    running: options.Running,
    figures: Figures = True,
) -> CommandResult:
    """Find the best head for antecedents of mentions (Clark et al. 2019, Table 2)."""
    import headscope as hs

    on_error = running.on_error
    if brackets is None:
        documents = open_corpus(
            corpus, unit="document", sample=sample, seed=seed, on_error=on_error
        )
    else:
        documents = hs.read(
            corpus, coreference=brackets, sample=sample, seed=seed, on_error=on_error
        )
    result = hs.probe_coreference(
        load_model(model, device),
        documents,
        candidates=candidates,
        **running.options(out=out, by=by, over=over, max_tokens=max_tokens or None),
    )
    return _answer(result, out, _figures(result, out) if figures else [])


def bias(
    pro: Annotated[Path, typer.Argument(help="Sentences that fit the stereotype.")],
    anti: Annotated[Path, typer.Argument(help="The same sentences with the other pronoun.")],
    out: options.Out,
    *,
    model: options.ModelName = "minilm",
    device: options.Device = None,
    heads: Annotated[
        Path | None,
        typer.Option(help="A run of `probe coreference` whose best heads to show."),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many heads to show.")] = 5,
    over: options.Over = "attention",
    running: options.Running,
) -> CommandResult:
    """See whether coreference heads follow gender stereotypes (WinoBias)."""
    import headscope as hs
    from headscope.probes.tables import bias_table
    from headscope.results.files import RESULT_FILE

    chosen = None if heads is None else open_results([heads])[0]
    result = hs.probe_bias(
        load_model(model, device),
        hs.read(pro, on_error=running.on_error),
        hs.read(anti, on_error=running.on_error),
        **running.options(out=out, over=over),
    )
    table = bias_table(result, chosen, n=n)
    table.to_csv(out / "table.csv")
    data = {
        "model": result.model,
        "result": str(out / RESULT_FILE),
        "table": str(out / "table.csv"),
        "pronouns": table.pairs,
        "heads": [_plain(record) for record in table.records()],
        "crossfit": _plain(dict(zip(("pro", "anti"), table.crossfit_accuracy, strict=True))),
    }
    return CommandResult(data, f"{table}\n\nresult {data['result']}, table {data['table']}")


def _answer(result: Result, out: Path, drawn: list[Path]) -> CommandResult:
    from headscope.probes.tables import probe_table
    from headscope.results.files import RESULT_FILE

    table = probe_table(result)
    table.to_csv(out / "table.csv")
    data = {
        "model": result.model,
        "documents": result.provenance["counts"]["documents"],
        "result": str(out / RESULT_FILE),
        "table": str(out / "table.csv"),
        "figures": [str(path) for path in drawn],
        "best": [_plain(record) for record in table.records()],
    }
    lines = [str(table), "", f"result {data['result']}, table {data['table']}"]
    lines += [f"figure {path}" for path in drawn]
    return CommandResult(data, "\n".join(lines))


def _plain(record: Mapping[str, object]) -> dict[str, object]:
    """The record as JSON can hold it: None in place of NaN."""
    return {name: None if value != value else value for name, value in record.items()}


def _figures(result: Result, out: Path) -> list[Path]:
    from headscope.run.progress import phase

    with phase("drawing figures", settings.progress):
        from headscope.figures.style import save_figure

        return [save_figure(result.table().figure(), out / "table.png")]


def _examples(result: Result, model: Model, corpus: Corpus, out: Path) -> list[Path]:
    """Draw example sentences of the heads of the table's first three relations."""
    from headscope.figures.style import save_figure
    from headscope.probes.tables import probe_table

    drawn = []
    for row in [row for row in probe_table(result).rows if row.label != "all"][:3]:
        examples = result.examples(model, corpus, row.label)
        if examples:
            name = f"examples-{row.label.replace(':', '-')}-L{row.layer}-H{row.head}.png"
            drawn.append(save_figure(examples.figure(), out / name))
    return drawn


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
) -> CommandResult:
    """Train probes that find each word's parent from all heads (Clark et al. 2019, Table 3)."""
    import headscope as hs
    from headscope.figures.style import save_figure
    from headscope.probes.word_vectors import load_vectors

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
    return CommandResult(answer, _table(loaded.name, probes) + f"\n  probes and figures: {out}")


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
