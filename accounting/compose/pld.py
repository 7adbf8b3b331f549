"""The privacy loss distribution: the tightest total of many releases, discretised so that it never falls short.

Each description has a dominating pair (:mod:`accounting.loss.pair`); the losses of all are added on a grid
(:mod:`accounting.compose.convolution`, which also has the proofs). A single release is priced by its closed form,
without a grid.

Tilt, window and grid are first chosen by the Rényi curve, as it is the saddle point that counts. Where rare losses are
large (a strong release on a small sample) that curve is orders above the truth and says little about ε; so the choice
is made anew from the ε and δ that were found, until it no longer matters. Every intermediate answer is a proved bound,
and the least one counts; so are those of theorems on releases that follow each other
(:mod:`accounting.compose.tightenings`).

**δ is the inverse of ε.** A total has one privacy profile: for every level of δ, a power of two, the sums that were
composed to find ε there (:class:`_Profile`). ε at δ is read off the sums of δ's level, and δ at ε off the sums of the
level where δ turns out to be (:func:`_descend`). So ``delta(release, epsilon(release, δ))`` is at most δ, but for
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar

from accounting.compose.convolution import (
    BEYOND_USE,
    MOST_NODES,
    NEGLIGIBLE,
    USUAL_NODES,
    Convolution,
    Parts,
    Sum,
    Window,
    log_finite,
    smallest,
)
from accounting.compose.pairs import alternatives
from accounting.compose.tightenings import InPlace, answer, in_place
from accounting.conversions import best_delta, best_order_for_delta, best_order_for_epsilon, log_target
from accounting.errors import UnsupportedRelease
from accounting.loss.concentrated import ConcentratedPair
from accounting.loss.concentrated_curve import zcdp_epsilon
from accounting.loss.pair import LossPair
from accounting.loss.sampled import SubsampledPair
from accounting.loss.swapped import SwappedGaussianPair
from accounting.releases.base import Composed, Release

__all__ = [
    "answers",
    "check",
    "delta",
    "delta_of",
    "epsilon",
    "epsilon_of",
    "is_enough",
    "is_quick",
    "largest_below",
    "lower_epsilon",
    "lower_epsilon_of",
    "rough_epsilon_of",
]

_T = TypeVar("_T")

_QUICK_PARTS = 128
# What the grid, or rounding errors and cuts, may add to ε, as a share of it, before another tilt and grid are tried.
_SHARE = 2e-5
_ROUNDS = 6
# Lower and upper bound closer than this are left as they are.
_NARROW = 1e-3
# The share of the sum of all largest losses up to which the grid is as good as any closed form.
_NOT_NEAR = 0.95
# Closed forms are right to this share of δ.
_CLOSED_FORM = 1e-7
# The smallest δ that has a level of its own; and how near to the lower end of a level, as a share, the next one counts.
_LEAST, _NEAR = 1e-300, 1.1


def check(release: Release) -> None:
    """Raise :class:`UnsupportedRelease` if a part of the description has no known pair."""
    alternatives(release)


def is_quick(release: Release) -> bool:
    """Whether the total takes a fraction of a second: few branches, not too many different parts."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    if len(parts) > 4 * _QUICK_PARTS:
        return False
    try:
        found = alternatives(release)
    except UnsupportedRelease:
        return False
    return len(found) <= 4 and all(len(parts) <= _QUICK_PARTS for parts in found)


def is_enough(release: Release, epsilon: float) -> bool:
    """Whether no other accountant can say less than the ``epsilon`` that this one found, but for the grid.

    That is so for a sum of pairs that are its own, unless ε is near the sum of all the largest losses, or beyond use.
    """
    if epsilon >= BEYOND_USE / 100:
        return False
    found = alternatives(release)
    if not all(_alone(parts) is None and all(pair.exact for pair, _ in parts) for parts in found):
        return False
    return epsilon < _NOT_NEAR * max(sum(n * _largest(pair) for pair, n in parts) for parts in found)


def _largest(pair: LossPair) -> float:
    """About the largest loss in either direction, which is that of a unit that is present."""
    return (replace(pair, present=True) if isinstance(pair, SubsampledPair) else pair).highest(-700.0)


def epsilon(release: Release, delta: float) -> float:
    """ε at ``delta``, rounded up."""
    return epsilon_of(alternatives(release), delta)


def epsilon_of(found: Iterable[Parts], delta: float) -> float:
    """ε at ``delta`` of the worst of some alternatives, rounded up."""
    log_target(delta)
    most = 0.0
    for parts in found:
        one = _epsilon(parts, delta, most)
        for found_by in in_place(parts) if _follow(parts) else ():
            if one > most and (others := found_by(parts, _level(delta))):
                one = min(one, _epsilon(others, delta, most))
        if _follow(parts) and one > most:
            # next to the sum of all the largest losses δ falls to 0 within the rounding errors of ε
            top = sum(n * _largest(pair) for pair, n in parts)
            one = max(one, top * (1 + 1e-12)) if one > (1 - 1e-9) * top else one
        most = max(most, one)
    return most


def delta(release: Release, epsilon: float) -> float:
    """δ at ``epsilon``, rounded up."""
    return delta_of(alternatives(release), epsilon)


def delta_of(found: Iterable[Parts], epsilon: float) -> float:
    """δ at ``epsilon`` ≥ 0 of the worst of some alternatives, rounded up."""
    most = 0.0
    for parts in found:
        one = _delta(parts, epsilon, most)
        for found_by in in_place(parts) if _follow(parts) else ():
            if one > most:
                one = _descend(partial(_in_place, found_by, parts, epsilon, most), 0.0, one, one)
        most = max(most, one)
    return most


def _in_place(found_by: InPlace, parts: Parts, epsilon: float, enough: float, level: float) -> float:
    """δ by what may stand in place of some parts for a δ of that level; 1 if nothing may."""
    others = found_by(parts, level)
    return _delta(others, epsilon, enough) if others else 1.0


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε at ``delta`` of the dominating pairs of ``release``."""
    return lower_epsilon_of(alternatives(release), delta)


def lower_epsilon_of(found: Iterable[Parts], delta: float) -> float:
    """The same of the worst of some alternatives."""
    return largest_below(found, partial(_rough_epsilon, delta=delta), partial(_lower_epsilon, delta=delta))


def rough_epsilon_of(found: Iterable[Parts], delta: float) -> float:
    """ε of the worst of some alternatives from above, by a single sum for each; ∞ where it is found without one."""
    return max((_rough_epsilon(parts, delta) for parts in found), default=0.0)


def largest_below(
    some: Iterable[_T], above: Callable[[_T], float], below: Callable[[_T], float], most: float = 0.0
) -> float:
    """The largest lower value of ``some``, or ``most`` if that is larger.

    Those come first whose upper values are the largest. The others are left out where what was found is as near to
    their upper values as lower ends need to be.
    """
    ranked = [(math.inf, one) for one in some]
    if len(ranked) > 1 or most > 0:
        ranked = sorted(((above(one), one) for _, one in ranked), key=lambda pair: -pair[0])
    for upper, one in ranked:
        if most >= (1 - _NARROW) * upper:
            break
        most = max(most, below(one))
    return most


# ------------------------------------------------------------------------------------------------- single releases


def _alone(parts: Parts) -> LossPair | None:
    (pair, count), *more = parts
    return pair if count == 1 and not more else None


def _top(alone: LossPair, delta: float) -> float:
    """An ε at which δ is certainly met."""
    from accounting.loss.shuffled import ShuffledPair

    # where their tail begins takes longer to find than the answer
    return alone.local_epsilon if isinstance(alone, ShuffledPair) else alone.highest(math.log(delta))


def _follow(parts: Parts) -> bool:
    """Whether theorems on releases that follow each other may say more."""
    return any(pair.follows for pair, _ in parts)


def _inverse(to_delta: Callable[[float], float], delta: float, high: float) -> float:
    """The smallest ε with ``to_delta(ε) ≤ delta``, rounded up; ``high`` is large enough."""
    if to_delta(0.0) <= delta:
        return 0.0
    return high if to_delta(high) > delta else smallest(to_delta, delta, 0.0, high)


# -------------------------------------------------------------------------------------------------- composed ones


@dataclass(frozen=True)
class _Answer:
    """ε from above, and the sum that it was read off."""

    value: float
    losses: Convolution
    window: Window
    total: Sum


@dataclass(frozen=True)
class _Profile:
    """δ as a function of ε, from above, near one level of δ: what some sums of the same losses say together.

    Attributes
    ----------
    delta : float
        For which the sums were composed.
    answers : list of _Answer
        With ε at that δ.
    """

    delta: float
    answers: list[_Answer]

    def epsilon_at(self, delta: float) -> float:
        found = min(answer.total.epsilon(delta) for answer in self.answers)
        return min(found, self._reach) if self._cut_off <= delta else found

    def delta_at(self, epsilon: float) -> float:
        found = min(answer.total.delta(epsilon) for answer in self.answers)
        return min(found, self._cut_off) if epsilon >= self._reach else found

    @property
    def _reach(self) -> float:
        """No sum is larger than all the largest losses together, but for what was cut off."""
        return self.answers[0].losses.reach * (1 + 1e-12)

    @property
    def _cut_off(self) -> float:
        return self.answers[0].losses.cut_off

    @property
    def best(self) -> _Answer:
        return min(self.answers, key=lambda answer: answer.value)


def _level(delta: float) -> float:
    """The largest power of two up to δ, at most ½; below 1e-300 there is but one level."""
    return min(0.5, math.ldexp(0.5, math.frexp(max(delta, _LEAST))[1]))


def _infinite(parts: Parts) -> float:
    """The probability that some loss is infinite: of every δ, this is what no ε takes away."""
    return -math.expm1(math.fsum(count * log_finite(pair.infinite) for pair, count in parts))


def _epsilon(parts: Parts, delta: float, enough: float) -> float:
    """ε of one alternative; 0 if it is certainly at most ``enough``."""
    alone = _alone(parts)
    if isinstance(alone, ConcentratedPair):
        return zcdp_epsilon(alone.rho, delta)
    if alone is not None:
        return _inverse(alone.delta, delta, _top(alone, delta)) if alone.infinite < delta else math.inf

    def of_sum() -> float:
        losses = Convolution(parts, math.log(delta) + math.log(NEGLIGIBLE))
        if losses.cut_off <= delta and losses.reach * (1 + 1e-12) <= enough:
            return 0.0
        left = delta - _infinite(parts)
        return _profile(parts, _level(left)).epsilon_at(delta) if left > 0 else math.inf

    return answer("epsilon", parts, delta, of_sum, enough) if _follow(parts) else of_sum()


def answers(parts: Parts, deltas: Iterable[float]) -> list[tuple[float, Sum]]:
    """ε at some ``deltas``, and the sums that it was read off, whose δ is a bound at any ε."""
    found = (_profile(parts, delta).best for delta in deltas)
    return [(answer.value, answer.total) for answer in found]


@lru_cache(maxsize=4)  # what is asked from above is asked again from below, of two directions at most
def _profile(parts: Parts, level: float) -> _Profile:
    """The sums for δ near a ``level`` above what is infinite."""
    log_level, delta = math.log(level), _infinite(parts) + level
    answers, tried = [_first(parts, level)], None
    losses, tilt, wanted, direct = answers[0].losses, answers[0].window.tilt, None, False
    for _ in range(_ROUNDS - 1):
        last = answers[-1]
        if not math.isfinite(last.value):
            tilt /= 4
        else:
            usable = 0 < last.value < BEYOND_USE
            improved = _improved(losses, last.window, last.total, last.value, last.value) if usable else None
            if improved is None or improved == tried:
                break
            tilt, wanted, direct = tried = improved
        window = losses.untilted_window(log_level) if direct else losses.window(tilt, log_level)
        step = losses.step(window, wanted)
        if (window, step) == (last.window, last.total.step):
            break  # there are no more nodes
        answers.append(_answer(losses, delta, window, step))
    return _Profile(delta, answers)


@lru_cache(maxsize=4)
def _first(parts: Parts, level: float) -> _Answer:
    """The first of these sums, by the tilt that the Rényi curve says."""
    log_level, delta = math.log(level), _infinite(parts) + level
    losses = Convolution(parts, log_level + math.log(NEGLIGIBLE))
    window = losses.window(best_order_for_epsilon(losses.divergence, min(delta, 0.5)), log_level)
    return _answer(losses, delta, window, losses.step(window, None))


def _answer(losses: Convolution, delta: float, window: Window, step: float) -> _Answer:
    total = losses.compose(window, step)
    found = min(total.epsilon(delta), losses.reach * (1 + 1e-12) if losses.cut_off <= delta else math.inf)
    return _Answer(found, losses, window, total)


def _descend(at_level: Callable[[float], float], least: float, about: float, best: float = 1.0) -> float:
    """δ by the profile of the level where it turns out to be, from ``about`` δ on; of δ, ``least`` is infinite.

    ``best`` is a bound that is known. Next to the lower end of a level the one below is asked, too: δ may be a rounding
    error beyond it.
    """
    level, asked = _level(about - least), set[float]()
    while level not in asked:
        asked.add(level)
        best = min(best, at_level(level))
        level = _level(best - least)
        if level in asked and best - least < _NEAR * level:
            level /= 2
    return best


def _delta(parts: Parts, epsilon: float, enough: float) -> float:
    """δ of one alternative; or one that is at most ``enough``."""
    alone = _alone(parts)
    if alone is not None:
        return min(1.0, alone.delta(epsilon))

    def of_sum() -> float:
        return _delta_of_sum(parts, epsilon)

    return answer("delta", parts, epsilon, of_sum, enough) if _follow(parts) else of_sum()


def _delta_of_sum(parts: Parts, epsilon: float) -> float:
    losses = Convolution(parts, -700.0)
    if epsilon >= losses.reach * (1 + 1e-12):
        return losses.cut_off
    infinite = _infinite(parts)
    if infinite == 1.0:  # there are no finite losses
        return 1.0
    # what the Rényi curve says of the finite losses is where to begin, and no bound
    about = min(1.0, infinite + best_delta(losses.divergence, epsilon))
    return _descend(lambda level: _profile(parts, level).delta_at(epsilon), infinite, about)


def _improved(
    losses: Convolution, window: Window, total: Sum, epsilon: float, scale: float
) -> tuple[float, float | None, bool] | None:
    """A better tilt and grid for a point near ``epsilon``, and whether to convolve directly.

    None where it matters little, on the ``scale`` of ε.
    """
    if epsilon <= float(total.losses[0]) * (1 + 1e-9):
        # the window is above ε, where nothing is known
        nearer = best_order_for_delta(losses.divergence, epsilon)
        return min(nearer, total.tilt / 4), None, window.direct
    allowed = 10 * _SHARE * scale * total.slope(epsilon)
    grid = total.grid_error(epsilon) / (_SHARE * scale)
    tilt, direct = total.tilt, window.direct
    if total.doubt(epsilon) > allowed and not direct:
        nearer = best_order_for_delta(losses.divergence, epsilon)
        if nearer < 0.9 * tilt:
            tilt = nearer
        elif total.wraps(epsilon) > allowed / 2:
            tilt /= 8
        else:
            return tilt, None, True
    if tilt == total.tilt and (grid <= 1 or total.losses.size >= MOST_NODES / 2):
        return None
    step = 0.5 * total.step / math.sqrt(max(grid, 1e-4))
    # an ε that was found with a wrong tilt says little about the grid that is needed
    return tilt, step if tilt == total.tilt else max(step, total.length / USUAL_NODES), direct


# --------------------------------------------------------------------------------------------------- from below


def _lower_epsilon(parts: Parts, delta: float) -> float:
    from accounting.loss.replaced_noise import TrianglePair

    alone = _alone(parts)
    if alone is not None and not isinstance(alone, (SwappedGaussianPair, TrianglePair)):
        high = _top(alone, delta)
        found = _inverse(lambda at: alone.delta(at) * (1 - _CLOSED_FORM), delta, high) * (1 - 1e-12)
        # the inverse may end at the highest loss, where nothing is known
        return found if alone.delta(found) * (1 - _CLOSED_FORM) >= delta * (1 - 1e-9) else 0.0
    left = delta - _infinite(parts)
    if left <= 0:
        return 0.0
    profile = _profile(parts, _level(left))
    upper = profile.epsilon_at(delta)
    if not 0 < upper < math.inf:
        return 0.0
    # a direct convolution has fewer nodes: where a transform says nearly as much, its grid can be made the finer
    direct, transformed = ([a for a in profile.answers if a.window.direct is kind] for kind in (True, False))
    best = 0.0
    for answers in (transformed, direct):
        if answers and best <= (1 - _NARROW) * upper:
            start = min(answers, key=lambda answer: answer.value)
            best = max(best, _lower_from(start, upper, delta))
    return best


def _rough_epsilon(parts: Parts, delta: float) -> float:
    if _alone(parts) is not None:
        return math.inf
    left = delta - _infinite(parts)
    return _first(parts, _level(left)).total.epsilon(delta) if left > 0 else 0.0


def _lower_from(start: _Answer, upper: float, delta: float) -> float:
    """A lower bound on ε, by ever finer grids from that of an answer on."""
    best, losses, window, above = 0.0, start.losses, start.window, start.total
    finer = False
    for _ in range(_ROUNDS - 1):
        below, before = losses.compose(window, above.step, lower=True), best
        best = max(best, _largest_that_fails(below, above, upper, delta))
        if best > (1 - _NARROW) * upper:
            break
        # a finer grid that gains next to nothing was not what was missing
        in_vain = finer and best - before < 0.1 * (upper - best)
        step: float | None = above.step / 4
        near = (1 - _NARROW) * upper
        allowed = _NARROW * near * above.slope(near)
        finer = window.direct or not (in_vain or above.doubt(near) > allowed)
        if not finer:
            if above.wraps(near) > allowed / 2:
                window, step = losses.window(above.tilt / 2, math.log(delta)), above.step
            else:
                window, step = losses.untilted_window(math.log(delta)), None
        step = losses.step(window, step)
        if step == above.step and window.tilt == above.tilt:
            break
        above = losses.compose(window, step)
    return best


def _largest_that_fails(below: Sum, above: Sum, epsilon: float, delta: float) -> float:
    """About the largest ε at which δ is certainly not met."""

    def fails(at: float) -> bool:
        return below.delta_at_least(at, above, delta) >= delta

    good, bad, gap = 0.0, epsilon, 1e-5
    while gap < 1:
        if fails((1 - gap) * epsilon):
            good = (1 - gap) * epsilon
            break
        bad, gap = (1 - gap) * epsilon, 3 * gap
    for _ in range(4):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if fails(middle) else (good, middle)
    return good
