"""The rule of the policies that play by a posterior: a draw from it, widened, or the gaps of predicted rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting.arrays import Array
from accounting.checks import positive
from dpbandits.policy.choices import Law, Perturbed, gap_shares, inverse_gap
from dpbandits.policy.many import Each, Gaps, Laws, Perturbations, Rounds
from dpbandits.policy.parameters import Exploration, checked_exploration
from dpkit.models.links import Link

__all__ = ["PosteriorRule"]


class _Known(Protocol):
    """θ, a root such that θ + root·ξ is what plays, and the level of rewards on the link's scale, if one is learned."""

    @property
    def theta(self) -> Array: ...

    @property
    def root(self) -> Array: ...

    @property
    def level(self) -> float: ...


@dataclass(frozen=True)
class PosteriorRule:
    """argmax xᵀ(θ + root·ξ) for a fresh standard normal ξ.

    Before the first release nothing is known, unless there is a prior: then a random direction takes informative (long)
    arms and looks everywhere.

    Attributes
    ----------
    link : Link
        μ.
    exploration : float or "inverse_gap"
        With "inverse_gap" arms are drawn by the gaps of μ(level + xᵀθ), at the rate γ = ``gamma_scale``·√t after a
        release at round t.
    gamma_scale : float
    given : bool
        Whether there is a prior.
    levels : bool
        Whether a level of rewards is released; else it is 0.
    """

    link: Link
    exploration: Exploration
    gamma_scale: float
    given: bool
    levels: bool = False

    @classmethod
    def of(
        cls, link: Link, exploration: Exploration, gamma_scale: float, *, given: bool, levels: bool
    ) -> PosteriorRule:
        """The rule by a policy's arguments, checked."""
        return cls(link, checked_exploration(exploration)[0], positive("gamma_scale", gamma_scale), given, levels)

    @property
    def width(self) -> float:
        """β, by which draws from the posterior are widened; 0 where arms are drawn by their gaps."""
        return 0.0 if self.exploration == "inverse_gap" else float(self.exploration)

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields of the public half that it looks at."""
        return ("theta", "root", "level") if self.levels and self.exploration == "inverse_gap" else ("theta", "root")

    def __call__(self, public: _Known, arms: Array, since: int) -> Law:
        if self.exploration == "inverse_gap":
            e = arms @ public.theta + (public.level if self.levels else 0.0)
            return inverse_gap(self.link.mean(e), self.gamma_scale * math.sqrt(since))
        if since == 0 and not self.given:
            return Perturbed(arms)
        return Perturbed(arms, public.theta, public.root)

    def many(self, public: _Known, rounds: Rounds, since: int) -> Laws:
        """The same for many requests."""
        if self.exploration != "inverse_gap":
            nothing = since == 0 and not self.given
            return Perturbations(rounds) if nothing else Perturbations(rounds, public.theta, public.root)
        if not isinstance(rounds, np.ndarray):
            return Each([self(public, arms, since) for arms in rounds])
        e = rounds @ public.theta + (public.level if self.levels else 0.0)
        return Gaps(gap_shares(self.link.mean(e), self.gamma_scale * math.sqrt(since)))
