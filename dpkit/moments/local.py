"""Sums of records that every user randomizes itself: nobody sees more of a record than one noisy message.

* ``"sphere"``: the ℓ₂ mechanism of Duchi, Jordan & Wainwright (2018), "Minimax Optimal Procedures for Locally Private
  Estimation", section 4.2.3. A record v of length at most ϱ becomes ±ϱv/‖v‖, + with probability ½ + ‖v‖/(2ϱ); the
  message is uniform on the half of a sphere around it with probability e^ε/(1 + e^ε), else on the other half. The
  sphere's radius makes it unbiased. Pure ε-DP: given the sign, a message's density has one of two values whatever v is.
* ``"gaussian"``: the record plus Gaussian noise, calibrated to its joint L2 sensitivity.

Gaussian messages are on a lattice, with exact noise. A message from the sphere is one float vector or its negative, and
which of the two is chosen with the stated odds, whatever the rounding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from accounting import Budget, Gaussian, PureDP, Release, calibrate
from accounting.arrays import Array
from accounting.checks import choice, integer
from dpkit import randomness
from dpkit.geometry import pair_sensitivity, smat
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charge
from dpkit.moments.pairs import NoisyPair, PairBounds, pair_scales
from dpkit.states import entries

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PairMessages"]


class PairMessages:
    """The sums H of w·x xᵀ and b of g·x, of which every user sends its own with noise.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (for the sphere at the price of "replace"). Unit: one
    user's record, or all m of a person. Sensitivity: scaled to (a·svec(w·x xᵀ), c·g·x), two records are at most
    ``dpkit.geometry.pair_sensitivity(a, W, c, B)`` apart and none is longer than √(a²W² + c²B²). Cost: ``cost``, that
    of a user's own messages; each meets the budget by itself, against everybody who sees it.

    Parameters
    ----------
    dim : int
        d.
    W, B : float
        0 ≤ w‖x‖² ≤ W and |g|·‖x‖ ≤ B for every record; :meth:`add` refuses others.
    share : float
        In (0, 1), of the squared sensitivity, given to g·x.
    budget : Budget
        What one message may cost, or all messages of a person; δ > 0.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with ``cost`` here, before any noise is drawn.
    records : int, optional
        m, where the unit is a person.
    randomizer : {"sphere", "gaussian"}, optional
        By default the one with less variance, which is a public choice: the sphere at small ε, the Gaussian at large.

    Attributes
    ----------
    cost : Release
        What all messages of one unit cost.
    scales : (float, float)
        a and c.
    longest : float
        The length that no scaled record passes.
    std : float
        Of the noise in one coordinate of a message (the sphere's is at most its root mean square).
    radius : float
        Of the sphere.
    far : float
        How often a message is on the half of the sphere that is away from its record.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range. Nothing is charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpkit.moments import PairMessages
    >>> sums = PairMessages(2, 1.0, 1.0, 0.5, budget=Budget(1.0, 1e-6))
    >>> for _ in range(100):
    ...     sums.add(np.array([0.6, 0.8]), w=1.0, g=0.5)
    >>> found = sums.release()
    >>> found.H.shape, found.b.shape, sums.randomizer, sums.cost
    ((2, 2), (2,), 'sphere', PureDP(epsilon=1.0...))
    """

    _KEPT = ("sums", "messages")

    def __init__(
        self,
        dim: int,
        W: float,
        B: float,
        share: float,
        *,
        budget: Budget,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        records: int | None = None,
        randomizer: Literal["sphere", "gaussian"] | None = None,
    ) -> None:
        dim, m = integer("dim", dim, at_least=1), 1 if records is None else integer("records", records, at_least=1)
        if randomizer is not None:
            choice("randomizer", randomizer, "sphere", "gaussian")
        self.scales = a, c = pair_scales(W, B, share)
        self._bounds = PairBounds.of(W, B, 0.0)
        self.longest = math.hypot(a * W, c * B)
        self.rng = randomness.resolve(rng)
        # positions and factors of a half-vector, which ``svec`` would find anew in every round
        rows, columns = np.triu_indices(dim, 1)
        self._rows = np.concatenate([np.arange(dim), rows])
        self._columns = np.concatenate([np.arange(dim), columns])
        self._isometry = np.where(self._rows == self._columns, 1.0, math.sqrt(2.0))
        size = len(self._rows) + dim

        # either randomizer at this budget
        adjacency = budget.adjacency
        z = calibrate(lambda z: m * Gaussian(z, adjacency=adjacency), budget)
        gaussian = z * pair_sensitivity(a, W, c, B, adjacency)
        # beyond e^−30 the chance of the other half sphere nears the resolution of a random number, and would be lost
        pure = min(30.0, 1.0 / calibrate(lambda z: m * PureDP(1.0 / z, adjacency=adjacency), budget))
        self.radius = self.longest * _sphere_radius(size, pure)
        sphere = self.radius / math.sqrt(size)
        self.randomizer = randomizer or ("sphere" if sphere < gaussian else "gaussian")
        self._gaussian = GaussianMechanism(
            noise_multiplier=z, sensitivity=gaussian / z, adjacency=adjacency, rng=self.rng
        )
        self.far = 1.0 / (1.0 + math.exp(pure))
        on_sphere = self.randomizer == "sphere"
        self.std = sphere if on_sphere else gaussian
        one: Release = PureDP(pure, adjacency=adjacency) if on_sphere else Gaussian(z, adjacency=adjacency)
        self.cost = m * one
        charge(ledger, self.cost, type(self).__name__, self.rng)
        self.sums = np.zeros(size)  # of messages
        self.messages = 0

    def add(self, x: Array, w: float, g: float) -> None:
        """The user randomizes its record, and its message is all that is added.

        Raises
        ------
        ValueError
            If the record passes W or B, or holds NaN. Nothing changes.
        """
        if w != 0.0 or g != 0.0:
            self._bounds.check(x, w, g)
        a, c = self.scales
        moments = (a * w) * self._isometry * x[self._rows] * x[self._columns]  # a·svec(w·x xᵀ)
        self.sums += self.randomized(np.concatenate([moments, (c * g) * x]))
        self.messages += 1

    def randomized(self, record: Array) -> Array:
        """One message: all that leaves a device."""
        if self.randomizer == "gaussian":
            return np.asarray(self._gaussian.release(record))
        draws = self.rng.standard_normal(len(record) + 2)  # one draw is faster than two
        noise, normals = draws[:-2], draws[-2:]
        length = math.sqrt(record @ record)
        toward_record, away = (0.5 * math.erfc(-float(z) * math.sqrt(0.5)) for z in normals)  # uniform
        # + or − the record's direction (any direction does for the null record: either sign is then as likely)
        side = 1.0 if toward_record < 0.5 + 0.5 * min(1.0, length / self.longest) else -1.0
        along = float(noise @ record) if length > 0 else float(noise[0])
        scale = self.radius / math.sqrt(noise @ noise)
        return np.asarray(noise * (scale if (along * side > 0) == (away >= self.far) else -scale))

    def release(self) -> NoisyPair:
        """H and b of the messages so far, which whoever adds them up has anyway."""
        (a, c), D = self.scales, len(self._rows)
        spread = math.sqrt(self.messages) * self.std
        # as if all had come in one batch
        noise = spread / a, spread / c
        return NoisyPair(smat(self.sums[:D] / a), self.sums[D:] / c, noise, noise, 1.0)

    def kept(self) -> dict[str, Any]:
        """For a state file."""
        return entries.kept(self, self._KEPT)

    def resume(self, saved: Any) -> None:
        """The inverse of :meth:`kept`, checked."""
        entries.resume(self, self._KEPT, saved)


def _sphere_radius(size: int, epsilon: float) -> float:
    """The radius B at which the sphere's message is unbiased for unit vectors of that size (Duchi et al. 2018, (26)).

    The half sphere around u has mean u·B·c with c = Γ(size/2)/(√π·Γ((size + 1)/2)), and the two halves' probabilities
    differ by tanh(ε/2).
    """
    log_c = math.lgamma(size / 2) - math.lgamma((size + 1) / 2) - 0.5 * math.log(math.pi)
    return math.exp(-log_c) / math.tanh(epsilon / 2)
