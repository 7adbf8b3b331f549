"""What one zCDP release can reach before others, as a linear program over the privacy loss."""

import math

import numpy as np
from scipy.optimize import linprog


def most(rho, of_y, largest, points):
    """About the most that E_Q of a function of y = P/Q can be, of all laws that are ρ-zCDP.

    Losses and orders are followed up to ``largest``, in units of √(2ρ) and of its inverse.
    """
    scale = math.sqrt(2 * rho)
    losses = np.linspace(-4.0, largest, points)
    y = np.exp(losses * scale)
    u = np.concatenate([np.geomspace(1e-3, 0.05, 12), np.linspace(0.06, largest, 80)]) / scale
    orders = np.concatenate([1 + u, -u])
    rows = np.exp(orders[:, None] * np.log(y) - rho * (orders * (orders - 1))[:, None])
    moments = np.vstack([np.ones(y.size), y])
    sizes = np.exp(losses**2 / 2)
    goal = of_y(y) / sizes
    answer = linprog(
        -goal / goal.max(), A_ub=rows / sizes, b_ub=np.ones(orders.size), A_eq=moments / sizes, b_eq=[1, 1]
    )
    assert answer.status == 0
    return -answer.fun * goal.max()
