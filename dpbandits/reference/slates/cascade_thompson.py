"""CascadeThompson: the k best arms for a draw from the posterior, learned from the positions seen. Not private.

θ̃ ~ N(θ_t, v²V_t⁻¹), θ_t the ridge regression of the clicks on all arms that were seen, and the slate is the k largest
xᵀθ̃: Thompson sampling for a combinatorial choice with semi-bandit feedback. With known ``examination`` in place of the
cascade a click is regressed on q_jx, as in the position-based model.

A round costs O(d³ + Kd) to select and O(kd²) to update, memory O(d²).

Source: Zong, Ni, Sung, Ke, Wen & Kveton, "Cascading Bandits for Large-Scale Recommendation Problems" (UAI 2016),
CascadeLinTS; Wen, Kveton & Ashkan, "Efficient Learning in Large-Scale Combinatorial Semi-Bandits" (ICML 2015),
CombLinTS.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import nonnegative, positive
from dpbandits.policy.choices import Law, Perturbed
from dpbandits.policy.protocol import Options, Pending
from dpbandits.policy.slates import Examination, SlatePolicy
from dpbandits.reference.slates.slate_ridge import SlateRidge

__all__ = ["CascadeThompson"]


class CascadeThompson(SlatePolicy):
    """A bandit for slates with clicks by position: posterior sampling of the means of arms that are seen.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    k : int
        The number of positions.
    examination : "cascade" or sequence of float
        See :mod:`dpbandits.policy.slates`.
    width : float
        v ≥ 0; at ½ no click deviates more. (Half of that has half the regret where clicks are rare.)
    ridge : float
        λ > 0: the prior is N(0, (v²/λ)I).
    **options
        ``reward_range`` (by default 0 to 1), ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``:
        see :class:`dpbandits.Policy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> rng, attraction = np.random.default_rng(0), np.array([0.1, 0.3, 0.5, 0.7])
    >>> policy = CascadeThompson(dim=4, k=2, rng=rng)
    >>> for _ in range(1000):
    ...     decision = policy.select(np.eye(4))
    ...     policy.update(decision, rng.random(2) < attraction[list(decision.indices)])
    >>> sorted(policy.select(np.eye(4)).indices)
    [2, 3]
    """

    learned = ("fit",)

    def __init__(
        self,
        dim: int,
        k: int,
        *,
        examination: Examination = "cascade",
        width: float = 0.25,
        ridge: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, (0.0, 1.0), **options)
        self.show(k, examination)
        self.width, self.ridge = nonnegative("width", width), positive("ridge", ridge)
        self.fit = SlateRidge(self.dim, self.ridge, self.examination, self.base_rate)

    def score(self, arms: Array) -> Law:
        return Perturbed(arms, self.fit.theta, np.asarray(self.width * np.linalg.cholesky(self.fit.V.inverse)))

    def learn(self, pending: Pending, reward: tuple[float, ...]) -> None:  # type: ignore[override]
        self.fit.add(self.rows(pending), reward)
