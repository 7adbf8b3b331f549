"""Large files, copies of files, names of files, and who waits for whom."""

import json
import multiprocessing
import os
import shutil
import sqlite3
import threading

import pytest

from accounting import Budget, BudgetExceeded, Gaussian, Laplace, Ledger, LedgerCorrupted, PureDP
from accounting.ledger import recorder
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.record.entry_types import Summary
from accounting.ledger.record.hash_chain import link
from accounting.ledger.storage import database as stored
from accounting.ledger.storage import sqlite as ledger_file

BUDGET = Budget(1.0, 1e-6)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spends.ledger"


# ------------------------------------------------------------------------------------------------ summaries


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 10)


def busy(path, rows=120):
    """A ledger with spends of several kinds and scopes, outcomes, marks and a quota, and its state."""
    with Ledger.open(path, BUDGET) as ledger:
        ledger.set_quota("north", Budget(0.5, 1e-7))
        for i in range(rows):
            release = [Gaussian(900.0), Laplace(1500.0), PureDP(1e-4)][i % 3]
            row = ledger.spend(release, label=f"row {i}", scope=[None, "north", "north/ann", "south"][i % 4])
            if i % 5 == 0:
                ledger.commit(row)
            if i % 7 == 0:
                ledger.mark(f"run {i % 2}", i + 1, "ab")
        return ledger.head, ledger.rows(), ledger.total, ledger.remaining(), ledger.quota_spent("north")


def test_a_file_with_summaries_says_the_same(path, often, monkeypatch):
    head, rows, total, remaining, used = busy(path)
    decoded = []
    original = stored.from_dict
    monkeypatch.setattr(stored, "from_dict", lambda values: decoded.append(values["entry"]) or original(values))
    ledger = Ledger.open(path)
    assert ledger.head == head
    assert len(decoded) < 40
    assert "summary" in decoded
    assert (ledger.total, ledger.rows()) == (total, rows)
    assert ledger.remaining() == pytest.approx(remaining, rel=1e-12)
    assert ledger.quota_spent("north") == pytest.approx(used, rel=1e-12)
    assert ledger.newest_mark("run 0").step == max(i + 1 for i in range(0, 120, 14))
    assert ledger.verify(expected_head=head) == head
    copy = Ledger.from_json(ledger.to_json())
    assert (copy.head, copy.rows(), copy.total) == (head, rows, total)
    with pytest.raises(ValueError, match="already committed as 'released'"):
        ledger.commit(rows[0])
    with pytest.raises(ValueError, match="label must be new"):
        ledger.spend(PureDP(1e-4), label="row 1", unique=True)
    with pytest.raises(ValueError, match="another process or an older state"):
        ledger.mark("run 0", 3, "ab")
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(3.0))
    ledger.commit(rows[1])
    assert ledger.rows()[1].outcome == "released"


def test_processes_share_a_file_with_summaries(path, often):
    Ledger.open(path, BUDGET).close()

    def child(name):
        ledger = Ledger.open(path)
        for i in range(40):
            ledger.spend(Gaussian(1000.0 + i % 7), label=f"{name} {i}")

    children = [FORK.Process(target=child, args=(name,)) for name in "abc"]
    for process in children:
        process.start()
    for process in children:
        process.join()
    ledger = Ledger.open(path)
    assert len(ledger.rows()) == 120
    ledger.verify()


@pytest.mark.parametrize("change", ["rows", "totals", "filter", "marks", "simulation"])
def test_a_forged_summary_is_found_by_verifying(path, change):
    with Ledger.open(path, BUDGET) as ledger:
        for _ in range(5):
            ledger.spend(Gaussian(20.0))
        ledger.mark("a", 2, "ab")
        state = ledger._recorder._take()
        summary = json.loads(json.dumps(state.balance.summary()))
        ledger._recorder._known = state
        head = ledger.head
    match change:
        case "rows":
            summary["rows"] = 4
        case "totals":
            summary["totals"][0][2] = 1
        case "filter":
            summary["filter"]["sums"][0][1] = [0.0 for _ in summary["filter"]["sums"][0][1]]
        case "marks":
            summary["marks"] = []
        case "simulation":
            summary["simulation"] = True
    with Ledger.open(path) as ledger:
        opening, time_ = ledger._recorder._take().opening, ledger.rows()[0].time
    body, forged = link(head, stored.to_dict(Summary(opening, time_, summary)))
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO entries VALUES (7, ?, ?)", (body, forged))
        connection.execute("UPDATE head SET entries = 8, hash = ?, summary = 7", (forged,))
    connection.close()
    with pytest.raises(LedgerCorrupted, match="entry 7"), Ledger.open(path) as ledger:
        ledger.verify()


def test_an_edit_before_the_last_summary_is_found_by_verifying(path, often):
    head = busy(path)[0]
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET body = replace(body, 'row 0', 'row x') WHERE id = 2")
    connection.close()
    ledger = Ledger.open(path)
    with pytest.raises(LedgerCorrupted, match="entry 2 does not match its hash"):
        ledger.verify()
    with pytest.raises(LedgerCorrupted, match="entry 2 does not match its hash"):
        ledger.rows()
    with pytest.raises(LedgerCorrupted, match="entry 2 does not match its hash"):
        Ledger.open(path, expected_head=head)


def test_a_spend_reads_nothing_of_what_was_there_before(path, often):
    busy(path, rows=200)
    ledger = Ledger.open(path)
    ledger.spend(PureDP(1e-4))
    read = []
    ledger._recorder.store._connection.set_trace_callback(read.append)
    ledger.spend(PureDP(1e-4), label="one more", unique=True)
    ledger._recorder.store._connection.set_trace_callback(None)
    assert not any(statement.startswith("SELECT id, body") for statement in read)


# -------------------------------------------------------------------------------------------------- backups


def test_a_backup_is_a_ledger_that_was_there_at_one_moment(path, tmp_path):
    ledger = Ledger.open(path, BUDGET)
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
    assert sorted(os.listdir(tmp_path)) == sorted(
        [path.name, f"{path.name}-wal", f"{path.name}-shm", *(copy.name for copy, _ in copies)]
    )


def test_a_backup_replaces_nothing(path, tmp_path):
    ledger = Ledger.open(path, BUDGET)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("kept", "link", path.name):
        with pytest.raises(FileExistsError, match="replaces nothing"):
            ledger.backup(tmp_path / name)
    assert (tmp_path / "kept").read_text() == "kept"
    with pytest.raises(ValueError, match="in memory: keep its to_json"):
        Ledger().backup(tmp_path / "new")
    ledger.close()
    with pytest.raises(ValueError, match="this one is closed"):
        ledger.backup(tmp_path / "new")


def test_restoring(path, tmp_path):
    with Ledger.open(path, BUDGET) as ledger:
        ledger.spend(Gaussian(20.0), label="before")
        early = ledger.backup(tmp_path / "early")
        ledger.spend(Gaussian(30.0), label="after")
        late = ledger.head
    with pytest.raises(FileExistsError):
        Ledger.restore(tmp_path / "early", path)
    path.unlink()
    with pytest.raises(LedgerCorrupted, match="does not contain the expected head"):
        Ledger.restore(tmp_path / "early", path, expected_head=late)
    assert not path.exists()
    with Ledger.restore(tmp_path / "early", path, expected_head=early) as ledger:
        assert [row.label for row in ledger.rows()] == ["before"]
        ledger.spend(Gaussian(40.0))
    with pytest.raises(FileNotFoundError, match="there is no backup"):
        Ledger.restore(tmp_path / "none", tmp_path / "new")


# ---------------------------------------------------------------------------------------------------- names


def test_a_file_with_two_names_takes_no_spend(path, tmp_path):
    ledger = Ledger.open(path, BUDGET)
    ledger.spend(Gaussian(20.0))
    os.link(path, tmp_path / "other")
    for attempt in (lambda: ledger.spend(Gaussian(20.0)), lambda: Ledger.open(tmp_path / "other")):
        with pytest.raises(ValueError, match=r"has 2 names \(hard links\)"):
            attempt()
    os.unlink(tmp_path / "other")
    ledger.spend(Gaussian(20.0))
    assert len(ledger.rows()) == 2


def test_a_symbolic_link_is_the_same_ledger(path, tmp_path):
    one = Ledger.open(path, BUDGET)
    (tmp_path / "link").symlink_to(path)
    other = Ledger.open(tmp_path / "link")
    one.spend(Gaussian(6.0))
    with pytest.raises(BudgetExceeded):
        other.spend(Gaussian(4.0))
    assert other.path == path


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
    ledger = Ledger.open(path, BUDGET)
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


# ----------------------------------------------------------------------------------------------------- locks


def test_pricing_does_not_hold_the_write_lock(path, monkeypatch):
    Ledger.open(path, BUDGET).close()
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


def test_what_others_recorded_meanwhile_is_counted(path):
    """Two processes decide at the same time; the second to come is asked again."""
    one, other = Ledger.open(path, BUDGET), Ledger.open(path)
    begin = one._recorder.store.append

    def slowly(make, also):
        one._recorder.store.append = begin
        other.spend(Gaussian(6.0))
        return begin(make, also)

    one._recorder.store.append = slowly
    with pytest.raises(BudgetExceeded):
        one.spend(Gaussian(4.5))
    assert [row.release for row in one.rows()] == [Gaussian(6.0)]


def test_a_lock_that_is_refused_leaves_no_transaction(path, monkeypatch):
    monkeypatch.setattr(ledger_file, "_WAIT_SECONDS", 0.01)
    ledger = Ledger.open(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(TimeoutError):
        ledger.spend(Gaussian(1.0))
    assert not ledger._recorder.store._connection.in_transaction
    blocker.execute("ROLLBACK")
    blocker.close()
    ledger.spend(Gaussian(1.0))


def test_a_copied_file_without_its_log_is_an_older_one(path, tmp_path):
    """Why there is a command for it: copying an open file loses what is in its log."""
    ledger = Ledger.open(path, BUDGET)
    for _ in range(3):
        ledger.spend(Gaussian(50.0))
    shutil.copy(path, tmp_path / "copy")
    ledger.backup(tmp_path / "backup")
    assert len(Ledger.open(tmp_path / "copy").rows()) < 3
    assert len(Ledger.open(tmp_path / "backup").rows()) == 3
