"""Moments of the best of some runs, against those of orders of a hundred outputs; and what they say of many."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from accounting import (
    BestOfPoissonRuns,
    BestOfRuns,
    Gaussian,
    Laplace,
    PureDP,
    bound,
    compare,
    delta,
    epsilon,
    rdp,
)
from accounting.adaptive.repeated_selection import many_selections, worst_moment
from accounting.adaptive.repeated_selection.many_selections import order_of_best
from accounting.adaptive.repeated_selection.one_selection import OrderedPair, best_order, one_run
from accounting.adaptive.repeated_selection.worst_moment import log_moment
from accounting.compose.pairs import alternatives
from accounting.loss.gaussian import GaussianPair
from accounting.loss.laplace import LaplacePair
from accounting.loss.responses import Coins
from accounting.releases.selection import runs_of

pytestmark = pytest.mark.filterwarnings("ignore:ε is only known")

RUNS = [Gaussian(4.0), Laplace(4.0), PureDP(0.25)]
PAIRS = [GaussianPair(0.25), LaplacePair(0.25), Coins(0.25)]
LAWS = [
    lambda run: BestOfRuns(run, 0.2),
    lambda run: BestOfRuns(run, 0.05, shape=0.0),
    lambda run: BestOfRuns(run, 0.1, shape=-0.5),
    lambda run: BestOfRuns(run, 0.3, shape=2.5),
    lambda run: BestOfPoissonRuns(run, 6.0),
]


def outputs(pair, count):
    """Laws of ``count`` outputs in the order of their losses."""
    edges = np.linspace(-pair.lowest(-30.0), pair.highest(-30.0), 4001)
    p, q = pair.masses(edges)
    at = np.append(0.0, np.cumsum(p + q) / 2)
    shares = np.linspace(0.0, 1.0, count + 1)
    return tuple(np.diff(np.interp(shares, at, np.append(0.0, np.cumsum(mass)))) for mass in (p, q))


def moment(runs, p, q, order):
    """ln of the moment, of outputs from the best one on."""
    better = (np.maximum(0.0, np.cumsum(mass) - mass) for mass in (p, q))
    one, other = (runs.gain(s, mass) for s, mass in zip(better, (p, q), strict=True))
    return math.log(runs.none + float((one * (one / other) ** order).sum()))


def two_rows(p, q, cut, pace):
    """Outputs of small losses first; then those of large ones among them."""
    small = np.flatnonzero(p < q)
    large = np.flatnonzero(p >= q)[::-1]
    key = np.append((np.cumsum(p[small]) - cut) / pace, np.cumsum(p[large]))
    return np.append(small, large)[np.argsort(key)]


@pytest.mark.slow
@pytest.mark.parametrize(("law", "kind"), [(0, 0), (1, 1), (2, 2), (3, 0), (4, 2), (4, 0)])
def test_a_moment_is_little_above_that_of_the_worst_order(law, kind):
    rng = np.random.default_rng(law)
    runs, inner = runs_of(LAWS[law](RUNS[kind])), tuple(alternatives(RUNS[kind]))
    p, q = outputs(PAIRS[kind], 150)
    for order in (1.0, 6.0):
        above = log_moment(runs, inner, order)
        known = [rng.permutation(150), np.arange(150), np.arange(150)[::-1]]
        known += [two_rows(p, q, cut, pace) for cut in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5) for pace in (0.5, 1.0, 2.0)]
        moments = [moment(runs, p[at], q[at], order) for at in known]
        assert 0.8 * above < max(moments) < above
        losses, masses, _, _ = OrderedPair(runs, PAIRS[kind], *best_order(runs, (PAIRS[kind],), order)).atoms()
        below = math.log(float(masses @ np.exp(order * losses)))
        assert max(0.99 * max(moments), 0.86 * above) < below < above


@pytest.mark.parametrize("law", [0, 2, 4])
def test_a_potential_holds_wherever_a_path_may_be(law):
    rng = np.random.default_rng(law)
    runs, inner, t = runs_of(LAWS[law](Gaussian(4.0))), tuple(alternatives(Gaussian(4.0))), 6.0
    cells, potential = worst_moment._cells(runs, inner), worst_moment._found(runs, inner, t)
    kappa, theta = potential.kappa, runs.theta
    losses = np.linspace(-1.2, 1.2, 41)
    prices = worst_moment._prices(runs, cells, t, potential, losses)

    def at_knots(values, s):
        return np.interp(-runs.slope(s), -cells.slope, values)

    def value(s, u):
        """U but for a."""
        tau = np.log(runs.slope(s) / runs.slope(u))
        grown = runs.slope(s) ** 2 / runs.bend(s) * np.exp((t + theta) * tau) / (t + theta)
        return kappa * grown + at_knots(potential.linear, s) * (u - s)

    # in all cells, where there is most to lose at their ends
    share = rng.beta(0.3, 0.3, 20_000)
    cell = rng.integers(cells.knots.size - 1, size=share.size)
    s = cells.knots[cell] + share * np.diff(cells.knots)[cell]
    s = np.clip(s, cells.knots[cell] * (1 + 1e-6) + 1e-6, cells.knots[cell + 1] * (1 - 1e-6) - 1e-6)
    normal = ndtri(s)
    u = ndtr(normal + 0.25 * rng.uniform(-1, 1, s.size))
    h = 1e-8
    by_s = (value(s + h, u) - value(s - h, u)) / (2 * h) - at_knots(potential.place, s)
    by_u = (value(s, u + h) - value(s, u - h)) / (2 * h)
    tau = np.log(runs.slope(s) / runs.slope(u))[:, None]
    gain = runs.slope(s)[:, None] * np.exp(t * (losses + tau))
    left = prices - (gain + by_s[:, None] + np.exp(-losses) * by_u[:, None])
    assert left.min() > -1e-4
    # and not far above, for any loss
    assert left.min(axis=0).max() < 0.16 * prices.max()
    fine = np.linspace(0.0, 1.0, 200_001)
    ends = value(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    place = np.trapezoid(at_knots(potential.place, fine), fine)
    cost = worst_moment._cost(runs, cells, t) @ np.append(kappa, potential.place)
    assert cost == pytest.approx(ends[0] - ends[1] + place, rel=1e-4)


@pytest.mark.parametrize(("law", "t", "wide"), [(0, 6.0, 1.2), (2, 0.5, 0.05)])
def test_prices_hold_between_shifts(law, t, wide, monkeypatch):
    runs, inner = runs_of(LAWS[law](Gaussian(4.0))), tuple(alternatives(Gaussian(4.0)))
    cells, losses = worst_moment._cells(runs, inner), np.linspace(-wide, wide, 17)
    potential = worst_moment._found(runs, inner, t)
    if t < runs.theta:  # then b alone may have the most between two shifts
        potential = worst_moment._Potential(0.0, t * cells.slope, 0 * potential.place)
    above = worst_moment._prices(runs, cells, t, potential, losses)
    monkeypatch.setattr(worst_moment, "_FINE", 100 * worst_moment._FINE)
    near = worst_moment._prices(runs, cells, t, potential, losses)
    assert np.all(above >= near - 1e-12 * np.abs(near))
    assert np.all(above - near < 1e-3 * np.abs(near).max())


def test_a_cell_has_all_shifts_that_can_be_reached():
    # a corner of what a coin can reach lies within a cell
    runs = runs_of(BestOfRuns(PureDP(1.0), 0.1))
    cells = worst_moment._cells(runs, tuple(alternatives(PureDP(1.0))))
    s = np.linspace(cells.knots[:-1], cells.knots[1:], 1001, axis=1)
    most = np.minimum(math.e * s, 1 - (1 - s) / math.e)
    least = np.maximum(s / math.e, 1 - math.e * (1 - s))
    highest, lowest = (np.log(runs.slope(s) / runs.slope(u)) for u in (most, least))
    assert np.all(cells.highest >= highest.max(axis=1))
    assert np.all(cells.lowest <= lowest.min(axis=1))
    assert cells.highest == pytest.approx(highest.max(axis=1), abs=2e-3)
    assert cells.lowest == pytest.approx(lowest.min(axis=1), abs=2e-3)


@pytest.mark.parametrize("law", [0, 4])
def test_of_runs_that_tell_little_it_is_known(law):
    # the sum of all squared losses, the largest ones first
    runs, count = runs_of(LAWS[law](Gaussian(1000.0))), 4000
    shares = np.arange(count) / count
    squares = np.sort(ndtri(shares + 0.5 / count) ** 2)[::-1] * 1e-6
    exact = float(runs.gain(shares, np.full(count, 1 / count)) @ squares)
    assert exact * 0.999 < log_moment(runs, tuple(alternatives(Gaussian(1000.0))), 1.0) < exact * 1.05


@pytest.mark.thorough
@pytest.mark.parametrize(("law", "kind"), [(0, 0), (4, 2)])
def test_brackets_of_ten_choices(law, kind):
    release = 10 * LAWS[law](RUNS[kind])
    lower, upper = bound(release, 1e-6)
    assert 0.86 * upper < lower < upper
    assert upper < 0.75 * compare(release, 1e-6)["rdp"]


@pytest.mark.thorough
def test_epsilon_and_delta_belong_together():
    release = 12 * BestOfRuns(PureDP(0.1), 0.1)
    found = epsilon(release, 1e-6)
    assert delta(release, found) == pytest.approx(1e-6, rel=1e-6, abs=0)
    # the moments alone, at an order that is about the best
    (parts,) = alternatives(release)
    moments = order_of_best(parts, 1e-6)
    assert many_selections.epsilon(parts, 1e-6, lambda: 50.0, 0.0) == found
    single = log_moment(parts[0][0].runs, parts[0][0].inner, moments)
    by_hand = 12 * single + moments * math.log(moments / (1 + moments)) - math.log1p(moments) + math.log(1e6)
    assert 0.998 * found < by_hand / moments < 1.01 * found
    assert many_selections.delta(parts, found, lambda: 1e-9, 0.0) == 1e-9


@pytest.mark.thorough
def test_other_releases_beside_them():
    choices = 8 * BestOfRuns(PureDP(0.1), 0.1)
    alone, noise = epsilon(choices, 1e-6), 30 * Gaussian(20.0)
    lower, upper = bound(choices + noise, 1e-6)
    assert alone < lower < upper < alone + epsilon(noise, 1e-6)
    assert 0.88 * upper < lower
    # of two kinds, each as if it were the other, about
    both = 4 * BestOfRuns(PureDP(0.1), 0.1) + 4 * BestOfRuns(PureDP(0.1), 0.100001)
    assert epsilon(both, 1e-6) == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize("order", [0.3, 4.0, 60.0])
def test_delta_of_a_moment(order):
    # the largest share of e^(t(L − ε)) that (1 − e^(ε − L))₊ is
    x = np.geomspace(1e-4, 40.0, 200_001)
    share = float((-np.expm1(-x) * np.exp(-order * x)).max())
    assert many_selections._log_delta(2.0, order, 0.7) == pytest.approx(2.0 - 0.7 * order + math.log(share), abs=1e-6)


def test_moments_multiply():
    (parts,) = alternatives(3 * BestOfRuns(PureDP(0.1), 0.1) + 30 * Gaussian(20.0))
    pair = next(pair for pair, count in parts if count == 3)
    for order in (10.0, 20.0):
        exact = 3 * log_moment(pair.runs, pair.inner, order) + 30 * order * (order + 1) / 800
        assert exact < many_selections._moment(parts, order) < 1.005 * exact


@pytest.mark.thorough
def test_orders_are_of_one_sequence():
    # so that a little more noise changes little
    logs = [math.log(epsilon(10 * BestOfRuns(PureDP(0.1 * (1 + 1e-5 * k)), 0.1), 1e-6)) for k in range(2)]
    assert 0 < logs[1] - logs[0] < 3e-5
    release = 100 * BestOfRuns(PureDP(0.217), 0.001)
    found = epsilon(release, 1e-8)
    assert found < 15.9
    assert delta(release, found) == pytest.approx(1e-8, rel=1e-6, abs=0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("release", "at", "most"),
    [
        (2 * BestOfPoissonRuns(Gaussian(4.977757016989316), 0.8722737294113759), 1e-5, 1.14199),
        (2 * BestOfRuns(Gaussian(5.539519292079509), 0.9), 1e-10, 1.55815),
    ],
)
def test_orders_that_have_no_moment_change_nothing(release, at, most):
    assert epsilon(release, at, accountant="pld") <= most


@pytest.mark.parametrize("moment", [math.inf, 0.0, 1e-300, 1e300, OverflowError, ZeroDivisionError])
def test_an_answer_is_never_above_what_was_known(moment, monkeypatch):
    def fails(*_):
        if isinstance(moment, float):
            return moment
        raise moment

    monkeypatch.setattr(many_selections, "log_moment", fails)
    for release in (2 * BestOfRuns(Gaussian(8.0), 0.1), 5 * BestOfPoissonRuns(PureDP(0.1), 3.0) + Laplace(9.0)):
        (parts,) = alternatives(release)
        for known in (1e-9, 1.0, 500.0):
            assert 0 <= many_selections.epsilon(parts, 1e-6, lambda known=known: known, 0.0) <= known
        for known in (1e-30, 1e-6, 0.5):
            assert 0 <= many_selections.delta(parts, 2.0, lambda known=known: known, 0.0) <= known


@pytest.mark.filterwarnings("ignore:no answer from rdp")
@pytest.mark.parametrize("run", [PureDP(0.0), Gaussian(1e170), PureDP(1e-8)])
def test_runs_that_tell_nothing(run):
    assert bound(10 * BestOfRuns(run, 0.1), 1e-6) == (0.0, 0.0)


def test_what_has_no_moments_is_left_as_it_was():
    nearly_one = BestOfPoissonRuns(Gaussian(8.0), 1e-3)
    ((pair, _),) = alternatives(nearly_one)[0]
    assert log_moment(pair.runs, pair.inner, 5.0) == math.inf
    (parts,) = alternatives(10 * nearly_one)
    assert many_selections.epsilon(parts, 1e-6, lambda: 2.0, 0.0) == 2.0
    assert many_selections.delta(parts, 1.0, lambda: 1e-3, 0.0) == 1e-3
    (parts,) = alternatives(2 * BestOfRuns(Gaussian(8.0), 0.1))
    assert many_selections.epsilon(parts, 1e-6, lambda: 1.2452, 0.0) == 1.2452


@pytest.mark.thorough
def test_losses_that_no_moment_sees_count():
    # what 20 releases lose with probability 1e-24 is not known
    (parts,) = alternatives(5 * BestOfRuns(20 * Laplace(40.0), 0.1))
    assert many_selections.epsilon(parts, 1e-26, lambda: 20.0, 0.0) == 20.0
    assert many_selections.delta(parts, 15.0, lambda: 1e-5, 0.0) > 1e-24
    # ten runs each, and by the mass that both neighbours have
    _, p, q, beyond = one_run(parts[0][0].inner)
    assert 0 < beyond < 1e-20
    chance = 5 * 10 * beyond / (1 - float(np.maximum(p - q, 0).sum()))
    assert many_selections._beyond(parts, 0.0) == pytest.approx(2 * chance, rel=1e-3, abs=0)
    assert many_selections._beyond(parts, 3.0) == pytest.approx((1 + math.exp(3.0)) * chance, rel=1e-3, abs=0)
    # what is cut off others
    (parts,) = alternatives(BestOfRuns(PureDP(0.1), 0.1) + 30 * Gaussian(20.0))
    assert many_selections._beyond(parts, 3.0) == pytest.approx(math.exp(-100.0), rel=1e-6, abs=0)


def test_moments_of_one_other_release_are_its_own():
    (parts,) = alternatives(3 * BestOfRuns(Gaussian(3.0), 0.1) + Laplace(1.0))
    (other,) = [part for part in parts if part[0] == LaplacePair(1.0)]
    for order in (0.5, 2.0):
        moment = order * rdp(Laplace(1.0), 1.0 + order)
        assert moment <= many_selections._moment((other,), order) <= moment * (1 + 1e-6)


def test_an_order_whose_exponents_are_beyond_floats_has_no_moment():
    runs, inner = runs_of(BestOfRuns(PureDP(1.0), 0.1)), tuple(alternatives(PureDP(1.0)))
    with np.errstate(all="raise", under="ignore"):
        assert log_moment(runs, inner, 400.0) == math.inf
