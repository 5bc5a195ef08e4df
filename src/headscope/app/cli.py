"""The command line: thin verbs over the library.

Answers go to stdout; progress, warnings and errors to stderr. A user's mistake is one
line and exit code 2; `--debug` shows the traceback. Nothing heavy is imported before a
verb needs it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from headscope import __version__
from headscope.errors import HeadscopeError

__all__ = ["app", "main"]

app = typer.Typer(
    name="headscope",
    help="See and measure what every attention head of a Transformer does.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@dataclasses.dataclass
class _Settings:
    debug: bool = False


settings = _Settings()


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headscope {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    settings.debug = debug


@app.command(epilog="Example: headscope models minilm")
def models(
    name: Annotated[
        str | None, typer.Argument(help="A packaged model, folder or hub id to look into.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to run the self-check.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """List the packaged models; or say what a model is and how the tap reads it."""
    from headscope.app.models import describe_model, list_models

    answer, text = list_models() if name is None else describe_model(name, device)
    typer.echo(json.dumps(answer, indent=1) if as_json else text)


@app.command(
    epilog='Example: headscope view "The cat sat." --pair "The cat lay down." -o page.html'
)
def view(
    text: Annotated[str, typer.Argument(help="The text to look at.")],
    pair: Annotated[str | None, typer.Option(help="A second text, for sentence pairs.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What the decoder reads, in encoder-decoders.")
    ] = None,
    generate: Annotated[int, typer.Option(min=0, help="Tokens the model may add.")] = 0,
    model: Annotated[str, typer.Option(help="Packaged model, folder or hub id.")] = "minilm",
    device: Annotated[str | None, typer.Option(help="Where to run.")] = None,
    neurons: Annotated[
        bool, typer.Option(help="Put queries, keys and values into the page.")
    ] = True,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path(
        "headscope.html"
    ),
) -> None:
    """Write one HTML page that shows every head at work on a text. Opens without a network."""
    from headscope.model.load import load
    from headscope.views.page import save_page

    trace = load(model, device=device).trace(
        text, pair, target=target, generate=generate, vectors=neurons
    )
    save_page(trace, out, neurons=neurons)
    typer.echo(out)


@app.command(epilog="Example: headscope analyze corpus.conllu --model smollm2 -o run --by genre")
def analyze(
    corpus: Annotated[
        str,
        typer.Argument(help="A file or folder (text, JSON lines, CoNLL-U, …), or 'demo'."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run.")],
    model: Annotated[str, typer.Option(help="Packaged model, folder or hub id.")] = "minilm",
    device: Annotated[str | None, typer.Option(help="Where to run.")] = None,
    metrics: Annotated[str, typer.Option(help="'all', or names with commas between.")] = "all",
    unit: Annotated[
        str, typer.Option(help="What is one document: sentence, paragraph or document.")
    ] = "sentence",
    sample: Annotated[int | None, typer.Option(min=1, help="Draw so many documents.")] = None,
    seed: Annotated[int, typer.Option(help="Which random draw.")] = 0,
    by: Annotated[str | None, typer.Option(help="Also by a group of documents: genre.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; one for each core by default.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    resume: Annotated[
        bool, typer.Option(help="Go on with what is in the folder, or start anew.")
    ] = True,
    on_error: Annotated[str, typer.Option(help="A broken line: raise or skip.")] = "raise",
    figures: Annotated[bool, typer.Option(help="Draw the papers' figures.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Measure what every head does over a corpus; a stopped run goes on where it was."""
    from headscope.app.analyze import run_analysis

    answer, text = run_analysis(
        corpus,
        out,
        model=model,
        device=device,
        metrics=metrics,
        reading={"unit": unit, "sample": sample, "seed": seed, "on_error": on_error},
        running={"by": by, "workers": workers, "engine": engine, "resume": resume},
        figures=figures,
        progress=False if quiet else None,
    )
    typer.echo(json.dumps(answer, indent=1) if as_json else text)


@app.command(epilog="Example: headscope importance corpus.txt --model smollm2 -o importance")
def importance(
    corpus: Annotated[str, typer.Argument(help="A file or folder, or 'demo'.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the run.")],
    model: Annotated[str, typer.Option(help="A model with its language-model head.")] = "smollm2",
    device: Annotated[str | None, typer.Option(help="Where to run.")] = None,
    segments: Annotated[
        bool, typer.Option(help="Cut the text into segments as for BERT's pre-training.")
    ] = True,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens of a segment.")] = 128,
    sample: Annotated[int | None, typer.Option(min=1, help="Draw so many documents.")] = None,
    seed: Annotated[int, typer.Option(help="Which draw, and which tokens are masked.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; one for each core by default.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    resume: Annotated[
        bool, typer.Option(help="Go on with what is in the folder, or start anew.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Measure how much the loss depends on attention to each class of keys (gradients)."""
    from headscope.app.importance import run_importance

    answer, text = run_importance(
        corpus,
        out,
        model=model,
        device=device,
        segments=segments,
        reading={"unit": "document", "sample": sample, "seed": seed},
        running={"workers": workers, "engine": engine, "resume": resume, "seed": seed},
        max_tokens=max_tokens,
        progress=False if quiet else None,
    )
    typer.echo(json.dumps(answer, indent=1) if as_json else text)


@app.command(epilog="Example: headscope demo -o demo")
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder to write to.")] = Path("demo"),
) -> None:
    """Trace a sentence with both packaged models, and say what their heads do with it."""
    from headscope.app.demo import run_demo

    run_demo(out)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 for an answer, 2 for bad input, 1 for a failure."""
    warnings.showwarning = _show_warning
    try:
        app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt) as stop:
        typer.echo(f"headscope: {stop}" if str(stop) else "headscope: stopped", err=True)
        sys.exit(130)
    except HeadscopeError as error:
        if settings.debug:
            raise
        typer.echo(f"headscope: {error}", err=True)
        sys.exit(2)
    except Exception as error:
        # click's own complaints about options and arguments know how to show themselves
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            sys.exit(error.exit_code)
        if settings.debug:
            raise
        typer.echo(
            f"headscope: unexpected {type(error).__name__}: {error} "
            "(run with --debug for the traceback)",
            err=True,
        )
        sys.exit(1)


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    typer.echo(f"headscope: {message}", err=True)
