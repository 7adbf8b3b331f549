"""Audits of Gaussian claims by log-likelihood ratios, where it is known beforehand which test to make.

``audit.lower_bound`` spends half of the runs on choosing a threshold, its side and the share of each count in the
confidence. A log-likelihood ratio leaves nothing to choose: the likelier side is known, Gaussian DP shows the same μ at
every threshold, and between the two laws both counts are equally sure. Where the ratio is known with its constant the
middle is 0; else it is looked for in a tenth of the runs. All others are counted, by the same exact bounds. So half of
the runs, or 0.55, find what they find there.

A fixed test also has a power that can be summed exactly. Where the claim is (8, 0.01), which is μ = 2.449, and the
confidence 1 − 1e-9, a version with half the noise (μ = 4.9) is missed in 297 runs that count with probability 2.5e-11,
and a sound one at 0.95 of the claim shows ε ≥ 1.2 in 252 (at 0.9, in 306), and ε ≥ 2.3 in 396, but for less than 1e-12.
That is in 330, 280 (340) and 440 where the middle is looked for.

A pure claim rests on how seldom the rarer side is seen, which gets most of the confidence (``PURE``). With (4, 0.01) of
randomized response 800 runs show ε ≥ 1.8, and 2800 more than 4 where the odds are those of 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from accounting import audit
from accounting.audit.confidence import epsilon_distance, gaussian_distance, lower_confidence
from accounting.conversions import gdp_epsilon

# the share of the confidence in either count, as an angle
PURE = 0.4


def lower_bound(
    mechanism: Callable[[Any, int], np.ndarray],
    data: Any,
    neighbour: Any,
    *,
    trials: int,
    delta: float,
    confidence: float,
    score: Callable[[np.ndarray], np.ndarray],
    middle: float | None = None,
    gaussian: bool = True,
) -> audit.LowerBound:
    """``audit.lower_bound(…, batched=True, gaussian=…)`` for a ``score`` that grows with the ratio of ``data``.

    ``middle`` is a score, fixed beforehand, between those of the two laws.
    """
    pair = [np.asarray(score(mechanism(one, trials)), dtype=np.float64) for one in (data, neighbour)]
    if any(one.shape != (trials,) or np.isnan(one).any() for one in pair):
        raise ValueError(f"score must give {trials} numbers, got shapes {[one.shape for one in pair]} or NaN")
    first = max(trials // 10, 4) if middle is None else 0
    threshold = float(sum(np.mean(one[:first]) for one in pair)) / 2 if middle is None else middle
    hits, others = (int(np.count_nonzero(one[first:] >= threshold)) for one in pair)
    n = trials - first
    distance, angle = (gaussian_distance, math.pi / 4) if gaussian else (epsilon_distance(delta), PURE)
    found = max(0.0, lower_confidence(distance, hits, n, others, n, angle=angle, alpha=1.0 - confidence))
    return audit.LowerBound(
        epsilon=gdp_epsilon(found, delta) if gaussian else found,
        delta=delta,
        confidence=confidence,
        mu=found if gaussian else None,
        threshold=threshold,
        tail=">=",
        likelier="data",
        hits=(hits, others),
        trials=(n, n),
    )
