"""Tables as text and as HTML, for what prints itself on a terminal and in a notebook.

>>> print(as_text([["policy", "reward"], ["uniform", "0.5"]]))
policy   reward
uniform  0.5
>>> as_html("a < b", [["policy"], ["uniform"]])
'<table><caption>a &lt; b</caption><tr><th>policy</th></tr><tr><td>uniform</td></tr></table>'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["as_html", "as_text", "parameter_cells"]

Cells = Sequence[Sequence[str]]


def as_text(cells: Cells) -> str:
    """Columns aligned to the left; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def as_html(caption: str, cells: Cells) -> str:
    """A table without styles, which takes on those of its page; everything is escaped."""
    from html import escape

    def row(values: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values) + "</tr>"

    body = "".join(row(values, "td") for values in cells[1:])
    return f"<table><caption>{escape(caption)}</caption>{row(cells[0], 'th')}{body}</table>"


def parameter_cells(values: Mapping[str, object]) -> list[list[str]]:
    """Two columns: names, and what they stand for."""
    return [["parameter", "value"], *([name, str(value)] for name, value in values.items())]
