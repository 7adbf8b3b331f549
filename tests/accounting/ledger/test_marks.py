"""Marks: who continues a run, and from which state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import entries, forged
from tabled import tabled

from accounting import Budget, Gaussian, Ledger, LedgerCorrupted
from accounting.ledger import Mark
from accounting.releases import Composed


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger() if request.param == "memory" else Ledger.create(tmp_path / "spends.ledger")


def test_the_newest_mark_of_each_run(ledger):
    assert ledger.newest_mark("a") is None
    first = ledger.mark("a", 1, "0a", label="batch 1")
    other = ledger.mark("b", 7, "FF", simulation=True)
    assert (ledger.newest_mark("a"), ledger.newest_mark("b")) == (first, other)
    later = ledger.mark("a", 3, "0b")
    assert ledger.newest_mark("a") == later == Mark("a", 3, "0b", later.time)
    assert first.time <= other.time <= later.time
    assert ledger.simulation


@pytest.mark.parametrize("step", [1, 5])
def test_a_step_that_was_made_is_refused(ledger, step):
    ledger.mark("a", 5, "aa")
    head = ledger.head
    with pytest.raises(ValueError, match=rf"run 'a', which is 5, got step={step}: another process or an older state"):
        ledger.mark("a", step, "bb")
    assert ledger.head == head
    assert ledger.newest_mark("a").digest == "aa"
    ledger.mark("b", step, "bb")


def test_marks_cost_nothing_and_are_no_rows(ledger):
    ledger.spend(Gaussian(2.0))
    total, rows = ledger.total, ledger.rows()
    ledger.mark("a", 1, "aa")
    assert (ledger.total, ledger.rows()) == (total, rows)
    assert Ledger(Budget(1.0, 1e-6)).mark("a", 1, "aa").step == 1
    empty = Ledger()
    empty.mark("a", 1, "aa")
    assert empty.total == Composed()


@tabled(
    ("arguments", "error", "message"),
    [
        ({"run": ""}, TypeError, "run must be a nonempty string"),
        ({"run": "\udc80"}, ValueError, "run must not hold lone surrogates"),
        ({"step": 0}, ValueError, "step must be at least 1, got step=0"),
        ({"step": 1.5}, TypeError, "step must be a whole number"),
        ({"step": True}, TypeError, "step must be a whole number"),
        ({"digest": ""}, TypeError, "digest must be a nonempty string"),
        ({"digest": "0x1"}, ValueError, "digest must consist of hexadecimal digits"),
        ({"label": None}, TypeError, "label must be a string"),
        ({"simulation": 1}, TypeError, "simulation must be True or False"),
    ],
)
def test_bad_marks_are_refused(ledger, arguments, error, message):
    with pytest.raises(error, match=message):
        ledger.mark(**{"run": "a", "step": 1, "digest": "aa", **arguments})
    assert ledger.newest_mark("a") is None


def test_a_closed_ledger_takes_no_mark_and_shows_the_old_ones(ledger):
    mark = ledger.mark("a", 1, "aa")
    ledger.close()
    with pytest.raises(ValueError, match="the ledger is closed"):
        ledger.mark("a", 2, "bb")
    assert ledger.newest_mark("a") == mark


def test_marks_come_back(tmp_path, ledger):
    ledger.mark("a", 1, "aa", label="ü", simulation=True)
    mark = ledger.mark("a", 2, "bb")
    copy = Ledger.from_json(ledger.to_json())
    assert copy.newest_mark("a") == mark
    assert (copy.head, copy.simulation) == (ledger.head, True)
    if ledger.path is not None:
        again = Ledger.open(ledger.path)
        assert again.newest_mark("a") == mark
        with pytest.raises(ValueError, match="which is 2, got step=2"):
            again.mark("a", 2, "cc")


text = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(1), st.binary(min_size=1), text)
def test_every_mark_has_one_json_form(run, step, digest, label):
    ledger = Ledger()
    mark = ledger.mark(run, step, digest.hex(), label=label)
    assert Ledger.from_json(ledger.to_json()).newest_mark(run) == mark


@tabled(
    "change",
    [
        {"step": 0},
        {"step": 2.0},
        {"step": "2"},
        {"step": 1},  # made already
        {"digest": "xyz"},
        {"run": 3},
        {"label": None},
        {"simulation": None},
        {"time": "2026-01-01T00:00:00"},  # in no time zone
        {"cost": 0},
    ],
)
def test_a_mark_that_means_nothing_is_refused_on_reading(change):
    ledger = Ledger()
    ledger.mark("a", 1, "aa")
    opening, mark = entries(ledger)
    Ledger.from_json(forged([opening, mark, {**mark, "step": 2}]))
    with pytest.raises(LedgerCorrupted):
        Ledger.from_json(forged([opening, mark, {**mark, "step": 2, **change}]))


def test_a_transaction_that_an_interrupt_left_open_ends_before_a_mark_is_looked_for(tmp_path):
    ledger = Ledger.create(tmp_path / "spends.ledger")
    mark = ledger.mark("a", 1, "aa")
    ledger._recorder.store._open().execute("BEGIN IMMEDIATE")
    assert ledger.newest_mark("a") == mark
    assert ledger.mark("a", 2, "bb").step == 2
