"""Seeded runs of every policy: which arms it chose, at which scores, and what a private one had released.

Half-way through most runs the policy was saved once. The files lie in ``states.zip``: each must load, and go on to
choose the arms that the run chose.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from recorded_numbers import flat, summary

from accounting import Budget, epsilon
from dpbandits import Policy, PrivatePolicy, policies

KEPT = Path(__file__).with_name("states.zip")
DIM, ARMS, ROUNDS = 3, 4, 240
NAMES = ["north", "east", "south", "west"]
ROW, PERSON = Budget(8.0, 1e-5), Budget(8.0, 1e-5, unit="person")
THETA = np.array([1.2, -0.8, 0.5])

# states of before levels were learned, and the runs that they were saved in, have this one
MIDDLE = {"base_rate": 0.5}

# each policy with the shortest parameters that let it release several times in so few rounds
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, {"k": 2} if name.startswith("Cascade") else {})
        for name in policies.__all__
        if not issubclass(getattr(policies, name), PrivatePolicy) and getattr(policies, name).takes == "arms"
    },
    "OFUGLB, Poisson": ("OFUGLB", {"link": "poisson"}),
    "GLBOMD, theory": ("GLBOMD", {"parameters": "theory"}),
    "GLBOMD, inverse gaps": ("GLBOMD", {"exploration": "inverse_gap", "base_rate": 0.4}),
    "GLBOMD, expiring": ("GLBOMD", {"expire_after": 3, "horizon": ROUNDS}),
    "ECOLog, theory": ("ECOLog", {"parameters": "theory"}),
    "OFUL, theory": ("OFUL", {"parameters": "theory", "noise_bound": 0.5}),
    "HvtUCB, theory": ("HvtUCB", {"parameters": "theory"}),
    "GLBOMD, published": ("GLBOMD", {"parameters": "published"}),
    "HvtUCB, published": ("HvtUCB", {"parameters": "published"}),
    "HvtUCB, scales": ("HvtUCB", {"noise_scale": [0.2, 0.5] * (ROUNDS // 2)}),
    "CRMM, theory": ("CRMM", {"parameters": "theory"}),
    "DisjointLinUCB": ("DisjointLinUCB", {"arms": NAMES}),
    "DisjointLinUCB, inverse gaps": ("DisjointLinUCB", {"arms": NAMES, "exploration": "inverse_gap"}),
    "KLUCB": ("KLUCB", {"arms": NAMES}),
    "KLUCB, theory": ("KLUCB", {"arms": NAMES, "parameters": "theory"}),
    "ThompsonArms": ("ThompsonArms", {"arms": NAMES}),
    "ThompsonArms, theory": ("ThompsonArms", {"arms": NAMES, "parameters": "theory"}),
    "DisjointThompson": ("DisjointThompson", {"arms": NAMES}),
    "OnePassPrivateGLM": ("OnePassPrivateGLM", {"first_batch": 16, **MIDDLE}),
    "OnePassPrivateGLM, linear": ("OnePassPrivateGLM", {"first_batch": 16, "link": "linear", **MIDDLE}),
    "OnePassPrivateGLM, level": ("OnePassPrivateGLM", {"first_batch": 16}),
    "OnePassPrivateGLM, discount": ("OnePassPrivateGLM", {"first_batch": 16, "discount": 0.9}),
    "OnePassPrivateGLM, inverse gaps": (
        "OnePassPrivateGLM",
        {"first_batch": 16, "exploration": "inverse_gap", **MIDDLE},
    ),
    "OnePassPrivateGLM, person": ("OnePassPrivateGLM", {"first_batch": 16, "budget": PERSON, "rounds_per_person": 3}),
    "OnePassPrivateGLM, learned": (
        "OnePassPrivateGLM",
        {"first_batch": 16, "budget": Budget(400.0, 1e-5), "reward_range": "learned", "base_rate": 0.5},
    ),
    "PersonPrivateGLM": ("PersonPrivateGLM", {"first_batch": 16, "budget": PERSON, **MIDDLE}),
    "PersonPrivateGLM, level": ("PersonPrivateGLM", {"first_batch": 16, "budget": PERSON}),
    "PrivateHvtUCB": ("PrivateHvtUCB", {"first_batch": 16}),
    "DPLinUCB": ("DPLinUCB", {"first_batch": 16}),
    "DPLinUCB, person": ("DPLinUCB", {"first_batch": 16, "budget": PERSON, "rounds_per_person": 2}),
    "JointDPGLM": ("JointDPGLM", {"first_batch": 16}),
    "JointDPGLM, person": ("JointDPGLM", {"first_batch": 16, "budget": PERSON}),
    "DPHDB": ("DPHDB", {"n_arms": ARMS, "forced": 4}),
    "JointDPGLM, published": (
        "JointDPGLM",
        {"parameters": "published", "ridge": 40.0, "gamma": 0.5, "exploration": 1.0},
    ),
    "ShuffleGLM, published": ("ShuffleGLM", {"parameters": "published", "batches": (30, 60)}),
    "DPHDB, published": ("DPHDB", {"n_arms": ARMS, "forced": 4, "parameters": "published"}),
    "DPHDB, every round": ("DPHDB", {"n_arms": ARMS, "forced": 4, "release": "every_round"}),
    "DisjointPrivateGLM": ("DisjointPrivateGLM", {"arms": NAMES, "first_batch": 16}),
    "DisjointPrivateGLM, person": ("DisjointPrivateGLM", {"arms": NAMES, "first_batch": 16, "budget": PERSON}),
    "DisjointShuffleGLM": ("DisjointShuffleGLM", {"arms": NAMES, "first_batch": 16}),
    "LDPGLM": ("LDPGLM", {"first_batch": 16, **MIDDLE}),
    "LDPGLM, level": ("LDPGLM", {"first_batch": 16}),
    "StandingPrivateGLM": ("StandingPrivateGLM", {"first_batch": 16, **MIDDLE}),
    "StandingPrivateGLM, level": ("StandingPrivateGLM", {"first_batch": 16}),
    "PrivateArms": ("PrivateArms", {"arms": NAMES, "first_batch": 8, "budget": Budget(8.0, 0.0)}),
    "PrivateArms, person": ("PrivateArms", {"arms": NAMES, "first_batch": 8, "budget": PERSON}),
    "PrivateArms, learned": (
        "PrivateArms",
        {"arms": NAMES, "first_batch": 8, "budget": Budget(400.0, 1e-5, unit="person"), "reward_range": "learned"},
    ),
    "PrivateArms, three records of a person": (
        "PrivateArms",
        {"arms": NAMES, "first_batch": 8, "budget": PERSON, "rounds_per_person": 3},
    ),
    "ShuffleArms": ("ShuffleArms", {"arms": NAMES, "first_batch": 8}),
    "LDPArms": ("LDPArms", {"arms": NAMES, "first_batch": 8, "budget": Budget(8.0, 0.0)}),
    "AdaPUCB": ("AdaPUCB", {"arms": NAMES, "budget": Budget(8.0, 0.0)}),
    "AdaPUCB, KL": ("AdaPUCB", {"arms": NAMES, "index": "kl", "budget": Budget(8.0, 0.0)}),
    "AdaPUCB, person": ("AdaPUCB", {"arms": NAMES, "first_batch": 8, "budget": PERSON}),
    "DPSE": ("DPSE", {"arms": NAMES, "first_batch": 4, "budget": Budget(8.0, 0.0)}),
    "DPSE, person": ("DPSE", {"arms": NAMES, "first_batch": 4, "budget": PERSON}),
    "SlatePrivateGLM": ("SlatePrivateGLM", {"k": 2, "first_batch": 16}),
    "SlatePrivateGLM, positions": ("SlatePrivateGLM", {"k": 3, "first_batch": 16, "examination": (1.0, 0.5, 0.25)}),
    "ShuffleOnePassGLM": ("ShuffleOnePassGLM", {"first_batch": 16, **MIDDLE}),
    "ShuffleOnePassGLM, level": ("ShuffleOnePassGLM", {"first_batch": 16}),
    "ShuffleLinUCB": ("ShuffleLinUCB", {"first_batch": 16}),
    "ShufflePersonGLM": ("ShufflePersonGLM", {"first_batch": 16, "budget": PERSON, **MIDDLE}),
    "ShufflePersonGLM, level": ("ShufflePersonGLM", {"first_batch": 16, "budget": PERSON}),
    "ShuffleGLM": ("ShuffleGLM", {"batches": (30, 60, 120, 600), **MIDDLE}),
    "Doubling": ("Doubling", {"first_epoch": 70, "parameters": {"first_batch": 16}, **MIDDLE}),
    "Doubling, JointDPGLM": ("Doubling", {"algorithm": "JointDPGLM", "first_epoch": 70}),
    "Restarting": ("Restarting", {"every": 80, "parameters": {"first_batch": 16}, **MIDDLE}),
    "Restarting, on change": ("Restarting", {"on_change": True, "parameters": {"first_batch": 16}, **MIDDLE}),
}
# how rewards come: at once; or after up to six rounds, a tenth of them never. Fixed arms also come and go.
WAYS = ("at once", "late")


def names(gate: bool) -> list[str]:
    """All cases in both ways; in the gate the first of each policy late, and every third of the others at once."""
    if not gate:
        return [f"{case}: {way}" for case in CASES for way in WAYS]
    others = [case for case in CASES if "," in case and "Poisson" not in case][::3]
    # before its first release JointDPGLM chooses among arms of the same length, between which last bits decide, and
    # these are not the same in every version of numpy: its run is looked at by the slow test alone
    firsts = [case for case in CASES if "," not in case and case != "JointDPGLM"]
    return [f"{case}: late" for case in firsts] + [f"{case}: at once" for case in others]


def policy_of(case: str) -> Any:
    kind, given = CASES[case]
    options: dict[str, Any] = {"rng": np.random.default_rng(7), "horizon": ROUNDS} | given
    if issubclass(getattr(policies, kind), PrivatePolicy):
        options = {"budget": ROW} | options
    if kind == "StandingPrivateGLM":
        options["arms"] = World().fixed
    if "linear" not in str(getattr(policies, kind).link) or "link" in given:
        options.setdefault("reward_range", (0.0, 1.0))
    sizes = () if "dim" in getattr(policies, kind).passed_on else (DIM,)
    return getattr(policies, kind)(*sizes, **options)


class World:
    """Arms, contexts, rewards and delays of every round, all drawn beforehand."""

    def __init__(self) -> None:
        rng = np.random.default_rng(11)
        self.arms = self._shortened(rng.standard_normal((ROUNDS, ARMS, DIM)))
        self.contexts = self._shortened(rng.standard_normal((ROUNDS, DIM)))
        self.fixed = self._shortened(rng.standard_normal((ARMS, DIM)))
        self.coins, self.tails = rng.random(ROUNDS), rng.standard_t(2.5, ROUNDS)
        self.delays = np.where(rng.random(ROUNDS) < 0.1, ROUNDS, rng.integers(0, 7, ROUNDS))

    @staticmethod
    def _shortened(x: Any) -> Any:
        return x / np.maximum(1.0, np.linalg.norm(x, axis=-1, keepdims=True))


class Play:
    """A policy in the world; what it chose lies in ``arms`` and ``scores``."""

    def __init__(self, case: str, way: str, policy: Any) -> None:
        self.world, self.policy, self.late = World(), policy, way == "late"
        self.context, self.standing = policy.takes == "context", case.startswith("StandingPrivateGLM")
        self.changes = self.late and getattr(policy, "catalogue", None) is not None
        self.arms, self.scores, self.regret = [], [], 0.0
        self.waiting: dict[int, tuple[int, float]] = {}  # the round in which a reward comes, and the reward

    def means(self, t: int) -> Any:
        if self.context:  # an arm for each turn of θ, and one more for an arm that was added
            return self.world.contexts[t] @ np.array([np.roll(THETA, i) * (-1) ** i for i in range(ARMS + 1)]).T
        return (self.world.fixed if self.standing else self.world.arms[t]) @ THETA

    def rounds(self, start: int, end: int) -> None:
        for t in range(start, end):
            if self.changes and t == 40:
                self.policy.add_arm("beyond")
            if self.changes and t == 150:
                self.policy.retire_arm("south")
            offered = self.world.contexts[t] if self.context else self.world.arms[t]
            person = t % 90 if self.person else None
            decision = self.policy.select(self.world.fixed if self.standing else offered, person)
            means = self.means(t)
            self.arms.append(decision.index)
            self.scores.append(np.append(decision.scores, decision.probability))
            self.regret += float(means.max() - means[decision.index])
            self.waiting[decision.id] = (
                t + int(self.world.delays[t]) * self.late,
                self.reward(t, means[decision.index]),
            )
            for key in [key for key, (due, _) in self.waiting.items() if due <= t]:
                reward = self.waiting.pop(key)[1]
                if key in self.policy.open_decisions:
                    self.policy.update(key, reward)

    def figures(self) -> dict[str, Any]:
        """What was chosen, and what a private policy has released."""
        figures = {
            "arms": "".join(map(str, self.arms)),
            "regret": [self.regret],
            "scores": summary(np.concatenate(self.scores)),
            "open": str(sorted(self.policy.open_decisions)),
        }
        if isinstance(self.policy, PrivatePolicy):
            released = self.policy.released()
            figures["releases"] = str(self.policy.releases)
            figures["cost"] = [epsilon(self.policy.ledger.total, 1e-6)]
            figures["public"] = {name: summary(flat(value)) for name, value in released.public.items()}
            offered = self.world.contexts if self.context else [self.world.fixed] if self.standing else self.world.arms
            figures["probabilities"] = summary([released.probabilities(arms) for arms in offered[:9]])
        return figures

    @property
    def person(self) -> bool:
        return getattr(getattr(self.policy, "budget", None), "unit", "row") == "person"

    def reward(self, t: int, mean: float) -> float:
        low, high = self.policy.reward_range
        if np.isfinite(low + high):
            return float(low + (high - low) * (self.world.coins[t] < 1.0 / (1.0 + np.exp(-mean))))
        return max(low, float(mean + 0.3 * self.world.tails[t]))


def found(name: str, gate: bool) -> dict[str, Any]:
    """The run; and which arms its second half chooses where it goes on from the saved state, if there is one."""
    case, way = name.split(": ")
    play = Play(case, way, policy_of(case))
    play.rounds(0, ROUNDS // 2)
    again = Play(case, way, loaded(name) if name in kept() else play.policy)
    again.waiting = dict(play.waiting)
    play.rounds(ROUNDS // 2, ROUNDS)
    figures = play.figures()
    if name in kept():
        again.rounds(ROUNDS // 2, ROUNDS)
        figures["after the state"] = again.figures()
    return figures


def kept() -> list[str]:
    """The runs of which there is a state."""
    return [
        f"{case}: late"
        for case in CASES
        if "," not in case or case.endswith(("person", "JointDPGLM", "change", "learned"))
    ]


def loaded(name: str) -> Policy:
    with zipfile.ZipFile(KEPT) as states, tempfile.TemporaryDirectory() as folder:
        path = Path(states.extract(name, folder))
        return Policy.load(path, unattended=issubclass(getattr(policies, CASES[name.split(": ")[0]][0]), PrivatePolicy))


def keep() -> None:
    """Write the states half-way. Later versions must read those that earlier ones have written: do so once."""
    with zipfile.ZipFile(KEPT, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as states:
        for name in kept():
            case, way = name.split(": ")
            play = Play(case, way, policy_of(case))
            play.rounds(0, ROUNDS // 2)
            with tempfile.TemporaryDirectory() as folder:
                play.policy.save(Path(folder) / "state")
                states.write(Path(folder) / "state", name)
