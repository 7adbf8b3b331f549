"""True and false claims for the checker of certificates, about releases whose δ is known from all their outputs.

The δ of a release at an ε is added up here over every output of two neighbours, in plain floating point and by nothing
of the checker or the accountants. From it come three claims about each release at one δ: both ends, which are true;
an upper end that is a little too small; and a lower end that is a little too large. "A little" is what the checker's
proof of that kind of sum loses: its enclosures must hold the true value, and be as narrow as that.

:func:`claims` are checked in ``tests/accounting/test_checker.py``; ``python -m benchmarks.certificates`` counts by them
which changes of the checker's code are noticed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr
from scipy.stats import multinomial

from accounting import (
    ZCDP,
    ApproxDP,
    Certificate,
    DiscreteGaussian,
    DiscreteLaplace,
    FixedSizeSubsampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    LocalShuffled,
    NoisyMax,
    PoissonSubsampled,
    PureDP,
    RandomizedResponse,
    Release,
    TreeAggregation,
    UnaryEncoding,
    bound,
    certificates,
    certify,
    parallel,
)
from accounting.releases.base import Composed, Parallel

__all__ = ["Claim", "claims", "delta_of"]

Array = NDArray[np.float64]
Curve = Callable[[Array], Array]

# What proofs lose of δ: a closed form or a list, a contour, a grid.
_EXACTLY, _ON_A_CONTOUR, _ON_A_GRID = 1e-9, 1e-5, 5e-3

_GAUSSIAN, _LAPLACE = PoissonSubsampled(Gaussian(1.0), 0.2), PoissonSubsampled(Laplace(1.0), 0.2)
_PURE, _RESPONSE = PoissonSubsampled(PureDP(1.0), 0.2), PoissonSubsampled(RandomizedResponse(1.0, 3), 0.2)
_LATTICES = [
    PoissonSubsampled(DiscreteLaplace(1.5, shift=2), 0.2),
    PoissonSubsampled(DiscreteGaussian(1.2, shift=2), 0.2),
]
#: By what they are proved: what the proof may lose of δ, and releases with a δ at which they are claimed.
CASES: dict[str, tuple[float, list[tuple[Release, float]]]] = {
    "closed forms": (
        _EXACTLY,
        [
            *((one, delta) for one in (Gaussian(1.3), GeneralizedGaussian(1.3)) for delta in (1e-3, 0.2)),
            (TreeAggregation(2.0, 5), 1e-3),
            (TreeAggregation(2.0, 8), 1e-3),
            *((Laplace(0.8), delta) for delta in (0.01, 0.3)),
            *((NoisyMax(1.0, noise), 0.02) for noise in ("gumbel", "exponential")),
            (PureDP(0.5), 0.01),
            (ApproxDP(0.5, 1e-3), 0.01),
            (RandomizedResponse(0.5, 3), 0.01),
            *((UnaryEncoding(1.0, 4, optimized=one), 0.05) for one in (True, False)),
            (DiscreteLaplace(2.0), 0.01),
            *((DiscreteLaplace(1.5, shift=3), delta) for delta in (0.01, 0.15, 0.25)),
            *((DiscreteGaussian(1.2, shift=shift), delta) for shift in (1, 2) for delta in (1e-4, 0.1)),
            *((FixedSizeSubsampled(one, 2, 10), 0.02) for one in (Gaussian(1.0), Laplace(1.0), PureDP(1.0))),
            (parallel(PureDP(1.0), Laplace(2.0)), 0.01),
            (parallel(Gaussian(1.0), 3 * RandomizedResponse(0.5, 3)), 0.01),
        ],
    ),
    "closed forms of samples": (
        _EXACTLY,
        [
            *((_GAUSSIAN, delta) for delta in (1e-4, 0.01, 0.05)),
            *((one, delta) for one in (_LAPLACE, _PURE, _RESPONSE, *_LATTICES) for delta in (0.003, 0.03)),
        ],
    ),
    "lists of sums": (
        _EXACTLY,
        [
            *((5 * PureDP(0.3), delta) for delta in (1e-3, 0.2)),
            (4 * ApproxDP(0.3, 1e-3), 0.02),
            (3 * RandomizedResponse(0.5, 3), 0.01),
            *((3 * UnaryEncoding(0.5, 4, optimized=one), 0.01) for one in (True, False)),
            *((3 * DiscreteLaplace(1.5, shift=3), delta) for delta in (0.01, 0.3)),
            (2 * DiscreteGaussian(1.2, shift=2), 0.01),
            (3 * _PURE, 0.01),
            (2 * RandomizedResponse(0.5, 3) + UnaryEncoding(0.4, 3), 0.02),
            (ApproxDP(0.5, 1e-3) + 2 * PureDP(0.3) + _RESPONSE, 0.01),
            (DiscreteGaussian(1.2, shift=2) + 2 * DiscreteLaplace(1.5, shift=3), 0.02),
        ],
    ),
    "contours": (
        _ON_A_CONTOUR,
        [
            (2 * Laplace(2.0) + Gaussian(3.0), 1e-3),
            (Laplace(2.0) + RandomizedResponse(0.5, 3), 0.02),
            (PureDP(0.4) + Gaussian(2.0), 1e-3),
            (3 * _RESPONSE, 0.01),
            (2 * PoissonSubsampled(DiscreteGaussian(1.2, shift=1), 0.2), 0.01),
            (DiscreteGaussian(1.2, shift=2) + Gaussian(2.0), 1e-3),
            (2 * ApproxDP(0.3, 1e-3) + Laplace(2.0), 0.02),
            (16 * _GAUSSIAN, 1e-3),
            (16 * PoissonSubsampled(Gaussian(2.0), 0.3) + Gaussian(4.0), 0.01),
        ],
    ),
    "grids": (_ON_A_GRID, [(2 * _GAUSSIAN, 0.01), (2 * _LAPLACE, 0.01), (_LAPLACE + Gaussian(2.0), 0.02)]),
    "other proofs": (0.0, []),
}
#: Lines of proof that are worse than those which are made: with them nothing false may be accepted, either.
_WORSE: dict[str, tuple[tuple[str, Callable[[dict[str, float]], float]], ...]] = {
    "contours": (
        ("step", lambda line: 3 * line["step"]),
        ("width", lambda line: 30 * line["width"]),
        ("beyond", lambda line: 1.001 * line["tilt"]),
    ),
    "grids": (
        ("top", lambda line: math.ceil(0.3 * line["top"])),
        ("bottom", lambda line: math.ceil(0.2 * line["top"])),
    ),
}
_USERS, _FEW = 16, 4
#: Largest losses, which are sums of rational numbers.
_TOPS: list[tuple[Release, float]] = [
    (PureDP(0.125) + Laplace(4.0) + 2 * RandomizedResponse(0.25, 3) + NoisyMax(0.5), 1.375),
    (3 * UnaryEncoding(0.25, 4) + DiscreteLaplace(2.0) + DiscreteLaplace(4.0, shift=3), 1.5),
    (NoisyMax(0.5, "exponential") + ApproxDP(0.25, 0.0), 0.75),
    (LocalShuffled(0.5, 20), 0.5),
    (parallel(PureDP(0.5), 2 * Laplace(2.0)), 1.0),
]
#: And largest losses of samples, which are not rational.
_TOPS_OF_SAMPLES: list[tuple[Release, float]] = [
    (one, math.log1p(0.2 * math.expm1(loss)))
    for one, loss in (
        *((one, 1.0) for one in (_LAPLACE, _PURE, _RESPONSE, FixedSizeSubsampled(Laplace(1.0), 2, 10))),
        (_LATTICES[0], 1 / 1.5),
    )
]


@dataclass(frozen=True)
class Claim:
    """A certificate as the checker reads it, and whether its claim is true."""

    stored: dict[str, Any]
    true: bool
    of: str

    def __repr__(self) -> str:
        return f"{self.of} is {'true' if self.true else 'false'}"


def claims(kind: str) -> Iterator[Claim]:
    """All of one of ``CASES``, about each release in turn, the false ones with worse proofs, too."""
    loss, cases = CASES[kind]
    for release, delta in cases:
        # δ falls where ε grows
        low, high = (_epsilon_of(release, delta * share) for share in (1 + loss, 1 - loss))
        made = replace(certify(release, delta), upper=high, lower=low)
        yield from _of(made, low, high)
        for name, worse in _WORSE.get(kind, ()):
            _, *false = _of(replace(made, proof=_changed(made.proof, name, worse)), low, high)
            yield from false[kind == "contours" :]  # on which the upper end needs next to nothing taken off
    if not cases:
        yield from _concentrated()
        yield from _of_messages()
        yield _of_far_losses()
        for release, most in _TOPS:
            yield from _of_top(release, math.nextafter(most, 0.0), most, most, math.nextafter(most, 9.0))
        for release, most in _TOPS_OF_SAMPLES:
            yield from _of_top(release, *(most * (1 + share) for share in (-2e-15, -1e-15, 1e-15, 2e-15)))


def _of_far_losses() -> Claim:
    """Of noise on integers at the last loss that the checker lists: it bounds all beyond, which are δ."""
    z, shift = 10.0, 50
    sigma = z * shift
    y = np.arange(math.ceil(15 * sigma) + 81 * shift, 60 * sigma)
    losses = shift * (2 * y + shift) / (2 * sigma**2)
    law = np.exp(-(y**2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    delta = float(np.sum(law * -np.expm1(losses[0] - losses)))
    return _claim(Certificate(DiscreteGaussian(z, shift=shift), 0.999 * delta, float(losses[0])), false=True)


def _of_top(release: Release, less: float, lower: float, upper: float, more: float) -> Iterator[Claim]:
    """Of the largest loss; where the upper end is far above it, too."""
    true = Certificate(release, 0.0, upper, lower)
    yield from _of(true, less, more)
    yield _claim(replace(true, upper=9.0, lower=more), false=True)


def _concentrated() -> Iterator[Claim]:
    """Of zCDP, which costs no less than Gaussian noise, nor than some coins, which are known from below."""
    for release, rho, delta in ((ZCDP(0.2), 0.2, 1e-3), (3 * ZCDP(0.1), 0.3, 0.02)):
        gaussian = Gaussian(math.sqrt(0.5 / rho))
        low, high = (_epsilon_of(gaussian, delta * share) for share in (1 + _EXACTLY, 1 - _EXACTLY))
        made = replace(certify(release, delta), lower=low)
        yield from _of(made, bound(release, delta).lower * (1 - 1e-6), high)


def _of_messages() -> Iterator[Claim]:
    """Of shuffled messages: their upper end is not that of some mechanism that is known."""
    delta = 5e-3
    responses = [RandomizedResponse(1.0, k) for k in (3, 4)]
    given: list[tuple[Any, tuple[int, ...]]] = [(1.0, (2, 3)), *((one, (int(one.categories),)) for one in responses)]
    for randomizer, categories in given:
        release = LocalShuffled(randomizer, users=_USERS)
        worst = partial(_worst_of_messages, categories)
        low, high = (_root(worst, delta * share) for share in (1 + _ON_A_CONTOUR, 1 - _ON_A_CONTOUR))
        listed = certify(release, delta)
        with mock.patch.object(certificates, "_MOST_WAYS", 0):
            integrated = certify(release, delta)
        for made in (listed, integrated):
            yield from _of(replace(made, lower=low), low, high)


def _of(true: Certificate, low: float, high: float) -> Iterator[Claim]:
    """The claim and, as it is false that ``low`` is enough and that ``high`` is needed, two more."""
    wider = 1.02 * max(true.upper, high)
    false = replace(true, upper=low, lower=None), replace(true, upper=wider, lower=high)
    for claim in (true, *false):
        yield _claim(claim, false=claim is not true)


def _claim(claim: Certificate, *, false: bool) -> Claim:
    of = f"{claim.lower} … {claim.upper} at {claim.delta} of {claim.release!r}"
    return Claim(json.loads(claim.to_json()), not false, of)


def _changed(proof: dict[str, Any], name: str, worse: Callable[[dict[str, float]], float]) -> dict[str, Any]:
    return {side: [line and {**line, name: worse(line)} for line in lines] for side, lines in proof.items()}


def _epsilon_of(release: Release, delta: float) -> float:
    return _root(partial(delta_of, release), delta)


def _root(curve: Callable[[float], float], delta: float) -> float:
    """The ε at which a δ that falls is ``delta``."""
    return float(brentq(lambda x: curve(x) - delta, 0.0, 30.0, xtol=1e-15, rtol=1e-15))


# ------------------------------------------------------------------------------------------- δ from all the outputs


def delta_of(release: Release, x: float) -> float:
    """δ at ε = ``x`` ≥ 0, in the worse order of the neighbours, by all their outputs."""
    if isinstance(release, Parallel):
        return max(delta_of(branch, x) for branch in release.branches)
    sides = (True,) if isinstance(release, FixedSizeSubsampled) else (True, False)
    return max(_delta(release, x, present) for present in sides)


def _delta(release: Release, x: float, present: bool) -> float:
    terms = release.parts if isinstance(release, Composed) else ((release, 1),)
    parts = [part for part, count in terms for _ in range(count)]
    real = [part for part in parts if _is_real(part)]
    each = [_outcomes(part) for part in parts if not _is_real(part)]
    p, q = reduce(lambda a, b: (_times(a[0], b[0]), _times(a[1], b[1])), each, (np.ones(1), np.ones(1)))
    p, q = (p, q) if present else (q, p)
    if not real:
        return math.fsum(np.maximum(p - math.exp(x) * q, 0.0))
    if len(real) > _FEW and not each:
        return _of_many(real, x, present)
    p, q = p[p > 0], q[p > 0]
    with np.errstate(divide="ignore"):
        losses = np.log(p) - np.log(q)
    for part in real[1:]:
        masses, more = _nodes(part, present)
        p, losses = _times(p, masses), np.add.outer(losses, more).ravel()
    far = losses == math.inf
    return float(p[far].sum()) + float(p[~far] @ _curve(real[0], present)(x - losses[~far]))


def _of_many(real: list[Release], x: float, present: bool) -> float:
    """As of a few, with all but the first added up on a fine grid, where each loss keeps its mean."""
    step, size = 2e-4, 1 << 18
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for part, count in Counter(real[1:]).items():
        masses, losses = _nodes(part, present)
        at = losses / step
        left = np.floor(at).astype(np.int64)
        law = np.bincount(left % size, masses * (left + 1 - at), size) + np.bincount(
            (left + 1) % size, masses * (at - left), size
        )
        spectrum *= np.fft.rfft(law) ** count
    sums = step * (np.arange(size) - size // 2)
    masses = np.asarray(np.roll(np.fft.irfft(spectrum, size), size // 2), dtype=np.float64)
    return float(np.dot(masses, _curve(real[0], present)(x - sums)))


def _times(a: Array, b: Array) -> Array:
    return np.multiply.outer(a, b).ravel()


def _is_real(release: Release) -> bool:
    inner = getattr(release, "release", release)
    return isinstance(inner, Gaussian | GeneralizedGaussian | TreeAggregation | Laplace | NoisyMax)


def _outcomes(release: Release) -> tuple[Array, Array]:
    """The laws of finitely many outputs with a unit, and without it or with another one."""
    match release:
        case PureDP(epsilon=eps):
            return _outcomes(RandomizedResponse(eps, 2))
        case DiscreteLaplace(noise_multiplier=z, shift=None):
            return _outcomes(RandomizedResponse(1 / z, 2))
        case ApproxDP(epsilon=eps, delta=failing):
            p, q = _outcomes(PureDP(eps))
            return np.append((1 - failing) * p, [failing, 0.0]), np.append((1 - failing) * q, [0.0, failing])
        case RandomizedResponse(epsilon=eps, categories=k):
            p = np.append(math.exp(eps), np.ones(int(k) - 1)) / (math.exp(eps) + k - 1)
            return p, np.roll(p, 1)
        case UnaryEncoding(epsilon=eps, optimized=optimized):
            # how often the bit of the own value is 1, and that of another value
            own, other = (0.5, _share(-eps)) if optimized else (_share(eps / 2), _share(-eps / 2))
            both = np.multiply.outer([own, 1 - own], [other, 1 - other])
            return both.ravel(), both.T.ravel()
        case DiscreteLaplace(noise_multiplier=z, shift=int(shift)):
            return _on_integers(lambda x: -np.abs(x) / (z * shift), shift, 60 * z * shift)
        case DiscreteGaussian(noise_multiplier=z, shift=int(shift)):
            return _on_integers(lambda x: -(x**2) / (2 * (z * shift) ** 2), shift, 15 * z * shift)
        case PoissonSubsampled(release=inner, rate=rate) | FixedSizeSubsampled(release=inner, rate=rate):
            p, q = _outcomes(inner)
            return (1 - rate) * q + rate * p, q
    raise ValueError(f"the outputs of {release!r} are not finitely many")


def _share(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _on_integers(log_mass: Callable[[Array], Array], shift: int, reach: float) -> tuple[Array, Array]:
    """Noise on the integers that is moved; outputs of one ratio count as one."""
    x = np.arange(-math.ceil(reach) - shift, math.ceil(reach) + shift + 1, dtype=np.float64)
    law, moved = np.exp(log_mass(x)), np.exp(log_mass(x - shift))
    _, alike = np.unique(np.round(log_mass(x - shift) - log_mass(x), 9), return_inverse=True)
    return np.bincount(alike, moved) / law.sum(), np.bincount(alike, law) / law.sum()


def _curve(release: Release, present: bool) -> Curve:
    """δ at any real ε of real noise, also on samples: with the unit over without it, or the other way round."""
    match release:
        case Gaussian(noise_multiplier=z) | GeneralizedGaussian(noise_multiplier=z):
            return lambda x: np.asarray(ndtr(0.5 / z - x * z) - np.exp(x) * ndtr(-0.5 / z - x * z))
        case TreeAggregation(noise_multiplier=z, steps=steps):
            return _curve(Gaussian(z / math.sqrt(1 + math.floor(math.log2(steps)))), present)
        case Laplace(noise_multiplier=z):
            # 1 − e^((x − 1/z)/2) between the largest losses, 1/z either way
            return lambda x: np.maximum(-np.expm1(np.where(x > -1 / z, (x - 1 / z) / 2, x)), 0.0)
        case NoisyMax(epsilon=eps, noise="gumbel"):
            return lambda x: np.array([_of_range(eps, float(one)) for one in x])
        case NoisyMax(epsilon=eps):
            return _curve(Laplace(1 / eps), present)
        case PoissonSubsampled(release=inner, rate=rate) | FixedSizeSubsampled(release=inner, rate=rate):
            whole = _curve(inner, present)

            def sampled(x: Array) -> Array:
                e = np.exp(x)
                # (1 − q)Q + qP − e^x·Q = q(P − c·Q), and Q − e^x((1 − q)Q + qP) = left·(Q − c·P)
                left = 1 - e * (1 - rate)
                c = (e - 1 + rate) / rate if present else e * rate / np.where(left > 0, left, 1.0)
                within = rate if present else left
                found = within * whole(np.log(np.maximum(c, 1e-300)))
                return np.asarray(np.where(c > 0, found, 1 - e) if present else np.where(left > 0, found, 0.0))

            return sampled
    raise ValueError(f"{release!r} is no noise on real numbers")


def _of_range(eps: float, x: float) -> float:
    """The most that a coin has at x whose losses are a and a − ε, over all a."""
    if x >= eps:
        return 0.0

    def less(a: float) -> float:
        return (1 - math.exp(a - eps)) / (math.exp(a) - math.exp(a - eps)) * (math.exp(x) - math.exp(a))

    return -float(minimize_scalar(less, bounds=(x, eps), method="bounded", options={"xatol": 1e-12}).fun)


def _nodes(release: Release, present: bool) -> tuple[Array, Array]:
    """Masses and losses that stand for those of real noise in an integral."""
    match release:
        case Laplace(noise_multiplier=z):
            nodes, weights = np.polynomial.legendre.leggauss(200)
            inside = weights / z * np.exp((nodes - 1) / z / 2) / 4
            return np.append(inside, [0.5, math.exp(-1 / z) / 2]), np.append(nodes, [1.0, -1.0]) / z
        case Gaussian(noise_multiplier=z):
            x = np.linspace(-10.0, 10.0, 4001)
            return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0]), x / z + 0.5 / z**2
        case PoissonSubsampled(release=inner, rate=rate):
            masses, losses = _nodes(inner, True)
            lacks, ratio = masses * np.exp(-losses), 1 - rate + rate * np.exp(losses)
            return (lacks * ratio, np.log(ratio)) if present else (lacks, -np.log(ratio))
    raise ValueError(f"{release!r} is no noise on real numbers")


def _worst_of_messages(categories: tuple[int, ...], x: float) -> float:
    """The largest δ where all others hold the first value, or a third one."""
    return max(_shuffled_delta(_USERS, k, others, x) for k in categories for others in range(0, k, 2)[:2])


def _shuffled_delta(users: int, k: int, others: int, x: float) -> float:
    """δ of shuffled responses at ε = 1 each, one of which is of the first or second value, and the rest of another."""
    laws, chances = _shuffled(users, k, others)
    return max(float(np.maximum(chances @ (laws[a] - math.exp(x) * laws[1 - a]), 0.0).sum()) for a in (0, 1))


@lru_cache(maxsize=8)
def _shuffled(users: int, k: int, others: int) -> tuple[Array, Array]:
    """The law of a message for each value; and how likely the counts are without each message that a unit may send."""
    laws = (np.ones((k, k)) + (math.e - 1) * np.eye(k)) / (math.e + k - 1)
    counts = np.array([c for c in product(range(users + 1), repeat=k) if sum(c) == users])
    less = counts[:, None, :] - np.eye(k, dtype=int)
    law = multinomial.pmf(np.maximum(less, 0), users - 1, laws[others])
    return laws, np.where((less >= 0).all(axis=2), law, 0.0)
