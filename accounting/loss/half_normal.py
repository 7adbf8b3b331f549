"""Privacy losses that are at most a constant plus the size of a normal variable: objective perturbation of one row.

    L ≤ c + μ²/2 + |N|,    N ~ N(0, μ²), under both neighbours.

Where it comes from. A generalized linear model is fitted with a random linear term bᵀθ, b ~ N(0, σ²I), and one row x
is present or absent. The row's gradient is g = s·x/‖x‖ with a slope |s| ≤ L that depends on θ, and so on b, in a
*direction* that does not. The minimizer is a one-to-one function of b, and the two densities at one θ have the ratio of
those of N(0, σ²I) at b and b ± g, times that of two determinants, which differ by one rank: a factor of at most 1 + β/Λ
with ridge Λ and curvature β of the row. So with c = ln(1 + β/Λ) and μ = L/σ the log ratio is at most

    c + |⟨b, g⟩|/σ² + ‖g‖²/(2σ²) ≤ c + μ·|⟨b, x⟩|/(σ‖x‖) + μ²/2,

and ⟨b, x⟩/(σ‖x‖) is standard normal (after Redberg, Koskela & Wang 2023). The replacement of a row has two
directions: see :mod:`accounting.loss.one_row`, which has better curves of either one, too.

What it costs. (1 − e^(ε − L))₊ rises in L, so δ(ε) is at most its mean at the bound. With u = ε − c − μ²/2 and
H(e) = Φ(μ/2 − e/μ) − e^e·Φ(−μ/2 − e/μ), the δ of μ-Gaussian DP,

    δ(ε) ≤ 2H(ε − c) if u ≥ 0,    1 − e^u·E[e^(−|N|)] = 1 − e^(u + μ²/2)·2Φ(−μ) if u < 0.

Rounding. Where the rounded u has the other sign than u, |u| is below the bound on its error. The first formula is then
above the second (it adds what losses between u and 0 contribute, as u < 0), and the second below the first by at most
u², which the slack of u itself more than covers. So with u rounded down both are upper bounds.
"""

from __future__ import annotations

import math

from accounting.checks import nonnegative, positive
from accounting.conversions import gdp_delta

__all__ = ["half_normal_delta"]

_UNIT_ROUNDOFF = 2.0**-52


def half_normal_delta(mu: float, offset: float, epsilon: float) -> float:
    """δ at ``epsilon`` of losses up to ``offset`` + μ²/2 + |N(0, μ²)|, rounded up.

    Examples
    --------
    >>> round(half_normal_delta(1 / 5.376, 0.2, 1.0) * 1e6, 2)
    1.0
    """
    from scipy.special import erfcx

    positive("mu", mu)
    nonnegative("offset", offset)
    nonnegative("epsilon", epsilon)
    if epsilon - offset - mu * mu / 2 >= 0:
        return min(1.0, 2 * gdp_delta(mu, max(0.0, (epsilon - offset) * (1 - _UNIT_ROUNDOFF))))
    # ln E[e^(u − |N|)]; μ/√2 is right to two units in the last place and moves ln erfcx by no more, erfcx to eight
    log_mean = math.log(float(erfcx(mu / math.sqrt(2)))) + (epsilon - offset - mu * mu / 2)
    slack = _UNIT_ROUNDOFF * (2 * (epsilon + offset + mu * mu) + 2 * abs(log_mean) + 16)
    return min(1.0, -math.expm1(log_mean - slack) * (1 + 2 * _UNIT_ROUNDOFF))
