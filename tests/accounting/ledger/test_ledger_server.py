"""A ledger in PostgreSQL: servers that die or would lose commits, connections, and addresses.

What every stored ledger must stand is tested with files and servers alike in ``test_ledger_stored``,
``test_ledger_races``, ``test_ledger_faults`` and ``test_ledger_interrupts``.
"""

import multiprocessing
import threading
import time
import traceback

import psycopg
import pytest
from ledgers import connected, edited
from postgres import running
from tabled import tabled

from accounting import Budget, Gaussian, Ledger
from accounting.postgres import place

BUDGET = Budget(1.0, 1e-6)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def url(postgres):
    return postgres.url()


@pytest.fixture(scope="module")
def own():
    """A server that a test may kill and set otherwise: the other one is everybody's."""
    with running() as server:
        yield server


@pytest.mark.thorough
def test_a_server_that_dies_has_kept_what_it_confirmed(own):
    """Killed like in a loss of power while two threads spend, and started again."""
    url = own.url()
    Ledger.create(url).close()
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
    Ledger.create(url).close()

    def settled(value):
        for _ in range(3000):
            with connected(url) as other:
                if other.execute("SHOW full_page_writes").fetchone() == (value,):
                    return
            time.sleep(0.02)
        raise AssertionError(f"full_page_writes must become {value}")

    with connected(url) as connection:
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


def test_a_connection_that_is_cut_is_opened_again(url):
    ledger = Ledger.create(url, BUDGET)
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
    Ledger.create(url).spend(Gaussian(1.0))
    assert len(Ledger.open(url).rows()) == 1


def test_texts_with_nul_are_refused(url):
    ledger = Ledger.create(url)
    with pytest.raises(ValueError, match="must not hold the character NUL"):
        ledger.spend(Gaussian(1.0), label="a\0b")
    ledger.spend(Gaussian(1.0), label="a\\u0000b")
    assert [row.label for row in ledger.rows()] == ["a\\u0000b"]
