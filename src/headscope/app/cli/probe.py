"""`headscope probe …`: heads as classifiers, and probes trained on all heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import headscope as hs
from headscope.app.cli import shared_options as options
from headscope.app.cli.command import CommandResult, argument, option, settings
from headscope.app.cli.models import load_model
from headscope.errors import UnknownName
from headscope.run.progress import phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscope.model.model import Model
    from headscope.probes.training import Kind
    from headscope.results.probe import Probe
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus

FiguresOption = Annotated[bool, option("Draw the table, and example sentences of the best heads.")]


def dependencies(
    corpus: options.CorpusOption,
    out: options.OutOption,
    *,
    min_cases: Annotated[int, option("Omit relations with fewer words.", min=1)] = 100,
    punctuation: Annotated[bool, option("Count punctuation too.")] = True,
    possessive: Annotated[
        Literal["auto", "yes", "no"],
        option("Use the attention of 's for the word before it (auto: with Stanford relations)."),
    ] = "auto",
    fold_subtypes: Annotated[bool, option("Count nmod:poss as nmod.")] = False,
    run: options.CorpusRunOptions,
    figures: FiguresOption = True,
) -> CommandResult:
    """Find the best head for every dependency relation (Clark et al. 2019, Table 1)."""
    loaded = run.load_model()
    documents = run.open_corpus(corpus)
    rules: dict[str, Literal["auto", True, False]] = {"auto": "auto", "yes": True, "no": False}
    result = hs.probe_dependencies(
        loaded,
        documents,
        min_cases,
        punctuation=punctuation,
        possessive=rules[possessive],
        fold_subtypes=fold_subtypes,
        **run.options(out=out),
    )
    if not figures:
        return _answer(result, out, [])
    drawn = _figures(result, out)
    with phase("drawing examples", settings.progress):
        drawn += _examples(result, loaded, documents, out)
    return _answer(result, out, drawn)


def coreference(
    corpus: options.CorpusOption,
    out: options.OutOption,
    *,
    brackets: Annotated[
        Path | None, option("A file of the same documents with the mentions.")
    ] = None,
    max_tokens: Annotated[
        int, option("Cut longer documents; 0 for as long as the model reads.", min=0)
    ] = 128,
    candidates: Annotated[
        Literal["mentions", "words"],
        option("Choose among the head words of earlier mentions, or any word."),
    ] = "mentions",
    run: options.CorpusRunOptions,
    figures: FiguresOption = True,
) -> CommandResult:
    """Find the best head for antecedents of mentions (Clark et al. 2019, Table 2)."""
    if brackets is None:
        documents = run.open_corpus(corpus, "document")
    else:
        documents = hs.read(
            corpus,
            coreference=brackets,
            documents=options.document_rule(run.documents),
            sample=run.sample,
            seed=run.seed,
            on_error=run.on_error,
        )
    result = hs.probe_coreference(
        run.load_model(),
        documents,
        candidates=candidates,
        **run.options(out=out, max_tokens=max_tokens or None),
    )
    return _answer(result, out, _figures(result, out) if figures else [])


def bias(
    pro: Annotated[Path, argument("Sentences that fit the stereotype.")],
    anti: Annotated[Path, argument("The same sentences with the other pronoun.")],
    out: options.OutOption,
    *,
    model: options.ModelOption = "minilm",
    device: options.DeviceOption = None,
    heads: Annotated[
        Path | None, option("A run of `probe coreference`: shows its best heads.")
    ] = None,
    n: Annotated[int, option("How many heads to show.", "-n", min=1)] = 5,
    over: options.OverOption = "attention",
    engine: options.EngineOptions,
) -> CommandResult:
    """Compare heads on pro- and anti-stereotypical pronouns (WinoBias)."""
    from headscope.probes.tables import bias_table
    from headscope.results.files import RESULT_FILE

    chosen = None if heads is None else options.open_results([heads])[0]
    result = hs.probe_bias(
        load_model(model, device),
        hs.read(pro, on_error=engine.on_error),
        hs.read(anti, on_error=engine.on_error),
        **engine.options(out=out, over=over),
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
    return {name: None if value != value else value for name, value in record.items()}


def _figures(result: Result, out: Path) -> list[Path]:
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


RANDOM_WEIGHTS = "control"
SCORER_KINDS: dict[str, Kind] = {
    RANDOM_WEIGHTS: "attention+words",
    "distance+words": "distance+words",
    "attention": "attention",
    "attention+words": "attention+words",
}
"""Inputs of each kind of probe, in the paper's order: lowest score first."""


def combined(
    train: Annotated[str, argument("A treebank to learn from (CoNLL-U, …).")],
    dev: Annotated[str, argument("A treebank to score on.")],
    out: options.OutOption,
    model: options.ModelOption = "minilm",
    device: options.DeviceOption = None,
    kinds: Annotated[
        str,
        option(
            "Names with commas between, or 'all': attention, attention+words, distance+words "
            "and control (attention+words of a model with random weights)."
        ),
    ] = "all",
    vectors: Annotated[str | None, option("A file of word vectors; by default GloVe.")] = None,
    epochs: Annotated[int | None, option("Training epochs.", min=1)] = None,
    sample: options.SampleOption = None,
    dev_sample: options.SampleOption = None,
    seed: options.SeedOption = 0,
    over: options.OverOption = "attention",
    max_tokens: options.MaxTokensOption = 512,
    cache: Annotated[
        Path | None, option("Folder for the attention; by default the user's cache.")
    ] = None,
    stream: Annotated[
        bool, option("Run the model in every epoch, without a cache.", "--stream")
    ] = False,
    on_error: options.OnErrorOption = "raise",
) -> CommandResult:
    """Train probes that predict each word's parent from all heads (Clark et al. 2019, Table 3)."""
    from headscope.figures.style import save_figure
    from headscope.probes.word_vectors import load_vectors

    names = list(SCORER_KINDS) if kinds == "all" else [name.strip() for name in kinds.split(",")]
    for name in names:
        UnknownName.check("kind of probe", name, SCORER_KINDS)
    chosen = [name for name in SCORER_KINDS if name in names]
    out.mkdir(parents=True, exist_ok=True)
    loaded = load_model(model, device)
    learned, scored = (
        hs.read(name, unit="sentence", sample=n, seed=seed, on_error=on_error)
        for name, n in ((train, sample), (dev, dev_sample))
    )
    words = None if chosen == ["attention"] else load_vectors(vectors)
    store = False if stream else True if cache is None else cache
    probes: dict[str, Probe] = {}
    data: dict[str, dict[str, object]] = {}
    for name in chosen:
        probe = hs.train_probe(
            loaded,
            learned,
            scored,
            SCORER_KINDS[name],
            seed=seed,
            vectors=words,
            control=name == RANDOM_WEIGHTS,
            epochs=epochs,
            over=over,
            max_tokens=max_tokens,
            cache=store,
            progress=settings.progress,
        )
        path = out / f"probe-{name.replace('+', '-')}.nc"
        probe.save(path)
        probes[name] = probe
        uas = probe.scores["uas"]
        data[name] = {
            "uas": probe.uas,
            "uas_interval": list(probe.uas_interval),
            **{
                f"{decoding}, {punctuation} punctuation": float(
                    uas.sel(decoding=decoding, punctuation=punctuation)
                )
                for decoding in ("greedy", "tree")
                for punctuation in ("without", "with")
            },
            "seconds": probe.provenance["seconds"],
            "file": str(path),
        }
        if "reliance" in probe.scores:
            save_figure(probe.figure(), path.with_suffix(".png"))
    baseline = probes[chosen[0]].scores["right_branching"]
    by_punctuation = {
        f"{name} punctuation": float(baseline.sel(punctuation=name)) for name in ("without", "with")
    }
    answer = {"model": loaded.name, "right-branching": by_punctuation, **data}
    return CommandResult(answer, _table(loaded.name, probes) + f"\n  probes and figures: {out}")


def _table(model: str, probes: dict[str, Probe]) -> str:
    """Return Clark et al.'s Table 3 as text, in the paper's order."""
    first = next(iter(probes.values()))
    provenance, words = first.provenance, first.scores["words"].values
    lines = [
        f"{model}: parents found (UAS, %) for {words[0]:,} words of "
        f"{provenance['dev']['sentences']:,} sentences, "
        f"after {provenance['train']['sentences']:,} sentences",
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
            f"  {name if name != RANDOM_WEIGHTS else 'random weights + words':<24} "
            f"{uas[0, 0]:6.1f}  {f'{low:.1f}–{high:.1f}':<13}  "
            f"{uas[1, 0]:5.1f}  {uas[0, 1]:24.1f} {uas[1, 1]:5.1f}"
        )
    return "\n".join(lines)
