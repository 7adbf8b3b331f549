"""Ledgers with numbers at the ends of what a float holds: refused or read, in little memory, and never by a crash."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from ledgers import entries, forged
from tabled import tabled

from accounting import (
    ZCDP,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Ledger,
    LedgerCorrupted,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    UnsupportedRelease,
)

MEBIBYTE = 2**20


def written(*releases, budget: Budget) -> list[dict]:
    """The entries of an honest ledger, without their hashes."""
    ledger = Ledger(budget)
    for release in releases:
        ledger.spend(release)
    return entries(ledger)


HONEST = written(Gaussian(50.0), Laplace(500.0), budget=Budget(1.0, 1e-6))


@pytest.mark.thorough
@tabled(
    "field, value",
    [
        *(("delta", value) for value in (5e-324, 1e-300, 1e-100, 1e-16, 0.5, 0.999999999)),
        *(("epsilon", value) for value in (5e-324, 1e-300, 1e-16, 1e3, 1e10, 1e300)),
    ],
)
def test_a_budget_that_was_changed_takes_no_memory(field, value):
    """The figure is for Python's own allocations, which includes every array."""
    text = forged([{**HONEST[0], "budget": {**HONEST[0]["budget"], field: value}}, *HONEST[1:]])
    tracemalloc.start()
    try:
        ledger = Ledger.from_json(text)
        assert 0 <= ledger.remaining() <= ledger.budget.epsilon
    except LedgerCorrupted:
        pass  # no rule holds there
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 6 * MEBIBYTE


@pytest.mark.parametrize("first", [(), (Gaussian(50.0),)], ids=["first", "after another"])
@tabled(
    "release",
    [
        *(kind(1e-300) for kind in (Gaussian, Laplace, DiscreteGaussian, DiscreteLaplace, GeneralizedGaussian)),
        *(PureDP(1e300), PureDP(1e200), ZCDP(1e300), NoisyMax(1e300), NoisyMax(1e300, "laplace")),
        *(RandomizedResponse(1e300, 2), TreeAggregation(1e-300, 1), 10**300 * Gaussian(1.0)),
    ],
)
def test_what_costs_more_than_a_float_holds_passes_the_budget(first, release):
    for budget in (Budget(1.0, 1e-6), Budget(1e3, 1e-6), Budget(1.0, 1e-300)):
        ledger = Ledger(budget)
        for other in first:
            if budget.delta > 1e-100:
                ledger.spend(other)
        before = ledger.head
        with pytest.raises((BudgetExceeded, UnsupportedRelease)):
            ledger.spend(release)
        assert ledger.head == before


@pytest.mark.filterwarnings("ignore:no answer from pld")
@tabled(
    "release",
    [{"type": "PureDP", "epsilon": 1e300}, {"type": "TreeAggregation", "noise_multiplier": 1e-300, "steps": 1}],
)
def test_a_file_that_holds_such_a_release_is_read_and_is_full(release):
    honest = written(Gaussian(50.0), Gaussian(60.0), budget=Budget(1.0, 1e-6))
    ledger = Ledger.from_json(forged([*honest[:2], {**honest[2], "release": release}]))
    assert ledger.remaining() == 0.0
    with pytest.raises((BudgetExceeded, UnsupportedRelease)):
        ledger.spend(Gaussian(1e9))


def test_scopes_that_only_look_alike_are_no_two_parts_of_the_data():
    ledger = Ledger(Budget(1.0, 1e-6))
    ledger.spend(Gaussian(20.0), scope="caf\u00e9")
    with pytest.raises(ValueError, match="scopes that only look alike count as disjoint"):
        ledger.spend(Gaussian(20.0), scope="cafe\u0301")
    with pytest.raises(ValueError, match="scopes that only look alike count as disjoint"):
        ledger.set_quota("cafe\u0301", ledger.budget)
    # a file from before is read
    honest = written(Gaussian(50.0), budget=Budget(1.0, 1e-6))
    assert Ledger.from_json(forged([honest[0], {**honest[1], "scope": "cafe\u0301"}])).scopes() == ["cafe\u0301"]


@tabled("time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_no_clock_shows_is_refused(time):
    with pytest.raises(LedgerCorrupted, match="entry 2 cannot be read"):
        Ledger.from_json(forged([*HONEST[:2], {**HONEST[2], "time": time}]))


def test_a_whole_number_that_is_no_float_is_refused():
    wrong = {"type": "Gaussian", "noise_multiplier": 10**400}
    with pytest.raises(LedgerCorrupted, match="entry 2 cannot be read"):
        Ledger.from_json(forged([*HONEST[:2], {**HONEST[2], "release": wrong}]))


def test_a_clock_that_went_back_changes_nothing():
    ledger = Ledger.from_json(forged([*HONEST[:2], {**HONEST[2], "time": "1970-01-01T00:00:00+00:00"}]))
    assert ledger.epsilon() == Ledger.from_json(forged(HONEST)).epsilon()
    assert ledger.verify() == ledger.head


def test_what_editors_do_to_a_text_changes_no_hash():
    text = forged(HONEST)
    for changed in ("\ufeff" + text, text.replace(", ", ",\r\n"), json.dumps(json.loads(text), indent=3)):
        assert Ledger.from_json(changed).head == Ledger.from_json(text).head
