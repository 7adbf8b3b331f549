"""Rows from a frozen torch module, in the unit ball: a neural encoder before a linear policy.

What is called neural-linear (Riquelme, Tucker & Snoek 2018): a network maps what is offered to features, and a linear
policy learns on them. Here the network is fixed before the policy sees anybody: trained on public data, or by
:func:`~dpkit.optimize.dp_sgd`, whose budget then adds to the policy's where people are in both.

Privacy. A row depends on its own input alone, as long as the module treats the rows of a batch apart, and is cut to a
public bound by :class:`~dpkit.features.Scaled`: of norm at most 1 whatever the module computes. The module is public
if it was trained as above; else everything that is learned on its features knows of its training data.

Cost: one pass of the module. Torch is imported by whoever has a module.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from accounting.arrays import Array
from dpkit.features.scaled import Scaled

if TYPE_CHECKING:
    import torch

__all__ = ["Encoded"]


class Encoded:
    """A transform of inputs of a module into rows of norm at most 1.

    Parameters
    ----------
    module : torch.nn.Module
        From (n, d) to (n, m); it is copied and put into evaluation mode. Its layers must treat the rows of a batch
        apart, as all usual ones do in that mode.
    bound : float
        Public: the length of an output that becomes 1; longer ones are cut to it.

    Raises
    ------
    TypeError, ValueError
        If it is no module; from ``transform`` for outputs that are no finite rows, one for each input.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> module = torch.nn.Linear(2, 3, bias=False)
    >>> _ = torch.nn.init.ones_(module.weight)
    >>> Encoded(module, bound=10.0).transform([[1.0, 2.0], [30.0, 40.0]]).round(3).tolist()
    [[0.3, 0.3, 0.3], [0.577, 0.577, 0.577]]
    """

    def __init__(self, module: torch.nn.Module, *, bound: float) -> None:
        if not (callable(getattr(module, "eval", None)) and callable(getattr(module, "parameters", None))):
            raise TypeError(f"module must be a torch.nn.Module, got a {type(module).__name__}")
        self._module = copy.deepcopy(module).eval().requires_grad_(False)
        self._scaled = Scaled(bound)

    @property
    def bound(self) -> float:
        """The length that becomes 1."""
        return self._scaled.bound

    def transform(self, X: Any) -> Array:
        """Rows of norm at most 1, of shape (n, m), for inputs X of shape (n, d)."""
        import torch

        like = next(self._module.parameters(), torch.zeros(0))
        inputs = torch.as_tensor(np.asarray(X), dtype=like.dtype, device=like.device)
        with torch.no_grad():
            outputs = self._module(inputs)
        rows = outputs.detach().to("cpu", torch.float64).numpy()
        if rows.ndim != 2 or len(rows) != len(inputs):
            raise ValueError(f"module must make one row of every input, got shape {rows.shape} of {len(inputs)} inputs")
        return self._scaled.transform(rows)

    def __repr__(self) -> str:
        return f"Encoded({type(self._module).__name__}, bound={self.bound!r})"
