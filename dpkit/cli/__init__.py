"""The command ``dpkit``: what noise costs, how much of it is needed, and whether a ledger adds up.

Descriptions are written as in Python, ``1000 * Gaussian(2.0) + PureDP(0.1)``, and read by ``dpkit.cli.expression``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, cast

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import accounting
from accounting import Adjacency, Budget, Gaussian, Laplace, Ledger, LedgerCorrupted, PoissonSubsampled, PureDP, Release
from accounting.audit import Report, recompute
from accounting.releases import Composed, TreeAggregation
from dpkit.cli.expression import Expression, names
from dpkit.cli.page import NAMES, broken_page, page, verdict
from dpkit.cli.query import HOW as QUERY_HOW
from dpkit.cli.query import query_command
from dpkit.cli.reproduce import reproduce_command

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="What noise costs, how much of it a budget needs, and whether a ledger of releases adds up.",
)

_HOW = (
    "A DESCRIPTION is a sum of releases, each with its noise relative to the sensitivity, written as in Python:\n\n"
    "'1000 * Gaussian(2.0) + PureDP(0.1)'\n\n"
    "'TreeAggregation(5.0, steps=1023) + 12 * Laplace(20.0)'\n\n"
    "'10000 * PoissonSubsampled(Gaussian(1.0), rate=0.01)'\n\n"
    "'parallel(Laplace(1.0), Laplace(2.0))'\n\n"
    f"The names are {', '.join(sorted(names()))}."
)


@app.command("epsilon", epilog=_HOW)
def epsilon_command(
    delta: Annotated[float, typer.Option(help="The δ at which ε is stated; 0 asks for pure DP.")],
    description: Annotated[str | None, typer.Argument(help="What is released, as text; see below.")] = None,
    gaussian: Annotated[
        list[float] | None,
        typer.Option(help="Gaussian noise: its standard deviation over the L2 sensitivity. Repeat it for several."),
    ] = None,
    laplace: Annotated[
        list[float] | None, typer.Option(help="Laplace noise: its scale over the L1 sensitivity. Repeatable.")
    ] = None,
    subsampled: Annotated[
        list[float] | None, typer.Option(help="Gaussian noise on a Poisson sample of --rate. Repeatable.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="The sampling rate of --subsampled.")] = None,
    tree: Annotated[
        list[float] | None,
        typer.Option(help="Running sums over --steps by a binary tree: the noise of a node. Repeatable."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The length of the stream of --tree.")] = None,
    pure: Annotated[list[float] | None, typer.Option(help="Any mechanism of this pure ε. Repeatable.")] = None,
    count: Annotated[int, typer.Option(help="How many times all of it is released.")] = 1,
) -> None:
    """Show the ε of a description at a δ, under every accountant that applies.

    What is given as text and by options is released together, --count times.

    dpkit epsilon --gaussian 2.0 --count 1000 --delta 1e-6
    """
    with _refusals():
        parts: list[Release] = [] if description is None else [Expression(description)()]
        parts += [Gaussian(z) for z in gaussian or ()]
        parts += [Laplace(z) for z in laplace or ()]
        for z in subsampled or ():
            if rate is None:
                raise ValueError("--subsampled needs --rate")
            parts.append(PoissonSubsampled(Gaussian(z), rate))
        for z in tree or ():
            if steps is None:
                raise ValueError("--tree needs --steps")
            parts.append(TreeAggregation(z, steps))
        parts += [PureDP(value) for value in pure or ()]
        if not parts:
            raise ValueError("nothing is released: give a DESCRIPTION or an option such as --gaussian 2.0")
        release = count * sum(parts, start=_NOTHING)
        found = accounting.compare(release, delta)
    _print_accountants(release, found, delta)


@app.command("calibrate", epilog=_HOW)
def calibrate_command(
    description: Annotated[
        str, typer.Argument(help="What is released, as text, with z for the noise multiplier to be found; see below.")
    ],
    epsilon: Annotated[float, typer.Option(help="The ε that may be spent.")],
    delta: Annotated[float, typer.Option(help="The δ that may be spent.")],
    adjacency: Annotated[
        str, typer.Option(help="How two neighbouring inputs differ: replace, add_remove or zero_out.")
    ] = "replace",
) -> None:
    """Find the smallest noise multiplier z with which a description meets a budget.

    dpkit calibrate "100 * Gaussian(z)" --epsilon 1 --delta 1e-6
    """
    with _refusals():
        budget = Budget(epsilon, delta, adjacency=cast(Adjacency, adjacency))
        make = Expression(description)
        if not make.has_unknown:
            raise ValueError("the description must contain z, the noise multiplier to be found: 'Gaussian(z)', say")
        z = accounting.calibrate(make, budget)
        found = accounting.compare(make(z), delta)
    _print(f"z = {z!r}")
    _print_accountants(make(z), found, delta)


@app.command("audit")
def audit_command(
    ledger: Annotated[Path, typer.Argument(help="A ledger's file, or what Ledger.to_json wrote.")],
    html: Annotated[Path | None, typer.Option(help="Also write the report to this file, as one HTML page.")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of the totals; by default the budget's.")] = None,
    expected_head: Annotated[
        str | None, typer.Option(help="A head that was noted earlier; the ledger must still contain it.")
    ] = None,
) -> None:
    """Verify a ledger, add it up again under every accountant, and hold it against its budget.

    Exit status: 0 if all is well, 1 if the budget is passed, the chain is broken or the sum is wrong, 2 if there
    is no such ledger.

    dpkit audit releases.ledger --html report.html
    """
    made = datetime.now(UTC)
    with _refusals():
        try:
            opened = _opened(ledger, expected_head)
            opened.close()  # what is read from here on is one state of it, whatever others add meanwhile
            report = recompute(opened, delta=delta)
            text = page(opened, report, name=ledger.name, made=made) if html is not None else ""
        except LedgerCorrupted as error:
            if html is not None:
                html.write_text(broken_page(str(error), name=ledger.name, made=made), encoding="utf-8")
            _print(f"The ledger does not verify. {error}", style="bold red")
            raise typer.Exit(1) from None
        if html is not None:
            html.write_text(text, encoding="utf-8")
    _print_report(opened, report)
    if html is not None:
        _print(f"Report written to {html}")
    if report.within_budget is False or report.problems:
        raise typer.Exit(1)


app.command("query", epilog=QUERY_HOW)(query_command)
app.command("reproduce")(reproduce_command)


_NOTHING: Release = Composed()


@contextmanager
def _refusals() -> Iterator[None]:
    """What the packages refuse, as a message and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        if isinstance(error, typer.Exit):
            raise
        Console(stderr=True).print(Text(f"dpkit: {error}", style="red"), soft_wrap=True)
        raise typer.Exit(2) from None


def _opened(path: Path, expected_head: str | None) -> Ledger:
    """The ledger in a file of either kind; never a new one."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no ledger {path}")
    with path.open("rb") as file:
        first = file.read(64).lstrip()[:1]
    if first == b"{":
        return Ledger.from_json(path.read_text(encoding="utf-8"), expected_head=expected_head)
    return Ledger.open(path, expected_head=expected_head)


# ------------------------------------------------------------------------------------------------ printing


def _print(text: str, style: str = "") -> None:
    Console().print(Text(text, style=style), soft_wrap=True)


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], title: str = "") -> None:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_accountants(release: Release, found: dict[str, float], delta: float) -> None:
    _print(f"{release!r}")
    best = min(found, key=found.__getitem__)
    _print(f"ε = {found[best]:.9g} at δ = {delta:g}, by {NAMES.get(best, best)}", style="bold")
    if len(found) > 1:
        _table(
            [("accountant", "left"), ("ε", "right")],
            [(NAMES.get(name, name), f"{value:.9g}") for name, value in found.items()],
        )


def _print_report(ledger: Ledger, report: Report) -> None:
    style, sentence = verdict(report)
    budget = report.budget
    facts = [
        ("budget", "none" if budget is None else f"ε = {budget.epsilon:g} at δ = {budget.delta:g}"),
        ("counts", "" if budget is None else f"one {budget.unit}, {budget.adjacency}"),
        ("filter", ledger.accountant or "open"),
        ("left", "" if budget is None else f"ε = {ledger.remaining():.6g}, as the filter counts it"),
        ("releases", f"{report.rows:,}"),
        ("head", ledger.head),
    ]
    for name, value in facts:
        if value and not (budget is None and name == "filter"):
            _print(f"{name:<9} {value}")
    if report.epsilons:
        _table(
            [("accountant", "left"), (f"ε at δ = {report.delta:g}", "right"), ("", "left")],
            [
                (NAMES.get(name, name), f"{value:.6g}", "smallest" if index == 0 and len(report.epsilons) > 1 else "")
                for index, (name, value) in enumerate(report.epsilons.items())
            ],
        )
    if report.dearest:
        _table(
            [("row", "right"), ("dearest releases", "left"), ("description", "left"), ("ε alone", "right")],
            [(str(index), label, release, f"{alone:.6g}") for index, label, release, alone in report.dearest],
        )
    for problem in report.problems:
        _print(f"problem: {problem}", style="red")
    _print(sentence, style={"good": "bold green", "bad": "bold red", "open": "bold yellow"}[style])
