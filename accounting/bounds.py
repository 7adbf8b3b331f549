"""Certified brackets: an upper and a lower bound on what a description costs.

The upper value holds for every mechanism that fits the description. The lower one is the cost of a mechanism that does
fit it, or a bound below that cost: so whatever accountant is used, no smaller ε can be proved of the description alone.

Which mechanism that is, and how its composition is bounded from below: :mod:`accounting.lower.lower_bound`.

*Certified* or *numerical*. Rounding is accounted for everywhere, but the proofs of some prices have constants that were
chosen by experience, and functions of libraries that are assumed accurate. Where :mod:`accounting.checker` proves the
ends again with everything enclosed, the bracket is certified, and :func:`accounting.certify` makes a certificate of it.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from accounting.checks import fraction
from accounting.releases import Release
from accounting.releases.certified import is_certified, is_concentrated
from accounting.totals import compare, epsilon

__all__ = ["Bracket", "bound"]

# Bounds farther apart than this are worth a warning.
_WIDE = 0.01


class _Ends(NamedTuple):
    lower: float
    upper: float


class Bracket(_Ends):
    """ε lies in [``lower``, ``upper``]; a pair of both.

    Attributes
    ----------
    lower, upper : float
        The ends.
    certified : bool
        Whether everything in their proof is enclosed for descriptions of this kind, so that
        :func:`accounting.certify` makes a certificate of both. Else the bracket is numerical; of zCDP its upper end is
        certified alone.

    Examples
    --------
    >>> from accounting import Laplace, bound
    >>> lower, upper = bound(10 * Laplace(2.0), 1e-6)
    >>> bool(lower <= upper), round(float(upper), 2)
    (True, 5.0)
    >>> bound(10 * Laplace(2.0), 1e-6).certified
    True
    """

    certified: bool

    def __new__(cls, lower: float, upper: float, certified: bool = False) -> Bracket:
        bracket = super().__new__(cls, lower, upper)
        bracket.certified = certified
        return bracket

    def __reduce__(self) -> tuple[type[Bracket], tuple[float, float, bool]]:
        return type(self), (self.lower, self.upper, self.certified)


def bound(release: Release, delta: float) -> Bracket:
    """A lower and an upper bound on the smallest ε such that every mechanism that fits ``release`` is (ε, δ)-DP.

    Parameters
    ----------
    release : Release
        A description, such as ``1000 * PoissonSubsampled(Gaussian(1.1), 0.01)``.
    delta : float
        In [0, 1).

    Returns
    -------
    Bracket
        ``lower`` and ``upper``. Where they are more than 1 % apart, a :class:`UserWarning` says so.

    Examples
    --------
    >>> from accounting import PoissonSubsampled, Gaussian, bound
    >>> lower, upper = bound(1000 * PoissonSubsampled(Gaussian(1.1), 0.01), 1e-6)
    >>> round(lower, 2), round(upper, 2)
    (1.75, 1.75)
    """
    from accounting.lower.lower_bound import lower_epsilon  # not what every import waits for

    fraction("delta", delta, include_zero=True)
    upper = min(compare(release, delta).values()) if delta > 0 else float(epsilon(release, delta))
    with np.errstate(under="ignore"):
        lower = min(lower_epsilon(release, delta), upper)
    if upper - lower > _WIDE * upper:
        warnings.warn(f"ε is only known to lie between {lower:g} and {upper:g} at delta={delta:g}", stacklevel=2)
    return Bracket(lower, upper, is_certified(release) and not is_concentrated(release))
