"""Results on disk: JSON (one entry per run), CSV and Parquet (one long table), all without loss.

A ``.jsonl`` file, which a simulation writes as it goes (:mod:`dpbandits.lab.simulation.runlog`), can be read too.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from dpbandits._extras import need
from dpbandits.lab.simulation.results import Results, Run
from dpbandits.policy.protocol import PrivacyReport

__all__ = ["columns", "entry", "from_entry", "read", "write"]

_FORMAT = "dpbandits-results-1"
_CURVES = ("round", "reward", "regret", "seconds")
_PRIVACY = tuple(field.name for field in fields(PrivacyReport))
_COLUMNS = ("environment", "planned_runs", "policy", "algorithm", "seed", "untold", *_CURVES, *_PRIVACY)


def write(results: Results, path: Path) -> Path:
    """Write in the format that the suffix names."""
    suffix = _checked_suffix(path)
    if suffix == ".json":
        path.write_text(json.dumps(_document(results), allow_nan=False) + "\n", encoding="utf-8")
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


def read(path: Path) -> Results:
    """The inverse of :func:`write`."""
    suffix = _checked_suffix(path, ".jsonl")
    try:
        if suffix == ".jsonl":
            from dpbandits.lab.simulation import runlog

            return runlog.read(path)
        if suffix == ".json":
            return _from_document(json.loads(path.read_text(encoding="utf-8")))
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
        one |= {name: getattr(run.privacy, name) for name in _PRIVACY}
        for name, value in one.items():
            table[name] += [value] * len(run.round)
        for name in _CURVES:
            table[name] += getattr(run, name).tolist()
    return table


def _from_columns(table: dict[str, list[Any]]) -> Results:
    keys = list(zip(table["policy"], table["seed"], strict=True))
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    runs = []
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        one = {name: table[name][start] for name in _COLUMNS}
        # CSV knows only text
        privacy = {name: float(one[name]) for name in ("epsilon", "delta", "left")}
        privacy |= {name: one[name] for name in ("trust", "adjacency", "unit")}
        privacy["simulation"] = str(one["simulation"]) == "True"
        runs.append(_run(one, {name: table[name][start:stop] for name in _CURVES}, privacy))
    return Results(table["environment"][0], tuple(runs), int(table["planned_runs"][0]))


def _document(results: Results) -> dict[str, Any]:
    head = {"format": _FORMAT, "environment": results.environment, "planned_runs": results.planned_runs}
    runs = [entry(run) for run in results.runs]
    return head | {"complete": results.complete, "simulation": results.simulation, "runs": runs}


def entry(run: Run) -> dict[str, Any]:
    """One run for JSON."""
    one: dict[str, Any] = {name: getattr(run, name) for name in ("policy", "algorithm", "seed", "untold")}
    one |= {name: getattr(run, name).tolist() for name in _CURVES}
    if np.isnan(run.regret).any():
        one["regret"] = None
    # JSON has no infinity: null stands for it
    privacy = {name: getattr(run.privacy, name) for name in _PRIVACY}
    return one | {"privacy": {k: None if v == math.inf else v for k, v in privacy.items()}}


def _from_document(document: dict[str, Any]) -> Results:
    if document["format"] != _FORMAT:
        raise ValueError(f"format must be {_FORMAT!r}, got {document['format']!r}")
    return Results(document["environment"], tuple(map(from_entry, document["runs"])), document["planned_runs"])


def from_entry(one: dict[str, Any]) -> Run:
    """The inverse of :func:`entry`."""
    privacy = {name: math.inf if value is None else value for name, value in one["privacy"].items()}
    curves = {name: one[name] for name in _CURVES}
    if curves["regret"] is None:
        curves["regret"] = [math.nan] * len(curves["round"])
    return _run(one, curves, privacy)


def _run(one: dict[str, Any], curves: dict[str, list[Any]], privacy: dict[str, Any]) -> Run:
    noted = np.array(curves["round"], dtype=np.int64)
    reward, regret, seconds = (np.array(curves[name], dtype=np.float64) for name in ("reward", "regret", "seconds"))
    head = (str(one["policy"]), str(one["algorithm"]), int(one["seed"]))
    return Run(*head, noted, reward, regret, seconds, PrivacyReport(**privacy), int(one["untold"]))


def _checked_suffix(path: Path, *more: str) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".json", ".csv", ".parquet", *more):
        raise ValueError(f"path must end in .json, .csv or .parquet, got {path}")
    return suffix
