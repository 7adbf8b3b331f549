"""What every policy has in common: decisions with ids, checked input, privacy reports, and state on disk.

>>> import numpy as np
>>> from dpbandits.policies import Uniform
>>> policy = Uniform(dim=3, rng=np.random.default_rng(0))
>>> decision = policy.select(np.eye(3))            # arms: (K, d), rows of norm <= 1
>>> policy.update(decision, reward=1.0)            # at once, later, out of order, or never
>>> policy.update(decision, reward=1.0)
Traceback (most recent call last):
    ...
ValueError: decision must be one whose reward is still open, got decision id 0
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Ledger
from accounting.checks import fraction, integer
from dpbandits.mathematics.links import Link
from dpkit import randomness
from dpkit.states import files as statefile

__all__ = ["Decision", "Policy", "PrivacyReport"]

Array = NDArray[np.float64]

# rows whose norm passes 1 by rounding only are scaled back, so that a sensitivity computed for norm 1 holds
_NORM_TOLERANCE = 1e-9


@dataclass(slots=True, eq=False)
class Decision:
    """What a policy chose in one round.

    Attributes
    ----------
    id : int
        Identifies the round when its reward comes back.
    index : int
        Row of the chosen arm.
    arm : ndarray of shape (d,)
        The chosen arm.
    scores : ndarray of shape (K,)
        What was maximised; not a probability.
    """

    id: int
    index: int
    arm: Array
    scores: Array


@dataclass(frozen=True)
class PrivacyReport:
    """What a policy has cost: (ε, δ) spent and left, and what these numbers are about."""

    epsilon: float
    delta: float
    left: float
    trust: Literal["none", "joint", "shuffle", "local"]
    adjacency: str
    unit: str
    simulation: bool

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "not private"
        mark = " (SIMULATION: the noise came from a seeded generator; not a private release)" if self.simulation else ""
        return (
            f"({self.epsilon:.6g}, {self.delta:g})-DP {self.trust}, one {self.unit} under {self.adjacency}, "
            f"ε left {self.left:.6g}{mark}"
        )


class Policy(ABC):
    """Base of all policies: it checks and keeps the books; the algorithm is in ``_score`` and ``_learn``.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    reward_range : (float, float)
        Rewards outside are refused or clipped.
    on_violation : {"raise", "clip"}
        What happens to a reward outside its range. NaN is always refused.
    horizon : int, optional
        The number of rounds after which the policy takes part in no more.
    rng : numpy.random.Generator, optional
        None is the secure source; a seeded generator makes a simulation.
    ledger : Ledger, optional
        Where the cost is recorded; by default a ledger of the policy's own.
    """

    trust: ClassVar[Literal["none", "joint", "shuffle", "local"]] = "none"
    # what ``select`` is given: the arms' vectors, or one context for all arms (see dpbandits.per_arm)
    takes: ClassVar[Literal["arms", "context"]] = "arms"
    # the attributes that hold what was learned; constructor arguments are kept under their own names
    _learned: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        dim: int,
        *,
        reward_range: tuple[float, float] = (-math.inf, math.inf),
        on_violation: Literal["raise", "clip"] = "raise",
        horizon: int | None = None,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.dim = integer("dim", dim, at_least=1)
        low, high = map(float, reward_range)
        if not low < high:
            raise ValueError(f"reward_range must be increasing, got reward_range={reward_range!r}")
        self.reward_range = (low, high)
        if on_violation not in ("raise", "clip"):
            raise ValueError(f"on_violation must be 'raise' or 'clip', got on_violation={on_violation!r}")
        self.on_violation = on_violation
        self.horizon = None if horizon is None else integer("horizon", horizon, at_least=1)
        self.rng = randomness.resolve(rng)
        self.ledger = ledger
        self.decisions = 0
        self._open: dict[int, Array] = {}

    # ------------------------------------------------------------------------------------------ one round

    def select(self, arms: ArrayLike) -> Decision:
        """Choose one of ``arms``.

        Parameters
        ----------
        arms : array_like of shape (K, d)
            Finite rows of Euclidean norm at most 1; K may change from round to round.

        Raises
        ------
        ValueError
            If the arms are not such an array, or the horizon is used up. The policy's state is as it was.
        """
        X = self._checked_arms(arms)
        if self.horizon is not None and self.decisions >= self.horizon:
            raise ValueError(f"horizon must be at least {self.decisions + 1} for one more round, got {self.horizon}")
        scores = self._score(X)
        index = int(scores.argmax())
        decision = Decision(self.decisions, index, self._chosen(X, index), scores)
        self._open[self.decisions] = self._kept(decision)
        self.decisions += 1
        return decision

    def update(self, decision: Decision | int, reward: float) -> None:
        """Learn the reward of a decision (given itself or by its id).

        Raises
        ------
        ValueError
            If the decision is unknown or already has its reward, or the reward is NaN or outside
            ``reward_range``. The policy's state is as it was.
        """
        key = decision.id if isinstance(decision, Decision) else decision
        if key not in self._open:
            raise ValueError(f"decision must be one whose reward is still open, got decision id {key!r}")
        value = self._checked_reward(reward)
        self._learn(self._open.pop(key), value)

    def forget(self, decision: Decision | int) -> None:
        """Give up waiting for a reward, so that its arm is no longer kept. Says nothing about the data."""
        self._open.pop(decision.id if isinstance(decision, Decision) else decision, None)

    @property
    def open_decisions(self) -> list[int]:
        """The ids of the decisions whose reward has not come."""
        return list(self._open)

    def _chosen(self, arms: Array, index: int) -> Array:
        """The vector of the chosen arm."""
        return np.array(arms[index])

    def _kept(self, decision: Decision) -> Array:
        """What ``_learn`` will be told of the decision, as a vector of fixed length."""
        return decision.arm

    @abstractmethod
    def _score(self, arms: Array) -> Array:
        """The quantity to maximise, of shape (K,), for arms that have been checked."""

    @abstractmethod
    def _learn(self, arm: Array, reward: float) -> None:
        """Take in one checked reward of one arm of norm at most 1."""

    def _checked_arms(self, arms: ArrayLike) -> Array:
        X = np.asarray(arms, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.dim or not len(X):
            raise ValueError(f"arms must have shape (K, {self.dim}) with K >= 1, got shape {X.shape}")
        squares = np.einsum("ij,ij->i", X, X)
        largest = squares.max()
        if not largest <= 1.0:  # also true for NaN
            if not np.isfinite(X).all():
                raise ValueError(f"arms must be finite, got {X[~np.isfinite(X)][0]} in row {_bad_row(X)}")
            if largest > (1.0 + _NORM_TOLERANCE) ** 2:
                row = int(squares.argmax())
                raise ValueError(f"arms must have norm at most 1, got norm {math.sqrt(largest):.6g} in row {row}")
            # one spare rounding step, so that the scaled rows are at most 1 and not just about 1
            X = X / np.maximum(1.0, np.sqrt(squares) * (1 + 2.0**-50))[:, None]
        return X

    def _checked_reward(self, reward: float) -> float:
        value = float(reward)
        low, high = self.reward_range
        if low <= value <= high and math.isfinite(value):
            return value
        if self.on_violation == "clip" and not math.isnan(value) and math.isfinite(low) and math.isfinite(high):
            return min(max(value, low), high)
        raise ValueError(f"reward must be a finite number in [{low:g}, {high:g}], got reward={reward!r}")

    # -------------------------------------------------------------------------------------------- privacy

    def privacy(self, delta: float | None = None) -> PrivacyReport:
        """What has been spent and what is left, at ``delta`` (by default the budget's)."""
        simulation = randomness.is_simulation(self.rng)
        if self.trust == "none" or self.ledger is None:
            return PrivacyReport(math.inf, delta or 0.0, 0.0, "none", "replace", "round", simulation)
        budget = self.ledger.budget
        if delta is None:
            if budget is None:
                raise ValueError("delta must be given where the ledger has no budget, got delta=None")
            delta = budget.delta
        fraction("delta", delta, include_zero=True)
        left = self.ledger.remaining()
        return PrivacyReport(
            epsilon=float(self.ledger.epsilon(delta)),
            delta=delta,
            # what calibration leaves over in the last digits is not worth a word
            left=left if budget is None or left > 1e-9 * budget.epsilon else 0.0,
            trust=self.trust,
            adjacency=budget.adjacency if budget else "replace",
            unit="round",
            simulation=simulation,
        )

    # ---------------------------------------------------------------------------------------------- state

    def _config(self) -> dict[str, Any]:
        """The constructor's arguments as plain values, read from the attributes of the same names."""
        names = [name for name in signature(type(self)).parameters if name not in ("rng", "ledger")]
        config = {name: getattr(self, name) for name in names}
        if "link" in config:
            config["link"] = config["link"].name
        if "budget" in config:
            config["budget"] = asdict(config["budget"])
        return config

    def _state(self) -> dict[str, Any]:
        """What the algorithm has learned, as a tree of plain values and arrays."""
        return {name: getattr(self, name) for name in self._learned}

    def _restore(self, state: dict[str, Any]) -> None:
        """The inverse of ``_state``."""
        for name in self._learned:
            setattr(self, name, state[name])

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file that only its owner can read.

        The file holds unreleased sums and open decisions: it is as confidential as the data. It replaces an
        older one atomically. Nothing of a secure generator is written, so noise is never drawn twice.
        """
        tree: dict[str, Any] = {
            "policy": type(self).__name__,
            "config": self._config(),
            "state": self._state(),
            "decisions": self.decisions,
            "open_ids": np.array(list(self._open), dtype=np.int64),
            "open_arms": np.array(list(self._open.values())),
            "generator": self.rng.bit_generator.state if randomness.is_simulation(self.rng) else None,
        }
        statefile.write(path, tree)

    @classmethod
    def load(cls, path: str | Path, *, ledger: Ledger | None = None, link: Link | None = None) -> Policy:
        """Continue a policy from a file that ``save`` wrote.

        Parameters
        ----------
        path : path
            The file.
        ledger : Ledger, optional
            The ledger in which the policy recorded its cost, if it was not its own. The cost is looked up
            there, not spent again.
        link : Link, optional
            The caller's link, if the policy did not use a named one.

        Raises
        ------
        ValueError
            If the file is damaged, of another format, or of a policy that is not a ``cls``; or if ``ledger``
            does not hold the policy's cost.
        """
        from dpbandits import policies

        tree, _ = statefile.read(path)
        kind = getattr(policies, str(tree["policy"]), None)
        if kind is None or not issubclass(kind, cls):
            raise ValueError(f"path must hold the state of a {cls.__name__}, got a {tree['policy']} in {path}")
        config = dict(tree["config"])
        if "budget" in config:
            config["budget"] = Budget(**config["budget"])
        if link is not None:
            config["link"] = link
        saved = tree["generator"]
        rng = None if saved is None else randomness.simulation_from(saved)
        policy: Policy = kind(**config, rng=rng)
        policy._restore(tree["state"])
        if rng is not None:
            policy.rng.bit_generator.state = saved
        policy.decisions = int(tree["decisions"])
        policy._open = dict(zip(map(int, tree["open_ids"]), tree["open_arms"], strict=True))
        if ledger is not None:
            policy._attach(ledger)
        return policy

    def _attach(self, ledger: Ledger) -> None:
        """Use ``ledger`` from now on, after checking that it holds every cost of this policy."""
        recorded = {(row.label, row.release) for row in ledger.rows()}
        for row in self.ledger.rows() if self.ledger is not None else ():
            if (row.label, row.release) not in recorded:
                raise ValueError(f"ledger must hold the cost of {row.label!r}, got a ledger without it")
        self.ledger = ledger


def _bad_row(X: Array) -> int:
    return int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
