"""Per-row gradients of a torch module, and an Opacus optimizer that clips and noises them from our own source.

Both import torch when they are called. What a privacy proof needs holds by construction:

* :func:`row_gradients` runs the module on one row at a time under ``torch.func.vmap``, so that the gradient of a row is
  a function of the parameters and of this row, whatever the module is. What mixes rows (batch statistics) has nothing
  to mix, and what draws random numbers is refused: a row more in a batch would shift the numbers that all later rows
  get, so that under a seed that anybody knows one row would change every other row's gradient.
* :func:`private_optimizer` is Opacus's ``DPOptimizer`` with two steps replaced. Lengths and factors are taken in
  float64, the former rounded up, and a row whose gradient is not finite counts as zero. A clipped gradient is rounded
  to whole multiples of a power of two, about C/2²⁶, and cut so much shorter before (by √P/2 of them for P parameters)
  that its length is at most C as a real number. Sums of up to 2²⁶ of them are exact in float64, being below 2⁵³ of
  these, in whichever order and parts they are taken. The noise comes from a
  :class:`~dpkit.mechanisms.GaussianMechanism`, on a lattice if its source is the secure one; what is released is cast
  to the parameters' type after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpkit.clipping import grown
from dpkit.mechanisms import GaussianMechanism
from dpkit.torch.linear_layers import LinearLayers
from dpkit.training.whole_rows import WHOLE_BITS, grid

if TYPE_CHECKING:
    import torch

__all__ = ["clipped_sums", "private_optimizer", "row_gradients"]

# added to lengths: squares of entries that are smaller underflow
_TINY = 1e-150
# numbers that are held in float64 at once: small enough to stay in a cache
_BLOCK = 1 << 18


def row_gradients(
    module: torch.nn.Module, loss: Callable[[Any, Any], Any]
) -> Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]:
    """(X, y) of n rows → the gradients of each row's loss, (n, *shape) for every trainable parameter in its order.

    Parameters
    ----------
    module : torch.nn.Module
        Called on one row as a batch of one.
    loss : callable
        (outputs, targets) of that batch → a tensor, of which the sum is taken.
    """
    from torch.func import functional_call, grad, vmap

    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def row_loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, target: torch.Tensor) -> Any:
        return loss(functional_call(module, parameters, (x.unsqueeze(0),)), target.unsqueeze(0)).sum()

    each = vmap(grad(row_loss), in_dims=(None, 0, 0), randomness="error")

    def gradients(X: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = each({name: p.detach() for name, p in trainable.items()}, X, y)
        return [found[name] for name in trainable]

    return gradients


def private_optimizer(
    inner: torch.optim.Optimizer,
    parameters: Sequence[torch.nn.Parameter],
    mechanism: GaussianMechanism,
    *,
    batch: int,
    rate: float | None,
    layers: LinearLayers | None = None,
) -> tuple[Any, list[tuple[float, float, int]]]:
    """Opacus's optimizer around ``inner``: ``p.grad_sample`` → clip → sum → noise → divide by ``batch`` → step.

    With ``layers`` it must be given sums of theirs, by ``take``, before each step.

    Returns it with the history of an Opacus accountant that sees every step; the optimizer's ``clipped`` counts rows.

    Parameters
    ----------
    inner : torch.optim.Optimizer
        Takes the steps.
    parameters : sequence of torch.nn.Parameter
        Everything that ``inner`` changes.
    mechanism : GaussianMechanism
        Its sensitivity is the clip norm, over all parameters together.
    batch : int
        The public, expected number of rows.
    rate : float
        The sampling probability, which the accountant notes; None leaves its history empty, for it knows no other way.
    """
    import torch
    from opacus.accountants import RDPAccountant
    from opacus.optimizers import DPOptimizer

    class PrivateOptimizer(DPOptimizer):  # type: ignore[misc]
        clipped = 0
        _taken: tuple[list[torch.Tensor], int] | None = None

        @property
        def params(self) -> list[torch.nn.Parameter]:
            return list(parameters)

        def take(self, totals: list[torch.Tensor], count: int) -> None:
            """Sums of ``layers`` in the place of rows' gradients."""
            self._taken = totals, count
            for p in parameters:
                p.grad_sample = p.new_zeros((0, *p.shape))  # Opacus asks whether they are there

        def clip_and_accumulate(self) -> None:
            if self._taken is None:
                found = clipped_sums([p.grad_sample.detach() for p in parameters], mechanism.sensitivity)
            else:
                found, self._taken = self._taken, None
            totals, count = found
            self.clipped += count
            for p, total in zip(parameters, totals, strict=True):
                p.summed_grad = total if p.summed_grad is None else p.summed_grad + total

        def add_noise(self) -> None:
            total = np.concatenate([p.summed_grad.cpu().numpy().ravel() for p in parameters])
            unit = grid(mechanism.sensitivity, WHOLE_BITS)[0]
            noisy = mechanism.release(total * unit if layers is None else layers.rounded(total))
            start = 0
            for p in parameters:
                p.grad = torch.from_numpy(noisy[start : start + p.numel()]).to(p).reshape(p.shape)
                start += p.numel()

    private = PrivateOptimizer(
        inner,
        noise_multiplier=mechanism.noise_multiplier,
        max_grad_norm=mechanism.sensitivity,
        expected_batch_size=batch,
    )
    accountant = RDPAccountant()
    if rate is not None:
        private.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=rate))
    return private, accountant.history


def clipped_sums(gradients: Sequence[torch.Tensor], clip: float) -> tuple[list[torch.Tensor], int]:
    """Σ_i of the rows' gradients, each cut to length ``clip`` over all parameters, and how many were longer.

    Parameters
    ----------
    gradients : sequence of Tensor
        (rows, *shape) for every parameter.
    clip : float

    Returns
    -------
    totals : list of Tensor
        Of each parameter's shape, in float64: whole numbers of the unit ``grid(clip, WHOLE_BITS)[0]``, exact.
    count : int
    """
    import torch

    shapes = [g.shape[1:] for g in gradients]
    flat = [g.reshape(len(g), s.numel()) for g, s in zip(gradients, shapes, strict=True)]
    sizes = [s.numel() for s in shapes]
    count, size, rows = 0, sum(sizes), len(flat[0])
    unit, most = grid(clip, WHOLE_BITS)
    most -= math.sqrt(size) / 2.0  # rounding to whole numbers makes a vector at most this much longer
    total = flat[0].new_zeros(size, dtype=torch.float64)
    # some rows at a time, each lot in the place of the one before it: a copy of all would not fit a cache
    held = min(rows, max(1, _BLOCK // size))
    lot = total.new_empty((held, size))
    for start in range(0, rows, max(held, 1)):
        part = lot[: min(held, rows - start)]
        for into, gradient in zip(part.split(sizes, dim=1), flat, strict=True):
            into.copy_(gradient[start : start + len(part)])
        lengths = grown(torch.linalg.vector_norm(part, dim=1) + _TINY, size)
        count += int((~(lengths <= clip)).sum())
        finite = torch.isfinite(lengths)
        if not finite.all():
            part, lengths = part[finite], lengths[finite]
        factors = (most / lengths).clamp_(max=1.0 / unit)
        total += part.mul_(factors[:, None]).round_().sum(dim=0)
    return [t.reshape(s) for t, s in zip(total.split(sizes), shapes, strict=True)], count
