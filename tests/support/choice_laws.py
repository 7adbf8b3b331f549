"""Laws of choices by noisy maxima, computed from their scores, and three vectors of scores that are neighbours."""

import numpy as np
from hypothesis import strategies as st

from accounting.accountants.coin_kinds import CoinKind
from accounting.accountants.permute_and_flip import FlipKind


def gumbel(scores):
    w = np.exp(scores - scores.max())
    return w / w.sum()


def exponential(scores):
    """P(i) = w_i ∫₀¹ Π_{j ≠ i} (1 − w_j v) dv, a polynomial, integrated exactly."""
    w = np.exp(scores - scores.max())
    nodes, mass = np.polynomial.legendre.leggauss(w.size)
    factors = 1 - np.outer((nodes + 1) / 2, w)
    return w * np.array([mass @ np.delete(factors, i, axis=1).prod(axis=1) / 2 for i in range(w.size)])


KINDS = {gumbel: CoinKind, exponential: FlipKind}


def neighbours(data, eps, size, longest):
    """Three vectors of scores up to ``longest`` and more, no two of which are farther apart than ε up to a constant."""
    vector = st.lists(st.floats(0.0, 1.0) | st.sampled_from([0.0, 0.5, 1.0]), min_size=size, max_size=size)
    scores = longest * np.array(data.draw(vector))
    moved = eps * np.array(data.draw(vector)), eps * np.array(data.draw(vector))
    near = min(1.0, eps / max(np.ptp(moved[0] - moved[1]), 1e-9))
    return [scores] + [scores + one * near for one in moved]
