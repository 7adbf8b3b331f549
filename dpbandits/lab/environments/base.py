"""What a simulation needs of a world: rounds of arms with the reward that every arm would give.

An environment is any object with the attributes of :class:`Environment`. Its ``episode(rng)`` yields rounds, and draws
everything that is random in them from ``rng`` alone. Two policies that are run on the same seed therefore see the same
arms *and* the same luck (common random numbers), which makes their difference far less noisy than their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from accounting.arrays import Array
from accounting.checks import integer
from dpkit.models.links import Link

__all__ = ["Environment", "Named", "Round", "Wrapper", "checked_rounds", "without_features"]


@dataclass(slots=True, eq=False)
class Round:
    """One round: what may be chosen, and what each choice would give.

    Attributes
    ----------
    arms : ndarray of shape (K, d)
        Rows of norm at most 1.
    rewards : ndarray of shape (K,)
        The reward that each arm gives if it is chosen in this round. A policy is told one of them.
    means : ndarray of shape (K,), optional
        Their expectations, where they are known: regret is measured with these.
    context : ndarray of shape (m,), optional
        What policies with a parameter for every arm are given in place of ``arms``: entries in [−1, 1], and the
        rows of the other fields are the same K arms in every round. See :mod:`dpbandits.policy.offers`.
    delay : int or None
        How many further rounds are played before the reward is told: 0 is at once; None is never.
    person : int or str, optional
        Who comes, where persons come back.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.environments import Round
    >>> now = Round(arms=np.eye(2), rewards=np.array([0.0, 1.0]), means=np.array([0.2, 0.8]))
    >>> float(now.means.max())
    0.8
    """

    arms: Array
    rewards: Array
    means: Array | None = None
    context: Array | None = None
    delay: int | None = 0
    person: int | str | None = None

    def __repr__(self) -> str:
        best = "" if self.means is None else f", means up to {self.means.max():.6g}"
        person = "" if self.person is None else f", of person {self.person!r}"
        return f"Round({len(self.arms)} arms{best}{person})"

    def reward(self, index: int) -> float:
        """The reward of the arm in row ``index``."""
        return float(self.rewards[index])


class Environment(Protocol):
    """A source of rounds.

    Attributes
    ----------
    name : str
        Shown in results and plots.
    dim : int
        Dimension d of an arm.
    link : str or Link
        The model that a policy is advised to use.
    theta_bound : float
        S, a bound on the norm of a good parameter.
    reward_range : (float, float)
        Finite: the range of the rewards, or, where they have none, the range to which a private policy clips them.
    rounds : int or None
        How many rounds an episode has; None is without end.

    Some have ``base_rate``, what policies are told the mean reward of an arm taken at random to be, and
    ``noise_tail`` and ``noise_scale`` too: ε and ν with E|r − E r|^{1+ε} ≤ ν^{1+ε}, as policies for heavy
    tails take them. Where they are missing, the commands use ε = 1 and half the length of the range of rewards. Those
    whose rows are the same K arms in every round have ``n_arms``, K, which policies for named arms need; and those that
    show contexts ``context_dim`` besides.

    Examples
    --------
    Two arms, of which the second pays more often:

    >>> class Coins:
    ...     name, dim, link, theta_bound, reward_range, rounds = "two coins", 2, "logistic", 3.0, (0.0, 1.0), None
    ...     def episode(self, rng):
    ...         means = np.array([0.2, 0.8])
    ...         while True:
    ...             yield Round(np.eye(2), (rng.random(2) < means).astype(float), means)
    >>> next(Coins().episode(np.random.default_rng(0))).arms.shape
    (2, 2)
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    @property
    def link(self) -> str | Link: ...

    @property
    def theta_bound(self) -> float: ...

    @property
    def reward_range(self) -> tuple[float, float]: ...

    @property
    def rounds(self) -> int | None: ...

    def episode(self, rng: np.random.Generator) -> Iterator[Round]:
        """The rounds of one episode, a function of ``rng`` alone."""
        ...


def checked_rounds(rounds: int | None, environment: Environment, *, at_least: int = 1) -> int:
    """How many rounds are played, where nothing is said all: as many as the environment has at most."""
    if rounds is None:
        rounds = environment.rounds
    if rounds is None:
        raise ValueError(f"rounds must be given: {environment.name} has no end")
    count = integer("rounds", rounds, at_least=at_least)
    if environment.rounds is not None and count > environment.rounds:
        raise ValueError(f"rounds must be at most {environment.rounds} for {environment.name}, got rounds={rounds}")
    return count


def without_features(environment: Environment) -> bool:
    """Whether its arms are fixed and have nothing in common: a shared model has one parameter for each arm."""
    return getattr(environment, "n_arms", None) == environment.dim


class Named:
    """Base of environments: it keeps what every one says of itself, and prints itself by its name."""

    def __init__(
        self,
        name: str,
        dim: int,
        link: str | Link,
        theta_bound: float,
        reward_range: tuple[float, float] = (0.0, 1.0),
        rounds: int | None = None,
    ) -> None:
        self.name, self.dim, self.link, self.rounds = name, dim, link, rounds
        self.theta_bound, self.reward_range = theta_bound, reward_range

    def __repr__(self) -> str:
        count = "no end" if self.rounds is None else f"{self.rounds:,} rounds"
        return f"{type(self).__name__}({self.name!r}): {count}"


class Wrapper(Named):
    """Base of environments that change the rounds of another one; they have all its other attributes too."""

    def __init__(self, environment: Environment, note: str, rounds: int | None = None) -> None:
        self.environment, one = environment, environment
        count = one.rounds if rounds is None else rounds
        super().__init__(f"{one.name}, {note}", one.dim, one.link, one.theta_bound, one.reward_range, count)

    def __getattr__(self, name: str) -> Any:
        if name == "environment":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.environment, name)
