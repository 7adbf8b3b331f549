"""A round of a bandit, against the numpy lines that no optimistic choice can do without, and a release."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from accounting import Budget
from benchmarks.table import Row
from dpbandits.policies import DPHDB, GLBOMD, EpsilonGreedy, OnePassPrivateGLM, PersonPrivateGLM
from dpbandits.policy.protocol import Policy

DIM, ARMS, ROUNDS = 20, 20, 2000


def arm_sets(arms: int, count: int) -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((count, arms, DIM))
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def floor(X: np.ndarray, rounds: int) -> None:
    inverse, theta, b = np.eye(DIM), np.zeros(DIM), np.zeros(DIM)
    for t in range(rounds):
        arms = X[t % len(X)]
        scores = arms @ theta + np.sqrt(np.einsum("ij,ij->i", arms @ inverse, arms))
        x = arms[scores.argmax()]
        u = inverse @ x
        inverse -= (u / (1.0 + x @ u))[:, None] * u
        b += x
        theta = inverse @ b


def play(policy: Policy, X: np.ndarray, rounds: int, persons: bool = False) -> None:
    coins = np.random.default_rng(1).random(rounds) < 0.5
    for t in range(rounds):
        decision = policy.select(X[t % len(X)], t % 500) if persons else policy.select(X[t % len(X)])
        policy.update(decision, float(coins[t]))


def mabwiser_rows(X: np.ndarray) -> list[Row]:
    from mabwiser.mab import MAB, LearningPolicy

    def theirs() -> None:
        bandit = MAB(list(range(ARMS)), LearningPolicy.LinUCB(alpha=1.0))
        bandit.fit(list(range(ARMS)), [0] * ARMS, X[0])
        for t in range(50):
            arm = bandit.predict(X[t % len(X), :1])
            bandit.partial_fit([arm], [1], X[t % len(X), :1])

    return [
        Row("GLBOMD, d = K = 20, 50 rounds", lambda: play(GLBOMD(DIM), X, 50), theirs, "mabwiser's LinUCB", 50, 0.2)
    ]


def rows() -> list[Row]:
    X, wide = arm_sets(ARMS, 500), arm_sets(10**5, 2)
    budget = Budget(1.0, 1e-6)

    def private() -> Policy:
        return OnePassPrivateGLM(DIM, budget=budget, horizon=ROUNDS)

    def by_person() -> Policy:
        return PersonPrivateGLM(DIM, budget=Budget(1.0, 1e-6, unit="person"), horizon=ROUNDS)

    def every_round() -> Policy:
        return OnePassPrivateGLM(DIM, budget=budget, horizon=ROUNDS, release="every_round")

    jobs: dict[str, Callable[[], object]] = {
        "EpsilonGreedy": lambda: play(EpsilonGreedy(DIM), X, ROUNDS),
        "GLBOMD": lambda: play(GLBOMD(DIM), X, ROUNDS),
        "OnePassPrivateGLM": lambda: play(private(), X, ROUNDS),
        "OnePassPrivateGLM, a release in every round": lambda: play(every_round(), X, ROUNDS),
        "PersonPrivateGLM, its releases included": lambda: play(by_person(), X, ROUNDS, persons=True),
        "DPHDB, its releases included": lambda: play(DPHDB(DIM, ARMS, budget=budget, horizon=ROUNDS), X[:, 0], ROUNDS),
    }
    rounds = [
        Row(f"{name}, d = K = 20", job, lambda: floor(X, ROUNDS), "its arithmetic in numpy", ROUNDS)
        for name, job in jobs.items()
    ]
    many = Row(
        "GLBOMD, K = 10⁵ arms",
        lambda: play(GLBOMD(DIM), wide, 10),
        lambda: floor(wide, 10),
        "its arithmetic in numpy",
        10,
        2.0,
    )
    return [*rounds, many, *(mabwiser_rows(X) if find_spec("mabwiser") else [])]
