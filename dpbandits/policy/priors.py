"""Where a prior has no place: refusals that say what to do instead."""

from __future__ import annotations

from typing import Any

__all__ = ["no_prior", "not_in_theory"]


def not_in_theory(prior: Any, parameters: str) -> None:
    """Refuse a prior where a theorem's promise is for confidence sets around 0."""
    if prior is not None and parameters == "theory":
        raise ValueError(
            "prior must be None for parameters='theory', whose promises are for no prior: use parameters='practical', "
            "got both"
        )


def no_prior(prior: Any, policy: str, reason: str) -> None:
    """Refuse a prior where a policy has no place for it."""
    if prior is not None:
        raise ValueError(
            f"prior must be None for {policy}, {reason}: take OnePassPrivateGLM, DPLinUCB or a shuffled or disjoint "
            f"policy that takes one, got a {type(prior).__name__}"
        )
