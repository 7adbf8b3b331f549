"""Records of rounds, whose noisy sum is all that a policy knows: clipping levels, and the scales of their two parts.

A record is the pair (w·x xᵀ, g·x), formed at a parameter θ that was released: with e = xᵀθ, w = clip(μ̇(e), w_min, W)
and g = clip(w·e + r − μ(e), ±B). It is the round's least-squares approximation of the loss around θ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.checks import positive
from dpbandits.mathematics.links import Link
from dpkit.optimize.objectives import GLM

__all__ = ["GLMRecord", "link_objective", "pair_scales"]


@dataclass(frozen=True, slots=True)
class GLMRecord:
    """The levels w_min, W and B at which the weights of a record are clipped."""

    link: Link
    w_min: float
    W: float
    B: float

    @classmethod
    def of(cls, link: Link, theta_bound: float, reward_range: tuple[float, float], clip: float | None) -> GLMRecord:
        """W is the largest slope over |e| ≤ S and w_min a fifth of it; B is ``clip``.

        By default B is 1.2 × the largest |r − μ(0)|, or the largest |w·e + r − μ(e)| there is where that is smaller.
        """
        S, (low, high) = theta_bound, reward_range
        W = link.lipschitz(S)
        e = np.linspace(-S, S, 2001)
        excess = np.clip(link.derivative(e), 0.2 * W, W) * e - link.mean(e)
        centre = float(link.mean(0.0))
        largest = max(float(np.abs(excess + r).max()) for r in (low, high))
        default = min(largest, 1.2 * max(abs(low - centre), abs(high - centre)))
        return cls(link, 0.2 * W, W, default if clip is None else positive("clip", clip))

    def weigh(self, e: float, reward: float) -> tuple[float, float]:
        """w and g, within their levels whatever a caller's link says."""
        w = min(max(self.w_min, float(self.link.derivative(e))), self.W)
        return w, min(max(-self.B, w * e + reward - float(self.link.mean(e))), self.B)


def pair_scales(W: float, B: float, gradient_share: float) -> tuple[float, float]:
    """a and c, for which records (a·svec(w·x xᵀ), c·g·x) have squared sensitivity 1 if their parts changed separately.

    ``gradient_share`` of it goes to g·x.
    """
    return math.sqrt(1 - gradient_share) / (math.sqrt(2) * W), math.sqrt(gradient_share) / (2 * B)


def link_objective(link: Link, theta_bound: float, clip: float) -> GLM:
    """The loss m(e) − r·e of a link, for the optimizers of ``dpkit``: gradients are cut to the length ``clip``."""
    return GLM(
        link.name,
        loss=lambda e, r: np.asarray(link.integral(e) - r * e),
        slope=lambda e, r: np.asarray(link.mean(e) - r),
        slope_bound=math.inf,
        curvature_bound=link.lipschitz(theta_bound),
        clip=clip,
    )
