"""A report as a file: what is asked, what is public of the columns, and what it may cost, in TOML.

title = "Visits in October"
person = "id"
max_contributions = 4
max_groups = 3
max_per_group = 2
rows = 30_000                       # a public guess, which errors of means are foretold with

[budget]
epsilon = 1.0
delta = 1e-6
unit = "person"

[columns]
paid.bounds = [0, 400]
town.keys = ["Graz", "Linz"]

[[answers]]
what = "mean"
column = "paid"
groups = "town"                     # bounds and keys are those of the columns
within = 2.5

[[answers]]
sql = "SELECT COUNT(*) AS visits FROM visits WHERE paid >= 20"
"""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting import Budget
from dpkit.queries._where import named_columns, parse
from dpkit.queries.reports.asks import Ask
from dpkit.queries.reports.plans import Plan, plan
from dpkit.queries.reports.sql import asks_from_sql

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PlanFile", "read_plan"]

_SETTINGS = ("title", "person", "max_contributions", "max_groups", "max_per_group", "rows", "noise")
_BUDGET = ("epsilon", "delta", "adjacency", "unit")
_OF_COLUMN = ("bounds", "keys")
_ANSWER = tuple(name for name in inspect.signature(Ask.__init__).parameters if name != "self")
# what an answer in SQL may say besides
_WITH_SQL = ("within", "weight", "rows", "max_contributions", "max_groups", "max_per_group")


@dataclass(frozen=True)
class PlanFile:
    """What a file asks for; ``plan`` makes the plan."""

    asks: tuple[Ask, ...]
    budget: Mapping[str, Any]
    settings: Mapping[str, Any]
    columns: Mapping[str, Mapping[str, Any]]

    def plan(self, *, ledger: Ledger | None = None, **budget: Any) -> Plan:
        """The plan, with parts of the budget that replace those of the file where they are not None."""
        stated = dict(self.budget) | {name: value for name, value in budget.items() if value is not None}
        if "epsilon" not in stated:
            raise ValueError("budget must say the epsilon that all answers together may cost")
        unit = "person" if "person" in self.settings else "row"
        made = Budget(
            stated["epsilon"],
            stated.get("delta", 0.0),
            adjacency=stated.get("adjacency", "add_remove"),
            unit=stated.get("unit", unit),
        )
        return plan(self.asks, budget=made, ledger=ledger, **self.settings)

    def asking(self, sql: str) -> PlanFile:
        """The same columns and settings, and the questions of a SELECT."""
        return replace(self, asks=tuple(asks_from_sql(sql, self.columns)))

    def of_texts(self) -> PlanFile:
        """The same of a CSV file, whose columns of groups are texts: keys of whole numbers and truth are written so."""
        asks = [ask if ask.keys is None else replaced(ask, {"keys": _written(ask.keys)}) for ask in self.asks]
        return replace(self, asks=tuple(asks))

    def named_columns(self) -> list[str]:
        """The columns of the data that are needed."""
        found: list[str | None] = [self.settings.get("person")]
        for ask in self.asks:
            groups = ask.groups if isinstance(ask.groups, tuple) else (ask.groups,)
            found += [ask.column, *groups, *(named_columns(parse(ask.where)) if ask.where is not None else ())]
        return list(dict.fromkeys(name for name in found if name is not None))


def read_plan(path: str | os.PathLike[str]) -> PlanFile:
    """Read a file as above; what it does not know is refused by name.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "visits.toml"
    >>> text = "budget.epsilon = 1.0\\ncolumns.paid.bounds = [0, 400]\\nanswers = [{what = 'mean', column = 'paid'}]"
    >>> _ = path.write_text(text)
    >>> read_plan(path).plan(delta=1e-6).errors
    {'mean of paid': None}
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as TOML: {error}") from None
    _check("it", found, ("budget", "columns", "answers", *_SETTINGS))
    budget, columns = found.get("budget", {}), found.get("columns", {})
    _check("budget", budget, _BUDGET)
    for name, column in columns.items() if isinstance(columns, dict) else [("columns", columns)]:
        _check(f"columns.{name}", column, _OF_COLUMN)
    asks: list[Ask] = []
    for i, answer in enumerate(found.get("answers", []), 1):
        asks += _asks(f"answers, number {i}", answer, columns)
    settings = {name: found[name] for name in _SETTINGS if name in found}
    return PlanFile(tuple(asks), budget, settings, columns)


def _asks(place: str, answer: Any, columns: Mapping[str, Mapping[str, Any]]) -> Sequence[Ask]:
    if isinstance(answer, dict) and "sql" in answer:
        _check(place, answer, ("sql", *_WITH_SQL))
        more = {name: answer[name] for name in _WITH_SQL if name in answer}
        return [replaced(ask, more) for ask in asks_from_sql(answer["sql"], columns)]
    _check(place, answer, _ANSWER)
    if "what" not in answer:
        raise ValueError(f"{place} must say what is asked: what = 'count', or sql = 'SELECT …'")
    given = dict(answer)
    of_column = columns.get(given.get("column", ""), {})
    instead = "candidates" in given or isinstance(given.get("bins"), list)
    if "bounds" not in given and "bounds" in of_column and not instead:
        given["bounds"] = of_column["bounds"]
    groups = given.get("groups")
    if groups is not None and "keys" not in given:
        names = [groups] if isinstance(groups, str) else list(groups)
        for name in names:
            if "keys" not in columns.get(name, {}):
                raise ValueError(f"{place} groups by {name!r}: say its keys, as keys or as columns.{name}.keys")
        given["keys"] = {name: columns[name]["keys"] for name in names}
    return [Ask(given.pop("what"), given.pop("column", None), **given)]


def replaced(ask: Ask, more: Mapping[str, Any]) -> Ask:
    """An ask with other options."""
    given = {name: getattr(ask, name) for name in _ANSWER} | dict(more)
    return Ask(given.pop("what"), given.pop("column"), **given)


def _written(key: Any) -> Any:
    """Keys as a CSV file has them; a real number can be written in several ways, which are different texts."""
    if isinstance(key, Mapping):
        return {name: _written(keys) for name, keys in key.items()}
    if isinstance(key, (list, tuple)):
        return type(key)(map(_written, key))
    if isinstance(key, float):
        raise ValueError(f"keys of a CSV file must be texts, as they are written there, got {key!r}: write '{key!r}'")
    return str(key).lower() if isinstance(key, bool) else str(key) if isinstance(key, int) else key


def _check(place: str, found: Any, known: Sequence[str]) -> None:
    if not isinstance(found, dict):
        raise ValueError(f"{place} must be a table of TOML, got {found!r}")
    if strange := [name for name in found if name not in known]:
        raise ValueError(f"{place} has {strange[0]!r}, which is none of {', '.join(known)}")
