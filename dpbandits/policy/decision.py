"""What a policy says of one round, and what a run has cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from accounting.arrays import Array
from accounting.checks import fraction
from dpbandits.policy.choices import Law
from dpkit import randomness

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["Decision", "PrivacyReport"]


@dataclass(slots=True, eq=False)
class Decision:
    """What a policy chose in one round.

    Attributes
    ----------
    id : int
        Identifies the round when its reward comes back.
    index : int
        Row of the chosen arm.
    arm : ndarray of shape (d,)
        The chosen arm; read-only.
    scores : ndarray of shape (K,)
        What was maximised; not a probability. Empty where the choice was made elsewhere.
    run : str
        The run that the decision belongs to; no other one takes its reward.
    law : Law or None
        From what the choice was drawn; None where nothing was left to chance.
    name : str
        Of the arm, where arms have names; else empty.
    """

    id: int
    index: int
    arm: Array = field(repr=False)
    scores: Array = field(repr=False)
    run: str = field(repr=False)
    law: Law | None = field(default=None, repr=False)
    name: str = ""

    @property
    def probability(self) -> float:
        """With which this arm was chosen, given all that the policy had released (or learned) and the arms.

        1 where nothing was left to chance; NaN for a choice made elsewhere of which nobody said it. It is computed when
        it is asked for. Where there is no closed form it has a small error, ``probability_error``; see
        :mod:`dpbandits.policy.choices`.
        """
        return 1.0 if self.law is None else self.law.chance(self.index)[0]

    @property
    def probability_error(self) -> float:
        """The standard error of ``probability`` as a number; 0 where it is exact."""
        return 0.0 if self.law is None else self.law.chance(self.index)[1]


@dataclass(frozen=True)
class PrivacyReport:
    """What a policy has cost: (ε, δ) spent and left, and what these numbers are about.

    Examples
    --------
    >>> from accounting import Budget
    >>> from dpbandits.policies import PrivateArms
    >>> report = PrivateArms(["a", "b"], budget=Budget(1.0, 0.0), horizon=1000).privacy()
    >>> report.epsilon, report.trust, report.unit
    (1.0, 'joint', 'round')
    """

    epsilon: float
    delta: float
    left: float
    trust: Literal["none", "joint", "shuffle", "local"]
    adjacency: str
    unit: str
    simulation: bool

    @classmethod
    def of(cls, policy: Policy, delta: float | None) -> PrivacyReport:
        """What a policy has spent and what is left, at ``delta``, by default its budget's."""
        simulation = randomness.is_simulation(policy.rng)
        if policy.trust == "none" or policy.ledger is None:
            return cls(math.inf, delta or 0.0, 0.0, "none", "replace", "round", simulation)
        budget, left = policy.ledger.budget, policy.ledger.remaining()
        if delta is None:
            if budget is None:
                raise ValueError("delta must be given where the ledger has no budget, got delta=None")
            delta = budget.delta
        fraction("delta", delta, include_zero=True)
        # what calibration leaves over in the last digits is not worth a word
        left = left if budget is None or left > 1e-9 * budget.epsilon else 0.0
        adjacency = "replace" if budget is None else budget.adjacency
        spent = float(policy.ledger.epsilon(delta))
        return cls(spent, delta, left, policy.trust, adjacency, policy.protects, simulation)

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "not private"
        mark = " (SIMULATION: the noise came from a seeded generator; not a private release)" if self.simulation else ""
        return (
            f"({self.epsilon:.6g}, {self.delta:g})-DP {self.trust}, one {self.unit} under {self.adjacency}, "
            f"ε left {self.left:.6g}{mark}"
        )
