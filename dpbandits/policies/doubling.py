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
* What an epoch knows from earlier ones is what they have released: post-processing. With ``OnePassPrivateGLM`` and
  ``PrivateHvtUCB`` an epoch's policy starts from the parameter last released, and in the first half of the epoch, in
  which it has seen fewer rounds, the last epoch's policy chooses in its place. (With its horizon used up, its scores
  are a function of its releases, of the arms and of fresh draws only. That is not so for all policies.)
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).

Cost per round: that of the policy, twice where two choose and learn. Regret, if every epoch starts afresh: where that
of the policy is at most cT^a, a > 0, for every T, it is at most c·2^a/(2^a − 1)·(T + T₀)^a in all.

Source: Besson & Kaufmann, "What doubling tricks can and can't do for multi-armed bandits" (arXiv:1803.06971), the
geometric trick with restarts. The budget per epoch and what is carried over belong to this package.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from accounting import Budget, Ledger
from accounting.checks import integer
from dpbandits.mathematics.links import Link
from dpbandits.policies._private import ReleasingPolicy
from dpbandits.policy import Array, Decision, Policy
from dpkit import randomness

__all__ = ["Doubling"]

# policies that can start from a parameter, and whose scores need no more than their releases once the horizon is over
_CONTINUED = ("OnePassPrivateGLM", "PrivateHvtUCB")
_OWN = ("dim", "horizon", "budget", "reward_range", "on_violation", "rng", "ledger", "label", "checkpoint")


class Doubling(ReleasingPolicy):
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
    reward_range : (float, float), optional
        By default that of ``algorithm``.
    on_violation, rng
        See :class:`dpbandits.policy.Policy`.
    ledger : Ledger, optional
        Charged at the start of every epoch, in a scope of that epoch; by default a ledger of the policy's own.
    label : str, optional
        Names the run in the ledger; by default a fresh one.
    checkpoint : path, optional
        Where the state is saved at the start of every epoch and at every release. After a crash,
        ``Policy.load(checkpoint, ledger=ledger)`` goes on: the rewards since then are lost, the budget is not.

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

    _learned = ("epoch", "releases")

    def __init__(
        self,
        dim: int,
        algorithm: str | type[Policy] = "OnePassPrivateGLM",
        *,
        budget: Budget,
        parameters: Mapping[str, Any] | None = None,
        first_epoch: int = 1000,
        horizon: int | None = None,
        reward_range: tuple[float, float] | None = None,
        on_violation: Literal["raise", "clip"] = "raise",
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(dim, on_violation=on_violation, horizon=horizon, rng=rng, ledger=ledger)
        self.algorithm = algorithm if isinstance(algorithm, str) else algorithm.__name__
        self._make = _private_policy(self.algorithm)
        self.parameters = dict(parameters or {})
        if taken := sorted(set(self.parameters) & set(_OWN)):
            raise ValueError(f"parameters must not hold what Doubling itself is given, got parameters[{taken[0]!r}]")
        self.budget = budget
        self.first_epoch = integer("first_epoch", first_epoch, at_least=1)
        self.label = label or f"{type(self).__name__} {secrets.token_hex(4)}"
        self.policy = self._fresh(0, **({} if reward_range is None else {"reward_range": reward_range}))
        self.reward_range = self.policy.reward_range
        # the wrapped policy's, which differ from class to class
        self.trust, self.takes = self.policy.trust, self.policy.takes  # type: ignore[misc]
        self._open_run(budget, ledger, self.label, checkpoint)
        self._charge(0, self.policy)
        self.epoch = self.releases = 0
        self.previous: Policy | None = None  # chooses until the epoch's policy has seen as many rounds

    def _fresh(self, epoch: int, **more: Any) -> Policy:
        """The policy of an epoch. It has a ledger of its own, and nothing is drawn yet."""
        return self._make(
            self.dim,
            budget=self.budget,
            horizon=self.first_epoch * 2**epoch,
            on_violation=self.on_violation,
            rng=self.rng,
            **self.parameters,
            **more,
        )

    def _charge(self, epoch: int, policy: Policy) -> None:
        """Record the cost of an epoch's policy: rounds of different epochs are disjoint scopes."""
        scope = f"{self.label}: epoch {epoch}"
        cost, simulation = policy.ledger.total, randomness.is_simulation(self.rng)  # type: ignore[union-attr]
        self.ledger.spend(cost, label=scope, scope=scope, simulation=simulation)  # type: ignore[union-attr]

    def _next_epoch(self) -> None:
        fresh = self._fresh(self.epoch + 1, reward_range=self.reward_range)
        self._charge(self.epoch + 1, fresh)
        last, self.policy, self.previous = self.policy, fresh, None
        self.epoch += 1
        if self.algorithm in _CONTINUED and last.releases:  # type: ignore[attr-defined]
            fresh.theta, self.previous = last.theta.copy(), last  # type: ignore[attr-defined]
        self._checkpoint()

    def _checkpoint(self) -> None:
        if self.checkpoint is not None:
            self.save(self.checkpoint)

    def _score(self, arms: Array) -> Array:
        if self.policy.decisions == self.policy.horizon:
            self._next_epoch()
        if self.previous is not None and self.policy.decisions == self.previous.horizon:
            self.previous = None
        before = _releases(self.policy)
        if self.previous is not None:
            scores = self.previous._score(arms)
            self.policy.select(arms[[scores.argmax()]])
        else:
            scores = self.policy.select(arms).scores
        if (made := _releases(self.policy) - before) > 0:
            self.releases += made
            self._keep_release()
        return scores

    def _learn(self, kept: Array, reward: float) -> None:
        epoch, decision = map(int, kept)
        if epoch == self.epoch:
            self.policy.update(decision, reward)

    def forget(self, decision: Decision | int) -> None:
        """Give up waiting for a reward, so that its arm is no longer kept. Says nothing about the data."""
        kept = self._open.get(decision.id if isinstance(decision, Decision) else decision)
        if kept is not None and int(kept[0]) == self.epoch:
            self.policy.forget(int(kept[1]))
        super().forget(decision)

    def _kept(self, decision: Decision) -> Array:
        # the epoch and the decision's id in it; the arm is with the epoch's policy
        return np.array([self.epoch, self.policy.decisions - 1], dtype=np.float64)

    def _chosen(self, arms: Array, index: int) -> Array:
        return self.policy._chosen(arms, index)

    def _checked_arms(self, arms: ArrayLike) -> Array:
        return self.policy._checked_arms(arms)

    def _config(self) -> dict[str, Any]:
        config = super()._config()
        if isinstance(link := self.parameters.get("link"), Link):
            config["parameters"] = self.parameters | {"link": link.name}
        return config

    def _state(self) -> dict[str, Any]:
        state = super()._state() | {
            "policy": self.policy._state(),
            "decisions": self.policy.decisions,
            "open_ids": np.array(list(self.policy._open), dtype=np.int64),
            "open_arms": np.array(list(self.policy._open.values())),
        }
        return state if self.previous is None else state | {"previous": self.previous._state()}

    def _restore(self, state: dict[str, Any]) -> None:
        for epoch in range(1, int(state["epoch"]) + 1):
            last, self.policy = self.policy, self._fresh(epoch, reward_range=self.reward_range)
            self._charge(epoch, self.policy)
        super()._restore(state)
        self.policy._restore(state["policy"])
        self.policy.decisions = int(state["decisions"])
        self.policy._open = dict(zip(map(int, state["open_ids"]), state["open_arms"], strict=True))
        if "previous" in state:
            last._restore(state["previous"])
            self.previous = last


def _private_policy(name: str) -> Callable[..., Policy]:
    from dpbandits import policies

    kind = getattr(policies, name, None) if name in policies.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, Policy) and kind.trust != "none"):
        raise ValueError(f"algorithm must be a private policy of dpbandits.policies, got algorithm={name!r}")
    return kind


def _releases(policy: Policy) -> int:
    """How often a policy has released something; 0 for those that do not count."""
    return int(getattr(policy, "releases", 0))
