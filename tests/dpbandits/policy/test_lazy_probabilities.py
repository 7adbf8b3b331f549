"""Choices by what was released: many at once, probabilities when they are asked for, candidates that stay."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from chi_square import fits
from private_policies import SMALL, small
from rounds_of_many import arm_sets, requests, seeded, shares_of

from accounting import Budget
from dpbandits import Released, evaluate
from dpbandits.policies import EpsilonGreedy, LinearThompson, OnePassPrivateGLM, PrivateArms
from dpbandits.policy.choices import Independent, Law, Perturbed, Shares
from dpbandits.policy.many import Repeated

MANY = 1200
# whose shuffled sums take seconds to be made; they choose as others do
SLOW = {"ShuffleGLM", "ShuffleLinUCB", "ShuffleOnePassGLM", "ShufflePersonGLM"}


def learned(exploration=1.0, dim=2) -> Released:
    """After a release of noise, more or less."""
    options = {"first_batch": 150, "growth": 1000.0, "exploration": exploration}
    policy = OnePassPrivateGLM(dim, budget=Budget(1.0, 1e-5), horizon=10**5, rng=seeded(1), **options)
    made = policy.select_many(arm_sets(150, 5, dim))
    policy.update_many(made, seeded(1).random(150) < 0.5)
    policy.settle()
    assert policy.releases == 1
    return policy.released()


@pytest.mark.parametrize("name", [name for name in sorted(SMALL) if name not in SLOW])
def test_a_release_chooses_for_many_what_it_does_one_by_one(name):
    policy = small(name, rng=seeded(3))
    released = policy.released()
    asked, one, many = requests(policy, 9), seeded(5), seeded(5)
    found = [released.choose(arms, one) for arms in asked]
    choices = released.choose_many(asked, many, probabilities=True)
    assert choices.indices.tolist() == [choice.index for choice in found]
    np.testing.assert_allclose(choices.probabilities, [choice.probability for choice in found], rtol=1e-9)
    assert [choice.index for choice in choices[2:4]] == choices.indices[2:4].tolist()


def test_a_probability_is_computed_when_it_is_asked_for(monkeypatch):
    released, X = learned(), arm_sets(4, 6, 2)
    asked = []
    chance = Perturbed.chance
    monkeypatch.setattr(Perturbed, "chance", lambda law, index: (asked.append(index), chance(law, index))[1])
    choice, choices = released.choose(X[0]), released.choose_many(X)
    assert (choice.index, choices.indices.tolist(), asked) == (choice[0], choices.indices.tolist(), [])
    index, probability = choice
    assert asked == [index]
    assert probability == released.probability(X[0], index) == pytest.approx(1 / choice.inverse_probability)
    assert choice == (index, probability)
    assert len(choices.probabilities) == 4
    before = len(asked)
    assert len(choices.probabilities) == 4
    assert len(asked) == before  # once


# ----------------------------------------------------------------------------------------------------- many arms


def test_many_arms_are_not_copied_and_must_be_left_unchanged():
    X = np.ascontiguousarray(arm_sets(1, MANY, 20)[0]) * 0.99
    policy = LinearThompson(20, rng=seeded())
    decision = policy.select(X)
    assert decision.law.arms is X
    assert not np.shares_memory(decision.arm, X)
    kept = decision.probability, decision.probability_error, decision.inverse_probability
    # the same question has the same answer, though it is estimated
    assert kept == (decision.probability, decision.probability_error, decision.inverse_probability)
    other = X[7].copy()
    X[7] = 0.0
    for ask in ("probability", "inverse_probability"):
        with pytest.raises(RuntimeError, match="arms must be left unchanged"):
            getattr(decision, ask)
    X[7] = other
    assert decision.probability == kept[0]
    few = X[:10].copy()
    copied = policy.select(few)
    few[:] = 0.0
    assert 0.0 < copied.probability <= 1.0
    both = policy.select_many(np.stack([X, X]))
    assert both[0].probability >= 0.0


def test_errors_of_many_estimates_cancel():
    """The same arm of the same law, many times: each estimate has draws of its own."""
    X = arm_sets(1, MANY, 3)[0]
    policy = LinearThompson(3, rng=seeded())
    laws = [policy.select(X).law for _ in range(100)]
    found = np.array([law.chance(5)[0] for law in laws])
    exact = laws[0].chances()
    assert exact.sum() == pytest.approx(1.0)
    assert len(set(found)) > 90
    assert abs(found.mean() - exact[5]) < 6.5 * (found.std() / 10 + np.sqrt(exact[5] / 4096) + 1 / 4096)


def test_inverse_probabilities_weigh_without_bias():
    """Σ over choices of an arm's weight is the number of rounds, on average, for every arm: E 1{a}/p_a = 1."""
    X = np.vstack([np.eye(3), 0.001 * arm_sets(1, MANY, 3)[0]])
    policy = LinearThompson(3, rng=seeded(4))
    rounds = 500
    found = policy.select_many(np.broadcast_to(X, (rounds, *X.shape)))
    weights = np.array([found[i].inverse_probability for i in range(rounds)])
    for arm in range(3):
        mine = np.where(found.indices == arm, weights, 0.0)
        assert abs(mine.mean() - 1.0) < 6.5 * mine.std() / np.sqrt(rounds)


@pytest.mark.parametrize("large", [False, True])
def test_the_log_keeps_what_it_needs(tmp_path, large):
    path = tmp_path / "log.csv"
    policy = LinearThompson(20, rng=seeded(), decision_log=path)
    X = arm_sets(1, MANY if large else 5, 20)[0] * 0.9
    decision = policy.select(X)
    weight = decision.inverse_probability
    X[:] = 0.0
    policy.update(decision, 1.0)
    policy.decision_log.flush()
    log = evaluate.Log.read(path, offered="arms")
    assert log.probabilities.tolist() == pytest.approx([1.0 / weight])


def test_independent_scores_of_many_arms():
    law = Independent(np.zeros(MANY), np.ones(MANY))
    chance, error = law.chance(3)
    assert abs(chance - 1 / MANY) < 6.5 * error < 1 / MANY
    assert law.inverse(3) >= 1.0
    assert 0.0 < law.propensity(3) <= 1.0
    arms = PrivateArms(MANY, budget=Budget(1.0, 0.0), horizon=10**6)
    assert 0.0 < arms.select_many(3)[1].probability < 0.01


@pytest.mark.parametrize("law", [Shares(np.array([0.2, 0.5, 0.3])), Independent(np.zeros(3), np.ones(3))])
def test_a_law_that_is_repeated_is_the_law(law: Law):
    one, many = seeded(1), seeded(1)
    assert Repeated(law, 50).draw(many).tolist() == [int(law.draw(one).argmax()) for _ in range(50)]


# ---------------------------------------------------------------------------------------------------- candidates


@pytest.mark.parametrize("exploration", [1.0, "inverse_gap"])
def test_a_choice_among_candidates_has_the_law_of_one_among_those_that_are_left(exploration):
    """χ²; false alarms once in 10¹⁰."""
    released, X = learned(exploration), arm_sets(1, 6, 2, seed=8)[0]
    ranking = released.rank(X)
    found = ranking.choose_many(6000 * [[4, 0]], seeded(2))
    left = [1, 2, 3, 5]
    law = released.probabilities if exploration == "inverse_gap" else partial(shares_of, released)
    shares = law(X[left])
    assert fits(np.searchsorted(left, found.indices), range(4), shares)
    assert set(found.indices) <= set(left)
    choice = found[0]
    assert choice.probability == pytest.approx(shares[left.index(choice.index)], rel=0.1)
    assert choice.inverse_probability == pytest.approx(1 / choice.probability)
    everything = ranking.choose_many(6000, seeded(2))
    assert fits(everything.indices, range(6), law(X))
    assert len(ranking) == 6


def test_where_scores_decide_candidates_are_sorted_once():
    policy = small("DPLinUCB", parameters="theory", sums="tree")
    for _ in range(6):
        policy.update(policy.select(np.eye(2)), 1.0)
    ranking, X = policy.released().rank(np.eye(2)), np.eye(2)
    best = policy.released().choose(X).index
    found = ranking.choose_many([[], [best], [1 - best]])
    assert found.indices.tolist() == [best, 1 - best, best]
    assert found.probabilities.tolist() == [1.0, 1.0, 1.0]


def test_candidates_are_copied_and_what_is_excluded_is_checked():
    released, X = learned(), np.eye(2)
    ranking = released.rank(X)
    X[:] = 0.0
    assert ranking.arms.tolist() == np.eye(2).tolist()
    for exclude, words in [
        ([[0, 1]], r"exclude\[0\] must leave one of 2 candidates"),
        ([[], [2]], r"exclude\[1\] must hold rows of 2 candidates"),
        ([[-1]], r"exclude\[0\] must hold rows"),
        ([[0.5]], r"exclude\[0\] must hold rows"),
    ]:
        with pytest.raises(ValueError, match=words):
            ranking.choose_many(exclude)
    with pytest.raises(TypeError, match="takes a context"):
        small("PrivateArms").released().rank([[0.0]])


def test_a_choice_of_epsilon_greedy_has_its_inverse():
    policy = EpsilonGreedy(2, exploration=0.5, rng=seeded())
    decision = policy.select(np.eye(2))
    assert decision.inverse_probability == 1 / decision.probability
