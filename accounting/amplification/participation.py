"""Units that take part more than once: a person with several rows, a client that returns in later rounds.

The descriptions price one change. A person who contributes to up to m inputs of a stream changes all of them at once;
with a *minimum separation* b any two of them are at least b steps apart, so that m ≤ ⌈steps/b⌉. What changes is the
sensitivity:

* :func:`tree_sensitivity`, :func:`toeplitz_sensitivity`: of a whole stream, relative to the L2 sensitivity of one
  input. The stream then costs ``Gaussian(noise_multiplier / sensitivity)``;
* :func:`at_most`: of several releases, each on its own round's data, of which a person is in at most m;
* :func:`group`: of one release, in which a person has up to m rows.

Both stream functions rest on one remark. Let contribution j be uⱼ·Δ with ‖uⱼ‖₂ ≤ 1, and let it shift what is noised
by aⱼuⱼᵀ. If all inner products ⟨aᵢ, aⱼ⟩ are nonnegative, ‖Σ aⱼuⱼᵀ‖² = Σ ⟨aᵢ, aⱼ⟩⟨uᵢ, uⱼ⟩ is largest when all uⱼ are
equal, where it is ‖Σ aⱼ‖². So only the set of steps is left to maximise over. (Under ``"replace"`` Δ is the distance
of two inputs, under ``"zero_out"`` or ``"add_remove"`` the norm of one; nothing else changes.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from accounting.arrays import Array
from accounting.checks import integer
from accounting.errors import UnsupportedRelease
from accounting.releases import (
    ZCDP,
    ApproxDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    NoisyMax,
    PureDP,
    RandomizedResponse,
    Release,
    ShuffledBinomial,
    TreeAggregation,
    parallel,
)
from accounting.releases.base import is_ours

__all__ = ["at_most", "group", "toeplitz_sensitivity", "tree_sensitivity"]


def _participations(steps: int, participations: int, min_separation: int) -> int:
    """How often a unit can really take part."""
    steps = integer("steps", steps, at_least=1)
    separation = integer("min_separation", min_separation, at_least=1)
    return min(integer("participations", participations, at_least=1), -(-steps // separation))


def tree_sensitivity(steps: int, participations: int = 1, min_separation: int = 1) -> float:
    """The L2 sensitivity of all nodes of a binary tree over ``steps`` inputs, one of which has sensitivity 1.

    Parameters
    ----------
    steps : int
        Length of the stream. The nodes are the complete binary intervals in it.
    participations : int
        The most inputs that one unit contributes to.
    min_separation : int
        Two of them are at least this many steps apart.

    Returns
    -------
    float
        √ max Σ (inputs of the unit under the node)², over nodes: exact if ``min_separation`` is a power of 2, otherwise
        an upper bound, as the separation is kept inside every node but not between neighbouring ones.

    Notes
    -----
    Under a node of width w lie at most min(m, ⌈w/b⌉) contributions. Let g_h(c) be the largest sum in a
    complete subtree of height h with c of them: g_h(c) = c² + max over a + a′ = c of g_{h−1}(a) + g_{h−1}(a′), each
    within its cap. The stream is a row of complete subtrees, one for every binary digit of ``steps``, over which the
    c are spread likewise. If b is a power of 2, steps that are multiples of b realise every such division. The work
    is O(m² log steps).

    Examples
    --------
    One contribution reaches one node per level; a second one at least 16 steps away shares the
    nodes of the upper levels:

    >>> tree_sensitivity(1024) ** 2
    11.0
    >>> round(tree_sensitivity(1024, 2, min_separation=16) ** 2, 9)
    34.0
    """
    most = _participations(steps, participations, min_separation)
    steps, separation = int(steps), int(min_separation)
    subtree = np.array([0.0, 1.0])  # g_0
    stream = np.zeros(1)
    for height in range(steps.bit_length()):
        if height:
            cap = min(most, -(-(2**height) // separation))
            subtree = _spread(subtree, subtree, cap) + np.arange(cap + 1.0) ** 2
        if steps >> height & 1:
            stream = _spread(stream, subtree, min(most, stream.size - 1 + subtree.size - 1))
    return math.sqrt(float(stream.max()))


def _spread(left: Array, right: Array, cap: int) -> Array:
    """max over a + b = c of left(a) + right(b), for c = 0 … cap."""
    best = np.full(cap + 1, -math.inf)
    for a, value in enumerate(left[: cap + 1]):
        stop = min(cap + 1, a + right.size)
        best[a:stop] = np.maximum(best[a:stop], value + right[: stop - a])
    return best


def toeplitz_sensitivity(coefficients: ArrayLike, participations: int = 1, min_separation: int = 1) -> float:
    """The L2 sensitivity of x ↦ Cx for the lower-triangular Toeplitz C with first column ``coefficients``.

    Parameters
    ----------
    coefficients : array_like, shape (steps,)
        c₀ ≥ c₁ ≥ … ≥ 0, as in the factorizations of ``dpkit.continual``.
    participations, min_separation : int
        As in :func:`tree_sensitivity`.

    Returns
    -------
    float
        ‖Σ of the columns 0, b, 2b, … (m − 1)b‖₂, exact.

    Raises
    ------
    ValueError
        If the coefficients are not finite, nonnegative and nonincreasing.

    Notes
    -----
    ⟨C_i, C_j⟩ = Σ over t ≥ 0, t + max(i, j) < steps, of c_t·c_{t+|i−j|}. It is nonnegative, falls as the
    later of the two moves right (fewer terms) and as the gap widens (smaller terms). The steps 0, b, 2b, … are at
    once the earliest and the closest, so every one of the inner products is at its largest (Kalinin & Lampert 2024,
    Theorem 2).

    Examples
    --------
    >>> import numpy as np
    >>> root = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1, 1024)))])  # C(2k, k)/4^k
    >>> round(toeplitz_sensitivity(root) ** 2, 12)
    3.272554150273
    >>> round(toeplitz_sensitivity(root, 4, min_separation=256), 6)
    4.387829
    """
    c = np.asarray(coefficients, dtype=np.float64)
    if c.ndim != 1 or c.size == 0 or not np.all(np.isfinite(c)):
        raise ValueError(f"coefficients must be a nonempty vector of finite numbers, got shape {c.shape}")
    if np.any(c < 0) or np.any(np.diff(c) > 0):
        raise ValueError(
            "coefficients must be nonnegative and nonincreasing for the earliest steps to be the worst ones"
        )
    most = _participations(c.size, participations, min_separation)
    total = np.zeros_like(c)
    for start in range(0, most * int(min_separation), int(min_separation)):
        total[start:] += c[: c.size - start]
    return float(np.linalg.norm(total))


def at_most(participations: int, rounds: Sequence[Release]) -> Release:
    """Releases on the data of separate rounds, of which one unit is in at most ``participations``.

    Each of ``rounds`` is the description of one round; a unit that is absent from a round does not touch it.
    Whichever m rounds it is in, it meets m releases out of the given ones, one after another: ``m *
    parallel(*rounds)``. The rounds must be joined by public information, or by the unit's own choice made without the
    others' data.

    Examples
    --------
    >>> from accounting import Gaussian
    >>> at_most(3, [Gaussian(2.0)] * 1000) == 3 * Gaussian(2.0)
    True
    """
    rounds = list(rounds)
    most = integer("participations", participations, at_least=1)
    return min(most, len(rounds)) * parallel(*rounds) if rounds else Composed()


def group(release: Release, size: int, *, min_separation: int = 1) -> Release:
    """What ``release`` costs a unit that owns up to ``size`` rows of its input.

    Parameters
    ----------
    release : Release
        Its description for one row.
    size : int
        The most rows of one unit.
    min_separation : int
        For :class:`~accounting.TreeAggregation`: the least distance of two of the unit's steps.

    Returns
    -------
    Release
        The description for the whole unit: noise that is relative to a shift is relative to ``size`` such shifts (the
        norms' triangle inequality), ε grows ``size``-fold, ρ with the square (Bun & Steinke 2016, Proposition 1.9), δ
        by (e^(size·ε) − 1)/(e^ε − 1), and local responses of several rows are several responses.

    Raises
    ------
    UnsupportedRelease
        For parallel, subsampled and locally shuffled releases, where the rows' joint effect is not determined by one
        row's.

    Examples
    --------
    >>> from accounting import Gaussian, PureDP
    >>> group(Gaussian(6.0) + PureDP(0.5), 3)
    (Gaussian(noise_multiplier=2.0) + PureDP(epsilon=1.5))
    """
    k = integer("size", size, at_least=1)
    adjacency = release.adjacency
    if not is_ours(type(release)):
        raise UnsupportedRelease(f"no group privacy is proved for {release!r}")
    match release:
        case Gaussian() | GeneralizedGaussian() | Laplace():
            return type(release)(release.noise_multiplier / k, adjacency=adjacency)
        case DiscreteGaussian(noise_multiplier=z, shift=shift) | DiscreteLaplace(noise_multiplier=z, shift=shift):
            return type(release)(z / k, None if shift is None else k * shift, adjacency=adjacency)
        case TreeAggregation(noise_multiplier=z, steps=steps):
            return Gaussian(z / tree_sensitivity(steps, k, min_separation), adjacency=adjacency)
        case PureDP(epsilon=eps):
            return PureDP(k * eps, adjacency=adjacency)
        case NoisyMax(epsilon=eps, noise=noise):
            return NoisyMax(k * eps, noise, adjacency=adjacency)
        case RandomizedResponse():
            return k * release
        case ZCDP(rho=rho):
            return ZCDP(k * k * rho, adjacency=adjacency)
        case ApproxDP(epsilon=eps, delta=delta):
            return ApproxDP(k * eps, _group_delta(eps, delta, k), adjacency=adjacency)
        case ShuffledBinomial(trials=trials, shift_norm=norm, coordinates=coordinates, rounded=rounded):
            # a randomly rounded number moves by less than 1 more than the number itself, for each of the k
            whole = norm + math.sqrt(coordinates) if rounded else norm
            return ShuffledBinomial(trials, k * whole, coordinates, adjacency=adjacency)
        case Composed(parts=parts):
            grouped = (count * group(part, k, min_separation=min_separation) for part, count in parts)
            return sum(grouped, Composed())
    raise UnsupportedRelease(f"no group privacy is proved for {release!r}")


def _group_delta(epsilon: float, delta: float, size: int) -> float:
    """δ(1 + e^ε + … + e^((size − 1)ε)), rounded up; refused where nothing is left."""
    with np.errstate(over="ignore"):
        total = delta * float(np.sum(np.exp(epsilon * np.arange(size)))) * (1 + 1e-12)
    if total >= 1:
        raise UnsupportedRelease(f"({epsilon:g}, {delta:g})-DP says nothing about a group of {size}")
    return total
