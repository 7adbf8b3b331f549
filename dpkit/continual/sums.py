"""Noisy prefix sums of a stream by a factorization: cut, encode, round, add exact noise, decode.

With A = B·C (:mod:`dpkit.continual.factorization`), γ a public step and integers k, z:

1. v_t = x_t/γ, cut entrywise to the factorization's reach;
2. k_t = the t-th rows of C·v, rounded, by a deterministic program, which may subtract a function of z_1, …, z_{t−1};
3. z_t = k_t + ⌊noise⌉, sampled exactly;
4. y_t = γ·(B·z)_t, in float64.

Since k is an integer, k + ⌊n⌉ = ⌊k + n⌉: what leaves is a function of k + n with real noise n, and the sensitivity of
k is that of C·x plus at most 0.1 %, which the noise level includes. So it costs what the mechanism in real arithmetic
costs, and nothing is left to say about floating point: step 4 reads public numbers only. ``docs/exact-noise.md`` has
the proof.

A saved stream has its earlier inputs in units of γ, so that noise is what the price says only if γ and C are what they
were. C is that of the parameters, or the state holds it (:meth:`Factorization.as_saved`); γ is computed from C, and a
state that names another is refused: its factor, horizon or sensitivity is not that of its inputs. So is one that names
another standard deviation: its sums have left with the noise of another price. No state can be asked
whether its inputs, or all that belongs to them, are true: that is for its file and the mark of it in a ledger.

One class and one file: what is checked, released and kept of a stream is one transaction, read in one go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Gaussian, Release, calibrate
from accounting.checks import integer, positive
from dpkit import randomness
from dpkit.continual._layout import Layout
from dpkit.continual._noise import Ahead, Law, law
from dpkit.continual.factorization import Factorization
from dpkit.states import Run, Unrepeatable
from dpkit.states.entries import check_kind, conform, entry, generator, generator_text, scalar, short

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["ContinualSum"]

# sensitivities down to here have steps that are normal numbers: a subnormal one is not right within 2⁻⁵³
_SMALLEST = 2.0**-800
_RUN = ("id", "step", "anchor", "ledger")
_AHEAD = ("ahead", "ahead_used", "ahead_drawn")
# what earlier versions did not keep
_OF_NOISE = ("gamma", "noise_std")
# how far, relatively, standard deviations of one law may lie apart on two machines, whose lgamma differ
_SAME_STD = 1e-6


class ContinualSum(Unrepeatable):
    """Noisy prefix sums by ``factorization``, whose whole stream costs ``Gaussian(noise_multiplier)``.

    The named mechanisms (``BufferedToeplitz``, …) are this class with a factorization of their own.

    Parameters
    ----------
    factorization : Factorization
        Of one stream, this one; it holds the stream's state.
    shape : int or tuple of int
        The shape of one input. ``()`` for scalars.
    sensitivity : float
        The largest L2 (Frobenius) distance between one input and the one that a neighbouring stream has in its
        place, under ``adjacency``: 2B for vectors of norm at most B under "replace"; see ``dpkit.geometry``. It is the
        caller's to guarantee, by clipping: a distance cannot be checked on one input.
    noise_multiplier : float
        z > 0. ``calibrated`` finds it from a budget.
    noise : {"gaussian"}
        The distribution of the noise; ``BinaryTree`` has more.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation that ``sensitivity`` was measured under.
    participations, min_separation : int
        One unit contributes to at most so many inputs, any two of them so many steps apart; both count for the price.
        Neighbouring streams then differ in all of these inputs, by ``sensitivity`` each.
    symmetric : bool
        Inputs are symmetric (d, d) matrices; noise is added to their isometric half-vector, estimates are symmetric.
    rng : numpy.random.Generator, optional
        By default secure; any other generator makes it a simulation, and the ledger says so.
    ledger : Ledger, optional
        Charged with the whole stream here, before any noise is drawn.
    label : str
        For the reader of the ledger.

    Attributes
    ----------
    horizon : int
        The largest number of inputs.
    steps : int
        How many were taken.
    largest_input : float
        Entries of inputs (of half-vectors, for matrices) beyond it are cut to it, as a public limit of the arithmetic.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.continual import BufferedToeplitz, ContinualSum
    >>> sums = BufferedToeplitz.calibrated(budget=Budget(1.0, 1e-6), horizon=10, shape=2, sensitivity=2.0)
    >>> isinstance(sums, ContinualSum), sums.add([0.6, 0.8]).shape
    (True, (2,))
    """

    # what a state keeps, besides what every stream has; and of what a state means: an older one is refused
    _PARAMETERS: ClassVar[tuple[str, ...]] = ()
    _COMMON: ClassVar[tuple[str, ...]] = (
        "sensitivity",
        "noise_multiplier",
        "noise",
        "adjacency",
        "symmetric",
        "label",
        "participations",
        "min_separation",
    )
    _VERSION: ClassVar[int] = 5
    _KINDS: ClassVar[tuple[str, ...]] = ("gaussian",)

    def __init__(
        self,
        factorization: Factorization,
        *,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: str = "gaussian",
        adjacency: Adjacency = "replace",
        participations: int = 1,
        min_separation: int = 1,
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "continual sums",
    ) -> None:
        self.horizon = factorization.horizon
        self.noise = one_of("noise", noise, self._KINDS)
        integers = noise == "discrete_gaussian"
        self._layout = Layout(shape, symmetric, np.dtype(np.int64 if integers else np.float64))
        self.symmetric = self._layout.symmetric
        self.sensitivity = positive("sensitivity", sensitivity)
        self.noise_multiplier = positive("noise_multiplier", noise_multiplier)
        positive("noise_multiplier * sensitivity", self.noise_multiplier * self.sensitivity)
        one_of("adjacency", adjacency, get_args(Adjacency))
        self.adjacency: Adjacency = adjacency
        self.participations = integer("participations", participations, at_least=1)
        self.min_separation = integer("min_separation", min_separation, at_least=1)
        self.label = label
        self.steps = 0

        dimension = self._layout.dimension
        self._cut = noise in ("gaussian", "laplace")
        self._single = self._cut and dimension == 1
        if self._cut and not _SMALLEST <= self.sensitivity <= 1 / _SMALLEST:
            raise ValueError(f"sensitivity must lie in [2**-800, 2**800], got sensitivity={sensitivity!r}")
        self._rng = source = randomness.resolve(rng)
        noise_law = self._law_for(factorization)
        self._take(factorization, noise_law, Ahead(noise_law, self._layout.dimension, source))
        self._run = Run(label, ledger=ledger, simulation=randomness.is_simulation(source))
        self._run.charge(self.cost)

    def _law_for(self, factorization: Factorization) -> Law:
        """The noise that the price states for this factor."""
        norm = factorization.column_norm
        if self.participations > 1:
            norm = factorization.joint_norm(self.participations, self.min_separation)
        q, dimension = getattr(self, "q", 2.0), self._layout.dimension
        found = law(self.noise, self.noise_multiplier, self.sensitivity, q, dimension, factorization, norm)
        if found.step < _SMALLEST**1.25:
            raise ValueError(
                "noise_multiplier must leave steps of at least 2**-1000, got "
                f"noise_multiplier={self.noise_multiplier!r} with sensitivity={self.sensitivity!r}"
            )
        if (most := self._largest_input(factorization, found)) < self.sensitivity:
            raise ValueError(
                f"horizon, shape and noise_multiplier must leave 53 bits enough for inputs of the size of the "
                f"sensitivity={self.sensitivity!r}, got horizon={self.horizon} with {dimension} coordinates, where "
                f"inputs would be cut at {most:.3g}: split the stream, or use BinaryTree (up to 2**40 inputs)"
            )
        return found

    def _largest_input(self, factorization: Factorization, noise: Law) -> float:
        # divided by γ again it stays below the reach, whatever is rounded
        return factorization.reach * noise.step * (1 - 2.0**-50) if self._cut else math.inf

    def _take(self, factorization: Factorization, noise: Law, ahead: Ahead) -> None:
        """Begin an empty stream."""
        self._factorization, self._law, self._ahead = factorization, noise, ahead
        self.largest_input = self._largest_input(factorization, noise)
        self._step = np.array(noise.step)  # arithmetic with arrays takes half the time of that with numbers
        self._layout.cut(self.largest_input, noise.step)
        factorization.begin(self._layout.dimension, noise.dtype)

    @classmethod
    def _describe(cls, noise_multiplier: float, parameters: Mapping[str, Any]) -> Release:
        """The cost of a whole stream with these parameters of the constructor."""
        return Gaussian(noise_multiplier, adjacency=parameters["adjacency"])

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

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self.shape}, sensitivity={self.sensitivity:.6g}, "
            f"noise_multiplier={self.noise_multiplier:.6g}): {self.steps:,} of {self.horizon:,} inputs"
        )

    @property
    def cost(self) -> Release:
        """What the whole stream costs, whether or not all of its steps are used; it states the adjacency."""
        return self._describe(self.noise_multiplier, self._parameters())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input and of one estimate."""
        return self._layout.shape

    def noise_std(self, t: int) -> float:
        """The standard deviation of the noise in the t-th estimate, 1 ≤ t ≤ horizon, in closed form.

        Of each entry; for symmetric inputs of each diagonal entry, and √2 times that of an off-diagonal one.
        """
        t = integer("t", t, at_least=1)
        if t > self.horizon:
            raise ValueError(f"t must be at most horizon={self.horizon}, got t={t}")
        return self._law.std * self._factorization.error(t)

    # ------------------------------------------------------------------------------------------- inputs

    def add(self, x: ArrayLike) -> NDArray[Any]:
        """Take the next input and return the noisy sum of all inputs so far, a new array of shape ``shape``.

        Raises
        ------
        ValueError, TypeError
            If ``x`` has the wrong shape or type, is not finite or not symmetric, or passes the horizon. Nothing is
            drawn and the state is unchanged.
        RunStopped
            If an earlier call was interrupted, another process goes on with this stream, or it was forked.
        """
        run = self._run
        run.check_process()
        with run.lock:
            t, factorization = self.steps, self._factorization
            if t >= self.horizon:
                self._check_room(1)
            if self._single:  # calls of numpy would take longer than the arithmetic
                number = self._layout.number(x)
                run.begin()
                estimate = self._layout.estimate(factorization.one(t, number, self._ahead.one) * self._law.step)
            else:
                v = self._layout.flatten(x)
                if not self._cut:
                    factorization.check(t, v[None])
                run.begin()
                y = factorization.decode(t, self._ahead.add_to(factorization.encode(t, v)))
                estimate = self._layout.unflatten(np.multiply(y, self._step) if self._cut else y.copy())
            self.steps = t + 1
            if run.ledger is not None:
                run.commit()
            run.end()
        return estimate

    def add_many(self, xs: ArrayLike) -> NDArray[Any]:
        """Take n inputs at once, ``xs`` of shape ``(n, *shape)``, and return the noisy sum after each of them.

        The same as n calls of :meth:`add` up to rounding, several times faster. Inputs that depend on earlier outputs
        must be added one by one.

        Raises
        ------
        ValueError, TypeError
            As for :meth:`add`; then none of the inputs is taken.
        RunStopped
            As for :meth:`add`.
        """
        run = self._run
        run.check_process()
        with run.lock:
            rows = self._layout.flatten_rows(xs)
            self._check_room(len(rows))
            self._factorization.check(self.steps, rows)
            estimates = np.empty(rows.shape, self._layout.dtype)
            run.begin()
            size = max(48, 2**15 // rows.shape[1] // 48 * 48)  # a quarter of a megabyte, for the processor's cache
            if not self._factorization.in_parts:
                size = max(1, len(rows))
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                v = np.divide(part, self._step) if self._cut else part
                y = self._factorization.many(self.steps, v, self._ahead.add_to)
                np.multiply(y, self._step if self._cut else 1, estimates[start : start + size])
                self.steps += len(part)
            if run.ledger is not None:
                run.commit()
            run.end()
        return self._layout.unflatten(estimates)

    def _check_room(self, count: int) -> None:
        """Refuse the inputs that would pass the horizon: the noise was calibrated for no more."""
        if self.steps + count > self.horizon:
            raise ValueError(f"at most horizon={self.horizon} inputs may be added, got input {self.steps + count}")

    # --------------------------------------------------------------------------------------------- states

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self._PARAMETERS, *self._COMMON)}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self._factorization.secret(self.steps) | self._factorization.public(self.steps)

    def kept(self) -> dict[str, Any]:
        """What the state of an object that owns this stream keeps of it; secret, and without the generator."""
        arrays = {name: array.copy() for name, array in self._arrays().items()}
        noise = {"gamma": self._law.step, "noise_std": self._law.std}
        return {"steps": self.steps, **noise, **arrays, **self._ahead.kept()}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Go on, in place, where a stream of the same parameters was when :meth:`kept` was called on it.

        Only one continuation is private at the stated cost. The owner's :class:`dpkit.states.Run` sees to that.

        Raises
        ------
        ValueError
            If an entry is missing, too many, or not of this stream's type, shape and size, or if noise would not be
            what the price says. Then nothing changes.
        """
        if not isinstance(saved, Mapping):
            raise ValueError(f"state of a continual sum must be a mapping, got {short(saved)}")
        steps = conform("steps", saved.get("steps"), like=0)
        if steps > self.horizon:
            raise ValueError(f"steps must be at most horizon={self.horizon}, got steps={steps}")
        likes = self._factorization.secret(steps) | self._factorization.public(steps)
        if set(saved) - {*_OF_NOISE} != {"steps", *_AHEAD, *likes}:
            raise ValueError(f"state must hold the entries {sorted({'steps', *likes})}, got {sorted(saved)}")
        arrays = {name: conform(name, saved[name], like) for name, like in likes.items()}
        factorization = self._factorization.as_saved(arrays)
        if self._cut:
            factorization.check_saved(arrays)
        noise = self._law if factorization is self._factorization else self._law_for(factorization)
        gamma = conform("gamma", saved.get("gamma", self._law.step), like=0.0)
        if abs(gamma - noise.step) > factorization.agreement * noise.step:
            raise ValueError(
                f"gamma must be {noise.step!r}, which makes the noise that the price says of what this stream and the "
                f"state say of its factor, got gamma={gamma!r}: give the factorization and the parameters of the saved "
                "stream"
            )
        std = conform("noise_std", saved.get("noise_std", noise.std), like=0.0)
        if abs(std - noise.std) > _SAME_STD * noise.std:
            raise ValueError(
                f"noise_std must be {noise.std!r}, which is that of noise_multiplier={self.noise_multiplier!r}, as the "
                f"earlier sums must have it too, got noise_std={std!r}: give the parameters of the saved stream"
            )
        ahead = Ahead(noise, self._layout.dimension, self._rng)
        ahead.resume(*(saved[name] for name in _AHEAD))
        self._take(factorization, noise, ahead)
        live = self._factorization.secret(steps) | self._factorization.public(steps)
        for name, array in arrays.items():
            live[name][...] = array
        self.steps = steps

    def state(self) -> dict[str, Any]:
        """Everything that a later :meth:`restore` needs, as plain scalars and arrays that ``numpy.savez`` takes.

        The state is secret: exact sums follow from it. Of a secure source nothing is saved; of a simulation's generator
        its state is, so that the restored stream continues bit for bit.

        Raises
        ------
        RunStopped
            If the stream was interrupted, or another process goes on with it.
        """
        self._run.check_process()
        with self._run.lock:
            return {
                "mechanism": type(self).__name__,
                "version": self._VERSION,
                "shape": np.array(self.shape, dtype=np.int64),
                **self._parameters(),
                **self.kept(),
                "generator": generator_text(self._rng),
                **{f"run_{name}": value for name, value in self._run.state().items()},
            }

    @classmethod
    def restore(
        cls,
        state: Mapping[str, Any],
        *,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        unattended: bool = False,
        **own: Any,
    ) -> Self:
        """A new mechanism that continues where ``state`` was taken, with fresh noise; its stream was already paid for.

        Only one continuation is private at the stated cost: whoever continues a state a second time, or an older
        state after a later estimate has left, releases some noisy sums twice with independent noise, which can cost
        as much as the whole stream again. The ledger knows the newest state, and refuses every other one; after this
        it also stops whoever made the state.

        Parameters
        ----------
        state : mapping
            What :meth:`state` returned, or the file that ``numpy.savez(file, **state)`` wrote, loaded.
        rng : numpy.random.Generator, optional
            By default the saved simulation's generator, or the secure source. A private stream refuses a seeded
            generator.
        ledger : Ledger, optional
            The ledger that was charged with the stream. Needed if there was one.
        unattended : bool
            For a stream without a ledger, where nothing can tell: the caller's word that the state is the newest and
            that nobody else continues it. A simulation needs no such word.
        **own
            Parameters that a state does not keep: ``factorization`` for a plain ``ContinualSum``. Of a ``Banded`` one
            the saved coefficients go on, as another machine's search may have ended elsewhere.

        Raises
        ------
        ValueError, TypeError
            If the state is not one of this mechanism, was restored before, is older than the newest one, or was not
            paid for in ``ledger``.
        """
        check_kind(state, "mechanism", cls.__name__, cls._VERSION)
        parameters = {name: entry(state, name) for name in (*cls._PARAMETERS, *cls._COMMON)}
        parameters = {name: value if value.ndim else value.item() for name, value in parameters.items()}
        shape = tuple(entry(state, "shape").tolist())
        source = generator(scalar(state, "generator"), rng)
        make: Callable[..., Self] = cls
        self = make(**own, **parameters, shape=shape, rng=source)
        steps = integer("steps", scalar(state, "steps"), at_least=0)
        if steps <= self.horizon:
            self.steps = steps
        arrays = {name: entry(state, name) for name in (*self._arrays(), "ahead")}
        scalars = {"steps", *_AHEAD[1:], *(name for name in _OF_NOISE if name in state)}
        self.resume(arrays | {name: scalar(state, name) for name in scalars})
        if ledger is not None and not ledger.holds(self.cost):
            raise ValueError(f"ledger must hold the cost of what is restored, {self.cost!r}, got other rows only")
        saved = {name: scalar(state, f"run_{name}") for name in _RUN}
        self._run.resume(saved, ledger=ledger, unattended=unattended, once=True)
        return self


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """``value``, if it is one of the names in ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {name}={value!r}")
    return str(value)
