"""Link functions of generalized linear models: E[y | x] = μ(xᵀθ), with the constants that bounds on them need.

=========  =============  ==========================  ==========  ============
name       μ(z)           m(z) = ∫μ                   R           responses
=========  =============  ==========================  ==========  ============
logistic   1/(1 + e^−z)   ln(1 + e^z)                 1           [0, 1]
probit     Φ(z)           zΦ(z) + φ(z)                S           [0, 1]
linear     z              z²/2                        0           any
poisson    e^z            e^z                         1           [0, ∞)
=========  =============  ==========================  ==========  ============

R is the self-concordance constant, |μ̈| ≤ R·μ̇ on [−S, S]. The probit is not the canonical link of a Bernoulli
response; its m is the integral of μ all the same, and its R grows with S.

Where a public guess of the mean response is known beforehand, a base rate, z ↦ μ(o + z) with μ(o) the base rate is a
link like any other (:meth:`Link.at`). The losses of these models are in :mod:`dpkit.models.losses`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import positive

__all__ = ["Link", "get_link", "is_named"]


@dataclass(frozen=True)
class Link:
    """A link function and its constants.

    Parameters
    ----------
    name : str
        Of no meaning but to readers.
    mean, derivative, integral : callable
        μ, μ̇ ≥ 0 and ∫μ, elementwise on floats and arrays.
    derivative_range : callable
        S → (inf μ̇, sup μ̇) over [−S, S].
    self_concordance : callable
        S → R with |μ̈| ≤ R·μ̇ on [−S, S].
    reward_range : (float, float)
        The responses that the model allows.
    derivative_between : callable, optional
        (a, b) → (inf μ̇, sup μ̇) over [a, b]. Where it is not given, a shifted link has the bounds of a wider interval
        around 0.

    Examples
    --------
    >>> from dpkit.models import get_link
    >>> link = get_link("logistic")
    >>> round(float(link.mean(0.0)), 3), link.lipschitz(3.0), round(link.kappa(3.0), 2)
    (0.5, 0.25, 22.14)
    """

    name: str
    mean: Callable[[Any], Any]
    derivative: Callable[[Any], Any]
    integral: Callable[[Any], Any]
    derivative_range: Callable[[float], tuple[float, float]]
    self_concordance: Callable[[float], float]
    reward_range: tuple[float, float] = (-math.inf, math.inf)
    derivative_between: Callable[[float, float], tuple[float, float]] | None = None

    def reaches(self, value: float) -> bool:
        """Whether there is a z with μ(z) = ``value``.

        Examples
        --------
        >>> from dpkit.models import get_link
        >>> get_link("logistic").reaches(0.3), get_link("logistic").reaches(1.0)
        (True, False)
        """
        return _solution(self.mean, value) is not None

    def inverse(self, value: float) -> float:
        """The z with μ(z) = ``value``.

        Raises
        ------
        ValueError
            If μ does not take this value, or only in the limit.

        Examples
        --------
        >>> from dpkit.models import get_link
        >>> round(get_link("logistic").inverse(0.1), 4)
        -2.1972
        """
        found = _solution(self.mean, value)
        if found is None:
            raise ValueError(f"value must be one that the link {self.name!r} takes, got value={value!r}")
        return found

    def shifted(self, o: float) -> Link:
        """z ↦ μ(o + z); itself for o = 0.

        Examples
        --------
        >>> from dpkit.models import get_link
        >>> get_link("linear").shifted(0.5).mean(1.0)
        1.5
        """
        if o == 0.0:
            return self
        between = self.derivative_between
        wide, concordance = self.derivative_range, self.self_concordance
        return replace(
            self,
            mean=lambda z: self.mean(o + z),
            derivative=lambda z: self.derivative(o + z),
            integral=lambda z: self.integral(o + z),
            derivative_range=lambda S: wide(S + abs(o)) if between is None else between(o - S, o + S),
            self_concordance=lambda S: concordance(S + abs(o)),
            derivative_between=None if between is None else lambda a, b: between(o + a, o + b),
        )

    def at(self, base_rate: float) -> Link:
        """z ↦ μ(o + z) with the o at which μ(o) is ``base_rate``.

        Raises
        ------
        ValueError
            If μ does not take this value, or only in the limit.

        Examples
        --------
        >>> from dpkit.models import get_link
        >>> link = get_link("logistic").at(0.04)
        >>> round(float(link.mean(0.0)), 6), round(link.lipschitz(1.0), 4)
        (0.04, 0.0914)
        """
        if float(self.mean(0.0)) == base_rate:
            return self
        o = _solution(self.mean, base_rate)
        if o is None:
            raise ValueError(
                f"base_rate must be strictly inside the range of the link {self.name!r}, got base_rate={base_rate!r}"
            )
        return self.shifted(o)

    def lipschitz(self, theta_bound: float) -> float:
        """L = sup μ̇ on [−S, S]."""
        return self.derivative_range(positive("theta_bound", theta_bound))[1]

    def kappa(self, theta_bound: float) -> float:
        """κ = 1 / inf μ̇ on [−S, S]."""
        return 1.0 / self.derivative_range(positive("theta_bound", theta_bound))[0]

    def kappa_star(self, theta_bound: float) -> float:
        """κ* = 1 / sup μ̇ on [−S, S]."""
        return 1.0 / self.lipschitz(theta_bound)


def _solution(mean: Callable[[Any], Any], value: float) -> float | None:
    """The z with μ(z) = value to the last digit, or None if μ stays on one side of it."""
    low, high = -1.0, 1.0
    with np.errstate(all="ignore"):
        while low > -1e6 and not float(mean(low)) < value:
            low *= 2.0
        while high < 1e6 and not float(mean(high)) > value:
            high *= 2.0
        if not float(mean(low)) < value < float(mean(high)):
            return None
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if float(mean(middle)) < value else (low, middle)
    return high


# scipy is loaded by the first call: it takes longer than all of this package, and commands should start quickly


@cache
def _special() -> Any:
    from scipy import special

    return special


def _logistic(z: ArrayLike) -> Any:
    return _special().expit(z)


def _softplus(z: ArrayLike) -> Any:
    return np.logaddexp(0.0, z)


def _logistic_derivative(z: ArrayLike) -> Array:
    p = _logistic(z)
    return np.asarray(p * (1.0 - p))


def _normal_distribution(z: ArrayLike) -> Any:
    return _special().ndtr(z)


def _normal_density(z: ArrayLike) -> Array:
    return np.exp(-0.5 * np.square(z)) / math.sqrt(2 * math.pi)


def _even_bell(derivative: Callable[[Any], Any]) -> Callable[[float], tuple[float, float]]:
    """(inf, sup) over [−S, S] of a derivative that is even and falls away from 0."""
    return lambda S: (float(derivative(S)), float(derivative(0.0)))


def _bell_between(derivative: Callable[[Any], Any]) -> Callable[[float, float], tuple[float, float]]:
    """(inf, sup) of such a derivative over [a, b]."""
    return lambda a, b: (float(derivative(max(abs(a), abs(b)))), float(derivative(max(a, min(0.0, b)))))


_LINKS = {
    "logistic": Link(
        "logistic",
        mean=_logistic,
        derivative=_logistic_derivative,
        integral=_softplus,
        derivative_range=_even_bell(_logistic_derivative),
        self_concordance=lambda S: 1.0,
        reward_range=(0.0, 1.0),
        derivative_between=_bell_between(_logistic_derivative),
    ),
    "probit": Link(
        "probit",
        mean=_normal_distribution,
        derivative=_normal_density,
        integral=lambda z: z * _normal_distribution(z) + _normal_density(z),
        derivative_range=_even_bell(_normal_density),
        self_concordance=lambda S: S,
        reward_range=(0.0, 1.0),
        derivative_between=_bell_between(_normal_density),
    ),
    "linear": Link(
        "linear",
        mean=lambda z: z,
        derivative=np.ones_like,
        integral=lambda z: 0.5 * np.square(z),
        derivative_range=lambda S: (1.0, 1.0),
        self_concordance=lambda S: 0.0,
        derivative_between=lambda a, b: (1.0, 1.0),
    ),
    "poisson": Link(
        "poisson",
        mean=np.exp,
        derivative=np.exp,
        integral=np.exp,
        derivative_range=lambda S: (math.exp(-S), math.exp(S)),
        self_concordance=lambda S: 1.0,
        reward_range=(0.0, math.inf),
        derivative_between=lambda a, b: (math.exp(a), math.exp(b)),
    ),
}


def is_named(name: str) -> bool:
    """Whether there is a link of that name here.

    Examples
    --------
    >>> from dpkit.models import is_named
    >>> is_named("probit"), is_named("cauchit")
    (True, False)
    """
    return name in _LINKS


def get_link(link: str | Link) -> Link:
    """The link of that name, or the caller's own.

    Parameters
    ----------
    link : {"linear", "logistic", "poisson", "probit"} or Link

    Raises
    ------
    ValueError
        If there is none of that name.

    Examples
    --------
    >>> from dpkit.models import get_link
    >>> get_link("cauchit")
    Traceback (most recent call last):
        ...
    ValueError: link must be one of 'linear', 'logistic', 'poisson', 'probit' or a Link, got link='cauchit'
    """
    if isinstance(link, Link):
        return link
    try:
        return _LINKS[link]
    except (KeyError, TypeError):
        names = ", ".join(map(repr, sorted(_LINKS)))
        raise ValueError(f"link must be one of {names} or a Link, got link={link!r}") from None
