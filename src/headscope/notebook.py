"""HTML tables that notebooks show for headscope's objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def facts_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return an HTML table with a name and a value in each row. Everything is escaped. Rows whose
    value is None or an empty string are left out. Whole numbers get thousands separators.
    """
    lines = [
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(_shown(value))}</td></tr>"
        for name, value in rows
        if value is not None and value != ""
    ]
    return f"<div><strong>{escape(title)}</strong><table>{''.join(lines)}</table></div>"


def columns_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with a heading for each column. Everything is escaped."""
    headings = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = [
        f"<tr>{''.join(f'<td>{escape(_shown(cell))}</td>' for cell in row)}</tr>" for row in rows
    ]
    table = f"<table><thead><tr>{headings}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<div><strong>{escape(title)}</strong>{table}</div>"


def _shown(value: object) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)
