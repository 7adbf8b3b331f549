"""The policies that Zhang, Xu, Zhao & Sugiyama, "Generalized Linear Bandits: Almost Optimal Regret with One-Pass
Update" (2025), compare in figures 1 to 4 (section 5 and appendix F)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpbandits.reproduce.figure import Found, Line

__all__ = ["glm_lines"]


def glm_lines(
    link: str,
    S: float,
    *,
    public_code: Mapping[str, Found] | None = None,
    published: Mapping[str, Found] | None = None,
) -> tuple[Line, ...]:
    """One line per policy, and GLB-OMD and RS-GLinCB with a second set of constants.

    Parameters
    ----------
    link : str
        ``"logistic"`` has OFULog-r and ECOLog too, as in the paper; and, not drawn, the two that its Table 2 compares.
    S : float
        Bound on ‖θ*‖, told to every policy.
    public_code, published : mapping from str to Found
        By the name of the line.
    """
    model = {"link": link, "theta_bound": S}
    lines = [
        Line("uniform", "Uniform", drawn=False),
        Line("GLB-OMD", "GLBOMD", model),
        Line("GLB-OMD, theory", "GLBOMD", model | {"parameters": "theory"}, drawn=False),
        Line("RS-GLinCB", "RSGLinCB", model),
        Line("RS-GLinCB, its authors' scale", "RSGLinCB", model | {"radius_scale": 4.0}, drawn=False),
        Line("GLOC", "GLOC", model),
        Line("GLM-UCB", "GLMUCB", model),
        Line("OFUGLB", "OFUGLB", model, seeds=2),
    ]
    if link == "logistic":
        lines[3:3] = [Line("ECOLog", "ECOLog", model)]
        lines += [
            Line("OFULog-r", "OFULogR", model, seeds=2),
            Line("ada-OFU-ECOLog", "AdaOFUECOLog", model, drawn=False),
            Line("OFUL-MLogB", "OFULMLogB", model, drawn=False),
        ]
    code, print_ = public_code or {}, published or {}
    return tuple(
        replace(line, public_code=code.get(line.name, Found()), published=print_.get(line.name, Found()))
        for line in lines
    )
