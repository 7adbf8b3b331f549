"""Ledgers in files: what the disk is asked for, damage, names, and what interrupts and killed processes leave."""

import os
import random
import shutil
import sqlite3
import threading
from contextlib import closing

import pytest
from ledgers import edited

from accounting import Budget, BudgetExceeded, Gaussian, Laplace, Ledger, LedgerCorrupted
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.record.balance import Balance
from accounting.ledger.storage import sqlite

BUDGET = Budget(1.0, 1e-6)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spends.ledger"


def filled(path, rows=6):
    """A closed ledger; its rows."""
    with Ledger.create(path, BUDGET) as ledger:
        for index in range(rows):
            ledger.commit(ledger.spend(Gaussian(40.0 + index), label=f"release {index}"))
        return ledger.rows()


def test_a_closed_ledger_is_one_file(path):
    filled(path)
    assert os.listdir(path.parent) == [path.name]
    with Ledger.open(path) as ledger:
        assert ledger.path == path
    assert Ledger().path is None


def test_commits_are_synced_in_full(path, monkeypatch):
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite.sqlite3, "connect", lambda *a, **k: opened.append(connect(*a, **k)) or opened[-1])
    ledger = Ledger.create(path)
    ledger.spend(Gaussian(1.0))
    assert opened[-1].execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    assert opened[-1].execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_of_an_earlier_release_is_changed_over_once_that_has_let_go(path, monkeypatch):
    rows = filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as earlier:
        assert earlier.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        earlier.execute("BEGIN IMMEDIATE")
        earlier.execute("ROLLBACK")
        monkeypatch.setattr(sqlite, "_WAIT_SECONDS", 0.05)
        with pytest.raises(TimeoutError, match="as an earlier release makes it, and another process has it open"):
            Ledger.open(path)
    with Ledger.open(path) as ledger:
        assert ledger.rows() == rows
    assert os.listdir(path.parent) == [path.name]


# --------------------------------------------------------------------------------------------------------------- damage


def damaged(path, original, offset, generator):
    """The file with one bit turned, and no log."""
    changed = bytearray(original)
    changed[offset] ^= 1 << generator.randrange(8)
    path.write_bytes(changed)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)


@pytest.mark.thorough
def test_a_flipped_byte_is_detected_in_any_row_and_changes_nothing_unseen_elsewhere(path):
    rows = filled(path)
    original, generator = path.read_bytes(), random.Random(0)
    with sqlite3.connect(path) as connection:
        texts = [text for row in connection.execute("SELECT body, hash FROM entries") for text in row]
    connection.close()
    for text in texts:
        for offset in generator.sample(range(len(text)), 4):
            damaged(path, original, original.index(text.encode()) + offset, generator)
            with pytest.raises(LedgerCorrupted, match=str(path)):
                Ledger.open(path)
    seen = 0
    for offset in generator.sample(range(len(original)), 160):
        damaged(path, original, offset, generator)
        try:
            with Ledger.open(path) as ledger:
                assert (ledger.rows(), ledger.budget) == (rows, BUDGET)
        except (LedgerCorrupted, OSError):
            seen += 1
    assert seen > 16  # the rest lies in pages and fields that SQLite does not use


def test_a_truncated_file_is_detected(path):
    filled(path)
    size = path.stat().st_size
    for kept in (size // 4, size // 2, size - 4096, size - 1):
        damaged = path.with_name(f"cut{kept}")
        damaged.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(LedgerCorrupted):
            Ledger.open(damaged)


def test_files_that_are_no_ledgers_are_refused(path, tmp_path):
    path.write_bytes(b"")
    with pytest.raises(LedgerCorrupted, match="is empty"):
        Ledger.open(path)
    path.write_text("not a database, and long enough for a header: " + 100 * "x")
    with pytest.raises(LedgerCorrupted, match="cannot be read as a ledger"):
        Ledger.open(path)
    other = tmp_path / "other.db"
    edited(other, "CREATE TABLE t (x)")
    with pytest.raises(LedgerCorrupted, match="tables of a ledger"):
        Ledger.open(other)
    with pytest.raises(OSError, match="cannot be used: unable to open"):
        Ledger.create(tmp_path / "missing" / "spends.ledger")


def test_a_ledger_that_was_moved_or_replaced_while_open_takes_no_spend(path):
    ledger = Ledger.create(path, BUDGET)
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(LedgerCorrupted, match="was moved or deleted"):
        ledger.spend(Gaussian(10.0))
    with pytest.raises(FileNotFoundError, match="is the path right, and its volume mounted"):
        Ledger.open(path, BUDGET)
    for kind in ("wal", "journal"):
        beside = path.with_name(f"{path.name}-{kind}")
        beside.write_bytes(b"left")
        with pytest.raises(LedgerCorrupted, match=rf"spends\.ledger-{kind}, which was a part of it, is not"):
            Ledger.create(path, BUDGET)
        beside.unlink()
    Ledger.create(path, BUDGET).close()
    with pytest.raises(FileExistsError, match="exists already"):
        Ledger.create(path, BUDGET)
    with pytest.raises(LedgerCorrupted, match="was replaced by another file"):
        ledger.spend(Gaussian(10.0))


# ----------------------------------------------------------------------------------------------------- copies and names


def test_a_backup_is_a_ledger_that_was_there_at_one_moment(path, tmp_path):
    ledger = Ledger.create(path, BUDGET)
    copies = []

    def spend():
        for i in range(60):
            ledger.spend(Gaussian(500.0), label=f"row {i}")

    spender = threading.Thread(target=spend)
    spender.start()
    other = Ledger.open(path)
    spending = True
    while spending:  # once more at the end, so that there is one, whoever was faster
        spending = spender.is_alive()
        copy = tmp_path / f"copy{len(copies)}"
        copies.append((copy, other.backup(copy)))
    spender.join()
    labels = [row.label for row in ledger.rows()]
    for copy, head in copies:
        with Ledger.open(copy, expected_head=head) as old:
            assert [row.label for row in old.rows()] == labels[: len(old.rows())]
            assert old.head == head
        ledger.verify(expected_head=head)
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, *(copy.name for copy, _ in copies)])


def test_a_copy_of_an_open_file_has_all_that_was_spent(path, tmp_path):
    ledger = Ledger.create(path, BUDGET)
    for spent in range(1, 6):
        ledger.spend(Gaussian(50.0))
        copy = shutil.copy(path, tmp_path / "copy")
        with Ledger.open(copy) as copied:
            assert len(copied.rows()) == spent
            assert copied.remaining() == ledger.remaining()


def test_a_copy_in_the_middle_of_a_spend_is_whole_or_does_not_verify(path, tmp_path):
    """However the copy falls: it never holds less than what had been spent before it began."""
    ledger, spent, copy = Ledger.create(path, BUDGET), [0], tmp_path / "copy"

    def spend():
        for _ in range(150):
            ledger.spend(Gaussian(5000.0), label=300 * "x")
            spent[0] += 1

    spender = threading.Thread(target=spend)
    spender.start()
    spending = True
    while spending:
        spending = spender.is_alive()
        before = spent[0]
        shutil.copy(path, copy)
        try:
            with Ledger.open(copy) as copied:
                copied.verify()
                assert len(copied.rows()) >= before
        except LedgerCorrupted:
            assert spending
    spender.join()


def test_a_file_with_two_names_takes_no_spend(path, tmp_path):
    ledger = Ledger.create(path, BUDGET)
    ledger.spend(Gaussian(20.0))
    os.link(path, tmp_path / "other")
    for attempt in (lambda: ledger.spend(Gaussian(20.0)), lambda: Ledger.open(tmp_path / "other")):
        with pytest.raises(ValueError, match=r"has 2 names \(hard links\)"):
            attempt()
    os.unlink(tmp_path / "other")
    ledger.spend(Gaussian(20.0))
    assert len(ledger.rows()) == 2


def test_a_symbolic_link_is_the_same_ledger(path, tmp_path):
    one = Ledger.create(path, BUDGET)
    (tmp_path / "link").symlink_to(path)
    other = Ledger.open(tmp_path / "link")
    one.spend(Gaussian(6.0))
    with pytest.raises(BudgetExceeded):
        other.spend(Gaussian(4.0))
    assert other.path == path


# ----------------------------------------------------------------------------------------- locks, interrupts, leftovers


def test_what_killed_processes_left_is_cleaned_up(path):
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    dead = path.with_name(f".{path.name}.{gone}.{'ab' * 8}")
    alive = path.with_name(f".{path.name}.{os.getppid()}.{'cd' * 8}")
    unrelated = path.with_name(f".{path.name}.notes.txt")
    for name in (dead, alive, unrelated, dead.with_name(dead.name + "-wal")):
        name.write_text("left")
    ledger = Ledger.create(path, BUDGET)
    assert not dead.exists()
    assert not dead.with_name(dead.name + "-wal").exists()
    assert alive.exists()
    assert unrelated.exists()
    dead.write_text("left by one who came second")
    Ledger.open(path)
    assert not dead.exists()
    # killed between the link and the removal of the draft: the file has a second name
    os.link(path, alive.with_name(alive.name[:-2] + "ef"))
    ledger.spend(Gaussian(20.0))
    assert not alive.with_name(alive.name[:-2] + "ef").exists()


def test_pricing_does_not_hold_the_write_lock(path, monkeypatch):
    Ledger.create(path, BUDGET).close()
    free = []
    original = AdditiveFilter.price

    def price(self, release):
        if not self.knows(release):
            with sqlite3.connect(path, timeout=0.0, isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")  # fails if the lock is held
                other.execute("ROLLBACK")
            other.close()
            free.append(release)
        return original(self, release)

    ledger = Ledger.open(path)
    other = Ledger.open(path)
    monkeypatch.setattr(AdditiveFilter, "price", price)
    ledger.spend(Gaussian(50.0))
    other.spend(Laplace(70.0) + Gaussian(60.0))
    ledger.spend(Laplace(80.0))
    with pytest.raises(BudgetExceeded):
        ledger.spend(Laplace(1.0))
    assert {Gaussian(50.0), Laplace(80.0)} <= set(free)


def test_an_interrupted_commit_hides_nothing(path, monkeypatch):
    ledger = Ledger.create(path, BUDGET)
    ledger.spend(Gaussian(100.0))
    with monkeypatch.context() as patch:
        patch.setattr(Balance, "apply", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.spend(Gaussian(6.0))
    assert len(ledger.rows()) == 1  # the file was left as it was
    ledger.spend(Gaussian(6.0))
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(6.0))
