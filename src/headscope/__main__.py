"""`headscope` in the shell, and `python -m headscope` where its script is not on the path."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

from headscope.app.cli.main import main


def start() -> NoReturn:
    """Run the command line and leave the process at once.

    Python would take torch and transformers apart object by object, which takes most of a second;
    the system frees their memory at once. What `atexit` has registered is run before.
    """
    code: str | int | None = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # nobody reads on
            code = code or 1
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    start()
