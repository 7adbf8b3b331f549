"""``dpkit report``: many private answers about a file, planned together; and ``dpkit query --sql``.

A file in TOML says what is asked and what may be spent (``dpkit.queries.reports.plan_files``). Without data, or with
``--dry-run``, the plan is shown and nothing is spent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpkit.cli.options import Command, Decimal, Missing, Separator, Thousands, Witness, check_targets, paid_for
from dpkit.cli.printing import print_table, refusals, say, spending_ledger
from dpkit.cli.tables import Form, check_asked, is_parquet, read_columns

if TYPE_CHECKING:
    from dpkit.queries import Ask, Plan, Report

__all__ = ["REPORT_HOW", "SQL_HOW", "QueryCommand", "report_command", "sql_command"]

REPORT_HOW = (
    "The plan names the answers, the accuracy wanted or a weight of each, what is public of the columns, and the "
    "budget of all together:\n\n"
    "budget = {epsilon = 1.0, delta = 1e-6, unit = 'person'}\n\n"
    "columns.paid.bounds = [0, 400]\n\n"
    "columns.town.keys = ['Graz', 'Linz']\n\n"
    "answers = [{what = 'mean', column = 'paid', groups = 'town', within = 2.5}, "
    "{sql = 'SELECT COUNT(*) AS visits FROM visits WHERE paid >= 20'}]\n\n"
    "dpkit report visits.toml\n\n"
    "dpkit report visits.toml visits.parquet --html report.html --ledger team.ledger"
)

SQL_HOW = (
    "In SQL, with what is public of the columns in a file as of dpkit report:\n\n"
    "dpkit query visits.csv --sql 'SELECT town, COUNT(*), AVG(paid) FROM visits GROUP BY town' --columns visits.toml "
    "--epsilon 1"
)

_Ledger = Annotated[
    str | None, typer.Option(help="Record the cost in this ledger (a file or postgresql://…), which may refuse it.")
]
_Dry = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and spend nothing.")]
_Html = Annotated[Path | None, typer.Option(help="Write the report as a page to this file.")]
_Csv = Annotated[Path | None, typer.Option(help="Write the report as CSV to this file.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def report_command(
    plan: Annotated[Path, typer.Argument(help="What is asked, in TOML.")],
    file: Annotated[Path | None, typer.Argument(help="A CSV file (.csv, also compressed) or a Parquet file.")] = None,
    dry_run: _Dry = False,
    html: _Html = None,
    csv: _Csv = None,
    as_json: _Json = False,
    ledger: _Ledger = None,
    witness: Witness = None,
    separator: Separator = ",",
    decimal: Decimal = ".",
    thousands: Thousands = None,
    missing: Missing = None,
) -> None:
    """Plan many answers from one budget, and ask a file for them.

    dpkit report visits.toml visits.parquet --html report.html
    """
    with refusals():
        from dpkit.queries.reports.plan_files import read_plan

        if not plan.is_file():
            raise FileNotFoundError(f"there is no file {plan}")
        check_targets({"--html": html, "--csv": csv}, read=(plan, file, ledger, witness))
        asked, form = read_plan(plan), Form(separator, decimal, thousands, tuple(missing or ()))
        with _in_words_of(asked.asks):
            _run(asked, file, form, dry_run or file is None, html, csv, as_json, (ledger, witness), {})


def sql_command(
    file: Annotated[Path, typer.Argument(help="A CSV file (.csv, also compressed) or a Parquet file.")],
    sql: Annotated[str, typer.Option(help="One SELECT: aggregates of one table, WHERE, GROUP BY.")],
    columns: Annotated[
        Path, typer.Option(help="What is public, in TOML: bounds and keys of columns, person, as in dpkit report.")
    ],
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", "-e", help="The ε of all answers; else as in --columns.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The δ; else as in --columns, or 0.")] = None,
    dry_run: _Dry = False,
    html: _Html = None,
    csv: _Csv = None,
    as_json: _Json = False,
    ledger: _Ledger = None,
    witness: Witness = None,
    separator: Separator = ",",
    decimal: Decimal = ".",
    thousands: Thousands = None,
    missing: Missing = None,
) -> None:
    """Ask a file for private answers in SQL.

    dpkit query visits.csv --sql "SELECT town, COUNT(*) FROM visits GROUP BY town" --columns visits.toml --epsilon 1
    """
    with refusals():
        from dpkit.queries.reports.plan_files import read_plan

        if not columns.is_file():
            raise FileNotFoundError(f"there is no file {columns}")
        check_targets({"--html": html, "--csv": csv}, read=(columns, file, ledger, witness))
        asked, form = read_plan(columns).asking(sql), Form(separator, decimal, thousands, tuple(missing or ()))
        spent: dict[str, float | None] = {"epsilon": epsilon, "delta": delta}
        with _in_words_of(asked.asks, sql=True):
            _run(asked, file, form, dry_run, html, csv, as_json, (ledger, witness), spent)


# what others call it
_ELSEWHERE = {
    "--avg": "--mean COLUMN",
    "--average": "--mean COLUMN",
    "--median": "--quantile COLUMN",
    "--group": "--groups COLUMN",
    "--group-by": "--groups COLUMN",
    "--by": "--groups COLUMN",
    "--columns": "--sql 'SELECT …' with it",
    "--eps": "--epsilon or -e",
}


# of which one command answers one
_QUESTIONS = {"--sum", "--mean", "--variance", "--histogram", "--quantile", "--top", "--contribution-bound", "--sql"}


class _Once(Command):
    """A command that refuses what is given twice and means one thing: else the last would be taken without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """The options, each once unless it is repeatable."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option in order:
            several = option.multiple or getattr(option, "is_flag", False)
            if option.param_type_name != "option" or several or order.count(option) < 2:
                continue
            name = max(option.opts, key=len)
            way = "give it once"
            if name in _QUESTIONS:
                way = "ask for one of them; several answers share a budget through one --ledger, or in one dpkit report"
            raise typer.BadParameter(f"{name} is given more than once: {way}")
        return super().parse_args(ctx, args)


class QueryCommand(_Once):
    """``dpkit query``, which is another command where it is asked in SQL."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Of this command, or of the one for SQL."""
        if any(arg == "--sql" or arg.startswith("--sql=") for arg in args):
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command("query", cls=_Once)(sql_command)
            return typer.main.get_command(app).make_context(info_name, args, parent, **extra)
        for arg, value in zip(args, [*args[1:], ""], strict=True):
            name = arg.partition("=")[0]
            if name in _ELSEWHERE:
                raise typer.BadParameter(f"There is no option {name}: say {_ELSEWHERE[name]}")
            if name == "--bounds" and ("," in value or "=" in arg):
                raise typer.BadParameter("--bounds takes two values with a space between them: --bounds 0 300")
        return super().make_context(info_name, args, parent, **extra)


@contextmanager
def _in_words_of(asks: Sequence[Ask], *, sql: bool = False) -> Iterator[None]:
    """What is refused, with the ways out as a plan, or SQL, has them: the queries name the arguments of Python."""
    try:
        yield
    except (TypeError, ValueError) as error:
        said = str(error)
        found = [ask for ask in asks if said.startswith(f"{ask.name!r}: ")]
        words = said.removeprefix(f"{found[0].name!r}: ").split() if found else []
        column = {"column": found[0].column, "groups": found[0].groups}.get(words[0]) if words else None
        told = said.replace("by where=", f"by {_test(column, sql)}")
        told = re.sub(r"--where '([^']*)'", lambda name: _test(name[1], sql), told)
        told = told.replace("--bounds 2025-01-01 2026-01-01", "['2025-01-01', '2026-01-01']").replace(
            "--bounds", "bounds"
        )
        if told == said:
            raise
        raise type(error)(told) from None


def _test(column: object, sql: bool) -> str:
    """How a plan, or SQL, asks for the rows that have a value in a column."""
    name = column if isinstance(column, str) else "COLUMN"
    return f"WHERE {name} IS NOT NULL" if sql else f"where = \"('{name}')\""


def _run(
    asked: Any,
    file: Path | None,
    form: Form,
    dry: bool,
    html: Path | None,
    csv: Path | None,
    as_json: bool,
    place: tuple[str | None, str | None],
    budget: dict[str, float | None],
) -> None:
    from contextlib import nullcontext

    try:
        opened = spending_ledger(*place) or nullcontext()
    except FileNotFoundError as error:
        if "no ledger" not in str(error):
            raise
        raise FileNotFoundError(
            f"{error}, with --epsilon, --delta, --unit and --adjacency as in the plan's budget"
        ) from None
    with opened as ledger:
        if file is not None and not is_parquet(file):
            asked = asked.of_texts()
        plan = asked.plan(ledger=ledger, **budget)
        if dry or file is None:
            _show_plan(plan)
            return
        data = read_columns(file, asked.named_columns(), form)
        check_asked(data, plan.asks, form)
        report = plan.run(data)
    # shown first: what has been paid for is not lost where a file cannot be written
    failed = []
    try:
        with paid_for(report.to_json):
            if as_json:
                sys.stdout.write(report.to_json())
            else:
                _show(report)
    except OSError as error:
        failed.append(str(error))
    for write, path in ((report.to_html, html), (report.to_csv, csv)):
        try:
            if path is not None:
                write(path)
        except (OSError, ValueError, RuntimeError) as error:
            failed.append(f"{path} could not be written: {error}")
    if failed:
        raise OSError(f"{'; '.join(failed)}; the answers are above, and paid for")


def _show_plan(plan: Plan) -> None:
    head, *rows = plan.cells()
    say(plan.headline(), style="bold")
    print_table([(name, "right" if name in ("numbers", "share") else "left") for name in head], rows)


def _show(report: Report) -> None:
    head, *rows = report.cells()
    say(report.headline(), style="bold")
    print_table([(name, "right" if name == "value" else "left") for name in head], rows)
    for note in report.notes():
        say(note)
