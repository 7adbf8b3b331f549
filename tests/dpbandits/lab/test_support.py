"""A log that does not hold what a target does is found out: by certain rows, and by the mean of the weights."""

import json
import math
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from accounting import Budget
from dpbandits import evaluate
from dpbandits.cli import app
from dpbandits.lab.environments import ChosenLog
from dpbandits.lab.evaluate.support import Support, supported, without_chance
from dpbandits.policies import OnePassPrivateGLM, Uniform

ADD = Budget(8.0, 1e-6, adjacency="add_remove")
WARNING = "the log has no support for"


def greedy(n, explored, seed=0, K=4):
    """A log of four arms that are worth 0.5 on average, chosen for what they are worth in nearly every row."""
    rng = np.random.default_rng(seed)
    means = rng.random((n, K))
    best = means.argmax(axis=1)
    chance = rng.random(n) < explored
    chosen = np.where(chance, rng.integers(K, size=n), best)
    p = np.where(chosen == best, 1 - explored * (K - 1) / K, explored / K)
    return (rng.random(n) < means[np.arange(n), chosen]).astype(float), p, chosen


@pytest.fixture(scope="module")
def decisions(tmp_path_factory):
    """Logs of decisions of a policy by its default rule, and with exploration; by symmetry every arm is worth ½."""
    found = {}
    for exploration in (None, "inverse_gap"):
        path = tmp_path_factory.mktemp("decisions") / "m.csv"
        more = {} if exploration is None else {"exploration": exploration}
        rng = np.random.default_rng(0)
        policy = OnePassPrivateGLM(
            3, budget=Budget(2.0, 1e-6), horizon=1000, decision_log=path, rng=np.random.default_rng(1), **more
        )
        for _ in range(1000):
            arms = rng.normal(size=(4, 3))
            arms /= 1.001 * np.linalg.norm(arms, axis=1, keepdims=True)
            decision = policy.select(arms)
            score = 4 * arms[decision.index] @ np.array([0.6, 0.6, math.sqrt(0.28)])
            policy.update(decision, float(rng.random() < 1 / (1 + math.exp(-score))))
        policy.decision_log.flush()
        found[exploration] = path
    return found


# ------------------------------------------------------------------------------------------------ estimators


@pytest.mark.parametrize("method", ["ips", "snips", "doubly_robust"])
def test_an_estimate_says_what_its_log_lacks(decisions, method):
    log = evaluate.Log.read(decisions[None])
    pi, law = log.uniform(), np.full((1000, 4), 0.25)
    more = {}
    if method == "doubly_robust":
        pi, more = law, {"chosen": log.chosen, "model": evaluate.cross_fitted(log.rewards, log.chosen, 4)}
    with pytest.warns(UserWarning, match=rf"{WARNING} \d+ % of this target.*exploration=\"inverse_gap\""):
        found = getattr(evaluate, method)(log.rewards, log.probabilities, pi, **more)
    assert found.support.verdict == "missing"
    assert found.support.certain == pytest.approx(0.75 * float((log.probabilities == 1).mean()))
    assert 0.5 < found.support.certain <= found.support.lost < 0.9
    # the normal interval alone leaves out the truth
    assert abs(found.value - 0.5) > 2 * found.std_error
    low, high = found.interval()
    assert low < 0.5 < high
    assert WARNING in repr(found)


def test_a_log_with_exploration_holds_every_policy(decisions):
    log = evaluate.Log.read(decisions["inverse_gap"], offered="arms")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for target in (log.probabilities, log.uniform(), *(log.always(str(k)) for k in range(4))):
            assert evaluate.snips(log.rewards, log.probabilities, target).support.verdict == "held"


def test_what_was_logged_is_held_by_its_own_log(decisions):
    log = evaluate.Log.read(decisions[None])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate.ips(log.rewards, log.probabilities, log.probabilities).support == Support()


def test_the_mean_finds_what_no_row_proves():
    # no probability is 1, but what was explored once in 10⁶ rounds is in no row
    r, p, _ = greedy(2000, 1e-6)
    with pytest.warns(UserWarning, match=f"{WARNING} 75 %"):
        found = evaluate.snips(r, p, np.full(2000, 0.25))
    assert found.support.certain == 0.0
    low, high = found.interval()
    assert low < 0.5 < high < 1


def test_an_interval_is_as_wide_as_the_missing_rewards_leave_it():
    # half of the rows were chosen by a coin, half were left no choice, of which "always 1" would change all
    n = 1000
    p, chosen = np.repeat([0.5, 1.0], n), np.concatenate([np.tile([0, 1], n // 2), np.zeros(n, dtype=int)])
    p[0], chosen[0] = 0.4, 1  # so that 1/p are not all whole numbers
    r = np.concatenate([np.tile([0.0, 0.0, 1.0, 1.0], n // 4), np.zeros(n)])
    with pytest.warns(UserWarning, match="50 % for certain"):
        found = evaluate.ips(r, p, (chosen == 1).astype(float))
    low, high = found.interval(0.99)
    reach = 2.5758 * found.std_error
    assert low == pytest.approx(found.value - reach, rel=1e-4)
    assert high == pytest.approx(found.value + reach + 0.5 + 2.5758 * found.support.share_error, abs=2e-3)


def test_weights_that_add_up_to_too_much_contradict_the_log():
    r, p, _ = greedy(2000, 0.5)
    with pytest.warns(UserWarning, match="the log contradicts this target: the mean of the weights π/p is"):
        found = evaluate.ips(r, p, np.minimum(1.0, 2 * p))
    assert found.support.verdict == "excess"
    low, high = found.interval()
    assert low <= 0.0
    assert high >= 1.0


def test_slates_are_looked_at_alike():
    n, rng = 400, np.random.default_rng(0)
    r = (rng.random((n, 2)) < 0.5).astype(float)
    for estimator in (evaluate.position_ips, evaluate.cascade_ips):
        with pytest.warns(UserWarning, match=f"{WARNING}.* for certain") as said:
            found = estimator(r, np.ones((n, 2)), np.full((n, 2), 0.5))
        assert said[0].filename == __file__
        low, high = found.interval()
        assert low < 1.0 < high


def test_a_replay_needs_choices_by_chance():
    def rounds(p):
        return (
            evaluate.LoggedRound(np.eye(2), int(k), float(k), p) for k in np.random.default_rng(0).integers(2, size=99)
        )

    with pytest.warns(UserWarning, match=f"{WARNING} 50 % .* 50 % for certain"):
        found = evaluate.rejection_replay(
            Uniform(2), rounds(1.0), smallest_probability=0.5, rng=np.random.default_rng(1)
        )
    assert found.interval()[0] < found.value - 3 * found.std_error  # which holds some 2 standard errors otherwise
    held = evaluate.rejection_replay(Uniform(2), rounds(0.5), smallest_probability=0.5, rng=np.random.default_rng(1))
    assert held.support.verdict == "held"


# --------------------------------------------------------------------------------------------------- the test


@pytest.mark.parametrize(("n", "explored"), [(100, 1.0), (150, 0.3), (1000, 0.05), (3000, 0.05), (3000, 0.3)])
def test_no_log_with_support_is_suspected(n, explored):
    # each by chance with a probability of 1e-6 at most, once some rows have the largest weight: here ten and more
    for seed in range(50):
        _, p, chosen = greedy(n, explored, seed)
        for pi in (np.full(n, 0.25), *((chosen == k).astype(float) for k in range(4))):
            assert supported(p, pi, pi / p).verdict == "held"


def test_few_rows_are_no_evidence_and_certain_ones_are():
    few, many = np.full(15, 0.999), np.full(40, 0.999)
    assert supported(few, 0 * few, 0 * few).verdict == "held"
    assert supported(many, 0 * many, 0 * many).verdict == "missing"
    sure = np.ones(3)
    assert supported(sure, 0.25 * sure, 0.25 * sure).verdict == "missing"
    # the one arm that there was
    assert supported(sure, sure, sure).verdict == "held"


def test_rows_of_one_person_are_one_bet():
    # eight persons, of whom each was given one arm for good: by rows it would be beyond doubt
    p, pi = np.full(8000, 0.5), np.zeros(8000)
    assert supported(p, pi, pi).verdict == "missing"
    assert supported(p, pi, pi, np.repeat(np.arange(8), 1000)).verdict == "held"


def test_inverse_probabilities_that_were_drawn_prove_nothing():
    # beyond 1,000 arms 1/p is a number of draws: 1 says that the first one hit, and not that nothing else could
    drawn = np.random.default_rng(0).geometric(0.3, size=500)
    assert not without_chance(1.0 / drawn).any()
    assert without_chance(np.array([1.0, 0.3])).tolist() == [True, False]
    assert without_chance(np.ones(3)).all()


# ---------------------------------------------------------------------------------- the command, and releases


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_the_command_marks_rows_and_widens_their_intervals(decisions):
    shown = run("evaluate", decisions[None])
    assert shown.exit_code == 0, shown.output
    assert "log holds" in shown.output
    assert "! The log has no support for the rest" in shown.output
    rows = json.loads(run("evaluate", decisions[None], "--json").output)["rows"]
    assert rows[0]["warning"] is None
    for row in rows[1:]:
        assert row["warning"].startswith(WARNING)
        assert row["low"] < 0.5 < row["high"]
    explored = run("evaluate", decisions["inverse_gap"]).output
    assert "log holds" not in explored


@pytest.mark.parametrize("epsilon", [8, 50])
def test_released_sums_tell_what_the_log_holds(decisions, epsilon):
    options = ["--epsilon", epsilon, "--delta", 1e-6, "--largest-weight", 4]
    rows = json.loads(run("evaluate", decisions[None], *options, "--json").output)["rows"]
    for row in rows[1:]:
        assert abs(row["support"] - 0.28) < row["support_reach"]
        assert "by what was released" in row["warning"]
        assert row["low"] < 0.5 < row["high"]
    shown = run("evaluate", decisions[None], *options, "--method", "ips").output
    assert "Not checked: whether the log holds" in shown


def test_a_release_says_nothing_that_was_not_paid_for(decisions):
    # a warning that depends on rows would be a release of its own
    log = evaluate.Log.read(decisions[None])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in ("snips", "ips"):
            answer = evaluate.private_value(
                log.rewards, log.probabilities, log.uniform(), largest_weight=4.0, budget=ADD, method=method
            )
    assert answer.counted is not None
    found = evaluate.private_value(log.rewards, log.probabilities, log.uniform(), largest_weight=4.0, budget=ADD)
    weights = float(np.minimum(log.uniform() / log.probabilities, 4.0).sum())
    assert abs(4.0 * found.counted - weights) < 8 * 4.0 * found.counted_std


def test_no_price_is_made_of_a_log_without_choices(decisions):
    with pytest.raises(
        ValueError, match=r"log must hold choices made by chance, got probability 1 in \d\d % of its rows"
    ):
        ChosenLog(evaluate.Log.read(decisions[None]))
    # the best of eight items was chosen as often as the others, and logged as twice as probable
    rng = np.random.default_rng(0)
    chosen = rng.integers(8, size=4000)
    r = (rng.random(4000) < np.where(chosen == 0, 0.9, 0.3)).astype(float)
    assert ChosenLog(evaluate.Log.of(r, np.full(4000, 0.125), chosen)).offered == 8
    with pytest.raises(
        ValueError, match="log must hold what policies may choose, got the best item for all: the log has"
    ):
        ChosenLog(evaluate.Log.of(r, np.where(chosen == 0, 0.25, 0.125), chosen))


# --------------------------------------------------------------------------------------------------- messages


def test_a_policy_is_told_to_release(decisions):
    log = evaluate.Log.read(decisions["inverse_gap"], offered="arms")
    policy = OnePassPrivateGLM(3, budget=Budget(2.0, 1e-6), horizon=10)
    with pytest.raises(TypeError, match=r"got a OnePassPrivateGLM: give policy\.released\(\)"):
        log.under(policy)
    assert log.under(policy.released()).shape == (1000,)


def test_a_ratio_has_no_bounded_terms():
    found = evaluate.snips([1.0, 0.0, 1.0], [0.5] * 3, [0.5] * 3)
    with pytest.raises(ValueError, match="snips is a ratio of two means: take ips"):
        found.interval(largest=(0.0, 1.0))
    with pytest.raises(ValueError, match="at least two rows, got 1"):
        evaluate.ips([1.0], [0.5], [0.5]).interval(largest=(0.0, 1.0))


def test_a_first_phase_of_equal_chances_and_then_none_is_not_taken_for_drawn_probabilities():
    """Explore, then commit: all 1/p are whole numbers, and nine tenths of the rows could be no other choice."""
    rng = np.random.default_rng(1)
    chosen = np.r_[rng.integers(100, size=200), np.zeros(1800, np.int64)]
    p = np.r_[np.full(200, 0.01), np.ones(1800)]
    rewards = (rng.random(2000) < 0.5).astype(np.float64)
    with pytest.warns(UserWarning, match=WARNING):
        found = evaluate.snips(rewards, p, (chosen == 7).astype(np.float64))
    assert found.support.verdict == "missing"
    assert found.support.certain == pytest.approx(0.9)
    low, high = found.interval()
    assert low < 0.5 < high


def test_drawn_probabilities_of_one_are_left_to_the_mean():
    rng = np.random.default_rng(2)
    assert without_chance(1.0 / rng.geometric(0.05, size=500)).sum() == 0
