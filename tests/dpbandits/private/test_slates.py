"""Slates: what is shown, what clicks say, how they are learned, and the worlds in which pages are played."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled

from accounting import Budget
from dpbandits import Pending, Policy, Released, simulate
from dpbandits.lab.environments import GLM, SlateRound, Slates
from dpbandits.lab.simulation.play import generator
from dpbandits.policies import CascadeThompson, CascadeUCB, OnePassPrivateGLM, SlatePrivateGLM
from dpbandits.policy.choices import Perturbed
from dpbandits.policy.chosen import SlateChoice
from dpbandits.policy.slates import SlateDecision, ranked
from dpbandits.private.parts.slates import SlateRecord
from dpkit.geometry import summed_pairs_sensitivity
from dpkit.models import Link
from dpkit.moments import PairSums, SumBounds

BUDGET = Budget(4.0, 1e-5)
LOOKS = (1.0, 0.3, 0.6)
SHAPES = [(7, 3), (5, 3), (2, 3), (3, 4, 3)]
EXAMINATIONS = ["cascade", LOOKS, (1.0, 1.0, 1.0)]


def seeded(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def private(k: int = 3, dim: int = 3, **more) -> SlatePrivateGLM:
    return SlatePrivateGLM(dim, k, **{"budget": BUDGET, "horizon": 60, "rng": seeded(), **more})


def balls(rng, *shape: int) -> np.ndarray:
    X = rng.standard_normal(shape)
    return X / np.maximum(1.0, np.linalg.norm(X, axis=-1, keepdims=True))


# -------------------------------------------------------------------------------------------- what is shown


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
@settings(max_examples=60, deadline=None)
def test_ranked_is_the_beginning_of_a_stable_sort(scores, data):
    count = data.draw(st.integers(1, len(scores)))
    expected = sorted(range(len(scores)), key=lambda i: -scores[i])[:count]
    assert ranked(np.array(scores, float), count).tolist() == expected


@pytest.mark.parametrize("make", [private, lambda **more: CascadeUCB(3, 3, **more)], ids=["private", "reference"])
def test_the_best_arms_are_shown_and_the_best_of_all_where_most_people_look(make):
    policy = make(examination=LOOKS)
    arms = balls(seeded(1), 7, 3)
    decision = policy.select(arms)
    order = np.argsort(-decision.scores)[:3]
    assert decision.indices == (order[0], order[2], order[1])  # the second position is looked at least
    assert decision.index == order[0]
    assert np.allclose(decision.arms, arms[list(decision.indices)])
    assert isinstance(decision, SlateDecision)
    assert len(policy.select(arms[:2]).indices) == 2  # a shorter page


def test_every_slot_shows_the_best_of_its_own_arms():
    policy, arms = private(), balls(seeded(2), 3, 5, 3)
    decision = policy.select(arms)
    assert decision.indices == tuple(decision.scores.reshape(3, 5).argmax(axis=1))
    assert np.allclose(decision.arms, arms[np.arange(3), list(decision.indices)])
    assert 0.0 < decision.probability <= 1.0
    policy.update(decision, [0.0, 1.0])
    with pytest.raises(ValueError, match="one set for each of k=3 slots, got 2 sets"):
        policy.select(arms[:2])


# positions, and how an entry that was chosen elsewhere is given
@pytest.mark.parametrize("given", [list, tuple, np.array], ids=["list", "tuple", "array"])
@pytest.mark.parametrize("examination", EXAMINATIONS, ids=str)
def test_a_slate_that_was_chosen_elsewhere_is_learned_as_ones_own(examination, given):
    here, there = (private(examination=examination, horizon=400) for _ in range(2))
    rng = seeded(3)
    for _ in range(11):  # all of the first batch
        arms, clicks = balls(rng, 6, 3), (rng.random(3) < 0.5).astype(float).tolist()
        own = here.select(arms)
        registered = there.register(arms, given(own.indices))
        assert registered.indices == own.indices
        assert np.array_equal(registered.arms, own.arms)
        here.update(own, clicks)
        there.update(registered, clicks)
    assert here.sums.batch.any()
    assert np.array_equal(here.sums.batch, there.sums.batch)


# ----------------------------------------------------------------------------------- pages from what was released


def learned(examination) -> SlatePrivateGLM:
    """After a few releases."""
    policy, rng = private(examination=examination, exploration=1.0), seeded(3)
    for _ in range(50):
        policy.update(policy.select(balls(rng, 7, 3)), rng.random(3) < 0.5)
    policy.settle()
    return policy


@pytest.mark.parametrize("examination", EXAMINATIONS)
@pytest.mark.parametrize("shape", [(7, 3), (2, 3), (3, 5, 3)], ids=["one set", "fewer than k", "a set for each slot"])
def test_a_release_shows_the_pages_of_its_policy(examination, shape):
    policy, arms = learned(examination), balls(seeded(4), *shape)
    released = Released.from_json(policy.released().to_json())
    policy.rng.bit_generator.state = seeded(7).bit_generator.state
    rng = seeded(7)
    for _ in range(5):
        made, found = policy.select(arms), released.choose(arms, rng)
        assert (found.indices, found.index, found.probability) == (made.indices, made.index, made.probability)
    with pytest.raises(ValueError, match="one set for each of k=3 slots, got 2 sets"):
        released.choose(balls(seeded(), 2, 5, 3))


def test_many_pages_are_the_pages_of_a_loop():
    released, rounds = learned("cascade").released(), [balls(seeded(i), *shape) for i, shape in enumerate(SHAPES)]
    many, rng = released.choose_many(rounds, seeded(7), probabilities=True), seeded(7)
    alone = [released.choose(arms, rng) for arms in rounds]
    assert [*many] == alone
    assert many.slates == [one.indices for one in alone]
    assert many.indices.tolist() == [one.index for one in alone]
    assert many.probabilities.tolist() == [one.probability for one in alone]
    assert many[0] != SlateChoice((*many[0].indices[:2], 99), None)
    with pytest.raises(ValueError, match=r"arms\[1\]: arms must have shape"):
        released.choose_many([rounds[0], np.eye(2)])
    with pytest.raises(ValueError, match="a list of arrays, got 3"):
        released.choose_many(3)
    assert len(released.choose_many([])) == 0


def test_pages_of_public_candidates_leave_out_what_a_request_excludes():
    """The draws are those of a ranking of single choices, so that the first position is theirs."""
    released, arms = learned(LOOKS).released(), balls(seeded(4), 9, 3)
    ranking, excluded = released.rank(arms), [[], [0, 3, 8], [0, 1, 2, 3, 4, 5, 6]]
    found = ranking.choose_many(excluded, seeded(7))
    drawn = Perturbed(arms, *released.public.values()).parameters(3, seeded(7))
    for one, rows, parameter in zip(found, excluded, drawn, strict=True):
        left = np.delete(np.arange(9), rows)
        best = left[np.argsort(-(arms[left] @ parameter), kind="stable")][:3]
        assert one.indices == tuple(best[[0, 2, 1]] if len(best) == 3 else best)
        assert 0.0 < one.probability <= 1.0
    assert ranking.choose([*range(8)]).indices == (8,)


@pytest.mark.parametrize("shape", [(7, 3), (2, 3), (3, 5, 3)], ids=["one set", "fewer than k", "a set for each slot"])
def test_a_page_that_was_shown_elsewhere_is_learned_like_the_policys_own(shape):
    arms, (one, other) = balls(seeded(4), *shape), (learned(LOOKS) for _ in range(2))
    made = one.select(arms)
    told = other.register(arms, made.indices, probability=0.25)
    assert (told.id, told.index, told.indices, told.probability) == (made.id, made.index, made.indices, 0.25)
    np.testing.assert_array_equal(told.arms, made.arms)
    for policy, decision in ((one, made), (other, told)):
        policy.update(decision, [0.0, 1.0])
    np.testing.assert_array_equal(one.sums.batch, other.sums.batch)


@tabled("own, index, message", [
    (False, [], "from 1 to k=3 rows"), (False, [1, 1], "each once"), (False, [0, 1, 2, 3], "from 1 to k=3 rows"),
    (False, [7], "one of 7 arms"), (False, [-1, 0], "index must be"), (False, [0, 0.5], "index must be"),
    (True, [0, 1], "one for each slot"), (True, [0, 1, 5], "one of 5 arms"),
])  # fmt: skip
def test_pages_that_nobody_can_have_seen_are_refused_and_nothing_changes(own, index, message):
    policy, arms = private(), balls(seeded(4), 3, 5, 3) if own else balls(seeded(4), 7, 3)
    with pytest.raises((ValueError, TypeError), match=message):
        policy.register(arms, index)
    assert policy.decisions == 0
    same = policy.register(balls(seeded(), 3, 5, 3), [2, 2, 2])  # of three slots
    assert same.indices == (2, 2, 2)
    assert policy.register(arms[0] if own else arms, 1).indices == (1,)


# --------------------------------------------------------------------------------------------- what clicks say


def batch_after(policy: SlatePrivateGLM, clicks) -> np.ndarray:
    policy.update(policy.select(balls(seeded(3), 6, 3)), clicks)
    return policy.sums.batch.copy()


def test_what_comes_after_the_first_click_was_not_seen():
    told = [batch_after(private(), clicks) for clicks in ([0, 1, 0], [0.0, 1.0], (False, True, True))]
    assert np.array_equal(told[0], told[1])
    assert np.array_equal(told[0], told[2])
    assert not np.array_equal(told[0], batch_after(private(), [0, 0, 1]))
    assert np.array_equal(batch_after(private(), 1.0), batch_after(private(), [1]))
    semi = [batch_after(private(examination=(1.0, 1.0, 1.0)), clicks) for clicks in ([0, 1, 0], [0, 1, 1], [0, 1])]
    assert len({one.tobytes() for one in semi}) == 3
    assert not batch_after(private(), []).any()  # nobody looked


@tabled(
    ("clicks", "message"),
    [
        ([0.0] * 4, "reward must hold at most k=3 numbers, one for a position, got 4"),
        ([0.0, np.nan], "reward must"),
        ([0.0, 2.0], "reward must"),
        (["yes"], "reward must"),
    ],
)
def test_clicks_that_cannot_be_are_refused_and_nothing_changes(clicks, message):
    policy = private()
    decision = policy.select(np.eye(3))
    with pytest.raises((ValueError, TypeError), match=message):
        policy.update(decision, clicks)
    assert policy.open_decisions == [decision.id]
    assert not policy.sums.batch.any()
    short = policy.select(np.eye(3)[:2])
    with pytest.raises(ValueError, match="at most 2 numbers, as so many were shown, got 3"):
        policy.update(short, [0.0, 0.0, 0.0])
    assert len(policy.open_decisions) == 2


@tabled(
    ("more", "message"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"examination": "all"}, "examination must be 'cascade' or k=3 numbers"),
        ({"examination": (1.0, 0.5)}, "examination must be 'cascade' or k=3 numbers"),
        ({"examination": (0.9, 0.5, 0.5)}, "the first is 1"),
        ({"examination": (1.0, 0.5, 0.0)}, "examination must lie in"),
        ({"examination": LOOKS, "link": "linear", "reward_range": (1.0, 2.0)}, "reward_range must hold 0"),
    ],
)
def test_bad_parameters_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        private(**more)


@pytest.mark.parametrize("examination", EXAMINATIONS)
def test_sums_are_those_of_an_unbiased_regression(monkeypatch, examination):
    """E b = E[M]θ* at the true θ*, over all that people may click on, but for what is cut: in a cascade nothing."""
    if examination != "cascade":
        monkeypatch.setattr(SlateRecord, "cut", lambda self, U, weights, gradients: gradients)
    policy = private(link="linear", reward_range=(0.0, 1.0), base_rate=0.4, examination=examination, theta_bound=0.3)
    X, theta = balls(seeded(4), 3, 3), np.array([0.2, -0.1, 0.15])
    pending, public = Pending(X.ravel(), 0, 0, (0, 1, 2)), replace(policy.public, theta=theta)
    chance = (0.4 + X @ theta) * (1.0 if examination == "cascade" else np.array(examination))
    M, b = np.zeros((3, 3)), np.zeros(3)
    for pattern in product((0.0, 1.0), repeat=3):
        likely = float(np.prod(np.where(np.array(pattern) == 1.0, chance, 1.0 - chance)))
        U, w, g, _ = policy.record(pending, policy.checked_reward(pattern), public)
        M += likely * (U.T * w) @ U
        b += likely * g @ U
    assert np.allclose(b, M @ theta, atol=1e-12)
    assert np.abs(b).max() > 0.01


@pytest.mark.thorough
@given(st.integers(0, 10**6), st.sampled_from([*EXAMINATIONS, (1.0, 0.1, 0.01)]), st.sampled_from([0.05, 0.5, 0.8]))
@settings(max_examples=60, deadline=None)
def test_a_page_with_one_click_is_not_cut_and_what_is_cut_fits(seed, examination, base_rate):
    policy, rng = private(examination=examination, base_rate=base_rate), seeded(seed)
    X, public = balls(rng, 3, 3), replace(policy.public, theta=3.0 * balls(rng, 3))
    pending = Pending(X.ravel(), 0, 0, (0, 1, 2))
    known = np.ones(3) if examination == "cascade" else np.array(examination)

    def told(clicks):
        seen = policy.checked_reward(clicks)
        U, w, g, _ = policy.record(pending, seen, public)
        policy.sums.bounds.summed(U, w, g)  # which refuses what does not fit
        return w, g / (np.array(seen) - known[: len(seen)] * base_rate)

    w, factors = told([0.0, 0.0, 0.0])
    for clicks in np.eye(3):
        ours, some = told(clicks)
        assert np.allclose(some, factors[: len(some)], rtol=1e-9)
        assert np.allclose(ours, w[: len(ours)], rtol=1e-12)
    ours, some = told([1.0, 1.0, 1.0])
    assert (some <= factors[: len(some)] * (1 + 1e-9)).all()
    assert np.array_equal(ours, w[: len(ours)])


@pytest.mark.parametrize("examination", EXAMINATIONS[:2])
def test_records_fit_whatever_a_link_says_and_however_long_the_metric_makes_arms(examination):
    """Also where that is no number; a record that did not fit would stop the run."""

    def mean(e):
        return np.where(np.abs(e) > 0.5, np.nan, 0.5 + 0.5 * np.tanh(e))

    mine = Link(
        "mine", mean, lambda e: 0.5 / np.cosh(e) ** 2, lambda e: e, lambda S: (0.3, 0.5), lambda S: 2.0, (0.0, 1.0)
    )
    policy = private(link=mine, theta_bound=0.4, examination=examination, base_rate=0.5)
    for scale in (1e-200, 1e-3, 1.0, 1e3, 1e49, 1e200):
        for theta in (np.zeros(3), np.array([5.0, 0.0, 0.0])):
            public = replace(policy.public, theta=theta, metric=scale * np.eye(3))
            X = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 0.0]])
            U, w, g, _ = policy.record(Pending(X.ravel(), 0, 0, (0, 1, 2)), (0.0, 1.0), public)
            policy.sums.add_sum(U, w, g)
            assert np.isfinite(policy.sums.batch).all()


def test_a_page_of_one_is_what_a_single_choice_leaves():
    page = private(1, base_rate=0.3)
    single = OnePassPrivateGLM(3, budget=BUDGET, horizon=60, base_rate=0.3, rng=seeded())
    for seed in range(20):
        x, theta = balls(seeded(seed), 3), 2.0 * balls(seeded(seed + 50), 3)
        pending, reward = Pending(x, 0, 0, (0,)), float(seed % 2)
        U, w, g, _ = page.record(pending, (reward,), replace(page.public, theta=theta))
        v, one, other, _ = single.record(pending, reward, replace(single.public, theta=theta))
        assert np.allclose((U.T * w) @ U, one * np.outer(v, v))
        assert np.allclose(g @ U, other * v)


def test_alike_arms_count_as_one_and_orthogonal_ones_as_the_root_of_their_number():
    policy = private(3, 4, examination=(1.0, 1.0, 1.0), base_rate=0.5)

    def weights(X):
        return policy.record(Pending(X.ravel(), 0, 0, (0, 1, 2)), (0.0,) * 3, policy.public)[1]

    one, alike, apart = private(1, 4, base_rate=0.5), np.tile(np.eye(4)[0], (3, 1)), np.eye(4)[:3]
    alone = one.record(Pending(np.eye(4)[0], 0, 0, (0,)), (0.0,), one.public)[1].sum()
    # a pair of a smaller slope than W has some room left
    room = 1.0 / one.sums.bounds.size(alone**2, one.clip**2)
    assert np.isclose(weights(alike).sum(), alone * room)
    assert np.isclose(weights(apart).sum(), np.sqrt(3.0) * alone * room)


# -------------------------------------------------------------------------------------------- the sums


def test_a_sum_that_is_not_clipped_is_refused_and_nothing_changes():
    sums = PairSums(2, 1.0, 1.0, 0.5, budget=BUDGET, releases=3, horizon=10, together=True, level=0.1, rng=seeded())
    X, w, g = np.eye(2), np.array([0.7, 0.7]), np.array([0.7, -0.7])
    sums.add_sum(X, w, g, 0.5)
    before = sums.batch.copy(), sums.beside
    for bad in [(X, 2 * w, g), (X, w, 2 * g), (X, -w, g), (X, w, g * np.nan), (X * np.nan, w, g)]:
        with pytest.raises(ValueError, match="must be"):
            sums.add_sum(*bad)
    with pytest.raises(ValueError, match="deviation must be"):
        sums.add_sum(X, w, g, 0.6)
    assert np.array_equal(sums.batch, before[0])
    assert sums.beside == before[1]


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_sums_within_the_bounds_are_no_farther_apart_than_stated_also_spread_over_a_stream(adjacency):
    """Random pairs of units of several values each, in a stream that is encoded by nonnegative columns."""
    a, W, c, B, d = 0.8, 0.5, 1.1, 0.7, 3
    bounds, rng = SumBounds.of(a, W, c, B, adjacency), seeded(8)
    assert bounds.sensitivity == summed_pairs_sensitivity(a, W, c, B, adjacency)

    def value():
        X = rng.standard_normal((4, d)) * rng.choice([0.1, 1.0], size=(4, 1))
        w, g = rng.random(4), rng.standard_normal(4) * rng.choice([0.1, 1.0, 5.0])
        M, b = X.T @ (w[:, None] * X), g @ X
        size = float(bounds.size(np.vdot(M, M), b @ b))
        return np.concatenate([a * M.ravel(), c * b]) / size

    largest = 0.0
    for _ in range(500):
        columns = np.abs(rng.standard_normal((4, 5)))
        mine, others = rng.random(5) < 0.4, rng.random(5) < 0.4
        Q = max(float((columns[:, one].sum(axis=1) ** 2).sum()) for one in (mine, others))
        here = columns[:, mine] @ np.array([value() for _ in range(mine.sum())]).reshape(-1, d * d + d)
        there = columns[:, others] @ np.array([value() for _ in range(others.sum())]).reshape(-1, d * d + d)
        apart = float(np.linalg.norm(here - (there if adjacency == "replace" else 0.0 * there)))
        assert apart <= np.sqrt(Q) * bounds.sensitivity * (1 + 1e-12)
        largest = max(largest, apart / (np.sqrt(Q) * bounds.sensitivity) if Q else 0.0)
    assert largest > 0.8


# -------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("examination", EXAMINATIONS[:2])
def test_a_saved_run_goes_on_as_if_nothing_had_happened(tmp_path, examination):
    def play(policy, start, end):
        chosen = []
        for t in range(start, end):
            decision = policy.select(balls(seeded(t), 6, 3))
            chosen.append(decision.indices)
            if t % 5:
                policy.update(decision, [float(t % 2), 0.0, 1.0])
        return chosen

    policy = private(examination=examination)
    play(policy, 0, 30)
    policy.save(tmp_path / "state")
    again = Policy.load(tmp_path / "state", unattended=True)
    assert again.open_decisions == policy.open_decisions
    again.update(5, [0.0, 0.0, 1.0])
    policy.update(5, [0.0, 0.0, 1.0])
    assert play(again, 30, 60) == play(policy, 30, 60)
    assert repr(again.kept()) == repr(policy.kept())


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*cannot be told from noise yet")
def test_the_level_of_rare_clicks_is_learned():
    policy = SlatePrivateGLM(2, 3, budget=Budget(20.0, 1e-5), horizon=1200, rng=seeded())
    rng = seeded(5)
    for _ in range(1200):
        policy.update(policy.select(balls(rng, 6, 2)), (rng.random(3) < 0.1).astype(float))
    assert -3.0 < policy.level < -1.5  # μ⁻¹(0.1) = −2.2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("environment", "at_most"),
    [(Slates(3, arms=10, k=3), 0.25), (Slates(3, arms=10, k=3, examination=LOOKS, arm_law="fixed"), 0.35)],
)
def test_the_policies_learn(environment, at_most):
    """Of what a page at random would cost, so much at most."""
    T, told = 1000, {"base_rate": environment.base_rate, "examination": environment.examination}
    budget = Budget(8.0, 1e-4)
    policies = {
        "private": lambda rng: SlatePrivateGLM(3, 3, budget=budget, horizon=T, rng=rng, **told),
        "ucb": lambda rng: CascadeUCB(3, 3, rng=rng, **told),
        "thompson": lambda rng: CascadeThompson(3, 3, rng=rng, **told),
    }
    regret = {row["policy"]: row["regret"] for row in simulate(policies, environment, rounds=T, seeds=1).table()}
    rng, episode = seeded(9), environment.episode(generator(0))
    by_chance = sum(now.best(3) - now.value(rng.permutation(10)[:3]) for now in islice(episode, T))
    assert max(regret.values()) < at_most * by_chance, (regret, by_chance)


# -------------------------------------------------------------------------------------------- references


@pytest.mark.parametrize("examination", EXAMINATIONS[:2])
@pytest.mark.parametrize("kind", [CascadeUCB, CascadeThompson])
def test_references_are_ridge_regressions_of_what_was_seen(kind, examination):
    policy, rng = kind(3, 3, examination=examination, base_rate=0.2, ridge=2.0, rng=seeded()), seeded(6)
    rows, clicks = [], []
    for _ in range(40):
        decision = policy.select(balls(rng, 6, 3))
        told = (rng.random(3) < 0.3).astype(float)
        policy.update(decision, told)
        seen = int(told.argmax()) + 1 if examination == "cascade" and told.any() else 3
        q = np.ones(3) if examination == "cascade" else np.array(examination)
        rows += list((q[:, None] * decision.arms)[:seen])
        clicks += list((told - 0.2 * q)[:seen])
    X = np.array(rows)
    assert np.allclose(policy.fit.theta, np.linalg.solve(X.T @ X + 2.0 * np.eye(3), X.T @ clicks))
    arms = balls(rng, 6, 3)
    if kind is CascadeUCB:
        V = np.linalg.inv(X.T @ X + 2.0 * np.eye(3))
        bounds = arms @ policy.fit.theta + policy.width * np.sqrt(np.einsum("ij,jk,ik->i", arms, V, arms))
        assert np.allclose(policy.select(arms).scores, bounds)


# -------------------------------------------------------------------------------------------- worlds


@pytest.mark.parametrize("examination", EXAMINATIONS[:2])
def test_clicks_have_the_stated_value_and_no_slate_is_better_than_the_best(examination):
    """20,000 rounds of one slate: off by more than 5 standard errors in one of 10⁶ such tests."""
    environment = Slates(2, arms=4, k=3, examination=examination, arm_law="fixed", offset=-0.5)
    episode = environment.episode(seeded(7))
    first = next(episode)
    values = {slate: first.value(slate) for slate in permutations(range(4), 3)}
    assert max(values.values()) == pytest.approx(first.best(3), abs=1e-12)
    slate = (2, 0, 3)
    clicks = np.array([sum(next(episode).clicks(slate)) for _ in range(20_000)])
    assert abs(clicks.mean() - values[slate]) < 5 * clicks.std() / np.sqrt(len(clicks))


def test_a_cascade_tells_nothing_after_the_first_click():
    now = SlateRound(np.eye(4), np.array([0.0, 1.0, 0.0, 1.0]), np.full(4, 0.5))
    assert now.clicks([0, 1, 3]) == [0.0, 1.0]
    assert now.clicks([0, 2]) == [0.0, 0.0]
    assert now.value([0, 1]) == 0.75
    positions = replace(now, examination=(1.0, 0.5, 0.5), looked=np.array([1.0, 0.0, 1.0]))
    assert positions.clicks([0, 1, 3]) == [0.0, 0.0, 1.0]


def test_pages_can_be_played_in_a_world_of_single_choices():
    told = simulate({"ucb": lambda rng: CascadeUCB(3, 2, rng=rng)}, GLM(3, arms=5), rounds=50, seeds=1)
    assert told.table()[0]["regret"] >= 0.0


def test_many_slates_are_the_slates_of_a_loop():
    arms = np.random.default_rng(0).normal(size=(40, 6, 3))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True)
    one, many = (
        SlatePrivateGLM(3, 2, "logistic", budget=Budget(1.0, 1e-6), horizon=200, rng=np.random.default_rng(1))
        for _ in range(2)
    )
    alone, together = [one.select(round) for round in arms], many.select_many(arms)
    assert [made.indices for made in together] == [made.indices for made in alone]
    for made in alone:
        one.update(made, [0, 1])
    many.update_many(together, [[0, 1]] * 40)
    assert many.releases == one.releases > 1
    assert many.theta.tolist() == one.theta.tolist()


@pytest.mark.parametrize("examination", ["cascade", (1.0, 0.5)])
def test_how_many_positions_there_are_is_a_whole_number_of_any_type(examination):
    assert private(2.0, examination=examination).select(np.eye(3)).arms.shape == (2, 3)
    with pytest.raises(TypeError, match=r"k must be a whole number, got k=2\.5"):
        private(2.5, examination=examination)


@pytest.mark.parametrize(
    ("arms", "persons", "why"),
    [
        ([np.eye(3), 9 * np.eye(3)], None, r"arms\[1\]: arms must have norm at most 1"),
        ([np.eye(3)] * 2, ["ann"], "persons must be one for each of 2 requests"),
        ([np.eye(3)] * 61, None, "arms must be those of at most 60 requests"),
    ],
)
def test_of_many_slates_none_is_shown_where_one_is_refused(arms, persons, why):
    policy = private()
    with pytest.raises(ValueError, match=why):
        policy.select_many(arms, persons)
    assert (policy.decisions, policy.open_decisions) == (0, [])


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([[1], [np.nan]], r"rewards\[1\]: reward must be a finite number"),
        ([[1], [0, 0, 0, 0]], r"rewards\[1\]: reward must hold at most k=3"),
        ([[1], [0, 1]], r"rewards\[1\]: reward must hold at most 1 numbers, as so many were shown"),
    ],
)
def test_of_many_slates_none_is_learned_where_one_is_refused(rewards, why):
    policy = private()
    made = [policy.select(np.eye(3)), policy.select(np.eye(3)[:1])]
    before = np.array(policy.sums.batch)
    with pytest.raises(ValueError, match=why):
        policy.update_many(made, rewards)
    with pytest.raises(ValueError, match=r"decisions\[1\]: decision must be one whose reward is still open"):
        policy.update_many([made[0], 7], [[1], [1]])
    assert policy.open_decisions == [0, 1]
    np.testing.assert_array_equal(policy.sums.batch, before)
    policy.update_many(made, [[1], None])
    assert policy.open_decisions == []


def test_a_log_of_pages_is_learned_as_rounds_of_pages():
    X, clicks = balls(seeded(1), 5, 3, 3), [[0, 1], [1], [0, 0, 0], 0.0, [0, 1, 1]]
    rows = [
        (X[0], clicks[0]),
        (X[1][:1], clicks[1]),
        (X[2].tolist(), clicks[2]),
        (X[3][0], clicks[3]),
        (X[4], clicks[4]),
    ]
    one, many = private(), private()
    for arms, told in rows:
        page = np.atleast_2d(arms)
        one.update(one.register(page, range(len(page))), told)
    assert many.learn_log(rows) == many.decisions == 5
    np.testing.assert_array_equal(many.sums.batch, one.sums.batch)
    for wrong, words in [
        ((np.eye(3)[[0, 1, 2, 0]], [0]), "a page must have at most k=3 arms, got 4"),
        ((X[0][:2], [0, 0, 0]), "reward must hold at most 2 numbers, as so many were shown, got 3"),
        ((X[0][0], [0, 0]), "reward must hold at most 1 numbers"),
        ((2 * np.eye(3), [0]), "arms must have norm at most 1"),
    ]:
        with pytest.raises(ValueError, match=rf"rows\[1\]: {words}"):
            many.learn_log([rows[0], wrong])
        assert many.decisions == 5


def test_the_pages_of_a_log_come_back_after_a_crash(tmp_path):
    policy = private(checkpoint=tmp_path / "c", label="run")
    policy.learn_log([(np.eye(3), [0, 0, 1]), (np.eye(3)[:2], [1])])
    sums = policy.sums.batch.copy()
    policy.run.release_hold()
    np.testing.assert_array_equal(SlatePrivateGLM.load(tmp_path / "c", unattended=True).sums.batch, sums)
