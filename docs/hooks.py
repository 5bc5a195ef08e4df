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
HELP = re.compile(r"^<!-- help of the command line -->$", re.MULTILINE)


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
    """The help of every verb, where a page asks for it."""
    return HELP.sub(lambda _: command_line_help(), markdown) if HELP.search(markdown) else markdown


def command_line_help() -> str:
    """A section for each verb with its help, as the terminal shows it."""
    from typer.main import get_command

    from headscope.app.cli import app

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
    """`headscope … --help` without colors and boxes' trailing blanks, 88 columns wide."""
    import os
    import subprocess
    import sys

    code = "from headscope.app.cli import main; import sys; main(sys.argv[1:])"
    settings = {"COLUMNS": "88", "TERMINAL_WIDTH": "88", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **settings},
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
