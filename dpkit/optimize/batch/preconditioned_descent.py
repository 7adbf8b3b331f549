"""Noisy gradient descent in the metric of a noisy second moment: two dozen passes where plain descent takes hundreds.

For batches of a few hundred features at most, and for multinomial models. Sources: Böhning & Lindsay (1988) for the
bound on the curvature; Avella-Medina, Bradshaw & Loh (2021), arXiv:2103.11003, and Ganesh, Haghifam, Steinke & Thakurta
(2023), arXiv:2305.13209, for noisy second-order steps. With κ the objective's ``curvature_bound``, R = ``row_norm``:

    M̂ = Σ x_i x_iᵀ + noise,    P = (κ/n)(M̂₊ + ν·I) + (λT/(1 − β))·I,
    m_t = βm_{t−1} + ∇̂_t,      θ_{t+1} = Π_P(θ_t − P⁻¹m_t),    ∇̂_t = (1/n)(Σ_i ∇ℓ(θ_t; x_i) + noise),    t = 1 … T.

ν bounds the length of the noise in M̂, so that no direction looks flatter than it is and the first part of P is an
upper bound on the curvature; Π_P is the projection on ‖θ‖ ≤ ``radius`` in the metric of P. The mean of the last half of
the iterates is returned. Multinomial parameters take the same P for each class.

λ = σ√d/``typical``, with σ the noise of a mean gradient that had all of the steps' budget to itself. T steps of noise
√T·σ, which no curvature holds back, then take a θ no farther than about ``typical``; what is learned are the directions
of curvature above λ. So T is a matter of optimization alone, not of noise.

With a ``constant`` c every row, once it is shortened, is given a last feature c, for an offset; R² is then R² + c².

Privacy. Unit: one row, or with ``groups`` one person, whose mean gradient and mean second moment count. Rows are
shortened to R. A second moment xxᵀ/R² moves by at most √2 in Frobenius norm under replace, else 1: ‖aaᵀ − bbᵀ‖² =
‖a‖⁴ + ‖b‖⁴ − 2(aᵀb)² ≤ 2. Released with it is w = 0.2 times the number of rows that were shortened (by more than one
part in 10⁶; of a person's, their share), which moves by at most w: together by √(2 + w²) or √(1 + w²). A gradient sum
moves by 2·clip or clip. The moment costs Gaussian(z/√s), s = ``share``, and the steps T times Gaussian(z√(T/(1 − s))):
together exactly what Gaussian(z) costs, z calibrated to the budget. The rest is computed from what was released. Sums
and noise are exact.

Cost: nd² once, two products with the rows and O(d²) per step, and an eigendecomposition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting import Budget, Gaussian, Release, calibrate
from accounting.checks import fraction, integer, nonnegative, positive
from dpkit import randomness
from dpkit.clipping import lengths, shortened
from dpkit.geometry import smat
from dpkit.mechanisms import GaussianMechanism
from dpkit.mechanisms._checked import charged
from dpkit.models.losses import GLM
from dpkit.optimize.parts.exact_products import LAST_DIGIT, half_vector, rounded_once
from dpkit.optimize.parts.softmax import Softmax, SoftmaxSums
from dpkit.training.groups import GroupSums, checked_groups, gradient_sums
from dpkit.training.result import NOTHING, outcome
from dpkit.training.rows import GradientSums, checked_budget, checked_data, public_count
from dpkit.training.whole_rows import BITS

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from accounting import Ledger  # loaded by whoever has one

__all__ = ["preconditioned_descent"]

Vector = NDArray[np.float64]

# radius over typical: a ball that is wide enough not to matter where rows are many
_WIDE = 5.0
# w: the number of shortened rows takes w²/(2 + w²), two hundredths, of what the moment may cost
_COUNT = 0.2


def preconditioned_descent(
    objective: GLM | Softmax,
    X: ArrayLike,
    y: ArrayLike,
    *,
    budget: Budget,
    radius: float,
    row_norm: float = 1.0,
    constant: float = 0.0,
    typical: float | None = None,
    steps: int = 24,
    step_scale: float = 1.0,
    momentum: float = 0.75,
    share: float = 0.1,
    public_rows: int | None = None,
    groups: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    ledger: Ledger | None = None,
) -> OptimizeResult:
    """Minimise the mean loss over a ball by noisy steps in the metric of the rows' second moment.

    Parameters
    ----------
    objective : GLM or Softmax
        With a ``clip``, and of bounded curvature.
    X : (n, d) array_like
    y : (n,) array_like
        For a ``Softmax`` whole numbers 0, …, K − 1.
    budget : Budget
        Of any adjacency.
    radius : float
        Of the ball, public.
    row_norm : float
        R, public: longer rows are shortened to it.
    constant : float
        c ≥ 0, public: what is appended to every row; 0 appends nothing.
    typical : float, optional
        A guess at ‖θ‖, for a ``Softmax`` of each class, that the damping is made for; by default a fifth of ``radius``.
    steps : int
        T.
    step_scale : float
        Multiplies P⁻¹.
    momentum : float
        β in [0, 1).
    share : float
        s in (0, 1): what part of the budget goes into M̂.
    public_rows : int, optional
        The n that sums are divided by; by default the number of rows. Required under add_remove.
    groups : (n,) array_like of int or str, optional
        Whose row each one is, public; see :func:`dpkit.optimize.noisy_gradient_descent`.
    rng : numpy.random.Generator, optional
        None draws from the secure source, on a lattice; a seeded generator gives a simulation.
    ledger : Ledger, optional
        Charged with the whole run before any noise is drawn.

    Returns
    -------
    OptimizeResult
        See :func:`dpkit.training.result.outcome`; ``x`` has shape (d,), or (K, d) for a ``Softmax``, the
        constant's parameter last. ``shortened`` and ``shortened_std`` are the share of rows that were shortened,
        released with noise, and its standard deviation. Without rows ``x`` is 0, at no cost.

    Raises
    ------
    ValueError, TypeError
        For a parameter out of range, an objective of unbounded curvature, rows that are not finite, or labels that the
        objective is not for. Nothing is drawn or charged.
    BudgetExceeded
        If the ledger refuses.

    Examples
    --------
    >>> import numpy as np
    >>> from accounting import Budget
    >>> from dpkit.optimize import glm, preconditioned_descent
    >>> X = np.random.default_rng(0).normal(size=(5000, 3)) / 3
    >>> y = (X @ [1.0, -1.0, 0.0] > 0).astype(float)
    >>> fit = preconditioned_descent(glm("logistic", clip=1.0), X, y, budget=Budget(1.0, 1e-6), radius=50.0)
    >>> fit.nit, bool(fit.x[0] > 2.0 > -2.0 > fit.x[1])
    (24, True)
    """
    if not math.isfinite(objective.curvature_bound):
        raise ValueError(f"objective must have a bounded curvature, got {objective!r}")
    c, ball = nonnegative("constant", constant), positive("radius", radius)
    guess = ball / _WIDE if typical is None else positive("typical", typical)
    T = integer("steps", steps, at_least=1)
    scale = positive("step_scale", step_scale)
    beta = fraction("momentum", momentum, include_zero=True)
    s = fraction("share", share)
    checked_budget(budget, allowed=("replace", "add_remove", "zero_out"), people=True)
    sums, theta, shortened_units = _sums(objective, X, y, budget, groups, positive("row_norm", row_norm), c)
    R = math.hypot(row_norm, c) * (1.0 + 2.0**-40)
    d = theta.shape[-1]
    n = public_count(sums.units, public_rows, budget.adjacency)
    source = randomness.resolve(rng)
    if n == 0:
        none: dict[str, Any] = {"shortened": 0.0, "shortened_std": 0.0}
        return outcome(theta, NOTHING, nit=0, nfev=0, message="no rows: 0 is returned", clipped=0, **none)

    def once(z: float) -> Release:
        return Gaussian(z, adjacency=budget.adjacency)

    def costs(z: float) -> Release:
        return once(z / math.sqrt(s)) + T * once(z * math.sqrt(T / (1.0 - s)))

    z = calibrate(costs, budget)
    cost = costs(z)
    known: dict[str, Any] = {"adjacency": budget.adjacency, "rng": source}
    moves = math.sqrt((2.0 if budget.adjacency == "replace" else 1.0) + _COUNT**2)
    moves = moves * (1.0 + 2.0**-40) + LAST_DIGIT * math.sqrt(d * (d + 1) / 2 + 1)
    moment = GaussianMechanism(noise_multiplier=z / math.sqrt(s), sensitivity=moves, **known)
    noisy = GaussianMechanism(
        noise_multiplier=z * math.sqrt(T / (1.0 - s)), sensitivity=sums.sensitivity(budget.adjacency), **known
    )

    with charged(ledger, cost, "preconditioned gradient descent", source):
        count = (np.array([shortened_units]), math.floor(_COUNT * 2.0**40))
        released = moment.release(rounded_once([*half_vector(sums.second_moment(R)), count]))
        values, basis = np.linalg.eigh(smat(released[:-1]))
        noise = moment.noise_multiplier * moment.sensitivity
        floor = noise * math.sqrt(2.0 * d)
        curvature = objective.curvature_bound * R**2 / n * (np.maximum(values, 0.0) + floor)
        damping = noisy.noise_multiplier * noisy.sensitivity / n * math.sqrt(T * d) / guess
        metric = (curvature + damping / (1.0 - beta)) / scale
        if theta.ndim == 2:
            # momentum allows steps of up to 2(1 + β), and Böhning's bound is met only where two classes share all
            metric /= 2.0

        direction, mean = np.zeros_like(theta), np.zeros_like(theta)
        first = T // 2
        for t in range(T):
            gradient = noisy.release(sums.at(theta)) / n
            if theta.ndim == 2:  # softmax does not see what all classes have in common, and noise has it
                gradient = gradient - gradient.mean(axis=0)
            direction = beta * direction + gradient @ basis
            theta = _within(theta @ basis - direction / metric, metric, ball) @ basis.T
            if t >= first:
                mean = mean + (theta - mean) / (t - first + 1)
        return outcome(
            mean,
            cost,
            nit=T,
            nfev=(T + 1) * n,
            message=f"{T} full-batch steps in the metric of a noisy second moment, the mean of the last half",
            clipped=sums.clipped,
            shortened=float(released[-1]) / (_COUNT * n),
            shortened_std=noise / (_COUNT * n),
        )


def _sums(
    objective: GLM | Softmax,
    X: ArrayLike,
    y: ArrayLike,
    budget: Budget,
    groups: ArrayLike | None,
    row_norm: float,
    constant: float,
) -> tuple[GradientSums | GroupSums | SoftmaxSums, Vector, int]:
    """What is summed, the parameter to start from, and how many units were shortened, in 2⁻³⁶."""
    given = np.asarray(X)
    if given.ndim != 2 or given.shape[1] == 0:
        raise ValueError(f"X must have shape (n, d) with d of at least 1, got X.shape={given.shape}")
    given, labels = checked_data(given, y, given.shape[1], objective if isinstance(objective, GLM) else None)
    people = checked_groups(budget, groups, len(given))
    n, d = given.shape
    rows = np.full((n, d + (constant > 0)), constant)
    _, found = shortened(given, row_norm, out=rows[:, :d])
    cut = np.flatnonzero(found >= row_norm)
    cut = cut[lengths(given[cut]) > row_norm * (1.0 + 1e-6)]
    if people is None:
        units = len(cut) << 2 * BITS
    else:
        held = np.add.reduceat(np.isin(people.order, cut).astype(np.int64), people.starts) if n else np.zeros(0, int)
        units = int(((held << BITS) // people.sizes).sum()) << BITS
    longest = math.hypot(row_norm, constant) * (1.0 + 2.0**-40)
    if isinstance(objective, GLM):
        return gradient_sums(objective, rows, labels, people, longest), np.zeros(rows.shape[1]), units
    classes = labels.astype(np.intp)
    if not (np.array_equal(classes, labels) and ((classes >= 0) & (classes < objective.classes)).all()):
        raise ValueError(f"y must hold whole numbers from 0 to {objective.classes - 1}, got others")
    theta = np.zeros((objective.classes, rows.shape[1]))
    return SoftmaxSums(objective, rows, classes, people, longest), theta, units


def _within(theta: Vector, metric: Vector, radius: float) -> Vector:
    """The point of the ball that is nearest to θ in the norm √(Σ metric_j·θ_j²): metric·θ/(metric + μ)."""
    if np.linalg.norm(theta) <= radius:
        return theta
    low, high = 0.0, float(metric.max()) * float(np.linalg.norm(theta)) / radius
    for _ in range(100):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        inside = np.linalg.norm(theta * (metric / (metric + middle))) <= radius
        low, high = (low, middle) if inside else (middle, high)
    return np.asarray(theta * (metric / (metric + high)))
