"""What a reservation costs, against the disk it waits for.

Run with ``python benchmarks/ledger_speed.py [spends] [directory]``. One table: µs per reservation in memory and in
a file (``directory`` should lie on the disk that will hold real ledgers; by default the current one), the bare
``fdatasync`` of one block appended to a file beside it, opening and verifying the file, and a bare SQLite transaction
with the same durability.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from accounting import Budget, Gaussian, Laplace, Ledger, PoissonSubsampled, Release

REPEATS = 3
LIMIT = "limit: one fdatasync"


def best(job: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def spend(ledger: Ledger, releases: list[Release]) -> None:
    for release in releases:
        ledger.spend(release, label="benchmark")


def sync(path: Path, count: int) -> None:
    """Append blocks and wait for each."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(count):
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)
    os.close(descriptor)


def bare_sqlite(path: Path, count: int) -> None:
    """The same two statements a transaction, without a ledger around them."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, body TEXT, hash TEXT)",
        "CREATE TABLE head (id INTEGER PRIMARY KEY, entries INTEGER, hash TEXT)",
        "INSERT INTO head VALUES (0, 0, '')",
    ):
        connection.execute(statement)
    for index in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (index, "x" * 280, "y" * 64))
        connection.execute("UPDATE head SET entries = ?, hash = ?", (index, "y" * 64))
        connection.execute("COMMIT")
    connection.close()


def main(count: int, directory: Path) -> None:
    budget = Budget(10.0, 1e-6)
    same: list[Release] = [Gaussian(100.0)] * count
    distinct: list[Release] = [Gaussian(200.0 + index) for index in range(count)]
    laplace: list[Release] = [Laplace(1000.0)] * count
    training: list[Release] = [PoissonSubsampled(Gaussian(2.0), 0.001)] * count
    training_budget = Budget(10.0, 1e-6, adjacency="add_remove")
    rows = [
        ("memory, equal Gaussians (gdp)", best(lambda: spend(Ledger(budget), same))),
        ("memory, distinct Gaussians (gdp)", best(lambda: spend(Ledger(budget), distinct))),
        ("memory, equal Laplace (rdp)", best(lambda: spend(Ledger(budget), laplace))),
        ("memory, training steps (rdp)", best(lambda: spend(Ledger(training_budget), training))),
    ]
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        path = Path(folder) / "spends.ledger"

        def file() -> None:
            path.unlink(missing_ok=True)
            with Ledger.open(path, budget) as ledger:
                spend(ledger, same)

        rows += [
            ("file, full durability", best(file)),
            ("limit: a bare SQLite transaction", best(lambda: bare_sqlite(Path(folder) / "bare", count))),
            (LIMIT, best(lambda: sync(Path(folder) / "synced", count))),
            ("opening and verifying, per row", best(lambda: Ledger.open(path).close())),
        ]
    limit = dict(rows)[LIMIT]
    print(f"{count} reservations; best of {REPEATS}")
    for name, seconds in rows:
        print(f"{name:<36} {seconds:8.3f} s {1e6 * seconds / count:9.1f} µs each {seconds / limit:8.2f} × the sync")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 10_000,
        Path(sys.argv[2]) if len(sys.argv) > 2 else Path.cwd(),
    )
