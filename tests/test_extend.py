"""What ``examples/extend`` adds from outside keeps the promises that the package's own keep."""

import doctest
import importlib
import math
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from chi_square import fits
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import simpson

from accounting import (
    Budget,
    BudgetExceeded,
    Gaussian,
    Laplace,
    Ledger,
    PoissonSubsampled,
    PureDP,
    audit,
    bound,
    compare,
    epsilon,
    parallel,
)
from accounting.loss import check_pair
from dpbandits.policy.protocol import Policy
from dpkit.states import RunStopped

EXAMPLES = Path(__file__).parents[1] / "examples" / "extend"


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """The examples import each other, and nothing of the package knows them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", ["description", "own_loss", "mechanism", "factorization", "policy"])
def test_its_examples_run(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried > 1
    assert failed == 0


# ------------------------------------------------------------------------------------------- the description


def test_the_description_is_priced_stored_and_audited(tmp_path):
    Staircase = importlib.import_module("description").Staircase
    assert compare(3 * Staircase(0.2, 7), 1e-6) == compare(3 * PureDP(0.2), 1e-6)
    with Ledger.open(tmp_path / "spends.ledger", Budget(1.0, 1e-6)) as ledger:
        ledger.spend(Staircase(0.5, 7) + Gaussian(30.0))
    with Ledger.open(tmp_path / "spends.ledger") as ledger:
        assert ledger.total == Staircase(0.5, 7) + Gaussian(30.0)
        assert not audit.recompute(ledger).problems
    with pytest.raises(ValueError, match="epsilon"):
        Staircase(0.0)


# ------------------------------------------------------------------------------------------------ the privacy loss


def logistic_delta(z, epsilon):
    """∫(P − e^ε·Q)₊ of logistic noise around 1/z and around 0, by Simpson's rule."""
    x = np.linspace(-60.0, 60.0, 400_001)
    p, q = (1 / (4 * np.cosh((x - at) / 2) ** 2) for at in (1 / z, 0.0))
    return simpson(np.maximum(p - math.exp(epsilon) * q, 0.0), x=x)


@pytest.mark.parametrize("z", [0.3, 1.0, 10.0])
def test_the_loss_is_that_of_the_noise(z):
    pair = importlib.import_module("own_loss").Logistic(z).pair()
    check_pair(pair)
    for share in (-0.7, 0.0, 0.2, 0.9):
        assert pair.delta(share / z) == pytest.approx(logistic_delta(z, share / z), rel=1e-6)
    assert pair.delta(1.001 / z) == pytest.approx(0.0, abs=1e-15)
    assert pair.highest(-700.0) == pytest.approx(1 / z, rel=1e-9)


def test_a_loss_of_its_own_is_priced_by_it_wherever_it_is():
    Logistic = importlib.import_module("own_loss").Logistic
    assert round(epsilon(100 * Logistic(10.0), 1e-6), 3) == 2.612
    assert round(epsilon(100 * Logistic(10.0).weaker(), 1e-6), 3) == 4.775
    noise = Logistic(2.0)
    for whole, most in (
        (noise, 1e-6),
        (30 * noise + Gaussian(2.0) + PureDP(0.1), 1e-4),
        (200 * PoissonSubsampled(noise, 0.05), 1e-3),
        (5 * parallel(noise, Gaussian(9.0)), 1e-4),
    ):
        lower, upper = bound(whole, 1e-6)
        assert upper * (1 - most) <= lower <= upper
    # between two weaker claims: half the noise, and logistic noise as if it were Laplace noise of its scale
    assert epsilon(30 * noise, 1e-6) < min(epsilon(30 * Logistic(1.0), 1e-6), epsilon(30 * Laplace(2.0), 1e-6))


def test_a_loss_of_its_own_is_stored_and_read_back(tmp_path):
    Logistic = importlib.import_module("own_loss").Logistic
    with Ledger.open(tmp_path / "spends.ledger", Budget(5.0, 1e-6)) as ledger:
        ledger.spend(100 * Logistic(20.0) + Gaussian(3.0))
    with Ledger.open(tmp_path / "spends.ledger") as ledger:
        assert ledger.total == 100 * Logistic(20.0) + Gaussian(3.0)
        assert epsilon(ledger.total, 1e-6) < epsilon(100 * PureDP(0.05) + Gaussian(3.0), 1e-6)
        assert not audit.recompute(ledger).problems


# --------------------------------------------------------------------------------------------- the mechanism


def law(sensitivity, epsilon, reach):
    """The probabilities of −reach, …, reach, normalised over all whole numbers."""
    step = importlib.import_module("mechanism").best_step(sensitivity, epsilon)
    b, i = math.exp(-epsilon), np.abs(np.arange(-reach, reach + 1))
    stair = step + b * (sensitivity - step)
    return b ** (i // sensitivity) * np.where(i % sensitivity < step, 1.0, b) / (2 * stair / (1 - b) - 1)


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 1.0), (5, 0.3), (6, 3.0)])
def test_the_noise_has_the_papers_law_and_no_other(sensitivity, epsilon):
    noise = importlib.import_module("mechanism").staircase_noise(sensitivity, epsilon, 50_000, np.random.default_rng(7))
    reach = 40 * sensitivity
    cells = np.arange(-reach, reach + 1)
    assert fits(noise, cells, law(sensitivity, epsilon, reach))
    assert not fits(noise, cells, law(sensitivity, 1.1 * epsilon, reach))


@given(st.integers(1, 9), st.floats(0.05, 6.0))
def test_no_shift_by_the_sensitivity_changes_a_probability_by_more(sensitivity, epsilon):
    p = law(sensitivity, epsilon, 4 * sensitivity)
    for shift in range(1, sensitivity + 1):
        ratios = p[shift:] / p[:-shift]
        assert max(ratios.max(), 1 / ratios.min()) <= math.exp(epsilon) * (1 + 1e-9)


def test_the_mechanism_refuses_and_charges_before_it_draws():
    staircase = importlib.import_module("mechanism").staircase
    ledger = Ledger(Budget(1.0, 0.0))
    for wrong in ({"sensitivity": 0}, {"epsilon": -1.0}, {"value": 0.5}):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            staircase(**({"value": 3, "sensitivity": 2, "epsilon": 0.5, "ledger": ledger} | wrong))
    assert not ledger.rows()
    staircase(3, sensitivity=2, epsilon=0.6, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        staircase(3, sensitivity=2, epsilon=0.6, ledger=ledger)


@pytest.mark.parametrize(("claimed", "caught"), [(1.0, False), (0.5, True)])
def test_an_audit_catches_half_the_noise_only(claimed, caught):
    noise, rng = importlib.import_module("mechanism").staircase_noise, np.random.default_rng(3)
    bound = audit.lower_bound(
        lambda x, trials: x + noise(3, 1.0, trials, rng),
        0,
        3,
        trials=20_000,
        confidence=1 - 1e-9,
        delta=0.0,
        score=lambda y: np.asarray(y, dtype=float),
        batched=True,
    )
    assert (bound.epsilon > claimed) == caught


# ------------------------------------------------------------------------------------------------ the policy


def made(**more):
    CoordinateUCB = importlib.import_module("policy").CoordinateUCB
    return CoordinateUCB(**({"dim": 3, "budget": Budget(1.0, 1e-6), "horizon": 400} | more))


def test_the_policy_is_charged_saved_and_goes_on_once(tmp_path):
    ledger = Ledger(Budget(1.0, 1e-6))
    policy = made(ledger=ledger)
    assert ledger.total == policy._sums.cost
    for _ in range(100):
        policy.update(policy.select(np.eye(3)), 1.0)
    policy.save(tmp_path / "state")
    loaded = Policy.load(tmp_path / "state", ledger=ledger)
    assert (loaded.releases, loaded.decisions) == (policy.releases, 100)
    assert loaded.public.theta.tolist() == policy.public.theta.tolist()
    for playing in (loaded, policy):  # the second comes to a release that the first has made
        with pytest.raises(RunStopped) if playing is policy else nullcontext():
            for _ in range(100):
                playing.update(playing.select(np.eye(3)), 1.0)


def test_the_policy_refuses_what_its_proof_does_not_cover():
    with pytest.raises(ValueError, match="reward_range"):
        made(reward_range=(0.0, 2.0))
    with pytest.raises(ValueError, match="horizon"):
        made(horizon=2**22 + 1)


def test_neighbouring_rounds_are_never_farther_apart_than_the_sensitivity():
    """Two runs that differ in one round, also in the batch that it enters: 300 pairs, the farthest among them."""
    rng, farthest = np.random.default_rng(5), 0.0
    C = np.tril(np.ones((2, 2)))  # any nonnegative factor: the sums' own has columns of norm 1
    C /= np.linalg.norm(C, axis=0).max()
    for trial in range(300):
        records = []
        for _ in range(2):
            x = rng.normal(size=3) if trial % 2 else np.eye(3)[rng.integers(3)]
            policy, reward = made(reward_range=(-1.0, 1.0)), float(rng.choice([-1.0, 1.0]))
            decision = policy.select((x / np.linalg.norm(x))[None])
            policy.update(decision, reward)
            records.append(policy._batch.ravel() / 2**30)
        a, b = records
        farthest = max(farthest, np.linalg.norm(a - b), np.linalg.norm(C[:, :1] * a - C[:, 1:] * b))
    assert 2.0 < farthest <= policy._sums.sensitivity
