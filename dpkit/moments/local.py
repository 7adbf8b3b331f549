"""Sums of records that every user randomizes itself: nobody sees more of a record than one noisy message.

Pairs of moments are randomized by one of three:

* ``"sphere"``: the ℓ₂ mechanism of Duchi, Jordan & Wainwright (2018), "Minimax Optimal Procedures for Locally Private
  Estimation", section 4.2.3. A record v of length at most ϱ becomes ±ϱv/‖v‖, + with probability ½ + ‖v‖/(2ϱ); the
  message is uniform on the half of a sphere around it with probability e^ε/(1 + e^ε), else on the other half. The
  sphere's radius makes it unbiased. Pure ε-DP: given the sign, a message's density has one of two values whatever v is.
* ``"cap"``: the same with a smaller part of the sphere, PrivUnit of Bhowmick, Duchi, Freudiger, Kapoor & Rogers (2018),
  "Protection Against Reconstruction and Its Applications in Private Federated Learning", arXiv:1812.00984, algorithm 1.
  With u = ±v/‖v‖ as above the message is uniform on the cap of all V with Vᵀu ≥ h with probability p, and else on the
  rest of the sphere. Pure ε-DP: the density is p/q on a cap, q its share of the sphere, and (1 − p)/(1 − q) elsewhere.
  These differ by the factor e^ε at most, and a mixture over u does not widen that. h is what makes the message
  shortest, among caps with q ≥ 1/256; at h = 0 it is the sphere of before.
* ``"gaussian"``: the record plus Gaussian noise, calibrated to its joint L2 sensitivity.

A user may be asked for a number in [−½, ½] in place of its pair, by a rule in which neither has a part. It sends a
report by randomized response at the same ε (:mod:`dpkit.moments.reports`), or, where pairs are Gaussian, the number
plus Gaussian noise of the same multiplier: both kinds of message have one price.

Gaussian messages are on a lattice, with exact noise. A message from the sphere is one float vector or its negative, and
which of the two is chosen with the stated odds, whatever the rounding. One from a cap is a vector that was drawn
without regard to the record, the first that fell on the side that a coin chose: no digit of it tells more than on which
side it is. What a cap's share is off by, as normal numbers and products are rounded, is less than 10⁻⁹ of it; ε is
lowered by 10⁻⁶ for that. (A vector is looked for on both sides, so that the time it takes does not tell which was
sent.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from accounting import Budget, Gaussian, PureDP, Release, calibrate
from accounting.arrays import Array
from accounting.checks import choice, integer
from dpkit import randomness
from dpkit.geometry import pair_sensitivity, smat, vector_sensitivity
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charge
from dpkit.moments.pairs import NoisyPair, PairBounds, pair_scales
from dpkit.moments.reports import Reports
from dpkit.states.entries import Kept

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["PairMessages", "Randomizer"]

Randomizer = Literal["sphere", "cap", "gaussian"]

# the smallest share of the sphere that a cap has: on average so many vectors are drawn for a message
_SMALLEST = 1.0 / 256.0
# what ε of a cap is lowered by for rounding
_SLACK = 1e-6
# vectors at a time
_DRAWN = 64


class PairMessages(Kept):
    """The sums H of w·x xᵀ and b of g·x, of which every user sends its own with noise.

    Privacy. Adjacency: the budget's, "replace" or "zero_out" (for the sphere at the price of "replace"). Unit: one
    user's record, or all m of a person. Sensitivity: scaled to (a·svec(w·x xᵀ), c·g·x), two records are at most
    ``dpkit.geometry.pair_sensitivity(a, W, c, B)`` apart and none is longer than √(a²W² + c²B²); two numbers are at
    most 1 apart, and none is farther than ½ from 0, the null number. Cost: ``cost``, that of a user's own messages;
    each meets the budget by itself, against everybody who sees it, of whichever kind it is. Which kind that is is not
    protected: it must not depend on any record.

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
    randomizer : {"sphere", "cap", "gaussian"}, optional
        By default the one with the least variance, which is a public choice: a cap, or the Gaussian where δ or ε is
        large.

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
    number_std : float
        Of the noise in a number of ±½; in one between the ends there is more where it is a report, by its rounding.
    radius : float
        Of the sphere.
    height : float
        h, where a cap begins.
    far : float
        How often a message is on the part of the sphere that is away from its record.

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
    ((2, 2), (2,), 'cap', PureDP(epsilon=1.0...))
    """

    _KEPT = ("sums", "messages", "released", "told", "numbers")

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
        randomizer: Randomizer | None = None,
    ) -> None:
        dim, m = integer("dim", dim, at_least=1), 1 if records is None else integer("records", records, at_least=1)
        if randomizer is not None:
            choice("randomizer", randomizer, "sphere", "cap", "gaussian")
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
        half, cap = _Cap(0.0, 1.0 / (1.0 + math.exp(pure)), 1.0 / _sphere_radius(size, pure)), _best_cap(size, pure)
        # the root mean square of a coordinate
        stds: dict[Randomizer, float] = {
            "sphere": self.longest / (half.mean * math.sqrt(size)),
            "cap": self.longest / (cap.mean * math.sqrt(size)),
            "gaussian": gaussian,
        }
        self.randomizer: Randomizer = min(stds, key=lambda one: stds[one]) if randomizer is None else randomizer
        chosen = half if self.randomizer == "sphere" else cap
        self.height, self.far, self.radius = chosen.height, chosen.far, self.longest / chosen.mean
        self._gaussian = GaussianMechanism(
            noise_multiplier=z, sensitivity=gaussian / z, adjacency=adjacency, rng=self.rng
        )
        self.std = stds[self.randomizer]
        self._reports = Reports(pure, rng=self.rng)
        apart = vector_sensitivity(0.5, adjacency)
        self._number = GaussianMechanism(noise_multiplier=z, sensitivity=apart, adjacency=adjacency, rng=self.rng)
        self.number_std = z * apart if self.randomizer == "gaussian" else self._reports.noise
        one: Release = (
            Gaussian(z, adjacency=adjacency) if self.randomizer == "gaussian" else PureDP(pure, adjacency=adjacency)
        )
        self.cost = m * one
        charge(ledger, self.cost, type(self).__name__, self.rng)
        self.sums = np.zeros(size)  # of messages with pairs
        self.messages = 0
        self.released = 0  # how many there were then
        self.told, self.numbers = 0.0, 0  # the sum of what messages say of numbers, and how many these were

    def add(self, x: Array, w: float, g: float, number: float | None = None) -> None:
        """The user randomizes its pair, or the number in place of it, and its message is all that is added.

        A record of two zeros is null, also where x is no vector of finite numbers.

        Raises
        ------
        ValueError
            If the record passes W or B, or holds NaN, or the number is not in [−½, ½]. Nothing changes.
        """
        if number is not None:
            if not abs(number) <= 0.5:  # also true for NaN
                raise ValueError(f"number must be from -0.5 to 0.5, got number={number!r}")
            self.told += self.about(number)
            self.numbers += 1
            return
        if w != 0.0 or g != 0.0:
            self._bounds.check(x, w, g)
        else:  # 0·∞ is no number
            x = np.zeros_like(x)
        a, c = self.scales
        moments = (a * w) * self._isometry * x[self._rows] * x[self._columns]  # a·svec(w·x xᵀ)
        self.sums += self.randomized(np.concatenate([moments, (c * g) * x]))
        self.messages += 1

    def randomized(self, record: Array) -> Array:
        """One message: all that leaves a device."""
        if self.randomizer == "gaussian":
            return np.asarray(self._gaussian.release(record))
        if self.randomizer == "cap":
            return self._on_a_cap(record)
        draws = self.rng.standard_normal(len(record) + 2)  # one draw is faster than two
        noise, normals = draws[:-2], draws[-2:]
        length = math.sqrt(record @ record)
        toward_record, away = (0.5 * math.erfc(-float(z) * math.sqrt(0.5)) for z in normals)  # uniform
        # + or − the record's direction (any direction does for the null record: either sign is then as likely)
        side = 1.0 if toward_record < 0.5 + 0.5 * min(1.0, length / self.longest) else -1.0
        along = float(noise @ record) if length > 0 else float(noise[0])
        scale = self.radius / math.sqrt(noise @ noise)
        return np.asarray(noise * (scale if (along * side > 0) == (away >= self.far) else -scale))

    def about(self, number: float) -> float:
        """One message about a number: all that leaves a device."""
        if self.randomizer == "gaussian":
            return float(self._number.release(np.array([number]))[0])
        return float(self._reports.values[self._reports.draw(number + 0.5)])

    def _on_a_cap(self, record: Array) -> Array:
        away, toward_record = (0.5 * math.erfc(-float(z) * math.sqrt(0.5)) for z in self.rng.standard_normal(2))
        length = math.sqrt(record @ record)
        unit = record / length if length > 0.0 else np.eye(1, len(record))[0]
        if toward_record >= 0.5 + 0.5 * min(1.0, length / self.longest):
            unit = -unit
        found: dict[bool, Array] = {}
        while len(found) < 2:
            noise = self.rng.standard_normal((_DRAWN, len(record)))
            inside = noise @ unit >= self.height * np.sqrt(np.einsum("ij,ij->i", noise, noise))
            for side in (True, False):
                first = int((inside == side).argmax())
                if side not in found and inside[first] == side:
                    found[side] = noise[first]
        chosen = found[away >= self.far]
        return np.asarray(chosen * (self.radius / math.sqrt(chosen @ chosen)))

    def release(self) -> NoisyPair:
        """H, b and numbers of the messages so far, which whoever adds them up has anyway."""
        (a, c), D = self.scales, len(self._rows)
        # where no message came there is no noise, of which nobody must make anything
        noise, batch_noise = (
            (std / a, std / c)
            for std in (self.std * math.sqrt(max(1, n)) for n in (self.messages, self.messages - self.released))
        )
        self.released = self.messages
        level = self.told, self.number_std * math.sqrt(self.numbers)
        return NoisyPair(smat(self.sums[:D] / a), self.sums[D:] / c, noise, batch_noise, 1.0, level, self.numbers)


def _sphere_radius(size: int, epsilon: float) -> float:
    """The radius B at which the sphere's message is unbiased for unit vectors of that size (Duchi et al. 2018, (26)).

    The half sphere around u has mean u·B·c with c = Γ(size/2)/(√π·Γ((size + 1)/2)), and the two halves' probabilities
    differ by tanh(ε/2).
    """
    log_c = math.lgamma(size / 2) - math.lgamma((size + 1) / 2) - 0.5 * math.log(math.pi)
    return math.exp(-log_c) / math.tanh(epsilon / 2)


class _Cap(NamedTuple):
    """h, 1 − p, and the mean of Vᵀu over messages V of length 1."""

    height: float
    far: float
    mean: float


def _best_cap(size: int, epsilon: float) -> _Cap:
    """The cap of which the mean is the largest, among shares q = 2^−k/8 from ½ to 1/256.

    Vᵀu of a uniform V has a density in proportion to (1 − t²)^{α − 1}, α = (size − 1)/2, so that q = ½·I_{1−h²}(α, ½)
    and E[Vᵀu; Vᵀu ≥ h] = (1 − h²)^α/(2α·B(½, α)) (Bhowmick et al. 2018, lemma 4.1).
    """
    from scipy.special import betaincinv, betaln

    alpha, lowered = 0.5 * (size - 1), max(0.5 * epsilon, epsilon - _SLACK)
    shares = 2.0 ** -np.arange(1.0, 8.0 + 1e-9, 0.125)
    q = shares[shares >= _SMALLEST]
    left = betaincinv(alpha, 0.5, 2.0 * q)  # 1 − h²
    beyond = np.exp(alpha * np.log(left) - betaln(0.5, alpha)) / (2.0 * alpha)
    # of (1 − p)/p = (1 − q)/(q·e^ε), without a large number
    odds = (1.0 - q) / q * math.exp(-lowered)
    p, far = 1.0 / (1.0 + odds), odds / (1.0 + odds)
    means = p * beyond / q - far * beyond / (1.0 - q)
    best = int(means.argmax())
    return _Cap(math.sqrt(max(0.0, 1.0 - float(left[best]))), float(far[best]), float(means[best]))
