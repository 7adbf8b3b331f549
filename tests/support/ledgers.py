"""Ledgers in tests: texts with hashes that are right, edits behind a ledger's back, races, and how much fits."""

import hashlib
import json
import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from accounting import BudgetExceeded, Ledger, LedgerCorrupted

FORK = multiprocessing.get_context("fork")


class Shelf:
    """A store of objects that replaces none, and may be out of reach."""

    name = "the shelf"

    def __init__(self):
        self.objects, self.away = {}, False

    def newest(self):
        return (len(self.objects), self.objects[len(self.objects) - 1][1]) if self.objects else (0, "")

    def add(self, rows):
        if self.away:
            raise OSError("the shelf is out of reach")
        for number, body, hash in rows:
            if self.objects.setdefault(number, (body, hash)) != (body, hash):
                raise LedgerCorrupted(f"the shelf has another entry {number}")

    def rows(self, first):
        return [(number, *self.objects[number]) for number in range(first, len(self.objects))]

    def close(self):
        pass


def opened(place, budget=None, **choices):
    """The ledger at a place, which the first to come makes."""
    with suppress(FileExistsError):
        Ledger.create(place, budget, **choices).close()
    return Ledger.open(place)


def entries(ledger):
    """What a ledger holds, without hashes."""
    found = [item["entry"] for item in json.loads(ledger.to_json())["entries"]]
    return [{name: value for name, value in entry.items() if name != "previous"} for entry in found]


def chained(entries):
    """The bodies of entries as they are stored, each with its hash."""
    head = "0" * 64
    for entry in entries:
        body = json.dumps({**entry, "previous": head}, sort_keys=True, separators=(",", ":"))
        head = hashlib.sha256(body.encode()).hexdigest()
        yield body, head


def forged(entries):
    """The text of a ledger with these entries."""
    linked = [{"hash": head, "entry": json.loads(body)} for body, head in chained(entries)]
    document = {"format": "dpkit-ledger", "version": 1, "head": linked[-1]["hash"], "entries": linked}
    return json.dumps(document)


def forge_file(path, entries):
    """Put these entries into the file of a ledger, the last of them as its summary if it is one."""
    rows = list(chained(entries))
    last = len(rows) - 1 if entries[-1]["entry"] == "summary" else 0
    edited(path, "DELETE FROM entries")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", [(n, *row) for n, row in enumerate(rows)])
        connection.execute("UPDATE head SET entries = ?, hash = ?, summary = ?", (len(rows), rows[-1][1], last))


def edited(where, *statements):
    """Change a file, or a schema on a server, behind the ledger's back."""
    if "://" not in str(where):
        with closing(sqlite3.connect(where)) as connection, connection:
            for statement in statements:
                connection.execute(statement)
        return
    with connected(where) as connection:
        for statement in statements:
            connection.execute(statement)


def connected(url):
    """A connection of one's own to the schema of a ledger on a server."""
    import psycopg

    from accounting.postgres import place

    where = place(url, schema="ledger")
    return psycopg.connect(where.address, autocommit=True, options=f"-c search_path={where.schema}")


def raced(act, on, *, processes):
    """What ``act(one)`` gives for several at once, in threads or in processes that are forked here."""
    if not processes:
        with ThreadPoolExecutor(len(on)) as pool:
            return list(pool.map(act, on))
    results = FORK.SimpleQueue()
    children = [FORK.Process(target=lambda one=one: results.put(act(one))) for one in on]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    return found


def taken_until_refused(ledger, releases, **spend):
    """What a ledger takes of some releases one after the other, and the refusal that ends it."""
    taken = []
    for release in releases:
        try:
            ledger.spend(release, **spend)
        except BudgetExceeded as refused:
            return taken, str(refused)
        taken.append(release)
    raise AssertionError(f"the ledger takes all {len(taken)} releases")


def most_of(filter_, kind):
    """How many of a kind a filter admits at once, to 0.2 % or one."""

    def fits(count):
        return filter_.admits(None, count * kind, lambda: count * kind)

    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 500):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
