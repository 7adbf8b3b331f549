"""Report noisy max: the index of the candidate with the best noisy score, and nothing else.

For anyone who picks one of many candidates (a model, a split, a query) by a score of bounded sensitivity.

With weights w_i = ε·s_i/(2Δ), the winner is the largest w_i + noise_i:

* ``"gumbel"``: the exponential mechanism (McSherry & Talwar 2007), P(i) ∝ exp(w_i); its privacy loss has range ε
  (Cesar & Rogers 2021), which composes better than pure ε-DP.
* ``"exponential"``: permute-and-flip (McKenna & Sheldon 2020; Ding et al. 2021), whose error is never larger.
* ``"laplace"``: the classical mechanism (Dwork & Roth 2014, claim 3.9).

Privacy. Δ is the largest |s_i(D) − s_i(D′)| over candidates and neighbouring D, D′. The index is ε-DP. If moreover all
scores move in the same direction between any two neighbours (``monotone``), w_i = ε·s_i/Δ gives the same ε.

The winner is sampled exactly, with the law of real-valued noise on the scores as given: ``dpkit.samplers.noisy_order``
compares in double precision where its margin proves the answer, and with as many random bits and digits as it takes
where it does not (one run in a thousand). Cost: one random number and one or two logarithms per score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, NoisyMax
from accounting.checks import positive
from dpkit import randomness
from dpkit.clipping import real_array
from dpkit.mechanisms._checked import charge
from dpkit.samplers._filtered import BLOCK
from dpkit.samplers.noisy_order import FEW, Noise, NoisyOrder, largest_of_few

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["report_noisy_max"]

Blocks = Callable[[], Iterable[ArrayLike]]


def report_noisy_max(
    scores: ArrayLike | Blocks,
    sensitivity: float,
    epsilon: float,
    noise: Noise = "gumbel",
    *,
    monotone: bool = False,
    minimise: bool = False,
    adjacency: Adjacency = "replace",
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> int:
    """The index of the largest (or smallest) noisy score.

    Parameters
    ----------
    scores : array_like of float, shape (n,), or callable
        ``-inf`` (``inf`` when minimising) marks a candidate that is never chosen unless all are so marked; which ones
        are must not depend on private data. A callable returns the scores as an iterable of 1-d blocks; it is called
        twice, to check them and to choose, and must return the same scores.
    sensitivity : float
        Δ > 0, of every single score.
    epsilon : float
        ε > 0, the cost.
    noise : {"gumbel", "exponential", "laplace"}
        See the module's text.
    monotone : bool
        All scores move in the same direction between any two neighbours: half the noise.
    minimise : bool
        Choose the smallest score.
    adjacency : {"replace", "add_remove", "zero_out"}
        The neighbouring relation under which ``sensitivity`` holds.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        The cost is recorded in it, or refused by it, before any noise is drawn.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        If there are no scores, one is NaN or infinite in the preferred direction, or a parameter is out of range.
    BudgetExceeded
        If the ledger's budget does not cover the release.

    Notes
    -----
    Guarantees, each with a test of the same name:

    * noisy_max_follows_the_exponential_mechanism.
    * noisy_max_follows_permute_and_flip.
    * noisy_max_costs_epsilon: the ratio of each winner's probabilities on neighbouring scores.
    * noisy_max_refuses_before_it_draws.

    Examples
    --------
    >>> from dpkit.mechanisms import report_noisy_max
    >>> report_noisy_max([0.0, 1e6, -float("inf")], sensitivity=1.0, epsilon=1.0)
    1
    >>> report_noisy_max([0.0, 1e6, float("inf")], sensitivity=1.0, epsilon=1.0, minimise=True)
    0
    """
    cost = NoisyMax(positive("epsilon", epsilon), noise, adjacency=adjacency)
    span = positive("sensitivity", sensitivity) * (1 if monotone else 2)
    rate = float(epsilon) / span
    if not 1e-300 < rate < 1e300:
        raise ValueError(f"epsilon/sensitivity must lie in (1e-300, 1e300), got {epsilon!r}/{sensitivity!r}")
    source = randomness.resolve(rng)
    few = None if callable(scores) else _few(scores, minimise)
    best, count = (_best_of_few(few, minimise), len(few)) if few else _best_score(scores, minimise)
    charge(ledger, cost, f"report noisy max ({noise} noise)", source)

    def exact(score: float) -> Fraction:
        # all scores −inf: all candidates are equal
        gap = Fraction(score) - Fraction(best) if best > -math.inf else Fraction(0)
        return gap * Fraction(float(epsilon)) / Fraction(span)

    if few:
        weights = [(score - best) * rate for score in few] if best > -math.inf else [0.0] * count
        return largest_of_few(weights, lambda i: exact(few[i]), noise, source)
    order = NoisyOrder(noise, source)
    for block in _blocks(scores, minimise):
        gaps = block - best if best > -math.inf else np.zeros(block.size)
        if not gaps.max() <= 0:
            raise ValueError("scores must be the same each time they are asked for, got a larger one the second time")
        with np.errstate(over="ignore"):  # a weight beyond the floats is as good as −inf
            gaps *= rate
        order.add(gaps, lambda i, block=block: exact(float(block[i])))  # type: ignore[misc]
    if order.count != count:
        raise ValueError(f"scores must be the same each time they are asked for, got {count} and then {order.count}")
    return order.largest()[0]


def _few(scores: ArrayLike, minimise: bool) -> list[float] | None:
    """The scores to maximise, if they are few."""
    values = real_array("scores", scores, finite=False)
    if values.ndim != 1 or values.size > FEW:
        return None
    return [-score for score in values.tolist()] if minimise else values.tolist()


def _best_of_few(scores: list[float], minimise: bool) -> float:
    """The largest score, checked as :func:`_best_score` does."""
    if any(map(math.isnan, scores)):
        raise ValueError("scores must be numbers, got NaN")
    top, bottom = max(scores), min(scores)
    if bottom == -math.inf:
        bottom = min((score for score in scores if score > -math.inf), default=0.0)
    _check_range(top, bottom, minimise)
    return top


def _check_range(top: float, bottom: float, minimise: bool) -> None:
    if max(top, -bottom) > 1e300:
        side = "below" if minimise else "above"
        raise ValueError(f"scores must not be infinite {side} or beyond 1e300 in size, got such a score")


def _blocks(scores: ArrayLike | Blocks, minimise: bool) -> Iterator[NDArray[np.float64]]:
    """The scores to maximise, checked, in blocks of at most ``BLOCK``."""
    for part in scores() if callable(scores) else (scores,):
        values = real_array("scores", part, finite=False)
        if values.ndim != 1:
            raise ValueError(f"scores must be one-dimensional, got scores.shape={values.shape}")
        for start in range(0, values.size, BLOCK):
            block = values[start : start + BLOCK]
            yield -block if minimise else block


def _best_score(scores: ArrayLike | Blocks, minimise: bool) -> tuple[float, int]:
    """The largest score to maximise and the number of scores; refuses NaN, a preferred infinity, overflow and none."""
    tops, count = [], 0
    for block in _blocks(scores, minimise):
        top, bottom = float(block.max()), float(block.min())
        if math.isnan(top):
            raise ValueError("scores must be numbers, got NaN")
        if bottom == -math.inf:
            bottom = float(block.min(initial=0.0, where=block > -math.inf))
        _check_range(top, bottom, minimise)
        tops.append(top)
        count += block.size
    if not tops:
        raise ValueError("scores must hold at least one candidate, got none")
    return max(tops), count
