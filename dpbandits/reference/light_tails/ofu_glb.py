"""OFUGLB: optimism over a level set of the likelihood, for generalized linear bandits. Not private.

The strongest regret of the reference policies, and the slowest: every reward refits the whole history, and every
choice maximises each arm's xᵀθ over the level set, so a round costs O(tKd²) and memory is O(td).

Source: Lee, Yun & Jun, "A Unified Confidence Sequence for Generalized Linear Models, with Applications to Bandits"
(NeurIPS 2024), Algorithm 1 (OFUGLB) with the confidence set of Theorem 3.1. The Lipschitz constant L_t of the loss is
taken from the data, Σ ‖x_s‖ max over |z| ≤ S‖x_s‖ of |μ(z) − r_s|/g(τ), which the theorem allows: its PAC-Bayes bound
holds for all c ∈ (0, 1] at once.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from accounting.checks import positive
from dpbandits.policy.parameters import Parameters
from dpbandits.policy.protocol import Pending
from dpbandits.reference.confidence import LevelSet, ReferenceOptions, ReferencePolicy
from dpkit.models.likelihood import Rows, minimize_in_ball
from dpkit.models.links import Link, get_link

__all__ = ["OFUGLB"]

# far below the curvature of any data, so that the first few arms determine one estimate; the radius makes up for it
_RIDGE = 1e-6


class OFUGLB(ReferencePolicy):
    """A generalized linear bandit: optimism over {‖θ‖ ≤ S : log-likelihood of θ within β_t² of the maximum}.

    The score of the chosen arm is its largest xᵀθ in the set; those of other arms may be upper bounds.

    Parameters
    ----------
    dim : int
        Dimension d of an arm.
    link : str or Link
        μ in E[r | x] = μ(xᵀθ).
    theta_bound : float
        S ≥ ‖θ‖.
    parameters : {"practical", "theory"}
        ``"theory"``: β_t² of the theorem, under which the set holds θ in all rounds with probability
        1 − ``failure_probability``, for rewards of the link's exponential family and for bounded ones of a Bernoulli
        link. ``"practical"``: that β_t times ``radius_scale``, without the promise.
    radius_scale : float
        Factor on β_t, of the practical parameters. At 1 they are the theory's.
    failure_probability : float
        δ.
    dispersion : float
        g(τ) of the exponential family: 1 for Bernoulli and Poisson rewards, the variance for Gaussian ones.
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
    >>> policy = OFUGLB(dim=2)
    >>> for _ in range(20):
    ...     decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    ...     policy.update(decision, float(decision.index == 1))
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).index
    1
    """

    learned = ("theta", "lipschitz", "rows")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        theta_bound: float = 3.0,
        parameters: Parameters = "practical",
        radius_scale: float = 1.0,
        dispersion: float = 1.0,
        **options: Unpack[ReferenceOptions],
    ) -> None:
        self.link = get_link(link)
        super().__init__(dim, self.link.reward_range, theta_bound, parameters, radius_scale, **options)
        self.dispersion = positive("dispersion", dispersion)
        self.theta = np.zeros(dim)
        self.lipschitz = 0.0  # L_t
        self.rows = Rows(dim + 1)  # (x, r)

    def width(self) -> float:
        """β_t²: how far the negative log-likelihood may lie above its minimum."""
        # β_t² = ln(1/δ) + inf over 0 < c ≤ 1 of d ln(1/c) + 2S L_t c, at c = min(1, d/(2S L_t))
        slope = 2.0 * self.theta_bound * self.lipschitz
        squared = math.log(1.0 / self.failure_probability)
        squared += self.dim * math.log(math.e * slope / self.dim) if slope > self.dim else slope
        squared += 0.5 * _RIDGE * self.theta_bound**2
        return squared if self.parameters == "theory" else self.radius_scale**2 * squared

    def believed(self) -> LevelSet:
        return LevelSet(self.link, self.rows, self.theta, self.width(), self.theta_bound, _RIDGE, self.dispersion)

    def learn(self, pending: Pending, reward: float) -> None:
        arm = pending.arm
        self.rows.append([*arm, reward])
        length = math.sqrt(float(arm @ arm))
        reach = self.theta_bound * length
        steepest = max(abs(float(self.link.mean(z)) - reward) for z in (-reach, reach))
        self.lipschitz += length * steepest / self.dispersion
        self.theta, _ = minimize_in_ball(self.believed().loss(), self.theta, radius=self.theta_bound)
