"""What the site adds to the pages: formulas as MathML, and the command line's own help.

Formulas are written as `$…$` and `$$…$$`, which GitHub shows too. Browsers draw MathML
themselves, so no script and no font comes along.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML."""
    content = INLINE.sub(lambda m: convert(html.unescape(m[1]).strip()), content)
    return DISPLAY.sub(
        lambda m: (
            '<div class="formula">'
            + convert(html.unescape(m[1]).strip(), display="block")
            + "</div>"
        ),
        content,
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What is written from the code itself, where a page asks for it."""
    for mark, make in GENERATED.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown


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
    import os
    import subprocess
    import sys

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


GENERATED = {
    "<!-- help of the command line -->": command_line_help,
    "<!-- names of the package -->": public_names,
    "<!-- metrics of the registry -->": registered_metrics,
}
