"""A world of your own: a news page whose readers want other topics in the morning than in the evening.

An environment is any object with the attributes below and ``episode(rng)``, which draws everything from ``rng``: so all
policies of a simulation meet the same readers and the same luck. Here K topics have one-hot features for the first half
of a day and others for the second, readers come back, and one in ten rewards comes some rounds late.

    >>> from accounting import Budget
    >>> from dpbandits import simulate
    >>> from dpbandits.policies import OnePassPrivateGLM, Uniform
    >>> page = NewsPage(topics=3, readers=500)
    >>> policies = {
    ...     "uniform": lambda rng: Uniform(page.dim, rng=rng),
    ...     "private": lambda rng: OnePassPrivateGLM(page.dim, budget=Budget(4.0, 1e-4), horizon=4000, rng=rng),
    ... }
    >>> results = simulate(policies, page, rounds=4000, seeds=range(2), progress=False)
    >>> regret = {name: sum(run.regret[-1] for run in results.runs if run.policy == name) for name in policies}
    >>> bool(regret["private"] < 0.8 * regret["uniform"])
    True
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accounting.checks import integer
from dpbandits.lab.environments import Round

__all__ = ["NewsPage"]


class NewsPage:
    """K topics, a day of so many rounds, and readers who come back.

    Parameters
    ----------
    topics : int
        K, at least 2.
    readers : int
        How many different persons come.
    day : int
        Rounds of a day, at least 2.
    """

    link, theta_bound, reward_range, rounds = "logistic", 3.0, (0.0, 1.0), None

    def __init__(self, topics: int = 5, *, readers: int = 1000, day: int = 200) -> None:
        self.topics = integer("topics", topics, at_least=2)
        self.readers = integer("readers", readers, at_least=1)
        self.day = integer("day", day, at_least=2)
        self.dim, self.name = 2 * self.topics, f"news page of {topics} topics"

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """Rounds without end."""
        likes = rng.uniform(0.1, 0.9, (2, self.topics))
        arms = np.stack([np.eye(self.topics, self.dim), np.eye(self.topics, self.dim, self.topics)])
        t = 0
        while True:
            half = int(2 * (t % self.day) >= self.day)
            rewards = (rng.random(self.topics) < likes[half]).astype(float)
            delay = int(rng.integers(1, 50)) if rng.random() < 0.1 else 0
            yield Round(arms[half], rewards, likes[half], delay=delay, person=int(rng.integers(self.readers)))
            t += 1
