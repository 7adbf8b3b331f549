"""How a simulation makes a policy anew for every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.arrays import Array
from dpbandits.policy.protocol import Policy

__all__ = ["Made"]


@dataclass(frozen=True)
class Made:
    """A function that makes a policy; picklable, for worker processes.

    Parameters
    ----------
    algorithm : callable
        Such as a class of :mod:`dpbandits.policies`.
    shape : tuple of int
        Its first arguments.
    parameters : mapping

    Examples
    --------
    >>> from dpbandits.policies import GLBOMD
    >>> Made(GLBOMD, (3,), {"link": "probit"})(np.random.default_rng(0)).dim
    3
    """

    algorithm: Callable[..., Policy]
    shape: tuple[int, ...]
    parameters: Mapping[str, Any]

    @property
    def public_arms(self) -> bool:
        """Whether it is told the arms, which are fixed."""
        return bool(getattr(self.algorithm, "public_arms", False))

    def __call__(self, rng: np.random.Generator, *arms: Array) -> Policy:
        return self.algorithm(*self.shape, *arms, **self.parameters, rng=rng)
