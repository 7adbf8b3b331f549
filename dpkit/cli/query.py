"""``dpkit query``: one private answer about a CSV or Parquet file, from the command line.

Only the columns that are named are read. What is asked, and what may be spent, are options; whatever the queries refuse
is shown as it is and ends with status 2, before anything was spent.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.text import Text

from dpkit.cli.options import Decimal, Missing, Separator, Thousands, Witness, paid_for, refusal
from dpkit.cli.printing import spending_ledger
from dpkit.cli.tables import Form, check_dates, check_numbers, group_labels, read_columns, typed_keys

if TYPE_CHECKING:
    from accounting import Adjacency

__all__ = ["HOW", "query_command"]

HOW = (
    "Bounds, keys and edges must be known without looking at the file. With --person the whole of a person is "
    "protected: say by --max-contributions (or --max-groups and --max-per-group, where the answer has one number for "
    "each group) how many rows of one person are used.\n\n"
    "dpkit query survey.csv --mean income --bounds 0 200000 --person id --max-contributions 1 --epsilon 1\n\n"
    "dpkit query visits.parquet --count --groups town --key Linz --key Graz --epsilon 0.5\n\n"
    "dpkit query visits.csv --mean paid --bounds 0 500 --groups town --key Linz --key Graz --person id --max-groups 2 "
    "--max-per-group 1 --epsilon 0.5 --ledger visits.ledger\n\n"
    "One command is one answer. Several answers share a budget through one --ledger, or in one dpkit report.\n\n"
    "dpkit query visits.parquet --count --groups town --groups sex --key town=Linz --key sex=f --key sex=m "
    "--epsilon 0.5\n\n"
    "dpkit query visits.parquet --count --where 'age >= 18 and not town in (Linz, Graz)' --epsilon 0.5\n\n"
    "dpkit query visits.parquet --quantile age -q 0.25 -q 0.5 -q 0.75 --bounds 0 120 --epsilon 1\n\n"
    "dpkit query visits.parquet --histogram day --bins 12 --bounds 2025-01-01 2026-01-01 --epsilon 1 --json\n\n"
    "dpkit query visits.parquet --contribution-bound max_contributions --person id --epsilon 0.1\n\n"
    "--json prints one object: query, value, keys and columns (one entry of value for each key; the parts of a key are "
    "called by columns), low and high at this confidence, noise_std, rows_off, informative (false: the interval leaves "
    "nothing out), uses (what of one person is in it), epsilon, delta, adjacency, unit, cost. What an answer does not "
    "have is left out. Dates are texts, and noise_std of dates is in days."
)


def query_command(
    file: Annotated[Path, typer.Argument(help="A CSV file (.csv, also compressed) or a Parquet file.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The ε that this answer may cost.")],
    count: Annotated[bool, typer.Option("--count", help="Ask for the number of rows.")] = False,
    sum_: Annotated[str | None, typer.Option("--sum", metavar="COLUMN", help="Ask for a sum.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for a mean.")] = None,
    variance: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for a variance.")] = None,
    histogram: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for counts in --bins bins.")] = None,
    quantile: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Ask for the quantiles -q; without -q the median.")
    ] = None,
    top: Annotated[str | None, typer.Option(metavar="COLUMN", help="Ask for the -k most frequent of the keys.")] = None,
    contribution_bound: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Ask for max_contributions, max_groups or max_per_group that --share of persons keep."
        ),
    ] = None,
    share_cut: Annotated[
        bool, typer.Option("--share-cut", help="Ask for the share of rows that the bounds on a person leave out.")
    ] = False,
    bounds: Annotated[
        tuple[str, str] | None,
        typer.Option(help="LOW HIGH, numbers or dates: values outside are cut to them.", show_default=False),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEST",
            help="Only rows like this: 'age >= 18', 'town = Linz', 'day < 2026-02-01', 'town in (Linz, Graz)', or "
            "'town', if it is known. Join tests by and, or, not and parentheses; repeat the option for rows that pass "
            "all. Relations are = (or ==) != < <= > >= in. Put names with such a sign or word into quotes. Of a CSV "
            "file a value is compared as what it is, a number, a date, true or false, or (zip = '1010') a text. A "
            "row without the value never passes.",
        ),
    ] = None,
    q: Annotated[list[float] | None, typer.Option("-q", help="A quantile's rank in [0, 1]; repeatable.")] = None,
    bins: Annotated[int, typer.Option(help="Number of bins of the histogram.")] = 10,
    k: Annotated[int, typer.Option("-k", help="How many of the most frequent.")] = 1,
    groups: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="One answer for each value of this column; repeatable, for a cross-table."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="A group or candidate to report; repeat it for each. Counts may leave it out where δ > 0. Of a CSV "
            "file it is the text that is written there: 3.1 is not 3.10. In a cross-table COLUMN=VALUE stands for all "
            "cells with these values, and VALUE,VALUE for one cell."
        ),
    ] = None,
    person: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whose row it is; protects persons.")] = None,
    max_contributions: Annotated[int | None, typer.Option(help="At most so many rows of one person are used.")] = None,
    max_groups: Annotated[int | None, typer.Option(help="One person is counted in at most so many groups.")] = None,
    max_per_group: Annotated[
        int | None, typer.Option(help="At most so many rows of one person in a group are used.")
    ] = None,
    share: Annotated[float, typer.Option(help="Share of the persons who keep the --contribution-bound.")] = 0.95,
    largest: Annotated[int, typer.Option(help="The largest --contribution-bound that may be the answer.")] = 100,
    at_most: Annotated[
        int | None, typer.Option(help="How many rows of one person --share-cut looks at; by default ten times as many.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="The δ that this answer may cost; by default the ledger's (a hundredth of it, if groups are found "
            "without --key), or 0."
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
    witness: Witness = None,
    separator: Separator = ",",
    decimal: Decimal = ".",
    thousands: Thousands = None,
    missing: Missing = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Ask a file for one private answer.

    dpkit query survey.csv --mean income --bounds 0 200000 --person id --max-contributions 1 --epsilon 1
    """
    asked = {
        "count": "" if count else None, "sum": sum_, "mean": mean, "variance": variance, "histogram": histogram,
        "quantile": quantile, "top_k": top, "contribution_bound": None if contribution_bound is None else "",
        "share_cut": "" if share_cut else None,
    }  # fmt: skip
    chosen = [name for name, column in asked.items() if column is not None]
    options = {
        "bounds": bounds,
        "bound": contribution_bound,
        "share": None if contribution_bound is None else share,
        "largest": None if contribution_bound is None else largest,
        "at_most": at_most,
        "q": None if q is None else (q[0] if len(q) == 1 else q),
        "bins": bins if histogram is not None else None,
        "k": k if top is not None else None,
        "where": where or None,
        "groups": groups or None,
        "keys": key or None,
        "person": person,
        "max_contributions": max_contributions,
        "max_groups": max_groups,
        "max_per_group": max_per_group,
    }
    column = None
    try:
        from accounting.checks import fraction

        if len(chosen) != 1:
            raise ValueError(
                "ask for one of --count, --sum, --mean, --variance, --histogram, --quantile, --top, "
                "--contribution-bound and --share-cut; several answers share a budget through one --ledger, or in "
                "one dpkit report"
            )
        name, column = chosen[0], asked[chosen[0]] or None
        fraction("confidence", confidence)
        form = Form(separator, decimal, thousands, tuple(missing or ()))
        answer = _answer(file, form, name, column, options, epsilon, delta, adjacency, unit, ledger, witness)
        shown = json.dumps(answer.to_dict(confidence), ensure_ascii=False) if as_json else answer.in_words(confidence)
    except (ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        told = refusal(_in_options(str(error), column, groups, person))
        Console(stderr=True).print(Text(f"dpkit: {told}", style="red"), soft_wrap=True)
        raise typer.Exit(2) from None
    with paid_for(lambda: shown):
        Console().print(Text(shown), soft_wrap=True)


# What the queries' refusals call by the names of Python's arguments.
_OPTIONS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"\bcount\(groups=\.\.\.\) without keys=": "--count --groups COLUMN without --key",
    r"\bcount\(groups=\.\.\.\)": "--count --groups COLUMN",
    r"\bkeys(=| must\b)": lambda found: "--key" + found[1].rstrip("="),
    r"\bbudget\.delta\b": "--delta",
    r"\bperson=": "--person",
    r"^bound must\b": "--contribution-bound must",
    r"\bgot bound=": "got --contribution-bound ",
    r"\bmax_(contributions|groups|per_group)(=\d+)?": lambda found: (
        f"--max-{found[1].replace('_', '-')}" + (found[2] or "").replace("=", " ")
    ),
    r"\bbounds must be given: \(low, high\)": "--bounds must be given: LOW HIGH",
}


def _in_options(
    message: str, column: str | None = None, groups: list[str] | None = None, person: str | None = None
) -> str:
    """A refusal with the names of options, and of the columns that lack values.

    >>> _in_options("max_groups must be given; give person= too")
    '--max-groups must be given; give --person too'
    >>> _in_options("column must be finite: leave their rows out by where=", "paid")
    'column must be finite: leave their rows out by --where paid'
    """
    known: dict[str, list[str | None]] = {"column": [column], "groups": [*(groups or [])], "person": [person]}
    test = " and ".join(name for name in known.get(message.split(" ")[0], ()) if name)
    test = shlex.quote(test) if test else "COLUMN"
    message = message.replace("by where=", f"by --where {test}")
    for said, option in _OPTIONS.items():
        message = re.sub(said, option, message)
    return message


def _answer(
    file: Path,
    form: Form,
    name: str,
    column: str | None,
    options: dict[str, Any],
    epsilon: float,
    delta: float | None,
    adjacency: str | None,
    unit: str | None,
    ledger_place: str | None,
    witness: str | None,
) -> Any:
    import numpy as np

    from accounting import Budget
    from dpkit import queries
    from dpkit.queries._columns import check_bounds, chosen
    from dpkit.queries._dates import is_dated
    from dpkit.queries._where import named_columns, parse

    ask = getattr(queries, name)
    taken = ask.__kwdefaults__ | ({"q": None} if name == "quantile" else {}) | ({"k": None} if name == "top_k" else {})
    given = {option: value for option, value in options.items() if value is not None}
    if strange := [option for option in given if option not in taken]:
        flags = ", ".join(
            {"q": "-q", "k": "-k", "keys": "--key", "bound": "--contribution-bound"}.get(o, "--" + o.replace("_", "-"))
            for o in strange
        )
        way = ""
        if "max_contributions" in strange and "max_groups" in taken:
            way = ": it has a number for each bin, so give --max-groups and --max-per-group instead"
        raise ValueError(
            f"{flags} cannot be combined with --{'top' if name == 'top_k' else name.replace('_', '-')}{way}"
        )
    groups: list[str] = given.get("groups", [])
    if len(set(groups)) < len(groups):
        raise ValueError(f"--groups must name each column once, got {', '.join(groups)}")
    tests = [parse(text) for text in given.get("where", ())]
    columns = (column, *groups, given.get("person"), *(named for test in tests for named in named_columns(test)))
    if "bounds" in given:
        given["bounds"] = _bounds(given["bounds"])
    if name in ("sum", "mean", "variance", "quantile"):
        check_bounds(given.get("bounds"))
    data = read_columns(file, [value for value in columns if value is not None], form)
    if column is not None and name != "top_k":
        if is_dated(given.get("bounds")):
            check_dates(data, column)
        else:
            check_numbers(data, column, form)
    if tests:
        given["where"] = np.logical_and.reduce([chosen(data, test) for test in tests])
    keyed = groups or ([column] if name == "top_k" and column is not None else [])
    if "keys" in given and keyed:
        given["keys"] = typed_keys(given["keys"], data, keyed)
    group_labels(data, keyed)
    if "bound" in given:
        given["bound"] = given["bound"].lstrip("-").replace("-", "_")
    ledger = spending_ledger(ledger_place, witness)
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
        positional = () if column is None else (column,)
        return ask(data, *positional, budget=budget, ledger=ledger, **given)
    finally:
        if ledger is not None:
            ledger.close()


def _bounds(bounds: tuple[str, str]) -> tuple[Any, Any]:
    """Numbers, or dates as they are written."""
    try:
        return float(bounds[0]), float(bounds[1])
    except ValueError:
        pass
    from dpkit.queries._dates import as_dates

    as_dates("bounds", list(bounds), private=False)
    return bounds
