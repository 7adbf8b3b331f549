"""The answers of a plan, as a table, as files, and as a page that people who are no analysts can read."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Budget, Release
from accounting.checks import fraction
from accounting.printed import as_html, as_text
from accounting.text import printable
from dpkit.queries._drawn import shown
from dpkit.queries.answer import Answer
from dpkit.queries.reports.asks import answers_said
from dpkit.queries.reports.page import page

__all__ = ["Report"]

_COLUMNS = ("answer", "key", "value", "low", "high", "rows_off", "informative")
_LEFT_OUT = "What is left out by these bounds on one {} is not in the intervals."


@dataclass(frozen=True, eq=False)
class Report(Mapping[str, Answer]):
    """Answers by name; a function of what was released, to be published.

    Attributes
    ----------
    title : str
    answers : mapping of Answer
    cost : Release
        Of all answers together, as the ledger has it.
    budget : Budget
        What they were allowed to cost.
    epsilon : float
        What they cost at the budget's δ.
    made : datetime
    simulation : bool
        The noise came from a seeded generator: nothing here is private.
    where : mapping of str
        By name, which rows an answer is about, where it is not about all and its name does not say so.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit import queries
    >>> plan = queries.plan([queries.Ask("count", name="rows")], budget=Budget(1e6, 0.0, adjacency="add_remove"))
    >>> report = plan.run([1, 2, 3])
    >>> report["rows"].value
    3
    >>> print(report.to_csv())
    answer,key,value,low,high,rows_off,informative,counts
    rows,,3,3,3,,True,
    <BLANKLINE>
    """

    title: str
    answers: dict[str, Answer]
    cost: Release
    budget: Budget
    epsilon: float
    made: datetime
    simulation: bool
    where: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Answer:
        if name not in self.answers:
            raise KeyError(f"{name!r} is none of the answers {list(self.answers)!r}")
        return self.answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def rows(self, confidence: float = 0.95) -> list[dict[str, Any]]:
        """One mapping for each number: answer, key, value, low, high, rows_off (of a choice by rank), informative.

        ``key`` is empty for an answer of one number, and has the parts of a cell with " / " between them. Dates are
        texts.
        """
        fraction("confidence", confidence)
        out: list[dict[str, Any]] = []
        for name, answer in self.answers.items():
            low, high = answer.interval(confidence) if answer.noise_interval is not None else (None, None)
            off = None if answer.rows_bound is None else answer.rows_off(confidence)
            entries: tuple[Any, ...] = (answer.value, low, high, off, answer.informative(confidence))
            for i, key in enumerate((None,) if answer.keys is None else answer.keys):
                found = [_plain(entry[i] if np.ndim(entry) else entry) for entry in entries]
                told = "" if key is None else " / ".join(_parts(answer, key))
                out.append(dict(zip(_COLUMNS, (name, told, *found), strict=True)))
        return out

    def to_frame(self, confidence: float = 0.95) -> Any:
        """The rows as a data frame of pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows(confidence), columns=list(_COLUMNS))

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Everything that may be published, in types that JSON knows."""
        return {
            "title": self.title,
            "made": self.made.isoformat(timespec="seconds"),
            "epsilon": self.epsilon,
            "delta": self.budget.delta,
            "adjacency": self.budget.adjacency,
            "unit": self.budget.unit,
            "cost": repr(self.cost),
            "simulation": self.simulation,
            "confidence": confidence,
            "uses": {name: answer.uses for name, answer in self.answers.items() if answer.uses},
            "where": self.where,
            "rows": self.rows(confidence),
        }

    def to_json(self, path: str | os.PathLike[str] | None = None, confidence: float = 0.95) -> str:
        """:meth:`to_dict` as text, written to ``path`` if there is one."""
        return _written(path, json.dumps(self.to_dict(confidence), ensure_ascii=False, indent=1) + "\n")

    def to_csv(self, path: str | os.PathLike[str] | None = None, confidence: float = 0.95) -> str:
        """The rows as comma-separated values, written to ``path`` if there is one; ``counts`` says of which rows."""
        text = io.StringIO()
        table = csv.DictWriter(text, (*_COLUMNS, "counts"), lineterminator="\n")
        table.writeheader()
        counts = {name: "; ".join(self._counts(name)) for name in self.answers}
        for row in self.rows(confidence):
            row["counts"] = counts[row["answer"]]
            for name in ("answer", "key"):
                if row[name].startswith(("=", "+", "-", "@")) and not _number(row[name]):
                    row[name] = "'" + row[name]  # which a spreadsheet would take for a formula
            table.writerow({name: "" if value is None else value for name, value in row.items()})
        return _written(path, text.getvalue())

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """A page of its own, which loads nothing from elsewhere, written to ``path`` if there is one."""
        text = page(
            self.answers,
            self.rows(),
            title=self.title,
            made=self.made,
            epsilon=self.epsilon,
            budget=self.budget,
            cost=self.cost,
            simulation=self.simulation,
        )
        return _written(path, text)

    def __repr__(self) -> str:
        return "\n".join([self.headline(), as_text(self.cells()), *self.notes()])

    def _repr_html_(self) -> str:
        return as_html(self.headline(), self.cells()) + "".join(f"<div>{escape(note)}</div>" for note in self.notes())

    def headline(self) -> str:
        """What is printed above it."""
        kind = "SIMULATION, not private; " if self.simulation else ""
        return (
            f"{self.title}: {answers_said(len(self))}, {kind}cost ε = {self.epsilon:.4g} at δ = {self.budget.delta:g}, "
            f"counts one {self.budget.unit}"
        )

    def notes(self) -> list[str]:
        """What is printed below it: of which rows the answers are."""
        told: dict[str, list[str]] = {}
        for name in self.answers:
            for counts in self._counts(name):
                told.setdefault(counts, []).append(printable(name))
        out = [
            f"{'Every answer' if len(names) == len(self) > 1 else ', '.join(names)}: {printable(counts)}"
            for counts, names in told.items()
        ]
        limited = any(answer.uses for answer in self.answers.values())
        return [*out, _LEFT_OUT.format(self.budget.unit)] if limited else out

    def _counts(self, name: str) -> list[str]:
        """Which rows an answer counts: those that it asks about, and of one unit no more than so many."""
        uses, where = self.answers[name].uses, self.where.get(name, "")
        known = re.fullmatch(r"\(?([^\W\d][\w.]*)\)?", where)  # a column alone
        where = f"{known[1]} is known" if known else where
        return ([f"only rows where {where}"] if where else []) + ([f"counts {uses}"] if uses else [])

    def cells(self) -> list[list[str]]:
        """The table that is printed, its head first."""
        out = [["answer", "key", "value", "95 % interval"]]
        for row in self.rows():
            between = f"[{_shown(row['low'])}, {_shown(row['high'])}]" if row["low"] is not None else ""
            if row["rows_off"] is not None and not between:
                between = f"off by at most {row['rows_off']:,.0f} rows"
            value = _shown(row["value"]) if row["informative"] else "no information"
            out.append([row["answer"], row["key"], value, between])
        return out


def _parts(answer: Answer, key: Any) -> list[str]:
    parts = key if len(answer.columns) > 1 and isinstance(key, tuple) else (key,)
    return [shown(part) if isinstance(part, (float, np.datetime64)) else printable(str(part)) for part in parts]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return shown(value)
    return value.item() if isinstance(value, np.generic) else value


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _written(path: str | os.PathLike[str] | None, text: str) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text
