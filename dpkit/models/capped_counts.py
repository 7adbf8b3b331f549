"""The Poisson loss of counts that are known to stay below a public top, with a slope that is bounded everywhere.

Counts y are cut to [0, top] and divided by top: t in [0, 1]. The model is E[t] = e^(η − s), where e^(−s) is the share
of the top at which a descent starts (η = 0). The loss is the Poisson likelihood as long as the mean stays below the
top, and grows linearly beyond:

    ψ = min(e^(η − s), 1) − t,    ℓ = e^(η − s) − tη up to η = s, and 1 + (η − s) − tη from there on.

ψ increases with η, so that ℓ is convex; |ψ| ≤ 1 for every η and every t in [0, 1], and its slope is at most 1. So a row
of length R has a gradient of at most R whatever the parameters are, without which the likelihood's own, e^η·x, has no
bound. Where the best model's means are below the top, it is the model of the greatest likelihood: there both have the
same gradient, and convex functions have no other minima.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.arrays import Array
from dpkit.models.losses import GLM

__all__ = ["CAPPED_POISSON", "START"]

# a fifth of the top: counts are mostly far below what bounds them
START = math.log(5.0)


def _loss(eta: Array, t: Array) -> Array:
    below = np.exp(np.minimum(eta - START, 0.0))
    return np.asarray(below + np.maximum(eta - START, 0.0) - t * eta)


def _slope(eta: Array, t: Array) -> Array:
    return np.asarray(np.exp(np.minimum(eta - START, 0.0)) - t)


CAPPED_POISSON = GLM("capped poisson", _loss, _slope, slope_bound=1.0, curvature_bound=1.0)
