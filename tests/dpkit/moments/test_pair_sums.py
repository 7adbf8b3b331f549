"""What goes into the sums of a stream: whole numbers, whose sums tell no more than their records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget
from dpkit.geometry import pair_sensitivity, svec
from dpkit.moments import PairSums, whole_digits
from dpkit.randomness import secure

BUDGET = Budget(1.0, 1e-6)


def sums(d: int, horizon: int = 10**6) -> PairSums:
    rng = np.random.default_rng(0)
    return PairSums(d, 0.25, 0.7, 0.75, budget=BUDGET, releases=3, horizon=horizon, rng=rng)


def batch(d: int, records: list[tuple[np.ndarray, float, float]]) -> np.ndarray:
    """What the stream is given."""
    made = sums(d)
    for x, w, g in records:
        made.add(x, w, g)
    seen: list[np.ndarray] = []
    made.sums.add = lambda z: (seen.append(z), z)[1]  # type: ignore[method-assign]
    made.release()
    return seen[0]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6), n=st.integers(0, 300), same=st.booleans())
def test_a_round_moves_the_sum_by_its_sensitivity_whatever_the_rounding(seed, d, n, same):
    """Records of all sizes before and behind it; the two worlds take them in another order, too."""
    rng = np.random.default_rng(seed)

    def record():
        x = rng.standard_normal(d)
        x *= rng.uniform() ** rng.integers(0, 40) / np.linalg.norm(x)
        return x, float(rng.uniform(0.05, 0.25)), float(rng.uniform(-0.7, 0.7))

    others, one, other = [record() for _ in range(n)], record(), record()
    if same:  # the farthest apart: one arm, opposite gradients
        x = np.eye(d)[0]
        one, other = (x, 0.25, 0.7), (x, 0.25, -0.7)
    order = rng.permutation(n)
    first = batch(d, [*others, one])
    second = batch(d, [other, *(others[i] for i in order)])
    assert np.linalg.norm(first - second) <= sums(d).sums.sensitivity


@pytest.mark.parametrize("level", [0.1, 0.8])
def test_a_number_beside_a_record_keeps_the_stated_sensitivity(level):
    """One record against another, each with a number or none, in any two batches; and what comes nearest to it.

    The streams are encoded by the mechanism's own factor. Worst pairs are among those of one arm, opposite gradients.
    """
    rng, apart = np.random.default_rng(1), dict.fromkeys(("numbers", "one", "none"), 0.0)

    def made() -> PairSums:
        known = {"budget": BUDGET, "releases": 3, "horizon": 1000, "rng": np.random.default_rng(0)}
        return PairSums(2, 0.25, 0.7, 0.75, least=0.1, level=level, weigh=lambda b, H: np.ones(3), **known)

    empty = made()
    factor, limit = empty.sums.factor, empty.sums.sensitivity

    def vector(number: float | None, record: tuple[np.ndarray, float, float]) -> np.ndarray:
        one = made()
        one.add(*record, number)
        return np.concatenate([svec(one.batch[:-1]), one.batch[-1], [one.beside]]) / one._unit

    def record() -> tuple[np.ndarray, float, float]:
        angle, q = rng.uniform(0, 2 * np.pi), rng.choice([0.1, 0.5, 1.0])
        g = 0.7 * q * rng.choice([-1.0, 1.0])
        return np.array([np.cos(angle), np.sin(angle)]), float(rng.uniform(0.1 * q**2, 0.25)), float(g)

    x, y = np.array([1.0, 0.0]), np.array([np.cos(0.6), np.sin(0.6)])
    pairs = [((x, 0.25, 0.7), (u, w, -0.7)) for u in (x, y) for w in (0.1, 0.25)]
    pairs += [(record(), record()) for _ in range(60)]
    for one, other in pairs:
        for numbers in ((0.5, -0.5), (0.5, None), (None, None)):
            first, second = map(vector, numbers, (one, other))
            kind = ("numbers", "one", "none")[numbers.count(None)]
            for i in range(3):
                for j in range(3):
                    moved = np.outer(factor[:, i], first) - np.outer(factor[:, j], second)
                    apart[kind] = max(apart[kind], float(np.linalg.norm(moved)))
    assert max(apart.values()) <= limit
    assert apart["numbers"] > 0.93 * limit


def test_numbers_beside_records_are_summed_and_others_refused():
    rng = np.random.default_rng(0)
    made = PairSums(2, 1.0, 1.0, 0.5, budget=Budget(100.0, 1e-6), releases=2, horizon=4000, rng=rng, level=0.1)
    for number in (0.25, 0.5, None, -0.125) * 1000:
        made.add(np.array([0.6, 0.8]), 1.0, 0.5, number)
    total, noise = made.release().level
    assert abs(total - 625.0) < 6 * noise < 30.0
    for number in (0.51, np.nan):
        with pytest.raises(ValueError, match="deviation must be from"):
            made.add(np.array([0.6, 0.8]), 1.0, 0.5, number)
    assert not made.batch.any()
    assert not made.beside
    with pytest.raises(ValueError, match="level positive"):
        sums(2).add(np.array([0.6, 0.8]), 0.2, 0.5, 0.0)
    with pytest.raises(ValueError, match="level must be below 1, and 0 where a unit has several records"):
        PairSums(2, 1.0, 1.0, 0.5, budget=BUDGET, releases=2, horizon=10, rng=rng, level=0.1, records=2)


def test_float_sums_of_the_same_records_pass_their_sensitivity():
    """What the whole numbers are for: the order alone moves a sum of floats."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1000) * 2.0 ** rng.integers(-30, 1, 1000)
    assert sum(x) != sum(x[::-1])


@pytest.mark.parametrize("horizon", [1, 2**22, 2**30, 2**40])
def test_the_largest_sum_is_a_whole_number_that_floats_hold(horizon):
    digits, slack = whole_digits(horizon, 230)
    assert horizon * 2.0**digits <= 2.0**52
    assert slack <= (1e-6 if horizon <= 2**22 else 0.03)


def test_the_sensitivity_grows_by_less_than_a_thousandth():
    made = sums(20)
    plain = pair_sensitivity(made._a, 0.25, made._c, 0.7, "replace")
    assert plain < made.sums.sensitivity < plain * (1 + 1e-6)


def test_records_are_those_of_the_definition():
    rng = np.random.default_rng(1)
    x, made = rng.standard_normal(4) / 4, sums(4)
    expected = np.concatenate([made._a * svec(0.2 * np.outer(x, x)), made._c * -0.3 * x])
    np.testing.assert_allclose(batch(4, [(x, 0.2, -0.3)]), expected, atol=2.0**-30)


# ---------------------------------------------------------------------------------------- what the low bits say


def small_and_fine(g: float, draws: int, *, in_floats: bool) -> tuple[int, int]:
    """How many released sums of one record are below ⅛, and how many of those are no multiple of 2⁻⁵⁴."""
    made = PairSums(1, 0.25, 0.7, 0.75, budget=Budget(20.0, 1e-2), releases=1, horizon=2, rng=secure())
    fresh, sigma = made.kept(), made.sums.noise_std(1)
    add, seen = made.sums.add, []
    made.sums.add = lambda x: (seen.append(x + sigma * secure().standard_normal(2) if in_floats else add(x)), x)[1]
    for _ in range(draws):
        made.resume(fresh)
        made.add(np.ones(1), 0.1, g)
        made.release()
    small = [float(y[1]) for y in seen if abs(y[1]) < 0.125]
    return len(small), sum((y * 2.0**54) % 1.0 != 0.0 for y in small)


@pytest.mark.thorough
def test_low_bits_of_a_released_sum_do_not_tell_the_reward():
    """A float sum with a term near ½ has no finer bits than 2⁻⁵⁴, the noise alone has: the reward shows.

    The shares of exact sums may differ by 6.5 standard deviations: a false alarm in 10¹⁰.
    """
    shares, variance = {}, 0.0
    for in_floats in (True, False):
        for g in (0.0, 0.7):
            small, fine = small_and_fine(g, 800 if in_floats else 1200, in_floats=in_floats)
            assert small >= (20 if in_floats else 60)
            shares[in_floats, g] = fine / small
            variance += 0.0 if in_floats else 0.25 / small
    assert shares[True, 0.0] > 0.5
    assert shares[True, 0.7] == 0.0
    assert abs(shares[False, 0.0] - shares[False, 0.7]) <= 6.5 * variance**0.5


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 80), st.booleans())
@settings(max_examples=40)
def test_many_records_are_added_as_one_after_the_other(seed, d, n, beside):
    rng = np.random.default_rng(seed)
    more = {"level": 0.2} if beside else {}
    one, many = (
        PairSums(d, 1.0, 1.0, 0.5, budget=Budget(1.0, 1e-6), releases=2, horizon=100, rng=rng, **more) for _ in "ab"
    )
    X = rng.standard_normal((n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None] * 1.01
    w, g = rng.random(n), rng.uniform(-1, 1, n)
    w[rng.random(n) < 0.2] = 0.0
    g[w == 0.0] = 0.0
    numbers = rng.uniform(-0.5, 0.5, n) if beside else None
    for i in range(n):
        one.add(X[i], w[i], g[i], None if numbers is None else numbers[i])
    many.add_many(X, w, g, numbers)
    np.testing.assert_array_equal(many.batch, one.batch)
    assert many.beside == one.beside


@pytest.mark.parametrize("bad", ["long", "NaN", "negative", "steep"])
def test_many_records_of_which_one_is_refused_add_nothing(bad):
    found = sums(2)
    X, w, g = np.full((5, 2), 0.5), np.full(5, 0.5), np.full(5, 0.5)
    if bad == "long":
        X[3] = 9.0
    elif bad == "NaN":
        X[3, 0] = np.nan
    else:
        (w if bad == "negative" else g)[3] = -5.0
    with pytest.raises(ValueError, match="must be from 0 to"):
        found.add_many(X, w, g)
    assert not found.batch.any()
