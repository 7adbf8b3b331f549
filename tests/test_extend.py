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

from accounting import Budget, BudgetExceeded, Gaussian, Ledger, PureDP, audit, compare
from dpbandits.policy.protocol import Pending, Policy
from dpkit.states import RunStopped

EXAMPLES = Path(__file__).parents[1] / "examples" / "extend"


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    """The examples import each other, and nothing of the package knows them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", ["description", "mechanism", "factorization", "policy"])
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


def test_it_is_made_of_parts_with_public_names():
    source = (EXAMPLES / "policy.py").read_text(encoding="utf-8")
    assert not re.search(r"(\.|def )_(?!_)\w", source)


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
