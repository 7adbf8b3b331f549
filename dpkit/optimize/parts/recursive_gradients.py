"""What the online Frank–Wolfe learners share: recursive gradients.

With ρ_t = min(1, r/(t + 1)), the recursive gradient of row t is

    g_t = ∇ℓ(θ_t; x_t) + (1/ρ_t − 1)(∇ℓ(θ_t; x_t) − ∇ℓ(θ_{t−1}; x_t)) = ψ_t·x_t,

with ψ_t cut so that ‖g_t‖ ≤ clip. What is done with it, and the noise, are the learners'.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.checks import positive
from dpkit.clipping import clipped_slope
from dpkit.geometry import ConvexSet
from dpkit.models.losses import GLM
from dpkit.optimize.parts.stream_learner import StreamLearner

__all__ = ["RecursiveGradients"]

Vector = NDArray[np.float64]
Set = TypeVar("Set", bound=ConvexSet)


class RecursiveGradients(StreamLearner[Set]):
    """A learner that averages recursive gradients."""

    _GRADIENTS: ClassVar[int] = 2

    forgetting: float
    step_scale: float

    def _keep_steps(self, objective: GLM, constraint: Set, horizon: int, forgetting: float, step_scale: float) -> None:
        """Check and keep the parameters that both learners have."""
        self._keep(objective, constraint, horizon)
        self.forgetting = positive("forgetting", forgetting)
        if self.forgetting < 1:
            raise ValueError(f"forgetting must be at least 1, got forgetting={forgetting!r}")
        self.step_scale = positive("step_scale", step_scale)

    def _begin(self, start: Vector) -> None:
        super()._begin(start)
        self._pair = np.empty(2)
        self._gradient = np.zeros(len(start))  # d_t

    def _recursive_gradient(self, x: Vector, y: float, length: float) -> tuple[float, Vector, bool]:
        """ρ_t, g_t and whether it was clipped, for t = steps + 1; changes nothing."""
        rho = min(1.0, self.forgetting / (self.steps + 2))
        self._pair.fill(y)
        with np.errstate(all="ignore"):  # what overflows is clipped
            now, before = self.objective.slope(self._iterates @ x, self._pair).tolist()
        psi, cut = clipped_slope(now + (1.0 / rho - 1.0) * (now - before), length, self.clip)
        return rho, psi * x, cut
