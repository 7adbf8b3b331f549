"""Arms that come and go: a changing part of another environment's arms is on offer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from accounting.checks import fraction
from dpbandits.lab.environments.base import Environment, Round, Wrapper

__all__ = ["Available"]


class Available(Wrapper):
    """Another environment of which every arm is on offer for some rounds and then not.

    Row k of the arms is on offer as a Markov chain says: with probability ``stay`` it is as it was a round before,
    else it is on offer with probability ``share``. At least one arm always is. K thus changes from round to round, and
    regret is measured against the best arm on offer.

    Parameters
    ----------
    environment : Environment
        Any one with the same number of arms in every round, and without contexts. Its rounds stay as they are, but for
        the rows that are left out.
    share : float
        The part of the rounds in which an arm is on offer, in (0, 1].
    stay : float
        In [0, 1): 0 draws anew in every round; an arm comes or goes about every 1/(1 − ``stay``) rounds.

    Raises
    ------
    ValueError
        For a parameter out of range, and in an episode if an environment does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.environments import GLM
    >>> rounds = Available(GLM(dim=3, arms=8), share=0.5).episode(np.random.default_rng(0))
    >>> [len(next(rounds).arms) for _ in range(5)]
    [4, 4, 4, 4, 5]
    """

    def __init__(self, environment: Environment, *, share: float = 0.5, stay: float = 0.9) -> None:
        self.share = fraction("share", share, include_one=True)
        self.stay = fraction("stay", stay, include_zero=True)
        super().__init__(environment, f"{100 * self.share:g} % of the arms on offer")

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """The rounds of the wrapped episode, each with a part of its arms."""
        own = rng.spawn(1)[0]
        on: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
        for now in self.environment.episode(rng):
            K = len(now.arms)
            fresh = own.random(K) < self.share
            if on is None:
                on = fresh
            elif len(on) == K:
                on = np.where(own.random(K) < self.stay, on, fresh)
            if now.context is not None or len(on) != K:
                raise ValueError(f"environment must have arms alone, {len(on)} in every round, got {self.name}")
            rows = np.flatnonzero(on) if on.any() else own.integers(K, size=1)
            means = None if now.means is None else now.means[rows]
            yield replace(now, arms=now.arms[rows], rewards=now.rewards[rows], means=means)
