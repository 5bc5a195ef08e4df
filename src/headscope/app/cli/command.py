"""What a verb of the command line returns, and how it is printed.

A verb is a function that returns an `CommandResult`. `register` gives it the three options that
every verb has (`--json`, `--quiet`, `--debug`), and `--allow-pickle` if it loads a model, and
prints the answer, and nothing else, to stdout.

What Ctrl-C and SIGTERM do to a verb: one line that says how to go on, and the exit code that
shells expect (128 + the signal's number).
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
from typing import Annotated

import typer


class Interrupted(Exception):
    """The user, or the system, stopped the verb."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message or "stopped")
        self.exit_code = exit_code


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block SIGTERM stops the work as Ctrl-C does. Either one becomes `Interrupted`, with
    what the library says about how to go on.

    typer would turn KeyboardInterrupt into a return value, and lose its message.
    """
    received = signal.SIGINT

    def terminate(number: int, frame: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if is_main else None
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(str(stop), 128 + received) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """One answer in two forms."""

    data: object
    """For programs: what JSON can hold."""
    text: str = ""
    """For people."""


@dataclass(slots=True)
class _Settings:
    """The options of the whole command; set before a verb runs."""

    debug: bool = False
    quiet: bool = False
    allow_pickle: bool = False
    """For `headscope.load`: read pickled weights where there are no others."""

    @property
    def progress(self) -> bool | None:
        """For the library's `progress=`: never if quiet, else on a terminal."""
        return False if self.quiet else None


settings = _Settings()


def print_status(line: str) -> None:
    """Print a line about what is going on to stderr, unless the user asked for quiet."""
    if not settings.quiet:
        typer.echo(line, err=True)


_COMMON = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")],
}
_LOADING = {
    "allow_pickle": Annotated[
        bool, typer.Option("--allow-pickle", help="Read .bin weights where there are no others.")
    ],
}
"""For verbs that load a model, which have an option for its device."""


def register(
    app: typer.Typer, verb: Callable[..., CommandResult], *, example: str, name: str | None = None
) -> None:
    """Make a function a verb of the command line.

    Args:
        app: the command that the verb belongs to: `headscope`, or `headscope probe`.
        verb: the function; its parameters are the verb's options. A parameter that is a dataclass
            stands for the fields of that class.
        example: a call to show below the help, without `headscope`.
        name: the name of the verb; by default the name of the function.
    """
    parameters = _parameters(verb)
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
        with stoppable():
            answer = verb(**options)
        if as_json:
            typer.echo(json.dumps(answer.data, indent=1, ensure_ascii=False))
        elif answer.text:
            typer.echo(answer.text)

    shown: list[inspect.Parameter] = []
    for each in parameters:
        shown += _parameters(each.annotation) if each.name in records else [each]
    common = _COMMON | (_LOADING if any(each.name == "device" for each in parameters) else {})
    shown += [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for key, kind in common.items()
    ]
    signature = inspect.Signature(
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown]
    )
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    run.__doc__ = verb.__doc__
    app.command(name or verb.__name__.replace("_", "-"), epilog=f"Example: headscope {example}")(
        run
    )


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())
