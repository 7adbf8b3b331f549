"""How probable choices are: closed forms, and the frequencies of choices in every policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from private_policies import SIZES, SMALL, offered, small
from regret import sphere
from scipy.special import ndtr
from tabled import tabled

from accounting import Budget
from dpbandits import Policy, policies
from dpbandits.policy.choices import Independent, Law, Perturbed, Shares, Ties, gap_shares, inverse_gap
from dpbandits.private.parts.block_model import Play, replay
from dpkit.geometry import svec
from dpkit.moments.blocks import features

DRAWS = 6000


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def excess(law: Law, told: Law | None = None, draws: int = DRAWS) -> float:
    """How far the frequencies of draws are from the probabilities, over Bernstein's bound.

    At most 1 but for a chance of 10⁻¹⁰ (under other seeds), given the probabilities; these may err by 6 standard
    errors.
    """
    rng = seeded(11)
    counts = np.bincount([law.draw(rng).argmax() for _ in range(draws)], minlength=len(law))
    chances = np.array([(law if told is None else told).chance(k) for k in range(len(law))])
    p, error = chances.T
    L = math.log(2 * len(law) / 1e-10)
    bound = np.sqrt(2 * draws * p * (1 - p) * L) + 2 * L / 3 + 6 * draws * error
    return float((np.abs(counts - draws * p) / bound).max())


def laws() -> dict[str, Law]:
    rng = seeded()
    X, theta = sphere(rng, 6, 3), 0.4 * rng.standard_normal(3)
    root = 0.5 * rng.standard_normal((3, 3))
    return {
        "shares": Shares(np.array([0.5, 0.0, 0.3, 0.2])),
        "one share": Shares(np.array([0.0, 1.0])),
        "ties": Ties(np.array([1.0, 0.3, 1.0, -math.inf])),
        "inverse gap": inverse_gap(np.array([0.1, 0.5, 0.3, -math.inf]), rate=20.0),
        "independent": Independent(np.array([0.1, 0.5, 0.0, 0.2]), np.array([1.0, 0.3, 2.0, 0.0])),
        "independent, one closed": Independent(np.array([0.1, -math.inf, 0.0]), np.array([0.5, 1.0, 0.01])),
        "a random direction": Perturbed(X),
        "a random direction, of many": Perturbed(sphere(rng, 12, 8)),
        "a point with a root": Perturbed(X, theta, root),
        "with a bonus": Perturbed(X, theta, root, 0.3 * rng.random(6)),
        "of low rank": Perturbed(X, theta, root[:, :1]),
        "of rank two": Perturbed(X, theta, root[:, :2]),
        "without draws": Perturbed(X, theta, np.zeros((3, 3))),
        "equal arms": Perturbed(np.array([[0.6, 0.8], [0.6, 0.8], [1.0, 0.0]])),
        "one arm": Perturbed(np.ones((1, 1))),
        "one dimension": Perturbed(np.array([[0.5], [-0.5], [0.2]]), np.array([0.3])),
    }


@pytest.mark.parametrize("name", laws())
def test_frequencies_are_the_probabilities(name):
    law = laws()[name]
    assert excess(law) <= 1.0
    assert law.chances().sum() == pytest.approx(1.0, abs=0.02)


def test_the_test_of_frequencies_sees_other_probabilities():
    X, theta = sphere(seeded(), 6, 3), np.array([0.3, 0.0, -0.2])
    for told in (Perturbed(X, -theta, np.eye(3)), Perturbed(X, theta, np.diag([0.5, 1.0, 2.0]))):
        assert excess(Perturbed(X, theta, np.eye(3)), told) > 1.0


@pytest.mark.parametrize("seed", range(5))
def test_two_arms_are_exact(seed):
    rng = seeded(seed)
    X, theta, root = sphere(rng, 2, 4), rng.standard_normal(4), rng.standard_normal((4, 4))
    apart = X[0] - X[1]
    exact = ndtr(apart @ theta / np.linalg.norm(apart @ root))
    np.testing.assert_allclose(Perturbed(X, theta, root).chances(), [exact, 1 - exact], rtol=1e-12)
    center, scale = rng.standard_normal(2), rng.random(2) + 0.1
    exact = ndtr((center[0] - center[1]) / np.hypot(*scale))
    np.testing.assert_allclose(Independent(center, scale).chances(), [exact, 1 - exact], rtol=1e-9)


def test_scores_that_move_by_less_than_their_last_digit_do_not_move():
    """As they are drawn; the integral over a piece of length 0 gave the arm that always wins no chance."""
    for center in ([0.7, 0.2, 0.1], [1e149, -1e149, 0.0]):
        law = Independent(np.array(center), np.full(3, 1e-18))
        assert law.draw(seeded(0)).argmax() == 0
        assert law.chances().tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(5))
def test_independent_arms_are_a_case_of_perturbed_ones(seed):
    """The integral on the line, and the measure of the cone within five of its standard errors."""
    rng = seeded(seed)
    center, scale = 0.5 * rng.standard_normal(5), rng.random(5) + 0.1
    line, cone = Independent(center, scale), Perturbed(np.eye(5), center, np.diag(scale))
    assert line.chances().sum() == pytest.approx(1.0, abs=1e-9)
    for k in range(5):
        chance, error = cone.chance(k)
        assert abs(chance - line.chance(k)[0]) < 5 * error + 1e-9
        assert error <= max(0.02 * chance, 1e-6)


def test_random_directions_in_the_plane_are_angles():
    """An arm wins over the normal cone of its corner of the hull."""
    angles = np.array([0.0, 1.0, 2.5, 4.0])
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gaps = np.diff(np.append(angles, 2 * math.pi))
    exact = 0.5 * (gaps + np.roll(gaps, 1)) / (2 * math.pi)
    law = Perturbed(np.vstack([X, [[0.01, 0.02]]]))
    for k in range(4):
        chance, error = law.chance(k)
        assert abs(chance - exact[k]) < 5 * error + 1e-9
    assert law.chance(4)[0] == 0.0


def test_rare_choices_have_digits():
    """A third arm that never matters, and one that wins at five standard deviations."""
    law = Perturbed(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), np.array([5.0, -2.0]), 0.7 * np.eye(2))
    exact = ndtr(-7.0 / (0.7 * math.sqrt(2)))
    chance, error = law.chance(1)
    assert 0 < exact < 1e-11
    assert chance == pytest.approx(exact, rel=0.1)
    assert error < 0.1 * exact


@pytest.mark.parametrize("near", [-9.0, 1.0, 4.5, 5.9])
def test_arms_that_hardly_ever_win_are_left_out_unless_that_would_show(near):
    """Against the product of the probabilities of independent conditions; the far one is of a rare choice's order."""
    distances = np.array([near, 6.5, 8.0])
    law = Perturbed(np.vstack([np.zeros((1, 3)), -np.eye(3)]), bonus=np.append(0.0, -distances))
    chance, error = law.chance(0)
    assert abs(chance - float(ndtr(distances).prod())) < 5 * error + 1e-4 * chance
    rare = Perturbed(np.vstack([np.zeros((1, 2)), -np.eye(2)]), bonus=np.array([0.0, 9.0, -6.1])).chance(0)
    assert abs(rare[0] - float(ndtr([-9.0, 6.1]).prod())) < 5 * rare[1] + 1e-4 * rare[0]


def test_the_same_question_has_the_same_answer_whatever_became_of_the_array():
    X = sphere(seeded(), 10, 5)
    law, again = Perturbed(X), Perturbed(X.copy())
    X[:] = 0.0
    assert law.chance(3) == again.chance(3)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.floats(0, 1e6))
def test_inverse_gaps_are_the_papers(scores, rate):
    found = inverse_gap(np.array(scores), rate).chances()
    best = int(np.argmax(scores))
    K = len(scores)
    for k in range(K):
        if k != best:
            assert found[k] == pytest.approx(1 / (K + rate * (max(scores) - scores[k])))
    assert found.sum() == pytest.approx(1.0)
    assert found[best] >= found.max() - 1e-12 >= 1 / K - 2e-12
    assert (found > 0).all()


# -------------------------------------------------------------------------------------------------- policies


# eight arms, of which some are offered
ROUND = np.column_stack([np.cos(np.arange(8)), np.sin(np.arange(8))])


def learned(name: str):
    """A policy that has learned a few rounds, and what it is offered."""
    if name in SMALL:
        policy = small(name, rng=seeded(3), **({"arms": ROUND} if name == "StandingPrivateGLM" else {}))
    else:
        kind = getattr(policies, name)
        arguments = {"arms": 4} if kind.takes == "context" else SIZES.get(name, {})
        sizes = () if "dim" in kind.passed_on else (2,)
        policy = kind(*sizes, reward_range=(0.0, 1.0), rng=seeded(3), horizon=100, **arguments)
    rng = seeded(4)

    def some():
        if name == "StandingPrivateGLM":
            return ROUND[rng.permutation(8)[:5]]
        return rng.uniform(-0.7, 0.7, 2) if policy.takes == "context" else sphere(rng, 5, 2)

    for t in range(12):
        policy.update(policy.select(some()), float(t % 3 == 0))
    return policy, some()


@pytest.mark.parametrize("draws", [DRAWS, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", policies.__all__)
def test_every_policys_choices_have_their_probabilities(name, draws):
    policy, offered = learned(name)
    decision = policy.select(offered)
    if decision.law is None:
        assert (decision.probability, decision.probability_error) == (1.0, 0.0)
        return
    assert 0.0 < decision.probability <= 1.0
    assert decision.probability_error <= max(0.02 * decision.probability, 1e-6)
    assert excess(decision.law, draws=draws) <= 1.0
    # what is learned later does not change it
    before = decision.probability
    for _ in range(10):
        policy.update(policy.select(offered), 1.0)
    assert decision.probability == before


@pytest.mark.parametrize("name", ["OnePassPrivateGLM", "PrivateHvtUCB", "DPLinUCB", "ShuffleGLM", "DisjointPrivateGLM"])
def test_first_batches_have_probabilities(name):
    policy = small(name, rng=seeded())
    decision = policy.select(np.array([0.6, -0.8]) if policy.takes == "context" else np.eye(2))
    assert decision.probability == pytest.approx(0.5, abs=1e-9)


def test_deterministic_policies_say_one():
    assert policies.OFUL(dim=3).select(np.eye(3)).probability == 1.0


def test_a_policy_of_ones_own_must_not_draw_where_nobody_sees_it():
    with pytest.raises(TypeError, match=r"Mine\.score must draw nothing"):

        class Mine(Policy):
            def score(self, arms):
                return self.rng.random(len(arms))

    class Yours(Policy):
        def score(self, arms):
            return Shares(np.array([0.2, 0.8]))

        def learn(self, pending, reward):
            pass

    decision = Yours(2).select(np.eye(2))
    assert decision.probability == (0.2, 0.8)[decision.index]


# ------------------------------------------------------------------------------------------------ inverse gap


BY_GAPS = {
    "OnePassPrivateGLM": {"budget": Budget(8.0, 1e-5)},
    "ShuffleOnePassGLM": {"budget": Budget(8.0, 1e-5)},
    "DisjointPrivateGLM": {"budget": Budget(8.0, 1e-5), "arms": 2},
    "DisjointShuffleGLM": {"budget": Budget(8.0, 1e-5), "arms": 2},
    "DisjointLinUCB": {"arms": 2, "reward_range": (0, 1)},
    "GLBOMD": {},
    "OFUL": {},
}


def means_of(policy, arms) -> np.ndarray:
    """What the policy thinks that arms will give, but for a constant."""
    if policy.takes == "arms":
        return policy.link.mean(arms @ policy.theta)
    model = policy if hasattr(policy, "theta") else policy.model
    return policy.link.mean(model.theta @ features(arms))


@pytest.mark.parametrize("name", BY_GAPS)
def test_inverse_gap_gives_every_arm_a_chance(name):
    rng, more = seeded(2), BY_GAPS[name]
    policy = getattr(policies, name)(2, horizon=400, exploration="inverse_gap", gamma_scale=5.0, rng=rng, **more)
    liked = np.array([0.1, 0.9])
    offered = np.eye(2) if policy.takes == "arms" else np.array([0.5, 0.1])
    assert policy.select(offered).law.chances().tolist() == [0.5, 0.5]
    for _ in range(390):
        decision = policy.select(offered)
        policy.update(decision, float(rng.random() < liked[decision.index]))
    last = policy.select(offered)
    t = policy.schedule.ends[policy.releases - 1] if "budget" in more else policy.decisions - 1
    means = means_of(policy, offered)
    low = 1 / (2 + 5.0 * math.sqrt(t) * float(means.max() - means.min()))
    assert sorted(last.law.chances()) == pytest.approx([low, 1 - low])
    assert int(np.argmax(last.law.chances())) == 1
    assert 0 < low < 0.05


@tabled("name", BY_GAPS)
@tabled("wrong", [{"exploration": "gap"}, {"exploration": "inverse_gap", "gamma_scale": 0.0}])
def test_bad_explorations_are_refused(name, wrong):
    with pytest.raises((ValueError, TypeError), match=r"exploration must be .*'gap'|gamma_scale must be positive"):
        getattr(policies, name)(2, horizon=20, **wrong, **BY_GAPS[name])


@pytest.mark.parametrize("name", [name for name, more in BY_GAPS.items() if "budget" in more])
def test_inverse_gap_is_released(name, tmp_path):
    policy = small(name, exploration="inverse_gap", rng=seeded())
    for _ in range(14):
        policy.update(policy.select(offered(policy)), 1.0)
    decision = policy.select(offered(policy))
    np.testing.assert_array_equal(policy.released().probabilities(offered(policy)), decision.law.chances())
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.released().probabilities(offered(policy)).tolist() == decision.law.chances().tolist()


@pytest.mark.parametrize("name", ["DisjointPrivateGLM", "DisjointShuffleGLM", "DisjointLinUCB"])
def test_arms_that_are_retired_have_no_chance_by_gaps(name):
    arms = BY_GAPS[name] | {"arms": ["a", "b", "c"]}
    policy = getattr(policies, name)(2, horizon=50, exploration="inverse_gap", rng=seeded(), **arms)
    policy.retire_arm("b")
    assert policy.select([0.1, 0.2]).law.chances().tolist() == [0.5, 0.0, 0.5]


def test_a_batch_played_by_gaps_is_replayed_by_gaps():
    """What the model of a policy's own play collects is what its law says, arms that came and went counted."""
    rng = seeded(5)
    theta, z = rng.standard_normal((3, 3)), contexts_in_the_disc(rng, 20_000)
    standing = np.array([0, 0, 50]), np.array([-1, 50, -1])
    play = Play(theta, np.zeros((3, 6)), 0.3, rate=2.0)
    found = replay(z, play, standing, (0, 100), rng)
    x = features(z)
    means = x @ theta.T
    means[:10_000, 2] = means[10_000:, 1] = -math.inf
    X = svec(x[:, :, None] * x[:, None, :])
    shares = gap_shares(means, 2.0)
    exact = shares.T @ X / len(z)
    # Bernstein: terms in [-√2, √2]/n; 18 entries, each beyond the bound once in 10¹¹
    L = math.log(2 * 18 / 1e-10)
    spread = np.sqrt(2 * L * (shares.T @ X**2)) / len(z) + 2 * math.sqrt(2) * L / len(z)
    assert (np.abs(found - exact) <= spread).all()
    greedy = replay(z, Play(theta, np.zeros((3, 6)), 0.0), standing, (0, 100), rng)
    assert (np.abs(greedy - exact) > spread).any()


def contexts_in_the_disc(rng: np.random.Generator, n: int) -> np.ndarray:
    z = rng.standard_normal((n, 2))
    return z / np.maximum(1.0, np.linalg.norm(z, axis=1, keepdims=True))
