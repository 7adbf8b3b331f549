"""What the commands share: words on the terminal, refusals, and the ledger that a path names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpkit.cli.options import refusal

if TYPE_CHECKING:
    from accounting import Ledger, Release

__all__ = [
    "accountant_name",
    "is_export",
    "left",
    "ledger_name",
    "opened_ledger",
    "pricing",
    "print_accountants",
    "print_table",
    "refusals",
    "say",
    "spending_ledger",
    "writable_ledger",
]

_NAMES = {
    "gdp": "Gaussian DP",
    "mixed": "Gaussian, Rényi and pure DP",
    "pld": "privacy loss distribution",
    "pure": "pure DP",
    "rdp": "Rényi DP",
    "zcdp": "zCDP",
}

# of a table's columns, those of at most so many characters are not broken
_WHOLE = 16


def accountant_name(accountant: str | None) -> str:
    """An accountant in words; None for the filter of a ledger in which nothing was spent."""
    return "follows from the first release" if accountant is None else _NAMES.get(accountant, accountant)


@contextmanager
def refusals() -> Iterator[None]:
    """What the packages refuse, as a message and exit status 2."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        if isinstance(error, typer.Exit):
            raise
        say(f"dpkit: {refusal(str(error))}", style="red", stderr=True)
        raise typer.Exit(2) from None


@contextmanager
def pricing(what: str) -> Iterator[None]:
    """Say on a terminal what is being priced, for as long as it takes."""
    from rich.console import Console

    with Console(stderr=True).status(f"pricing {what}"):
        yield


def left(ledger: Ledger, scope: str | None = None) -> str:
    """What a ledger has left, without the dust of rounding."""
    remaining, budget = ledger.remaining(scope=scope), ledger.budget
    return f"{0.0 if budget is not None and remaining < 1e-12 * budget.epsilon else remaining:.6g}"


def opened_ledger(place: str, expected_head: str | None = None, witness: str | None = None) -> Ledger:
    """The ledger in a file of either kind or in PostgreSQL; never a new one."""
    from accounting import Ledger

    if is_export(place):
        if witness is not None:
            raise ValueError(f"{place} is an export, which --witness does not look after: name the ledger itself")
        return Ledger.from_json(Path(place).read_text(encoding="utf-8"), expected_head=expected_head)
    return Ledger.open(place, expected_head=expected_head, witness=witness)


def spending_ledger(place: str | None, witness: str | None) -> Ledger | None:
    """The ledger of --ledger, if a command is given one."""
    from accounting import Ledger

    if place is None and witness is not None:
        raise ValueError("--witness is of a ledger: give --ledger, too")
    return None if place is None else Ledger.open(writable_ledger(place), witness=witness)


def writable_ledger(place: str) -> str:
    """The place of a ledger that can be written to."""
    if is_export(place):
        raise ValueError(f"{place} is an export, which is read only: use the ledger's own file")
    return place


def is_export(place: str) -> bool:
    """Whether a file holds what :meth:`accounting.Ledger.to_json` wrote."""
    from accounting.postgres import is_url

    if is_url(place) or not Path(place).is_file():
        return False
    with Path(place).open("rb") as file:
        return file.read(64).lstrip()[:1] == b"{"


def ledger_name(place: str) -> str:
    """What a report calls a ledger: its file's name, or its address without user and password."""
    from accounting import postgres

    return postgres.place(place, schema="ledger").name if postgres.is_url(place) else Path(place).name


def say(text: str, style: str = "", *, stderr: bool = False) -> None:
    """A line. What would move the cursor or turn the writing around is shown escaped."""
    from rich.console import Console
    from rich.text import Text

    from accounting.text import printable

    lines = "\n".join(map(printable, text.split("\n")))
    Console(stderr=stderr).print(Text(lines, style=style), soft_wrap=True)


def print_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table of plain text; columns are named, aligned ``"left"`` or ``"right"``, and left out where all is empty."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from accounting.text import printable

    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    filled = [any(row[place] for row in rows) or not rows for place in range(len(columns))]
    for place, ((name, justify), known) in enumerate(zip(columns, filled, strict=True)):
        if known:
            # names, times and numbers stay whole; what is longer is broken between words
            whole = max((len(row[place]) for row in rows), default=0) <= _WHOLE
            table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell, known in zip(row, filled, strict=True) if known))
    Console().print(table)


def print_accountants(release: Release | None, found: dict[str, float], delta: float) -> None:
    """ε under every accountant; of a description, if it was not shown before."""
    if release is not None:
        say(f"{release!r}")
    best = min(found, key=found.__getitem__)
    say(f"ε = {found[best]:.9g} at δ = {delta:g}, by {accountant_name(best)}", style="bold")
    if len(found) > 1:
        print_table(
            [("accountant", "left"), ("ε", "right")],
            [(accountant_name(name), f"{value:.9g}") for name, value in found.items()],
        )
