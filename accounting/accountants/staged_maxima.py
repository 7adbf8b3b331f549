"""Many batches of a fixed size of noisy maxima, in stages: one pair as bad as any step before those that follow.

A step's laws are P = (1 − q)R + qS and Q = (1 − q)R + qS′, as in :mod:`accounting.accountants.replaced_maxima`. One
pair that is worse than all steps at every ε is far too bad. But a step hardly tells its details if others follow: let V
be the divergence at ε = x of a pair, and D another pair such that for all steps and all x

    E_P[V(x − L)] ≤ E_D[V(x − L)] + τ.                                                                        (1)

*Theorem.* Let V₀(x) = (1 − e^x)₊, and V₁, V₂, … be convex in e^x and such that no step makes more than V_i(x) of
V_(i−1), for all x. Let V_j = V + c be as in (1), with a constant c. Then k ≥ j steps, each of which may follow the
others, cost at most what the pair of V and k − j times D do, with c + (k − j)τ more of δ; and so they do among other
releases, that are replaced by their dominating pairs.

*Proof.* Where i steps are left, and other releases with the pairs A, in whatever order they follow, what is left of δ
is at most f(x) = E_A[V_i(x − L)]; or if i > j f(x) = E_A E_D[V(x − L − L′)] + c + (i − j)τ, with i − j times D. By
induction over what is left: of such an f a release with a dominating pair B makes at most E_B[f(x − L)], as f is
convex in e^x. The best step makes E_A E_P[V_i(x − L − L′)] of it, which is at most E_A[V_(i+1)(x − L)]; or by (1),
where D's come before V, one D and one τ more. ∎

So D need not be known for all steps at once. V₁ is the worst of one step; with D for V_j, and j steps of it, V_(2j)
is known, which is smoother; and so on. What is cut off V counts in c. D has to be worse than the worst steps by less
and less: by 20 or 50 % of the variance before the last one, by 2 or 3 % before 30. The last D is for all that remain.

*Which D.* All losses of D and all corners of V are on a grid. Let T(x) be the largest E_P[V(x − L)] − V(x) of all steps
(:mod:`accounting.accountants.triples`). At one x of the grid it is the mean under Q of a function φ of P/Q with corners
on the grid:

    φ_x(e^z) = Σ_i b(x − z_i)·(e^z − e^(z_i))₊ for z_i ≥ 0, and with (e^(z_i) − e^z)₊ for z_i < 0,

where b·e^(−x) is what the slope of V in y = e^x grows by at x. Both sides of (1) are functions of y, the left one
convex, the right one linear between points of the grid: so (1) need be seen on the grid only. Steps may be mirrored; if
D is symmetric, too, x ≥ 0 are enough. Where V(x − h) ≤ τ, h the largest loss, nothing is asked for. The masses of D are
those of a linear program, of which the moment is least that matters most for the total. What the program yields is made
a pair, and (1) is seen after that.

*Fewer x.* E φ_x is Σ_i b(x − z_i)H_i, the H_i ≥ 0 those of a step. Let x = wx₀ + (1 − w)x₁ and b(x − z) ≤ C·b(x₀ −
z)^w·b(x₁ − z)^(1 − w) for |z| ≤ h. Then T(x) ≤ C·T(x₀)^w·T(x₁)^(1 − w), by Hölder's inequality: where b is smooth, T is
known from few points.

*How far it is from the truth.* With Gumbel noise brackets of ten thousand steps at a rate of a hundredth are ½ % wide
at ε₀ = 0.1 and 1 % at 1; of a hundred steps at a rate of a tenth 2 %, and of strong ones (ε₀ = 4) 3 to 5 %: there T is
known less well. With exponential noise it is as much, but for strong steps on rare batches: of three laws only the
ranges of what any two of them lose are used, which is a sixth of the variance at ε₀ = 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from accounting.accountants.coin_games import largest_moments
from accounting.accountants.coin_kinds import CoinKind, Kind
from accounting.accountants.curves import Atoms, Batches, delta_of_atoms, lower_hull
from accounting.accountants.losses import Symmetric
from accounting.accountants.permute_and_flip import FlipKind
from accounting.accountants.replaced_maxima import ReplacedMaxima
from accounting.accountants.triples import largest_means

__all__ = ["EarlierMaxima", "LastMaxima", "Stages", "is_known", "stages"]

Array = NDArray[np.float64]

# Grid points of a deviation of a step's loss; and of the largest loss, at least and at most.
_FINE, _FEWEST, _MOST = 7.0, 20, 100
# D's losses are as many times the largest loss, at most; moments are at most e^(this).
_NEAR, _LARGEST = 2.5, 600.0
# V is played for so many steps at most, on so many points; and D for at least this share of all.
_MOST_PLAYED, _MOST_POINTS, _LAST = 1024, 2500, 0.4
# Of so many times as many steps as are played V is found for four times as many at once.
_FIRST = 1000
# τ for all steps as a share of δ, and at most; and what is cut off as a share of τ.
_REST, _MOST_REST, _FAINT = 1e-3, 1e-8, 1e-4
# How much bounds on T may be above what is reached, and how much ln C may change with z: of all steps; of a stage with
# fewer more, up to this many times. Cells in all; and this share of them, at least, where there are few steps.
_BOUND, _SPREAD, _FEW, _WORK, _LITTLE = 3e-3, 4e-3, 10.0, 600_000, 0.15
# b is at least this share of its largest value, so that it has a logarithm.
_LEAST = 1e-13
# D is worse than what is asked for by this, at first; and at least by so much in the end, far more than it is off by.
_MARGIN, _LEAST_MARGIN, _TRIES = 1e-5, 1e-7, 4
_UNIT_ROUNDOFF = 2.0**-52
# What a step of positive sums is rounded up by, far more than they are off by.
_OUTWARD = 1 + 1e-12


@dataclass(frozen=True)
class Stages:
    """V has ``values`` on ``step``·(0, 1, …) and is that of ``count`` steps; D has ``in_q`` of Q at ``losses``.

    V is ``rest`` more for every step, and so is what D makes of it.
    """

    step: float
    values: Array
    count: int
    losses: Array
    in_q: Array
    rest: float


def is_known(kind: Kind, rate: float) -> bool:
    """Whether the losses of a step are neither next to nothing nor too strong."""
    return 2e-3 <= kind.longest <= 12.0 and 1e-5 <= rate <= 1 - 1e-5


def _convex(step: float, values: Array) -> Array:
    """The largest curve below these points, of which the last is 0, that is convex in e^x and symmetric."""
    y, values = np.expm1(step * np.arange(values.size)), values.copy()
    # at 0, where the slope of the mirror image is known; see pair_of_curve
    values[0] = min(values[0], float(np.min((values + y / 2) / (1 + y / 2))))
    kept = lower_hull(y, values)
    return np.asarray(np.interp(y, y[kept], values[kept]) * _OUTWARD)


def _whole(values: Array, step: float, reach: int) -> Array:
    """V from −``reach`` points on, and as many more at the end."""
    x = -step * np.arange(reach, 0, -1)
    return np.concatenate([-np.expm1(x) + np.exp(x) * values[reach:0:-1], values, np.full(reach, values[-1])])


def _bends(values: Array, step: float, reach: int, size: int) -> Array:
    """b(x − z) for z in ``step``·(−``reach``, …, ``reach``), in rows for the first ``size`` points x."""
    whole = _whole(values, step, reach + 1)
    slopes = np.diff(whole) / math.expm1(step)
    bends = np.maximum(slopes[1:] - slopes[:-1] * math.exp(step), 0.0)
    return sliding_window_view(bends, 2 * reach + 1)[:size, ::-1]


def _ramps(step: float, reach: int) -> Array:
    """The functions of P/Q of which φ is composed, in rows, at e^(``step``·(−``reach``, …, ``reach``))."""
    y = np.exp(step * np.arange(-reach, reach + 1))
    away = y - y[:, None]
    away[:reach] *= -1
    return np.asarray(np.maximum(away, 0.0))


def _places(logs: Array, spread: float) -> NDArray[np.int64]:
    """Points between which ``logs`` are linear but for what changes by at most ``spread`` within a row."""
    found, gap = [0], 1
    last = logs.shape[0] - 1

    def is_straight(width: int) -> bool:
        at, end = found[-1], found[-1] + width
        share = (end - (at + end) // 2) / width
        bent = logs[(at + end) // 2] - share * logs[at] - (1 - share) * logs[end]
        return bool(np.ptp(bent) <= spread)

    while found[-1] < last:
        gap = min(2 * gap, last - found[-1])
        while gap > 1 and not is_straight(gap):
            gap -= max(1, gap // 8)
        found.append(found[-1] + gap)
    return np.array(found)


def _between(logs: Array, places: NDArray[np.int64], largest: Array) -> Array:
    """What no mean of e^``logs`` is above, in every row, if it is at most e^``largest`` at ``places`` (Hölder)."""
    every = np.arange(logs.shape[0])
    end = np.clip(np.searchsorted(places, every), 1, places.size - 1)
    before, after = places[end - 1], places[end]
    share = (after - every) / (after - before)
    above = (logs - share[:, None] * logs[before] - (1 - share[:, None]) * logs[after]).max(axis=1)
    return np.asarray(np.exp(above + share * largest[end - 1] + (1 - share) * largest[end]))


def _program(means: Array, losses: Array, order: float, margin: float) -> Array | None:
    """Q's masses at ``losses`` > 0 of a symmetric pair that is worth 1 + ``margin`` in every row of ``means``."""
    from scipy.optimize import linprog

    unit, order = np.minimum(1 / means.max(axis=0), 1.0), min(order, _LARGEST / float(losses[-1]))
    # E_D[e^(order·L)] − 1; and what D has in all
    cost = (np.expm1(order * losses) * np.exp(losses) + np.expm1(-order * losses)) * unit
    whole = (1 + np.exp(losses)) * unit
    answer = linprog(
        cost / cost.max(),
        A_ub=np.concatenate([-means * unit, whole[None] / whole.max()]),
        b_ub=np.append(np.full(means.shape[0], -1.0 - margin), 1 / whole.max()),
        method="highs",
    )
    if answer.status != 0:
        return None
    masses = np.maximum(answer.x, 0.0) * unit
    return np.asarray(masses / max(1.0, float(masses @ (1 + np.exp(losses))) * (1 + 1e-12)))


def _worth(values: Array, step: float, losses: Array, in_q: Array, size: int) -> Array:
    """E_D[V(x − L)] − V(x) at the first ``size`` points x, rounded down."""
    far = losses.size
    around = sliding_window_view(_whole(values, step, far), 2 * far + 1)[:size]
    here, in_p = around[:, far : far + 1], np.exp(losses) * in_q
    above, below = around[:, far - 1 :: -1], around[:, far + 1 :]
    found = (above - here) @ in_p + (below - here) @ in_q
    size_of_terms = above @ in_p + here[:, 0] * float(in_p.sum() + in_q.sum()) + below @ in_q
    return np.asarray(found - 8 * _UNIT_ROUNDOFF * size_of_terms)


class _Steps:
    """``count`` steps and a δ of about ``delta``."""

    def __init__(self, kind: Kind, rate: float, count: int, delta: float) -> None:
        if not isinstance(kind, (CoinKind, FlipKind)):
            raise TypeError(f"there are no samples of {kind!r}")
        self._kind, self._rate = kind, rate
        sampled = [replace(kind, rate=rate, present=present) for present in (True, False)]
        highest = sampled[0].highest
        orders = np.geomspace(1e-2, 1e3, 200) / highest
        moments = np.maximum(*(largest_moments(one, orders) for one in sampled))
        at = int(np.argmin((count * moments - math.log(delta)) / orders))
        # which moment matters (Chernoff), and about how far one loss is from another
        self.order = float(orders[at])
        deviation = math.sqrt(2 * float(moments[at]) / (self.order * (self.order + 1)))
        self.reach = min(max(math.ceil(_FINE * highest / deviation), _FEWEST), _MOST)
        self.step = highest / self.reach * (1 + 1e-12)
        self.rest = min(delta * _REST, _MOST_REST) / count

    def first(self) -> Array:
        """V₁."""
        one = ReplacedMaxima(self._kind, self._rate, 1, _FAINT * self.rest)
        points = self.step * np.arange(self.reach)
        return _convex(self.step, np.append([one.delta(float(x)) for x in points], 0.0))

    def pair(self, values: Array, share: float) -> tuple[Array, Array] | None:
        """D's losses and Q's masses, where that is what a ``share`` of all steps have."""
        more, reach = min(max(0.5 / share, 1.0), _FEW), self.reach
        size = int(np.searchsorted(-values, -self.rest)) + reach
        far = math.ceil(_NEAR * reach)
        values = np.append(values, np.full(max(0, size + far + 2 - values.size), values[-1]))
        bends = _bends(values, self.step, far, size)
        near = bends[:, far - reach : far + reach + 1]
        logs = np.log(near + _LEAST * near.max(axis=1, keepdims=True) + 1e-300)
        places = _places(logs, more * _SPREAD)
        some = np.exp(logs[places]) @ _ramps(self.step, reach)
        work = int(_WORK * min(_LITTLE + 6 * share, 1.0))
        largest = np.log(largest_means(self._kind, self._rate, some, self.step, share=more * _BOUND, work=work))
        asked = _between(logs, places, largest)
        # every b is off by a few units of V in its slopes, and what it is multiplied by is at most the largest loss
        whole = _whole(values, self.step, reach + 1)[:size]
        asked += 64 * _UNIT_ROUNDOFF * (2 * far + 1) * whole * min(self.step * reach, 1.0) / math.expm1(self.step)
        asked = asked * (1 + _LEAST_MARGIN) - self.rest
        means: Array = bends @ _ramps(self.step, far)
        losses: Array = self.step * np.arange(1, far + 1, dtype=np.float64)
        means = means[:, far + 1 :] + np.exp(losses) * means[:, far - 1 :: -1]
        needed = asked > 0
        means = means[needed] / asked[needed, None]
        margin = _MARGIN
        for _ in range(_TRIES):
            masses = _program(means, losses, self.order, margin)
            if masses is None:
                return None
            # the program's bends are off by a few units, too, so what D is worth is seen from V itself
            lacking = float(1 - (_worth(values, self.step, losses, masses, size)[needed] / asked[needed]).min())
            if lacking <= 0:
                return losses[masses > 0], masses[masses > 0]
            margin += 2 * lacking
        return None

    def after(self, values: Array, losses: Array, in_q: Array, count: int) -> Array:
        """V with ``count`` times D, without what is cut off."""
        places = np.rint(losses / self.step).astype(int)
        reach = int(places[-1])
        in_p = np.zeros(2 * reach + 1)
        in_p[reach + places], in_p[reach - places] = np.exp(losses) * in_q, in_q
        in_p[reach] = max(0.0, 1 - float(in_p.sum()))
        for _ in range(count):
            values = np.append(values[: int(np.searchsorted(-values, 0.0)) + 1], np.zeros(2 * reach + 1))
            sums = np.convolve(_whole(values, self.step, reach), in_p, mode="valid")
            values = np.maximum(sums * _OUTWARD - _FAINT * self.rest, 0.0)
        return _convex(self.step, values)


@lru_cache(maxsize=16)
def stages(kind: Kind, rate: float, count: int, delta: float) -> Stages | None:
    """V and D for ``count`` steps and a total δ of about ``delta``; None where a program has no answer."""
    steps = _Steps(kind, rate, count, delta)
    values, played, found = steps.first(), 1, None
    while True:
        is_last = 2 * played > (1 - _LAST) * count or played >= _MOST_PLAYED or values.size > _MOST_POINTS
        pair = steps.pair(values, (count - played if is_last else played) / count)
        if pair is None:
            return found
        found = Stages(steps.step, values, played, *pair, (1 + _FAINT) * steps.rest)
        if is_last:
            return found
        # the first of very many matter little
        more = 3 * played if _FIRST * played <= count else played
        values, played = steps.after(values, *pair, more), played + more


def _stages(pair: LastMaxima | EarlierMaxima) -> Stages:
    found = stages(pair.kind, pair.rate, pair.count, pair.tail)
    if found is None:
        raise ArithmeticError(f"there is no pair for {pair!r}")
    return found


@dataclass(frozen=True)
class LastMaxima(Batches):
    """The last of ``count`` batches of noisy maxima of a ``kind``; ``tail`` is about the δ of the total."""

    kind: Kind
    rate: float
    count: int
    tail: float

    def played(self) -> int:
        """How many they are; 0 where nothing is known."""
        found = stages(self.kind, self.rate, self.count, self.tail)
        return 0 if found is None else found.count

    def _curve(self) -> tuple[Array, Array]:
        found = _stages(self)
        x = found.step * np.arange(found.values.size, dtype=np.float64)
        return x, found.values + found.count * found.rest


@dataclass(frozen=True)
class EarlierMaxima(Atoms, Symmetric):
    """One of the others, where those are composed, too."""

    kind: Kind
    rate: float
    count: int
    tail: float

    def _atoms(self) -> tuple[Array, Array, Array, float]:
        found = _stages(self)
        more = np.exp(found.losses) * found.in_q
        even = np.array([max(0.0, 1 - float(more.sum() + found.in_q.sum()))])
        p = np.concatenate([found.in_q[::-1], even, more])
        return np.concatenate([-found.losses[::-1], [0.0], found.losses]), p, p[::-1], found.rest

    def delta(self, epsilon: float) -> float:
        losses, p, _, beyond = self._atoms()
        return min(1.0, beyond + delta_of_atoms(epsilon, losses, p))
