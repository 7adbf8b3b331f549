"""Sums of clipped gradients of a list of linear layers, from one plain pass forward and one back over a whole batch.

A linear layer takes a row's input a to Wa + w. With b the derivative of this row's loss by the layer's output, the
gradient by (W, w) is the matrix b·(a, 1)ᵀ, of which :mod:`dpkit.torch.exact_sums` has exact sums over rows. All that
stands between the layers is from a list of torch's own activations, which work row by row, so the batch may be run as
one; losses are run on one row at a time, except for cross-entropy, of which the sum is taken.

The rule is that of :mod:`dpkit.torch.layer_rules`, which holds for any module, without the cost of ``vmap``: a third of
a step of a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dpkit.torch.exact_sums import Products, clipped_totals, lattice

if TYPE_CHECKING:
    import torch

__all__ = ["LinearLayers", "linear_layers"]


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
    if not (flat(module) and all(p.requires_grad for p in parameters)):
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

    path = "by products of whole batches, for a list of linear layers"

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
        self.on = lattice(clip, size)
        self._loss = loss
        self._slopes = vmap(
            grad(lambda output, target: loss(output.unsqueeze(0), target.unsqueeze(0)).sum()), randomness="error"
        )

    def sums(self, X: torch.Tensor, y: torch.Tensor) -> tuple[Iterator[torch.Tensor], torch.Tensor]:
        """Σ of the rows' clipped gradients, for each parameter in int64 (``on`` has values), and how many were cut."""
        import torch

        inputs: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        with torch.enable_grad():
            x = X
            for layer in self._layers:
                if type(layer) is torch.nn.Linear:
                    inputs.append(x.detach())
                    # so that what comes back stops at what was given: no gradient by any weight
                    x = torch.nn.functional.linear(
                        x, layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
                    )
                    if not outputs:
                        x.requires_grad_()
                    outputs.append(x)
                else:
                    x = layer(x)
            if self._together:
                backs = torch.autograd.grad(self._loss(x, y, reduction="sum"), outputs)  # type: ignore[call-arg]
            else:
                backs = torch.autograd.grad(x, outputs, self._slopes(x.detach(), y))
        pieces = [_piece(*each) for each in zip(self._linear, inputs, backs, strict=True)]
        totals, count = clipped_totals(pieces, self.on)
        return (total for layer in totals for total in layer()), count


def _piece(layer: Any, a: torch.Tensor, b: torch.Tensor) -> Products:
    return Products(
        len(a),
        1,
        lambda some: a[some, None],
        lambda some: b[some, None],
        offset=layer.bias is not None,
        widths=(layer.in_features, layer.out_features),
        shape=layer.weight.shape,
    )
