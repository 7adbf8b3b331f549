"""A ledger in PostgreSQL: shared by processes, interrupted servers, what is detected, and copies to and from files.

What every stored ledger must stand is tested with files and servers alike in ``test_ledger_faults`` and
``test_ledger_interrupts``.
"""

import multiprocessing
import os
import pickle
import threading
import time
import traceback

import psycopg
import pytest
from postgres import running
from tabled import tabled

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, LedgerCorrupted, calibrate
from accounting.ledger import recorder
from accounting.ledger.storage import postgresql as ledger_server
from accounting.postgres import place

BUDGET = Budget(1.0, 1e-6)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def url(postgres):
    return postgres.url()


def filled(url, rows=6):
    with Ledger.open(url, Budget(5.0, 1e-6)) as ledger:
        for index in range(rows):
            ledger.commit(ledger.spend(Gaussian(10.0 + index), label=f"release {index}, ü 🚀"))
        return ledger.head


def edited(url, *statements):
    where = place(url, schema="ledger")
    with psycopg.connect(where.address, autocommit=True, options=f"-c search_path={where.schema}") as connection:
        for statement in statements:
            connection.execute(statement)


def test_everything_comes_back(url, monkeypatch):
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 10)
    with Ledger.open(url, BUDGET) as ledger:
        ledger.set_quota("north", Budget(0.5, 1e-7))
        for i in range(25):
            row = ledger.spend(Gaussian(900.0), label=f"row {i} ü", scope=[None, "north/ann"][i % 2])
        ledger.commit(row)
        ledger.mark("a", 3, "ab")
        expected = ledger.rows(), ledger.total, ledger.head, ledger.budget, ledger.quota_spent("north")
        assert ledger.path is None
    with Ledger.open(url) as again:
        assert expected[:4] == (again.rows(), again.total, again.head, again.budget)
        assert again.quota_spent("north") == pytest.approx(expected[4], rel=1e-12)
        assert again.newest_mark("a").step == 3
        assert again.verify(expected_head=expected[2]) == expected[2]
        assert pickle.loads(pickle.dumps(again)).head == again.head
        with pytest.raises(ValueError, match="label must be new"):
            again.spend(Gaussian(900.0), label="row 3 ü", unique=True)
        with pytest.raises(ValueError, match="already committed as 'released'"):
            again.commit(row)
    with pytest.raises(ValueError, match=r"was made with budget=.*, got budget="):
        Ledger.open(url, Budget(2.0, 1e-6))


def test_processes_never_pass_the_budget_together(url):
    """Some of them with a connection that was opened before the fork, and two that make the ledger at once."""
    z = calibrate(lambda z: 40 * Gaussian(z), BUDGET)

    def child(results, mine):
        ledger = Ledger.open(url, BUDGET) if mine is None else mine
        count = 0
        try:
            while True:
                ledger.spend(Gaussian(z), label=f"{os.getpid()} {count}", unique=True)
                count += 1
        except BudgetExceeded:
            results.put(count)

    results = FORK.SimpleQueue()
    children = [FORK.Process(target=child, args=(results, None)) for _ in range(2)]
    for process in children:
        process.start()
    mine = Ledger.open(url, BUDGET)
    children.append(FORK.Process(target=child, args=(results, mine)))
    children[-1].start()
    for process in children:
        process.join()
    assert sum(results.get() for _ in children) == 40
    assert len(mine.rows()) == 40
    assert mine.verify() == mine.head


@pytest.fixture(scope="module")
def own():
    """A server that a test may kill and set otherwise: the other one is everybody's."""
    with running() as server:
        yield server


def test_a_server_that_dies_has_kept_what_it_confirmed(own):
    """Killed like in a loss of power while two threads spend, and started again."""
    url = own.url()
    Ledger.open(url).close()
    confirmed, doubtful, stop = [], [], threading.Event()

    def spend(name, ledger):
        count = 0
        while not stop.is_set():
            count += 1
            label = f"{name}.{count}"
            try:
                ledger.spend(Gaussian(1000.0), label=label)
                confirmed.append(label)
            except OSError:  # nobody knows; or there was no server to be asked
                doubtful.append(label)
                time.sleep(0.02)

    threads = [threading.Thread(target=spend, args=(name, Ledger.open(url))) for name in "ab"]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            goal = len(confirmed) + 30
            while len(confirmed) < goal:
                assert any(thread.is_alive() for thread in threads)
                time.sleep(0.002)
            own.kill()
            time.sleep(0.1)
            own.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    with Ledger.open(url) as ledger:
        labels = [row.label for row in ledger.rows()]
        assert ledger.verify() == ledger.head
    assert len(set(labels)) == len(labels)
    assert set(confirmed) <= set(labels) <= set(confirmed) | set(doubtful)
    assert len(confirmed) >= 90
    assert len(doubtful) >= 3


def test_a_server_that_would_lose_commits_is_refused(own):
    url = own.url()
    filled(url)
    address = place(url, schema="ledger").address

    def settled(value):
        for _ in range(3000):
            with psycopg.connect(address) as other:
                if other.execute("SHOW full_page_writes").fetchone() == (value,):
                    return
            time.sleep(0.02)
        raise AssertionError(f"full_page_writes must become {value}")

    with psycopg.connect(address, autocommit=True) as connection:
        try:
            connection.execute("ALTER SYSTEM SET full_page_writes = off")
            connection.execute("SELECT pg_reload_conf()")
            settled("off")
            with pytest.raises(ValueError, match="must have full_page_writes='on', got full_page_writes='off'"):
                Ledger.open(url)
        finally:
            connection.execute("ALTER SYSTEM RESET full_page_writes")
            connection.execute("SELECT pg_reload_conf()")
    settled("on")
    # what a session can set is set
    ledger = Ledger.open(url)
    assert ledger._recorder.store._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


LAST = "(SELECT max(id) FROM entries)"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([f"DELETE FROM entries WHERE id = {LAST}"], "12 entries are there and its head counts 13"),
        (["DELETE FROM entries WHERE id = 5"], "entry 5 is missing"),
        (["UPDATE entries SET body = replace(body, 'release 2', 'release 9') WHERE id = 5"], "entry 5 does not match"),
        (["UPDATE entries SET hash = hash || '0' WHERE id = 5"], "entry 5 does not match"),
        (["DELETE FROM head"], "its head was edited"),
        (["UPDATE head SET entries = 12"], "its head counts 12"),
        (["DROP TABLE head"], "does not have the tables of a ledger"),
        (["CREATE RULE quiet AS ON INSERT TO entries DO INSTEAD NOTHING"], "does not have the tables"),
        (["ALTER TABLE entries ENABLE ROW LEVEL SECURITY"], "does not have the tables"),
        (["CREATE VIEW more AS SELECT * FROM entries"], "does not have the tables"),
    ],
)
def test_edits_are_detected(url, statements, message):
    filled(url)
    edited(url, *statements)
    with pytest.raises(LedgerCorrupted, match=message):
        Ledger.open(url)


def test_an_older_state_under_an_open_ledger_is_detected(url):
    noted = filled(url)
    ledger = Ledger.open(url)
    edited(
        url,
        f"DELETE FROM entries WHERE id = {LAST}",
        "UPDATE head SET entries = 12, hash = (SELECT hash FROM entries WHERE id = 11)",
    )
    with pytest.raises(LedgerCorrupted, match="13 entries were there before and 12 are left"):
        ledger.spend(Gaussian(100.0))
    Ledger.open(url).close()  # the server alone cannot tell
    with pytest.raises(LedgerCorrupted, match="does not contain the expected head"):
        Ledger.open(url, expected_head=noted)
    edited(url, "DROP TABLE entries, head")
    with pytest.raises(LedgerCorrupted, match="is missing, and with it the expected head"):
        Ledger.open(url, expected_head=noted)


def test_a_locked_ledger_is_refused_in_time(url, monkeypatch):
    monkeypatch.setattr(ledger_server, "_WAIT_SECONDS", 0.05)
    ledger, where = Ledger.open(url), place(url, schema="ledger")
    with psycopg.connect(where.address) as blocker:
        blocker.execute(f'SELECT id FROM "{where.schema}".head FOR UPDATE')
        with pytest.raises(TimeoutError, match=r"was locked by another process for 0\.05 s; nothing was recorded"):
            ledger.spend(Gaussian(1.0))
    ledger.spend(Gaussian(1.0))
    assert len(ledger.rows()) == 1


def test_a_connection_that_is_cut_is_opened_again(url):
    ledger = Ledger.open(url, BUDGET)
    ledger.spend(Gaussian(50.0))
    # this one, and nobody else's on the same server; and it has ended when this is answered
    edited(url, f"SELECT pg_terminate_backend({ledger._recorder.store._connection.info.backend_pid}, 60000)")
    with pytest.raises(OSError, match="cannot be used"):
        ledger.spend(Gaussian(51.0))
    ledger.spend(Gaussian(52.0))
    assert [row.release for row in ledger.rows()] == [Gaussian(50.0), Gaussian(52.0)]


def test_nobody_answers(tmp_path):
    url = "postgresql://ann:secret-word@127.0.0.1:1/db?schema=north&password=secret-word"
    with pytest.raises(OSError, match="cannot be reached") as caught:
        Ledger.open(url)
    assert "secret-word" not in str(caught.value)
    with pytest.raises(ValueError, match="schema must be lower-case letters"):
        Ledger.open("postgresql://127.0.0.1/db?schema=a;b")
    with pytest.raises(ValueError, match="not pg_…"):
        Ledger.open("postgresql://127.0.0.1/db?schema=pg_temp")


@tabled("scheme", ["postgresql", "postgresql+psycopg"])
@tabled("password", ["a%zzSECRET", "SECRET/a", "SECRET#a", "SECRET?a", "a@SECRET", "a℀SECRET", "[SECRET"])
def test_a_password_in_no_percent_codes_is_not_repeated(scheme, password):
    with pytest.raises(ValueError, match="in percent codes") as caught:
        Ledger.open(f"{scheme}://ann:{password}@127.0.0.1:1/db")
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@tabled(
    "address",
    [
        "",
        "/db",
        "h1:5432,h2:5433/db",
        "[::1]:5432/db",
        "ann:p%40s:s@h/db?sslmode=require",
        "/db?host=/var/run/postgresql&options=-c%20lock_timeout%3D5",
    ],
)
def test_addresses_of_libpq_are_taken(address):
    more = f"postgresql://{address}{'&' if '?' in address else '?'}schema=north"
    assert place(more, schema="ledger").schema == "north"
    for url in (f"postgresql://{address}", more):
        found = psycopg.conninfo.conninfo_to_dict(place(url, schema="ledger").address)
        assert found == psycopg.conninfo.conninfo_to_dict(f"postgresql://{address}")


def test_a_word_of_sql_may_be_a_schema(postgres):
    url = postgres.url("user")
    Ledger.open(url).spend(Gaussian(1.0))
    assert len(Ledger.open(url).rows()) == 1


def test_copies_go_to_files_and_back(url, postgres, tmp_path):
    with Ledger.open(url, BUDGET) as ledger:
        ledger.spend(Gaussian(20.0), label="before")
        noted = ledger.backup(tmp_path / "copy")
        ledger.spend(Gaussian(30.0), label="after")
        with pytest.raises(FileExistsError, match="replaces nothing"):
            ledger.backup(tmp_path / "copy")
        with pytest.raises(FileExistsError, match="replaces nothing"):
            ledger.backup(url)
    again = postgres.url()
    with Ledger.restore(tmp_path / "copy", again, expected_head=noted) as ledger:
        assert [row.label for row in ledger.rows()] == ["before"]
        assert ledger.head == noted
        ledger.spend(Gaussian(40.0))
    with pytest.raises(FileNotFoundError, match="there is no backup"):
        Ledger.restore(postgres.url(), tmp_path / "new")


def test_a_mark_and_what_else_is_written_are_one_transaction(url):
    ledger = Ledger.open(url)
    edited(
        url,
        "CREATE SCHEMA IF NOT EXISTS beside",
        "DROP TABLE IF EXISTS beside.facts",
        "CREATE TABLE beside.facts (n INTEGER)",
    )

    def facts():
        return ledger._recorder.store._at_rest().execute("SELECT n FROM beside.facts").fetchall()

    ledger.mark("a", 1, "ab", also=lambda db: db.execute("INSERT INTO beside.facts VALUES (1)"))

    def failing(db):
        db.execute("INSERT INTO beside.facts VALUES (2)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ledger.mark("a", 2, "cd", also=failing)
    assert ledger.newest_mark("a").step == 1
    with pytest.raises(ValueError, match="step must pass"):  # refused before anything else is written
        ledger.mark("a", 1, "ef", also=lambda db: db.execute("INSERT INTO beside.facts VALUES (3)"))
    assert facts() == [(1,)]
    ledger.mark("a", 2, "cd")
    with pytest.raises(ValueError, match="in memory"):
        Ledger().mark("a", 1, "ab", also=failing)


def test_texts_with_nul_are_refused(url):
    ledger = Ledger.open(url)
    with pytest.raises(ValueError, match="must not hold the character NUL"):
        ledger.spend(Gaussian(1.0), label="a\0b")
    ledger.spend(Gaussian(1.0), label="a\\u0000b")
    assert [row.label for row in ledger.rows()] == ["a\\u0000b"]
