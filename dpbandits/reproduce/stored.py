"""What was found of a figure, in a JSON file: what the documentation's page is made of, and checked against."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpbandits.reproduce.figure import Figure, Row

__all__ = ["read", "write", "write_lines"]

_FOUND = (
    "rounds",
    "seeds",
    "regret",
    "regret_se",
    "exponent",
    "seconds_per_round",
    "trust",
    "epsilon",
    "delta",
    "simulation",
)


def write(path: Path, table: Sequence[Row]) -> None:
    """One line of JSON for each row of the table."""
    write_lines(path, map(_plain, table))


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSON list with a line for each row, in a folder that is made where it is missing."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def _plain(row: Row) -> dict[str, Any]:
    plain: dict[str, Any] = {"panel": row.panel, "line": row.line.name, "parameters": row.line.parameters}
    # JSON has neither infinity nor NaN: null stands for them
    plain |= {name: _or_none(row.found[name]) for name in _FOUND}
    return plain | {"regrets": {str(seed): regret for seed, regret in row.regrets.items()}}


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path, figure: Figure) -> list[Row]:
    """The rows of a figure as it is described now.

    Raises
    ------
    ValueError
        If the file is of other panels, lines, parameters or rounds than the figure's: something was changed, and the
        figure was not made again.
    """
    lines = {(panel.title, line.name): (panel, line) for panel in figure.panels for line in panel.lines}
    told = {(one["panel"], one["line"]): one for one in json.loads(path.read_text(encoding="utf-8"))}
    again = f"run `dpbandits reproduce {path.stem} --docs docs`"
    odd = sorted(f"{panel}: {line}" for panel, line in lines.keys() ^ told.keys())
    if odd:
        raise ValueError(f"{path.name} must have the figure's lines: {again}; in one of the two only: {'; '.join(odd)}")
    table = []
    for (title, name), (panel, line) in lines.items():
        one = told[title, name]
        now, then = (line.parameters, panel.rounds), (one["parameters"], one["rounds"])
        if now != then:
            raise ValueError(
                f"{path.name} must be of the figure as it is: {again}; {title}: {name} had {then}, not {now}"
            )
        found = {key: one[key] for key in _FOUND}
        unknown = {"regret_se": math.nan, "exponent": math.nan, "epsilon": math.inf}
        found |= {key: unknown[key] for key in unknown if one[key] is None}
        table.append(Row(title, line, found, {int(seed): regret for seed, regret in one["regrets"].items()}))
    return table
