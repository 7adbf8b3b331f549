"""The worst coins of ρ-zCDP (Bun & Steinke 2016), of all zero-concentrated pairs of laws the ones that cost the most.

*The class.* P and Q are ρ-zCDP if D_α(P‖Q) and D_α(Q‖P) are at most ρα for every real α > 1; nothing else is known.

*Coins are enough.* δ(ε) is the largest P(S) − e^ε·Q(S) over all such P, Q and events S. The coin that says whether S
happened is ρ-zCDP as well (data processing), so the largest p − e^ε·q over all ρ-zCDP pairs of coins (p, q) is what
all of the class cost at ε, no more and no less. Such a coin exists: one answer of one bit.

*One order matters.* Write a coin as its log-odds φ under Q and φ + w under P, w > 0, and S(t) = ln(1 + e^t). Then
D_α(P‖Q) = αG(α) and D_α(Q‖P) = αG(1 − α) with

    G(α) = (F(α) − (1 − α)F(0) − αF(1))/(α(α − 1)),    F(α) = S(φ + αw).

G rises and then falls on the whole real line: H(α) = F(α) − (1 − α)F(0) − αF(1) − cα(α − 1) vanishes at 0 and 1, and
H″ = F″ − 2c has at most two zeros, as F″ = w²S″(φ + αw) rises and falls; so H has at most four zeros with their
multiplicities (Rolle), and G is equal to c at most twice. As G is positive and vanishes at ±∞, a second maximum, or a
point of rest that is none, would be met three times. ∎ So where G has its maximum at α > 1, the coin is ρ-zCDP with ρ
= G(α), for all orders and both directions. With r = φ + αw the two conditions G(α) = ρ and G′(α) = 0 are

    KL(r‖q) = ρα²    and    KL(r‖p) = ρ(α − 1)²    of coins with these log-odds.

Two or three steps of Newton's method solve them. With m = α − ½, h = 1/(2m), s = ρm² and log-odds b of r, b − d(1 ± h)
of q and p, they are √KL/(1 ± h) = √s: nearly linear in d and b, and b is d/2 for small s, d(1 − h²)/2 for large s.

That this coin is the worst at the ε where the curve of these coins has its slope, :attr:`Coin.epsilon`, is shown from
above (:mod:`accounting.loss.concentrated_curve`). From below no more is needed than :meth:`Coin.meets`, however it was
found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LOWEST", "SAFETY", "Coin", "lost", "slope", "worst_coin"]

# The lowest order that is used, less 1.
LOWEST = 1e-3
# From below, coins are those of a ρ smaller by this share, more than what they may be off by.
SAFETY = 1e-5
# ln of a probability that never matters.
_NEVER = -1e4


def lost(v: float) -> float:
    """ln(1 − e^(−v))."""
    return math.log(-math.expm1(-v)) if v < 1 else math.log1p(-math.exp(-v))


def slope(eta: float, low: float, z: float) -> float:
    """ln of dp/dq on the curve of an order, with y₁ = e^``low`` and y₂ = e^z; (*) of ``loss.concentrated_curve``."""
    return z - math.log1p(1 / eta) + lost((1 + eta) * (z - low)) - lost(eta * (z - low))


def _softplus(t: float) -> float:
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


def _logistic(t: float) -> float:
    return 1 / (1 + math.exp(-t)) if t > -700 else 0.0


@dataclass(frozen=True)
class Coin:
    """A coin of log-odds φ = ``base`` under Q and φ + w under P, w = ``gain``.

    1 + ``eta`` is about the order at which its ε_α/α is largest.
    """

    base: float
    gain: float
    eta: float

    @property
    def low(self) -> float:
        """ln y₁ = ln (1 − p)/(1 − q)."""
        if self.gain < 1:
            return -math.log1p(_logistic(self.base) * math.expm1(self.gain))
        return _softplus(self.base) - _softplus(self.base + self.gain)

    @property
    def high(self) -> float:
        """ln y₂ = ln p/q."""
        if self.gain < 1:
            return math.log1p(_logistic(-self.base - self.gain) * math.expm1(self.gain))
        return _softplus(-self.base) - _softplus(-self.base - self.gain)

    @property
    def log_p(self) -> float:
        """ln p."""
        return -_softplus(-self.base - self.gain)

    @property
    def epsilon(self) -> float:
        """The ε that it is worst at, of all coins that are as private."""
        return slope(self.eta, self.low, self.high)

    @property
    def log_delta(self) -> float:
        """ln of its δ there."""
        gap = -math.expm1(min(0.0, self.epsilon - self.high))
        return self.log_p + math.log(gap) if gap > 0 else _NEVER

    def meets(self, rho: float) -> bool:
        """Whether this is certainly ρ-zCDP: the maximum of G is between two orders, and there G is at most ρ."""
        base, w, whole = self.base, self.gain, -self.low

        def moment(alpha: float) -> tuple[float, float, float]:
            """α(α − 1)G(α), α²(α − 1)²G′(α), and far more than the rounding error of either."""
            r = base + alpha * w
            value = _softplus(r) - _softplus(base) - alpha * whole
            rise = alpha * (alpha - 1) * (w * _logistic(r) - whole) - (2 * alpha - 1) * value
            size = 1e-14 * (1 + abs(base) + abs(r) + alpha * (w + whole)) * alpha
            return value, rise, size

        before, after = 1 + self.eta * (1 - SAFETY / 8), 1 + self.eta * (1 + SAFETY / 8)
        _, rising, rough = moment(before)
        value, falling, error = moment(after)
        known = rising > rough * (after + before) and falling < -error * (after + before)
        return known and value + error <= rho * before * (before - 1)


def worst_coin(rho: float, eta: float) -> Coin:
    """The ρ-zCDP coin whose ε_α/α is largest, and ρ, at α = 1 + ``eta``; to about ten digits.

    Examples
    --------
    >>> coin = worst_coin(0.05, 14.9)
    >>> round(coin.low, 7), round(coin.high, 4), coin.meets(0.05), coin.meets(0.0501)
    (-1.19e-05, 1.54, False, True)
    """
    m = eta + 0.5
    h, s = 0.5 / m, rho * m * m
    root = math.sqrt(s)
    d = 2 * math.sqrt(s * (s + 2))
    b = d / 2 * (1 - h * h * s / (1 + s))
    for _ in range(20):
        rows = []
        r, bend, rest = _softplus(b), _logistic(b) * _logistic(-b), _logistic(b)
        for k in (1 + h, 1 - h):
            at = b - d * k
            divergence = d * k * rest - r + _softplus(at)
            if divergence <= 0:
                break
            rooted, fall = math.sqrt(divergence), rest - _logistic(at)
            rows.append((rooted / k - root, fall / (2 * rooted), (d * k * bend - fall) / (2 * rooted * k)))
        if len(rows) < 2:
            break
        (f, f_d, f_b), (g, g_d, g_b) = rows
        scale = f_d * g_b - g_d * f_b
        if scale == 0:
            break
        step_d, step_b = (f * g_b - g * f_b) / scale, (f_d * g - g_d * f) / scale
        if not abs(step_d) + abs(step_b) < d / 2:
            break  # what is left is rounding
        d, b = d - step_d, b - step_b
        if abs(step_d) + abs(step_b) < 1e-10 * d:
            break
    return Coin(b - d * (1 + h), 2 * h * d, eta)
