"""Many batches of a fixed size with Laplace noise, one after another: what they cost when each follows the others.

One of n records is replaced, and a batch is m of them: q = m/n. As in :mod:`accounting.accountants.replaced_steps` the
laws of a step are P = (1 − q)R + qS and Q = (1 − q)R + qS′; here R, S and S′ are Laplace noise of scale 1 around three
points of a space of any dimension, no two of which are farther apart than θ in the L1 norm. Which three are worst
depends on ε, so k steps are a game. Its laws are bounds on the curves of all triples.

*Arms.* In every coordinate one of the three points lies between the others. So with M the noise around the middle ones,
each coordinate moves two of R, S, S′ away from M, to opposite sides. Let r, s and s′ be how far they are moved all in
all: r + s, r + s′ and s + s′ are their distances, at most θ. A point may be moved along a coordinate of its own, too:
who forgets it has the old laws. So let two of the sums be θ: one arm is θ − t, and two are t ≤ θ/2.

*Theorem.* Write x_R for the probability R(A), and so on, and let up(x, s) be the largest probability that noise at
distance s may have where M has x. For w, a, b ≥ 0

    max over A of w·x_S − a·x_R − b·x_S′  ≤  max over x of w·up(x, s) − min over A with M(A) = x of a·R′(A) + b·S″(A)
                                          ≤  u(λ) + E_M[(λ − aρ − bσ)₊]  for every λ,

where R′ and S″ are moved from M by r and by s′ along two coordinates of their own, ρ and σ are their densities over M,
which are independent, and u(λ) = max over x of w·up(x, s) − λx. This is what the divergence asks for: with c = e^ε ≥ 1
it is the left side for w = q, a = (1 − q)(c − 1), b = cq, and for c ≤ 1 it is 1 − c and, with S and S′ exchanged and A
for what it is not, that for w = cq, a = (1 − q)(1 − c), b = q.

*Proof.* On the way from M to S in small steps x and 1 − x change by no more than a factor of e^(ds), so x_S ≤ up(x, s)
(see :class:`~accounting.accountants.losses.LaplacePair`), where x = M(A). Let now A be the best for R and S′ alone: for
it E_M[φ(aρ + bσ)] counts, φ convex. Where one coordinate moves both, to opposite sides, one of its factors of ρ and σ
falls as the other rises, and φ(aρ + bσ) has a mixed derivative ≥ 0; so the mean grows if they are drawn independently,
coordinate after coordinate. Then each of ρ and σ is a product over coordinates, and at most the one of a single
coordinate in convex order: a shift that is spread is never worse. The second line is weak duality. ∎

*Which arms.* Call K the bound's first form, at an x where the maximum is reached, and λ = w·up′(x) the slope there, of
F(x) = min of a·R′(A) + b·S″(A) too. As up is a flow, up′(x)·min(x, 1 − x) = min(u, 1 − u) = ∂up/∂s, u = up(x, s). With
h the probability under M of a section of A along the coordinate of R, ∂R′(A)/∂r is minus the mean of what min(·, 1 − ·)
is for R′ of sections, and a times that at most the mean of (λ − bσ)₊·min(h, 1 − h), which is ≤ λ·min(x, 1 − x) =
∂(w·up)/∂s. So K grows if S's arm does as much as that of R (or of S′) shrinks. Hence:

* With R's arm θ − t, K and the curve grow with t up to t = θ/2, for c ≥ 1 and c ≤ 1.
* With S's arm θ − t the bound grows with t for c ≤ 1, where the longest arm is one of the two that are to be unlikely.
* With S's arm θ − t it falls with t for c ≥ 1: there aρ + bσ ≥ q·e^(−t) ≥ q·e^(−(θ−t)), which is up′ above ½, so x ≤ ½;
  and as R′(A) and S″(A) fall by at most themselves, F by at most F(x) ≤ λx, which is w·∂up/∂s.

So with R's arm θ − t nothing is worse than the bound at t = θ/2; and with S's arm (or that of S′, the mirror image)
θ − t the bound on t in [t₀, t₁] is that of t₀ for c ≥ 1 and that of t₁ for c ≤ 1. At t = 0 it is exact.

*Closer.* Here S need not move against R and against S′ with all of its arm at once. With densities τ, ρ and σ over M,

    max over A of w·x_S − a·x_R − b·x_S′  ≤  max over α of E_M[(w·τ₁τ₂ − aρ₂ − bσ₁)₊],

where along a first coordinate S moves by α and S′, to the other side, by s′; and along a second one S by s − α and R,
to the other side, by r. *Proof.* As above, coordinates that move R and S′ may be taken for two: of what is drawn there
a convex function of aρ + bσ counts. Given all else, sections of A along the coordinates that move S′ ask for the same,
with weights of any size on S, M and S′. On the way from S to M to S′ the bounds of ``up`` hold; half-lines of a single
coordinate reach them. The same holds of R. ∎ Triples with longer arms are no better, so finitely many α and t do.

With up(x, s) = e^s·x up to ½, then 1 − e^(−s)/(4x), and 1 − e^(−s)(1 − x) above x = ½, u(λ) is w − √(wλe^(−s)) where
λ/w lies between e^(−s) and e^s.

*Numbers.* Densities are moved to the ends of pieces, which is more in convex order, and the least of all bounds is put
on a grid, on which the game is played (:mod:`accounting.accountants.loss_games`): a few groups of t with their mirror
images, in which the worst t counts for every ε.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.curves import Atoms, pair_of_curve, pair_of_whole_curve, value_between
from accounting.accountants.loss_games import Laws, play_above
from accounting.accountants.losses import LaplacePair, Symmetric
from accounting.accountants.sampled_losses import ReplacedPair

__all__ = ["ReplacedLaplace", "most_steps"]

Array = NDArray[np.float64]
#: A bound on what an event gains, by the weights of S, R and S′ and their arms.
Event = Callable[[Array, float, Array, float, Array, float], Array]

# t as shares of θ: groups of cells, narrow where the worst ones are.
_GROUPS = tuple(
    np.linspace(start, end, cells + 1)
    for start, end, cells in (
        (0.0, 0.0025, 1), (0.0025, 0.005, 1), (0.005, 0.01, 2), (0.01, 0.02, 4), (0.02, 0.04, 4), (0.04, 0.07, 3),
        (0.07, 0.12, 5), (0.12, 0.2, 7), (0.2, 0.3, 9), (0.3, 0.4, 9), (0.4, 0.46, 6), (0.46, 0.49, 6), (0.49, 0.5, 5),
    )
)  # fmt: skip
# The same where R is the farthest, which hardly matters.
_R_FARTHEST = np.concatenate([np.linspace(0.0, 0.4, 9), np.linspace(0.4, 0.49, 10)[1:], [0.4925, 0.495, 0.4975, 0.5]])
# What S moves against R, as a share of its arm.
_SHARES = (0.0, 0.004, 0.012, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.988, 0.996, 1.0)
# Pieces of a density between its largest and its smallest value.
_PIECES = 10
# The grid's step as a share of qθ.
_FINE = 0.1
_SEARCHES = 36
# Beyond this the bounds are of little use.
_LARGEST_SHIFT, _GOLDEN = 3.0, (math.sqrt(5.0) - 1) / 2


def most_steps(theta: float, rate: float) -> int:
    """How many steps make a game; 0 where it is of no use."""
    return 1024 if 1e-4 <= theta <= _LARGEST_SHIFT and 1e-7 <= rate <= 1 - 1e-6 else 0


def _densities(arm: float) -> tuple[Array, Array]:
    """M's masses and the values of ρ of a point at this distance, a little larger in convex order."""
    if arm == 0.0:
        return np.ones(1), np.ones(1)
    y = np.linspace(0.0, arm, _PIECES + 1)
    ratios = np.exp(2 * y - arm)
    in_m, in_r = 0.5 * np.exp(-y[:-1]) * -np.expm1(-y[1]), 0.5 * np.exp(y[1:] - arm) * -np.expm1(-y[1])
    up = np.clip((in_r - in_m * ratios[:-1]) / np.diff(ratios), 0.0, in_m)
    masses = np.zeros(y.size)
    masses[[0, -1]] = 0.5, 0.5 * math.exp(-arm)
    masses[:-1] += in_m - up
    masses[1:] += up
    return masses, ratios


def _best_event(w: Array, far: float, a: Array, near: float, b: Array, other: float) -> Array:
    """The theorem's bound, for arms ``far`` of S, ``near`` of R and ``other`` of S′; all weights per point."""
    (in_r, rho), (in_s, sigma) = _densities(near), _densities(other)
    mass = np.outer(in_r, in_s).ravel()
    values = a[:, None] * np.repeat(rho, sigma.size) + b[:, None] * np.tile(sigma, rho.size)

    def bound(log_share: Array) -> Array:
        # λ/w from e^(−s) to e^s
        given_up = w * -np.expm1((log_share - far) / 2)
        return given_up + np.maximum((w * np.exp(log_share))[:, None] - values, 0.0) @ mass

    low, high = np.full(w.size, -far), np.full(w.size, far)
    best = np.minimum(bound(low), bound(high))
    for _ in range(_SEARCHES):
        # it is convex in λ, and every λ will do
        one, two = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_one, at_two = bound(one), bound(two)
        best = np.minimum(best, np.minimum(at_one, at_two))
        left = at_one < at_two
        low, high = np.where(left, low, one), np.where(left, two, high)
    return np.asarray(np.maximum(best, 0.0) * (1 + 1e-12) + 1e-15 * w)


def _opposite(one: float, other: float) -> tuple[Array, Array, Array]:
    """M's masses and the densities of two points that are moved to either side along one coordinate."""
    (left, tau), (right, sigma) = _densities(one), _densities(other)
    # either has the other's side as one half
    masses = np.concatenate([left, right])
    masses[[0, left.size]] -= 0.5
    taus = np.concatenate([tau, np.full(sigma.size, math.exp(-one))])
    return masses, taus, np.concatenate([np.full(tau.size, math.exp(-other)), sigma])


def _best_split(w: Array, far: float, a: Array, near: float, b: Array, other: float) -> Array:
    """The closer bound, of the same arms."""
    best = np.zeros(w.size)
    for share, end in itertools.pairwise(_SHARES):
        first, tau, sigma = _opposite(far * (1 - share), other)
        second, more, rho = _opposite(far * end, near)
        gain = np.multiply.outer(w, np.outer(tau, more))
        gain -= np.multiply.outer(a, rho)[:, None, :]
        gain -= np.multiply.outer(b, sigma)[:, :, None]
        np.maximum(gain, 0.0, out=gain)
        np.maximum(best, gain @ second @ first, out=best)
    return np.asarray(best * (1 + 1e-12) + 1e-15 * w)


def _curve_of_arms(event: Event, rate: float, arms: tuple[float, float, float], losses: Array) -> Array:
    """A bound on H at ``losses`` by one on events, of the triples with arms of at most r, s and s′."""
    r, s, other = arms
    up = losses >= 0
    down = ~up
    found, c = np.empty(losses.size), np.exp(losses)
    away, full = (1 - rate) * np.abs(np.expm1(losses)), np.full(losses.size, rate)
    found[up] = event(full[up], s, away[up], r, c[up] * rate, other)
    found[down] = -np.expm1(losses[down]) + event(c[down] * rate, other, away[down], r, full[down], s)
    return found


def _curves(theta: float, rate: float, losses: Array) -> list[Array]:
    """Of every group of t; and of those with R farthest away, where they are not below one of these."""
    pair = ReplacedPair(LaplacePair(theta), rate)
    # no triple is worse, and beyond the largest loss there is nothing
    most = np.array([pair.delta(float(loss)) for loss in losses])
    most[-1] = 0.0
    up = losses >= 0

    def relaxed(t: float) -> Array:
        return _curve_of_arms(_best_event, rate, (theta * t, theta * (1 - t), theta * t), losses)

    found = []
    for group in _GROUPS:
        # the ends of a group differ little
        ends = relaxed(float(group[0])), relaxed(float(group[-1]))
        least = np.minimum(most, np.where(up, np.maximum(*ends), ends[1]))
        worst = np.zeros(losses.size)
        for t, end in itertools.pairwise(theta * group):
            closer = _curve_of_arms(_best_split, rate, (end, theta - t, end), losses)
            np.maximum(worst, np.minimum(least, closer), out=worst)
        found.append(worst)
    least = np.minimum(most, relaxed(0.5))
    others = [
        np.minimum(least, _curve_of_arms(_best_split, rate, (theta - t, end, end), losses))
        for t, end in itertools.pairwise(theta * _R_FARTHEST)
    ]
    left = [curve for curve in others if not any(np.all(curve <= worst) for worst in found)]
    return [*found, np.max(left, axis=0)] if left else found


@lru_cache(maxsize=8)
def _laws(theta: float, rate: float) -> Laws:
    """The losses of all groups and their mirror images."""
    highest = math.log1p(rate * math.expm1(theta))
    reach = max(16, math.ceil(highest / (_FINE * rate * theta)))
    step = highest / reach
    losses = step * np.arange(-reach - 1, reach + 2, dtype=np.float64)
    zero, masses = reach + 1, []
    for curve in _curves(theta, rate, losses):
        mirrored = -np.expm1(losses) + np.exp(losses) * curve[::-1]
        mirrored[-1] = 0.0
        for values in (curve, mirrored):
            places, p, _ = pair_of_whole_curve(losses, np.maximum(values, np.maximum(-np.expm1(losses), 0.0)))
            mass = np.zeros(losses.size)
            mass[np.rint(places / step).astype(int) + zero] = p
            mass[zero] += max(0.0, 1.0 - float(p.sum())) + 1e-14
            masses.append(mass)
    return Laws(np.array(masses), step)


@lru_cache(maxsize=4)
def _values(theta: float, rate: float, most: int, tail: float) -> tuple[Array, Array]:
    return play_above(_laws(theta, rate), most, tail)


def _curve(pair: ReplacedLaplace) -> tuple[Array, Array]:
    # so that growing totals need few games
    most = 1 << (pair.count - 1).bit_length()
    losses, values = _values(pair.theta, pair.rate, most if pair.count > 0.8 * most else pair.count, pair.tail)
    return losses * (1 + 1e-13), values[pair.count]


@lru_cache(maxsize=16)
def _atoms(pair: ReplacedLaplace) -> tuple[Array, Array, Array, float]:
    losses, values = _curve(pair)
    return *pair_of_curve(losses, values), float(values[-1])


@dataclass(frozen=True)
class ReplacedLaplace(Atoms, Symmetric):
    """``count`` steps with Laplace noise of scale 1 and a sensitivity of ``theta``, last of a composition.

    ``tail`` is a probability that may be cut off.
    """

    theta: float
    rate: float
    count: int
    tail: float

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return -math.expm1(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        return value_between(*_curve(self), epsilon)

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        return _atoms(self)
