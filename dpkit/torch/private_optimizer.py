"""Per-row gradients of a torch module, and noisy steps of a torch optimizer.

Both import torch when they are called. What a privacy proof needs holds by construction:

* :func:`row_gradients` runs the module on one row at a time under ``torch.func.vmap``, so that the gradient of a row is
  a function of the parameters and of this row, whatever the module is. What mixes rows (batch statistics) has nothing
  to mix, and what draws random numbers is refused: a row more in a batch would shift the numbers that all later rows
  get, so that under a seed that anybody knows one row would change every other row's gradient.
* :class:`PrivateSteps` gets sums that are exact (:mod:`dpkit.torch.exact_sums`). The noise comes from a
  :class:`~dpkit.mechanisms.GaussianMechanism` on the host, on a lattice if its source is the secure one; what is
  released is cast to the parameters' type, and moved to their device, after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpkit.mechanisms import GaussianMechanism
from dpkit.torch.exact_sums import Lattice
from dpkit.training.whole_rows import BITS

if TYPE_CHECKING:
    import torch

__all__ = ["PrivateSteps", "row_gradients"]

# numbers that get their noise together: few enough to stay in a cache
_BLOCK = 1 << 17


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


def _portions(totals: Iterable[torch.Tensor]) -> Iterator[NDArray[np.int64]]:
    """All numbers in their order, some at a time: parts of large sums in their place, and small sums together."""
    small: list[NDArray[np.int64]] = []
    room, left = _BLOCK, iter(totals)
    while (total := next(left, None)) is not None:
        numbers = total.cpu().numpy().reshape(-1)
        if small and numbers.size > room:
            yield np.concatenate(small)
            small, room = [], _BLOCK
        if numbers.size <= room:
            small.append(numbers)
            room -= numbers.size
        else:
            yield from np.split(numbers, range(_BLOCK, numbers.size, _BLOCK))
        del total, numbers  # before the next is made
    if small:
        yield np.concatenate(small)


class PrivateSteps:
    """Steps of ``inner`` along sums of clipped gradients plus noise, divided by ``batch``.

    Parameters
    ----------
    inner : torch.optim.Optimizer
        Takes the steps.
    parameters : sequence of torch.nn.Parameter
        Everything that ``inner`` changes.
    mechanism : GaussianMechanism
        Its sensitivity is the clip norm, over all parameters together.
    on : Lattice
        Of the sums.
    batch : int
        The public, expected number of rows.
    schedule : callable, optional
        The optimizer → a scheduler of its learning rate, which moves on after every step.
    rate : float
        The sampling probability, which Opacus's accountant notes; None leaves its history empty, for it knows no other
        way.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        parameters: Sequence[torch.nn.Parameter],
        mechanism: GaussianMechanism,
        on: Lattice,
        *,
        batch: int,
        rate: float | None,
        schedule: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler] | None = None,
    ) -> None:
        from opacus.accountants import RDPAccountant

        self._inner, self._parameters, self._mechanism, self._on = inner, list(parameters), mechanism, on
        self._batch, self._rate = batch, rate
        self._size = sum(p.numel() for p in self._parameters)
        mechanism.noise_std(self._size)  # what is too large for a lattice is refused here, before anything is charged
        self._accountant = RDPAccountant()
        self._schedule = None if schedule is None else schedule(inner)
        if self._schedule is not None and not callable(getattr(self._schedule, "state_dict", None)):
            raise TypeError(f"schedule must return a torch.optim.lr_scheduler, got {self._schedule!r}")
        self.taken = 0

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """That of an Opacus accountant, which saw every step."""
        found: list[tuple[float, float, int]] = self._accountant.history
        return found

    @property
    def schedule(self) -> Any:
        """The scheduler, or None."""
        return self._schedule

    def step(self, totals: Iterable[torch.Tensor]) -> None:
        """One noisy step along a sum, given in int64 for every parameter; it is overwritten."""
        import torch

        noisy = torch.empty(self._size, dtype=max((p.dtype for p in self._parameters), key=lambda kind: kind.itemsize))
        start = 0
        for whole in _portions(totals):
            if self._mechanism.exact:
                found = self._mechanism.release_whole(whole, self._on.unit * 2.0**-BITS, of=self._size)
            else:
                found = self._mechanism.release_part(self._on.values(whole), of=self._size)
            noisy[start : start + whole.size] = torch.from_numpy(found)
            start += whole.size
            del whole, found  # which hold the sum that they are a part of, before the next is made
        if start != self._size:  # the rest would be what memory held, without noise
            raise ValueError(f"totals must be of all {self._size} entries of the parameters, got {start}")
        for p, gradient in zip(self._parameters, noisy.split([p.numel() for p in self._parameters]), strict=True):
            p.grad = gradient.to(p).reshape(p.shape).div_(self._batch)
        self._inner.step()
        self._inner.zero_grad()
        if self._schedule is not None:
            self._schedule.step()
        self.taken += 1
        if self._rate is not None:
            self._accountant.step(noise_multiplier=self._mechanism.noise_multiplier, sample_rate=self._rate)

    def state(self) -> dict[str, Any]:
        """What :meth:`resume` needs: no row has a part in it but by what was released."""
        schedule = None if self._schedule is None else self._schedule.state_dict()
        return {"optimizer": self._inner.state_dict(), "schedule": schedule, "taken": self.taken}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where another object was."""
        if (state["schedule"] is None) != (self._schedule is None):
            raise ValueError("schedule must be given just where the run had one")
        settings = [set(group) for group in self._inner.param_groups]
        try:
            self._inner.load_state_dict(state["optimizer"])
        except (KeyError, ValueError) as error:
            raise ValueError(f"optimizer must be that of the run in the checkpoint, got another: {error}") from error
        for before, group in zip(settings, self._inner.param_groups, strict=True):
            if before - set(group):  # of a checkpoint that does not say which optimizer it had
                raise ValueError(
                    "optimizer must be that of the run in the checkpoint, got one with other settings, "
                    f"{', '.join(sorted(before - set(group)))}: give a new file to a new run"
                )
        if self._schedule is not None:
            self._schedule.load_state_dict(state["schedule"])
        self.taken = state["taken"]
        if self._rate is not None and self.taken:
            self._accountant.history = [(self._mechanism.noise_multiplier, self._rate, self.taken)]
