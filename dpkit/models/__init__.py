"""Generalized linear models E[y | x] = μ(xᵀθ): links, losses, likelihoods, priors. Nothing here is private by itself.

=============  =========================================  =========================================================
about          names                                      what
=============  =========================================  =========================================================
links          ``Link``, ``get_link``                     μ, its slope and integral, and their bounds on [−S, S]
losses         ``GLM``, ``glm``, ``matching_loss``        losses with gradients that are clipped row by row: what the
                                                          private optimizers minimise
likelihood     ``glm_loss``, ``minimize_in_ball``,        maximum likelihood over all rows, and extremes of xᵀθ over
               ``level_set_maxima``, ``Rows``             a level set of the loss
one row        ``proximal_point``                         the proximal step of a stream
ellipsoids     ``RankOneInverse``, ``norms``, ``within``  H = λI + Σ w·x xᵀ with its inverse in O(d²) a row; the ball
               ``ball_constrained_minimizer``,            ‖θ‖ ≤ S in the norm of H
               ``project_on_ball``
two values     :mod:`.bernoulli`                          the divergence of Bernoulli laws, and its confidence bound
before data    ``Prior``, ``posterior``                   a public normal prior, and what an estimate makes of it
=============  =========================================  =========================================================

>>> import numpy as np
>>> from dpkit.models import get_link, glm_loss, minimize_in_ball
>>> X, y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 1.0, 0.0])
>>> theta, _ = minimize_in_ball(glm_loss(get_link("logistic"), X, y, ridge=0.1), np.zeros(2), radius=2.0)
>>> theta.round(2).tolist()
[1.89, -0.65]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpkit.lazy import attributes_of

if TYPE_CHECKING:
    from dpkit.models.ellipsoid import RankOneInverse, ball_constrained_minimizer, norms, project_on_ball, within
    from dpkit.models.level_sets import level_set_maxima
    from dpkit.models.likelihood import Rows, Smooth, glm_loss, minimize_in_ball
    from dpkit.models.links import Link, get_link, is_named
    from dpkit.models.losses import GLM, glm, matching_loss
    from dpkit.models.prior import Posterior, Prior, PriorLike, checked_prior, posterior
    from dpkit.models.proximal import proximal_point

__all__ = [
    "GLM",
    "Link",
    "Posterior",
    "Prior",
    "PriorLike",
    "RankOneInverse",
    "Rows",
    "Smooth",
    "ball_constrained_minimizer",
    "checked_prior",
    "get_link",
    "glm",
    "glm_loss",
    "is_named",
    "level_set_maxima",
    "matching_loss",
    "minimize_in_ball",
    "norms",
    "posterior",
    "project_on_ball",
    "proximal_point",
    "within",
]

# loaded when they are first asked for
_HOMES = {
    "dpkit.models.ellipsoid": "RankOneInverse ball_constrained_minimizer norms project_on_ball within",
    "dpkit.models.level_sets": "level_set_maxima",
    "dpkit.models.likelihood": "Rows Smooth glm_loss minimize_in_ball",
    "dpkit.models.links": "Link get_link is_named",
    "dpkit.models.losses": "GLM glm matching_loss",
    "dpkit.models.prior": "Posterior Prior PriorLike checked_prior posterior",
    "dpkit.models.proximal": "proximal_point",
}

__getattr__, __dir__ = attributes_of(
    __name__, {name: module for module, names in _HOMES.items() for name in names.split()}
)
