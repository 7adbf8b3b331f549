"""Queries: the law of their noise, coverage of their intervals, and what neighbours can do to them."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from chi_square import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import trapezoid

from accounting import Budget, BudgetExceeded, DiscreteLaplace, Gaussian, Laplace, Ledger, NoisyMax, calibrate, epsilon
from dpkit import queries
from dpkit.queries import _moment, quantiles
from dpkit.queries import counts_and_sums as totals
from dpkit.queries import means_and_variances as moments
from dpkit.queries._noise import Noise, range_per_round

ALARM = 1e-10
RUNS = 10_000
ADD, SWAP = Budget(1.0, 1e-6, adjacency="add_remove"), Budget(1.0, 1e-6)


def many(query, data, budget, **more):
    """``RUNS`` independent answers about the same numbers: as many groups that hold them."""
    values = np.tile(np.asarray(data, dtype=float), RUNS)
    groups = np.repeat(np.arange(RUNS), len(data))
    return query(values, groups=groups, keys=range(RUNS), budget=budget, **more)


# ------------------------------------------------------------------------------------------------------ law


def test_counts_have_discrete_laplace_noise_of_the_stated_scale():
    answer = many(queries.count, [1.0] * 7, ADD, noise="laplace", rng=np.random.default_rng(0))
    k = np.arange(-12, 13)
    q = math.exp(-1.0)
    law = (1 - q) / (1 + q) * q ** np.abs(k)
    assert fits(answer.raw - 7, k, law)
    for wrong in (0.9, 1.1):
        q = math.exp(-1 / wrong)
        assert not fits(answer.raw - 7, k, (1 - q) / (1 + q) * q ** np.abs(k))
    assert answer.noise_std == pytest.approx(math.sqrt(2 * math.exp(-1)) / (1 - math.exp(-1)), rel=1e-5)


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_sums_have_noise_of_the_stated_scale(name):
    answer = many(queries.sum, [1.0, 2.5, -3.0], ADD, bounds=(-4, 4), noise=name, rng=np.random.default_rng(0))
    z = 1.0 if name == "laplace" else epsilon_one_multiplier()
    unit = (answer.value - 0.5) / (4 * z)
    cdf = stats.laplace.cdf if name == "laplace" else stats.norm.cdf
    assert stats.kstest(unit, cdf, method="asymp").pvalue > ALARM
    # the mean size is 1 or √(2/π), known to 1 % (0.76 %) of it: ± 7 deviations
    size = np.abs(unit).mean() / (1.0 if name == "laplace" else math.sqrt(2 / math.pi))
    assert abs(size - 1) < 0.07


def epsilon_one_multiplier():
    return calibrate(lambda z: Gaussian(z, adjacency="add_remove"), ADD)


# The binomial(10⁴) count of covered runs is outside ± 1 % with probability below 6e-6 under reseeding where the
# coverage is exact; the bounds leave room for 1e-9 (± 1.35 %). Whole numbers cover up to ε/20 more, and variances,
# whose interval is to first order in the noise, up to 2 %.
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("query", ["count", "sum", "mean", "variance"])
def test_intervals_cover_what_they_say(query, adjacency, name):
    # the noise of counts and sums does not depend on how many rows there are
    data = np.random.default_rng(1).beta(2, 5, size=100 if query in ("mean", "variance") else 20) * 10
    budget = Budget(0.5 if query == "count" else 1.0, 1e-6, adjacency=adjacency)
    bounds = {} if query == "count" else {"bounds": (0, 10)}
    answer = many(getattr(queries, query), data, budget, noise=name, rng=np.random.default_rng(2), **bounds)
    truth = {"count": data.size, "sum": data.sum(), "mean": data.mean(), "variance": data.var()}[query]
    low, high = answer.interval(0.95)
    covered = np.mean((low <= truth) & (truth <= high))
    assert 0.9365 < covered < {"count": 0.98, "variance": 0.985}.get(query, 0.9635)
    narrow = np.mean(np.abs(answer.value - truth) <= 0.8 * (high - low) / 2)
    assert narrow < 0.945


@pytest.mark.thorough
@pytest.mark.parametrize(("query", "adjacency"), [("mean", "replace"), ("variance", "zero_out")])
def test_intervals_where_the_number_of_rows_is_public(query, adjacency):
    data = np.random.default_rng(1).uniform(0, 10, size=50)
    budget = Budget(1.0, 0.0, adjacency=adjacency)
    truth = data.mean() if query == "mean" else data.var()
    rng = np.random.default_rng(5)
    ask = getattr(queries, query)
    inside = 0
    for _ in range(200):
        low, high = ask(data, bounds=(0, 10), budget=budget, rng=rng).interval(0.5)
        inside += low <= truth <= high
    # 200 runs: off by 0.22 with probability below 1e-9
    assert 0.28 < inside / 200 < 0.72


def test_intervals_with_sampling_error_cover_the_population():
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(60):
        rows = rng.random(300) < 0.3  # two-valued rows need the whole of the bound on their variance
        low, high = queries.mean(rows, bounds=(0, 1), budget=ADD, rng=rng).interval(0.9, sampling=True)
        inside += low <= 0.3 <= high
    assert inside / 60 > 0.6
    other = "with sampling error, which is offered for means only"
    for ask in (queries.variance, queries.sum, partial(queries.histogram, bins=2)):
        with pytest.raises(ValueError, match=rf"{other}: interval\(0\.9\) counts the noise alone$"):
            ask(rows, bounds=(0, 1), budget=ADD).interval(0.9, sampling=True)
    around = queries.quantile(rows, bounds=(0, 1), confidence=0.95, budget=Budget(1.0, 0.0))
    for answer in (around, queries.quantile(rows, bounds=(0, 1), budget=ADD), queries.count(rows, budget=ADD)):
        with pytest.raises(ValueError, match=other):
            answer.interval(sampling=True)


@settings(max_examples=30)
@given(weights=st.lists(st.floats(-3, 3).filter(lambda w: abs(w) > 0.05), min_size=1, max_size=3), t=st.floats(0.1, 8))
def test_tails_of_combinations_of_noise(weights, t):
    """Against the characteristic function, integrated numerically."""
    w = np.array(weights)
    law = Noise("laplace", 1.0, 1.0, 1.0, False, Laplace(1.0))
    s = np.linspace(1e-6, 400, 400_001)
    values = np.sin(s * t) / s / np.prod(1 + np.outer(w**2, s**2), axis=0)
    inside = 2 / math.pi * trapezoid(values, s)
    assert law.tail(np.array(t), w) == pytest.approx(1 - inside, abs=2e-3)


# ------------------------------------------------------------------------------------------------ sensitivity


def captured(monkeypatch, ask):
    """The cells that got noise, and their law, in units of the values."""
    seen = []

    def spy(cells, law, rng):
        seen.append((cells.astype(float) * law.step, law))
        return cells

    with monkeypatch.context() as patch:
        for module in (totals, moments, _moment):
            patch.setattr(module, "with_noise", spy)
        ask()
    return seen[0]


people = st.lists(st.tuples(st.floats(-9, 9), st.integers(0, 3)), min_size=0, max_size=4)


@settings(max_examples=60)
@given(
    rest=st.lists(people, max_size=4),
    one=people,
    other=people,
    adjacency=st.sampled_from(["add_remove", "zero_out", "replace"]),
    query=st.sampled_from(["count", "sum", "mean", "variance"]),
    grouped=st.booleans(),
    bounds=st.sampled_from([(-5.0, 3.0), (0.0, 4.0), (2.0, 6.0), (-7.0, -1.0)]),
    name=st.sampled_from(["laplace", "gaussian"]),
)
def test_neighbours_move_the_cells_by_no_more_than_the_noise_is_for(
    rest, one, other, adjacency, query, grouped, bounds, name
):
    """Any two persons in the place of each other, or present and absent; the others keep within the bounds."""
    limits = {"max_groups": 2, "max_per_group": 2} if grouped else {"max_contributions": 3}

    def rows(persons):
        table = [(x, g, i) for i, person in persons for x, g in person]
        return {
            "x": np.array([x for x, _, _ in table], dtype=float),
            "g": np.array([g for _, g, _ in table], dtype=int),
            "id": np.array([i for _, _, i in table], dtype=int),
        }

    # whoever is cut down to the bounds is so at random; the rest is chosen not to be
    small = [(i, person[:1]) for i, person in enumerate(rest)]
    neighbour = [(99, other)] if adjacency == "replace" else []
    seen = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        for table in (rows([*small, (99, one)]), rows([*small, *neighbour])):
            more = limits | ({"groups": "g", "keys": range(4)} if grouped else {})
            columns = [table] if query == "count" else [table, "x"]
            if query != "count":
                more = more | {"bounds": bounds}
            budget = Budget(1.0, 1e-6, adjacency=adjacency, unit="person")
            ask = getattr(queries, query)
            seen.append(captured(monkeypatch, partial(ask, *columns, person="id", budget=budget, noise=name, **more)))
    (cells, law), (others, same) = seen
    assert law == same
    order = 1 if name == "laplace" else 2
    moved = np.linalg.norm((cells - others).ravel(), order)
    assert moved <= law.scale / law.noise_multiplier * (1 + 1e-12)


def test_the_sensitivities_are_reached():
    """Without slack, up to the factor that the table of the module states."""
    for query, budget, more, pair, expected in [
        (queries.sum, ADD, {"bounds": (-5, 3)}, ([1, -5], [1]), 5.0),
        (queries.sum, SWAP, {"bounds": (-5, 3)}, ([1, -5], [1, 3]), 8.0),
        (queries.sum, SWAP, {"bounds": (2, 6)}, ([1, 2], [1, 6]), 4.0),
        (queries.mean, ADD, {"bounds": (0, 10)}, ([5, 0], [5]), 1.0),
        (queries.mean, SWAP, {"bounds": (0, 10)}, ([5, 0], [5, 10]), 1.0),
    ]:
        with pytest.MonkeyPatch.context() as patch:
            (a, law), (b, _) = (
                captured(patch, partial(query, np.array(x, float), budget=budget, noise="laplace", **more))
                for x in pair
            )
        assert np.abs(a - b).sum() == pytest.approx(expected, rel=1e-8)
        assert law.scale / law.noise_multiplier == pytest.approx(expected, rel=1e-8)


@settings(max_examples=100)
@given(x=st.lists(st.floats(0, 1), min_size=2, max_size=8), i=st.integers(0, 7), new=st.floats(0, 1))
def test_a_swap_moves_the_variance_by_no_more_than_is_claimed(x, i, new):
    n = len(x)
    y = x.copy()
    y[i % n] = new
    steps = []
    with pytest.MonkeyPatch.context() as patch:
        for rows in (x, y):
            ask = partial(queries.variance, rows, bounds=(0, 1), budget=SWAP, noise="laplace")
            cells, law = captured(patch, ask)
            steps.append(cells[0])
    assert abs(steps[0] - steps[1]) <= law.scale / law.noise_multiplier
    assert law.scale / law.noise_multiplier <= (n - 1) / n**2 * (1 + 1e-4)
    assert steps[0] == pytest.approx(np.var(x), abs=1e-5)


# -------------------------------------------------------------------------------------------------- quantiles


def probed(points):
    """Each point in its own cell or the next free one, in the order in which they come: linear probing."""
    taken: set[int] = set()
    for p in points:
        while p in taken:
            p += 1
        taken.add(p)
    return sorted(taken)


def bisection_law(points, levels, low, high, epsilon, swapped, k=1, between=(0, 1), first=True):
    """Every outcome of recursive bisection on a small domain, with its probability: written from the description."""
    if not levels:
        return {(): 1.0}
    middle = len(levels) // 2
    rank = (Fraction(levels[middle]) - between[0]) / (between[1] - between[0])
    worst = max(rank, 1 - rank)
    rate = epsilon / (2 * k) if swapped and first else epsilon / ((4 if swapped else 2) * k * float(worst))
    outcomes = range(low, high + 1)
    weights = [math.exp(-rate * abs(sum(p < o for p in points) - float(rank) * len(points))) for o in outcomes]
    out = {}
    for o, weight in zip(outcomes, weights, strict=True):
        inside = (between[0], Fraction(levels[middle])), (Fraction(levels[middle]), between[1])
        left = bisection_law(
            [p for p in points if p < o], levels[:middle], low, o, epsilon, swapped, k, inside[0], False
        )
        right = bisection_law(
            [p for p in points if p >= o], levels[middle + 1 :], o, high, epsilon, swapped, k, inside[1], False
        )
        for a, p in left.items():
            for b, r in right.items():
                out[(*a, o, *b)] = out.get((*a, o, *b), 0.0) + weight / sum(weights) * p * r
    return out


@settings(max_examples=60)
@given(
    points=st.lists(st.integers(0, 4), max_size=5),
    gone=st.integers(0, 4),
    new=st.integers(0, 4),
    swapped=st.booleans(),
    levels=st.sampled_from([[0.5], [0.1], [0.0, 1.0], [0.25, 0.5, 0.75], [0.05, 0.9, 0.95]]),
)
def test_quantiles_cost_what_they_say(points, gone, new, swapped, levels):
    """The privacy loss between neighbours, over every outcome: ε for each round, with the range that a round claims."""
    eps = 0.8
    p = bisection_law(probed([*points, gone]), levels, -1, 11, eps, swapped)
    q = bisection_law(probed([*points, new] if swapped else points), levels, -1, 11, eps, swapped)
    rounds = len(levels).bit_length()
    loss = np.array([math.log(p[o] / q[o]) for o in p])
    assert np.abs(loss).max() <= rounds * eps * (1 + 1e-9)
    if rounds == 1:
        assert loss.max() - loss.min() <= eps * (1 + 1e-9)
    # zero-concentrated: ρ = ε²/8 for each round, as the accountant says of bounded range
    for order in (1.1, 2.0, 5.0):
        divergence = math.log(sum(p[o] * (p[o] / q[o]) ** (order - 1) for o in p)) / (order - 1)
        assert divergence <= order * rounds * eps**2 / 8 * (1 + 1e-9)


def test_rounds_are_as_strong_as_their_loss_distribution_allows():
    budget = Budget(1.0, 1e-6)
    eps = range_per_round(20, budget)
    cost, more = 20 * NoisyMax(eps, "gumbel"), 20 * NoisyMax(1.0001 * eps, "gumbel")
    assert epsilon(cost, 1e-6) <= 1.0 < epsilon(more, 1e-6)
    assert epsilon(cost, 1e-6, accountant="rdp") > 1.02
    with Ledger(budget) as ledger:
        ledger.spend(cost)


@pytest.mark.parametrize("budget", [ADD, SWAP], ids=["add_remove", "replace"])
def test_quantiles_follow_the_law_whose_cost_was_checked(budget, monkeypatch):
    budget = replace(budget, delta=0.0)  # half of ε for each round, without a calibration
    monkeypatch.setattr(quantiles, "_POINTS", 6)
    monkeypatch.setattr(quantiles, "_BEYOND", 0)
    points, levels = [1, 1, 2, 4, 5], [0.25, 0.5, 0.9]
    rng = np.random.default_rng(4)
    ask = partial(queries.quantile, np.array(points) + 0.5, q=levels, bounds=(0, 6), budget=budget, rng=rng)
    answers = [tuple(np.round(ask().value).astype(int).tolist()) for _ in range(500)]
    eps = range_per_round(2, budget)
    law = bisection_law(probed(points), levels, 0, 5, eps, budget.adjacency == "replace")
    assert sum(law.values()) == pytest.approx(1)
    assert set(answers) <= set(law)
    outcomes = list(law)
    found = np.array([outcomes.index(answer) for answer in answers])
    for factor in (1, 3):
        expected = bisection_law(probed(points), levels, 0, 5, factor * eps, budget.adjacency == "replace")
        assert fits(found, range(len(outcomes)), [expected[o] for o in outcomes]) == (factor == 1)


@pytest.mark.thorough
def test_a_quantile_among_candidates_is_permute_and_flip():
    """Against McKenna & Sheldon's Algorithm 1, over all orders of four candidates."""
    points, grid = np.array([1.0, 2.0, 2.0, 7.0]), [0.0, 1.5, 4.0, 9.0]
    rng = np.random.default_rng(4)
    for budget, rate in ((Budget(3.0, 0.0), 1.5), (Budget(3.0, 0.0, adjacency="add_remove"), 3 / (2 * 0.75))):
        scores = -rate * np.abs(np.searchsorted(points, grid) - 0.25 * 4)
        heads, law = np.exp(scores - scores.max()), np.zeros(4)
        for order in permutations(range(4)):
            left = 1.0
            for i in order:
                law[i] += left * heads[i] / 24
                left *= 1 - heads[i]
        ask = partial(queries.quantile, points, q=0.25, candidates=grid, budget=budget, rng=rng)
        found = np.array([grid.index(ask().value) for _ in range(1500)])
        assert fits(found, range(4), law)
        assert ask().cost == NoisyMax(ask().cost.epsilon, "exponential", adjacency=budget.adjacency)
    with pytest.raises(ValueError, match="leave candidates out"):
        queries.quantile(points, q=[0.1, 0.2], candidates=grid, budget=ADD)
    with pytest.raises(ValueError, match="without bounds"):
        queries.quantile(points, candidates=grid, bounds=(0, 1), budget=ADD)


def test_many_quantiles_are_in_order_and_near():
    x = np.random.default_rng(0).normal(size=100_000)
    q = np.arange(1, 100) / 100
    answer = queries.quantile(x, q=q, bounds=(-1e6, 1e6), budget=Budget(1.0, 0.0))
    assert (np.diff(answer.value) >= 0).all()
    # rank errors beyond 10⁴ have probability below e^(−300)
    assert np.abs(np.searchsorted(np.sort(x), answer.value) / x.size - q).max() < 0.1
    assert answer.cost == 7 * NoisyMax(1 / 7, adjacency="replace") or epsilon(answer.cost, 0.0) <= 1.0


def test_quantiles_of_persons_use_as_many_rows_as_they_are_paid_for():
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(500), 4)
    x = rng.normal(size=person.size)
    budget = Budget(5.0, 0.0, adjacency="add_remove", unit="person")
    answer = queries.quantile(
        {"x": x, "id": person}, "x", bounds=(-9, 9), person="id", max_contributions=2, budget=budget
    )
    assert abs(answer.value) < 0.5


# ------------------------------------------------------------------------------------------- top k, thresholds


@pytest.mark.thorough
def test_the_top_are_those_of_repeated_exponential_mechanisms():
    data = np.repeat([0, 1, 2], [6, 4, 3])
    rng = np.random.default_rng(0)
    for budget, rate in ((ADD, 1.0), (SWAP, 0.5)):
        pure = Budget(2.0, 0.0, adjacency=budget.adjacency)
        pairs = list(permutations(range(3), 2))
        winners = [queries.top_k(data, k=2, keys=[0, 1, 2], budget=pure, rng=rng).keys for _ in range(1500)]
        found = np.array([pairs.index(pair) for pair in winners])
        for wrong in (0.5, 1.0, 2.0):
            w = np.exp(wrong * rate * np.array([6.0, 4.0, 3.0]))
            expected = [w[i] / w.sum() * w[j] / (w.sum() - w[i]) for i, j in pairs]
            assert fits(found, range(6), expected) == (wrong == 1.0)


def test_a_group_of_one_person_is_hardly_ever_shown():
    """10⁵ runs with δ/2 = 0.005 for one group of one row: shown at most as often as that, up to 1e-9."""
    budget = Budget(1.0, 0.01, adjacency="add_remove")
    groups = np.arange(100_000)
    answer = queries.count(groups, groups=groups, budget=budget, rng=np.random.default_rng(0))
    assert stats.binomtest(len(answer.keys), 100_000, 0.005, alternative="greater").pvalue > 1e-9
    assert len(answer.keys) > 0
    # six rows reach the threshold of six with probability above one half
    low = queries.count(np.repeat(groups[:1000], 6), groups=np.repeat(groups[:1000], 6), budget=budget)
    assert len(low.keys) > 400
    many_rows = queries.count(np.zeros(1000, int), groups=np.zeros(1000, int), budget=budget)
    assert many_rows.keys == (0,)
    # what is shown does not come in the order of the table
    both = queries.count(np.repeat([7, 3], [500, 900]), groups=np.repeat([7, 3], [500, 900]), budget=budget)
    assert both.keys == (3, 7)


def test_above_threshold_follows_its_law():
    """P(first query is above) by summing both discrete Laplace laws."""
    rng = np.random.default_rng(0)
    eps, gap = 1.0, -2.0
    hits = 0
    for _ in range(4000):
        run = queries.AboveThreshold(10.0, sensitivity=1.0, budget=Budget(eps, 0.0), rng=rng)
        hits += run.ask(10.0 + gap)
    k = np.arange(-200_000, 200_001) / 1024
    t = stats.laplace.pdf(k, scale=2 / eps) / 1024
    expected = (t * stats.laplace.sf(k - gap, scale=4 / eps)).sum()
    assert stats.binomtest(hits, 4000, expected).pvalue > ALARM
    half = (t * 0 + stats.laplace.pdf(k, scale=1 / eps) / 1024) @ stats.laplace.sf(k - gap, scale=2 / eps)
    assert stats.binomtest(hits, 4000, half).pvalue < 1e-4
    run = queries.AboveThreshold(10.0, sensitivity=1.0, budget=Budget(50.0, 0.0), monotone=True)
    assert [run.ask(v) for v in (0.0, 5.0, 100.0)] == [False, False, True]
    with pytest.raises(RuntimeError, match="the run ended"):
        run.ask(1.0)


def test_private_bounds_hold_the_stated_share():
    rng = np.random.default_rng(0)
    # every step is 400 rows or more from where its outcome would differ, and the noise has a scale of 4
    for low, high, wanted in ((0, 900, (-1.0, 1024.0)), (-3000, 100, (-4096.0, 1.0))):
        x = rng.uniform(low, high, size=20_000)
        answer = queries.private_bounds(x, share=0.9, budget=Budget(2.0, 0.0))
        assert answer.value == wanted
        assert epsilon(answer.cost, 0.0) <= 2.0
    assert queries.mean(x, bounds=answer.value, budget=ADD).value == pytest.approx(-1450, rel=0.1)


# -------------------------------------------------------------------------------------------- size and choice


def test_the_number_of_rows_is_private_under_add_remove_and_public_under_replace():
    x = np.arange(50)
    assert queries.count(x, budget=SWAP).value == 50
    assert epsilon(queries.count(x, budget=SWAP).cost, 0.0) == 0.0
    spread = {queries.count(x, budget=Budget(0.1, 0.0, adjacency="add_remove")).value for _ in range(30)}
    assert len(spread) > 3
    # a filter makes the rest private, also under replace
    spread = {queries.count(x, where=x < 40, budget=Budget(0.1, 0.0)).value for _ in range(30)}
    assert len(spread) > 3
    for adjacency in ("add_remove", "replace", "zero_out"):
        person = Budget(0.1, 0.0, adjacency=adjacency, unit="person")
        assert len({queries.count(x, person=x, max_contributions=2, budget=person).value for _ in range(30)}) > 3


def test_an_empty_table_is_answered_where_its_size_is_private():
    empty = np.empty(0)
    assert queries.mean(empty, bounds=(0, 10), budget=Budget(1e4, 0.0, adjacency="add_remove")).value >= 0
    assert queries.quantile(empty, bounds=(0, 10), budget=ADD).value <= 10
    assert queries.count(empty, budget=Budget(1e4, 0.0, adjacency="add_remove")).value == 0
    with pytest.raises(ValueError, match="at least one row"):
        queries.mean(empty, bounds=(0, 10), budget=SWAP)


def test_the_smaller_noise_is_chosen():
    groups = np.arange(100)
    person = Budget(1.0, 1e-6, adjacency="add_remove", unit="person")
    wide = queries.count(
        groups, groups=groups, keys=groups, person=groups, max_groups=100, max_per_group=1, budget=person
    )
    assert isinstance(wide.cost, Gaussian)
    assert isinstance(queries.count(groups, budget=ADD).cost, DiscreteLaplace)
    forced = queries.sum(groups, bounds=(0, 9), budget=ADD, noise="gaussian")
    assert isinstance(forced.cost, Gaussian)


def test_contributions_beyond_the_bounds_are_left_out():
    person = np.repeat(np.arange(100), 10)
    exact = Budget(1e5, 0.0, adjacency="add_remove", unit="person")
    table = {"id": person, "g": np.tile(np.arange(10), 100)}
    assert queries.count(table, person="id", max_contributions=3, budget=exact).value == 300
    by_group = queries.count(
        table, groups="g", keys=range(10), person="id", max_groups=4, max_per_group=2, budget=exact
    )
    assert by_group.value.sum() == 400
    # at random: no group is preferred (10 counts of 40 each, false alarm below 1e-9)
    assert by_group.value.min() > 5
    twice = {"id": np.repeat(np.arange(50), 6), "g": np.repeat([0, 1], [3, 3]).tolist() * 50}
    found = queries.count(twice, groups="g", keys=[0, 1], person="id", max_groups=2, max_per_group=2, budget=exact)
    assert found.value.tolist() == [100, 100]


@pytest.mark.parametrize("shape", [3, 40])
def test_large_and_small_epsilon(shape):
    x = np.linspace(0, 1, shape)
    for eps in (1e-5, 1e-2, 1e3):
        for adjacency in ("add_remove", "replace"):
            budget = Budget(eps, 0.0, adjacency=adjacency)
            for answer in (
                queries.mean(x, bounds=(0, 1), budget=budget),
                queries.variance(x, bounds=(0, 1), budget=budget),
                queries.sum(x, bounds=(0, 1), budget=budget),
            ):
                low, high = answer.interval()
                assert math.isfinite(answer.value)
                assert low <= high


@pytest.mark.parametrize(
    "ask",
    [
        lambda t, **o: queries.count(t, **o),
        lambda t, **o: queries.count(t, groups="g", keys=[0, 1], **o),
        lambda t, **o: queries.sum(t, "x", bounds=(0, 1), **o),
        lambda t, **o: queries.mean(t, "x", bounds=(0, 1), **o),
        lambda t, **o: queries.variance(t, "x", bounds=(0, 1), **o),
        lambda t, **o: queries.histogram(t, "x", bins=3, bounds=(0, 1), **o),
        lambda t, **o: queries.quantile(t, "x", bounds=(0, 1), **o),
        lambda t, **o: queries.quantile(t, "g", candidates=[0, 1], **o),
        lambda t, **o: queries.top_k(t, "g", 1, keys=[0, 1], **o),
        lambda t, **o: queries.private_bounds(t, "x", **o),
        lambda t, budget, **o: queries.mean_vector(t, ["x", "g"], radius=2.0, budget=replace(budget, delta=1e-6), **o),
    ],
)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_what_has_answered_is_settled_and_what_has_not_is_reserved(ask, adjacency, monkeypatch):
    table = {"x": np.linspace(0, 1, 50), "g": np.arange(50) % 2}
    budget = Budget(1.0, 0.0, adjacency=adjacency)
    ledger = Ledger()
    ask(table, budget=budget, ledger=ledger)
    assert [row.outcome for row in ledger.rows()] == ["released"]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "commit", die)
    with pytest.raises(KeyboardInterrupt):
        ask(table, budget=budget, ledger=ledger)
    assert [row.outcome for row in ledger.rows()] == ["released", "reserved"]


def test_as_many_answers_fit_as_a_budget_has_parts():
    """Each of ε/6 by pure noise, with the ledger's δ, as ``dpkit query`` asks for where none is said."""
    ledger = Ledger(Budget(3.0, 1e-6, adjacency="add_remove", unit="person"))
    each = {
        "budget": Budget(0.5, 1e-6, adjacency="add_remove", unit="person"),
        "ledger": ledger,
        "person": np.arange(9),
    }
    ones = np.ones(9)
    for _ in range(2):
        queries.count(ones, max_contributions=1, **each)
        queries.quantile(ones, q=0.5, bounds=(0, 2), max_contributions=1, **each)
        queries.mean(ones, bounds=(0, 2), max_contributions=1, **each)
    assert len(ledger.rows()) == 6
    with pytest.raises(BudgetExceeded):
        queries.count(ones, max_contributions=1, **each)
