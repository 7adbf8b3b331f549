"""Doubling: any private policy without a known horizon, at the cost of one run however long it goes on.

Private policies calibrate their noise for a number of rounds. Here rounds are cut into epochs of T₀, 2T₀, 4T₀, …
rounds, whose ends are public, and every epoch has a fresh policy with the whole budget.

Guarantee
---------
* Unit: one round, as of the policy that is wrapped, and with its adjacency and its kind of trust.
* Each round belongs to the epoch of its decision, a public matter, and is seen by that epoch's policy alone; rewards
  that come later are dropped. So all epochs together cost what the most expensive one does, which is the budget
  (``dpbandits.private.parts.epochs`` has the proof).
* Where the unit is a person, it teaches once, in the epoch of its first round, which is public; the registry of who has
  taught goes from epoch to epoch. So a person, too, belongs to one epoch.
* What an epoch knows from earlier ones is what they have released: post-processing. With ``OnePassPrivateGLM`` and
  ``PrivateHvtUCB`` an epoch's policy starts from the parameter last released, and in the first half of the epoch, in
  which it has seen fewer rounds, the last epoch's policy chooses in its place. (With its horizon used up, it
  releases no more: its scores are a function of its releases, of the arms and of fresh draws only.) With
  ``PrivateArms``, ``ShuffleArms`` and ``LDPArms`` what all earlier epochs have released of each arm counts in the
  posterior from the beginning.
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).

Cost per round: that of the policy, twice where two choose and learn. Regret, if every epoch starts afresh: where that
of the policy is at most cT^a, a > 0, for every T, it is at most c·2^a/(2^a − 1)·(T + T₀)^a in all.

Source: Besson & Kaufmann, "What doubling tricks can and can't do for multi-armed bandits" (arXiv:1803.06971), the
geometric trick with restarts. The budget per epoch and what is carried over belong to this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.private.parts.arm_posteriors import Posteriors
from dpbandits.private.parts.epochs import Epochs, half, resume_half
from dpkit.states.entries import conform

__all__ = ["Doubling"]

# policies that can start from a parameter, and whose scores need no more than their releases once the horizon is over
_CONTINUED = ("OnePassPrivateGLM", "PrivateHvtUCB")


class Doubling(Epochs):
    """Run a private policy without a known horizon: it is started afresh for epochs of doubling length.

    Parameters
    ----------
    dim : int
        Dimension d of an arm (or context).
    algorithm : str or type
        A private policy of :mod:`dpbandits.policies`. (They are all charged for their whole run when they are made.)
    budget : Budget
        What every epoch may cost, and thereby all of them.
    parameters : mapping, optional
        Further arguments of ``algorithm``, such as ``{"link": "probit", "theta_bound": 2.0}``.
    first_epoch : int
        T₀.
    horizon : int, optional
        The number of rounds after which the policy takes part in no more; not needed.
    **options
        ``reward_range`` (by default that of ``algorithm``), ``base_rate``, ``on_violation``, ``expire_after``, ``rng``,
        ``ledger`` (charged at the start of every epoch, in a scope of that epoch), ``label``, ``checkpoint`` (saved at
        the start of every epoch, too): see :class:`dpbandits.PrivatePolicy`.

    Attributes
    ----------
    epoch : int
        Number of the epoch, from 0.
    policy : Policy
        Its policy.

    Raises
    ------
    ValueError, TypeError, AdjacencyMismatch
        For a parameter out of range, here or in ``algorithm``.
    BudgetExceeded
        If the ledger has not enough left; from ``select`` if so for a later epoch, and then nothing has changed.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = Doubling(2, "OnePassPrivateGLM", budget=Budget(2.0, 1e-6), first_epoch=200, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(1400):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> policy.epoch, reward / 1400 > 0.7
    (2, True)
    >>> print(policy.privacy())
    (2, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    most_epochs: ClassVar[int] = 60

    def __init__(
        self,
        dim: int,
        algorithm: str | type[PrivatePolicy[Any]] = "OnePassPrivateGLM",
        *,
        budget: Budget,
        parameters: Mapping[str, Any] | None = None,
        first_epoch: int = 1000,
        horizon: int | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.first_epoch = integer("first_epoch", first_epoch, at_least=1)
        self.previous: PrivatePolicy[Any] | None = None  # chooses until the epoch's policy has seen as many rounds
        self.told: Array | None = None  # of arms without features, what earlier epochs have released
        super().__init__(dim, algorithm, budget=budget, parameters=parameters, horizon=horizon, **options)

    def rounds_of(self, epoch: int) -> int:
        return self.first_epoch << epoch

    def begin_epoch(self, epoch: int, fresh: PrivatePolicy[Any]) -> None:
        last = self.policy
        super().begin_epoch(epoch, fresh)
        self.previous = None
        if self.algorithm in _CONTINUED and last.releases:
            fresh.public, self.previous = replace(fresh.public, theta=last.public.theta), last
        posteriors = getattr(last, "posteriors", None)
        if isinstance(posteriors, Posteriors):
            self.told, arms = posteriors.told_by(last.public), len(last.public.closed)
            remembering: Any = fresh
            remembering.posteriors = replace(remembering.posteriors, before=self.told)
            fresh.public = remembering.posteriors.nothing(arms)

    # ---------------------------------------------------------------------------------------------- choose

    def prepare(self, arms: Array) -> None:
        super().prepare(arms)
        if self.previous is not None and self.policy.decisions == self.previous.horizon:
            self.publicly(self._hand_over)

    def _hand_over(self) -> None:
        self.previous = None

    def chooser(self) -> PrivatePolicy[Any]:
        return self.policy if self.previous is None else self.previous

    # ----------------------------------------------------------------------------------------------- state

    def check_releases(self) -> None:
        super().check_releases()
        if self.previous is not None:
            self.previous.check_releases()

    def kept(self) -> dict[str, Any]:
        told = {} if self.told is None else {"told": self.told.copy()}
        return super().kept() | told | {"previous": None if self.previous is None else half(self.previous)}

    def resume(self, saved: Any) -> None:
        told = saved.get("told") if isinstance(saved, Mapping) else None
        super().resume(saved if told is None else {name: saved[name] for name in saved if name != "told"})
        if told is not None:
            self._resume_told(told)
        if saved["previous"] is not None and self.epoch:
            self.previous = self.fresh(self.epoch - 1, self.reward_range, self.stated_base_rate)
            resume_half(self.previous, saved["previous"])

    def _resume_told(self, told: Any) -> None:
        if self.told is None:
            raise ValueError("told must be of arms without features, after their first epoch, got it elsewhere")
        self.told = conform("told", told, self.told)
        if (self.told[0] < 0).any():
            raise ValueError("told must hold precisions of at least 0, got others")
        policy: Any = self.policy
        policy.posteriors = replace(policy.posteriors, before=self.told)
