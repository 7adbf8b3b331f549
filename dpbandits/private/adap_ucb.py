"""AdaPUCB: AdaP-UCB and AdaP-KLUCB, optimistic indices of K named arms from noisy means of their last episodes.

Source: Azize & Basu, "When Privacy Meets Partial Information: A Refined Analysis of Differentially Private Bandits"
(NeurIPS 2022, arXiv:2209.02570), Algorithm 1 and equation (7). Each arm is played once. Then the arm of the largest
index is played until its number of plays has doubled: an episode. Only the rewards of an arm's *last* episode, n of
them, are used, by their mean with Laplace noise of scale 1/(εn); earlier ones are forgotten, so that each reward is
released once. With t the first round of the new episode, in units of the range of rewards, the index is

    "ucb":  m_k + √(α·ln t/(2n)) + α·ln t/(εn)
    "kl":   max {q in [0, 1] : d(m̆_k, q) ≤ α·ln t/n},   m̆_k = m_k + α·ln t/(εn), cut to [0, 1].

Theorems 7 and 8: for α > 3 regret is O(Σ_k ln T/min(Δ_k, ε)), which is the best order there is.
``parameters="theory"`` has α = 3.1, as the paper's figures have; ``"practical"`` has α = 1, as UCB's index usually, and
promises nothing. One print of (7) has ln 2t under the root, where Hoeffding's inequality needs ln t, as here.

It belongs here as a reference: :class:`~dpbandits.policies.PrivateArms` forgets nothing and has far less regret at
horizons that occur.

Guarantee: that of :class:`~dpbandits.policies.PrivateArms`, for the same reasons (units, neighbours, late and missing
rewards, persons; ``docs/privacy-proofs.md``). What is played is a function of releases, with no draw at all; batches of
an arm are disjoint; the whole run costs one ``Laplace(z)``, z = 1/ε where δ = 0. In the indices 1/ε is the scale of the
noise in a sum, which under "zero_out" is half as large.

Cost per round: O(K) to select, O(1) to update; O(K) at each of about K·log₂T releases. Memory O(K).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import choice, integer
from dpbandits.durability.pending import Pending
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.logs import refuse_where_plays_are_counted
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpkit.models.bernoulli import upper_mean
from dpkit.moments.arm_batches import ArmBatches

__all__ = ["AdaPUCB"]

_ALPHA = {"theory": 3.1, "practical": 1.0}


@dataclass(frozen=True)
class Indices:
    """The public half: how many episodes of each arm were released, their last noisy means and indices, shape (K,)."""

    closed: NDArray[np.int64]
    mean: Array
    index: Array
    since: int


class AdaPUCB(PrivatePolicy[Indices]):
    """A private bandit of named arms: optimism from noisy sums of the last episode of each arm.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1).
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out). δ may be 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    index : {"ucb", "kl"}
        AdaP-UCB, or AdaP-KLUCB.
    parameters : {"practical", "theory"}
        See the module.
    first_batch : int
        Plays of each arm at the start; the paper's 1.
    **options
        ``reward_range`` (finite), ``on_violation``, ``expire_after``, ``decision_log``, ``rng``, ``ledger``, ``label``,
        ``checkpoint``, ``rounds_per_person`` (1): see :class:`dpbandits.PrivatePolicy`, also for errors. ``base_rate``
        is not used.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = AdaPUCB(["plain", "witty"], index="kl", budget=Budget(1.0, 0.0), horizon=3000, rng=rng)
    >>> for _ in range(3000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < {"plain": 0.1, "witty": 0.7}[decision.name]))
    >>> decision.name
    'witty'
    >>> print(policy.privacy())
    (1, 0)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer = NOTHING
    catalogue: Catalogue
    choices_read = ("closed", "index")
    public_parts = ("catalogue",)
    passed_on = ("dim",)
    takes_pure = True
    sums: ArmBatches

    def __init__(
        self,
        arms: int | Sequence[str],
        *,
        budget: Budget,
        horizon: int,
        index: Literal["ucb", "kl"] = "ucb",
        parameters: Parameters = "practical",
        first_batch: int = 1,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(1, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        self.index, self.parameters = choice("index", index, "ucb", "kl"), checked_parameters(parameters)
        self.first_batch, self._alpha = integer("first_batch", first_batch, at_least=1), _ALPHA[parameters]
        low, high = finite_rewards(self.reward_range)
        self.sums = ArmBatches(len(self.arms), low, high, budget=budget, noise_law="laplace", rng=self.rng)
        self._scale = self.sums.noise / math.sqrt(2.0) / (high - low)  # 1/ε
        # of an arm, by the number of decisions for it
        doublings = range(max(0, (integer("horizon", horizon, at_least=1) // self.first_batch).bit_length()))
        self.schedule = Schedule(tuple(end for i in doublings if (end := self.first_batch << i) < horizon))
        self.public = self.with_room(Indices(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), 0))
        self.open_run(self.sums.cost)

    def check_log(self) -> None:
        refuse_where_plays_are_counted(self)

    def with_room(self, public: Indices) -> Indices:
        more = len(self.catalogue) - len(public.closed)
        wider = {name: np.pad(getattr(public, name), (0, max(0, more))) for name in ("closed", "mean", "index")}
        return Indices(**wider, since=public.since)

    def score(self, nothing: Array) -> Array:
        known = self.public.index
        return self.catalogue.offered(np.where(self.public.closed > 0, known, known.max() + 1.0))

    def decided(self, pending: Pending) -> None:
        # as it is decided, live or from the journal: whether its reward comes is a secret
        self.sums.turns.decided(pending.round, pending.index)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(pending.index, reward)

    def last_release(self) -> int:
        return self.public.since

    def due(self) -> bool:
        return self.full() is not None

    def full(self) -> int | None:
        """The first arm whose episode has all its decisions."""
        found = np.flatnonzero(self.sums.turns.counts(self.decisions) >= self._length(self.public.closed))
        return int(found[0]) if len(found) else None

    def _length(self, closed: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the next episode of an arm that had so many, the first of which was all its plays at the start."""
        return np.asarray(self.first_batch * 2 ** np.clip(closed - 1, 0, max(0, 61 - self.first_batch.bit_length())))

    def close_batch(self) -> Indices:
        arm = self.full()
        if arm is None:
            raise RuntimeError("no episode is due")
        closed, mean, (low, high) = self.public.closed.copy(), self.public.mean.copy(), self.reward_range
        n = int(self._length(closed)[arm])
        mean[arm] = 0.5 + self.sums.release(arm, self.decisions) / (n * (high - low))
        closed[arm] += 1
        spent = self._alpha * math.log(self.decisions + 1) / self._length(closed - 1)
        upper = mean + self._scale * spent
        known = upper + np.sqrt(0.5 * spent) if self.index == "ucb" else upper_mean(np.clip(upper, 0.0, 1.0), spent)
        return Indices(closed, mean, known, self.decisions)

    def most_releases(self) -> int:
        return len(self.catalogue) * len(self.schedule.ends)

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        if (self.public.closed < 0).any() or (self.public.closed > len(self.schedule.ends)).any():
            raise ValueError(f"public.closed must be from 0 to {len(self.schedule.ends)}, got others")
