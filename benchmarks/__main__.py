"""All benchmarks, one after the other, and one table of ratios.

    python -m benchmarks [--only corpus …] [--write docs/benchmarks.md]

Each runs in a process of its own, both sides of a comparison within it: machines differ and
are shared, ratios of CPU seconds within one run are what can be compared. What a benchmark
needs and does not find (a treebank, Chromium, another library) is said in the table.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from benchmarks.rows import FILE, Row, read_rows

PARTS = {
    "extraction": ["-m", "benchmarks.tap"],
    "extraction, peers": ["-m", "benchmarks.tap.peers"],
    "corpus": ["-m", "benchmarks.corpus", "--sentences", "200", "--rounds", "4"],
    # More sentences than batches need to have had every shape once.
    "corpus, memory": ["-m", "benchmarks.corpus", "--part", "memory", "--sentences", "1100"],
    "corpus, workers": ["-m", "benchmarks.corpus", "--part", "workers", "--sentences", "1800"],
    "heads": ["-m", "benchmarks.heads"],
    "effects": ["-m", "benchmarks.effects"],
    "probes": ["-m", "benchmarks.probes", "--sentences", "200", "--rounds", "4"],
    "views": ["-m", "benchmarks.views"],
    "intervals": ["-m", "benchmarks.intervals"],
}
VERSIONS = ("headscope", "torch", "transformers", "numpy", "numba", "scikit-learn")


def run(parts: list[str], rows_file: Path) -> list[str]:
    """Run the parts; what could not be run, with the last thing it said."""
    missing = []
    for part in parts:
        print(f"\n## {part}\n", flush=True)
        command = [sys.executable, *PARTS[part]]
        environment = {**os.environ, FILE: str(rows_file)}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            said = (done.stderr or "").strip().splitlines()
            missing.append(f"{part}: {said[-1] if said else f'exit code {done.returncode}'}")
            print(missing[-1], flush=True)
    return missing


def machine() -> str:
    """The machine and the versions, in two lines."""
    model = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        names = [line for line in cpu.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    found = []
    for name in VERSIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    python = f"Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, no GPU used; {python}, {', '.join(found)}"


def table(rows: list[Row], missing: list[str]) -> str:
    """The table, in Markdown."""
    lines = [
        "| part | what | headscope | beside | ratio | bound |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.part} | {r.what} | {r.ours} | {r.other} | {r.shown_ratio} | {r.shown_bound} |"
        for r in rows
    ]
    lines += [f"\nNot run: {line}" for line in missing]
    return "\n".join(lines)


def page(rows: list[Row], missing: list[str]) -> str:
    """What goes into the documentation."""
    return f"""# Measurements

Made by `make bench` (`python -m benchmarks --write docs/benchmarks.md`): each comparison within
one run, in CPU seconds unless said otherwise. A ratio with × is a gain (theirs over ours); one
without is a cost (ours over the bare forward or the like). The bound is what we hold ourselves
to.

{machine()}

{table(rows, missing)}

What is compared with what is told in the first lines of each benchmark's file in `benchmarks/`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder) / "rows.jsonl"
        missing = run(options.only, rows_file)
        rows = read_rows(rows_file)
    print(f"\n{machine()}\n\n{table(rows, missing)}")
    if options.write:
        options.write.write_text(page(rows, missing), encoding="utf-8")
    if missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
