"""A ledger that goes back is refused by its witness, charged again, and of two branches one may spend."""

import json
import pickle
import shutil
import zipfile
from datetime import datetime

import pytest
from recorded_ledgers import KEPT

from accounting import Budget, Gaussian, Ledger, LedgerBehind, LedgerCorrupted
from accounting.ledger import Witness, recorder
from accounting.ledger import ledger as ledgers
from accounting.ledger.storage import witness as module

BUDGET = Budget(3.0, 1e-6)


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
