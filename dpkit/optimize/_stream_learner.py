"""What the online Frank–Wolfe learners share: their rows, recursive gradients and iterates, states, and whole passes.

With ρ_t = min(1, r/(t + 1)), the recursive gradient of row t is

    g_t = ∇ℓ(θ_t; x_t) + (1/ρ_t − 1)(∇ℓ(θ_t; x_t) − ∇ℓ(θ_{t−1}; x_t)) = ψ_t·x_t,

with ψ_t cut so that ‖g_t‖ ≤ clip. What is done with it, and the noise, are the learners'.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Ledger, Release
from accounting.checks import integer, positive
from dpkit.geometry import ConvexSet
from dpkit.optimize._rows import checked_data, checked_row, clip_of, clipped_slope, lengths
from dpkit.optimize.objectives import GLM
from dpkit.optimize.result import NOTHING, outcome
from dpkit.states.entries import array, check_kind, entry, scalar

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

__all__ = ["StreamLearner", "one_pass"]

Vector = NDArray[np.float64]
Set = TypeVar("Set", bound=ConvexSet)


class StreamLearner(ABC, Generic[Set]):
    """Takes a row at a time; see the learners for the public attributes."""

    _VERSION: ClassVar[int] = 1
    # what a state keeps: the parameters of ``_configure``, and arrays (attributes with an underscore)
    _PARAMETERS: ClassVar[tuple[str, ...]]
    _ARRAYS: ClassVar[tuple[str, ...]]

    objective: GLM
    constraint: Set
    clip: float
    horizon: int
    forgetting: float
    step_scale: float
    norm: float  # that gradients are clipped in
    theta: Vector
    steps: int
    clipped: int

    @property
    @abstractmethod
    def cost(self) -> Release:
        """What the whole stream costs, whether or not all of its steps are used."""

    @abstractmethod
    def _configure(self, *args: Any, **parameters: Any) -> None:
        """Check and keep the objective, the set and the parameters of a state."""

    @abstractmethod
    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        """The next iterate from a checked row, its label and its ℓ_norm length."""

    @abstractmethod
    def _noise_state(self) -> dict[str, Any]:
        """What a state keeps of the noise."""

    @abstractmethod
    def _restore_noise(self, state: Mapping[str, Any], rng: np.random.Generator | None, ledger: Ledger | None) -> None:
        """Take it over, and note the restoration in the ledger."""

    def _keep(self, objective: GLM, constraint: Set, horizon: int, forgetting: float, step_scale: float) -> None:
        """Check and keep the parameters that all learners have."""
        self.objective, self.constraint = objective, constraint
        self.clip = clip_of(objective)
        self.horizon = integer("horizon", horizon, at_least=1)
        self.forgetting = positive("forgetting", forgetting)
        if self.forgetting < 1:
            raise ValueError(f"forgetting must be at least 1, got forgetting={forgetting!r}")
        self.step_scale = positive("step_scale", step_scale)

    def _begin(self, start: Vector) -> None:
        """The state of an empty stream."""
        self.theta = start
        self._iterates = np.stack([start, start])  # θ_t, θ_{t−1}
        self._pair = np.empty(2)
        self._gradient = np.zeros(len(start))  # d_t
        self.steps = self.clipped = 0

    def step(self, x: ArrayLike, y: float) -> Vector:
        """Take the next row and return the next iterate, a new array.

        Parameters
        ----------
        x : (d,) array_like
        y : float

        Raises
        ------
        ValueError, TypeError
            If the row is not finite or of another shape, or the horizon is passed. Then nothing changes.
        """
        return self._advance(*checked_row(x, y, self._iterates.shape[1], self.norm))

    def _recursive_gradient(self, x: Vector, y: float, length: float) -> tuple[float, Vector, bool]:
        """ρ_t, g_t and whether it was clipped, for t = steps + 1; changes nothing."""
        if self.steps >= self.horizon:
            raise ValueError(f"at most horizon={self.horizon} rows may be taken, got row {self.steps + 1}")
        rho = min(1.0, self.forgetting / (self.steps + 2))
        self._pair.fill(y)
        with np.errstate(all="ignore"):  # what overflows is clipped
            now, before = self.objective.slope(self._iterates @ x, self._pair).tolist()
        psi, cut = clipped_slope(now + (1.0 / rho - 1.0) * (now - before), length, self.clip)
        return rho, psi * x, cut

    def _move(self, direction: Vector, rate: float) -> Vector:
        """θ_{t+1} = θ_t + rate·direction, a new array; ``direction`` is used up."""
        direction *= rate
        direction += self.theta
        self._iterates[1] = self.theta
        self._iterates[0] = self.theta = direction
        return direction.copy()

    def state(self) -> dict[str, Any]:
        """Everything that a later :meth:`restore` needs, as plain scalars and arrays that ``numpy.savez`` takes.

        The state is secret: exact sums over the rows follow from it. Of the secure source nothing is saved; of a
        simulation's generator its state is, so that the restored stream continues bit for bit.
        """
        return {
            "learner": type(self).__name__,
            "version": self._VERSION,
            "clip": self.clip,
            **{name: getattr(self, name) for name in (*self._PARAMETERS, "steps", "clipped")},
            **{name: getattr(self, f"_{name}").copy() for name in self._ARRAYS},
            **self._noise_state(),
        }

    @classmethod
    def restore(
        cls,
        state: Mapping[str, Any],
        objective: GLM,
        constraint: Set,
        *,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """A new learner that continues where ``state`` was taken, with fresh noise; its stream was already paid for.

        Only one continuation, of the state after the last row, is private at the stated cost: another would release
        once more what was released before, with other noise.

        Parameters
        ----------
        state : mapping
            What :meth:`state` returned, or the file that ``numpy.savez(file, **state)`` wrote, loaded.
        objective, constraint
            Those of the learner that was saved.
        rng : numpy.random.Generator, optional
            By default the saved simulation's generator, or the secure source. A private stream refuses a seeded one.
        ledger : Ledger, optional
            The ledger that was charged. The restoration is recorded in it at no cost, and a second one is refused.

        Raises
        ------
        ValueError, TypeError
            If the state is not one of such a learner, was restored before, or was not paid for in ``ledger``.
        """
        check_kind(state, "learner", cls.__name__, cls._VERSION)
        self = cls.__new__(cls)
        self._configure(objective, constraint, **{name: scalar(state, name) for name in cls._PARAMETERS})
        clip, iterates = scalar(state, "clip"), entry(state, "iterates")
        if self.clip != clip:  # the noise would not fit
            raise ValueError(f"objective must have the clip of the saved learner, {clip!r}, got clip={self.clip!r}")
        if iterates.shape != (2, constraint.dimension) or not constraint.contains(iterates[0]):
            raise ValueError(
                f"constraint must be that of the saved learner, got {constraint!r}, where its iterate is not"
            )
        self._begin(np.zeros(constraint.dimension))
        for name in cls._ARRAYS:
            setattr(self, f"_{name}", array(state, name, getattr(self, f"_{name}")))
        self.theta = self._iterates[0].copy()
        self.steps, self.clipped = (integer(name, scalar(state, name), at_least=0) for name in ("steps", "clipped"))
        self._restore_noise(state, rng, ledger)
        return self


def one_pass(
    make: Callable[[int, Ledger | None], StreamLearner[Any]],
    X: ArrayLike,
    y: ArrayLike,
    *,
    dimension: int,
    callback: Callable[[Vector], object] | None,
    ledger: Ledger | None,
) -> OptimizeResult:
    """Run the learner ``make(horizon, ledger)`` over the rows in their order; without rows its start, at no cost."""
    rows, labels = checked_data(X, y, dimension)
    n = len(rows)
    # without rows the parameters are checked all the same, and nothing is charged
    learner = make(max(1, n), ledger if n else None)
    if n == 0:
        return outcome(learner.theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    for x, label, length in zip(rows, labels.tolist(), lengths(rows, learner.norm).tolist(), strict=True):
        theta = learner._advance(x, label, length)
        if callback is not None:
            callback(theta)
    return outcome(
        learner.theta, learner.cost, nit=n, nfev=2 * n, message=f"one pass over {n} rows", clipped=learner.clipped
    )
