"""The page of reproduced figures, ``docs/reproducing.md``: blocks between marks, written by ``dpbandits reproduce``.

Words around the blocks are written by hand; what is between two marks is made of the files in ``tables/reproduce``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpbandits.reproduce import FIGURES, load
from dpbandits.reproduce.confront import confronted
from dpbandits.reproduce.figure import Figure, Row
from dpbandits.reproduce.report import tables
from dpbandits.reproduce.stored import read, write

__all__ = ["PAGE", "block", "image_at", "overview", "publish", "stored_at", "with_block"]

PAGE = "reproducing.md"
_OVERVIEW = "the list of figures"


def stored_at(docs: Path, name: str) -> Path:
    """The file of a figure."""
    return docs / "tables" / "reproduce" / f"{name}.json"


def image_at(docs: Path, name: str) -> Path:
    """Its picture."""
    return docs / "images" / f"reproduce-{name}.png"


def publish(docs: Path, name: str, table: Sequence[Row]) -> None:
    """Keep what was found, and write the figure's block, and the list of figures, anew."""
    write(stored_at(docs, name), table)
    text = (docs / PAGE).read_text(encoding="utf-8")
    text = with_block(text, name, block(name, load(name), table))
    (docs / PAGE).write_text(with_block(text, _OVERVIEW, overview(docs)), encoding="utf-8")


def with_block(text: str, name: str, content: str) -> str:
    """The page with another block of that name.

    Raises
    ------
    ValueError
        If the page has no such marks.
    """
    start, end = f"<!-- {name}: written by dpbandits reproduce -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{PAGE} must have the marks {start} and {end}")
    return f"{before}{start}\n{content.strip()}\n{end}{after}"


def block(name: str, figure: Figure, table: Sequence[Row]) -> str:
    """What the page says of a figure: what is not reached, the picture and the tables."""
    parts = [f"`dpbandits reproduce {name}`", confronted(figure, table), figure.note]
    parts.append(f"![{figure.title}](images/reproduce-{name}.png)")
    return "\n\n".join(part for part in [*parts, *tables(table)] if part)


def overview(docs: Path) -> str:
    """Every figure with its seeds and the time of all its runs in the policies, by the clock of busy processors."""
    lines = ["| name | figure | seeds | minutes |", "|---|---|---:|---:|"]
    for name, (_, words) in FIGURES.items():
        if not stored_at(docs, name).exists():
            lines.append(f"| `{name}` | {words} | not run | |")
            continue
        table = read(stored_at(docs, name), load(name))
        seeds = sorted({int(row.found["seeds"]) for row in table})
        minutes = sum(row.seconds * row.found["seeds"] for row in table) / 60.0
        shown = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        lines.append(f"| `{name}` | {words} | {shown} | {minutes:.2g} |")
    return "\n".join(lines)
