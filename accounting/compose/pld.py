"""The privacy loss distribution: the tightest total of many releases, discretised so that it never falls short.

Each description has a dominating pair (:mod:`accounting.loss.pair`); the losses of all are added on a grid
(:mod:`accounting.compose.convolution`, which also has the proofs). A single release is priced by its closed form,
without a grid.

Tilt, window and grid are first chosen by the Rényi curve, as it is the saddle point that counts. Where rare losses are
large (a strong release on a small sample) that curve is orders above the truth and says little about ε; so the choice
is made anew from the ε and δ that were found, until it no longer matters. Every intermediate answer is a proved bound,
and the least one counts; so are those of theorems on releases that follow each other
(:mod:`accounting.compose.tightenings`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from accounting.compose.convolution import (
    BEYOND_USE,
    MOST_NODES,
    NEGLIGIBLE,
    USUAL_NODES,
    Convolution,
    Parts,
    Sum,
    Window,
    smallest,
)
from accounting.compose.pairs import alternatives
from accounting.compose.tightenings import answer, in_place
from accounting.errors import UnsupportedRelease
from accounting.loss.concentrated import ConcentratedPair
from accounting.loss.concentrated_curve import zcdp_epsilon
from accounting.loss.pair import LossPair
from accounting.loss.sampled import SubsampledPair
from accounting.loss.swapped import SwappedGaussianPair
from accounting.notions.conversions import best_order_for_delta, best_order_for_epsilon, log_target
from accounting.releases.base import Composed, Release

__all__ = ["answers", "check", "delta", "delta_of", "epsilon", "epsilon_of", "is_enough", "is_quick", "lower_epsilon"]

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
            if one > most and (others := found_by(parts, delta)):
                one = min(one, _epsilon(others, delta, most))
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
        for found_by in in_place(parts, twice=True) if _follow(parts) else ():
            if one > most and (others := found_by(parts, one)):
                one = min(one, _delta(others, epsilon, most))
        most = max(most, one)
    return most


def lower_epsilon(release: Release, delta: float) -> float:
    """A proved lower bound on the ε at ``delta`` of the dominating pairs of ``release``."""
    return max((_lower_epsilon(parts, delta) for parts in alternatives(release)), default=0.0)


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
    """ε or δ from above, and the sum that it was read off."""

    value: float
    losses: Convolution
    window: Window
    total: Sum


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
        return _epsilon_of_sum(parts, delta).value

    return answer("epsilon", parts, delta, of_sum, enough) if _follow(parts) else of_sum()


def answers(parts: Parts, deltas: Iterable[float]) -> list[tuple[float, Sum]]:
    """ε at some ``deltas``, and the sums that it was read off, whose δ is a bound at any ε."""
    found = (_epsilon_of_sum(parts, delta) for delta in deltas)
    return [(answer.value, answer.total) for answer in found]


@lru_cache(maxsize=2)  # what is asked from above is asked again from below, of two directions at most
def _epsilon_of_sum(parts: Parts, delta: float) -> _Answer:
    log_delta = math.log(delta)
    losses = Convolution(parts, log_delta + math.log(NEGLIGIBLE))
    tilt, step, direct = best_order_for_epsilon(losses.divergence, delta), None, False
    answers = []
    for _ in range(_ROUNDS):
        window = losses.untilted_window(log_delta) if direct else losses.window(tilt, log_delta)
        total = losses.compose(window, losses.step(window, step))
        # no sum is larger than all the largest losses together, but for what was cut off
        found = min(total.epsilon(delta), losses.reach * (1 + 1e-12) if losses.cut_off <= delta else math.inf)
        answers.append(_Answer(found, losses, window, total))
        if not math.isfinite(found):
            tilt /= 4
            continue
        improved = _improved(losses, window, total, found, found) if 0 < found < BEYOND_USE else None
        if improved is None:
            break
        tilt, step, direct = improved
    return min(answers, key=lambda answer: answer.value)


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
    tilt, step, best, direct = best_order_for_delta(losses.divergence, epsilon), None, 1.0, False
    # the Rényi bound on ln δ, and some room for how far below it the truth may be
    log_level = min(0.0, tilt * (float(losses.divergence(np.array([1 + tilt]))[0]) - epsilon)) - 10.0
    for _ in range(_ROUNDS):
        log_level = max(log_level, -690.0)
        losses = Convolution(parts, log_level + math.log(NEGLIGIBLE))
        window = losses.untilted_window(log_level) if direct else losses.window(tilt, log_level)
        total = losses.compose(window, losses.step(window, step))
        found = total.delta(epsilon)
        best = min(best, found)
        if found <= 1e-300:
            break
        log_level = min(log_level, math.log(found))
        scale = max(epsilon, found / max(total.slope(epsilon), found))
        improved = _improved(losses, window, total, epsilon, scale)
        if improved is None:
            break
        tilt, step, direct = improved
    return best


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
    answer = _epsilon_of_sum(parts, delta)
    if not 0 < answer.value < math.inf:
        return 0.0
    best, losses, window, above = 0.0, answer.losses, answer.window, answer.total
    for _ in range(_ROUNDS - 1):
        below = losses.compose(window, above.step, lower=True)
        best = max(best, _largest_that_fails(below, above, answer.value, delta))
        if best > (1 - _NARROW) * answer.value:
            break
        step: float | None = above.step / 4
        near = (1 - _NARROW) * answer.value
        allowed = _NARROW * near * above.slope(near)
        if not window.direct and above.doubt(near) > allowed:
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
