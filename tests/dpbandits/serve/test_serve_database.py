"""Files that several connections open, write and close at the same time; and what is erased in them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from serving import configured

from dpbandits.serve.database import Sqlite
from dpbandits.serve.store import Choice, Store

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="the queue of writers is a lock of POSIX systems")

OTHER_PROCESS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("SELECT count(*) FROM t").fetchone()[0])
db.close()
"""


@POSIX
def test_a_second_connection_leaves_the_locks_of_the_first(tmp_path):
    """Closing any other descriptor of the file would drop them, and the next process would take the log away."""
    path = tmp_path / "service.db"
    first = Sqlite(path, 5.0)
    first.execute("CREATE TABLE t (a INTEGER)")
    second = Sqlite(path, 5.0)
    with first.writing():
        first.execute("INSERT INTO t VALUES (1)")
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(path)], check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"
    assert path.with_name("service.db-wal").exists()  # whoever holds no lock but its own removes it
    with second.writing():
        second.execute("INSERT INTO t VALUES (2)")
    assert first.execute("SELECT count(*) FROM t").fetchone() == (2,)
    first.close()
    second.close()
    assert not path.with_name("service.db-wal").exists()


@POSIX
def test_many_open_write_and_close_one_file_at_once(tmp_path):
    """Nobody is told that the database is locked: a change into the log, or out of it, is waited for."""
    users, rounds = 4, 60
    together = Barrier(users, timeout=60.0)

    def visit(user):
        for turn in range(rounds):
            together.wait()
            database = Sqlite(tmp_path / f"{turn}.db", 60.0)
            database.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER)")
            with database.writing():
                database.execute("INSERT INTO t VALUES (?)", user)
            database.close()

    with ThreadPoolExecutor(users) as pool:
        for outcome in [pool.submit(visit, user) for user in range(users)]:
            outcome.result()
    for turn in range(rounds):
        database = Sqlite(tmp_path / f"{turn}.db", 5.0)
        assert database.execute("SELECT count(*) FROM t").fetchone() == (users,)
        database.close()


ROWS = "SELECT number, arm IS NULL, person IS NULL, rewarded FROM decisions ORDER BY number"


@pytest.mark.parametrize("most", [3, 100])
def test_what_is_erased_in_parts_is_what_is_erased_at_once(tmp_path, storage, most):
    """By the definition: closed ones go, all before ``expired``, and of the others what they were made from."""
    rng = np.random.default_rng(most)
    (tmp_path / "a").mkdir()
    store = Store(configured(tmp_path / "a", storage=storage()).database)
    told = set()
    for upto, expired in [(0, 0), (12, 0), (12, 5), (30, 9), (41, 38)]:
        with store.writing():
            ids = store.decide([Choice(0, None, np.ones(2), "ann")] * 10, 0.0, None)
        with store.writing():
            some = [id for id in ids if rng.random() < 0.5]
            store.reward([(id, 1.0) for id in some], 0.0, None)
        told |= {int(id.partition("-")[0]) for id in some}
        rounds = 0
        more = True
        while more:
            with store.writing():
                more = store.forget(upto, expired, most)
            rounds += 1
            assert rounds < 200
        made = store.decided()
        left = [n for n in range(1, made + 1) if n > upto or (n > expired and n not in told)]
        wanted = [(n, n <= upto, n <= upto, n in told) for n in left]
        assert [tuple(map(int, row)) for row in store.database.execute(ROWS).fetchall()] == [
            tuple(map(int, row)) for row in wanted
        ]
    store.close()
