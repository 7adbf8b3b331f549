"""Files that several connections open, write and close at the same time."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from dpbandits.serve.database import Sqlite

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the queue of writers is a lock of POSIX systems")

OTHER_PROCESS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("SELECT count(*) FROM t").fetchone()[0])
db.close()
"""


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
