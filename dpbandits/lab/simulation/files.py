"""Results on disk: JSON (one entry per run), CSV and Parquet (one long table), all without loss.

A ``.jsonl`` file, which a simulation writes as it goes (:mod:`dpbandits.lab.simulation.runlog`), can be read too.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbandits._extras import need
from dpbandits.lab.simulation import runlog
from dpbandits.lab.simulation.runs import CURVES, PRIVACY, Run, entry, from_entry

if TYPE_CHECKING:
    from dpbandits.lab.simulation.results import Results

__all__ = ["Found", "columns", "read", "write"]

_FORMAT = "dpbandits-results-1"
_COLUMNS = ("environment", "planned_runs", "policy", "algorithm", "seed", "untold", *CURVES, *PRIVACY)

# what a Results is made of: the environment's name, the runs, and how many were planned
Found = tuple[str, tuple[Run, ...], int]


def write(results: Results, path: Path) -> Path:
    """Write in the format that the suffix names."""
    suffix = _checked_suffix(path)
    if suffix == ".json":
        head = {"format": _FORMAT, "environment": results.environment, "planned_runs": results.planned_runs}
        head |= {"complete": results.complete, "simulation": results.simulation}
        document = head | {"runs": list(map(entry, results.runs))}
        path.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
    elif suffix == ".csv":
        table = columns(results)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
    else:
        table = need("pyarrow", "saving Parquet").table(columns(results))
        need("pyarrow.parquet", "saving Parquet").write_table(table, path)
    return path


def read(path: Path) -> Found:
    """What :func:`write` wrote, or a simulation as it went."""
    suffix = _checked_suffix(path, ".jsonl")
    try:
        if suffix == ".jsonl":
            return runlog.read(path)
        if suffix == ".json":
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise ValueError(f"format must be {_FORMAT!r}, got {document['format']!r}")
            return document["environment"], tuple(map(from_entry, document["runs"])), document["planned_runs"]
        if suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            return _from_columns({name: [row[name] for row in rows] for name in _COLUMNS})
        parquet = need("pyarrow.parquet", "loading Parquet")
        return _from_columns(parquet.ParquetFile(path).read(columns=list(_COLUMNS)).to_pydict())
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"path must hold results that were saved by this package, got {path}: {error}") from error


def columns(results: Results) -> dict[str, list[Any]]:
    """The long table, one row per run and noted round, as columns of plain values."""
    table: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for run in results.runs:
        one = {"environment": results.environment, "planned_runs": results.planned_runs}
        one |= {name: getattr(run, name) for name in ("policy", "algorithm", "seed", "untold")}
        one |= {name: getattr(run.privacy, name) for name in PRIVACY}
        for name, value in one.items():
            table[name] += [value] * len(run.round)
        for name in CURVES:
            table[name] += getattr(run, name).tolist()
    return table


def _from_columns(table: dict[str, list[Any]]) -> Found:
    keys = list(zip(table["policy"], table["seed"], strict=True))
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    runs = []
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        one = {name: table[name][start] for name in _COLUMNS}
        # CSV knows only text
        privacy = {name: float(one[name]) for name in ("epsilon", "delta", "left")}
        privacy |= {name: one[name] for name in ("trust", "adjacency", "unit")}
        privacy["simulation"] = str(one["simulation"]) == "True"
        one |= {name: table[name][start:stop] for name in CURVES}
        runs.append(from_entry(one | {"privacy": privacy}))
    return table["environment"][0], tuple(runs), int(table["planned_runs"][0])


def _checked_suffix(path: Path, *more: str) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".json", ".csv", ".parquet", *more):
        raise ValueError(f"path must end in .json, .csv or .parquet, got {path}")
    return suffix
