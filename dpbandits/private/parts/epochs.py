"""Epochs: disjoint stretches of rounds, each with a fresh private policy that has the whole budget.

Each round belongs to the epoch of its decision and is seen by that epoch's policy alone: a reward that comes in a later
epoch is taken off the list of open decisions and dropped. Where an epoch ends is public: a number of rounds that was
fixed in advance, or a function of what has been released. Then all epochs together cost what one does. For let two runs
differ in one round, of epoch e. Given the same releases before it, e begins in the same place in both, and what is
released before e has the same law. The releases of e are those of its policy, up to a time that is a function of them:
post-processing of one run of that policy. What follows e is, given these releases, a function of them, of the same data
and of fresh noise. So the two laws are as close as one run of e's policy makes them: parallel composition, also where
the parts of the data follow from earlier releases. In the ledger every epoch is a scope of its own, charged before its
first round.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget
from accounting.arrays import Array
from dpbandits.policy.choices import Law
from dpbandits.policy.options import RewardRange
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.policy.progress import Found
from dpbandits.policy.protocol import Pending
from dpbandits.policy.trust import AsDecided
from dpkit.states.entries import conform, resume, short

__all__ = ["Epochs", "half", "resume_half"]

_OWN = ("dim", "horizon", "budget", "reward_range", "base_rate", "on_violation", "rng", "ledger", "label", "checkpoint")


class InEpochs(AsDecided):
    """A record counts in the epoch of its decision, as that one's policy counts it.

    It must be public which epoch's policy a person teaches.
    """

    def batch(self, policy: Epochs) -> int:  # type: ignore[override]
        return policy.releases + policy.epoch

    def enters(self, policy: Epochs, pending: Pending) -> bool:  # type: ignore[override]
        inner = policy.policy
        open_epoch = pending.note[0] == policy.epoch and len(pending.arm) > 0
        return open_epoch and inner.counting.enters(inner, policy.in_epoch(pending))

    def closed(self, policy: Epochs, pending: Pending) -> bool:  # type: ignore[override]
        inner = policy.policy
        if pending.note[0] < policy.epoch:
            return True
        return isinstance(inner.counting, AsDecided) and inner.counting.closed(inner, policy.in_epoch(pending))


class Epochs(PrivatePolicy[None]):
    """Base of the policies that start another one afresh; they hold it, and ask it by its public protocol.

    They say by ``rounds_of`` how long an epoch is, and may say by ``over`` that it has ended, by ``arguments`` what
    else its policy is made with, and by ``begin_epoch`` what the next one knows from it.

    Attributes
    ----------
    epoch : int
        Number of the epoch, from 0.
    policy : Policy
        Its policy.
    """

    most_epochs: ClassVar[int]
    # epochs that are to learn the level of rewards are told no base rate
    kept_as: ClassVar[Mapping[str, str]] = {"base_rate": "stated_base_rate"}

    def __init__(
        self,
        dim: int,
        algorithm: str | type[PrivatePolicy[Any]],
        *,
        budget: Budget,
        parameters: Mapping[str, Any] | None,
        horizon: int | None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.algorithm = algorithm if isinstance(algorithm, str) else algorithm.__name__
        self.algorithm_class = _private_policy(self.algorithm)
        self.takes_pure = self.algorithm_class.takes_pure  # type: ignore[misc]
        self.parameters = dict(parameters or {})
        if taken := sorted(set(self.parameters) & set(_OWN)):
            raise ValueError(
                f"parameters must not hold what {type(self).__name__} itself is given, got parameters[{taken[0]!r}]"
            )
        if self.parameters.get("parameters") == "published":
            raise ValueError("parameters must not ask for an algorithm as published, which is not private")
        super().__init__(dim, (-math.inf, math.inf), budget=budget, horizon=horizon, **options)
        self.counting, self.drops_arms = InEpochs(), True
        self.epoch = 0
        self.policy = self.fresh(0, options.get("reward_range"), options.get("base_rate"))
        self.reward_range, self.base_rate = self.policy.reward_range, self.policy.base_rate
        # the wrapped policy's, which differ from class to class
        self.trust, self.takes, self.offer = self.policy.trust, self.policy.takes, self.policy.offer  # type: ignore[misc]
        self.n_arms = self.policy.count(np.empty(0)) if self.takes == "context" else None
        self.notes = 2 + self.policy.notes
        self.public = None
        self.open_run(self.policy.ledger.total, self._scope(0))

    @abstractmethod
    def rounds_of(self, epoch: int) -> int:
        """For how many rounds the policy of an epoch is made."""

    def arguments(self) -> dict[str, Any]:
        """Further arguments of an epoch's policy."""
        return self.parameters

    def over(self) -> bool:
        """Whether the epoch at hand has ended."""
        return self.policy.decisions == self.policy.horizon

    def fresh(self, epoch: int, reward_range: RewardRange | None, base_rate: float | None) -> PrivatePolicy[Any]:
        """The policy of an epoch. It has a ledger of its own, and nothing is drawn yet."""
        sizes = () if "dim" in self.algorithm_class.passed_on else (self.dim,)
        made: PrivatePolicy[Any] = self.algorithm_class(
            *sizes,
            budget=self.budget,
            horizon=self.rounds_of(epoch),
            reward_range=reward_range,
            base_rate=base_rate,
            on_violation=self.on_violation,
            rng=self.rng,
            **self.arguments(),
        )
        return made

    def _scope(self, epoch: int) -> str:
        """Rounds of different epochs are disjoint parts of the data."""
        return f"{self.label}: epoch {epoch}"

    def _next_epoch(self) -> None:
        """Pay for the next epoch, and start it; if it is refused, nothing has changed."""
        epoch = self.epoch + 1
        if epoch > self.most_epochs:
            raise ValueError(f"epochs must be at most {self.most_epochs}: start a new policy, got epoch {epoch}")
        fresh = self.fresh(epoch, self.reward_range, self.stated_base_rate)
        cost, scope = fresh.ledger.total, self._scope(epoch)
        # it may have been recorded before a crash. Its row may lie in a scope of the ledger's own; the label is its own
        if not any((row.label, row.release) == (scope, cost) for row in self.ledger.rows()):
            self.charge(cost, scope)
        self.run.begin()
        self.begin_epoch(epoch, fresh)
        self.counting.released(self)
        self.keep()
        self.run.end()

    def begin_epoch(self, epoch: int, fresh: PrivatePolicy[Any]) -> None:
        self.epoch, self.policy = epoch, fresh

    # ---------------------------------------------------------------------------------------------- choose

    def prepare(self, arms: Array) -> None:
        super().prepare(arms)
        if self.over():
            self._next_epoch()

    def score(self, arms: Array) -> Array | Law:
        return self.chooser().score(arms)

    def chooser(self) -> PrivatePolicy[Any]:
        return self.policy

    def count(self, arms: Array) -> int:
        return self.policy.count(arms)

    def name_of(self, index: int) -> str:
        return self.policy.name_of(index)

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        # the epoch, the number of the decision in it, and what its policy writes down
        return (self.epoch, self.policy.decisions, *self.policy.note(arm, index))

    def admit(self, pending: Pending) -> None:
        super().admit(pending)
        self.policy.decisions += 1

    def check_log(self) -> None:
        self.policy.check_log()

    def found(self) -> Found:
        return self.policy.found()

    def decided(self, pending: Pending) -> None:
        self.policy.decided(self.in_epoch(pending))

    def checked_pending(self, pending: Pending) -> Pending:
        found = super().checked_pending(pending)
        if len(found.arm) and found.note[0] == self.epoch:
            self.policy.checked_pending(self.in_epoch(found))
        return found

    # ----------------------------------------------------------------------------------------------- learn

    def in_epoch(self, pending: Pending) -> Pending:
        """The decision as its epoch's policy made it."""
        _, round, *note = pending.note
        return replace(pending, round=round, note=tuple(note))

    def learn(self, pending: Pending, reward: float) -> None:
        self.policy.learn(self.in_epoch(pending), reward)

    # --------------------------------------------------------------------------------------------- release

    def check_releases(self) -> None:
        self.policy.check_releases()

    def due(self) -> bool:
        return self.policy.due()

    def close_batch(self) -> None:
        self.policy.advance()

    def expose(self) -> None:
        self.policy.expose()
        if self.policy.drops_arms:  # as it does with open decisions of its own
            self.counting.released(self)

    # ------------------------------------------------------------------------------------- input and state

    def chosen(self, arms: Array, index: int) -> Array:
        return self.policy.chosen(arms, index)

    def checked_arms(self, arms: ArrayLike | None) -> Array:
        return self.policy.checked_arms(arms)

    def kept(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "policy": half(self.policy)}

    def resume(self, saved: Any) -> None:
        if not isinstance(saved, Mapping) or set(saved) != set(self.kept()):
            raise ValueError(f"learned must hold the entries {sorted(self.kept())}, got {short(saved)}")
        epochs = conform("epoch", saved["epoch"], 0)
        if epochs > self.most_epochs:
            raise ValueError(f"epoch must be at most {self.most_epochs}, got epoch={epochs}")
        for epoch in range(1, epochs + 1):
            # nothing has happened to the policy at hand: one of the same length is as good as it is
            alike = self.rounds_of(epoch) == self.policy.horizon
            fresh = self.policy if alike else self.fresh(epoch, self.reward_range, self.stated_base_rate)
            self.charge(fresh.ledger.total, self._scope(epoch))
            self.begin_epoch(epoch, fresh)
        resume_half(self.policy, saved["policy"])


def half(policy: PrivatePolicy[Any]) -> dict[str, Any]:
    """What is kept of an epoch's policy."""
    return {"learned": policy.kept(), "decisions": policy.decisions, "releases": policy.releases}


def resume_half(policy: PrivatePolicy[Any], saved: Any) -> None:
    """The inverse of :func:`half`, checked."""
    resume(policy, ("decisions", "releases"), {name: saved[name] for name in ("decisions", "releases")})
    lacking = _lacking(saved["learned"], policy.kept())
    try:
        policy.resume(saved["learned"])
    except ValueError as error:
        if not lacking:
            raise
        raise ValueError(
            f"{error}. The state lacks {', '.join(lacking)} of the {type(policy).__name__} of its epoch, as one of an "
            "older version does, in which that policy learned less (the level of rewards, say): go on with the version "
            "that wrote it, or begin a new run, which the ledger counts beside this one"
        ) from error


def _lacking(saved: Any, kept: Any) -> list[str]:
    """The names of what is kept today and was not saved, at any depth."""
    if not (isinstance(saved, Mapping) and isinstance(kept, Mapping)):
        return []
    return [name for name in kept if name not in saved] + [
        found for name in kept if name in saved for found in _lacking(saved[name], kept[name])
    ]


def _private_policy(name: str) -> Any:
    from dpbandits import policies

    kind = getattr(policies, name, None) if name in policies.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, PrivatePolicy) and not issubclass(kind, Epochs)):
        raise ValueError(f"algorithm must be a private policy of dpbandits.policies, got algorithm={name!r}")
    if kind.prices_totals:
        raise ValueError(
            "algorithm must learn a capped number of records of each person, since people come back in later epochs, "
            f"got algorithm={name!r}: make it with a horizon of its own"
        )
    return kind
