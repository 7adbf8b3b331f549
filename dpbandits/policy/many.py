"""The laws of many choices at once, and how all of them are drawn: what :mod:`dpbandits.policy.choices` is for one.

A policy that can choose for many requests at once returns one of these from ``score_many``. What is drawn has the law
of one draw after the other. With the same seed it is the same choices, but for rounding, and for :class:`Repeated`
draws of ``Betas``.

* :class:`Each`: of every request its own law, or scores; what a policy has that says nothing else.
* :class:`Repeated`: the same law for all requests.
* :class:`Gaps`: rows of probabilities; :class:`Known`: rows of scores.
* :class:`Perturbations`: the arms of every request under draws from one posterior; :class:`Noised`: scores of every
  request with noise of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpbandits.policy.choices import EXACT, Independent, Law, Perturbed, Shares, perturbed_by

__all__ = [
    "Each",
    "Gaps",
    "Index",
    "Known",
    "Laws",
    "Noised",
    "Perturbations",
    "Repeated",
    "Rounds",
    "by_rows",
    "together",
]

# what many requests offer: arms of shape (n, K, d) or contexts of shape (n, d); or of each its own array
Rounds = Array | Sequence[Array]
Index = NDArray[np.int64]

# numbers that are worked on at once: they stay in a processor's second cache
_BLOCK = 2**17


class Laws(ABC):
    """The distributions of the choices of many requests."""

    @abstractmethod
    def __len__(self) -> int:
        """n."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Index:
        """The chosen arm of every request, shape (n,)."""

    @abstractmethod
    def of(self, i: int) -> Law | None:
        """The law of one request; None where nothing is left to chance."""

    def chances(self, picks: Index) -> Array:
        """The probability of one arm for each request."""
        laws = map(self.of, range(len(self)))
        found = (1.0 if law is None else law.chance(index)[0] for law, index in zip(laws, picks.tolist(), strict=True))
        return np.fromiter(found, np.float64, len(self))


class Each(Laws):
    """Laws, or scores, one for every request.

    Examples
    --------
    >>> import numpy as np
    >>> laws = Each([np.array([0.0, 1.0]), Shares(np.array([1.0, 0.0]))])
    >>> laws.draw(np.random.default_rng(0)).tolist(), laws.of(0)
    ([1, 0], None)
    """

    def __init__(self, laws: Sequence[Array | Law]) -> None:
        self._laws = laws

    def __len__(self) -> int:
        return len(self._laws)

    def draw(self, rng: np.random.Generator) -> Index:
        scores = (one.draw(rng) if isinstance(one, Law) else one for one in self._laws)
        return np.fromiter((one.argmax() for one in scores), np.int64, len(self))

    def of(self, i: int) -> Law | None:
        return found if isinstance(found := self._laws[i], Law) else None


class Repeated(Laws):
    """n independent choices by one law.

    Examples
    --------
    >>> import numpy as np
    >>> Repeated(Shares(np.array([0.0, 1.0])), 3).draw(np.random.default_rng(0)).tolist()
    [1, 1, 1]
    """

    def __init__(self, law: Law, count: int) -> None:
        self._law, self._count = law, count

    def __len__(self) -> int:
        return self._count

    def draw(self, rng: np.random.Generator) -> Index:
        step = max(1, _BLOCK // len(self._law))
        sizes = (min(step, self._count - start) for start in range(0, self._count, step))
        return np.concatenate([self._law.draw_many(size, rng).argmax(axis=1) for size in sizes])

    def of(self, i: int) -> Law | None:
        return self._law

    def chances(self, picks: Index) -> Array:
        if len(self._law) > EXACT:  # each an estimate of its own
            return super().chances(picks)
        arms, places = np.unique(picks, return_inverse=True)
        return np.array([self._law.chance(arm)[0] for arm in arms.tolist()])[places]


class Gaps(Laws):
    """Rows of probabilities, shape (n, K), as of ``choices.gap_shares``.

    Examples
    --------
    >>> import numpy as np
    >>> laws = Gaps(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> laws.draw(np.random.default_rng(0)).tolist(), laws.of(1).chances().tolist()
    ([1, 0], [1.0, 0.0])
    """

    def __init__(self, shares: Array) -> None:
        self._shares = shares

    def __len__(self) -> int:
        return len(self._shares)

    def draw(self, rng: np.random.Generator) -> Index:
        return np.asarray((self._shares / -np.log(rng.random(self._shares.shape))).argmax(axis=1))

    def of(self, i: int) -> Law | None:
        return Shares(self._shares[i])

    def chances(self, picks: Index) -> Array:
        return np.asarray(self._shares[np.arange(len(self)), picks])


class Known(Laws):
    """Rows of scores, shape (n, K): nothing is left to chance.

    Examples
    --------
    >>> import numpy as np
    >>> Known(np.array([[0.0, 1.0], [1.0, 0.0]])).draw(np.random.default_rng(0)).tolist()
    [1, 0]
    """

    def __init__(self, scores: Array) -> None:
        self._scores = scores

    def __len__(self) -> int:
        return len(self._scores)

    def draw(self, rng: np.random.Generator) -> Index:
        return np.asarray(self._scores.argmax(axis=1))

    def of(self, i: int) -> None:
        return None


class Noised(Laws):
    """The largest of c_k + s_k·ξ_k for every request: ``choices.Independent``, of rows of c and s, shape (n, K).

    Examples
    --------
    >>> import numpy as np
    >>> laws = Noised(np.array([[0.0, 9.0], [0.0, 0.0]]), np.full((2, 2), 0.1))
    >>> laws.draw(np.random.default_rng(0))[0], round(laws.of(1).chance(0)[0], 12)
    (np.int64(1), 0.5)
    """

    def __init__(self, center: Array, scale: Array) -> None:
        self._center, self._scale = center, scale

    def __len__(self) -> int:
        return len(self._center)

    def draw(self, rng: np.random.Generator) -> Index:
        scores = rng.standard_normal(self._center.shape)
        scores *= self._scale
        scores += self._center
        return np.asarray(scores.argmax(axis=1))

    def of(self, i: int) -> Law:
        return Independent(self._center[i], self._scale[i])


class Perturbations(Laws):
    """The largest of x_kᵀ(θ + Rξ) + c_k for every request, with a ξ of its own: ``choices.Perturbed``, many times.

    The arms are not copied: whoever asks for a probability later leaves them unchanged until then.

    Parameters
    ----------
    rounds : ndarray of shape (n, K, d), or a sequence of arrays of shape (K_i, d)
    theta : ndarray of shape (d,), optional
    root : ndarray of shape (d, m), optional
        R, by default the identity.
    bonus : ndarray of shape (n, K), or a sequence of arrays, optional
        c.

    Examples
    --------
    >>> import numpy as np
    >>> laws = Perturbations(np.array([np.eye(2), np.eye(2)]), np.array([9.0, 0.0]))
    >>> laws.draw(np.random.default_rng(0)).tolist()
    [0, 0]
    """

    def __init__(
        self, rounds: Rounds, theta: Array | None = None, root: Array | None = None, bonus: Rounds | None = None
    ) -> None:
        self._rounds, self._theta, self._root, self._bonus = rounds, theta, root, bonus
        # the parameters that were drawn, and the sum of all scores of each
        self._drawn: Array | None = None
        self._sums: Array | None = None

    def __len__(self) -> int:
        return len(self._rounds)

    def draw(self, rng: np.random.Generator) -> Index:
        n, rounds, bonus = len(self), self._rounds, self._bonus
        found, sums = np.empty(n, np.int64), np.empty(n)
        drawn = perturbed_by(self._theta, self._root, rounds[0].shape[1], n, rng)
        if isinstance(rounds, np.ndarray):
            K, d = rounds.shape[1:]
            step, ones = max(1, _BLOCK // (K * d)), np.ones(K)
            for start in range(0, n, step):
                part = slice(start, start + step)
                scores = np.matmul(rounds[part], drawn[part, :, None])[:, :, 0]
                np.dot(scores, ones, out=sums[part])
                if bonus is not None:
                    scores += bonus[part]
                scores.argmax(axis=1, out=found[part])
        else:
            for i, (arms, w) in enumerate(zip(rounds, drawn, strict=True)):
                scores = arms @ w
                sums[i] = scores.sum()
                found[i] = (scores if bonus is None else scores + bonus[i]).argmax()
        self._drawn, self._sums = drawn, sums
        return found

    def of(self, i: int) -> Law | None:
        bonus = None if self._bonus is None else self._bonus[i]
        law = Perturbed(self._rounds[i], self._theta, self._root, bonus, copy=False)
        if self._drawn is not None and self._sums is not None:
            law.drawn, law.total = self._drawn[i], float(self._sums[i])
        return law


def by_rows(score: Callable[[Array], Array | Law], rounds: Rounds) -> Laws:
    """The laws of many requests, by scoring all their arms as if they were one's.

    Parameters
    ----------
    score : callable
        From rows of arms to scores, or to a ``Perturbed``, in which the part of every arm depends on its own row alone.
    rounds : ndarray of shape (n, K, d), or a sequence of arrays of shape (K_i, d)

    Examples
    --------
    >>> import numpy as np
    >>> laws = by_rows(lambda arms: arms @ np.array([1.0, 0.0]), [np.eye(2), -np.eye(2)])
    >>> laws.draw(np.random.default_rng(0)).tolist()
    [0, 1]
    """
    if isinstance(rounds, np.ndarray):
        n, K, d = rounds.shape
        found = score(rounds.reshape(n * K, d))
        if isinstance(found, Perturbed):
            bonus = None if found.bonus is None else found.bonus.reshape(n, K)
            return Perturbations(rounds, found.theta, found.root, bonus)
        return Each([score(one) for one in rounds]) if isinstance(found, Law) else Known(found.reshape(n, K))
    found, ends = score(np.concatenate(rounds)), np.cumsum([len(one) for one in rounds])[:-1]
    if isinstance(found, Perturbed):
        return Perturbations(
            rounds, found.theta, found.root, None if found.bonus is None else np.split(found.bonus, ends)
        )
    return Each([score(one) for one in rounds] if isinstance(found, Law) else np.split(found, ends))


def together(rounds: Sequence[Array]) -> Rounds:
    """As one array, where all have one shape; else as they came."""
    return np.stack(rounds) if len({one.shape for one in rounds}) == 1 else rounds
