"""The private algorithms as published: plain transcriptions of the printed pseudo-code play the same arms.

A transcription calls nothing of the packages but links (and, where a paper leaves a design open, the design). It draws
from a generator of the same seed, in the order in which the pseudo-code draws.
"""

import math
import warnings
from functools import partial

import numpy as np
import pytest

from accounting import ZCDP, Budget, Ledger, TreeAggregation, epsilon
from accounting.errors import NotPrivateWarning
from dpbandits import Policy
from dpbandits.policies import DPHDB, Doubling, JointDPGLM, ShuffleGLM
from dpbandits.policy.private import PrivatePolicy
from dpkit.geometry import g_optimal_design
from dpkit.models.links import get_link

pytestmark = pytest.mark.filterwarnings("ignore::accounting.errors.NotPrivateWarning")


def onto_ball(point, radius):
    length = math.sqrt(sum(v * v for v in point))
    return point if length <= radius else point * radius / length


def onto_ellipsoid(point, V, centre, radius):
    """The closest point of {‖θ − centre‖_V ≤ radius}, by bisection for the multiplier."""
    if (point - centre) @ V @ (point - centre) <= radius**2:
        return point
    identity, low, high = np.eye(len(point)), 0.0, 1.0

    def at(multiplier):
        return centre + np.linalg.solve(identity + multiplier * V, point - centre)

    def outside(multiplier):
        return (at(multiplier) - centre) @ V @ (at(multiplier) - centre) > radius**2

    while outside(high):
        high *= 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if outside(middle) else (low, middle)
    return at(high)


# ------------------------------------------------------------------------------------------ Algorithm 2 of Sarmasarkar


class NaiveTree:
    """Section J.3: a node for every interval [a·2^k, (a + 1)·2^k), with noise when its last leaf comes."""

    def __init__(self, d, sigma):
        self.leaves, self.nodes, self.d, self.sigma = [], {}, d, sigma

    def add(self, leaf, rng):
        self.leaves.append(leaf)
        t, k = len(self.leaves), 0
        while t % 2**k == 0:
            Z = rng.normal(0.0, self.sigma, (self.d, self.d))
            self.nodes[t - 2**k, t] = sum(self.leaves[t - 2**k :]) + (Z + Z.T) / 2
            k += 1

    def prefix(self):
        total, start, t = np.zeros((self.d, self.d)), 0, len(self.leaves)
        for k in reversed(range(40)):  # the largest interval first
            if start + 2**k <= t:
                total = total + self.nodes[start, start + 2**k]
                start += 2**k
        return total


def algorithm_2(rounds, rewards, *, link, eps, delta, S, lam, gamma, beta, T, d, seed):
    """The arms, θ_o and θ_τ at the end, and how often either was fitted."""
    rng, mu = np.random.default_rng(seed), link.mean
    kappa, kappa_star, R = link.kappa(S), link.kappa_star(S), 1.0
    m = math.ceil(math.log2(T) + 1)
    sigma_noise = math.sqrt(72 * m * math.log(32 / delta) ** 2 / (kappa_star**2 * eps**2))
    lam_max = (4 * math.sqrt(d) + 2) / (4 * math.sqrt(d) + 1) * lam
    cutoff = {"o": 8 * d * R**2 * kappa * gamma**2 * math.log(T), "tau": 4 * math.log2(1 + T * R**3 / d)}
    made = {"o": 0, "tau": 0}

    def optimizer(data, project, which):  # Lemma U.4 at ρ = ε²/(144c·ln(8/δ))
        rho, n, L = eps**2 / (144 * cutoff[which] * math.log(8 / delta)), len(data), R + R * S
        steps = math.ceil((n**2 * rho + math.log(T**6)) / d)
        eta, sigma = 2 * S / (L * math.sqrt(steps)), math.sqrt(2 * L**2 * steps / (n**2 * rho))
        theta, seen = project(np.zeros(d)), []
        for _ in range(steps):
            seen.append(theta)
            g = sum((float(mu(x @ theta)) - r) * x for x, r in data) / n + lam_max / n * theta
            theta = project(theta - eta * (g + rng.normal(0.0, sigma, d)))
        return sum(seen) / steps

    trees = {"V": NaiveTree(d, sigma_noise), "H": NaiveTree(d, sigma_noise)}
    T_o, others, played = [], [], []
    theta_o, theta_tau, H_tau = np.zeros(d), np.zeros(d), lam * np.eye(d)
    for X, reward in zip(rounds, rewards, strict=True):
        V, H = (lam * np.eye(d) + trees[name].prefix() for name in ("V", "H"))
        width = [x @ np.linalg.inv(V) @ x for x in X]
        if max(width) >= 1 / (gamma**2 * kappa * R**2):
            i = int(np.argmax(width))
            T_o.append((X[i], reward[i]))
            trees["V"].add(np.outer(X[i], X[i]), rng)
            trees["H"].add(np.zeros((d, d)), rng)
            if made["o"] < math.floor(cutoff["o"]):
                made["o"] += 1
                theta_o = optimizer(T_o, lambda v: onto_ball(v, S), "o")
        else:
            if max(np.linalg.eigvals(H - 2 * H_tau).real) > 0:
                H_tau = H
                if made["tau"] < math.floor(cutoff["tau"]):
                    made["tau"] += 1
                    radius = gamma * math.sqrt(kappa)
                    theta_tau = optimizer(others, partial(onto_ellipsoid, V=V, centre=theta_o, radius=radius), "tau")
            ucb = [x @ theta_o + gamma * math.sqrt(kappa * w) for x, w in zip(X, width, strict=True)]
            lcb = [x @ theta_o - gamma * math.sqrt(kappa * w) for x, w in zip(X, width, strict=True)]
            left = [k for k in range(len(X)) if ucb[k] >= max(lcb)]
            bonus = [beta * math.sqrt(x @ np.linalg.inv(H_tau) @ x) for x in X]
            i = max(left, key=lambda k: X[k] @ theta_tau + bonus[k])
            others.append((X[i], reward[i]))
            slope = float(link.derivative(X[i] @ theta_o)) / math.e
            trees["H"].add(slope * np.outer(X[i], X[i]), rng)
            trees["V"].add(np.zeros((d, d)), rng)
        played.append(i)
    return played, theta_o, theta_tau, made


def instance(T, K, d, link, seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d)
    theta *= 1.8 / np.linalg.norm(theta)
    X = rng.normal(size=(T, K, d))
    X /= np.linalg.norm(X, axis=2, keepdims=True) * rng.uniform(1.0, 1.5, size=(T, K, 1))
    return list(X), [(rng.random(K) < link.mean(x @ theta)).astype(float) for x in X], theta


def play(policy, rounds, rewards):
    played = []
    for X, r in zip(rounds, rewards, strict=True):
        decision = policy.select(X)
        policy.update(decision, float(r[decision.index]))
        played.append(decision.index)
    return played


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "seed"), [("logistic", 1), ("probit", 2)])
def test_algorithm_2_as_printed_plays_the_same_arms(name, seed):
    link, T, d, S, eps, delta = get_link(name), 110, 2, 2.0, 60.0, 0.02
    constants = {"lam": 4.0, "gamma": 0.7, "beta": 0.6}
    rounds, rewards, _ = instance(T, 5, d, link, seed)
    played, theta_o, theta_tau, made = algorithm_2(
        rounds, rewards, link=link, eps=eps, delta=delta, S=S, T=T, d=d, seed=seed, **constants
    )
    policy = JointDPGLM(
        d,
        name,
        budget=Budget(eps, delta),
        horizon=T,
        theta_bound=S,
        parameters="published",
        ridge=4.0,
        gamma=0.7,
        exploration=0.6,
        rng=np.random.default_rng(seed),
    )
    assert play(policy, rounds, rewards) == played
    assert min(made["o"] / 5, made["tau"] / 2) >= 1  # both criteria were met
    assert (policy.calls_o, policy.calls) == (made["o"], made["tau"])
    np.testing.assert_allclose(policy.theta_o, theta_o, atol=1e-9)
    np.testing.assert_allclose(policy.theta, theta_tau, atol=1e-9)


def test_the_constants_of_section_j_1():
    policy = JointDPGLM(
        3,
        "probit",
        budget=Budget(4.0, 0.02),
        horizon=5000,
        theta_bound=2.0,
        failure_probability=0.02,
        parameters="published",
    )
    # computed by hand from (50) to (52) with C = 1, κ* = √(2π), κ = √(2π)e²
    kappa_star = math.sqrt(2 * math.pi)
    kappa, L_T, L_d = kappa_star * math.exp(2), math.log(5000 / 0.02), math.log(50)
    lam = 1.25 * 3 * L_T + 100 * math.sqrt(3) * L_d * math.log(5000) * (math.sqrt(L_T) + math.sqrt(3)) / (
        4 * kappa_star
    )
    root = 3**0.25 * math.sqrt(L_T) * math.sqrt(L_d) * (3 + L_T) ** 0.25
    assert policy.ridge == pytest.approx(lam)
    assert policy.exploration == pytest.approx(math.sqrt(3 * L_T) + 2 * root / 2)
    gamma = 2 * math.sqrt(3 * L_T) + 2 * root / math.sqrt(4 * kappa_star)
    gamma += 2**4 * 3 * math.sqrt(kappa) * L_T * math.sqrt(L_d) / 4
    assert policy.gamma == pytest.approx(gamma)


def test_renyi_accounting_gives_a_third_of_the_budget_to_a_tree_and_to_the_fits():
    policy = JointDPGLM(
        3, "probit", budget=Budget(6.0, 0.03), horizon=500, parameters="published", calibration="renyi", policy_calls=7
    )
    kappa_star = math.sqrt(2 * math.pi)
    tree = TreeAggregation(policy.V.sigma * kappa_star, 500)
    assert epsilon(tree, 0.01, accountant="rdp") == pytest.approx(2.0)
    assert epsilon(7 * ZCDP(policy.rhos[1]), 0.01, accountant="rdp") == pytest.approx(2.0)


# ------------------------------------------------------------------------------------------ Algorithm 1 of Sarmasarkar


def summed(records, Delta, eps, delta, d, rng):
    """Algorithms 4 to 6, entry by entry; the users' noise bits are drawn together."""
    n, m = len(records), len(records[0])
    g = math.ceil(max(2 * math.sqrt(n), d, 4))
    b = math.ceil(24e4 * g**2 * math.log(4 * (d**2 + 1) / delta) ** 2 / (eps**2 * n))
    uniform, ones = rng.random((n, m)), [0] * m
    for user in range(n):
        for k in range(m):
            w = (records[user][k] + Delta) * g / Delta
            ones[k] += math.floor(w) + (uniform[user, k] < w - math.floor(w))
    bits = rng.binomial(n * b, 0.25, m)
    return [Delta / g * ((4 * (ones[k] + int(bits[k])) - b * n) / 4) - n * Delta for k in range(m)]


def algorithm_1(rounds, rewards, *, link, eps, delta, S, lengths, T, d, seed):
    rng, R = np.random.default_rng(seed), 1.0
    kappa, kappa_star = link.kappa(S), link.kappa_star(S)
    M = 3
    sigma = R * math.log(d**2 / delta) / (kappa_star * eps)
    nu = R * S**2 / eps * math.sqrt(d * math.log(T * d / delta) ** 3)
    lam = 20 * d * R * math.log(T) + sigma * (2 * math.sqrt(math.log(2 * d * M * T / delta)) + 4 * math.sqrt(d))
    gamma = R * S * math.sqrt(lam) + math.sqrt(4 * R * S * nu)
    lam_max = lam + 8 * R * math.log(d**2 / delta) / (kappa_star * eps) * (
        4 * math.sqrt(d) + 2 * math.sqrt(math.log(2 * M * T / delta))
    )
    thetas, designs, played, t = [], [], [], 0

    def length(x, V):
        return math.sqrt(x @ np.linalg.inv(V) @ x)

    def scale(x):
        if not thetas:
            return 1.0
        beta = math.exp(R * min(2 * S, gamma * math.sqrt(kappa) * length(x, designs[0])))
        return float(link.derivative(x @ thetas[0])) / beta

    def p_gd(batch, eps, delta):
        n = len(batch)
        L = R * S + S + S * lam_max / n
        steps = math.ceil(eps**2 * n**2 / (d * math.log(n * d / delta) ** 3))
        eta, theta, seen = 2 * 2 * S / (L * math.sqrt(steps)), np.zeros(d), []
        for _ in range(steps):
            seen.append(theta)
            rows = [(float(link.mean(x @ theta)) - r) * x + lam_max / n * theta for x, r in batch]
            total = summed(rows, L, eps / (2 * math.sqrt(2 * steps * math.log(1 / delta))), delta / (steps + 1), d, rng)
            theta = onto_ball(theta - eta * np.array(total) / n, S)
        return sum(seen) / steps

    for k in range(len(lengths) + 1):
        batch, B_k = [], lengths[k] if k < len(lengths) else T - t
        for X, reward in zip(rounds[t : t + B_k], rewards[t : t + B_k], strict=True):
            left = list(range(len(X)))
            for j in range(k):
                half = {i: gamma * math.sqrt(kappa) * length(X[i], designs[j]) for i in left}
                best = max(X[i] @ thetas[j] - half[i] for i in left)
                left = [i for i in left if X[i] @ thetas[j] + half[i] >= best]
            scaled = [math.sqrt(scale(X[i])) * X[i] for i in left]
            design = g_optimal_design(scaled, tolerance=1.0)
            V = sum(p * np.outer(x, x) for p, x in zip(design, scaled, strict=True))
            assert max(x @ np.linalg.inv(V) @ x for x in scaled) <= 2 * d * (1 + 1e-9)  # Lemma 4.3
            shares = dict(zip(left, design, strict=True))
            uniform = rng.random(len(X))
            i = max(range(len(X)), key=lambda i: shares.get(i, 0.0) / -math.log(uniform[i]))
            batch.append((X[i], reward[i]))
            played.append(i)
        t += B_k
        if k < len(lengths):
            entries = [(i, j) for i in range(d) for j in range(i, d)]
            rows = [[scale(x) * x[i] * x[j] for i, j in entries] for x, _ in batch]
            total = summed(rows, 1 / kappa_star if k else 1.0, eps / 2, delta / 2, d, rng)
            V = lam * np.eye(d)
            for (i, j), value in zip(entries, total, strict=True):
                V[i, j] += value
                V[j, i] = V[i, j]
            theta = p_gd(batch, eps / 2, delta / 2)
            designs.append(V)
            thetas.append(theta)
    return played, thetas, designs


def test_algorithm_1_as_printed_plays_the_same_arms():
    link, T, d, S, eps, delta, lengths = get_link("logistic"), 120, 2, 1.0, 30.0, 0.02, [25, 45]
    rounds, rewards, _ = instance(T, 5, d, link, 3)
    played, thetas, designs = algorithm_1(
        rounds, rewards, link=link, eps=eps, delta=delta, S=S, lengths=lengths, T=T, d=d, seed=4
    )
    policy = ShuffleGLM(
        d,
        "logistic",
        budget=Budget(eps, delta),
        horizon=T,
        theta_bound=S,
        batches=lengths,
        parameters="published",
        rng=np.random.default_rng(4),
    )
    assert play(policy, rounds, rewards) == played
    np.testing.assert_allclose(policy.thetas, thetas, atol=1e-9)
    np.testing.assert_allclose(policy.designs, designs, rtol=1e-9, atol=1e-9)


def test_the_first_batch_as_printed_is_longer_than_any_run():
    policy = ShuffleGLM(3, "probit", budget=Budget(4.0, 0.02), horizon=10**6, theta_bound=2.0, parameters="published")
    assert policy.ends == []


# ------------------------------------------------------------------------------------------ Algorithm 3 of Han et al.


def algorithm_3(contexts, rewards, *, link, eps, delta, S, K, t_0, h, bound, T, d, seed):
    rng, mu = np.random.default_rng(seed), lambda z: float(link.mean(z))
    corners = [sign * S * np.eye(d)[i] for sign in (1, -1) for i in range(d)]
    samples = [[] for _ in range(K)]
    path = [[np.zeros(d), np.zeros(d)] for _ in range(K)]  # θ_0 = θ_1 = 0
    d_t, forced, played = [np.zeros(d)] * K, [np.zeros(d)] * K, []

    def step(i):
        """Algorithm 2 on the newest sample of arm i."""
        t, (x, r) = len(samples[i]), samples[i][-1]
        now, before = ((mu(x @ theta) - r) * x for theta in (path[i][t], path[i][t - 1]))
        d_t[i] = now if t == 1 else now + (1 - 1 / (t + 1)) * (d_t[i] - before)
        scale = 4 * (2 * S) * bound * math.sqrt(math.log(T) * math.log(1 / delta)) / (eps * math.sqrt(t))
        noise = rng.laplace(0.0, scale, 2 * d)
        v = min(range(2 * d), key=lambda k: d_t[i] @ corners[k] + noise[k])
        path[i].append(path[i][t] + 1 / (t + 1) * (corners[v] - path[i][t]))

    for i in range(K):
        for t in range(t_0):
            samples[i].append((contexts[i * t_0 + t], rewards[i * t_0 + t][i]))
            played.append(i)
            step(i)
        forced[i] = path[i][-1]
    for X, reward in zip(contexts[K * t_0 :], rewards[K * t_0 :], strict=True):
        rough = [mu(X @ forced[i]) for i in range(K)]
        selected = [i for i in range(K) if rough[i] > max(rough) - h / 2]
        a = max(selected, key=lambda i: mu(X @ path[i][-1]))
        played.append(a)
        for i in range(K):
            samples[i].append((X, reward[i]) if i == a else (np.zeros(d), mu(0.0)))
            step(i)
    return played, [theta[-1] for theta in path], forced


@pytest.mark.parametrize("margin", [0.3, math.inf])
def test_algorithm_3_as_printed_plays_the_same_arms(margin):
    T, d, K, S, t_0 = 200, 4, 3, 1.0, 5
    rng = np.random.default_rng(5)
    thetas = rng.uniform(-1, 1, (K, d)) / d
    contexts = list(rng.uniform(-1, 1, (T, d)))
    rewards = [np.clip(thetas @ X + rng.normal(0, 0.1, K), -2, 2) for X in contexts]
    played, theta, forced = algorithm_3(
        contexts,
        rewards,
        link=get_link("linear"),
        eps=400.0,
        delta=0.01,
        S=S,
        K=K,
        t_0=t_0,
        h=margin,
        bound=5.0,
        T=T,
        d=d,
        seed=6,
    )
    policy = DPHDB(
        d,
        K,
        "linear",
        budget=Budget(400.0, 0.01),
        horizon=T,
        reward_range=(-2.0, 2.0),
        parameters="published",
        forced=t_0,
        margin=margin,
        rng=np.random.default_rng(6),
    )
    assert policy.gradient_bound == 5.0  # βD + L with β = 1, D = 2 and |μ − r| ≤ 3
    assert play(policy, contexts, rewards) == played
    assert len(set(played[K * t_0 :])) > 1
    np.testing.assert_allclose(policy.theta, theta, atol=1e-9)
    np.testing.assert_allclose(policy.forced_theta, forced, atol=1e-9)


# ---------------------------------------------------------------------------------------------------- no guarantee

MADE = {
    "JointDPGLM": lambda **more: JointDPGLM(2, budget=Budget(8.0, 0.02), horizon=40, parameters="published", **more),
    "ShuffleGLM": lambda **more: ShuffleGLM(
        2, budget=Budget(8.0, 0.02), horizon=40, batches=[10], parameters="published", **more
    ),
    "DPHDB": lambda **more: DPHDB(2, 2, budget=Budget(8.0, 0.02), horizon=40, parameters="published", **more),
}


@pytest.mark.parametrize("name", MADE)
def test_it_warns_and_promises_nothing(name):
    with pytest.warns(NotPrivateWarning, match="not private as claimed"):
        policy = MADE[name]()
    assert not hasattr(policy, "privacy")
    assert not isinstance(policy, PrivatePolicy)
    assert (policy.ledger, policy.trust) == (None, "none")
    assert "not private" in repr(policy)
    for told in ({"ledger": Ledger(Budget(8.0, 0.02))}, {"checkpoint": "here"}, {"rounds_per_person": 2}):
        with pytest.raises(ValueError, match=f"{next(iter(told))} must not be given with parameters='published'"):
            MADE[name](**told)


@pytest.mark.parametrize("name", MADE)
def test_a_saved_one_goes_on_bit_for_bit(name, tmp_path):
    arms = np.array([0.3, -0.7]) if name == "DPHDB" else np.array([[0.6, 0.0], [0.0, 0.9], [0.5, 0.5]])
    policy = MADE[name](rng=np.random.default_rng(1))
    for t in range(15):
        policy.update(policy.select(arms), float(t % 3 == 0))
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state")
    assert type(again) is type(policy)
    for t in range(15):
        one, other = policy.select(arms), again.select(arms)
        assert one.index == other.index
        policy.update(one, float(t % 2))
        again.update(other, float(t % 2))


def test_what_asks_for_a_private_policy_does_not_take_it():
    with pytest.raises(ValueError, match="parameters must not ask for an algorithm as published"):
        Doubling(2, "JointDPGLM", budget=Budget(4.0, 1e-6), parameters={"parameters": "published"})


def test_other_parameters_make_the_private_policy():
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotPrivateWarning)
        policy = JointDPGLM(2, budget=Budget(8.0, 0.02), horizon=4000)
    assert isinstance(policy, JointDPGLM)
    assert policy.privacy().epsilon == pytest.approx(8.0)


def test_algorithm_2_as_printed_tells_who_explored():
    """docs/errata.md: whether θ_o changed after a round tells that round's own arms, with certainty at any ε."""
    changed = []
    for length in (1.0, 0.01):
        policy = JointDPGLM(
            2,
            budget=Budget(0.1, 0.02),
            horizon=64,
            parameters="published",
            ridge=1e5,
            gamma=1.0,
            exploration=1.0,
            rng=np.random.default_rng(0),
        )
        policy.threshold = 1e-6  # between 1/λ and 10⁻⁴/λ
        before = policy.theta_o.copy()
        policy.update(policy.select([[length, 0.0], [0.0, length]]), 1.0)
        changed.append(bool((policy.theta_o != before).any()))
    assert changed == [True, False]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::accounting.errors.NotPrivateWarning")
def test_later_actions_of_algorithm_2_as_printed_tell_who_explored():
    """docs/errata.md: round 3 plays another arm than its longest in almost half of the runs in which round 2 explored,
    and in none of the others. Shares that are consistent with (0.5, 0.02) would pass for these with probability 2e-9.
    """
    from scipy.special import betaincinv

    epsilon, delta, runs, doubt = 0.5, 0.02, 300, 1e-9
    gamma = math.sqrt(2500.0 / get_link("logistic").kappa(12.0)) / 0.7
    arms = [[0.3, 0.0], [-0.299, 0.0], [0.0, 0.298], [0.0, -0.297]]
    counts = []
    for length in (1.0, 0.1):
        others = 0
        for seed in range(runs):
            policy = JointDPGLM(
                2,
                budget=Budget(epsilon, delta),
                horizon=64,
                theta_bound=12.0,
                parameters="published",
                ridge=2500.0,
                gamma=gamma,
                exploration=1.0,
                rng=np.random.default_rng([seed, 5]),
            )
            policy.update(policy.select(arms), 0.0)
            policy.update(policy.select([[length, 0.0]]), 1.0)
            others += policy.select(arms).index != 0
        counts.append(others)
    low = float(betaincinv(counts[0], runs - counts[0] + 1, doubt))
    high = float(betaincinv(counts[1] + 1, runs - counts[1], 1.0 - doubt))
    assert low > math.exp(epsilon) * high + delta
