"""Exact sums of clipped gradients, whether each row's gradient is at hand or only its factors. On any device.

A row's gradient comes in pieces, of which the lengths are taken together, and each of which is scaled by the row's one
factor c = min(1, C″/length), made whole, and summed:

:class:`Whole`
    The gradient itself, for some parameters: (rows, *shape) each.
:class:`Products`
    BᵀA of a layer that takes the rows of A (T, q), one for each position, to Aᵀ's images, with B (T, p) the derivatives
    by these. Neither a row's gradient nor its length needs the (p, q) matrix: ‖BᵀA‖² = ⟨AAᵀ, BBᵀ⟩, two (T, T) matrices
    (Goodfellow 2015, arXiv:1510.01799, for T = 1; Li et al. 2022, arXiv:2110.05679, section 4, for any), and the sum
    over rows of c·BᵀA is one product of matrices.
:class:`Picked`
    Of a table of which a row reads T lines: the derivatives by these, added where a line was read twice.

Privacy. One row moves a sum by at most C as a real number, whatever else is in it. Let s be about C/2¹⁸, a power of
two; all pieces are whole numbers of s/2¹⁸, and their sums, 64-bit integers, are exact, in whichever parts they are
taken: 2²⁶ rows have at most 2⁶² of these. How much longer than c·length a piece may have become by being made whole:

* ``Whole``, and what ``Picked`` lines hold: rounded to s/2⁸, so at most half of it for each of the P entries that are
  not 0: √P·s/2⁹.
* ``Products``: A is scaled to U = trunc(A·2¹⁸/α), α ≥ ‖A‖, so that ‖U‖ ≤ 2¹⁸, and the length is *defined* by what this
  leaves of the gradient, α·BᵀU/2¹⁸. V = trunc(c·α·B/s) then loses less than 1 in each entry, and ‖(V − cαB/s)ᵀU‖ ≤
  √(Tp)·2¹⁸: at most √(Tp)·s together. For T = 1 nothing: ‖V‖·‖U‖ is the length of VᵀU, and cutting off makes neither
  longer.

Lengths are computed in float64 and rounded up (:func:`dpkit.clipping.grown`). Entries of UUᵀ are exact; those of BBᵀ
are within p·2⁻⁵³·‖b_t‖‖b_t′‖; the T² products of both add up within (T² + p + 3)·2⁻⁵³·‖U‖²‖B‖², which is added twice.
A piece is held to ‖V‖ ≤ 2²⁴, so that 2¹⁰ rows of products stay below 2⁵³ in every partial
sum, in whichever order a device takes them. A row that is not finite counts as zero.

At the end the last nine digits of products' sums are rounded away, once, to fit float64: one last digit s/2⁹ for each
of their entries at most, by which C″ is shorter than C too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpkit.clipping import grown
from dpkit.training.whole_rows import BITS, COARSE, WHOLE_BITS, grid

if TYPE_CHECKING:
    import torch

__all__ = ["Lattice", "Picked", "Piece", "Products", "Whole", "clipped_totals", "lattice"]

# added to lengths: squares of entries that are smaller underflow
_TINY = 1e-150
# numbers that are held in float64 at once: small enough to stay in a cache
_BLOCK = 1 << 18
# ‖V‖ of products of several positions, and how many of their rows one exact sum may have
_LONGEST, _MOST_ROWS = 2.0**24, 1 << 10


class Lattice(NamedTuple):
    """What sums are whole numbers of, and how long a row may be."""

    clip: float  # C less what is lost where sums are rounded
    unit: float  # s

    def values(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sums in float64, without their last digits: one row moves them by at most C."""
        whole = total + (1 << (COARSE - 1))
        whole >>= COARSE
        rounded = whole.astype(np.float64)
        rounded *= self.unit * 2.0 ** (COARSE - BITS)
        return rounded


def lattice(clip: float, rounded: int = 0) -> Lattice:
    """The lattice for a clip norm C, where ``rounded`` entries of a sum may be products."""
    digit = grid(clip, BITS)[0] * 2.0 ** (COARSE - BITS)
    short = clip - digit * math.sqrt(rounded) * (1.0 + 2.0**-50)
    if short <= clip / 2:
        raise ValueError(f"model must have fewer parameters for sums to be exact, got {rounded}")
    return Lattice(short, grid(short, BITS)[0])


class Piece(Protocol):
    """A part of some rows' gradients."""

    size: int  # numbers that a length is computed from

    def loss(self) -> float:
        """How much longer it may be made by being made whole, in units of s."""

    def squares(self) -> torch.Tensor:
        """‖·‖² of every row, up to what :func:`grown` adds to a length of ``size``; (rows,) in float64."""

    def caps(self, unit: float) -> torch.Tensor | None:
        """The largest factor of every row, if there is one."""

    def totals(self, factors: torch.Tensor, unit: float) -> list[torch.Tensor]:
        """Σ of the rows by their factors, for every parameter: int64, in units of s/2¹⁸."""


def clipped_totals(pieces: Sequence[Piece], on: Lattice) -> tuple[list[Callable[[], list[torch.Tensor]]], torch.Tensor]:
    """Σ_i of rows' gradients, each cut to length C″ over all ``pieces``; and how many were longer.

    Returns
    -------
    totals : list of callables
        For each piece: its sums for each of its parameters in int64, whole numbers of s/2¹⁸, exact. Each is called
        once, when its sums are wanted: those of a large module take more memory than all else.
    count : Tensor
        () of integers.
    """
    import torch

    squares = torch.stack([piece.squares() for piece in pieces]).sum(dim=0)
    lengths = grown(torch.sqrt(squares) + _TINY, sum(piece.size for piece in pieces))
    fine = on.unit * 2.0 ** (BITS - WHOLE_BITS)
    most = math.floor(on.clip / fine) * fine
    most -= math.sqrt(sum(piece.loss() ** 2 for piece in pieces)) * on.unit
    if most <= on.clip / 2:
        raise ValueError("model must have fewer parameters for sums to be exact")
    factors = (most / lengths).clamp_(max=1.0)
    for piece in pieces:
        cap = piece.caps(on.unit)
        if cap is not None:
            factors = torch.minimum(factors, cap)
    factors = torch.where(torch.isfinite(lengths), factors, 0.0)
    return [partial(piece.totals, factors, on.unit) for piece in pieces], (~(lengths <= on.clip)).sum()


class Whole:
    """Gradients of single rows by some parameters: (rows, *shape) each."""

    def __init__(self, gradients: Sequence[torch.Tensor]) -> None:
        self._shapes = [g.shape[1:] for g in gradients]
        self._flat = [g.detach().reshape(len(g), s.numel()) for g, s in zip(gradients, self._shapes, strict=True)]
        self._sizes = [s.numel() for s in self._shapes]
        self._rows, self.size = len(self._flat[0]), sum(self._sizes)

    def _lots(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Some rows at a time, in float64, each lot in the place of the one before it."""
        import torch

        held = min(self._rows, max(1, _BLOCK // self.size))
        lot = torch.empty((held, self.size), dtype=torch.float64, device=self._flat[0].device)
        for start in range(0, self._rows, max(held, 1)):
            rows = slice(start, min(start + held, self._rows))
            part = lot[: rows.stop - start]
            for into, gradient in zip(part.split(self._sizes, dim=1), self._flat, strict=True):
                into.copy_(gradient[rows])
            yield rows, part

    def loss(self) -> float:
        return math.sqrt(self.size) / 2.0 * 2.0 ** (BITS - WHOLE_BITS)

    def squares(self) -> torch.Tensor:
        import torch

        found = torch.zeros(self._rows, dtype=torch.float64, device=self._flat[0].device)
        for rows, part in self._lots():
            found[rows] = torch.linalg.vector_norm(part, dim=1) ** 2
        return found

    def caps(self, unit: float) -> torch.Tensor | None:
        return None

    def totals(self, factors: torch.Tensor, unit: float) -> list[torch.Tensor]:
        scale = factors / (unit * 2.0 ** (BITS - WHOLE_BITS))
        total = factors.new_zeros(self.size)
        for rows, part in self._lots():
            total += part.mul_(scale[rows, None]).round_().nan_to_num_(0.0, 0.0, 0.0).sum(dim=0)
        whole = total.long() * (1 << (2 * BITS - WHOLE_BITS))
        return [t.reshape(s) for t, s in zip(whole.split(self._sizes), self._shapes, strict=True)]


class Products:
    """Gradients BᵀA of the weights of a linear layer, and of its offset, if A ends with a column of ones.

    Parameters
    ----------
    rows, positions : int
    inputs, backs : callable
        Some rows, as a slice → (rows, positions, q) and (rows, positions, p), of floats.
    offset : bool
        Whether the layer adds an offset.
    widths : tuple of int
        q, without a column of ones, and p.
    shape : tuple of int
        Of the weights, with p·q entries.
    """

    def __init__(
        self,
        rows: int,
        positions: int,
        inputs: Callable[[slice], torch.Tensor],
        backs: Callable[[slice], torch.Tensor],
        *,
        offset: bool,
        widths: tuple[int, int],
        shape: Sequence[int],
    ) -> None:
        self._rows, self._positions = rows, positions
        self._inputs, self._backs, self._offset = inputs, backs, offset
        self._q, self._p = widths[0] + offset, widths[1]
        self._shape = tuple(shape)
        self.size = positions * max(self._q, self._p)
        self._scales: torch.Tensor
        self._lengths: torch.Tensor  # of the derivatives, times α
        self._whole: list[tuple[torch.Tensor, torch.Tensor]] = []  # U and B where they are small: at one position

    def _lots(self) -> Iterator[slice]:
        held = max(1, 4 * _BLOCK // (self._positions * (self._q + self._p)))
        held = min(held, _MOST_ROWS)
        return (slice(start, min(start + held, self._rows)) for start in range(0, self._rows, held))

    def _units(self, rows: slice, scales: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """U of some rows, and their α."""
        import torch

        given = self._inputs(rows)
        A = torch.ones((*given.shape[:2], self._q), dtype=torch.float64, device=given.device)
        A[:, :, : given.shape[2]] = given
        if scales is None:
            size = self._positions * self._q
            scales = grown(torch.linalg.vector_norm(A.reshape(len(A), size), dim=1) + _TINY, size)
        return _cut_off(A.mul_((2.0**BITS / scales)[:, None, None])), scales

    def loss(self) -> float:
        return 0.0 if self._positions == 1 else math.sqrt(self._positions * self._p)

    def squares(self) -> torch.Tensor:
        import torch

        squares, scales, lengths = [], [], []
        T, p = self._positions, self._p
        for rows in self._lots():
            B = self._backs(rows).double()
            U, alpha = self._units(rows)
            if T == 1:
                length = grown(torch.linalg.vector_norm(B, dim=(1, 2)) + _TINY, p) * alpha
                squares.append(length * length)
                self._whole.append((U.nan_to_num_(0.0, 0.0, 0.0), B))
            else:
                left, right = U @ U.mT, B @ B.mT
                inner = (left * right).sum(dim=(1, 2)).clamp_(min=0.0)
                own = right.diagonal(dim1=1, dim2=2).sum(dim=1) * (1.0 + 2.0**-40) + _TINY
                inner += own * ((T * T + p + 8) * 2.0 ** (2 * BITS - 52))
                squares.append(inner * (alpha * 2.0**-BITS) ** 2)
                length = torch.sqrt(own) * alpha
            scales.append(alpha)
            lengths.append(length)
        if T == 1:  # what U and B were made of
            del self._inputs, self._backs
        self._scales, self._lengths = torch.cat(scales), torch.cat(lengths)
        return torch.cat(squares)

    def caps(self, unit: float) -> torch.Tensor | None:
        return None if self._positions == 1 else _LONGEST * unit / self._lengths

    def totals(self, factors: torch.Tensor, unit: float) -> list[torch.Tensor]:
        scale = factors * self._scales / unit
        q = self._q - self._offset
        sums: list[torch.Tensor] = []
        whole: list[torch.Tensor] = []
        begun = 0
        for rows in self._lots():
            if self._positions == 1:
                U, B = self._whole.pop(0)
            else:
                U, B = self._units(rows, self._scales[rows])[0].nan_to_num_(0.0, 0.0, 0.0), self._backs(rows).double()
            V = _cut_off(B * scale[rows, None, None]).nan_to_num_(0.0, 0.0, 0.0)
            if begun + len(V) > _MOST_ROWS:
                whole, sums, begun = _in_whole(sums, whole), [], 0
            begun += len(V)
            left, right = V.reshape(-1, self._p).T, U.reshape(-1, self._q)
            if not sums:
                sums = [left @ right[:, :q], *([left @ right[:, q]] if self._offset else [])]
                continue
            sums[0].addmm_(left, right[:, :q])
            if self._offset:
                sums[1].addmv_(left, right[:, q])
        weights, *offset = _in_whole(sums, whole)
        return [weights.reshape(self._shape), *offset]


def _cut_off(values: torch.Tensor) -> torch.Tensor:
    """``values`` without what is behind the point, in their place."""
    if values.device.type != "cpu":
        return values.trunc_()
    held = values.numpy()
    np.trunc(held, out=held)  # torch's own takes eight times as long on the host
    return values


def _in_whole(sums: Sequence[torch.Tensor], earlier: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Sums, and those before them, as integers: in the place of the floats, for fresh memory takes longer."""
    import torch

    found = [part.view(torch.int64).copy_(part) for part in sums]
    for total, more in zip(found, earlier, strict=False):
        total += more
    return found


class Picked:
    """Gradients by a table, of which a row reads ``lines`` (rows, T): ``backs`` (rows, T, p) are the derivatives."""

    def __init__(self, lines: torch.Tensor, backs: torch.Tensor, count: int) -> None:
        import torch

        rows, T = lines.shape
        self._count = count
        keys = lines + count * torch.arange(rows, device=lines.device)[:, None]
        read, place = torch.unique(keys, return_inverse=True)
        self._lines, self._whose = read % count, read // count
        sums = torch.zeros((len(read), backs.shape[2]), dtype=torch.float64, device=backs.device)
        self._sums = sums.index_add_(0, place.reshape(-1), backs.reshape(rows * T, -1).double())
        self._rows, self.size = rows, T * backs.shape[2]

    def loss(self) -> float:
        return math.sqrt(self.size) / 2.0 * 2.0 ** (BITS - WHOLE_BITS)

    def squares(self) -> torch.Tensor:
        import torch

        each = torch.linalg.vector_norm(self._sums, dim=1) ** 2
        return each.new_zeros(self._rows).index_add_(0, self._whose, each)

    def caps(self, unit: float) -> torch.Tensor | None:
        return None

    def totals(self, factors: torch.Tensor, unit: float) -> list[torch.Tensor]:
        scale = factors / (unit * 2.0 ** (BITS - WHOLE_BITS))
        lines = (self._sums * scale[self._whose, None]).round_().nan_to_num_(0.0, 0.0, 0.0)
        total = factors.new_zeros((self._count, lines.shape[1])).index_add_(0, self._lines, lines)
        return [total.long() * (1 << (2 * BITS - WHOLE_BITS))]
