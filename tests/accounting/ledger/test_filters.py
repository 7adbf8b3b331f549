"""Filters: what they admit, what fixes their measure, and that no adaptive choice gets past them."""

import itertools
import json
import math
import re
from functools import cache

import numpy as np
import pytest
from ledgers import taken_until_refused
from tabled import tabled

from accounting import (
    ZCDP,
    AdjacencyMismatch,
    ApproxDP,
    Budget,
    BudgetExceeded,
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Ledger,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    TreeAggregation,
    UnsupportedRelease,
    calibrate,
    delta,
    epsilon,
)
from accounting.amplification.shuffling import local_epsilon
from accounting.conversions import gdp_mu
from accounting.ledger import recorder
from accounting.ledger.filters.choice import first_filter, make_filter
from accounting.ledger.filters.default_rule import mixed_rule
from accounting.ledger.filters.rule import Rule
from accounting.ledger.record.entry_json import rule_from_dict, rule_to_dict
from accounting.loss.concentrated_curve import zcdp_rho
from accounting.notions.rdp import rdp
from accounting.releases import Composed

BUDGET = Budget(1.0, 1e-6)


def admitted(ledger, release):
    """How many releases a ledger takes before it refuses one."""
    return len(taken_until_refused(ledger, itertools.repeat(release, 100_000))[0])


# ------------------------------------------------------------------------------------------- how much fits


@tabled(
    ("budget", "accountant", "release", "count"),
    [
        *((BUDGET, "gdp", Gaussian(z), math.floor(gdp_mu(1.0, 1e-6) ** 2 * z**2)) for z in (30.0, 77.7, 120.0)),
        *((BUDGET, "zcdp", DiscreteGaussian(z), math.floor(zcdp_rho(1.0, 1e-6) * 2 * z**2)) for z in (30.0, 77.7)),
        # ten times 0.1 is 1 when it is rounded once, and 0.9999999999999999 when it is summed in order
        (Budget(1.0, 0.0), None, PureDP(0.1), 10),
        (Budget(1.0, 0.0), None, Laplace(30.0), 30),
    ],
)
def test_exactly_what_the_measure_allows_is_admitted(budget, accountant, release, count):
    assert admitted(Ledger(budget, accountant=accountant), release) == count


def test_rdp_counts_at_the_one_order_that_suits_the_first_release():
    release, budget = Laplace(20.0), Budget(2.0, 1e-6)
    orders = 1.0 + np.geomspace(1e-2, 1e4, 20_001)
    room = 2.0 - np.log1p(-1 / orders) + (math.log(1e-6) + np.log(orders)) / (orders - 1)
    best = np.max(room / rdp(release, orders))
    count = admitted(Ledger(budget, accountant="rdp"), release)
    assert best * (1 - 1e-4) - 1 <= count <= best
    assert epsilon(count * release, 1e-6) <= 2.0


@pytest.mark.parametrize(
    ("make", "accountant", "count"),
    [
        (Gaussian, "gdp", 1000),
        (DiscreteGaussian, "zcdp", 7),
        (GeneralizedGaussian, "gdp", 7),
        (lambda z: NoisyMax(1 / z), "rdp", 1000),
    ],
)
def test_as_many_fit_as_were_calibrated_by_the_same_measure(make, accountant, count):
    low, high = 1.0, 1000.0
    while low < (z := (low + high) / 2) < high:  # the smallest noise that the accountant accepts, to the last digit
        if delta(count * make(z), 1.0, accountant=accountant) <= 1e-6:
            high = z
        else:
            low = z
    ledger = Ledger(BUDGET)
    assert admitted(ledger, make(high)) == count
    assert ledger.accountant == accountant


# ------------------------------------------------------------------------------------ what fixes the measure


@pytest.mark.parametrize(
    ("make", "count", "accountant"),
    [
        (Gaussian, 9, "gdp"),
        (lambda z: Gaussian(z) + TreeAggregation(2 * z, steps=9), 3, "gdp"),
        (DiscreteGaussian, 9, "zcdp"),
        (Laplace, 9, "rdp"),
        (NoisyMax, 9, "rdp"),
    ],
)
def test_a_first_release_that_the_budget_was_calibrated_for_fixes_the_measure(make, count, accountant):
    sign = -1 if make is NoisyMax else 1
    z = calibrate(lambda z: count * make(z**sign), BUDGET, accountant=accountant) ** sign
    ledger = Ledger(BUDGET)
    assert ledger.accountant is None
    assert admitted(ledger, make(z)) == count
    assert ledger.accountant == accountant


@pytest.mark.parametrize(
    "release", [Gaussian(30.0), ZCDP(0.001), PureDP(0.01), NoisyMax(0.01), Laplace(100.0), ApproxDP(0.01, 1e-9)]
)
def test_otherwise_the_budget_alone_does(release):
    ledger = Ledger(BUDGET)
    ledger.spend(0 * release)  # which costs nothing, and fixes nothing
    assert ledger.accountant is None
    ledger.spend(release)
    assert ledger.accountant == "mixed"
    assert mixed_rule(BUDGET).orders == mixed_rule(Budget(1.0, 1e-6, unit="person")).orders


@pytest.mark.parametrize("order", [1, -1])
def test_large_pure_releases_and_gaussians_share_a_ledger_in_any_order(order):
    ledger = Ledger(BUDGET)
    for release in [PureDP(0.3), Gaussian(50.0)][::order]:
        ledger.spend(release)
    assert ledger.epsilon() == pytest.approx(0.368, abs=1e-3)
    assert ledger.remaining() > 0.5


def test_a_pure_budget_counts_pure_dp():
    ledger = Ledger(Budget(1.0, 0.0))
    ledger.spend(PureDP(0.5))
    assert ledger.accountant == "pure"
    with pytest.raises(UnsupportedRelease):
        ledger.spend(Gaussian(1e6))
    with pytest.raises(BudgetExceeded, match="failure_delta=0"):
        ledger.spend(ApproxDP(0.1, 1e-12))
    ledger.spend(NoisyMax(0.5))
    assert ledger.remaining() == 0.0


@pytest.mark.parametrize(
    "noise", [Gaussian(1e6), DiscreteGaussian(1e3), DiscreteGaussian(1e3, shift=1), ZCDP(1e-9)], ids=repr
)
def test_what_a_pure_budget_never_covers_is_refused_as_the_first_release_too(noise):
    ledger = Ledger(Budget(1.0, 0.0))
    for spends in (lambda: ledger.spend(noise), lambda: ledger.spend(noise, plan=10 * noise)):
        with pytest.raises((UnsupportedRelease, BudgetExceeded)):
            spends()
    ledger.spend(PureDP(1.0))
    assert len(ledger.rows()) == 1


def test_what_the_fixed_measure_does_not_cover_is_refused():
    ledger = Ledger(BUDGET, accountant="gdp")
    ledger.spend(Gaussian(30.0))
    with pytest.raises(UnsupportedRelease, match=r"'gdp', fixed before its first release.* has no bound for it"):
        ledger.spend(ZCDP(0.001))
    ledger = Ledger(BUDGET, accountant="zcdp")
    ledger.spend(Gaussian(30.0))
    ledger.spend(ZCDP(0.001))


def test_pure_dp_rides_along():
    # too expensive for any measure at δ = 1e-6, and within ε by plain addition
    ledger = Ledger(BUDGET)
    ledger.spend(PureDP(0.5))
    ledger.spend(NoisyMax(0.5, noise="laplace"))
    with pytest.raises(BudgetExceeded):
        ledger.spend(PureDP(0.001))
    assert ledger.remaining() == 0.0


# ------------------------------------------------------------------------------------- releases that may fail


def test_failures_are_kept_to_their_part_of_delta():
    ledger = Ledger(BUDGET)
    assert admitted(ledger, ApproxDP(1e-4, 1e-8)) == 50  # half of δ
    with pytest.raises(BudgetExceeded, match=r"failures pass the part of δ .* failure_delta=5e-07"):
        ledger.spend(ApproxDP(0.0, 1e-8))
    ledger.spend(PureDP(1e-4))
    assert delta(ledger.total, 1.0) <= 1e-6


def test_a_little_is_kept_for_failures_by_a_measure_of_many_and_nothing_by_one():
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(30.0))
    assert admitted(ledger, ApproxDP(1e-4, 1e-8)) == 3  # a 32nd of δ
    ledger = Ledger(BUDGET, accountant="gdp")
    ledger.spend(Gaussian(30.0))
    with pytest.raises(BudgetExceeded, match="failure_delta=0"):
        ledger.spend(ApproxDP(0.01, 1e-12))
    ledger = Ledger(BUDGET, failure_delta=1e-7)
    ledger.spend(Gaussian(30.0))
    assert admitted(ledger, ApproxDP(1e-4, 1e-8)) == 10
    # what is kept for failures is missing elsewhere
    z = calibrate(lambda z: 2 * Gaussian(z), BUDGET)
    assert admitted(Ledger(BUDGET, failure_delta=1e-7), Gaussian(z)) == 1
    assert admitted(Ledger(BUDGET), Gaussian(z)) == 2


# --------------------------------------------------------------------------------------------------- plans


def test_a_plan_admits_its_releases_in_any_order_and_nothing_else():
    z = calibrate(lambda z: 3 * Laplace(z) + 2 * DiscreteGaussian(2 * z), BUDGET)
    plan = 3 * Laplace(z) + 2 * DiscreteGaussian(2 * z)
    ledger = Ledger(BUDGET, plan=plan)
    assert ledger.accountant is None
    ledger.spend(DiscreteGaussian(2 * z))
    ledger.spend(2 * Laplace(z))
    assert ledger.accountant == "plan"
    left = Laplace(z) + DiscreteGaussian(2 * z)
    with pytest.raises(BudgetExceeded, match=re.escape(f"what is left of the ledger's plan, {left!r}; spent")):
        ledger.spend(2 * Laplace(z))
    with pytest.raises(BudgetExceeded, match="not among what is left of the ledger's plan"):
        ledger.spend(Laplace(2 * z))  # cheaper, but not what was planned
    ledger.spend(Laplace(z) + DiscreteGaussian(2 * z))
    with pytest.raises(BudgetExceeded, match="what is left of the ledger's plan: nothing is; spent 1 of 1"):
        ledger.spend(Laplace(z))
    assert ledger.total == plan
    assert ledger.remaining() == pytest.approx(0.0, abs=1e-6)


EPOCH = 70 * PoissonSubsampled(Gaussian(1.7), 0.02)


@cache
def for_three_epochs(room=1.0):
    """Three epochs, and not more, by their loss distribution; by the filter of all kinds not even three."""
    return Budget(room * float(epsilon(3 * EPOCH, 1e-6)) * (1 + 1e-6), 1e-6, adjacency="add_remove")


@pytest.mark.thorough
def test_a_first_release_of_a_stated_plan_fixes_the_filter_for_all_of_it(tmp_path):
    three = for_three_epochs()
    assert admitted(Ledger(three), EPOCH) < 3
    path = tmp_path / "epochs.ledger"
    for number in range(3):
        with (Ledger.open if number else Ledger.create)(path, three) as ledger:
            ledger.spend(EPOCH, plan=3 * EPOCH if number < 2 else None)
            assert ledger.accountant == "plan"
    with Ledger.open(path) as ledger:
        assert ledger.total == 3 * EPOCH
        ledger.verify()
        with pytest.raises(BudgetExceeded, match="not among what is left of the ledger's plan"):
            ledger.spend(EPOCH, plan=3 * EPOCH)


@pytest.mark.thorough
def test_a_stated_plan_takes_no_more_than_it_must_and_promises_nothing():
    three = for_three_epochs()
    # where a filter of many kinds holds all of it, that is the filter
    roomy = Ledger(for_three_epochs(2.0))
    for _ in range(3):
        roomy.spend(EPOCH, plan=3 * EPOCH)
    assert roomy.accountant == "mixed"
    roomy.spend(Gaussian(50.0))
    # a plan that passes the budget changes nothing, nor does one that comes later, or under another choice
    for ledger, first in (
        (Ledger(three), None),
        (Ledger(three), Gaussian(1e4)),
        (Ledger(three, accountant="rdp"), None),
    ):
        if first is not None:
            ledger.spend(first)
        whole = (4 if first is None else 3) * EPOCH
        ledger.spend(EPOCH, plan=whole)
        assert admitted(ledger, EPOCH) < 2
        assert ledger.accountant != "plan"
        assert epsilon(ledger.total, 1e-6) <= three.epsilon
    with pytest.raises(TypeError, match="plan must be a description"):
        Ledger(three).spend(EPOCH, plan=3)
    with pytest.raises(AdjacencyMismatch):
        Ledger(three).spend(EPOCH, plan=ZCDP(0.1, adjacency="replace"))


def test_a_run_that_cannot_be_in_a_ledger_by_its_end_is_refused_before_it_begins():
    count, step = 9, Gaussian(calibrate(lambda z: 9 * Gaussian(z), BUDGET))
    empty = Ledger(BUDGET)
    empty.check_room(count * step)
    with pytest.raises(BudgetExceeded, match=r"'all of it' asks for .* has booked 0 of 1, left 1"):
        empty.check_room((count + 1) * step, label="all of it")
    assert not empty.rows()
    # a plan has room for what is left of it
    planned = Ledger(BUDGET, plan=count * step)
    planned.check_room(count * step)
    planned.spend(step)
    planned.check_room((count - 1) * step)
    with pytest.raises(BudgetExceeded, match="not among what is left of the ledger's plan"):
        planned.check_room(count * step)
    # beside other releases, what fits as a list may end early by the filter: that is for whoever asks to know
    mixed, others = Ledger(BUDGET), (Gaussian(8.0), PureDP(0.02))
    for other in others:
        mixed.spend(other)
    whole = 9 * Laplace(calibrate(lambda z: 9 * Laplace(z) + Gaussian(8.0) + PureDP(0.02), BUDGET))
    mixed.check_room(whole)
    with pytest.raises(BudgetExceeded):
        mixed.spend(whole)
    with pytest.raises(BudgetExceeded, match="asks for"):
        mixed.check_room(whole + Gaussian(30.0))
    mixed.set_quota("north", Budget(0.1, 1e-7))
    with pytest.raises(BudgetExceeded, match="quota of 'north'"):
        mixed.check_room(Gaussian(20.0), scope="north")
    assert len(mixed.rows()) == len(others)
    Ledger().check_room(Gaussian(0.1))
    with pytest.raises(TypeError):
        mixed.check_room(3)


def test_a_plan_holds_in_every_scope():
    ledger = Ledger(BUDGET, plan=3 * Gaussian(10.0))
    for scope in ("a", "b", "a", None):
        ledger.spend(Gaussian(10.0), scope=scope)
    for scope in ("a", None):
        with pytest.raises(BudgetExceeded):
            ledger.spend(Gaussian(10.0), scope=scope)
    ledger.spend(Gaussian(10.0), scope="b")


def test_a_first_release_that_fills_the_budget_in_no_additive_measure_is_a_plan_of_its_own():
    z = calibrate(lambda z: Gaussian(z) + ApproxDP(0.1, 1e-7), BUDGET)
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(z) + ApproxDP(0.1, 1e-7))
    assert ledger.accountant == "plan"
    with pytest.raises(BudgetExceeded):
        ledger.spend(Gaussian(1e6))


def filling(users):
    """A release that fills the budget, by the best accountant and not by a filter."""
    return LocalShuffled(local_epsilon(users, 0.9999 * BUDGET.epsilon, BUDGET.delta), users)


@pytest.mark.parametrize("first", [filling(100), Gaussian(20.0)])
@pytest.mark.parametrize("reopened", [False, True])
def test_an_untouched_scope_may_have_a_plan_of_its_own(first, reopened, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_ENTRIES_PER_SUMMARY", 1)  # every time with a summary
    path = tmp_path / "spends.ledger"
    ledger = Ledger.create(path, BUDGET)

    def reopen():
        nonlocal ledger
        if reopened:
            ledger.close()
            ledger = Ledger.open(path)

    ledger.spend(first, scope="a")
    with pytest.raises(BudgetExceeded):
        ledger.spend(filling(200), scope="a/x")  # its units met something
    reopen()
    ledger.spend(filling(200), scope="b/x")
    ledger.spend(filling(300), scope="b/y")
    reopen()
    for scope in ("b", "b/x", "b/x/1", "b/y", None):
        with pytest.raises(BudgetExceeded):
            ledger.spend(Gaussian(1e6), scope=scope)
        with pytest.raises(BudgetExceeded):
            ledger.spend(filling(200), scope=scope)
    reopen()
    assert ledger.epsilon() <= BUDGET.epsilon
    assert ledger.epsilon(scope="b/y") == epsilon(filling(300), BUDGET.delta)
    assert ledger.remaining() == pytest.approx(0.0, abs=1e-3)
    assert ledger.remaining(scope="b/x") == pytest.approx(0.0, abs=1e-3)
    if first == Gaussian(20.0):
        ledger.spend(Gaussian(20.0), scope="a")  # others follow the filter as before
        assert ledger.remaining(scope="a") > 0.5
    assert len(ledger.rows()) == (4 if first == Gaussian(20.0) else 3)
    assert ledger.verify() == ledger.head


def test_what_passes_the_budget_is_no_plan_and_callers_choices_hold_everywhere():
    ledger = Ledger(BUDGET)
    ledger.spend(Gaussian(20.0), scope="a")
    with pytest.raises(BudgetExceeded):
        ledger.spend(filling(200) + Gaussian(100.0), scope="b")
    for choice in ({"accountant": "gdp"}, {"plan": filling(100)}):
        ledger = Ledger(BUDGET, **choice)
        ledger.spend(filling(100) if "plan" in choice else Gaussian(20.0), scope="a")
        with pytest.raises((BudgetExceeded, UnsupportedRelease)):
            ledger.spend(filling(200), scope="b")


# ------------------------------------------------------------------------------------------- rules in files

KIND = PoissonSubsampled(Gaussian(1.0), 0.005)


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-6), Budget(0.1, 1e-9), Budget(8.0, 1e-3), Budget(50.0, 0.5)])
@pytest.mark.parametrize("kind", [None, KIND])
def test_the_shares_of_delta_add_up_to_it_and_the_rule_comes_back(budget, kind):
    rule = mixed_rule(budget, None, kind)
    assert 0.999 < sum(rule.shares) + rule.heavy[0] + rule.kind_share <= 1.0
    assert len(rule.shares) == len(rule.orders) + 1
    assert all(1 < order < math.inf for order in rule.orders)
    assert rule_from_dict(json.loads(json.dumps(rule_to_dict(rule)))) == rule == mixed_rule(budget, None, kind)


@tabled(
    ("change", "message"),
    [
        *(({name: wrong}, "levels between 0 and 1") for name in ("levels", "heavy_levels")
          for wrong in ([0.5, 1.0], [-0.1], [0.5] * 65, [math.nan])),
        ({"heavy_tilt": [0.95, 3.0, 3.0]}, "tilt"),
        ({"left_out": 0.7}, "between 0 and 0"),
        *(({"kind_share": wrong}, "share") for wrong in (0.5, -0.1, 0.0)),
        ({"kind": None}, "share"),
        ({"reserves": [1.5]}, "reserves between 0 and 1"),
        ({"orders": [0.5], "shares": [0.1, 0.1]}, "orders lie above 1"),
        ({"shares": [0.1, 0.1]}, "one share more than orders"),
        ({"heavy": [0.01]}, "two shares and some reserves"),
    ],
)  # fmt: skip
def test_a_rule_in_a_file_is_checked(change, message):
    with pytest.raises(ValueError, match=message):
        rule_from_dict({**rule_to_dict(mixed_rule(BUDGET, None, KIND)), **change})


@pytest.mark.thorough
def test_what_a_file_states_is_what_is_counted():
    """Another library may choose otherwise: the file decides, but it may not promise more than the budget."""
    stored = rule_to_dict(mixed_rule(BUDGET))
    prices = [
        make_filter(BUDGET, rule_from_dict({**stored, "left_out": left_out})).price(
            PoissonSubsampled(Gaussian(2.0), 0.002)
        )
        for left_out in (stored["left_out"], 0.05)
    ]
    assert not np.array_equal(*prices)
    make_filter(BUDGET, Rule("rdp", order=20.0, limit=0.1))
    with pytest.raises(ValueError, match="at the order 20"):
        make_filter(BUDGET, Rule("rdp", order=20.0, limit=5.0))


# ------------------------------------------------------------------------- no adaptive choice gets past them


def worst_delta(budget, make, choices):
    """The largest δ that any adaptive choice among ``choices`` reaches at the budget's ε, by dynamic programming.

    Each choice is its worst case: randomized response, which with the probability of failure gives all away. The
    adversary sees every outcome, and takes what the filter admits so as to maximise E[(1 − e^(ε − L))₊] over P.
    """

    @cache
    def admissible(counts):
        taken = [release for release, count in zip(choices, counts, strict=True) for _ in range(count)]
        filter = make()
        for release in taken:
            filter.record(None, release)
        return [filter.admits(None, r, lambda r=r: sum([*taken, r], start=Composed())) for r in choices]

    @cache
    def value(counts, net):
        loss = sum(n * release.epsilon for n, release in zip(net, choices, strict=True))
        best = max(0.0, -math.expm1(budget.epsilon - loss))
        for index, (release, fits) in enumerate(zip(choices, admissible(counts), strict=True)):
            if fits:
                after = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
                up = (*net[:index], net[index] + 1, *net[index + 1 :])
                down = (*net[:index], net[index] - 1, *net[index + 1 :])
                failing = release.delta if isinstance(release, ApproxDP) else 0.0
                truth = 1 / (1 + math.exp(-release.epsilon))
                answered = truth * value(after, up) + (1 - truth) * value(after, down)
                best = max(best, failing + (1 - failing) * answered)
        return best

    return value((0,) * len(choices), (0,) * len(choices))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("accountant", "loose_delta"), [("pure", 0.6), ("rdp", 0.3), ("zcdp", 0.3), ("gdp", 0.3), (None, 0.3)]
)
def test_no_adaptive_choice_passes_the_budget(accountant, loose_delta):
    budget = Budget(1.0, 0.1)
    choices = (ApproxDP(0.15, 0.01), PureDP(0.25), PureDP(0.45))
    rule = first_filter(budget, choices[0], accountant=accountant).rule
    worst = worst_delta(budget, lambda: make_filter(budget, rule), choices)
    assert 0.5 * budget.delta < worst <= budget.delta
    # and the adversary is one: it passes the budget where the filter guards a looser one
    loose = Budget(1.0, loose_delta)
    rule = first_filter(loose, choices[0], accountant=accountant).rule
    assert worst_delta(budget, lambda: make_filter(loose, rule), choices) > budget.delta


def test_a_whole_that_fills_the_budget_is_a_plan_unless_the_caller_chose():
    budget = Budget(1.0, 1e-6)
    step = calibrate(lambda z: 10 * Gaussian(z), budget)
    first, whole = Gaussian(step), 10 * Gaussian(step)
    assert first_filter(budget, first, whole=whole).rule.plan == whole
    assert first_filter(budget, first, whole=whole, accountant="gdp").rule.accountant == "gdp"
