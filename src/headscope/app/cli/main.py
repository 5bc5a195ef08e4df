"""Command line: thin commands over the library.

Results go to stdout; progress, warnings and errors go to stderr. A user's mistake gives one line
and exit code 2. `--debug` shows the traceback. Commands import heavy libraries only when they run.
"""

from __future__ import annotations

import errno
import sys
import warnings
from typing import Annotated, Any

import typer

from headscope import __version__
from headscope.app.cli.analyze import analyze, report, sensitivity
from headscope.app.cli.check import check
from headscope.app.cli.command import Interrupted, option, register, settings
from headscope.app.cli.effects import effects
from headscope.app.cli.heads import card, map_heads
from headscope.app.cli.importance import check_importance, importance
from headscope.app.cli.models import models
from headscope.app.cli.pages import publish, serve, view
from headscope.app.cli.probe import bias, combined, coreference, dependencies
from headscope.app.cli.track import track
from headscope.app.cli.verify import verify
from headscope.app.cli.wires import wires
from headscope.errors import HeadscopeError

app = typer.Typer(
    name="headscope",
    help="See and measure what every attention head of a Transformer does.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"headscope {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    debug: Annotated[bool, option("Show tracebacks.", "--debug")] = False,
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    settings.debug = debug


register(app, models, example="models minilm")
register(app, view, example='view "The cat sat." --pair "The cat lay down." -o page.html')
register(app, serve, example="serve --model minilm --model smollm2 --open")
register(app, publish, example="publish --model minilm -o site/")
register(app, analyze, example="analyze corpus.conllu --model smollm2 -o run --by genre")
register(app, sensitivity, example="sensitivity corpus.conllu --model minilm -o sensitivity")
register(
    app, effects, example='effects "When Mary and John met, John gave a book to" --target " Mary"'
)
register(app, wires, example="wires pairs.jsonl --model smollm2 -o wires")
register(app, importance, example="importance corpus.txt --model smollm2 -o importance")
register(app, check_importance, example="check-importance corpus.txt --model smollm2 -o check")
register(app, map_heads, name="map", example="map run -o map")
register(app, card, example="card run --layer 2 --head 8")
register(app, report, example="report run importance -o report.html")
register(app, track, example="track checkpoints/*/ corpus.txt -o track")
register(
    app,
    check,
    example="check run --against baseline --fail-if 'null_share changes by 0.1 in any head'",
)
register(app, verify, example="verify run")

probe = typer.Typer(
    help="Score heads as classifiers, and train probes on all heads.", no_args_is_help=True
)
app.add_typer(probe, name="probe")
register(probe, dependencies, example="probe dependencies treebank.conllu -o dependencies")
register(probe, coreference, example="probe coreference corpus.conllu -o coreference")
register(probe, bias, example="probe bias pro.conll anti.conll -o bias")
register(probe, combined, example="probe combined train.conllu dev.conllu -o probe")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 2 bad input, 1 failure, 130 Ctrl-C, 143 SIGTERM."""
    warnings.showwarning = lambda message, *_: typer.echo(f"headscope: {message}", err=True)
    try:
        code = app(arguments, prog_name="headscope", standalone_mode=False)
        if isinstance(code, int) and code:
            sys.exit(code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("headscope: stopped", err=True)
        sys.exit(130)
    except Interrupted as stop:
        typer.echo(f"headscope: {stop}", err=True)
        sys.exit(stop.exit_code)
    except (HeadscopeError, OSError) as error:
        if settings.debug:
            raise
        typer.echo(f"headscope: {error}", err=True)
        # A path that cannot be read or written is the user's mistake. A full disk is a failure.
        is_mistake = isinstance(error, HeadscopeError) or error.filename is not None
        is_full = getattr(error, "errno", None) == errno.ENOSPC
        sys.exit(2 if is_mistake and not is_full else 1)
    except Exception as error:
        # click's errors about options and arguments
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            _complain(error)
            sys.exit(error.exit_code)
        if settings.debug:
            raise
        typer.echo(
            f"headscope: unexpected {type(error).__name__}: {error} "
            "(run with --debug for the traceback)",
            err=True,
        )
        sys.exit(1)


def _complain(error: Any) -> None:
    """Print one line about a wrong option, or the whole help if there are no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    context = getattr(error, "ctx", None)
    command = "headscope" if context is None else context.command_path
    message = " ".join(error.format_message().split())
    typer.echo(f"headscope: {message} (see {command} --help)", err=True)
