"""Many batches of a fixed size of noisy maxima beside Gaussian noise: one pair that is as bad as any of them there.

A step's laws are P = (1 − q)R + qS and Q = (1 − q)R + qS′, as in :mod:`accounting.accountants.replaced_maxima`. One
pair that is worse than all steps at every ε is far too bad. But many steps hardly tell its details: let G be Gaussian
noise of small μ, whose divergence is V(x) at ε = x, and D a pair such that for all steps and all x

    E_P[V(x − L)] ≤ E_D[V(x − L)] + τ.                                                                        (1)

*Theorem.* Then k steps, each of which may follow the others, cost at most what G and k times D do, with kτ more of δ;
and so they do among other releases, that are replaced by their dominating pairs.

*Proof.* Let f(x) = E_A[V(x − L)] for any pair A. By (1) the best step makes of it E_P[f(x − L)] ≤ E_A E_D[V(x − L −
L′)] + τ, which is such an f again, of A and D. A release with a dominating pair B makes at most E_B[f(x − L)] of it, as
f is convex in e^x. By induction over what is left to do, in whatever order it follows, V of what comes at the end
becomes at most the divergence of G, and of D for every step, and of the other pairs. And G, which nobody has seen, only
adds. ∎

*Which D.* As V is convex in y = e^x, E_P[V(x − L)] is V(x) and the mean under Q of a convex function φ of P/Q: its
slope grows at e^z in proportion to V″ at x − z, which is normal. Up to a factor that is

    φ_λ(1) = φ_λ′(1) = 0,    φ_λ″(e^z) = e^(λz − z²/(2μ²) − z),    λ = x/μ² − ½.

Let T(λ) be an upper bound on E_Q φ_λ(P/Q) of all steps (:mod:`accounting.accountants.triples`), and F(λ) the mean of D.
(1) is F ≥ T, for all λ. Steps may be mirrored, so T(−1 − λ) is as good as T(λ). Where V(x − h) ≤ τ, h the largest loss,
nothing is asked for; nor for −x, where V is mirrored. ln T and ln F are convex, as ln ∫e^(λz)dν is: between points ln T
is at most linearly interpolated, and ln F at least what it is on the lines through the two points on either side.

D is any pair with losses on a grid: its masses are those of a linear program, with F ≥ T at many λ, of which the moment
is least that matters most for the total. What the program yields is made a pair of laws and (1) is seen after that.

*What it costs.* G takes a share of ε that falls with the number of steps; the smaller it is, the more D has to be worse
than the worst steps, as less is averaged. Of 10⁴ batches of ε₀ = 1 at a rate of a hundredth each is about 1 % of ε, of
100 at a tenth 2 to 3 %. What else there is above the truth is that of three laws only the ranges of what any two of
them lose are used: nothing with Gumbel noise, but a sixth of the variance with exponential noise of ε₀ = 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.coin_games import largest_moments
from accounting.accountants.coin_kinds import CoinKind, Kind
from accounting.accountants.curves import LopsidedAtoms
from accounting.accountants.losses import GaussianPair
from accounting.accountants.permute_and_flip import FlipKind
from accounting.accountants.triples import largest_means, means_of_coins

__all__ = ["BesideGaussian", "Reference", "is_known", "reference"]

Array = NDArray[np.float64]

# What G may take of ε, times the square root of the number of steps.
_SHARES = np.array([0.2, 0.5, 1.2, 3.0])
# τ as a share of δ for each step.
_REST = 1e-4
# Nodes of the largest loss. D may have losses at all of them and a little beyond, and farther away at some, as far as
# what is large there does not dwarf what is not.
_NODES, _NEAR, _FAR, _STEEPEST, _COARSE = 40, 1.25, 10.0, 20.0, 10
# G's μ is at least so many cells: six points of a cell then know e^(−z²/(2μ²)) to 1e-8.
_FEWEST_CELLS = 4.0
# λ apart, relative to what tells two of them from each other; the points between them.
_APART, _BETWEEN = 0.2, 4
# How much bounds may be above what is reached, and cells in all.
_BOUND, _WORK = 4e-3, 600_000
# F is more than T by this, at first; and at least by so much in the end, far more than all is rounded by.
_MARGIN, _LEAST_MARGIN, _TRIES = 1e-3, 1e-6, 6
_POINTS, _WEIGHTS = (np.polynomial.legendre.leggauss(6)[0] + 1) / 2, np.polynomial.legendre.leggauss(6)[1] / 2


@dataclass(frozen=True)
class Reference:
    """D has ``in_q`` of Q at ``losses``, beside Gaussian noise of ``mu``; ``rest`` is τ."""

    mu: float
    losses: Array
    in_q: Array
    rest: float


def _functions(orders: Array, mu: float, step: float, reach: int) -> tuple[Array, Array]:
    """φ_λ at e^(``step``·(−reach, …, reach)) for each λ, and the ln of what it is to be multiplied by."""
    nodes = step * np.arange(-reach, reach + 1)
    places = nodes[:-1, None] + step * _POINTS
    exponents = orders[:, None, None] * places - places**2 / (2 * mu**2)
    scale = exponents.max(axis=(1, 2), keepdims=True)
    bends = np.exp(exponents - scale) * _WEIGHTS * step
    ratios = np.exp(nodes)
    from_below = (bends * (ratios[1:, None] - np.exp(places))).sum(axis=2)
    from_above = (bends * (np.exp(places) - ratios[:-1, None])).sum(axis=2)
    bends = bends.sum(axis=2)
    values = np.zeros((orders.size, nodes.size))
    # away from 1 on either side: the slope so far, and what it grows by in a cell
    up, down = bends[:, reach:], bends[:, reach - 1 :: -1]
    slopes = np.cumsum(up, axis=1) - up
    values[:, reach + 1 :] = np.cumsum(slopes * np.diff(ratios)[reach:] + from_below[:, reach:], axis=1)
    slopes = np.cumsum(down, axis=1) - down
    cells = slopes * np.diff(ratios)[reach - 1 :: -1] + from_above[:, reach - 1 :: -1]
    values[:, :reach] = np.cumsum(cells, axis=1)[:, ::-1]
    return values, scale[:, 0, 0]


def _lacking(orders: Array, reached: Array, wanted: Array) -> float:
    """How much ln F may be below ln T, between all but the first two and the last two λ; both are given at each."""
    widths, slopes = np.diff(orders), np.diff(reached) / np.diff(orders)
    before, after, width = slopes[:-2], slopes[2:], widths[1:-1]
    start, end = reached[1:-2], reached[2:-1]
    # the lines from either side; where they meet ln F may be the lowest
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (end - start - after * width) / (before - after)
    place = np.where(np.isfinite(place), np.clip(place, 0.0, width), 0.0)
    least = np.maximum(start + before * place, end - after * (width - place))
    asked = wanted[1:-2] + (wanted[2:-1] - wanted[1:-2]) * place / width
    return float(max((asked - least).max(), (wanted - reached).max()))


def _program(means: Array, ratios: Array, moments: Array, margin: float) -> Array | None:
    """Q's masses at ``ratios`` of P to Q with F at least 1 + ``margin`` everywhere, and the least moment."""
    from scipy.optimize import linprog

    middle = ratios.size // 2
    other = np.arange(ratios.size) != middle  # where P is Q is what is left
    unit = np.minimum(1 / means[:, other].max(axis=0), 1.0)
    cost, balance = moments[other] * unit, (ratios[other] - 1) * unit
    answer = linprog(
        cost / cost.max(),
        A_ub=np.concatenate([-means[:, other] * unit, unit[None]]),
        b_ub=np.concatenate([np.full(means.shape[0], -1.0 - margin), [1.0]]),
        A_eq=balance[None] / np.abs(balance).max(),
        b_eq=[0.0],
        method="highs",
    )
    if answer.status != 0:
        return None
    masses = np.zeros(ratios.size)
    masses[other] = np.maximum(answer.x, 0.0) * unit
    # P and Q have as much: what one lacks it gets at an end
    lack = float(masses @ (ratios - 1))
    masses[0 if lack > 0 else -1] += abs(lack) / abs(ratios[0 if lack > 0 else -1] - 1)
    masses /= max(1.0, float(masses.sum()) * (1 + 1e-12))
    masses[middle] = 1 - float(masses.sum())
    return masses


def is_known(kind: Kind, rate: float) -> bool:
    """Whether the losses of a step are neither next to nothing nor too strong."""
    return 2e-3 <= kind.longest <= 12.0 and 1e-5 <= rate <= 1 - 1e-5


class _Steps:
    """``count`` steps and a δ of about ``delta``: which moment matters, and what D is for a given μ."""

    def __init__(self, kind: Kind, rate: float, count: int, delta: float) -> None:
        if not isinstance(kind, (CoinKind, FlipKind)):
            raise TypeError(f"there are no samples of {kind!r}")
        self._kind, self._rate, self._count, self._delta = kind, rate, count, delta
        sampled = [replace(kind, rate=rate, present=present) for present in (True, False)]
        self._highest = sampled[0].highest
        tried = np.geomspace(1e-2, 1e3, 200) / self._highest
        bounds = count * np.maximum(*(largest_moments(one, tried) for one in sampled)) - math.log(delta)
        at = int(np.argmin(bounds / tried))
        # (Chernoff) for fixed coins
        self._order, self.about = float(tried[at]), float(bounds[at] / tried[at])
        self.rest = delta * _REST / count

    def mu(self, share: float) -> float:
        """The μ that takes such a share of ε."""
        return math.sqrt(2 * share * self.about / (self._order + 1))

    def cost(self, found: Reference) -> float:
        """About ε, with G and D."""
        order = self._order
        with np.errstate(divide="ignore"):
            moment = float(np.logaddexp.reduce((order + 1) * found.losses + np.log(found.in_q)))
        return (self._count * moment - math.log(self._delta)) / order + found.mu**2 * (order + 1) / 2

    def reference(self, mu: float, *, proved: bool) -> Reference | None:
        """D; or, if not ``proved``, what is as bad as coins only, which takes no time."""
        if mu < _FEWEST_CELLS * self._highest / _NODES:
            return None  # what φ bends by between two nodes would not be known to enough digits
        # V(x) is at most Φ(μ/2 − x/μ) ≤ e^(−(x/μ − μ/2)²/2)
        farthest = (mu * math.sqrt(-2 * math.log(self.rest)) + mu**2 / 2 + self._highest) / mu**2 - 0.5
        apart = _APART / min(0.35 * self._highest, mu)
        orders: Array = -0.5 + apart * np.arange(math.ceil((farthest + 0.5) / apart) + 3, dtype=np.float64)
        step = self._highest / _NODES * (1 + 1e-12)
        values, scale = _functions(orders, mu, step, _NODES)
        if proved:
            bounds = largest_means(self._kind, self._rate, values, step, share=_BOUND, work=_WORK)
        else:
            bounds = means_of_coins(self._kind, self._rate, values, step)
        largest = np.log(bounds) + scale
        orders, largest = np.concatenate([-1 - orders[:0:-1], orders]), np.concatenate([largest[:0:-1], largest])
        every = np.arange(_BETWEEN * (orders.size - 1) + 1) / _BETWEEN
        fine: Array = np.asarray(np.interp(every, np.arange(orders.size), orders), dtype=np.float64)
        wanted = np.interp(fine, orders, largest)
        reach = math.ceil((_NEAR + min(_FAR, _STEEPEST / (farthest * self._highest))) * _NODES)
        values, scale = _functions(fine, mu, step, reach)
        places = np.arange(-reach, reach + 1)
        some = (np.abs(places) <= _NEAR * _NODES) | (places % _COARSE == 0)
        losses, values = step * places[some], values[:, some]
        means, ratios = values * np.exp(scale - wanted)[:, None], np.exp(losses)
        # E_D[e^(order·L)] − 1 is the mean under Q of these, times e^(what the last exponent is)
        exponents = (self._order + 1) * losses
        moments = np.exp(exponents - exponents[-1])
        moments -= math.exp(-exponents[-1]) * (1 + (self._order + 1) * np.expm1(losses))
        margin = _MARGIN
        for _ in range(_TRIES):
            masses = _program(means, ratios, moments, margin)
            if masses is None:
                return None
            lacking = _lacking(fine, np.log(means @ masses) + wanted, wanted)
            if lacking < -_LEAST_MARGIN:
                some = masses > 0
                return Reference(mu, losses[some], masses[some], self.rest)
            margin += max(lacking, 0.0) + 1e-4
        return None


@lru_cache(maxsize=16)
def reference(kind: Kind, rate: float, count: int, delta: float) -> Reference | None:
    """D and G for ``count`` steps and a total δ of about ``delta``; None where the program has no answer."""
    steps = _Steps(kind, rate, count, delta)
    tried = [steps.reference(steps.mu(share), proved=False) for share in _SHARES / math.sqrt(count)]
    known = [found for found in tried if found is not None]
    if not known:
        return None
    return steps.reference(min(known, key=steps.cost).mu, proved=True)


@dataclass(frozen=True)
class BesideGaussian(LopsidedAtoms):
    """One of ``count`` batches of noisy maxima of a ``kind``, where the noise of their reference is composed, too.

    ``tail`` is about the δ of the total.
    """

    kind: Kind
    rate: float
    count: int
    tail: float

    def noise(self) -> GaussianPair | None:
        """What is composed with them; None where nothing is known."""
        found = reference(self.kind, self.rate, self.count, self.tail)
        return None if found is None else GaussianPair(found.mu)

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        found = reference(self.kind, self.rate, self.count, self.tail)
        if found is None:
            raise ArithmeticError(f"there is no reference for {self!r}")
        return found.losses, np.exp(found.losses) * found.in_q, found.in_q, found.rest

    def delta(self, epsilon: float) -> float:
        losses, p, _, beyond = self._atoms()
        return min(1.0, beyond + float(p @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)))
