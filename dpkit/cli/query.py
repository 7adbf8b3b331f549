"""``dpkit query``: one private answer about a CSV or Parquet file, from the command line.

Only the columns that are named are read. What is asked, and what may be spent, are options; whatever the queries refuse
is shown as it is and ends with status 2, before anything was spent.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.text import Text

from dpkit.cli.options import refusal

if TYPE_CHECKING:
    from accounting import Adjacency

__all__ = ["HOW", "query_command"]

_RELATIONS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ][\d:.]+)?)?$")

HOW = (
    "Bounds, keys and edges must be known without looking at the file. With --person the whole of a person is "
    "protected: say by --max-contributions (or --max-groups and --max-per-group, where the answer has one number for "
    "each group) how many rows of one person are used.\n\n"
    "dpkit query survey.csv --mean income --bounds 0 200000 --person id --max-contributions 1 --epsilon 1\n\n"
    "dpkit query visits.parquet --count --groups town --key Linz --key Graz --epsilon 0.5\n\n"
    "dpkit query visits.parquet --count --where 'age >= 18' --where 'town = Linz' --epsilon 0.5\n\n"
    "dpkit query visits.parquet --quantile age -q 0.25 -q 0.5 -q 0.75 --bounds 0 120 --epsilon 1\n\n"
    "dpkit query visits.parquet --histogram age --bins 12 --bounds 0 120 --epsilon 1 --json"
)


def query_command(
    file: Annotated[Path, typer.Argument(help="A CSV file (.csv, also compressed) or a Parquet file.")],
    epsilon: Annotated[float, typer.Option(help="The ε that this answer may cost.")],
    count: Annotated[bool, typer.Option("--count", help="Ask for the number of rows.")] = False,
    sum_: Annotated[str | None, typer.Option("--sum", metavar="COLUMN", help="Ask for a sum.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for a mean.")] = None,
    variance: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for a variance.")] = None,
    histogram: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for counts in --bins bins.")] = None,
    quantile: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for the quantiles -q.")] = None,
    top: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for the -k most frequent of the keys.")] = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="LOW HIGH: values outside are cut to them.", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEST",
            help="Only rows like this: 'age >= 18', 'town = Linz', 'day < 2026-02-01', or 'town', where it is known; "
            "repeatable, for rows that pass all. A row without the value never does.",
        ),
    ] = None,
    q: Annotated[list[float] | None, typer.Option("-q", help="A quantile's rank in [0, 1]; repeatable.")] = None,
    bins: Annotated[int, typer.Option(help="Of the histogram.")] = 10,
    k: Annotated[int, typer.Option("-k", help="How many of the most frequent.")] = 1,
    groups: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="One answer for each value of this column.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A group or candidate to report; repeatable. Counts can do without.")
    ] = None,
    person: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whose row it is.")] = None,
    max_contributions: Annotated[int | None, typer.Option(help="How many rows of one person are used.")] = None,
    max_groups: Annotated[int | None, typer.Option(help="In how many groups one person is counted.")] = None,
    max_per_group: Annotated[int | None, typer.Option(help="How many rows of one person are used in a group.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="The δ it may cost; by default the ledger's, of which groups that are found without --key take a "
            "hundredth, or 0."
        ),
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="replace, add_remove or zero_out; by default the ledger's, or add_remove: the size is private."
        ),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Who is protected; by default the ledger's, or person with --person, else row.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="Record the cost in this ledger (a file or postgresql://…), which may refuse it."),
    ] = None,
    separator: Annotated[str, typer.Option(help="What stands between the columns of a CSV file.")] = ",",
    decimal: Annotated[str, typer.Option(help="The decimal point of a CSV file; a comma, say.")] = ".",
    thousands: Annotated[str | None, typer.Option(help="What parts the thousands in a CSV file.")] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="What else a CSV file writes for a missing value; repeatable."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals in --json.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Ask a file for one private answer.

    dpkit query survey.csv --mean income --bounds 0 200000 --person id --max-contributions 1 --epsilon 1
    """
    asked = {
        "count": "" if count else None, "sum": sum_, "mean": mean, "variance": variance, "histogram": histogram,
        "quantile": quantile, "top_k": top,
    }  # fmt: skip
    chosen = [name for name, column in asked.items() if column is not None]
    options = {
        "bounds": bounds,
        "q": None if q is None else (q[0] if len(q) == 1 else q),
        "bins": bins if histogram is not None else None,
        "k": k if top is not None else None,
        "where": where or None,
        "groups": groups,
        "keys": key,
        "person": person,
        "max_contributions": max_contributions,
        "max_groups": max_groups,
        "max_per_group": max_per_group,
    }
    try:
        if len(chosen) != 1:
            raise ValueError("ask for one of --count, --sum, --mean, --variance, --histogram, --quantile and --top")
        name, column = chosen[0], asked[chosen[0]] or None
        form = _Form(separator, decimal, thousands, tuple(missing or ()))
        answer = _answer(file, form, name, column, options, epsilon, delta, adjacency, unit, ledger)
        shown = json.dumps(answer.to_dict(confidence), ensure_ascii=False) if as_json else repr(answer)
    except (ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        Console(stderr=True).print(Text(f"dpkit: {refusal(_in_options(str(error)))}", style="red"), soft_wrap=True)
        raise typer.Exit(2) from None
    Console().print(Text(shown), soft_wrap=True)


@dataclass(frozen=True)
class _Form:
    """How a CSV file is written."""

    separator: str
    decimal: str
    thousands: str | None
    missing: tuple[str, ...]


# What the queries' refusals call by the names of Python's arguments.
_OPTIONS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"by where=": "by --where COLUMN",
    r"\bcount\(groups=\.\.\.\) without keys=": "--count --groups COLUMN without --key",
    r"\bcount\(groups=\.\.\.\)": "--count --groups COLUMN",
    r"\bkeys(=| must\b)": lambda found: "--key" + found[1].rstrip("="),
    r"\bbudget\.delta\b": "--delta",
    r"\bperson=": "--person",
    r"\bmax_(contributions|groups|per_group)(=\d+)?": lambda found: (
        f"--max-{found[1].replace('_', '-')}" + (found[2] or "").replace("=", " ")
    ),
    r"\bbounds must be given: \(low, high\)": "--bounds must be given: LOW HIGH",
}


def _in_options(message: str) -> str:
    """A refusal with the names of options.

    >>> _in_options("max_groups must be given; give person= too")
    '--max-groups must be given; give --person too'
    """
    for said, option in _OPTIONS.items():
        message = re.sub(said, option, message)
    return message


def _answer(
    file: Path,
    form: _Form,
    name: str,
    column: str | None,
    options: dict[str, Any],
    epsilon: float,
    delta: float | None,
    adjacency: str | None,
    unit: str | None,
    ledger_place: str | None,
) -> Any:
    from accounting import Budget, Ledger
    from dpkit import queries

    ask = getattr(queries, name)
    taken = ask.__kwdefaults__ | ({"q": None} if name == "quantile" else {}) | ({"k": None} if name == "top_k" else {})
    given = {option: value for option, value in options.items() if value is not None}
    if strange := [option for option in given if option not in taken]:
        flags = ", ".join({"q": "-q", "k": "-k", "keys": "--key"}.get(o, "--" + o.replace("_", "-")) for o in strange)
        way = ""
        if "max_contributions" in strange and "max_groups" in taken:
            way = ": it has a number for each bin, so give --max-groups and --max-per-group instead"
        raise ValueError(f"{flags} cannot be combined with --{'top' if name == 'top_k' else name}{way}")
    tests = [_test(text) for text in given.get("where", ())]
    columns = (column, given.get("groups"), given.get("person"), *(test[0] for test in tests))
    data = _read(file, [value for value in columns if value is not None], form)
    if column is not None and name != "top_k":
        _check_numbers(data, column, form)
    if tests:
        given["where"] = _passing(data, tests)
    if "keys" in given:
        given["keys"] = _typed(given["keys"], data[cast(str, given.get("groups", column))])
    ledger = None if ledger_place is None else Ledger.open(ledger_place)
    try:
        allowed = None if ledger is None else ledger.budget
        # δ in which groups may be shown that should not be is spent, and of that a ledger has little
        share = 0.01 if "groups" in given and "keys" not in given else 1.0
        budget = Budget(
            epsilon,
            delta if delta is not None else share * allowed.delta if allowed is not None else 0.0,
            adjacency=cast("Adjacency", adjacency or (allowed.adjacency if allowed is not None else "add_remove")),
            unit=unit or (allowed.unit if allowed is not None else "person" if "person" in given else "row"),
        )
        positional = () if name == "count" else (column,)
        return ask(data, *positional, budget=budget, ledger=ledger, **given)
    finally:
        if ledger is not None:
            ledger.close()


def _read(file: Path, names: list[str], form: _Form) -> Any:
    """The named columns of the file (its first one, where only the number of rows is asked)."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    import pandas as pd

    parquet = file.suffix.lower() in (".parquet", ".pq")
    if parquet:
        from pyarrow import parquet as pq

        there = pq.read_schema(file).names
    else:
        there = pd.read_csv(file, nrows=0, sep=form.separator).columns.tolist()
    if missing := [name for name in names if name not in there]:
        told = f"the file has no column {missing[0]!r}; its columns are {', '.join(map(str, there))}"
        other = [mark for mark in ";\t|," if len(there) == 1 and mark in str(there[0]) and mark != form.separator]
        raise ValueError(told + (f": say --separator {other[0]!r}" if other and not parquet else ""))
    wanted = list(dict.fromkeys(names)) or there[:1]
    if parquet:
        return pd.read_parquet(file, columns=wanted)
    return pd.read_csv(
        file, usecols=wanted, sep=form.separator, decimal=form.decimal, thousands=form.thousands,
        na_values=list(form.missing),
        low_memory=False,  # else a column can hold 1 in one part of the file, and "1" in another
    )  # fmt: skip


def _check_numbers(data: Any, column: str, form: _Form) -> None:
    """A column that is calculated with must hold numbers."""
    import pandas as pd

    values = data[column]
    if getattr(values.dtype, "kind", "O") in "iufb" or isinstance(values.dtype, pd.ArrowDtype):
        return
    known = values.dropna()
    # one text keeps the others as they are written
    written = known.astype(str)
    comma = form.decimal == "." and written.str.fullmatch(r"-?[\d.]+,\d+").any()
    if form.thousands:
        written = written.str.replace(form.thousands, "", regex=False)
    texts = int(pd.to_numeric(written.str.replace(form.decimal, ".", regex=False), errors="coerce").isna().sum())
    way = "--decimal , (and --thousands . where there are any) reads decimal commas; " if comma else ""
    raise ValueError(
        f"the column {column!r} must hold numbers, and {texts:,} of its {len(known):,} values are none: {way}"
        f"--missing TEXT names a text that stands for a missing value, and --where {column!r} leaves those rows out"
    )


def _typed(keys: list[str], column: Any) -> list[Any]:
    """The keys as the column's type: numbers where it holds numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "iuf":
        return list(keys)
    try:
        return [int(key) if kind in "iu" else float(key) for key in keys]
    except ValueError:
        raise ValueError(f"--key must be a number, as the column {column.name!r} is, got {keys!r}") from None


def _test(text: str) -> tuple[str, str, str]:
    """A column, a relation and a value, as text; of a column alone, two empty ones."""
    found = re.fullmatch(r"\s*(.+?)\s*(?:(!=|<=|>=|=|<|>)\s*(.*?)\s*)?", text)
    if found is None:
        raise ValueError(f"--where must be a column, or a column, one of = != < <= > >= and a value, got {text!r}")
    return found[1], found[2] or "", found[3] or ""


def _passing(data: Any, tests: list[tuple[str, str, str]]) -> Any:
    """Which rows pass all tests; none that lacks the value of one."""
    passing: Any = True
    for name, relation, text in tests:
        column, value = data[name], cast(Any, text)
        known = column.notna()
        kind = getattr(column.dtype, "kind", "O")
        if relation and kind in "iuf":
            try:
                value = float(text)
            except ValueError:
                message = f"--where must compare {name!r}, which holds numbers, with one, got {text!r}"
                raise ValueError(message) from None
        elif kind == "b":
            column = column.astype(str)
        # texts have an order that means something where they are dates from the year to the second
        if relation in ("<", "<=", ">", ">=") and kind not in "iufM" and not _DATE.match(text):
            raise ValueError(
                f"--where must ask for = or != of {name!r}, which holds no numbers, or for a date such as 2026-01-31, "
                f"got {relation} {text}"
            )
        if relation in ("<", "<=", ">", ">=") and kind not in "iufM":
            other = int((~column[known].astype(str).str.match(_DATE.pattern)).sum())
            if other:
                raise ValueError(
                    f"--where compares dates as they are written, year first: {other:,} of the {int(known.sum()):,} "
                    f"values of {name!r} are not like 2026-01-31; write them so first"
                )
        passing &= (_RELATIONS[relation](column, value) & known).astype(bool) if relation else known
    return passing
