"""The Gaussian mechanism: a vector plus independent normal noise.

For anyone who releases sums, means or any vector whose L2 sensitivity is known. Source: Dwork & Roth (2014), appendix
A; the exact privacy of Gaussian noise is from Balle & Wang (2018) and Dong, Roth & Su (2022).

Privacy. s is the largest ‖f(D) − f(D′)‖₂ over neighbouring D, D′, over all entries of the released array together;
the noise has standard deviation z·s in each entry. One release is μ-GDP with μ = 1/z.

The exact route (the default with the secure source) works on integers, where floating-point attacks find nothing:
with γ a power of two, x is rounded to k = ⌊x/γ⌉, and γ·(k + ⌊σZ⌉) is released, Z standard normal and the rounded noise
⌊σZ⌉ sampled exactly. On the integers the sensitivity is at most s/γ + √n, and σ = z·(s/γ + √n). Because
k + ⌊σZ⌉ = ⌊k + σZ⌉ depends on the data through the Gaussian mechanism k + σZ alone, it costs the same 1/z, exactly.
Cost: one random number per entry.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Gaussian, Ledger
from accounting.checks import positive
from dpkit import randomness
from dpkit.mechanisms._checked import charge, check_bound, real_array, smallest_multiplier, within_norm
from dpkit.samplers import rounded_gaussian
from dpkit.samplers.lattice import check_granularity, default_granularity, from_lattice, lattice_scale, to_lattice

__all__ = ["GaussianMechanism"]


class GaussianMechanism:
    """Release vectors with Gaussian noise of standard deviation ``noise_multiplier`` × ``sensitivity``.

    Parameters
    ----------
    noise_multiplier : float
        z > 0. ``calibrated`` finds it from a budget.
    sensitivity : float
        s > 0: the L2 distance that one unit can cause between two values, over all entries of the array.
    exact : bool, optional
        True for the lattice, False for floating-point noise. By default the lattice with the secure source, and
        floating-point noise in a simulation; the cost is the same.
    granularity : float, optional
        γ, a power of two. By default the largest one that adds at most 0.1 % to the noise of the value at hand.
    norm_bound : float, optional
        Each vector along the last axis must have an L2 norm of at most this.
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
        self.cost = Gaussian(self.noise_multiplier, adjacency=adjacency)
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
            smallest_multiplier(lambda z, adjacency: Gaussian(z, adjacency=adjacency), budget, releases),
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
            so one unit may touch one vector of a batch up to it, or several whose changes have it as L2 norm together.

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
        x = within_norm(real_array("value", value), 2.0, self.norm_bound, self.clip)
        rng = randomness.resolve(self._rng)
        if not self.exact:
            charge(self._ledger, self.cost, "Gaussian mechanism (floating-point noise)", rng)
            return np.asarray(x + self.noise_multiplier * self.sensitivity * rng.standard_normal(x.shape))
        granularity, sigma = self._lattice(x.size)
        steps = to_lattice(x, granularity)
        charge(self._ledger, self.cost, "Gaussian mechanism (exact lattice noise)", rng)
        return from_lattice(steps + rounded_gaussian(sigma, steps.shape, rng=rng), granularity)

    def noise_std(self, size: int) -> float:
        """The standard deviation of the noise in each entry of an array of ``size`` entries (rounding to γ aside).

        Examples
        --------
        >>> from dpkit.mechanisms import GaussianMechanism
        >>> round(GaussianMechanism(2.0, sensitivity=1.0).noise_std(4), 3)
        2.002
        """
        if not self.exact:
            return self.noise_multiplier * self.sensitivity
        granularity, sigma = self._lattice(size)
        return sigma * granularity

    def _lattice(self, size: int) -> tuple[float, float]:
        """γ and σ (in steps of γ) for a value of ``size`` entries."""
        granularity = self.granularity or default_granularity(self.sensitivity, max(1, size), norm=2)
        return granularity, lattice_scale(self.noise_multiplier, self.sensitivity, granularity, size, norm=2)
