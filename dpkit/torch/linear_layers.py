"""Sums of clipped gradients of a network of linear layers, without a gradient of any single row.

A linear layer takes a row's input a to Wa + w. With b the derivative of this row's loss by the layer's output, the
gradient by (W, w) is the matrix b·(a, 1)ᵀ. So one pass forward and one back over a batch say all rows' gradients at
once, as two vectors for each layer, and their sum is one product of matrices. All that stands between the layers is
from a list of torch's own activations, which work row by row; losses are run on one row at a time, except for
cross-entropy, of which the sum is taken.

Privacy. Let u = (a, 1), cut off to whole numbers of ‖(a, 1)‖/2¹⁸, so that ‖u‖ ≤ 2¹⁸; and v the vectors ‖(a, 1)‖·b of
all layers together, scaled to length C′ at most and cut off to whole numbers of a power of two. A row's part of the sum
is v·uᵀ/2¹⁸ in each layer: of length √(Σ ‖v_l‖²‖u_l‖²)/2¹⁸ ≤ C′ as a real number. Sums of these are exact integers, in
whichever parts they are taken. Their last nine digits are rounded away once, at the end, which moves each of P numbers
by one last digit at most; so C′ = C − √P last digits. A row that is not finite counts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accounting.arrays import Array
from dpkit.training.whole_rows import BITS, COARSE, UnitRows, grid, whole_product, whole_rows

if TYPE_CHECKING:
    import torch

__all__ = ["LinearLayers", "clipped_sum", "linear_layers"]


def linear_layers(module: torch.nn.Module, loss: Callable[[Any, Any], Any], clip: float) -> LinearLayers | None:
    """The sums of such a module, or None for any other: hooks, frozen or shared parameters, layers that are no list."""
    import torch
    from torch import nn

    elementwise = {
        nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh
    }  # fmt: skip
    layers: list[Any] = []

    def flat(part: Any) -> bool:
        hooks = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        if hooks or vars(part).get("forward") is not None:
            return False
        if type(part) is nn.Sequential:
            return all(map(flat, part))
        layers.append(part)
        return type(part) is nn.Linear or (type(part) in elementwise and not getattr(part, "inplace", False))

    parameters = list(module.parameters())
    if not (flat(module) and all(p.requires_grad and p.device.type == "cpu" for p in parameters)):
        return None
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    if not linear or len({id(layer) for layer in linear}) < len(linear):
        return None
    # a parameter that two layers share is listed once
    if len(parameters) < sum(1 + (layer.bias is not None) for layer in linear):
        return None
    together = loss is torch.nn.functional.cross_entropy
    return LinearLayers(layers, linear, loss, clip, sum(p.numel() for p in parameters), together)


class LinearLayers:
    """(X, y) of some rows → exact sums of their clipped gradients; :func:`linear_layers` makes one."""

    def __init__(
        self,
        layers: list[Any],
        linear: list[Any],
        loss: Callable[[Any, Any], Any],
        clip: float,
        size: int,
        together: bool,
    ) -> None:
        from torch.func import grad, vmap

        self._layers, self._linear, self._together = layers, linear, together
        self.clip = clip - _last_digit(clip) * math.sqrt(size) * (1.0 + 2.0**-50)
        self._loss = loss
        self._slopes = vmap(
            grad(lambda output, target: loss(output.unsqueeze(0), target.unsqueeze(0)).sum()), randomness="error"
        )

    def sums(self, X: torch.Tensor, y: torch.Tensor) -> tuple[list[torch.Tensor], int]:
        """What :func:`clipped_sum` says of these rows, of each parameter's shape, and how many were longer."""
        import torch

        inputs, outputs = [], []
        with torch.enable_grad():
            x = X
            for layer in self._layers:
                if type(layer) is torch.nn.Linear:
                    inputs.append(x)
                    x = layer(x)
                    outputs.append(x)
                else:
                    x = layer(x)
            if self._together:
                backs = torch.autograd.grad(self._loss(x, y, reduction="sum"), outputs)  # type: ignore[call-arg]
            else:
                backs = torch.autograd.grad(x, outputs, self._slopes(x.detach(), y))
        found = [_input(a, layer.bias is not None) for a, layer in zip(inputs, self._linear, strict=True)]
        totals, count = clipped_sum(found, [b.numpy().astype(np.float64) for b in backs], self.clip)
        shaped = []
        for total, layer in zip(totals, self._linear, strict=True):
            d = layer.in_features
            shaped.append(torch.from_numpy(total[:, :d]))
            if layer.bias is not None:
                shaped.append(torch.from_numpy(total[:, d]))
        return shaped, count

    def nothing(self) -> list[torch.Tensor]:
        """The sums over no row."""
        import torch

        return [torch.zeros(p.shape, dtype=torch.int64) for layer in self._linear for p in layer.parameters()]

    def rounded(self, total: NDArray[np.int64]) -> Array:
        """Sums without their last digits, in float64: one row moves them by at most C."""
        return ((total + (1 << (COARSE - 1))) >> COARSE).astype(np.float64) * _last_digit(self.clip)


def _input(a: torch.Tensor, offset: bool) -> Array:
    """The rows that a layer takes, with a 1 at the end if it adds an offset."""
    rows = np.ones((len(a), a.shape[1] + offset))
    rows[:, : a.shape[1]] = a.detach().numpy()
    return rows


def clipped_sum(inputs: list[Array], backs: list[Array], clip: float) -> tuple[list[NDArray[np.int64]], int]:
    """Σ_i of b_i·a_iᵀ for each of some layers, cut to length ``clip`` over all layers; and how many were longer.

    In whole numbers of ``grid(clip, BITS)[0]·2^−BITS``, exactly; ``inputs`` may be overwritten.
    """
    with np.errstate(all="ignore"):  # what overflows counts as zero
        finite = np.logical_and.reduce([np.isfinite(a).all(axis=1) for a in inputs])
        if not finite.all():
            for a in inputs:
                a[~finite] = 0.0
            backs = [np.where(finite[:, None], b, np.nan) for b in backs]
        rows = [UnitRows(a) for a in inputs]
        whole, _, count = whole_rows(
            np.concatenate([b * a.lengths[:, None] for a, b in zip(rows, backs, strict=True)], axis=1), clip, BITS
        )
    ends = np.cumsum([b.shape[1] for b in backs])
    parts = np.split(whole, ends[:-1], axis=1)
    return [whole_product(v, a.units) for v, a in zip(parts, rows, strict=True)], count


def _last_digit(clip: float) -> float:
    return grid(clip, BITS)[0] * 2.0 ** (COARSE - BITS)
