"""What a policy says of one round, and what a run has cost."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from accounting.arrays import Array
from accounting.checks import fraction
from dpbandits.policy.choices import Law
from dpbandits.policy.many import Each, Index, Laws
from dpkit import randomness

if TYPE_CHECKING:
    from dpbandits.policy.protocol import Policy

__all__ = ["Decision", "Decisions", "PrivacyReport", "Stretch"]

_NO_SCORES: Array = np.empty(0)
_NO_SCORES.setflags(write=False)


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
        What was maximised; not a probability. Empty where the choice was made elsewhere, or with many others.
    run : str
        The run that the decision belongs to; no other one takes its reward.
    law : Law or None
        From what the choice was drawn; None where nothing was left to chance.
    name : str
        Of the arm, where arms have names; else empty.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> decision = Uniform(2).select(np.eye(2))
    >>> decision.index in (0, 1), decision.probability
    (True, 0.5)
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
        it is asked for. Where there is no closed form it has a small error, ``probability_error``. Of a draw from a
        posterior among more than 1,000 arms it is an estimate without bias, in a time that is bounded; then weigh by
        ``inverse_probability``, as 1/``probability`` is too large on average. See :mod:`dpbandits.policy.choices`.
        """
        return 1.0 if self.law is None else self.law.chance(self.index)[0]

    @property
    def inverse_probability(self) -> float:
        """1/p, what inverse propensity weighting needs: of ``probability``, or an estimate without bias of its own.

        The latter (beyond 1,000 arms) is the number of further draws until this arm is chosen again, whose mean is 1/p.
        On average over choices among K arms that takes K draws at most, so ask for it afterwards.

        Examples
        --------
        >>> import numpy as np
        >>> from dpbandits.policies import Uniform
        >>> Uniform(dim=4, rng=np.random.default_rng(0)).select(np.eye(4)).inverse_probability
        4.0
        """
        return 1.0 if self.law is None else self.law.inverse(self.index)

    @property
    def probability_error(self) -> float:
        """The standard error of ``probability`` as a number; 0 where it is exact."""
        return 0.0 if self.law is None else self.law.chance(self.index)[1]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Decisions that were made together.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> decisions = Uniform(2).select_many(np.broadcast_to(np.eye(2), (5, 2, 2)))
    >>> decisions[3].id
    3
    """

    ids: Sequence[int]
    indices: Index
    arms: Array | Sequence[Array]
    laws: Laws
    names: Mapping[int, str]
    release: int

    def decision(self, i: int, run: str) -> Decision:
        """The i-th of them."""
        index, arm = int(self.indices[i]), self.arms[i]
        return Decision(self.ids[i], index, arm, _NO_SCORES, run, self.laws.of(i), self.names[index])


class Decisions(Sequence[Decision]):
    """What a policy chose in many rounds: a sequence of :class:`Decision`, each made when it is asked for.

    Attributes
    ----------
    indices : ndarray of shape (n,)
        Rows of the chosen arms.

    Examples
    --------
    >>> import numpy as np
    >>> from dpbandits.policies import Uniform
    >>> decisions = Uniform(dim=2, rng=np.random.default_rng(0)).select_many(np.tile(np.eye(2), (3, 1, 1)))
    >>> decisions.ids, len(decisions), decisions[2].probability
    ([0, 1, 2], 3, 0.5)
    """

    def __init__(self, stretches: Sequence[Stretch], run: str) -> None:
        self._stretches, self._run = stretches, run
        self._ends = list(accumulate(len(one.indices) for one in stretches))
        parts = [one.indices for one in stretches]
        self.indices: Index = np.concatenate(parts) if parts else np.empty(0, np.int64)

    @property
    def ids(self) -> list[int]:
        """Those of the decisions."""
        return [id for one in self._stretches for id in one.ids]

    @classmethod
    def of(cls, made: Sequence[Decision], run: str) -> Decisions:
        """Of decisions that were made one by one."""
        indices = np.array([one.index for one in made], np.int64)
        laws = Each([one.scores if one.law is None else one.law for one in made])
        ids, arms = [one.id for one in made], [one.arm for one in made]
        names = {one.index: one.name for one in made}
        return cls([Stretch(ids, indices, arms, laws, names, 0)] if made else [], run)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Decisions({len(self)} of them)"

    @overload
    def __getitem__(self, i: int) -> Decision: ...

    @overload
    def __getitem__(self, i: slice) -> list[Decision]: ...

    def __getitem__(self, i: int | slice) -> Decision | list[Decision]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        k = range(len(self))[i]  # which refuses what is out of range
        part = bisect_right(self._ends, k)
        return self._stretches[part].decision(k - (self._ends[part - 1] if part else 0), self._run)

    def keys(self, run: str) -> list[int]:
        """The ids, of decisions of this run.

        Raises
        ------
        ValueError
            If they are of another one.
        """
        if len(self) and run != self._run:
            raise ValueError("decisions must come from this policy, got those of another one")
        return self.ids


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
