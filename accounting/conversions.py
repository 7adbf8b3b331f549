"""Privacy guarantees and the exact conversions between them.

======================  ==========  =====================================================================
guarantee               parameter   δ(ε)
======================  ==========  =====================================================================
pure DP                 ε₀          (e^ε₀ − e^ε)/(1 + e^ε₀)   (randomized response is the worst case)
Gaussian DP             μ           Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)   (Balle & Wang 2018; Dong et al. 2022)
zCDP                    ρ           that of the worst coin (:mod:`accounting.loss.concentrated_curve`)
======================  ==========  =====================================================================

For each guarantee there are three functions: ε for a δ, δ for an ε, and the largest parameter that still meets an
(ε, δ).

All work in logarithms and are valid for ε ∈ [0, 1e3] and δ ∈ [1e-300, 1). Every answer is rounded to the
safe side by a bound on the rounding error of its own evaluation, so an upper bound stays an upper bound; a
positive δ below the smallest float is reported as that float, not as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import UNIT_ROUNDOFF, Array
from accounting.checks import fraction, nonnegative
from accounting.roots import root_between

__all__ = [
    "best_delta",
    "best_epsilon",
    "best_order_for_delta",
    "best_order_for_epsilon",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "pure_delta",
    "pure_epsilon",
    "pure_parameter",
]

_ROOT_HALF = math.sqrt(0.5)
_ROOT_HALF_PI = math.sqrt(math.pi / 2)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_SMALLEST = 5e-324


def log_target(delta: float) -> float:
    """ln δ of a target δ; refuses anything outside (0, 1)."""
    return math.log(fraction("delta", delta))


def probability(log_delta: float) -> float:
    """e^``log_delta``, at most 1, rounded up where it leaves the range of floats."""
    return 1.0 if log_delta >= 0 else min(1.0, math.exp(log_delta) + _SMALLEST)


def parameter(name: str, value: float) -> float:
    """A privacy parameter: any number ≥ 0, and infinity for a release that hides nothing."""
    if not value >= 0:
        bound = "a number" if math.isnan(value) else "nonnegative"
        raise ValueError(f"{name} must be {bound}, got {name}={value!r}")
    return value


# ----------------------------------------------------------------------------------------------- pure DP


def pure_delta(epsilon0: float, epsilon: float) -> float:
    """The smallest δ such that every ε₀-DP mechanism is (ε, δ)-DP."""
    nonnegative("epsilon", epsilon)
    if epsilon >= parameter("epsilon0", epsilon0):
        return 0.0
    # (e^ε₀ − e^ε)/(1 + e^ε₀), divided through by e^ε₀
    value = -math.expm1(epsilon - epsilon0) / (1.0 + math.exp(-epsilon0))
    return min(1.0, value * (1 + 8 * UNIT_ROUNDOFF))


def pure_epsilon(epsilon0: float, delta: float) -> float:
    """The smallest ε such that every ε₀-DP mechanism is (ε, δ)-DP (``delta = 0`` gives ε₀)."""
    fraction("delta", delta, include_zero=True)
    if math.isinf(parameter("epsilon0", epsilon0)):
        return math.inf
    inside = -delta * (1.0 + math.exp(-epsilon0))
    if inside <= -1.0:
        return 0.0
    # the two terms may cancel, and the logarithm is steep near −1
    drop = math.log1p(inside)
    slack = 8 * UNIT_ROUNDOFF * (epsilon0 + abs(drop) + abs(inside) / (1.0 + inside))
    return min(epsilon0, max(0.0, epsilon0 + drop + slack))


def pure_parameter(epsilon: float, delta: float) -> float:
    """The largest ε₀ such that every ε₀-DP mechanism is (ε, δ)-DP, rounded down."""
    nonnegative("epsilon", epsilon)
    fraction("delta", delta, include_zero=True)
    # e^ε₀ = (e^ε + δ)/(1 − δ)
    exact = epsilon + math.log1p(delta * math.exp(-epsilon)) - math.log1p(-delta)
    return exact * (1 - 8 * UNIT_ROUNDOFF)


# ------------------------------------------------------------------------------------------- Gaussian DP


@cache
def _legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(64)
    return (nodes + 1) / 2, weights / 2


def _gdp_log_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """ln δ(ε) of μ-GDP, rounded up, and its derivative in ε.

    With t₁ = ε/μ − μ/2, t₂ = ε/μ + μ/2 and Mills' ratio M(t) = (1 − Φ(t))/φ(t), and because e^ε φ(t₂) = φ(t₁),

        δ = φ(t₁)·(M(t₁) − M(t₂)),      ∂δ/∂ε = −φ(t₁)·M(t₂).

    Where the two ratios nearly cancel (small μ), their difference is integrated instead: from
    M(t) = ∫₀^∞ exp(−ts − s²/2) ds it is ∫₀^∞ 2 sinh(μs/2)·exp(−(ε/μ)s − s²/2) ds, in which nothing cancels.
    """
    t = epsilon / mu
    t1, t2 = t - mu / 2, t + mu / 2
    M2 = _ROOT_HALF_PI * _erfcx(t2 * _ROOT_HALF)
    log_phi = -0.5 * t1 * t1 - _LOG_ROOT_TWO_PI
    if t1 < -5.0:  # δ is close to 1
        delta = 0.5 * math.erfc(t1 * _ROOT_HALF) - math.exp(log_phi) * M2
        return math.log(delta) + 1e-14, -math.exp(log_phi) * M2 / delta
    M1 = _ROOT_HALF_PI * _erfcx(t1 * _ROOT_HALF)
    difference = M1 - M2
    lost = 8 * M1 / (M1 - M2) if M2 < 0.97 * M1 else 0.0
    if not lost:
        nodes, weights = _legendre()
        # beyond this s the integrand is below e^-80 of its peak
        width = 160.0 / (math.sqrt(t1 * t1 + 160.0) + t1)
        s = width * nodes
        difference = width * float(weights @ (2 * np.sinh(mu / 2 * s) * np.exp(-s * (t + s / 2))))
    log_delta = log_phi + math.log(difference)
    # first-order rounding error of −t₁²/2 (t₁ itself is a difference), of M(t₁) − M(t₂) and of the rest
    slack = UNIT_ROUNDOFF * (abs(t1) * (2 * t + mu + 2 * abs(t1)) + abs(log_delta) + lost + 60)
    return log_delta + slack, -M2 / difference


def _erfcx(x: float) -> float:
    """e^(x²)·erfc(x) for x ≥ −4, to a few units in the last place; scipy's takes a third of a second to import.

    x² is split into a square of 26 bits, which is exact, and the rest. From 25 on the asymptotic series is used, of
    which the first term that is left out, below 3e-17, bounds the error.
    """
    if x < 25.0:
        head = math.ldexp(round(math.ldexp(x, 20)), -20)
        return math.exp(head * head) * math.exp((x - head) * (x + head)) * math.erfc(x)
    u = 0.5 / (x * x) if x < 1e150 else 0.0
    series = 1 - u * (1 - 3 * u * (1 - 5 * u * (1 - 7 * u * (1 - 9 * u * (1 - 11 * u)))))
    return series / (x * math.sqrt(math.pi))


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a μ-GDP mechanism: exact for the Gaussian mechanism, rounded up.

    Examples
    --------
    >>> round(gdp_delta(1.0, 1.0), 12)
    0.126936737507
    """
    nonnegative("epsilon", epsilon)
    if parameter("mu", mu) == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return probability(_gdp_log_delta(mu, epsilon)[0])


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest ε such that a μ-GDP mechanism is (ε, δ)-DP, rounded up.

    Newton's method on √(−ln δ(ε)), which is close to linear in ε, then a step up to a point that was seen to be safe.
    """
    target = log_target(delta)
    if parameter("mu", mu) == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    if math.erf(mu * _ROOT_HALF / 2) * (1 + 8 * UNIT_ROUNDOFF) <= delta:  # δ(0) = 2Φ(μ/2) − 1
        return 0.0
    root = math.sqrt(-target)
    t = math.sqrt(2.0) * root
    safe = mu * (t + mu / 2)  # Chernoff's bound
    # start from ln δ ≈ ln φ(t₁) + ln(M(t₁) − M(t₁ + μ)) with M(t) ≈ 1/(t + 0.8)
    square = 2 * (-target - _LOG_ROOT_TWO_PI + math.log(mu / ((t + 0.8) * (t + mu + 0.8))))
    epsilon = mu * (math.sqrt(square) + mu / 2) if square > 0 else safe
    for _ in range(50):
        value, slope = _gdp_log_delta(mu, epsilon)
        if value <= target:
            safe = min(safe, epsilon)
        steep = math.sqrt(max(-value, 1e-16))
        step = 2 * steep * (root - steep) / -slope
        epsilon = max(epsilon + step, epsilon / 16)
        if abs(step) <= 8 * UNIT_ROUNDOFF * epsilon:
            break
    # the iteration ends on either side of the root, within the rounding error of ln δ
    step = UNIT_ROUNDOFF
    while epsilon < safe:
        if _gdp_log_delta(mu, epsilon)[0] <= target:
            return epsilon
        epsilon *= 1.0 + step
        step *= 2.0
    return safe


@lru_cache(maxsize=1024)
def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest μ such that a μ-GDP mechanism is (ε, δ)-DP, rounded down.

    Examples
    --------
    The noise multiplier of one Gaussian release at (1, 1e-6):

    >>> round(1 / gdp_mu(1.0, 1e-6), 10)
    4.2246788893
    """
    target = log_target(delta)
    nonnegative("epsilon", epsilon)
    return largest(lambda mu: _gdp_log_delta(mu, epsilon)[0], target)


# ------------------------------------------------------------------------------------------- root finding


def increasing_root(function: Callable[[float], float], guess: float) -> float:
    """The root u > 0 of an increasing function, to a relative 1e-12, by bisection-safe secants in ln u."""
    low = high = math.log(guess)
    while function(math.exp(low)) > 0:
        low -= 2.0
        if low < -700:
            return math.exp(low)
    while function(math.exp(high)) < 0:
        high += 2.0
    if low == high:
        return guess
    return math.exp(root_between(lambda y: function(math.exp(y)), low, high, absolute=1e-12, relative=1e-12))


def largest(log_delta: Callable[[float], float], target: float) -> float:
    """The largest x > 0 with ``log_delta(x) <= target`` for an increasing ``log_delta``, rounded down."""
    # −ln δ grows like 1/x² as x falls, so √(−ln δ) is nearly linear in ln x: secants converge in a few steps
    root = math.sqrt(-target)

    def excess(y: float) -> float:
        return root - math.sqrt(max(0.0, -log_delta(math.exp(y))))

    low = high = 0.0
    while excess(low) > 0:
        low -= 2.0
        if low < -690:
            return 0.0
    while excess(high) <= 0 and high < 690:
        high += 2.0
    x = math.exp(root_between(excess, low, high, absolute=1e-15, relative=1e-14))
    step = 1e-15
    while log_delta(x) > target:
        x *= 1.0 - step
        step *= 2.0
    return x


# ------------------------------------------------------------------------------------- a Rényi curve, at its best order

_Curve = Callable[[Array], Array]

# Orders are searched over 1 + e^x with x in this range.
_LOWEST, _HIGHEST = -30.0, 60.0
# Spacing in x at which the search begins, and at which it ends: what is lost is of the order of its square.
_APART, _STEP = 0.7, 2e-5
# Below this spacing the vertex is known to the spacing's square, nearly.
_BENT = 0.02
# (α − 1)·ε from which δ moves by more than a billionth where ε is rounded: ε is rounded up until it is the inverse of δ
_ROUNDED = 1e3


def best_epsilon(curve: _Curve, delta: float) -> float:
    """min over α of ε_α + ln(1 − 1/α) − (ln δ + ln α)/(α − 1), rounded up; infinite if no order is finite."""
    found, order = _search_epsilon(curve, delta)
    step = UNIT_ROUNDOFF
    while order * found > _ROUNDED and best_delta(curve, found) > delta:
        found, step = found * (1.0 + step), 2.0 * step
    return max(0.0, found)


def best_order_for_epsilon(curve: _Curve, delta: float) -> float:
    """The order at which :func:`best_epsilon` is reached, less 1."""
    return _search_epsilon(curve, delta)[1]


def best_delta(curve: _Curve, epsilon: float) -> float:
    """min over α of exp((α − 1)(ε_α − ε + ln(1 − 1/α)) − ln α), rounded up, at most 1."""
    return probability(_search_delta(curve, epsilon)[0])


def best_order_for_delta(curve: _Curve, epsilon: float) -> float:
    """The order at which :func:`best_delta` is reached, less 1."""
    return _search_delta(curve, epsilon)[1]


def _search_epsilon(curve: _Curve, delta: float) -> tuple[float, float]:
    budget = -log_target(delta)

    def objective(eta: Array) -> Array:
        divergence = curve(1 + eta)
        return _upward(divergence, -np.log1p(1 / eta), budget / eta, -np.log1p(eta) / eta)

    return _valley(objective, math.sqrt(budget / _rate(curve)))


def _search_delta(curve: _Curve, epsilon: float) -> tuple[float, float]:
    nonnegative("epsilon", epsilon)

    def objective(eta: Array) -> Array:
        divergence = curve(1 + eta)
        return _upward(eta * divergence, -eta * epsilon, -eta * np.log1p(1 / eta), -np.log1p(eta))

    return _valley(objective, (1 + epsilon) / _rate(curve))


def _rate(curve: _Curve) -> float:
    """ρ of the zCDP line through the curve at α = 2: where to start the search."""
    rate = float(curve(np.array([2.0]))[0]) / 2
    return min(max(rate, 1e-20), 1e20)


def _upward(divergence: Array, *terms: Array) -> Array:
    """The sum, rounded up by its own rounding error and by that of the curve."""
    total = divergence + sum(terms)
    magnitude = sum((np.abs(term) for term in terms), 64 * np.abs(divergence))
    return np.asarray(total + 8 * UNIT_ROUNDOFF * magnitude)


def _valley(objective: Callable[[Array], Array], guess: float) -> tuple[float, float]:
    """The minimum over η = α − 1 > 0 of a function with a single valley, and where; any point of it is a valid bound.

    Five orders at a time, evenly spaced in x = ln η: the spacing grows until the lowest is an inner one, then the
    next five are laid closely around the vertex of the parabola through the lowest three. All are multiples of a small
    step, so that ε at a δ and δ at that ε are found at the same order, and one is the inverse of the other.
    """
    x, apart = round(min(max(math.log(guess), _LOWEST), _HIGHEST) / _STEP), round(_APART / _STEP)
    lowest, highest = round(_LOWEST / _STEP), round(_HIGHEST / _STEP)
    best, at = math.inf, x
    for _ in range(100):
        grid = x + apart * np.arange(-2, 3)
        y = objective(np.exp(_STEP * np.clip(grid, lowest, highest)))
        y = np.where(np.isnan(y), np.inf, y)
        i = int(np.argmin(y))  # where all are infinite, the lowest order
        if y[i] < best:
            best, at = float(y[i]), int(grid[i])
        if i in (0, 4):
            if not lowest < grid[i] < highest:
                break
            x, apart = int(grid[i]), apart * 3 // 2
            continue
        if apart == 1:
            break
        left, middle, right = (float(value) for value in y[i - 1 : i + 2])
        bend = left - 2 * middle + right
        vertex = 0.5 * apart * (left - right) / bend if 0 < bend < math.inf else 0.0
        x, apart = round(int(grid[i]) + vertex), max(1, apart // (8 if apart * _STEP > _BENT else 128))
    return best, math.exp(_STEP * min(max(at, lowest), highest))
