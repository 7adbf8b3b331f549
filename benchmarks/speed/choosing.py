"""Many choices at once against one after the other, and against the draws and products that all of them need."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from accounting import Budget
from benchmarks.table import Row
from dpbandits import Policy, Released
from dpbandits.policies import DisjointPrivateGLM, OnePassPrivateGLM, PrivateArms, StandingPrivateGLM
from dpkit import randomness

DIM, ARMS, REQUESTS = 20, 20, 2000
# sizes of public catalogues: arms, and features
SIZES = {"20": (20, 20), "10³": (10**3, 20), "10⁴": (10**4, 20), "10⁵": (10**5, 100)}


def arm_sets(requests: int, arms: int, dim: int) -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((requests, arms, dim))
    return np.asarray(X / (1.001 * np.linalg.norm(X, axis=-1, keepdims=True)))


def learner(dim: int, checkpoint: Path | None = None) -> OnePassPrivateGLM:
    """After a release, and long before the next one."""
    batches = {"first_batch": 1000, "growth": 10.0**5}
    policy = OnePassPrivateGLM(dim, budget=Budget(1.0, 1e-6), horizon=10**9, checkpoint=checkpoint, **batches)
    made = policy.select_many(arm_sets(1000, 5, dim))
    policy.update_many(made, np.random.default_rng(1).random(1000) < 0.5)
    policy.settle()
    return policy


def draws(released: Released, X: np.ndarray) -> Callable[[], object]:
    """The floor: for every request one draw of θ, and the best of its arms."""
    theta, root, rng = released.public["theta"], released.public["root"], randomness.resolve(None)

    def floor() -> object:
        drawn = theta + rng.standard_normal((len(X), root.shape[1])) @ root.T
        return np.matmul(X, drawn[:, :, None])[:, :, 0].argmax(axis=1)

    return floor


def selected(policy: Policy, X: np.ndarray | int, what: str, folder: object = None) -> Row:
    """``select``, many and one by one; nothing is left open. The folder of its files lives as long as the row."""
    count = X if isinstance(X, int) else len(X)

    def many() -> None:
        _ = folder
        policy.select_many(X)
        policy.waiting.clear()

    def one_by_one() -> None:
        for arms in count * [None] if isinstance(X, int) else X:
            policy.select(arms)
        policy.waiting.clear()

    return Row(f"select_many, {what}", many, one_by_one, "select, one by one", count, 0.05)


def fixed_and_named() -> list[Row]:
    """Of arms that stand and of arms that have names only, where nothing needs to be offered."""
    budget, T, arms = Budget(4.0, 1e-6), 10**7, arm_sets(1, ARMS, DIM)[0]
    standing = StandingPrivateGLM(DIM, arms, budget=budget, horizon=T, first_batch=REQUESTS, growth=1e5)
    standing.update_many(standing.select_many(REQUESTS), np.full(REQUESTS, 0.5))
    standing.settle()
    named = PrivateArms(ARMS, budget=budget, horizon=T, first_batch=10**5, growth=1e5)
    return [
        selected(standing, REQUESTS, "fixed arms, d = K = 20"),
        selected(named, REQUESTS, "named arms, K = 20"),
    ]


def contexts() -> Row:
    """Of arms that have names, after a release."""
    Z = arm_sets(REQUESTS, 1, DIM)[:, 0]
    policy = DisjointPrivateGLM(DIM, ARMS, budget=Budget(4.0, 1e-6), horizon=10**7, first_batch=2000, growth=1e4)
    policy.update_many(policy.select_many(Z), np.full(len(Z), 0.5))
    policy.settle()
    return selected(policy, Z, "contexts, d = K = 20")


def both_ways(policy: OnePassPrivateGLM, X: np.ndarray) -> list[Row]:
    """``select`` and ``update``, many and one by one; nothing is left open."""
    released, rewards = policy.released(), np.full(len(X), 0.5)

    def rewarded() -> None:
        policy.update_many(policy.select_many(X), rewards)

    def rewarded_one_by_one() -> None:
        for arms in X:
            policy.update(policy.select(arms), 0.5)

    def chosen_one_by_one() -> None:
        for arms in X:
            released.choose(arms).index  # noqa: B018

    n = len(X)
    choose = lambda: released.choose_many(X)  # noqa: E731
    return [
        selected(policy, X, "d = K = 20"),
        Row("select_many and update_many, d = K = 20", rewarded, rewarded_one_by_one, "one by one", n, 0.25),
        Row("choose_many, d = K = 20", choose, chosen_one_by_one, "choose, one by one", n, 0.1),
        Row("choose_many, d = K = 20: against its draws", choose, draws(released, X), "draws and products", n, 2.5),
    ]


def one_choice(arms: str) -> list[Row]:
    """A round, a choice and a probability, of one request."""
    K, dim = SIZES[arms]
    policy, X = learner(dim), arm_sets(1, K, dim)
    released, what = policy.released(), f"d = {dim}, K = {arms}"
    floor = draws(released, X)
    ranking, hundred = released.rank(X[0]), draws(released, np.broadcast_to(X[0], (100, K, dim)))

    def select() -> None:
        policy.forget(policy.select(X[0]))

    found = [
        Row(f"select, {what}", select, floor, "its draw and product", 1, 3.0 if K > 10**4 else None),
        Row(f"choose, {what}", lambda: released.choose(X[0]).index, floor, "its draw and product"),
        Row(f"choose among ranked, {what}", lambda: ranking.choose_many(100), hundred, "its draw and product", 100),
    ]
    if K > 10**3:
        choose = lambda: released.choose(X[0]).probability  # noqa: E731
        found.append(Row(f"choose, with its probability, {what}", choose, floor, "its draw and product"))
        law = released.choose(X[0])
        found.append(
            Row(f"inverse probability, {what}", lambda: law.inverse_probability, floor, "its draw and product")
        )
    return found


def rows() -> list[Row]:
    X, folder = arm_sets(REQUESTS, ARMS, DIM), tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-")
    return [
        *both_ways(learner(DIM), X),
        selected(learner(DIM, Path(folder.name) / "run.state"), X, "d = K = 20, with a checkpoint", folder),
        contexts(),
        *fixed_and_named(),
        *(row for arms in SIZES for row in one_choice(arms)),
    ]
