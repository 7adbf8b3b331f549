"""Rejection replay: how a policy that learns would have done, from a log of choices at random.

Li, Chu, Langford & Wang (2011): the policy is offered the rounds of the log one by one. Where it chooses what the log
chose, it is told the reward; it learns nothing of the others. If the logged choices were uniform and independent, the
rounds that are left are distributed like those of a live run, so their mean reward is an unbiased estimate, also of a
policy that learns. About n/K rounds are left.

Where the log's choices were not uniform but their probabilities p ≥ p_min are known, a round is kept with probability
p_min/p beforehand (rejection sampling), which leaves uniform choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction
from dpbandits.lab.evaluate.estimate import Estimate, opened, summed
from dpbandits.lab.evaluate.support import Support, supported, warned
from dpbandits.policy.protocol import Policy

__all__ = ["LoggedRound", "rejection_replay"]


@dataclass(slots=True, eq=False, repr=False)
class LoggedRound:
    """A round of a log.

    Attributes
    ----------
    arms : ndarray
        What was on offer, as the policy's ``select`` takes it: (K, d), or a context.
    index : int
        What was chosen.
    reward : float
    probability : float or None
        With which it was chosen; None for 1/K.
    person : str, bytes, int or None
        Whose round it was.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.lab.evaluate import LoggedRound
    >>> LoggedRound(arms=np.eye(3), index=1, reward=1.0, probability=1 / 3).index
    1
    """

    arms: Array
    index: int
    reward: float
    probability: float | None = None
    person: str | bytes | int | None = None

    def __repr__(self) -> str:
        return f"LoggedRound(offered={len(self.arms)}, index={self.index}, reward={self.reward})"


def rejection_replay(
    policy: Policy,
    log: Iterable[LoggedRound],
    *,
    smallest_probability: float | None = None,
    rng: np.random.Generator | None = None,
) -> Estimate:
    """Let ``policy`` play the rounds of ``log``: it learns from those in which it chooses what was logged.

    Parameters
    ----------
    policy : Policy
        It learns: its state changes. A private policy's ledger is charged as for a live run; its horizon must be at
        least the number of rounds that agree, for a round in which it disagrees counts as a decision as well.
    log : iterable of LoggedRound
    smallest_probability : float, optional
        p_min; needed where rounds have probabilities.
    rng : numpy.random.Generator, optional
        Draws the rounds that are kept where probabilities differ.

    Returns
    -------
    Estimate
        The mean reward of the rounds that agreed.

    Raises
    ------
    ValueError
        If no round agreed, or one has a probability below ``smallest_probability``.

    Warns
    -----
    UserWarning
        If the log does not hold uniform choices, by its probabilities: as :func:`dpbandits.lab.evaluate.ips` of a
        uniform policy. Of rounds that show a context, how many arms there were is unknown, and nobody looks.

    Examples
    --------
    >>> from dpbandits.policies import GLBOMD
    >>> rng = np.random.default_rng(0)
    >>> arms = np.eye(2)
    >>> choices = rng.integers(2, size=4000)
    >>> clicks = rng.random(4000) < np.where(choices, 0.8, 0.2)
    >>> log = [LoggedRound(arms, int(k), float(r)) for k, r in zip(choices, clicks)]
    >>> estimate = rejection_replay(GLBOMD(dim=2, horizon=4000), log)
    >>> 1500 < estimate.rows < 2500 and estimate.value > 0.7
    True
    """
    chances: list[tuple[float, float]] = []
    rounds = _agreed(policy, log, smallest_probability, np.random.default_rng(rng), chances)
    agreed = np.fromiter(rounds, np.float64)
    if not len(agreed):
        raise ValueError("log must have a round in which the policy chooses what was logged, got none")
    value, support = float(agreed.mean()), Support()
    if chances:
        p, uniform = np.array(chances).T
        support = warned(supported(p, uniform, uniform / p))
    ends = opened(support, agreed, value, value)
    return summed("rejection replay", agreed, np.ones(len(agreed)), value, None, support, ends)


def _agreed(
    policy: Policy,
    log: Iterable[LoggedRound],
    smallest: float | None,
    rng: np.random.Generator,
    chances: list[tuple[float, float]],
) -> Iterator[float]:
    """Rewards of rounds that agreed; ``chances`` gets the probability, and 1/K, of all in which K can be seen."""
    p_min = None if smallest is None else fraction("smallest_probability", smallest)
    for number, round in enumerate(log):
        if round.probability is not None and np.ndim(round.arms) == 2:
            chances.append((round.probability, 1 / len(round.arms)))
        if round.probability is not None and not _kept(round.probability, p_min, number, rng):
            continue
        decision: Any = policy.select(round.arms)
        if decision.index == round.index:
            policy.update(decision, round.reward)
            yield float(round.reward)
        else:
            policy.forget(decision)


def _kept(probability: float, p_min: float | None, number: int, rng: np.random.Generator) -> bool:
    if p_min is None:
        raise ValueError(
            f"smallest_probability must be given where rounds have probabilities, got {probability:g} in round {number}"
        )
    if not p_min * (1 - 1e-9) <= probability <= 1:
        raise ValueError(f"probability must be in [{p_min:g}, 1], got {probability:g} in round {number}")
    return bool(rng.random() * probability < p_min)
