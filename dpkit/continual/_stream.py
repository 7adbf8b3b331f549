"""What every continual mechanism shares: its declared parameters, the layout of its inputs, its cost and its state.

The noise itself is in the mechanisms' own files.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Ledger, Release, calibrate
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.geometry import smat, svec
from dpkit.states.entries import (
    array,
    check_kind,
    conform,
    entry,
    generator,
    generator_text,
    record_restoration,
    scalar,
)

__all__ = ["ContinualSum", "Layout", "accumulate", "chunks", "one_of"]


# what an int64 counts, so that every state fits into a file of plain numbers
_LONGEST = 2**62

_FLOAT = np.dtype(np.float64)


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """``value``, if it is one of the names in ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {name}={value!r}")
    return str(value)


def chunks(count: int, dimension: int) -> Iterator[slice]:
    """Runs of rows that together are all of them, each small enough (half a megabyte) for the processor's cache."""
    size = max(32, 2**16 // dimension)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def accumulate(rows: NDArray[Any]) -> None:
    """Replace the rows of a matrix by their prefix sums, at twice the speed of ``numpy.cumsum``.

    Runs of 32 rows are summed side by side, then each run is shifted by the last row of the one before.
    """
    whole = len(rows) // 32 * 32
    runs = rows[:whole].reshape(-1, 32, rows.shape[1])
    for i in range(1, 32 if whole else 0):
        runs[:, i] += runs[:, i - 1]
    for run, last in zip(runs[1:], runs[:, -1], strict=False):
        run += last
    rest = rows[max(0, whole - 1) :]
    np.cumsum(rest, axis=0, out=rest)


class Layout:
    """The public shape of an input and of an estimate, and the flat vector that is noised in its place."""

    def __init__(self, shape: int | tuple[int, ...], symmetric: bool, dtype: type[np.generic] = np.float64) -> None:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        self.shape = tuple(integer("shape", size, at_least=1) for size in sizes)
        self.symmetric = bool(symmetric)
        if self.symmetric and (len(self.shape) != 2 or self.shape[0] != self.shape[1]):
            raise ValueError(f"shape must be (d, d) for symmetric inputs, got shape={shape!r}")
        self.dimension = self.shape[0] * (self.shape[0] + 1) // 2 if self.symmetric else math.prod(self.shape)
        self.dtype = np.dtype(dtype)
        # vectors of floats are their own flat form, which saves a third of the work on short ones
        self._plain = len(self.shape) == 1 and self.dtype == _FLOAT

    def flatten(self, x: ArrayLike) -> NDArray[Any]:
        """One input as a flat vector (possibly a view of it); an error if its shape, type or values are wrong."""
        array = x if type(x) is np.ndarray else np.asarray(x)
        if array.shape != self.shape:
            raise ValueError(f"x must have shape {self.shape}, got x.shape={array.shape}")
        if self._plain and array.dtype == _FLOAT and math.isfinite(np.vdot(array, array)):
            return array
        return self._checked(array, (self.dimension,))

    def flatten_rows(self, xs: ArrayLike) -> NDArray[Any]:
        """Several inputs as the rows of a matrix; an error if any of them is wrong."""
        array = np.asarray(xs)
        if array.shape[1:] != self.shape or array.ndim == 0:
            expected = ", ".join(["n", *map(str, self.shape)])
            raise ValueError(f"x must have shape ({expected}), got x.shape={array.shape}")
        return self._checked(array, (len(array), self.dimension))

    def _checked(self, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if array.dtype != self.dtype:
            kinds, values = ("biuf", "real numbers") if self.dtype.kind == "f" else ("biu", "integers")
            # unsigned 64-bit integers do not fit into signed ones
            if array.dtype.kind not in kinds or (self.dtype.kind == "i" and array.dtype == np.uint64):
                raise TypeError(f"x must be an array of {values}, got x.dtype={array.dtype}")
            array = array.astype(self.dtype)
        if self.dtype.kind == "i":
            return array.reshape(shape)
        flat = array.reshape(-1)
        # A finite sum of squares rules out NaN, infinity and every later overflow of a sum, in one pass; vdot, unlike
        # dot, does not warn when it overflows
        if not math.isfinite(np.vdot(flat, flat)):
            bad = int(np.count_nonzero(~np.isfinite(flat)))
            detail = f"x with {bad} entries that are NaN or infinite" if bad else "x with entries above 1e150"
            raise ValueError(f"x must be finite, got {detail}")
        if self.symmetric:
            _check_symmetry(array)
            return svec(array)
        return flat.reshape(shape)

    def unflatten(self, flat: NDArray[Any]) -> NDArray[Any]:
        """The array of the public shape with the contents of ``flat``, whose leading axes are kept; may be a view."""
        if self.symmetric:
            return smat(flat)
        return flat if self._plain else flat.reshape(flat.shape[:-1] + self.shape)


def _check_symmetry(array: NDArray[np.float64]) -> None:
    mirrored = np.swapaxes(array, -1, -2)
    if np.array_equal(array, mirrored):
        return
    excess = float(np.abs(array - mirrored).max())
    if excess > 1e-8 * float(np.abs(array).max()):
        raise ValueError(f"x must be symmetric, got |x - x.T| up to {excess:g}")


class ContinualSum(ABC):
    """The protocol of all continual mechanisms; see each for its parameters, its guarantee and its cost.

    A subclass states its parameters (those of ``_PARAMETERS``, which its state keeps), its arrays (``_arrays``, which
    its state keeps too), its cost, and how it adds an input.
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = (
        "horizon",
        "shape",
        "sensitivity",
        "noise_multiplier",
        "noise",
        "adjacency",
        "symmetric",
    )
    # of what a state means: an older state is refused rather than continued with another matrix
    _VERSION: ClassVar[int] = 1

    horizon: int
    sensitivity: float
    noise_multiplier: float
    noise: str
    adjacency: Adjacency
    symmetric: bool
    steps: int
    _sigma: float
    _layout: Layout
    _rng: np.random.Generator

    @abstractmethod
    def _configure(self, *args: Any, **kwargs: Any) -> None:
        """Check the parameters named in ``_PARAMETERS`` and make the state of an empty stream."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that hold the state of the stream, by name."""

    @abstractmethod
    def _load(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over arrays like those of :meth:`_arrays`; ``steps`` is set already."""

    @classmethod
    @abstractmethod
    def _describe(cls, noise_multiplier: float, parameters: Mapping[str, Any]) -> Release:
        """The cost of a whole stream."""

    @abstractmethod
    def add(self, x: ArrayLike) -> NDArray[Any]:
        """Take the next input and return the noisy sum of all inputs so far."""

    @abstractmethod
    def add_many(self, xs: ArrayLike) -> NDArray[Any]:
        """Take several inputs at once and return the noisy sum after each."""

    @abstractmethod
    def noise_std(self, t: int) -> float:
        """The standard deviation of the noise in the t-th estimate."""

    def _declare(
        self,
        horizon: int,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        adjacency: Adjacency,
        symmetric: bool,
        dtype: type[np.generic] = np.float64,
    ) -> None:
        """Check and keep the parameters that all mechanisms have."""
        self.horizon = integer("horizon", horizon, at_least=1)
        if self.horizon > _LONGEST:
            raise ValueError(f"horizon must be at most 2**62, got horizon={horizon!r}")
        self._layout = Layout(shape, symmetric, dtype)
        self.symmetric = self._layout.symmetric
        self.sensitivity = positive("sensitivity", sensitivity)
        self.noise_multiplier = positive("noise_multiplier", noise_multiplier)
        self._sigma = positive("noise_multiplier * sensitivity", self.noise_multiplier * self.sensitivity)
        one_of("adjacency", adjacency, get_args(Adjacency))
        self.adjacency = adjacency
        self.steps = 0

    def _open(self, rng: np.random.Generator | None, ledger: Ledger | None, label: str) -> None:
        """Fix the source of noise, and charge the whole stream before any noise is drawn."""
        self._rng = randomness.resolve(rng)
        if ledger is not None:
            ledger.spend(self.cost, label=label, simulation=randomness.is_simulation(self._rng))

    @classmethod
    def calibrated(cls, *, budget: Budget, **parameters: Any) -> Self:
        """The mechanism whose whole stream just meets ``budget``.

        Parameters
        ----------
        budget : Budget
            What the whole stream may cost. Its adjacency is the mechanism's, unless ``adjacency`` is given as well.
        **parameters
            The constructor's other parameters, without ``noise_multiplier``.

        Raises
        ------
        AdjacencyMismatch
            If ``adjacency`` is given and is not the budget's.
        """
        parameters.setdefault("adjacency", budget.adjacency)
        z = calibrate(lambda z: cls._describe(z, parameters), budget)
        make: Callable[..., Self] = cls
        return make(noise_multiplier=z, **parameters)

    @property
    def cost(self) -> Release:
        """What the whole stream costs, whether or not all of its steps are used; it states the adjacency."""
        return self._describe(self.noise_multiplier, {name: getattr(self, name) for name in self._PARAMETERS})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input and of one estimate."""
        return self._layout.shape

    def _check_room(self, count: int) -> None:
        """Refuse the inputs that would pass the horizon: the noise was calibrated for no more."""
        if self.steps + count > self.horizon:
            raise ValueError(f"at most horizon={self.horizon} inputs may be added, got input {self.steps + count}")

    def _check_step(self, t: int) -> int:
        t = integer("t", t, at_least=1)
        if t > self.horizon:
            raise ValueError(f"t must be at most horizon={self.horizon}, got t={t}")
        return t

    # --------------------------------------------------------------------------------------------- states

    def kept(self) -> dict[str, Any]:
        """What the state of an object that owns this stream keeps of it; secret, and without the generator."""
        return {"steps": self.steps, **{name: array.copy() for name, array in self._arrays().items()}}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Go on, in place, where a stream of the same parameters was when :meth:`kept` was called on it.

        Only one continuation is private at the stated cost. The owner's :class:`dpkit.states.Run` sees to that.

        Raises
        ------
        ValueError
            If an entry is missing, too many, or not of this stream's type, shape and size.
        """
        before = self.steps
        try:
            self.steps = conform("steps", saved.get("steps"), like=0)
            if self.steps > self.horizon:
                raise ValueError(f"steps must be at most horizon={self.horizon}, got steps={self.steps}")
            likes = self._arrays()
            if set(saved) != {"steps", *likes}:
                raise ValueError(f"state must hold the entries {sorted(['steps', *likes])}, got {sorted(saved)}")
            arrays = {name: conform(name, saved[name], like) for name, like in likes.items()}
        except BaseException:
            self.steps = before
            raise
        self._load(arrays)

    def state(self) -> dict[str, Any]:
        """Everything that a later :meth:`restore` needs, as plain scalars and arrays that ``numpy.savez`` takes.

        The state is secret: exact sums follow from it. Of a secure source nothing is saved; of a simulation's generator
        its state is, so that the restored stream continues bit for bit.
        """
        parameters = {name: getattr(self, name) for name in self._PARAMETERS}
        if "shape" in parameters:
            parameters["shape"] = np.array(self.shape, dtype=np.int64)
        return {
            "mechanism": type(self).__name__,
            "version": self._VERSION,
            "nonce": secrets.token_hex(16),
            **parameters,
            "steps": self.steps,
            **{name: array.copy() for name, array in self._arrays().items()},
            "generator": generator_text(self._rng),
        }

    @classmethod
    def restore(
        cls, state: Mapping[str, Any], *, rng: np.random.Generator | None = None, ledger: Ledger | None = None
    ) -> Self:
        """A new mechanism that continues where ``state`` was taken, with fresh noise; its stream was already paid for.

        Only one continuation is private at the stated cost. Whoever continues a state a second time, or an older
        state after a later estimate has left, releases some noisy sums twice with independent noise, which can cost
        as much as the whole stream again.

        Parameters
        ----------
        state : mapping
            What :meth:`state` returned, or the file that ``numpy.savez(file, **state)`` wrote, loaded.
        rng : numpy.random.Generator, optional
            By default the saved simulation's generator, or the secure source. A private stream refuses a seeded
            generator.
        ledger : Ledger, optional
            The ledger that was charged with the stream. The restoration is recorded in it at no cost, and a second
            one of the same state is refused.

        Raises
        ------
        ValueError, TypeError
            If the state is not one of this mechanism, was restored before, or was not paid for in ``ledger``.
        """
        check_kind(state, "mechanism", cls.__name__, cls._VERSION)
        parameters: dict[str, Any] = {}
        for name in cls._PARAMETERS:
            parameters[name] = tuple(entry(state, name).tolist()) if name == "shape" else scalar(state, name)
        self = cls.__new__(cls)
        self._configure(**parameters)
        steps = integer("steps", scalar(state, "steps"), at_least=0)
        if steps > self.horizon:
            raise ValueError(f"steps must be at most horizon={self.horizon}, got steps={steps}")
        self.steps = steps
        self._load({name: array(state, name, like) for name, like in self._arrays().items()})
        self._rng = generator(scalar(state, "generator"), rng)
        if ledger is not None:
            record_restoration(ledger, scalar(state, "nonce"), self.cost, randomness.is_simulation(self._rng))
        return self
