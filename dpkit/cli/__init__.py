"""The command ``dpkit``: private questions to a table, prices of noise, and budgets in ledgers.

Descriptions are written as in Python, ``1000 * Gaussian(2.0) + PureDP(0.1)``, and read by ``dpkit.cli.expression``.
A command imports what it needs when it runs, so that the others start at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dpkit.cli.audits import audit_command
from dpkit.cli.costs import HOW, calibrate_command, check_command, epsilon_command, verify_command
from dpkit.cli.explain import explain_command
from dpkit.cli.ledgers import ledger_app
from dpkit.cli.options import Command
from dpkit.cli.query import HOW as QUERY_HOW
from dpkit.cli.query import query_command
from dpkit.cli.report import REPORT_HOW, SQL_HOW, QueryCommand, report_command
from dpkit.cli.reproduce import reproduce_command

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from accounting import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Ask a table one private question or many, price noise, and keep budgets in ledgers."""


app.command("epsilon", cls=Command, epilog=HOW)(epsilon_command)
app.command("calibrate", cls=Command, epilog=HOW)(calibrate_command)
app.command("check", cls=Command, epilog=HOW)(check_command)
app.command("verify", cls=Command)(verify_command)
app.command("explain", cls=Command, epilog=HOW)(explain_command)
app.command("audit", cls=Command)(audit_command)
app.add_typer(ledger_app, name="ledger")
app.command("query", cls=QueryCommand, epilog=f"{QUERY_HOW}\n\n{SQL_HOW}")(query_command)
app.command("report", cls=Command, epilog=REPORT_HOW)(report_command)
app.command("reproduce", cls=Command)(reproduce_command)
