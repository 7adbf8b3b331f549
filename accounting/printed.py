"""Tables as text and as HTML, for what prints itself on a terminal and in a notebook.

>>> print(as_text([["policy", "reward"], ["uniform", "0.5"]]))
policy   reward
uniform  0.5
>>> as_html("a < b", [["policy"], ["uniform"]]).partition("<tr>")[2]
'<th>policy</th></tr><tr><td>uniform</td></tr></table></div>'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["as_html", "as_text", "axes_of", "parameter_cells", "written"]

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


def axes_of(target: Any, asked_by: str, new: Callable[[], Axes] | None = None) -> Axes:
    """Where a method ``plot(target)`` draws: on given axes, or on new ones for a file, or for nobody in particular.

    Parameters
    ----------
    target : path, matplotlib Axes or None
    asked_by : str
        Who is named in a refusal.
    new : callable, optional
        Makes axes where there is no target, by default pyplot's.
    """
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{asked_by} needs matplotlib: pip install matplotlib") from None
    if isinstance(target, Axes):
        return target
    if target is None and new is None:
        import matplotlib.pyplot as plt

        axes: Axes = plt.subplots()[1]
        return axes
    if target is None or isinstance(target, (str, PathLike)):
        # for a file a figure that no window shows, and that is gone when it is written
        return new() if new is not None else Figure(layout="constrained").add_subplot()
    raise TypeError(f"target must be a path, matplotlib axes or None, got a {type(target).__name__}")


def written(axes: Axes, target: Any) -> Any:
    """The axes; or, where the target is a path, the path of the image that is written there."""
    if not isinstance(target, (str, PathLike)):
        return axes
    figure: Any = axes.figure
    path = Path(target)
    if not path.suffix:  # matplotlib would add one and not say so
        path = path.with_name(f"{path.name}.png")
    figure.savefig(path)
    return path
