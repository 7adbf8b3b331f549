"""How far one unit can move a value: sensitivities in closed form, each stated with its adjacency.

Unit: one row or one round, whose vector x has ‖x‖₂ ≤ 1 unless a bound says otherwise. ``"replace"``: the unit is
swapped for any other. ``"add_remove"`` and ``"zero_out"``: it is absent, or contributes nothing, on one side.

=========================================  =======================  ==========================================
value                                      add_remove, zero_out     replace
=========================================  =======================  ==========================================
x with ‖x‖₂ ≤ B                            B                        2B
w·x xᵀ, 0 ≤ w ≤ W, Frobenius norm          W                        √2·W
(a·w·x xᵀ, c·g·x), 0 ≤ w ≤ W, |g| ≤ B      √(a²W² + c²B²)           :func:`pair_sensitivity`
sums of such pairs, clipped as one           √(a²W² + c²B²)           :func:`summed_pairs_sensitivity`
one-hot over bins, in ℓ_q                  1                        2^(1/q)
=========================================  =======================  ==========================================
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import SupportsFloat, get_args

from accounting import Adjacency
from accounting.checks import nonnegative, positive

__all__ = [
    "one_hot_sensitivity",
    "outer_product_sensitivity",
    "pair_sensitivity",
    "several_pairs_sensitivity",
    "summed_pairs_sensitivity",
    "vector_sensitivity",
]


def _replaces(adjacency: Adjacency) -> bool:
    """Whether both neighbours hold a unit; refuses what is not an adjacency."""
    if adjacency not in get_args(Adjacency):
        raise ValueError(f"adjacency must be one of {get_args(Adjacency)}, got adjacency={adjacency!r}")
    return adjacency == "replace"


def vector_sensitivity(bound: SupportsFloat, adjacency: Adjacency) -> float:
    """The L2 sensitivity of x with ‖x‖₂ ≤ ``bound``: the triangle inequality, attained by x′ = −x.

    Examples
    --------
    >>> from dpkit.geometry import vector_sensitivity
    >>> vector_sensitivity(1.5, "replace"), vector_sensitivity(1.5, "add_remove")
    (3.0, 1.5)
    """
    B = positive("bound", bound)
    return 2.0 * B if _replaces(adjacency) else B


def outer_product_sensitivity(weight: SupportsFloat, adjacency: Adjacency) -> float:
    """The Frobenius sensitivity of w·x xᵀ with 0 ≤ w ≤ ``weight`` and ‖x‖₂ ≤ 1.

    ‖w x xᵀ − w′ x′x′ᵀ‖² = w²‖x‖⁴ + w′²‖x′‖⁴ − 2ww′(xᵀx′)² ≤ 2W², attained by orthogonal unit vectors.

    Examples
    --------
    >>> from dpkit.geometry import outer_product_sensitivity
    >>> round(outer_product_sensitivity(0.25, "replace"), 6), outer_product_sensitivity(0.25, "zero_out")
    (0.353553, 0.25)
    """
    W = positive("weight", weight)
    return math.sqrt(2.0) * W if _replaces(adjacency) else W


def pair_sensitivity(
    matrix_scale: SupportsFloat,
    weight: SupportsFloat,
    vector_scale: SupportsFloat,
    bound: SupportsFloat,
    adjacency: Adjacency,
    *,
    least: SupportsFloat = 0.0,
) -> float:
    """The joint sensitivity of (a·w·x xᵀ, c·g·x) in the norm √(‖·‖_F² + ‖·‖₂²), with ‖x‖₂ ≤ 1.

    Less than the two sensitivities combined: the matrices differ most for orthogonal vectors, the vectors for
    opposite ones.

    Parameters
    ----------
    matrix_scale, vector_scale : float
        a and c, at least 0.
    weight : float
        W, with 0 ≤ w ≤ W for every unit.
    bound : float
        B, with |g| ≤ B for every unit.
    adjacency : {"replace", "add_remove", "zero_out"}
    least : float
        m in [0, W], where no long vector comes with a small matrix: every unit has some q ∈ [0, 1] for which the vector
        g·x has at most the length qB and the matrix w·x xᵀ at least the norm mq².

    Returns
    -------
    float
        √(a²W² + c²B²) for add_remove and zero_out; for replace the root of the largest, over 0 ≤ s ≤ 1 and two pairs
        (ω, γ) and (ω′, γ′) out of (W, B), (m, B) and (0, B/2), of a²(ω² + ω′² − 2ωω′s²) + c²(γ² + γ′² + 2γγ′s). With
        m = 0 this is the larger of a²W² + 4c²B² and max over s of 2a²W²(1 − s²) + 2c²B²(1 + s).

    Notes
    -----
    Proof for replace. Write x = √p·u and x′ = √p′·u′ with unit vectors, ω = wp ∈ [0, W] and γ = g√p ∈ [−B, B]. The
    squared distance of the two pairs is

        a²(ω² + ω′² − 2ωω′(uᵀu′)²) + c²(γ² + γ′² − 2γγ′uᵀu′).

    It is convex in (ω, γ), and in (ω′, γ′). As |γ| ≤ qB and ω ≥ mq² ≥ m(2q − 1), (ω, γ) is in the polygon W ≥ ω ≥
    max(0, m(2|γ|/B − 1)), |γ| ≤ B, of which the vertices are (0, ±B/2), (m, ±B) and (W, ±B); so the distance is largest
    at two of these, with the signs that make −γγ′uᵀu′ = |γγ′|s, s = |uᵀu′|. There it is a parabola in s, with its
    maximum over [0, 1] at s* = min(1, c²|γγ′|/(2a²ωω′)).

    The bound also holds when a change moves a unit between two steps i, j of a stream that is encoded by a
    matrix C ≥ 0 with columns of norm at most 1. With ρ = ⟨Ce_i, Ce_j⟩ ∈ [0, 1], the inner products above are
    multiplied by ρ; what is left is linear in ρ, so largest at ρ = 1 (above) or at ρ = 0. There it is at most
    2a²W² + 2c²B², which is the parabola of (W, B) with itself at s = 0.

    Examples
    --------
    >>> from dpkit.geometry import pair_sensitivity
    >>> round(pair_sensitivity(1.0, 1.0, 1.0, 1.0, "replace") ** 2, 12)
    5.0
    >>> round(pair_sensitivity(1.0, 1.0, 0.5, 1.0, "replace") ** 2, 12)
    2.53125
    >>> round(pair_sensitivity(1.0, 1.0, 1.0, 1.0, "replace", least=0.5) ** 2, 12)
    4.5
    """
    a, W = nonnegative("matrix_scale", matrix_scale), nonnegative("weight", weight)
    c, B = nonnegative("vector_scale", vector_scale), nonnegative("bound", bound)
    m = nonnegative("least", least)
    if m > W:
        raise ValueError(f"least must be at most weight={W:g}, got least={m:g}")
    if not _replaces(adjacency):
        return math.hypot(a * W, c * B)
    size = max(a * W, c * B)  # squares of what is divided by it neither under- nor overflow to less than they are
    if size == 0 or size == math.inf:
        return size
    vector = c * B / size
    corners = [(a * W / size, vector), (a * m / size, vector), (0.0, 0.5 * vector)]
    largest = 0.0
    for (one, g), (other, h) in combinations_with_replacement(corners, 2):
        s = g * h / (2.0 * one * other) if g * h < 2.0 * one * other else 1.0
        largest = max(largest, one**2 + other**2 - 2.0 * one * other * s**2 + g**2 + h**2 + 2.0 * g * h * s)
    return size * math.sqrt(largest)


def several_pairs_sensitivity(
    matrix_scale: SupportsFloat,
    weight: SupportsFloat,
    vector_scale: SupportsFloat,
    bound: SupportsFloat,
    adjacency: Adjacency,
) -> float:
    """The joint sensitivity of a unit with several pairs (a·w·x xᵀ, c·g·x) in a stream, over that of its columns.

    The stream is encoded by a C ≥ 0. The unit has pairs u_j at the steps j ∈ S, at most one at each, and in a
    neighbouring stream others, v_j, at the steps j ∈ S′, where ‖Σ_{j∈S} Ce_j‖² ≤ Q, and so for S′. Then the encoded
    streams are at most √Q times this number apart. (With one pair, :func:`pair_sensitivity` is a little less.)

    Parameters
    ----------
    matrix_scale, weight, vector_scale, bound, adjacency
        As for :func:`pair_sensitivity`.

    Returns
    -------
    float
        √(A + G) for add_remove and zero_out, A = a²W² and G = c²B²; for replace the root of the larger of
        A + 2G + √(A² + 4G²) and 2A + 2G + max over 0 ≤ s ≤ 1 of (2Gs − 2As²).

    Notes
    -----
    Row t of the difference is Σ_S C_tj u_j − Σ_S′ C_tj v_j = αu − βv with α = Σ_S C_tj, β = Σ_S′ C_tj, and u and v
    in the convex hull of pairs (of which 0 is one). Its square is convex in u and in v, hence at most what it is at two
    pairs. As in the proof of :func:`pair_sensitivity`, it is convex in each of the weights, too, so that one of two
    corners bounds it, with s = |xᵀx′| of unit vectors:

        A(α² + β² − 2αβs²) + G(α² + β² + 2αβs)    and, at s = 1,    A·max(α, β)² + G(α + β)².

    Let n = α² + β² and 2αβ = n·cos φ, so that max(α, β)² = n(1 + sin φ)/2. The first is at most n(A + G) + n·max(Gs −
    As²); the second is n(A/2 + G + (A/2) sin φ + G cos φ) ≤ n(A/2 + G + √(A²/4 + G²)). The sum of n over all rows is at
    most 2Q. For zero_out, β = 0, and the rows' α²(A + G) add up to Q(A + G).

    Examples
    --------
    >>> round(several_pairs_sensitivity(1.0, 1.0, 1.0, 1.0, "replace") ** 2, 12)
    5.2360679775
    """
    one = nonnegative("matrix_scale", matrix_scale) * nonnegative("weight", weight)
    other = nonnegative("vector_scale", vector_scale) * nonnegative("bound", bound)
    size = max(one, other)
    if not _replaces(adjacency) or size == 0 or size == math.inf:
        return math.hypot(one, other)
    matrix, vector = (one / size) ** 2, (other / size) ** 2
    s = min(1.0, vector / (2.0 * matrix)) if matrix else 1.0
    apart = 2.0 * matrix * (1.0 - s * s) + 2.0 * vector * (1.0 + s)
    return size * math.sqrt(max(matrix + 2.0 * vector + math.hypot(matrix, 2.0 * vector), apart))


def summed_pairs_sensitivity(
    matrix_scale: SupportsFloat,
    weight: SupportsFloat,
    vector_scale: SupportsFloat,
    bound: SupportsFloat,
    adjacency: Adjacency,
) -> float:
    """The joint sensitivity of (aM, cb), M positive semidefinite, where both are clipped as one vector.

    A unit that leaves several pairs (w·x xᵀ, g·x), such as a page of items, is summed first: M = Σw·x xᵀ, b = Σg·x.
    With p = 2 for replace and p = 1 for add_remove and zero_out, let the clipped norm be

        n(M, b) = √(a²‖M‖_F² + p·c²‖b‖²) ≤ R = √(a²W² + p·c²B²),

    so that a single pair at its bounds W and B just fits. However many pairs there are, the sensitivity is √p·R.

    Parameters
    ----------
    matrix_scale, weight, vector_scale, bound, adjacency
        As for :func:`pair_sensitivity`.

    Notes
    -----
    Proof for replace. The inner product of positive semidefinite matrices is not negative, so that
    ‖M − M′‖² ≤ ‖M‖² + ‖M′‖², and ‖b − b′‖² ≤ 2‖b‖² + 2‖b′‖². So the squared distance is at most n² + n′² ≤ 2R². It is
    attained by matrices with orthogonal ranges and opposite vectors. (A vector b that is a sum of g·x has a part in the
    range of M, so that two such units get as near to this as their pairs with w ≪ W allow.) Else one side is 0, and the
    distance is n itself.

    In a stream that is encoded by a C ≥ 0, a unit with values u_j at the steps S, and v_j at S′ in the neighbouring
    stream, adds αu − βv to row t, α = Σ_S C_tj and β = Σ_S′ C_tj, with u and v in the convex set n ≤ R. By the same two
    steps its square is at most (α² + β²)R². So the encoded streams are at most √Q times √2·R apart where no unit's
    columns add up to more than ‖Σ_S Ce_j‖² ≤ Q: with one value each, wherever it comes, Q = 1 if no column is longer.

    Examples
    --------
    >>> round(summed_pairs_sensitivity(1.0, 1.0, 1.0, 1.0, "replace") ** 2, 12)
    6.0
    >>> round(summed_pairs_sensitivity(1.0, 1.0, 1.0, 1.0, "zero_out") ** 2, 12)
    2.0
    """
    one = nonnegative("matrix_scale", matrix_scale) * nonnegative("weight", weight)
    other = nonnegative("vector_scale", vector_scale) * nonnegative("bound", bound)
    p = 2.0 if _replaces(adjacency) else 1.0
    return math.sqrt(p) * math.hypot(one, math.sqrt(p) * other)


def one_hot_sensitivity(norm: SupportsFloat, adjacency: Adjacency) -> float:
    """The ℓ_q sensitivity of a one-hot vector over bins, q = ``norm`` in [1, ∞]: two bins differ by 2^(1/q).

    Examples
    --------
    >>> from dpkit.geometry import one_hot_sensitivity
    >>> one_hot_sensitivity(1, "replace"), round(one_hot_sensitivity(2, "replace"), 6)
    (2.0, 1.414214)
    >>> one_hot_sensitivity(2, "zero_out")
    1.0
    """
    q = positive("norm", norm, finite=False)
    if q < 1:
        raise ValueError(f"norm must be at least 1, got norm={norm!r}")
    return 2.0 ** (1.0 / q) if _replaces(adjacency) else 1.0
