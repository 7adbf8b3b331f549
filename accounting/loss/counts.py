"""Counts that a unit moves: pairs that shuffled messages meet for certain inputs, rounded down.

*One count.* With b the pmf of Bin(n, r), P(x) = (1 − s)·b(x) + s·b(x − v) and Q the same with s′ < s. P/Q grows with
x, as b(x − v)/b(x) does. A v that is no whole number is rounded at random to a neighbouring one, with the mean v.

*The difference of two.* n others' messages are for one side, or for the other, with probability r each, so that the
difference has the law g with the characteristic function (1 − 2r + 2r·cos)ⁿ. One more message is for the first side
with probability s and for the other with s′: P(d) = s·g(d − 1) + s′·g(d + 1) + (1 − s − s′)·g(d), and Q(d) = P(−d).

Values in the tails are merged, which is a post-processing; masses of P are rounded down and those of Q up, by more than
their errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.amplification.blanket import LEFT_OUT, binomial_window
from accounting.amplification.shuffled_binomial import log_pmf, window
from accounting.arrays import Array
from accounting.loss.pair import LopsidedAtoms, remembered

__all__ = ["CountPair", "DifferencePair"]


# Counts beyond which b has less are merged, so many times what the window leaves out.
_RARE = 1e3
# What it leaves out of even odds.
_LEFT_OUT_EVEN = 2e-40


@dataclass(frozen=True)
class CountPair(LopsidedAtoms):
    """Bin(``trials``, ``rate``), and ``step`` more with probability ``first`` under P and ``second`` under Q."""

    exact = True
    trials: int
    rate: float
    step: float
    first: float
    second: float

    @remembered(64)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        if self.rate == 0.5:
            b, left_out = np.exp(log_pmf(self.trials, window(self.trials, 0)[0])), _LEFT_OUT_EVEN
        else:
            b, left_out = binomial_window(self.trials, self.rate)[1], LEFT_OUT
        whole = math.floor(self.step)
        up = self.step - whole
        here = np.append(b, np.zeros(whole + 1))
        moved = (1 - up) * np.concatenate([np.zeros(whole), b, [0.0]]) + up * np.append(np.zeros(whole + 1), b)
        laws = [(1 - share) * here + share * moved for share in (self.first, self.second)]
        return _merged(laws, b.size, 0.0, left_out)


@dataclass(frozen=True)
class DifferencePair(LopsidedAtoms):
    """The difference of two counts of ``trials`` messages, each for either at the ``rate``, and of one more."""

    exact = True
    trials: int
    rate: float
    first: float
    second: float

    @remembered(64)
    def atoms(self) -> tuple[Array, Array, Array, float]:
        from scipy.fft import irfft, next_fast_len

        variance, log_rare = 2 * self.rate * self.trials, math.log(2 / LEFT_OUT)
        # Bernstein's inequality, as for one count
        reach = math.floor(min(self.trials, math.sqrt(2 * variance * log_rare) + 2 * log_rare / 3)) + 1
        nodes = int(next_fast_len(2 * reach + 2, real=True))
        image = 1 - 2 * self.rate * (1 - np.cos(2 * math.pi / nodes * np.arange(nodes // 2 + 1)))
        spectrum = np.sign(image) ** self.trials * np.exp(self.trials * np.log(np.maximum(np.abs(image), 1e-300)))
        g = irfft(spectrum, nodes)
        g = np.concatenate([g[-reach:], g[: reach + 1]])
        # the image is right to a few units, and so is its logarithm where its power counts; then the transform
        size = np.abs(spectrum)
        doubt = (8 + self.trials / np.maximum(np.abs(image), 0.5)) * 4 * size + 8 * math.log2(nodes) * size
        error = 2.0**-52 * 2 / nodes * float(doubt.sum()) + LEFT_OUT
        wide = np.concatenate([np.zeros(2), g, np.zeros(2)])
        right, left, same = wide[:-2], wide[2:], wide[1:-1]
        rest = 1 - self.first - self.second
        laws = [s * right + t * left + rest * same for s, t in ((self.first, self.second), (self.second, self.first))]
        return _merged([np.maximum(law, 0.0) for law in laws], g.size, error, LEFT_OUT)


def _merged(laws: list[Array], terms: int, error: float, left_out: float) -> tuple[Array, Array, Array, float]:
    """The atoms of two laws on neighbouring values, each mass right to ``error`` and to the
    sum of so many ``terms``' relative rounding."""
    # the first and the last count up to which, and from which on, both laws have a mass that is not rare
    below = np.min([np.cumsum(law) for law in laws], axis=0)
    above = np.min([np.cumsum(law[::-1]) for law in laws], axis=0)
    rare = max(_RARE * left_out, 100 * error)
    first, last = int(np.searchsorted(below, rare)), below.size - 1 - int(np.searchsorted(above, rare))
    if first >= last:  # they hardly overlap, and nothing is claimed
        return np.zeros(1), np.ones(1), np.ones(1), 0.0
    merged = [law[first : last + 1].copy() for law in laws]
    for inside, law in zip(merged, laws, strict=True):
        inside[0] += law[:first].sum()
        inside[-1] += law[last + 1 :].sum()
    # a sum of as many logarithms, none of which is above 100 in all
    doubt = 2.0**-52 * (100 * terms + 100)
    p, q = np.maximum(merged[0] * (1 - doubt) - error, 0.0), merged[1] * (1 + doubt) + error
    # what lies outside of the window
    p[[0, -1]] = np.maximum(p[[0, -1]] - left_out, 0.0)
    q[0] += left_out
    q[-1] += left_out
    kept = p > 0
    losses = np.log(p[kept]) - np.log(q[kept])
    order = np.argsort(losses, kind="stable")
    return losses[order], p[kept][order], q[kept][order], 0.0
