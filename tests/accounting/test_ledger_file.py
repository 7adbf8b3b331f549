"""Ledgers on disk: reopening, sharing between processes, and what the hash chain detects."""

import json
import multiprocessing
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress

import pytest

from accounting import (
    ZCDP,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Ledger,
    LedgerCorrupted,
    NoisyMax,
    TreeAggregation,
    calibrate,
    parallel,
)

BUDGET = Budget(1.0, 1e-6)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spends.ledger"


def filled(path, rows=6):
    """A closed ledger with rows; its head."""
    with Ledger.open(path, Budget(5.0, 1e-6)) as ledger:
        for index in range(rows):
            ledger.commit(ledger.spend(Gaussian(10.0 + index), label=f"release {index}"))
        return ledger.head


def test_everything_comes_back(path):
    with Ledger.open(path, Budget(5.0, 1e-6, adjacency="add_remove", unit="person"), accountant="zcdp") as ledger:
        ledger.spend(Gaussian(10.0), label="ein Umlaut: ü, and a rocket: 🚀", scope="north")
        ledger.spend(2 * DiscreteGaussian(20.0) + TreeAggregation(30.0, steps=7), scope="south", unit="person")
        ledger.commit(ledger.spend(NoisyMax(0.1, noise="laplace"), simulation=True), "failed")
        ledger.spend(parallel(GeneralizedGaussian(40.0), ZCDP(0.001, adjacency="add_remove")))
        expected = ledger.rows(), ledger.total, ledger.head, ledger.budget, ledger.accountant, ledger.remaining()
    assert os.listdir(path.parent) == [path.name]  # closed, a ledger is one file
    with Ledger.open(path) as again:
        assert expected == (
            again.rows(), again.total, again.head, again.budget, again.accountant, again.remaining()
        )  # fmt: skip


def test_the_filter_survives_reopening(path):
    z = calibrate(lambda z: 10 * Gaussian(z), BUDGET)
    for _ in range(10):
        with Ledger.open(path, BUDGET) as ledger:
            ledger.spend(Gaussian(z))
    with Ledger.open(path) as ledger, pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(z))


@pytest.mark.parametrize(
    ("budget", "choices", "name"),
    [
        (Budget(2.0, 1e-6), {}, "budget"),
        (Budget(1.0, 1e-6, unit="person"), {}, "budget"),
        (BUDGET, {"accountant": "zcdp"}, "accountant"),
        (BUDGET, {"failure_delta": 1e-7}, "failure_delta"),
        (BUDGET, {"plan": Gaussian(10.0)}, "plan"),
    ],
)
def test_reopening_with_other_choices_is_refused(path, budget, choices, name):
    Ledger.open(path, BUDGET).close()
    with pytest.raises(ValueError, match=rf"was made with {name}=.*, got {name}="):
        Ledger.open(path, budget, **choices)


def test_two_views_see_each_other(path):
    one, other = Ledger.open(path, BUDGET), Ledger.open(path)
    assert one.path == other.path == path
    assert Ledger().path is None
    row = one.spend(Gaussian(6.0))
    assert other.rows() == [row]
    other.commit(row)
    assert one.rows()[0].outcome == "released"
    assert one.head == other.head
    with pytest.raises(BudgetExceeded):
        other.spend(Gaussian(4.0))


def test_processes_never_pass_the_budget_together(path):
    z = calibrate(lambda z: 60 * Gaussian(z), BUDGET)
    mine = Ledger.open(path, BUDGET)
    mine.spend(Gaussian(z))  # an open connection and a filled cache, which must not cross the fork

    def child(results, inherited):
        ledger = mine if inherited else Ledger.open(path)
        count = 0
        try:
            while True:
                ledger.spend(Gaussian(z))
                count += 1
        except BudgetExceeded:
            results.put(count)

    results = FORK.SimpleQueue()
    children = [FORK.Process(target=child, args=(results, inherited)) for inherited in (True, True, False)]
    for process in children:
        process.start()
    for process in children:
        process.join()
    assert 1 + sum(results.get() for _ in children) == 60
    assert len(mine.rows()) == 60


def test_a_unique_label_is_recorded_by_one_process_only(path):
    Ledger.open(path).close()

    def child(results):
        ledger, count = Ledger.open(path), 0
        for i in range(30):
            with suppress(ValueError):
                ledger.spend(Gaussian(1.0), label=f"claim {i}", unique=True)
                count += 1
        results.put(count)

    results = FORK.SimpleQueue()
    children = [FORK.Process(target=child, args=(results,)) for _ in range(3)]
    for process in children:
        process.start()
    for process in children:
        process.join()
    assert sum(results.get() for _ in children) == 30
    assert sorted(row.label for row in Ledger.open(path).rows()) == sorted(f"claim {i}" for i in range(30))


def test_a_fork_leaves_no_lock_behind(path):
    ledger = Ledger.open(path)
    ledger.spend(Gaussian(1.0))
    pid = os.fork()
    if pid == 0:
        try:
            ledger.spend(Gaussian(2.0))
            ledger.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    ledger.spend(Gaussian(3.0))
    assert [row.release for row in ledger.rows()] == [Gaussian(1.0), Gaussian(2.0), Gaussian(3.0)]


def test_a_spend_is_in_the_file_before_it_returns(path):
    # Another process that never sees this one's memory reads the row as soon as spend has returned.
    ledger = Ledger.open(path)
    ledger.spend(Gaussian(1.0), label="seen")
    code = f"from accounting import Ledger; print(Ledger.open({str(path)!r}).rows()[0].label)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "seen\n"


def test_commits_are_synced_in_full(path, monkeypatch):
    from accounting.ledger.storage import sqlite as file

    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(file.sqlite3, "connect", lambda *a, **k: opened.append(connect(*a, **k)) or opened[-1])
    ledger = Ledger.open(path)
    ledger.spend(Gaussian(1.0))
    assert opened[-1].execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert opened[-1].execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ------------------------------------------------------------------------------------------ what is detected


def texts(path):
    with sqlite3.connect(path) as connection:
        found = [text for row in connection.execute("SELECT body, hash FROM entries") for text in row]
    connection.close()
    return found


def test_a_flipped_byte_in_any_row_is_detected(path):
    filled(path)
    original = path.read_bytes()
    generator = random.Random(0)
    for text in texts(path):
        start = original.index(text.encode())
        for offset in generator.sample(range(len(text)), 12):
            damaged = bytearray(original)
            damaged[start + offset] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(LedgerCorrupted, match=str(path)):
                Ledger.open(path)


def test_a_flipped_byte_anywhere_changes_nothing_unseen(path):
    filled(path)
    original = path.read_bytes()
    expected = Ledger.open(path).rows()
    generator = random.Random(1)
    seen = 0
    for offset in generator.sample(range(len(original)), 500):
        damaged = bytearray(original)
        damaged[offset] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        try:
            ledger = Ledger.open(path)
        except (LedgerCorrupted, OSError):
            seen += 1
        else:
            assert ledger.rows() == expected
            assert ledger.budget == Budget(5.0, 1e-6)
            ledger.close()
    assert seen > 50  # the rest lies in pages and fields that SQLite does not use


def edit(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


LAST = "(SELECT max(id) FROM entries)"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([f"DELETE FROM entries WHERE id = {LAST}"], "12 entries are there and its head counts 13"),
        (["DELETE FROM entries WHERE id = 5"], "entry 5 is missing"),
        (["UPDATE entries SET body = replace(body, 'release 2', 'release 9') WHERE id = 5"], "entry 5 does not match"),
        (["UPDATE entries SET hash = hash || '0' WHERE id = 5"], "entry 5 does not match"),
        (["UPDATE entries SET body = CAST(body AS BLOB) WHERE id = 5"], "entry 5 does not hold text"),
        (
            ["DELETE FROM entries WHERE id = 5", "UPDATE entries SET id = id - 1 WHERE id > 5"],
            "entry 5 does not follow",
        ),
        (["INSERT INTO entries VALUES (13, '{}', 'x')"], "entry 13 does not match"),
        (["UPDATE head SET entries = 12"], "its head counts 12"),
        (["UPDATE head SET hash = 'x'"], "its head counts 13"),
        (["DELETE FROM head"], "its head was edited"),
        (["UPDATE head SET entries = 'many'"], "its head was edited"),
        (["DROP TABLE head"], "does not have the tables of a ledger"),
        (["CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END"], "does not have the tables"),
    ],
)
def test_edits_are_detected(path, statements, message):
    filled(path)
    edit(path, *statements)
    with pytest.raises(LedgerCorrupted, match=message):
        Ledger.open(path)


def test_an_edit_under_an_open_ledger_is_detected(path):
    filled(path)
    ledger = Ledger.open(path)
    edit(path, f"DELETE FROM entries WHERE id = {LAST}", "UPDATE head SET entries = 12")
    with pytest.raises(LedgerCorrupted, match="13 entries were there before and 12 are left"):
        ledger.spend(Gaussian(100.0))
    with pytest.raises(LedgerCorrupted):  # and it stays refused
        ledger.spend(Gaussian(100.0))


def test_rolled_back_and_rewritten_files_are_caught_by_a_noted_head(path, tmp_path):
    first = filled(path, rows=2)
    old = shutil.copy(path, tmp_path / "old")
    with Ledger.open(path, expected_head=first) as ledger:  # an earlier head stays in the chain
        ledger.spend(Gaussian(30.0))
        noted = ledger.head
    Ledger.open(path, expected_head=noted).close()
    shutil.copy(old, path)
    Ledger.open(path).close()  # the file alone cannot tell
    with pytest.raises(LedgerCorrupted, match="does not contain the expected head"):
        Ledger.open(path, expected_head=noted)


def test_a_missing_file_is_not_made_again_where_a_head_is_expected(path):
    noted = filled(path)
    path.unlink()
    with pytest.raises(LedgerCorrupted, match="is missing, and with it the expected head"):
        Ledger.open(path, expected_head=noted)
    assert not path.exists()


NOW = "2026-01-01T00:00:00+00:00"
ROW = {"entry": "spend", "index": 6, "time": NOW, "label": "", "scope": None, "simulation": False, "unit": None}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**ROW, "release": {"type": "Wish"}}, "entry 13 cannot be read: unknown release 'Wish'"),
        ({**ROW, "release": {"type": "PureDP", "epsilon": -1}}, "entry 13 cannot be read: epsilon must be"),
        ({**ROW, "index": 7, "release": {"type": "PureDP", "epsilon": 1}}, "entry 13 cannot stand where it does"),
        ({"entry": "outcome", "time": NOW, "index": 0, "outcome": "released"}, "row 0 was already committed"),
        ({"entry": "outcome", "time": NOW, "index": 99, "outcome": "failed"}, "index must name one of the 6 rows"),
        ({"entry": "wish", "time": NOW}, "unknown kind of entry 'wish'"),
        ({"entry": "spend"}, "entry 13 cannot be read"),
    ],
)
def test_a_valid_chain_of_nonsense_is_refused(path, entry, message):
    from accounting.ledger.record.hash_chain import link

    body, forged = link(filled(path), entry)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO entries VALUES (13, ?, ?)", (body, forged))
        connection.execute("UPDATE head SET entries = 14, hash = ?", (forged,))
    connection.close()
    with pytest.raises(LedgerCorrupted, match=message):
        Ledger.open(path)


def test_files_that_are_no_ledgers_are_refused(path, tmp_path):
    path.write_bytes(b"")
    with pytest.raises(LedgerCorrupted, match="is empty"):
        Ledger.open(path)
    path.write_text("not a database, and long enough for a header: " + 100 * "x")
    with pytest.raises(LedgerCorrupted, match="cannot be read as a ledger"):
        Ledger.open(path)
    other = tmp_path / "other.db"
    edit(other, "CREATE TABLE t (x)")
    with pytest.raises(LedgerCorrupted, match="tables of a ledger"):
        Ledger.open(other)
    with pytest.raises(OSError, match="cannot be used: unable to open"):
        Ledger.open(tmp_path / "missing" / "spends.ledger")


def test_a_truncated_file_is_detected(path):
    filled(path)
    size = path.stat().st_size
    for kept in (size // 4, size // 2, size - 4096, size - 1):
        damaged = path.with_name(f"cut{kept}")
        damaged.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(LedgerCorrupted):
            Ledger.open(damaged)


def test_a_ledger_that_was_moved_or_replaced_while_open_takes_no_spend(path):
    ledger = Ledger.open(path, BUDGET)
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(LedgerCorrupted, match="was moved or deleted"):
        ledger.spend(Gaussian(10.0))
    with pytest.raises(LedgerCorrupted, match=r"its log spends\.ledger-wal is not"):
        Ledger.open(path, BUDGET)
    path.with_name(path.name + "-wal").unlink()
    Ledger.open(path, BUDGET).close()
    with pytest.raises(LedgerCorrupted, match="was replaced by another file"):
        ledger.spend(Gaussian(10.0))


def test_a_locked_ledger_is_refused_in_time(path, monkeypatch):
    from accounting.ledger.storage import sqlite as file

    monkeypatch.setattr(file, "_WAIT_SECONDS", 0.05)
    ledger = Ledger.open(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimeoutError, match=r"was locked by another process for 0\.05 s; nothing was recorded"):
        ledger.spend(Gaussian(1.0))
    blocker.execute("ROLLBACK")
    blocker.close()
    ledger.spend(Gaussian(1.0))
    assert len(ledger.rows()) == 1


def test_an_interrupted_commit_hides_nothing(path, monkeypatch):
    ledger = Ledger.open(path, BUDGET)
    ledger.spend(Gaussian(100.0))
    book = type(ledger._recorder._known.balance)
    with monkeypatch.context() as patch:
        patch.setattr(book, "apply", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(Gaussian(6.0))
    assert len(ledger.rows()) == 1  # the file was left as it was
    ledger.spend(Gaussian(6.0))
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(6.0))


def test_many_commits_and_their_checkpoints(path, monkeypatch):
    from accounting.ledger.storage import sqlite as file

    monkeypatch.setattr(file, "_COMMITS_PER_CHECKPOINT", 10)
    ledger = Ledger.open(path)
    for index in range(55):
        ledger.spend(Gaussian(1.0 + index))
    assert path.with_name(path.name + "-wal").stat().st_size < 60 * 4096
    with Ledger.open(path) as again:
        assert again.rows() == ledger.rows()


def test_json_and_file_have_the_same_hashes(path):
    filled(path)
    with Ledger.open(path) as ledger:
        assert Ledger.from_json(ledger.to_json()).head == ledger.head
        assert json.loads(ledger.to_json())["head"] == ledger.head
