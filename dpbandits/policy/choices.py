"""How a choice at random is drawn, and how probable every arm was: laws of one choice, as values.

A policy whose choice is random returns one of these in place of scores; it is a snapshot, so that the probability can
be asked for later, at no cost to the choice.

* :class:`Shares`: arm k with probability p_k; :class:`Ties`: one of the arms of the largest score. Exact.
* :class:`Independent`: the largest of c_k + s_k·ξ_k with independent standard normal ξ_k; exact to 10⁻⁹.
* :class:`Betas`: the largest of independent beta variables; exact to 10⁻⁹.
* :class:`Perturbed`: the largest of c_k + x_kᵀ(θ + Rξ), ξ ~ N(0, I): the Gaussian measure of a polyhedron
  (:mod:`dpkit.normal_chances` computes this one and that of ``Independent``).

Ties are for the first of the best arms, as in ``argmax``. Beyond 1,000 arms the probabilities of ``Independent`` and
``Perturbed`` are estimates, in about a millisecond for 10,000 arms: without bias, each from draws of its own, so that
the errors of many choices cancel, and with a standard error. 1/p has an estimate of its own without bias, ``inverse``:
the inverse of an estimate of p has one. (:mod:`dpkit.normal_estimates`.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpkit.normal_chances import of_largest, of_polyhedron
from dpkit.normal_estimates import draws_until, draws_until_largest, estimated_chance, estimated_chance_of_largest

__all__ = [
    "EXACT",
    "Betas",
    "Independent",
    "Law",
    "Perturbed",
    "Shares",
    "Ties",
    "Told",
    "gap_shares",
    "inverse_gap",
    "perturbed_by",
]


# a coordinate that is this small beside others is zero
_TINY = 1e-12
# beyond so many arms probabilities are estimated; those of all arms from so many draws, some at once
EXACT, _DRAWS, _AT_ONCE = 1000, 4096, 64
# how many numbers are copied, and how far a sum of scores may be off by rounding, in parts of their sizes
_COPIED, _SAME = 2**14, 1e-11


class Law(ABC):
    """The distribution of one choice."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Array:
        """Scores of shape (K,): the arm of the largest is chosen."""

    def draw_many(self, count: int, rng: np.random.Generator) -> Array:
        """Scores of shape (count, K) of independent draws."""
        return np.stack([self.draw(rng) for _ in range(count)])

    @abstractmethod
    def chance(self, index: int) -> tuple[float, float]:
        """The probability of an arm, and the standard error of that number."""

    @abstractmethod
    def __len__(self) -> int:
        """K."""

    def kept(self) -> Law:
        """The same law, which holds nothing that its caller may change."""
        return self

    def inverse(self, index: int) -> float:
        """1/p of an arm that was drawn; where p is estimated, a number of that mean."""
        found = self.chance(index)[0]
        return 1.0 / found if found else math.inf

    def propensity(self, index: int) -> float:
        """The probability of an arm that was drawn, for a log; one whose inverse has no bias."""
        return self.chance(index)[0]

    def chances(self) -> Array:
        """The probabilities of all arms."""
        return np.array([self.chance(index)[0] for index in range(len(self))])


class Shares(Law):
    """Arm k with probability p_k.

    Examples
    --------
    >>> import numpy as np
    >>> Shares(np.array([0.25, 0.75])).chance(1)
    (0.75, 0.0)
    """

    def __init__(self, shares: Array) -> None:
        self.shares = shares

    def __len__(self) -> int:
        return len(self.shares)

    def draw(self, rng: np.random.Generator) -> Array:
        # the largest of p_k/E_k with independent exponential E_k is a draw from p
        return np.asarray(self.shares / -np.log(rng.random(len(self.shares))))

    def draw_many(self, count: int, rng: np.random.Generator) -> Array:
        return np.asarray(self.shares / -np.log(rng.random((count, len(self)))))

    def chance(self, index: int) -> tuple[float, float]:
        return float(self.shares[index]), 0.0

    def chances(self) -> Array:
        return self.shares.copy()


class Ties(Law):
    """One of the arms of the largest score, each with the same probability.

    Examples
    --------
    >>> import numpy as np
    >>> Ties(np.array([1.0, 0.0, 1.0])).chances().tolist()
    [0.5, 0.0, 0.5]
    """

    TOLERANCE = 1e-9

    def __init__(self, scores: Array) -> None:
        self.scores, self.best = scores, scores >= scores.max() - self.TOLERANCE

    def __len__(self) -> int:
        return len(self.scores)

    def draw(self, rng: np.random.Generator) -> Array:
        order = self.scores.max() + self.TOLERANCE * rng.random(len(self.scores))
        return np.where(self.best, order, self.scores)

    def draw_many(self, count: int, rng: np.random.Generator) -> Array:
        order = self.scores.max() + self.TOLERANCE * rng.random((count, len(self)))
        return np.where(self.best, order, self.scores)

    def chance(self, index: int) -> tuple[float, float]:
        return float(self.best[index] / self.best.sum()), 0.0


class Told(Law):
    """A choice among K arms that was made elsewhere, with a probability that we are told."""

    def __init__(self, probability: float, count: int) -> None:
        self.probability, self.count = probability, count

    def __len__(self) -> int:
        return self.count

    def draw(self, rng: np.random.Generator) -> Array:
        raise RuntimeError("a choice that was made elsewhere cannot be made again")

    def chance(self, index: int) -> tuple[float, float]:
        return self.probability, 0.0


def inverse_gap(scores: Array, rate: float) -> Shares:
    """p_a = 1/(K + rate·gap_a) for all arms but the best, and the rest for that.

    Source: Foster & Rakhlin, "Beyond UCB" (ICML 2020, arXiv:2002.04926), Algorithm 1; the rule is that of Abe & Long
    (1999). Arms of score −∞ are left out.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_gap(np.array([0.5, 0.0, 0.5]), rate=4.0).shares.tolist()
    [0.4666666666666667, 0.2, 0.3333333333333333]
    """
    return Shares(gap_shares(scores, rate))


def gap_shares(scores: Array, rate: float) -> Array:
    """The probabilities of :func:`inverse_gap`, for one round or for rows of them."""
    offered = np.isfinite(scores)
    best = scores.argmax(axis=-1)[..., None]
    gaps = np.where(offered, np.take_along_axis(scores, best, axis=-1) - scores, 0.0)
    shares: Array = np.where(offered, 1.0 / (offered.sum(axis=-1, keepdims=True) + rate * gaps), 0.0)
    np.put_along_axis(shares, best, 0.0, axis=-1)
    np.put_along_axis(shares, best, 1.0 - shares.sum(axis=-1, keepdims=True), axis=-1)
    return shares


class Independent(Law):
    """The largest of c_k + s_k·ξ_k; an arm with c_k = −∞ is not offered.

    Examples
    --------
    >>> import numpy as np
    >>> round(Independent(np.zeros(3), np.array([1.0, 1.0, 1.0])).chance(0)[0], 12)
    0.333333333333
    """

    def __init__(self, center: Array, scale: Array) -> None:
        self.center, self.scale = center, scale

    def __len__(self) -> int:
        return len(self.center)

    def draw(self, rng: np.random.Generator) -> Array:
        return np.asarray(self.center + self.scale * rng.standard_normal(len(self.center)))

    def draw_many(self, count: int, rng: np.random.Generator) -> Array:
        return np.asarray(self.center + self.scale * rng.standard_normal((count, len(self))))

    def chance(self, index: int) -> tuple[float, float]:
        if len(self) > EXACT:
            return estimated_chance_of_largest(self.center, self.scale, index, rng=np.random.default_rng())
        return of_largest(self.center, self.scale, index), 0.0

    def inverse(self, index: int) -> float:
        if len(self) > EXACT:
            return float(draws_until_largest(self.center, self.scale, index, rng=np.random.default_rng()))
        return super().inverse(index)

    def propensity(self, index: int) -> float:
        return 1.0 / self.inverse(index) if len(self) > EXACT else super().propensity(index)


class Betas(Law):
    """The largest of independent X_k ~ Beta(a_k, b_k), among the arms that are offered.

    Parameters
    ----------
    a, b : ndarray of shape (K,)
        At least 1 each.
    offered : ndarray of shape (K,)
        Whether an arm takes part.

    Examples
    --------
    >>> import numpy as np
    >>> law = Betas(np.array([2.0, 1.0, 9.0]), np.array([1.0, 1.0, 1.0]), np.array([True, True, False]))
    >>> law.chances().round(9).tolist()      # P(X > U) = E X = 2/3
    [0.666666667, 0.333333333, 0.0]
    """

    # where a law is cut into pieces: e^x/(1 + e^x) of its probability lies below
    _LEVELS = np.linspace(-36.0, 36.0, 25)
    _NODES = 12

    def __init__(self, a: Array, b: Array, offered: NDArray[np.bool_]) -> None:
        self.a, self.b, self.offered = a, b, offered

    def __len__(self) -> int:
        return len(self.a)

    def draw(self, rng: np.random.Generator) -> Array:
        # the share of one gamma variable in two: the secure source draws these
        one, other = rng.standard_gamma(self.a), rng.standard_gamma(self.b)
        return np.where(self.offered, one / (one + other), -np.inf)

    def draw_many(self, count: int, rng: np.random.Generator) -> Array:
        one, other = (rng.standard_gamma(np.broadcast_to(share, (count, len(self)))) for share in (self.a, self.b))
        return np.where(self.offered, one / (one + other), -np.inf)

    def chance(self, index: int) -> tuple[float, float]:
        """∫ f_k(x)·Π_{j≠k} F_j(x) dx, by Gauss–Legendre rules on the pieces between quantiles of all arms."""
        from scipy.special import betainc, betaincinv, betaln, expit, xlog1py, xlogy

        if not self.offered[index]:
            return 0.0, 0.0
        others = self.offered & (np.arange(len(self)) != index)
        a, b, A, B = self.a[index], self.b[index], self.a[others, None], self.b[others, None]
        own = betaincinv(a, b, expit(self._LEVELS))
        cuts = np.unique(np.concatenate([[0.0, 1.0], own, betaincinv(A, B, expit(self._LEVELS)).ravel()]))
        # beyond these there is nothing of it
        cuts = cuts[(cuts >= own[0]) & (cuts <= own[-1])]
        nodes, weights = np.polynomial.legendre.leggauss(self._NODES)
        half = 0.5 * np.diff(cuts)[:, None]
        x = (cuts[:-1, None] + half * (1.0 + nodes)).ravel()
        density = np.exp(xlogy(a - 1.0, x) + xlog1py(b - 1.0, -x) - betaln(a, b))
        below = betainc(A, B, x).prod(axis=0)
        return min(1.0, float((density * below) @ (half * weights).ravel())), 0.0


def perturbed_by(theta: Array | None, root: Array | None, dim: int, count: int, rng: np.random.Generator) -> Array:
    """θ + Rξ for as many ξ ~ N(0, I), shape (count, d); by default θ = 0 and R the identity of d = ``dim``."""
    xi: Array = rng.standard_normal((count, dim if root is None else root.shape[1]))
    if root is not None:
        xi = xi @ root.T
    return xi if theta is None else np.add(theta, xi, out=xi)


class Perturbed(Law):
    """The largest of x_kᵀ(θ + Rξ) + c_k, for standard normal ξ.

    Parameters
    ----------
    arms : ndarray of shape (K, d)
        The caller's. Of more than 2¹⁴ numbers no copy is made: a probability that is asked for after they were changed
        raises a ``RuntimeError``.
    theta : ndarray of shape (d,), optional
    root : ndarray of shape (d, m), optional
        R, by default the identity.
    bonus : ndarray of shape (K,), optional
    copy : bool
        Whether few numbers are copied.

    Attributes
    ----------
    drawn : ndarray of shape (d,) or None
        The last θ + Rξ that was drawn.
    total : float or None
        The sum of its scores, by which arms that were changed are told; None where they were copied.

    Examples
    --------
    In a random direction each of two orthogonal arms is as likely as the other, and a third between them loses:

    >>> import numpy as np
    >>> law = Perturbed(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]))
    >>> law.chances().round(9).tolist()
    [0.5, 0.5, 0.0]
    """

    def __init__(
        self,
        arms: Array,
        theta: Array | None = None,
        root: Array | None = None,
        bonus: Array | None = None,
        *,
        copy: bool = True,
    ) -> None:
        own = copy and arms.size <= _COPIED
        self.arms = arms.copy() if own else arms
        self.theta, self.root, self.bonus = theta, root, bonus
        self.drawn: Array | None = None
        self.total: float | None = None if own else 0.0

    def __len__(self) -> int:
        return len(self.arms)

    def draw(self, rng: np.random.Generator) -> Array:
        xi: Array = rng.standard_normal((self.arms if self.root is None else self.root).shape[1:])
        if self.root is not None:
            xi = self.root @ xi
        self.drawn = xi if self.theta is None else self.theta + xi
        scores = self.arms @ self.drawn
        if self.total is not None:
            self.total = float(scores.sum())
        return np.asarray(scores if self.bonus is None else scores + self.bonus)

    def parameters(self, count: int, rng: np.random.Generator) -> Array:
        """θ + Rξ of as many draws, shape (count, d)."""
        return perturbed_by(self.theta, self.root, self.arms.shape[1], count, rng)

    def scores(self, parameter: Array) -> Array:
        """What is maximised where this θ + Rξ was drawn."""
        products = self.arms @ parameter
        return np.asarray(products if self.bonus is None else products + self.bonus)

    def as_drawn(self, parameter: Array) -> Perturbed:
        """The same law of arms that nobody changes, of which this θ + Rξ was drawn."""
        law = Perturbed(self.arms, self.theta, self.root, self.bonus, copy=False)
        law.drawn, law.total = parameter, None
        return law

    def kept(self) -> Law:
        law = Perturbed(self.arms.copy(), self.theta, self.root, self.bonus, copy=False)
        law.drawn, law.total = self.drawn, None
        return law

    def _check_arms(self) -> None:
        """Refuse arms that are others than those of the draw."""
        if self.drawn is None or self.total is None:
            return
        scores = self.arms @ self.drawn
        if not abs(float(scores.sum()) - self.total) <= _SAME * (1.0 + float(np.abs(scores).sum())):
            raise RuntimeError(
                "arms must be left unchanged until the probability of a choice among them was asked for, got others: "
                "ask at once, or offer a copy"
            )

    def chance(self, index: int) -> tuple[float, float]:
        self._check_arms()
        if len(self) > EXACT:
            return estimated_chance(self.arms, index, *self._posterior, rng=self._own_draws("chance"))
        others = np.arange(len(self)) != index
        # arm ``index`` wins where A·ξ + b ≥ 0
        apart = self.arms[index] - self.arms[others]
        b = np.zeros(len(apart)) if self.theta is None else apart @ self.theta
        if self.bonus is not None:
            b = b + self.bonus[index] - self.bonus[others]
        A = apart if self.root is None else apart @ self.root
        lengths = np.sqrt(np.einsum("ij,ij->i", A, A))
        moved = lengths > _TINY * max(1.0, float(np.abs(self.arms).max()))
        later = np.flatnonzero(others) > index
        if not ((b > 0.0) | ((b == 0.0) & later))[~moved].all():
            return 0.0, 0.0
        return of_polyhedron(A[moved], b[moved])

    def inverse(self, index: int) -> float:
        if len(self) <= EXACT:
            return super().inverse(index)
        self._check_arms()
        return float(draws_until(self.arms, index, *self._posterior, rng=self._own_draws("inverse")))

    def propensity(self, index: int) -> float:
        return 1.0 / self.inverse(index) if len(self) > EXACT else super().propensity(index)

    def chances(self) -> Array:
        if len(self) <= EXACT:
            return super().chances()
        self._check_arms()
        rng, won = self._own_draws("chances"), np.zeros(len(self))
        for _ in range(_DRAWS // _AT_ONCE):
            scores = self.parameters(_AT_ONCE, rng) @ self.arms.T
            np.add.at(won, (scores if self.bonus is None else scores + self.bonus).argmax(axis=1), 1.0 / _DRAWS)
        return won

    @property
    def _posterior(self) -> tuple[Array | None, Array | None, Array | None]:
        return self.theta, self.root, self.bonus

    def _own_draws(self, purpose: str) -> np.random.Generator:
        """For estimates: other draws for every choice, and the same whenever the same one is asked for."""
        if self.drawn is None:
            return np.random.default_rng()
        data = blake2b(self.drawn.tobytes(), digest_size=16, person=purpose.encode()).digest()
        return np.random.default_rng(int.from_bytes(data, "little"))
