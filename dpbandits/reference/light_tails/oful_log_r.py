"""OFULog-r: optimism over a level set of the regularised likelihood, for logistic bandits. Not private.

Every reward refits the whole history, and every choice maximises each arm's xᵀθ over the level set, so a round
costs O(tKd²) and memory is O(td).

Source: Abeille, Faury & Calauzènes, "Instance-Wise Minimax-Optimal Algorithms for Logistic Bandits" (AISTATS 2021),
Algorithm 2 (OFULog-r), whose set is the convex relaxation {‖θ‖ ≤ S : L_t(θ) − min L_t ≤ β_t²}. Its radius is rebuilt
here from its two parts, with the minimum taken over the ball:

* γ_t bounds ‖∇L_t(θ*)‖ in the norm of H_t(θ*)⁻¹, by Theorem 1 of Faury et al. (2020, arXiv:2002.07530) with the
  determinant bounded by its trace: γ_t = √λ(S + ½) + (2/√λ)(ln(1/δ) + d ln 2 + (d/2) ln(1 + k_μ t/(dλ))).
* β_t = min{γ_t + Rγ_t²/√λ, γ_t√(1 + 2RS)}: with G the mean Hessian between θ_t and θ* and q = ‖∇L_t(θ*)‖_{G⁻¹},
  optimality of θ_t in the ball gives ‖θ_t − θ*‖_G ≤ q and L_t(θ*) − L_t(θ_t) ≤ q², and self-concordance gives
  q² ≤ (1 + Ru)γ_t² for any u that bounds all |xᵀ(θ_t − θ*)|, such as q/√λ and 2S.

That radius is honest and wide: β_t² is of the order (1 + 2S)·λS², and until the likelihood tells points of the ball
apart by so much (many thousands of rounds at S = 3) the set is the whole ball. Public code has γ_t²/λ for γ_t²/√λ.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import LevelSet, ReferenceOptions, ReferencePolicy
from dpkit.models.likelihood import Rows, minimize_in_ball
from dpkit.models.links import Link, get_link

__all__ = ["OFULogR"]


class OFULogR(ReferencePolicy):
    """A logistic bandit: optimism over {‖θ‖ ≤ S : regularised log-likelihood of θ within β_t² of the maximum}.

    The score of the chosen arm is its largest xᵀθ in the set; those of other arms may be upper bounds.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ). The paper's is the logistic; the derivation holds for the probit too.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: λ = d·max(1, ln T) (λ = d without a horizon) and the radius of the module's derivation, under
        which the set holds θ in all rounds with probability 1 − ``failure_probability``, for rewards in an interval of
        length 1. ``"practical"``: the paper's growing λ_t = d ln(2 + t), and β_t = ``radius_scale``·γ_t.
    radius_scale : float
        Of the practical parameters.
    failure_probability : float
        δ.
    **options
        ``reward_range``, ``base_rate``, ``on_violation``, ``horizon``, ``expire_after``, ``rng``: see
        :class:`dpbandits.Policy`.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range.

    Examples
    --------
    >>> import numpy as np
    >>> policy = OFULogR(dim=2)
    >>> for _ in range(50):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "rows")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.3,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        S = self.theta_bound
        low, high = self.reward_range
        if parameters == "theory" and not high - low <= 1.0:
            raise ValueError(
                f"reward_range must have length at most 1 for the theory's parameters, got {self.reward_range}"
            )
        self._R, self._k = self.link.self_concordance(S), self.link.lipschitz(S)
        self.theta = np.zeros(dim)
        self.rows = Rows(dim + 1)  # (x, r)

    def ridge(self) -> float:
        """λ, or λ_t of the practical parameters."""
        if self.parameters == "practical":
            return self.dim * math.log(2.0 + self.rows.count)
        return self.dim * (1.0 if self.horizon is None else max(1.0, math.log(self.horizon)))

    def width(self) -> float:
        """β_t²: how far the regularised negative log-likelihood may lie above its minimum."""
        d, ridge = self.dim, self.ridge()
        surprise = math.log(1.0 / self.failure_probability) + d * math.log(2.0)
        surprise += 0.5 * d * math.log(1.0 + self._k * self.rows.count / (d * ridge))
        gamma = math.sqrt(ridge) * (self.theta_bound + 0.5) + 2.0 / math.sqrt(ridge) * surprise
        if self.parameters == "practical":
            return (self.radius_scale * gamma) ** 2
        beta = min(
            gamma + self._R * gamma**2 / math.sqrt(ridge), gamma * math.sqrt(1.0 + 2.0 * self._R * self.theta_bound)
        )
        return beta**2

    def believed(self) -> LevelSet:
        return LevelSet(self.link, self.rows, self.theta, self.width(), self.theta_bound, self.ridge())

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.rows.append([*arm, reward])
        self.theta, _ = minimize_in_ball(self.believed().loss(), self.theta, radius=self.theta_bound)
