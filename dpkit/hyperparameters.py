"""A private choice of hyperparameters: the best of a random number of runs, at the price of a few.

For whoever would try many settings and keep one. Source: Papernot & Steinke (2022), "Hyperparameter tuning with Rényi
differential privacy", arXiv:2110.03620, Algorithm 1; the price is :class:`accounting.BestOfRuns` or
:class:`accounting.BestOfPoissonRuns`, proved in :mod:`accounting.amplification.selection` (a Rényi curve) and
:mod:`accounting.adaptive.repeated_selection.one_selection` (less).

    K ~ a public law;   (s_k, o_k) = run(), k = 1 … K;   released: (s, o) of the largest s.

Privacy. Each run, its score included, is private at the cost of ``cost.release`` and independent of the others: it may
draw its setting from a public law, but must not look at what other runs gave, nor write anything down. K is drawn
apart from the data, exactly (rational coins, no floating point), and must stay secret like the runs that lost: do not
print in a run, and keep the time that all of them took to yourself. Of runs with equal scores the first is released.

Cost: K runs, ``cost.mean`` of them in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from accounting import BestOfPoissonRuns, BestOfRuns
from dpkit import randomness
from dpkit.mechanisms._checked import charged

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Best", "best_of", "number_of_runs"]

Output = TypeVar("Output")


class Best(NamedTuple, Generic[Output]):
    """What a choice released.

    Examples
    --------
    >>> from dpkit.hyperparameters import Best
    >>> Best(score=0.8, output="the best model").output
    'the best model'
    """

    score: float
    output: Output


def best_of(
    run: Callable[[np.random.Generator], tuple[float, Output]],
    cost: BestOfRuns | BestOfPoissonRuns,
    *,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> Best[Output] | None:
    """The output with the best score, of a random number of runs.

    Parameters
    ----------
    run : callable
        A generator → (score, output): draws its setting and its noise from the generator, and costs at most
        ``cost.release``, the score included.
    cost : BestOfRuns or BestOfPoissonRuns
        What is spent, and the law of the number of runs.
    rng : numpy.random.Generator, optional
        None draws from the secure source; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged before the first run. Runs must not charge it again.

    Returns
    -------
    Best or None
        None if a Poisson number of runs was 0.

    Raises
    ------
    ValueError, TypeError
        For a ``cost`` of another kind or a law that cannot be drawn from, or a score that is NaN. An error within a run
        says something about the data that no cost covers; the budget stays spent.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    The best of some noisy scores:

    >>> import numpy as np
    >>> from accounting import BestOfRuns, Budget, Gaussian, calibrate
    >>> from dpkit.mechanisms import GaussianMechanism
    >>> from dpkit.hyperparameters import best_of
    >>> z = calibrate(lambda z: BestOfRuns(Gaussian(z), stop=0.1), Budget(1.0, 1e-6))
    >>> counts = np.array([400.0, 900.0, 500.0])  # rows that each of three rules gets right
    >>> def run(rng):
    ...     rule = int(rng.integers(3))
    ...     noisy = GaussianMechanism(noise_multiplier=z, sensitivity=1.0, rng=rng)
    ...     return float(noisy.release(counts[rule])), rule
    >>> best = best_of(run, BestOfRuns(Gaussian(z), stop=0.1), rng=np.random.default_rng(1))
    >>> best.output
    1
    """
    if not isinstance(cost, BestOfRuns | BestOfPoissonRuns):
        raise TypeError(f"cost must be a BestOfRuns or a BestOfPoissonRuns, got cost={cost!r}")
    source = randomness.resolve(rng)
    _check_law(cost)
    best: Best[Output] | None = None
    with charged(ledger, cost, "best of a random number of runs", source):
        for _ in range(number_of_runs(cost, source)):
            score, output = run(source)
            if math.isnan(score):
                raise ValueError("run must return a score that is a number, got NaN")
            if best is None or score > best.score:
                best = Best(float(score), output)
    return best


def number_of_runs(cost: BestOfRuns | BestOfPoissonRuns, rng: np.random.Generator) -> int:
    """K, drawn exactly from the law of ``cost``.

    Negative binomial, η ≤ 1: a geometric k ≥ 1 is accepted with probability Π_{0<l<k} (l + η)/(l + 1), which is
    decreasing in k; together P(k) ∝ (1 − γ)^k·Γ(k + η)/k!. Whole η > 1: a sum of η geometric numbers from 0 on, until
    it is not 0. Poisson: whole parts of the mean one by one, and the rest by keeping each unit of one more with that
    probability; a Poisson number of mean 1 is a k of probability 2^(−k−1), accepted with probability 2^k/(2·k!).

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import BestOfRuns, Gaussian
    >>> from dpkit.hyperparameters import number_of_runs
    >>> number_of_runs(BestOfRuns(Gaussian(1.0), stop=0.1), np.random.default_rng(1)) >= 1
    True
    """
    _check_law(cost)
    if isinstance(cost, BestOfPoissonRuns):
        whole, rest = divmod(Fraction(cost.mean), 1)
        units = _poisson_one(rng)
        return sum(_poisson_one(rng) for _ in range(whole)) + sum(
            _coin(rng, rest.numerator, rest.denominator) for _ in range(units)
        )
    stop, eta = Fraction(cost.stop), Fraction(cost.shape)
    top, bottom = eta.numerator, eta.denominator
    while True:
        if eta <= 1:
            k = 1 + _failures(rng, stop)
            if all(_coin(rng, l * bottom + top, (l + 1) * bottom) for l in range(1, k)):
                return k
        elif k := sum(_failures(rng, stop) for _ in range(int(eta))):
            return k


def _check_law(cost: BestOfRuns | BestOfPoissonRuns) -> None:
    if isinstance(cost, BestOfRuns) and cost.shape > 1 and cost.shape != int(cost.shape):
        raise ValueError(f"cost.shape must be at most 1 or a whole number, got cost.shape={cost.shape!r}")


def _poisson_one(rng: np.random.Generator) -> int:
    while True:
        k = _failures(rng, Fraction(1, 2))
        if _coin(rng, 2**k, 2 * math.factorial(k)):
            return k


def _failures(rng: np.random.Generator, success: Fraction) -> int:
    """How many coins fall before the first that succeeds."""
    count, (numerator, denominator) = 0, success.as_integer_ratio()
    while not _coin(rng, numerator, denominator):
        count += 1
    return count


def _coin(rng: np.random.Generator, numerator: int, denominator: int) -> bool:
    """True with exactly that probability: a uniform whole number below the denominator, by rejection."""
    if denominator < 1 << 62:
        return bool(rng.integers(denominator) < numerator)
    bits = denominator.bit_length()
    while (drawn := int.from_bytes(rng.bytes((bits + 7) // 8)) >> (-bits % 8)) >= denominator:
        pass
    return drawn < numerator
