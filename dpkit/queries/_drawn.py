"""Answers to look at: a table in a notebook, and points with their intervals on axes of matplotlib."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting.printed import axes_of
from accounting.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpkit.queries.answer import Answer

__all__ = ["as_html", "key_parts", "parted", "plotted", "shown"]

_ROWS = 60
_COLOUR = "#1f5a8a"


def parted(answer: Answer, key: Any) -> bool:
    """Whether a key has a part for each of several columns."""
    return len(answer.columns) > 1 and isinstance(key, tuple)


def key_parts(answer: Answer, key: Any) -> list[str]:
    """The parts of a key, one for each column, as they are printed."""
    parts = key if parted(answer, key) else (key,)
    return [printable(shown(part) if isinstance(part, np.datetime64) else str(part)) for part in parts]


def shown(value: Any) -> str:
    """A number or date as it is printed."""
    if isinstance(value, np.datetime64):
        return str(value).removesuffix("T00:00:00").replace("T", " ").removesuffix(":00")
    return f"{value:,}" if isinstance(value, (int, np.integer)) else f"{value:,.6g}"


def as_html(answer: Answer, confidence: float = 0.95) -> str:
    """A table with the notes under it, in plain HTML that takes its looks from the page."""
    low, high = answer.interval(confidence) if answer.noise_interval is not None else (None, None)
    told = np.atleast_1d(answer.informative(confidence))
    heads = [] if answer.keys is None else [printable(name) for name in answer.columns]
    right = ("value", f"{100 * confidence:g} % interval (noise)")
    heads = ["place", *heads] if answer.ranked else [*heads, right[0]]
    heads += [] if low is None else [right[1]]
    lines = []
    for i, key in enumerate([()] if answer.keys is None else answer.keys[:_ROWS]):
        cells = [] if answer.keys is None else [(part, False) for part in key_parts(answer, key)]
        if answer.ranked:
            cells = [(str(i + 1), False), *cells]
        else:
            value = answer.value if answer.keys is None else answer.value[i]
            cells.append((shown(value) if told[i] else "no information", True))
        if low is not None:
            cells.append((f"{shown(_at(low, i))} to {shown(_at(high, i))}", True))
        lines.append("".join(f"<td{_STYLE[number]}>{escape(text)}</td>" for text, number in cells))
    more = len(answer.keys or ()) - _ROWS
    notes = ([f"… and {more:,} more"] if more > 0 else []) + answer.notes(confidence)
    head = "".join(f"<th{_STYLE[text in right]}>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f"<div><strong>{escape(printable(answer.query))}</strong><table><thead><tr>{head}</tr></thead><tbody>{body}"
        f"</tbody></table><small>{'<br>'.join(escape(printable(note)) for note in notes)}</small></div>"
    )


_STYLE = tuple(f' style="text-align:{side};padding:2px 14px 2px 0"' for side in ("left", "right"))


def _at(ends: Any, i: int) -> Any:
    return ends[i] if np.ndim(ends) else ends


def plotted(answer: Answer, target: Any, confidence: float) -> Axes:
    """The entries from the top down, with their intervals; what says nothing is drawn pale."""
    if answer.ranked:
        raise ValueError(f"{answer.query} names winners and has no values to draw: ask count(groups=..., keys=winners)")
    between = " to " if answer.columns == ("from", "to") else ", "
    keys = [""] if answer.keys is None else [between.join(key_parts(answer, key)) for key in answer.keys]

    def new() -> Any:
        from matplotlib.figure import Figure

        figure: Any = (None if target is not None else _figure()) or Figure
        return figure(figsize=(6.4, 1.2 + 0.32 * min(len(keys), 60)), layout="constrained").add_subplot()

    ax = axes_of(target, "Answer.plot", new)
    if not keys:
        ax.set_title(f"{answer.query}: no group is large enough to be shown", loc="left", fontsize="medium")
        ax.set_axis_off()
        return ax
    values, place = np.atleast_1d(np.asarray(answer.value)), np.arange(len(keys))
    told = np.atleast_1d(answer.informative(confidence))
    shades: Any = np.where(told, 1.0, 0.25)
    if answer.noise_interval is not None:
        low, high = (np.broadcast_to(end, len(keys)) for end in answer.interval(confidence))
        ax.hlines(place, low, high, color=_COLOUR, alpha=shades, linewidth=2.5, zorder=2)
    ax.scatter(values, place, color=_COLOUR, alpha=shades, s=28, zorder=3)
    ax.set_yticks(place, keys)
    ax.invert_yaxis()
    ax.margins(y=0.5 / max(1, len(keys)))
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(answer.query, loc="left", fontsize="medium")
    with_interval = "" if answer.noise_interval is None else f"{100 * confidence:g} % intervals (noise)\n"
    if values.dtype.kind != "M":
        ax.locator_params(axis="x", nbins=6)
    ax.set_xlabel(f"{with_interval}{answer.price}", fontsize="small")
    return ax


def _figure() -> Any:
    """What makes a figure that a notebook or a window shows, where one is in use."""
    import sys

    pyplot = sys.modules.get("matplotlib.pyplot")
    return None if pyplot is None else pyplot.figure
