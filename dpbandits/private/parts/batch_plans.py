"""What a batch of ShuffleGLM releases, with how much noise, and how long its batches are: all of it known beforehand.

A batch releases one matrix and a few sums of gradients. Both are composed and calibrated as a whole to the budget, so
that their cost is what the noise is worth; or each to half of it by the analysis of the paper (Sarmasarkar 2026,
arXiv:2602.00417), of whose descent there are fewer rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from accounting import ApproxDP, Budget, Gaussian, Release, calibrate
from accounting.conversions import gdp_epsilon
from accounting.totals import meets
from dpbandits.policy.schedule import rare_batches, rare_lengths
from dpkit.geometry import outer_product_sensitivity, vector_sensitivity
from dpkit.models.links import Link
from dpkit.moments.shuffled import batch_protocol
from dpkit.shuffle import SumProtocol, VectorSum
from dpkit.shuffle.vector_sum import check_delta

__all__ = ["ITERATIONS", "Plan", "numeric_plan", "paper_lengths", "paper_plan"]

# rounds of gradient descent in a batch, at most: noise does not fall with more, and the start is forgotten by then
ITERATIONS = 50
# the δ at which parts of a budget are stated; only the whole is a guarantee
_PART_DELTA = 1e-6
# of the first batch's squared privacy loss, what goes to the level of rewards; and how large its noise may be, beside
# the number of users
_LEVEL_SHARE, _KNOWN = 0.05, 0.15


@dataclass(frozen=True)
class Plan:
    """The releases of one batch.

    Attributes
    ----------
    matrix : SumProtocol
        Sums the matrix.
    budget : Budget
        Of the descent.
    rounds : int
        At most so many sums of gradients.
    descent : Release, optional
        What they cost; where there is none, the budget.
    total : Release
        What matrix, descent and level cost.
    numbers : SumProtocol, optional
        Sums how far rewards are from the middle of their range, for their level.
    """

    matrix: SumProtocol
    budget: Budget
    rounds: int
    descent: Release | None
    total: Release
    numbers: SumProtocol | None = None


@lru_cache(maxsize=256)  # the same batches come again in every run of a simulation
def numeric_plan(
    d: int, users: int, weight: float, L: float, budget: Budget, matrix_share: float, batches: int, tells: bool = False
) -> Plan:
    """Matrix and descent, composed, at a cost of which so many batches are just within the budget.

    Parameters
    ----------
    d, users : int
    weight, L : float
        Bounds on the weight of x xᵀ, and on the length of a gradient.
    budget : Budget
    matrix_share : float
        Of the squared privacy loss.
    batches : int
        In how many of them a user may be.
    tells : bool
        Whether the batch is to tell the level of rewards, for a twentieth of the squared privacy loss; which it does if
        its users are so many that noise leaves it known.
    """
    check_delta(batches * (d * (d + 1) // 2 + ITERATIONS * d + tells), budget)
    level = _LEVEL_SHARE if tells else 0.0
    mu = 1.0 / calibrate(lambda z: batches * Gaussian(z), budget)
    while True:
        shares = (1.0 - level) * matrix_share, (1.0 - level) * (1.0 - matrix_share), level
        for_matrix, for_fit, *for_level = (
            Budget(gdp_epsilon(mu * math.sqrt(share), _PART_DELTA), _PART_DELTA, adjacency=budget.adjacency)
            for share in shares
            if share
        )
        # so many that the schedule of the descent takes them all
        z = calibrate(Gaussian, for_fit)
        rounds = min(ITERATIONS, max(1, math.ceil(users**2 / (4.0 * d * z**2))))
        apart = outer_product_sensitivity(weight, budget.adjacency)
        matrix = batch_protocol(d * (d + 1) // 2, users, weight, apart, for_matrix)
        descent = rounds * VectorSum(d, users, L, budget=for_fit, rounds=rounds).cost
        total, numbers = matrix.cost + descent, None
        if for_level:
            # numbers in [−½, ½]
            numbers = batch_protocol(1, users, 0.5, vector_sensitivity(0.5, budget.adjacency), *for_level)
            total = total + numbers.cost
        # binomial noise costs a little more than the Gaussian noise of this μ
        if meets(batches * total, budget.epsilon, budget.delta):
            if numbers is not None and numbers.noise_std(users) > _KNOWN * users:
                return numeric_plan(d, users, weight, L, budget, matrix_share, batches)
            return Plan(matrix, for_fit, rounds, descent, total, numbers)
        mu *= 0.998


def paper_plan(d: int, users: int, weight: float, budget: Budget) -> Plan:
    """Half of ε and of δ for matrix and descent, with b and g of (122); of Algorithm 7's rounds, 200."""
    half = Budget(budget.epsilon / 2, budget.delta / 2, adjacency=budget.adjacency)
    matrix = VectorSum(d * (d + 1) // 2, users, weight, budget=half, analysis="paper").protocol
    return Plan(matrix, half, 4 * ITERATIONS, None, 2 * ApproxDP(half.epsilon, half.delta, adjacency=budget.adjacency))


def paper_lengths(d: int, T: int, link: Link, S: float, R: float, failure: float, budget: Budget) -> list[int]:
    """B_1, B_2, … of Equations (6) and (7), with γ of Equations (20)–(22) and constants of 1.

    R is the constant of self-concordance and of rewards, and ``failure`` is ζ.
    """
    epsilon, log_delta = budget.epsilon, math.log(d**2 / budget.delta)
    M = rare_batches(T)
    sigma = R * log_delta * link.lipschitz(S) / epsilon
    spread = math.sqrt(math.log(2 * d * M * T / failure))
    lam = 20.0 * d * R * math.log(max(2, T)) + sigma * (2.0 * spread + 4.0 * math.sqrt(d))
    nu = R * S**2 / epsilon * math.sqrt(d * math.log(T * d / budget.delta) ** 3)
    gamma = R * S * math.sqrt(lam) + math.sqrt(4.0 * R * S * nu)
    return rare_lengths(T, link.kappa(S), S, d, gamma)
