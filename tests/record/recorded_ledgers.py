"""Ledger files that an earlier version wrote: they must open, verify, and say the same of the same rows.

The files were written once, with one spend of every kind of description, quotas, marks and outcomes. What a ledger
decides is recorded as well: how many releases each budget and accountant admits.
"""

from __future__ import annotations

import sqlite3
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from recorded_numbers import DELTAS_OF_LEDGERS
from recorded_prices import made, outcome

from accounting import Budget, BudgetExceeded, Ledger, UnsupportedRelease

KEPT = Path(__file__).with_name("ledgers.zip")

# one of every kind; those of another adjacency than the rest go to a ledger of their own
ANY = (
    "Gaussian(9.0)", "DiscreteGaussian(9.0)", "DiscreteGaussian(9.0, shift=2)", "DiscreteLaplace(30.0)",
    "DiscreteLaplace(30.0, shift=2)", "GeneralizedGaussian(12.0)", "Laplace(40.0)", "NoisyMax(0.02)",
    "NoisyMax(0.02, 'exponential')", "NoisyMax(0.02, 'laplace')", "RandomizedResponse(0.02, 5)",
    "UnaryEncoding(0.02, 9)", "UnaryEncoding(0.02, 9, optimized=False)", "PureDP(0.01)", "ZCDP(0.0005)",
    "ApproxDP(0.01, 1e-12)", "TreeAggregation(40.0, 100)", "ObjectivePerturbation(30.0, 0.02)",
    "ObjectivePerturbation(30.0, 0.02, one_row=True)", "BestOfRuns(Gaussian(30.0), 0.2)",
    "BestOfPoissonRuns(PureDP(0.01), 3.0)", "3 * Gaussian(30.0) + 2 * Laplace(90.0)",
    "parallel(Gaussian(20.0), Laplace(60.0))", "compose([(PureDP(0.002), 3), (Gaussian(50.0), 2)])",
)  # fmt: skip
REPLACED = (
    "FixedSizeSubsampled(Gaussian(2.0), 10, 1000)", "PoissonSubsampled(Gaussian(2.0), 0.01, adjacency='replace')",
    "ShuffledBinomial(40000, 5.0, 3)", "ShuffledBinomial(40000, 5.0, 3, rounded=True)", "LocalShuffled(0.5, 5000)",
    "LocalShuffled(RandomizedResponse(0.5, 6), 5000)", "LocalShuffled(UnaryEncoding(0.5, 6), 5000)",
    "LocalShuffled(Laplace(2.0), 5000)", "Gaussian(30.0, adjacency='replace')",
)  # fmt: skip
COME = ("200 * PoissonSubsampled(Gaussian(2.0), 0.01)", "PoissonSubsampled(Laplace(5.0), 0.1)", "PureDP(0.01)")

LEDGERS: dict[str, tuple[Budget | None, tuple[str, ...], dict[str, Any]]] = {
    "without a budget": (None, ANY + REPLACED, {}),
    "everything": (Budget(20.0, 1e-6), ANY + REPLACED, {}),
    "rows come and go": (Budget(3.0, 1e-6, adjacency="add_remove"), ANY + COME, {}),
    "persons": (Budget(5.0, 1e-5, unit="person"), ANY, {}),
    "pure": (Budget(2.0, 0.0), tuple(text for text in ANY if "DP(" in text or "Max" in text)[:5], {}),
    "by Rényi divergences": (
        Budget(6.0, 1e-6),
        ("Gaussian(5.0)", "Laplace(20.0)", "NoisyMax(0.1)"),
        {"accountant": "rdp"},
    ),
    "of Gaussians": (Budget(2.0, 1e-6), ("Gaussian(5.0)",) * 4, {"accountant": "gdp"}),
    "concentrated": (Budget(4.0, 1e-6), ("Gaussian(9.0)", "ZCDP(0.01)", "PureDP(0.1)"), {"accountant": "zcdp"}),
    "planned": (Budget(2.0, 1e-6), ("Gaussian(9.0)", "PureDP(0.1)"), {"plan": made("5 * Gaussian(9.0) + PureDP(0.1)")}),
}
SCOPES = (None, None, "north", "north/ann", "south", None)

# what is spent until a budget is used up
FILLED = {
    "Gaussian(8.0)": Budget(1.0, 1e-6),
    "Laplace(20.0)": Budget(2.0, 1e-6),
    "NoisyMax(0.05)": Budget(1.5, 1e-6),
    "PureDP(0.03)": Budget(1.0, 0.0),
    "PoissonSubsampled(Gaussian(1.5), 0.05)": Budget(1.5, 1e-6, adjacency="add_remove"),
    "FixedSizeSubsampled(Gaussian(2.0), 50, 1000)": Budget(1.5, 1e-6),
    "ApproxDP(0.05, 1e-9)": Budget(1.0, 1e-6),
    "DiscreteGaussian(9.0, shift=1)": Budget(1.0, 1e-6),
    "LocalShuffled(1.0, 2000)": Budget(1.0, 1e-5),
}


def names(gate: bool) -> list[str]:
    """The files, and budgets to be used up; the gate has every other one that takes less than a second."""
    all_of_them = [*LEDGERS, *(f"filled with {text}" for text in FILLED)]
    quick = [name for name in all_of_them if name != "rows come and go" and "Subsampled" not in name]
    return quick[::2] if gate else list(all_of_them)


def keep() -> None:
    with (
        zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name, (budget, texts, more) in LEDGERS.items():
            path = Path(folder) / f"{name}.ledger"
            with Ledger.open(path, budget, **more) as ledger:
                if budget is not None and "plan" not in more:
                    ledger.set_quota(
                        "north/ann",
                        Budget(budget.epsilon / 2, budget.delta / 2, adjacency=budget.adjacency, unit=budget.unit),
                    )
                for i, text in enumerate(texts):
                    told = {"label": f"{i}: π of {text}", "scope": SCOPES[i % 6], "simulation": i % 4 == 3}
                    with suppress(UnsupportedRelease):  # the filters of some budgets have no bound for some kinds
                        row = ledger.spend(made(text), **told)
                    if i % 3 and row.label == told["label"]:
                        ledger.commit(row, "released" if i % 3 == 1 else "failed")
                ledger.mark("run", 1, "ab" * 32, label="a mark")
            connection = sqlite3.connect(path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.close()
            kept.write(path, name)


def found(name: str, gate: bool) -> dict[str, Any]:
    if name not in LEDGERS:
        return filled(name.removeprefix("filled with "))
    with zipfile.ZipFile(KEPT) as kept, tempfile.TemporaryDirectory() as folder:
        path = Path(kept.extract(name, folder))
        with Ledger.open(path) as ledger:
            ledger.verify()
            figures = told(ledger)
            with_more = outcome(lambda: ledger.spend(made("PureDP(1e-6)")).index) if ledger.budget else []
        with Ledger.open(path, expected_head=figures["head"]) as again:
            return figures | {"next row": with_more, "rows then": str(len(again.rows()))}


def told(ledger: Ledger) -> dict[str, Any]:
    """What a ledger says of itself."""
    scopes = [None, "north", "north/ann", "south"]
    shown = [(r.index, r.time.isoformat(), r.label, r.scope, r.unit, r.simulation, r.outcome) for r in ledger.rows()]
    budget = ledger.budget
    mark = ledger.newest_mark("run")
    return {
        "head": ledger.head,
        "rows": [str(row) for row in shown],
        "releases": [str(row.release == made(text)) for row, text in zip(ledger.rows(), texts_of(ledger), strict=True)],
        "epsilon": [
            e
            for scope in scopes
            for d in DELTAS_OF_LEDGERS
            for e in outcome(lambda s=scope, d=d: ledger.epsilon(d, scope=s))
        ],
        "remaining": [e for s in scopes for e in outcome(lambda s=s: ledger.remaining(scope=s))] if budget else [],
        "quotas": {
            scope: [quota.epsilon, quota.delta, ledger.quota_booked(scope)] for scope, quota in ledger.quotas().items()
        },
        "scopes": str(ledger.scopes()),
        "budget": str(budget),
        "mark": str(mark and (mark.run, mark.step, mark.digest, mark.label)),
        "simulation": str(ledger.simulation),
    }


def texts_of(ledger: Ledger) -> list[str]:
    """The descriptions of the rows, from their labels."""
    return [row.label.partition(" of ")[2] for row in ledger.rows()]


def filled(text: str) -> dict[str, Any]:
    """How often a budget admits a release, and what is left."""
    release, ledger, count = made(text), Ledger(FILLED[text]), 0
    remaining = []
    try:
        while count < 2000:
            ledger.spend(release, label=str(count))
            count += 1
            if count in (1, 3, 10):
                remaining.append(float(ledger.remaining()))
    except BudgetExceeded:
        pass
    return {"count": str(count), "remaining": remaining, "epsilon": [float(ledger.epsilon(FILLED[text].delta))]}
