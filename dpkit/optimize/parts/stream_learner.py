"""What the online learners share: how they take rows, their iterates and states, and whole passes.

What is done with a row, and the noise, are the learners'.

A step is one transaction of :class:`dpkit.states.Run`: threads take their turns, an interrupt within a step closes the
learner, and of a state and what it was taken from only one goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Release
from accounting.checks import choice, integer, nonnegative
from accounting.printed import as_html, parameter_cells
from dpkit import randomness
from dpkit.clipping import lengths
from dpkit.continual import ContinualSum
from dpkit.geometry import ConvexSet
from dpkit.mechanisms._checked import settle, still_spent
from dpkit.models.losses import GLM
from dpkit.states import Run, Unrepeatable
from dpkit.states.entries import check_kind, conform, generator, generator_text, kept, resume
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import checked_data, checked_row, clip_of

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["StreamLearner", "checked_ridge", "largest_noise", "one_pass"]

Vector = NDArray[np.float64]
Set = TypeVar("Set", bound=ConvexSet)

_SMALLEST_CLIP = 1e-100


class StreamLearner(Unrepeatable, ABC, Generic[Set]):
    """Takes a row at a time; see the learners for the public attributes."""

    _VERSION: ClassVar[int] = 2
    _LABEL: ClassVar[str]
    # what a state keeps: the parameters of ``_configure``, those of ``_prepare``, and what changes with every row
    _PARAMETERS: ClassVar[tuple[str, ...]]
    _NOISE: ClassVar[tuple[str, ...]]
    _LEARNED: ClassVar[tuple[str, ...]]
    # how many gradients of its row a step takes
    _GRADIENTS: ClassVar[int] = 1

    objective: GLM
    constraint: Set
    clip: float
    horizon: int
    norm: float  # that gradients are clipped in
    theta: Vector
    steps: int
    clipped: int
    _rng: np.random.Generator
    _run: Run

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.constraint!r}, clip={self.clip:g}): {self.steps:,} of {self.horizon:,} rows, "
            f"which cost {self.cost!r}"
        )

    def _repr_html_(self) -> str:
        shown = {"objective": self.objective} | {name: getattr(self, name) for name in self._PARAMETERS + self._NOISE}
        return as_html(repr(self), parameter_cells(shown))

    @property
    @abstractmethod
    def cost(self) -> Release:
        """What the whole stream costs, whether or not all of its steps are used."""

    @abstractmethod
    def _configure(self, *args: Any, **parameters: Any) -> None:
        """Check and keep the objective, the set and the parameters of a state."""

    @abstractmethod
    def _prepare(self, *args: Any, **noise: Any) -> None:
        """Fix the noise from the parameters of a state that say what it is; draw none."""

    @abstractmethod
    def _advance(self, x: Vector, y: float, length: float) -> Vector:
        """The next iterate, a new array, from a checked row, its label and its ℓ_norm length."""

    def _keep(self, objective: GLM, constraint: Set, horizon: int) -> None:
        """Check and keep the parameters that all learners have."""
        self.objective, self.constraint = objective, constraint
        self.clip = clip_of(objective)
        if not _SMALLEST_CLIP <= self.clip <= 1.0 / _SMALLEST_CLIP:  # its square, and noise of it, have to be floats
            raise ValueError(f"objective must have a clip from 1e-100 to 1e100, got clip={self.clip!r}")
        self.horizon = integer("horizon", horizon, at_least=1)

    def _begin(self, start: Vector) -> None:
        """The state of an empty stream."""
        self.theta = start
        self._iterates = np.stack([start, start])  # θ_t, θ_{t−1}
        self.steps = self.clipped = 0

    def _open(self, ledger: Ledger | None) -> None:
        """Charge the whole stream, before any noise is drawn."""
        self._run = Run(self._LABEL, ledger=ledger, simulation=randomness.is_simulation(self._rng))
        self._run.charge(self.cost)

    def step(self, x: ArrayLike, y: float) -> Vector:
        """Take the next row and return the next iterate, a new array.

        Parameters
        ----------
        x : (d,) array_like
        y : float

        Raises
        ------
        ValueError, TypeError
            If the row is not finite or of another shape, its label not one that the objective is for, or the horizon is
            passed. Then nothing changes.
        RunStopped
            If an earlier step was interrupted, the process is a fork of the learner's, or somebody goes on with a state
            of it. (After an interrupt of this call ``steps`` says whether the row was taken, if the learner goes on.)
        """
        self._run.check_process()
        with self._run.lock:
            self._run.check()
            return self._take(*checked_row(x, y, self._iterates.shape[1], self.norm, self.objective))

    def _take(self, x: Vector, y: float, length: float) -> Vector:
        """:meth:`step` for a checked row."""
        if self.steps >= self.horizon:
            raise ValueError(f"at most horizon={self.horizon} rows may be taken, got row {self.steps + 1}")
        self._run.begin()
        theta = self._advance(x, y, length)
        self._iterates[1] = self._iterates[0]
        self._iterates[0] = theta
        self._run.commit()
        self.theta = theta
        given = theta.copy()
        self._run.end()
        return given

    def state(self) -> dict[str, Any]:
        """Everything that a later :meth:`restore` needs: a tree for :func:`dpkit.states.files.write`.

        The state is secret: exact sums over the rows follow from it. Of the secure source nothing is saved; of a
        simulation's generator its state is, so that the restored stream continues bit for bit.

        Raises
        ------
        RunStopped
            As for :meth:`step`.
        """
        self._run.check_process()
        with self._run.lock:
            return {
                "learner": type(self).__name__,
                "version": self._VERSION,
                "run": self._run.state(),
                "clip": self.clip,
                "norm": self.norm,
                "set": _minimizers(self.constraint),
                "parameters": {name: getattr(self, name) for name in self._PARAMETERS},
                "noise": kept(self, self._NOISE),
                "learned": kept(self, self._LEARNED),
                "generator": generator_text(self._rng),
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
        unattended: bool = False,
    ) -> Self:
        """A new learner that continues where ``state`` was taken, with fresh noise; its stream was already paid for.

        Only one continuation, of the state after the last row, is private at the stated cost: another would release
        once more what was released before, with other noise.

        Parameters
        ----------
        state : mapping
            What :meth:`state` returned, or :func:`dpkit.states.files.read` found.
        objective, constraint
            Those of the learner that was saved.
        rng : numpy.random.Generator, optional
            By default the saved simulation's generator, or the secure source. A private stream refuses a seeded one.
        ledger : Ledger, optional
            The ledger that was charged; required if there was one. The restoration is marked in it at no cost: a second
            one is refused, so is an older state, and the learner that was saved stops if it is still there.
        unattended : bool
            Your word that this is the newest state and that nobody else continues it: needed without a ledger, except
            for simulations.

        Raises
        ------
        ValueError, TypeError
            If the state is not one of such a learner, must not go on, or was not paid for in ``ledger``.
        """
        check_kind(state, "learner", cls.__name__, cls._VERSION)
        parts = {name: _part(state, name) for name in ("run", "parameters", "noise", "learned")}
        for name, expected in (("parameters", cls._PARAMETERS), ("noise", cls._NOISE)):
            if set(parts[name]) != set(expected):
                raise ValueError(f"{name} must hold the entries {sorted(expected)}, got {sorted(parts[name])}")
        choice("adjacency", parts["noise"]["adjacency"], "replace", "zero_out")
        self = cls.__new__(cls)
        self._configure(objective, constraint, **parts["parameters"])
        # the noise fits gradients of this length, in this norm, and the iterates are of this set
        if self.clip != state.get("clip"):
            raise ValueError(
                f"objective must have the clip of the saved learner, {state.get('clip')!r}, got clip={self.clip!r}"
            )
        here, there = _minimizers(constraint), state.get("set")
        if (
            self.norm != state.get("norm")
            or not isinstance(there, np.ndarray)
            or there.shape != here.shape
            or not np.allclose(there, here, rtol=1e-9, atol=1e-9 * float(np.abs(here).max(initial=0.0)))
        ):
            raise ValueError(f"constraint must be that of the saved learner, got {constraint!r}")
        self._rng = generator(conform("generator", state.get("generator"), like=""), rng)
        self._begin(np.zeros(constraint.dimension))
        self._prepare(**parts["noise"])
        resume(self, cls._LEARNED, parts["learned"])
        if self.steps > self.horizon or not constraint.contains(self._iterates[0]):
            raise ValueError(
                f"state must be of at most horizon={self.horizon} rows with an iterate in the set, got another"
            )
        self._check_learned()
        self.theta = self._iterates[0].copy()
        if ledger is not None and not ledger.holds(self.cost):
            raise ValueError(f"ledger must hold the cost of what is restored, {self.cost!r}, got other rows only")
        self._run = Run(self._LABEL, simulation=randomness.is_simulation(self._rng))
        self._run.resume(parts["run"], ledger=ledger, unattended=unattended, once=True)
        return self

    def _check_learned(self) -> None:
        """Refuse what was learned if its parts do not belong together."""


def _part(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = state.get(name)
    if not isinstance(part, Mapping):
        raise ValueError(f"state must have a tree of entries {name!r}, got entries {sorted(state)}")
    return part


def _minimizers(constraint: ConvexSet) -> Vector:
    """Points of the set in three directions, by which it is known again: shape (3, d)."""
    positions = np.arange(1.0, constraint.dimension + 1.0)
    directions = (positions, np.cos(positions), -1.0 / positions)
    return np.stack([constraint.linear_minimizer(direction) for direction in directions])


def checked_ridge(ridge: float, clip: float) -> float:
    """λ, if it is 0 or steps of length clip/λ, and of noise, are far from the largest floats."""
    checked = nonnegative("ridge", ridge)
    if 0 < checked < 1e-100 * clip:
        raise ValueError(f"ridge must be 0 or at least 1e-100 times the clip, got ridge={ridge!r} with clip={clip!r}")
    return checked


def largest_noise(sums: ContinualSum) -> float:
    """The standard deviation of the noise in a coordinate, about where it is largest.

    Of a factorization with scaled columns that is a little after the middle; of a tree where all bits of t are set.
    """
    T = sums.horizon
    return max(sums.noise_std(t) for t in (T, -(-5 * T // 9), (1 << (T + 1).bit_length() - 1) - 1))


def one_pass(
    make: Callable[[int, Ledger | None], StreamLearner[Any]],
    X: ArrayLike,
    y: ArrayLike,
    *,
    objective: GLM,
    dimension: int,
    callback: Callable[[Vector], object] | None,
    ledger: Ledger | None,
) -> OptimizeResult:
    """Run the learner ``make(horizon, ledger)`` over the rows in their order; without rows its start, at no cost."""
    rows, labels = checked_data(X, y, dimension, objective)
    n = len(rows)
    # without rows the parameters are checked all the same, and nothing is charged
    learner = make(max(1, n), ledger if n else None)
    if n == 0:
        return outcome(learner.theta, NOTHING, nit=0, nfev=0, message="no rows: the start is returned", clipped=0)
    row = learner._run.charged
    try:
        for x, label, length in zip(rows, labels.tolist(), lengths(rows, learner.norm).tolist(), strict=True):
            theta = learner._take(x, label, length)
            if callback is not None:
                callback(theta)
    except KeyboardInterrupt as interrupt:
        if row is not None:
            interrupt.add_note(still_spent(learner._LABEL, row))
        raise
    settle(ledger, row)
    return outcome(
        learner.theta,
        learner.cost,
        nit=n,
        nfev=learner._GRADIENTS * n,
        message=f"one pass over {n} rows",
        clipped=learner.clipped,
    )
