"""Checks of the arguments that policies share, and refusals where one has no place."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

from accounting.checks import choice, nonnegative, positive

__all__ = [
    "Exploration",
    "Parameters",
    "PublishedParameters",
    "batch_discount",
    "checked_exploration",
    "checked_parameters",
    "no_prior",
    "noise_level",
    "not_in_theory",
]

Parameters = Literal["practical", "theory"]
# "published": what the paper that introduced a policy states of its own experiments, to the letter
PublishedParameters = Literal["practical", "theory", "published"]
Set = TypeVar("Set", Parameters, PublishedParameters)
Exploration = float | Literal["inverse_gap"]

# what a sum must keep from one batch to the next, for dpkit.continual.Discounted
_LEAST_LEFT = 1e-12


def batch_discount(discount: float | None, batch: int) -> float | None:
    """What is left of a sum after a batch of so many rounds; None where nothing is forgotten."""
    if discount is None:
        return None
    if discount >= _LEAST_LEFT > discount**batch:
        most = math.floor(math.log(_LEAST_LEFT) / math.log(discount))
        raise ValueError(
            f"first_batch must be at most {most} rounds for discount={discount:g}, as nothing of a batch would be left "
            f"in the next one, got first_batch={batch}"
        )
    return discount**batch


def checked_parameters(parameters: Set, *, published: bool = False) -> Set:
    """The name of a parameter set; of a policy that has them, that of the ``published`` parameters, too."""
    return choice("parameters", parameters, "practical", "theory", *(("published",) if published else ()))


def checked_exploration(exploration: Exploration) -> tuple[Exploration, float]:
    """How arms are explored, and the width of what is drawn or added: 0 where they are drawn by their gaps."""
    if exploration == "inverse_gap":
        return exploration, 0.0
    try:
        width = nonnegative("exploration", exploration)
    except TypeError:
        raise TypeError(f"exploration must be a number or 'inverse_gap', got exploration={exploration!r}") from None
    return width, width


def noise_level(
    noise_bound: float | None, reward_range: tuple[float, float], parameters: Parameters, typical: float
) -> float:
    """The sub-Gaussian constant of the noise: as given, or half the length of the range of rewards (Hoeffding 1963).

    Where neither is known, the practical parameters fall back on ``typical``, a standard deviation, and the theory's
    are refused.
    """
    if noise_bound is not None:
        return positive("noise_bound", noise_bound)
    half = 0.5 * (reward_range[1] - reward_range[0])
    if math.isfinite(half):
        return half
    if parameters == "theory":
        raise ValueError(
            f"noise_bound must be given for the theory's parameters where rewards have no bounds, "
            f"got reward_range={reward_range}"
        )
    return typical


def not_in_theory(prior: Any, parameters: str) -> None:
    """Refuse a prior where a theorem's promise, or a paper's experiment, is for confidence sets around 0."""
    if prior is not None and parameters != "practical":
        raise ValueError(
            f"prior must be None for parameters={parameters!r}, whose promises are for no prior: use "
            "parameters='practical', got both"
        )


def no_prior(prior: Any, policy: str, reason: str) -> None:
    """Refuse a prior where a policy has no place for it."""
    if prior is not None:
        raise ValueError(
            f"prior must be None for {policy}, {reason}: take OnePassPrivateGLM, DPLinUCB or a shuffled or disjoint "
            f"policy that takes one, got a {type(prior).__name__}"
        )
