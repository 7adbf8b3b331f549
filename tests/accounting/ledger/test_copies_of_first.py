"""Releases like the first one: as many as the accountants prove, beside the filter of everything else."""

import math
from itertools import pairwise

import numpy as np
import pytest
from ledgers import most_of

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, NoisyMax, PoissonSubsampled, PureDP, delta, epsilon
from accounting.adaptive.choices import in_totals
from accounting.ledger.filters import copies_of_first
from accounting.ledger.filters.additive_filter import AdditiveFilter
from accounting.ledger.filters.choice import first_filter
from accounting.ledger.filters.copies_of_first import CopiesOfFirst, kind_of
from accounting.ledger.filters.default_rule import mixed_rule
from accounting.ledger.filters.rule import without_failures
from accounting.releases import Composed

B = Budget(1.0, 1e-6, adjacency="add_remove")
STEP = PoissonSubsampled(Gaussian(1.0), 0.005)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rate", "count", "least"), [(1.5, 0.01, 806, 0.9499), (1.0, 0.005, 790, 0.93)])
def test_how_many_samples_with_little_noise_fit_where_they_come_first(noise, rate, count, least):
    kind = PoissonSubsampled(Gaussian(noise), rate)
    filter_ = first_filter(B, kind)
    assert filter_.rule.kind == kind
    assert filter_.admits(None, count * kind, lambda: count * kind)
    assert least < epsilon(count * kind, 1e-6) <= 1.0
    assert not filter_.admits(None, (count + 20) * kind, lambda: (count + 20) * kind)


@pytest.mark.thorough
def test_what_is_served_well_anyway_has_no_share_of_its_own():
    for kind in (Gaussian(100.0), PureDP(0.2), PoissonSubsampled(Gaussian(4.0), 0.01)):
        assert first_filter(B, kind).rule == mixed_rule(B)
    assert first_filter(B, STEP + Gaussian(100.0)).rule == mixed_rule(B)


@pytest.mark.slow
def test_a_ledger_takes_the_kind_to_the_end_and_another_one_ends_it(tmp_path):
    path = tmp_path / "one.ledger"
    with Ledger.open(path, B) as ledger:
        ledger.spend(500 * STEP)
        assert ledger.remaining() == pytest.approx(1 - epsilon(500 * STEP, 0.41 * without_failures(1e-6, 1e-6 / 32)))
    with Ledger.open(path) as ledger:
        ledger.spend(200 * STEP, scope="north")
        ledger.spend(200 * STEP, scope="south")  # other units: nobody meets more than 700
        with pytest.raises(BudgetExceeded, match="spent"):
            ledger.spend(200 * STEP, scope="north/ann")
        with pytest.raises(BudgetExceeded):
            ledger.spend(Gaussian(1000.0))  # what others may add up to is spent
        ledger.spend(50 * STEP)
        assert ledger.verify() == ledger.head
    # few of them leave room for others, and are counted together with these from then on
    ledger = Ledger(B)
    ledger.spend(100 * STEP)
    ledger.spend(Gaussian(20.0))
    with pytest.raises(BudgetExceeded):
        ledger.spend(600 * STEP)
    # after others it says what would have served them better
    ledger = Ledger(B)
    ledger.spend(Gaussian(50.0))
    with pytest.raises(BudgetExceeded, match="better as the first of a ledger, or as a ledger's plan="):
        ledger.spend(800 * STEP)
    with pytest.raises(BudgetExceeded) as refused:
        ledger.spend(Gaussian(3.0))
    assert "better" not in str(refused.value)


def test_a_full_ledger_says_no_more_than_its_budget_where_the_filter_proves_it(monkeypatch):
    """Without games the accountants only know one pair for each choice, which has a third more variance."""
    monkeypatch.setattr(in_totals, "is_playable", lambda kind, count: False)
    ledger, some = Ledger(Budget(1.0, 1e-6)), 50 * NoisyMax(0.005)
    for _ in range(160):
        ledger.spend(some)
    assert epsilon(ledger.total, 1e-6) > 1.0
    assert ledger.epsilon() <= 1.0
    assert ledger.epsilon().accountant == "mixed"


def test_the_accountants_are_asked_few_times(monkeypatch):
    asked = []
    price = lambda release, _: asked.append(release) or kind_of(release)[1] * 1e-9  # noqa: E731
    monkeypatch.setattr(copies_of_first, "delta_of", price)
    kind = CopiesOfFirst(STEP, 1.0, 1.0005e-6)
    assert kind.within(np.array([600.0]), 0.0) is None
    counts = np.arange(600.0, 1100.0)
    assert [bool(kind.decide(np.array([count]))) for count in counts] == (counts <= 1000).tolist()
    assert kind.within(np.array([1000.0]), 0.0) is True
    assert kind.within(np.array([1001.0]), 0.0) is False
    assert len(asked) < 20
    assert kind.cost(7 * STEP) == [7.0]
    assert kind.cost(Composed()) == [0.0]
    assert kind.cost(STEP + Gaussian(1.0)) == kind.cost(Gaussian(1.0)) == [math.inf]
    assert kind.within(np.array([math.inf]), 0.0) is False
    assert math.isinf(kind.epsilon(np.array([math.inf])))
    assert kind.epsilon(np.array([0.0])) == 0.0


# ------------------------------------------------------------------------------------------- an adversary


def rare(up, unit):
    """A pure release on a sample, of losses −unit and ``up`` units, with what they are under either neighbour."""
    grown = math.expm1(up * unit) / -math.expm1(-unit)
    release = (
        PoissonSubsampled(PureDP(math.log(grown)), math.expm1(up * unit) / (grown - 1)) if up > 1 else PureDP(unit)
    )
    chance = math.expm1(unit) / (math.exp(unit) - math.exp(-up * unit))
    present = (1 - chance, -1), (chance, up)
    absent = (chance * math.exp(-up * unit), -up), ((1 - chance) * math.exp(unit), 1)
    return release, (present, absent)


@pytest.mark.thorough
def test_the_best_mixture_of_the_first_kind_and_another_passes_no_budget():
    """First only the one kind, as long as the adversary likes; then either, charged by what is left."""
    unit, cells = 0.01, 3_000
    (first, first_laws), (second, second_laws) = rare(12, unit), rare(1, unit)
    rule = mixed_rule(B, None, first)
    filter_ = AdditiveFilter(B, rule)
    book = filter_._by_level[0][1]
    reach = round(1.6 / unit)
    loss = unit * np.arange(-reach, reach + 1)
    stop = np.maximum(0.0, -np.expm1(np.minimum(1.0 - loss, 0.0)))

    def after(value, law):
        padded = np.concatenate([np.full(12, value[0]), value, np.ones(12)])
        return sum(p * padded[12 + by : 12 + by + value.size] for p, by in law)

    def charge(charged, release):
        found = book.charge(charged / cells * book._limit, release, 0.0)
        return math.ceil(found / book._limit * cells) if found < math.inf else cells + 1

    most = most_of(filter_, first)
    # alone they fill the share of their own, and no more
    for law in first_laws:
        value = stop
        for _ in range(most):
            value = after(value, law)
        allowed = rule.kind_share * without_failures(B.delta, rule.failure_delta)
        assert value[reach] <= allowed * (1 + 1e-9)
    assert delta((round(1.1 * most) + 1) * first, 1.0) > allowed
    for way in (0, 1):
        general = np.empty((cells + 1, loss.size))
        for charged in range(cells, -1, -1):
            general[charged] = stop
            for release, laws in ((first, first_laws), (second, second_laws)):
                to = charged + charge(charged, release)
                if to <= cells:
                    general[charged] = np.maximum(general[charged], after(general[to], laws[way]))
        charged = [0]
        while charged[-1] <= cells and len(charged) <= most:
            charged.append(charged[-1] + charge(charged[-1], first))
        value = stop
        for count in range(most, -1, -1):
            value = np.maximum(stop, after(value, first_laws[way])) if count < most else stop
            if count < len(charged) and charged[count] <= cells:
                value = np.maximum(value, general[charged[count]])
        found = value[reach] / B.delta
        assert 0.1 < found <= rule.shares[0] + rule.kind_share
    assert all(one < other for one, other in pairwise(charged))
