"""A small, independent checker of certificates: it proves the claimed ε again, in ball arithmetic.

This file imports nothing of the package. Copied to another place it runs alone, with Python and python-flint:
``python checker.py certificate.json``. Every number is a ball that holds the true value (Johansson 2017, Arb), every
cut has its error in the ball, and what cannot be proved is refused.

**What a certificate claims.** Of a description (noise relative to the sensitivity): every mechanism that fits is
(``upper``, ``delta``)-DP; and, if ``lower`` is given, some mechanism that fits is not (ε, ``delta``)-DP for any smaller
ε. The second is proved by the pair of laws of that mechanism.

**Facts it rests on.** A pair (P, Q) dominates a mechanism if δ(ε) = E_P[(1 − e^(ε−L))₊], L = ln dP/dQ, is at least the
mechanism's; dominating pairs compose, also adaptively, and sampling the pair is the pair of the samples (Zhu, Dong &
Wang 2022, Theorems 10 and 11). The pairs: Gaussian noise (Balle & Wang 2018), also in trees and in norms that are
described as such; Laplace noise in L1; pure and approximate DP (Kairouz, Oh & Viswanath 2015); noisy maxima by their
range (Dong, Durfee & Rogers 2020) or as Laplace noise, once; noise on one integer (monotone likelihood ratio). Shuffled
messages by their blanket (Balle, Bell, Gascón & Nissim 2019); a ρ-zCDP total by one order (Asoodeh et al. 2021).

**Sums.** Let S be the sum of the losses, M(z) = E_P[e^(zS)] the product of the parts' transforms, and Z normal with
mean w²/2 and deviation w. As E[e^(−Z)] = 1, Jensen's inequality gives δ(ε) ≤ E[(1 − e^(ε−S−Z))₊]; what that adds is at
most E[w·e^(−(S−ε)/2)·φ((S−ε)/w)], because the derivative of E[(1 − e^(−a−Z))₊] by w is φ(a/w + w/2) = e^(−a/2−w²/8)·
φ(a/w) (the vega of an option), and φ(a/w) grows with w. Both are integrals along z = t + iu, t > 0:

    δ(ε) ≤ (1/2π)∫ M(z)e^(−zε)·e^(w²(z²+z)/2)/(z(z + 1)) du,
    δ(ε) ≥ (1/2π)∫ M(z)e^(−zε)·e^(w²(z²+z)/2)·(1/(z(z + 1)) − w²e^(w²/8)) du.

The sum over nodes u = kh in place of the integral of a function's transform is Σ_m e^(tmT)·f(ε + mT), T = 2π/h, over
all integers m (Poisson's summation): from above, where f ≥ 0, that only adds; from below f ≤ δ, so at most Σ_{m<0}
e^(tmT) + Σ_{m>0} e^(tmT)·M(s)e^(−s(ε+mT)), s > t (Chernoff), is taken off. Nodes beyond the last are bounded by |M(t +
iu)| ≤ M(t), by A + V/u for a law with atoms of tilted mass A and a density of tilted variation V along the loss, and by
e^(−μ²u²/2)·M(t) for Gaussian noise. With E[S₊] and 1/z² in place of 1/(z(z + 1)) the same prices shuffled messages.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any

try:
    from flint import acb, acb_mat, arb, arb_poly, ctx, fmpq, fmpz_poly
except ImportError as error:  # pragma: no cover - where the extra is not installed
    raise ImportError('certificates are checked with python-flint: python -m pip install "dpkit[verify]"') from error

__all__ = ["Verdict", "verify"]

#: What this file reads.
FORMAT = "dp-certificate", 1

# Bits of balls; and masses on a grid are integers over 2 to this power.
_PRECISION, _BITS = 128, 112
# The work that one certificate may take, roughly in microseconds; and what is left of it.
_MOST_WORK = 100e6
_LEFT: ContextVar[float] = ContextVar("left", default=math.inf)
_LEFT_OUT = 2.0**-30  # what nodes beyond the last may add, as a share of δ


class Refused(Exception):
    """A certificate whose claim is not proved: why."""


@dataclass(frozen=True)
class Verdict:
    """Whether the claim of a certificate is proved.

    Attributes
    ----------
    accepted : bool
        Whether all that it claims is proved.
    reason : str
        What was proved, or what was not.
    at_upper, at_lower : (float, float)
        Intervals that hold the δ of the worst mechanism at the upper and at the lower end.

    Examples
    --------
    >>> from accounting import Gaussian, certify, verify
    >>> bool(verify(certify(10 * Gaussian(5.0), 1e-6)))
    True
    """

    accepted: bool
    reason: str
    at_upper: tuple[float, float] = (0.0, 1.0)
    at_lower: tuple[float, float] = (0.0, 1.0)

    def __bool__(self) -> bool:
        return self.accepted


def _charge(work: float) -> None:
    """Take work off what is left, before it is done."""
    _LEFT.set(_LEFT.get() - work)
    if not _LEFT.get() >= 0:
        raise Refused("it takes more work than is spent on one certificate")


def _exact(value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, ends: bool = False) -> fmpq:
    """A float or integer as the rational number that it is, strictly between two bounds, or with ``ends`` at them."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"{name} must be a finite number, got {value!r}")
    if not (low <= value <= high if ends else low < value < high):
        raise Refused(f"{name} must lie between {low} and {high}, got {value!r}")
    return fmpq(*value.as_integer_ratio())


def _whole(value: Any, name: str, low: int = 1, high: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Refused(f"{name} must be an integer from {low} to {high}, got {value!r}")
    return value


def _tail(x: arb) -> arb:
    """Φ(−x)."""
    return (x / arb(2).sqrt()).erfc() / 2


def _density(x: arb) -> arb:
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


def _positive(x: arb) -> arb:
    """max(x, 0)."""
    return arb(x).max(arb(0))


class Law:
    """A privacy loss: the law of L under P, as far as sums need it.

    ``top`` is the largest loss, a ball or None if there is none; ``infinite`` what P has at an infinite loss.
    """

    top: arb | None = None
    infinite: arb = arb(0)

    def delta(self, epsilon: arb) -> arb:
        """E[(1 − e^(ε−L))₊] and the infinite mass, for ε ≥ 0."""
        raise NotImplementedError

    def moment(self, t: Any) -> Any:
        """M(t) = E[e^(tL)] of the finite losses."""
        raise Refused("no contour is known here for such a part")

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        """M(t + i·k·step) for k < ``count``, whose powers of ``times`` are wanted."""
        return [self.moment(acb(t, k * step)) for k in range(count)]

    def decay(self, t: arb) -> tuple[arb, arb]:
        """A and V with |M(t + iu)| ≤ A + V/u."""
        return self.moment(t), arb(0)

    def tails(self, x: arb) -> tuple[arb, arb]:
        """What P and Q have above a loss x."""
        raise Refused("no proof on a grid is known here for such a part")


class GaussianLaw(Law):
    """N(μ²/2, μ²); ``square`` is μ²."""

    def __init__(self, square: arb) -> None:
        self.square = square

    def delta(self, epsilon: arb) -> arb:
        p, q = self.tails(epsilon)
        return p - epsilon.exp() * q

    def tails(self, x: arb) -> tuple[arb, arb]:
        mu = self.square.sqrt()
        return _tail(x / mu - mu / 2), _tail(x / mu + mu / 2)

    def moment(self, t: Any) -> Any:
        return ((t + t * t) * self.square / 2).exp()


class LaplaceLaw(Law):
    """Laplace noise of scale 1 shifted by θ: atoms at ±θ, and the density e^((l−θ)/2)/4 between.

    Noisy maxima with Gumbel noise have losses in an interval of length θ, the worst one for every ε: their δ only.
    """

    def __init__(self, theta: arb, gumbel: bool = False) -> None:
        self.theta, self.top, self.gumbel = theta, theta, gumbel

    def delta(self, epsilon: arb) -> arb:
        gap = _positive(1 - ((epsilon - self.theta) / 2).exp())
        return gap * gap / (1 - (-self.theta).exp()) if self.gumbel else gap

    def tails(self, x: arb) -> tuple[arb, arb]:
        if x < -self.theta:
            return arb(1), arb(1)
        within = x.max(-self.theta).min(self.theta)
        # ½ at the top under P, e^(−θ)/2 under Q, and the densities from x on
        p, q = 1 - ((within - self.theta) / 2).exp() / 2, (-(within + self.theta) / 2).exp() / 2
        if x >= self.theta:
            return arb(0), arb(0)
        return (p, q) if x < self.theta else (arb(0).union(p), arb(0).union(q))

    def moment(self, t: Any) -> Any:
        up = (t * self.theta).exp()
        down = (-self.theta).exp() / up
        return (up + down) / 2 + (up - down) / (2 * (2 * t + 1))

    def decay(self, t: arb) -> tuple[arb, arb]:
        up, down = (t * self.theta).exp(), (-(t + 1) * self.theta).exp()
        return (up + down) / 2, (up + down) / 4  # |2(2z + 1)| ≥ 4u


class Atoms(Law):
    """Finitely many losses with their masses under P; ``rest`` bounds E[e^(tL)] of losses that are left out, at real t.

    ``lattice`` says that the losses are evenly spaced, in order, so that sums are polynomials.
    """

    def __init__(self, losses: list[arb], masses: list[arb], infinite: Any = 0, rest: Any = None, lattice: Any = False):
        _charge(30 * len(losses))
        self.losses, self.masses, self.infinite, self.rest, self.lattice = losses, masses, arb(infinite), rest, lattice
        if rest is None and losses:
            self.top = reduce(arb.max, losses)

    def moment(self, t: arb) -> arb:
        _charge(2 * len(self.losses))
        found = sum((mass * (t * loss).exp() for loss, mass in zip(self.losses, self.masses, strict=True)), arb(0))
        return found if self.rest is None else found + arb(0).union(self.rest(t))

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        weights = [mass * (t * loss).exp() for loss, mass in zip(self.losses, self.masses, strict=True)]
        found = _exponential_sums(weights, self.losses, step, count)
        return found if self.rest is None else _blurred(found, self.rest(t))


def _blurred(values: list[acb], error: arb) -> list[acb]:
    """``values``, each of which may be off by ``error`` in modulus."""
    radius = arb(0, error.abs_upper())
    return [value + acb(radius, radius) for value in values]


def _powers(base: acb, count: int) -> list[acb]:
    """Powers from 0 on; each of two of half the exponent, as the balls of a long product grow at every step."""
    found = [acb(1), base]
    for k in range(2, count):
        found.append(found[k // 2] * found[k - k // 2])
    return found[:count]


def _exponential_sums(weights: list[Any], frequencies: list[arb], step: arb, count: int) -> list[acb]:
    """Σ_j w_j·e^(i·k·step·f_j) for k < ``count``, as a product of two matrices: k = a·B + b."""
    width = max(1, math.isqrt(count))
    height = -(-count // width)
    _charge(len(weights) * (0.4 * count + 3 * (width + height)))
    turns = [acb(0, step * f).exp() for f in frequencies]
    right = acb_mat([_powers(turn, width) for turn in turns])
    columns = [_powers(turn**width, height) for turn in turns]
    left = acb_mat([[acb(w) * column[a] for w, column in zip(weights, columns, strict=True)] for a in range(height)])
    found: list[acb] = (left * right).entries()
    return found[:count]


class Sampled(Law):
    """A release that reads a unit with probability q: with it against without it (``present``), or the other way round.

    ``inner`` is symmetric: its loss l under P has the law of −l under Q. That of the sample is ±ln(1 − q + qe^l).
    """

    def __init__(self, inner: Law, rate: arb, present: bool) -> None:
        self.inner, self.rate, self.present = inner, rate, present
        if present and inner.top is not None:
            self.top = (1 - rate + rate * inner.top.exp()).log()
        elif not present:
            self.top = -(1 - rate + (0 if inner.top is None else rate * (-inner.top).exp())).log()

    def delta(self, epsilon: arb) -> arb:
        grown = epsilon.exp()
        if self.present:
            return self.rate * self.inner.delta(((grown - 1 + self.rate) / self.rate).log())
        left = 1 - grown * (1 - self.rate)
        if not left > 0:
            return arb(0).union(_positive(left))
        return left * self.inner.delta((grown * self.rate / left).log())

    def tails(self, x: arb) -> tuple[arb, arb]:
        odds = ((x if self.present else -x).exp() - 1 + self.rate) / self.rate
        if not odds > 0:
            both = arb(1 if self.present else 0) if odds < 0 else arb(0).union(arb(1))
            return both, both
        with_unit, without = self.inner.tails(odds.log())
        if not self.present:
            with_unit, without = 1 - with_unit, 1 - without
        mixed = (1 - self.rate) * without + self.rate * with_unit
        return (mixed, without) if self.present else (without, mixed)


class SampledGaussian(Sampled):
    """N(0, 1) and (1 − q)N(0, 1) + qN(μ, 1).

    With r(x) = 1 − q + qe^y, y = μx − μ²/2, the transforms are F(c) = ∫φ(x)r(x)^c dx at c = 1 + z or −z. On |Im x| ≤ b,
    b ≤ π/(2μ), the integrand is analytic, and the trapezoidal rule of step H is off by at most (∫|f(x + ib)| + ∫|f(x −
    ib)|)dx/(e^(2πb/H) − 1) (Trefethen & Weideman 2014, Theorem 5.1). There |φ(x + ib)| = φ(x)e^(b²/2), r·cos(μb/2) ≤
    |r(x ± ib)| ≤ r, and the argument of r(x ± ib) is at most that of 1 − q + qe^(y + iμb).

    Along the loss ln r the density of φr^α is ψ = φ·r^(α+1)/(μqe^y), whose logarithm has the slope g = (α + 1)μs(x) − x
    − μ with 0 < s < 1: all its zeros lie between −μ and αμ, and by parts |F(α + iβ)| ≤ ∫|ψ′|/|β|.
    """

    def __init__(self, inner: GaussianLaw, rate: arb, present: bool) -> None:
        super().__init__(inner, rate, present)
        self.mu = inner.square.sqrt()

    def _power(self, t: arb) -> arb:
        return 1 + t if self.present else -t

    def _ratio(self, x: arb) -> tuple[arb, arb]:
        """q·e^y and r at a point or on an interval."""
        odds = self.rate * (self.mu * x - self.mu**2 / 2).exp()
        return odds, 1 - self.rate + odds

    def _ends(self, c: arb, grown: float = 0.0) -> tuple[float, float]:
        """Where φ·r^c·e^``grown`` is negligible, roughly: r^c is at most about 1 or e^(cμx)."""
        far = math.sqrt(324 + 2 * grown)
        return -far, far + max(0.0, float(c * self.mu))

    def _beyond(self, c: arb, low: arb, high: arb) -> arb:
        """∫φ·r^c outside [low, high], with low < 0 < high and beyond the slope's zeros; and the two values there."""
        a, q, mu = 1 - self.rate, self.rate, self.mu
        if not c > 0:
            return (a**c) * (_tail(-low) + _tail(high) + _density(low) + _density(high))
        if not high > c * mu:
            raise Refused("the quadrature ends too early")
        # (a + b)^c ≤ 2^c(a^c + b^c), and φ·e^(cμx − cμ²/2) is a normal density at cμ times e^((c²−c)μ²/2)
        moved = (q**c) * ((c * c - c) * mu * mu / 2).exp()
        mass = (a**c) * (_tail(-low) + _tail(high)) + moved * (_tail(c * mu - low) + _tail(high - c * mu))
        ends = (a**c) * (_density(low) + _density(high)) + moved * (_density(low - c * mu) + _density(high - c * mu))
        return (2**c) * (mass + ends)

    def _rule(self, c: arb, step: arb) -> tuple[list[arb], list[arb], arb]:
        """Logarithms of r and φr^c·step at the nodes, and what the nodes that are left out come to."""
        low, high = self._ends(c)
        first, last = math.floor(low / float(step)), math.ceil(high / float(step))
        _charge(6 * (last - first))
        norm = step / (2 * arb.pi()).sqrt()
        points = [j * step for j in range(first, last + 1)]
        logs = [self._ratio(x)[1].log() for x in points]
        weights = [norm * (c * log_r - x * x / 2).exp() for x, log_r in zip(points, logs, strict=True)]
        return logs, weights, self._beyond(c, first * step, last * step) * 2

    def _best_strip(self, c: arb, u: float, step: float | None, bits: float) -> tuple[float, float]:
        """A strip, by rough floats: of the largest step that leaves out e^(−bits), or of the least error of a step."""
        mu, q, t = float(self.mu), float(self.rate), float(c)
        low, high = self._ends(c, u * math.pi / 2)
        lines = []
        _charge(60 * (high - low))
        for i in range(points := math.ceil(5 * (high - low))):
            x = low + (high - low) * i / points
            y = mu * x - mu * mu / 2
            odds = q * math.exp(min(y, 600.0))
            lines.append((odds, t * (math.log(1 - q + odds) if y < 600 else y + math.log(q)) - x * x / 2))
        base, best = max(line for _, line in lines), (-math.inf, 0.0)
        for i in range(22):
            b = math.pi / (2 * mu) * 2.0 ** (-(i + 0.1) / 2)
            sine, cosine = math.sin(mu * b), math.cos(mu * b)
            grown = max(line + u * math.atan2(odds * sine, 1 - q + odds * cosine) for odds, line in lines)
            grown += b * b / 2 - base + min(t, 0.0) * math.log(math.cos(mu * b / 2)) + 2
            value = 2 * math.pi * b / (bits + max(grown, 0.0)) if step is None else 2 * math.pi * b / step - grown
            best = max(best, (value, b))
        return best

    def _error(self, c: arb, frequency: arb, step: arb) -> arb:
        """What the rule is off by at c + i·u, 0 ≤ u ≤ ``frequency``."""
        mu, q, b = self.mu, self.rate, arb(self._best_strip(c, float(frequency), float(step), 0.0)[1])
        low, high = self._ends(c, float(frequency * mu * b))
        # at high frequencies an interval of arguments grows to a large factor
        cells, total = math.ceil((7 + min(float(frequency) / 100, 50)) * (high - low)), arb(0)
        _charge(20 * cells)
        width = arb(high - low) / cells
        sine, cosine = (mu * b).sin(), (mu * b).cos()
        r_left = self._ratio(arb(low))[1].log()
        for i in range(cells):
            left, right = low + i * width, low + (i + 1) * width
            # odds and r grow with x, and so does the argument
            odds, r = self._ratio(right)
            r_right = r.log()
            angle = acb(1 - q + odds * cosine, odds * sine).log().imag
            exponent = c * (r_right if c > 0 else r_left) + frequency * angle
            total += width * exponent.exp().upper() * _density(left.union(right)).upper()
            r_left = r_right
        # beyond, the argument is at most μb
        total += self._beyond(c, arb(low), arb(high)) * (frequency * mu * b).exp()
        total *= (b * b / 2).exp()
        total *= (mu * b / 2).cos() ** c.min(arb(0))
        return (2 * total / ((2 * arb.pi() * b / step).exp() - 1)).upper()

    def moment(self, t: arb) -> arb:
        c = self._power(t)
        step = arb(min(self._best_strip(c, 0.0, None, 60.0)[0], 0.25))
        _, weights, beyond = self._rule(c, step)
        return sum(weights, arb(0)) + arb(0, (beyond + self._error(c, arb(0), step)).abs_upper())

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        c, found, end, bits = self._power(t), list[acb](), 0, 60.0
        while end < count:
            start, end = end, min(count, max(16, 2 * end))
            last = (end - 1) * step
            rule = arb(min(self._best_strip(c, float(last), None, bits)[0], 0.25))
            logs, weights, beyond = self._rule(c, rule)
            frequencies = logs if self.present else [-log for log in logs]
            turned = [weight * acb(0, start * step * f).exp() for weight, f in zip(weights, frequencies, strict=True)]
            off = self._error(c, last, rule) + beyond
            found += _blurred(_exponential_sums(turned, frequencies, step, end - start), off)
            # once the powers are next to nothing, it is enough to know that they are
            largest = max(float(v.abs_upper()) for v in found[(start + end) // 2 :]) / float(found[0].abs_lower())
            if largest < 1 and times * math.log(largest) < -80.0:
                bits = max(4.0 + 1500.0 / times, 3.0 - math.log(1 - largest))
        return found

    def decay(self, t: arb) -> tuple[arb, arb]:
        alpha, mu = self._power(t), self.mu
        ends = sorted((-mu, alpha * mu), key=float)
        low, high = ends[0] - 0.01, ends[1] + 0.01
        cells, width = 256, (high - low) / 256
        _charge(6000)

        def psi(x: arb) -> tuple[arb, arb]:
            odds, r = self._ratio(x)
            size = (-x * x / 2 + (alpha + 1) * r.log() - mu * x + mu * mu / 2).exp() / (mu * self.rate)
            return size / (2 * arb.pi()).sqrt(), (alpha + 1) * mu * odds / r - x - mu

        before = psi(low)[0]
        total = before
        for i in range(cells):
            right = low + (i + 1) * width
            after = psi(right)[0]
            size, slope = psi(right.union(low + i * width))
            total += abs(after - before) if slope > 0 or slope < 0 else (width * size * slope).abs_upper()
            before = after
        return arb(0), (total + before).upper()


def _integer_laplace(scale: arb, shift: int) -> Atoms:
    """P(x) ∝ e^(−|x|/t) on the integers, moved by k: losses (2j − k)/t, j = 0, …, k."""
    b = (-1 / scale).exp()
    masses = [b**shift / (1 + b), *(b ** (shift - j) * (1 - b) / (1 + b) for j in range(1, shift)), 1 / (1 + b)]
    return Atoms([(2 * j - shift) / scale for j in range(shift + 1)], masses, lattice=True)


def _integer_gaussian(sigma: arb, shift: int) -> Atoms:
    """P(x) ∝ e^(−x²/(2σ²)) on the integers, moved by s: at X = y of the unmoved law the loss is s(2y + s)/(2σ²)."""
    reach = math.ceil(float(sigma) * 15) + 81 * shift
    _charge(10 * reach)
    twice, points = 2 * sigma**2, range(-reach - shift, reach + 1)

    def beyond(center: arb) -> arb:
        """Σ e^(−(y − center)²/(2σ²)) over what is not listed: at most two geometric series."""
        total = arb(0)
        for start in (reach + 1 - center, reach + shift + 1 + center):
            if not start > 1:
                raise Refused("the list of losses is too short for this tilt")
            total += (-(start**2) / twice).exp() / (1 - (-(2 * start + 1) / twice).exp())
        return total

    masses = [(-(arb(y) ** 2) / twice).exp() for y in points]
    norm = sum(masses, arb(0).union(beyond(arb(0))))

    def rest(t: arb) -> arb:
        # e^(tL) moves the Gaussian to ts, and grows it by e^((t + t²)s²/(2σ²))
        return ((t + t * t) * shift**2 / twice).exp() * beyond(t * shift) / norm

    losses = [arb(shift) * (2 * y + shift) / twice for y in points]
    return Atoms(losses, [mass / norm for mass in masses], rest=rest, lattice=True)


# The fields that a stored description may have.
_FIELDS = {
    "ApproxDP": "epsilon delta", "Composed": "parts", "DiscreteGaussian": "noise_multiplier shift",
    "DiscreteLaplace": "noise_multiplier shift", "FixedSizeSubsampled": "release batch_size records",
    "Gaussian": "noise_multiplier", "GeneralizedGaussian": "noise_multiplier", "Laplace": "noise_multiplier",
    "LocalShuffled": "epsilon users randomizer", "NoisyMax": "epsilon noise", "Parallel": "branches",
    "PoissonSubsampled": "release rate", "PureDP": "epsilon", "RandomizedResponse": "epsilon categories",
    "TreeAggregation": "noise_multiplier steps", "UnaryEncoding": "epsilon categories optimized", "ZCDP": "rho",
}  # fmt: skip
# What only some neighbours are told apart by; the first kind if none is stated.
_NEIGHBOURS: dict[str, tuple[str | None, ...]] = {
    "PoissonSubsampled": ("add_remove",), "FixedSizeSubsampled": ("replace",), "LocalShuffled": ("replace", "zero_out")
}  # fmt: skip
# What may be sampled, and of what the largest loss is reached or approached by some mechanism.
_SAMPLED = ("gaussian", "laplace", "coins", "discrete gaussian", "discrete laplace")
_REACHED = (*_SAMPLED, "sampled", "batch", "span", "maximum", "shuffled")

Part = tuple[str, Any]  # a kind of law with its parameters, hashable, so that equal ones are counted together


def _read(stored: Any, neighbours: set[Any]) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a stored description; what it says of ``neighbours`` is noted there."""
    if not isinstance(stored, dict) or stored.get("type") not in _FIELDS:
        raise Refused(f"no proof is known here for {stored.get('type') if isinstance(stored, dict) else stored!r}")
    if unknown := set(stored) - {"type", "adjacency", *_FIELDS[stored["type"]].split()}:
        raise Refused(f"{stored['type']} has no field {min(unknown)!r}")
    kinds = _NEIGHBOURS.get(stored["type"], (None, "replace", "add_remove", "zero_out"))
    neighbours.add(kinds[0] if stored.get("adjacency") is None else stored["adjacency"])
    if len(neighbours - {None}) > 1 or not neighbours & {*kinds} or not neighbours <= {None, *kinds}:
        raise Refused(f"neighbours must be of one known kind, got {neighbours!r}")
    return stored["type"], stored


def _alternatives(stored: Any, neighbours: set[Any]) -> list[Counter[Part]]:
    """Every branch that a unit may meet: its parts with their counts."""
    name, values = _read(stored, neighbours)
    if name == "Parallel":
        return [one for branch in values["branches"] for one in _alternatives(branch, neighbours)]
    if name != "Composed":
        return [Counter({_part(stored, neighbours): 1})]
    found: Counter[Part] = Counter()
    for part, count in values.get("parts", []):
        found[_part(part, neighbours)] += _whole(count, "count")
    return [found]


def _part(stored: Any, neighbours: set[Any]) -> Part:
    """One release; all its numbers are exact."""
    name, values = _read(stored, neighbours)

    def number(key: str, high: float = math.inf, *, ends: bool = False) -> fmpq:
        return _exact(values.get(key), key, 0.0, high, ends=ends)

    match name:
        case "Gaussian" | "GeneralizedGaussian":
            return "gaussian", 1 / number("noise_multiplier") ** 2
        case "TreeAggregation":
            return "gaussian", _whole(values.get("steps"), "steps").bit_length() / number("noise_multiplier") ** 2
        case "Laplace":
            return "laplace", 1 / number("noise_multiplier")
        case "DiscreteGaussian" | "DiscreteLaplace" if values.get("shift") is not None:
            kind = "discrete gaussian" if name == "DiscreteGaussian" else "discrete laplace"
            return kind, (number("noise_multiplier"), _whole(values["shift"], "shift", 1, 100_000))
        case "DiscreteLaplace":
            return "coins", (1 / number("noise_multiplier"), 2, fmpq(0))
        case "PureDP" | "ApproxDP":
            failing = number("delta", 1.0, ends=True) if name == "ApproxDP" else fmpq(0)
            return "coins", (number("epsilon", ends=True), 2, failing)
        case "RandomizedResponse":
            return "coins", (number("epsilon"), _whole(values.get("categories"), "categories", 2), fmpq(0))
        case "UnaryEncoding":
            # two bits tell two values apart: as of a response of e^ε + 3 or of 2e^(ε/2) + 2 categories
            _whole(values.get("categories"), "categories", 3)
            kind = {True: "optimized", False: "plain"}[values.get("optimized", True)]
            return "coins", (number("epsilon"), kind, fmpq(0))
        case "ZCDP":
            return "zcdp", number("rho", ends=True)
        case "NoisyMax":
            # exponential noise: as Laplace noise, once (Ding et al. 2021)
            return {"gumbel": "span", "exponential": "maximum"}[values.get("noise", "gumbel")], number("epsilon")
        case "PoissonSubsampled" if stored.get("adjacency") != "replace":
            return _sample_of("sampled", _part(values.get("release"), neighbours), number("rate", 1.0, ends=True))
        case "FixedSizeSubsampled":
            rate = fmpq(_whole(values.get("batch_size"), "batch_size"), _whole(values.get("records"), "records"))
            return _sample_of("batch", _part(values.get("release"), neighbours), rate)
        case "LocalShuffled":
            epsilon, users = number("epsilon"), _whole(values.get("users"), "users")
            randomizer = values.get("randomizer")
            if randomizer is None:
                return "shuffled", (epsilon, users, 0)
            kind, (local, categories, _) = _part(randomizer, neighbours)
            if kind == "coins" and local == epsilon and randomizer["type"] == "RandomizedResponse" and categories > 2:
                return "shuffled", (epsilon, users, categories)
    raise Refused(f"no proof is known here for {name} of this kind")


def _sample_of(kind: str, inner: Part, rate: fmpq) -> Part:
    if inner[0] not in _SAMPLED or not 0 < rate <= 1:
        raise Refused(f"no proof is known here for samples of {inner[0]} at the rate {rate}")
    return inner if rate == 1 else (kind, (inner, rate))


def _law(part: Part, present: bool) -> Law:
    """The dominating law of a part; that of some mechanism, but for maxima."""
    kind, value = part
    match kind:
        case "gaussian":
            return GaussianLaw(arb(value))
        case "laplace" | "maximum" | "span":
            return LaplaceLaw(arb(value), kind == "span")
        case "coins":
            return _coins(arb(value[0]), value[1], arb(value[2]))
        case "discrete gaussian":
            return _integer_gaussian(arb(value[0] * value[1]), value[1])
        case "discrete laplace":
            return _integer_laplace(arb(value[0] * value[1]), value[1])
        case "sampled" | "batch":
            # of one batch H is that of a Poisson sample with the unit (Balle, Barthe & Gaboardi 2018), and met
            return _sampled(_law(value[0], True), arb(value[1]), present or kind == "batch")
    raise Refused(f"no proof is known here for {kind}")


def _coins(epsilon: arb, categories: int | str, failing: arb) -> Atoms:
    """Randomized response, which may fail: losses −ε, 0 and ε."""
    if epsilon.is_zero():
        return Atoms([epsilon], [1 - failing], failing, lattice=True)
    grown = epsilon.exp()
    told_apart: dict[Any, Any] = {"optimized": grown + 3, "plain": 2 * grown.sqrt() + 2}
    many = told_apart.get(categories, categories)
    low = (1 - failing) / (grown + (many - 1))
    return Atoms([-epsilon, arb(0), epsilon], [low, (many - 2) * low, low * grown], failing, lattice=True)


def _sampled(law: Law, rate: arb, present: bool) -> Law:
    if not isinstance(law, Atoms):
        return SampledGaussian(law, rate, present) if isinstance(law, GaussianLaw) else Sampled(law, rate, present)
    # under Q the masses are e^(−l)P; what fails under P does so with the probability q, under Q it is told, too
    ratios = [1 - rate + rate * loss.exp() for loss in law.losses]
    under_q = [mass * (-loss).exp() for mass, loss in zip(law.masses, law.losses, strict=True)]
    failing, rest = law.infinite, law.rest
    # two losses are a lattice
    two = failing.is_zero() and rest is None and sum(not mass.is_zero() for mass in law.masses) == 2
    failed = [] if failing.is_zero() else [(1 - rate).log()]
    if present:
        # of what is left out r ≤ 1 below, and above the last listed loss l₀, from where r(l) ≤ e^(l−l₀)·r(l₀)
        last = ratios[-1] * (-law.losses[-1]).exp()
        more = None if rest is None else (lambda t: rest(t) * last ** (1 + t) + rest(arb(0)))
        masses = [ratio * mass for ratio, mass in zip(ratios, under_q, strict=True)]
        masses += [(1 - rate) * failing for _ in failed]
        return Atoms([ratio.log() for ratio in ratios] + failed, masses, rate * failing, rest=more, lattice=two)
    # a unit that is absent: e^(tL) = r^(−t) ≤ (1 − q)^(−t), under Q, whose left out mass is that of P by symmetry
    less = None if rest is None else (lambda t: rest(arb(0)) * (1 - rate) ** (-t))
    losses = [-ratio.log() for ratio in ratios] + [-loss for loss in failed]
    found = Atoms(losses, under_q + [failing for _ in failed], 0, rest=less, lattice=two)
    found.top = -(1 - rate).log() if found.top is None else found.top
    return found


def _on_contour(
    laws: list[tuple[Law, int]], proof: Any, points: list[arb], goal: arb, *, losses: bool = True
) -> list[tuple[arb, arb]]:
    """Bounds from below and from above on E[(1 − e^(x−S))₊] at every x of ``points``; or on E[(S − x)₊], no ``losses``.

    About ``goal`` is expected. The proof has ``tilt`` t, ``step`` h, ``width`` w, and ``beyond`` s of Chernoff's bound.
    """
    t, h, w, s = (arb(_exact(proof[name], name, 0.0)) for name in ("tilt", "step", "width", "beyond"))
    if not s > t:
        raise Refused("beyond must be greater than the tilt")
    linear = 1 if losses else 0  # z² + z or z²
    at_t = [law.moment(t) for law, _ in laws]
    base = math.prod((value**count for value, (_, count) in zip(at_t, laws, strict=True)), start=arb(1))
    decays = [law.decay(t) for law, _ in laws]
    lift = (w * w * (t * t + linear * t) / 2).exp()
    bump = w * w * ((w * w / 8).exp() if losses else 1)
    size = (-t * min(points, key=float)).exp() * base * lift

    def share(u: arb) -> arb:
        """A bound on Π|M(t + iv)|/M(t)·e^(−w²v²/2) for v ≥ u, which falls in v."""
        found = (-((w * u) ** 2) / 2).exp()
        for (law, times), value, (atoms, variation) in zip(laws, at_t, decays, strict=True):
            if isinstance(law, GaussianLaw):
                found *= (-law.square * u * u * times / 2).exp()
            elif (ratio := (atoms + variation / u) / value) < 1:
                found *= ratio**times
        return found

    count, goal = 8, _LEFT_OUT * goal / size
    while not share(count * h) * (h + count * h) / (count * h) ** 2 < goal:
        _charge(count + 10 * len(laws))
        count += max(1, count // 8)
    _charge(count * 5 * (len(laws) + len(points)))
    last = count * h
    # |1/(z(z + 1))| ≤ 1/u²; the second kernel is w²·e^(w²/8), and its sum that of a Gaussian from the last node on
    smooth = w * w + sum((n * law.square for law, n in laws if isinstance(law, GaussianLaw)), arb(0))
    left_above = base * lift * share(last) * (h + last) / (last * last) / arb.pi()
    left_below = left_above + base * lift * share(last) * bump * (h + 1 / (smooth * last)) / arb.pi()

    values = [acb(1)] * count
    for law, times in laws:
        values = [a * b**times for a, b in zip(values, law.moments(t, h, count, times), strict=True)]
    sums, found = [[acb(0), acb(0)] for _ in points], []
    turns = [_powers(acb(0, -h * x).exp(), count) for x in points]
    for k, value in enumerate(values):
        z = acb(t, k * h)
        square = z * z + linear * z
        value *= (square * w * w / 2).exp()
        if k == 0:
            value /= 2
        kernel = 1 / (square if losses else z * z)
        for turned, both in zip(turns, sums, strict=True):
            term = value * turned[k]
            both[0] += term * kernel
            both[1] += term
    for x, (smoothed, bumps) in zip(points, sums, strict=True):
        size = (-t * x).exp()
        above = smoothed.real * h / arb.pi() * size
        below = above - bumps.real * bump * h / arb.pi() * size
        above += size * left_above.abs_upper()
        below -= size * left_below.abs_upper() + _aliases(laws, t, s, 2 * arb.pi() / h, x, losses)
        found.append((below, above))
    return found


def _aliases(laws: list[tuple[Law, int]], t: arb, s: arb, period: arb, x: arb, losses: bool) -> arb:
    """At most what the sum over nodes adds to the integral, from below."""

    def chernoff(at: arb) -> arb:
        """At least E[e^(at(S − x))], or E[(S − x)₊], as y₊ ≤ e^(at·y)/(e·at)."""
        size = math.prod((law.moment(at) ** count for law, count in laws), start=(-at * x).exp())
        return size if losses else size / (at * arb(1).exp())

    shrink, less = (-t * period).exp(), (-(s - t) * period).exp()
    down = shrink / (1 - shrink)
    if not losses:  # E[(S − x + mT)₊] ≤ E[(S − x)₊] + mT
        down = down * chernoff(t) + period * shrink / (1 - shrink) ** 2
    return (down + chernoff(s) * less / (1 - less)).upper()


def _by_lists(laws: list[tuple[Law, int]], points: list[arb]) -> list[arb]:
    """E[(1 − e^(x−S))₊] of a sum of listed losses: those of equal parts by a power of a polynomial, each with each."""
    sums, left_out = [(arb(0), arb(1))], arb(0)
    for law, count in laws:
        if not isinstance(law, Atoms) or not (law.lattice or count == 1):
            raise Refused("a sum needs a line of proof")
        if law.rest is not None:
            left_out += arb(0).union(count * law.rest(arb(0)))
        listed = [(loss, mass) for loss, mass in zip(law.losses, law.masses, strict=True) if not mass.is_zero()]
        if count > 1 and len(listed) > 1:
            _charge((count * len(listed)) ** 2 / 1000)
            spacing, start = listed[1][0] - listed[0][0], count * listed[0][0]
            powers = (arb_poly([mass for _, mass in listed]) ** count).coeffs()
            listed = [(start + j * spacing, mass) for j, mass in enumerate(powers)]
        elif count > 1:
            listed = [(count * loss, mass**count) for loss, mass in listed]
        _charge(2 * len(sums) * len(listed) * (1 + len(points)))
        sums = [(x + y, p * q) for x, p in sums for y, q in listed]
    return [sum((p * _positive(1 - (x - s).exp()) for s, p in sums if not s < x), left_out) for x in points]


def _on_grid(laws: list[tuple[Law, int]], proof: Any, points: list[arb], goal: arb) -> list[tuple[arb, arb]]:
    """As :func:`_on_contour` for few parts, by a product of polynomials.

    What a part has between two multiples of Δ is split over both so that P and Q keep their masses: that dominates
    (Doroshenko et al. 2022). With the sum S of n losses and S″ = S + D of their parts on the grid E[e^(−D) | losses] =
    1, so what that adds is E[|1 − e^(ε−S″)|; ε between S and S″]. Split at |S″ − ε| = w, it is at most that over
    |S″ − ε| ≤ w, and 2e^(−2(w−m)²/(nΔ²)), m = nΔ²/8 (Hoeffding, under P and under e^(−D)P). Losses below the grid count
    as its bottom, or as −∞ from below; above it as infinite, or as its top.
    """
    step, many = arb(_exact(proof["step"], "step", 0.0)), sum(count for _, count in laws)
    bottom, top = (int(_exact(proof[name], name).p) for name in ("bottom", "top"))
    if not bottom < top < bottom + 3_000_000 // many:
        raise Refused("the grid is too long, or has no cells")
    _charge(60 * (top - bottom) * len(laws))
    survival, shrink = arb(1), 1 - (-step).exp()
    above, below = fmpz_poly([1 << _BITS]), fmpz_poly([1 << _BITS])
    for law, count in laws:
        edges = [j * step for j in range(bottom, top + 1)]
        tails = [law.tails(x) for x in edges]
        masses = [arb(0)] * len(edges)
        for j in range(len(edges) - 1):
            p, q = tails[j][0] - tails[j + 1][0], tails[j][1] - tails[j + 1][1]
            up = (p - edges[j].exp() * q) / shrink
            masses[j] += p - up
            masses[j + 1] += up
        over = tails[-1][0]
        survival *= (1 - over) ** count
        above = _times_power(above, [masses[0] + 1 - tails[0][0], *masses[1:]], count, up=True)
        below = _times_power(below, [*masses[:-1], masses[-1] + over], count, up=False)
    start, found = many * bottom, []
    spread = many * step * step
    upper_masses, lower_masses = above.coeffs(), below.coeffs()
    _charge(4 * len(points) * len(lower_masses))
    for x in points:
        # a window whose ends are about as rare as 1e-7·δ
        width = (spread * (8.5 - goal.log() / 2)).sqrt() + spread / 8
        most, least = arb(0), arb(0)
        first = max(0, math.floor(float((x - width) / step)) - start - 2)
        shrunk, gap = (-step).exp(), (x - (start + first) * step).exp()
        for j in range(first, max(len(upper_masses), len(lower_masses))):
            if j < len(upper_masses):
                most += upper_masses[j] * _positive(1 - gap)
            if j < len(lower_masses):
                near = not abs((start + j) * step - x) > width
                least += lower_masses[j] * (_positive(1 - gap) - (abs(1 - gap) if near else 0))
            gap *= shrunk
        # and what masses lose by rounding down, all together
        off = 2 * (-2 * (width - spread / 8) ** 2 / spread).exp() + arb(4 * many * len(lower_masses)) / (1 << _BITS)
        found.append((least / (1 << _BITS) - off, most / (1 << _BITS) + 1 - survival))
    return found


def _times_power(product: fmpz_poly, masses: list[arb], count: int, *, up: bool) -> fmpz_poly:
    """The product with a power, of integers over 2^_BITS that are rounded up or down at every step."""

    def rounded(poly: fmpz_poly) -> fmpz_poly:
        return fmpz_poly([-((-c) >> _BITS) if up else c >> _BITS for c in poly.coeffs()])

    if not all(mass < 2 for mass in masses):
        raise Refused("the masses on the grid are not known")
    scaled = [(mass * (1 << _BITS)).max(arb(0)) for mass in masses]
    base = fmpz_poly([(x.upper().ceil() if up else x.lower().floor()).unique_fmpz() for x in scaled])
    while count:
        _charge(5 * (product.degree() + 2 * base.degree()))
        if count & 1:
            product = rounded(product * base)
        count >>= 1
        if count:
            base = rounded(base * base)
    return product


def _top(parts: Counter[Part], present: bool) -> fmpq | arb | None:
    """The largest sum of losses, exactly where it is rational; None if there is none."""
    exact, total = fmpq(0), arb(0)
    for part, count in parts.items():
        kind, value = part
        _charge(50 + int(exact.q).bit_length() / 1000)
        if kind in ("laplace", "maximum", "span"):
            exact += count * value
        elif kind == "shuffled" or (kind == "coins" and value[2] == 0):
            exact += count * value[0]
        elif kind == "discrete laplace":
            exact += count / value[0]
        elif kind == "zcdp" or (law := _law(part, present)).top is None or not law.infinite.is_zero():
            return None
        else:
            total += count * law.top
    return exact if total.is_zero() else total + exact


def _curve(parts: Counter[Part], present: bool, asked: dict[str, fmpq], goal: arb, proof: Any) -> list[tuple[arb, arb]]:
    """δ at the ends, from below and from above, of one alternative."""
    at = [arb(point) for point in asked.values()]
    kinds = {kind for kind, _ in parts}
    if "zcdp" in kinds:
        return _concentrated(parts, at, proof)
    if "shuffled" in kinds:
        return _shuffled(parts, asked, goal, proof)
    priced = [(_law(part, present), count) for part, count in sorted(parts.items(), key=repr)]
    laws = [(law, count) for law, count in priced if not isinstance(law, GaussianLaw)]
    square = sum((count * law.square for law, count in priced if isinstance(law, GaussianLaw)), arb(0))
    extra = 1 - math.prod(((1 - law.infinite) ** count for law, count in laws), start=arb(1))
    if square > 0:
        laws.append((GaussianLaw(square), 1))
    alone = len(laws) == 1 and laws[0][1] == 1
    if alone and not isinstance(laws[0][0], Atoms):
        return [(x, x) for x in map(laws[0][0].delta, at)]
    if not alone and kinds & {"span", "maximum", "batch"}:
        raise Refused("no proof is known here for sums of noisy maxima, or of batches of one size")
    if alone or proof is None:
        return [(x + extra, x + extra) for x in _by_lists(laws, at)]
    answers = _on_grid(laws, proof, at, goal) if "bottom" in proof else _on_contour(laws, proof, at, goal)
    # at the largest sum only failures are left
    top = sum((arb("inf") if law.top is None else n * law.top for law, n in laws), arb(0))
    return [(low + extra, extra if x >= top else up + extra) for x, (low, up) in zip(at, answers, strict=True)]


def _shuffled(parts: Counter[Part], asked: dict[str, fmpq], goal: arb, proof: Any) -> list[tuple[arb, arb]]:
    """δ of one round of shuffled messages: E[(ΣG)₊]/n by the blanket from above, by what others may hold from below."""
    if sum(parts.values()) > 1 or not isinstance(proof, dict):
        raise Refused("no proof is known here for sums of shuffled messages")
    ((_, (exact_epsilon, users, categories)),) = parts
    epsilon = arb(exact_epsilon)
    e, found = epsilon.exp(), []
    for end, x in asked.items():
        grown = arb(x).exp()
        gain, loss, none = e - grown, 1 - e * grown, 1 - grown
        below, above = arb(0), arb(1)
        if end == "upper":
            # of an unknown randomizer no message is sure to be neither
            lie = 1 / (e + (categories - 1 if categories else 1))
            masses = [lie, lie, (categories - 2) * lie if categories else arb(0)]
            rest = 1 - sum(masses, arb(0))
            above = _mean_gain([gain, loss, none, arb(0)], [*masses, rest], users, goal, proof["above"])[1]
        for stated in proof["below"] if end == "lower" else ():
            # all others hold the first value or a third one, of as many as are known, or of three or two
            line = dict(stated)
            others, k = line.pop("others", None), line.pop("categories", categories)
            known = type(k) is int and k in ((categories,) if categories else (2, 3))
            lie = 1 / (e + (k - 1))
            if known and others == "first":
                values, masses = [gain / e, loss, none], [e * lie, lie, (k - 2) * lie]
            elif known and others == "third" and k >= 3:
                values, masses = [gain, loss, none / e, none], [lie, lie, e * lie, (k - 3) * lie]
            else:
                raise Refused("no such witness for shuffled messages")
            below = below.max(_mean_gain(values, masses, users, goal, line)[0])
        found.append((below, above))
    return found


def _mean_gain(values: list[arb], masses: list[arb], users: int, goal: arb, proof: Any) -> tuple[arb, arb]:
    """E[(ΣG)₊]/n of n gains."""
    if not proof:  # by how many have each gain; the commonest is last, and of the others too many are left out
        met = [(mass, value) for mass, value in zip(masses, values, strict=True) if not mass.is_zero()]
        ways, (*rare, (most, common)) = [(users, arb(0), arb(1))], sorted(met, key=lambda pair: float(pair[0]))
        for mass, value in rare:
            few = min(users, math.ceil(users * float(mass) + 8 * math.sqrt(users * float(mass)) + 40))
            _charge(4 * len(ways) * few)
            more = ((n, total, p, k) for n, total, p in ways for k in range(min(few, n) + 1))
            ways = [(n - k, total + k * value, p * arb(n).bin(k) * mass**k) for n, total, p, k in more]
        sums = [(p * most**n, total + n * common) for n, total, p in ways]
        found = sum((mass * _positive(total) for mass, total in sums), arb(0)) / users
        return found, found + _positive(1 - sum(mass for mass, _ in sums)) * max(values, key=float)
    scale = values[0].mid()
    law = Atoms([value / scale for value in values], masses)
    ((below, above),) = _on_contour([(law, users)], proof, [arb(0)], goal * users / scale, losses=False)
    return below * scale / users, above * scale / users


def _concentrated(parts: Counter[Part], at: list[arb], proof: Any) -> list[tuple[arb, arb]]:
    """A total that is ρ-zCDP, by one order and two likelihood ratios."""
    rho = fmpq(0)
    for (kind, value), count in parts.items():
        if kind != "zcdp":
            raise Refused("no proof is known here for sums of zCDP and other releases")
        rho += count * value
    alpha, low = arb(_exact(proof["order"], "order", 1.0)), arb(_exact(proof["low"], "low", -math.inf, 0.0, ends=True))
    u, first, second = alpha - 1, low.exp(), arb(_exact(proof["high"], "high")).exp()
    if not second > first:
        raise Refused("the two points are in the wrong order")
    # for all y, y − e^ε ≤ λ(y^α − αy₁^u·y + u·y₁^α) with λα(y₂^u − y₁^u) = 1, if at y₂, where it is the tightest
    gap = alpha * (second**u - first**u)
    bound = ((arb(rho) * alpha * u).exp() - alpha * first**u + u * first**alpha) / gap
    least = u * (second**alpha - first**alpha) / gap
    # from below: Gaussian noise of μ² = 2ρ is ρ-zCDP
    known = GaussianLaw(arb(2 * rho))
    return [(known.delta(x) if rho > 0 else arb(0), bound if least <= x.exp() else arb(1)) for x in at]


def _check(certificate: dict[str, Any]) -> Verdict:
    if (certificate.get("format"), certificate.get("version")) != FORMAT:
        raise Refused(f"not a certificate of the form {FORMAT[0]} {FORMAT[1]}")
    if unknown := set(certificate) - {"format", "version", "release", "delta", "upper", "lower", "proof"}:
        raise Refused(f"a certificate has no field {min(unknown)!r}")
    delta = _exact(certificate.get("delta"), "delta", 0.0, 1.0, ends=True)
    upper = _exact(certificate.get("upper"), "upper", 0.0, ends=True)
    stated = 0 if certificate.get("lower") is None else certificate["lower"]
    lower = _exact(stated, "lower", 0.0, certificate["upper"], ends=True)
    goal, proof, most, least, reached = arb(delta), certificate.get("proof") or {}, arb(0), arb(0), lower == 0
    for branch, parts in enumerate(_alternatives(certificate.get("release"), set())):
        for side in ("present", "absent") if any(kind == "sampled" for kind, _ in parts) else ("present",):
            # at the largest loss and beyond nothing is left, and no sum has to find that out
            top = _top(parts, side == "present")
            asked = {} if top is not None and top <= upper else {"upper": upper}
            if delta == 0:
                if asked:
                    raise Refused(f"the largest loss is not proved to be at most {float(arb(upper)):.17g}")
                attained = top is not None and top >= lower and all(kind in _REACHED for kind, _ in parts)
                reached = reached or bool(attained)
                continue
            if not (reached or (top is not None and top <= lower)):
                asked["lower"] = lower
            if asked:
                lines = proof.get(side) or []
                line = lines[branch] if branch < len(lines) else None
                found = dict(zip(asked, _curve(parts, side == "present", asked, goal, line), strict=True))
                most, least = most.max(found.get("upper", (0, most))[1]), least.max(found.get("lower", (least, 0))[0])
            if not most <= goal:
                raise Refused(f"at the upper end δ is not proved, but {float(most.upper()):.17g} ({side})")
    ends = (0.0, float(most.upper()) * (1 + 1e-15)), (float(least.lower()) * (1 - 1e-15), 1.0)
    if not reached and not (delta > 0 and least > goal):  # an equal δ may be that of smaller ε, too
        return Verdict(False, f"at the lower end δ is not proved, but {ends[1][0]:.17g}", *ends)
    return Verdict(True, f"{'the upper end is' if lower == 0 else 'both ends are'} proved", *ends)


def verify(certificate: Any) -> Verdict:
    """Prove the claim of a certificate again, in ball arithmetic.

    Parameters
    ----------
    certificate : Certificate or dict
        What :func:`accounting.certify` made, or its JSON as a dictionary.

    Returns
    -------
    Verdict
        True in a condition if all that is claimed is proved; with the reason. Refused is also what is not understood.

    Examples
    --------
    >>> from accounting import Laplace, certify, verify
    >>> verify(certify(10 * Laplace(5.0), 1e-6)).reason
    'both ends are proved'
    """
    if not (isinstance(certificate, dict) or hasattr(certificate, "to_json")):
        raise TypeError(f"certificate must be what certify makes or Certificate.load reads, got {certificate!r}")
    certificate = certificate if isinstance(certificate, dict) else json.loads(certificate.to_json())
    with ctx.workprec(_PRECISION):
        _LEFT.set(_MOST_WORK)
        try:
            return _check(certificate)
        except Refused as error:
            return Verdict(False, str(error))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            return Verdict(False, f"not understood: {type(error).__name__}: {error}")


def _once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(fields) if len(dict(fields)) == len(fields) else sys.exit("refused: a field is written twice")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as stream:
        verdict = verify(json.load(stream, object_pairs_hook=_once))
    print(f"{'accepted' if verdict else 'refused'}: {verdict.reason}")
    sys.exit(0 if verdict else 1)
