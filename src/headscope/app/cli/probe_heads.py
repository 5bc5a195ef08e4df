"""`headscope probe …`: heads as classifiers of dependencies and coreference, and their bias."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headscope.app.cli import options
from headscope.app.cli.analyze import open_corpus
from headscope.app.cli.answer import Answer, settings
from headscope.app.cli.models import load_model
from headscope.app.cli.runs import open_results

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscope.model.model import Model
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
) -> Answer:
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
) -> Answer:
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
) -> Answer:
    """See whether coreference heads follow gender stereotypes (WinoBias)."""
    import headscope as hs
    from headscope.heads.bias_table import bias_table
    from headscope.results.opening import RESULT

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
        "result": str(out / RESULT),
        "table": str(out / "table.csv"),
        "pronouns": table.pairs,
        "heads": [_plain(record) for record in table.records()],
        "honest": _plain(dict(zip(("pro", "anti"), table.honest, strict=True))),
    }
    return Answer(data, f"{table}\n\nresult {data['result']}, table {data['table']}")


def _answer(result: Result, out: Path, drawn: list[Path]) -> Answer:
    from headscope.heads.probe_table import probe_table
    from headscope.results.opening import RESULT

    table = probe_table(result)
    table.to_csv(out / "table.csv")
    data = {
        "model": result.model,
        "documents": result.provenance["counts"]["documents"],
        "result": str(out / RESULT),
        "table": str(out / "table.csv"),
        "figures": [str(path) for path in drawn],
        "best": [_plain(record) for record in table.records()],
    }
    lines = [str(table), "", f"result {data['result']}, table {data['table']}"]
    lines += [f"figure {path}" for path in drawn]
    return Answer(data, "\n".join(lines))


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
    from headscope.heads.probe_table import probe_table

    drawn = []
    for row in [row for row in probe_table(result).rows if row.label != "all"][:3]:
        examples = result.examples(model, corpus, row.label)
        if examples:
            name = f"examples-{row.label.replace(':', '-')}-L{row.layer}-H{row.head}.png"
            drawn.append(save_figure(examples.figure(), out / name))
    return drawn
