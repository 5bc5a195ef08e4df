"""All benchmarks, one after the other, and one table of ratios.

    python -m benchmarks [PART …] [--write docs/benchmarks.md]

PART is a name below, or how names begin: `endtoend`, `"corpus, memory"`. All take some 40 minutes
on two idle cores. Written after some parts alone, the table keeps what it had of the others.

Each runs in a process of its own, both sides of a comparison within it: machines differ and
are shared, ratios of CPU seconds within one run are what can be compared. What a benchmark
needs and does not find (a treebank, Chromium, another library) is said in the table.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from benchmarks.rows import FILE, Row, read_rows

FIGURE = Path("docs/figures/growth.png")
PARTS = {
    "endtoend, shell": ["-m", "benchmarks.endtoend", "--part", "shell"],
    "endtoend, cpu": ["-m", "benchmarks.endtoend", "--part", "cpu"],
    "endtoend, commands": ["-m", "benchmarks.endtoend", "--part", "commands"],
    "endtoend, workers": ["-m", "benchmarks.endtoend", "--part", "workers"],
    "endtoend, growth": ["-m", "benchmarks.endtoend", "--part", "growth", "--figure", str(FIGURE)],
    "endtoend, memory": ["-m", "benchmarks.endtoend", "--part", "memory"],
    "extraction": ["-m", "benchmarks.tap"],
    "extraction, peers": ["-m", "benchmarks.tap.peers"],
    "corpus": ["-m", "benchmarks.corpus", "--sentences", "200", "--rounds", "3"],
    # More sentences than batches need to have had every shape once.
    "corpus, memory": ["-m", "benchmarks.corpus", "--part", "memory", "--sentences", "1100"],
    "corpus, workers": ["-m", "benchmarks.corpus", "--part", "workers", "--sentences", "1800"],
    "heads": ["-m", "benchmarks.heads"],
    "effects": ["-m", "benchmarks.effects"],
    "probes": ["-m", "benchmarks.probes", "--sentences", "200", "--rounds", "3"],
    "views": ["-m", "benchmarks.views"],
    "pages": ["-m", "benchmarks.pages"],
    "live": ["-m", "benchmarks.live"],
    "intervals": ["-m", "benchmarks.intervals"],
}
ORDER = ("end to end", "growth", "extraction", "corpus", "heads", "effects", "probes", "views")
"""Of the table's first column; anything else comes last."""
FASTER = 1.1
"""A cost beside the forward's that rises by more than this, from the shortest text to the longest,
grows faster than the forward's."""
NO_GPU = "no GPU used"
STOLEN = 7
"""Which number of a line of `/proc/stat` counts time that the host gave to other machines."""
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
    return f"{model}, {os.cpu_count()} cores, {NO_GPU}; {python}, {', '.join(found)}"


def stolen(before: list[int], after: list[int]) -> str:
    """How much of the cores' time the host gave to others between two looks at it, in words."""
    spent = [now - then for then, now in zip(before, after, strict=True)]
    if not any(spent):
        return ""
    share = spent[STOLEN] / sum(spent)
    return f"; {share:.0%} of its time went to other machines of its host"


def ticks() -> list[int]:
    """What all cores have done, in ticks of the clock, of each kind; nothing but on Linux."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return []
    # What guests have used is counted among the first kinds already.
    return [int(number) for number in first.split()[1 : STOLEN + 2]]


def lines_of(rows: list[Row]) -> list[str]:
    """The rows, in Markdown."""
    return [
        f"| {r.part} | {r.what} | {r.ours} | {r.other} | {r.shown_ratio} | {r.shown_bound} |"
        for r in rows
    ]


def cells_of(line: str) -> list[str]:
    """Part, what, headscope, beside, ratio and bound."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def joined(new: list[str], page: str) -> list[str]:
    """New rows, and those of a page whose comparisons were not made anew."""
    made = {_comparison(line) for line in new}
    old = [line for line in page.splitlines() if line.startswith("| ") and "| part |" not in line]
    kept = [line for line in old if _comparison(line) not in made]

    def place(line: str) -> int:
        part = cells_of(line)[0]
        return ORDER.index(part) if part in ORDER else len(ORDER)

    return sorted([*kept, *new], key=place)


def _comparison(line: str) -> tuple[str, ...]:
    """Part, what, and the name of what stands beside it."""
    part, what, _, beside, *_ = cells_of(line)
    return part, what, re.split("[:,] ", beside)[0]


def table(lines: list[str], missing: list[str]) -> str:
    """The table, in Markdown."""
    head = ["| part | what | headscope | beside | ratio | bound |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *lines, *(f"\nNot run: {line}" for line in missing)])


def page(lines: list[str], missing: list[str], machines: list[str]) -> str:
    """What goes into the documentation."""
    return f"""# Measurements

Look up the cost of a run, beside the bare forward pass and other tools. `make bench` writes this
page (`python -m benchmarks --write docs/benchmarks.md`). Each comparison is within one run, in CPU
seconds unless stated. A ratio with × is a gain (theirs over ours); one without is a cost (ours over
the bare forward or the like). The bound is our target.

{f"{chr(10)}{chr(10)}".join(machines)}

{table(lines, missing)}

{growth(lines)}
The first lines of each file in `benchmarks/` say what is compared.
"""


WHY = {
    "all metrics": "every weight of attention is read, which fused attention never writes down",
    "dependency probe": "every weight between words is read",
    "Jensen–Shannon divergence": "all pairs of heads are compared on every row",
    "gradient importance": "every weight is read, and its gradient",
    "effects by gradient": "a forward pass with gradients keeps its activations",
}
"""Why a cost grows faster than the forward's, where it does."""


def growth(lines: list[str]) -> str:
    """The figure of `benchmarks.endtoend`, and in words what its rows of the table say."""
    ratios: dict[str, dict[str, float]] = {}
    bare: dict[str, float] = {}
    for part, what, _, beside, ratio, _ in map(cells_of, lines):
        if part == "growth" and not what.startswith("once a run"):
            name, length, _ = what.rsplit(", ", 2)
            ratios.setdefault(name, {})[length] = float(ratio)
            bare[length] = float(beside.rsplit(", ", 1)[1].removesuffix(" ms"))
    if not ratios or not FIGURE.exists():
        return ""
    first, last = next(iter(bare)), list(bare)[-1]
    rise = bare[last] / bare[first]
    times = f"{rise:.1f} times what" if rise > FASTER else "about as much as"
    told = [
        f"In a text of {last}, a token costs the forward pass {times} it costs in one of {first}.",
        "Beside it:\n",
    ]
    for name, of in ratios.items():
        longest = list(of)[-1]
        said = f"- {name}: {of[first]:.2f} forwards at {first}, {of[longest]:.2f} at {longest}"
        is_faster = of[longest] > FASTER * of[first]
        why = f"faster than the forward: {WHY[name]}" if is_faster else "no faster than the forward"
        told.append(f"{said}; it grows {why}.")
    picture = FIGURE.relative_to("docs")
    return f"![Cost of a token over the length of the text]({picture})\n\n" + "\n".join(told) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"of: {'; '.join(PARTS)}")
    parser.add_argument("--write", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    chosen = [name for name in PARTS if name.startswith(tuple(options.part or [""]))]
    if not chosen:
        parser.error(f"there is no part {' or '.join(options.part)}; there are {'; '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder) / "rows.jsonl"
        before = ticks()
        missing = run(chosen, rows_file)
        here = machine() + stolen(before, ticks())
        lines = lines_of(read_rows(rows_file))
    print(f"\n{here}\n\n{table(lines, missing)}")
    if options.write:
        is_whole = len(chosen) == len(PARTS) or not options.write.exists()
        old = "" if is_whole else options.write.read_text(encoding="utf-8")
        machines = [line for line in old.splitlines() if NO_GPU in line]
        machines.append(here if is_whole else f"{here} ({'; '.join(chosen)})")
        text = page(joined(lines, old), missing, machines)
        options.write.write_text(text, encoding="utf-8")
    if missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
