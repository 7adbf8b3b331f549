"""Does a log hold what a target does? Where it does, the weights w = π/p have mean 1; estimates rest on that.

Given everything before a row's choice, E[w] = Σ_{a: p(a) > 0} π(a): the share of the target's probability that the
logging policy can play at all. Where that is below 1, what is missing was never logged, and no reweighting brings it
back: ``ips`` counts it as 0, ``snips`` as if it paid what the rest pays. Two checks, neither of which needs a model of
the rewards, or choices that do not depend on earlier ones:

* Exact. In a row that was logged with probability 1 nothing else could be chosen, so that 1 − π(chosen) is missing for
  certain. (Where all 1/p are whole numbers that mostly differ they may be draws with mean 1/p, as policies log them
  beyond 1,000 arms, and a 1 says nothing; such a log is left to the other check.)
* By the mean, with a hundredth left to probabilities that were rounded. For 0 ≤ λ ≤ 1/(B − 0.99) and weights that
  cannot exceed B, Π(1 + λ(0.99 − w)) is nonnegative, and a supermartingale where E[w] ≥ 0.99: by Ville's inequality it
  is 1/α or more with probability α at most, for any number of rows, without any normal law (Waudby-Smith & Ramdas
  2024, "Estimating means of bounded random variables by betting"). The same holds of a mean over several λ. α = 10⁻⁶,
  and B is the largest weight in the log, or 2, so that fewer than 20 rows never suffice. No test can do without a B:
  larger weights that have not occurred might make up for what is missing. Then the log does not hold that part of the
  target either, and the estimate is as wrong. Upwards, for a mean that is too large for probabilities,
  Π(1 + λ(w − 1.01)) with λ ≤ 1/1.01 needs no bound: α holds always.

Rows of one person count as one bet on their sum, so that they may depend on each other.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from accounting.arrays import Array

__all__ = ["Support", "supported", "warned", "without_chance"]

# the false alarm rate of each check by the mean
_ALARM = 1e-6
# shares of the largest λ
_SCALES = 0.5 ** np.arange(12)
# of the target's probability, from which missing parts are told of
_TOLD = 1e-3
# how far from 1 the mean may be by probabilities that were rounded
_ROUNDED = 0.01

REMEDY = (
    'Log with exploration (the option exploration="inverse_gap" of a policy, or a share of choices at random), or '
    "compare only targets that are near the log's own policy"
)


@dataclass(frozen=True)
class Support:
    """How much of a target a log holds.

    Attributes
    ----------
    share : float
        The mean of the weights π/p: 1 but for sampling error, where the log holds all that the target does.
    share_error : float
        Its standard error.
    certain : float
        The share of the target's probability that is missing for certain: rows with logged probability 1 in which the
        target may choose something else.
    verdict : {"held", "missing", "excess"}
        ``missing``: the log does not hold all that the target does. ``excess``: the weights add up to more than
        probabilities can.
    """

    share: float = 1.0
    share_error: float = 0.0
    certain: float = 0.0
    verdict: Literal["held", "missing", "excess"] = "held"

    @property
    def lost(self) -> float:
        """How much of the target's probability the log lacks, as far as it can be told; 0 where nothing is missing."""
        return min(1.0, max(self.certain, 1.0 - self.share)) if self.verdict == "missing" else 0.0

    def lost_at_most(self, errors: float) -> float:
        """The same, with so many standard errors of the mean of the weights added."""
        return min(1.0, self.lost + errors * self.share_error) if self.verdict == "missing" else 0.0

    def __str__(self) -> str:
        if self.verdict == "held":
            return ""
        mean = f"the mean of the weights π/p is {self.share:.3g} ± {self.share_error:.1g} and must be 1"
        if self.verdict == "excess":
            return (
                f"the log contradicts this target: {mean}. The probabilities are not those of the choices, or the "
                "target's do not add up to 1 among what there was to choose from"
            )
        sure = f", {_percent(self.certain)} for certain, by rows logged with probability 1" if self.certain else ""
        return (
            f"the log has no support for {_percent(self.lost)} of this target's probability ({mean}{sure}): it never "
            "or hardly ever made those choices, or they were not always on offer, and the estimate says nothing of "
            f"them. {REMEDY}"
        )


def supported(probabilities: Array, target: Array, weights: Array, persons: Any = None) -> Support:
    """Compare the weights of a log with what they must be.

    Parameters
    ----------
    probabilities, target, weights : ndarray of shape (n,)
        p, π and π/p of the logged choices, the weights not cut.
    persons : array_like of shape (n,), optional
    """
    n = len(weights)
    sums: Array = weights
    rows: Array = np.ones(n)
    if persons is not None and np.shape(persons) == (n,):
        codes = np.unique(np.asarray(persons), return_inverse=True)[1]
        sums, rows = np.bincount(codes, weights=weights).astype(np.float64), np.bincount(codes).astype(np.float64)
    share, count = float(weights.mean()), len(sums)
    spread = float(((sums - share * rows) ** 2).sum()) / n**2
    error = math.sqrt(spread * count / (count - 1)) if count > 1 else math.inf
    certain = float(np.where(without_chance(probabilities), 1.0 - target, 0.0).mean())
    less, more = (1.0 - _ROUNDED) * rows - sums, sums - (1.0 + _ROUNDED) * rows
    verdict: Literal["held", "missing", "excess"] = "held"
    if certain >= _TOLD or _evidence(less, 1.0 / max(-float(less.min()), float(rows.max()))) >= 1.0 / _ALARM:
        verdict = "missing"
    elif _evidence(more, 1.0 / ((1.0 + _ROUNDED) * float(rows.max()))) >= 1.0 / _ALARM:
        verdict = "excess"
    return Support(share, error, certain, verdict)


def without_chance(probabilities: Array) -> Any:
    """Rows in which nothing else could be chosen."""
    sure = probabilities == 1.0
    if not sure.any() or sure.all():
        return sure
    inverse = 1.0 / probabilities[~sure]
    whole = np.rint(inverse)
    # draws with mean 1/p differ from each other; those of a first phase with K choices each are all K
    differ = len(np.unique(whole)) >= min(10, len(whole) / 2 + 1)
    drawn = differ and not (np.abs(inverse - whole) > 1e-6 * inverse).any()
    return np.zeros_like(sure) if drawn else sure


def warned(support: Support, *, level: int = 3) -> Support:
    """The same, told as a warning to whoever called an estimator, so many calls above."""
    if support.verdict != "held":
        warnings.warn(str(support), UserWarning, stacklevel=level)
    return support


def _evidence(gains: Array, largest: float) -> float:
    """The mean over several λ up to ``largest`` of Π(1 + λ·gain), whose expectation is at most 1 for a fair game."""
    found = []
    with np.errstate(divide="ignore"):
        for scale in _SCALES:
            # the largest stake may lose all
            logs = np.log(np.maximum(1.0 + scale * largest * gains, 0.0))
            found.append(float(logs.sum()))
    top = max(found)
    return 0.0 if top == -math.inf else float(np.exp(min(top, 700.0)) * np.mean(np.exp(np.array(found) - top)))


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "all"
