"""Threads and processes at once: no budget is passed, and each claim, each step and each row is one's."""

import os
import threading
from contextlib import suppress
from itertools import chain

import pytest
from ledgers import opened, raced

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, calibrate
from accounting.ledger import recorder

BUDGET = Budget(1.0, 1e-6)
FITTING = 40
Z = calibrate(lambda z: FITTING * Gaussian(z), BUDGET)


def act(ledger):
    """Claim, mark and spend until nothing is left: what one got of each. An address is opened first, or made."""
    ledger = ledger if isinstance(ledger, Ledger) else opened(ledger, BUDGET)
    claims, steps, spent = [], [], 0
    for number in range(1, 21):
        with suppress(ValueError):
            ledger.spend(0 * Gaussian(1.0), label=f"claim {number}", unique=True)
            claims.append(number)
        with suppress(ValueError):
            steps.append(ledger.mark("a", number, "aa").step)
    with suppress(BudgetExceeded):
        while True:
            ledger.spend(Gaussian(Z))
            spent += 1
    return claims, steps, spent


def check(found, ledger, before=0):
    claims, steps, spent = zip(*found, strict=True)
    assert sorted(chain(*claims)) == list(range(1, 21))
    made = [*chain(*steps)]
    assert len(made) == len(set(made))
    assert max(made) == ledger.newest_mark("a").step == 20
    assert before + sum(spent) == FITTING
    assert len(ledger.rows()) == 20 + FITTING
    assert ledger.verify() == ledger.head


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_threads_share_a_ledger(kind, tmp_path):
    ledger = Ledger(BUDGET) if kind == "memory" else Ledger.create(tmp_path / "spends.ledger", BUDGET)
    check(raced(act, [ledger] * 4, processes=False), ledger)


@pytest.mark.parametrize("inherited", [True, False])
def test_processes_share_a_ledger(inherited, new, monkeypatch):
    """Also with a connection and a balance that were there before the fork; else the first to come makes it."""
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 10)
    ours = new()
    if inherited:
        ours = Ledger.create(ours, BUDGET)
        ours.spend(Gaussian(Z))
    found = raced(act, [ours, ours, new()], processes=True)
    check(found, Ledger.open(new()), before=int(inherited))
    assert not inherited or len(ours.rows()) == 20 + FITTING


def test_a_fork_leaves_no_lock_behind(new):
    ledger = Ledger.create(new())
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


def test_what_others_recorded_meanwhile_is_counted(new, monkeypatch):
    """Two processes decide at the same time; the second to come is asked again."""
    one, other = Ledger.create(new(), BUDGET), Ledger.open(new())
    store = one._recorder.store
    begin = store.append

    def slowly(make, also):
        monkeypatch.undo()
        other.spend(Gaussian(6.0))
        return begin(make, also)

    monkeypatch.setattr(store, "append", slowly)
    with pytest.raises(BudgetExceeded):
        one.spend(Gaussian(4.5))
    assert [row.release for row in one.rows()] == [Gaussian(6.0)]


def test_who_asks_for_a_mark_waits_for_the_thread_that_makes_it(new):
    ledger, found = Ledger.create(new()), []
    asking = threading.Thread(target=lambda: found.append(ledger.newest_mark("a")))

    def also(connection):
        # the transaction is open: whoever uses the connection now would end it
        asking.start()
        asking.join(0.2)

    mark = ledger.mark("a", 1, "aa", also=also)
    asking.join()
    assert found == [mark]
    ledger.verify()
