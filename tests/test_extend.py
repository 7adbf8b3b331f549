"""What ``examples/extend`` adds from outside keeps the promises that the package's own keep."""

import doctest
import importlib
import math
import re
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
    AdjacencyMismatch,
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
from dpbandits.policy.protocol import Pending, Policy
from dpkit.geometry import LpBall
from dpkit.mechanisms import GaussianMechanism
from dpkit.optimize import glm
from dpkit.states import RunStopped

EXAMPLES = Path(__file__).parents[1] / "examples" / "extend"


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """The examples import each other, and nothing of the package knows them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_its_examples_run(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried > 1
    assert failed == 0


# ------------------------------------------------------------------------------------------- the description


def test_the_description_is_priced_stored_and_audited(tmp_path):
    Staircase = importlib.import_module("description").Staircase
    assert compare(3 * Staircase(0.2, 7), 1e-6) == compare(3 * PureDP(0.2), 1e-6)
    with Ledger.create(tmp_path / "spends.ledger", Budget(1.0, 1e-6)) as ledger:
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
    with Ledger.create(tmp_path / "spends.ledger", Budget(5.0, 1e-6)) as ledger:
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
    assert ledger.total == policy.sums.cost
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
    with pytest.raises(ValueError, match=r"record must have shape .* and length at most 1\.73"):
        made().sums.add(np.full(6, 1.0))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_it_needs_no_name_with_an_underscore(path):
    assert not re.search(r"(\.|import |def )_(?!_)\w", path.read_text(encoding="utf-8"))


def farthest(record, public, dim: int, pairs: int = 400) -> float:
    """How far apart a change of one round moves the stream: the largest over pairs that are searched for.

    A record may be replaced in its batch or come into another one, where the columns of the mechanism's factor have any
    inner product from 0 to 1; only its ends matter (``dpkit.moments.records``).
    """
    rng = np.random.default_rng(5)

    def round_of(sparse: bool) -> np.ndarray:
        x = np.eye(dim)[rng.integers(dim)] if sparse else rng.normal(size=dim)
        arm = x / np.linalg.norm(x) * (1.0 if rng.random() < 0.8 else rng.random())
        return np.concatenate(record(Pending(arm, 0, 0), float(rng.choice([-1.0, 1.0])), public))

    found = 0.0
    for trial in range(pairs):
        a, b = round_of(bool(trial % 2)), round_of(bool(trial % 2))
        found = max(found, float(np.linalg.norm(a - b)), math.hypot(*map(np.linalg.norm, (a, b))))
    return found


def test_neighbouring_rounds_are_never_farther_apart_than_the_sensitivity():
    policy = made(reward_range=(-1.0, 1.0))
    found = farthest(policy.record, policy.public, 3)
    assert 2.0 < found <= policy.record.sensitivity
    # rounding to whole numbers is paid for beside it
    assert policy.record.sensitivity < policy.sums.sums.sensitivity <= policy.record.sensitivity * (1 + 1e-6)


def test_a_record_that_lies_is_caught():
    policy = made(reward_range=(-1.0, 1.0))
    record = importlib.import_module("policy").Record(sensitivity=2.0)  # which forgets that rewards have two signs
    assert farthest(record, policy.public, 3) > record.sensitivity


def test_a_run_is_what_its_parts_say():
    """What enters the continual sum, batch by batch, is the sum of the records, up to the rounding of each."""
    policy, seen = made(reward_range=(-1.0, 1.0), horizon=60), []
    policy.sums.sums.add = lambda batch: (seen.append(batch.copy()), batch)[1]
    batch, rng = np.zeros(6), np.random.default_rng(2)
    for _ in range(60):
        before = len(seen)
        decision = policy.select(np.eye(3))
        if len(seen) > before:
            np.testing.assert_allclose(seen[-1], batch, atol=60 * 2.0**-29)
            batch = np.zeros(6)
        reward = float(rng.choice([-1.0, 1.0]))
        batch += np.concatenate([decision.arm**2, reward * decision.arm])
        policy.update(decision, reward)
    assert len(seen) == policy.releases == len(policy.schedule.ends) > 3


# ----------------------------------------------------------------------------------------------- the world


def test_the_world_is_a_function_of_its_seed():
    world = importlib.import_module("environment").NewsPage(topics=3, readers=20, day=10)
    one, same, other = (world.episode(np.random.default_rng(seed)) for seed in (1, 1, 2))
    rounds = [(next(one), next(same), next(other)) for _ in range(40)]
    for a, b, _ in rounds:
        assert a.arms.tolist() == b.arms.tolist()
        assert (a.rewards.tolist(), a.delay, a.person) == (b.rewards.tolist(), b.delay, b.person)
    assert any(a.rewards.tolist() != c.rewards.tolist() for a, _, c in rounds)
    # other features in the second half of a day than in the first
    assert rounds[0][0].arms[0].tolist() != rounds[5][0].arms[0].tolist() == rounds[9][0].arms[0].tolist()


# ------------------------------------------------------------------------------------------- the optimizer


def fitted(**more):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    known = {"constraint": LpBall(2, 2, radius=2.0), "budget": Budget(1.0, 1e-6), "rng": np.random.default_rng(1)}
    return importlib.import_module("optimizer").noisy_adagrad(
        glm("logistic", clip=1.0), X, (X[:, 0] > 0).astype(float), **(known | more)
    )


def test_the_optimizer_is_charged_before_it_draws_and_meets_its_budget():
    ledger = Ledger(Budget(1.0, 1e-6))
    found = fitted(ledger=ledger)
    assert ledger.total == found.cost
    assert epsilon(found.cost, 1e-6) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        fitted(ledger=ledger)
    assert fitted().x.tolist() == found.x.tolist() != fitted(rng=np.random.default_rng(2)).x.tolist()


def test_the_optimizer_draws_as_much_noise_as_it_is_charged_for(monkeypatch):
    made, seen = GaussianMechanism.calibrated, []

    def calibrated(**more):
        seen.append(made(**more))
        return seen[-1]

    monkeypatch.setattr(GaussianMechanism, "calibrated", calibrated)
    found = fitted(steps=7)
    ((part, count),) = found.cost.parts
    # a gradient of length at most 1 is replaced by another one
    assert (count, part.noise_multiplier) == (7, seen[0].noise_multiplier)
    assert 2.0 <= seen[0].sensitivity < 2.0001


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"rate": -1.0}, {"budget": Budget(1.0, 1e-6, adjacency="add_remove")}])
def test_the_optimizer_refuses_before_it_is_charged(wrong):
    ledger = Ledger(Budget(1.0, 1e-6))
    with pytest.raises((ValueError, AdjacencyMismatch)):
        fitted(ledger=ledger, **wrong)
    assert not ledger.rows()
