"""``dpkit audit``: does a ledger verify, add up, and stay within its budget?"""

from __future__ import annotations

from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpkit.cli.options import Witness, brief, check_targets
from dpkit.cli.printing import accountant_name, ledger_name, left, opened_ledger, print_table, refusals, say

if TYPE_CHECKING:
    from accounting import Ledger
    from accounting.audit import Report

__all__ = ["audit_command", "print_report"]


def audit_command(
    ledger: Annotated[
        str, typer.Argument(help="A ledger's file, a database (postgresql://…), or what Ledger.to_json wrote.")
    ],
    html: Annotated[Path | None, typer.Option(help="Also write the report to this file, as one HTML page.")] = None,
    json: Annotated[
        Path | None, typer.Option(help="Also write the report to this file, as JSON; - prints it in place of the text.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of the totals; by default the budget's.")] = None,
    expected_head: Annotated[
        str | None, typer.Option(help="A head that was noted earlier; the ledger must still contain it.")
    ] = None,
    witness: Witness = None,
) -> None:
    """Verify a ledger, add it up again under every accountant, and hold it against its budget.

    Exit status: 0 if all is well, 1 if the budget is passed, or the chain or a sum is wrong, 2 without a ledger.

    dpkit audit releases.ledger --html report.html
    """
    made = datetime.now(UTC)
    with refusals():
        check_targets({"--html": html, "--json": None if str(json) == "-" else json}, read=(ledger, witness))
        name = ledger_name(ledger)
        from accounting import LedgerCorrupted
        from accounting.audit import recompute
        from dpkit.cli.page import broken_page, page

        try:
            opened = opened_ledger(ledger, expected_head, witness)
            opened.close()  # what is read from here on is one state of it, whatever others add meanwhile
            report = recompute(opened, delta=delta)
            text = page(opened, report, name=name, made=made) if html is not None else ""
        except LedgerCorrupted as error:
            if html is not None:
                html.write_text(broken_page(str(error), name=name, made=made), encoding="utf-8")
            say(f"The ledger does not verify. {error}", style="bold red")
            raise typer.Exit(1) from None
        if html is not None:
            html.write_text(text, encoding="utf-8")
        if json is not None:
            facts = {"name": name, "made": made.isoformat(), "head": opened.head, **report.to_dict()}
            report_text = dumps(facts, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
            if str(json) == "-":
                typer.echo(report_text, nl=False)
            else:
                json.write_text(report_text, encoding="utf-8")
    if str(json) != "-":
        print_report(opened, report)
        for written in (html, json):
            if written is not None:
                say(f"Report written to {written}")
    if report.within_budget is False or report.problems:
        raise typer.Exit(1)


def print_report(ledger: Ledger, report: Report) -> None:
    from dpkit.cli.page import most_spent, verdict

    style, sentence = verdict(report)
    budget = report.budget
    facts = [
        ("budget", "none" if budget is None else f"ε = {budget.epsilon:g} at δ = {budget.delta:g}"),
        ("counts", "" if budget is None else f"one {budget.unit}, {budget.adjacency}"),
        ("filter", accountant_name(ledger.accountant)),
        ("left", "" if budget is None else f"ε = {left(ledger)}, as the filter counts it{_booked(report)}"),
        ("releases", f"{report.rows:,}"),
        ("head", ledger.head),
    ]
    for name, value in facts:
        if value and not (budget is None and name == "filter"):
            say(f"{name:<9} {value}")
    if report.epsilons:
        print_table(
            [("accountant", "left"), (f"ε at δ = {report.delta:g}", "right"), ("", "left")],
            [
                (accountant_name(name), f"{value:.6g}", "smallest" if index == 0 and len(report.epsilons) > 1 else "")
                for index, (name, value) in enumerate(report.epsilons.items())
            ],
        )
    if report.at_least > 0:
        say(f"No proof can give less than ε = {report.at_least:.6g} for this total.")
    if report.scopes:
        shown = most_spent(report.scopes)
        print_table(
            [
                *[("scope", "left"), ("rows", "right"), ("ε met there", "right"), ("quota ε", "right")],
                *[("spent ε", "right"), ("booked ε", "right")],
            ],
            [
                (
                    one.scope,
                    f"{one.rows:,}",
                    f"{one.epsilon:.6g}",
                    "" if one.quota is None else f"{one.quota.epsilon:g} at δ = {one.quota.delta:g}",
                    "" if one.spent is None else f"{one.spent:.6g}",
                    "" if one.booked is None else f"{one.booked:.6g}",
                )
                for one in shown
            ],
        )
        if len(shown) < len(report.scopes):
            say(f"{len(report.scopes) - len(shown):,} other scopes have no quota and met less.")
    if report.largest_costs:
        print_table(
            [("row", "right"), ("largest costs", "left"), ("description", "left"), ("ε alone", "right")],
            [
                (str(index), label, brief(release), f"{alone:.6g}")
                for index, label, release, alone in report.largest_costs
            ],
        )
    for problem in report.problems:
        say(f"problem: {problem}", style="red")
    say(sentence, style={"good": "bold green", "bad": "bold red", "open": "bold yellow"}[style])


def _booked(report: Report) -> str:
    return "" if report.booked is None else f": it has booked ε = {report.booked:.6g}"
