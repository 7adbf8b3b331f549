"""What ρ-zCDP says about ε and δ, exactly: what its worst coin costs (:mod:`accounting.loss.worst_coins`).

*One order, all of it.* For α = 1 + u > 1 and 0 < y₁ ≤ 1 let D(y) = λ(y^α − αy₁^u·y + u·y₁^α) ≥ 0, what y^α exceeds its
tangent at y₁ by. If D(y) ≥ y − e^ε for all y ≥ 0, then with y = P/Q and E_Q[y^α] ≤ e^(ραu)

    δ(ε) = E_Q[(y − e^ε)₊] ≤ E_Q[D(y)] ≤ λN,    N = e^(ραu) − αy₁^u + u·y₁^α.

y − D(y) is largest at y₂ with y₂^u = y₁^u + 1/(λα), where it is λu(y₂^α − y₁^α). So for every α > 1 and y₁ < y₂

    ln(u(y₂^α − y₁^α)/(α(y₂^u − y₁^u))) ≤ ε    implies    δ(ε) ≤ N/(α(y₂^u − y₁^u)).                              (*)

With y₁ → 0 it is Proposition 12 of Canonne, Kamath & Steinke (2020); with y₁ it is all that one order says (Asoodeh,
Liao, Calmon, Kosut & Sankar 2021). Any numbers α and y₁ give a bound, so it does not matter how they were found.

*All orders say no more.* The worst coin of the order α, with y₁ = (1 − p)/(1 − q) and y₂ = p/q, has E_Q[y^α] = e^(ραu),
and y is y₁ or y₂, where D(y) is (y − e^ε)₊: (*) holds with equality.

*Near ε = 0* only the divergences of order 1 matter. There, below an ε₁, δ is bounded by the chord of a function that is
convex in e^ε, from δ(ε₁) to δ(−ε₁) = 1 − e^(−ε₁) + e^(−ε₁)δ(ε₁), as P and Q may change places.

A total ρ of releases that were chosen adaptively, also under a filter that keeps it below a limit, is converted once:
the whole is ρ-zCDP. All is valid for ε ∈ [0, 1e3] and δ ∈ [1e-300, 1), and rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from accounting.arrays import UNIT_ROUNDOFF
from accounting.checks import nonnegative
from accounting.conversions import increasing_root, largest, log_target, parameter, probability
from accounting.loss.worst_coins import LOWEST, SAFETY, Coin, lost, slope, worst_coin
from accounting.roots import root_between

__all__ = ["best_point", "epsilon_of", "lower_zcdp_epsilon", "zcdp_delta", "zcdp_epsilon", "zcdp_rho"]

# A ρ below this is priced as this one: safe, and its orders still square without overflow.
_SMALLEST_RHO = 1e-100
# Coins are looked for within these: of others, and of δ below e^(−1000), the first bound says as much as floats can.
_LEAST, _MOST, _NEVER = 1e-20, 1e6, -1e3


def _log_excess(rho: float, eta: float, low: float) -> float:
    """ln N at y₁ = e^``low``, rounded up."""
    alpha = 1 + eta
    t, power = rho * alpha * eta, math.exp(eta * low)
    if t > 1:
        below = power * (1 - eta * math.expm1(low))  # αy₁^u − u·y₁^α, in which nothing cancels
        return t + math.log1p(-below * math.exp(-t) * (1 - 1e-13)) + 8 * UNIT_ROUNDOFF * (t + 1)
    terms = math.expm1(t), -math.expm1(eta * low), eta * power * math.expm1(low)
    return math.log(math.fsum(terms) + 8 * UNIT_ROUNDOFF * math.fsum(map(abs, terms))) + 8 * UNIT_ROUNDOFF


def epsilon_of(rho: float, log_delta: float, eta: float, low: float) -> float:
    """ε of (*) for δ at α = 1 + ``eta`` and y₁ = e^``low``, rounded up."""
    log_n = _log_excess(rho, eta, low)
    # z = ln y₂, from δ = N/(α(y₂^u − y₁^u))
    share = math.log1p(math.exp(eta * low + math.log1p(eta) + log_delta - log_n))
    z = (log_n - math.log1p(eta) - log_delta + share) / eta
    if not z > low:
        return math.inf  # next to nothing, less than rounding
    # (y₂^α − y₁^α)/(y₂^u − y₁^u) is y₂ times the ratio of what y₁ takes away
    terms = (-math.log1p(1 / eta), z, lost((1 + eta) * (z - low)), -lost(eta * (z - low)))
    # the two change by as much, but for half of what z − ln y₁ does
    size = 2 + math.fsum(map(abs, terms)) + (abs(log_n) + abs(log_delta) + math.log1p(eta)) / eta
    return math.fsum(terms) + 8 * UNIT_ROUNDOFF * size


def _coin_at(rho: float, guess: float, excess: Callable[[Coin], float]) -> Coin:
    """About where ``excess``, which rises with the order, is 0; or the coin of the lowest order."""

    def at(y: float) -> float:
        return excess(worst_coin(rho, math.exp(y)))

    least = math.log(LOWEST)
    low = high = max(least, math.log(guess))
    while low > least and at(low) > 0:
        low, high = max(least, low - 0.5), low
    while high < 400 and at(high) < 0:
        low, high = high, high + 0.5
    if at(low) >= 0 or at(high) <= 0:
        return worst_coin(rho, LOWEST if low == least else math.exp(low))
    return worst_coin(rho, math.exp(root_between(at, low, high, absolute=1e-7)))


def _upward_sum(terms: tuple[float, ...]) -> float:
    """The sum of terms that are each right to 8 units in the last place, rounded up."""
    return math.fsum(terms) + 8 * UNIT_ROUNDOFF * math.fsum(map(abs, terms))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The smallest ε such that all that is ρ-zCDP is (ε, δ)-DP, rounded up.

    Examples
    --------
    >>> round(zcdp_epsilon(0.1, 1e-6), 12), round(zcdp_epsilon(1e-4, 1e-3), 5)
    (2.141938551644, 0.02027)
    """
    log_delta = log_target(delta)
    if parameter("rho", rho) == 0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    rho = max(rho, _SMALLEST_RHO)
    # with y₁ = 0 the derivative vanishes where ρu² + ln(1 + u) = ln 1/δ, which increases in u
    u = increasing_root(lambda u: rho * u * u + math.log1p(u) + log_delta, math.sqrt(-log_delta / rho))
    found = _upward_sum((rho, rho * u, -math.log1p(1 / u), -log_delta / u, -math.log1p(u) / u))
    if not _LEAST < rho < _MOST:
        return max(0.0, found)
    coin = _coin_at(rho, u, lambda coin: log_delta - coin.log_delta)
    if coin.eta > LOWEST:
        found = min(found, epsilon_of(rho, log_delta, coin.eta, coin.low))
    else:
        first, least = _first(rho)
        taken = (delta - least) * (1 + math.exp(-first)) / (1 - least) if least < 1 else 0.0
        taken *= 1 - 8 * UNIT_ROUNDOFF
        if taken > 0:
            rounding = 1e-14 / (1 - taken) + UNIT_ROUNDOFF * first if taken < 1 else 0.0
            found = min(found, first + math.log1p(-taken) + rounding) if taken < 1 else 0.0
    return max(0.0, found)


@lru_cache(maxsize=64)
def _first(rho: float) -> tuple[float, float]:
    """ε₁, and δ there, rounded up."""
    coin = worst_coin(rho, LOWEST)
    return coin.epsilon, probability(_log_delta_of(rho, coin.epsilon, coin.eta, coin.low))


def best_point(rho: float, delta: float, epsilon: float) -> tuple[float, float, float]:
    """About the order α, ln y₁ and ln y₂ with which (*) says the most at ``delta``, and surely holds at ``epsilon``."""
    log_delta = log_target(delta)
    u = increasing_root(lambda u: rho * u * u + math.log1p(u) + log_delta, math.sqrt(-log_delta / rho))
    eta, low = u, -1e3
    if _LEAST < rho < _MOST:
        coin = _coin_at(rho, u, lambda coin: log_delta - coin.log_delta)
        eta, low = coin.eta, coin.low
    below, above = low, max(epsilon, low) + math.log1p(1 / eta) + 1.0
    for _ in range(100):
        middle = (below + above) / 2
        below, above = (middle, above) if slope(eta, low, middle) <= epsilon else (below, middle)
    return 1 + eta, low, below - 1e-13 * (1 + abs(below))


def _expm1(v: float) -> float:
    return math.expm1(min(v, 700.0))


def _log_delta_of(rho: float, epsilon: float, eta: float, low: float) -> float:
    """ln δ of (*) at ε ≥ 0, α = 1 + ``eta`` and y₁ = e^``low``, rounded up."""
    # z = ln y₂ is where the slope is ε. What the slope is below z by falls in z, by half as much or less
    z = epsilon + math.log1p(1 / eta)
    for _ in range(60):
        miss = slope(eta, low, z) - epsilon
        if abs(miss) < 1e-15 * (1 + z):
            break
        v = z - low
        rise = 1 + (1 + eta) / _expm1((1 + eta) * v) - eta / _expm1(eta * v)
        z = max(z - miss / rise, low + (z - low) / 16)
    size = 2 + epsilon + z + math.log1p(1 / eta) - lost((1 + eta) * (z - low)) - lost(eta * (z - low))
    z -= 2 * abs(slope(eta, low, z) - epsilon) + 16 * UNIT_ROUNDOFF * size
    if not z > low:
        return 0.0  # next to nothing, less than rounding
    terms = (_log_excess(rho, eta, low), -math.log1p(eta), -eta * z, -lost(eta * (z - low)))
    return math.fsum(terms) + 8 * UNIT_ROUNDOFF * (1 + math.fsum(map(abs, terms)))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The smallest δ such that all that is ρ-zCDP is (ε, δ)-DP, rounded up.

    Examples
    --------
    >>> round(zcdp_delta(0.5, 1.0), 6)
    0.214911
    """
    nonnegative("epsilon", epsilon)
    if parameter("rho", rho) == 0:
        return 0.0
    if math.isinf(rho):
        return 1.0
    return probability(_log_delta(rho, epsilon))


def _log_delta(rho: float, epsilon: float) -> float:
    rho = max(rho, _SMALLEST_RHO)
    # with y₁ = 0 the derivative (2α − 1)ρ − ε + ln(1 − 1/α) increases in α
    u = increasing_root(lambda u: (2 * u + 1) * rho - epsilon - math.log1p(1 / u), 1.0 + epsilon / (2 * rho))
    found = _upward_sum((u * rho, u * u * rho, -u * epsilon, -u * math.log1p(1 / u), -math.log1p(u)))
    if not (_LEAST < rho < _MOST and found > _NEVER):
        return found
    coin = _coin_at(rho, u, lambda coin: coin.epsilon - epsilon)
    if coin.eta > LOWEST:
        return min(found, _log_delta_of(rho, epsilon, coin.eta, coin.low))
    first, least = _first(rho)
    more = (1 - least) * -math.expm1(min(0.0, epsilon - first)) / (1 + math.exp(-first))
    return min(found, math.log(least + more) + 1e-14)


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest ρ such that ``zcdp_delta(rho, epsilon) <= delta``, rounded down."""
    target = log_target(delta)
    nonnegative("epsilon", epsilon)
    return largest(lambda rho: _log_delta(rho, epsilon), target)


def lower_zcdp_epsilon(rho: float, delta: float) -> float:
    """An ε that a ρ-zCDP coin costs at least; 0 where none is known.

    Examples
    --------
    >>> round(lower_zcdp_epsilon(0.1, 1e-6), 4)
    2.1419
    """
    log_delta = log_target(delta)
    if not _LEAST < rho < _MOST:
        return 0.0
    inner = rho * (1 - SAFETY)
    coin = _coin_at(inner, math.sqrt(1 - log_delta / rho), lambda coin: log_delta - coin.log_delta)
    if not coin.meets(rho):
        return 0.0
    # p − e^ε·q = δ
    left = -math.expm1(log_delta - coin.log_p) if log_delta < coin.log_p else 0.0
    return max(0.0, (coin.high + math.log(left)) * (1 - 1e-12) - 1e-15) if left > 0 else 0.0
