"""Exact sums of clipped gradients over chosen units, rows or people, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpkit.torch.exact_sums import Lattice, Whole, clipped_totals, lattice
from dpkit.training.groups import Groups

if TYPE_CHECKING:
    import torch

    from dpkit.torch.problem import Problem

__all__ = ["BatchSums", "UnitSums", "WholeGradients"]


class BatchSums(Protocol):
    """Sums over some rows: of a list of linear layers, by layer rules, or of gradients that are at hand."""

    on: Lattice

    @property
    def path(self) -> str:
        """How gradients are summed, in words."""

    def sums(self, X: torch.Tensor, y: torch.Tensor, /) -> tuple[Iterable[torch.Tensor], torch.Tensor]:
        """For each parameter in int64 (``on`` has values), made when it is its turn; and how many rows were cut."""


class WholeGradients:
    """Sums of gradients that are computed for every row.

    Parameters
    ----------
    gradients : callable
        (X, y) of some rows → (rows, *shape) for each parameter.
    clip : float
    path : str
    """

    def __init__(self, gradients: Callable[[Any, Any], list[torch.Tensor]], clip: float, path: str) -> None:
        self._gradients, self.on, self.path = gradients, lattice(clip), path

    def sums(self, X: torch.Tensor, y: torch.Tensor, /) -> tuple[Iterable[torch.Tensor], torch.Tensor]:
        (totals,), count = clipped_totals([Whole(self._gradients(X, y))], self.on)
        return totals(), count


class UnitSums:
    """Sums over units that are chosen by number.

    Parameters
    ----------
    problem : Problem
    people : Groups, optional
        Whose row each one is. Then a unit is a person, whose mean gradient is cut.
    held : int
        The most rows of which gradients are held at once; of a person all are.
    """

    def __init__(self, problem: Problem, people: Groups | None, held: int) -> None:
        self._problem, self._people, self._held = problem, people, held
        self.units = len(problem.rows) if people is None else len(people.sizes)
        self.on = problem.batch_sums.on if people is None else lattice(problem.clip)
        self.clipped = 0

    @property
    def path(self) -> str:
        """How gradients are summed, in words."""
        return self._problem.batch_sums.path if self._people is None else "row by row, for the means of people's rows"

    def over(self, chosen: NDArray[np.intp]) -> Iterable[torch.Tensor]:
        """Σ of the units' clipped gradients for every parameter, in int64: ``on`` has values.

        If they come from one part, each sum is made when it is its turn, so that no two need be held at once.
        """
        import torch

        problem, people = self._problem, self._people
        if people is None:
            parts = [chosen[i : i + self._held] for i in range(0, chosen.size, self._held)]
        else:
            parts = people.parts(chosen, self._held)
        totals: Iterable[torch.Tensor] | None = None
        for part in parts:
            if totals is not None:
                totals = list(totals)
            if people is None:
                found, count = problem.batch_sums.sums(*problem.rows.at(part))
            else:
                (whole,), count = clipped_totals([Whole(_person_means(problem, people, part))], self.on)
                found = whole()
            if totals is None:
                totals = found
            else:
                for total, more in zip(totals, found, strict=True):
                    total += more
            self.clipped += int(count)
        if totals is None:
            return [torch.zeros(p.shape, dtype=torch.int64, device=p.device) for p in problem.parameters]
        return totals


def _person_means(problem: Problem, people: Groups, persons: NDArray[np.intp]) -> list[torch.Tensor]:
    """The mean gradients of some people's rows."""
    import torch

    rows, begins = people.rows(persons)
    sizes = people.sizes[persons]
    gradients = problem.gradients(*problem.rows.at(people.order[rows]))
    whose = torch.from_numpy(np.repeat(np.arange(len(begins)), sizes)).to(gradients[0].device)
    counts = torch.from_numpy(sizes).to(gradients[0])
    means = []
    for gradient in gradients:
        total = gradient.new_zeros((len(begins), *gradient.shape[1:])).index_add_(0, whose, gradient)
        means.append(total / counts.reshape(-1, *[1] * (total.dim() - 1)))
    return means
