"""Entry point of `headscope` in the shell and of `python -m headscope`."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import NoReturn

from headscope.app.cli.main import main


def start() -> NoReturn:
    """Run the command line and exit without interpreter shutdown, which frees torch for most of a
    second. `atexit` functions run before.
    """
    code: str | int | None = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C finds nothing left to stop
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader of the pipe has closed it
            code = code or 1
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    start()
