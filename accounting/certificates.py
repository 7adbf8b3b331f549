"""Certificates: a claimed ε with all that a stranger needs to prove it again.

A certificate is plain JSON: the description of the release, δ, the claimed ends, and for each sum of losses the line in
the complex plane on which :mod:`accounting.checker` integrates. The checker shares no code with the accountants and
works in ball arithmetic; the numbers of the proof that are chosen here in floating point decide how quickly and how
closely it proves, never what.

A number is *certified* if everything in its proof is enclosed. Of which descriptions that is so: :func:`is_certified`.
The others have constants that were chosen by experience, or functions that are assumed accurate; their brackets are
*numerical* (:attr:`accounting.Bracket.certified`), and they have no certificate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np

from accounting.bounds import bound
from accounting.checks import fraction, nonnegative
from accounting.compose.convolution import Convolution, Parts
from accounting.compose.failures import rest_delta, split_failures
from accounting.compose.pairs import sides
from accounting.conversions import best_order_for_epsilon, gdp_epsilon
from accounting.errors import UnsupportedRelease
from accounting.ledger.record.release_json import decode, encode
from accounting.loss.concentrated_curve import best_point
from accounting.loss.gaussian import GaussianPair
from accounting.loss.integers import IntegerPair
from accounting.loss.laplace import LaplacePair
from accounting.loss.pair import LossPair
from accounting.loss.randomizers import epsilon_at_least
from accounting.loss.responses import Coins
from accounting.loss.sampled import SubsampledPair
from accounting.releases import ZCDP, Composed, LocalShuffled, Parallel, RandomizedResponse, Release
from accounting.releases.certified import FEW, is_certified, is_concentrated
from accounting.releases.shuffling import randomizer_of
from accounting.roots import root_between

__all__ = ["Certificate", "certify"]

_FORMAT, _VERSION = "dp-certificate", 1
# Ends of sums are claimed by this share outwards, so that a proof need not be as sharp as the accountants' own.
_MARGIN = 1e-6
# What smoothing may add to ε, as a share of it, with that margin and without; and what sums over nodes add in place of
# integrals, as a share of δ.
_SMOOTHED, _CLOSELY, _ALIASED = 4e-7, 2e-8, 1e-8
# As few samples of Gaussian noise are added on a grid; the lower end of that proof is less sharp, and so are both of
# more of them, whose grid may not be as fine as it should.
_MOST_NODES, _ON_A_GRID, _ON_A_LONG_GRID, _BELOW, _FAR_BELOW = 1e6, 5e-6, 1e-4, 2e-3, 1e-2
# Lower ends of shuffled messages are claimed by this share less.
_ALIKE_MARGIN = 1e-5
# ln of the probability of losses that are not looked at, where the line is chosen.
_RAREST = -600.0
# Sums of finitely many losses are listed up to this; of those of Gaussian noise, whose transform decays, of fewer.
_MOST_LISTED, _MOST_OF_NORMAL = 250_000, 20_000
# And all ways in which few users answer, if there are no more.
_MOST_WAYS = 250_000
# How much closer lines of proof are than the first one, in the order in which they are tried.
_TRIES = (1, 16)
# ln of what terms of a sum may be larger than the sum.
_CANCELLED = 25.0


@dataclass(frozen=True)
class Certificate:
    """A claim about a release, and what is needed to prove it: see :func:`accounting.certify`.

    Attributes
    ----------
    release : Release
        What is claimed of.
    delta : float
        The δ of both ends.
    upper : float
        Every mechanism that fits is (``upper``, ``delta``)-DP.
    lower : float or None
        Some mechanism that fits is not (ε, ``delta``)-DP for any smaller ε; None claims nothing.
    proof : dict
        Lines of integration and witnesses, which say how the checker may prove it.

    Examples
    --------
    >>> from accounting import Gaussian, certify
    >>> certificate = certify(10 * Gaussian(5.0), 1e-6)
    >>> Certificate.from_json(certificate.to_json()) == certificate
    True
    """

    release: Release
    delta: float
    upper: float
    lower: float | None = None
    proof: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One JSON object, as the checker reads it."""
        stored = {
            "format": _FORMAT,
            "version": _VERSION,
            "release": encode(self.release),
            "delta": float(self.delta),
            "upper": float(self.upper),
            "lower": None if self.lower is None else float(self.lower),
            "proof": self.proof,
        }
        return json.dumps(stored, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The certificate of a text that :meth:`to_json` made.

        Raises
        ------
        ValueError
            If it is something else.
        """
        stored = json.loads(text, object_pairs_hook=_once)
        if not isinstance(stored, dict) or (stored.get("format"), stored.get("version")) != (_FORMAT, _VERSION):
            raise ValueError(f"text must be a certificate of the form {_FORMAT} {_VERSION}, got {text[:60]!r}…")
        if unknown := set(stored) - {"format", "version", "release", "delta", "upper", "lower", "proof"}:
            raise ValueError(f"a certificate has no field {min(unknown)!r}, got {text[:60]!r}…")
        if missing := {"release", "delta", "upper"} - set(stored):
            raise ValueError(f"a certificate has a {min(missing)}, got {text[:60]!r}…")
        release = decode(stored["release"])
        return cls(release, stored["delta"], stored["upper"], stored.get("lower"), stored.get("proof") or {})

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError):
            raise ValueError(
                f"{path} is no certificate, which is JSON: certify(...).save and dpkit epsilon --certificate write "
                "one. A ledger is verified by Ledger.verify and dpkit audit"
            ) from None


def _once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(fields)) < len(fields):
        raise ValueError("a certificate must say everything once, got a field that is written twice")
    return found


def certify(release: Release, delta: float, *, epsilon: float | None = None) -> Certificate:
    """A certificate of what ``release`` costs at ``delta``, which :func:`accounting.verify` checks.

    Where python-flint is installed it is checked here, too: what is returned is accepted.

    Parameters
    ----------
    release : Release
        A description, such as ``10_000 * PoissonSubsampled(Gaussian(1.0), 1e-3)``.
    delta : float
        In [0, 1).
    epsilon : float, optional
        Claim this ε, and no lower end: that of a budget which a calibrated release meets, or the ε at which
        ``delta`` was asked for. By default both ends of :func:`accounting.bound` are claimed.

    Raises
    ------
    UnsupportedRelease
        If the price of the description is numerical, but for zCDP (:attr:`accounting.Bracket.certified`), or infinite;
        or if the checker, where python-flint is installed, accepts none of the proofs that were tried.
    ValueError
        If ``epsilon`` is not proved to be enough by the accountants.

    Examples
    --------
    >>> from accounting import Budget, Gaussian, PoissonSubsampled, calibrate, certify
    >>> z = calibrate(lambda z: 100 * PoissonSubsampled(Gaussian(z), 0.01), Budget(1.0, 1e-6, adjacency="add_remove"))
    >>> certificate = certify(100 * PoissonSubsampled(Gaussian(z), 0.01), 1e-6, epsilon=1.0)
    >>> certificate.upper, certificate.lower
    (1.0, None)
    """
    fraction("delta", delta, include_zero=True)
    if not is_certified(release):
        raise UnsupportedRelease(f"the price of {release!r} is numerical: no part of this kind has a certificate yet")
    if epsilon is None:
        lower, upper = bound(release, delta)
        if delta > 0 and (rho := _concentrated(release)) > 0:
            # the coins that cost more have no short proof
            lower = min(lower, (1 - 1e-9) * gdp_epsilon(math.sqrt(2 * rho), delta))
        if isinstance(release, LocalShuffled) and release.randomizer is None and delta > 0:
            lower = min(lower, _alike(release, delta))
        ends: tuple[float | None, float] = (float(lower), float(upper))
    else:
        from accounting.totals import epsilon as least_epsilon

        ends = None, nonnegative("epsilon", epsilon)
        if (least := least_epsilon(release, delta)) > epsilon:
            raise ValueError(f"epsilon must be at least {float(least)!r}, got epsilon={epsilon!r}")
    if not math.isfinite(ends[1]):
        raise UnsupportedRelease(f"no finite ε is proved of {release!r} at delta={delta!r}")
    reason = ""
    for closer in _TRIES:
        certificate = _with_proof(release, float(delta), ends, closer, of_budget=epsilon is not None)
        if find_spec("flint") is None:
            return certificate
        from accounting.checker import verify

        if verdict := verify(certificate):
            return certificate
        reason = verdict.reason
    raise UnsupportedRelease(f"no proof was found of what {release!r} costs at delta={delta!r}: {reason}")


def _with_proof(
    release: Release, delta: float, ends: tuple[float | None, float], closer: float, *, of_budget: bool
) -> Certificate:
    """The certificate of both ends, which are claimed outwards, or of a budget as it is; ``closer`` is a smoothing."""
    share = (_CLOSELY if of_budget else _SMOOTHED) / closer
    proof, (lower, upper) = _proof(release, delta, ends, share), ends
    if lower is not None:
        if 0 < delta <= -math.expm1(split_failures(release)[0]) * (1 + 1e-9):
            # beyond the largest finite loss δ stays the same: only below it is more than that
            lower *= 1 - 1e-9
        lines = [line for side in proof.values() for line in side if line is not None]
        if lines:
            above, below = _MARGIN, _MARGIN
            if any("bottom" in line for line in lines):
                above, below = (_ON_A_LONG_GRID, _FAR_BELOW) if _terms(release) > FEW else (_ON_A_GRID, _BELOW)
            lower, upper = lower * (1 - below), upper * (1 + above)
    return Certificate(release, delta, upper, lower, proof)


def _terms(release: Release) -> int:
    """How many losses add up, at most."""
    if isinstance(release, Parallel):
        return max(map(_terms, release.branches))
    return sum(count for _, count in release.parts) if isinstance(release, Composed) else 1


def _proof(release: Release, delta: float, ends: tuple[float | None, float], share: float) -> dict[str, Any]:
    least, epsilon = ends[1] if ends[0] is None else ends[0], ends[1]
    if delta > 0 and isinstance(release, LocalShuffled):
        return {"present": [_shuffled(release, delta, epsilon, share)]}
    if delta == 0:
        return {}
    if (rho := _concentrated(release)) > 0:
        names, wider = ("order", "low", "high"), _MARGIN if share > _CLOSELY else 0.0
        return {"present": [dict(zip(names, best_point(rho, delta, epsilon * (1 + wider)), strict=True))]}
    log_survival, rest = split_failures(release)
    left = rest_delta(log_survival, delta) if log_survival else delta
    if left <= 0:
        return {}
    present, absent = sides(rest)
    # what may fail, or costs nothing, counts as a part of its own
    mixed = isinstance(release, Composed) and len(release.parts) > 1
    found = {"present": [_line(parts, left, (least, epsilon), share, mixed) for parts in present]}
    if present != absent:
        found["absent"] = [_line(parts, left, (least, epsilon), share, mixed) for parts in absent]
    return found


def _line(parts: Parts, delta: float, ends: tuple[float, float], share: float, mixed: bool) -> dict[str, float] | None:
    """Where to integrate, for a sum of losses; None where a closed form or a list does."""
    count = sum(count for _, count in parts)
    if count <= 1 and not mixed:
        return None
    losses = Convolution(parts, _RAREST)
    if ends[0] * (1 - _BELOW) >= losses.reach and all(_is_bounded(pair) for pair, _ in parts):
        return None
    # beyond the largest sum the upper end needs no line
    epsilon = ends[1] if ends[1] * (1 + _MARGIN) < losses.reach else ends[0] * (1 - _MARGIN)
    if math.prod(_listed(pair, count) for pair, count in parts) <= _MOST_LISTED:
        return None
    sampled = {type(pair.inner) for pair, _ in parts if isinstance(pair, SubsampledPair)}
    if LaplacePair in sampled or (GaussianPair in sampled and (count <= FEW or _hardly_read(parts))):
        rare = math.log(delta) - 21.0
        top = max(pair.highest(rare) for pair, _ in parts)
        bottom = max(pair.lowest(rare) for pair, _ in parts)
        tilt = best_order_for_epsilon(losses.divergence, min(delta, 0.5))
        if count > FEW:
            share /= 8
        scale = epsilon if epsilon > 0 else 1.0 / tilt
        step = min(math.sqrt(60 * share * scale / (count * tilt)), (top + bottom) / 500)
        step = max(step, count * (top + bottom) / _MOST_NODES)
        return {"step": step, "bottom": -math.ceil(bottom / step) - 1, "top": math.ceil(top / step) + 1}
    if GaussianPair in sampled:  # whose own smoothness decides
        share = _CLOSELY
    alone = [Convolution((part,), _RAREST) for part in parts]

    def curve(t: float) -> float:
        """Σ ln E[e^(tL)]: of samples of Gaussian noise moments grow from losses that are rarer than floats."""
        return math.fsum(
            one.counts[0] * np.logaddexp(one.curve(t) / one.counts[0], _far(pair, t))
            for one, (pair, _) in zip(alone, parts, strict=True)
        )

    # the checker lists the losses of integers: larger tilts are beyond its lists
    integers = [pair.inner if isinstance(pair, SubsampledPair) else pair for pair, _ in parts]
    tilts = [
        9 * one.noise_multiplier + 80 for one in integers if isinstance(one, IntegerPair) and one.noise == "gaussian"
    ]
    return contour(curve, delta, epsilon, min([1e7 / max(losses.highest), *tilts]), share)


def _listed(pair: LossPair, count: int) -> float:
    """How many sums of equal losses the checker lists; ∞ where it cannot."""
    inner = pair.inner if isinstance(pair, SubsampledPair) else pair
    few = isinstance(inner, Coins) and inner.categories == 2
    if not isinstance(inner, (Coins, IntegerPair)) or (count > 1 and inner is not pair and not few):
        return math.inf
    if isinstance(inner, Coins):
        return count * (2 if few else 3)
    if inner.noise == "laplace":
        return count * (inner.shift + 1)
    found = count * inner.shift * (30 * inner.noise_multiplier + 165)
    return found if found <= _MOST_OF_NORMAL else math.inf


def _is_bounded(pair: LossPair) -> bool:
    """Whether there is a largest loss, not only one that is the last on a list."""
    if isinstance(pair, SubsampledPair):
        return not pair.present or _is_bounded(pair.inner)
    return not isinstance(pair, GaussianPair) and not (isinstance(pair, IntegerPair) and pair.noise == "gaussian")


def _hardly_read(parts: Parts) -> bool:
    """Whether a unit is in none of a few dozen samples of Gaussian noise, most likely: a contour would be very long."""
    gaussian = all(isinstance(pair, SubsampledPair) and isinstance(pair.inner, GaussianPair) for pair, _ in parts)
    reads = math.fsum(count * pair.rate for pair, count in parts if isinstance(pair, SubsampledPair))
    return gaussian and reads <= 0.1 and sum(count for _, count in parts) <= 4 * FEW


def _far(pair: LossPair, t: float) -> float:
    """ln of q^(1+t)·e^((t²+t)μ²/2), the moment of a sample from losses of a unit that was read, if they are cut off."""
    if isinstance(pair, SubsampledPair) and pair.present and isinstance(pair.inner, GaussianPair):
        mu = pair.inner.mu
        if (t * mu) ** 2 / 2 > -0.95 * _RAREST:  # where the tilted loss is, and how rare without tilt
            return (1 + t) * math.log(pair.rate) + (t * t + t) * mu**2 / 2
    return -math.inf


def _concentrated(release: Release) -> float:
    """The ρ of a total that is only known to be zCDP, else 0."""
    parts = release.parts if isinstance(release, Composed) else ((release, 1),)
    known = is_concentrated(release)
    return math.fsum(part.rho * count for part, count in parts if isinstance(part, ZCDP)) if known else 0.0


def _shuffled(release: LocalShuffled, delta: float, epsilon: float, share: float) -> dict[str, Any] | None:
    """A line for the blanket, and one for each choice of what all others hold."""
    local, users = release.epsilon, int(release.users)
    if epsilon >= local:
        return None
    k = 0 if release.randomizer is None else int(getattr(release.randomizer, "categories", 0))
    e, grown = math.exp(local), math.exp(epsilon)
    gain, loss, none = e - grown, 1 - e * grown, 1 - grown

    def line(values: list[float], masses: list[float]) -> dict[str, Any]:
        rare = [min(users, users * m + 8 * math.sqrt(users * m) + 40) for m in sorted(masses)[:-1] if m > 0]
        if math.prod(rare) <= _MOST_WAYS:
            return {}  # all ways are added up
        v, m, scale = np.array(values) / values[0], np.array(masses), values[0]

        def curve(t: float) -> float:
            return users * (float(np.max(t * v)) + math.log(float(m @ np.exp(t * v - np.max(t * v)))))

        return contour(curve, delta * users / scale, 0.0, 1e4, 2 * share, losses=False)

    if k:
        lie = 1 / (e + k - 1)
        above = line([gain, loss, none, 0.0], [lie, lie, (k - 2) * lie, 1 - k * lie])
    else:
        lie = 1 / (e + 1)
        above = line([gain, loss, 0.0], [lie, lie, 1 - 2 * lie])
    # where no message of few is a lie there is no gain, and smoothing adds w/√2π to it; δ is convex in e^ε
    alone = (1 - (k or 2) * lie) ** users
    added = share * max(epsilon, 1e-3 * local) * grown / gain * delta * users / gain
    if above:
        above["width"] = min(above["width"], math.sqrt(2 * math.pi) * added / max(alone, 1e-300))
    below = []
    for others, n in (("first", k), ("third", k)) if k else (("first", 2), ("first", 3), ("third", 3)):
        lie = 1 / (e + n - 1)
        if others == "first":
            one = line([gain / e, loss, none], [e * lie, lie, (n - 2) * lie])
        else:
            one = line([gain, loss, none / e, none], [lie, lie, e * lie, (n - 3) * lie])
        below.append({"others": others, "categories": n, **one})
    return {"above": above, "below": below}


def _alike(release: LocalShuffled, delta: float) -> float:
    """The lower end that others have who all hold one value, of two or of three: its proof is short."""
    from scipy.special import gammaln  # not what every import waits for

    local, users = release.epsilon, int(release.users)
    e = math.exp(local)
    true, wide = e / (e + 1), 40 * math.sqrt(users)
    says = np.arange(max(0, int(users * true - wide)), min(users, int(users * true + wide)) + 1)
    ways = gammaln(users + 1.0) - gammaln(says + 1.0) - gammaln(users - says + 1.0)
    law = np.exp(ways + says * math.log(true) + (users - says) * math.log1p(-true))

    def excess(x: float) -> float:
        grown = math.exp(x)
        gains = says * (1 - grown / e) + (users - says) * (1 - e * grown)
        return float(law @ np.maximum(gains, 0.0)) / users - delta

    two = root_between(excess, 0.0, local, absolute=1e-12) if excess(0.0) > 0 else 0.0
    three = epsilon_at_least(randomizer_of(RandomizedResponse(local, 3)), users, delta)
    return max(two, three) * (1 - _ALIKE_MARGIN)


def contour(
    curve: Callable[[float], float], delta: float, epsilon: float, most: float, share: float, *, losses: bool = True
) -> dict[str, float]:
    """Tilt, step and width for a sum with the cumulant ``curve``, of losses or, at ``epsilon`` 0, of gains."""

    # what is added from below is at most e^(−tT), from above e^(tT) times what Chernoff's bound says of δ(ε + T)
    goal = math.log(delta) + math.log(_ALIASED)
    tilts = np.geomspace(1e-9, 1.0, 500) * most
    exponents = np.array([curve(float(t)) - t * epsilon for t in tilts])
    # Chernoff's bound
    cost = exponents - np.log(tilts + 1 if losses else tilts) - 1
    best = int(np.argmin(cost))
    found: tuple[float, float, float] | None = None
    for i in range(0, min(best + 1, tilts.size - 2)):
        # far from the saddle point digits cancel; what is next to nothing needs none
        if cost[i] - max(cost[best], math.log(delta)) < _CANCELLED:
            low = (0.7 - goal) / tilts[i]
            if not losses:
                low += 2 * math.log1p(low * tilts[i]) / tilts[i]
            periods = (exponents[i + 1 :] - goal) / (tilts[i + 1 :] - tilts[i])
            above = int(np.argmin(periods))
            period = max(low, float(periods[above]))
            if found is None or period < found[0]:
                found = period, float(tilts[i]), float(tilts[i + 1 + above])
    if found is None:
        raise UnsupportedRelease("no line of integration was found")
    period, tilt, beyond = found
    # the slope of ln δ, at the saddle point or where δ is as small as asked
    slope = float(tilts[np.argmax(cost <= max(cost[best], math.log(delta)) + 1e-9)])
    # ε grows by w²/2 times the density of the sum over the slope of δ
    scale = epsilon if epsilon > 0 else 1.0 / slope
    width = math.sqrt(2 * share * scale / (slope + losses))
    return {"tilt": tilt, "step": float(2 * math.pi / period), "width": float(width), "beyond": beyond}
