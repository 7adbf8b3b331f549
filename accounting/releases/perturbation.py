"""The description of a minimizer that a random linear term has moved: objective perturbation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accounting.checks import positive
from accounting.notions.perturbed_minimum import LARGEST_CURVATURE
from accounting.releases.base import Release

if TYPE_CHECKING:
    from accounting.loss.pair import LossPair

__all__ = ["ObjectivePerturbation"]


@dataclass(frozen=True, repr=False)
class ObjectivePerturbation(Release):
    """The exact minimizer of Σ_p f_p(θ) + (Λ/2)‖θ‖² + bᵀθ over all θ, b ~ N(0, σ²I), convex f_p, one for each unit.

    Gradients of f_p are at most L long, and its Hessian has a trace of at most β. ``noise_multiplier`` is σ over the
    most that one unit changes the sum of gradients by: L where it is present or absent, 2L where it is replaced, as it
    is unless ``"add_remove"`` or ``"zero_out"`` is stated. ``curvature`` is β/Λ, at most 0.6.

    It is priced by Rényi divergences that hold for any convex f_p (:mod:`accounting.notions.perturbed_minimum`). With
    ``one_row=True`` the unit is one row of a generalized linear model, of which a whole curve is known
    (:mod:`accounting.loss.one_row`). Stopping short of the minimum is another release, on top of this one.

    Examples
    --------
    >>> from accounting import Gaussian, ObjectivePerturbation, epsilon
    >>> fit = ObjectivePerturbation(5.376, curvature=0.2, one_row=True, adjacency="add_remove")
    >>> round(epsilon(fit, 1e-6), 3), round(epsilon(Gaussian(5.376), 1e-6), 3)
    (0.954, 0.772)
    >>> round(epsilon(10 * ObjectivePerturbation(20.0, curvature=0.02), 1e-6), 3)
    0.825
    """

    noise_multiplier: float
    curvature: float
    one_row: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier", self.noise_multiplier)
        if positive("curvature", self.curvature) > LARGEST_CURVATURE:
            raise ValueError(
                f"curvature must be at most {LARGEST_CURVATURE} (a larger ridge makes it smaller), "
                f"got curvature={self.curvature!r}"
            )
        if not isinstance(self.one_row, bool):
            raise TypeError(f"one_row must be True or False, got one_row={self.one_row!r}")

    def pair(self) -> LossPair:
        """Of one row the curve of :mod:`accounting.loss.one_row`; of other functions none is known."""
        if not self.one_row:
            return super().pair()
        from accounting.loss.one_row import OneRowPair

        up, times = 1 + 2.0**-51, 2.0 if self.replaced else 1.0
        return OneRowPair(up / (times * self.noise_multiplier), math.log1p(self.curvature) * up, self.replaced)

    @property
    def replaced(self) -> bool:
        """Whether a unit is another one, and not only there or not there."""
        return self.adjacency not in ("add_remove", "zero_out")
