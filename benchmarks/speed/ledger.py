"""What a reservation costs, against the disk that it waits for (in the current folder) and against bare SQLite."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

from accounting import Budget, Gaussian, Laplace, Ledger, PoissonSubsampled, Release
from benchmarks.table import Row

SPENDS = 1000


def spend(ledger: Ledger, releases: list[Release]) -> None:
    for release in releases:
        ledger.spend(release, label="benchmark")


def sync(path: Path) -> None:
    """Append blocks and wait for each."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(SPENDS):
        os.write(descriptor, bytes(4096))
        os.fdatasync(descriptor)
    os.close(descriptor)


def bare_sqlite(path: Path) -> None:
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
    for index in range(SPENDS):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (index, "x" * 280, "y" * 64))
        connection.execute("UPDATE head SET entries = ?, hash = ?", (index, "y" * 64))
        connection.execute("COMMIT")
    connection.close()


def hashing() -> None:
    """What a chain of entries cannot do without: a digest of some 300 bytes for each."""
    import hashlib

    for _ in range(SPENDS):
        hashlib.sha256(bytes(300)).hexdigest()


def rows() -> list[Row]:
    budget, training = Budget(10.0, 1e-6), Budget(10.0, 1e-6, adjacency="add_remove")
    kinds: dict[str, tuple[Budget, list[Release]]] = {
        "equal Gaussians": (budget, [Gaussian(100.0)] * SPENDS),
        "distinct Gaussians": (budget, [Gaussian(200.0 + index) for index in range(SPENDS)]),
        "equal Laplaces": (budget, [Laplace(1000.0)] * SPENDS),
        "training steps": (training, [PoissonSubsampled(Gaussian(2.0), 0.001)] * SPENDS),
    }
    found = [
        Row(
            f"reserving in memory, {name}",
            lambda limit=limit, releases=releases: spend(Ledger(limit), releases),
            hashing,
            "SHA-256 of 300 bytes",
            count=SPENDS,
        )
        for name, (limit, releases) in kinds.items()
    ]
    # the folder lives as long as the rows
    folder = tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-")
    path = Path(folder.name)

    def file() -> None:
        (path / "spends.ledger").unlink(missing_ok=True)
        with Ledger.create(path / "spends.ledger", budget) as ledger:
            spend(ledger, kinds["equal Gaussians"][1])

    def reopen() -> object:
        _ = folder
        return Ledger.open(path / "spends.ledger").close()

    return [
        *found,
        Row("reserving in a file", file, lambda: sync(path / "synced"), "fdatasync", SPENDS, waits=True),
        Row(
            "reserving in a file, durably",
            file,
            lambda: bare_sqlite(path / "bare"),
            "bare SQLite",
            SPENDS,
            waits=True,
        ),
        Row("opening a ledger, by row", reopen, hashing, "SHA-256 of 300 bytes", SPENDS, most=10.0),
    ]
