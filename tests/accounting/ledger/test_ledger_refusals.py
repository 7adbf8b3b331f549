"""What a full ledger says: what its list costs, what its filter has booked, and what still fits."""

from __future__ import annotations

import itertools
import re

import pytest
from ledgers import taken_until_refused

from accounting import Budget, Gaussian, Laplace, Ledger, PoissonSubsampled, audit, epsilon

BUDGET = Budget(1.0, 1e-6, adjacency="add_remove")
WIDE = Gaussian(40.0, adjacency="add_remove")
# little noise on a small sample: few losses, and large ones
SAMPLE = PoissonSubsampled(Gaussian(0.9), 0.004)


def filled(ledger: Ledger, *round_of_spends, **spend) -> str:
    """The refusal that ends rounds of spends."""
    return taken_until_refused(ledger, itertools.islice(itertools.cycle(round_of_spends), 5000), **spend)[1]


def numbers(message: str) -> list[float]:
    """What is booked, of what, what is left, and what the list costs."""
    told = r"has booked (\S+) of (\S+), left (\S+?)(?: of the quota of \S+)?\. As a list .* costs (\S+), by"
    found = re.search(told, message)
    assert found is not None, message
    return [float(number) for number in found.groups()]


@pytest.fixture(scope="module")
def full():
    """A ledger of samples with little noise after others, and its refusal."""
    ledger = Ledger(BUDGET)
    return ledger, filled(ledger, WIDE, *6 * [SAMPLE])


@pytest.mark.thorough
def test_a_ledger_that_is_full_at_half_of_its_budget_says_both_numbers(full):
    ledger, message = full
    spent = ledger.epsilon()
    assert spent < 0.6
    assert numbers(message) == pytest.approx([1.0 - ledger.remaining(), 1.0, ledger.remaining(), spent], rel=1e-5)
    assert "releases may be chosen in the light of earlier outputs" in message
    shown = f"ε {spent:.6g} spent by the best accountant ('pld'), 1 of 1 booked by the filter"
    assert shown in repr(ledger)
    assert shown.replace("'", "&#x27;") in ledger._repr_html_()
    report = audit.recompute(ledger)
    assert report.booked == 1.0 - ledger.remaining()
    assert "booked by the ledger&#x27;s filter" in report._repr_html_()
    assert audit.recompute(Ledger(), delta=1e-6).booked is None


@pytest.mark.thorough
def test_the_ways_out_that_it_names_are_ways_out(full):
    ledger, message = full
    assert "a release with more noise may still fit" in message
    Ledger.from_json(ledger.to_json()).spend(PoissonSubsampled(Gaussian(3.0), 0.004))
    assert "as a ledger's plan=" in message
    planned = Ledger(BUDGET, plan=2 * ledger.total)
    for row in 2 * ledger.rows():
        planned.spend(row.release)
    assert ledger.epsilon() < planned.epsilon() <= 1.0
    assert "as the first of a ledger" in message
    first = Ledger(BUDGET)
    first.spend(100 * SAMPLE)
    assert first.total.parts[0][1] > 2 * sum(row.release == SAMPLE for row in ledger.rows())


@pytest.mark.thorough
def test_a_quota_that_is_full_at_half_names_a_larger_one_and_no_plan():
    whole = Budget(1.5, 1.5e-6, adjacency="add_remove")
    ledger = Ledger(whole)
    ledger.spend(WIDE)
    ledger.set_quota("north", BUDGET)
    message = filled(ledger, WIDE, *6 * [SAMPLE], scope="north")
    booked, most, left, listed = numbers(message)
    assert (booked, most, left) == (pytest.approx(ledger.quota_booked("north"), rel=1e-5), 1.0, 0.0)
    inside = [row.release for row in ledger.rows(scope="north")]
    assert listed == pytest.approx(epsilon(sum(inside[1:], inside[0]), 1e-6), rel=1e-5)
    assert listed < 0.6
    assert "plan" not in message
    assert "a larger quota (set_quota)" in message
    ledger.set_quota("north", whole)
    ledger.spend(SAMPLE, scope="north")


def test_an_accountant_of_the_callers_choice_that_wastes_half_is_named():
    ledger = Ledger(Budget(1.0, 1e-6), accountant="pure")
    message = filled(ledger, Laplace(100.0))
    assert numbers(message)[3] == pytest.approx(ledger.epsilon(), rel=1e-5)
    assert ledger.epsilon() < 0.6
    assert "('pure', fixed before the first release)" in message
    assert "what is known beforehand fits better as a ledger's plan=" in message


def test_a_ledger_that_is_as_full_as_its_list_explains_nothing():
    message = filled(Ledger(Budget(1.0, 1e-6)), Gaussian(30.0))
    assert numbers(message)[3] > 0.95
    assert "cannot be spent" not in message
    assert "fit" not in message
