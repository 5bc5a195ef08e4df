"""The wheel in environments of its own: each Python at hand with the newest libraries, and the
oldest Python with the lowest versions that pyproject.toml allows. `make matrix` runs this.

    python -m publishing.matrix [3.11 3.12 3.13 lowest]

Environments go to .matrix/. What is run are tests that touch everything an installation can break:
the tap, runs, files, pages, readers. A Python that uv cannot find is named and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".matrix"
OLDEST = "3.11"
PYTHONS = (OLDEST, "3.12", "3.13")
LOWEST = "lowest"
TOOLS = ["pytest>=8.0", "hypothesis>=6.100", "sentencepiece>=0.2", "conllu>=6.0"]
TESTS = (
    "tests/model/test_tap.py",
    "tests/results",
    "tests/page/test_payload.py",
    "tests/page/test_page.py",
    "tests/text",
)


def main(wanted: list[str]) -> int:
    """Run the rows that were asked for; 1 where one failed."""
    outcomes = {}
    for row in wanted or [*PYTHONS, LOWEST]:
        outcomes[row] = run_row(row)
        print(f"{row:8} {outcomes[row]}", flush=True)
    return int("failed" in outcomes.values())


def run_row(row: str) -> str:
    """`passed`, `failed`, or why it was not run."""
    python = OLDEST if row == LOWEST else row
    interpreter = find_python(python)
    if interpreter is None:
        return f"not run: there is no Python {python} here"
    place = FOLDER / row
    call(uv(), "venv", "--quiet", "--clear", "--python", interpreter, str(place))
    install = [uv(), "pip", "install", "--quiet", "--python", str(place / "bin" / "python")]
    wheels = sorted((ROOT / "dist").glob("headscope-*.whl"))
    if not wheels:
        return "not run: there is no wheel in dist/ (make dist builds it)"
    if row == LOWEST:  # of what the project itself asks for: the wheel alone would be all of it
        lowest = ["--resolution", "lowest-direct", "--only-binary", ":all:"]
        call(*install, *lowest, "-r", str(ROOT / "pyproject.toml"), *TOOLS)
    call(*install, str(wheels[-1]), *TOOLS)
    # Python's own folder list, not the checkout's sources: the wheel is what is tested.
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [str(place / "bin" / "python"), "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--import-mode=importlib", "-W", "default", "-m", "not long", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env={**settings, "PYTHONPATH": str(ROOT)})
    return "failed" if done.returncode else "passed"


def find_python(version: str) -> str | None:
    """An interpreter of that version: one of pyenv's, or what uv finds."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(folder.glob(f"{version}.*/bin/python"))
    if installed:
        return str(installed[-1])
    command = [uv(), "python", "find", "--no-python-downloads", version]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def uv() -> str:
    """The uv beside this Python, or the one on the path."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else "uv"


def call(*command: str) -> None:
    """Run it, or fail."""
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
