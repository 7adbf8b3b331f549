"""OFUL-MLogB: a logistic bandit with one mirror descent step per round and a bonus of two orders. Not private.

Each round costs O(Kd²) to select and O(d²) to update (O(d³) in the rounds in which the step leaves the ball), memory
O(d²), whatever the number of rounds played.

Source: Zhang & Sugiyama, "Online (Multinomial) Logistic Bandit: Improved Regret and Constant Computation Cost"
(NeurIPS 2023), the algorithm for multinomial rewards, here with a single outcome besides "none" (K = 1) and rewards 0
and 1. The estimate is the one of GLB-OMD; the bonus is in the mean reward: μ(xᵀθ_t) + β μ̇(xᵀθ_t)‖x‖ + ½sup|μ̈|
β²‖x‖² (norms in H_t⁻¹), where the multinomial model needs 3 in place of ½sup|μ̈|.

The theory's radius is derived here; it depends on the data, and needs no growth in d ln t beyond what they show. Let
z = xᵀθ_t, z' = xᵀθ_{t+1}, z* = xᵀθ*, and e = −½μ̈(ξ)(z' − z)² the gap between the slopes of the step's quadratic
model and of the loss at z'. Optimality in the ball and self-concordance with η₀ = 1 + RS give, for η > η₀,

    ‖Δ_{t+1}‖²_{H_{t+1}} ≤ ‖Δ_t‖²_{H_t} − ‖θ_{t+1} − θ_t‖²_{H_t} + 2η(ℓ_t(z*) − ℓ_t(z')) + E_t,
    E_t = min{4ηS|e|, η²e²/((η/η₀ − 1)μ̇(z'))}

with Δ_t = θ_t − θ*, since 2ηe(z* − z') is at most the first by |z* − z'| ≤ 2S, and at most the second plus (η/η₀ −
1)μ̇(z')(z* − z')². As θ_t does not depend on r_t, exp Σ(ℓ_s(z*) − ℓ_s(z)) is a likelihood ratio, hence by Ville's
inequality at most 1/δ in all rounds with probability 1 − δ. What remains, Σ(ℓ_s(z) − ℓ_s(z')), is known.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import ReferenceOptions, ReferencePolicy
from dpkit.models.ellipsoid import RankOneInverse, ball_constrained_minimizer, norms
from dpkit.models.links import Link, get_link

__all__ = ["OFULMLogB"]


class OFULMLogB(ReferencePolicy):
    """A logistic bandit that reads every reward once: optimism in the mean reward around a one-pass estimate.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ). The paper's is the logistic, which the theory's parameters need.
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: η = 1 + S + ½ln 2, λ = S(2(1 + S) + ln 2) and the radius of the module's derivation, under which
        the ellipsoid holds θ in all rounds with probability 1 − ``failure_probability``, for rewards in [0, 1].
        ``"practical"``: η = ½S + ¼ln 2, λ = d, and β_t = ``radius_scale``·√(d ln(2 + t)), with no such promise.
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
    >>> policy = OFULMLogB(dim=2)
    >>> for _ in range(100):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "rounds", "lead", "moves", "errors", "V")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 0.2,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        self.check_logistic()
        S = self.theta_bound
        R = self.link.self_concordance(S)
        self._eta_0 = 1.0 + R * S
        if parameters == "theory":
            self.eta = self._eta_0 + 0.5 * math.log(2.0)
            self.ridge = S * (2.0 * (1.0 + S) + math.log(2.0))
        else:
            self.eta = 0.5 * S + 0.25 * math.log(2.0)
            self.ridge = float(dim)
        self._bend = 0.5 * R * self.link.lipschitz(S)  # ≥ ½ sup|μ̈|
        self.V = RankOneInverse(dim, self.ridge)
        self.theta = np.zeros(dim)
        self.rounds = 0  # rewards taken in
        self.lead = 0.0  # Σ ℓ_s(z) − ℓ_s(z')
        self.moves = 0.0  # Σ ‖θ_{s+1} − θ_s‖²_{H_s}
        self.errors = 0.0  # Σ E_s

    def width(self) -> float:
        """β_t, the radius of the ellipsoid {θ : ‖θ − θ_t‖_{H_t} ≤ β_t}."""
        if self.parameters == "practical":
            return self.radius_scale * math.sqrt(self.dim * math.log(2.0 + self.rounds))
        # β_t² = λS² + 2η (ln(1/δ) + Σ ℓ_s(z) − ℓ_s(z')) + Σ E_s − Σ ‖θ_{s+1} − θ_s‖²_{H_s}
        doubt = math.log(1.0 / self.failure_probability) + self.lead
        squared = self.ridge * self.theta_bound**2 + 2.0 * self.eta * doubt + self.errors - self.moves
        return math.sqrt(max(squared, 0.0))

    def score(self, arms: Array) -> Array:
        # x_t = argmax μ(xᵀθ_t) + β_t μ̇(xᵀθ_t)‖x‖ + ½sup|μ̈| β_t²‖x‖²
        z, reach = arms @ self.theta, self.width() * norms(arms, self.V.inverse)
        return np.asarray(self.link.mean(z) + self.link.derivative(z) * reach + self._bend * reach**2)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        mean, derivative, loss = self.link.mean, self.link.derivative, self.link.integral
        z = float(arm @ self.theta)
        slope = float(mean(z)) - reward  # ∇ℓ_t(θ_t) = slope·x
        curvature = float(derivative(z))  # ∇²ℓ_t(θ_t) = curvature·x xᵀ
        solved = self.V.inverse @ arm
        # θ_{t+1} = argmin over ‖θ‖ ≤ S of ∇ℓ_t(θ_t)ᵀθ + ‖θ − θ_t‖²_{H̃}/(2η), H̃ = H_t + η∇²ℓ_t(θ_t)
        theta = self.theta - (self.eta * slope / (1.0 + self.eta * curvature * float(arm @ solved))) * solved
        if float(theta @ theta) > self.theta_bound**2:
            H_step = self.V.matrix + (self.eta * curvature * arm)[:, None] * arm
            theta = ball_constrained_minimizer(*np.linalg.eigh(H_step), H_step @ theta, self.theta_bound)
        z_new = float(arm @ theta)
        new = float(derivative(z_new))
        gap = abs(float(mean(z)) + curvature * (z_new - z) - float(mean(z_new)))  # |e|
        self.lead += float(loss(z) - loss(z_new)) - reward * (z - z_new)
        move = theta - self.theta
        self.moves += float(move @ self.V.matrix @ move)
        if self.parameters == "theory":
            spare = self.eta / self._eta_0 - 1.0
            self.errors += min(4.0 * self.eta * self.theta_bound * gap, (self.eta * gap) ** 2 / (spare * new))
        self.theta = theta
        # H_{t+1} = H_t + ∇²ℓ_t(θ_{t+1})
        self.V.add(arm, new, solved)
        self.rounds += 1
