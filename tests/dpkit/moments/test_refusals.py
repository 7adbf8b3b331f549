"""What no sensitivity was computed for is refused, and changes nothing; what it costs is charged, once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tabled import tabled

from accounting import Budget, BudgetExceeded, Ledger
from dpkit import moments

BUDGET, PERSON = Budget(1.0, 1e-5), Budget(1.0, 1e-5, unit="person")
X = np.array([0.6, 0.8])
KNOWN = {"budget": BUDGET, "releases": 3, "horizon": 100}
MAKERS = {
    "PairSums": lambda **more: moments.PairSums(2, 1.0, 0.5, 0.5, **KNOWN | more),
    "ArmSums": lambda **more: moments.ArmSums(np.eye(2), -0.5, 0.5, **KNOWN | more),
    "BlockSums": lambda **more: moments.BlockSums(2, 3, 1.0, **KNOWN | more),
    "PersonSums": lambda **more: moments.PersonSums(2, **KNOWN | {"budget": PERSON} | more),
    "ShuffledPersonSums": lambda **more: moments.ShuffledPersonSums(2, **KNOWN | {"budget": PERSON} | more),
    "PairBatches": lambda **more: moments.PairBatches([50, 100], 2, 1.0, 0.5, 0.5, budget=BUDGET, **more),
    "PairMessages": lambda **more: moments.PairMessages(2, 1.0, 0.5, 0.5, budget=BUDGET, **more),
    "ShuffledBatches": lambda **more: moments.ShuffledBatches(
        [100], 2, np.asarray, bound=1.0, distance=2.0, budget=BUDGET, **more
    ),
}


@pytest.mark.thorough
@tabled("name", sorted(MAKERS))
def test_a_ledger_is_charged_with_the_cost_once_and_refuses_the_second(name):
    budget = PERSON if "Person" in name else BUDGET
    ledger = Ledger(budget)
    sums = MAKERS[name](ledger=ledger, rng=np.random.default_rng(0))
    assert [row.release for row in ledger.rows()] == [sums.cost]
    assert ledger.epsilon(1e-5) <= 1.0
    with pytest.raises(BudgetExceeded):
        MAKERS[name](ledger=ledger, rng=np.random.default_rng(0))


PAIRS = [
    (X, 1.01, 0.1),
    (X, -0.01, 0.1),
    (X, 0.5, 0.51),
    (X, 0.5, -0.51),
    (X, math.nan, 0.1),
    (X, 0.5, math.nan),
    (X * math.nan, 0.5, 0.1),
    (2 * X, 0.5, 0.1),
    (1e200 * X, 0.5, 0.1),
]


@tabled("record", PAIRS)
@tabled("kind", ["PairSums", "PairBatches", "PairMessages"])
def test_pairs_beyond_their_bounds(kind, record):
    sums = MAKERS[kind](rng=np.random.default_rng(0))
    x, w, g = record
    told = (x, w, g, 0) if kind == "PairBatches" else (x, w, g)
    with pytest.raises(ValueError, match="must be from 0 to 1"), np.errstate(all="ignore"):
        sums.add(*told)
    kept = sums.kept()
    assert not any(np.any(kept[name]) for name in ("batch", "users", "messages") if name in kept)


def test_a_long_vector_with_a_small_matrix_where_there_is_none():
    sums = MAKERS["PairSums"](least=0.5)
    sums.add(X, 0.5, 0.5)
    sums.add(X, 0.125, 0.25)
    with pytest.raises(ValueError, match=r"w at least 2·g²"):
        sums.add(X, 0.4, 0.5)


@tabled("x", [np.array([math.inf, -math.inf]), np.array([math.nan, 0.6]), np.array([1e200, -1e308])])
@tabled("kind", ["PairSums", "PairSums, summed", "PairBatches", "PairMessages"])
def test_a_record_of_two_zeros_adds_nothing_whatever_its_row_is(kind, x):
    """A round without a reward has one, whose row may be anything: 0·∞ is no number, and would spoil a whole batch."""

    def after(row):
        sums = MAKERS[kind.split(",")[0]](rng=np.random.default_rng(0), **{"together": True} if "," in kind else {})
        if "," in kind:
            sums.add_sum(np.stack([X, row]), np.array([0.5, 0.0]), np.array([0.1, 0.0]))
        else:
            told = (0,) if kind == "PairBatches" else ()
            sums.add(X, 0.5, 0.1, *told)
            sums.add(row, 0.0, -0.0, *told)
        released = sums.release()
        return np.concatenate([released.H.ravel(), released.b])

    with np.errstate(all="raise"):
        found = after(x)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, after(np.zeros(2)))


@tabled("g", [0.51, -0.51, math.nan, math.inf])
@tabled("kind", ["ArmSums", "BlockSums"])
def test_numbers_beyond_their_range(kind, g):
    told, more = ((0, X, g), {}) if kind == "BlockSums" else ((0, g), {"together": True})
    with pytest.raises(ValueError, match="must be"):
        MAKERS[kind]().add(*told, **more)


def test_contexts_and_rows_longer_than_one_and_rounds_that_were_not_opened():
    with pytest.raises(ValueError, match="‖z‖ must be at most 1"):
        MAKERS["BlockSums"]().add(0, 1.01 * X, 0.1)
    with pytest.raises(ValueError, match="arms must be rows"):
        moments.ArmSums(2 * np.eye(2), -0.5, 0.5, **KNOWN)
    rounds = MAKERS["PersonSums"]().rounds
    with pytest.raises(ValueError, match="round must be one of the 0"):
        rounds.rewarded(0, X, 1.0)
    rounds.decided(0, 5)
    with pytest.raises(ValueError, match="norm at most 1"):
        rounds.rewarded(0, 1.01 * X, 1.0)


@tabled("share", [-0.1, 1.1, math.nan])
def test_nobody_pays_less_than_nothing_or_more_than_there_is(share):
    sums = MAKERS["PersonSums"]()
    sums.rounds.decided(0, 5)
    with pytest.raises(ValueError, match="share must"):
        sums.pay(sums.rounds.people(1), share)
    assert sums.persons == 0


def test_after_the_last_batch_nothing_is_released():
    batches = MAKERS["PairBatches"](rng=np.random.default_rng(0))
    for _ in range(2):
        batches.release()
    with pytest.raises(ValueError, match="at most 2 batches"):
        batches.release()
    with pytest.raises(ValueError, match="ends must be positive and ascending"):
        moments.PairBatches([5, 5], 2, 1.0, 0.5, 0.5, budget=BUDGET)


@tabled(
    ("kind", "wrong", "message"),
    [
        ("PairSums", {"budget": 1.0}, "budget must be a Budget"),
        ("PairSums", {"releases": -1}, "releases must be at least 0"),
        ("PairSums", {"records": 0}, "records must be at least 1"),
        ("PairSums", {"mechanism": "wood"}, "mechanism must be"),
        ("PairSums", {"least": 2.0}, "least must be at most"),
        ("BlockSums", {"discount": 1.0}, "discount must"),
        ("BlockSums", {"horizon": 0}, "horizon must"),
        ("ArmSums", {"delay": -1}, "delay must"),
        ("PersonSums", {"releases": 1.5}, "releases must be a whole number"),
        ("ShuffledBatches", {"records": 0}, "records must"),
    ],
)
def test_parameters_out_of_range(kind, wrong, message):
    ledger = Ledger(BUDGET)
    with pytest.raises((ValueError, TypeError), match=message):
        MAKERS[kind](ledger=ledger, **wrong)
    assert not list(ledger.rows())
