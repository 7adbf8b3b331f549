"""The recomputation of a ledger: totals, order, verdict, and what it finds wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accounting import (
    ApproxDP,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    audit,
    compare,
    epsilon,
    parallel,
)
from accounting.adaptive.choices import in_totals
from accounting.ledger.filters.rule import Rule
from accounting.ledger.record.entry_types import Opening, Spend
from accounting.ledger.views.json_and_csv import dumps


def rewritten(rows, budget=None):
    """A ledger that somebody wrote anew from its first entry on, with rows that it would have refused."""
    rule = None if budget is None else Rule("pure" if budget.delta == 0 else "gdp")
    spends = [Spend(replace(row, index=i), rule if i == 0 else None) for i, row in enumerate(rows)]
    return Ledger.from_json(dumps([Opening(rows[0].time, budget), *spends]))


def ledger_of(*releases, budget=None, **spend):
    ledger = Ledger(budget)
    for number, release in enumerate(releases):
        ledger.spend(release, label=f"release {number}", **spend)
    return ledger


def test_totals_are_those_of_the_composition():
    releases = [Gaussian(4.0), Laplace(5.0), Gaussian(4.0), PureDP(0.1)]
    report = audit.recompute(ledger_of(*releases), delta=1e-6)
    assert report.epsilons == compare(sum(releases), 1e-6)
    assert list(report.epsilons.values()) == sorted(report.epsilons.values())
    assert (report.budget, report.rows, report.within_budget, report.problems) == (None, 4, None, [])


def test_scopes_compose_in_parallel():
    ledger = Ledger()
    ledger.spend(Gaussian(4.0))
    ledger.spend(Gaussian(2.0), scope="Bern")
    ledger.spend(Gaussian(3.0), scope="Jena")
    ledger.spend(Gaussian(3.0), scope="Jena")
    report = audit.recompute(ledger, delta=1e-6)
    total = Gaussian(4.0) + parallel(Gaussian(2.0), 2 * Gaussian(3.0))
    assert min(report.epsilons.values()) == epsilon(total, 1e-6)
    assert report.problems == []


def test_the_ten_largest_costs_in_order():
    ledger = ledger_of(*[Gaussian(float(z)) for z in (9, 3, 5, 3, 20, 8, 7, 6, 4, 10, 11, 12)])
    report = audit.recompute(ledger, delta=1e-6)
    assert [index for index, *_ in report.largest_costs] == [1, 3, 8, 2, 7, 6, 5, 0, 9, 10]
    assert report.largest_costs[0] == (1, "release 1", "Gaussian(noise_multiplier=3.0)", epsilon(Gaussian(3.0), 1e-6))


def test_within_and_beyond_the_budget():
    ledger = ledger_of(Gaussian(8.0), Gaussian(8.0), budget=Budget(1.0, 1e-6))
    report = audit.recompute(ledger)
    assert (report.delta, report.within_budget, report.problems) == (1e-6, True, [])
    # the same rows under a budget that would never have let them through
    spent = epsilon(2 * Gaussian(8.0), 1e-6)
    report = audit.recompute(rewritten(ledger.rows(), Budget(0.5, 1e-6)))
    assert report.within_budget is False
    assert report.problems == [f"the total ε={spent:.6g} at δ=1e-06 passes the budget 0.5"]


def test_a_budget_spent_to_the_last_digit_is_kept():
    ledger = ledger_of(*[PureDP(0.1)] * 10, budget=Budget(1.0, 0.0))
    report = audit.recompute(ledger)
    assert report.within_budget is True
    assert report.epsilons["pure"] == 1.0000000000000002  # the exact sum of ten floats 0.1, rounded up
    assert report.problems == []


@pytest.mark.thorough
def test_a_total_of_choices_that_only_the_filters_prove(monkeypatch):
    """Without games the accountants price each of many choices as one pair, the filters as the coins that it is."""
    monkeypatch.setattr(in_totals, "is_playable", lambda kind, count: False)
    budget = Budget(1.0, 1e-6)
    ledger = Ledger(budget)
    ledger.set_quota("north", budget)
    ledger.spend(2_080 * NoisyMax(0.01), scope="north")
    report = audit.recompute(ledger)
    assert (report.within_budget, report.problems) == (True, [])
    assert report.epsilons["mixed"] <= 1.0 < min(report.epsilons[name] for name in ("rdp", "pld", "zcdp"))
    (north,) = report.scopes
    assert north.within_quota is True
    assert max(north.spent, north.epsilon) <= 1.0
    # one that says less than its entries do is found out
    monkeypatch.setattr(Ledger, "epsilon", lambda self, *_, **__: 0.9 if self is ledger else 1.0)
    assert "the ledger says ε=0.9" in audit.recompute(ledger).problems[0]


def test_the_verdict_is_at_the_budgets_delta():
    ledger = ledger_of(Gaussian(8.0), Gaussian(8.0), budget=Budget(1.0, 1e-6))
    report = audit.recompute(ledger, delta=1e-12)
    assert report.delta == 1e-12
    assert min(report.epsilons.values()) > 1.0
    assert report.within_budget is True


def test_simulation_is_marked():
    assert audit.recompute(ledger_of(Gaussian(1.0)), delta=1e-6).simulation is False
    assert audit.recompute(ledger_of(Gaussian(1.0), simulation=True), delta=1e-6).simulation is True


def test_empty_ledger():
    report = audit.recompute(Ledger(Budget(1.0, 1e-6)))
    assert (report.rows, report.largest_costs, report.within_budget, report.problems) == (0, [], True, [])
    assert set(report.epsilons.values()) == {0.0}


def test_a_release_without_a_bound():
    unheard = PoissonSubsampled(PoissonSubsampled(Gaussian(1.0), 0.1), 0.1)
    report = audit.recompute(ledger_of(Gaussian(1.0), unheard), delta=1e-6)
    assert report.epsilons == {}
    assert report.largest_costs[0][0] == 1
    assert math.isinf(report.largest_costs[0][3])
    assert report.problems[0] == f"row 1 'release 1' has no finite ε at δ=1e-06: {unheard!r}"
    assert report.problems[1].startswith("the rows have no total: ")


def test_a_failure_probability_above_delta():
    report = audit.recompute(ledger_of(ApproxDP(1.0, 1e-3)), delta=1e-6)
    assert all(map(math.isinf, report.epsilons.values()))
    assert "has no finite ε" in report.problems[0]


def test_mixed_adjacencies():
    rows = [
        *ledger_of(Gaussian(9.0, adjacency="replace")).rows(),
        *ledger_of(Gaussian(9.0, adjacency="add_remove")).rows(),
    ]
    report = audit.recompute(rewritten(rows), delta=1e-6)
    assert report.epsilons == {}
    assert "different adjacencies" in report.problems[0]
    report = audit.recompute(rewritten(rows, Budget(100.0, 1e-6, adjacency="replace")))
    assert report.within_budget is False
    assert report.problems[0] == "row 1 'release 0' counts 'add_remove' neighbours, the budget 'replace'"


def test_a_ledger_that_says_less_than_its_rows(monkeypatch):
    full = epsilon(Gaussian(1.0), 1e-6)
    monkeypatch.setattr(Ledger, "epsilon", lambda self, *_, **__: full / 2)
    report = audit.recompute(ledger_of(Gaussian(1.0), budget=Budget(9.0, 1e-6)))
    assert report.within_budget is True
    assert report.problems == [f"the ledger says ε={full / 2:.6g} at δ=1e-06, its rows add up to {full:.6g}"]


def test_refusals():
    with pytest.raises(ValueError, match="delta must be given for a ledger without a budget"):
        audit.recompute(Ledger())
    with pytest.raises(ValueError, match="delta must lie in"):
        audit.recompute(Ledger(), delta=1.5)
