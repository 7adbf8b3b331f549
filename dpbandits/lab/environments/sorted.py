"""Rounds that come in an order: sorted by what they offer, as logs often are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from dpbandits.lab.environments.base import Environment, Round, Wrapper, checked_rounds

__all__ = ["Sorted"]


class Sorted(Wrapper):
    """The first ``rounds`` rounds of another environment, in ascending order of a number.

    What comes early then says little about what comes late: a log by region, by price or by customer. The rounds
    themselves, and their luck, are those of the wrapped episode.

    Parameters
    ----------
    environment : Environment
        With at least ``rounds`` rounds.
    rounds : int
        How many are sorted and played; all are held in memory.
    key : callable, optional
        From a :class:`~dpbandits.lab.environments.Round` to the number. By default the first entry of its context, or
        of the mean of its arms.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.environments import GLM
    >>> rounds = Sorted(GLM(dim=3), rounds=100).episode(np.random.default_rng(0))
    >>> first = [now.arms.mean(axis=0)[0] for now in rounds]
    >>> first == sorted(first), len(first)
    (True, 100)
    """

    def __init__(self, environment: Environment, *, rounds: int, key: Callable[[Round], float] | None = None) -> None:
        self.key = _first_entry if key is None else key
        super().__init__(environment, "sorted", checked_rounds(rounds, environment))

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """The rounds of the wrapped episode, sorted."""
        yield from sorted(islice(self.environment.episode(rng), self.rounds), key=self.key)


def _first_entry(now: Round) -> float:
    return float(now.arms[:, 0].mean() if now.context is None else now.context[0])
