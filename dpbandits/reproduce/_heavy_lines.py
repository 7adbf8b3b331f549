"""The policies that section 6 of Wang, Zhang, Zhao & Zhou, "Heavy-Tailed Linear Bandits: Huber Regression with One-Pass
Update" (arXiv:2503.00419), compares; and, not drawn, those that only its sections 1 and 2 do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpbandits.reproduce.figure import Found, Line

__all__ = ["heavy_lines"]


def heavy_lines(
    tail: float,
    noise_scale: float,
    *,
    theta_bound: float = 1.0,
    slow_seeds: int | None = None,
    public_code: Mapping[str, Found] | None = None,
) -> tuple[Line, ...]:
    """One line per policy.

    Parameters
    ----------
    tail, noise_scale : float
        ε and ν, which the robust policies are told.
    theta_bound : float
        Bound on ‖θ*‖, told to all.
    slow_seeds : int, optional
        HEAVY-OFUL, TOFU and AdaOFUL, which go over the whole history, run on at most so many seeds.
    public_code : mapping from str to Found
        By the name of the line.
    """
    bound = {"theta_bound": theta_bound}
    told = bound | {"tail": tail, "noise_scale": noise_scale}
    lines = (
        Line("uniform", "Uniform", drawn=False),
        Line("Hvt-UCB", "HvtUCB", told),
        Line("Hvt-UCB, wider", "HvtUCB", told | {"radius_scale": 0.1}, drawn=False),
        Line("Hvt-UCB, theory", "HvtUCB", told | {"parameters": "theory"}, drawn=False),
        Line("HEAVY-OFUL", "HeavyOFUL", told, seeds=slow_seeds),
        Line("CRTM", "CRTM", told),
        Line("CRMM", "CRMM", told),
        Line("OFUL", "OFUL", bound),
        Line("MENU", "MENU", told, drawn=False),
        Line("TOFU", "TOFU", told, seeds=slow_seeds, drawn=False),
        Line("CRT", "CRT", told, drawn=False),
        Line("MoM", "MoM", told, drawn=False),
        # for noise with a variance: it is not told ε
        Line("AdaOFUL", "AdaOFUL", bound | {"noise_scale": noise_scale}, seeds=slow_seeds, drawn=False),
    )
    code = public_code or {}
    return tuple(replace(line, public_code=code.get(line.name, Found())) for line in lines)
