"""A month of three teams on one ledger: quotas, 200 persons, four processes, a lost file, an overspend, the report.

    python examples/team_month.py month 5000

One team counts, one averages, one picks winners; each has a quota under the budget of the house, and every person's
reports are a scope of their own, so that what is released to one person does not cost another. In the middle of the
month the file is lost. The backup is restored, and what was released since is recorded again before anything else. At
the end stand the page, the text, the CSV and the JSON of ``dpkit audit`` and ``dpkit ledger list``.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections import Counter
from pathlib import Path

from accounting import Budget, BudgetExceeded, DiscreteGaussian, Gaussian, Laplace, Ledger, NoisyMax, Release

BUDGET = Budget(3.0, 1e-6, unit="person")
QUOTAS = {
    "counts": Budget(1.0, 1e-7, unit="person"),
    "means": Budget(1.0, 1e-7, unit="person"),
    "winners": Budget(0.5, 1e-7, unit="person"),
}
KINDS: dict[str, list[Release]] = {
    "counts": [DiscreteGaussian(120.0, shift=1), DiscreteGaussian(150.0)],
    "means": [Gaussian(120.0), Laplace(200.0)],
    "winners": [NoisyMax(0.004, "exponential"), NoisyMax(0.006)],
}
PERSONS = 200


def scope_of(number: int) -> str:
    """The team and the person, e.g. ``"means/person 007"``."""
    return f"{list(KINDS)[number % len(KINDS)]}/person {number:03d}"


def spend_some(path: Path, seed: int, spends: int) -> Counter[str]:
    """What one process does: reserve, release, commit."""
    rng, outcomes = random.Random(seed), Counter[str]()
    with Ledger.open(path) as ledger:
        for _ in range(spends):
            scope = scope_of(rng.randrange(PERSONS))
            team = scope.split("/")[0]
            try:
                with ledger.reserve(rng.choice(KINDS[team]), label=f"report of {team}", scope=scope):
                    outcomes["released"] += 1  # the noisy numbers leave here
            except BudgetExceeded:
                outcomes["refused"] += 1
    return outcomes


def in_processes(number: int, path: Path, first_seed: int, spends: int) -> Counter[str]:
    """Share ``spends`` among processes that write to one file."""
    shares = [(path, first_seed + i, spends // number + (i < spends % number)) for i in range(number)]
    with multiprocessing.get_context("spawn").Pool(number) as pool:
        return sum(pool.starmap(spend_some, shares), Counter[str]())


def month(directory: Path, spends: int = 5000, processes: int = 4) -> dict[str, object]:
    """Run the month in ``directory`` and write the reports there; what happened, for whoever checks it."""
    directory.mkdir(parents=True, exist_ok=True)
    path, backup = directory / "month.ledger", directory / "backup.ledger"
    with Ledger.open(path, BUDGET) as ledger:
        for team, quota in QUOTAS.items():
            ledger.set_quota(team, quota)
        ledger.spend(Gaussian(15.0), label="table of the whole house")
    outcomes = in_processes(processes, path, 0, spends // 2)

    with Ledger.open(path) as ledger:
        noted = ledger.backup(backup)
        since = [(Gaussian(60.0), "the auditor's sample"), (Laplace(90.0), "the auditor's mean")]
        for release, label in since:
            ledger.spend(release, label=label)
    for lost in directory.glob("month.ledger*"):
        lost.unlink()
    with Ledger.restore(backup, path, expected_head=noted) as ledger:
        for release, label in since:
            ledger.spend(release, label=f"{label}, recorded again after the restore")

    outcomes += in_processes(processes, path, processes, spends - spends // 2)
    with Ledger.open(path) as ledger:
        try:
            ledger.spend(Gaussian(0.4), label="one table too many")
            raise SystemExit("an overspend was let through")
        except BudgetExceeded as error:
            refusal = str(error)
        ledger.verify()
        facts = {
            "rows": len(ledger.rows()),
            "outcomes": dict(outcomes),
            "refusal": refusal,
            "spent": float(ledger.epsilon()),
            "quotas": {team: float(ledger.quota_booked(team)) for team in QUOTAS},
            "scopes": len(ledger.scopes()),
        }
    write_reports(path, directory)
    return facts


def write_reports(path: Path, directory: Path) -> None:
    """Page, JSON and text of the audit, and the rows as CSV; by the commands that an officer would type."""
    from typer.testing import CliRunner

    from dpkit.cli import app

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exit_code:
            raise SystemExit(f"dpkit {' '.join(map(str, arguments))} ended with {result.exit_code}: {result.output}")
        return result.output

    text = run("audit", path, "--html", directory / "month.html", "--json", directory / "month.json")
    (directory / "month.txt").write_text(text, encoding="utf-8")
    (directory / "month.csv").write_text(run("ledger", "list", path, "--format", "csv"), encoding="utf-8")


if __name__ == "__main__":
    target, number = Path(sys.argv[1] if len(sys.argv) > 1 else "month"), int((sys.argv[2:] or ["5000"])[0])
    for name, value in month(target, number).items():
        print(f"{name}: {value}")
