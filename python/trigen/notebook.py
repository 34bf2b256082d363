"""Views of trigen's objects in a notebook (`_repr_html_`): tables, and texts as they are."""

from __future__ import annotations

from html import escape
from typing import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def row(tag, cells):
        return (
            "<tr>" + "".join(f"<{tag} style='text-align:left'>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
        )

    return "<table>" + row("th", head) + "".join(row("td", cells) for cells in rows) + "</table>"


def text(lines: str) -> str:
    return f"<pre>{escape(lines)}</pre>"
