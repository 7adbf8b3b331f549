"""GLM-UCB: optimism around the maximum-likelihood estimate of a generalized linear model. Not private.

Every reward refits the whole history, by Newton's method from the last estimate: an update costs O(td²), memory is
O(td). Its exploration grows with the ratio k_μ/c_μ of the link's largest and smallest slope.

Source: Filippi, Cappé, Garivier & Szepesvári, "Parametric Bandits: The Generalized Linear Case" (NIPS 2010),
Algorithm 1. What is different here, and why:

* A ridge λc_μ‖θ‖²/2 in the likelihood takes the place of the paper's d first arms, which must span ℝᵈ.
* The estimate maximises the likelihood over {‖θ‖ ≤ S}; the paper maximises without constraint and then projects by a
  nonconvex programme. With g(θ) the gradient of the penalised negative log-likelihood, optimality gives
  c_μ‖θ_t − θ*‖²_V ≤ ⟨g(θ_t) − g(θ*), θ_t − θ*⟩ ≤ −⟨g(θ*), θ_t − θ*⟩ ≤ ‖g(θ*)‖_{V⁻¹} ‖θ_t − θ*‖_V.
* ‖g(θ*)‖_{V⁻¹} ≤ R √(2 ln(1/δ) + ln(det V/λᵈ)) + c_μ√λ S by Theorem 1 of Abbasi-Yadkori et al. (2011), which is sharper
  than the paper's bound. So the theory's radius is derived here; it is not the paper's.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.policy.parameters import Parameters, noise_level
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse, norms
from dpkit.models.likelihood import Rows, glm_loss, minimize_in_ball
from dpkit.models.links import Link, get_link

__all__ = ["GLMUCB"]


class GLMUCB(ReferencePolicy):
    """The first generalized linear bandit: optimism with one bound on the link's slope for all arms.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: the radius of the module's derivation, under which {θ : ‖θ − θ_t‖_{V_t} ≤ β_t} holds θ in all
        rounds with probability 1 − ``failure_probability``. ``"practical"``: that radius times ``radius_scale``.
    radius_scale : float
        Factor on the radius, of the practical parameters. At 1 they are the theory's.
    failure_probability : float
        δ.
    noise_bound : float, optional
        R: the noise is R-sub-Gaussian. By default half the length of ``reward_range``; where that is infinite, the
        root of the link's largest slope for the practical parameters.
    ridge : float, optional
        λ > 0; by default d.
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
    >>> policy = GLMUCB(dim=2, theta_bound=1.0)
    >>> for _ in range(300):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, (0.3, 0.7)[decision.index])
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "V", "rows")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        noise_bound: float | None = None,
        ridge: float | None = None,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        S = self.theta_bound
        self._c, self._k = self.link.derivative_range(S)  # c_μ, k_μ
        self.noise_bound = noise_level(noise_bound, self.reward_range, parameters, typical=math.sqrt(self._k))
        self.ridge = float(dim) if ridge is None else positive("ridge", ridge)
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.rows = Rows(dim + 1)  # (x, r)

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{V_t} ≤ β_t}."""
        # β_t = (R/c_μ) √(2 ln(1/δ) + ln(det V_t / λᵈ)) + √λ S
        deviation = math.sqrt(2.0 * math.log(1.0 / self.failure_probability) + self.V.log_det)
        radius = self.noise_bound / self._c * deviation + math.sqrt(self.ridge) * self.theta_bound
        return self.scaled(radius)

    def score(self, arms: Array) -> Array:
        # x_t = argmax μ(xᵀθ_t) + k_μ β_t ‖x‖_{V_t⁻¹}
        return np.asarray(self.link.mean(arms @ self.theta) + self._k * self.width() * norms(arms, self.V.inverse))

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.V.add(arm, 1.0)
        self.rows.append([*arm, reward])
        X, r = self.rows.array[:, :-1], self.rows.array[:, -1]
        loss = glm_loss(self.link, X, r, ridge=self._c * self.ridge)
        self.theta, _ = minimize_in_ball(loss, self.theta, radius=self.theta_bound)
