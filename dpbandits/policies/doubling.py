"""Doubling: any private policy without a known horizon, at the cost of one run however long it goes on.

Private policies calibrate their noise for a number of rounds. Here rounds are cut into epochs of T₀, 2T₀, 4T₀, …
rounds, whose ends are public, and every epoch has a fresh policy with the whole budget.

Guarantee
---------
* Unit: one round, as of the policy that is wrapped, and with its adjacency and its kind of trust.
* Each round belongs to the epoch of its decision, a public matter, and is seen by that epoch's policy alone: a reward
  that comes in a later epoch is taken off the list of open decisions and dropped. So the epochs are disjoint parts of
  the data, and all of them together cost what the dearest one does (parallel composition), which is the budget. In
  the ledger every epoch is a scope of its own, charged before its first round.
* Where the unit is a person, it teaches once, in the epoch of its first round, which is public; the registry of who has
  taught goes from epoch to epoch. So a person, too, belongs to one epoch.
* What an epoch knows from earlier ones is what they have released: post-processing. With ``OnePassPrivateGLM`` and
  ``PrivateHvtUCB`` an epoch's policy starts from the parameter last released, and in the first half of the epoch, in
  which it has seen fewer rounds, the last epoch's policy chooses in its place. (With its horizon used up, it
  releases no more: its scores are a function of its releases, of the arms and of fresh draws only.)
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).

Cost per round: that of the policy, twice where two choose and learn. Regret, if every epoch starts afresh: where that
of the policy is at most cT^a, a > 0, for every T, it is at most c·2^a/(2^a − 1)·(T + T₀)^a in all.

Source: Besson & Kaufmann, "What doubling tricks can and can't do for multi-armed bandits" (arXiv:1803.06971), the
geometric trick with restarts. The budget per epoch and what is carried over belong to this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from accounting.checks import integer
from dpbandits.mathematics.links import Link
from dpbandits.policies._shuffled import ShufflePolicy
from dpbandits.policy import Array, Pending
from dpbandits.private_policy import PrivateOptions, PrivatePolicy
from dpkit.states.entries import conform, resume, short

__all__ = ["Doubling"]

# policies that can start from a parameter, and whose scores need no more than their releases once the horizon is over
_CONTINUED = ("OnePassPrivateGLM", "PrivateHvtUCB")
_OWN = ("dim", "horizon", "budget", "reward_range", "base_rate", "on_violation", "rng", "ledger", "label", "checkpoint")


class Doubling(PrivatePolicy[None]):
    """A private policy that is started afresh for epochs of doubling length.

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
        the start of every epoch, too): see :class:`dpbandits.private_policy.PrivatePolicy`.

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
    >>> policy = Doubling(2, "OnePassPrivateGLM", budget=Budget(1.0, 1e-6), first_epoch=500, rng=rng)
    >>> reward = 0.0
    >>> for _ in range(4000):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < (0.2, 0.8)[decision.index]))
    ...     reward += (0.2, 0.8)[decision.index]
    >>> policy.epoch, reward / 4000 > 0.7
    (3, True)
    >>> print(policy.privacy())
    (1, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    # it must be public which epoch's policy a person teaches
    _counts_decisions = True

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
        self.algorithm = algorithm if isinstance(algorithm, str) else algorithm.__name__
        self._make = _private_policy(self.algorithm)
        self.parameters = dict(parameters or {})
        if taken := sorted(set(self.parameters) & set(_OWN)):
            raise ValueError(f"parameters must not hold what Doubling itself is given, got parameters[{taken[0]!r}]")
        self.first_epoch = integer("first_epoch", first_epoch, at_least=1)
        super().__init__(dim, (-math.inf, math.inf), budget=budget, horizon=horizon, **options)
        self.epoch = 0
        self.policy = self._fresh(0, options.get("reward_range"), options.get("base_rate"))
        self.reward_range, self.base_rate = self.policy.reward_range, self.policy.base_rate
        # the wrapped policy's, which differ from class to class
        self.trust, self.takes = self.policy.trust, self.policy.takes  # type: ignore[misc]
        self.n_arms, self._notes = self.policy.n_arms, 2 + self.policy._notes
        self.previous: PrivatePolicy[Any] | None = None  # chooses until the epoch's policy has seen as many rounds
        self.public = None
        self._open_run(self.policy.ledger.total, self._scope(0))

    def _fresh(
        self, epoch: int, reward_range: tuple[float, float] | None, base_rate: float | None
    ) -> PrivatePolicy[Any]:
        """The policy of an epoch. It has a ledger of its own, and nothing is drawn yet."""
        return self._make(
            self.dim,
            budget=self.budget,
            horizon=self.first_epoch * 2**epoch,
            reward_range=reward_range,
            base_rate=base_rate,
            on_violation=self.on_violation,
            rng=self.rng,
            **self.parameters,
        )

    def _scope(self, epoch: int) -> str:
        """Rounds of different epochs are disjoint parts of the data."""
        return f"{self.label}: epoch {epoch}"

    def _next_epoch(self) -> None:
        """Pay for the next epoch, and start it; if it is refused, nothing has changed."""
        epoch, last = self.epoch + 1, self.policy
        fresh = self._fresh(epoch, self.reward_range, self.base_rate)
        self._charge_once(fresh.ledger.total, self._scope(epoch))
        self._run.begin()
        self._start(epoch, fresh)
        if self.algorithm in _CONTINUED and last.releases:
            fresh.public, self.previous = replace(fresh.public, theta=last.public.theta), last
        self._drop_arms(0)
        self._keep()
        self._run.end()

    def _start(self, epoch: int, fresh: PrivatePolicy[Any]) -> None:
        self.epoch, self.policy, self.previous = epoch, fresh, None

    def _drop_arms(self, start: int) -> None:
        """Rewards of closed epochs, and of this epoch's rounds before ``start``, count for nothing."""
        for key, pending in self._open.items():
            if pending.note[:2] < (self.epoch, start) and len(pending.arm):
                self._open[key] = replace(pending, arm=np.empty(0))

    # ---------------------------------------------------------------------------------------------- choose

    def _settle(self, arms: Array) -> None:
        if self.policy.decisions == self.policy.horizon:
            self._next_epoch()
        if self.previous is not None and self.policy.decisions == self.previous.horizon:
            self.previous = None
        super()._settle(arms)

    def _score(self, arms: Array) -> Array:
        return (self.policy if self.previous is None else self.previous)._score(arms)

    def _note(self, arm: Array, index: int) -> tuple[int, ...]:
        # the epoch, the number of the decision in it, and what its policy writes down
        return (self.epoch, self.policy.decisions, *self.policy._note(arm, index))

    def _wait_for(self, pending: Pending) -> None:
        super()._wait_for(pending)
        self.policy.decisions += 1

    # ----------------------------------------------------------------------------------------------- learn

    def _in_epoch(self, pending: Pending) -> Pending:
        """The decision as its epoch's policy made it."""
        _, round, *note = pending.note
        return replace(pending, round=round, note=tuple(note))

    def _enters(self, pending: Pending) -> bool:
        return pending.note[0] == self.epoch and len(pending.arm) > 0 and self.policy._enters(self._in_epoch(pending))

    def _batch(self) -> int:
        return self.releases + self.epoch

    def _learn(self, pending: Pending, reward: float) -> None:
        self.policy._learn(self._in_epoch(pending), reward)

    # --------------------------------------------------------------------------------------------- release

    def _check_releases(self) -> None:
        for policy in (self.policy, self.previous):
            if policy is not None:
                policy._check_releases()

    def _due(self) -> bool:
        return self.policy._due()

    def _release(self) -> None:
        self.policy._advance()

    def _expose(self) -> None:
        self.policy._expose()
        if isinstance(self.policy, ShufflePolicy):  # as it does with open decisions of its own
            self._drop_arms(self.policy.schedule.start(self.policy.releases))

    # ------------------------------------------------------------------------------------- input and state

    def _chosen(self, arms: Array, index: int) -> Array:
        return self.policy._chosen(arms, index)

    def _checked_arms(self, arms: ArrayLike) -> Array:
        return self.policy._checked_arms(arms)

    def _length(self, arms: Array) -> Array:  # type: ignore[override]
        return self.policy._length(arms)

    def _config(self) -> dict[str, Any]:
        config = super()._config()
        if isinstance(link := self.parameters.get("link"), Link):
            config["parameters"] = self.parameters | {"link": link.name}
        return config

    def _kept(self) -> dict[str, Any]:
        previous = None if self.previous is None else _half(self.previous)
        return {"epoch": self.epoch, "policy": _half(self.policy), "previous": previous}

    def _resume(self, saved: Any) -> None:
        if not isinstance(saved, Mapping) or set(saved) != {"epoch", "policy", "previous"}:
            raise ValueError(f"learned must hold the entries 'epoch', 'policy' and 'previous', got {short(saved)}")
        epochs = conform("epoch", saved["epoch"], 0)
        if epochs > 60:
            raise ValueError(f"epoch must be at most 60, got epoch={epochs}")
        for epoch in range(1, epochs + 1):
            last, fresh = self.policy, self._fresh(epoch, self.reward_range, self.base_rate)
            self._charge_once(fresh.ledger.total, self._scope(epoch))
            self._start(epoch, fresh)
        _resume_half(self.policy, saved["policy"])
        if saved["previous"] is not None and epochs:
            _resume_half(last, saved["previous"])
            self.previous = last


def _half(policy: PrivatePolicy[Any]) -> dict[str, Any]:
    """What is kept of an epoch's policy."""
    return {"learned": policy._kept(), "decisions": policy.decisions, "releases": policy.releases}


def _resume_half(policy: PrivatePolicy[Any], saved: Any) -> None:
    resume(policy, ("decisions", "releases"), {name: saved[name] for name in ("decisions", "releases")})
    policy._resume(saved["learned"])


def _private_policy(name: str) -> Callable[..., PrivatePolicy[Any]]:
    from dpbandits import policies

    kind = getattr(policies, name, None) if name in policies.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, PrivatePolicy) and kind is not Doubling):
        raise ValueError(f"algorithm must be a private policy of dpbandits.policies, got algorithm={name!r}")
    if kind._prices_totals:
        raise ValueError(
            "algorithm must learn a capped number of records of each person, since people come back in later epochs, "
            f"got algorithm={name!r}: make it with a horizon of its own"
        )
    return kind
