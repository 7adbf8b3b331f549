"""The Laplace and the Gaussian mechanism: a vector plus independent noise in each entry.

For anyone who releases counts, sums, means or any vector whose sensitivity is known. Sources: Dwork, McSherry, Nissim
& Smith (2006) and Dwork & Roth (2014), Theorem 3.6, for Laplace; Balle & Wang (2018) and Dong, Roth & Su (2022) for
the exact privacy of Gaussian noise.

Privacy. s is the largest ‖f(D) − f(D′)‖ over neighbouring D, D′, over all entries of the released array together: in L1
for Laplace, in L2 for the Gaussian. With noise of scale (standard deviation) z·s in each entry one release is

* Laplace: ε-DP with ε = 1/z;
* Gaussian: μ-GDP with μ = 1/z. It has no ε at δ = 0.

The exact route (the default with the secure source) works on integers, where floating-point attacks (Mironov 2012) find
nothing: with γ a power of two, x is rounded to k = ⌊x/γ⌉, and γ·(k + ⌊Z⌉) is released, the rounded noise ⌊Z⌉ sampled
exactly. On the integers the sensitivity is at most s/γ + n (L1) or s/γ + √n (L2), and Z has z times that scale. Because
k + ⌊Z⌉ = ⌊k + Z⌉ depends on the data through the real-valued mechanism k + Z alone, it costs the same, in every
accountant. Cost: one random number per entry.

Both in one file: they are one mechanism with two laws of noise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Gaussian, Laplace
from accounting.checks import fraction, positive
from dpkit import randomness
from dpkit.clipping import check_bound, real_array, within_norm
from dpkit.mechanisms._checked import charge, smallest_multiplier
from dpkit.samplers import rounded_gaussian, rounded_laplace
from dpkit.samplers.lattice import (
    check_granularity,
    default_granularity,
    from_lattice,
    lattice_scale,
    lattice_step,
    to_lattice,
)
from dpkit.samplers.rounded import rounded_gaussian_one, rounded_laplace_one

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["GaussianMechanism", "LaplaceMechanism"]


class _Law(NamedTuple):
    """Noise of scale 1: its description, the norm of its sensitivity, and how to draw it."""

    description: type[Laplace] | type[Gaussian]
    norm: int
    std: float
    rounded: Callable[..., NDArray[np.int64]]
    rounded_one: Callable[[float, np.random.Generator], int]
    floating: Callable[[np.random.Generator, tuple[int, ...]], Any]
    reach: Callable[[float], float]  # the quantile of its size


class _Additive:
    """What the two mechanisms share: everything but the law of the noise, and the number that sets its scale."""

    _law: ClassVar[_Law]
    _way_out: ClassVar[str]

    def __init__(
        self,
        *unnamed: object,
        sensitivity: float | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        exact: bool | None = None,
        granularity: float | None = None,
        norm_bound: float | None = None,
        clip: bool = False,
        adjacency: Adjacency = "replace",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if unnamed:
            raise TypeError(
                f"{type(self).__name__} takes no number without a name, got {unnamed[0]!r}: write "
                + self._way_out.format(unnamed[0])
            )
        if sensitivity is None:
            raise TypeError(
                f"{type(self).__name__} needs sensitivity=, the largest L{self._law.norm} distance that one unit can "
                "cause between two values: 1 for a count, the larger bound in size for a sum of bounded numbers"
            )
        self.noise_multiplier = self._multiplier(epsilon, noise_multiplier)
        self.sensitivity = positive("sensitivity", sensitivity)
        self.exact = not randomness.is_simulation(randomness.resolve(rng)) if exact is None else bool(exact)
        self.granularity = None if granularity is None else check_granularity(granularity)
        self.norm_bound = check_bound(norm_bound, clip)
        self.clip = clip
        self.cost = self._law.description(self.noise_multiplier, adjacency=adjacency)
        self._rng = rng
        self._ledger = ledger
        self._last_lattice: tuple[int, float, float] | None = None

    @classmethod
    def calibrated(cls, *, budget: Budget, sensitivity: float, releases: int = 1, **more: Any) -> Self:
        """The mechanism with the least noise of which ``releases`` releases together meet ``budget``.

        ``more`` are keywords of the class; the adjacency is the budget's. Gaussian noise needs a δ > 0.
        """
        describe = cls._law.description
        if describe is Gaussian and isinstance(budget, Budget) and budget.delta == 0:
            raise ValueError(
                f"Gaussian noise needs budget.delta > 0, got {budget!r}: allow a small delta, 1e-6 say and well "
                "below 1 over the number of units, or take LaplaceMechanism"
            )
        z = smallest_multiplier(lambda z, adjacency: describe(z, adjacency=adjacency), budget, releases)
        return cls(noise_multiplier=z, sensitivity=sensitivity, adjacency=budget.adjacency, **more)

    def release(self, value: ArrayLike) -> NDArray[np.float64]:
        """``value`` plus noise.

        Parameters
        ----------
        value : array_like of float, any shape
            A scalar, a vector (d,), or a batch (…, d) of vectors. ``sensitivity`` bounds the change of the whole array,
            so one unit may touch one vector of a batch up to it, or several whose changes have it as norm together.

        Returns
        -------
        ndarray of float64, of the shape of ``value``
            A Series or DataFrame of pandas or polars comes back as one, with its labels, which must be public.

        Raises
        ------
        TypeError, ValueError
            If an entry is NaN, infinite, masked or not real, a vector is longer than ``norm_bound``, or the lattice
            overflows.
        BudgetExceeded
            If the ledger's budget does not cover the release.
        """
        given: object = value
        if isinstance(given, float) and self.exact and self.norm_bound is None:
            return np.asarray(self._release_number(given))
        x = within_norm(real_array("value", value), self._law.norm, self.norm_bound, self.clip)
        out = self._noisy(x, x.size, self._charged)
        labelled: NDArray[np.float64] = _labelled(out, value)  # to a caller, as good as an array
        return labelled

    def release_part(self, value: NDArray[np.float64], *, of: int) -> NDArray[np.float64]:
        """A part of an array of ``of`` entries plus its noise, for arrays of which copies would take too much memory.

        The parts of an array, each of them once, are one release, at one cost, which the caller records: a mechanism
        with a ledger or a ``norm_bound`` refuses, for it does not see the whole.

        Examples
        --------
        >>> import numpy as np
        >>> from dpkit.mechanisms import GaussianMechanism
        >>> mechanism = GaussianMechanism(noise_multiplier=2.0, sensitivity=1.0)
        >>> np.concatenate([mechanism.release_part(part, of=6) for part in np.zeros((3, 2))]).shape
        (6,)
        """
        part = real_array("value", value)
        self._check_part(part.size, of)
        return self._noisy(part, of, lambda: randomness.resolve(self._rng))

    def release_whole(self, whole: NDArray[np.int64], unit: float, *, of: int) -> NDArray[np.float64]:
        """As :meth:`release_part`, on the lattice, of whole numbers of ``unit``, a power of two; overwrites ``whole``.

        They are rounded to γ, at least four times as large, by a shift: in a third of the time that floats take,
        and all digits count, where a float64 holds 53 of them. Any 64-bit numbers may come: none overflows.

        Examples
        --------
        >>> import numpy as np
        >>> from dpkit.mechanisms import GaussianMechanism
        >>> mechanism = GaussianMechanism(noise_multiplier=2.0, sensitivity=1.0)
        >>> mechanism.release_whole(np.array([3, 2**40]), 2.0**-40, of=2).shape
        (2,)
        """
        self._check_part(whole.size, of)
        granularity, scale = self._lattice(of)
        shift = math.frexp(granularity)[1] - math.frexp(check_granularity(unit))[1]
        if not (self.exact and 2 <= shift <= 62):
            raise ValueError(
                "unit must be at most a quarter of the granularity of an exact mechanism, and at least 2**-62 of it, "
                f"got unit={unit!r}, granularity={granularity!r}, exact={self.exact}"
            )
        if whole.dtype != np.int64:  # noise would be cut to fewer bits
            raise TypeError(f"whole must be an array of int64, got one of {whole.dtype}")
        # ⌊whole/2^shift + ½⌋, at most 2⁶¹ in size: neither a one nor noise makes it overflow
        whole >>= shift - 1
        whole += 1
        whole >>= 1
        whole += self._law.rounded(scale, whole.shape, rng=randomness.resolve(self._rng))
        return from_lattice(whole, granularity)

    def _check_part(self, size: int, of: int) -> None:
        if self._ledger is not None or self.norm_bound is not None:
            raise ValueError(
                "a part is released by a mechanism without ledger and norm_bound: it does not see the whole"
            )
        if not size <= of:  # noise allows for the rounding of so many entries
            raise ValueError(f"of must be the number of entries of the whole array, got a part of {size} and of={of!r}")

    def _noisy(
        self, x: NDArray[np.float64], size: int, source: Callable[[], np.random.Generator]
    ) -> NDArray[np.float64]:
        """``x``, of an array of ``size`` entries, plus noise; the source is asked for once nothing can be refused."""
        if self.exact:
            granularity, scale = self._lattice(size)
            steps = to_lattice(x, granularity)
            steps += self._law.rounded(scale, steps.shape, rng=source())
            return from_lattice(steps, granularity)
        return np.asarray(x + self.noise_multiplier * self.sensitivity * self._law.floating(source(), x.shape))

    def _release_number(self, value: float) -> float:
        """The exact route for one number, a third of the time of an array: counts and scalars are released often."""
        granularity, scale = self._lattice(1)
        step = lattice_step(value, granularity)
        return float(step + self._law.rounded_one(scale, self._charged())) * granularity

    def _charged(self) -> np.random.Generator:
        """The source of the noise, once its cost is recorded."""
        rng = randomness.resolve(self._rng)
        kind = "exact lattice" if self.exact else "floating-point"
        charge(self._ledger, self.cost, f"{self._law.description.__name__} mechanism ({kind} noise)", rng)
        return rng

    def noise_std(self, size: int = 1) -> float:
        """The standard deviation of the noise in each entry of an array of ``size`` entries (rounding to γ aside).

        Examples
        --------
        >>> from dpkit.mechanisms import GaussianMechanism
        >>> round(GaussianMechanism(noise_multiplier=2.0, sensitivity=1.0).noise_std(4), 3)
        2.002
        """
        return self._law.std * self._scale(size)

    def interval(self, confidence: float = 0.95, *, size: int = 1) -> tuple[float, float]:
        """Where the noise of an entry lies with probability ``confidence``: add it to a released value.

        ``size`` is the number of entries of the released array. The rounding to γ is covered.

        Examples
        --------
        >>> from dpkit.mechanisms import LaplaceMechanism
        >>> low, high = LaplaceMechanism(epsilon=1.0, sensitivity=1.0).interval(0.95)
        >>> round(low, 2), round(high, 2)
        (-3.0, 3.0)
        """
        reach = self._law.reach(fraction("confidence", confidence)) * self._scale(size)
        if self.exact:
            reach += self._lattice(size)[0]  # of the value and of the noise, half a step each
        return -reach, reach

    def __repr__(self) -> str:
        shown = [
            f"noise_multiplier={self.noise_multiplier:.10g}",
            f"sensitivity={self.sensitivity!r}",
            f"adjacency={self.cost.adjacency!r}",
        ]
        if self.norm_bound is not None:
            shown.append(f"norm_bound={self.norm_bound!r}, clip={self.clip!r}")
        if self._law.description is Laplace:
            shown.insert(0, f"epsilon={1 / self.noise_multiplier:.6g}")
        kind = "exact" if self.exact else "floating-point"
        return f"{type(self).__name__}({', '.join(shown)}): {kind} noise of std {self.noise_std():.6g}"

    def _scale(self, size: int) -> float:
        if not self.exact:
            return self.noise_multiplier * self.sensitivity
        granularity, scale = self._lattice(size)
        return scale * granularity

    def _lattice(self, size: int) -> tuple[float, float]:
        """γ and the scale (in steps of γ) for a value of ``size`` entries."""
        last = self._last_lattice  # read once: another thread may ask for another size
        if last is None or last[0] != size:
            granularity = self.granularity or default_granularity(self.sensitivity, max(1, size), norm=self._law.norm)
            scale = lattice_scale(self.noise_multiplier, self.sensitivity, granularity, size, norm=self._law.norm)
            self._last_lattice = last = size, granularity, scale
        return last[1:]

    def _multiplier(self, epsilon: float | None, noise_multiplier: float | None) -> float:
        raise NotImplementedError


class LaplaceMechanism(_Additive):
    """Release vectors with Laplace noise of scale ``noise_multiplier`` × ``sensitivity``.

    Parameters
    ----------
    epsilon, noise_multiplier : float
        One of the two: ε > 0 of one release, or z = 1/ε. ``calibrated`` finds z from a budget.
    sensitivity : float
        s > 0: the L1 distance that one unit can cause between two values, over all entries of the array.
    exact : bool, optional
        True for the lattice, False for floating-point noise. By default the lattice with the secure source, and
        floating-point noise in a simulation; the cost is the same.
    granularity : float, optional
        γ, a power of two. By default the largest one that adds at most 0.1 % to the noise of the value at hand.
    norm_bound : float, optional
        Each vector along the last axis must have an L1 norm of at most this.
    clip : bool
        Scale longer vectors to ``norm_bound``; by default they are refused.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation under which ``sensitivity`` holds.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Every release is recorded in it, or refused by it, before any noise is drawn.

    Raises
    ------
    TypeError
        If a number comes without its name: 0.1 could be ε = 0.1, or z = 0.1 and hence ε = 10.
    ValueError
        If a number is not positive and finite, or the granularity not a power of two.

    Notes
    -----
    Guarantees, each with a test of the same name:

    * laplace_costs_one_over_z: the cost is ε-DP with ε = 1/z, on the lattice too.
    * laplace_noise_has_the_stated_scale.
    * laplace_refuses_before_it_draws: bad input draws nothing and records nothing.
    * laplace_support_does_not_depend_on_the_value: every output is a multiple of γ.

    Examples
    --------
    >>> from dpkit.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=0.5, sensitivity=1.0)
    >>> mechanism.noise_multiplier, mechanism.release([3.0, 4.0]).shape
    (2.0, (2,))
    >>> LaplaceMechanism(0.1, sensitivity=1.0)
    Traceback (most recent call last):
        ...
    TypeError: LaplaceMechanism takes no number without a name, got 0.1: write epsilon=0.1 for ...
    """

    _law = _Law(
        Laplace, 1, math.sqrt(2), rounded_laplace, rounded_laplace_one,
        lambda rng, shape: rng.laplace(size=shape), lambda confidence: -math.log1p(-confidence),
    )  # fmt: skip
    _way_out = (
        "epsilon={0!r} for the privacy parameter, or noise_multiplier={0!r} for noise over sensitivity, 1/epsilon"
    )

    def _multiplier(self, epsilon: float | None, noise_multiplier: float | None) -> float:
        if epsilon is not None and noise_multiplier is None:
            z = 1.0 / positive("epsilon", epsilon)
            # 1/z itself, and not only as it is rounded, must be no more than ε
            return z if Fraction(z) * Fraction(epsilon) >= 1 else math.nextafter(z, math.inf)
        if noise_multiplier is None or epsilon is not None:
            raise TypeError(
                "LaplaceMechanism needs epsilon= or noise_multiplier= (which is 1/epsilon), and not both, got "
                f"epsilon={epsilon!r}, noise_multiplier={noise_multiplier!r}"
            )
        return positive("noise_multiplier", noise_multiplier)


def _normal_reach(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))


class GaussianMechanism(_Additive):
    """Release vectors with Gaussian noise of standard deviation ``noise_multiplier`` × ``sensitivity``.

    Parameters
    ----------
    noise_multiplier : float
        z > 0. ``calibrated`` finds it from a budget, which must have δ > 0.
    sensitivity : float
        s > 0: the L2 distance that one unit can cause between two values, over all entries of the array.
    exact, granularity, norm_bound, clip, adjacency, rng, ledger
        As in :class:`LaplaceMechanism`, with L2 norms.

    Raises
    ------
    TypeError
        If a number comes without its name, or ε is given: ε alone does not fix Gaussian noise.
    ValueError
        If a number is not positive and finite, the granularity not a power of two, or the budget's δ is 0.

    Notes
    -----
    Guarantees, each with a test of the same name:

    * gaussian_costs_one_over_z: the cost is exact Gaussian differential privacy, on the lattice too.
    * gaussian_noise_has_the_stated_scale.
    * gaussian_refuses_before_it_draws: bad input draws nothing and records nothing.
    * gaussian_lattice_hides_low_bits: every output is a multiple of γ, whatever the value was.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.mechanisms import GaussianMechanism
    >>> mechanism = GaussianMechanism.calibrated(budget=Budget(1.0, 1e-6), sensitivity=1.0, releases=10)
    >>> round(mechanism.noise_multiplier, 4), mechanism.release([3.0, 4.0]).shape
    (13.3596, (2,))
    """

    _law = _Law(
        Gaussian, 2, 1.0, rounded_gaussian, rounded_gaussian_one,
        lambda rng, shape: rng.standard_normal(shape), _normal_reach,
    )  # fmt: skip
    _way_out = "noise_multiplier={0!r} for the standard deviation over the sensitivity"

    def _multiplier(self, epsilon: float | None, noise_multiplier: float | None) -> float:
        if noise_multiplier is None or epsilon is not None:
            raise TypeError(
                "GaussianMechanism needs noise_multiplier=, and no epsilon=, which does not fix Gaussian noise without "
                "a delta: GaussianMechanism.calibrated(budget=Budget(epsilon, delta), sensitivity=...) does"
            )
        return positive("noise_multiplier", noise_multiplier)


def _labelled(out: NDArray[np.float64], value: object) -> Any:
    """``out`` with the labels of a ``value`` of pandas or polars."""
    # a value of their types has loaded them
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(value, pandas.Series):
        return pandas.Series(out, index=value.index, name=value.name)
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return pandas.DataFrame(out, index=value.index, columns=value.columns)
    if polars is not None and isinstance(value, polars.Series):
        return polars.Series(value.name, out)
    if polars is not None and isinstance(value, polars.DataFrame):
        return polars.DataFrame(out, schema=value.columns, orient="row")  # or a square one is taken for its columns
    return out
