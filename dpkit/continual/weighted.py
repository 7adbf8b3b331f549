"""Prefix sums of a few inputs, with the least noise where it matters: the best factor for public weights.

For sums that leave a few dozen times and are not all needed alike, as where a run learns most from releases in its
middle. A·x leaves as B(C·x + σζ), B = A·C⁻¹, as in all of ``dpkit.continual``, and C is the lower triangle with columns
of norm 1 whose weighted noise

    Σ_t w_t·var_t = σ²·Σ_t w_t‖(A·C⁻¹)_t‖² = σ²·tr(G X⁻¹),    G = AᵀWA,    X = CᵀC

is the least. Source: Denisov, McMahan, Rush, Smith & Thakurta (2022), "Improved differential privacy for SGD via
optimal private linear operators on adaptive streams", arXiv:2202.08312. The problem is convex in X ≻ 0 with diagonal 1,
and its optimum is X = V^{−1/2}(V^{1/2}GV^{1/2})^{1/2}V^{−1/2} with the diagonal V that solves

    V = diag((V^{1/2}GV^{1/2})^{1/2}).

As min over X of tr(GX⁻¹) + tr(VX) is 2·tr((V^{1/2}GV^{1/2})^{1/2}), every V ≻ 0 gives a lower bound on what any factor
can have, 2·tr((V^{1/2}GV^{1/2})^{1/2}) − tr(V). Twelve steps of the fixed point, as many on every machine, come within
a thousandth of it for weights as a bandit has them, and within three hundredths for all that were tried. Then X is
factored, what is below 0 in C is set to 0 (nothing was, in all cases tried), and columns are divided by their norms.
All that is said of privacy and noise is computed from the C that is left.

Weights that are 10⁵ apart make matrices of which half of the digits are lost in a square. So none is squared: with
F = V^{1/2}AᵀW^{1/2} = UΣQᵀ the root of V^{1/2}GV^{1/2} = FFᵀ is UΣUᵀ, and C is the triangle of Σ^{1/2}UᵀV^{−1/2}.

Guarantee
---------
* Unit: one input x_t. Neighbouring streams differ in one input, in the sense of ``adjacency``, by at most
  ``sensitivity`` in L2 norm.
* The norms of C's columns are computed and rounded up, and σ = noise_multiplier × sensitivity × the largest. So the
  *whole stream* costs one ``Gaussian(noise_multiplier)``.
* Inputs may depend on earlier outputs: C is lower-triangular (Denisov et al. 2022, Theorem 2.1).
* C ≥ 0, so the same cost covers a change that moves an input to another step (see ``dpkit.geometry.pair_sensitivity``).
* It holds for the program as it runs, in floating point: noise is added to integers (``dpkit.continual.sums``). C has
  float64 entries, and the dot products of the encoder with them are right within T + 2 roundings.
* Singular values differ in their last digits between machines, and C with them, by up to 10⁻⁸. A saved stream goes on
  with the factor that it began with, if that is within 2⁻²⁴ of what the weights give here: it lengthens a column, or a
  sum of columns, by the factor 1 + 2⁻²⁴T at most, which the noise level includes. (Of m ≤ T columns an error of 2⁻²⁴ in
  every entry adds up to 2⁻²⁴m√T, and their sum is at least √m long, since C ≥ 0 has columns of norm 1.)

Cost per step t: 4t × dimension multiplications and additions, and one draw. Memory: 2T × dimension numbers. When made:
13 singular value decompositions of T × T matrices, T ≤ 256; some 2 ms for T = 25, 15 ms for 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Adjacency
from dpkit.continual.coefficients import ROUNDING
from dpkit.continual.factorization import Factorization, joint_norm_of, most_participations, reach_of
from dpkit.continual.sums import ContinualSum

if TYPE_CHECKING:
    from accounting import Ledger  # loaded by whoever has one

__all__ = ["Weighted"]

Vector = NDArray[np.float64]

_LONGEST = 256
# weights below so much of the largest are taken as that: no sum is left to drown, and C has its digits
_LEAST = 1e-5
_STEPS = 12
# by which factors that were computed on different machines may differ
_CLOSE = 2.0**-24


class Weighted(ContinualSum):
    """Noisy prefix sums of few inputs, whose noise is the least on average with public ``weights``.

    Parameters
    ----------
    weights : (T,) array_like
        w_1, …, w_T, positive: how much the variance of each sum matters; only ratios count, up to 10⁵. As many as
        there are inputs at most, T ≤ 256. They are public: nothing of the data may be in them.
    noise_multiplier : float
        The whole stream costs ``Gaussian(noise_multiplier)``.
    shape, sensitivity, noise, adjacency, participations, min_separation, symmetric, rng, ledger, label
        As for :class:`dpkit.continual.ContinualSum`; so are the attributes and what is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from dpkit.continual import Weighted
    >>> known = {"shape": (), "sensitivity": 1.0, "noise_multiplier": 1.0, "rng": np.random.default_rng(0)}
    >>> sums = Weighted(weights=[1.0, 1.0, 1.0, 10.0, 10.0, 1.0, 1.0, 1.0], **known)
    >>> estimate = sums.add(1.0)
    >>> [round(sums.noise_std(t), 2) for t in (1, 4, 8)]
    [1.69, 1.23, 1.75]
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(
        self,
        *,
        weights: ArrayLike,
        shape: int | tuple[int, ...],
        sensitivity: float,
        noise_multiplier: float,
        noise: Literal["gaussian"] = "gaussian",
        adjacency: Adjacency = "replace",
        participations: int = 1,
        min_separation: int = 1,
        symmetric: bool = False,
        rng: np.random.Generator | None = None,
        ledger: Ledger | None = None,
        label: str = "weighted sums",
    ) -> None:
        self.weights = _checked(weights)
        self._dense = _Dense(_best(tuple(self.weights.tolist())))
        super().__init__(
            self._dense,
            shape=shape,
            sensitivity=sensitivity,
            noise_multiplier=noise_multiplier,
            noise=noise,
            adjacency=adjacency,
            participations=participations,
            min_separation=min_separation,
            symmetric=symmetric,
            rng=rng,
            ledger=ledger,
            label=label,
        )

    @property
    def factor(self) -> Vector:
        """C, lower-triangular and nonnegative; its columns have norm 1."""
        return self._dense.C.copy()

    def difference_std(self, t: int) -> float:
        """The standard deviation of each entry of the t-th estimate less the one before it, 1 ≤ t ≤ T."""
        self.noise_std(t)  # which checks t
        return self._law.std * float(self._dense.inverse_norms[t - 1])


class _Dense(Factorization):
    """Any lower triangle C ≥ 0, written out; its inverse by substitution, w_t = (z_t − Σ_{s<t} C_ts w_s)/C_tt."""

    def __init__(self, C: Vector) -> None:
        T = len(C)
        super().__init__(T)
        self.C = C
        # a saved factor may differ by so much
        self.agreement = T * _CLOSE
        self._slack = ROUNDING * (1.0 + self.agreement)
        self.column_norm = float(np.linalg.norm(C, axis=0).max()) * self._slack
        self.reach = reach_of(float(C.sum(axis=1).max()) * self._slack, T + 2.0)
        inverse = np.linalg.inv(C)
        self.inverse_norms = np.linalg.norm(inverse, axis=1)
        self._errors = np.linalg.norm(np.cumsum(inverse, axis=0), axis=1)

    def joint_norm(self, participations: int, min_separation: int = 1) -> float:
        most = most_participations(self.horizon, participations, min_separation)
        products = self.C.T @ self.C
        # the largest of two columns so many steps apart, or more
        largest = [float(np.diagonal(products, gap).max()) for gap in range(self.horizon)]
        falling = np.maximum.accumulate(largest[::-1])[::-1]
        return joint_norm_of(lambda gap: float(falling[gap]), most, min_separation) * self._slack

    def begin(self, dimension: int, dtype: np.dtype[Any]) -> None:
        self._inputs, self._moves = np.zeros((2, self.horizon, dimension))
        self._total, self._rows = np.zeros(dimension), self.C.copy()

    def secret(self, t: int) -> dict[str, NDArray[Any]]:
        return {"inputs": self._inputs[:t]}

    def public(self, t: int) -> dict[str, NDArray[Any]]:
        return {"moves": self._moves[:t], "sum": self._total, "factor": self._rows}

    def check_saved(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if (np.abs(arrays["inputs"]) > self.reach).any():
            raise ValueError(f"inputs must be at most {self.reach:.3g} in size, got others")
        saved = arrays["factor"]
        if (np.abs(saved - self.C) > _CLOSE).any() or (saved < 0.0).any() or np.triu(saved, 1).any():
            raise ValueError("factor must be that of the weights, got another one: its noise was made for others")

    def error(self, t: int) -> float:
        return float(self._errors[t - 1])

    def encode(self, t: int, v: NDArray[Any]) -> NDArray[Any]:
        self._inputs[t] = v
        return np.rint(self._rows[t, : t + 1] @ self._inputs[: t + 1]).astype(np.int64)[None]

    def decode(self, t: int, z: NDArray[Any]) -> NDArray[Any]:
        row = self._rows[t]
        move = self._moves[t] = (z[0] - row[:t] @ self._moves[:t]) / row[t]
        self._total += move
        return self._total


def _checked(weights: ArrayLike) -> Vector:
    """Positive weights, the largest of them 1."""
    w = np.array(weights, dtype=np.float64)
    if w.ndim != 1 or not 1 <= w.size <= _LONGEST or not (np.isfinite(w) & (w > 0.0)).all():
        raise ValueError(f"weights must be 1 to {_LONGEST} positive numbers, got weights={weights!r}")
    relative: Vector = np.maximum(w / w.max(), _LEAST)
    relative.setflags(write=False)
    return relative


@lru_cache(maxsize=64)
def _best(weights: tuple[float, ...]) -> Vector:
    """C for these weights."""
    w = np.array(weights)
    # AᵀW^{1/2}; and diag(AᵀWA)^{1/2}, to start with
    half = np.triu(np.broadcast_to(np.sqrt(w), (len(w), len(w))))
    v = np.sqrt(np.cumsum(w[::-1])[::-1])
    for _ in range(_STEPS):
        U, values, _ = np.linalg.svd(np.sqrt(v)[:, None] * half)
        v = U**2 @ values
    U, values, _ = np.linalg.svd(np.sqrt(v)[:, None] * half)
    # X = YᵀY = CᵀC: with columns in reverse order the lower triangle C is R of Y = QR, but for signs
    Y = np.sqrt(values)[:, None] * U.T / np.sqrt(v)
    R = np.linalg.qr(Y[:, ::-1], mode="r")
    C: Vector = np.maximum((np.copysign(1.0, np.diag(R))[:, None] * R)[::-1, ::-1], 0.0)
    C /= np.linalg.norm(C, axis=0)
    C.setflags(write=False)
    return C
