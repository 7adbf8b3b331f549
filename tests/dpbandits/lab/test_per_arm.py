"""Policies that take contexts: checked input, late rewards, state on disk, and both kinds of policy in one world."""

import math

import numpy as np
import pytest

from dpbandits.lab.environments import GLM, Delayed, PerArm
from dpbandits.lab.simulation.simulate import simulate
from dpbandits.policies import GLBOMD, Uniform
from dpbandits.policy.choices import Shares
from dpbandits.policy.offers import CUBE
from dpbandits.policy.protocol import Policy
from dpkit.models.likelihood import Rows


class Ridge(Policy):
    """Least squares for every arm; a tenth of the choices are at random."""

    offer = CUBE

    learned = ("V", "b", "log")

    def __init__(
        self, dim, n_arms, *, reward_range=(-math.inf, math.inf), on_violation="raise", horizon=None, rng=None
    ):
        super().__init__(dim, reward_range=reward_range, on_violation=on_violation, horizon=horizon, rng=rng)
        self.n_arms = n_arms
        self.V = np.tile(np.eye(dim), (n_arms, 1, 1))
        self.b = np.zeros((n_arms, dim))
        self.log = Rows(2)

    def score(self, context):
        shares = np.full(self.n_arms, 0.1 / self.n_arms)
        shares[(np.linalg.solve(self.V, self.b[..., None])[..., 0] @ context).argmax()] += 0.9
        return Shares(shares)

    def learn(self, pending, reward):
        self.V[pending.index] += np.outer(pending.arm, pending.arm)
        self.b[pending.index] += reward * pending.arm
        self.log.append([pending.index, reward])


@pytest.fixture
def ridge():
    return Ridge(2, 3, rng=np.random.default_rng(0))


def test_a_decision_is_an_arm_and_its_context(ridge):
    context = np.array([0.5, -1.0])
    decision = ridge.select(context)
    assert decision.index in range(3)
    assert decision.scores.shape == (3,)
    context[0] = 9.0  # what is kept is a copy
    assert decision.arm.tolist() == [0.5, -1.0]
    ridge.update(decision, 2.0)
    assert ridge.log.array.tolist() == [[decision.index, 2.0]]
    assert ridge.b[decision.index].tolist() == [1.0, -2.0]


def test_rewards_may_come_late_and_out_of_order(ridge):
    decisions = [ridge.select([1.0, x]) for x in (0.1, 0.2, 0.3)]
    ridge.forget(decisions[1])
    ridge.update(2, 30.0)
    ridge.update(decisions[0], 10.0)
    assert ridge.log.array.tolist() == [[decisions[2].index, 30.0], [decisions[0].index, 10.0]]
    assert ridge.open_decisions == []
    with pytest.raises(ValueError, match="got decision id 1"):
        ridge.update(1, 20.0)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([0.5, math.nan], r"context must have finite entries in \[-1, 1\], got nan"),
        ([0.5, -math.inf], r"context must have finite entries in \[-1, 1\], got -inf"),
        ([1.5, 0.0], r"context must have finite entries in \[-1, 1\], got 1\.5"),
        ([0.5], r"context must have shape \(2,\), got shape \(1,\)"),
        (np.eye(2), r"context must have shape \(2,\), got shape \(2, 2\)"),
    ],
)
def test_bad_contexts_are_refused_and_change_nothing(ridge, context, message):
    before = ridge.rng.bit_generator.state
    with pytest.raises(ValueError, match=message):
        ridge.select(context)
    assert ridge.decisions == 0
    assert ridge.open_decisions == []
    assert ridge.rng.bit_generator.state == before


def test_state_on_disk_goes_on_with_open_decisions(ridge, tmp_path):
    opened = ridge.select([0.5, -0.5])
    ridge.update(ridge.select([1.0, 0.0]), 1.0)
    ridge.save(tmp_path / "state.npz")
    again = Policy.load(tmp_path / "state.npz")
    assert isinstance(again, Ridge)
    for policy in (ridge, again):
        policy.update(opened.id, 3.0)
    assert again.log.array.tolist() == ridge.log.array.tolist()
    assert np.array_equal(again.V, ridge.V)
    assert again.select([0.1, 0.2]).scores.tolist() == ridge.select([0.1, 0.2]).scores.tolist()


@pytest.mark.thorough
def test_both_kinds_of_policy_play_the_same_world():
    environment = PerArm(4, arms=3, nonzero=2)
    players = {
        "uniform": lambda rng: Uniform(environment.dim, rng=rng),
        "per arm": lambda rng: Ridge(environment.context_dim, environment.n_arms, rng=rng),
        "shared": lambda rng: GLBOMD(environment.dim, "linear", theta_bound=environment.theta_bound, rng=rng),
    }
    results = simulate(players, environment, rounds=1500, seeds=2, progress=False)
    regret = {row["policy"]: row["regret"] for row in results.table()}
    assert regret["per arm"] < 0.3 * regret["uniform"]
    assert regret["shared"] < 0.5 * regret["uniform"]
    late = simulate(players, Delayed(environment, delay=20), rounds=200, seeds=1, progress=False)
    assert [run.untold for run in late.runs] == [20, 20, 20]


def test_a_policy_that_takes_contexts_needs_them():
    with pytest.raises(ValueError, match="environment must have contexts for a Ridge, got rounds without") as caught:
        simulate({"r": lambda rng: Ridge(3, 2, rng=rng)}, GLM(3, arms=2), rounds=10, seeds=1, progress=False)
    assert caught.value.__notes__ == ["in the run of policy 'r' on seed 0"]
