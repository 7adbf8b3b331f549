"""The local model: what one message is, that it is unbiased and as noisy as stated, what the server makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball

from accounting import Budget, Gaussian, Ledger, PureDP, epsilon
from dpbandits import simulate
from dpbandits.durability.pending import Pending
from dpbandits.lab.environments import GLM
from dpbandits.policies import LDPGLM
from dpkit.geometry import svec
from dpkit.moments.pairs import NoisyPair

BUDGET = Budget(1.0, 1e-5)
LINKS = ("logistic", "probit", "linear")
RANDOMIZERS = ("sphere", "cap", "gaussian")


def policy_with(link="logistic", dim=3, horizon=200, **parameters) -> LDPGLM:
    parameters = {"budget": BUDGET, "reward_range": (0.0, 1.0), "rng": np.random.default_rng(0)} | parameters
    return LDPGLM(dim, link, horizon=horizon, **parameters)


# ------------------------------------------------------------------------------------------------- one message


@pytest.mark.parametrize("length", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("randomizer", RANDOMIZERS)
def test_a_message_is_unbiased_and_as_noisy_as_stated(randomizer, length):
    """Means and mean squares over 4,000 messages. Each of 54 checks has a false-alarm rate below 1e-10 (6.5 standard
    errors); 0.9 or 1.1 times the Gaussian noise would fail by more than 10. Scales of sphere and cap are checked below.
    """
    policy, n = policy_with(dim=2, randomizer=randomizer), 4_000
    record = np.array([0.5, -0.3, 0.2, 0.6, -0.5])
    record *= length * policy.sums.longest / np.linalg.norm(record)
    messages = np.array([policy.sums.randomized(record) for _ in range(n)])
    size = len(record)
    if randomizer != "gaussian":
        np.testing.assert_allclose(np.linalg.norm(messages, axis=1), policy.sums.radius)
        assert policy.sums.std == pytest.approx(policy.sums.radius / math.sqrt(size))
        spread = policy.sums.radius
    else:
        squares = np.sum((messages - record) ** 2, axis=1) / policy.sums.std**2
        assert abs(squares.mean() / size - 1) <= 6.5 * math.sqrt(2 / (size * n))
        spread = policy.sums.std
    assert np.abs(messages.mean(axis=0) - record).max() <= 6.5 * spread / math.sqrt(n)


@given(
    link=st.sampled_from(LINKS),
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0.3, 0.75, 0.95]),
    clip=st.sampled_from([None, 0.2]),
)
@settings(deadline=None, max_examples=25)
def test_records_keep_the_bounds_that_messages_are_made_for(link, seed, share, clip):
    """No record is longer, and no two are farther apart, than declared."""
    rng, records = np.random.default_rng(seed), []
    policy = policy_with(link, gradient_share=share, clip=clip, randomizer="gaussian")
    policy.sums.randomized = lambda record: (records.append(record), record)[1]
    x = rng.standard_normal(3)
    x /= np.linalg.norm(x)
    for arm in (x, -x, rng.standard_normal(3) / 9, *ball(rng, 3, 3)):
        theta = rng.standard_normal(3) * rng.choice([0.0, 1.0, 9.0])
        policy.public = replace(policy.public, theta=theta)
        policy.update(policy.select([arm * min(1.0, 1 / np.linalg.norm(arm))]), float(rng.choice([0.0, 1.0])))
    records = np.array([*records, np.zeros_like(records[0])])
    assert np.linalg.norm(records, axis=1).max() <= policy.sums.longest * (1 + 1e-9)
    distances = np.linalg.norm(records[:, None] - records, axis=-1)
    (row,) = policy.ledger.rows()
    assert distances.max() <= policy.sums.std / row.release.noise_multiplier * (1 + 1e-9)


def test_either_randomizer_meets_the_budget_and_the_better_one_is_the_default():
    costs = {}
    for randomizer in (*RANDOMIZERS, None):
        policy = policy_with(randomizer=randomizer)
        (row,) = policy.ledger.rows()
        assert epsilon(row.release, BUDGET.delta) <= BUDGET.epsilon
        assert epsilon(row.release, BUDGET.delta) == pytest.approx(BUDGET.epsilon, rel=1e-9)
        costs[policy.randomizer if randomizer is None else randomizer] = type(row.release)
    assert costs == {"sphere": PureDP, "cap": PureDP, "gaussian": Gaussian}
    assert policy.randomizer == "cap"
    assert policy_with(budget=Budget(64.0, 1e-2)).randomizer == "gaussian"
    for budget in (BUDGET, Budget(64.0, 1e-2)):
        levels = {randomizer: policy_with(budget=budget, randomizer=randomizer).sums.std for randomizer in RANDOMIZERS}
        assert levels[policy_with(budget=budget).randomizer] == min(levels.values())


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_spheres_radius_makes_it_unbiased_exactly(dim):
    """radius·tanh(ε/2)·E|u₁| = length, with E|u₁| over the unit sphere of dimension n by quadrature."""
    from scipy.integrate import quad

    policy = policy_with(dim=dim, randomizer="sphere")
    pure, n = policy.ledger.rows()[0].release.epsilon, len(policy.sums.sums)
    weight = (lambda a: np.sin(a) ** (n - 2)), 0.0, np.pi / 2
    mean = quad(lambda a: np.cos(a) * weight[0](a), 0.0, np.pi / 2)[0] / quad(*weight)[0]
    assert policy.sums.radius * math.tanh(pure / 2) * mean == pytest.approx(policy.sums.longest, rel=1e-9)


def test_the_spheres_density_has_two_values():
    """Both halves hold e^ε/(1 + e^ε) and the rest: 40,000 messages, false-alarm rate below 1e-10 (6.5 deviations)."""
    policy, n = policy_with(dim=2, randomizer="sphere"), 40_000
    pure = policy.ledger.rows()[0].release.epsilon
    record = np.array([0.0, 0.0, 0.0, policy.sums.longest, 0.0])
    share = np.mean([policy.sums.randomized(record)[3] > 0 for _ in range(n)])
    expected = math.exp(pure) / (1 + math.exp(pure))
    assert abs(share - expected) <= 6.5 * math.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 8.0, 25.0])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_caps_message_is_unbiased_exactly_and_its_odds_are_the_prices(dim, epsilon):
    """Both from the height alone, by quadrature: the cap's share q, the odds of its density, and the mean of Vᵀu."""
    from scipy.integrate import quad

    policy = policy_with(dim=dim, randomizer="cap", budget=Budget(epsilon, 1e-6))
    pure, n, h = policy.ledger.rows()[0].release.epsilon, len(policy.sums.sums), policy.sums.height
    density, angle = (lambda a: np.sin(a) ** (n - 2)), math.acos(h)
    q = quad(density, 0.0, angle)[0] / quad(density, 0.0, math.pi)[0]
    beyond = quad(lambda a: np.cos(a) * density(a), 0.0, angle)[0] / quad(density, 0.0, math.pi)[0]
    far = policy.sums.far
    assert 1 / 257 <= q <= 0.5 + 1e-12
    spent = math.log((1 - far) / q) - math.log(far / (1 - q))
    assert pure - 2e-6 <= spent < pure
    mean = (1 - far) * beyond / q - far * beyond / (1 - q)
    assert policy.sums.radius * mean == pytest.approx(policy.sums.longest, rel=1e-8)
    # no worse than the half sphere, which is one of the caps
    assert policy.sums.std <= policy_with(dim=dim, randomizer="sphere", budget=policy.budget).sums.std * (1 + 1e-5)


@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_a_caps_messages_are_uniform_on_either_side(epsilon):
    """4,000 messages: how many are in the cap, and means of Vᵀu; false-alarm rate below 4e-9 (6.2 deviations)."""
    policy, n = policy_with(dim=2, randomizer="cap", budget=Budget(epsilon, 1e-6)), 4_000
    sums = policy.sums
    record = np.array([0.0, 0.0, 0.0, sums.longest, 0.0])
    t = np.array([sums.randomized(record)[3] for _ in range(n)]) / sums.radius
    inside = t >= sums.height
    assert abs(inside.mean() - (1 - sums.far)) <= 6.2 * math.sqrt(sums.far * (1 - sums.far) / n)
    # five entries: a coordinate of a uniform vector has a density in proportion to 1 − t²
    h = sums.height
    above = (1 - h**2) ** 2 / 4 / (2 / 3 - h + h**3 / 3)
    below = -((1 - h**2) ** 2) / 4 / (2 / 3 + h - h**3 / 3)
    for part, mean in ((t[inside], above), (t[~inside], below)):
        assert abs(part.mean() - mean) <= 6.2 * part.std() / math.sqrt(len(part))


# ------------------------------------------------------------------------------------------------- the server


@pytest.mark.parametrize("link", LINKS)
def test_the_server_sees_messages_alone(link):
    """With the randomizer taken out by hand, its sums are the records', and its fit is that of the sums."""
    known = {"theta_bound": 2.0, "first_batch": 20, "base_rate": 0.5}
    policy, rng = policy_with(link, **known), np.random.default_rng(1)
    policy.sums.randomized = lambda record: record
    L, secant, before = policy.link, policy.record.levels.base, policy.public  # moved to the base rate
    H, b, refits = np.zeros((3, 3)), np.zeros(3), []
    for t in range(150):
        theta_before = policy.theta.copy()
        decision = policy.select(ball(rng, 4, 3))
        if not np.array_equal(policy.theta, theta_before):
            batch, refits = t - (refits[-1] if refits else 0), [*refits, t]
            noise, batch_noise = (
                tuple(math.sqrt(n) * policy.sums.std / scale for scale in policy.sums.scales) for n in (t, batch)
            )
            told = policy.refit(before, NoisyPair(H, b, noise, batch_noise, 1.0), refits)
            np.testing.assert_allclose(policy.theta, told.theta, rtol=1e-8)
            np.testing.assert_allclose(policy.public.root, told.root, rtol=1e-8, atol=1e-12)
            before = policy.public
        x, r = decision.arm, float(rng.random())
        e = float(x @ policy.theta)
        s = float(L.derivative(0.0)) if abs(e) < 1e-6 else (float(L.mean(e)) - secant.centre) / e
        psi = min(2.0, 1.0 / np.linalg.norm(x))
        H += psi * np.clip(s, secant.s_min, secant.W) * np.outer(x, x)
        b += psi * np.clip(r - secant.centre, -policy.clip, policy.clip) * x
        policy.update(decision, r)
        np.testing.assert_allclose(
            policy.sums.sums, np.concatenate([policy.sums.scales[0] * svec(H), policy.sums.scales[1] * b]), atol=1e-12
        )
    assert refits == [end for end in policy.schedule.ends if end < 150]


def test_one_users_message_is_recorded_once():
    ledger = Ledger(BUDGET)
    policy = policy_with(ledger=ledger)
    for _ in range(100):
        policy.update(policy.select(np.eye(3)), 1.0)
    assert len(ledger.rows()) == 1
    assert policy.sums.messages + policy.sums.numbers == 100
    report = policy.privacy()
    assert (report.trust, report.left) == ("local", 0.0)


@settings(deadline=None, max_examples=60)
@given(
    round=st.integers(0, 199),
    level=st.sampled_from([0.0, -2.0]),
    levelled=st.booleans(),
    reward=st.one_of(st.none(), st.floats(0, 1)),
    other=st.one_of(st.none(), st.floats(0, 1)),
)
def test_of_which_kind_a_message_is_depends_on_public_things_alone(round, level, levelled, reward, other):
    """Two rounds of different arms and rewards, or of none, in the same place; and numbers keep their range."""
    policy = KINDS
    public = replace(policy.public, level=level, levelled=levelled, theta=np.array([1.0, -2.0, 0.5]))
    rows = (np.array([0.6, 0.8, 0.0]), reward), (np.array([0.0, 0.0, -0.3]), other)
    sent = [policy.record(Pending(x, 0, round), r, public) for x, r in rows]
    assert (sent[0][3] is None) == (sent[1][3] is None)
    for (_, w, g, number), (_, r) in zip(sent, rows, strict=True):
        assert number is None or (abs(number) <= 0.5 and w == g == 0.0)
        if r is None:
            assert (w, g) == (0.0, 0.0)
            assert not number


KINDS = policy_with(first_batch=20)


def test_rounds_are_asked_for_the_level_by_their_number_until_it_is_settled():
    """ε = 1: 52 answers are enough for a first look; that is more than every second round of a first batch of 40."""
    policy = policy_with(horizon=2000, first_batch=40, rng=np.random.default_rng(1))
    asked, rng = [], np.random.default_rng(2)
    assert not policy.public.levelled
    for t in range(700):
        before = policy.sums.numbers
        policy.update(policy.select(np.eye(3)), float(rng.random() < 0.5))
        if policy.sums.numbers > before:
            asked.append(t)
    assert asked[:20] == list(range(1, 40, 2))
    assert all(t % 4 == 3 for t in asked[20:])
    assert max(asked) < 400
    assert policy.public.levelled
    assert policy.level == 0.0
    # a base rate was stated, or there are no releases
    for more in ({"base_rate": 0.5}, {"horizon": 1}):
        assert policy_with(**more).public.levelled


@pytest.mark.parametrize("randomizer", RANDOMIZERS)
def test_numbers_are_unbiased_and_as_noisy_as_stated(randomizer):
    """Over 4,000 messages of each number, within 6.5 standard errors: a false-alarm rate below 1e-10 each."""
    policy, n = policy_with(randomizer=randomizer), 4_000
    for f in (-0.5, 0.2):
        told = np.array([policy.sums.about(f) for _ in range(n)])
        assert abs(told.mean() - f) <= 6.5 * told.std() / math.sqrt(n)
    ends = np.array([policy.sums.about(-0.5) for _ in range(n)])
    fourth = np.mean((ends - ends.mean()) ** 4)
    error = math.sqrt((fourth - ends.var() ** 2) / n)
    assert abs(ends.var() - policy.sums.number_std**2) <= 6.5 * error
    for wrong in (0.6, math.nan):
        with pytest.raises(ValueError, match=r"number must be from -0\.5 to 0\.5"):
            policy.sums.add(np.array([0.6, 0.8, 0.0]), 0.0, 0.0, wrong)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"randomizer": "coin"}, "randomizer must be 'sphere', 'cap' or 'gaussian', got randomizer='coin'"),
        ({"growth": 0.9}, "growth must be at least 1, got growth=0.9"),
        ({"gradient_share": 0.0}, r"gradient_share must lie in \(0, 1\), got gradient_share=0.0"),
        ({"clip": 0.0}, "clip must be positive"),
        ({"link": "poisson", "reward_range": None}, "reward_range must be finite for a private policy"),
        ({"link": "linear", "reward_range": (-1e154, 1e154)}, r"reward_range must lie within ±1e\+100 and be at least"),
        ({"exploration": -1.0}, "exploration must be nonnegative"),
    ],
)
def test_bad_parameters_spend_nothing(parameters, message):
    ledger = Ledger(BUDGET)
    with pytest.raises(ValueError, match=message):
        policy_with(**({"ledger": ledger} | parameters))
    assert ledger.rows() == []


# ------------------------------------------------------------------------------------------------- regret


def regret(eps: float, rounds: int, seeds: int, **parameters) -> float:
    env = GLM(2, arms=10, link="logistic", theta_norm=1.0, arm_law="sphere")
    known = {"budget": Budget(eps, 0.01), "horizon": rounds, "theta_bound": 1.0} | parameters
    makers = {"p": lambda rng: LDPGLM(2, rng=rng, **known)}
    return simulate(makers, env, rounds=rounds, seeds=seeds, progress=False).table()[0]["regret"]


@pytest.mark.thorough
def test_regret_falls_with_epsilon():
    """d = 2, K = 10; playing at random costs about 550 in 2500 rounds."""
    assert regret(8.0, 2500, seeds=1) <= 100
    assert regret(3.0, 2500, seeds=1) <= 300


@pytest.mark.slow
def test_regret_on_the_local_workload_in_full():
    """T = 20,000, ε = 1: public code of LDP-SGD has 430 ± 224 over five seeds, and of LDP-GLOC 3367 ± 1961."""
    assert regret(1.0, 20_000, seeds=10) <= 654


@pytest.mark.parametrize("epsilon", [20.0, 36.0, 36.8, 40.0, 500.0])
def test_at_large_budgets_the_far_half_sphere_is_as_likely_as_the_price_says(epsilon):
    """A chance of e^−ε near 1 is lost by rounding for ε > 36.7: then one side's messages would never come."""
    policy = LDPGLM(2, budget=Budget(epsilon, 1e-6), horizon=100, randomizer="sphere", rng=np.random.default_rng(0))
    (row,) = policy.ledger.rows()
    record = np.full(5, 0.1)

    def is_near(z: float) -> bool:
        class Scripted:
            def standard_normal(self, size: int) -> np.ndarray:
                # the record's own sign, and the half sphere that z says
                return np.array([1.0] * (size - 2) + [-30.0, z])

        policy.sums.rng = Scripted()
        return float(policy.sums.randomized(record) @ record) > 0.0

    low, high = -12.0, 12.0
    assert is_near(low) != is_near(high), "one half sphere is never drawn"
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_near(middle) == is_near(low) else (low, middle)
    far = 0.5 * math.erfc(abs(low) / math.sqrt(2.0))
    assert math.log((1.0 - far) / far) <= row.release.epsilon * (1.0 + 1e-9)
