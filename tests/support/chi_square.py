"""Tests of samples against exact laws: χ² for integers, Kolmogorov's distance for the continuous ones."""

import math

import numpy as np
from scipy import stats

# Under reseeding a correct sampler fails with this probability.
ALARM = 1e-10


def fits(sample, cells, probabilities):
    """Whether ``sample`` passes the test against P(cells[i]) = probabilities[i]; the rest of the mass is one cell."""
    n = len(sample)
    counts = np.array([np.count_nonzero(sample == k) for k in cells], dtype=float)
    expected = n * np.asarray(probabilities)
    # cells that expect fewer than 10 values would make the χ² approximation too rough
    keep = expected >= 10
    observed = np.append(counts[keep], n - counts[keep].sum())
    wanted = np.append(expected[keep], n - expected[keep].sum())
    if wanted[-1] < 10:
        observed, wanted = (np.append(v[:-2], v[-2] + v[-1]) for v in (observed, wanted))
    statistic = float(np.sum((observed - wanted) ** 2 / wanted))
    return stats.chi2.sf(statistic, len(wanted) - 1) > ALARM


def kolmogorov(sample, law):
    """√n times the distance of the empirical distribution from ``law``, a function of sorted values."""
    x = np.sort(sample)
    n = len(x)
    above = np.arange(1, n + 1) / n - law(x)
    return math.sqrt(n) * max(above.max(), (1 / n - above).max())
