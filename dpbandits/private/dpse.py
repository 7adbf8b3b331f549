"""DPSE: differentially private successive elimination of K named arms.

Source: Sajed & Sheffet, "An Optimal Private Stochastic-MAB Algorithm Based on an Optimal Private Stopping Rule" (ICML
2019, arXiv:1905.09383), Algorithm 2. In epoch e = 1, 2, … every arm of S, those that are left, is played R_e times, in
turn. Then with Δ_e = 2^{−e}, in units of the range of rewards,

    R_e = max{32·ln(8|S|e²/β)/Δ_e², 8·ln(4|S|e²/β)/(εΔ_e)} + 1
    h_e = √(ln(8|S|e²/β)/(2R_e)),    c_e = ln(4|S|e²/β)/(εR_e)

the mean of each arm's rewards in this epoch gets Laplace noise of scale 1/(εR_e), and every arm that is more than
2h_e + 2c_e below the best is eliminated for good. What earlier epochs told is forgotten. The last arm is played to the
end. With probability 1 − β the best arm stays, and one of gap Δ_e or more does not outlive epoch e; for β = 1/T the
regret is O(Σ_k ln T/Δ_k + K·ln T/ε), which is the best order there is. (``docs/regret.md`` has it with all constants.)

What the proof needs of R_e is 4h_e + 4c_e ≤ Δ_e. ``parameters="theory"`` has the paper's R_e; ``"practical"`` has the
least one for which that holds, down to a quarter of it, and so the same promise.

It belongs here as a reference: :class:`~dpbandits.policies.PrivateArms` forgets nothing and has far less regret at
horizons that occur.

Guarantee: that of :class:`~dpbandits.policies.PrivateArms`, for the same reasons (units, neighbours, late and missing
rewards, persons; ``docs/privacy-proofs.md``). What is played is a function of releases, with no draw at all; the sums
of an epoch are of different arms, and those of different epochs disjoint; the whole run costs one ``Laplace(z)``, z =
1/ε where δ = 0. In R_e and c_e 1/ε is the scale of the noise in a sum, which under "zero_out" is half as large.

Cost per round: O(K). Memory O(K).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, takewhile
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import fraction, integer
from dpbandits.durability.pending import Pending
from dpbandits.policy.catalogue import Catalogue
from dpbandits.policy.choices import Law, Shares
from dpbandits.policy.logs import refuse_where_plays_are_counted
from dpbandits.policy.offers import NOTHING
from dpbandits.policy.parameters import Parameters, checked_parameters
from dpbandits.policy.private import PrivateOptions, PrivatePolicy, Schedule, finite_rewards
from dpkit.moments.arm_batches import ArmBatches

__all__ = ["DPSE"]


@dataclass(frozen=True)
class Survivors:
    """The public half.

    Attributes
    ----------
    left : (K,) ndarray of bool
        Which arms are not eliminated.
    epoch, length : int
        e and R_e.
    since : int
        After how many decisions the last epoch ended.
    """

    left: NDArray[np.bool_]
    epoch: int
    length: int
    since: int


class DPSE(PrivatePolicy[Survivors]):
    """A private bandit of named arms: arms that are surely not the best are eliminated, epoch by epoch.

    Parameters
    ----------
    arms : int or list of str
        The names of the arms at the start; a number K stands for "0", …, str(K − 1). One that comes later takes part
        from the epoch at hand on. If all that are left are retired, the others come back.
    budget : Budget
        What the whole run may cost, for one round, or one person, replaced (or zeroed out). δ may be 0.
    horizon : int
        T, the number of rounds that the policy will take part in.
    failure_probability : float, optional
        β; by default 1/T.
    parameters : {"practical", "theory"}
        See the module.
    first_batch : int, optional
        R_1; all other epochs become longer or shorter in proportion, and nothing is promised.
    **options
        ``reward_range`` (finite), ``on_violation``, ``expire_after``, ``decision_log``, ``rng``, ``ledger``, ``label``,
        ``checkpoint``, ``rounds_per_person`` (1): see :class:`dpbandits.PrivatePolicy`, also for errors. ``base_rate``
        is not used.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = DPSE(["plain", "witty"], budget=Budget(1.0, 0.0), horizon=3000, rng=rng)
    >>> for _ in range(3000):
    ...     decision = policy.select()
    ...     policy.update(decision, float(rng.random() < {"plain": 0.1, "witty": 0.7}[decision.name]))
    >>> policy.left
    ['witty']
    >>> print(policy.privacy())
    (1, 0)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    trust: ClassVar[Literal["joint"]] = "joint"
    offer = NOTHING
    catalogue: Catalogue
    choices_read = ("left",)
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
        failure_probability: float | None = None,
        parameters: Parameters = "practical",
        first_batch: int | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        super().__init__(1, (0.0, 1.0), budget=budget, horizon=horizon, **options)
        self.catalogue = Catalogue(arms)
        self.arms = list(self.catalogue.names)
        K, T = len(self.arms), integer("horizon", horizon, at_least=1)
        beta = 1.0 / max(T, 2) if failure_probability is None else failure_probability
        self.failure_probability = fraction("failure_probability", beta)
        self.parameters = checked_parameters(parameters)
        self.first_batch = None if first_batch is None else integer("first_batch", first_batch, at_least=1)
        low, high = finite_rewards(self.reward_range)
        self.sums = ArmBatches(K, low, high, budget=budget, noise_law="laplace", rng=self.rng)
        self._scale = self.sums.noise / math.sqrt(2.0) / (high - low)  # 1/ε
        # while nothing is eliminated
        self.schedule = Schedule(tuple(self._ends(K)))
        self.public = Survivors(np.ones(K, np.bool_), 1, self._rounds(K, 1), 0)
        self.open_run(self.sums.cost)

    @property
    def left(self) -> list[str]:
        """The names of the arms that are still played."""
        with self.lock:
            return [name for name, left in zip(self.catalogue.names, self._left(), strict=True) if left]

    def check_log(self) -> None:
        refuse_where_plays_are_counted(self)

    # ------------------------------------------------------------------------------------- the paper's quantities

    def _logarithms(self, S: int, e: int) -> tuple[float, float]:
        beta = self.failure_probability
        return math.log(8.0 * S * e**2 / beta), math.log(4.0 * S * e**2 / beta)

    def _needed(self, S: int, e: int) -> float:
        """R_e for |S| arms."""
        (deviation, noise), gap = self._logarithms(S, e), 2.0**-e
        if self.parameters == "theory":
            return max(32.0 * deviation / gap**2, 8.0 * noise * self._scale / gap) + 1.0
        # 4h + 4c = Δ is a quadratic equation for 1/√R
        root = math.sqrt(0.5 * deviation)
        return (2.0 / gap * (root + math.sqrt(root**2 + noise * self._scale * gap))) ** 2

    def _rounds(self, S: int, e: int) -> int:
        """R_e as a whole number, with ``first_batch`` taken into account."""
        shorter = 1.0 if self.first_batch is None else self.first_batch / self._needed(S, 1)
        return math.ceil(min(self._needed(S, e) * shorter * (1.0 - 1e-12), 2.0**61))

    def _width(self, S: int, e: int, R: int) -> float:
        """2h_e + 2c_e."""
        deviation, noise = self._logarithms(S, e)
        return 2.0 * math.sqrt(deviation / (2.0 * R)) + 2.0 * noise * self._scale / R

    def _ends(self, S: int) -> Iterator[int]:
        """After how many decisions the epochs of so many arms end, before the horizon."""
        total = accumulate(S * self._rounds(S, e) for e in count(1))
        return takewhile(lambda end: end < (self.horizon or 0), total)

    def _left(self) -> NDArray[np.bool_]:
        active = self.catalogue.active
        left = self.public.left & active
        return left if left.any() else active

    # -------------------------------------------------------------------------------------------- choose and learn

    def with_room(self, public: Survivors) -> Survivors:
        more = max(0, len(self.catalogue) - len(public.left))
        return replace(public, left=np.pad(public.left, (0, more), constant_values=True))

    def score(self, nothing: Array) -> Array:
        """The arm that has been played least in this epoch."""
        played = self.sums.turns.counts(self.decisions)
        return np.where(self._left(), -played.astype(np.float64), -np.inf)

    def score_elsewhere(self, nothing: Array) -> Law:
        # whoever does not know whose turn it is draws one
        left = self._left()
        return Shares(left / left.sum())

    def decided(self, pending: Pending) -> None:
        # as it is decided, live or from the journal: whether its reward comes is a secret
        self.sums.turns.decided(pending.round, pending.index)

    def learn(self, pending: Pending, reward: float) -> None:
        self.sums.add(pending.index, reward)

    def last_release(self) -> int:
        return self.public.since

    def due(self) -> bool:
        played = self.sums.turns.counts(self.decisions)[self._left()]
        return len(played) > 1 and int(played.min()) >= self.public.length

    def close_batch(self) -> Survivors:
        left, known, (low, high) = self._left(), self.public, self.reward_range
        played, mean = self.sums.turns.counts(self.decisions), np.full(len(left), -np.inf)
        for arm in np.flatnonzero(left).tolist():
            mean[arm] = 0.5 + self.sums.release(arm, self.decisions) / (int(played[arm]) * (high - low))
        left = mean >= mean.max() - self._width(int(left.sum()), known.epoch, known.length)
        length = self._rounds(int(left.sum()), known.epoch + 1)
        return Survivors(left, known.epoch + 1, length, self.decisions)

    def most_releases(self) -> int:
        return sum(1 for _ in self._ends(2))

    def resume(self, saved: Any) -> None:
        super().resume(saved)
        if self.public.epoch < 1 or self.public.length < 1:
            raise ValueError("public must have an epoch and a length of at least 1, got others")
