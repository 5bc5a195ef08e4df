"""Write what the site is built from into .docs/: `make docs` runs this, then the site's builder.

The pages are copied from docs/, and completed: formulas become MathML, which browsers draw without
a script or a font; lists of the package's names, metrics and commands are written from the code;
the blocks of the gallery are run, so that what they save is on the site; notebooks become pages.
The builder reads plain Markdown and needs no plugin of ours.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs"
TARGET = ROOT / ".docs"
LIVE = TARGET / "live"
"""Where the blocks of the gallery are run: what they save is shown."""
HOME = "minilm"
"""Folder of the live page on the home page, beside them."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs:[^\n]*-->\n```python\n.*?```\n", re.DOTALL)
"""Blocks that need files which the page does not make."""
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\w)")


def generate() -> None:
    """Write all pages."""
    shutil.rmtree(TARGET, ignore_errors=True)
    left_out = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(SOURCE, TARGET, ignore=left_out)
    shutil.copytree(ROOT / "notebooks", TARGET / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for notebook in sorted((TARGET / "notebooks").glob("*.ipynb")):
        page = notebook.with_suffix(".md")
        page.write_text(notebook_page(notebook), encoding="utf-8")
    for page in sorted(TARGET.rglob("*.md")):
        page.write_text(completed(page.read_text(encoding="utf-8")), encoding="utf-8")
    run_gallery()
    write_live_page()


def completed(text: str) -> str:
    """A page with what is written from the code, and with its formulas as MathML."""
    for mark, make in GENERATED.items():
        if mark in text:
            text = text.replace(mark, make())
    parts = CODE.split(text)  # code stands at odd places
    return "".join(part if at % 2 else with_formulas(part) for at, part in enumerate(parts))


def with_formulas(text: str) -> str:
    """`$…$` and `$$…$$`, which GitHub shows too, as MathML."""

    def display(found: re.Match[str]) -> str:
        formula = convert(found[1].strip(), display="block")
        return f'<div class="formula">{formula}</div>'

    return INLINE.sub(lambda found: convert(found[1]), DISPLAY.sub(display, text))


def run_gallery() -> None:
    """Run the blocks of the gallery as a reader would, one after the other."""
    LIVE.mkdir()
    text = NEEDS.sub("", (SOURCE / "gallery.md").read_text(encoding="utf-8"))
    blocks = BLOCK.findall(text)
    script = "\n".join(blocks)
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "agg"}
    subprocess.run([sys.executable, "-c", script], cwd=LIVE, check=True, env=settings)


def write_live_page() -> None:
    """Write the page of the site's home: MiniLM inside, in a folder."""
    import headscope as hs

    model = hs.load("minilm")
    examples = ["The cat sat on the mat, and the cat slept.", "He fixed the car that she broke."]
    hs.save_live(model, LIVE / HOME, examples=examples, effects=True)


def notebook_page(notebook: Path) -> str:
    """A notebook as a page: its text and its code, with the file to open in JupyterLab."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = [
        "".join(cell["source"])
        if cell["cell_type"] == "markdown"
        else f"```python\n{''.join(cell['source'])}\n```"
        for cell in cells
    ]
    opening = f"[{notebook.name}]({notebook.name}) opens in JupyterLab: `jupyter lab notebooks`."
    page = "\n\n".join([parts[0], opening, *parts[1:]]) + "\n"
    return page.replace(
        "](../docs/", "](../"
    )  # on the site, pages stand beside the notebooks' folder


def public_names() -> str:
    """A table of `headscope.__all__`: each name, its page and what it is."""
    import headscope

    rows = ["| name | |", "|---|---|"]
    for name in headscope.__all__:
        if not name.startswith("__"):
            about = (getattr(headscope, name).__doc__ or "").strip().split("\n\n")[0]
            sentences = re.split(r"(?<! et al)\. ", re.sub(r"\s+", " ", about))
            first = sentences[0].rstrip(".:").replace("|", "\\|")
            rows.append(f"| [`{name}`][headscope.{name}] | {first} |")
    return "\n".join(rows)


def registered_metrics() -> str:
    """A section for each registered metric, from its docstring."""
    from headscope.metrics import METRICS

    return "\n".join(
        f"::: {metric.__module__}.{metric.__name__}\n"
        "    options:\n      members: false\n      heading_level: 3\n      show_bases: false\n"
        for metric in METRICS.values()
    )


def command_line_help() -> str:
    """A section for each verb with its help, as the terminal shows it."""
    from typer.main import get_command

    from headscope.app.cli.main import app

    found = []

    def add(command: Any, path: tuple[str, ...]) -> None:
        children = getattr(command, "commands", {})
        if len(path) > 1 and not children:
            found.append(f"## `{' '.join(path)}`\n\n```text\n{_help_of(path[1:])}\n```\n")
        for name, child in children.items():
            add(child, (*path, name))

    add(get_command(app), ("headscope",))
    return "\n".join(found)


def _help_of(words: tuple[str, ...]) -> str:
    """`headscope … --help` without colors and boxes' trailing blanks, 84 columns wide."""
    code = "from headscope.app.cli.main import main; import sys; main(sys.argv[1:])"
    settings = {"COLUMNS": "84", "TERMINAL_WIDTH": "84", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **settings},
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


GENERATED: dict[str, Callable[[], str]] = {
    "<!-- help of the command line -->": command_line_help,
    "<!-- names of the package -->": public_names,
    "<!-- metrics of the registry -->": registered_metrics,
}


if __name__ == "__main__":
    generate()
