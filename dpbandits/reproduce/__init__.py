"""Published figures and tables, computed again. ``dpbandits reproduce`` runs them.

====================== ================================================================================
``figure.py``          what a figure is: panels of lines, each a policy
``played.py``          how it is run, and the rows of its table
``report.py``          its table as Markdown and CSV, and its picture, with what was published
``confront.py``        what the paper says of it beside what was found, claim by claim
``stored.py``          what was found as a file, of which ``page.py`` makes the page of the documentation
``groups.py``          groups of the rows of a table as arms
``grids.py``           grids of T, d, K, ε and κ, and what the theorems state of them
``slopes.py``          how they are played, the exponents, and their table
``zhang_2025.py``      one-pass generalized linear bandits, Figures 1 to 4
``wang_2025.py``       heavy-tailed linear bandits, Figures 1 and 2, and harder tails
``sarmasarkar_2026.py`` private generalized linear bandits, Table 2 and Figure 1
``han_2022.py``        a sparse parameter per arm, Figure 5.1
====================== ================================================================================

A new figure is a function that returns it, in the file of its paper, and one line in ``FIGURES``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dpbandits.reproduce.figure import Figure

__all__ = ["FIGURES", "SLOPES", "load"]

# by the name of a figure: where it is described, and what it shows
FIGURES = {
    "glb-omd-figure-1": ("zhang_2025.figure_1", "one-pass GLM bandits: logistic rewards, S = 3 and 5; regret and time"),
    "glb-omd-figure-2": ("zhang_2025.figure_2", "one-pass GLM bandits: Poisson rewards, S = 3 and 5; regret and time"),
    "glb-omd-figure-3": ("zhang_2025.figure_3", "one-pass GLM bandits: larger S, and time against S"),
    "glb-omd-figure-4": ("zhang_2025.figure_4", "one-pass GLM bandits: 60 groups of credit applicants as arms"),
    "hvt-ucb-figure-1": (
        "wang_2025.figure_1",
        "heavy tails: Student t noise with 2.1 degrees of freedom; regret and time",
    ),
    "hvt-ucb-figure-2": ("wang_2025.figure_2", "heavy tails: Gaussian noise; regret and time"),
    "hvt-ucb-harder-tails": ("wang_2025.harder_tails", "heavy tails: no variance, and noise that is not symmetric"),
    "private-glm-table-2": (
        "sarmasarkar_2026.table_2",
        "private GLM bandits: probit rewards, S = 2, 2.5 and 3; regret against ε",
    ),
    "dp-hdb-figure-5-1": ("han_2022.figure_5_1", "private bandits with a sparse parameter per arm, d = 50"),
    "private-glm-figure-1": (
        "sarmasarkar_2026.figure_1",
        "private GLM bandits: logistic and probit rewards in d = 5; regret against ε",
    ),
}


# the command that is no figure: grids, in ``grids.py``
SLOPES = "slopes"

# those that take a table of the user's
WITH_TABLE = ("glb-omd-figure-4",)


def load(name: str, table: Path | None = None) -> Figure:
    """The figure of that name.

    Parameters
    ----------
    name : str
    table : Path, optional
        The data of a figure whose own data no package bundles.

    Raises
    ------
    ValueError
        For an unknown name, or a table where there is no place for one.

    Examples
    --------
    >>> [panel.rounds for panel in load("glb-omd-figure-1").panels]
    [3000, 3000]
    """
    if name not in FIGURES:
        raise ValueError(f"figure must be one of {', '.join([*FIGURES, SLOPES])}, got figure={name!r}")
    paper, _, described = FIGURES[name][0].partition(".")
    describe = getattr(importlib.import_module(f"{__name__}.{paper}"), described)
    if table is not None and name not in WITH_TABLE:
        raise ValueError(f"table must be left out but for {', '.join(WITH_TABLE)}, got table={str(table)!r}")
    figure: Figure = describe() if table is None else describe(table)
    return figure
