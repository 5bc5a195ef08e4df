"""Commands: registration, shared settings, printed results and signals.

A command is a function that returns a `CommandResult`. `register` adds `--json`, `--quiet`,
`--debug` and, for commands that load a model, `--allow-pickle`. Only the result goes to stdout.
"""

from __future__ import annotations

import inspect
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.errors import WriteError


class Interrupted(Exception):
    """The user or the system stopped the command: exit code 128 + signal number."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message or "stopped")
        self.exit_code = exit_code


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM and Ctrl-C within the block into `Interrupted`, with the library's message,
    which typer would lose. A second signal is answered with a line; a third ends the wait.
    """
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        if len(received) == 2:
            print_status("headscope: stopping: finished work is being saved …")
            return
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(str(error), 128 + [*received, signal.SIGINT][0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command: data for `--json`, and text."""

    data: object
    text: str = ""
    exit_code: int = 0


@dataclass(slots=True)
class _CliSettings:
    debug: bool = False
    quiet: bool = False
    allow_pickle: bool = False
    """Argument of `headscope.load`."""

    @property
    def progress(self) -> bool | None:
        """Argument `progress` of the library: False if quiet, else None (on a terminal)."""
        return False if self.quiet else None


settings = _CliSettings()


def print_status(line: str) -> None:
    """Print a line to stderr, except with `--quiet`."""
    if not settings.quiet:
        typer.echo(line, err=True)


def option(text: str, *names: str, **rules: Any) -> Any:
    """Return an option with its help; the parameter names it unless `names` do."""
    return typer.Option(*names, help=text, **rules)


def argument(text: str, **rules: Any) -> Any:
    """Return an argument with its help."""
    return typer.Argument(help=text, **rules)


_COMMON = {
    "as_json": Annotated[bool, option("Print the result as JSON.", "--json")],
    "quiet": Annotated[bool, option("No progress on stderr.", "--quiet", "-q")],
    "debug": Annotated[bool, option("Show the traceback of an error.", "--debug")],
}
_LOADING = {
    "allow_pickle": Annotated[
        bool, option("Read .bin weights if there are no others.", "--allow-pickle")
    ]
}
"""Options of commands that have an option `device`."""


def register(
    app: typer.Typer, command: Callable[..., CommandResult], *, example: str, name: str = ""
) -> None:
    """Add a function to the command line: its parameters are the options, and a dataclass parameter
    stands for the fields of its class. The example is shown below the help.
    """
    parameters = _parameters(command)
    records = {
        each.name: each.annotation
        for each in parameters
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    def run(*, as_json: bool, quiet: bool, debug: bool, **options: object) -> None:
        settings.quiet = quiet
        settings.allow_pickle = bool(options.pop("allow_pickle", False))
        logging.getLogger("headscope").setLevel(logging.ERROR if quiet else logging.NOTSET)
        settings.debug = settings.debug or debug
        for key, record in records.items():
            options[key] = record(**{each.name: options.pop(each.name) for each in fields(record)})
        _check_out(options.get("out"))
        with stoppable():
            result = command(**options)
        if as_json:
            typer.echo(json.dumps(result.data, indent=1, ensure_ascii=False))
        elif result.text:
            typer.echo(result.text)
        if result.exit_code:
            raise typer.Exit(result.exit_code)

    all_parameters: list[inspect.Parameter] = []
    for each in parameters:
        all_parameters += _parameters(each.annotation) if each.name in records else [each]
    common = _COMMON | (_LOADING if any(each.name == "device" for each in all_parameters) else {})
    all_parameters += [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for key, kind in common.items()
    ]
    signature = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in all_parameters]
    )
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in all_parameters}
    run.__doc__ = command.__doc__
    title = name or command.__name__.replace("_", "-")
    app.command(title, epilog=f"Example: headscope {example}")(run)


def _check_out(out: object) -> None:
    """Raise WriteError for a file in a missing folder, before anything is computed."""
    if isinstance(out, Path) and out.suffix and not out.parent.is_dir():
        raise WriteError(f"Cannot write {str(out)!r}: there is no folder {str(out.parent)!r}.")


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())
