"""What is fixed of an experiment before its first decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from accounting import Gaussian, Laplace
from dpbandits.experiment.sequences import Sequences

__all__ = ["Setting"]

_KINDS: dict[str, type[Laplace] | type[Gaussian]] = {"laplace": Laplace, "gaussian": Gaussian}


@dataclass(frozen=True)
class Setting:
    """What was fixed before the first decision, all of it public.

    Attributes
    ----------
    arms : tuple of str
    baseline : str
    metric : str
        Its name.
    low, high, missing : float
        The range of the metric, and what a decision without a value counts as.
    alpha : float
    assignment : {"adaptive", "fixed"}
    horizon : int
    noise : {"laplace", "gaussian", "none"}
    scale : float
        Of the noise of a sum, in steps.
    steps : int
        In the length of the range.
    """

    arms: tuple[str, ...]
    baseline: str
    metric: str
    low: float
    high: float
    missing: float
    alpha: float
    assignment: str
    horizon: int
    noise: Literal["laplace", "gaussian", "none"]
    scale: float
    steps: int

    @property
    def sequences(self) -> Sequences:
        """What intervals and e-values are computed with."""
        kind = _KINDS.get(self.noise)
        noise = None if kind is None else kind(1.0)
        return Sequences(noise, self.scale, self.steps, self.horizon, self.assignment == "fixed")
