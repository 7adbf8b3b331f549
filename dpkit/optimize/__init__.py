"""Private convex optimizers, and the objectives that they minimise.

Every optimizer returns a ``scipy.optimize.OptimizeResult`` with ``x``, ``nit``, ``nfev``, ``message`` and
``release``, the description of what it cost.

Which one: ``docs/optimizers.md`` compares them on one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.models.losses import GLM, glm
from dpkit.optimize.batch.dp_ftrl import DPFTRL, dp_ftrl
from dpkit.optimize.batch.half_sample_frank_wolfe import half_sample_frank_wolfe
from dpkit.optimize.batch.localized_mirror_descent import localized_mirror_descent
from dpkit.optimize.batch.noisy_gradient_descent import noisy_gradient_descent
from dpkit.optimize.batch.noisy_sgd import noisy_sgd
from dpkit.optimize.batch.noisy_stochastic_frank_wolfe import noisy_stochastic_frank_wolfe
from dpkit.optimize.batch.objective_perturbation import objective_perturbation
from dpkit.optimize.batch.phased_sgd import phased_sgd
from dpkit.optimize.batch.preconditioned_descent import preconditioned_descent
from dpkit.optimize.batch.shuffle_gradient_descent import shuffle_gradient_descent
from dpkit.optimize.batch.sufficient_statistics import sufficient_statistics
from dpkit.optimize.batch.variance_reduced_frank_wolfe import variance_reduced_frank_wolfe
from dpkit.optimize.parts.softmax import Softmax, softmax
from dpkit.optimize.stream.follow_the_approximate_leader import (
    FollowTheApproximateLeader,
    follow_the_approximate_leader,
)
from dpkit.optimize.stream.follow_the_regularized_leader import (
    FollowTheRegularizedLeader,
    follow_the_regularized_leader,
)
from dpkit.optimize.stream.implicit_gradient_descent import ImplicitGradientDescent, implicit_gradient_descent
from dpkit.optimize.stream.online_frank_wolfe import OnlineFrankWolfe, online_frank_wolfe
from dpkit.optimize.stream.polyhedral_online_frank_wolfe import (
    PolyhedralOnlineFrankWolfe,
    polyhedral_online_frank_wolfe,
)

if TYPE_CHECKING:
    from dpkit.torch.dp_sgd import dp_sgd

__all__ = [
    "DPFTRL",
    "FollowTheApproximateLeader",
    "FollowTheRegularizedLeader",
    "GLM",
    "ImplicitGradientDescent",
    "OnlineFrankWolfe",
    "PolyhedralOnlineFrankWolfe",
    "Softmax",
    "dp_ftrl",
    "dp_sgd",
    "follow_the_approximate_leader",
    "follow_the_regularized_leader",
    "glm",
    "half_sample_frank_wolfe",
    "implicit_gradient_descent",
    "localized_mirror_descent",
    "noisy_gradient_descent",
    "noisy_sgd",
    "noisy_stochastic_frank_wolfe",
    "objective_perturbation",
    "online_frank_wolfe",
    "phased_sgd",
    "polyhedral_online_frank_wolfe",
    "preconditioned_descent",
    "shuffle_gradient_descent",
    "softmax",
    "sufficient_statistics",
    "variance_reduced_frank_wolfe",
]


def __getattr__(name: str) -> object:
    # trains modules of torch, and imports the other optimizers' parts: loaded when it is first asked for
    if name != "dp_sgd":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpkit.torch.dp_sgd import dp_sgd

    return dp_sgd
