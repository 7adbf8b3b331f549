"""The policies of the experiments of Sarmasarkar, "Shuffle and Joint Differential Privacy for Generalized Linear
Contextual Bandits" (arXiv:2602.00417), section 8 and appendix B, and the private policies of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from accounting import Budget
from dpbandits.reproduce.figure import Found, Line
from dpkit.models.links import get_link

__all__ = ["DELTA", "PRIVATE", "private_lines"]

DELTA = 0.02

# a private policy is one line here: name, class in dpbandits.policies, and the most seeds for a slow one
PRIVATE: dict[str, tuple[str, int | None]] = {
    "one-pass private": ("OnePassPrivateGLM", None),
    "Private-GLM": ("JointDPGLM", 3),
    "shuffle one-pass": ("ShuffleOnePassGLM", None),
    "shuffle GLM": ("ShuffleGLM", 2),
}


def _one(S: float) -> float:
    return 1.0


# RS-GLinCB's authors take the bound on rewards for R; the probit's self-concordance constant is S
_PROBIT_R1 = replace(get_link("probit"), name="probit with R = 1", self_concordance=_one)


def private_lines(
    link: str,
    S: float,
    epsilons: Sequence[float],
    references: Sequence[str],
    *,
    published: Mapping[str, Found] | None = None,
    public_code: Mapping[str, Found] | None = None,
) -> tuple[Line, ...]:
    """Policies without privacy, then every private policy at every ε.

    Parameters
    ----------
    link, S
        The model, told to every policy.
    epsilons : sequence of float
        Budgets, at δ = 0.02.
    references : sequence of str
        Which of GLM-UCB, GLOC, ECOLog and RS-GLinCB the paper shows; RS-GLinCB last.
    published, public_code : mapping from str to Found
        By the name in the paper, ``"ε = 4"`` for its Private-GLM: that is put beside every private policy.
    """
    model: dict[str, Any] = {"link": link, "theta_bound": S}
    known = {
        "GLM-UCB": Line("GLM-UCB", "GLMUCB", model, seeds=5),
        "GLOC": Line("GLOC", "GLOC", model),
        "ECOLog": Line("ECOLog", "ECOLog", model),
        "RS-GLinCB": Line("RS-GLinCB", "RSGLinCB", model),
    }
    lines = [Line("uniform", "Uniform", drawn=False)]
    lines += [known[name] for name in references]
    theirs = model
    if link == "probit":
        theirs = model | {"link": _PROBIT_R1}
        lines[-1] = replace(lines[-1], drawn=False)
        lines.append(Line("RS-GLinCB, R = 1", "RSGLinCB", theirs))
    lines += [
        Line("RS-GLinCB, as its authors", "RSGLinCB", theirs | {"radius_scale": 4.0}, drawn=False),
        Line("GLB-OMD", "GLBOMD", model),
    ]
    print_, code = published or {}, public_code or {}
    # by the name of the paper's line: all forms of RS-GLinCB are one
    names = [line.name.partition(",")[0] for line in lines]
    lines = [
        replace(line, public_code=code.get(name, Found()), published=print_.get(name, Found()))
        for line, name in zip(lines, names, strict=True)
    ]
    for name, (policy, most) in PRIVATE.items():
        for epsilon in epsilons:
            told = model | {"budget": Budget(epsilon, DELTA, unit="round")}
            at = f"ε = {epsilon:g}"
            lines.append(Line(f"{name}, {at}", policy, told, published=print_.get(at, Found()), seeds=most))
    return tuple(lines)
