"""The lines of a table in a CSV file, and running those that are missing."""

from __future__ import annotations

import csv
import io
import signal
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from multiprocessing import active_children
from typing import Any, TypeVar

__all__ = ["completed", "read", "to_csv"]

Line = TypeVar("Line")

_KINDS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "float | None": lambda value: float(value) if value else None,
    "bool": lambda value: value == "True",
}


def to_csv(rows: Sequence[Any]) -> str:
    """All columns of instances of one dataclass, one line each; None is empty."""
    text = io.StringIO()
    names = [field.name for field in fields(rows[0])] if rows else []
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value is None else value for name, value in asdict(row).items()})
    return text.getvalue()


def read(kind: type[Line], text: str) -> list[Line]:
    """The instances of that dataclass which :func:`to_csv` wrote.

    Raises
    ------
    ValueError
        If the columns are not its fields.
    """
    reader = csv.DictReader(io.StringIO(text))
    columns = fields(kind)  # type: ignore[arg-type]
    names = [column.name for column in columns]
    if reader.fieldnames != names:
        raise ValueError(f"text must have the columns {', '.join(names)}, got {reader.fieldnames}")
    return [kind(**{c.name: _KINDS[str(c.type)](line[c.name]) for c in columns}) for line in reader]


def completed(
    order: Sequence[Hashable],
    found: dict[Any, Line],
    make: Callable[[Any], Line],
    jobs: int,
    progress: Callable[[list[Line], int], object] | None,
) -> list[Line]:
    """``make(key)`` for every key of ``order`` that is not ``found``, by so many processes; all lines in their order.

    ``progress`` is called with the lines so far, after each new one, and how many there will be.
    """
    missing = [key for key in order if key not in found]

    def take(key: Hashable, line: Line) -> None:
        found[key] = line
        if progress is not None:
            progress([found[key] for key in order if key in found], len(order))

    if jobs == 1:
        for key in missing:
            take(key, make(key))
    else:
        others = set(active_children())
        with ProcessPoolExecutor(jobs, initializer=_ignore_interrupts) as pool:
            futures = {pool.submit(make, key): key for key in missing}
            try:
                for future in as_completed(futures):
                    take(futures[future], future.result())
            except KeyboardInterrupt:
                # a line may take many minutes, and nothing of it is kept
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(active_children()) - others:
                    worker.terminate()
                raise
    return [found[key] for key in order]


def _ignore_interrupts() -> None:
    """In a worker: Ctrl-C reaches all processes of a terminal, and the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
