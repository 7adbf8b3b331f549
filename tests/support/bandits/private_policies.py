"""The private policies, small enough to be made a thousand times, and what they are offered."""

from __future__ import annotations

import numpy as np

from accounting import Budget
from dpbandits import PrivatePolicy, policies

BUDGET = Budget(4.0, 1e-5)


class _Anybody:
    """For tests that are not about persons: a round of nobody in particular is one of three persons'."""

    def who(self, person):
        self.persons._salt = 32 * "0"  # so that two of them are equal
        return super().who(person)

    def select(self, arms, person=None):
        return super().select(arms, self.decisions % 3 if person is None else person)


class Strangers(_Anybody, policies.PersonPrivateGLM):
    pass


class ShuffledStrangers(_Anybody, policies.ShufflePersonGLM):
    pass


# those that protect persons by a total, and no other unit
OF_PERSONS = {"PersonPrivateGLM": Strangers, "ShufflePersonGLM": ShuffledStrangers}

# their first release is due after four decisions
SMALL = {
    "AdaPUCB": {"arms": 1, "first_batch": 4},
    "DPSE": {"arms": 2, "first_batch": 2},
    "OnePassPrivateGLM": {"first_batch": 4},
    "SlatePrivateGLM": {"k": 2, "first_batch": 4},
    "PersonPrivateGLM": {"first_batch": 4, "budget": Budget(4.0, 1e-5, unit="person")},
    "PrivateHvtUCB": {"first_batch": 4},
    "DPLinUCB": {"first_batch": 4},
    "JointDPGLM": {"first_batch": 4},
    "DPHDB": {"n_arms": 2, "forced": 2, "reward_range": (0.0, 1.0)},
    "DisjointPrivateGLM": {"arms": 2, "first_batch": 4},
    "DisjointShuffleGLM": {"arms": ["a", "b"], "first_batch": 4},
    "LDPGLM": {"first_batch": 4},
    "PrivateArms": {"arms": 2, "first_batch": 4, "exploration": 0.0},
    "ShuffleArms": {"arms": 2, "first_batch": 4, "exploration": 0.0},
    "LDPArms": {"arms": 2, "first_batch": 4, "exploration": 0.0},
    "StandingPrivateGLM": {"arms": np.eye(2), "first_batch": 4},
    "ShuffleOnePassGLM": {"first_batch": 4, "growth": 4.0},
    "ShuffleLinUCB": {"first_batch": 4, "growth": 4.0},
    "ShufflePersonGLM": {"first_batch": 4, "budget": Budget(4.0, 1e-5, unit="person")},
    "ShuffleGLM": {"batches": (4, 12, 100)},
    "Doubling": {"first_epoch": 20, "parameters": {"first_batch": 4}},
    "Restarting": {"every": 20, "parameters": {"first_batch": 4}},
}
# references that must be told a size
SIZES = {"CascadeUCB": {"k": 2}, "CascadeThompson": {"k": 2}}
# of which a budget may also protect persons, by a cap on the rounds that they teach
CAPPED = sorted(set(SMALL) - set(OF_PERSONS))
# those that wrap another policy, and how their epochs are made longer
EPOCHS = {"Doubling": "first_epoch", "Restarting": "every"}


def small(name: str, dim: int = 2, **more) -> PrivatePolicy:
    """A policy for forty rounds."""
    kind = OF_PERSONS.get(name) or getattr(policies, name)
    sizes = () if "dim" in kind.passed_on else (dim,)
    return kind(*sizes, **{"budget": BUDGET, "horizon": 40, **SMALL[name], **more})


def budget_of(name: str) -> Budget:
    """What such a policy may cost."""
    return SMALL[name].get("budget", BUDGET)


def offered(policy: PrivatePolicy) -> np.ndarray:
    """Two arms, or a context, or nothing, as it is logged."""
    if "dim" in policy.passed_on:
        return np.zeros(1)
    return np.array([0.6, -0.8]) if policy.takes == "context" else np.eye(2)


def play(policy: PrivatePolicy, rounds: int) -> None:
    """Rounds with a reward of one."""
    for _ in range(rounds):
        policy.update(policy.select(offered(policy)), 1.0)
