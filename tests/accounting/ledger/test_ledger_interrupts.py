"""An exception between any two lines: the ledger has recorded the spend or not, and goes on right."""

import signal

import pytest
from interrupts import interrupted

from accounting import Budget, Gaussian, Ledger
from accounting.ledger.storage.database import Database

BUDGET = Budget(1.0, 1e-6)


def placed(kind, request, tmp_path):
    return str(tmp_path / "spends.ledger") if kind == "file" else request.getfixturevalue("postgres").url()


def opened(kind, request, tmp_path):
    return Ledger(BUDGET) if kind == "memory" else Ledger.create(placed(kind, request, tmp_path), BUDGET)


# from the first line to the last; the strides have no factor in common, so that hardly a line is left out by all
@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "stride"), [("memory", 3), ("file", 5), ("server", 11)])
def test_a_spend_interrupted_anywhere_is_recorded_whole_or_not_at_all(kind, stride, request, tmp_path):
    ledger = opened(kind, request, tmp_path)
    ledger.spend(Gaussian(1000.0))
    known, hit = 1, 0
    for line in range(1, 4000, stride):
        release = Gaussian(1000.0 + line)
        if not interrupted(lambda release=release: ledger.spend(release), line, "accounting/ledger"):
            break
        hit += 1
        rows = ledger.rows()
        assert len(rows) in (known, known + 1)
        known = len(rows)
        ledger.spend(Gaussian(999.0), label="next")
        known += 1
        assert ledger.rows()[-1].label == "next"
    else:
        pytest.fail("the action did not end")
    assert hit > 30
    assert ledger.verify() == ledger.head
    fresh = Ledger.from_json(ledger.to_json()) if kind == "memory" else Ledger.open(ledger._recorder.store.address)
    assert fresh.rows() == ledger.rows()
    assert fresh.remaining() == pytest.approx(ledger.remaining(), rel=1e-12)


def test_an_interrupted_reader_leaves_no_transaction_behind(new):
    ledger, other = Ledger.create(new()), Ledger.open(new())
    for line in range(1, 400, 5):
        other.spend(Gaussian(1.0))
        if not interrupted(ledger.rows, line, "accounting/ledger"):
            break
        ledger.spend(Gaussian(2.0))
    assert len(ledger.rows()) == len(other.rows())


@pytest.mark.parametrize("kind", ["memory", "file", "server"])
def test_a_signal_handler_that_spends_takes_its_turn_or_is_refused(kind, request, tmp_path):
    ledger = opened(kind, request, tmp_path)
    accepted = refused = 0

    def handler(*_):
        nonlocal accepted, refused
        try:
            ledger.spend(Gaussian(5000.0), label="in the handler")
            accepted += 1
        except RuntimeError:
            refused += 1

    before = signal.signal(signal.SIGALRM, handler)
    spent = 0
    try:
        for _ in range(80):  # each delay twice
            signal.setitimer(signal.ITIMER_REAL, 2e-5 * (1 + spent % 40))
            ledger.spend(Gaussian(4000.0), label="outside")
            spent += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
        signal.raise_signal(signal.SIGALRM)  # and once where no spend is under way
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    labels = [row.label for row in ledger.rows()]
    assert labels.count("outside") == spent == 80
    assert labels.count("in the handler") == accepted
    assert accepted > 0
    assert refused < 80
    assert ledger.verify() == ledger.head


def test_a_handler_that_spends_in_the_middle_of_a_reading_does_not_tear_it(new, monkeypatch):
    ledger = Ledger.create(new(), BUDGET)
    ledger.spend(Gaussian(4000.0))
    Ledger.open(new()).spend(Gaussian(4000.0), label="elsewhere")  # so there is something to read
    read, calls = Database._read_head, []

    def interrupted(self, connection):
        found = read(self, connection)
        calls.append(found)
        if len(calls) == 1:  # as if a signal came in here
            ledger.spend(Gaussian(5000.0), label="in the handler")
        return found

    monkeypatch.setattr(Database, "_read_head", interrupted)
    ledger.spend(Gaussian(4000.0), label="outside")
    monkeypatch.undo()
    assert len(calls) > 2
    assert [row.label for row in ledger.rows()] == ["", "elsewhere", "in the handler", "outside"]
    assert ledger.verify() == ledger.head
