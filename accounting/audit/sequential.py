"""A lower bound on ε that holds at all times: reveal canaries' coins one after the other, bet, stop at will.

Every canary was included by a fair coin of its own. The auditor has the output (a score for each canary), reveals coins
in an order of its choice, guesses each before it is revealed, and bets on being right at the odds that the claim gives.
Money is made only where the claim is false, so how much was made is evidence at any time, whatever decided when to
stop: this is a test by betting (Shafer 2021; Ramdas, Grünwald, Vovk & Shafer 2023). Sequential audits of privacy are
those of González, Dulce-Rubio, Ramdas & Ribero (arXiv:2509.07055) and of Kutta, Dunsche, Wei & Zikas
(arXiv:2602.06518). Guesses on the canaries of one run are not independent, which the theorem below does not ask for;
what a single run can show is limited as in the audit of Steinke, Nasr & Jagielski (arXiv:2305.08846).

**Theorem.** Let every run be (ε, δ)-DP in each of its coins, given all that came before it; S_1, …, S_m the coins of
all canaries that may ever be used. Before the t-th guess, everything revealed so far (outputs, earlier coins) decides
which canary i_t is next, what is guessed, and a stake 0 ≤ λ_t ≤ ℓ ≤ 1/q, where q = e^ε/(1 + e^ε). With X_t = 1 for a
right guess and 0 for a wrong one, let W_t = W_{t−1}(1 + λ_t(X_t − q)) from W_0 = 1. Then

    P(W_t ≥ 1/a for some t) ≤ a + ℓ·m·δ(1 − q).

*Proof.* Let h_i be by how much the larger of P(S_i = 1 | A_i) and P(S_i = 0 | A_i) exceeds q, or 0, where A_i is the
output of its run and all other coins. If p and p′ are the densities of that output given S_i = 1 and S_i = 0 and the
other coins, P(S_i = 1 | A_i) = p/(p + p′) exceeds q where p > e^ε p′, and on average by ½∫(p − q(p + p′))₊ =
½(1 − q)∫(p − e^ε p′)₊ ≤ ½(1 − q)δ; likewise for S_i = 0. So E h_i ≤ (1 − q)δ. Given the output and any of the other
coins, S_i is independent of whatever was made of these, such as later runs with coins of their own. So averaging over
the coins that are not yet revealed gives P(X_t = 1 | past) ≤ q + E(h_i | past) for i = i_t, and
E(W_t | past) ≤ W_{t−1}(1 + ℓ·E(h_i | past)). Let τ be the first time that W ≥ 1/a. Before it W < 1/a, hence
E W_{min(t, τ)} ≤ 1 + (ℓ/a)·E Σ_i h_i ≤ 1 + (ℓ/a)·mδ(1 − q), as every coin is revealed once; and Markov's inequality at
min(t, τ), t → ∞, is the theorem. ∎

At δ = 0 this is Ville's inequality. Guesses need not be independent, and the order may depend on everything revealed:
only what is known *before* a coin is revealed may decide about it. For a given error α, a and ℓ are chosen such that
a + ℓmδ(1 − q) = α. An average of several such fortunes is one, whose stakes are the weighted ones.

**From a test to a bound.** A fortune is kept for each ε on a grid; the bound is the largest of them for which it and
all smaller ones have reached their 1/a. It is above the true ε only if the smallest grid value that is not below the
true ε, at which the claim is true, was rejected: with probability at most α, at all times together.

**Stakes.** The optimal one for a guess that is right with probability p is (p − q)/(q(1 − q)) (Kelly 1956), and 0 where
p ≤ q. Guesses go from both ends of the scores inwards, by turns; p is the share of right ones so far on that side,
of this batch in one fortune, and in the other one at about the same rank, in earlier batches too. Both start from odds
that are e times those of the claim.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.audit.canaries import checked_canaries, shuffled
from accounting.audit.confidence import check_confidence
from accounting.audit.findings import SequentialBound
from accounting.checks import fraction, integer

__all__ = ["SequentialAudit"]

# of the grid of ε
_STEP = 2.0**-5
# how many guesses the odds from which estimates start are worth
_PRIOR = 4.0
# ranks at which a share of right guesses is kept: the k-th half octave from the middle of the scores outwards
_RANKS = 64
# guesses between two looks at the fortunes; what they multiply one by is between 2⁻⁶⁴⁰ and 2⁶⁴
_BLOCK = 64
# so much of its fortune a stake leaves at least, that it may lose once more
_REST = 2.0**-10


class SequentialAudit:
    """Add canaries, of one run or of one run after another, until the bound is enough; it holds at every time.

    Parameters
    ----------
    delta : float
        The claim's δ, in [0, 1).
    canaries : int
        m, the largest number that will ever be added: the claim may break its promise to each with probability δ.
    confidence : float
        In [0.5, 1): the probability that the bound is never above the truth.

    Attributes
    ----------
    bound : SequentialBound
        What is shown by all that was added.
    left : int
        How many canaries may still be added.

    Notes
    -----
    The neighbours of the claim are those that differ by one canary: present or absent (or one of two values that the
    coin chooses between). Every run must meet it given everything before. A batch may be chosen in the light
    of the outputs and of all coins that were added earlier, but of no other coin. How far the bound is below the
    truth cannot be seen: no audit bounds ε from above.

    Examples
    --------
    Runs with 500 canaries each, on which twice the claimed ε was spent, until the claim is refuted:

    >>> import numpy as np
    >>> from accounting import audit
    >>> rng = np.random.default_rng(0)
    >>> def run():  # canaries that are reported by randomized response with ε = 2
    ...     included = rng.random(500) < 0.5
    ...     truth = rng.random(500) < 1 / (1 + np.exp(-2.0))
    ...     return np.where(truth, included, ~included), included
    >>> runs = audit.SequentialAudit(delta=0.0, canaries=100_000, confidence=0.999)
    >>> while not runs.bound.contradicts(1.0) and runs.left >= 500:
    ...     found = runs.add(*run())
    >>> runs.bound.canaries, 1.0 < runs.bound.epsilon < 2.0
    (500, True)
    """

    def __init__(self, *, delta: float, canaries: int, confidence: float = 0.95) -> None:
        self._delta = fraction("delta", delta, include_zero=True)
        self._most = integer("canaries", canaries, at_least=1)
        self._confidence = check_confidence(confidence)
        alpha = 1.0 - self._confidence
        # n right guesses show no more than some ln n
        self._epsilons = np.arange(0.0, math.log(self._most) + 1.0, _STEP)
        self._q = 1.0 / (1.0 + np.exp(-self._epsilons))
        self._scale = 1.0 / (self._q * (1.0 - self._q))
        self._start = 1.0 / (1.0 + np.exp(-1.0 - self._epsilons))  # odds e times those of the claim
        # mδ(1 − q), rounded up
        broken = self._most * self._delta / (1.0 + np.exp(self._epsilons)) * (1.0 + 1e-12)
        self._largest_stake = np.minimum((1.0 - _REST) / self._q, alpha / (2.0 * np.maximum(broken, 1e-300)))
        self._needed = -np.log(alpha - self._largest_stake * broken)
        self._fortunes = np.zeros((2, len(self._epsilons)))  # logarithms
        self._best = np.zeros(len(self._epsilons))
        self._guessed, self._right = np.zeros((2, 2, _RANKS))  # by side and rank
        self._correct = self._guesses = self._added = 0

    def __repr__(self) -> str:
        return f"SequentialAudit({self._added:,} of {self._most:,} canaries): {self.bound}"

    @property
    def left(self) -> int:
        return self._most - self._added

    @property
    def bound(self) -> SequentialBound:
        rejected = self._best >= self._needed
        count = len(rejected) if rejected.all() else int(np.argmin(rejected))
        return SequentialBound(
            epsilon=float(self._epsilons[max(0, count - 1)]),
            delta=self._delta,
            confidence=self._confidence,
            mu=None,
            correct=self._correct,
            guesses=self._guesses,
            canaries=self._added,
        )

    def add(self, scores: ArrayLike, included: ArrayLike) -> SequentialBound:
        """Guess the coins of a batch of canaries, one after the other.

        Parameters
        ----------
        scores : array_like, shape (n,)
            One for each canary, computed from the output of its run; the higher, the likelier it was included. At least
            2; the more there are in a batch, the better it is known which are the most telling.
        included : array_like of bool, shape (n,)
            Whether each was in the data: independent fair coins, tossed before the run.

        Returns
        -------
        SequentialBound
            By all that was added so far.

        Raises
        ------
        ValueError
            If the two are no such arrays, or more canaries than ``left``. Nothing is added.
        """
        values, coins = checked_canaries(scores, included, at_least=2)
        if len(values) > self.left:
            raise ValueError(
                f"scores must be those of at most left={self.left} canaries, got {len(values)}: state a larger "
                "number of canaries when the audit begins"
            )
        order = shuffled(len(values))
        order = order[np.argsort(-values[order], kind="stable")]
        turns = len(order) // 2
        right = np.empty((turns, 2))  # the highest and the lowest that are left, by turns
        right[:, 0] = coins[order[:turns]]
        right[:, 1] = ~coins[order[::-1][:turns]]
        shares = self._shares(right)
        for start in range(0, 2 * turns, _BLOCK):
            part = slice(start, start + _BLOCK)
            for fortune, (before, among) in zip(self._fortunes, shares, strict=True):
                fortune += self._won(before[part], among[part], right.reshape(-1)[part])
            np.maximum(self._best, np.logaddexp(*self._fortunes) - math.log(2.0), out=self._best)
        self._correct += int(right.sum())
        self._guesses += 2 * turns
        self._added += len(values)
        return self.bound

    def _shares(self, right: Array) -> list[tuple[Array, Array]]:
        """Before each guess, in their order: how many guesses on its side were right, among how many; in two ways."""
        turns = len(right)
        before = np.concatenate([np.zeros((1, 2)), np.cumsum(right, axis=0)])
        turn = np.arange(turns)
        rank = np.minimum(np.floor(-2.0 * np.log2((turn + 0.5) / turns)).astype(np.int64), _RANKS - 1)
        first = np.searchsorted(-rank, -rank)  # the turn at which this rank begins
        near = before[turn] - before[first] + self._right[:, rank].T
        among = np.repeat((turn - first)[:, None], 2, axis=1) + self._guessed[:, rank].T
        for side in range(2):
            np.add.at(self._guessed[side], rank, 1.0)
            np.add.at(self._right[side], rank, right[:, side])
        return [
            (before[turn].reshape(-1), np.repeat(turn, 2).astype(np.float64)),
            (near.reshape(-1), among.reshape(-1)),
        ]

    def _won(self, before: Array, among: Array, right: Array) -> Array:
        """The logarithm of what bets on at most ``_BLOCK`` guesses multiply a fortune by, for each ε."""
        # (p − q)/(q(1 − q)) with p = (before + _PRIOR·start)/(among + _PRIOR)
        weight = 1.0 / (among + _PRIOR)
        stake = (before * weight)[:, None] * self._scale
        stake += (_PRIOR * weight)[:, None] * (self._start * self._scale)
        stake -= self._q * self._scale
        np.clip(stake, 0.0, self._largest_stake, out=stake)
        stake *= right[:, None] - self._q
        stake += 1.0
        return np.asarray(np.log(stake.prod(axis=0)))
