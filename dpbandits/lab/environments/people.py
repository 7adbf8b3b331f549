"""People who come back: a synthetic person for every round of another environment.

============  ==================================================================================================
returns       how often the n persons come in T rounds
============  ==================================================================================================
fixed         T/n times each, rounded up for the first ones
zipf          proportionally to 1, 2^−a, 3^−a, …, but everyone at least once and nobody more than ``most`` times
============  ==================================================================================================

How often each comes is fixed, and who comes when is a uniformly random order, drawn from the seed. The rounds do not
depend on the person: what people cost is measured apart from what they are like (``Films`` has real ones).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accounting.checks import choice, integer, positive
from dpbandits.lab.environments.base import Environment, Round, Wrapper, checked_rounds

__all__ = ["People"]


class People(Wrapper):
    """The first ``rounds`` rounds of another environment, each with one of ``persons`` persons, numbered from 0.

    Parameters
    ----------
    environment : Environment
        With at least ``rounds`` rounds. They stay as they are, but for persons of its own.
    persons : int
        n.
    rounds : int
        T ≥ n.
    returns : {"fixed", "zipf"}
        See the module.
    exponent : float
        a > 0, of ``zipf``.
    most : int, optional
        How often one person comes at most under ``zipf``; n·most ≥ T. By default T.

    Attributes
    ----------
    visits : (n,) ndarray of int
        How often each person comes; they add up to T.

    Raises
    ------
    ValueError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.environments import GLM
    >>> world = People(GLM(dim=3), persons=4, rounds=20, returns="zipf", most=9)
    >>> world.visits.tolist()
    [9, 5, 3, 3]
    >>> [now.person for now in world.episode(np.random.default_rng(0))][:8]
    [1, 0, 3, 2, 0, 3, 3, 0]
    """

    def __init__(
        self,
        environment: Environment,
        *,
        persons: int = 500,
        rounds: int = 5000,
        returns: Literal["fixed", "zipf"] = "fixed",
        exponent: float = 1.0,
        most: int | None = None,
    ) -> None:
        self.persons = integer("persons", persons, at_least=1)
        count = checked_rounds(rounds, environment, at_least=self.persons)
        self.exponent = positive("exponent", exponent)
        cap = count if most is None else integer("most", most, at_least=1)
        self.returns = choice("returns", returns, "fixed", "zipf")
        if returns == "fixed":
            self.visits = np.full(self.persons, count // self.persons)
            self.visits[: count % self.persons] += 1
        else:
            if self.persons * cap < count:
                raise ValueError(f"most must be at least rounds/persons, {count / self.persons:g}, got most={most!r}")
            self.visits = _apportioned(np.arange(1.0, self.persons + 1) ** -self.exponent, count, cap)
        super().__init__(environment, f"{self.persons} persons ({returns} returns)", count)

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """The rounds of the wrapped episode, with persons."""
        rounds = islice(self.environment.episode(rng), self.rounds)
        # the wrapped episode takes what generators it needs with its first round; they must be the same without persons
        first = next(rounds)
        order = rng.spawn(1)[0].permutation(np.repeat(np.arange(self.persons), self.visits))
        for now, person in zip(chain([first], rounds), order.tolist(), strict=True):
            yield replace(now, person=person)


def _apportioned(weights: NDArray[np.floating], total: int, most: int) -> NDArray[np.int64]:
    """Whole numbers in [1, most] that add up to ``total``, proportional to descending ``weights`` but for the bounds.

    With shares s·w_i cut to [1, most], s is such that they add up; then those with the largest remainders are rounded
    up.
    """
    low, high = 0.0, total / float(weights[-1])
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.clip(middle * weights, 1, most).sum() < total else (low, middle)
    shares = np.clip(high * weights, 1, most)
    counts: NDArray[np.int64] = np.floor(shares + 1e-9).astype(np.int64)
    rest = np.where(counts < most, shares - counts, -1.0)
    counts[np.argsort(-rest, kind="stable")[: total - int(counts.sum())]] += 1
    return counts
