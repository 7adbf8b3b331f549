"""The signal over the noise of a run, by public numbers: whether it can learn anything, and which releases matter.

The sums of a run of T rounds hold, along each of d directions, information of at most λ = T·W/d if arms look everywhere
alike, W the largest weight of a round. There b is about λ·uᵀθ, with |uᵀθ| = S/√d for a θ of length S that points
anywhere. Its noise at the last release, the least that there will be in proportion, has the variance
σ² = σ_b² + ½σ_H²S² (that of H times θ is shared by d directions, E‖Nθ‖² = ½(d + 1)σ_H²‖θ‖²). So

    clarity = λ·(S/√d)/σ = T·W·S/(d^{3/2}·σ)

is the signal over the noise at best, in a run that wastes nothing. Far below 1 it is the noise that chooses.

It grows with T, falls with d^{3/2}, and is inversely proportional to the noise multiplier z(ε, δ) of a Gaussian
mechanism: so each of ε, T and d that would do follows.

*Which releases matter.* A release after t rounds is played for the L rounds of the batch after it. Its noise σ moves θ
by σ/t, for which a round pays in proportion to σ²/t², up to what a random choice costs. As long as there is more noise
than signal that is what it pays, and a little less noise does not matter. So the weights of variances should be about
L/max(t, t₀)². Measured regrets fall less steeply (chance of rewards, looking around, records formed at earlier
releases). Of what was tried on ten workloads, one of the best is

    w = L/max(c_t, 5)^{3/2},

c_t the clarity after t rounds where noise is that of a single release. Exponents from 5/4 to 2 and bounds from 5 to 8
are within one or two hundredths of the regret of that.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting import Budget, Gaussian, calibrate, epsilon
from accounting.arrays import Array
from dpbandits.policy.announced import announcing

if TYPE_CHECKING:
    from dpbandits.policy.private import PrivatePolicy

__all__ = ["clarity", "release_weights", "warn_of_cold_start"]

# below it a policy does about as well as one that learns nothing
_LEAST = 0.25
# by so much more than what would do is advised
_SPARE = 1.05
# what is no advice: noise that many times less, and what no policy takes as its ε or T
_FAR, _LARGEST_EPSILON, _LONGEST = 1e6, 1e4, 2**62
# in the weights of releases; what is as good as without noise, and a number when it is raised to a power
_CLEAR, _EXPONENT, _BEYOND = 5.0, 1.5, 1e100


def clarity(dim: int, rounds: float, weight: float, theta_bound: float, noise_b: float, noise_H: float = 0.0) -> float:
    """The signal over the noise in the last release, at best.

    Parameters
    ----------
    dim : int
        d.
    rounds : float
        T: how many rounds enter the sums.
    weight : float
        W.
    theta_bound : float
        S.
    noise_b, noise_H : float
        σ_b and σ_H.

    Examples
    --------
    >>> clarity(4, 1000, weight=0.25, theta_bound=2.0, noise_b=8.0, noise_H=0.0)
    7.8125
    """
    noise = math.sqrt(noise_b**2 + 0.5 * (noise_H * theta_bound) ** 2)
    return rounds * weight * theta_bound / (dim**1.5 * noise) if noise > 0 else math.inf


def release_weights(ends: Sequence[int], signal: float) -> Array:
    """The weights of the variances of releases, for ``dpkit.continual.Weighted``.

    Parameters
    ----------
    ends : sequence of int
        After how many rounds there are releases; at least one.
    signal : float
        c_1, at least 0.

    Examples
    --------
    >>> release_weights([100, 200, 400, 800], 0.0125).round(2).tolist()
    [8.94, 17.89, 35.78, 12.65]
    """
    t = np.array(ends, dtype=np.float64)
    # the last batch is about as long as the one before it
    lengths = np.append(np.diff(t), t[-1] - (t[-2] if len(t) > 1 else 0.0))
    return np.asarray(lengths / np.clip(t * signal, _CLEAR, _BEYOND) ** _EXPONENT)


def warn_of_cold_start(policy: PrivatePolicy[Any], found: float, dim: int | None = None) -> None:
    """Say so where nothing was known of θ beforehand and the clarity of a policy that is made is too small.

    And say what would do: each of ε, T and d alone.

    Parameters
    ----------
    policy : PrivatePolicy
    found : float
        The clarity.
    dim : int, optional
        How many features an arm has, where that is not the policy's own d.
    """
    if found >= _LEAST or getattr(policy, "prior", None) is not None or not announcing():
        return
    dim, rounds, budget = policy.dim if dim is None else dim, policy.terms()["horizon"], policy.budget
    # slopes of a link next to its base rate may be as small as numbers are
    lacking = _SPARE * _LEAST / found if found > 1e-300 else math.inf
    ways = []
    if lacking <= _FAR and (larger := _epsilon(budget, lacking)) <= _LARGEST_EPSILON:
        ways.append(f"ε = {_rounded(larger)}")
    if rounds * lacking <= _LONGEST:
        ways.append(f"T = {_rounded(math.ceil(rounds * lacking))}")
    if (fewer := math.floor(dim / lacking ** (2 / 3))) >= 1:
        ways.append(f"d = {fewer}")
    advice = f"About {', or '.join(ways)} would do" if ways else "No ε, T or d that it takes would do"
    warnings.warn(
        f"the noise for ε = {budget.epsilon:g} will exceed what {rounds:,} rounds can say of d = {dim} parameters: at "
        f"the last release the signal is at best {found:.2g} times the noise, so that choices are about as good as "
        f"random ones. {advice}; or a prior from public knowledge (prior=), where the "
        "policy takes one",
        UserWarning,
        stacklevel=_outside(),
    )


def _epsilon(budget: Budget, factor: float) -> float:
    """The ε at which Gaussian noise is so many times smaller, at the same δ."""
    z = calibrate(lambda z: Gaussian(z, adjacency=budget.adjacency), budget)
    return float(epsilon(Gaussian(z / factor, adjacency=budget.adjacency), budget.delta))


def _rounded(value: float) -> str:
    """Upwards, to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:,.12g}"


def _outside() -> int:
    """How many frames up the caller of the constructor is: subclasses have constructors, too."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name == "__init__":
        level, frame = level + 1, frame.f_back
    return level
