"""A lower bound on ε from runs on two neighbouring inputs: a threshold test, chosen on one half, judged on the other.

A score orders the outputs. On the first half of the runs a test is chosen: the threshold, the side of it, the direction
(which input makes it likelier) and how the confidence is shared between the two counts. On the second half that one
test is evaluated with exact bounds (see ``confidence``), so the stated confidence needs no correction for the search.

With ``gaussian=True`` the claim under test is Gaussian DP, as in Nasr, Hayes, Steinke, Balle, Tramèr, Jagielski,
Carlini & Terzis, "Tight Auditing of Differentially Private Machine Learning" (arXiv:2302.07956): the two error rates at
a threshold bound μ from below, and μ gives ε at δ. What it rejects is "this is μ-GDP", so it sees ε at a δ far below
1/trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.arrays import Array
from accounting.audit.confidence import (
    FAR,
    Distance,
    check_confidence,
    critical,
    epsilon_distance,
    gaussian_distance,
    lower_confidence,
)
from accounting.audit.findings import LowerBound
from accounting.audit.scores import Score, logistic
from accounting.checks import fraction, integer
from accounting.conversions import gdp_epsilon

__all__ = ["from_scores", "lower_bound"]

# w = (sin, cos): how the confidence may be shared between the two counts
_ANGLES = tuple(np.linspace(0.08, math.pi / 2 - 0.08, 12).tolist())
# Standard deviations by which the level is raised when tests are compared on the first half: the one that looks best
# there was also lucky there. Under a Gaussian claim every threshold has the same μ to show, and luck is most of what
# tells them apart.
_CAUTION, _GAUSSIAN_CAUTION = 2.0, 4.0
_CANDIDATES = 80


def lower_bound(
    mechanism: Callable[..., Any],
    data: Any,
    neighbour: Any,
    *,
    trials: int,
    delta: float,
    confidence: float = 0.95,
    score: Score | None = None,
    batched: bool = False,
    gaussian: bool = False,
) -> LowerBound:
    """Run a mechanism on two neighbouring inputs and bound its ε from below.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(data)`` returns one output, a number or an array of fixed shape. Every call must be an
        independent run with fresh noise. With ``batched``, ``mechanism(data, trials)`` returns ``trials`` independent
        outputs at once, stacked along the first axis.
    data, neighbour
        Two inputs that are neighbours under the claim's adjacency. The bound holds for this pair; a worse
        pair may show more.
    trials : int
        Runs on each input, at least 8.
    delta : float
        The claim's δ, in [0, 1).
    confidence : float
        In [0.5, 1): the probability, over the runs, that the bound is below the truth.
    score : callable, optional
        Outputs of shape (trials, …) → scores of shape (trials,). Best is the log-likelihood ratio of the two inputs
        (``accounting.audit.scores``). By default a logistic classifier, trained on a quarter of the runs.
    batched : bool
        See ``mechanism``.
    gaussian : bool
        The claim is Gaussian DP: bound μ, and give ε through it. Needs δ > 0.

    Returns
    -------
    LowerBound
        With the test that shows it. ``bound.check(claim)`` raises if it is above the claim.

    Raises
    ------
    ValueError
        If the outputs of the runs differ in shape, or a score is NaN.
    TypeError
        If the outputs are not real numbers or arrays of them.

    Examples
    --------
    Laplace noise of half the scale that ε = 1 needs:

    >>> import numpy as np
    >>> from accounting import audit
    >>> rng = np.random.default_rng(1)
    >>> def mean(x, trials):
    ...     return x + rng.laplace(scale=0.5, size=trials)
    >>> bound = audit.lower_bound(
    ...     mean, 1.0, 0.0, trials=100_000, delta=0.0, score=audit.scores.laplace(1.0, 0.0, 0.5), batched=True
    ... )
    >>> 1.9 < bound.epsilon < 2.0
    True
    >>> bound.contradicts(1.0)
    True
    """
    count = integer("trials", trials, at_least=8)
    _check_level(delta, confidence, gaussian)
    outputs = _run(mechanism, data, count, batched)
    others = _run(mechanism, neighbour, count, batched)
    if outputs.shape != others.shape:
        raise ValueError(
            f"outputs must have the same shape on both inputs, got {outputs.shape[1:]} on the data "
            f"and {others.shape[1:]} on the neighbour"
        )
    if score is None:
        # the classifier's own training runs would look better separated than fresh ones
        trained = count // 4
        score = logistic(outputs[:trained], others[:trained])
        outputs, others = outputs[trained:], others[trained:]
        first = count // 2 - trained
    else:
        first = count // 2
    return _held_out(_scored(score, outputs), _scored(score, others), first, delta, confidence, gaussian)


def from_scores(
    scores: ArrayLike, neighbour_scores: ArrayLike, *, delta: float, confidence: float = 0.95, gaussian: bool = False
) -> LowerBound:
    """The same bound from scores that were computed elsewhere.

    Parameters
    ----------
    scores, neighbour_scores : array_like, shape (n,) and (m,)
        Scores of independent runs on one input and on its neighbour, at least 8 each, in the order of the runs (not
        sorted: the test is chosen on the first half of each). Infinite scores are allowed.
    delta, confidence, gaussian
        As in :func:`lower_bound`.

    Examples
    --------
    A Gaussian of multiplier 1 has ε = 4.377 at δ = 1e-5:

    >>> import numpy as np
    >>> from accounting import audit
    >>> rng = np.random.default_rng(1)
    >>> runs = rng.normal(1.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000)
    >>> events = audit.from_scores(*runs, delta=1e-5)
    >>> fit = audit.from_scores(*runs, delta=1e-5, gaussian=True)
    >>> 2.0 < events.epsilon < 4.1 < fit.epsilon < 4.377
    True
    """
    _check_level(delta, confidence, gaussian)
    pair = [_vector(name, value) for name, value in (("scores", scores), ("neighbour_scores", neighbour_scores))]
    for name, values in zip(("scores", "neighbour_scores"), pair, strict=True):
        if len(values) < 8:
            raise ValueError(f"{name} must hold at least 8 runs, got {len(values)}")
    return _held_out(pair[0], pair[1], None, delta, confidence, gaussian)


def _check_level(delta: float, confidence: float, gaussian: bool) -> None:
    fraction("delta", delta, include_zero=not gaussian)
    check_confidence(confidence)


def _run(mechanism: Callable[..., Any], data: Any, trials: int, batched: bool) -> NDArray[np.float64]:
    """Outputs of ``trials`` runs, stacked along the first axis."""
    raw = mechanism(data, trials) if batched else [np.asarray(mechanism(data)) for _ in range(trials)]
    if not batched:
        shapes = {output.shape for output in raw}
        if len(shapes) > 1:
            raise ValueError(f"outputs must have one shape, got {sorted(shapes)}")
    outputs = np.asarray(raw)
    if outputs.dtype.kind not in "buif":
        raise TypeError(f"outputs must be real numbers or arrays of them, got dtype {outputs.dtype}")
    if outputs.ndim == 0 or len(outputs) != trials:
        raise ValueError(f"a batched mechanism must return {trials} outputs, got an array of shape {outputs.shape}")
    return outputs.astype(np.float64, copy=False)


def _scored(score: Score, outputs: NDArray[np.float64]) -> Array:
    scores = _vector("scores", score(outputs))
    if len(scores) != len(outputs):
        raise ValueError(f"score must give one number for each of {len(outputs)} runs, got {len(scores)}")
    return scores


def _vector(name: str, values: ArrayLike) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"{name} must not be NaN, got {int(np.isnan(array).sum())} NaN among {array.size}")
    return array


def _held_out(
    scores: Array, others: Array, first: int | None, delta: float, confidence: float, gaussian: bool
) -> LowerBound:
    """Choose a test on the first runs (``first`` of each, by default half) and evaluate it on the rest."""
    theta: Distance = gaussian_distance if gaussian else epsilon_distance(delta)
    alpha = 1.0 - confidence
    cut = [len(s) // 2 if first is None else first for s in (scores, others)]
    caution = _GAUSSIAN_CAUTION if gaussian else _CAUTION
    swapped, below, threshold, angle = _choose(scores[: cut[0]], others[: cut[1]], theta, alpha, caution)
    pair = [scores[cut[0] :], others[cut[1] :]]
    if swapped:
        pair.reverse()
    hits = [int(np.count_nonzero(s < threshold if below else s >= threshold)) for s in pair]
    trials = [len(s) for s in pair]
    found = lower_confidence(theta, hits[0], trials[0], hits[1], trials[1], angle=angle, alpha=alpha)
    found = max(0.0, found)
    return LowerBound(
        epsilon=gdp_epsilon(found, delta) if gaussian else found,
        delta=float(delta),
        confidence=float(confidence),
        mu=found if gaussian else None,
        threshold=threshold,
        tail="<" if below else ">=",
        likelier="neighbour" if swapped else "data",
        hits=(hits[0], hits[1]),
        trials=(trials[0], trials[1]),
    )


def _choose(
    scores: Array, others: Array, theta: Distance, alpha: float, caution: float
) -> tuple[bool, bool, float, float]:
    """The direction, side, threshold and angle whose bound on these runs is largest, at a stricter level than asked."""
    from scipy.special import ndtr, ndtri

    level = float(ndtr(ndtri(alpha) - caution))
    thresholds = _candidates(np.sort(np.concatenate([scores, others])))
    below = [np.searchsorted(np.sort(s), thresholds) for s in (scores, others)]
    sizes = (len(scores), len(others))
    best = (-math.inf, False, False, 0.0, 0.0)
    for swapped, tail_below in ((s, t) for s in (False, True) for t in (False, True)):
        order = (1, 0) if swapped else (0, 1)
        (x, n), (y, m) = ((below[i] if tail_below else sizes[i] - below[i], sizes[i]) for i in order)
        values = _predicted(theta, x, n, y, m, level)
        angle, i = np.unravel_index(int(np.argmax(values)), values.shape)
        if values[angle, i] > best[0] or best[0] == -math.inf:
            best = (float(values[angle, i]), swapped, tail_below, float(thresholds[i]), _ANGLES[angle])
    return best[1:]


def _candidates(pooled: Array) -> Array:
    """Thresholds at geometrically spaced ranks from both ends, or all values if there are few."""
    distinct = np.unique(pooled)
    if len(distinct) <= 2 * _CANDIDATES:
        return distinct
    ranks = np.unique(np.geomspace(1, len(pooled) // 2, _CANDIDATES).astype(np.int64))
    return np.unique(pooled[np.concatenate([ranks, len(pooled) - ranks])])


def _predicted(theta: Distance, x: NDArray[np.int64], n: int, y: NDArray[np.int64], m: int, level: float) -> Array:
    """``lower_confidence`` of shape (angles, counts), with approximate quantiles: for choosing only."""
    w1, w2 = np.sin(_ANGLES)[:, None, None], np.cos(_ANGLES)[:, None, None]
    z = np.array([critical(angle, level) for angle in _ANGLES])[:, None, None]
    share = np.linspace(0.0, 1.0, 5)[None, :, None]
    a, b = share * z / w1, (1.0 - share) * z / w2
    p = np.where((x > 0) & (a < FAR), _beta_quantile(np.maximum(x, 1), n - x + 1.0, a), 0.0)
    q = np.where((y < m) & (b < FAR), _beta_quantile(y + 1.0, np.maximum(m - y, 1), -b), 1.0)
    return np.asarray(np.min(theta(p, q), axis=1))


def _beta_quantile(a: ArrayLike, b: ArrayLike, deviations: Array) -> Array:
    """About the Q(``deviations``)-quantile of Beta(a, b), a, b ≥ 1 (Abramowitz & Stegun 1964, 26.5.22).

    Where a or b is 1 it is exact: there the approximation is up to fifteen times too large in the tails, and of all
    events those that never happen on one of the inputs would look as if they showed nothing.
    """
    from scipy.special import expit, log_ndtr

    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    u, v = 1.0 / (2.0 * a - 1.0), 1.0 / (2.0 * b - 1.0)
    h = 2.0 / (u + v)
    lam = (deviations * deviations - 3.0) / 6.0
    w = deviations * np.sqrt(h + lam) / h - (v - u) * (lam + 5.0 / 6.0 - 2.0 / (3.0 * h))
    found = expit(np.log(a / b) - 2.0 * w)
    found = np.where(a == 1.0, -np.expm1(log_ndtr(deviations) / b), found)
    return np.asarray(np.where(b == 1.0, np.exp(log_ndtr(-deviations) / a), found))
