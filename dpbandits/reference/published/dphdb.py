"""DP-HDB as published: forced rounds in blocks, then pre-selection and greed, with a synthetic row for every other arm.

Source: Han, Liang, Liang, Wang, Yao & Zhang (2022, arXiv:2206.08111), Algorithm 3. Arm i is played in the t₀ rounds
from it₀ + 1 on, and its t-th row makes step t of Algorithm 2 over the ℓ₁ ball (lines 3 to 10). In every later round t
(lines 11 to 18)

    K̂_t = {i : μ(X_tᵀθ_{t₀,i}) > max_j μ(X_tᵀθ_{t₀,j}) − h/2},        a_t = argmax_{i ∈ K̂_t} μ(X_tᵀθ_{t,i}),

and every arm makes one more step: a_t with (X_t, r_t), the others with (0, μ(0)). The loss is Σ ∫(μ(z) − r)dz, of
gradient (μ(xᵀθ) − r)x.

Read so:

* "The t-th step of Algorithm 2 over I_i" (line 17) is step number |I_i|. Its other reading, the round's number, would
  skip (K − 1)t₀ steps of every arm, and contradicts line 8.
* n of Algorithm 2's line 8 is T, D = 2S is the ℓ₁ diameter of the ball, and βD + L is ``gradient_bound``.
* The paper prints neither t₀, h nor βD + L of its experiments.

The claim of privacy is not proved
----------------------------------
Row 1 of every arm counts twice in Algorithm 2, which the proof leaves out (``docs/errata.md``; no violation is known);
the bound βD + L is trusted, with no clipping; and late rewards make steps when they come, so that the times of steps
tell. :class:`~dpbandits.policies.DPHDB` is the private form.

Cost per round: O(Kd), with 2dK draws. Memory: O(Kd).
"""

from __future__ import annotations

import math
from typing import Literal, Unpack

import numpy as np

from accounting import Budget
from accounting.arrays import Array
from accounting.checks import integer, positive
from dpbandits.policy.offers import CUBE
from dpbandits.policy.options import PrivateOptions
from dpbandits.policy.protocol import Pending
from dpbandits.reference.published.base import PublishedPolicy
from dpkit.geometry import LpBall
from dpkit.models.links import Link, get_link
from dpkit.optimize.stream.published_frank_wolfe import choice_scale

__all__ = ["PublishedDPHDB"]


class PublishedDPHDB(PublishedPolicy):
    """Algorithm 3 of Han et al. (2022), as printed. Not proved to be private: see the module's text.

    Parameters
    ----------
    dim, n_arms, link, budget, horizon, theta_bound
        As for :class:`~dpbandits.policies.DPHDB`.
    forced : int, optional
        t₀. By default ln(dT)·ln(T)/ε² (Theorem 4.2 without its constant), at most T/(10K).
    margin : float
        h_sub > 0; infinite pre-selects all arms.
    gradient_bound : float, optional
        βD + L. By default 2S·sup μ̇ plus the largest |μ(z) − r| for |z| ≤ S.
    parameters : {"published"}
    **options
        See :class:`PublishedPolicy`.

    Attributes
    ----------
    theta, forced_theta : (K, d) ndarray
        The all-sample and the forced-sample estimates.

    Examples
    --------
    >>> import numpy as np, warnings
    >>> from accounting import Budget
    >>> rng = np.random.default_rng(0)
    >>> with warnings.catch_warnings(action="ignore"):
    ...     policy = PublishedDPHDB(3, 2, budget=Budget(1.0, 1e-6), horizon=100, forced=2, rng=rng)
    >>> for r in (1.0, 0.0, 1.0, 0.0):
    ...     decision = policy.select([0.5, 0.0, -0.5])
    ...     policy.update(decision, r)
    >>> decision.index
    1
    """

    offer = CUBE
    n_arms: int
    notes = 1
    learned = ("theta", "before", "gradient", "counts", "forced_theta")

    def __init__(
        self,
        dim: int,
        n_arms: int,
        link: str | Link = "logistic",
        *,
        budget: Budget,
        horizon: int,
        theta_bound: float = 1.0,
        forced: int | None = None,
        margin: float = math.inf,
        gradient_bound: float | None = None,
        parameters: Literal["published"] = "published",
        **options: Unpack[PrivateOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(
            dim, self.link.reward_range, budget=budget, horizon=horizon, theta_bound=theta_bound, **options
        )
        K = self.n_arms = integer("n_arms", n_arms, at_least=1)
        S, T = self.theta_bound, horizon
        enough = math.ceil(math.log(dim * T) * self.log_horizon() / budget.epsilon**2)
        self.forced = min(enough, -(-T // (10 * K))) if forced is None else integer("forced", forced, at_least=1)
        self.margin = positive("margin", margin, finite=False)
        if gradient_bound is None:
            low, high = self.reward_range
            if math.isinf(high - low):
                raise ValueError(
                    f"reward_range must be finite where gradient_bound is not given, got reward_range={(low, high)}"
                )
            least, most = (float(self.link.mean(z)) for z in (-S, S))
            gradient_bound = 2.0 * S * self.link.lipschitz(S) + max(high - least, most - low)
        self.gradient_bound = positive("gradient_bound", gradient_bound)
        self._ball = LpBall(1, dim, S)
        self.theta, self.before = np.zeros((K, dim)), np.zeros((K, dim))
        self.gradient, self.forced_theta = np.zeros((K, dim)), np.zeros((K, dim))
        self.counts = np.zeros(K, dtype=np.int64)  # |I_i|

    def score(self, context: Array) -> Array:
        if self.decisions < self.n_arms * self.forced:
            return np.asarray(np.arange(self.n_arms) == self.decisions // self.forced, np.float64)
        rough, fine = (np.asarray(self.link.mean(theta @ context)) for theta in (self.forced_theta, self.theta))
        return np.where(rough > rough.max() - 0.5 * self.margin, fine, -math.inf)

    def note(self, arm: Array, index: int) -> tuple[int, ...]:
        return (int(self.decisions < self.n_arms * self.forced),)

    def learn(self, pending: Pending, reward: float) -> None:
        (forced,), zero = pending.note, np.zeros(self.dim)
        for i in range(self.n_arms):
            if i == pending.index:
                self._step(i, pending.arm, reward)
            elif not forced:
                self._step(i, zero, float(self.link.mean(0.0)))
        if forced:
            self.forced_theta[pending.index] = self.theta[pending.index]

    def _step(self, i: int, x: Array, r: float) -> None:
        """Step |I_i| of Algorithm 2."""
        self.counts[i] += 1
        t = int(self.counts[i])
        now, before = ((float(self.link.mean(float(theta[i] @ x))) - r) * x for theta in (self.theta, self.before))
        self.gradient[i] = now if t == 1 else now + (1.0 - 1.0 / (t + 1)) * (self.gradient[i] - before)
        budget, D = self.budget, self._ball.diameter(1.0)
        scale = choice_scale(t, self.horizon or 1, budget.epsilon, budget.delta, D, self.gradient_bound)
        scores = self._ball.vertex_scores(self.gradient[i])
        corner = int(np.argmin(scores + self.rng.laplace(0.0, scale, len(scores))))
        self.before[i] = self.theta[i]
        self.theta[i] = self.theta[i] + (self._ball.vertex(corner) - self.theta[i]) / (t + 1)
