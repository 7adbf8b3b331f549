"""A SELECT as the questions of a plan: the sentences whose contributions can be bounded, and no others.

    SELECT town, COUNT(*) AS visits, AVG(paid) FROM visits WHERE age >= 18 AND NOT insured GROUP BY town

is understood: one table; COUNT, SUM, AVG, VAR_POP, MEDIAN and PERCENTILE_CONT of a column, each with FILTER (WHERE
…) if need be; WHERE with comparisons, AND, OR, NOT, IN, BETWEEN and IS NULL; GROUP BY columns. Everything else is
refused by the name of its clause: what is not translated must not be run as something near it. Parsed by sqlglot (the
extra ``tables``), in DuckDB's dialect.

SQL does not say what must be public: the bounds of columns and the groups that are reported come beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from dpkit.queries.reports.asks import Ask, What
from dpkit.queries.where_words import quoted, quoted_column

__all__ = ["asks_from_sql"]

_AGGREGATES: dict[str, What] = {"Sum": "sum", "Avg": "mean", "VariancePop": "variance", "Median": "quantile"}
_KNOWN = "COUNT, SUM, AVG, VAR_POP, MEDIAN and PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY …)"
_RELATIONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_INSTEAD = {
    "joins": "JOIN: join the tables before, so that it is plain how many rows of one person there are",
    "having": "HAVING: it would choose groups by exact numbers",
    "distinct": "DISTINCT: values that nobody listed cannot be shown",
    "order": "ORDER BY: sort the answer",
    "limit": "LIMIT: cut the answer",
    "with_": "WITH: ask for one table",
    "with": "WITH: ask for one table",
}
_SELECT = re.compile(r"\s*(select|with|from)\b", re.IGNORECASE)


def asks_from_sql(sql: str, columns: Mapping[str, Mapping[str, Any]]) -> list[Ask]:
    """The questions of a SELECT.

    Parameters
    ----------
    sql : str
        One SELECT from one table.
    columns : mapping of mappings
        What is public of each column: ``{"bounds": (low, high)}`` of one that is calculated with, ``{"keys": [...]}``
        of one that is grouped by.

    Returns
    -------
    list of Ask
        One for each aggregate, named by its alias or its text.

    Raises
    ------
    ValueError
        If a clause cannot be bounded, or bounds or keys are missing; the message names it.
    ImportError
        Without sqlglot.

    Examples
    --------
    >>> public = {"town": {"keys": ["Graz", "Linz"]}, "paid": {"bounds": (0, 500)}}
    >>> for ask in asks_from_sql("SELECT town, COUNT(*) AS n, AVG(paid) FROM v WHERE age >= 18 GROUP BY town", public):
    ...     print(ask.name, "|", ask.what, ask.column, ask.groups, ask.where)
    n | count None town age >= 18
    AVG(paid) | mean paid town age >= 18
    >>> asks_from_sql("SELECT COUNT(DISTINCT id) FROM v", {})
    Traceback (most recent call last):
        ...
    ValueError: COUNT(DISTINCT id) cannot be bounded: the aggregates are COUNT, SUM, AVG, VAR_POP, MEDIAN and ...
    """
    return _Reader(sql, columns).asks()


class _Reader:
    def __init__(self, sql: str, columns: Mapping[str, Mapping[str, Any]]) -> None:
        try:
            import sqlglot
        except ImportError:
            raise ImportError("SQL is read by sqlglot: install the extra 'tables'") from None
        if not isinstance(sql, str) or not sql.strip():
            raise ValueError(f"sql must be a SELECT, got sql={sql!r}")
        if not _SELECT.match(sql):
            raise ValueError(f"sql must be one SELECT, got {sql.split()[0].upper()}")
        try:
            found = [tree for tree in sqlglot.parse(sql, dialect="duckdb") if tree is not None]
        except sqlglot.errors.ParseError as error:
            told = error.errors[0] if error.errors else {}
            where = f" at {told['highlight']!r}" if told.get("highlight") else ""
            raise ValueError(f"sql cannot be read{where}: {told.get('description', 'no SELECT')}") from None
        except sqlglot.errors.TokenError:
            raise ValueError(f"sql cannot be read, a quote or a parenthesis is not closed: {sql!r}") from None
        if len(found) != 1 or type(found[0]).__name__ != "Select":
            kind = f"{len(found)} statements" if len(found) != 1 else type(found[0]).__name__.upper()
            raise ValueError(f"sql must be one SELECT, got {kind}")
        self.tree, self.columns = found[0], columns
        self.table = self._table()

    def asks(self) -> list[Ask]:
        self._check_clauses()
        groups = self._groups()
        where = self.tree.args.get("where")
        test = None if where is None else self._test(where.this)
        out = []
        for item in self.tree.expressions:
            alias = item.alias if _kind(item) == "Alias" else ""
            inner = item.this if _kind(item) == "Alias" else item
            if _kind(inner) == "Column":
                name = self._column(inner)
                if name not in groups:
                    raise ValueError(f"{_text(inner)} in SELECT must be in GROUP BY: single rows are never shown")
                continue
            out.append(self._ask(inner, alias or _text(inner), test, groups))
        if not out:
            raise ValueError(f"SELECT must ask for at least one aggregate: {_KNOWN}")
        return out

    def _table(self) -> set[str]:
        clause = self.tree.args.get("from_") or self.tree.args.get("from")
        if clause is None:
            raise ValueError("FROM must name the table")
        table = clause.this
        if _kind(table) != "Table" or _kind(table.this) != "Identifier" or _given(table) - {"this", "alias"}:
            raise ValueError(f"FROM {_text(table)} cannot be bounded: it must name one table")
        return {table.name, table.alias} - {""}

    def _check_clauses(self) -> None:
        for clause in _given(self.tree) - {"expressions", "from_", "from", "where", "group"}:
            told = _INSTEAD.get(clause) or f"{clause.rstrip('_').upper().replace('_', ' ')}: leave it out"
            raise ValueError(f"this clause cannot be bounded, {told}")

    def _groups(self) -> list[str]:
        clause = self.tree.args.get("group")
        if clause is None:
            return []
        if strange := _given(clause) - {"expressions"}:
            raise ValueError(f"GROUP BY {sorted(strange)[0].upper()} cannot be bounded: group by columns")
        return [self._column(column, "GROUP BY") for column in clause.expressions]

    def _column(self, node: Any, clause: str = "") -> str:
        if _kind(node) != "Column" or _given(node) - {"this", "table"}:
            raise ValueError(f"{clause + ' ' if clause else ''}{_text(node)} cannot be bounded: it must be a column")
        if node.table and node.table not in self.table:
            raise ValueError(f"{_text(node)} must be of the table in FROM, got {node.table!r}")
        return str(node.name)

    def _ask(self, node: Any, name: str, test: str | None, groups: Sequence[str]) -> Ask:
        if _kind(node) == "Filter":
            own = self._test(node.expression.this)
            test, node = (own if test is None else f"({test}) and ({own})"), node.this
        if _kind(node) == "Count" and _kind(node.this) == "Column" and not _given(node) - {"this", "big_int"}:
            known = f"({quoted_column(self._column(node.this))})"  # the rows that have a value there
            return Ask("count", name=name, where=known if test is None else f"({test}) and {known}", **self._by(groups))
        what, column, q = self._aggregate(node)
        options: dict[str, Any] = {"name": name, "where": test, "q": q} | self._by(groups)
        if column is not None:
            options["bounds"] = self._public(column, "bounds", f"{_text(node)} is calculated within")
        return Ask(what, column, **options)

    def _by(self, groups: Sequence[str]) -> dict[str, Any]:
        if not groups:
            return {}
        keys = {group: self._public(group, "keys", "GROUP BY reports") for group in groups}
        return {"groups": groups[0] if len(groups) == 1 else list(groups), "keys": keys}

    def _aggregate(self, node: Any) -> tuple[What, str | None, float | None]:
        """What is asked, of which column, at which rank."""
        kind = _kind(node)
        if kind == "Count" and _kind(node.this) == "Star" and not _given(node) - {"this", "big_int"}:
            return "count", None, None
        if kind in _AGGREGATES and not _given(node) - {"this"}:
            return _AGGREGATES[kind], self._column(node.this, kind.upper()), 0.5 if kind == "Median" else None
        order = node.expression if kind == "WithinGroup" and _kind(node.this) == "PercentileCont" else None
        if order is not None and len(order.expressions) == 1 and not order.expressions[0].args.get("desc"):
            return "quantile", self._column(order.expressions[0].this, "ORDER BY"), self._number(node.this.this)
        if kind in ("PercentileCont", "Quantile") and _kind(node.this) == "Column":  # as DuckDB's QUANTILE_CONT
            return "quantile", self._column(node.this), self._number(node.expression or node.args.get("quantile"))
        also = "; VAR_POP is the variance of the rows" if kind in ("Variance", "Stddev", "StddevSamp") else ""
        raise ValueError(f"{_text(node)} cannot be bounded: the aggregates are {_KNOWN}{also}")

    def _public(self, column: str, what: str, why: str) -> Any:
        found = self.columns.get(column, {}).get(what)
        if found is None:
            raise ValueError(f"{why} public {what}: say the {what} of the column {column!r}")
        return found

    def _number(self, node: Any) -> float:
        return float(self._written(node))

    def _written(self, node: Any) -> str:
        """A number as it is written, with one sign at most."""
        negative = False
        while _kind(node) in ("Neg", "Paren"):
            negative, node = negative != (_kind(node) == "Neg"), node.this
        if _kind(node) != "Literal" or node.is_string:
            raise ValueError(f"{_text(node)} must be a number")
        return f"{'-' * negative}{node.this}"

    def _test(self, node: Any) -> str:
        """A condition in the words of ``where``."""
        kind = _kind(node)
        if kind in ("And", "Or"):
            return f"({self._test(node.this)}) {kind.lower()} ({self._test(node.expression)})"
        if kind in ("Not", "Paren"):
            inner = self._test(node.this)
            return f"not ({inner})" if kind == "Not" else inner
        if kind == "Column":
            return f"{quoted_column(self._column(node))} = true"
        if kind in _RELATIONS:
            return self._compared(node, _RELATIONS[kind])
        if kind == "Between" and not _given(node) - {"this", "low", "high"}:
            column = quoted_column(self._column(node.this, "WHERE"))
            return f"{column} >= {self._value(node.args['low'])} and {column} <= {self._value(node.args['high'])}"
        if kind == "In" and not _given(node) - {"this", "expressions"}:
            values = ", ".join(self._value(value) for value in node.expressions)
            return f"{quoted_column(self._column(node.this, 'WHERE'))} in ({values})"
        if kind == "Is" and _kind(node.expression) == "Null":
            return f"not {quoted_column(self._column(node.this, 'WHERE'))}"
        raise ValueError(
            f"WHERE {_text(node)} cannot be translated: a condition compares a column with a value, by = <> < <= > >= "
            "IN BETWEEN IS NULL, joined by AND, OR and NOT"
        )

    def _compared(self, node: Any, relation: str) -> str:
        left, right = node.this, node.expression
        if _kind(left) != "Column" and _kind(right) == "Column":
            left, right = right, left
            relation = relation.translate(str.maketrans("<>", "><"))
        return f"{quoted_column(self._column(left, 'WHERE'))} {relation} {self._value(right)}"

    def _value(self, node: Any) -> str:
        kind = _kind(node)
        if kind == "Boolean":
            return "true" if node.this else "false"
        if (
            kind in ("Cast", "TryCast")
            and str(node.to).upper() in ("DATE", "TIMESTAMP")
            and _kind(node.this) == "Literal"
        ):
            return quoted(str(node.this.this))
        if kind == "Literal" and node.is_string:
            return quoted(str(node.this))
        if kind in ("Literal", "Neg", "Paren"):
            return self._written(node)
        raise ValueError(f"WHERE compares with {_text(node)}: it must be a value")


def _kind(node: Any) -> str:
    return type(node).__name__


def _given(node: Any) -> set[str]:
    """Which parts of a node are there."""
    return {name for name, value in node.args.items() if value not in (None, False, [], "")}


def _text(node: Any) -> str:
    return cast(Callable[..., str], node.sql)(dialect="duckdb")
