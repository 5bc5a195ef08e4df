"""What notebooks show of headscope's objects: small tables of facts, without a script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def facts_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """An HTML table with a name and a value in each row.

    Everything is escaped. A row whose value is None or an empty string is left out.

    Args:
        title: Stands above the table, in bold.
        rows: The names and the values. Whole numbers get commas between thousands.
    """
    lines = [
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(_shown(value))}</td></tr>"
        for name, value in rows
        if value is not None and value != ""
    ]
    return f"<div><strong>{escape(title)}</strong><table>{''.join(lines)}</table></div>"


def _shown(value: object) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)
