"""Sums of clipped gradients by one rule for each layer, wherever in a module it sits; its rows run one at a time.

Of a layer's weights a row's gradient is BᵀA: A what the layer takes, B the derivatives of this row's loss by what it
gives. So it is not needed, nor a copy of the weights for every row: :mod:`dpkit.torch.exact_sums` has lengths and sums
from A and B, which any module gives. It is run on one row at a time under ``torch.func.vmap``, as without rules; a hook
at each layer keeps A, and adds to what the layer gives a zero of this row's own, by which the loss is differentiated:
that is B. The gradients by all other parameters (norms, small layers, a module's own) are taken row by row in the same
pass.

Privacy. A row's A, B and gradients are functions of the parameters and of this row alone, by construction: under
``vmap`` the module is never given more than one row, so that what mixes rows has nothing to mix, whatever it is made
of. Nothing rests on a list of harmless operations, or on reading a module's graph. What draws random numbers, writes
into buffers or cannot be run in this way is refused before anything is charged.

A layer has a rule if it is torch's own ``Linear``, ``Conv1d``, ``Conv2d`` or ``Embedding`` (not a class made of it),
its parameters are trained, belong to it alone and are used in its own call alone, and if its p·q weights are more than
T·(p + q), what A and B have over its T positions, and for T > 1 more than four times as many: below that a row's
gradient takes less time than its length does without it. A layer may be called more than once: that is more positions.

Cost: a forward and a backward pass without any gradient by weights, then n·T²·(p + q) for lengths and n·T·p·q for sums;
memory for A and B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dpkit.torch.exact_sums import Lattice, Picked, Piece, Products, Whole, clipped_totals, lattice

if TYPE_CHECKING:
    import torch

__all__ = ["RowSums"]

# how much more memory a gradient must take than what it is made of, for it not to be made
_MEMORY = 4


class _Call(NamedTuple):
    """A layer's call, as one row makes it."""

    layer: int
    shape: torch.Size  # of what it gives
    dtype: torch.dtype
    positions: int


class _Plan(NamedTuple):
    """Which layers go by a rule, for rows of one shape, and what is called when."""

    calls: list[_Call]  # of layers with a rule
    ruled: list[int]
    reasons: dict[str, str]  # of the other layers


class RowSums:
    """(X, y) of some rows → exact sums of their clipped gradients, for any module that runs row by row.

    Parameters
    ----------
    module : torch.nn.Module
        Called on one row as a batch of one.
    loss : callable
        (outputs, targets) of that batch → a tensor, of which the sum is taken.
    clip : float
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[[Any, Any], Any], clip: float) -> None:
        self._module, self._loss = module, loss
        self._trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._names = {id(p): name for name, p in self._trained.items()}
        self._layers, self._others = _candidates(module)
        own = sum(p.numel() for layer in self._layers.values() for p in layer.parameters(recurse=False))
        self.on: Lattice = lattice(clip, own)
        self._plans: dict[Any, _Plan] = {}

    @property
    def path(self) -> str:
        """How gradients are summed, in words."""
        if not self._plans:
            return "row by row"
        ruled, reasons = set(), dict(self._others)
        for plan in self._plans.values():
            ruled |= {list(self._layers)[k] for k in plan.ruled}
            reasons |= plan.reasons
        for name in ruled:
            reasons.pop(name, None)
        rest = _listed([f"{name} ({why})" for name, why in reasons.items()])
        if not ruled:
            return f"row by row, for {rest}"
        return f"by layer rules for {_listed(sorted(ruled))}" + (f"; row by row for {rest}" if rest else "")

    def sums(self, X: torch.Tensor, y: torch.Tensor) -> tuple[Iterator[torch.Tensor], torch.Tensor]:
        """Σ of the rows' clipped gradients, for each trained parameter in int64 (``on`` has values), and how many were
        longer."""
        plan = self._plan(X, y)
        layers = list(self._layers.values())
        ruled = {self._names[id(p)] for k in plan.ruled for p in layers[k].parameters(recurse=False)}
        loose = {name: p.detach() for name, p in self._trained.items() if name not in ruled}
        found, inputs, backs = self._passes(plan, loose, X, y)
        pieces: list[Piece] = []
        owners: list[list[str]] = []
        if loose:
            pieces.append(Whole([found[name] for name in loose]))
            owners.append(list(loose))
        for k in plan.ruled:
            mine = [i for i, call in enumerate(plan.calls) if call.layer == k]
            positions = sum(plan.calls[i].positions for i in mine)
            pieces.append(_piece(layers[k], len(X), positions, [inputs[i] for i in mine], [backs[i] for i in mine]))
            owners.append([self._names[id(p)] for p in layers[k].parameters(recurse=False)])
        sums, count = clipped_totals(pieces, self.on)
        return self._in_order(owners, sums), count

    def _in_order(
        self, owners: list[list[str]], sums: list[Callable[[], list[torch.Tensor]]]
    ) -> Iterator[torch.Tensor]:
        """Sums in the order of the parameters, each piece's when the first of them is wanted."""
        found: dict[str, torch.Tensor] = {}
        of = {name: (names, totals) for names, totals in zip(owners, sums, strict=True) for name in names}
        for name in self._trained:
            if name not in found:
                names, totals = of[name]
                found |= zip(names, totals(), strict=True)
            yield found.pop(name)

    def _passes(
        self, plan: _Plan, loose: dict[str, torch.Tensor], X: torch.Tensor, y: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """Rows' gradients by the ``loose`` parameters, and inputs and derivatives of each call of a ruled layer."""
        import torch
        from torch.func import functional_call, grad, vmap

        fixed = {name: p.detach() for name, p in self._trained.items()}
        given: list[Any] = []
        zeros: Sequence[torch.Tensor] = ()

        def at_call(layer: int, taken: torch.Tensor, gives: torch.Tensor) -> torch.Tensor:
            k = len(given)
            if k >= len(plan.calls) or plan.calls[k].layer != layer or gives.shape != plan.calls[k].shape:
                raise RuntimeError("the module calls its layers in another way than for the row before")
            given.append(taken)
            return gives + zeros[k]

        def row_loss(by: tuple[Any, Any], x: torch.Tensor, target: torch.Tensor) -> tuple[Any, Any]:
            nonlocal zeros
            own, zeros = by
            given.clear()
            outputs = functional_call(self._module, {**fixed, **own}, (x.unsqueeze(0),))
            found = self._loss(outputs, target.unsqueeze(0)).sum()
            if len(given) < len(plan.calls):
                raise RuntimeError("the module calls its layers in another way than for the row before")
            return found, tuple(given)

        some = tuple(torch.zeros((), dtype=c.dtype, device=X.device).expand(len(X), *c.shape) for c in plan.calls)
        each = vmap(grad(row_loss, has_aux=True), in_dims=((None, 0), 0, 0), randomness="error")
        layers = list(self._layers.values())
        with _watched([layers[k] for k in plan.ruled], plan.ruled, at_call):
            (own, backs), inputs = each((loose, some), X, y)
        given.clear()
        zeros = ()
        return own, inputs, backs

    def _plan(self, X: torch.Tensor, y: torch.Tensor) -> _Plan:
        """Found once for rows of one shape, by running the first of them."""
        key = X.shape[1:], X.dtype, y.shape[1:], y.dtype
        if key not in self._plans:
            self._plans[key] = self._look(X[:1], y[:1])
        return self._plans[key]

    def _look(self, x: torch.Tensor, y: torch.Tensor) -> _Plan:
        """What each layer is called with, and which parameters are used elsewhere, too: not what any value is."""
        import torch

        calls: list[_Call] = []

        def at_call(layer: int, taken: torch.Tensor, gives: torch.Tensor) -> torch.Tensor:
            calls.append(_Call(layer, gives.shape, gives.dtype, _positions(layers[layer], gives)))
            # still made of what it takes, but not of its parameters: what the loss has of them, it has from elsewhere
            return gives.detach() + 0.0 * taken.sum() if taken.is_floating_point() else gives.detach()

        layers = list(self._layers.values())
        reasons = {}
        with torch.enable_grad(), _watched(layers, range(len(layers)), at_call):
            total = self._loss(self._module(x), y).sum()
        parameters = [p for layer in layers for p in layer.parameters(recurse=False)]
        elsewhere: set[int] = set()
        if parameters and total.requires_grad:
            found = torch.autograd.grad(total, parameters, allow_unused=True)
            elsewhere = {id(p) for p, g in zip(parameters, found, strict=True) if g is not None}
        ruled = []
        for k, (name, layer) in enumerate(self._layers.items()):
            positions = sum(call.positions for call in calls if call.layer == k)
            if any(id(p) in elsewhere for p in layer.parameters(recurse=False)):
                reasons[name] = "used outside its own call"
            elif positions == 0:
                reasons[name] = "not called"
            elif not _pays(layer, positions):
                reasons[name] = "small"
            else:
                ruled.append(k)
        return _Plan([call for call in calls if call.layer in ruled], ruled, reasons)


def _candidates(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, str]]:
    """Layers that may go by a rule, by name, and why the other owners of trained parameters do not."""
    owners: dict[int, int] = {}
    for part in module.modules():
        for p in part.parameters(recurse=False):
            owners[id(p)] = owners.get(id(p), 0) + 1
    found, others = {}, {}
    for name, part in module.named_modules():
        own = dict(part.named_parameters(recurse=False))
        if not any(p.requires_grad for p in own.values()):
            continue
        if not _known(part):
            why = type(part).__name__
        elif not all(p.requires_grad for p in own.values()):
            why = "partly frozen"
        elif any(owners[id(p)] > 1 for p in own.values()):
            why = "shared"
        else:
            found[name or type(part).__name__] = part
            continue
        others[name or type(part).__name__] = why
    return found, others


def _known(part: Any) -> bool:
    """Whether it is one of the layers of which the gradient is known here, and nobody changed what it does."""
    from torch import nn

    if vars(part).get("forward") is not None or part._parameters.get("weight") is None:
        return False
    if set(part._parameters) - {"weight", "bias"}:
        return False
    if type(part) is nn.Linear:
        return True
    if type(part) in (nn.Conv1d, nn.Conv2d):
        return part.groups == 1 and part.padding_mode == "zeros" and not isinstance(part.padding, str)
    if type(part) is nn.Embedding:
        return part.max_norm is None and not part.scale_grad_by_freq and not part.sparse
    return False


@contextmanager
def _watched(layers: Sequence[Any], numbers: Sequence[int], at_call: Callable[[int, Any, Any], Any]) -> Iterator[None]:
    """Calls of the layers are passed through ``at_call``, before anybody else's hooks see what they give."""
    handles = []
    try:
        for k, layer in zip(numbers, layers, strict=True):

            def hook(_: Any, arguments: Any, named: Any, gives: Any, k: int = k) -> Any:
                return at_call(k, arguments[0] if arguments else named["input"], gives)

            handles.append(layer.register_forward_hook(hook, prepend=True, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _widths(layer: Any) -> tuple[int, int]:
    """q and p: the columns and rows of a layer's weights, as a matrix."""
    p = layer.weight.shape[0]
    return layer.weight.numel() // p, p


def _positions(layer: Any, gives: torch.Tensor) -> int:
    """T of one call."""
    width = layer.weight.shape[1] if _is_table(layer) else layer.weight.shape[0]
    return int(gives.numel() // width)


def _is_table(layer: Any) -> bool:
    from torch import nn

    return type(layer) is nn.Embedding


def _pays(layer: Any, positions: int) -> bool:
    if _is_table(layer):
        return bool(layer.weight.shape[0] > positions)
    q, p = _widths(layer)
    # for more than one position the lengths cost more than the gradient does, up to some times the memory
    return positions * (p + q) * (1 if positions == 1 else _MEMORY) < p * q


def _piece(layer: Any, rows: int, positions: int, inputs: list[torch.Tensor], backs: list[torch.Tensor]) -> Piece:
    """A row's gradient by the parameters of a layer, from what its calls took and the derivatives by what they gave."""
    import torch

    if _is_table(layer):
        lines = torch.cat([a.reshape(rows, -1) for a in inputs], dim=1)
        slopes = torch.cat([b.reshape(rows, -1, layer.embedding_dim) for b in backs], dim=1)
        if layer.padding_idx is not None:
            slopes = torch.where((lines == layer.padding_idx)[:, :, None], 0.0, slopes)
        return Picked(lines, slopes, layer.num_embeddings)
    q, p = _widths(layer)
    take, give = (_images, _channels) if layer.weight.dim() > 2 else (_vectors, _vectors)

    def joined(of: Callable[[Any, torch.Tensor], torch.Tensor], parts: list[torch.Tensor], some: slice) -> torch.Tensor:
        found = [of(layer, part[some]) for part in parts]
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)

    return Products(
        rows,
        positions,
        lambda some: joined(take, inputs, some),
        lambda some: joined(give, backs, some),
        offset=layer.bias is not None,
        widths=(q, p),
        shape=layer.weight.shape,
    )


def _vectors(layer: Any, values: torch.Tensor) -> torch.Tensor:
    """(rows, …, d) → (rows, T, d)."""
    return values.reshape(len(values), -1, values.shape[-1])


def _channels(layer: Any, values: torch.Tensor) -> torch.Tensor:
    """(rows, …, channels, *places) → (rows, T, channels)."""
    places = layer.weight.dim() - 2
    flat = values.flatten(-places).transpose(-1, -2)
    return flat.reshape(len(values), -1, flat.shape[-1])


def _images(layer: Any, values: torch.Tensor) -> torch.Tensor:
    """(rows, …, channels, *places) → (rows, T, q): what the weights see at each place of what a convolution gives."""
    from torch.nn import functional

    flat = values.reshape(-1, *values.shape[-(layer.weight.dim() - 1) :])
    if flat.dtype.itemsize < 4:
        flat = flat.float()
    sizes = [layer.kernel_size, layer.dilation, layer.padding, layer.stride]
    if layer.weight.dim() == 3:
        flat = flat.unsqueeze(2)
        sizes = [(one, *v) for one, v in zip((1, 1, 0, 1), sizes, strict=True)]
    seen = functional.unfold(flat, *sizes).transpose(1, 2)
    return seen.reshape(len(values), -1, seen.shape[-1])


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else ", ".join(names[:5]) + f" and {len(names) - 5} more"
