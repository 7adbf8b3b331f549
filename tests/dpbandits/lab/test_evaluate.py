"""Off-policy estimates: published formulas, coverage, private releases, other people's formats, refusals."""

import json
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tabled import tabled
from typer.testing import CliRunner

from accounting import Budget, BudgetExceeded, Ledger, PureDP, audit
from dpbandits import evaluate
from dpbandits.cli import app
from dpbandits.lab.environments import LogReplay
from dpbandits.lab.evaluate import LoggedRound, rejection_replay
from dpbandits.policies import GLBOMD, OnePassPrivateGLM, Uniform

ADD = Budget(1.0, 0.0, adjacency="add_remove")


def made(n, seed, K=4):
    """A log whose choices depend on a context, and the value of a target policy."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    logits = x @ np.array([[0.5, -0.5, 0.2, 0.0], [0.0, 0.2, -0.2, 0.5]])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    pi = np.exp(-logits) / np.exp(-logits).sum(axis=1, keepdims=True)
    mean = 1 / (1 + np.exp(-x[:, :1] - np.arange(K) / 2))
    chosen = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    rows = np.arange(n)
    reward = (rng.random(n) < mean[rows, chosen]).astype(float)
    return {"x": x, "p": p[rows, chosen], "pi": pi, "chosen": chosen, "r": reward, "mean": mean}


@cache
def truth():
    log = made(400_000, 99)
    return float((log["pi"] * log["mean"]).sum(axis=1).mean())


# -------------------------------------------------------------------------------------------------- formulas


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_values_are_those_of_open_bandit_pipeline(n, seed):
    # obp.ope.estimators (v0.5.5): _estimate_round_rewards of IPW, SNIPW and DoublyRobust, and the mean of its result
    log = made(n, seed)
    rows = np.arange(n)
    weight = log["pi"][rows, log["chosen"]] / log["p"]
    q = np.random.default_rng(seed).random((n, 4))
    ipw = (log["r"] * weight).mean()
    snipw = (log["r"] * weight / weight.mean()).mean()
    average = np.average(q, weights=log["pi"], axis=1)
    dr = (weight * (log["r"] - q[rows, log["chosen"]]) + average).mean()
    target = log["pi"][rows, log["chosen"]]
    assert evaluate.ips(log["r"], log["p"], target).value == pytest.approx(ipw, abs=1e-12, rel=1e-9)
    assert evaluate.snips(log["r"], log["p"], target).value == pytest.approx(snipw, abs=1e-12, rel=1e-9)
    found = evaluate.doubly_robust(log["r"], log["p"], log["pi"], chosen=log["chosen"], model=q)
    assert found.value == pytest.approx(dr, abs=1e-12, rel=1e-9)


def test_shifted_rewards_shift_the_self_normalised_value():
    log = made(300, 2)
    target = log["pi"][np.arange(300), log["chosen"]]
    base = evaluate.snips(log["r"], log["p"], target)
    moved = evaluate.snips(log["r"] + 10, log["p"], target)
    assert moved.value == pytest.approx(base.value + 10, rel=1e-12)
    assert moved.std_error == pytest.approx(base.std_error, rel=1e-9)


# -------------------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize("method", ["ips", "snips", "doubly_robust"])
def test_intervals_cover(method):
    # a binomial(200, 0.95) is below 167 with probability 5e-10, a binomial(200, 0.673) above 172 with 4e-10
    value, covered, sharp = truth(), 0, 0
    for seed in range(200):
        log = made(700, seed)
        target = log["pi"][np.arange(700), log["chosen"]]
        if method == "doubly_robust":
            q = evaluate.cross_fitted(log["r"], log["chosen"], 4, features=log["x"])
            found = evaluate.doubly_robust(log["r"], log["p"], log["pi"], chosen=log["chosen"], model=q)
        else:
            found = getattr(evaluate, method)(log["r"], log["p"], target)
        low, high = found.interval()
        covered += low <= value <= high
        sharp += abs(found.value - value) <= 0.5 * (high - low) / 2
    assert covered >= 167
    assert sharp <= 172  # half the interval covers two thirds, so it is not much too wide


def test_the_finite_sample_interval_is_wider_and_stays_within_the_bounds():
    r, p, pi = np.array([1.0, 0.0] * 200), np.full(400, 0.5), np.tile([0.75, 0.25], 200)
    found = evaluate.ips(r, p, pi)
    low, high = found.interval(0.9, largest=(0.0, 2.0))
    normal = found.interval(0.9)
    assert 0 <= low < normal[0] < normal[1] < high <= 2
    with pytest.raises(ValueError, match="bound every term"):
        found.interval(largest=(0.0, 1.0))


def test_rows_of_a_person_are_a_cluster():
    rng = np.random.default_rng(0)
    r = np.repeat(rng.random(100), 20)
    alone = evaluate.ips(r, np.ones(2000), np.ones(2000))
    together = evaluate.ips(r, np.ones(2000), np.ones(2000), persons=np.repeat(np.arange(100), 20))
    assert together.std_error == pytest.approx(alone.std_error * math.sqrt(20), rel=0.01)


# --------------------------------------------------------------------------------------------------- private


@pytest.mark.parametrize("method", ["ips", "snips", "doubly_robust"])
def test_a_private_value_is_near_the_raw_one_and_its_cost_is_recorded(method):
    log = made(20_000, 3)
    target = np.minimum(log["pi"][np.arange(20_000), log["chosen"]], 5 * log["p"])
    more, raw = {}, evaluate.snips if method == "snips" else evaluate.ips
    expected = raw(log["r"], log["p"], target).value
    if method == "doubly_robust":
        q = log["mean"]
        more = {"baseline": (log["pi"] * q).sum(axis=1), "model": q[np.arange(20_000), log["chosen"]]}
        w = target / log["p"]
        expected = float((more["baseline"] + w * (log["r"] - more["model"])).mean())
    ledger = Ledger(ADD)
    answer = evaluate.private_value(
        log["r"], log["p"], target, largest_weight=5.0, budget=ADD, method=method, ledger=ledger,
        rng=np.random.default_rng(0), **more,
    )  # fmt: skip
    # noise of a few tens in sums of about 10⁴: 1e-2 is more than ten deviations
    assert answer.value == pytest.approx(expected, abs=1e-2)
    assert ledger.epsilon(0.0) == pytest.approx(1.0)
    low, high = answer.interval(sampling=True)
    assert low < expected < high
    with pytest.raises(BudgetExceeded):
        evaluate.private_value(log["r"], log["p"], target, largest_weight=5.0, budget=ADD, ledger=ledger)


def scores(rows, largest, budget, runs):
    r, p, pi = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return np.array(
        [evaluate.private_value(r, p, pi, largest_weight=largest, budget=budget).value for _ in range(runs)]
    )


def test_an_audit_finds_no_more_than_the_claim_and_catches_a_weight_that_is_not_cut():
    budget = Budget(2.0, 0.0, adjacency="add_remove")
    base = [(0.0, 1.0, 1.0)] * 3
    neighbour = [*base, (1.0, 0.01, 1.0)]  # weight 100, cut to 2
    runs = 500
    fair = audit.from_scores(
        scores(neighbour, 2.0, budget, runs), scores(base, 2.0, budget, runs), delta=0.0, confidence=1 - 1e-9
    )
    assert fair.epsilon <= 2.0
    # the same noise where the weight counts in full: 100 cut to 40, with the noise of 2
    loose = Budget(40.0, 0.0, adjacency="add_remove")
    broken = audit.from_scores(
        scores(neighbour, 40.0, loose, runs), scores(base, 40.0, loose, runs), delta=0.0, confidence=1 - 1e-9
    )
    assert broken.epsilon > 2.0


# ------------------------------------------------------------------------------------------ rejection replay


@pytest.mark.thorough
def test_rejection_replay_gives_the_value_of_a_live_run():
    arms, q = np.eye(3), np.array([0.2, 0.5, 0.8])
    rng = np.random.default_rng(0)

    def log(n, p=None):
        for _ in range(n):
            k = int(rng.choice(3, p=p))
            yield LoggedRound(arms, k, float(rng.random() < q[k]), None if p is None else p[k])

    found = rejection_replay(Uniform(dim=3, rng=rng), log(6000))
    # ± 7 deviations of a mean of about 2,000 rewards
    assert 1700 < found.rows < 2300
    assert abs(found.value - 0.5) < 0.08
    uneven = rejection_replay(Uniform(dim=3, rng=rng), log(9000, (0.2, 0.3, 0.5)), smallest_probability=0.2, rng=rng)
    assert abs(uneven.value - 0.5) < 0.08
    learnt = rejection_replay(GLBOMD(dim=3, horizon=3000), log(3000))
    assert learnt.value > 0.7
    private = OnePassPrivateGLM(dim=3, budget=Budget(8.0, 1e-3), horizon=4000, rng=rng)
    assert rejection_replay(private, log(4000)).value > 0.55
    assert not private.open_decisions


# ---------------------------------------------------------------------------------------------------- formats


def test_logs_go_to_open_bandit_pipeline_and_back():
    log = evaluate.Log.of([1, 0, 1], [0.5, 0.2, 0.3], ["a", "c", "b"], features=[[1.0, 2.0], [0.0, 1.0], [3.0, 4.0]])
    feedback = log.to_open_bandit()
    assert feedback["n_actions"] == 3
    again = evaluate.Log.from_open_bandit(feedback)
    for name in ("rewards", "probabilities", "chosen", "features"):
        assert np.array_equal(getattr(again, name), getattr(log, name))
    with pytest.raises(ValueError, match="pscore"):
        evaluate.Log.from_open_bandit({"action": [0], "reward": [1.0], "pscore": None})


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.floats(-1e6, 1e6),
            st.floats(1e-6, 1.0),
            st.lists(st.floats(-9, 9), min_size=2, max_size=2),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_logs_go_to_vowpal_wabbit_and_back(rows):
    arms, rewards, probabilities, features = zip(*rows, strict=True)
    log = evaluate.Log.of(rewards, probabilities, arms, arms=range(6), features=features)
    again = evaluate.Log.from_vowpal_wabbit(log.to_vowpal_wabbit())
    assert np.array_equal(again.rewards, log.rewards)
    assert np.array_equal(again.probabilities, log.probabilities)
    assert np.array_equal(again.chosen, log.chosen)
    assert np.array_equal(again.features, log.features)


def test_vowpal_wabbit_lines_with_namespaces():
    log = evaluate.Log.from_vowpal_wabbit(["1:-1:0.25 tag| price:2 red", "", "3:0.5:0.5 |shop red:4 |other old"])
    assert log.arms == ("1", "2", "3")
    assert log.rewards.tolist() == [1.0, -0.5]
    assert log.features.tolist() == [[0.0, 2.0, 1.0], [1.0, 0.0, 4.0]]  # old, price, red
    for line in ("1:2 | a", "1:x:0.5 | a", "0:1:0.5 | a", "1:1:0.5", "1:1:0.5 | a:inf"):
        with pytest.raises(ValueError, match=r"line|lines"):
            evaluate.Log.from_vowpal_wabbit([line])


# -------------------------------------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    rng = np.random.default_rng(1)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.4, 0.7])
    k = rng.choice(3, size=3000, p=p)
    path = tmp_path_factory.mktemp("log") / "clicks.csv"
    pd.DataFrame(
        {
            "arm": np.array(["tea", "coffee", "[red]cocoa"])[k],
            "probability": p[k],
            "reward": (rng.random(3000) < q[k]).astype(int),
            "user": rng.integers(500, size=3000),
            "age": rng.random(3000),
            "new": np.array([0.0, 0.5, 0.5])[k],
        }
    ).to_csv(path, index=False)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_the_command_values_policies(clicks):
    shown = run(clicks, "--target", "new")
    assert shown.exit_code == 0, shown.output
    assert "always [red]cocoa" in shown.output
    for extra in (["--method", "doubly_robust", "--feature", "age"], ["--method", "ips", "--person", "user"], []):
        rows = json.loads(run(clicks, "--json", *extra).output)["rows"]
        values = {row["policy"]: row["value"] for row in rows}
        # at least five deviations
        assert values["always tea"] == pytest.approx(0.1, abs=0.06)
        assert values["always [red]cocoa"] == pytest.approx(0.7, abs=0.15)
        assert values["uniform over 3 arms"] == pytest.approx(0.4, abs=0.1)


def test_the_command_releases_values_and_charges_a_ledger(clicks, tmp_path):
    path = tmp_path / "team.ledger"
    Ledger.create(path, Budget(20.0, 1e-6, adjacency="add_remove", unit="person")).close()
    options = ["--epsilon", 10, "--delta", 1e-7, "--person", "user", "--max-contributions", 8, "--largest-weight", 5]
    shown = run(clicks, *options, "--ledger", path, "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["private"] is True
    # what fails, fails before anything is paid for: also the last of the values, of which four would have room
    for wrong, said in ((["--confidence", 95], "--confidence must lie in"), (["--epsilon", 11], "asks for")):
        refused = run(clicks, *options, *wrong, "--ledger", path)
        assert (refused.exit_code, said in refused.output) == (2, True), refused.output
    with Ledger.open(path) as ledger:
        assert [(row.label, row.outcome) for row in ledger.rows()] == [("evaluate clicks.csv, 5 values", "released")]
        assert ledger.epsilon(1e-6) <= 10.0001


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", 1], "--largest-weight"),
        (["--max-contributions", 3], "--epsilon"),
        (["--method", "magic"], "--method"),
        (["--method", "doubly_robust", "--target", "new"], "--method"),
        (["--reward", "gain"], "'gain'"),
        (["--probability", "reward"], "must be in (0, 1]"),
        (["--target", "arm"], "is not a finite number"),
        (["--epsilon", 1, "--largest-weight", 2, "--person", "user"], "--max-contributions"),
        (["--epsilon", 1, "--largest-weight", 2, "--ledger", "nowhere"], "there is no ledger"),
    ],
)
def test_the_command_says_what_is_wrong(clicks, options, said):
    shown = run(clicks, *options)
    assert shown.exit_code == 2
    assert said in shown.output


def test_a_replay_sends_logs_of_choices_here(clicks):
    alone = pd.DataFrame({"round": [1, 2, 3], "reward": [0, 1, 0], "age": [0.1, 0.2, 0.3]})
    with pytest.raises(ValueError, match="dpbandits evaluate"):
        LogReplay(alone)
    with pytest.raises(ValueError, match="'probability' does not look like a feature"):
        LogReplay(clicks, round_column="user")
    table = pd.DataFrame({"round": [1, 1], "reward": [0, 1], "age": [0.1, 0.2], "user_id": [1, 1]})
    with pytest.raises(ValueError, match="'user_id' does not look like a feature"):
        LogReplay(table)
    assert LogReplay(table, person_column="user_id").features == ["age"]
    assert LogReplay(table, features=["age", "user_id"]).dim == 3


# -------------------------------------------------------------------------------------------------- refusals

GOOD = {"rewards": [1.0, 0.0], "probabilities": [0.5, 0.5], "target": [1.0, 0.0], "largest_weight": 2.0, "budget": ADD}


@tabled(
    ("wrong", "said"),
    [
        ({"largest_weight": -1.0}, "largest_weight"),
        ({"method": "magic"}, "method must be"),
        ({"model": [0.0, 0.0]}, "doubly_robust"),
        ({"reward_range": (1, 0)}, "reward_range"),
        ({"target": [0.5, 2.0]}, "target"),
        ({"persons": ["u", "v"]}, "person"),
    ],
)
def test_a_refused_value_costs_nothing(wrong, said):
    """What else is refused is in ``test_wrong_inputs``."""
    ledger = Ledger(ADD)
    with pytest.raises((ValueError, TypeError), match=said):
        evaluate.private_value(**(GOOD | wrong), ledger=ledger)
    assert not ledger.rows()


def test_pure_spends_of_another_budget_are_seen():
    ledger = Ledger(Budget(1.5, 0.0, adjacency="add_remove"))
    ledger.spend(PureDP(1.0, adjacency="add_remove"), label="earlier")
    with pytest.raises(BudgetExceeded):
        evaluate.private_value(**GOOD, ledger=ledger)
