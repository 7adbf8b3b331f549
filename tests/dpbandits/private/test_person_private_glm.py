"""The policy for persons: what a person contributes, what that may move, what it costs, and what it is good for."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regret import ball
from tabled import tabled

from accounting import AdjacencyMismatch, Budget, Gaussian, calibrate
from dpbandits import Policy
from dpbandits.policies import PersonPrivateGLM
from dpkit.geometry import svec
from dpkit.models.links import Link, get_link
from dpkit.moments import people as moments_of_people
from dpkit.moments.people import PersonSums, Rounds

BUDGET = Budget(1.0, 1e-5, unit="person")
# F over the larger secant weight at |xᵀθ| = S
MATRIX_BOUND = 0.6
LINKS = ("logistic", "probit", "linear", "poisson")
UNIT = 2.0**30  # releases are sums of multiples of its inverse


def wrong_link(mean, derivative=lambda z: np.full(np.shape(z), 0.25), steepest=0.25) -> Link:
    return Link("mine", mean, derivative, lambda z: z, lambda S: (0.0, steepest), lambda S: 1.0, (0.0, 1.0))


# NaN slopes, none, both signs and steeper than it is said; NaN, infinite and huge means
WRONG_LINKS = (
    wrong_link(get_link("logistic").mean, lambda z: np.full(np.shape(z), math.nan)),
    wrong_link(lambda z: np.full(np.shape(z), 0.5), np.zeros_like),
    wrong_link(lambda z: 0.5 + 0.4 * np.sin(7 * np.asarray(z)), lambda z: 2.8 * np.cos(7 * np.asarray(z))),
    wrong_link(lambda z: np.where(np.asarray(z) < -0.1, math.nan, 0.5)),
    wrong_link(lambda z: np.where(np.abs(z) > 0.1, np.copysign(math.inf, z), 0.5)),
    wrong_link(lambda z: np.where(np.asarray(z) > 0.1, 1e308, 0.5)),
)


def policy_with(link="logistic", dim=3, horizon=200, **parameters) -> PersonPrivateGLM:
    # levels that are learned are tested in test_levels.py
    known = {"budget": BUDGET, "reward_range": (0.0, 1.0), "base_rate": 0.5, "rng": np.random.default_rng(0)}
    parameters = known | parameters
    return PersonPrivateGLM(dim, link, horizon=horizon, **parameters)


@contextmanager
def without_noise():
    """Inside, sums over persons are released as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments_of_people, "rounded_gaussian", lambda std, size, rng: np.zeros(size, np.int64))
        yield patch


@pytest.fixture
def told():
    """Every release, (a·svec M, b), and its weights; there is no noise."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    release = PersonSums.release

    def releasing(self, people, weigh, weights, scale, *bounds):
        H, b = release(self, people, weigh, weights, scale, *bounds)
        found.append((np.concatenate([scale * svec(H), b]), weights))
        return H, b

    with without_noise() as patch:
        patch.setattr(PersonSums, "release", releasing)
        yield found


# ------------------------------------------------------------------------------------------- contributions


def contribution(link: Link, S: float, theta, rounds, once: bool) -> np.ndarray:
    """(a·svec M, b)/Δ of a person, by the formulas of the docstring, for rewards in [0, 1]; rounds: (arm, reward)."""
    W, centre, d = link.lipschitz(S), float(link.mean(0.0)), len(theta)
    R = max(centre, abs(1 - centre))
    ends = [min(max((float(link.mean(e)) - centre) / e, W / 5), W) for e in (-S, S)]
    F, n = MATRIX_BOUND * max(ends), len(rounds)
    B = 0.7 * R if once else R * (0.1 + 0.6 / math.sqrt(n))
    share, clip = (0.7, 0.7) if once else (0.9, 0.45)
    a = clip * R / F * math.sqrt(2 * (1 - share) / share)
    M, b, heard = np.zeros((d, d)), np.zeros(d), 0
    for x, r in rounds:
        if r is None:
            continue
        e = float(x @ theta)
        w = (float(link.mean(e)) - centre) / e if abs(e) > 1e-6 else float(link.derivative(0.0))
        w = min(max(w, W / 5), W)
        M += w * np.outer(x, x)
        b += (r - float(link.mean(e)) + once * w * e) * x
        heard += 1
    M, b = M / max(heard, 1), b / max(heard, 1)
    M *= min(1.0, F / max(np.linalg.norm(M), 1e-300))
    b *= min(1.0, B / max(np.linalg.norm(b), 1e-300))
    matrix, vector = (a * F) ** 2, B**2
    if n == 1:
        s = min(math.sqrt(0.5), vector / (2 * matrix))
        square = max(matrix + 4 * vector, 2 * matrix * (1 - s * s) + 2 * vector * (1 + s))
    else:
        square = 2 * matrix + 4 * vector
    return np.concatenate([a * svec(M), b]) / math.sqrt(square)


@pytest.mark.parametrize("link", LINKS)
def test_a_release_sums_what_the_formulas_say_of_everybody(told, link):
    """Persons with 1 to some 60 rounds, a third of whose rewards never come; both centres of residuals are met."""
    rng, policy = np.random.default_rng(1), policy_with(link, horizon=400, theta_bound=1.0, first_batch=8)
    L = policy.link  # at the base rate
    rounds: dict[int, list] = {}
    left: dict[int, float] = {}
    centres = Counter()
    ends, start, persons = list(policy.schedule.ends), 0, 0
    for t in range(400):
        who = int(min(rng.geometric(0.02), 400))
        theta, before = policy.theta, len(told)
        decision = policy.select(ball(rng, 4, 3), person=who)
        if len(told) > before:
            new, length = len(rounds) - persons, ends[before] - start
            share = max(0.3 * (0.25 + 0.75 * new / length), 1 / (len(ends) - before))
            once = t < 1.4 * len(rounds)
            expected = np.zeros(9)
            for p, those in rounds.items():
                paid = share * left.get(p, 1.0)
                left[p] = left.get(p, 1.0) - paid
                expected += math.sqrt(paid) * contribution(L, 1.0, theta, those, once)
            np.testing.assert_allclose(told[-1][0], expected, atol=1e-7 * len(rounds))
            centres[once] += 1
            start, persons = ends[before], len(rounds)
        reward = float(rng.random())
        if rng.random() < 1 / 3:
            policy.forget(decision)
            rounds.setdefault(who, []).append((decision.arm, None))
        else:
            policy.update(decision, reward)
            rounds.setdefault(who, []).append((decision.arm, reward))
    assert min(centres.values()) >= 3
    assert len(told) == policy.releases == len(ends)
    assert max(left.values()) < 1e-12  # the last release took all


def test_rounds_of_one_person_fill_many_blocks():
    """5,000 rounds of one person among those of others: the mean is that of all of them."""
    rng = np.random.default_rng(2)
    sums = PersonSums(2, budget=BUDGET, releases=3, horizon=10_000, rng=rng)
    X = ball(rng, 6000, 2)
    owner = np.where(np.arange(6000) % 6 == 0, np.arange(6000), -7)
    for t in range(6000):
        sums.rounds.decided(t, int(owner[t]))
        sums.rounds.rewarded(t, X[t], 1.0)
    people = sums.rounds.people(6000)
    assert people.visits.tolist() == [1, 5000] + 999 * [1]  # in the order in which they came
    weights = (people.visits > 1) / 4
    with without_noise():
        H, G = sums.release(people, lambda arms, r: (0.5 + 0 * r, r), weights, 1.0, 10.0, np.full(len(weights), 10.0))
    mine = X[owner == -7]
    np.testing.assert_allclose(H, 0.125 * mine.T @ mine / 5000, atol=1e-8)
    np.testing.assert_allclose(G, 0.25 * mine.mean(axis=0), atol=1e-8)


# --------------------------------------------------------------------------------------------- sensitivity


def sums_of(people: list[list[tuple[np.ndarray, float | None]]], weigh, weights, a, F, B) -> np.ndarray:
    """The whole numbers of a release, over persons 0, 1, …, in units of the last digit."""
    d = len(people[0][0][0])
    sums = PersonSums(d, budget=BUDGET, releases=3, horizon=10_000, rng=np.random.default_rng(0))
    # in turns, so that nobody's rounds stand together
    t = 0
    for i in range(max(map(len, people))):
        for p, those in enumerate(people):
            if i < len(those):
                sums.rounds.decided(t, p)
                if those[i][1] is not None:
                    sums.rounds.rewarded(t, *those[i])
                t += 1
    with without_noise():
        H, b = sums.release(sums.rounds.people(t), weigh, weights, a, F, B)
    return np.rint(UNIT * np.concatenate([a * svec(H), b]))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([1, 1, 2, 3, 10]),
    link=st.sampled_from([*LINKS, *WRONG_LINKS]),
    once=st.booleans(),
    adjacency=st.sampled_from(["replace", "zero_out"]),
    adversary=st.booleans(),
)
def test_no_two_histories_of_a_person_are_farther_apart_than_was_paid(seed, n, link, once, adjacency, adversary):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 5))
    budget = Budget(1.0, 1e-5, adjacency=adjacency, unit="person")
    with np.errstate(all="ignore"):  # of links that are wrong
        policy = policy_with(link, dim=d, budget=budget, theta_bound=2.0)
    sums = policy.sums
    theta = rng.standard_normal(d)
    theta *= 2.0 * rng.random() / np.linalg.norm(theta)

    def history():
        axis = rng.standard_normal(d)
        rounds = []
        for _ in range(n):
            x = axis * rng.choice([-1.0, 1.0]) if adversary else rng.standard_normal(d)
            x = x / np.linalg.norm(x) * (1.0 if adversary else rng.random())
            rounds.append((x, None if rng.random() < 0.2 else float(rng.integers(2))))
        return rounds

    for t in range(n):
        sums.rounds.decided(t, 5)
    people = sums.rounds.people(n)
    η = float(once)
    a, F, B = policy.contribution.bounds(people, η)
    α = rng.random()
    ω = α / policy.sums.shifts(people, a, F, B)
    absent = [(np.zeros(d), None)] * n
    pairs = [(history(), absent if adjacency == "zero_out" else history()) for _ in range(2)]
    for one, other in pairs:
        with np.errstate(all="ignore"):
            P, Q = (sums_of([those], policy.contribution.weigh(theta, η), ω, a, F, B) for those in (one, other))
        slack = 4 * math.sqrt(len(P))
        assert np.linalg.norm(P - Q) <= α * UNIT + slack


def test_the_bound_is_nearly_attained():
    """Opposite arms in all rounds: they move a release by most of what it costs."""
    for n, once in ((1, True), (4, False)):
        policy = policy_with("logistic", dim=2, theta_bound=3.0)
        for t in range(n):
            policy.sums.rounds.decided(t, 5)
        people = policy.sums.rounds.people(n)
        a, F, B = policy.contribution.bounds(people, float(once))
        ω = 1.0 / policy.sums.shifts(people, a, F, B)
        weigh = policy.contribution.weigh(np.zeros(2), float(once))
        P, Q = (sums_of([[(np.array([x, 0.0]), 1.0)] * n], weigh, ω, a, F, B) for x in (1.0, -1.0))
        assert np.linalg.norm(P - Q) / UNIT > 0.85


@pytest.mark.thorough
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_person_moves_nothing_but_its_own_contribution(seed):
    """What two histories of one person change in the sum of many, over several blocks, is the same without the others.

    Bit for bit, and also where rewards come in one world and not in the other.
    """
    rng = np.random.default_rng(seed)
    visits = rng.integers(1, 60, size=60)
    everybody = [[(ball(rng, 1, 3)[0], float(rng.random())) for _ in range(n)] for n in visits]
    nobody = [[(x, None) for x, _ in those] for those in everybody]
    p = int(rng.integers(60))
    other = [(ball(rng, 1, 3)[0], float(rng.random()) if rng.random() < 0.5 else None) for _ in range(visits[p])]
    weigh = policy_with("probit").contribution.weigh(np.array([0.3, -0.4, 0.5]), 0.0)
    weights, B = rng.random(60) / 60, rng.random(60)

    def change(rest):
        one, two = (
            sums_of([*rest[:p], mine, *rest[p + 1 :]], weigh, weights, 1.0, 0.2, B) for mine in (everybody[p], other)
        )
        return one - two

    assert np.array_equal(change(everybody), change(nobody))
    assert np.abs(change(nobody)).max() > 0


# ------------------------------------------------------------------------------------------------- the price


def test_nobody_pays_more_than_the_total_and_rewards_do_not_matter(told):
    """The same decisions, with all rewards, with some, and with none: weights of all releases are equal."""
    weights = []
    for heard in (1.0, 0.5, 0.0):
        policy, rng = policy_with(horizon=300), np.random.default_rng(3)
        told.clear()
        for _ in range(300):
            decision = policy.select(np.eye(3)[:1], person=int(rng.integers(40)))
            if rng.random() < heard:
                policy.update(decision, 1.0)
        weights.append([w for _, w in told])
    for some in weights[1:]:
        assert all(np.array_equal(w, v) for w, v in zip(weights[0], some, strict=True))


@settings(max_examples=30, deadline=None)
@given(shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40), seed=st.integers(0, 2**32 - 1))
def test_what_is_paid_adds_up_to_at_most_one(shares, seed):
    rng = np.random.default_rng(seed)
    sums = PersonSums(2, budget=BUDGET, releases=40, horizon=10_000, rng=rng)
    paid: Counter[int] = Counter()
    t = 0
    for share in shares:
        for _ in range(int(rng.integers(1, 10))):
            sums.rounds.decided(t, int(rng.integers(20)))
            t += 1
        people = sums.rounds.people(t)
        whose = sums.rounds.kept()["person"][people.order[people.start]].tolist()
        for key, α in zip(whose, sums.pay(people, share), strict=True):
            paid[key] += α**2
    assert max(paid.values()) <= 1 + 1e-12
    assert sums.persons == len(paid)


@pytest.mark.thorough
def test_the_run_costs_one_gaussian_and_its_noise_has_the_stated_scale():
    policy = policy_with(horizon=5000)
    (row,) = policy.ledger.rows()
    z = calibrate(Gaussian, BUDGET)
    assert row.release == Gaussian(z, adjacency="replace")
    assert z <= policy.sums.noise <= z * (1 + 1e-5)
    policy.sums.rounds.decided(0, person=1)  # whose reward never comes
    nothing = policy.sums.rounds.people(1), lambda arms, r: (0 * r, r), np.zeros(1), 1.0, 1.0, np.ones(1)
    noise = np.concatenate([policy.sums.release(*nothing)[1] for _ in range(2000)])
    # 6,000 values: a standard deviation is off by 6.5 of its standard errors with a probability of 1e-10
    assert abs(noise.std() / z - 1) < 6.5 / math.sqrt(2 * 6000)


@pytest.mark.parametrize("link", ["logistic", "probit", "linear"])
@given(e=st.floats(0.05, 1.95))
@settings(max_examples=20)
def test_the_slope_over_the_secant_is_read_off_the_curvature(link, e):
    """Arms u and θ = e·u: θᵀhθ = (μ(e) − μ(0))·e, and γ is that of e, at least 0.3, but for the step of the grid."""
    policy = policy_with(link, theta_bound=2.0, horizon=50)
    mean, u = policy.link.mean, np.array([0.6, 0.0, 0.8])
    w = (float(mean(np.array(e))) - float(mean(0.0))) / e
    found = policy.contribution.slope(w * np.outer(u, u), e * u)
    here, there = (
        float(policy.link.derivative(np.array(z))) * z / (float(mean(np.array(z))) - float(mean(0.0)))
        for z in (e, e + 1 / 30)
    )
    assert max(there, 0.3) - 1e-3 <= found <= min(max(here, 0.3), 1.0) + 1e-3


@tabled("steepest", [math.nan, math.inf, 0.0, -1.0, 1e-200])
def test_a_link_without_a_steepest_slope_is_refused(steepest):
    with pytest.raises(ValueError, match="link must have a largest slope from 1e-100"):
        policy_with(wrong_link(get_link("logistic").mean, steepest=steepest))


@pytest.mark.parametrize("link", WRONG_LINKS)
def test_a_wrong_link_leaves_all_that_is_public_finite(link):
    with np.errstate(all="ignore"):
        policy = policy_with(link, dim=2, horizon=60)
        for t in range(60):
            policy.update(policy.select(np.eye(2), person=t % 7), float(t % 2))
    assert policy.releases > 3
    for name, value in vars(policy.public).items():
        assert np.isfinite(value).all(), name


# ------------------------------------------------------------------------------------------- what it is for


def average_regret(make, seeds: range, rounds: int = 2000, persons: int = 100) -> float:
    total = 0.0
    for seed in seeds:
        rng, policy = np.random.default_rng([seed, 1]), make(np.random.default_rng([seed, 2]))
        theta = rng.standard_normal(3)
        theta *= 2.0 / np.linalg.norm(theta)
        for _ in range(rounds):
            arms = ball(rng, 10, 3)
            p = get_link("probit").mean(arms @ theta)
            decision = policy.select(arms, person=int(rng.integers(persons)))
            policy.update(decision, float(rng.random() < p[decision.index]))
            total += float(p.max() - p[decision.index])
    return total / len(seeds)


def test_it_learns_about_people_who_come_back():
    """Uniform choices regret some 800."""
    budget = Budget(2.0, 1e-3, unit="person")
    kind = PersonPrivateGLM
    regret = average_regret(
        lambda rng: kind(3, "probit", budget=budget, horizon=2000, theta_bound=2.0, rng=rng), range(2)
    )
    assert regret < 100


# --------------------------------------------------------------------------------------------------- state


def played(policy: PersonPrivateGLM, rounds: int, rng: np.random.Generator) -> list[int]:
    chosen = []
    for _ in range(rounds):
        decision = policy.select(ball(rng, 5, 3), person=f"p{rng.integers(30)}")
        chosen.append(decision.index)
        if rng.random() < 0.8:
            policy.update(decision, float(rng.random() < 0.5))
    return chosen


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s["rounds"].update(arm=s["rounds"]["arm"][:, :2]),
        lambda s: s["rounds"].update(arm=2 * s["rounds"]["arm"]),
        lambda s: s["rounds"].update(person=s["rounds"]["person"][:-1]),
        lambda s: s["rounds"].update(came=np.zeros_like(s["rounds"]["came"])),
        lambda s: s["rounds"].pop("reward"),
        lambda s: s["rounds"].update(reward=np.full_like(s["rounds"]["reward"], math.nan)),
        lambda s: s.update(left=s["left"] + 0.5),
        lambda s: s.update(left=np.ones(10**6)),
        lambda s: s.pop("left"),
        lambda s: s.update(rounds=None),
    ],
)
def test_a_state_that_does_not_fit_together_is_refused(damage):
    policy = policy_with(horizon=400)
    played(policy, 100, np.random.default_rng(5))
    saved = policy.sums.kept()
    policy.sums.resume(policy.sums.kept())  # the whole one is not
    damage(saved)
    with pytest.raises(ValueError, match="must"):
        policy.sums.resume(saved)


def test_a_state_in_which_somebody_has_not_paid_is_refused(tmp_path):
    policy = policy_with(horizon=400)
    played(policy, 100, np.random.default_rng(5))
    kept = policy.sums.kept()
    policy.sums.resume(kept | {"left": kept["left"][:-1]})  # who would then pay once more from the start
    policy.save(tmp_path / "state")
    with pytest.raises(ValueError, match=r"left must be of the \d+ persons who have paid"):
        Policy.load(tmp_path / "state", unattended=True)


def test_raw_rounds_take_at_most_a_third_more_than_their_bytes():
    for rounds in (1000, 5000, 20_000):
        kept = Rounds(5)
        for t in range(rounds):
            kept.decided(t, t % 100)
        held = sum(column.nbytes for column in vars(kept).values() if isinstance(column, np.ndarray))
        raw = rounds * 8 * (5 + 1 + 1)  # arm, reward, person
        assert held <= 1.3 * raw


# -------------------------------------------------------------------------------------------------- errors


@tabled(
    ("parameters", "error", "message"),
    [
        ({"budget": Budget(1.0, 1e-5, unit="round")}, AdjacencyMismatch, "person"),
        ({"budget": Budget(1.0, 0.0, unit="person")}, ValueError, "delta must be positive"),
        ({"growth": 1.0}, ValueError, "growth must be at least 1.02"),
        ({"spending": 1.0}, ValueError, "spending must"),
        ({"spending": 0.0}, ValueError, "spending must"),
        ({"exploration": -1.0}, ValueError, "exploration must"),
        ({"theta_bound": 0.0}, ValueError, "theta_bound must"),
        ({"first_batch": 0}, ValueError, "first_batch must"),
        ({"reward_range": (0.0, math.inf)}, ValueError, "reward_range must be finite"),
        ({"rounds_per_person": 2}, ValueError, "rounds_per_person must not be given"),
    ],
)
def test_refuses(parameters, error, message):
    with pytest.raises(error, match=message):
        policy_with(**parameters)
