"""What a policy with secant records remembers of earlier releases, and whether rewards are what its model says.

Everything here is a function of what was released, so it costs nothing.

*Has the world moved?* With records (w·x xᵀ, g·x), g = w·e + r − μ(e) at e = xᵀθ (or any records of which g·x − w·e·x
is (r − μ(e))·x), the sums M and m over a batch have the residual

    R = m − Mθ = Σ (r − μ(xᵀθ))·x      ≈ M(θ* − θ) + the rewards' noise + privacy noise,

θ* being what the world follows. If θ was estimated before, with the covariance V, and θ* is as it was, then R has about
the mean 0 and a covariance of at most

    W = σ²I + v·M + M V M,

σ² the variance of the privacy noise in R and v·M that of the rewards. RᵀW⁻¹R is then about χ² with d degrees of freedom
or less; where θ* has moved by Δ, it grows by ΔᵀM W⁻¹M Δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from accounting.arrays import Array
from dpbandits.private.parts.records import SecantRecord

__all__ = ["Past", "believed", "misfit", "surprise", "surprise_bound", "turned_round"]

# earlier releases that are remembered: each after so many times the rounds of the one before
_PAST, _APART = 12, 1.15


@dataclass(frozen=True)
class Past:
    """Some earlier releases, the newest last: their rounds, their H, and Σθ_jᵀM_jθ_j up to them. Empty places are 0."""

    rounds: Array
    H: Array
    squares: Array

    @classmethod
    def empty(cls, dim: int) -> Past:
        """Before the first release."""
        return cls(np.zeros(_PAST), np.zeros((_PAST, dim, dim)), np.zeros(_PAST))

    def restarted(self, rounds: int) -> Past:
        """Nothing is remembered of so many rounds."""
        return replace(Past.empty(self.H.shape[1]), rounds=np.full(_PAST, float(rounds)))

    def before(self, rounds: float) -> tuple[float, Array, float]:
        """The last one that came after at most so many rounds, or else the oldest."""
        i = max(0, int(np.searchsorted(self.rounds, rounds, side="right")) - 1)
        return float(self.rounds[i]), self.H[i], float(self.squares[i])

    def slopes(self, record: SecantRecord, squares: float, ends: Sequence[int]) -> tuple[float, float]:
        """γ and ρ for batches that end so, from the mean of w·e² over the newer rounds; Σw·e² is ``squares`` now."""
        since, _, until = self.before(max(0.25 * ends[-1], ends[0]))
        return record.slopes((squares - until) / (ends[-1] - since))

    def followed_by(self, rounds: int, H: Array, squares: float) -> Past:
        """With one more in place of the oldest, if it comes late enough after the newest."""
        if rounds < _APART * self.rounds[-1]:
            return self
        new = (self.rounds, np.array([rounds], dtype=float)), (self.H, H[None]), (self.squares, np.array([squares]))
        return Past(*(np.concatenate([old[1:], one]) for old, one in new))


def misfit(residuals: Array, theta: Array, variance: float, count: int, bound: float) -> float:
    """The mean of ψ(r − μ(xᵀθ))·xᵀθ/‖θ‖ over a batch, over its bound B, where it is clearly not 0; else 0.

    Positive: rewards are farther from the base rate than μ(xᵀθ), on the same side. Clearly: by a quarter, and by six
    standard deviations.

    Parameters
    ----------
    residuals : ndarray of shape (d,)
        m − Mθ, the noisy sum of ψ(r − μ(xᵀθ))·x.
    theta : ndarray of shape (d,)
        In force in the batch.
    variance : float
        Of the noise in residuals along θ; r − μ deviates by at most B in each round besides.
    count : int
        Rounds of the batch.
    bound : float
        B.
    """
    length = math.sqrt(float(theta @ theta))
    if length == 0.0:
        return 0.0
    total = float(residuals @ theta) / length
    share = total / (count * bound)
    return share if abs(share) > 0.25 and abs(total) > 6.0 * math.sqrt(variance + count * bound**2) else 0.0


def turned_round(
    residuals: Array, M: Array, theta: Array, covariance: Array, slope: float, variance: float, chance: float
) -> tuple[float, float]:
    """η ≤ 0, where ηMθ is what a base rate above the rewards would have put into a batch's residuals, and a score z.

    If rewards are o below what base rate and θ say, the residuals hold −oΣψx. Arms that are the best ones by θ have a
    mean along it, so that Σψx is about as Mθ = Σψs·x xᵀθ. That turns what is wrong in θ's direction round, and not
    away: of an error across θ there remains −o·n·x̄/λ times as much, for a batch of n rounds with xᵀθ/‖θ‖ = x̄ that has
    the information λ across θ. Where batches are long that may be more than there was.

    By the model T = θᵀ(m − Mθ) has the mean 0 and the variance v = chance·θᵀMθ + γ²(Mθ)ᵀC(Mθ) + that of its noise,
    where C is the covariance of θ; z is T/√v, and η = T/θᵀMθ, or 0 if T > 0. How much of η is to be believed is for
    all batches to say: :func:`believed`.

    Parameters
    ----------
    residuals : ndarray of shape (d,)
        m − Mθ, the noisy sum of ψ(r − μ(xᵀθ))·x.
    M : ndarray of shape (d, d)
        The noisy sum of ψs·x xᵀ.
    theta : ndarray of shape (d,)
        In force in the batch.
    covariance : ndarray of shape (d, d)
        C.
    slope : float
        γ.
    variance : float
        Of the noise in residuals along θ.
    chance : float
        The variance that a round adds to b over what it adds to M.

    Examples
    --------
    >>> import numpy as np
    >>> known = np.array([1.0, 0.0]), 0.01 * np.eye(2), 1.0, 25.0, 1.0
    >>> eta, score = turned_round(np.array([-60.0, 3.0]), 100.0 * np.eye(2), *known)
    >>> eta, round(score, 12)
    (-0.6, -4.0)
    """
    along = M @ theta
    total, size = float(residuals @ theta), float(theta @ along)
    if not size > 0.0:
        return 0.0, 0.0
    expected = float(theta @ theta) * variance + chance * size + slope**2 * float(along @ covariance @ along)
    return min(0.0, total) / size, total / math.sqrt(expected)


def believed(scores: float, count: float) -> float:
    """How much of what :func:`turned_round` found is believed, after so many batches with this sum of their scores.

    With a base rate that is right Z = Σz/√count is about standard normal; with one that is too high all scores are
    negative, and Z grows with the batches. It is 1 − 2/Z², or 0 where that is negative or the sum is not, and of a
    single batch: it may be θ that was wrong.

    Examples
    --------
    >>> believed(-4.0, 4.0), believed(-2.0, 4.0), believed(8.0, 4.0), believed(-9.0, 1.0)
    (0.5, 0.0, 0.0, 0.0)
    """
    return max(0.0, 1.0 - 2.0 * count / scores**2) if scores < -1.0 and count > 1.0 else 0.0


def surprise(residual: Array, information: Array, covariance: Array, *, noise: float, reward_variance: float) -> float:
    """RᵀW⁻¹R, with the positive part of the noisy M.

    Parameters
    ----------
    residual : ndarray of shape (d,)
        R.
    information : ndarray of shape (d, d)
        M, noisy and symmetric.
    covariance : ndarray of shape (d, d)
        V.
    noise : float
        σ² > 0.
    reward_variance : float
        v, the largest variance of a reward for each unit of weight w.

    Examples
    --------
    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> surprise(np.array([3.0, 4.0]), 2 * eye, 0.5 * eye, noise=1.0, reward_variance=0.5)   # W = 4·I
    6.25
    """
    eigenvalues, U = np.linalg.eigh(information)
    M = (U * np.maximum(eigenvalues, 0.0)) @ U.T
    W = noise * np.eye(len(residual)) + reward_variance * M + M @ covariance @ M
    return float(residual @ np.linalg.solve(W, residual))


@cache
def surprise_bound(dim: int, false_alarms: float) -> float:
    """What a χ² variable with ``dim`` degrees of freedom passes with probability ``false_alarms``."""
    from scipy.special import chdtri

    return float(chdtri(dim, false_alarms))
