"""A small, independent checker of certificates: it proves the claimed ε again, in ball arithmetic.

This file imports nothing of the package. Copied to another place it runs alone, with Python and python-flint:
``python checker.py certificate.json``. Every number is a ball that holds the true value (Johansson 2017, Arb), every
cut and every sum of a series has its error in the ball, and what cannot be proved is refused.

**What a certificate claims.** Of a description (noise relative to the sensitivity, as ``accounting.releases`` stores
it): every mechanism that fits is (``upper``, ``delta``)-DP; and, if ``lower`` is given, some mechanism that fits is not
(ε, ``delta``)-DP for any ε < ``lower``. The second is proved by the pair of laws of that mechanism.

**Facts it rests on**, from the literature: a pair (P, Q) dominates a mechanism if δ(ε) = E_P[(1 − e^(ε−L))₊], L = ln
dP/dQ, is at least the mechanism's; dominating pairs compose, also adaptively, and Poisson sampling of the pair is the
pair of the samples (Zhu, Dong & Wang 2022, Theorems 10 and 11). The pairs: Gaussian noise (Balle & Wang 2018), also for
trees and in every norm that is described as Gaussian; Laplace noise in the L1 norm and pure or approximate DP (Kairouz,
Oh & Viswanath 2015), responses; noisy maxima by the divergences of their range (Dong, Durfee & Rogers 2020) and as
Laplace noise; discrete noise on one integer (monotone likelihood ratio). Shuffled messages by their blanket (Balle,
Bell, Gascón & Nissim 2019), and a total that is ρ-zCDP by one order (Asoodeh, Liao, Calmon, Kosut & Sankar 2021).

**Sums.** Let S be the sum of the losses, M(z) = E_P[e^(zS)] the product of the parts' transforms, and Z normal with mean
w²/2 and deviation w, apart from S. As E[e^(−Z)] = 1, Jensen's inequality gives δ(ε) ≤ E[(1 − e^(ε−S−Z))₊]; and what
that adds is at most E[w·e^(−(S−ε)/2)·φ((S−ε)/w)], because the derivative of E[(1 − e^(−a−Z))₊] by w is φ(a/w + w/2) =
e^(−a/2−w²/8)·φ(a/w) (the vega of an option), and φ(a/w) grows with w. Both are integrals along z = t + iu, t > 0:

    δ(ε) ≤ (1/2π)∫ M(z)e^(−zε)·e^(w²(z²+z)/2)/(z(z + 1)) du,
    δ(ε) ≥ (1/2π)∫ M(z)e^(−zε)·e^(w²(z²+z)/2)·(1/(z(z + 1)) − w²e^(w²/8)) du.

The sum over the nodes u = kh in place of the integral of a function's transform is Σ_m e^(tmT)·f(ε + mT), T = 2π/h,
over all integers m (Poisson's summation): from above, where f ≥ 0, all that is added only adds; from below f ≤ δ, so at
most Σ_{m<0} e^(tmT) + Σ_{m>0} e^(tmT)·M(s)e^(−s(ε+mT)), s > t (Chernoff), is taken off. Nodes beyond the last are bounded
by |M(t + iu)| ≤ M(t), by A + V/u for a law with atoms of tilted mass A and a density of tilted variation V along the
loss, and by e^(−μ²u²/2)·M(t) for Gaussian noise. So a sum of a million releases is as many nodes as one of ten.

The same with E[X₊] and 1/z² in place of 1/(z(z + 1)) prices shuffled messages.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

try:
    from flint import acb, acb_mat, arb, arb_poly, ctx, fmpq, fmpz_poly
except ImportError as error:  # pragma: no cover - where the extra is not installed
    raise ImportError('certificates are checked with python-flint: python -m pip install "dpkit[verify]"') from error

__all__ = ["Verdict", "verify"]

#: What this file reads.
FORMAT = "dp-certificate", 1

_PRECISION = 128
# Masses on a grid are integers over 2 to this power.
_BITS = 112
# More nodes, products of matrices or alternatives are refused: they would take minutes.
_MOST_NODES, _MOST_PRODUCTS, _MOST_BRANCHES = 400_000, 400_000_000, 64
# What nodes beyond the last may add, as a share of δ.
_LEFT_OUT = 2.0**-30


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
    at_upper, at_lower : (float, float) or None
        An interval that holds δ at the upper and at the lower end, where one was found.

    Examples
    --------
    >>> from accounting import Gaussian, certify, verify
    >>> verdict = verify(certify(10 * Gaussian(5.0), 1e-6))
    >>> verdict.accepted, bool(verdict)
    (True, True)
    """

    accepted: bool
    reason: str
    at_upper: tuple[float, float] | None = field(default=None)
    at_lower: tuple[float, float] | None = field(default=None)

    def __bool__(self) -> bool:
        return self.accepted


# ------------------------------------------------------------------------------------------------------ small things


def _exact(value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, ends: bool = False) -> fmpq:
    """A float or integer as the rational number that it is, strictly between two bounds, or with ``ends`` at them."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"{name} must be a finite number, got {value!r}")
    if not (low <= value <= high if ends else low < value < high):
        raise Refused(f"{name} must lie between {low} and {high}, got {value!r}")
    return fmpq(*value.as_integer_ratio())


def _whole(value: Any, name: str, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise Refused(f"{name} must be an integer of at least {low}, got {value!r}")
    return value


def _between(low: arb, high: arb) -> arb:
    """The ball of all that lies between."""
    return low.union(high)


def _interval(x: arb) -> tuple[float, float]:
    """A float below and one above."""
    low, high = float(x.lower()), float(x.upper())
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)


def _tail(x: arb) -> arb:
    """Φ(−x)."""
    return (x / arb(2).sqrt()).erfc() / 2


def _density(x: arb) -> arb:
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


def _positive(x: arb) -> arb:
    """max(x, 0)."""
    return arb(x).max(arb(0))


# ------------------------------------------------------------------------------------------------------------- laws


class Law:
    """A privacy loss: the law of L under P, as far as sums need it.

    ``top`` is the largest loss, a ball or None if there is none; ``infinite`` what P has at an infinite loss.
    """

    top: arb | None = None
    infinite: arb = arb(0)

    def delta(self, epsilon: arb) -> arb:
        """E[(1 − e^(ε−L))₊] and the infinite mass, for ε ≥ 0."""
        raise Refused("no closed form of one release")

    def moment(self, t: arb) -> arb:
        """M(t) = E[e^(tL)] of the finite losses."""
        raise NotImplementedError

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        """M(t + i·k·step) for k < ``count``, whose powers of ``times`` are wanted."""
        raise NotImplementedError

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
        mu = self.square.sqrt()
        return _tail(epsilon / mu - mu / 2) - epsilon.exp() * _tail(epsilon / mu + mu / 2)

    def tails(self, x: arb) -> tuple[arb, arb]:
        mu = self.square.sqrt()
        return _tail(x / mu - mu / 2), _tail(x / mu + mu / 2)

    def moment(self, t: arb) -> arb:
        return ((t + t * t) * self.square / 2).exp()

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        half = self.square / 2
        return [((z + z * z) * half).exp() for z in _nodes(t, step, count)]


class LaplaceLaw(Law):
    """Laplace noise of scale 1 shifted by θ: atoms at ±θ, and the density e^((l−θ)/2)/4 between."""

    def __init__(self, theta: arb) -> None:
        self.theta = self.top = theta

    def delta(self, epsilon: arb) -> arb:
        return _positive(1 - ((epsilon - self.theta) / 2).exp())

    def tails(self, x: arb) -> tuple[arb, arb]:
        if x < -self.theta:
            return arb(1), arb(1)
        within = x.max(-self.theta).min(self.theta)
        half, full = ((within - self.theta) / 2).exp(), (-self.theta).exp()
        # ½ at the top under P, e^(−θ)/2 under Q, and the densities from x on
        p = arb(1) / 2 + (1 - half) / 2
        q = full / 2 + ((-(within + self.theta) / 2).exp() - full) / 2
        if x >= self.theta:
            return arb(0), arb(0)
        return (p, q) if x < self.theta else (_between(arb(0), p), _between(arb(0), q))

    def moment(self, t: arb) -> arb:
        up, down = (t * self.theta).exp(), (-(t + 1) * self.theta).exp()
        return (up + down) / 2 + (up - down) / (2 * (2 * t + 1))

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        found, shrunk = [], (-self.theta).exp()
        for z in _nodes(t, step, count):
            up = (z * self.theta).exp()
            down = shrunk / up
            found.append((up + down) / 2 + (up - down) / (2 * (2 * z + 1)))
        return found

    def decay(self, t: arb) -> tuple[arb, arb]:
        up, down = (t * self.theta).exp(), (-(t + 1) * self.theta).exp()
        return (up + down) / 2, (up + down) / 4  # |2(2z + 1)| ≥ 4u


class Atoms(Law):
    """Finitely many losses with their masses under P; ``rest`` bounds E[e^(tL)] of losses that are left out, at real t.

    ``lattice`` says that the losses are evenly spaced, in order, so that sums are polynomials.
    """

    def __init__(
        self,
        losses: list[arb],
        masses: list[arb],
        infinite: arb | int = 0,
        *,
        rest: Callable[[arb], arb] | None = None,
        lattice: bool = False,
    ) -> None:
        self.losses, self.masses, self.infinite, self.rest, self.lattice = losses, masses, arb(infinite), rest, lattice
        if rest is None:
            top = losses[0]
            for loss in losses[1:]:
                top = top.max(loss)
            self.top = top

    def delta(self, epsilon: arb) -> arb:
        found = self.infinite
        for loss, mass in zip(self.losses, self.masses, strict=True):
            found += mass * _positive(1 - (epsilon - loss).exp())
        return found if self.rest is None else found + _between(arb(0), self.rest(arb(0)))

    def moment(self, t: arb) -> arb:
        found = arb(0)
        for loss, mass in zip(self.losses, self.masses, strict=True):
            found += mass * (t * loss).exp()
        return found if self.rest is None else found + _between(arb(0), self.rest(t))

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        weights = [mass * (t * loss).exp() for loss, mass in zip(self.losses, self.masses, strict=True)]
        found = _exponential_sums(weights, self.losses, step, count)
        return found if self.rest is None else _blurred(found, self.rest(t))


def _nodes(t: arb, step: arb, count: int) -> Iterator[acb]:
    for k in range(count):
        yield acb(t, k * step)


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


def _exponential_sums(weights: list[acb] | list[arb], frequencies: list[arb], step: arb, count: int) -> list[acb]:
    """Σ_j w_j·e^(i·k·step·f_j) for k < ``count``, as a product of two matrices: k = a·B + b."""
    if len(weights) * count > _MOST_PRODUCTS:
        raise Refused(f"{count} nodes of {len(weights)} terms are too many")
    width = max(1, math.isqrt(count))
    height = -(-count // width)
    turns = [acb(0, step * f).exp() for f in frequencies]
    right = acb_mat([_powers(turn, width) for turn in turns])
    columns = [_powers(turn**width, height) for turn in turns]
    left = acb_mat(
        [[weight * column[a] for weight, column in zip(weights, columns, strict=True)] for a in range(height)]
    )
    return (left * right).entries()[:count]


# -------------------------------------------------------------------------------------- samples of continuous laws


class SampledGaussian(Law):
    """N(0, 1) and (1 − q)N(0, 1) + qN(μ, 1): the second against the first (``present``), or the first against it.

    With r(x) = 1 − q + qe^(μx − μ²/2) the transforms are F(c) = ∫φ(x)r(x)^c dx at c = 1 + z or −z. By the trapezoidal
    rule: f is analytic on |Im x| < π/μ, and for b ≤ π/(2μ) the rule of step H is off by at most (∫|f(x + ib)| +
    ∫|f(x − ib)|)dx/(e^(2πb/H) − 1) (Trefethen & Weideman 2014, Theorem 5.1). There |φ(x + ib)| = φ(x)e^(b²/2), r cos(μb/2)
    ≤ |r(x ± ib)| ≤ r, and its argument is at most that of 1 − q + qe^(y + iμb).

    Along the loss ℓ = ln r the density of φr^α is ψ = φ·r^(α+1)/(μqe^y), whose logarithm has the slope −x − μ + (α +
    1)μs(x) with a logistic s: at most three zeros, all between −μ and αμ (or αμ and −μ), so the variation of ψ is at
    most four times its largest value: |F(α + iβ)| ≤ 4·sup ψ/|β|.
    """

    def __init__(self, mu: arb, rate: arb, present: bool) -> None:
        self.mu, self.rate, self.present = mu, rate, present
        self.top = None if present else -(1 - rate).log()

    def delta(self, epsilon: arb) -> arb:
        return _sampled_delta(GaussianLaw(self.mu**2), self.rate, self.present, epsilon)

    def tails(self, x: arb) -> tuple[arb, arb]:
        return _sampled_tails(GaussianLaw(self.mu**2), self.rate, self.present, x)

    def _power(self, t: arb) -> arb:
        return 1 + t if self.present else -t

    def _ratio(self, x: arb) -> tuple[arb, arb]:
        """q·e^y and r at a point or on an interval."""
        odds = self.rate * (self.mu * x - self.mu**2 / 2).exp()
        return odds, 1 - self.rate + odds

    def _ends(self, c: arb) -> tuple[float, float]:
        """Where φ·r^c is negligible, roughly: r^c is at most about 1 or e^(cμx)."""
        far = 16.0 + 0.35 * math.sqrt(max(0.0, float(ctx.prec) - 100))
        grown = float(c * self.mu) if c > 0 else 0.0
        return -far, far + max(0.0, grown)

    def _beyond(self, c: arb, low: arb, high: arb) -> arb:
        """∫φ·r^c outside [low, high], with low < 0 < high and beyond the slope's zeros; and the two values there."""
        a, q, mu = 1 - self.rate, self.rate, self.mu
        if not c > 0:
            scale = a**c if a > 0 else arb(0)
            if not a > 0:
                raise Refused("a rate of 1 is no sample")
            mass = scale * (_tail(-low) + _tail(high))
            return mass + scale * (_density(low) + _density(high))
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
        if last - first > 100_000:
            raise Refused("the quadrature of a sample takes too many nodes")
        norm = step / (2 * arb.pi()).sqrt()
        logs, weights = [], []
        for j in range(first, last + 1):
            x = j * step
            log_r = self._ratio(x)[1].log()
            logs.append(log_r)
            weights.append(norm * (c * log_r - x * x / 2).exp())
        return logs, weights, self._beyond(c, first * step, last * step) * 2

    def _best_strip(self, c: arb, u: float, step: float | None, bits: float) -> tuple[float, float]:
        """A strip, by rough floats: that of the largest step that leaves out e^(−bits), or of the least error of one."""
        mu, q, t = float(self.mu), float(self.rate), float(c)
        low, high = self._ends(c)
        lines = []
        for i in range(161):
            x = low + (high - low) * i / 160
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
        low, high = self._ends(c)
        mu, q, b = self.mu, self.rate, arb(self._best_strip(c, float(frequency), float(step), 0.0)[1])
        cells = 240
        width = arb(high - low) / cells
        total = arb(0)
        sine, cosine = (mu * b).sin(), (mu * b).cos()
        r_left = self._ratio(arb(low))[1].log()
        for i in range(cells):
            left, right = low + i * width, low + (i + 1) * width
            # odds and r grow with x, and so does the argument
            odds, r = self._ratio(right)
            r_right = r.log()
            angle = acb(1 - q + odds * cosine, odds * sine).log().imag
            exponent = c * (r_right if c > 0 else r_left) + frequency * angle
            total += width * exponent.exp().upper() * _density(_between(left, right)).upper()
            r_left = r_right
        # beyond, the argument is at most μb
        total += self._beyond(c, arb(low), arb(high)) * (frequency * mu * b).exp()
        total *= (b * b / 2).exp()
        if c < 0:
            total *= (mu * b / 2).cos() ** c
        return (2 * total / ((2 * arb.pi() * b / step).exp() - 1)).upper()

    def moment(self, t: arb) -> arb:
        c = self._power(t)
        step = arb(min(self._best_strip(c, 0.0, None, 60.0)[0], 0.25))
        _, weights, beyond = self._rule(c, step)
        total = arb(0)
        for weight in weights:
            total += weight
        return total + arb(0, (beyond + self._error(c, arb(0), step)).abs_upper())

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        c, found, end = self._power(t), list[acb](), 0
        bits = 60.0
        while end < count:
            start, end = end, min(count, max(16, 2 * end))
            last = (end - 1) * step
            rule = arb(min(self._best_strip(c, float(last), None, bits)[0], 0.25))
            logs, weights, beyond = self._rule(c, rule)
            frequencies = logs if self.present else [-log for log in logs]
            shift = start * step
            turned = [weight * acb(0, shift * f).exp() for weight, f in zip(weights, frequencies, strict=True)]
            values = _exponential_sums(turned, frequencies, step, end - start)
            found += _blurred(values, self._error(c, last, rule) + beyond)
            # once the powers are next to nothing, it is enough to know that they are
            largest = max(float(value.abs_upper()) for value in found[(start + end) // 2 :]) / float(
                found[0].abs_lower()
            )
            if largest < 1 and times * math.log(largest) < -80.0:
                bits = max(4.0, 3.0 - math.log(1 - largest))
        return found

    def decay(self, t: arb) -> tuple[arb, arb]:
        alpha, mu = self._power(t), self.mu
        ends = sorted((-mu, alpha * mu), key=float)
        low, high = ends[0] - 0.01, ends[1] + 0.01
        cells = 256
        width = (high - low) / cells

        def psi(x: arb) -> tuple[arb, arb]:
            odds, r = self._ratio(x)
            size = (-x * x / 2 + (alpha + 1) * r.log() - mu * x + mu * mu / 2).exp() / (mu * self.rate)
            return size / (2 * arb.pi()).sqrt(), (alpha + 1) * mu * odds / r - x - mu

        before = psi(low)[0]
        total = before
        for i in range(cells):
            right = low + (i + 1) * width
            after = psi(right)[0]
            size, slope = psi(_between(low + i * width, right))
            total += abs(after - before) if slope > 0 or slope < 0 else (width * size * slope).abs_upper()
            before = after
        return arb(0), (total + before).upper()


class SampledLaplace(Law):
    """As :class:`SampledGaussian` of Laplace noise: atoms at both ends, and between them a quadrature of Gauss.

    M = e^(−θ)r(θ)^c/2 + r(−θ)^c/2 + ∫e^(−(l+θ)/2)/4·r(l)^c dl over |l| ≤ θ, r(l) = 1 − q + qe^l. The rule of n nodes is off
    by at most (64/15)·θ·K/(ϱ^(2n) − ϱ^(2n−2)), K the largest value on the ellipse of ϱ (Trefethen 2008, Theorem 4.5).
    Along the loss the slope of ln of the density is (α + 1)s − 3/2 with s that rises: the density rises after it falls,
    or only one of both, so |the integral| ≤ 4·sup/|β|.
    """

    def __init__(self, theta: arb, rate: arb, present: bool) -> None:
        self.theta, self.rate, self.present = theta, rate, present
        self.top = self._ratio(theta).log() if present else -self._ratio(-theta).log()

    def _ratio(self, loss: arb) -> arb:
        return 1 - self.rate + self.rate * loss.exp()

    def delta(self, epsilon: arb) -> arb:
        return _sampled_delta(LaplaceLaw(self.theta), self.rate, self.present, epsilon)

    def tails(self, x: arb) -> tuple[arb, arb]:
        return _sampled_tails(LaplaceLaw(self.theta), self.rate, self.present, x)

    def _error(self, c: arb, frequency: arb, nodes: int) -> arb:
        best = None
        for ratio in (1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 9.0):
            rho = arb(ratio)
            out, up = self.theta * (rho + 1 / rho) / 2, self.theta * (rho - 1 / rho) / 2
            if not up < arb.pi() / 2:
                break
            odds = self.rate * out.exp()
            angle = acb(1 - self.rate + odds * up.cos(), odds * up.sin()).log().imag
            logs = _between(self._ratio(-out).log(), self._ratio(out).log())
            power = (c * logs).exp().upper()
            if c < 0:
                power *= (up / 2).cos() ** c
            largest = power * (frequency * angle).exp() * ((out - self.theta) / 2).exp() / 4
            bound = arb(64) / 15 * self.theta * largest / (rho ** (2 * nodes) - rho ** (2 * nodes - 2))
            best = bound if best is None or bound < best else best
        if best is None:
            raise Refused("Laplace noise as little as this is not sampled here")
        return best.upper()

    def _rule(self, c: arb, most: float) -> tuple[int, list[arb], list[arb]]:
        """The number of nodes, ln r and the weights at them and at both atoms."""
        nodes = 24
        while self._error(c, arb(most), nodes) > 2.0**-70 and nodes < 3000:
            nodes += nodes // 2
        logs = [self._ratio(self.theta).log(), self._ratio(-self.theta).log()]
        weights = [(-self.theta).exp() / 2 * (c * logs[0]).exp(), (c * logs[1]).exp() / 2]
        for k in range(nodes):
            x, weight = arb.legendre_p_root(nodes, k, weight=True)
            loss = self.theta * x
            log_r = self._ratio(loss).log()
            logs.append(log_r)
            weights.append(self.theta * weight * (c * log_r - (loss + self.theta) / 2).exp() / 4)
        return nodes, logs, weights

    def moment(self, t: arb) -> arb:
        c = 1 + t if self.present else -t
        nodes, _, weights = self._rule(c, 0.0)
        total = arb(0)
        for weight in weights:
            total += weight
        return total + arb(0, self._error(c, arb(0), nodes).abs_upper())

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        c = 1 + t if self.present else -t
        nodes, logs, weights = self._rule(c, float(count * step))
        frequencies = logs if self.present else [-log for log in logs]
        return _blurred(_exponential_sums(weights, frequencies, step, count), self._error(c, count * step, nodes))

    def decay(self, t: arb) -> tuple[arb, arb]:
        c = 1 + t if self.present else -t
        high, low = self._ratio(self.theta), self._ratio(-self.theta)
        atoms = (-self.theta).exp() / 2 * high**c + low**c / 2
        most = arb(0)
        for i in range(64):
            loss = _between(self.theta * (i - 32) / 32, self.theta * (i - 31) / 32)
            r = self._ratio(loss)
            most = most.max(((-(loss + self.theta) / 2).exp() / 4 * r ** (c + 1) / (self.rate * loss.exp())).upper())
        return atoms, 4 * most


def _sampled_delta(inner: Law, rate: arb, present: bool, epsilon: arb) -> arb:
    """H of a sample, by that of the release (Zhu, Dong & Wang 2022, Theorem 11), for ε ≥ 0."""
    grown = epsilon.exp()
    if present:
        return rate * inner.delta(((grown - 1 + rate) / rate).log())
    left = 1 - grown * (1 - rate)
    if left < 0 or left.is_zero():
        return arb(0)
    if not left > 0:
        raise Refused("ε is too near to the largest loss of a unit that is absent")
    return left * inner.delta((grown * rate / left).log())


def _sampled_tails(inner: Law, rate: arb, present: bool, x: arb) -> tuple[arb, arb]:
    """``tails`` of a sample: the loss is ±ln(1 − q + qe^l), l that of the release, whose law is symmetric.

    No loss of the sample is exactly x, or it counts as a ball between both answers.
    """
    odds = ((x if present else -x).exp() - 1 + rate) / rate
    if not odds > 0:
        return (arb(1), arb(1)) if present else (arb(0), arb(0))
    with_unit, without = inner.tails(odds.log())
    if not present:
        with_unit, without = 1 - with_unit, 1 - without
    mixed = (1 - rate) * without + rate * with_unit
    return (mixed, without) if present else (without, mixed)


# ------------------------------------------------------------------------------------------------------ integer noise


class DiscreteGaussianLaw(Law):
    """P(x) ∝ e^(−x²/(2σ²)) on the integers, moved by s.

    M(z) = e^((z+z²)s²/(2σ²))·Θ((1 + z)s)/Θ(0) with Θ(v) = Σ_x e^(−(x−v)²/(2σ²)) = √(2π)σ·Σ_k e^(−2π²σ²k² + 2πikv), by
    completing the square and Poisson's summation.
    """

    def __init__(self, sigma: arb, shift: int) -> None:
        self.sigma, self.shift = sigma, shift

    def _theta(self, v: acb) -> acb:
        """Θ(v)/(√(2π)σ)."""
        decay, rise = 2 * (arb.pi() * self.sigma) ** 2, 2 * arb.pi() * v.imag.abs_upper()
        total, k = acb(1), 0
        while True:
            k += 1
            size = (rise * k - decay * k * k).exp()
            if size < 2.0 ** (-ctx.prec - 10) and decay * k > rise:
                # the terms fall faster than by e^(−decay·k) from here on
                shrink = (rise - decay * (2 * k + 1)).exp()
                radius = arb(0, (2 * size / (1 - shrink)).abs_upper())
                return total + acb(radius, radius)
            if k > 2000:
                raise Refused("discrete Gaussian noise as little as this is not summed here")
            turn = acb(0, 2 * arb.pi() * k) * v
            total += (-decay * k * k + turn).exp() + (-decay * k * k - turn).exp()

    def delta(self, epsilon: arb) -> arb:
        # the loss at X = y of the unmoved law is s(2y + s)/(2σ²)
        square, s = self.sigma**2, self.shift
        reach = math.ceil(float(self.sigma) * 16) + s
        first = math.floor(float((epsilon * square) / s - arb(s) / 2)) - 1
        norm, total = self._norm(), arb(0)
        for y in range(max(first, -reach), max(first, 0) + reach + 1):
            loss = arb(s) * (2 * y + s) / (2 * square)
            total += (-(arb(y) ** 2) / (2 * square)).exp() * _positive(1 - (epsilon - loss).exp())
        if first > -reach:
            left_out = arb(0)  # below ``first`` no loss reaches ε
        else:
            left_out = self._rest(reach)
        return (total + _between(arb(0), left_out + self._rest(max(first, 0) + reach))) / norm

    def _rest(self, reach: int) -> arb:
        """Σ e^(−y²/(2σ²)) over y > reach, at most a geometric series."""
        square = self.sigma**2
        first = (-(arb(reach + 1) ** 2) / (2 * square)).exp()
        return first / (1 - (-arb(2 * reach + 3) / (2 * square)).exp())

    def moment(self, t: arb) -> arb:
        lift = ((t + t * t) * self.shift**2 / (2 * self.sigma**2)).exp()
        return lift * (self._theta(acb((1 + t) * self.shift)) / self._theta(acb(0))).real

    def moments(self, t: arb, step: arb, count: int, times: int) -> list[acb]:
        # e^(tL) at y is a Gaussian around ts
        square, s = self.sigma**2, self.shift
        center, reach = round(float(t) * s), math.ceil(14 * float(self.sigma)) + 2
        scale = ((t + t * t) * s * s / (2 * square)).exp() / self._norm()
        points = range(center - reach, center + reach + 1)
        weights = [scale * (-((y - t * s) ** 2) / (2 * square)).exp() for y in points]
        losses = [arb(s) * (2 * y + s) / (2 * square) for y in points]
        return _blurred(_exponential_sums(weights, losses, step, count), 2 * scale * self._rest(reach - 1))

    def is_listed(self, count: int) -> bool:
        """Whether sums of so many are short polynomials."""
        return bool((30 * self.sigma + 3 * self.shift) * count < 200_000) and self.sigma < 300

    def _norm(self) -> arb:
        return (2 * arb.pi()).sqrt() * self.sigma * self._theta(acb(0)).real


def _integer_laplace(scale: arb, shift: int) -> Atoms:
    """P(x) ∝ e^(−|x|/t) on the integers, moved by k: losses (2j − k)/t, j = 0, …, k."""
    if shift > 4000:
        raise Refused(f"discrete Laplace noise moved by {shift} has too many losses")
    b = (-1 / scale).exp()
    masses = [b**shift / (1 + b), *(b ** (shift - j) * (1 - b) / (1 + b) for j in range(1, shift)), 1 / (1 + b)]
    return Atoms([(2 * j - shift) / scale for j in range(shift + 1)], masses, lattice=True)


def _discrete_gaussian_atoms(sigma: arb, shift: int, tilts: int = 0) -> Atoms:
    """The same law as a list that is long enough for tilts of about so much."""
    reach = math.ceil(float(sigma) * 15) + shift * (1 + tilts)
    if reach > 6000:
        raise Refused("discrete Gaussian noise as wide as this is not listed here")
    law = DiscreteGaussianLaw(sigma, shift)
    square, norm = sigma**2, law._norm()
    points = range(-reach - shift, reach + 1)
    masses = [(-(arb(y) ** 2) / (2 * square)).exp() / norm for y in points]
    losses = [arb(shift) * (2 * y + shift) / (2 * square) for y in points]

    def rest(t: arb) -> arb:
        # e^(tL) at y is a Gaussian around ts times e^((t + t²)s²/(2σ²)), on either side of the list
        lift = ((t + t * t) * shift**2 / (2 * square)).exp() / norm
        up, down = reach + 1 - t * shift, reach + shift + 1 + t * shift
        if not up > 1 or not down > 1:
            raise Refused("the list of losses is too short for this tilt")
        total = arb(0)
        for start in (up, down):
            total += (-(start**2) / (2 * square)).exp() / (1 - (-(2 * start + 1) / (2 * square)).exp())
        return lift * total

    return Atoms(losses, masses, rest=rest, lattice=True)


# --------------------------------------------------------------------------------------------------- descriptions

# The fields that a stored description may have.
_FIELDS = {
    "Gaussian": {"noise_multiplier"},
    "GeneralizedGaussian": {"noise_multiplier"},
    "TreeAggregation": {"noise_multiplier", "steps"},
    "Laplace": {"noise_multiplier"},
    "DiscreteGaussian": {"noise_multiplier", "shift"},
    "DiscreteLaplace": {"noise_multiplier", "shift"},
    "PureDP": {"epsilon"},
    "ApproxDP": {"epsilon", "delta"},
    "ZCDP": {"rho"},
    "RandomizedResponse": {"epsilon", "categories"},
    "UnaryEncoding": {"epsilon", "categories", "optimized"},
    "NoisyMax": {"epsilon", "noise"},
    "PoissonSubsampled": {"release", "rate"},
    "FixedSizeSubsampled": {"release", "batch_size", "records"},
    "LocalShuffled": {"epsilon", "users", "randomizer"},
    "Composed": {"parts"},
    "Parallel": {"branches"},
}
# What may be sampled, and of what the largest loss is reached or approached by some mechanism.
_SAMPLED = ("gaussian", "laplace", "pure", "response", "encoding", "discrete gaussian", "discrete laplace")
_REACHED = (*_SAMPLED, "sampled", "batch", "span", "maximum")
_NEIGHBOURS = (None, "replace", "add_remove", "zero_out")


def _read(stored: Any) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a stored description."""
    if not isinstance(stored, dict) or stored.get("type") not in _FIELDS:
        kind = stored.get("type") if isinstance(stored, dict) else stored
        raise Refused(f"no proof is known here for {kind!r}")
    name = stored["type"]
    values = {key: value for key, value in stored.items() if key not in ("type", "adjacency")}
    if unknown := set(values) - _FIELDS[name]:
        raise Refused(f"{name} has no field {min(unknown)!r}")
    if stored.get("adjacency") not in _NEIGHBOURS:
        raise Refused(f"no neighbours are called {stored['adjacency']!r}")
    return name, values


Part = tuple[str, Any]  # a kind of law with its parameters, hashable, so that equal ones are counted together


def _alternatives(stored: Any) -> list[Counter[Part]]:
    """Every branch that a unit may meet: its parts with their counts."""
    name, values = _read(stored)
    if name == "Composed":
        found: list[Counter[Part]] = [Counter()]
        parts = values.get("parts", [])
        if not isinstance(parts, list):
            raise Refused(f"parts must be a list, got {parts!r}")
        for part in parts:
            if not isinstance(part, list) or len(part) != 2:
                raise Refused(f"a part must be a description and a count, got {part!r}")
            times, branches = _whole(part[1], "count"), _alternatives(part[0])
            if len(branches) == 1:
                spread = [Counter({key: n * times for key, n in branches[0].items()})]
            elif math.comb(times + len(branches) - 1, times) > _MOST_BRANCHES:
                raise Refused("too many branches")
            else:
                spread = [
                    sum((branches[i] for i in way), Counter())
                    for way in itertools.combinations_with_replacement(range(len(branches)), times)
                ]
            found = [one + more for one in found for more in spread]
            if len(found) > _MOST_BRANCHES:
                raise Refused("too many branches")
        return found
    if name == "Parallel":
        branches = values.get("branches", [])
        if not isinstance(branches, list) or not branches:
            raise Refused("parallel releases must have branches")
        return [one for branch in branches for one in _alternatives(branch)]
    return [Counter({_part(stored): 1})]


def _part(stored: Any) -> Part:
    """One release; all its numbers are exact."""
    name, values = _read(stored)

    def exact(key: str, low: float = 0.0, high: float = math.inf, *, ends: bool = False) -> fmpq:
        return _exact(values.get(key), key, low, high, ends=ends)

    match name:
        case "Gaussian" | "GeneralizedGaussian":
            return "gaussian", 1 / exact("noise_multiplier") ** 2
        case "TreeAggregation":
            return "gaussian", _whole(values.get("steps"), "steps").bit_length() / exact("noise_multiplier") ** 2
        case "Laplace":
            return "laplace", 1 / exact("noise_multiplier")
        case "DiscreteGaussian" if values.get("shift") is not None:
            return "discrete gaussian", (exact("noise_multiplier"), _whole(values["shift"], "shift"))
        case "DiscreteLaplace" if values.get("shift") is not None:
            return "discrete laplace", (exact("noise_multiplier"), _whole(values["shift"], "shift"))
        case "DiscreteLaplace":
            return "pure", (1 / exact("noise_multiplier"), fmpq(0))
        case "PureDP":
            return "pure", (exact("epsilon", ends=True), fmpq(0))
        case "ApproxDP":
            return "pure", (exact("epsilon", ends=True), exact("delta", 0.0, 1.0, ends=True))
        case "ZCDP":
            return "zcdp", exact("rho", ends=True)
        case "RandomizedResponse":
            return "response", (exact("epsilon"), _whole(values.get("categories"), "categories", 2))
        case "UnaryEncoding":
            _whole(values.get("categories"), "categories", 3)
            optimized = values.get("optimized", True)
            if not isinstance(optimized, bool):
                raise Refused(f"optimized must be true or false, got {optimized!r}")
            return "encoding", (exact("epsilon"), optimized)
        case "NoisyMax":
            noise = values.get("noise", "gumbel")
            if noise not in ("gumbel", "laplace", "exponential"):
                raise Refused(f"no noisy maxima are called {noise!r}")
            # exponential and Laplace noise: at most as Laplace noise, once (Ding et al. 2021); the first reaches that
            kind = {"gumbel": "span", "exponential": "maximum", "laplace": "laplace maximum"}[noise]
            return kind, exact("epsilon")
        case "PoissonSubsampled":
            if stored.get("adjacency") == "replace":
                raise Refused("no proof is known here for swaps on Poisson samples")
            rate, inner = exact("rate", 0.0, 1.0, ends=True), _part(values.get("release"))
            if not 0 < rate:
                raise Refused("rate must be positive")
            return _sample_of("sampled", inner, rate)
        case "FixedSizeSubsampled":
            size, records = (_whole(values.get(key), key) for key in ("batch_size", "records"))
            if size > records:
                raise Refused("a batch has no more than all records")
            return _sample_of("batch", _part(values.get("release")), fmpq(*(size / records).as_integer_ratio()))
        case "LocalShuffled":
            return _shuffled_part(values, exact("epsilon"))
    raise Refused(f"no proof is known here for {name} of this kind")


def _sample_of(kind: str, inner: Part, rate: fmpq) -> Part:
    if inner[0] not in _SAMPLED:
        raise Refused(f"no proof is known here for samples of {inner[0]}")
    return inner if rate == 1 else (kind, (inner, rate))


def _shuffled_part(values: dict[str, Any], epsilon: fmpq) -> Part:
    users, randomizer = _whole(values.get("users"), "users"), values.get("randomizer")
    if randomizer is None:
        return "shuffled", (epsilon, users, 0)
    kind, inner = _part(randomizer)
    if kind != "response" or inner[1] < 3 or inner[0] != epsilon:
        raise Refused("of shuffled messages only k-ary responses with k > 2 and unknown randomizers are proved here")
    return "shuffled", (epsilon, users, inner[1])


def _law(part: Part, present: bool) -> Law | None:
    """The dominating law of a part, of which it is the exact one of some mechanism; None if there is no closed one."""
    kind, value = part
    match kind:
        case "gaussian":
            return GaussianLaw(arb(value))
        case "laplace" | "maximum" | "laplace maximum":
            return LaplaceLaw(arb(value))
        case "pure":
            return _coins(arb(value[0]), 2, arb(value[1]))
        case "response":
            return _coins(arb(value[0]), value[1], arb(0))
        case "encoding":
            return _encoding(arb(value[0]), value[1])
        case "discrete gaussian":
            return DiscreteGaussianLaw(arb(value[0] * value[1]), value[1])
        case "discrete laplace":
            return _integer_laplace(arb(value[0] * value[1]), value[1])
        case "sampled":
            return _sampled(value[0], arb(value[1]), present)
        case "batch":
            # of one batch H is that of a Poisson sample with the unit (Balle, Barthe & Gaboardi 2018), and met
            return _sampled(value[0], arb(value[1]), True)
        case "span":
            return SpanLaw(arb(value))
    return None


def _coins(epsilon: arb, categories: int, failing: arb) -> Atoms:
    """Randomized response, which may fail: losses −ε, 0 and ε."""
    low = 1 / (epsilon.exp() + (categories - 1))
    masses = [low, (categories - 2) * low, low * epsilon.exp()]
    kept = [mass * (1 - failing) for mass in masses]
    return Atoms([-epsilon, arb(0), epsilon], kept, failing, lattice=True)


def _encoding(epsilon: arb, optimized: bool) -> Atoms:
    half = (epsilon / 2).exp()
    p, q = (arb(1) / 2, 1 / (epsilon.exp() + 1)) if optimized else (half / (1 + half), 1 / (1 + half))
    masses = [(1 - p) * q, p * q + (1 - p) * (1 - q), p * (1 - q)]
    return Atoms([-epsilon, arb(0), epsilon], masses, lattice=True)


class SpanLaw(Law):
    """A loss in an interval of length s, with the worst interval for every ε: noisy maxima with Gumbel noise, once."""

    def __init__(self, span: arb) -> None:
        self.span = self.top = span

    def delta(self, epsilon: arb) -> arb:
        gap = _positive(1 - ((epsilon - self.span) / 2).exp())
        return gap * gap / (1 - (-self.span).exp())


def _sampled(inner: Part, rate: arb, present: bool) -> Law:
    law = _law(inner, True)
    if isinstance(law, GaussianLaw):
        return SampledGaussian(law.square.sqrt(), rate, present)
    if isinstance(law, LaplaceLaw):
        return SampledLaplace(law.theta, rate, present)
    if isinstance(law, DiscreteGaussianLaw):
        law = _discrete_gaussian_atoms(law.sigma, law.shift, 80)
    if not isinstance(law, Atoms):
        raise Refused(f"no proof is known here for samples of {inner[0]}")
    # under Q the masses are e^(−l)P; what fails under P does so with the probability q, under Q it is told, too
    ratios = [1 - rate + rate * loss.exp() for loss in law.losses]
    under_q = [mass * (-loss).exp() for mass, loss in zip(law.masses, law.losses, strict=True)]
    failing, rest = law.infinite, law.rest
    kept = [loss for loss in ratios]
    if present:
        losses = [ratio.log() for ratio in kept]
        masses = [ratio * mass for ratio, mass in zip(kept, under_q, strict=True)]
        # at real t ≥ 0 r^(1+t) ≤ e^((1+t)l₊): what is left out is at most that of the inner law, from either side
        more = None if rest is None else (lambda t: rest(t) + rest(arb(0)))
        if not failing.is_zero():
            losses, masses = [*losses, (1 - rate).log()], [*masses, (1 - rate) * failing]
        return Atoms(losses, masses, rate * failing, rest=more, lattice=_two(law, failing))
    losses, masses = [-ratio.log() for ratio in kept], under_q
    # a unit that is absent: e^(tL) = r^(−t) ≤ (1 − q)^(−t), under Q, whose left out mass is that of P by symmetry
    less = None if rest is None else (lambda t: rest(arb(0)) * (1 - rate) ** (-t))
    if not failing.is_zero():
        losses, masses = [*losses, -(1 - rate).log()], [*masses, failing]
    return Atoms(losses, masses, 0, rest=less, lattice=_two(law, failing))


def _two(law: Atoms, failing: arb) -> bool:
    """Whether only two losses have any mass: then all sums are on a lattice."""
    return failing.is_zero() and law.rest is None and sum(not mass.is_zero() for mass in law.masses) == 2


# ----------------------------------------------------------------------------------------------------- contours


@dataclass(frozen=True)
class Contour:
    """The line t + iu with its nodes: ``tilt`` t, ``step`` h, ``width`` w of what smooths, ``beyond`` s of Chernoff's."""

    tilt: fmpq
    step: fmpq
    width: fmpq
    beyond: fmpq

    @classmethod
    def read(cls, stored: Any) -> Contour:
        """The one of a certificate."""
        names = ("tilt", "step", "width", "beyond")
        if not isinstance(stored, dict) or set(stored) != set(names):
            raise Refused(f"a contour has {', '.join(names)}, got {stored!r}")
        found = cls(*(_exact(stored[name], name, 0.0) for name in names))
        if not found.tilt < found.beyond:
            raise Refused("beyond must be greater than the tilt")
        return found


def _on_contour(
    laws: list[tuple[Law, int]], contour: Contour, points: list[arb], goal: arb, *, losses: bool = True
) -> list[tuple[arb, arb]]:
    """Bounds from below and from above on E[(1 − e^(x−S))₊] at every x of ``points``; or on E[(S − x)₊], no ``losses``.

    About ``goal`` is expected.
    """
    t, h, w = arb(contour.tilt), arb(contour.step), arb(contour.width)
    linear = 1 if losses else 0  # z² + z or z²
    at_t = [law.moment(t) for law, _ in laws]
    base = arb(1)
    for value, (_, count) in zip(at_t, laws, strict=True):
        base *= value**count
    lift = (w * w * (t * t + linear * t) / 2).exp()
    bump = w * w * ((w * w / 8).exp() if losses else 1)
    size = (-t * min(points, key=float)).exp() * base * lift
    count = _how_many(laws, at_t, t, h, w, _LEFT_OUT * goal / size)
    last = count * h
    share = _beyond_share(laws, at_t, t, w, last)
    # |1/(z(z + 1))| ≤ 1/u², and for the second kernel w²·e^(w²/8), whose sum is that of a Gaussian from the last node on
    smooth = w * w + sum((n * law.square for law, n in laws if isinstance(law, GaussianLaw)), arb(0))
    left_above = base * lift * share * (h + last) / (last * last) / arb.pi()
    left_below = left_above + base * lift * share * bump * (h + 1 / (smooth * last)) / arb.pi()

    values: list[acb] | None = None
    for law, times in laws:
        powers = [value**times for value in law.moments(t, h, count, times)]
        values = powers if values is None else [a * b for a, b in zip(values, powers, strict=True)]
    assert values is not None
    sums = [[acb(0), acb(0)] for _ in points]
    turns = [_powers(acb(0, -h * x).exp(), count) for x in points]
    for k, (z, value) in enumerate(zip(_nodes(t, h, count), values, strict=True)):
        square = z * z + linear * z
        value *= (square * w * w / 2).exp()
        if k == 0:
            value /= 2
        kernel = 1 / (square if losses else z * z)
        for turned, both in zip(turns, sums, strict=True):
            term = value * turned[k]
            both[0] += term * kernel
            both[1] += term
    found = []
    for x, (smoothed, bumps) in zip(points, sums, strict=True):
        size = (-t * x).exp()
        above = smoothed.real * h / arb.pi() * size
        below = above - bumps.real * bump * h / arb.pi() * size
        above += size * left_above.abs_upper()
        below -= size * left_below.abs_upper() + _aliases(laws, t, arb(contour.beyond), 2 * arb.pi() / h, x, losses)
        found.append((below, above))
    return found


def _beyond_share(laws: list[tuple[Law, int]], at_t: list[arb], t: arb, w: arb, u: arb) -> arb:
    """A bound on Π|M(t + iv)|/M(t)·e^(−w²v²/2) for v ≥ u, which falls in v."""
    share = (-((w * u) ** 2) / 2).exp()
    for (law, times), value in zip(laws, at_t, strict=True):
        if isinstance(law, GaussianLaw):
            share *= (-law.square * u * u * times / 2).exp()
        else:
            atoms, variation = _decay(law, t)
            ratio = (atoms + variation / u) / value
            if ratio < 1:
                share *= ratio**times
    return share


def _decay(law: Law, t: arb) -> tuple[arb, arb]:
    """As ``law.decay``, remembered."""
    kept = law.__dict__.get("_decay")
    if kept is None or kept[0] is not t:
        kept = law.__dict__["_decay"] = (t, law.decay(t))
    found: tuple[arb, arb] = kept[1]
    return found


def _how_many(laws: list[tuple[Law, int]], at_t: list[arb], t: arb, h: arb, w: arb, share: arb) -> int:
    """The number of nodes beyond which all together come to no more than a ``share`` of the first's modulus."""

    def enough(count: int) -> bool:
        u = count * h
        return bool(_beyond_share(laws, at_t, t, w, u) * (h + u) / (u * u) < share)

    high = 8
    while not enough(high):
        high *= 2
        if high > _MOST_NODES:
            raise Refused("the contour takes too many nodes")
    low = high // 2
    while high - low > max(1, high // 32):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _aliases(laws: list[tuple[Law, int]], t: arb, s: arb, period: arb, x: arb, losses: bool) -> arb:
    """At most what the sum over nodes adds to the integral, from below."""
    shrink = (-t * period).exp()
    if losses:
        down = shrink / (1 - shrink)
    else:
        # E[(S − x + mT)₊] ≤ E[(S − x)₊] + mT, and that is at most M(t)e^(−tx)/(e·t)
        first = (-t * x).exp() / (t * arb(1).exp())
        for law, count in laws:
            first *= law.moment(t) ** count
        down = first * shrink / (1 - shrink) + period * shrink / (1 - shrink) ** 2
    size = (-s * x).exp()
    for law, count in laws:
        size *= law.moment(s) ** count
    if not losses:
        size /= s * arb(1).exp()
    shrink = (-(s - t) * period).exp()
    return (down + size * shrink / (1 - shrink)).upper()


def _lattice_sum(law: Atoms, count: int, points: list[arb]) -> list[arb]:
    """E[(1 − e^(x−S))₊] of a sum of ``count`` equal losses on a lattice, by a power of a polynomial."""
    left_out = arb(0) if law.rest is None else _between(arb(0), count * law.rest(arb(0)))
    kept = [(loss, mass) for loss, mass in zip(law.losses, law.masses, strict=True) if not mass.is_zero()]
    if len(kept) == 1:
        return [kept[0][1] ** count * _positive(1 - (x - count * kept[0][0]).exp()) for x in points]
    if len(kept) * count > 300_000:
        raise Refused("a sum on a lattice is too long")
    masses = (arb_poly([mass for _, mass in kept]) ** count).coeffs()
    spacing, start = kept[1][0] - kept[0][0], count * kept[0][0]
    found = []
    for x in points:
        total = arb(0)
        first = max(0, math.floor(float((x - start) / spacing)) - 1)
        for j in range(first, len(masses)):
            total += masses[j] * _positive(1 - (x - start - j * spacing).exp())
        found.append(total + left_out)
    return found


@dataclass(frozen=True)
class Grid:
    """Losses on multiples of ``step`` from ``bottom`` to ``top``."""

    step: fmpq
    bottom: int
    top: int

    @classmethod
    def read(cls, stored: Any) -> Grid:
        """The one of a certificate."""
        step, bottom, top = _exact(stored["step"], "step", 0.0), stored["bottom"], stored["top"]
        if set(stored) != {"step", "bottom", "top"} or type(bottom) is not int or type(top) is not int:
            raise Refused(f"a grid has a step, a bottom and a top, got {stored!r}")
        if not bottom < top < bottom + 1_000_000:
            raise Refused("the grid is too long")
        return cls(step, bottom, top)


def _on_grid(laws: list[tuple[Law, int]], grid: Grid, points: list[arb]) -> list[tuple[arb, arb]]:
    """As :func:`_on_contour` for few parts, by a product of polynomials.

    What a part has between two multiples of Δ is split over both so that P and Q keep their masses: that dominates
    (Doroshenko et al. 2022). Less may be left: with the sum S of n losses and S″ = S + D of their parts on the grid, E[e^(−D)
    | losses] = 1, so what is added is E[|1 − e^(ε−S″)|; ε between S and S″]. Split at |S″ − ε| = w, it is at most that
    over |S″ − ε| ≤ w, and 2e^(−2(w−m)²/(nΔ²)), m = nΔ²/8 (Hoeffding, under P and under e^(−D)P). Losses below the grid
    count as its bottom, or as −∞ from below; above it as infinite, or as its top.
    """
    step, many = arb(grid.step), sum(count for _, count in laws)
    if many * (grid.top - grid.bottom) > 3_000_000:
        raise Refused("the grid is too long")
    survival, shrink = arb(1), 1 - (-step).exp()
    above, below = fmpz_poly([1 << _BITS]), fmpz_poly([1 << _BITS])
    for law, count in laws:
        edges = [j * step for j in range(grid.bottom, grid.top + 1)]
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
    start, found = many * grid.bottom, []
    spread = many * step * step
    upper_masses, lower_masses = above.coeffs(), below.coeffs()
    for x in points:
        # a window whose ends are about as rare as 1e-13
        width = (spread * 15).sqrt() + spread / 8
        most, least = arb(0), arb(0)
        first = max(0, math.floor(float((x - width) / step)) - start - 2)
        shrunk, gap = (-step).exp(), (x - (start + first) * step).exp()
        for j in range(first, max(len(upper_masses), len(lower_masses))):
            if j % 1024 == 0:
                gap = (x - (start + j) * step).exp()
            if j < len(upper_masses):
                most += upper_masses[j] * _positive(1 - gap)
            if j < len(lower_masses):
                near = not abs((start + j) * step - x) > width
                least += lower_masses[j] * (_positive(1 - gap) - (abs(1 - gap) if near else 0))
            gap *= shrunk
        off = 2 * (-2 * (width - spread / 8) ** 2 / spread).exp()
        found.append((least / (1 << _BITS) - off, most / (1 << _BITS) + 1 - survival))
    return found


def _times_power(product: fmpz_poly, masses: list[arb], count: int, *, up: bool) -> fmpz_poly:
    """The product with a power, of integers over 2^_BITS that are rounded up or down at every step."""

    def rounded(poly: fmpz_poly) -> fmpz_poly:
        if up:
            return fmpz_poly([-((-c) >> _BITS) for c in poly.coeffs()])
        return fmpz_poly([c >> _BITS for c in poly.coeffs()])

    scaled = [mass * (1 << _BITS) for mass in masses]
    ends = [x.upper().ceil() if up else x.lower().floor() for x in scaled]
    base = fmpz_poly([max(end.upper().ceil().unique_fmpz() if up else end.unique_fmpz(), 0) for end in ends])
    while count:
        if count & 1:
            product = rounded(product * base)
        count >>= 1
        if count:
            base = rounded(base * base)
    return product


# -------------------------------------------------------------------------------------------------------- proofs


def _rational_top(parts: Counter[Part]) -> fmpq | None:
    """The largest sum of losses, where it is rational."""
    total = fmpq(0)
    for (kind, value), count in parts.items():
        match kind:
            case "laplace" | "maximum" | "laplace maximum" | "span":
                total += count * value
            case "pure" if value[1] == 0:
                total += count * value[0]
            case "response" | "encoding":
                total += count * value[0]
            case "shuffled":
                total += count * value[0]
            case "discrete laplace":
                total += count / value[0]
            case _:
                return None
    return total


def _curve(parts: Counter[Part], present: bool, points: list[fmpq], goal: arb, proof: Any) -> list[tuple[arb, arb]]:
    """δ at every point, from below and from above, of one alternative."""
    at = [arb(point) for point in points]
    kinds = {kind for kind, _ in parts}
    if not parts:
        return [(arb(0), arb(0)) for _ in at]
    if "zcdp" in kinds:
        return _concentrated(parts, at, proof)
    if "shuffled" in kinds:
        return _shuffled(parts, at, goal, proof)
    laws: list[tuple[Law, int]] = []
    square, survival = arb(0), arb(1)
    for part, count in sorted(parts.items(), key=repr):
        law = _law(part, present)
        if law is None:
            raise Refused(f"no proof is known here for {part[0]}")
        if isinstance(law, GaussianLaw):
            square += count * law.square
            continue
        survival *= (1 - law.infinite) ** count
        laws.append((law, count))
    if square > 0:
        laws.append((GaussianLaw(square), 1))
    if len(laws) == 1 and laws[0][1] == 1:
        values = [law.delta(x) for x in at for law, _ in laws]
        return [(arb(0) if "laplace maximum" in kinds else x, x) for x in values]
    if kinds & {"span", "maximum", "laplace maximum", "batch"}:
        raise Refused("no proof is known here for sums of noisy maxima, or of batches of one size")
    extra = 1 - survival
    if len(laws) == 1 and isinstance(laws[0][0], DiscreteGaussianLaw) and laws[0][0].is_listed(laws[0][1]):
        laws = [(_discrete_gaussian_atoms(laws[0][0].sigma, laws[0][0].shift), laws[0][1])]
    if len(laws) == 1 and isinstance(laws[0][0], Atoms) and laws[0][0].lattice:
        return [(x + extra, x + extra) for x in _lattice_sum(laws[0][0], laws[0][1], at)]
    # beyond the largest of all sums nothing is left, and the contour need not find out
    found: list[tuple[arb, arb]] = [(extra, extra)] * len(at)
    tops = [law.top for law, _ in laws]
    top = None if None in tops else sum((n * law.top for law, n in laws if law.top is not None), arb(0))
    inside = [i for i, x in enumerate(at) if top is None or not x >= top]
    if inside:
        asked = [at[i] for i in inside]
        if isinstance(proof, dict) and "bottom" in proof:
            answers = _on_grid(laws, Grid.read(proof), asked)
        else:
            answers = _on_contour(laws, Contour.read(proof), asked, goal)
        for i, (below, above) in zip(inside, answers, strict=True):
            found[i] = below + extra, above + extra
    return found


def _shuffled(parts: Counter[Part], at: list[arb], goal: arb, proof: Any) -> list[tuple[arb, arb]]:
    """δ of one round of shuffled messages: E[(ΣG)₊]/n by the blanket from above, by what others may hold from below."""
    ((_, (exact_epsilon, users, categories)),) = parts if len(parts) == 1 else ((("", (None, 0, 0)),))
    if exact_epsilon is None or sum(parts.values()) > 1:
        raise Refused("no proof is known here for sums of shuffled messages")
    if not isinstance(proof, dict) or set(proof) != {"above", "below"}:
        raise Refused("shuffled messages need a contour from above and one from below")
    epsilon = arb(exact_epsilon)
    e, found = epsilon.exp(), []
    for i, x in enumerate(at):
        if x >= epsilon:
            found.append((arb(0), arb(0)))
            continue
        grown = x.exp()
        gain, loss, none = e - grown, 1 - e * grown, 1 - grown
        below, above = arb(0), arb(1)
        if i == 0:
            lie = 1 / (e + (categories - 1)) if categories else 1 / (e + 1)
            values, masses = [gain, loss, arb(0)], [lie, lie]
            if categories:
                values, masses = [gain, loss, none, arb(0)], [lie, lie, (categories - 2) * lie]
            above = _mean_gain(values, [*masses, 1 - sum(masses, arb(0))], users, goal, proof["above"])[1]
        for stated in proof["below"] if i > 0 else ():
            # all others hold the first value or a third one, of as many as are known, or of three or two
            line = dict(stated)
            others, k = line.pop("others", None), line.pop("categories", categories)
            if type(k) is not int or not (k == categories or (categories == 0 and k in (2, 3))):
                raise Refused("no such witness for shuffled messages")
            lie = 1 / (e + (k - 1))
            if others == "first":
                values, masses = [gain / e, loss, none], [e * lie, lie, (k - 2) * lie]
            elif others == "third" and k >= 3:
                values, masses = [gain, loss, none / e, none], [lie, lie, e * lie, (k - 3) * lie]
            else:
                raise Refused("no such witness for shuffled messages")
            below = below.max(_mean_gain(values, masses, users, goal, line)[0])
        found.append((below, above))
    return found


def _mean_gain(values: list[arb], masses: list[arb], users: int, goal: arb, proof: Any) -> tuple[arb, arb]:
    """E[(ΣG)₊]/n of n gains."""
    scale = values[0].mid()
    law = Atoms([value / scale for value in values], masses)
    ((below, above),) = _on_contour([(law, users)], Contour.read(proof), [arb(0)], goal * users / scale, losses=False)
    return below * scale / users, above * scale / users


def _concentrated(parts: Counter[Part], at: list[arb], proof: Any) -> list[tuple[arb, arb]]:
    """A total that is ρ-zCDP, by one order and y₁: for all y > 0, y − e^ε ≤ λ(y^α − αy₁^u·y + u·y₁^α)."""
    rho = fmpq(0)
    for (kind, value), count in parts.items():
        if kind != "zcdp":
            raise Refused("no proof is known here for sums of zCDP and other releases")
        rho += count * value
    if not isinstance(proof, dict) or set(proof) != {"order", "low"}:
        raise Refused("a total that is zCDP needs an order and a point")
    alpha, low = arb(_exact(proof["order"], "order", 1.0)), arb(_exact(proof["low"], "low", -math.inf, 0.0, ends=True))
    u, first = alpha - 1, low.exp()
    found = []
    for x in at:
        # λ is as small as the inequality allows: y₂ with y₂^u = y₁^u + 1/(λα), where both sides touch
        n = (arb(rho) * alpha * u).exp() - alpha * first**u + u * first**alpha
        goal = x.exp()

        def touches(log_second: arb, goal: arb = goal) -> bool:
            second = log_second.exp()
            between = u * (second**alpha - first**alpha) / (alpha * (second**u - first**u))
            return bool(between <= goal)

        lower, upper = float(low) + 1e-12, float(x) + float((1 + 1 / u).log()) + 1.0
        for _ in range(80):
            middle = (lower + upper) / 2
            lower, upper = (middle, upper) if touches(arb(middle)) else (lower, middle)
        if not touches(arb(lower)):
            raise Refused("the order says nothing at this ε")
        bound = n / (alpha * (arb(lower).exp() ** u - first**u))
        # from below: Gaussian noise of μ² = 2ρ is ρ-zCDP
        known = GaussianLaw(arb(2 * rho)).delta(x) if rho > 0 else arb(0)
        found.append((known, bound))
    return found


def _proof_of(proof: Any, side: str, branch: int) -> Any:
    sides = proof.get(side) if isinstance(proof, dict) else None
    return sides[branch] if isinstance(sides, list) and branch < len(sides) else None


def _check(certificate: dict[str, Any]) -> Verdict:
    if (certificate.get("format"), certificate.get("version")) != FORMAT:
        raise Refused(f"not a certificate of the form {FORMAT[0]} {FORMAT[1]}")
    unknown = set(certificate) - {"format", "version", "release", "delta", "upper", "lower", "proof"}
    if unknown:
        raise Refused(f"a certificate has no field {min(unknown)!r}")
    delta = _exact(certificate.get("delta"), "delta", 0.0, 1.0, ends=True)
    upper = _exact(certificate.get("upper"), "upper", 0.0, ends=True)
    stated = certificate.get("lower")
    lower = None if stated is None else _exact(stated, "lower", 0.0, ends=True)
    if lower is not None and lower > upper:
        raise Refused(f"the ends are in the wrong order: {stated!r} above {certificate['upper']!r}")
    branches = _alternatives(certificate.get("release"))
    if delta == 0:
        return _check_pure(branches, upper, lower)
    goal, proof = arb(delta), certificate.get("proof")
    asked = [upper] if lower is None or lower == 0 else [upper, lower]
    at_upper: arb | None = None
    at_lower: arb | None = None
    for branch, parts in enumerate(branches):
        asymmetric = any(kind == "sampled" for kind, _ in parts)
        for side in ("present", "absent") if asymmetric else ("present",):
            found = _curve(parts, side == "present", asked, goal, _proof_of(proof, side, branch))
            above = found[0][1]
            top = _rational_top(parts)
            if not above <= goal and not (top is not None and top <= upper):
                low, high = _interval(above)
                raise Refused(
                    f"δ at the upper end is not proved to be at most {float(goal):.17g}: {high:.17g} ({side}, branch {branch})"
                )
            if top is not None and top <= upper and not above <= goal:
                above = arb(0)
            at_upper = above if at_upper is None else at_upper.max(above)
            if len(found) > 1:
                below = found[1][0]
                at_lower = below if at_lower is None else at_lower.max(below)
    enclosed = None if at_upper is None else (0.0, _interval(at_upper)[1])
    from_below = None if at_lower is None else (_interval(at_lower)[0], 1.0)
    if at_lower is not None and not at_lower >= goal:
        return Verdict(
            False,
            f"δ at the lower end is not proved to be at least {float(goal):.17g}: {_interval(at_lower)[0]:.17g}",
            enclosed,
            from_below,
        )
    claimed = "the upper end is" if lower is None else "both ends are"
    return Verdict(True, f"{claimed} proved", enclosed, from_below)


def _check_pure(branches: list[Counter[Part]], upper: fmpq, lower: fmpq | None) -> Verdict:
    """δ = 0: the largest loss."""
    some = lower is None or lower == 0
    for parts in branches:
        exact = _rational_top(parts)
        if exact is None:
            total = arb(0)
            for part, count in parts.items():
                law = _law(part, True)
                if law is None or law.top is None or not law.infinite.is_zero():
                    raise Refused("losses may be as large as you like: nothing is proved at δ = 0")
                total += count * law.top
            meets, reaches = total <= arb(upper), lower is not None and total >= arb(lower)
        else:
            meets, reaches = exact <= upper, lower is not None and exact >= lower
        reaches = reaches and all(kind in _REACHED for kind, _ in parts)
        if not meets:
            raise Refused(f"the largest loss is not proved to be at most {float(arb(upper)):.17g}")
        some = some or bool(reaches)
    if not some:
        return Verdict(False, "no loss is proved to be as large as the lower end")
    return Verdict(True, "the upper end is proved" if lower is None else "both ends are proved", (0.0, 0.0), None)


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
    >>> from dataclasses import replace
    >>> from accounting import Laplace, certify, verify
    >>> certificate = certify(10 * Laplace(5.0), 1e-6)
    >>> verify(certificate).reason
    'both ends are proved'
    >>> verify(replace(certificate, upper=0.99 * certificate.upper)).accepted
    False
    """
    if not isinstance(certificate, dict):
        certificate = json.loads(certificate.to_json())
    with ctx.workprec(_PRECISION):
        try:
            return _check(certificate)
        except Refused as error:
            return Verdict(False, str(error))
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            return Verdict(False, f"not understood: {type(error).__name__}: {error}")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as stream:
        verdict = verify(json.load(stream))
    print(f"{'accepted' if verdict else 'refused'}: {verdict.reason}")
    sys.exit(0 if verdict else 1)
