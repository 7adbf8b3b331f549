"""Published figures and tables, computed again: one file per figure. ``dpbandits reproduce`` runs them.

A new figure is one file with a function ``figure()`` and one line in ``FIGURES``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpbandits.reproduce.figure import Figure

__all__ = ["FIGURES", "load"]

# the name of a file, with dashes: what it shows
FIGURES = {
    "glb-omd-figure-1": "one-pass GLM bandits: logistic rewards, S = 3 and 5; regret and time",
    "glb-omd-figure-2": "one-pass GLM bandits: Poisson rewards, S = 3 and 5; regret and time",
    "glb-omd-figure-3": "one-pass GLM bandits: larger S, and time against S",
    "glb-omd-figure-4": "one-pass GLM bandits: 60 groups of credit applicants as arms",
    "hvt-ucb-figure-1": "heavy tails: Student t noise with 2.1 degrees of freedom; regret and time",
    "hvt-ucb-figure-2": "heavy tails: Gaussian noise; regret and time",
    "hvt-ucb-harder-tails": "heavy tails: no variance, and noise that is not symmetric",
    "private-glm-table-2": "private GLM bandits: probit rewards, S = 2, 2.5 and 3; regret against ε",
    "dp-hdb-figure-5-1": "private bandits with a sparse parameter per arm, d = 50",
    "private-glm-figure-1": "private GLM bandits: logistic and probit rewards in d = 5; regret against ε",
}


def load(name: str) -> Figure:
    """The figure of that name.

    Raises
    ------
    ValueError
        For an unknown name.

    Examples
    --------
    >>> [panel.rounds for panel in load("glb-omd-figure-1").panels]
    [3000, 3000]
    """
    if name not in FIGURES:
        raise ValueError(f"figure must be one of {', '.join(FIGURES)}, got figure={name!r}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    figure: Figure = module.figure()
    return figure
