"""The gallery's worlds: their laws, people who come back, and what a log says about persons."""

import math
import pickle
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from episodes import check_rounds, play
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbandits.lab.environments import (
    GALLERY,
    GLM,
    Advertising,
    Available,
    Delayed,
    Disjoint,
    Drifting,
    Films,
    LogReplay,
    People,
    Quadratic,
    Sorted,
    Supervised,
    UnitLinear,
    supervised,
    world,
)
from dpbandits.lab.environments.supervised import TABLES
from dpkit.models.links import get_link


def everything(rounds):
    """Arms (T, K, d), rewards and means (T, K)."""
    means = None if rounds[0].means is None else np.array([now.means for now in rounds])
    return np.array([now.arms for now in rounds]), np.array([now.rewards for now in rounds]), means


@pytest.mark.parametrize("name", GALLERY)
def test_every_world_is_what_policies_accept_and_depends_on_the_seed_alone(name):
    environment = world(name).make()
    assert environment.rounds is None or environment.rounds >= GALLERY[name].rounds
    assert environment.theta_bound > 0
    assert get_link(environment.link)
    for now in check_rounds(environment, world(name).make(), 30):
        if now.context is not None:
            assert (now.context.shape, len(now.rewards)) == ((environment.context_dim,), environment.n_arms)
            assert np.linalg.norm(now.context) <= 1


def test_an_unknown_world_is_refused():
    with pytest.raises(ValueError, match="world must be one of logit-shift, advertising"):
        world("casino")


@pytest.mark.parametrize(
    "environment",
    [
        GLM(3, offset=-2.0),
        Advertising(4, arms=6, base_rate=0.2),
        Advertising(4, arms=6, base_rate=0.2, centred=True),
        UnitLinear(3, arms=8),
        Quadratic(3, arms=8),
        Drifting(3, rounds=6000),
        Disjoint(2, arms=4, link="poisson", theta_norm=1.0),
        Disjoint(2, arms=4, link="linear"),
    ],
    ids=lambda environment: environment.name,
)
def test_rewards_have_the_stated_means_in_the_stated_range(environment):
    # one arm a round, the errors in units of their largest standard deviation: a mean of 6000 beyond 6.5 standard
    # errors with probability below 1e-10
    rounds = play(environment, 3, 6000)
    _, rewards, means = everything(rounds)
    low, high = environment.reward_range
    assert low <= means.min() <= means.max() <= high
    if environment.link != "linear" or (low, high) == (0.0, 1.0):
        assert rewards.min() >= 0
    if (low, high) == (0.0, 1.0):
        assert rewards.max() <= 1
    scale = getattr(environment, "noise_scale", 0.5)
    errors = (rewards - means)[:, 0] / scale
    assert abs(errors.mean()) < 6.5 / math.sqrt(6000)
    assert 0.1 < errors.std() < 1.05
    # the luck has nothing to do with the arms
    along = means[:, 0] - means[:, 0].mean()
    assert abs(np.mean(errors * along)) < 6.5 * along.std() / math.sqrt(6000)


def fitted(arms, values, link="linear"):
    """θ, and how far values are from it, by least squares on μ⁻¹ of the means."""
    X = arms.reshape(-1, arms.shape[-1])
    y = values.ravel()
    if link == "logistic":
        y = np.log(y / (1 - y))
    theta = np.linalg.lstsq(X, y, rcond=None)[0]
    return theta, np.abs(X @ theta - y).max()


def test_the_offset_is_no_feature():
    arms, _, means = everything(play(GLM(4, offset=-2.5, theta_norm=1.5), 0, 200))
    with_constant = np.concatenate([arms, np.ones((*arms.shape[:2], 1))], axis=2)
    theta, error = fitted(with_constant, means, "logistic")
    assert error < 1e-8
    assert theta[-1] == pytest.approx(-2.5)
    assert np.linalg.norm(theta[:-1]) == pytest.approx(1.5)
    assert fitted(arms, means, "logistic")[1] > 1
    assert GLM(offset=-2.5).base_rate == pytest.approx(1 / (1 + math.exp(2.5)))
    with pytest.raises(ValueError, match="offset must be finite"):
        GLM(offset=math.nan)


def test_advertising_has_its_law():
    environment = Advertising(5, arms=10, base_rate=0.04, correlation=0.5, effect=2.0)
    arms, _, means = everything(play(environment, 0, 3000))
    theta, error = fitted(arms, means, "logistic")
    assert error < 1e-8
    # P(click | u = ½), and the norm of w
    assert get_link("logistic").mean(np.array([1, 0.5, 0.5, 0.5, 0.5]) @ theta / math.sqrt(5)) == pytest.approx(0.04)
    assert np.linalg.norm(theta[1:]) / math.sqrt(5) == pytest.approx(2.0)
    assert np.linalg.norm(theta) <= environment.theta_bound
    assert 0.03 < means.mean() < 0.06
    u = arms[:, :, 1:].reshape(-1, 4) * math.sqrt(5)
    # centred, it is the same world, and what a public scaler makes of it
    centred = Advertising(5, arms=10, base_rate=0.04, correlation=0.5, effect=2.0, centred=True)
    moved, _, same = everything(play(centred, 0, 3000))
    assert np.array_equal(means, same)
    assert np.allclose(moved[:, :, 1:].reshape(-1, 4), 2 * (u - 0.5) / math.sqrt(5))
    assert np.linalg.norm(fitted(moved, same, "logistic")[0]) <= centred.theta_bound * (1 + 1e-9)
    assert np.allclose(arms[:, :, 0] * math.sqrt(5), 1)
    # 30,000 advertisements: uniform margins (Kolmogorov distance; P(√n·D > 3.5) < 5e-11 each, four of them)
    for column in u.T:
        steps = np.arange(1, len(u) + 1) / len(u)
        assert math.sqrt(len(u)) * np.abs(np.sort(column) - steps).max() < 3.5 + 0.01
    # the correlation of Φ of normals with correlation ½ is (6/π)·asin(¼); standard error below 0.006
    expected = 6 / math.pi * math.asin(0.25)
    correlations = np.corrcoef(u.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations - expected).max() < 6.5 * 0.006
    assert abs(np.corrcoef(everything(play(Advertising(3, correlation=0.0), 0, 3000))[0][:, 0, 1:].T)[0, 1]) < 0.12


def test_rewards_of_unit_linear_are_linear_and_need_no_clipping():
    environment = UnitLinear(4, arms=12, spread=0.5)
    arms, rewards, means = everything(play(environment, 0, 2000))
    theta, error = fitted(arms, means)
    assert error < 1e-9
    assert np.linalg.norm(theta) == pytest.approx(1.0)
    assert theta[0] == pytest.approx(math.sqrt(0.5))
    half = np.minimum(means, 1 - means)
    luck = (rewards - means)[half > 1e-3] / half[half > 1e-3]
    assert np.abs(luck).max() <= 0.5 * (1 + 1e-9)
    assert luck.std() == pytest.approx(0.5 / math.sqrt(3), rel=0.15)


def test_a_quadratic_mean_is_quadratic():
    arms, _, means = everything(play(Quadratic(3), 0, 200))
    roots = 2 * np.sqrt(means) - 1
    v, error = fitted(arms, roots)
    assert error < 1e-9
    assert np.linalg.norm(v) == pytest.approx(1.0)
    assert fitted(arms, means)[1] > 0.1


@pytest.mark.parametrize("change", ["flip", "fresh", "none"])
def test_the_parameter_changes_once_at_its_time(change):
    environment = Drifting(3, change=change, rounds=400, link="linear", theta_norm=2.0)
    arms, rewards, means = everything(play(environment, 5, 1000))
    still = everything(play(Drifting(3, change="none", rounds=400, link="linear", theta_norm=2.0), 5, 400))
    assert len(arms) == 400
    assert np.array_equal(arms, still[0])
    assert np.allclose(rewards - means, still[1] - still[2])
    differs = np.flatnonzero(np.abs(means - still[2]).max(axis=1) > 1e-12)
    if change == "none":
        assert not len(differs)
        return
    at = differs[0]
    assert 100 <= at <= 300
    assert len(differs) == 400 - at
    before, after = fitted(arms[:at], means[:at]), fitted(arms[at:], means[at:])
    assert max(before[1], after[1]) < 1e-9
    assert np.linalg.norm(after[0]) == pytest.approx(2.0)
    assert np.allclose(after[0], -before[0]) == (change == "flip")


@pytest.mark.thorough
def test_the_time_of_a_change_is_uniform_or_given():
    # 150 times in 11 places: χ² with 10 degrees of freedom is above 75 with probability 5e-12
    times = []
    for seed in range(150):
        means, still = (
            everything(play(Drifting(1, rounds=20, link="linear", arms=1, change=change), seed, 20))[2]
            for change in ("flip", "none")
        )
        times.append(np.flatnonzero(means[:, 0] != still[:, 0])[0])
    counts = np.bincount(times, minlength=21)
    assert counts[:5].sum() == counts[16:].sum() == 0
    assert ((counts[5:16] - 150 / 11) ** 2 / (150 / 11)).sum() < 75
    given = everything(play(Drifting(2, rounds=10, at=10), 0, 10))[2]
    assert np.array_equal(given, everything(play(Drifting(2, rounds=10, change="none"), 0, 10))[2])
    for wrong in ({"at": 11}, {"at": -1}, {"change": "slow"}, {"rounds": 3}):
        with pytest.raises(ValueError, match=r"at must|change must|rounds must"):
            Drifting(2, **{"rounds": 10} | wrong)


@pytest.mark.parametrize("environment", [Disjoint(3, arms=4, link="linear"), Supervised("iris")])
def test_contexts_and_block_vectors_say_the_same(environment):
    K, m = environment.n_arms, environment.context_dim
    for now in play(environment, 0, 20):
        blocks = now.arms.reshape(K, K, m + 1)
        for k in range(K):
            assert blocks[k, k] == pytest.approx(np.append(1, now.context) / math.sqrt(2))
            assert not np.delete(blocks[k], k, axis=0).any()


def test_each_arm_has_a_parameter_of_its_own():
    environment = Disjoint(3, arms=4, link="linear", theta_norm=1.5)
    arms, _, means = everything(play(environment, 0, 300))
    theta, error = fitted(arms, means)
    assert error < 1e-9
    each = np.linalg.norm(theta.reshape(4, 4), axis=1)
    assert each == pytest.approx([1.5] * 4)
    assert np.linalg.norm(theta) == pytest.approx(environment.theta_bound)


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_played_once_a_pass(monkeypatch, table):
    rows, label, labels = supervised._table(table)
    assert np.linalg.norm(rows, axis=1).max() <= 1
    some = slice(None, None, -(-len(rows) // 4000))  # of diamonds every fourteenth
    monkeypatch.setattr(supervised, "_table", lambda name: (rows[some], label[some], labels))
    environment = Supervised(table, passes=2)
    rounds = play(environment, 0, 10**6)
    n = environment.rounds // 2
    assert len(rounds) == 2 * n
    assert all(now.rewards.sum() == 1 and now.rewards.max() == 1 for now in rounds)
    assert len(environment.labels) == environment.n_arms == len(rounds[0].rewards)
    contexts = [now.context.tobytes() for now in rounds]
    assert Counter(contexts[:n]) == Counter(contexts[n:])
    assert contexts[:n] != contexts[n:]
    features = np.array([now.context for now in rounds[:n]])
    assert np.linalg.norm(features, axis=1).max() <= 1
    # the ranges are neither so narrow that most is cut nor so wide that all is alike
    assert features.std(axis=0).min() > 0.04
    # a rule that knows the labels' centres is far better than the most frequent label
    label = np.array([now.rewards.argmax() for now in rounds[:n]])
    x = np.column_stack([np.ones(n), features])
    scores = x @ np.linalg.lstsq(x, np.eye(environment.n_arms)[label], rcond=None)[0]
    assert np.mean(scores.argmax(axis=1) == label) > np.bincount(label).max() / n + 0.1


def test_tables_have_the_sizes_that_they_have():
    assert (Supervised("digits", passes=4).rounds, Supervised("digits").dim) == (7188, 90)
    diamonds = Supervised("diamonds", rounds=20_000)
    assert (diamonds.rounds, diamonds.dim) == (20_000, 25)
    assert diamonds.labels == ["Fair", "Good", "Ideal", "Premium", "Very Good"]
    for wrong in ({"table": "cars"}, {"rounds": 10**6}, {"passes": 0}):
        with pytest.raises(ValueError, match=r"table must be|rounds must be at most 1797|passes must be"):
            Supervised(**wrong)


def test_one_hot_arms():
    for now in play(GLM(5, arms=3, arm_law="one_hot"), 0, 5):
        assert now.arms == pytest.approx(np.eye(3, 5))
    with pytest.raises(ValueError, match="arms must be at most dim=3 for arm_law='one_hot', got arms=4"):
        GLM(3, arms=4, arm_law="one_hot")


def test_sorted_rounds_are_the_same_in_another_order():
    plain, ordered = play(GLM(3), 4, 60), play(Sorted(GLM(3), rounds=60), 4, 100)
    assert len(ordered) == 60
    assert {now.arms.tobytes() for now in plain} == {now.arms.tobytes() for now in ordered}
    assert sorted(now.arms[:, 0].mean() for now in plain) == [now.arms[:, 0].mean() for now in ordered]
    by_best = play(Sorted(Disjoint(2), rounds=30, key=lambda now: -now.means.max()), 0, 30)
    assert sorted((now.means.max() for now in by_best), reverse=True) == [now.means.max() for now in by_best]
    contexts = [now.context[0] for now in play(Sorted(Disjoint(2), rounds=30), 0, 30)]
    assert contexts == sorted(contexts)
    with pytest.raises(ValueError, match="rounds must be at most 6393"):
        Sorted(Films(), rounds=6394)


# ---------------------------------------------------------------------------------------------------- people


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(0, 300), st.floats(0.1, 4.0), st.integers(1, 400))
def test_returns_follow_their_law(persons, more, exponent, most):
    rounds = persons + more
    fixed = People(GLM(2), persons=persons, rounds=rounds).visits
    assert (fixed.sum(), np.ptp(fixed) <= 1, fixed.shape) == (rounds, True, (persons,))
    if persons * most < rounds:
        with pytest.raises(ValueError, match="most must be at least"):
            People(GLM(2), persons=persons, rounds=rounds, returns="zipf", exponent=exponent, most=most)
        return
    visits = People(GLM(2), persons=persons, rounds=rounds, returns="zipf", exponent=exponent, most=most).visits
    assert (visits.sum(), visits.min() >= 1, visits.max() <= most) == (rounds, True, True)
    assert np.all(np.diff(visits) <= 0)
    # between the bounds they are proportional to the weights, to a rounding
    inner = (visits > 1) & (visits < most)
    weights = np.arange(1, persons + 1) ** -exponent
    low, high = (visits[inner] - 1) / weights[inner], (visits[inner] + 1) / weights[inner]
    assert not inner.any() or low.max() <= high.min() * (1 + 1e-9)


def test_people_come_in_random_order_and_change_nothing_else():
    world = Available(Delayed(GLM(3), delay=2))
    plain, rounds = play(world, 7, 200), play(People(world, persons=20, rounds=200), 7, 500)
    assert len(rounds) == 200
    for a, b in zip(plain, rounds, strict=True):
        assert np.array_equal(a.arms, b.arms)
        assert np.array_equal(a.rewards, b.rewards)
        assert (a.person, a.delay, b.delay) == (None, 2, 2)
    assert Counter(now.person for now in rounds) == dict.fromkeys(range(20), 10)
    # 120 seeds: who comes first is uniform among 8; χ² with 7 degrees of freedom above 70 below 2e-12
    small = People(GLM(1, arms=1), persons=8, rounds=16)
    firsts = np.bincount([next(small.episode(np.random.default_rng(s))).person for s in range(120)], minlength=8)
    assert ((firsts - 15) ** 2 / 15).sum() < 70
    assert pickle.loads(pickle.dumps(small)).visits.tolist() == small.visits.tolist()
    # a person stays with the round where another wrapper takes arms away or delays the reward
    wrapped = play(Delayed(Available(People(GLM(3), persons=4, rounds=40)), delay=1), 0, 40)
    assert {now.person for now in wrapped} == set(range(4))
    for wrong in ({"persons": 0}, {"rounds": 4}, {"returns": "daily"}, {"returns": "zipf", "exponent": 0}):
        with pytest.raises(ValueError, match=r"persons must|rounds must|returns must|exponent must"):
            People(GLM(2), **{"persons": 5, "rounds": 10} | wrong)


def test_films_say_whose_slate_it_is():
    films = Films()
    rounds = play(films, 0, films.rounds)
    visits = Counter(now.person for now in rounds)
    assert (len(visits), max(visits.values())) == (671, 159)
    # the fifth feature is the user's own average: the same in a slate, and in all slates of the user before scaling
    assert all(isinstance(now.person, int) for now in rounds)
    average = {}
    for now in rounds[:2000]:
        short = np.linalg.norm(now.arms, axis=1) < 1 - 1e-9
        values = now.arms[short, 4]
        if len(values):
            assert np.allclose(values, average.setdefault(now.person, values[0]))


def test_a_log_may_say_who_came():
    log = pd.DataFrame(
        {
            "round": [1, 1, 2, 2, 3],
            "who": ["ann", "ann", "bob", "bob", "ann"],
            "reward": [0, 1, 1, 0, 1],
            "price": [0.3, 0.1, 0.2, 0.4, 0.5],
        }
    )
    environment = LogReplay(log, person_column="who", shuffle=False)
    assert [now.person for now in play(environment, 0, 9)] == ["ann", "bob", "ann"]
    assert environment.features == ["price"]
    mixed = LogReplay(log, person_column="who")
    for now in play(mixed, 3, 9):
        assert now.person == ("bob" if now.arms[0, 1] == pytest.approx(0.2 * math.sqrt(0.5)) else "ann")
    log.loc[3, "who"] = "eve"
    with pytest.raises(ValueError, match=r"row 4, column 'who': 'eve' is another person than in the round's first row"):
        LogReplay(log, person_column="who")
    log.loc[3, "who"] = None
    with pytest.raises(ValueError, match="row 4, column 'who': the value is missing"):
        LogReplay(log, person_column="who")
    with pytest.raises(ValueError, match="there must be a column 'user'"):
        LogReplay(log, person_column="user")
    labels = pd.DataFrame({"label": ["a", "b", "a"], "who": [7, 7, 8], "x": [0.1, 0.2, 0.3]})
    rounds = play(LogReplay(labels, layout="labels", person_column="who", shuffle=False), 0, 3)
    assert [now.person for now in rounds] == ["7", "7", "8"]
    assert {now.person for now in play(LogReplay(labels, layout="labels", features=["x"]), 0, 3)} == {None}
