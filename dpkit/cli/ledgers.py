"""``dpkit ledger``: make a ledger, list it, spend from it, verify it, copy it, set quotas, state what it claims."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dpkit.cli.options import Command, Witness, brief, check_targets, print_json
from dpkit.cli.printing import (
    accountant_name,
    ledger_name,
    left,
    opened_ledger,
    print_table,
    refusals,
    say,
    writable_ledger,
)

if TYPE_CHECKING:
    from accounting import Adjacency, Ledger
    from accounting.ledger.filters.rule import Measure

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    no_args_is_help=True,
    help="Make a ledger, list it, spend from it, verify it, copy it, set its quotas, and say what it claims.",
)

_Place = Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger's file, or a database: postgresql://…")]
_Readable = Annotated[
    str, typer.Argument(metavar="LEDGER", help="The ledger's file, a database (postgresql://…), or exported JSON.")
]

# what a ledger's relation means to whoever makes one; it is never changed
_MEANS = {
    "add_remove": "add_remove: one comes or goes, so that the number of rows is private. What counts swaps of one for "
    "another, such as a policy, needs a ledger with --adjacency replace. A ledger's relation stays.",
    "replace": "replace: one is swapped for another, so that the number of rows is public: dpkit query counts all rows "
    "without noise. Where it is private, the ledger needs --adjacency add_remove. A ledger's relation stays.",
    "zero_out": "zero_out: one contributes nothing, and the number of rows is public. A ledger's relation stays.",
}


@ledger_app.command("create", cls=Command)
def create_command(
    ledger: _Place,
    epsilon: Annotated[float | None, typer.Option(help="The budget's ε; without one nothing is refused.")] = None,
    delta: Annotated[float | None, typer.Option(help="The budget's δ.")] = None,
    adjacency: Annotated[
        str,
        typer.Option(
            help="What one change is, which stays so: add_remove (one comes or goes, as for dpkit query and DP-SGD on "
            "Poisson samples), replace (one is swapped, and the size is public, as for policies), or zero_out."
        ),
    ] = "add_remove",
    unit: Annotated[str, typer.Option(help="What one change covers: row, person, …")] = "row",
    accountant: Annotated[
        str | None, typer.Option(help="What the filter adds up: mixed, gdp, pure, rdp or zcdp.")
    ] = None,
    witness: Annotated[
        str | None, typer.Option(help="A second file or database, on another volume, that every entry goes to as well.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object: budget, accountant, spent, left, quotas, head; ε is null where there is none.",
        ),
    ] = False,
) -> None:
    """Make a ledger, where nothing may be yet. No other command makes one.

    dpkit ledger create releases.ledger --epsilon 3 --delta 1e-6 --unit person
    """
    with refusals():
        from accounting import Budget, Ledger

        if (epsilon is None) != (delta is None):
            missing = "--delta" if delta is None else "--epsilon"
            raise ValueError(f"{missing} must be given, too: a budget is both --epsilon and --delta (0 for pure ε)")
        budget = None
        if epsilon is not None and delta is not None:
            budget = Budget(epsilon, delta, adjacency=cast("Adjacency", adjacency), unit=unit)
        made = Ledger.create(ledger, budget, accountant=cast("Measure | None", accountant), witness=witness)
        with made as opened:
            if as_json:
                print_json(_facts(opened))
            else:
                _show(opened)
                if budget is not None:
                    say(_MEANS[budget.adjacency])


@ledger_app.command("open", cls=Command)
def open_command(
    ledger: _Readable,
    witness: Witness = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, as dpkit ledger create does.")
    ] = False,
) -> None:
    """Show the budget of a ledger that is there, what is spent and left, and its head; it is never made.

    dpkit ledger open releases.ledger
    """
    with refusals(), opened_ledger(ledger, witness=witness) as opened:
        if as_json:
            print_json(_facts(opened))
        else:
            _show(opened)


@ledger_app.command("list", cls=Command)
def list_command(
    ledger: _Readable,
    scope: Annotated[str | None, typer.Option(help="Only this scope and its parts.")] = None,
    format: Annotated[str, typer.Option(help="table, csv or json; the last two hold everything.")] = "table",
    last: Annotated[int, typer.Option(help="How many of the last rows a table shows; 0 for all.", min=0)] = 50,
    witness: Witness = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: all of the ledger, as --format json does.")
    ] = False,
) -> None:
    """List what was recorded, for people (table), for a spreadsheet (csv) or for a program (json).

    dpkit ledger list releases.ledger --format csv > releases.csv
    """
    with refusals():
        if as_json:
            format = "json"
        if format not in ("table", "csv", "json"):
            raise ValueError(f"--format must be table, csv or json, got {format!r}")
        if format != "table" and scope is not None:
            raise ValueError("csv and json hold the whole ledger: leave --scope out")
        with opened_ledger(ledger, witness=witness) as opened:
            if format != "table":
                typer.echo(opened.to_csv() if format == "csv" else opened.to_json(), nl=format == "json")
                return
            rows = opened.rows(scope=scope)
            shown = rows[-last:] if last else rows
            _show(opened, scope)
            budget = opened.budget
    # the budget's relation is said above
    said = "" if budget is None else f", adjacency={budget.adjacency!r}"
    columns = ("row", "right"), ("time", "left"), ("label", "left"), ("scope", "left"), ("release", "left")
    actors = any(r.actor for r in shown)
    print_table(
        [*columns, ("outcome", "left"), *([("actor", "left")] if actors else [])],
        [
            (
                str(r.index),
                f"{r.time:%Y-%m-%d %H:%M}",
                r.label,
                r.scope or "",
                brief(repr(r.release)).replace(said, ""),
                r.outcome,
                *([r.actor or ""] if actors else []),
            )
            for r in shown
        ],
    )
    if any(r.outcome == "reserved" for r in shown):
        say("reserved: recorded, and nobody noted what became of it; it counts all the same.")
    if len(shown) < len(rows):
        hidden = len(rows) - len(shown)
        say(f"{hidden:,} earlier {'row is' if hidden == 1 else 'rows are'} not shown; --last 0 shows all.")


@ledger_app.command("spend", cls=Command)
def spend_command(
    ledger: _Place,
    description: Annotated[str, typer.Argument(help="What will be released, as for dpkit epsilon.")],
    label: Annotated[str, typer.Option(help="For the reader of the ledger.")] = "",
    scope: Annotated[str | None, typer.Option(help="The part of the data that it reads.")] = None,
    unit: Annotated[str | None, typer.Option(help="The unit that its sensitivity covers.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who makes it, for the reader of the ledger.")] = None,
    witness: Witness = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: recorded (true or false), row, left, head, refusal.")
    ] = False,
) -> None:
    """Record a release that is about to be made by hand or by another program, or refuse it.

    Exit status: 0 if it is recorded and may be made, 1 if it passes the budget or a quota, 2 otherwise.

    dpkit ledger spend releases.ledger "Gaussian(6.0)" --label "monthly means" --scope north
    """
    with refusals():
        from accounting import BudgetExceeded
        from dpkit.cli.expression import Expression

        release = Expression(description)()
        with opened_ledger(writable_ledger(ledger), witness=witness) as opened:
            try:
                row = opened.acting(actor).spend(release, label=label, scope=scope, unit=unit)
            except BudgetExceeded as error:
                if as_json:
                    print_json({"recorded": False, "left": opened.remaining(scope=scope), "refusal": str(error)})
                    raise typer.Exit(1) from None
                say(f"Refused: {brief(str(error))}", style="bold red")
                raise typer.Exit(1) from None
            if as_json:
                facts = {"recorded": True, "row": row.index, "left": opened.remaining(scope=scope)}
                print_json({**facts, "head": opened.head})
                return
            bounded = opened.budget is not None
            where = "" if scope is None else f" for scope {scope!r}"
            rest = f"; ε = {left(opened, scope)} is left{where}" if bounded else ""
    say(f"Row {row.index} is recorded{rest}.", style="bold green")


@ledger_app.command("verify", cls=Command)
def verify_command(
    ledger: _Readable,
    expected_head: Annotated[str | None, typer.Option(help="A head that the ledger must contain.")] = None,
    witness: Witness = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: verified (true or false), head, problem.")
    ] = False,
) -> None:
    """Read every entry and check the whole chain, the books and the summaries; print the head.

    Exit status: 0 if it verifies, 1 if not, 2 if there is no such ledger.
    """
    with refusals():
        from accounting import LedgerCorrupted

        try:
            with opened_ledger(ledger, expected_head, witness) as opened:
                head = opened.verify()
        except LedgerCorrupted as error:
            if as_json:
                print_json({"verified": False, "problem": str(error)})
                raise typer.Exit(1) from None
            say(f"The ledger does not verify. {error}", style="bold red")
            raise typer.Exit(1) from None
    if as_json:
        print_json({"verified": True, "head": head})
    else:
        say(head)


@ledger_app.command("backup", cls=Command)
def backup_command(
    ledger: _Place,
    copy: Annotated[str, typer.Argument(help="The copy, a file or a database, where nothing may be yet.")],
    witness: Witness = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: head.")] = False,
) -> None:
    """Copy a ledger as it is at one moment, also while others spend from it; print the copy's head.

    A copy on another volume can be the ledger's witness from then on (--witness).

    To go back: copy the backup with this command to where the ledger was, and verify it against the last head.
    """
    with refusals(), opened_ledger(writable_ledger(ledger), witness=witness) as opened:
        head = opened.backup(copy)
    if as_json:
        print_json({"head": head})
    else:
        say(head)


@ledger_app.command("catch-up", cls=Command)
def catch_up_command(
    ledger: _Place,
    witness: Annotated[str, typer.Option(help="The file or database that has seen every entry of the ledger.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: added (entries).")] = False,
) -> None:
    """Charge again what a ledger has forgotten that was put back from an older copy, by what its witness has seen.

    dpkit ledger catch-up releases.ledger --witness /elsewhere/releases.ledger
    """
    with refusals():
        from accounting import Ledger

        added = Ledger.catch_up(ledger, witness)
    if as_json:
        print_json({"added": added})
    else:
        say(f"{added} entries are charged again." if added else "Nothing is missing.", style="bold green")


@ledger_app.command("quota", cls=Command)
def quota_command(
    ledger: _Place,
    scope: Annotated[str | None, typer.Argument(help="The scope; without it all quotas are shown.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The quota's ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="The quota's δ.")] = None,
    lift: Annotated[bool, typer.Option("--lift", help="Lift the quota of the scope.")] = False,
    witness: Witness = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object: quotas, one by scope, each with epsilon, delta, booked, left."
        ),
    ] = False,
) -> None:
    """Show the quotas of a ledger, set one, or lift it.

    dpkit ledger quota releases.ledger north --epsilon 1 --delta 1e-7
    """
    with refusals():
        from accounting import Budget

        with opened_ledger(writable_ledger(ledger), witness=witness) as opened:
            if scope is not None and lift:
                opened.set_quota(scope, None)
            elif scope is not None:
                if epsilon is None or delta is None:
                    raise ValueError("a quota needs --epsilon and --delta, or --lift")
                own = opened.budget
                budget = Budget(epsilon, delta)
                if own is not None:
                    budget = Budget(epsilon, delta, adjacency=own.adjacency, unit=own.unit)
                opened.set_quota(scope, budget)
            if as_json:
                print_json({"quotas": _quota_facts(opened)})
            else:
                _show_quotas(opened)


def _facts(ledger: Ledger) -> dict[str, Any]:
    """What :func:`_show` says, for a program."""
    from accounting import UnsupportedRelease

    budget, spent = ledger.budget, None
    if budget is not None:
        with suppress(UnsupportedRelease):
            spent = float(ledger.epsilon())
    return {
        "budget": None if budget is None else asdict(budget), "accountant": ledger.accountant, "spent": spent,
        "left": ledger.remaining(), "quotas": _quota_facts(ledger), "head": ledger.head,
    }  # fmt: skip


def _quota_facts(ledger: Ledger) -> dict[str, dict[str, float]]:
    found = {}
    for scope, quota in sorted(ledger.quotas().items()):
        booked = float(ledger.quota_booked(scope))
        left_there = max(0.0, quota.epsilon - booked)
        found[scope] = {"epsilon": quota.epsilon, "delta": quota.delta, "booked": booked, "left": left_there}
    return found


@ledger_app.command("card", cls=Command)
def card_command(
    ledger: _Readable,
    prior: Annotated[float, typer.Option(help="How probable an attacker holds it beforehand, between 0 and 1.")] = 0.5,
    delta: Annotated[float | None, typer.Option(help="The δ of the stated ε; by default the budget's.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the card to this file, as one HTML page.")] = None,
    witness: Witness = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the card as JSON.")] = False,
) -> None:
    """State what the recorded releases together reveal about one person, at most, in plain words.

    dpkit ledger card releases.ledger --html card.html
    """
    with refusals():
        from dpkit.cli.card import card_of, card_page

        check_targets({"--html": html}, read=(ledger, witness))
        with opened_ledger(ledger, witness=witness) as opened:
            card = card_of(opened, name=ledger_name(ledger), prior=prior, delta=delta)
        told = card.to_dict()
        if html is not None:
            html.write_text(card_page(card), encoding="utf-8")
    if as_json:
        print_json(told)
        return
    say(card.in_words())
    if html is not None:
        say(f"Card written to {html}")


@ledger_app.command("registry", cls=Command)
def registry_command(
    ledger: Annotated[str | None, typer.Argument(metavar="LEDGER", help="The ledger, as for list.")] = None,
    about: Annotated[Path | None, typer.Option(help="A TOML file with what only people know; see --template.")] = None,
    template: Annotated[bool, typer.Option("--template", help="Print such a file, to be filled in.")] = False,
    delta: Annotated[float | None, typer.Option(help="The δ of the stated ε; by default the budget's.")] = None,
    witness: Witness = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON, which is YAML, too.")] = False,
) -> None:
    """Print a draft (YAML, tier 3) for the public registry of deployments of differential privacy.

    dpkit ledger registry --template > about.toml

    dpkit ledger registry releases.ledger --about about.toml > deployment.yaml
    """
    with refusals():
        import tomllib

        from dpkit.cli import registry_entry
        from dpkit.cli.card import card_of

        if template:
            typer.echo(registry_entry.template(), nl=False)
            return
        if ledger is None:
            raise ValueError("LEDGER must be given, or --template")
        told = None if about is None else tomllib.loads(about.read_text(encoding="utf-8"))
        with opened_ledger(ledger, witness=witness) as opened:
            card = card_of(opened, name=ledger_name(ledger), delta=delta)
            record = registry_entry.entry(card, opened, told)
    if as_json:
        print_json(record)
        return
    shown = registry_entry.as_yaml(record)
    if todo := shown.count("TODO"):
        typer.echo(f"# {todo} fields are marked TODO: fill them in, or say them in a file for --about")
    typer.echo(shown, nl=False)


def _show(ledger: Ledger, scope: str | None = None) -> None:
    budget = ledger.budget
    facts = {"budget": "none"}
    if budget is not None:
        facts["budget"] = f"ε = {budget.epsilon:g} at δ = {budget.delta:g}, one {budget.unit}, {budget.adjacency}"
        facts["filter"] = accountant_name(ledger.accountant)
        there = "" if scope is None else f" in {scope}"
        facts["spent"] = f"{_spent(ledger, scope)}{there}, by the best accountant"
        facts["left"] = f"ε = {left(ledger, scope)}{there}, as the filter counts it"
    facts["head"] = ledger.head
    for name, value in facts.items():
        say(f"{name:<7} {value}")
    if ledger.quotas():
        _show_quotas(ledger)


def _spent(ledger: Ledger, scope: str | None) -> str:
    from accounting import UnsupportedRelease

    try:
        return f"ε = {ledger.epsilon(scope=scope):.6g}"
    except UnsupportedRelease:
        return "no finite ε"


def _show_quotas(ledger: Ledger) -> None:
    quotas = ledger.quotas()
    if not quotas:
        say("There is no quota.")
        return
    print_table(
        [("scope", "left"), ("quota ε", "right"), ("δ", "right"), ("booked ε", "right"), ("left ε", "right")],
        [
            (scope, f"{b.epsilon:g}", f"{b.delta:g}", f"{(booked := ledger.quota_booked(scope)):.6g}",
             f"{max(0.0, b.epsilon - booked):.6g}")
            for scope, b in sorted(quotas.items())
        ],
    )  # fmt: skip
