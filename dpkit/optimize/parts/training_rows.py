"""What DP-FTRL trains on: clipped gradient sums of chosen units at an iterate, for GLMs over rows and torch modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency, Budget
from accounting.checks import integer
from dpkit.models.losses import GLM
from dpkit.torch.problem import Problem, Released, module_problem
from dpkit.torch.tried_rows import try_rows
from dpkit.torch.unit_sums import UnitSums
from dpkit.training.groups import Groups, GroupSums, checked_groups, gradient_sums
from dpkit.training.rows import GradientSums, checked_data
from dpkit.training.whole_rows import check_rows

if TYPE_CHECKING:
    import torch

__all__ = ["ModuleSums", "Sums", "sums_of"]

Vector = NDArray[np.float64]


class Sums(Protocol):
    """Exact sums of clipped gradients over units: rows, or people."""

    clip: float
    units: int
    clipped: int
    nfev: int

    def at(self, theta: Vector, rows: NDArray[np.intp], /) -> Vector:
        """Σ over some units of the clipped gradients at θ."""

    def sensitivity(self, adjacency: Adjacency, /) -> float:
        """How far one unit moves a sum, in ℓ₂."""


class ModuleSums:
    """:class:`Sums` of a torch module, whose parameters are one vector here."""

    def __init__(self, problem: Problem, people: Groups | None, held: int) -> None:
        check_rows(len(problem.rows))
        self.problem, self.clip, self.nfev = problem, problem.clip, 0
        self._sums = UnitSums(problem, people, held)
        self.units = self._sums.units
        self._released = Released(problem)

    @property
    def clipped(self) -> int:
        return self._sums.clipped

    @property
    def path(self) -> str:
        """How gradients are summed, in words."""
        return self._sums.path

    @property
    def start(self) -> Vector:
        """The parameters as they are."""
        return np.concatenate([p.detach().double().cpu().numpy().ravel() for p in self.problem.parameters])

    def sensitivity(self, adjacency: Adjacency, /) -> float:
        return 2.0 * self.clip if adjacency == "replace" else self.clip

    def load(self, theta: Vector) -> None:
        """Give the module these parameters, in their own precision."""
        import torch

        start = 0
        for p in self.problem.parameters:
            p.data.copy_(torch.from_numpy(theta[start : start + p.numel()]).reshape(p.shape))
            start += p.numel()

    def released(self, theta: Vector) -> torch.nn.Module:
        """A copy of the untrained module, with these parameters."""
        self.load(theta)
        self._released.update()
        return copy.deepcopy(self._released.module)

    def at(self, theta: Vector, rows: NDArray[np.intp], /) -> Vector:
        self.load(theta)
        self.nfev += len(rows)
        totals = [total.cpu().numpy().ravel() for total in self._sums.over(rows)]
        return np.concatenate([self._sums.on.values(total) for total in totals])


def sums_of(
    model: Any,
    X: Any,
    y: Any,
    *,
    budget: Budget,
    loss: Callable[[Any, Any], Any] | None,
    clip: float | None,
    groups: ArrayLike | None,
    rows_at_once: int,
) -> tuple[GradientSums | GroupSums | ModuleSums, Vector]:
    """The sums of a GLM or a torch module, and the parameters that training starts from."""
    held = integer("rows_at_once", rows_at_once, at_least=1)
    if isinstance(model, GLM):
        if loss is not None or clip is not None:
            raise ValueError(f"loss and clip are those of the objective, got loss={loss!r} and clip={clip!r}")
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise ValueError(f"X must have shape (n, d) with d of at least 1, got X.shape={rows.shape}")
        rows, labels = checked_data(rows, y, rows.shape[1], model)
        sums = gradient_sums(model, rows, labels, checked_groups(budget, groups, len(rows)))
        return sums, np.zeros(rows.shape[1])
    try:
        import opacus  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        raise ImportError("torch modules need Opacus and torch: pip install dpkit[opacus]") from None
    problem = module_problem(model, X, y, loss, clip)
    people = checked_groups(budget, groups, len(problem.rows))
    try_rows(problem, held)
    module = ModuleSums(problem, people, held)
    return module, module.start
