"""A ledger that goes back is refused by its witness, charged again, and of two branches one may spend."""

import json
import pickle
import shutil
import signal
import sqlite3
import zipfile
from contextlib import closing
from datetime import datetime

import pytest
from ledgers import Shelf
from recorded_ledgers import KEPT

from accounting import Budget, Gaussian, Ledger, LedgerBehind, LedgerCorrupted, PoissonSubsampled
from accounting.ledger import Witness, recorder
from accounting.ledger import ledger as ledgers
from accounting.ledger.storage import sqlite
from accounting.ledger.storage import witness as module
from accounting.ledger.storage.sqlite import SQLiteFile

BUDGET = Budget(3.0, 1e-6)


@pytest.fixture(params=["file", "server", "shelf"])
def elsewhere(request, tmp_path):
    """What a ledger may have for a witness."""
    if request.param == "shelf":
        shelf = Shelf()
        assert isinstance(shelf, Witness)
        return shelf
    return str(tmp_path / "witness") if request.param == "file" else request.getfixturevalue("postgres").url()


def spent(ledger, *labels):
    for label in labels:
        ledger.commit(ledger.spend(Gaussian(20.0), label=label))


def test_a_volume_that_went_back_is_refused_and_charged_again(tmp_path, elsewhere):
    path, snapshot = tmp_path / "spends", tmp_path / "snapshot"
    with Ledger.create(path, BUDGET, witness=elsewhere) as ledger:
        spent(ledger, "a", "b")
        shutil.copy(path, snapshot)
        spent(ledger, "c", "d")
        left, head = ledger.remaining(), ledger.head
    shutil.copy(snapshot, path)
    with Ledger.open(path) as alone:  # the file alone cannot tell, and can only be read
        assert len(alone.rows()) == 2
        before = alone.head
        for record in (alone.spend, alone.acting("ann").spend):
            with pytest.raises(ValueError, match=r"made with a witness, and was opened without: nothing was recorded"):
                record(Gaussian(20.0))
        with pytest.raises(ValueError, match="made with a witness"):
            pickle.loads(pickle.dumps(alone)).mark("a", 1, "aa")
        assert alone.head == before
    with pytest.raises(LedgerBehind, match=r"holds 5 entries, and its witness .* has seen 9: an older copy"):
        Ledger.open(path, witness=elsewhere)
    assert Ledger.catch_up(path, elsewhere) == 4
    assert Ledger.catch_up(path, elsewhere) == 0
    with Ledger.open(path, witness=elsewhere) as ledger:
        assert (ledger.remaining(), ledger.verify()) == (left, head)
        spent(ledger, "e")


def test_of_two_copies_the_second_to_spend_is_refused_before_its_noise(tmp_path, elsewhere):
    path, copy = tmp_path / "spends", tmp_path / "copy"
    ledger = Ledger.create(path, BUDGET, witness=elsewhere)
    spent(ledger, "a")
    shutil.copy(path, copy)
    other = Ledger.open(copy, witness=elsewhere)
    spent(ledger, "b")
    with pytest.raises(LedgerCorrupted):
        other.spend(Gaussian(20.0), label="the same again")
    with pytest.raises(LedgerCorrupted):
        Ledger.open(copy, witness=elsewhere)
    with pytest.raises(LedgerCorrupted):
        Ledger.catch_up(copy, elsewhere)
    spent(ledger, "c")
    assert [row.label for row in Ledger.open(path, witness=elsewhere).rows()] == ["a", "b", "c"]
    export = Ledger.from_json(ledger.to_json())
    with pytest.raises(ValueError, match="an export of a ledger that was made with a witness"):
        spent(export, "d")
    assert len(export.rows()) == 3
    with pytest.raises(ValueError, match="an export of a ledger that was made with a witness"):
        spent(pickle.loads(pickle.dumps(export)), "d")
    with pytest.raises(TypeError, match="witness must be given"):
        Ledger.catch_up(path, None)


class Still(datetime):
    """A clock that stands still, as two hosts may have it within a microsecond."""

    @classmethod
    def now(cls, tz=None):
        return cls(2027, 1, 1, tzinfo=tz)


def test_copies_with_equal_clocks_make_different_entries(tmp_path, elsewhere, monkeypatch):
    for clocked in (ledgers, recorder):
        monkeypatch.setattr(clocked, "datetime", Still)
    Ledger.create(tmp_path / "spends", BUDGET, witness=elsewhere).close()
    shutil.copy(tmp_path / "spends", tmp_path / "copy")
    ledger, other = (Ledger.open(tmp_path / name, witness=elsewhere) for name in ("spends", "copy"))
    ledger.spend(Gaussian(20.0), label="weekly")
    with pytest.raises(LedgerCorrupted):
        other.spend(Gaussian(20.0), label="weekly")
    # all that somebody asks for, the opening included
    for twice in ("spend", "commit", "mark", "quota"):
        one = Ledger(BUDGET)
        other = Ledger.from_json(one.to_json())
        for each in (one, other):
            if twice == "spend":
                each.spend(Gaussian(20.0))
            elif twice == "mark":
                each.mark("a", 1, "aa")
            elif twice == "quota":
                each.set_quota("north", Budget(1.0, 1e-6))
        if twice == "commit":
            row = one.spend(Gaussian(20.0))
            other = Ledger.from_json(one.to_json())
            for each in (one, other):
                each.commit(row)
        assert one.head != other.head
        assert Ledger.from_json(other.to_json()).head == other.head
    assert Ledger(BUDGET).head != Ledger(BUDGET).head


@pytest.mark.parametrize("name", ["everything", "persons"])
def test_a_ledger_and_a_witness_of_an_earlier_release_go_on(name, tmp_path):
    with zipfile.ZipFile(KEPT) as kept:
        path = kept.extract(name, tmp_path)
    witness = shutil.copy(path, tmp_path / "witness")
    old = Ledger.open(path).head
    with Ledger.open(path, witness=witness) as ledger:
        assert (ledger.head, ledger.verify()) == (old, old)
        assert Ledger.from_json(ledger.to_json()).head == old
        spent(ledger, "with a nonce")
        ledger.verify(expected_head=old)
        text = ledger.to_json()
    assert Ledger.open(witness).verify(expected_head=old) == ledger.head
    assert Ledger.from_json(text, expected_head=old).head == ledger.head
    had = ["nonce" in item["entry"] for item in json.loads(text)["entries"]]
    assert had == [False] * (len(had) - 2) + [True, True]


def test_what_a_witness_could_not_be_told_counts_and_is_told_later(tmp_path):
    shelf, path = Shelf(), tmp_path / "spends"
    ledger = Ledger.create(path, BUDGET, witness=shelf)
    shelf.away = True
    with pytest.raises(OSError, match="out of reach"):
        ledger.spend(Gaussian(20.0), label="a")
    assert len(shelf.objects) == 1
    shelf.away = False
    spent(ledger, "b")
    assert len(shelf.objects) == 4
    assert [row.label for row in ledger.rows()] == ["a", "b"]
    # killed between the two: the next one to open tells it
    shelf.objects.popitem()
    Ledger.open(path, witness=shelf)
    assert len(shelf.objects) == 4


def test_retries_against_a_witness_that_is_away_charge_once(tmp_path):
    shelf = Shelf()
    ledger = Ledger.create(tmp_path / "spends", BUDGET, witness=shelf)
    shelf.away = True
    for attempt in (
        *[lambda: ledger.spend(Gaussian(20.0), label="daily")] * 3,
        lambda: ledger.mark("a", 1, "aa"),
        lambda: ledger.set_quota("north", Budget(1.0, 1e-6)),
    ):
        with pytest.raises(OSError, match=r"its witness the shelf does not have .*out of reach.*Ledger\.backup"):
            attempt()
    assert ledger.entries == 2
    shelf.away = False
    assert [row.label for row in ledger.rows()] == ["daily"]
    assert len(shelf.objects) == 2


def test_nothing_is_told_that_the_witness_lacks(tmp_path):
    """Whoever acts on an entry that the witness never got would release for it, and again after a step back."""
    shelf = Shelf()
    ledger = Ledger.create(tmp_path / "spends", BUDGET, witness=shelf)
    ledger.set_quota("north", Budget(1.0, 1e-6))
    asked = (
        ledger.rows, ledger.remaining, ledger.epsilon, ledger.quotas, ledger.scopes, lambda: ledger.total,
        lambda: ledger.simulation, lambda: ledger.quota_booked("north"), lambda: ledger.newest_mark("a"),
    )  # fmt: skip
    told = [ask() for ask in asked]
    shelf.away = True
    with pytest.raises(OSError, match="out of reach"):
        ledger.mark("a", 1, "aa")
    for closed in (False, True):
        for ask in asked:
            with pytest.raises(OSError, match=r"its witness the shelf does not have"):
                ask()
        assert ("closed" if closed else "the shelf does not have") in repr(ledger)
        # what shows what is there, and what makes another witness
        assert (ledger.budget, ledger.witnessed, ledger.entries) == (BUDGET, True, 3)
        assert ledger.verify() == ledger.head == Ledger.from_json(ledger.to_json()).head
        if not closed:
            ledger.backup(tmp_path / "another")
            ledger.close()
    with Ledger.open(tmp_path / "spends", witness=tmp_path / "another") as found:
        assert found.newest_mark("a").step == 1
    shelf.away = False
    assert ledger.newest_mark("a").step == 1
    assert len(shelf.objects) == 3
    assert [ask() for ask in asked[:-1]] == told[:-1]


@pytest.mark.parametrize("ask", [Ledger.rows, Ledger.remaining, lambda ledger: ledger.newest_mark("a")])
def test_who_reads_what_another_process_could_not_tell_tells_the_witness(ask, tmp_path, elsewhere, monkeypatch):
    killed = Ledger.create(tmp_path / "spends", BUDGET, witness=elsewhere)
    other = Ledger.open(tmp_path / "spends", witness=elsewhere)
    shutil.copy(tmp_path / "spends", tmp_path / "snapshot")
    with monkeypatch.context() as patch:
        patch.setattr(module.Watch, "follow", lambda self: None)
        killed.mark("a", 1, "aa")
    followed = []
    real = module.Watch.follow
    monkeypatch.setattr(module.Watch, "follow", lambda self: followed.append(real(self)))
    for _ in range(3):
        ask(other)
    assert len(followed) == 1  # nothing is asked of the witness where nothing is new
    other.close()
    shutil.copy(tmp_path / "snapshot", tmp_path / "spends")
    with pytest.raises(LedgerBehind):
        Ledger.open(tmp_path / "spends", witness=elsewhere)


def test_a_mark_is_told_by_nobody_who_has_no_witness(tmp_path):
    """A state would be published for it; rows can be read."""
    with Ledger.create(tmp_path / "spends", BUDGET, witness=tmp_path / "witness") as ledger:
        ledger.mark("a", 1, "aa")
        export = Ledger.from_json(ledger.to_json())
    for alone in (export, Ledger.open(tmp_path / "spends")):
        with pytest.raises(ValueError, match="made with a witness"):
            alone.newest_mark("a")
        assert alone.rows() == []


def test_a_witness_that_is_locked_speaks_of_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "_WAIT_SECONDS", 0.05)
    ledger = Ledger.create(tmp_path / "spends", BUDGET, witness=tmp_path / "witness")
    with closing(sqlite3.connect(tmp_path / "witness", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            TimeoutError,
            match=r"spends holds entries that its witness .*witness does not have \(.*witness was locked by another "
            r"process for 0\.05 s; nothing was recorded there\): they count",
        ):
            ledger.spend(Gaussian(20.0), label="a")
        other.execute("ROLLBACK")
    assert [row.label for row in ledger.rows()] == ["a"]


@pytest.mark.parametrize("where", ["INSERT", "UPDATE", "COMMIT"])
def test_a_signal_handler_that_records_while_the_witness_is_written_is_refused(where, tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path / "spends", BUDGET, witness=tmp_path / "witness")
    refused = []

    def handler(*_):
        with pytest.raises(RuntimeError, match=r"witness is being written by the very thread") as error:
            ledger.spend(Gaussian(20.0), label="in the handler")
        refused.append(error)

    def interrupted(real):
        def call(self, connection, statement="COMMIT", *values):
            if self.path.name == "witness" and statement.startswith(where) and not refused:
                signal.raise_signal(signal.SIGUSR1)
            return real(self, connection, *([] if statement == "COMMIT" else [statement, *values]))

        return call

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            for name in ("_execute", "_commit"):
                patch.setattr(SQLiteFile, name, interrupted(getattr(SQLiteFile, name)))
            ledger.spend(Gaussian(20.0), label="outside")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 1
    spent(ledger, "after")
    assert [row.label for row in ledger.rows()] == ["outside", "after"]
    assert ledger.verify() == Ledger.open(tmp_path / "witness").verify()


def test_where_a_ledger_cannot_have_its_witness_none_is_made(tmp_path, elsewhere):
    path = tmp_path / "spends"
    with Ledger.create(path, BUDGET, witness=elsewhere) as ledger:
        spent(ledger, "a")
    with pytest.raises(FileExistsError, match=r"spends exists already: Ledger\.open opens it"):
        Ledger.create(path, BUDGET, witness=elsewhere)
    path.unlink()  # a volume is lost
    for _ in range(2):
        with pytest.raises(
            FileExistsError, match=r"there is a witness .* already.*Ledger\.restore makes that one again"
        ):
            Ledger.create(path, BUDGET, witness=elsewhere)
        with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere for the witness"):
            Ledger.create(path, BUDGET, witness=tmp_path / "nowhere" / "witness")
        assert not path.exists()
    if isinstance(elsewhere, str):
        Ledger.restore(elsewhere, path).close()
        with Ledger.open(path, witness=elsewhere) as ledger:
            assert [row.label for row in ledger.rows()] == ["a"]


def test_a_pair_that_is_named_the_other_way_round_in_one_process_is_refused(tmp_path):
    ledger, witness = tmp_path / "spends", tmp_path / "witness"
    with Ledger.create(ledger, BUDGET, witness=witness):
        with pytest.raises(ValueError, match="name the two the same way round everywhere"):
            Ledger.open(witness, witness=ledger)
        Ledger.open(ledger, witness=witness).close()
    Ledger.open(witness, witness=ledger).close()  # which has taken over


def test_several_processes_tell_one_witness(tmp_path, elsewhere, monkeypatch):
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 4)
    path = tmp_path / "spends"
    views = [Ledger.create(path, BUDGET, witness=elsewhere), Ledger.open(path, witness=elsewhere)]
    for number in range(6):
        spent(views[number % 2], f"row {number}")
    assert {view.verify() for view in views} == {views[0].head}
    if isinstance(elsewhere, str):
        with Ledger.open(elsewhere) as mirror:  # a ledger like any other, summaries included
            assert mirror.verify() == views[0].head
        again = pickle.loads(pickle.dumps(views[0]))
        spent(again, "from a copy of the object")
        assert Ledger.open(elsewhere).head == again.head


def test_a_witness_for_a_ledger_that_is_there_is_a_backup_of_it(tmp_path):
    path, witness = tmp_path / "spends", tmp_path / "witness"
    with Ledger.create(path, BUDGET) as ledger:
        spent(ledger, "a")
        with pytest.raises(FileNotFoundError, match=r"there is no witness .*`dpkit ledger backup`"):
            Ledger.open(path, witness=witness)
        ledger.backup(witness)
    with Ledger.open(path) as ledger:  # which was made without, and remembers none
        spent(ledger, "b")
    with Ledger.open(path, witness=witness) as ledger:
        spent(ledger, "c")
        with pytest.raises(ValueError, match="also must be left out for a ledger with a witness"):
            ledger.mark("a", 1, "aa", also=lambda _: None)
    assert [row.label for row in Ledger.open(witness).rows()] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="witness must be another place than the ledger's"):
        Ledger.open(path, witness=path)
    with pytest.raises(FileNotFoundError, match=r"Ledger\.restore makes one"):
        Ledger.catch_up(tmp_path / "lost", witness)
    with Ledger.create(tmp_path / "other", BUDGET) as other:
        spent(other, "of another history", "and so", "on")
    with pytest.raises(LedgerCorrupted, match="has seen another entry"):
        Ledger.open(tmp_path / "other", witness=witness)


def test_the_test_would_see_a_witness_that_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(module.Watch, "follow", lambda self: None)
    with Ledger.create(tmp_path / "spends", BUDGET, witness=tmp_path / "witness") as ledger:
        spent(ledger, "a")
    assert Ledger.open(tmp_path / "witness").rows() == []


def test_a_cost_is_held_up_to_last_digits():
    """Another version, or machine, may calibrate to another last digit: the run's own ledger must not be refused."""
    ledger = Ledger()
    ledger.spend(3 * Gaussian(2.0) + PoissonSubsampled(Gaussian(1.5), 0.25), label="a run")
    again = 3 * Gaussian(2.0 * (1 + 1e-12)) + PoissonSubsampled(Gaussian(1.5 * (1 - 1e-12)), 0.25)
    assert ledger.holds(again)
    assert ledger.holds(again, "a run")
    assert not ledger.holds(again, "another run")
    for other in (
        again + Gaussian(9.0),
        4 * Gaussian(2.0),
        3 * Gaussian(2.001) + PoissonSubsampled(Gaussian(1.5), 0.25),
    ):
        assert not ledger.holds(other)


def test_a_witness_that_was_moved_is_away_and_the_ledger_whole(tmp_path):
    (tmp_path / "volume").mkdir()
    ledger = Ledger.create(tmp_path / "ledger", BUDGET, witness=tmp_path / "volume" / "witness")
    row = ledger.spend(Gaussian(20.0))
    (tmp_path / "volume").rename(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"holds entries that its witness .* does not have"):
        ledger.commit(row)
    assert "of which nothing can be told" in ledger._repr_html_()
    (tmp_path / "elsewhere").rename(tmp_path / "volume")
    ledger.close()
    with Ledger.open(tmp_path / "ledger", witness=tmp_path / "volume" / "witness") as found:
        assert found.rows()[0].outcome == "released"
