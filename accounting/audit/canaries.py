"""A lower bound on ε from a single run: guess which canaries it used.

Each of n canaries was included in the data by a fair coin of its own. Looking at the output (a score for each
canary), guess for some that they were included, for some that they were left out, and abstain on the others. A private
output does not let many guesses be right:

* (ε, δ)-DP (Steinke, Nasr & Jagielski, "Privacy Auditing with One (1) Training Run", arXiv:2305.08846): with r guesses
  on m canaries and B ~ Bin(r, e^ε/(1 + e^ε)),
  P(at least v right) ≤ P(B ≥ v) + 2mδ·max over i ≥ 1 of P(v > B ≥ v − i)/i.
* Gaussian DP (Mahloujifar, Melis & Chaudhuri, "Auditing f-Differential Privacy in One Run", arXiv:2410.22235): let
  p_j be the probability of exactly j right guesses. Flipping one canary's coin turns a right guess into a wrong
  one, hence for every v
  Σ_{j≥v} (j/m)·p_j ≤ F(Σ_{j≥v−1} ((r − j)/m)·p_j),     F(x) = Φ(Φ⁻¹(x) + μ).
  Given P(at least v right) = τ, the smallest p that satisfies these inequalities from the top down has
  a total Σ p_j; where that passes 1, τ is impossible. If all guesses say the same ("included", or "left out"),
  each coin is flipped in one direction only, and F(x) = Φ(Φ⁻¹(2x) + μ)/2, which is smaller.

The numbers of guesses are chosen on one half of the canaries, and the other half is judged. Given the first half's
coins, those of the second are still fair and the output is still private in them, so the search costs no confidence.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from accounting.audit.confidence import check_confidence
from accounting.audit.findings import OneRunBound
from accounting.checks import fraction
from accounting.conversions import gdp_epsilon

__all__ = ["checked_canaries", "one_run", "shuffled"]


# How many numbers of guesses are tried, and the standard deviations of luck that are taken off what each shows: the
# one that looks best on the first half was also lucky there.
_SIZES, _CAUTION = 12, 1.5


def one_run(
    scores: ArrayLike, included: ArrayLike, *, delta: float, confidence: float = 0.95, gaussian: bool = False
) -> OneRunBound:
    """Bound ε from below by one run with canaries.

    Parameters
    ----------
    scores : array_like, shape (n,)
        One for each canary, computed from the output of the run; the higher, the likelier it was included. At least 16.
    included : array_like of bool, shape (n,)
        Whether each canary was in the data: independent fair coins, tossed before the run.
    delta : float
        The claim's δ, in [0, 1).
    confidence : float
        In [0.5, 1).
    gaussian : bool
        The claim is Gaussian DP: bound μ, and give ε through it. Needs δ > 0.

    Returns
    -------
    OneRunBound

    Notes
    -----
    The neighbours of the claim are those that differ by one canary: present or absent. One run shows less than many:
    canaries interfere, and the bound stays below the true ε even for the best guesses.

    Examples
    --------
    Canaries that are reported by randomized response with ε = 2:

    >>> import numpy as np
    >>> from accounting import audit
    >>> rng = np.random.default_rng(0)
    >>> included = rng.random(20_000) < 0.5
    >>> truth = rng.random(20_000) < 1 / (1 + np.exp(-2.0))
    >>> bound = audit.one_run(np.where(truth, included, ~included), included, delta=0.0)
    >>> 1.85 < bound.epsilon < 2.0
    True
    """
    values, coins = checked_canaries(scores, included, at_least=16)
    fraction("delta", delta, include_zero=not gaussian)
    alpha = 1.0 - check_confidence(confidence)

    order = shuffled(len(values))
    chosen, judged = np.array_split(order, 2)
    tops, bottoms = _choose(values[chosen], coins[chosen], 0.0 if gaussian else delta, alpha)
    m, guesses = len(judged), tops + bottoms
    correct = int(_right(values[judged], coins[judged], np.array([tops]), np.array([bottoms]))[0])
    one_sided = tops == 0 or bottoms == 0
    found = (
        _mu_bound(m, guesses, correct, alpha, one_sided)
        if gaussian
        else _epsilon_bound(m, guesses, correct, delta, alpha)
    )
    return OneRunBound(
        epsilon=gdp_epsilon(found, delta) if gaussian else found,
        delta=float(delta),
        confidence=float(confidence),
        mu=found if gaussian else None,
        correct=correct,
        guesses=guesses,
        included_guesses=tops,
        canaries=m,
    )


def checked_canaries(
    scores: ArrayLike, included: ArrayLike, *, at_least: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A score and a coin for each canary.

    Raises
    ------
    ValueError
        If there are fewer than that, a score is NaN, or the coins are no booleans of the same shape.
    """
    values = np.asarray(scores, dtype=np.float64)
    coins = np.asarray(included)
    if values.ndim != 1 or len(values) < at_least:
        raise ValueError(
            f"scores must hold one number for each of at least {at_least} canaries, got shape {values.shape}"
        )
    if np.isnan(values).any():
        raise ValueError(f"scores must not be NaN, got {int(np.isnan(values).sum())} NaN among {values.size}")
    if coins.dtype.kind != "b" or coins.shape != values.shape:
        raise ValueError(f"included must be booleans of shape {values.shape}, got {coins.dtype} of shape {coins.shape}")
    return values, coins


def shuffled(count: int) -> NDArray[np.int64]:
    """A fixed order of so many canaries, for the halves and for what stands first among equal scores.

    Neither may depend on the coins. Callers like to list the included canaries first; and they toss the coins by seeds
    such as 0, so that the order is made by a seed that nobody takes.
    """
    return np.random.default_rng(0x8B3C_51F7_29D4_E06A_7C15_F39C_C060_5CED).permutation(count)


def _right(
    scores: Array, coins: NDArray[np.bool_], tops: NDArray[np.int64], bottoms: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Right guesses when the ``tops`` highest scores are called included and the ``bottoms`` lowest left out."""
    sorted_coins = coins[np.argsort(scores, kind="stable")]
    left_out_below = np.concatenate([[0], np.cumsum(~sorted_coins)])
    included_above = np.concatenate([[0], np.cumsum(sorted_coins[::-1])])
    return np.asarray(included_above[tops] + left_out_below[bottoms])


def _choose(scores: Array, coins: NDArray[np.bool_], delta: float, alpha: float) -> tuple[int, int]:
    """How many guesses of each kind bound ε best on these canaries, had they been less lucky by ``_CAUTION``."""
    m = len(scores)
    k = np.unique(np.geomspace(min(4, m // 2), m // 2, _SIZES).astype(np.int64))
    tops, bottoms = np.concatenate([k, k, 0 * k]), np.concatenate([k, 0 * k, k])
    guesses, right = tops + bottoms, _right(scores, coins, tops, bottoms)
    luck = _CAUTION * np.sqrt((right + 1) * (guesses - right + 1) / (guesses + 2))
    fair = np.maximum(right - np.ceil(luck), 0).astype(np.int64)
    # δ only lowers a bound, so one that is not better without it need not be computed with it
    ceilings = [_epsilon_bound(m, int(r), int(v), 0.0, alpha) for r, v in zip(guesses, fair, strict=True)]
    best, value = 0, -1.0
    for i in np.argsort(ceilings)[::-1]:
        if ceilings[i] <= value:
            break
        bound = _epsilon_bound(m, int(guesses[i]), int(fair[i]), delta, alpha)
        if bound > value:
            best, value = int(i), bound
    return int(tops[best]), int(bottoms[best])


def _epsilon_bound(m: int, r: int, v: int, delta: float, alpha: float) -> float:
    """The largest ε at which ``v`` right of ``r`` guesses on ``m`` canaries have probability at most ``alpha``."""
    from scipy.optimize import brentq
    from scipy.special import betainc, betaincinv, expit, logit

    if v == 0:
        return 0.0
    top = float(logit(betaincinv(v, r - v + 1, alpha)))  # the answer at δ = 0
    if delta == 0 or top <= 0:
        return max(0.0, top)

    def excess(eps: float) -> float:
        q = float(expit(eps))
        # below this count the tail is 1 to the last digit and the quotient can only fall
        reach = max(1, math.floor(r * q - 12 * math.sqrt(r * q * (1 - q)) - 12))
        i = np.arange(1, v - min(reach, v) + 2)
        at_least = np.where(i < v, betainc(np.maximum(v - i, 1), r - v + i + 1, q), 1.0)
        beta = float(betainc(v, r - v + 1, q))
        return beta + 2 * m * delta * float(np.max((at_least - beta) / i)) - alpha

    if excess(0.0) >= 0:
        return 0.0
    return max(0.0, float(brentq(excess, 0.0, top, xtol=1e-10)) - 1e-10)


def _mu_bound(m: int, r: int, v: int, alpha: float, one_sided: bool) -> float:
    """The largest μ (to 1e-6, rounded down) at which ``v`` right guesses have probability below ``alpha``."""
    if v == 0:
        return 0.0
    low, high = 0.0, 4.0
    while _impossible(np.array([high]), m, r, v, alpha, one_sided)[0]:
        low, high = high, 2 * high
    while high - low > 1e-6:
        grid = np.linspace(low, high, 33)[1:-1]
        rejected = _impossible(grid, m, r, v, alpha, one_sided)
        kept = int(np.argmin(rejected)) if not rejected.all() else len(grid)
        low, high = grid[kept - 1] if kept > 0 else low, grid[kept] if kept < len(grid) else high
    return float(low)


def _impossible(mu: Array, m: int, r: int, v: int, tau: float, one_sided: bool) -> NDArray[np.bool_]:
    """For each μ, whether it excludes P(at least ``v`` right of ``r`` guesses) ≥ ``tau``.

    ``right`` and ``wrong`` are Σ_{j≥i} (j/m)·p_j and Σ_{j≥i} ((r − j)/m)·p_j, from i = v down to 0, for the
    smallest p: all of τ on j = v, and below that no more than the inequalities ask for.
    """
    from scipy.special import ndtr, ndtri

    sides = 2.0 if one_sided else 1.0
    right = np.full(mu.shape, tau * v / m)
    wrong = np.full(mu.shape, tau * (r - v) / m)
    for i in range(v - 1, -1, -1):
        needed = ndtr(ndtri(np.minimum(sides * right, 1.0)) - mu) / sides
        if np.all(needed <= wrong):
            break  # nothing is asked for here, nor further down
        more = np.maximum(needed - wrong, 0.0)
        wrong = wrong + more
        right = right + (i / (r - i)) * more
    return np.asarray(right + wrong > r / m)
