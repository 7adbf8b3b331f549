"""A row of the speed table: a job, what it is measured against, and the goal.

Both take turns in one process, so that whatever else the machine does weighs on both, and the ratio is the median of
the turns'. A ratio travels from machine to machine, milliseconds do not: what is committed, and compared with, are
ratios. A ratio has got worse if it is more than ``TOLERANCE`` times the committed one.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FIGURES", "Figure", "Row", "document", "line", "measure", "read", "write"]

Job = Callable[[], object]
FIGURES = Path(__file__).with_name("figures.json")
TOLERANCE = 1.3
_SECONDS, _LEAST, _MOST = 2.0, 3, 15


@dataclass(frozen=True)
class Row:
    """``ours`` against ``other``, which is called ``against``.

    Parameters
    ----------
    count
        What a call of either is divided by: elements, rounds, calls of the thing that is timed.
    most
        The largest ratio that is good enough; None where the row is for the record.
    waits
        The time on the wall, for what waits for a disk; otherwise the processor's, children included.
    """

    name: str
    ours: Job
    other: Job
    against: str
    count: int = 1
    most: float | None = None
    waits: bool = False


@dataclass(frozen=True)
class Figure:
    """Seconds of the fastest turns, each per counted thing, and the median and the quartiles of the turns' ratios."""

    ours: float
    other: float
    ratio: float
    quartiles: tuple[float, float]


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(row: Row) -> Figure:
    """Take turns for about two seconds, at least three times."""
    clock = time.perf_counter if row.waits else _processor
    row.ours()  # what a first call loads, and keeps, is not what is measured
    row.other()
    turns: list[tuple[float, float]] = []
    begun = time.perf_counter()
    while len(turns) < _LEAST or (len(turns) < _MOST and time.perf_counter() - begun < _SECONDS):
        start = clock()
        row.ours()
        middle = clock()
        row.other()
        turns.append((middle - start, clock() - middle))
    ratios = sorted(ours / max(other, 1e-9) for ours, other in turns)
    return Figure(
        min(ours for ours, _ in turns) / row.count,
        min(other for _, other in turns) / row.count,
        ratios[len(ratios) // 2],
        (ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]),
    )


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _judged(ratio: float, most: float | None) -> str:
    return "" if most is None else f"at most {most:g}: {'met' if ratio <= most else 'missed'}"


def line(row: Row, figure: Figure, committed: float | None) -> tuple[str, bool]:
    """The row as text, and whether it got worse than what was committed."""
    worse = committed is not None and figure.quartiles[0] > TOLERANCE * committed < figure.ratio
    low, high = figure.quartiles
    before = "" if committed is None else f"before {committed:.3g}" + (" WORSE" if worse else "")
    return (
        f"{row.name:56.56} {_time(figure.ours):>8} {_time(figure.other):>8} {figure.ratio:8.3g} "
        f"[{low:.3g}, {high:.3g}] × {row.against}  {_judged(figure.ratio, row.most)}  {before}".rstrip(),
        worse,
    )


def read() -> dict[str, dict[str, dict[str, float | str]]]:
    """The committed figures, by area and row."""
    return dict(json.loads(FIGURES.read_text(encoding="utf-8"))) if FIGURES.exists() else {}


def write(area: str, measured: Mapping[Row, Figure]) -> None:
    """Put an area's figures in the place of those committed."""
    known = read()
    known[area] = {
        row.name: {
            "seconds": float(f"{figure.ours:.3g}"),
            "ratio": float(f"{figure.ratio:.3g}"),
            "against": row.against,
            **({} if row.most is None else {"most": row.most}),
        }
        for row, figure in measured.items()
    }
    FIGURES.write_text(json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def document(areas: Iterable[str]) -> str:
    """The committed figures as Markdown."""
    known, parts = read(), []
    for area in areas:
        parts += [f"### {area.capitalize()}", "", "| | takes | ratio | to | goal |", "|---|---|---|---|---|"]
        for name, kept in known.get(area, {}).items():
            seconds, ratio, most = float(kept["seconds"]), float(kept["ratio"]), kept.get("most")
            goal = _judged(ratio, None if most is None else float(most))
            parts.append(f"| {name} | {_time(seconds)} | {ratio:.3g} | {kept['against']} | {goal} |")
        parts.append("")
    return "\n".join(parts)
