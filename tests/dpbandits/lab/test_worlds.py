"""Adversarial arms, parameters per arm, arms that come and go, and rewards that come late."""

import math
import pickle

import numpy as np
import pytest
from episodes import check_rounds, play
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from dpbandits.lab.environments import GLM, Adversarial, Available, Delayed, Films, Linear, PerArm
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policies import GLBOMD, EpsilonGreedy
from dpkit.models.links import get_link


def growing(t, rng):
    X = rng.standard_normal((1 + t % 3, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


WORLDS = {
    "hidden": Adversarial(4, arms=6, reveal=3),
    "alternating": Adversarial(4, arms=6, arm_sets="alternating", link="poisson", theta_norm=1.0),
    "given": Adversarial(3, arm_sets=growing, link="linear"),
    "per arm": PerArm(6, arms=3, nonzero=2),
    "available": Available(Linear(noise="student_t")),
    "delayed": Delayed(GLM(3), mean=4, missing=0.3),
    "both": Delayed(Available(GLM(3), share=0.2), delay=7),
}


@pytest.mark.parametrize("world", WORLDS)
def test_rounds_are_what_policies_accept_and_depend_on_the_seed_alone(world):
    first = check_rounds(pickle.loads(pickle.dumps(WORLDS[world])), WORLDS[world], 40)
    assert all(now.means is not None for now in first)


# ---------------------------------------------------------------------------------------- adversarial arms


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_half_of_the_parameter_is_hidden_until_it_is_revealed(dim):
    rounds = play(Adversarial(dim, link="linear", reveal=50, theta_norm=2.0), 0, 200)
    early = np.concatenate([now.arms for now in rounds[:50]])
    values, vectors = np.linalg.eigh(early.T @ early)
    assert values[0] < 1e-10 < 1e-3 < values[1]
    X = np.concatenate([now.arms for now in rounds])
    theta = np.linalg.lstsq(X, np.concatenate([now.means for now in rounds]), rcond=None)[0]
    assert np.linalg.norm(theta) == pytest.approx(2.0)
    u = vectors[:, 0] * np.sign(vectors[:, 0] @ theta)
    assert u @ theta == pytest.approx(2.0 * math.sqrt(0.5))
    best = []
    for now in rounds[50:]:
        along = now.arms @ u
        assert (np.abs(along) > 1e-9).sum() == 1
        assert along.max() == pytest.approx(1.0)
        best.append(now.means.argmax() == along.argmax())
    assert np.mean(best) > 0.95
    assert len({int((now.arms @ u).argmax()) for now in rounds[50:]}) > 10


@pytest.mark.thorough
def test_only_who_explores_finds_what_was_hidden():
    policies = {
        "greedy": lambda rng: EpsilonGreedy(4, exploration=0.0, rng=rng),
        "optimistic": lambda rng: GLBOMD(4, parameters="theory", rng=rng),
    }
    world = Adversarial(4, reveal=300)
    results = simulate(policies, world, rounds=900, seeds=3, points=3, progress=False)
    late = {
        name: results.curves(name, "regret")[1][:, 2] - results.curves(name, "regret")[1][:, 1] for name in policies
    }
    assert late["greedy"].min() > 10 * late["optimistic"].max()


def test_alternating_arms_tell_about_one_direction_of_a_basis_at_a_time():
    rounds = play(Adversarial(3, arms=5, arm_sets="alternating"), 0, 60)
    directions = [now.arms[-1] for now in rounds]
    assert np.allclose(np.stack(directions[:3]) @ np.stack(directions[:3]).T, np.eye(3))
    for t, now in enumerate(rounds):
        assert np.allclose(now.arms, np.outer([-1, -0.5, 0, 0.5, 1], directions[t % 3]))


def test_a_function_chooses_the_arms_of_every_round():
    asked = []

    def choose(t, rng):
        asked.append(t)
        return np.eye(2)[: 1 + t % 2] * rng.random()

    rounds = play(Adversarial(2, arm_sets=choose, link="probit"), 3, 6)
    assert asked == [0, 1, 2, 3, 4, 5]
    assert [len(now.arms) for now in rounds] == [1, 2, 1, 2, 1, 2]
    assert "choose" in Adversarial(2, arm_sets=choose).name
    # means are those of one parameter
    inverse = np.array([[now.arms[0, 0], now.means[0]] for now in rounds])
    from scipy.special import ndtri

    slopes = ndtri(inverse[:, 1]) / inverse[:, 0]
    assert np.allclose(slopes, slopes[0])


def test_rewards_do_not_depend_on_what_the_adversary_draws():
    def still(t, rng):
        return np.eye(2)

    def restless(t, rng):
        rng.random(t + 1)
        return np.eye(2)

    a, b = (play(Adversarial(2, arm_sets=arm_sets), 5, 100) for arm_sets in (still, restless))
    assert [now.rewards.tolist() for now in a] == [now.rewards.tolist() for now in b]


@tabled(
    ("arguments", "message"),
    [
        ({"dim": 1}, "dim must be at least 2, got dim=1"),
        ({"arms": 1}, "arms must be at least 2, got arms=1"),
        ({"arm_sets": "cruel"}, "arm_sets must be 'hidden', 'alternating' or a function, got arm_sets='cruel'"),
        ({"link": "cauchit"}, "link must be one of"),
        ({"reveal": -1}, "reveal must be at least 0, got reveal=-1"),
    ],
)
def test_bad_adversaries_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Adversarial(**arguments)


@pytest.mark.parametrize("arms", [np.zeros(3), np.zeros((0, 3)), np.zeros((2, 2))])
def test_arms_of_another_shape_are_refused(arms):
    with pytest.raises(ValueError, match=r"arm_sets must give arms of shape \(K, 3\) .* in round 0"):
        play(Adversarial(3, arm_sets=lambda t, rng: arms), 0, 1)


# ---------------------------------------------------------------------------------------- parameters per arm


@settings(max_examples=30, deadline=None)
@given(d=st.integers(1, 12), K=st.integers(1, 4), l1=st.floats(0.1, 5.0), seed=st.integers(0, 2**32), data=st.data())
def test_both_views_of_a_round_have_the_same_means(d, K, l1, seed, data):
    nonzero = data.draw(st.integers(1, d))
    environment = PerArm(d, arms=K, nonzero=nonzero, theta_l1_norm=l1)
    rounds = play(environment, seed, 4 * d)
    X, means = np.stack([now.context for now in rounds]), np.stack([now.means for now in rounds])
    assert np.abs(X).max() <= 1
    theta = np.linalg.lstsq(X, means, rcond=None)[0].T
    assert ((np.abs(theta) > 1e-9).sum(axis=1) == nonzero).all()
    assert np.abs(theta).sum(axis=1) == pytest.approx(np.full(K, environment.theta_l1_bound))
    shared = math.sqrt(d) * theta.ravel()
    assert np.linalg.norm(shared) == pytest.approx(environment.theta_bound)
    for now in rounds:
        assert now.arms.shape == (K, environment.dim) == (environment.n_arms, K * environment.context_dim)
        assert np.linalg.norm(now.arms, axis=1).max() <= 1
        assert now.arms @ shared == pytest.approx(now.means, abs=1e-9)
        assert np.ptp(now.rewards - now.means) < 1e-12


def test_the_noise_of_arms_with_parameters_has_the_stated_scale():
    # (n − 1) degrees of freedom: the variance of 20,000 draws is off by 6.5 standard errors, 6.5 %, with a chance of
    # about 1e-10; a scale wrong by 10 % is off by 19 % or 21 %
    rounds = play(PerArm(3, nonzero=1, scale=0.2), 0, 20_000)
    noise = np.array([now.rewards[0] - now.means[0] for now in rounds])
    assert abs(noise.var() / 0.04 - 1) < 0.065


def test_bad_parameters_per_arm_are_refused():
    with pytest.raises(ValueError, match="nonzero must be at most dim = 3, got nonzero=4"):
        PerArm(3, nonzero=4)
    with pytest.raises(ValueError, match="scale must be positive"):
        PerArm(scale=0.0)


# -------------------------------------------------------------------------------------- arms that come and go


def offered(environment, inner, seed, rounds):
    """Which rows of the inner environment's arms are on offer, of shape (rounds, K)."""
    whole, some = play(inner, seed, rounds), play(environment, seed, rounds)
    on = np.zeros((rounds, len(whole[0].arms)), dtype=bool)
    for t, (all_of_it, part) in enumerate(zip(whole, some, strict=True)):
        rows = [int(np.flatnonzero((all_of_it.arms == arm).all(axis=1))[0]) for arm in part.arms]
        assert rows == sorted(set(rows))
        assert np.array_equal(part.rewards, all_of_it.rewards[rows])
        assert np.array_equal(part.means, all_of_it.means[rows])
        on[t, rows] = True
    return on


@pytest.mark.thorough
def test_arms_come_and_go_as_stated():
    # Given an arm's state, the next one is a coin of known chance, independent of the past: the number of departures
    # and of arrivals, of 40,000 coins or more each, is off by 6.5 standard errors with a chance below 1e-9
    # (Bernstein). Chances that were 20 % higher or lower would not pass.
    inner = GLM(2, arms=30)
    on = offered(Available(inner, share=0.4, stay=0.9), inner, 0, 4000)
    for before, chance in ((True, 0.1 * 0.6), (False, 0.1 * 0.4)):
        moved = (on[1:] != on[:-1])[on[:-1] == before]
        assert len(moved) > 40_000
        error = math.sqrt(len(moved) * chance * (1 - chance))
        assert abs(moved.sum() - chance * len(moved)) < 6.5 * error
        for wrong in (0.8, 1.2):
            assert abs(moved.sum() - wrong * chance * len(moved)) > 6.5 * error
    assert len(set(on.sum(axis=1))) > 3


def test_at_least_one_arm_is_on_offer():
    inner = GLM(2, arms=3)
    on = offered(Available(inner, share=0.01, stay=0.0), inner, 1, 500)
    assert (on.sum(axis=1) >= 1).all()
    assert on.any(axis=0).all()
    assert offered(Available(inner, share=1.0), inner, 1, 50).all()


def test_availability_suits_logs_without_known_means():
    assert all(now.means is None for now in play(Available(Films()), 0, 5))


def test_what_cannot_come_and_go_is_refused():
    with pytest.raises(ValueError, match="environment must have arms alone"):
        play(Available(PerArm()), 0, 1)
    with pytest.raises(ValueError, match="environment must have arms alone, 1 in every round"):
        play(Available(Adversarial(3, arm_sets=growing)), 0, 5)
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\], got share=0"):
        Available(GLM(2), share=0)
    with pytest.raises(ValueError, match=r"stay must lie in \[0, 1\), got stay=1"):
        Available(GLM(2), stay=1)


# ------------------------------------------------------------------------------------------------- late rewards


def test_delays_leave_the_rest_of_the_rounds_as_it_is():
    inner = GLM(3)
    for a, b in zip(play(inner, 4, 50), play(Delayed(inner, mean=3), 4, 50), strict=True):
        assert np.array_equal(a.arms, b.arms)
        assert np.array_equal(a.rewards, b.rewards)
        assert np.array_equal(a.means, b.means)


def test_delays_have_the_stated_law():
    # 20,000 geometric delays of mean 9 and variance 90: their sum is off by 6.5 standard errors, 5 % of it, with a
    # chance below 1e-9; so is the share of zeros, 0.1, by 0.014, and the number of missing rewards, 0.3, by 0.021
    delays = [now.delay for now in play(Delayed(GLM(2, arms=2), mean=9, missing=0.3), 0, 30_000)]
    missing = np.array([delay is None for delay in delays])
    known = np.array([delay for delay in delays if delay is not None])
    assert abs(missing.mean() - 0.3) < 6.5 * math.sqrt(0.21 / len(delays))
    assert abs(known.mean() - 9) < 6.5 * math.sqrt(90 / len(known))
    assert abs((known == 0).mean() - 0.1) < 6.5 * math.sqrt(0.09 / len(known))


def test_a_delay_may_be_a_number_or_a_function():
    assert {now.delay for now in play(Delayed(GLM(2), delay=7), 0, 20)} == {7}
    assert {now.delay for now in play(Delayed(GLM(2), delay=0, missing=1), 0, 20)} == {None}
    drawn = [now.delay for now in play(Delayed(GLM(2), delay=lambda rng: rng.choice([2, 5])), 0, 60)]
    assert set(drawn) == {2, 5}
    assert {now.delay for now in play(Delayed(GLM(2), delay=lambda rng: None), 0, 20)} == {None}
    # whatever is like an array, a Series say
    assert {now.delay for now in play(Delayed(GLM(2), delay=range(3, 5)), 0, 60)} == {3, 4}


def test_a_wrapper_has_what_it_wraps():
    environment = Delayed(Available(Linear(noise="pareto", tail_index=1.5)), delay=2)
    assert (environment.noise_tail, environment.link, environment.dim) == (0.25, "linear", 2)
    assert environment.name.endswith("50 % of the arms on offer, delay 2")
    with pytest.raises(AttributeError, match="colour"):
        environment.colour  # noqa: B018
    assert get_link(environment.link).name == "linear"


@tabled(
    ("arguments", "message"),
    [
        ({"delay": "poisson"}, "delay must be a number of rounds, 'geometric' or a function, got delay='poisson'"),
        ({"delay": -1}, "delay must be at least 0, got delay=-1"),
        ({"mean": 0.0}, "mean must be positive and finite, got mean=0.0"),
        ({"missing": 1.5}, r"missing must lie in \[0, 1\], got missing=1.5"),
    ],
)
def test_bad_delays_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Delayed(GLM(2), **arguments)


def test_bad_drawn_delays_are_refused():
    with pytest.raises(ValueError, match="delay must be at least 0, got delay=-3"):
        play(Delayed(GLM(2), delay=lambda rng: -3), 0, 1)
    with pytest.raises(TypeError, match=r"delay must be a whole number, got delay=0\.5"):
        play(Delayed(GLM(2), delay=lambda rng: 0.5), 0, 1)
