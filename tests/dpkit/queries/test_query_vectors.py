"""Means of vectors: how far neighbours move the cells, the law of the noise, coverage, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget, Ledger, epsilon
from dpkit import queries
from dpkit.clipping import lengths
from dpkit.queries import vectors
from dpkit.queries._units import Share
from dpkit.queries.vectors import _law, _sums

SWAP = Budget(1.0, 1e-6)
ADD = Budget(1.0, 1e-6, adjacency="add_remove")


def cells(X: np.ndarray, radius: float, steps: float) -> np.ndarray:
    return _sums(X, lengths(X), radius, steps)


def longest(d: int, rng: np.random.Generator) -> np.ndarray:
    """A row at, beyond or inside the ball of radius 2."""
    x = rng.standard_normal(d)
    return x / np.linalg.norm(x) * rng.choice([2.0, 2.0, 1e9, 1.0, 0.0])


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 5), m=st.integers(1, 3), swapped=st.booleans())
def test_neighbours_are_no_farther_apart_than_the_noise_says(seed, d, m, swapped):
    rng = np.random.default_rng(seed)
    budget = SWAP if swapped else ADD
    others = rng.standard_normal((4, d))
    mine = np.tile(longest(d, rng), (int(rng.integers(0, m + 1)), 1)).reshape(-1, d)
    theirs = -mine[:1].repeat(int(rng.integers(0, m + 1)), axis=0) if swapped and len(mine) else np.empty((0, d))
    for share, public in ((Share(1, m, budget.adjacency, alone=False), False),
                          (Share(1, 1, budget.adjacency, alone=True), True)):  # fmt: skip
        law, _ = _law(share, budget, public, None)
        steps = 1 / law.step
        one = cells(np.vstack([others, mine[:1] if public else mine]), 2.0, steps)
        other = cells(np.vstack([others, -mine[:1] if public else theirs]), 2.0, steps)
        if public and not swapped:
            continue  # the number of rows is private there
        moved = (one - other)[:-1] if public else one - other
        assert np.linalg.norm(moved.astype(float)) <= law.scale / law.noise_multiplier * steps


def test_the_bounds_are_reached():
    x = np.array([[3.0, 4.0]])
    law, _ = _law(Share(1, 1, "replace", alone=True), SWAP, True, None)
    steps = 1 / law.step
    for one, other, l2 in ((x, -x, 2.0), (x, x[:0], np.sqrt(2.0))):
        moved = (cells(one, 5.0, steps) - cells(other, 5.0, steps)) / steps
        assert np.linalg.norm(moved[:2] if l2 == 2.0 else moved) == pytest.approx(l2, rel=1e-6)
    assert cells(1e6 * x, 5.0, steps)[:2] / steps == pytest.approx([0.6, 0.8])


TINY, HUGE = 1e-150, 1e150


@tabled("radius", [TINY, 1e-100, 1.0, HUGE])
@tabled("far", [5e-324, 1e-165, 1e-150, 1e-5, 1.0, 1e5, 1e150, 1e155, 1e300, 1.7e308])
def test_no_row_is_longer_than_the_radius_however_large_or_small(far, radius):
    """Squares of its entries would underflow to 0 or overflow, which made rows 1e5 times too long, or NaN."""
    for row in ([far, far], [far, 0.0], [-far] * 5000, [0.0] * 3):
        for centre in (0.0, -far):
            seen: list[np.ndarray] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(vectors, "with_noise", lambda cells, law, rng, seen=seen: seen.append(cells) or cells)
                answer = queries.mean_vector([row], radius=radius, center=[centre] * len(row), budget=SWAP)
            steps = 1 / _law(Share(1, 1, "replace", alone=True), SWAP, True, None)[0].step
            assert sum(int(c) ** 2 for c in seen[0]) <= steps**2  # exact
            assert np.isfinite(answer.value).all()
            if far >= 100 * radius and centre == 0:  # cut, and not to the centre
                assert np.linalg.norm(answer.value / radius) == pytest.approx(float(any(row)), abs=1e-4)


def test_rows_far_beyond_a_private_radius_are_cut_and_not_refused():
    """The ledger is charged before a length is looked at, so none may stop the query."""
    X = np.tile([1e200, 0.0], (500, 1))
    assert queries.mean_vector(X, largest=1.0, budget=Budget(50.0, 1e-6)).value == pytest.approx([1, 0], abs=0.1)
    beyond = queries.mean_vector(1.7e108 * X, largest=1.0, center=[-1.7e308, 0], budget=Budget(50.0, 1e-6))
    assert beyond.value == pytest.approx([-1.7e308, 0.0], abs=0.1)


@pytest.mark.parametrize("budget", [SWAP, ADD, Budget(1.0, 1e-6, adjacency="zero_out")], ids=lambda b: b.adjacency)
def test_noise_and_intervals_are_as_stated(budget):
    """Over 1,500 coordinates: 95 % ± 3.5 % covered, and the noise within 12 % of its stated size (1e-9, reseeded)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1500)) / np.sqrt(1500)
    answer = queries.mean_vector(X, radius=1.5, budget=budget, rng=rng)
    truth = X.mean(axis=0)
    low, high = answer.interval(0.95)
    assert abs(np.mean((low <= truth) & (truth <= high)) - 0.95) < 0.035
    assert np.std((answer.value - truth) / answer.noise_std) == pytest.approx(1.0, abs=0.12)
    assert answer.keys == tuple(map(str, range(1500)))


def test_a_radius_is_found_and_paid_for():
    rng = np.random.default_rng(1)
    X = rng.normal([3.0, -1.0], 1.0, size=(20_000, 2))
    ledger = Ledger(Budget(2.0, 1e-6))
    answer = queries.mean_vector(X, largest=1e8, center=[2.0, 0.0], budget=Budget(1.0, 1e-6), ledger=ledger, rng=rng)
    assert len(ledger.rows()) == 1
    assert ledger.rows()[0].release == answer.cost
    assert 0.99 < epsilon(answer.cost, 1e-6) <= 1.0
    found = float(answer.query.split("within ")[1].split(" ")[0])
    assert found == pytest.approx(np.quantile(np.linalg.norm(X - [2.0, 0.0], axis=1), 0.9), rel=0.1)
    assert np.abs(answer.value - [3.0, -1.0]).max() < 0.2


def test_persons_filters_and_tables():
    n = 4000
    rng = np.random.default_rng(2)
    table = {"a": rng.random(n), "b": 2 * rng.random(n), "id": np.arange(n) // 4, "new": np.arange(n) < 2000}
    person = Budget(50.0, 1e-6, adjacency="add_remove", unit="person")
    answer = queries.mean_vector(
        table, ["a", "b"], radius=3, where="new", person="id", max_contributions=2, budget=person, rng=rng
    )
    np.testing.assert_allclose(answer.value, [0.5, 1.0], atol=0.15)
    assert answer.keys == ("a", "b")
    one, other = answer.interval(0.5), answer.interval(0.99)
    assert (other[0] < one[0]).all()
    assert (one[1] < other[1]).all()
    nobody = queries.mean_vector(np.empty((0, 2)), radius=1, center=[5.0, 5.0], budget=ADD, rng=rng)
    assert (np.abs(nobody.value - 5) <= 1).all()


X = np.ones((3, 2))
FAR = Budget(1e-3, 1e-9, unit="person")


@tabled(
    ("data", "how", "message"),
    [
        (X, {"radius": 1, "budget": Budget(1.0, 0.0)}, r"needs budget.delta > 0 .*1e-6"),
        (X, {}, r"needs radius=.* or largest=.*got radius=None"),
        (X, {"radius": 1, "largest": 2}, r"and not both, got radius=1"),
        (X, {"radius": 0}, r"radius must be positive.*got radius=0"),
        (X, {"largest": 1, "inside": 1}, r"inside must lie in \(0, 1\)"),
        ([1.0, 2.0], {"radius": 1}, r"columns must list the columns"),
        ({"a": [1.0]}, {"columns": "a", "radius": 1}, r"columns must be a list .*'a'"),
        ({"a": [1.0]}, {"columns": ["b"], "radius": 1}, r"got column='b'"),
        ({"a": [1.0]}, {"radius": 1}, r"columns must list the columns"),
        ([[np.nan, 1.0]], {"radius": 1}, r"data must be .*NaN"),
        (X, {"radius": 1, "center": [0.0]}, r"center must be finite"),
        # squares of which are no numbers
        (X, {"radius": 1e-170}, r"radius must lie in \[1e-150, 1e\+150\], got radius=1e-170: scale"),
        (X, {"largest": 1e200}, r"largest must lie in"),
        (np.ma.masked_array(X, mask=X > 0), {"radius": 1}, r"data must not be masked"),
        (
            X,
            {"radius": 1, "max_contributions": 10**9, "budget": FAR},
            r"the noise of 1000000000 rows of a person does not fit into 64 bits",
        ),
        (X[:0], {"radius": 1}, r"data must have at least one row"),
    ],
)
def test_wrong_inputs_say_what_is_wrong(data, how, message):
    with pytest.raises((ValueError, TypeError), match=message):
        queries.mean_vector(data, **{"budget": SWAP} | how)
