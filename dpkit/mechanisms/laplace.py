"""The Laplace mechanism: a vector plus independent double-exponential noise.

For anyone who needs pure differential privacy for counts or any vector whose L1 sensitivity is known. Source: Dwork,
McSherry, Nissim & Smith (2006); Dwork & Roth (2014), Theorem 3.6.

Privacy. s is the largest ‖f(D) − f(D′)‖₁ over neighbouring D, D′, over all entries of the released array together;
the noise has scale z·s in each entry. One release is ε-DP with ε = 1/z.

The exact route (the default with the secure source) works on integers, where floating-point attacks (Mironov 2012) find
nothing: with γ a power of two, x is rounded to k = ⌊x/γ⌉, and γ·(k + ⌊L⌉) is released, the rounded Laplace noise ⌊L⌉
sampled exactly. On the integers the sensitivity is at most s/γ + n, and the scale is z·(s/γ + n). Because
k + ⌊L⌉ = ⌊k + L⌉ depends on the data through the Laplace mechanism k + L alone, it costs the same, in every accountant.
Cost: one random number per entry.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Laplace, Ledger
from accounting.checks import positive
from dpkit import randomness
from dpkit.mechanisms._checked import charge, check_bound, real_array, smallest_multiplier, within_norm
from dpkit.samplers import rounded_laplace
from dpkit.samplers.lattice import check_granularity, default_granularity, from_lattice, lattice_scale, to_lattice

__all__ = ["LaplaceMechanism"]


class LaplaceMechanism:
    """Release vectors with Laplace noise of scale ``noise_multiplier`` × ``sensitivity``.

    Parameters
    ----------
    noise_multiplier : float
        z > 0; ε = 1/z. ``calibrated`` finds it from a budget.
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
    ValueError
        If a number is not positive and finite, or the granularity not a power of two.

    Notes
    -----
    Guarantees, each with a test of the same name:

    * laplace_costs_one_over_z: the cost is pure differential privacy, on the lattice too.
    * laplace_noise_has_the_stated_scale.
    * laplace_refuses_before_it_draws: bad input draws nothing and records nothing.
    * laplace_support_does_not_depend_on_the_value: the attack on textbook Laplace noise finds nothing.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.mechanisms import LaplaceMechanism
    >>> mechanism = LaplaceMechanism.calibrated(budget=Budget(0.5, 0.0), sensitivity=1.0)
    >>> round(mechanism.noise_multiplier, 6), mechanism.release([3.0, 4.0]).shape
    (2.0, (2,))
    """

    def __init__(
        self,
        noise_multiplier: float,
        *,
        sensitivity: float,
        exact: bool | None = None,
        granularity: float | None = None,
        norm_bound: float | None = None,
        clip: bool = False,
        adjacency: Adjacency = "replace",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.noise_multiplier = positive("noise_multiplier", noise_multiplier)
        self.sensitivity = positive("sensitivity", sensitivity)
        self.exact = not randomness.is_simulation(randomness.resolve(rng)) if exact is None else bool(exact)
        self.granularity = None if granularity is None else check_granularity(granularity)
        self.norm_bound = check_bound(norm_bound, clip)
        self.clip = clip
        self.cost = Laplace(self.noise_multiplier, adjacency=adjacency)
        self._rng = rng
        self._ledger = ledger

    @classmethod
    def calibrated(
        cls,
        *,
        budget: Budget,
        sensitivity: float,
        releases: int = 1,
        exact: bool | None = None,
        granularity: float | None = None,
        norm_bound: float | None = None,
        clip: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """The mechanism with the least noise of which ``releases`` releases together meet ``budget``."""
        return cls(
            smallest_multiplier(lambda z, adjacency: Laplace(z, adjacency=adjacency), budget, releases),
            sensitivity=sensitivity,
            exact=exact,
            granularity=granularity,
            norm_bound=norm_bound,
            clip=clip,
            adjacency=budget.adjacency,
            rng=rng,
            ledger=ledger,
        )

    def release(self, value: ArrayLike) -> NDArray[np.float64]:
        """``value`` plus noise.

        Parameters
        ----------
        value : array_like of float, any shape
            A scalar, a vector (d,), or a batch (…, d) of vectors. ``sensitivity`` bounds the change of the whole array,
            so one unit may touch one vector of a batch up to it, or several whose changes sum to it.

        Returns
        -------
        ndarray of float64, of the shape of ``value``

        Raises
        ------
        TypeError, ValueError
            If an entry is NaN, infinite or not real, a vector is longer than ``norm_bound``, or the lattice overflows.
        BudgetExceeded
            If the ledger's budget does not cover the release.
        """
        x = within_norm(real_array("value", value), 1.0, self.norm_bound, self.clip)
        rng = randomness.resolve(self._rng)
        if not self.exact:
            charge(self._ledger, self.cost, "Laplace mechanism (floating-point noise)", rng)
            return np.asarray(x + rng.laplace(0.0, self.noise_multiplier * self.sensitivity, size=x.shape))
        granularity, scale = self._lattice(x.size)
        steps = to_lattice(x, granularity)
        charge(self._ledger, self.cost, "Laplace mechanism (exact lattice noise)", rng)
        return from_lattice(steps + rounded_laplace(scale, steps.shape, rng=rng), granularity)

    def noise_std(self, size: int) -> float:
        """The standard deviation of the noise in each entry of an array of ``size`` entries (rounding to γ aside).

        Examples
        --------
        >>> from dpkit.mechanisms import LaplaceMechanism
        >>> round(LaplaceMechanism(1.0, sensitivity=1.0, exact=False).noise_std(4), 4)
        1.4142
        """
        if not self.exact:
            return math.sqrt(2) * self.noise_multiplier * self.sensitivity
        granularity, scale = self._lattice(size)
        return math.sqrt(2) * scale * granularity

    def _lattice(self, size: int) -> tuple[float, float]:
        """γ and the scale (in steps of γ) for a value of ``size`` entries."""
        granularity = self.granularity or default_granularity(self.sensitivity, max(1, size), norm=1)
        return granularity, lattice_scale(self.noise_multiplier, self.sensitivity, granularity, size, norm=1)
