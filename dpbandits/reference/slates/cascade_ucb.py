"""CascadeUCB: the k arms of the largest upper bounds, learned from the positions that were seen. Not private.

Upper bounds are xᵀθ_t + c‖x‖_{V_t⁻¹}, θ_t the ridge regression of the clicks on all arms that were seen. Arms without
features are the vectors of the standard basis: then θ_t are their mean rewards and ‖x‖_{V⁻¹} = (λ + n)^(−1/2). With
known ``examination`` in place of the cascade a click is regressed on q_jx, as in the position-based model.

A round costs O(Kd²) to select and O(kd²) to update, memory O(d²).

Source: Kveton, Szepesvári, Wen & Ashkan, "Cascading Bandits" (ICML 2015), CascadeUCB1; with features Zong, Ni, Sung,
Ke, Wen & Kveton, "Cascading Bandits for Large-Scale Recommendation Problems" (UAI 2016), CascadeLinUCB. For the
position-based model Lagrée, Vernade & Cappé, "Multiple-Play Bandits in the Position-Based Model" (NIPS 2016), PBM-UCB.
"""

from __future__ import annotations

from typing import Unpack

from accounting.arrays import Array
from accounting.checks import nonnegative, positive
from dpbandits.policy.protocol import Options, Pending
from dpbandits.policy.slates import Examination, SlatePolicy
from dpbandits.reference.slates.slate_ridge import SlateRidge
from dpkit.models.ellipsoid import norms

__all__ = ["CascadeUCB"]


class CascadeUCB(SlatePolicy):
    """A bandit for slates with clicks by position: optimism in the means of arms that are seen.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    k : int
        The number of positions.
    examination : "cascade" or sequence of float
        See :mod:`dpbandits.policy.slates`.
    width : float
        c ≥ 0. A confidence set as in Theorem 1 of Zong et al. asks for √(d·ln(1 + Tk/(dλ)) + 2·ln(Tk))/2 + √λ‖θ‖ where
        clicks are 0 or 1; in practice far less does.
    ridge : float
        λ > 0.
    **options
        ``reward_range`` (by default 0 to 1), ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``:
        see :class:`dpbandits.Policy`, also for errors.

    Examples
    --------
    >>> import numpy as np
    >>> rng, attraction = np.random.default_rng(0), np.array([0.1, 0.3, 0.5, 0.7])
    >>> policy = CascadeUCB(dim=4, k=2)
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
        width: float = 1.0,
        ridge: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(dim, (0.0, 1.0), **options)
        self.show(k, examination)
        self.width, self.ridge = nonnegative("width", width), positive("ridge", ridge)
        self.fit = SlateRidge(self.dim, self.ridge, self.examination, self.base_rate)

    def score(self, arms: Array) -> Array:
        return arms @ self.fit.theta + self.width * norms(arms, self.fit.V.inverse)

    def learn(self, pending: Pending, reward: tuple[float, ...]) -> None:  # type: ignore[override]
        self.fit.add(self.rows(pending), reward)
