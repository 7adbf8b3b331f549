"""Some rows are tried before anything is charged: what would break a run, or make it learn nothing, is refused here.

Tried are the gradient of the first row, whether it reaches any parameter, and the loss of one row's outputs for every
label that occurs (of many the least, the greatest and some between). A data set is read at a few places only.

What is refused here depends on the rows, and no cost covers it: as everywhere it is for the holder of the data, of a
fault that is to be mended before anything private is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from dpkit.torch.problem import Problem

__all__ = ["try_rows"]

# labels that are tried, and rows that are read of a data set
_LABELS = 256
_READ = 16


def try_rows(problem: Problem, held: int) -> None:
    """Refuse a module, a loss or rows that cannot be trained; ``held`` rows are run together.

    A loss that is not finite for some label is warned of: such gradients count as zero.
    """
    if not len(problem.rows):
        return
    row = problem.rows.at(np.zeros(1, dtype=np.intp))
    if problem.loss is not None and row[0].device.type != "cpu":  # where an index out of bounds ends the process's use
        _check_class(problem, row)
    _try_gradient(problem, row)
    if problem.loss is None:
        return
    output, value = _try_reach(problem, row)
    # on the host, where an index out of bounds is an error like any other; if it can be asked there
    asked = row[0].device.type == "cpu" or _answers(problem.loss, output, _on_host(row[1]))
    finite = [_is_finite(_loss_of(problem.loss, output, target)) for target in _targets(problem, row, held) if asked]
    finite = finite or [_is_finite(value)]
    if not all(finite):
        warnings.warn(
            f"loss is not finite for {finite.count(False)} of {len(finite)} labels that were tried on the outputs of "
            "one row: gradients that are not finite count as zero, so that nothing is learned from such rows",
            UserWarning,
            stacklevel=3,
        )


def _try_gradient(problem: Problem, row: tuple[torch.Tensor, torch.Tensor]) -> None:
    """One row's gradient, so that a module that cannot be run row by row is refused."""
    try:
        problem.gradients(*row)
        for _ in problem.batch_sums.sums(*row)[0]:
            pass
    except Exception as error:
        if "randomness error mode" in str(error):  # torch.func.vmap's words
            raise ValueError(
                "model and loss must not draw random numbers: torch's generator would tie the gradient of a row to "
                "the rows before it, got a module that does: take its dropout out, or set p=0"
            ) from error
        if problem.loss is not None and "out of bounds" in str(error):
            _check_class(problem, row)
        shapes = ", ".join(f"{tuple(v.shape[1:])} of {v.dtype}" for v in row)
        raise ValueError(
            f"model and loss must give the gradient of one row under torch.func.vmap, its X and y {shapes}, "
            f"got {type(error).__name__}: {error}"
        ) from error


def _try_reach(problem: Problem, row: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """One row's outputs on the host, and its loss, which must be made of some parameter: by what is computed from what,
    not by a gradient that happens to be zero."""
    import torch

    with torch.enable_grad():
        output = problem.module(row[0])
        value = problem.loss(output, row[1]).sum()  # type: ignore[misc]
    reached = value.requires_grad and any(
        g is not None for g in torch.autograd.grad(value, problem.parameters, allow_unused=True)
    )
    if not reached:
        raise ValueError(
            "loss must depend on the model's trainable parameters, got one whose gradient reaches none of them, so "
            "that only noise would be trained: what passed .detach(), argmax or a comparison has no gradient"
        )
    return _on_host(output), value.detach()


def _targets(problem: Problem, row: tuple[torch.Tensor, torch.Tensor], held: int) -> Iterator[torch.Tensor]:
    """Targets on the host that a loss may not be for, each of a batch of one row."""
    from dpkit.torch.problem import Items

    if isinstance(problem.rows, Items):
        count = len(problem.rows)
        for i in np.unique(np.linspace(0, count - 1, min(_READ, count)).astype(np.intp)):
            X, y = problem.rows.at(np.array([i]))
            for name, one, first in (("x", X, row[0]), ("target", y, row[1])):
                if held > 1 and one.shape != first.shape:
                    raise ValueError(
                        f"X must be a Dataset with one shape of {name}, as rows_at_once={held} rows are run together, "
                        f"got {tuple(first.shape[1:])} and {tuple(one.shape[1:])}: rows_at_once=1 runs each by itself"
                    )
            if y.shape == row[1].shape:
                yield _on_host(y)
        return
    y = problem.rows.y
    if y[0].numel() == 1:
        flat = y.reshape(-1).double() if y.is_floating_point() else y.reshape(-1)
        labels = np.unique(flat.cpu().numpy(), return_index=True)[1]
        if len(labels) > _LABELS:
            labels = labels[np.unique(np.linspace(0, len(labels) - 1, _LABELS).astype(np.intp))]
    elif y[0].numel() and not y.is_floating_point():  # classes of many places
        flat = y.reshape(len(y), -1)
        labels = np.unique([int(flat.amin(1).argmin()), int(flat.amax(1).argmax())])
    else:
        return
    for i in labels:
        yield _on_host(y[int(i) : int(i) + 1])


def _answers(loss: Any, output: Any, target: torch.Tensor) -> bool:
    """Whether a loss can be asked on the host: not if it holds tensors elsewhere, or knows no such precision there."""
    import torch

    try:
        with torch.no_grad():
            loss(output, target)
    except Exception:
        return False
    return True


def _loss_of(loss: Any, output: Any, target: torch.Tensor) -> Any:
    """The loss of a row's outputs for another label."""
    import torch

    try:
        with torch.no_grad():
            return loss(output, target).sum()
    except Exception as error:
        _check_range(output, target)
        raise ValueError(
            f"loss must take every label in y, got {type(error).__name__} for one of them, with outputs of shape "
            f"{tuple(output.shape)}: {error}"
        ) from error


def _check_class(problem: Problem, row: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Refuse a row whose loss takes its label for the number of an output that is not there."""
    import torch

    try:
        with torch.no_grad():
            output = _on_host(problem.module(row[0]))
    except Exception:  # said better by whoever tries the gradient
        return
    if not _answers(problem.loss, output, _on_host(row[1])):
        _check_range(output, _on_host(row[1]))


def _check_range(output: Any, target: torch.Tensor) -> None:
    """Refuse whole labels of which some are no number of an output."""
    if target.is_floating_point() or not hasattr(output, "shape") or output.dim() < 2:
        return
    classes = output.shape[1]
    if bool(((target < 0) | (target >= classes)).any()):
        # without torch's words, which have the label
        raise ValueError(
            f"y must hold classes from 0 to {classes - 1}, as the model has {classes} outputs, got others: y - 1 where "
            "they begin at 1, or a model with more outputs"
        ) from None


def _is_finite(value: Any) -> bool:
    import torch

    return bool(torch.isfinite(value).all())


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if hasattr(value, "detach") else value
