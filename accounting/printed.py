"""Tables as text and as HTML, for what prints itself on a terminal and in a notebook.

>>> print(as_text([["policy", "reward"], ["uniform", "0.5"]]))
policy   reward
uniform  0.5
>>> as_html("a < b", [["policy"], ["uniform"]]).partition("<tr>")[2]
'<th>policy</th></tr><tr><td>uniform</td></tr></table></div>'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["as_html", "as_text", "axes_of", "parameter_cells"]

# characters of a cell that stay on one line
_WIDEST = 80

Cells = Sequence[Sequence[str]]


def as_text(cells: Cells) -> str:
    """Columns aligned to the left; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def as_html(caption: str, cells: Cells) -> str:
    """A line of text and a table, in the styles of their page; everything is escaped.

    Columns are as wide as their words, up to a limit, and scroll within a box of their own where the page is narrower.
    The line is no caption, which would be as narrow as its table.
    """
    from html import escape

    def row(values: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(cell(value, tag) for value in values) + "</tr>"

    def cell(value: str, tag: str) -> str:
        style = f' style="max-width: {_WIDEST}ch; overflow-wrap: anywhere"' if len(value) > _WIDEST else ""
        return f"<{tag}{style}>{escape(value)}</{tag}>"

    body = "".join(row(values, "td") for values in cells[1:])
    return (
        '<div style="max-width: 100%; overflow-x: auto">'
        f'<p style="overflow-wrap: anywhere">{escape(caption)}</p>'
        f'<table style="width: max-content; max-width: none; margin-left: 0">{row(cells[0], "th")}{body}</table></div>'
    )


def parameter_cells(values: Mapping[str, object]) -> list[list[str]]:
    """Two columns: names, and what they stand for."""
    return [["parameter", "value"], *([name, str(value)] for name, value in values.items())]


def axes_of(ax: Axes | None, asked_by: str) -> Axes:
    """Where to draw: on given axes, or on new ones; a refusal names who asked."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(f"{asked_by} needs matplotlib: pip install matplotlib") from None
    return plt.subplots()[1] if ax is None else ax
