"""What DP-SGD trains: a checked copy of a module, its rows, and what leaves the run. Torch is imported when called."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting.checks import positive
from dpkit.models.losses import GLM
from dpkit.torch.layer_rules import RowSums
from dpkit.torch.linear_layers import linear_layers
from dpkit.torch.private_optimizer import row_gradients
from dpkit.torch.unit_sums import BatchSums, WholeGradients
from dpkit.training.rows import checked_data, clip_of

if TYPE_CHECKING:
    import torch

__all__ = ["Problem", "Released", "linear_problem", "module_problem", "torch_optimizer"]

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")


class Problem(NamedTuple):
    """What is trained, and on what."""

    module: torch.nn.Module
    parameters: list[torch.nn.Parameter]  # the trainable ones
    gradients: Callable[[Any, Any], list[Any]]  # (X, y) of some rows → (rows, *shape) for each parameter
    clip: float
    rows: Arrays | Items
    batch_sums: BatchSums
    loss: Callable[[Any, Any], Any] | None  # (outputs, targets) of a module; None for a GLM


def linear_problem(objective: GLM, X: Any, y: Any) -> Problem:
    """A GLM as a linear layer without offset, from 0."""
    import torch

    C = clip_of(objective)
    rows = np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise ValueError(f"X must have shape (n, d) with d of at least 1, got X.shape={rows.shape}")
    rows, labels = map(np.ascontiguousarray, checked_data(rows, y, rows.shape[1], objective))
    layer = torch.nn.Linear(rows.shape[1], 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight)

    def gradients(X: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        x = X.numpy()
        with np.errstate(all="ignore"):  # what overflows counts as zero
            # row by row, so that its rounding too depends on the row alone, which that of a product with x would not
            slopes = objective.slope((x * layer.weight.detach().numpy()[0]).sum(axis=1), y.numpy())
            return [torch.from_numpy(slopes[:, None] * x)[:, None, :]]

    sums = WholeGradients(gradients, C, "row by row, for a linear model")
    return Problem(layer, [layer.weight], gradients, C, Arrays(*map(torch.tensor, (rows, labels))), sums, None)


def module_problem(
    model: torch.nn.Module, X: Any, y: Any, loss: Callable[[Any, Any], Any] | None, clip: float | None
) -> Problem:
    """A checked copy of a torch module."""
    import torch
    from opacus.validators import ModuleValidator

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a GLM or a torch.nn.Module, got model={model!r}")
    if not callable(loss):
        raise TypeError(f"loss must be a function of outputs and targets, got loss={loss!r}")
    if clip is None:
        raise ValueError("clip must be given, which bounds what one row can change, got clip=None")
    C = positive("clip", clip)
    wrapped = [name for name in (type(part).__name__ for part in model.modules()) if name in _WRAPPERS]
    if wrapped:
        raise ValueError(
            "model must be the module itself, for dp_sgd adds the gradients of several processes, and calls of a "
            f"wrapper wait for each other, got a {wrapped[0]}: take its .module"
        )
    errors = ModuleValidator.validate(model, strict=False)
    if errors:
        way = "opacus.validators.ModuleValidator.fix(model) replaces such layers" if model.training else "model.train()"
        raise ValueError(f"model must be a module that Opacus admits: {way}, got: {'; '.join(map(str, errors))}")
    devices = {p.device for p in model.parameters()}
    if len(devices) > 1 or "mps" in {device.type for device in devices}:
        found = sorted(map(str, devices))
        raise ValueError(f"model must be on one device, and one that has float64, for sums to be exact, got {found}")
    module = copy.deepcopy(model)
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not trainable or not all(p.is_floating_point() and torch.isfinite(p).all() for p in trainable):
        raise ValueError(f"model must have trainable parameters, real and finite, got model={model!r}")
    rows: Arrays | Items
    if y is None:
        if not (hasattr(X, "__getitem__") and hasattr(X, "__len__")) or isinstance(X, (np.ndarray, torch.Tensor, list)):
            raise TypeError(
                "y must be given unless X is a Dataset with a length (a DataLoader has one, .dataset: batches are made "
                f"here), got X of {type(X)!r} and y=None"
            )
        rows = Items(X, trainable[0])
    else:
        rows = Arrays(_tensor("X", X, trainable[0]), _tensor("y", y, trainable[0]))
        if rows.X.dim() == 0 or rows.y.dim() == 0 or len(rows.X) != len(rows.y):
            raise ValueError(
                f"X and y must have the same number of rows, got shapes {tuple(rows.X.shape)} and {tuple(rows.y.shape)}"
            )
    vectors = isinstance(rows, Arrays) and rows.X.dim() == 2
    sums = (linear_layers(module, loss, C) if vectors else None) or RowSums(module, loss, C)
    return Problem(module, trainable, row_gradients(module, loss), C, rows, sums, loss)


def _tensor(name: str, value: Any, like: torch.nn.Parameter) -> torch.Tensor:
    """Numbers as a tensor; floating-point ones of the kind of ``like``. Finite."""
    import torch

    if not isinstance(value, torch.Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must be an array of real numbers, got {name}.dtype={array.dtype}")
        value = torch.tensor(np.ascontiguousarray(array))
    found = value.detach().to(like.device, like.dtype if value.is_floating_point() else None)
    if found.is_complex() or not torch.isfinite(found).all():
        raise ValueError(f"{name} must be finite and real, as {found.dtype}, got entries that are not")
    return found


class Arrays:
    """Rows in memory."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor) -> None:
        self.X, self.y = X, y

    def __len__(self) -> int:
        return len(self.X)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of one row and its target."""
        return tuple(self.X.shape[1:]), tuple(self.y.shape[1:])

    def at(self, chosen: NDArray[np.intp]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.X[chosen], self.y[chosen]


class Items:
    """Rows of a ``torch.utils.data.Dataset``, read one by one."""

    def __init__(self, dataset: Any, like: torch.nn.Parameter) -> None:
        self._dataset, self._like = dataset, like

    def __len__(self) -> int:
        return len(self._dataset)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of one row and its target, which are not known before they are read."""
        return ()

    def at(self, chosen: NDArray[np.intp]) -> tuple[torch.Tensor, torch.Tensor]:
        import torch
        from torch.utils.data import default_collate

        items = [self._dataset[int(i)] for i in chosen]
        pair = default_collate(items)
        if not (isinstance(pair, (list, tuple)) and [isinstance(v, torch.Tensor) for v in pair] == [True, True]):
            kind = type(items[0]).__name__
            if isinstance(items[0], (list, tuple)):
                kind += f" of {', '.join(type(v).__name__ for v in items[0])}"
            raise TypeError(
                f"X must be a Dataset of pairs (x, target), each a tensor, an array or a number, got a {kind}"
            )
        like = self._like
        X, y = (v.to(like.device, like.dtype if v.is_floating_point() else None) for v in pair)
        return X, y


class Released:
    """What leaves the run: a copy of the untrained module, in which only the released parameters change.

    They take no memory before the first of them are released.
    """

    def __init__(self, problem: Problem) -> None:
        self.module = copy.deepcopy(problem.module)
        self._trained = problem.parameters
        self._own = [p for p in self.module.parameters() if p.requires_grad]
        for own in self._own:
            own.data = own.data.new_empty(0)

    def update(self) -> NDArray[np.float64]:
        """Copy the parameters as they are now into the module; all of them as one vector."""
        for own, trained in zip(self._own, self._trained, strict=True):
            own.data = trained.data.clone()
        return self.values()

    def values(self) -> NDArray[np.float64]:
        """The parameters that were copied last, as one vector."""
        import torch

        found = np.empty(sum(p.numel() for p in self._own))
        start = 0
        for p in self._own:
            torch.from_numpy(found[start : start + p.numel()]).copy_(p.detach().reshape(-1))
            start += p.numel()
        return found

    def restore(self, x: NDArray[np.float64]) -> None:
        """Give these parameters to the module, and to the one that is trained."""
        import torch

        start = 0
        for own, trained in zip(self._own, self._trained, strict=True):
            trained.data.copy_(torch.from_numpy(x[start : start + trained.numel()]).reshape(trained.shape))
            own.data = trained.data.clone()
            start += trained.numel()


def torch_optimizer(
    make: Callable[[list[Any]], torch.optim.Optimizer] | None, learning_rate: float, parameters: list[Any]
) -> torch.optim.Optimizer:
    """The optimizer that takes the steps."""
    import torch

    if make is None:
        return torch.optim.SGD(parameters, lr=learning_rate)
    if not callable(make):
        raise TypeError(
            "optimizer must be a function of the parameters, lambda parameters: torch.optim.SGD(parameters, lr=0.1) "
            f"say, as a copy of the module is trained, got {type(make).__name__}"
        )
    inner = make(parameters)
    if not isinstance(inner, torch.optim.Optimizer):
        raise TypeError(f"optimizer must return a torch.optim.Optimizer, got {inner!r}")
    if {id(p) for group in inner.param_groups for p in group["params"]} != {id(p) for p in parameters}:
        raise ValueError("optimizer must hold the parameters that it is given, all of them and no others")
    if isinstance(inner, torch.optim.LBFGS):
        raise ValueError("optimizer must take a step from one gradient, got torch.optim.LBFGS, which asks for more")
    return inner
