"""Restarting: any private policy in a world that moves, started afresh for epochs that cost no more than one run.

For whoever expects that what is right today is wrong next month. An epoch ends after ``every`` rounds, or, with
``on_change``, when what the policy has released shows that the world has moved: its last batch contradicts its earlier
ones (``changed``, a test of released sums by :mod:`dpbandits.private.parts.progress`, which costs nothing). The next
epoch starts with a fresh policy, the whole budget, and nothing in mind.

Guarantee
---------
* Unit: one round, as of the policy that is wrapped, and with its adjacency and its kind of trust.
* Each round belongs to the epoch of its decision, and is seen by that epoch's policy alone; rewards that come later are
  dropped. Where an epoch ends is fixed in advance, or follows from its releases. So all epochs together cost what one
  does, the budget (``dpbandits.private.parts.epochs`` has the proof), and in the ledger each is a scope of its own.
* Where the budget's unit is a person, everybody teaches in one round of the whole run, and so in one epoch: the same
  holds for persons. (With more rounds for a person the costs of epochs would add up: that is refused.)
* After a crash, the newest state goes on and an older one is refused (see ``checkpoint``).

Cost per round: that of the policy.

Which: where nobody knows when, ``on_change``. Batches are no longer than √(2T) rounds then, so that a change is seen in
one or two of them; that costs next to nothing where nothing moves. A model that is wrong (a constant feature that is
missing, say) is taken for a world that moves. For slow drifts use ``every``, or the ``discount`` of
``OnePassPrivateGLM``.

Source: restarts on a test are those of Wei & Luo (2021), "Non-stationary reinforcement learning without prior
knowledge", arXiv:2102.05406, in spirit; the test and the accounting belong to this package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from accounting import Budget
from accounting.checks import integer
from dpbandits.policy.private import PrivateOptions, PrivatePolicy
from dpbandits.private.parts.epochs import Epochs

__all__ = ["Restarting"]


class Restarting(Epochs):
    """A private policy for a world that changes: it is started afresh, every so many rounds or on evidence.

    Parameters
    ----------
    dim : int
        Dimension d of an arm (or context).
    algorithm : str or type
        A private policy of :mod:`dpbandits.policies`; for ``on_change`` one that has ``changed``.
    budget : Budget
        What every epoch may cost, and thereby all of them.
    every : int, optional
        The largest number of rounds of an epoch, for which its policy is made. By default ``horizon``.
    on_change : bool
        End an epoch also when its policy has ``changed``.
    parameters : mapping, optional
        Further arguments of ``algorithm``, such as ``{"link": "probit", "theta_bound": 2.0}``. With ``on_change``, its
        ``longest_batch`` is √(2·every) unless it is given.
    horizon : int, optional
        The number of rounds after which the policy takes part in no more; needed only where ``every`` is not given.
    **options
        ``reward_range`` (by default that of ``algorithm``), ``base_rate``, ``on_violation``, ``expire_after``, ``rng``,
        ``ledger`` (charged at the start of every epoch, in a scope of that epoch), ``label``, ``checkpoint`` (saved at
        the start of every epoch, too): see :class:`dpbandits.PrivatePolicy`.

    Attributes
    ----------
    epoch : int
        Number of the epoch, from 0; at most 10⁴.
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
    After 2000 of 4000 rounds the better arm becomes the worse one, and nobody says so:

    >>> import numpy as np
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)   # seeded: a simulation; leave rng out to protect real people
    >>> policy = Restarting(2, budget=Budget(2.0, 1e-6), horizon=1600, on_change=True, rng=rng)
    >>> reward = 0.0
    >>> for t in range(1600):
    ...     means = (0.2, 0.8) if t < 800 else (0.8, 0.2)
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(rng.random() < means[decision.index]))
    ...     reward += means[decision.index]
    >>> policy.epoch, reward / 1600 > 0.7
    (1, True)
    >>> print(policy.privacy())
    (2, 1e-06)-DP joint, one round under replace, ε left 0 (SIMULATION: the noise came from a seeded generator...)
    """

    most_epochs: ClassVar[int] = 10_000

    def __init__(
        self,
        dim: int,
        algorithm: str | type[PrivatePolicy[Any]] = "OnePassPrivateGLM",
        *,
        budget: Budget,
        every: int | None = None,
        on_change: bool = False,
        parameters: Mapping[str, Any] | None = None,
        horizon: int | None = None,
        **options: Unpack[PrivateOptions],
    ) -> None:
        if every is None and (horizon is None or not on_change):
            raise ValueError("every must be given, or horizon and on_change=True, got every=None")
        self.every = None if every is None else integer("every", every, at_least=1)
        self.on_change = bool(on_change)
        self._length_of_epochs = integer("horizon", horizon, at_least=1) if self.every is None else self.every
        super().__init__(dim, algorithm, budget=budget, parameters=parameters, horizon=horizon, **options)

    def rounds_of(self, epoch: int) -> int:
        return self._length_of_epochs

    def arguments(self) -> dict[str, Any]:
        if not self.on_change:
            return self.parameters
        if not hasattr(self.algorithm_class, "changed"):
            raise ValueError(f"on_change needs a policy that has changed, got algorithm={self.algorithm!r}")
        return {"longest_batch": math.isqrt(2 * self._length_of_epochs)} | self.parameters

    def over(self) -> bool:
        return super().over() or (self.on_change and bool(getattr(self.policy, "changed", False)))
