"""The generalized Gaussian mechanism: noise shaped after an ℓ_q norm.

For algorithms whose guarantees are stated in an ℓ_q geometry, 1 ≤ q ≤ ∞: the sensitivity is known in ℓ_q.

Noise of density ∝ exp(−‖z‖₊²/(2σ₊²)), for a norm whose square is κ₊-smooth: ‖x + y‖₊² ≤ ‖x‖₊² + ⟨∇‖x‖₊², y⟩ + κ₊‖y‖₊².

Privacy. A shift of length Δ₊ in ‖·‖₊ is μ-GDP with μ = √κ₊·Δ₊/σ₊: it costs what Gaussian noise costs, alone, composed
and sampled. The proof is that of :class:`accounting.GeneralizedGaussian`.

For a sensitivity s in ℓ_q over R^d:

* q ≥ 2: ‖·‖₊ = ‖·‖_r with 2 ≤ r ≤ q, whose square is (r − 1)-smooth, and ‖x‖_r ≤ d^(1/r − 1/q)·‖x‖_q. Together
  κ(r) = (r − 1)·d^(2/r − 2/q), and σ₊ = z·√κ·s is 1/z-GDP. By default r has the smallest κ. κ has its interior
  minimum where r² = 2 ln d·(r − 1), at r = ln d + √(ln²d − 2 ln d); beside it the ends 2 and q can be smallest.
* q < 2: ‖x‖₂ ≤ ‖x‖_q ≤ s, so plain Gaussian noise of standard deviation z·s. It, and r = 2, cost exactly that.

The noise of smallest κ is not the smallest noise: what σ₊ means depends on r. At equal cost, plain L2 noise (``r=2``,
of standard deviation z·s·d^(1/2 − 1/q)) has the smaller expected ℓ_q norm: by 11 to 35 % for d from 8 to 10,000 and q
from 2.5 to ∞. Take it unless an analysis asks for the other.

Source: Bassily, Guzmán & Nandi (2021), generalized Gaussian mechanism; smoothness of the squared ℓ_r norm from
Juditsky & Nemirovski (2008), example 3.2. The noise is floating-point only: there is no lattice form, and the ledger
says so. Cost: three random numbers per entry, or one where r = 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget, Gaussian, GeneralizedGaussian, Release
from accounting.checks import positive
from dpkit import randomness
from dpkit.clipping import check_bound, real_array, within_norm
from dpkit.geometry.smooth_norm import best_norm, distorted_smoothness
from dpkit.mechanisms._checked import charge, smallest_multiplier
from dpkit.samplers import generalized_gaussian

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["GeneralizedGaussianMechanism"]


class GeneralizedGaussianMechanism:
    """Release vectors in R^d with noise shaped after ℓ_q, for a sensitivity in ℓ_q.

    Parameters
    ----------
    noise_multiplier : float
        z > 0; the cost is 1/z-GDP. ``calibrated`` finds it from a budget.
    q : float
        In [1, ∞]: the norm of the sensitivity.
    dimension : int
        d, the length of a vector.
    sensitivity : float
        s > 0: the ℓ_q distance that one unit can cause between two vectors.
    r : float, optional
        The norm of the noise, in [2, max(2, q)] and finite. By default the one of the smallest κ.
    norm_bound : float, optional
        Each vector must have an ℓ_q norm of at most this.
    clip : bool
        Scale longer vectors to ``norm_bound``; by default they are refused.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation under which ``sensitivity`` holds.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Every release is recorded in it, or refused by it, before any noise is drawn.

    Attributes
    ----------
    r, kappa : float
        The norm of the noise and its κ (see the module's text).
    scale : float
        σ₊ = z·√κ·s.

    Raises
    ------
    ValueError
        If q < 1 or r > q, or another number is out of range.

    Notes
    -----
    Guarantees, each with a test of the same name:

    * generalized_gaussian_costs_one_over_z: 1/z-GDP, exactly where r = 2.
    * generalized_gaussian_noise_has_the_stated_scale.
    * generalized_gaussian_refuses_before_it_draws.
    * generalized_gaussian_uses_the_best_norm: of the smallest κ.
    * plain_noise_is_smaller: the comparison with ``r=2`` above.

    Examples
    --------
    >>> import math
    >>> from accounting import Budget
    >>> from dpkit.mechanisms import GeneralizedGaussianMechanism
    >>> mechanism = GeneralizedGaussianMechanism.calibrated(
    ...     budget=Budget(1.0, 1e-6), q=math.inf, dimension=1000, sensitivity=1.0
    ... )
    >>> round(mechanism.r, 2), mechanism.release([0.0] * 1000).shape
    (12.73, (1000,))
    """

    def __init__(
        self,
        noise_multiplier: float,
        *,
        q: float,
        dimension: int,
        sensitivity: float,
        r: float | None = None,
        norm_bound: float | None = None,
        clip: bool = False,
        adjacency: Adjacency = "replace",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.noise_multiplier = positive("noise_multiplier", noise_multiplier)
        self.r, self.kappa = _norm_of_noise(r, q, dimension)
        self.q = float(q)
        self.dimension = int(dimension)
        self.sensitivity = positive("sensitivity", sensitivity)
        self.scale = self.noise_multiplier * math.sqrt(self.kappa) * self.sensitivity
        self.norm_bound = check_bound(norm_bound, clip)
        self.clip = clip
        self.cost = _describe(self.noise_multiplier, self.r, adjacency)
        self._rng = rng
        self._ledger = ledger
        randomness.resolve(rng)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(q={self.q:g}, dimension={self.dimension}, sensitivity={self.sensitivity:g}): "
            f"costs {self.cost!r}"
        )

    @classmethod
    def calibrated(
        cls,
        *,
        budget: Budget,
        q: float,
        dimension: int,
        sensitivity: float,
        releases: int = 1,
        r: float | None = None,
        norm_bound: float | None = None,
        clip: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """The mechanism with the least noise of which ``releases`` releases together meet ``budget``."""
        shape, _ = _norm_of_noise(r, q, dimension)
        return cls(
            smallest_multiplier(lambda z, adjacency: _describe(z, shape, adjacency), budget, releases),
            q=q,
            dimension=dimension,
            sensitivity=sensitivity,
            r=r,
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
        value : array_like of float, shape (…, d)
            A vector or a batch of vectors. One unit may touch one vector of a batch up to ``sensitivity``, or several
            whose changes in ℓ_q have it as root sum of squares.

        Returns
        -------
        ndarray of float64, of the shape of ``value``

        Raises
        ------
        TypeError, ValueError
            If an entry is NaN, infinite or not real, the last axis is not d, or a vector is longer than ``norm_bound``.
        BudgetExceeded
            If the ledger's budget does not cover the release.
        """
        x = real_array("value", value)
        if x.ndim == 0 or x.shape[-1] != self.dimension:
            raise ValueError(f"value must have shape (..., {self.dimension}), got value.shape={x.shape}")
        x = within_norm(x, self.q, self.norm_bound, self.clip)
        rng = randomness.resolve(self._rng)
        charge(self._ledger, self.cost, "generalized Gaussian mechanism (floating-point noise)", rng)
        return x + generalized_gaussian(self.r, self.scale, self.dimension, x.shape[:-1], rng=rng)


def _norm_of_noise(r: float | None, q: float, dimension: int) -> tuple[float, float]:
    """The r that was asked for, or the best one, and its κ."""
    best = best_norm(q, dimension)
    if r is None:
        return best
    norm = positive("r", r)
    if not 2 <= norm <= max(2.0, q):
        raise ValueError(f"r must lie in [2, max(2, q)], got r={r!r} for q={q!r}")
    return norm, distorted_smoothness(norm, q, dimension)


def _describe(noise_multiplier: float, r: float, adjacency: Adjacency) -> Release:
    if r == 2:
        return Gaussian(noise_multiplier, adjacency=adjacency)
    return GeneralizedGaussian(noise_multiplier, adjacency=adjacency)
