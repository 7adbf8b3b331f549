"""The rule for releases of any kind in any order: what every filter of :mod:`accounting.ledger.filters` has of δ.

*What is fixed when.* Everything in ``mixed`` follows from the budget, so any releases in any order are served alike:
0.77 of δ is for Gaussian DP with charges by how much is left, of which a sixth is spent on skewed losses, which costs a
ledger of Gaussians 2.5 % of its ε at δ = 1e-6; 0.08 for large and rare losses; and Rényi orders from half to four times
the one that is best for Gaussian noise serve the rest. There are two exceptions, which look at the first release only,
that is before any output. If the budget holds a whole number of releases like the first, to nine digits, it was
calibrated for them, and then the filter is the measure that it was calibrated by, with all of δ. No filter can give
both: one that admits Gaussians up to the last digit of (ε, δ) has spent all of δ on them. And if the first release is a
sample that is charged much more late than early, 0.41 of δ is for as many like it as the accountants prove
(:mod:`accounting.ledger.filters.copies_of_first`), and what may be mixed with it has 0.55, 0.01 and 0.03.

*How full.* Of (1, 1e-6) under ``mixed``, many small releases of one kind, the ε that the loss distribution proves of
what was admitted: Gaussian and integer noise 0.97; Laplace 0.97; noisy max 0.96; pure releases of 0.02 0.96 (132 fit);
samples with Gaussian noise of 4 at rates of 1 and 0.2 % 0.97 and 0.96; of 2 0.95 and 0.97; of 1.5 0.95 and 0.96; of 1
at 0.1 and 0.5 % 0.95 and 0.93, if they come first. After something else samples of 1.5 at 1 % reach 0.91 and of 1 at
0.5 % 0.68: single losses are rare and as large as ε there, and what covers such tails for whatever comes next is
expensive.
Random mixtures of pure, Gaussian, integer, Laplace noise and samples of 2 and more: 0.96 to 0.97; with samples of 0.9
and more in even shares, at any budget, 0.91 and more; and 0.92 to 0.95 where samples with little noise come first and
then others. Mixtures that are nearly all samples with little noise fill less: with six samples to one Gaussian release,
0.90 for samples of 1.5 at 1 %, 0.65 for 1 at 0.5 %, 0.47 for 0.9 at 0.4 %. Such a run is to be a row of its own, or a
ledger's plan.
"""

from __future__ import annotations

from functools import lru_cache

from accounting.arrays import UNIT_ROUNDOFF
from accounting.budget import Budget
from accounting.ledger.filters.renyi_mixture import best_order, orders_and_weights
from accounting.ledger.filters.rule import Rule, without_failures
from accounting.releases import Release

__all__ = ["mixed_rule"]

# The share of δ that "mixed" keeps for Gaussian DP with reserves, and the one of releases that may fail.
_GAUSSIAN_SHARE = 0.77
_FAILURE_SHARE = 1 / 32
# What a release leaves of μ² at least when it is charged: it is charged the less the more that is.
_LEVELS = (0.01, 0.02, 0.035, 0.055, 0.08, 0.12, 0.17, 0.24, 0.33, 0.45, 0.6, 0.8)
# One reserve for all, for the ε of what was spent.
_RESERVES = (0.02, 0.08, 0.24)
# The share of the δ of Gaussian DP for what smoothing leaves out.
_LEFT_OUT = 0.025
# The exponential term: its share of the δ of Gaussian DP, its order over the best one for Gaussian noise, and its rate
# over the least one. An order of 0.8 would give pure releases of 0.02 0.7 % of ε more, and samples with little noise a
# third less.
_TILT = (0.15, 0.45, 1.3)
# For large and rare losses: a share of δ, the part of it for what smoothing leaves out, and large reserves, levels and
# exponential term.
_HEAVY = (0.08, 0.05, 0.45)
_HEAVY_LEVELS = (0.1, 0.17, 0.25, 0.35, 0.45, 0.6, 0.8)
_HEAVY_TILT = (0.6, 0.15, 2.0)
# The shares of δ for Gaussian DP, for large and rare losses and for the first kind alone.
_WITH_KIND = (0.55, 0.01, 0.41)


@lru_cache(maxsize=256)
def mixed_rule(budget: Budget, failure_delta: float | None = None, kind: Release | None = None) -> Rule:
    """The rule for releases of any kind in any order, from the budget alone; with a share for one ``kind`` alone."""
    if budget.delta == 0:
        return Rule("pure")
    if failure_delta is None:
        failure_delta = budget.delta * _FAILURE_SHARE
    orders, weights = orders_and_weights(budget.epsilon, without_failures(budget.delta, failure_delta))
    share, heavy, alone = (_GAUSSIAN_SHARE, _HEAVY[0], 0.0) if kind is None else _WITH_KIND
    shares = (1 - share - heavy - alone - 16 * UNIT_ROUNDOFF) * weights
    best = best_order(budget.epsilon, without_failures(budget.delta, failure_delta))
    return Rule(
        "mixed",
        failure_delta,
        orders=tuple(map(float, orders)),
        shares=(share, *map(float, shares)),
        reserves=_RESERVES,
        left_out=_LEFT_OUT,
        tilt=_tilt(_TILT, best),
        levels=_LEVELS,
        heavy=(heavy, *_HEAVY[1:]),
        heavy_tilt=_tilt(_HEAVY_TILT, best),
        heavy_levels=_HEAVY_LEVELS,
        kind=kind,
        kind_share=alone,
    )


def _tilt(of: tuple[float, float, float], best: float) -> tuple[float, float, float]:
    """The share, η and ρ of an exponential term, from those over the best order and the least rate."""
    share, eta = of[0], of[1] * best
    return share, eta, of[2] * (1 + eta) / 2
