"""Algorithm 2 of Sarmasarkar (2026), joint-DP generalized linear bandits, as published.

Source: Sarmasarkar, "Shuffle and Joint Differential Privacy for Generalized Linear Contextual Bandits",
arXiv:2602.00417, Algorithm 2, with the constants of section J.1 and the optimizer of Lemma U.4. V and H_t are the
prefix sums of two binary trees over the rounds before t, plus λI. In round t

* criterion I: if max_x ‖x‖²_{V⁻¹} ≥ 1/(γ²κR²), the longest arm is played, x xᵀ enters V's tree, and θ_o is fitted to
  all rounds of this kind, over {‖θ‖ ≤ S};
* else criterion II: if H_t ⋠ 2H_τ, then τ = t and θ_τ is fitted to all other rounds, over {‖θ − θ_o‖_V ≤ γ√κ}; arms
  whose UCB_o is below the largest LCB_o are dropped, argmax xᵀθ_τ + β‖x‖_{H_τ⁻¹} of the rest is played, and
  μ̇(xᵀθ_o)/e·x xᵀ enters H's tree.

A node's noise is (Z + Zᵀ)/2, Z of independent N(0, 72m·ln²(32/δ)/(κ*ε)²), m = ⌈log₂ T + 1⌉ (section J.3). A fit over n
rows minimises the mean of ℓ(θ; x, r) + λ_max‖θ‖²/(2n) by projected gradient descent from 0, with

    ρ = ε²/(144·c·ln(8/δ)),  k = ⌈(n²ρ + 6 ln T)/d⌉ steps,  η = 2S/(L√k),  noise N(0, 2L²k/(n²ρ)) in a coordinate,

L = R + RS, and returns the mean of θ_0, …, θ_{k−1}. Of the c = 8dR²κγ² ln T fits of θ_o and
4 log₂(1 + TR³/d) of θ_τ at most ⌊c⌋ are made (Remark B.1).

Read so:

* λ, γ, β are hyperparameters in the paper's experiments, which print no values, scale the caps by constants that are
  not printed either, and calibrate noise by Rényi accounting (Remark B.1): ``calibration="renyi"``. By default λ, γ and
  β are those of section J.1 with C = 1, and noise is as printed.
* The diameter of the set of θ_τ, which the step length wants, is taken for 2S as in the proof of Lemma J.6; the start
  is 0, projected on the set. R bounds rewards; κ and κ* are over |z| ≤ S.
* V's tree has H's noise, as printed, and nothing repairs V or H: squared norms below 0 count as 0, and eigenvalues of V
  below 10⁻⁹λ as that in the projection.

Not private as claimed
----------------------
The time at which θ_o changes tells who explored, as later actions show, and that of criterion II tells it, too; V's
noise is 1/κ* of what its records ask for where κ* is large; sensitivities hold with high probability under the reward
model only; a replaced round may change sets; 4 log₂(1 + TR³/d) is no bound on the switches (``docs/errata.md``).
:class:`~dpbandits.policies.JointDPGLM` is the private form.

Late rewards enter when they come. Cost per round: O(Kd² + d³), and O(knd) for a fit, which every round of criterion I
makes until the cap.
"""

from __future__ import annotations

import math
from typing import Literal, Unpack

import numpy as np

from accounting import Budget, Gaussian, TreeAggregation, calibrate
from accounting.arrays import Array
from accounting.checks import choice, integer, positive
from dpbandits.policy.options import PrivateOptions
from dpbandits.policy.protocol import Pending
from dpbandits.reference.published.base import PublishedPolicy
from dpkit.geometry import ConvexSet, Ellipsoid, LpBall
from dpkit.models.ellipsoid import norms
from dpkit.models.likelihood import Rows
from dpkit.models.links import Link, get_link
from dpkit.states.entries import Kept

__all__ = ["PublishedJointDPGLM", "SymmetricTree"]


class SymmetricTree(Kept):
    """Noisy prefix sums of symmetric matrices, by a binary tree with (Z + Zᵀ)/2 on every node.

    Parameters
    ----------
    dim, horizon : int
    sigma : float
        Of an entry of Z.

    Attributes
    ----------
    total : (d, d) ndarray
        The noisy sum so far; zero, without noise, at the start.
    """

    _KEPT = ("open", "left", "count", "total")

    def __init__(self, dim: int, horizon: int, sigma: float) -> None:
        levels = horizon.bit_length()
        self.sigma, self.count = sigma, 0
        self.open, self.left = np.zeros((levels, dim, dim)), np.zeros((levels, dim, dim))
        self.total = np.zeros((dim, dim))

    def add(self, record: Array, rng: np.random.Generator) -> None:
        """The next leaf; noise is drawn for every node that it completes, from the leaf up."""
        self.count += 1
        self.open += record
        for level in range(len(self.open)):
            if self.count % 2**level:
                break
            Z = rng.normal(0.0, self.sigma, record.shape)
            noisy, self.open[level] = self.open[level] + (Z + Z.T) / 2.0, 0.0
            if self.count >> level & 1:  # a left child; no prefix ends with a right one
                self.left[level] = noisy
        self.total = self.left[[i for i in range(len(self.left)) if self.count >> i & 1]].sum(axis=0)


class PublishedJointDPGLM(PublishedPolicy):
    """Algorithm 2 of Sarmasarkar (2026), as printed. Not private as claimed: see the module's text.

    Parameters
    ----------
    dim, link, budget, horizon, theta_bound
        As for :class:`~dpbandits.policies.JointDPGLM`.
    ridge, gamma, exploration : float, optional
        λ, γ and β. By default those of (50), (52) and (51) with C = 1.
    exploration_calls, policy_calls : int, optional
        How often θ_o and θ_τ are fitted at most, and what their noise is calibrated for. By default as printed.
    calibration : {"printed", "renyi"}
        Of the noise: as printed, or such that each tree, and each optimizer's fits together, cost (ε/3, δ/3) by Rényi
        accounting at the printed sensitivities, as Remark B.1 says of the experiments.
    failure_probability : float
        ζ.
    parameters : {"published"}
    **options
        See :class:`PublishedPolicy`.

    Attributes
    ----------
    theta_o, theta : (d,) ndarray
        θ_o and θ_τ.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     policy = PublishedJointDPGLM(2, budget=Budget(4.0, 0.02), horizon=100, rng=rng)
    >>> decision = policy.select(np.eye(2))
    >>> policy.update(decision, 1.0)
    >>> policy
    PublishedJointDPGLM(dim=2): 1 of 100 decisions, not private: as published
    """

    learned = ("theta_o", "theta", "calls_o", "calls", "V", "H", "H_tau", "explored", "others")
    notes = 1

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 3.0,
        ridge: float | None = None,
        gamma: float | None = None,
        exploration: float | None = None,
        exploration_calls: int | None = None,
        policy_calls: int | None = None,
        calibration: Literal["printed", "renyi"] = "printed",
        failure_probability: float = 0.01,
        parameters: Literal["published"] = "published",
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(
            dim,
            self.link.reward_range,
            budget=budget,
            horizon=horizon,
            theta_bound=theta_bound,
            failure_probability=failure_probability,
            **options,
        )
        S, T, d, R, eps = self.theta_bound, horizon, self.dim, self.reward_bound(), budget.epsilon
        self.kappa, kappa_star = self.link.kappa(S), self.link.kappa_star(S)
        log_T, Lambda_T, Lambda_d = self.log_horizon(), math.log(T / self.failure_probability), -math.log(budget.delta)
        # section J.1, with C = 1
        size, joint = math.sqrt(d * Lambda_T), d**0.25 * math.sqrt(Lambda_T * Lambda_d) * (d + Lambda_T) ** 0.25
        lam = 1.25 * d * Lambda_T
        lam += 100 * math.sqrt(d) * Lambda_d * log_T * (math.sqrt(Lambda_T) + math.sqrt(d)) / (eps * kappa_star)
        beta = R * size + R * S * joint / math.sqrt(eps * min(kappa_star, 1.0))
        gam = R**2 * S * (size + joint / math.sqrt(eps * kappa_star))
        gam += R**4 * S**4 * d * math.sqrt(self.kappa) * Lambda_T * math.sqrt(Lambda_d) / eps
        self.ridge = lam if ridge is None else positive("ridge", ridge)
        self.gamma = gam if gamma is None else positive("gamma", gamma)
        self.exploration = beta if exploration is None else positive("exploration", exploration)

        # what the noise of fits is calibrated for; at most the whole part of it is made
        count1 = 8 * d * R**2 * self.kappa * self.gamma**2 * log_T
        count2 = 4 * math.log2(1 + T * R**3 / d)
        self.exploration_calls = _cap("exploration_calls", exploration_calls)
        self.policy_calls = _cap("policy_calls", policy_calls)
        counts = self.exploration_calls or count1, self.policy_calls or count2
        self.caps = [max(1, math.floor(count)) for count in counts]
        m = math.ceil(math.log2(T) + 1)
        sigma = math.sqrt(72 * m) * math.log(32 / budget.delta) / (kappa_star * eps)
        rho = eps**2 / (144 * math.log(8 / budget.delta))
        self.calibration = choice("calibration", calibration, "printed", "renyi")
        if calibration == "renyi":
            third = Budget(eps / 3, budget.delta / 3)
            sigma = calibrate(lambda z: TreeAggregation(z, T), third, accountant="rdp") / kappa_star
            rho = 0.5 / calibrate(Gaussian, third, accountant="rdp") ** 2
        self.rhos = [rho / count for count in counts]
        self.threshold = 1.0 / (self.gamma**2 * self.kappa * R**2)
        self.lipschitz = R + R * S

        self.V, self.H = SymmetricTree(d, T, sigma), SymmetricTree(d, T, sigma)
        self.H_tau = self.ridge * np.eye(d)
        self.theta_o, self.theta = np.zeros(d), np.zeros(d)
        self.calls_o = self.calls = 0
        self.explored, self.others = Rows(d + 1, bound=1.0), Rows(d + 1, bound=1.0)  # (x, r)

    def _design(self, tree: SymmetricTree) -> Array:
        return np.asarray(tree.total + self.ridge * np.eye(self.dim))

    def _unknown(self, arms: Array) -> Array:
        """‖x‖_{V⁻¹}."""
        return norms(arms, np.asarray(np.linalg.inv(self._design(self.V)), np.float64))

    def prepare(self, arms: Array) -> None:
        # lines 11 to 13, where line 4 does not hold
        if float(self._unknown(arms).max()) ** 2 >= self.threshold:
            return
        H = self._design(self.H)
        if float(np.linalg.eigvalsh(H - 2.0 * self.H_tau)[-1]) > 0.0:
            self.H_tau = H
            if self.calls < self.caps[1]:
                self.calls += 1
                values, U = np.linalg.eigh(self._design(self.V))
                V = (U * np.maximum(values, 1e-9 * self.ridge)) @ U.T
                around = Ellipsoid((V + V.T) / 2.0, self.gamma * math.sqrt(self.kappa), self.theta_o)
                self.theta = self._fit(self.others.array, around, self.rhos[1])

    def score(self, arms: Array) -> Array:
        unknown = self._unknown(arms)
        if float(unknown.max()) ** 2 >= self.threshold:  # line 5
            return unknown
        center, width = arms @ self.theta_o, self.gamma * math.sqrt(self.kappa) * unknown
        kept = center + width >= (center - width).max()  # line 14
        bonus = self.exploration * norms(arms, np.asarray(np.linalg.inv(self.H_tau), np.float64))
        return np.where(kept, arms @ self.theta + bonus, -np.inf)  # line 15

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        # an arm that was chosen by criterion I is the one of largest norm
        return (int(float(self._unknown(arm[None])[0]) ** 2 >= self.threshold),)

    def learn(self, pending: Pending, reward: float) -> None:
        x, (explores,) = pending.arm, pending.note
        outer, nothing = np.outer(x, x), np.zeros((self.dim, self.dim))
        if explores:  # lines 6 to 8, 21 and 22
            self.explored.append([*x, reward])
            self.V.add(outer, self.rng)
            self.H.add(nothing, self.rng)
            if self.calls_o < self.caps[0]:
                self.calls_o += 1
                self.theta_o = self._fit(self.explored.array, LpBall(2, self.dim, self.theta_bound), self.rhos[0])
        else:  # lines 16, 24 and 25
            self.others.append([*x, reward])
            weight = float(self.link.derivative(float(x @ self.theta_o))) / math.e
            self.H.add(weight * outer, self.rng)
            self.V.add(nothing, self.rng)

    def _fit(self, rows: Array, constraint: ConvexSet, rho: float) -> Array:
        """Lemma U.4."""
        X, r, n, d, L = rows[:, :-1], rows[:, -1], len(rows), self.dim, self.lipschitz
        root = math.sqrt(self.dim)
        largest = self.ridge * (4 * root + 2) / (4 * root + 1)  # λ_max
        steps = max(1, math.ceil((n**2 * rho + 6 * self.log_horizon()) / d))
        eta, sigma = 2 * self.theta_bound / (L * math.sqrt(steps)), L * math.sqrt(2 * steps / rho) / max(1, n)
        theta, mean = constraint.project(np.zeros(d)), np.zeros(d)
        for _ in range(steps):
            mean += theta / steps
            gradient = ((self.link.mean(X @ theta) - r) @ X + largest * theta) / max(1, n)
            theta = constraint.project(theta - eta * (gradient + self.rng.normal(0.0, sigma, d)))
        return mean


def _cap(name: str, calls: int | None) -> int | None:
    return None if calls is None else integer(name, calls, at_least=1)
