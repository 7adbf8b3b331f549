"""A χ² test of integer samples against exact cell probabilities."""

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
